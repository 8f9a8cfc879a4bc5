//! `ninefold demo`: the main job, end to end, on this machine, in seconds.
//!
//! Serves a private directory by starting this very command, and uses it as a client: in each of the three dialects,
//! over TCP, a Unix socket and standard input and output. Every reply is checked, and so is the file on disk.

mod client;
mod errand;
mod server;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use ninefold::proto::Dialect;

use client::Client;
use errand::{Errand, Times};
use server::{Server, Way};

/// Bytes of the file that is written and read: over a mebibyte, and no multiple of any message's size.
const FILE_SIZE: usize = (1 << 20) + 4321;

pub fn run() -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    // Mode 0700, and removed at the end.
    let dir =
        tempfile::Builder::new().prefix("ninefold-demo-").tempdir().context("cannot make a temporary directory")?;
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).with_context(|| tree.display().to_string())?;
    say(&format!("serving {} to myself\n", tree.display()))?;
    let server = Server::start(&tree, &dir.path().join("socket"))?;
    let content = content();
    let mut failed = 0;
    for way in Way::ALL {
        for dialect in Dialect::ALL {
            let name = format!("{:<9} over {way}", dialect.as_str());
            match talk(&server, way, dialect, &content) {
                Ok((took, times)) => say(&line(&name, took, &times))?,
                Err(e) => {
                    failed += 1;
                    say(&format!("✗ {name}: {e:#}\n"))?;
                }
            }
        }
    }
    match server.stop() {
        Ok(took) => say(&format!("✓ the server ended on SIGTERM with exit status 0, after {}\n", in_ms(took)))?,
        Err(e) => {
            failed += 1;
            say(&format!("✗ {e:#}\n"))?;
        }
    }
    let took = began.elapsed().as_secs_f64();
    if failed > 0 {
        say(&format!(
            "{failed} steps failed, in {took:.1} s; run again with RUST_LOG=debug to see the server's log\n"
        ))?;
        return Ok(ExitCode::FAILURE);
    }
    say(&format!("all done in {took:.1} s; to serve a directory of yours: ninefold serve DIR\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// One conversation, from connecting to hanging up.
fn talk(server: &Server, way: Way, dialect: Dialect, content: &[u8]) -> anyhow::Result<(Duration, Times)> {
    let began = Instant::now();
    let mut connection = server.connect(way).context("connect")?;
    let client = Client::new(connection.stream()?, dialect)?;
    let times = Errand { client, tree: server.tree(), content }.run()?;
    connection.hang_up()?;
    Ok((began.elapsed(), times))
}

fn line(name: &str, took: Duration, times: &Times) -> String {
    let mib = FILE_SIZE as f64 / f64::from(1 << 20);
    format!(
        "✓ {name}: attached, wrote {mib:.1} MiB in {}, read it back in {} (checksum {:016x}), listed, renamed, \
         removed; {} in all\n",
        in_ms(times.write),
        in_ms(times.read),
        times.checksum,
        in_ms(took)
    )
}

fn in_ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Bytes without a pattern that a misplaced block could hide in (xorshift64, Marsaglia 2003).
fn content() -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(FILE_SIZE + 8);
    while bytes.len() < FILE_SIZE {
        bytes.extend(next());
    }
    bytes.truncate(FILE_SIZE);
    bytes
}
