//! The siege from within: somebody who may write in the exported directory swaps its directories with symbolic
//! links that lead out, while clients in every dialect walk, read, write and rename. Nothing outside may be
//! seen or changed.
//!
//! The export gets a tree whose names the outside has, too, so that a path that slips through a link arrives.
//! What lies outside carries a marker in every file's content, marked names, and one marked time of
//! modification; what the server answers is searched for all three, and for the inode numbers of the outside.
//! In the end the outside is compared with what it was.

mod evidence;
mod ground;
mod planter;
#[cfg(test)]
mod tests;
mod visit;
mod visitor;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use ninefold_proto::Dialect;

use crate::address::Address;
use crate::connection::{Connection, Failure};
use crate::random::{Random, fresh_seed};
use crate::report::Report;
use evidence::Evidence;
use ground::Ground;
use planter::Planter;
use visitor::{Tally, Visitor};

/// Between two looks whether the siege is over.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Args, Clone)]
pub struct Options {
    /// 9p://HOST:PORT[?aname=NAME]
    address: Address,
    /// The exported directory, as this machine sees it. Everything in it is fair game.
    #[arg(long)]
    export: PathBuf,
    /// A directory that is not exported, on the same file system; made when it is missing, else empty.
    #[arg(long)]
    outside: PathBuf,
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
    /// 9P2000, 9P2000.u or 9P2000.L, also several times. All that the server speaks, when not given.
    #[arg(long, value_parser = dialect)]
    dialect: Vec<Dialect>,
    /// Threads that swap.
    #[arg(long, default_value_t = 2)]
    planters: usize,
    /// Clients for each dialect.
    #[arg(long, default_value_t = 2)]
    visitors: usize,
    #[arg(long)]
    seed: Option<u64>,
}

fn dialect(name: &str) -> Result<Dialect, String> {
    Dialect::from_version(name.as_bytes()).ok_or_else(|| "9P2000, 9P2000.u or 9P2000.L".to_owned())
}

/// Attacks until the time is over or something leaked.
pub fn run(options: &Options) -> Result<Report> {
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let mut random = Random::new(seed);
    let ground = Ground::prepare(&options.export, &options.outside, &mut random)?;
    let before = ground.manifest()?;

    let mut dialects = Vec::new();
    let mut qids_are_inodes = false;
    let wanted = if options.dialect.is_empty() { &Dialect::ALL[..] } else { &options.dialect };
    for &dialect in wanted {
        match Connection::attach(&options.address, dialect) {
            Ok(connection) => {
                dialects.push(dialect);
                qids_are_inodes |= connection.root().path == ground.export_inode();
            }
            Err(Failure::Lost(error)) if dialects.is_empty() && dialect == Dialect::Linux => {
                return Err(error).context("attach");
            }
            Err(failure) if !options.dialect.is_empty() => return Err(failure).context("attach"),
            Err(_) => {}
        }
    }
    ensure!(!dialects.is_empty(), "the server speaks none of the dialects");

    let evidence = Evidence::new(&ground, qids_are_inodes);
    let stop = AtomicBool::new(false);
    let planters: Vec<Planter<'_>> =
        (0..options.planters).map(|number| Planter::new(&ground, number, random.next())).collect();
    let mut visitors = Vec::new();
    for &dialect in &dialects {
        for _ in 0..options.visitors {
            visitors.push(Visitor::new(&options.address, dialect, &ground, &evidence, random.next()));
        }
    }
    let began = Instant::now();
    let (swaps, tally) = std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(|| ground.tend(stop));
        let planters: Vec<_> = planters.into_iter().map(|planter| scope.spawn(|| planter.run(stop))).collect();
        let visitors: Vec<_> = visitors.into_iter().map(|visitor| scope.spawn(|| visitor.run(stop))).collect();
        let end = began + Duration::from_secs_f64(options.seconds);
        while Instant::now() < end && !evidence.any() && !visitors.iter().all(|visitor| visitor.is_finished()) {
            std::thread::sleep(LOOK);
        }
        stop.store(true, Ordering::Relaxed);
        let mut swaps = planter::Swaps::default();
        for planter in planters {
            swaps += planter.join().expect("a planter's panic is our own fault");
        }
        let mut tally = Tally::default();
        for visitor in visitors {
            tally += visitor.join().expect("a visitor's panic is our own fault");
        }
        (swaps, tally)
    });
    let elapsed = began.elapsed();
    ground.recall_moved()?;
    let changes = before.changes(&ground.manifest()?);

    let mut report = Report::new("attack");
    report.figure("seed", seed);
    report.ratio("seconds", elapsed.as_secs_f64());
    let names: Vec<&str> = dialects.iter().map(|dialect| dialect.as_str()).collect();
    report.figure("dialects", names);
    report.figure("qids_are_inodes", qids_are_inodes);
    swaps.report(elapsed, &mut report);
    tally.report(elapsed, &mut report);
    if let Some(at) = evidence.first() {
        report.figure("first_leak_ms", at.saturating_duration_since(began).as_millis() as u64);
    }
    let (count, texts) = evidence.texts();
    report.verdict("nothing outside is seen", count == 0, format!("{count} leaks {}", texts.join("; ")));
    report.verdict("nothing outside is changed", changes.is_empty(), changes.join("; "));
    let faults = tally.faults();
    report.verdict("every request is answered, by the protocol", faults.is_empty(), faults.join("; "));
    Ok(report)
}
