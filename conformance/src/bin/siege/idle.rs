//! The siege of the idle: connections that have attached and then say nothing. What does each cost the server?

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use ninefold_proto::Dialect;
use ninefold_proto::attr::getattr;
use ninefold_proto::message::{Mask, T};

use crate::address::Address;
use crate::connection::{Connection, ROOT};
use crate::process::{Process, allow_descriptors};
use crate::report::Report;

/// KiB of resident memory that an idle connection may cost; buffers in the kernel are not counted.
const BOUND: f64 = 16.0;
/// Descriptors of ours that are no connections.
const SPARE: u64 = 64;
/// Every so many-th connection is asked whether it still lives.
const SAMPLE: usize = 50;

#[derive(Args)]
pub struct Options {
    /// 9p://HOST:PORT[?aname=NAME]
    address: Address,
    /// The server's process.
    #[arg(long)]
    pid: u32,
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
}

/// Opens the connections, measures, and lets go.
pub fn run(options: &Options) -> Result<Report> {
    allow_descriptors(options.connections as u64 + SPARE)?;
    let server = Process(options.pid);
    let mut report = Report::new("idle");

    // What the first connections set up for all that follow belongs to the server, not to each.
    let mut warm: Vec<Connection> = attach(&options.address, SAMPLE)?;
    let before = server.settled_memory()?;
    let began = Instant::now();
    let mut idle = attach(&options.address, options.connections)?;
    let elapsed = began.elapsed();
    let after = server.settled_memory()?;

    let mut silent = 0;
    for connection in warm.iter_mut().chain(idle.iter_mut().step_by(SAMPLE)) {
        let alive = connection.call(&T::Getattr { fid: ROOT, request_mask: Mask(getattr::BASIC) });
        silent += usize::from(alive.is_err());
    }
    let descriptors = server.descriptors()?;
    drop(idle);
    let left = server.settled_memory()?;

    let each = |before: u64, after: u64| (after as f64 - before as f64) / options.connections as f64;
    let rss = each(before.rss, after.rss);
    report.figure("connections", options.connections);
    report.figure("opened_in_ms", elapsed.as_millis() as u64);
    before.report("before", &mut report);
    after.report("idle", &mut report);
    left.report("closed", &mut report);
    report.figure("descriptors_idle", descriptors);
    report.ratio("rss_each_kib", rss);
    report.ratio("pss_each_kib", each(before.pss, after.pss));
    report.ratio("anon_each_kib", each(before.anon, after.anon));
    report.verdict(
        format!("an idle connection costs less than {BOUND} KiB"),
        rss < BOUND,
        format!("{rss:.2} KiB of resident memory each"),
    );
    report.verdict("idle connections stay served", silent == 0, format!("{silent} of the sample did not answer"));
    Ok(report)
}

fn attach(address: &Address, n: usize) -> Result<Vec<Connection>> {
    let one = |i| Connection::attach(address, Dialect::Linux).with_context(|| format!("connection {i} of {n}"));
    (1..=n).map(one).collect()
}
