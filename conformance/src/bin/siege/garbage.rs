//! The siege of garbage: what does a well-behaved client feel while a thousand connections send rubbish?
//!
//! Phases without and with the siege take turns (A B A B), so that a machine that slowly changes its speed
//! changes it for both. The latencies of the two kinds of phases are compared.

mod behaved;
mod horde;
mod rubbish;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::address::Address;
use crate::process::{Process, allow_descriptors};
use crate::random::fresh_seed;
use crate::report::Report;
use behaved::{Behaved, Latencies};
use horde::Horde;

/// The 99th percentile under siege may be so many times the one alone.
const BOUND: f64 = 2.0;
/// How often each kind of phase comes.
const TURNS: u32 = 2;
/// Descriptors of ours that are no besiegers.
const SPARE: u64 = 64;

#[derive(Args)]
pub struct Options {
    /// 9p://HOST:PORT[?aname=NAME]
    address: Address,
    /// Connections that send rubbish, and connect again when they are closed.
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Frames of rubbish a second, of all connections together.
    #[arg(long, default_value_t = 2_000)]
    rate: u32,
    /// Seconds alone, and as many under siege.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Rounds of getattr and read a second that the well-behaved client makes.
    #[arg(long, default_value_t = 500)]
    pace: u32,
    /// The server's process.
    #[arg(long)]
    pid: Option<u32>,
    /// Judge the ratio of the 99th percentiles, too.
    #[arg(long)]
    check: bool,
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the phases; an error means that the server did not answer the client that behaves.
pub fn run(options: &Options) -> Result<Report> {
    allow_descriptors(options.connections as u64 + SPARE)?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let server = options.pid.map(Process);
    let mut report = Report::new("garbage");
    report.figure("seed", seed);
    let mut client = Behaved::attach(&options.address, seed, options.pace)?;
    let phase = Duration::from_secs_f64(options.seconds) / TURNS;
    let mut alone = Latencies::default();
    let mut besieged = Latencies::default();
    let mut sent = horde::Counts::default();

    client.measure(phase / 10, &mut Latencies::default())?; // caches fill, threads start
    let before = server.map(Process::settled_memory).transpose()?;
    let mut peak = 0;
    for turn in 0..TURNS {
        client.measure(phase, &mut alone).context("alone")?;
        let horde = Horde::start(options.address.clone(), options.connections, options.rate, seed + u64::from(turn))?;
        client.measure(phase, &mut besieged).context("under siege")?;
        if let Some(server) = server {
            peak = peak.max(server.memory()?.rss);
        }
        sent += horde.stop();
    }
    let after = server.map(Process::settled_memory).transpose()?;
    // One more, on a new connection: the server still takes them.
    let fresh = Behaved::attach(&options.address, seed ^ 1, options.pace).and_then(Behaved::leave);
    let wrong = client.wrong();
    client.leave()?;

    alone.report("alone", &mut report);
    besieged.report("siege", &mut report);
    let ratio = besieged.percentile(0.99).as_secs_f64() / alone.percentile(0.99).as_secs_f64();
    report.ratio("p99_ratio", ratio);
    report.figure("frames_sent", sent.frames);
    report.figure("frames_each_second", (sent.frames as f64 / options.seconds).round());
    report.figure("connects", sent.connects);
    report.figure("connects_failed", sent.failed);
    report.figure("closed_by_server", sent.closed);
    report.figure("bytes_answered", sent.answered);
    if let (Some(before), Some(after)) = (before, after) {
        before.report("before", &mut report);
        report.figure("rss_siege_kib", peak);
        after.report("after", &mut report);
    }
    report.verdict("every reply to the client that behaves is right", wrong == 0, format!("{wrong} were not"));
    let fresh = fresh.err().map_or("it does".to_owned(), |error| format!("{error:#}"));
    report.verdict("the server takes new connections afterwards", fresh == "it does", fresh);
    let reached = sent.connects >= options.connections as u64;
    report.verdict("all besiegers reached the server", reached, format!("{} connects", sent.connects));
    if options.check {
        report.verdict(
            format!("p99 under siege is at most {BOUND} times that alone"),
            ratio <= BOUND,
            format!("{ratio:.2} times"),
        );
    }
    Ok(report)
}
