//! `ninefold-bench`: a link between two networks of this machine, and measurements of ninefold beside its peers.
//!
//! `ninefold bench NAME` and `ninefold lab …` execute it. Figures are ratios and counts: what a machine does in a second says
//! little of another.
#![forbid(unsafe_code)]

mod loopback;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Two networks of this machine, joined by a link of a given delay, rate and loss
    #[command(subcommand)]
    Lab(ninefold_lab::command::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().bench {
        Bench::Loopback(options) => loopback::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Pump(options) => loopback::pump::serve(&options).map(|()| ExitCode::SUCCESS),
        Bench::Lab(command) => ninefold_lab::command::run(&command),
    };
    result.unwrap_or_else(|e| {
        let _ = writeln!(std::io::stderr(), "ninefold-bench: {e:#}");
        ExitCode::FAILURE
    })
}
