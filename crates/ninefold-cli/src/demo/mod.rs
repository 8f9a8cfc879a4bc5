//! `ninefold demo`: the main job, end to end, on this machine, in seconds.
//!
//! Serves a private directory by starting this very command, and uses it by the commands that a person would type: in
//! each of the three dialects, over TCP, a Unix socket, and a stand-in for ssh. What is copied in is looked at where it
//! lies on disk, copied out again and compared; every command is printed with what came of it.

mod goods;
mod program;
mod server;
mod visit;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use ninefold::proto::Dialect;

use crate::signals::Signals;
use goods::Goods;
use program::Program;
use server::{Server, Way};
use visit::Visit;

/// Exit status after SIGINT or SIGTERM, as a shell tells it for SIGINT.
const INTERRUPTED: u8 = 130;

pub async fn run() -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    tokio::select! {
        // Dropped with everything that it started and made.
        () = signals.next() => Ok(ExitCode::from(INTERRUPTED)),
        result = show() => result,
    }
}

async fn show() -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    // Mode 0700, and removed at the end.
    let dir =
        tempfile::Builder::new().prefix("ninefold-demo-").tempdir().context("cannot make a temporary directory")?;
    say(&format!(
        "Everything happens in a private directory, which is removed at the end:\n$ cd {}\n",
        dir.path().display()
    ))?;
    let program = Program::new(dir.path())?;
    let goods = Goods::make(dir.path())?;
    say(&format!("    {}: {}\n", goods::NAME, goods.sum))?;
    let mut server = Server::start(&program).await?;
    let mut failed = 0;
    for way in Way::ALL {
        if way == Way::Ssh {
            say(&format!("\n$ export {}\n", program.environment()))?;
        }
        for dialect in Dialect::ALL {
            let visit = Visit { program: &program, goods: &goods, tree: server.tree(), url: server.url(way, dialect) };
            say(&format!("\n{dialect} over {way}\n"))?;
            if let Err(e) = visit.run().await {
                failed += 1;
                say(&format!("  ✗ {e:#}\n"))?;
                // The others find things as this one did.
                visit.clear()?;
            }
        }
    }
    say("\nWhat goes wrong is told, and is not taken for success\n")?;
    for way in Way::ALL {
        if let Err(e) = visit::miss(&program, &server.missing(way)).await {
            failed += 1;
            say(&format!("  ✗ {e:#}\n"))?;
        }
    }
    say("\nThe end\n")?;
    match server.stop().await {
        Ok(took) => say(&format!("  ✓ the server ended on SIGTERM with exit status 0, after {}\n", in_ms(took)))?,
        Err(e) => {
            failed += 1;
            say(&format!("  ✗ {e:#}\n"))?;
        }
    }
    let path = dir.path().to_owned();
    dir.close().with_context(|| format!("cannot remove {}", path.display()))?;
    let took = began.elapsed().as_secs_f64();
    if failed > 0 {
        say(&format!("\n{failed} failed, in {took:.1} s; RUST_LOG=debug ninefold demo shows more\n"))?;
        return Ok(ExitCode::FAILURE);
    }
    say(&format!("\nAll agreed, in {took:.1} s. To serve a directory of yours: ninefold serve DIR\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn in_ms(duration: Duration) -> String {
    format!("{:.0} ms", duration.as_secs_f64() * 1e3)
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}
