//! `ninefold-bench`: a link between two networks of this machine, and measurements of ninefold beside its peers.
//!
//! `ninefold bench NAME` and `ninefold lab …` execute it. Figures are ratios and counts: what a machine does in a second says
//! little of another.
#![forbid(unsafe_code)]

mod describe;
mod loopback;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "ninefold-bench", about = "Measures ninefold beside its peers", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The server beside diod and beside bare sockets, on this machine: operations, bytes and CPU time
    Loopback(loopback::Options),
    /// The bare socket pump, as the loopback bench starts it
    #[command(hide = true)]
    Pump(loopback::pump::Options),
    /// This command line in JSON, for `ninefold completions` and `ninefold man`
    #[command(hide = true)]
    Describe,
    /// Two networks of this machine, joined by a link of a given delay, rate and loss
    #[command(subcommand)]
    Lab(ninefold_lab::command::Command),
}

fn main() -> ExitCode {
    let bench = Arguments::parse().bench;
    // Under the name that it was called by.
    let name = if matches!(bench, Bench::Lab(_)) { "ninefold lab" } else { "ninefold-bench" };
    let result = match bench {
        Bench::Loopback(options) => loopback::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Describe => describe(),
        Bench::Pump(options) => loopback::pump::serve(&options).map(|()| ExitCode::SUCCESS),
        Bench::Lab(command) => ninefold_lab::command::run(&command),
    };
    result.unwrap_or_else(|e| {
        let _ = writeln!(std::io::stderr(), "{name}: {e:#}");
        ExitCode::FAILURE
    })
}

fn describe() -> anyhow::Result<ExitCode> {
    let document = serde_json::to_string(&describe::command(&Arguments::command()))?;
    writeln!(std::io::stdout(), "{document}")?;
    Ok(ExitCode::SUCCESS)
}
