//! `ninefold-hostile`: a 9P server that is decent in everything but one thing, for trying clients against.
//!
//! `--list` prints the misbehaviours. With the name of one it listens, prints a line that ends in its address, and plays
//! that one on every connection until it is killed.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use ninefold::transport::{Address, Listener};
use ninefold_conformance::hostile::{Hostile, Misbehaviour, all, find, streams};

/// Serve a small tree over 9P and misbehave in one way. Exit status: 0 the list was printed, 1 failed, 2 usage.
#[derive(Parser)]
#[command(name = "ninefold-hostile", version)]
struct Args {
    /// The misbehaviour to play
    #[arg(required_unless_present = "list", value_parser = misbehaviour)]
    name: Option<&'static Misbehaviour>,
    /// Print each misbehaviour, the dialects that it is played in, and the rule that it breaks
    #[arg(long, conflicts_with = "name")]
    list: bool,
    /// Where to listen: 9p://HOST[:PORT] or 9p+unix:/SOCKET; port 0 is a free one
    #[arg(long, default_value = "9p://127.0.0.1:0", value_name = "URL")]
    listen: Address,
}

fn misbehaviour(name: &str) -> Result<&'static Misbehaviour, String> {
    find(name).ok_or_else(|| "no such misbehaviour: --list names them".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.name {
        Some(misbehaviour) => play(misbehaviour, &args.listen),
        None => match list() {
            // Whoever reads has seen enough: `ninefold-hostile --list | head`.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            listed => listed.context("standard output"),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ninefold-hostile: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// A line each: name, dialects, what it does, and the rule in brackets.
fn list() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for misbehaviour in all().chain(streams()) {
        let dialects: Vec<&str> = misbehaviour.versions().map(|version| version.as_str()).collect();
        let rule = misbehaviour.rule.unwrap_or("odd, but no rule forbids it");
        writeln!(out, "{}\t{}\t{} [{rule}]", misbehaviour.name, dialects.join(" "), misbehaviour.what)?;
    }
    out.flush()
}

#[tokio::main]
async fn play(misbehaviour: &'static Misbehaviour, at: &Address) -> anyhow::Result<()> {
    let listener = Listener::bind(at).await?;
    let hostile = Arc::new(Hostile::new(misbehaviour).await?);
    let mut out = io::stdout().lock();
    writeln!(out, "ninefold-hostile: playing {} at {}", misbehaviour.name, listener.local_address()?)?;
    out.flush().context("standard output")?;
    drop(out);
    loop {
        let (stream, peer) = listener.accept().await;
        let hostile = hostile.clone();
        tokio::spawn(async move {
            if let Err(e) = hostile.serve(stream).await {
                eprintln!("ninefold-hostile: {peer}: {e}");
            }
        });
    }
}
