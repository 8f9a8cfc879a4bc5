//! `ninefold-bench`: a link between two networks of this machine, and measurements of ninefold beside its peers.
//!
//! `ninefold bench NAME` and `ninefold lab …` execute it. Figures are ratios and counts: what a machine does in a second says
//! little of another.
#![forbid(unsafe_code)]

mod awake;
mod bulk;
mod calibrate;
mod debian;
mod describe;
mod handing;
mod interrupted;
mod loopback;
mod native;
mod regions;
mod round_trips;
mod size;
mod sshd;
mod streams;
mod thesis;
mod turns;

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
    /// Operations over a distance: messages, round trips and time, beside one message at a time, sshfs and rsync
    RoundTrips(round_trips::Options),
    /// What the round-trips bench does in the ends of its labs
    #[command(subcommand, hide = true)]
    RoundTripsPart(round_trips::part::Part),
    /// Whole files over a distance: the tables of Floren's thesis again, beside HTTP, bare sockets, scp, rsync and diod
    Thesis(thesis::Options),
    /// What the thesis bench does in the ends of its labs
    #[command(subcommand, hide = true)]
    ThesisPart(thesis::part::Part),
    /// This machine's costs of copying, reading, writing and mapping, and the constants by which streams choose their modules
    Calibrate(calibrate::Options),
    /// Streams beside fread, getline, cmp, read(2) and copy_file_range(2), on one processor
    Streams(streams::Options),
    /// The bare socket pump, as the loopback bench starts it
    #[command(hide = true)]
    Pump(loopback::pump::Options),
    /// The bare socket pump of scripts/bulk-table.sh: a whole file over one connection
    #[command(subcommand, hide = true)]
    Bulk(bulk::Bulk),
    /// A server's file by regions, or by the client's stream, for scripts/regions-table.sh
    #[command(hide = true)]
    Regions(regions::Options),
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
        Bench::RoundTrips(options) => round_trips::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::RoundTripsPart(part) => round_trips::part::run(&part).map(|()| ExitCode::SUCCESS),
        Bench::Thesis(options) => thesis::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::ThesisPart(part) => thesis::part::run(&part).map(|()| ExitCode::SUCCESS),
        Bench::Calibrate(options) => calibrate::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Streams(options) => streams::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Describe => describe(),
        Bench::Regions(options) => regions::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Bulk(bulk) => bulk::run(&bulk).map(|()| ExitCode::SUCCESS),
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
