//! `ninefold-bench`: measures ninefold beside its peers, in the same run, and writes what it found.
//!
//! `ninefold bench NAME` executes it. Figures are ratios and counts: what a machine does in a second says little of another.

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().bench {
        Bench::Loopback(options) => loopback::run(&options),
        Bench::Pump(options) => loopback::pump::serve(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "ninefold-bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}
