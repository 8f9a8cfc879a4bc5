//! `ninefold iostat`: a relay that counts messages and times them, after iostat(4) of Plan 9.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ninefold::relay::{self, Counter, Counts};
use serde_json::json;

use crate::args::Iostat;
use crate::output::Output;
use crate::serve;
use crate::signals::Signals;

pub async fn run(args: Iostat) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let listener = serve::bind(&args.listen, args.insecure, None).await?;
    let output = Output::new(io::stdout());
    let address = listener.local_address()?;
    if args.json {
        output.line(format!("{}\n", json!({"counting": args.url.to_string(), "address": address.to_string()})));
    } else {
        output.line(format!("ninefold: counting {} at {address}\n", args.url));
    }
    // Counted since the last table; the tables before it are in `total`.
    let recent = Arc::new(Mutex::new(Counts::default()));
    let mut total = Counts::default();
    let take = || std::mem::take(&mut *recent.lock().unwrap_or_else(PoisonError::into_inner));
    let show = |span: &str, counts: &Counts| {
        output.line(if args.json { object(span, counts) } else { table(span, counts) });
    };
    let relay = relay::run(&listener, args.url.clone(), |_number, _peer| Counter::new(recent.clone()));
    tokio::pin!(relay);
    let failure = loop {
        let interval = async {
            match args.interval {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut relay => break None,
            () = signals.next() => break None,
            e = output.failed() => break Some(e),
            () = interval => {
                let counts = take();
                total.merge(&counts);
                show("interval", &counts);
            }
        }
    };
    match failure {
        Some(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Some(e) => return Err(e).context("standard output: cannot write"),
        None => {
            total.merge(&take());
            show("total", &total);
            output.finish().await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What was counted, for a person.
fn table(span: &str, counts: &Counts) -> String {
    let mut out = format!(
        "{span}: {} connections, {} bytes to the server, {} to the client\n",
        counts.connections, counts.bytes_to_server, counts.bytes_to_client
    );
    if counts.by_type.is_empty() {
        return out;
    }
    let heads = ["count", "errors", "to server", "to client", "mean", "p50", "p99"];
    let [count, errors, to_server, to_client, mean, p50, p99] = heads;
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{:<13}{count:>10}{errors:>8}{to_server:>14}{to_client:>14}{mean:>10}{p50:>10}{p99:>10}",
        "message"
    );
    for (name, c) in &counts.by_type {
        let mean = in_words(c.latency.mean());
        let [p50, p99] = [50, 99].map(|percent| in_words(c.latency.percentile(percent)));
        let _ = writeln!(
            out,
            "{name:<13}{:>10}{:>8}{:>14}{:>14}{mean:>10}{p50:>10}{p99:>10}",
            c.requests, c.errors, c.bytes_to_server, c.bytes_to_client
        );
    }
    out
}

fn in_words(duration: Option<Duration>) -> String {
    match duration {
        None => "-".to_owned(),
        Some(d) if d < Duration::from_millis(1) => format!("{:.1} µs", d.as_secs_f64() * 1e6),
        Some(d) if d < Duration::from_secs(1) => format!("{:.1} ms", d.as_secs_f64() * 1e3),
        Some(d) => format!("{:.1} s", d.as_secs_f64()),
    }
}

/// What was counted, for a program; durations in seconds.
fn object(span: &str, counts: &Counts) -> String {
    let seconds = |d: Option<Duration>| d.map(|d| d.as_secs_f64());
    let rows = counts.by_type.iter().map(|(name, c)| {
        let row = json!({
            "count": c.requests,
            "errors": c.errors,
            "bytes_to_server": c.bytes_to_server,
            "bytes_to_client": c.bytes_to_client,
            "replies": c.latency.count(),
            "mean": seconds(c.latency.mean()),
            "p50": seconds(c.latency.percentile(50)),
            "p99": seconds(c.latency.percentile(99)),
        });
        (name.clone(), row)
    });
    let rows: serde_json::Map<_, _> = rows.collect();
    let object = json!({
        "span": span,
        "connections": counts.connections,
        "bytes_to_server": counts.bytes_to_server,
        "bytes_to_client": counts.bytes_to_client,
        "messages": rows,
    });
    format!("{object}\n")
}
