//! `ninefold-siege`: lays siege to any 9P server by its address and reports figures.
//!
//! Four sieges: `garbage` (a thousand connections that send rubbish beside one that behaves), `idle` (memory
//! of connections that do nothing), `fids` (more fids than descriptors), `attack` (somebody on the server's
//! own machine swaps directories with symbolic links while clients walk). Each prints its figures and what it
//! judged, as JSON with `--json`. Exit status 0 when every bound held, 1 when one broke, 2 for wrong usage.

mod address;
mod attack;
mod connection;
mod fids;
mod garbage;
mod idle;
mod process;
mod random;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "ninefold-siege", about = "Lays siege to a 9P server and reports figures")]
struct Arguments {
    /// Print one JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    siege: Siege,
}

#[derive(Subcommand)]
enum Siege {
    /// Latency of a well-behaved client, alone and beside connections that send rubbish.
    Garbage(garbage::Options),
    /// The server's memory for each connection that does nothing.
    Idle(idle::Options),
    /// More fids than the server may have descriptors.
    Fids(fids::Options),
    /// Clients at work while somebody swaps the exported directories with symbolic links.
    Attack(attack::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.siege {
        Siege::Garbage(options) => garbage::run(options),
        Siege::Idle(options) => idle::run(options),
        Siege::Fids(options) => fids::run(options),
        Siege::Attack(options) => attack::run(options),
    };
    match outcome {
        Ok(report) => {
            report.print(arguments.json);
            ExitCode::from(u8::from(!report.held()))
        }
        Err(error) => {
            eprintln!("ninefold-siege: {error:#}");
            ExitCode::FAILURE
        }
    }
}
