//! `ninefold trace`: a relay that prints every message.

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ninefold::proto::print::Data;
use ninefold::relay::{self, Direction, Observer, Part, Seen};

use crate::args::Trace;
use crate::out::json_line;
use crate::output::Output;
use crate::report::is_obeyed;
use crate::serve;
use crate::signals::Signals;

pub async fn run(args: Trace) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let listener = serve::bind(&args.listen, args.insecure, None).await?;
    let stdout = Output::new(io::stdout());
    let (output, name) = match &args.log {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            let file = file.with_context(|| format!("{}: cannot log there", path.display()))?;
            (Output::new(file), path.display().to_string())
        }
        None => (stdout.clone(), "standard output".to_owned()),
    };
    // In JSON on standard output there are only objects.
    let address = listener.local_address()?;
    if args.json && args.log.is_none() {
        stdout.line(format!(
            "{}\n",
            serde_json::json!({"tracing": args.url.to_string(), "address": address.to_string()})
        ));
    } else {
        stdout.line(format!("ninefold: tracing {} at {address}\n", args.url));
    }
    let several = Arc::new(AtomicBool::new(false));
    let data = if args.data { Data::Whole } else { Data::Elided };
    let relay = relay::run(&listener, args.url, |number, _peer| {
        several.fetch_or(number > 1, Ordering::Relaxed);
        Printer { number, several: several.clone(), data, json: args.json, output: output.clone() }
    });
    let result = tokio::select! {
        () = relay => Ok(()),
        () = signals.next() => Ok(()),
        e = output.failed() => Err((name, e)),
        e = stdout.failed() => Err(("standard output".to_owned(), e)),
    };
    match result {
        Ok(()) => output.finish().await,
        // Whoever reads has seen enough: `ninefold trace … | head`.
        Err((_, e)) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err((name, e)) => return Err(e).context(format!("{name}: cannot write")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one connection.
struct Printer {
    number: u64,
    /// There was more than one connection: lines say which they belong to.
    several: Arc<AtomicBool>,
    data: Data,
    json: bool,
    output: Output,
}

impl Observer for Printer {
    fn message(&self, seen: &Seen<'_>) {
        let line = if self.json { self.object(seen) } else { self.text(seen) };
        self.output.line(line);
    }

    async fn ready(&self) {
        self.output.ready().await;
    }
}

impl Printer {
    fn text(&self, seen: &Seen<'_>) -> String {
        let (arrow, text) = (seen.direction.arrow(), tame(&seen.text(self.data).to_string()));
        if self.several.load(Ordering::Relaxed) {
            format!("[{}] {arrow} {text}\n", self.number)
        } else {
            format!("{arrow} {text}\n")
        }
    }

    fn object(&self, seen: &Seen<'_>) -> String {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let object = serde_json::json!({
            "time": time.as_secs_f64(),
            "connection": self.number,
            "to": match seen.direction { Direction::ToServer => "server", Direction::ToClient => "client" },
            "dialect": seen.version.as_str(),
            "bytes": seen.size(),
            "whole": matches!(seen.part, Part::Whole(_)),
            "text": seen.text(self.data).to_string(),
        });
        json_line(&object)
    }
}

/// A message without anything that a terminal would obey: in its strings, bytes may be written as `\xHH`, and read back.
fn tame(text: &str) -> String {
    let mut tame = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_obeyed(c) {
            tame.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            // A String takes it all.
            let _ = write!(tame, "\\x{byte:02x}");
        }
    }
    tame
}
