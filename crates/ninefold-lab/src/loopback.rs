//! The server beside diod, and beside sockets that carry no protocol, on this machine.
//!
//! Every figure comes from rounds in which the servers take turns, so that what else the machine does meets all alike; the median of
//! the rounds is told. The servers have one core and the generator another, unless there is but one or it is told otherwise:
//! the figures then compare servers and not schedulers. All speak 9P2000.L; diod grants 64 KiB, so ours is measured
//! there too. The trees lie in the page cache.

mod generator;
mod load;
mod peer;
pub mod pump;
mod report;
mod through;
mod tree;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use generator::{Run, Runs};
use load::Load;
use peer::{Core, Peer};
use report::{Report, Row};

/// Requests in flight on each connection, of small operations.
const DEPTH: u16 = 32;

/// Requests in flight where data are moved one after the other: enough to keep both ends busy, and what is on the way still fits
/// the caches of a common processor at 64 KiB.
const DEPTH_SEQUENTIAL: u16 = 8;

/// The msize that Debian's diod grants, in bytes.
const MSIZE_DIOD: u32 = 64 << 10;

/// Connections at a time, to see what each further one costs.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 512];

/// Requests in flight on each connection, so many that one keeps the server busy by itself: its requests must have been
/// read while it answers those before them.
const DEPTH_MANY: u16 = 128;

/// What is done by more and more connections takes so many turns in each round, each as much shorter: what a request costs in one second it does not in the
/// next where others share the machine's caches, and then in all of these turns alike.
const TURNS: u32 = 3;

/// Requests in flight on all of them together where only their number is to differ.
const IN_ALL: usize = 512;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Write rows.csv and report.json into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds, of which the median is told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds that each measurement of a round takes
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// Only operations, or parts of the bench (scale, client), whose name holds one of these words
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Where the trees are made
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave out diod
    #[arg(long)]
    without_diod: bool,
    /// Let the scheduler place servers and generator
    #[arg(long)]
    unpinned: bool,
    /// The ninefold to measure; the one beside this program when not given
    #[arg(long, value_name = "PROGRAM")]
    ninefold: Option<PathBuf>,
}

/// A server and the msize that is agreed with it.
#[derive(Clone, Copy)]
struct Target<'a> {
    peer: &'a Peer,
    msize: u32,
}

pub fn run(options: &Options) -> Result<()> {
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let tree = tree::Tree::make(&base).with_context(|| format!("cannot make a tree in {}", base.display()))?;
    let (ours_at, theirs_at) = Core::two(options.unpinned);
    theirs_at.pin_this()?;
    let polls = theirs_at.is_one();
    let ours = Peer::ninefold(options.ninefold.as_deref(), tree.path(), ours_at)?;
    let diod = if options.without_diod { None } else { Some(Peer::diod(tree.path(), ours_at)?) };
    let pump = Peer::pump(&tree, ours_at)?;
    let default = ninefold::client::Options::default().msize;

    let mut targets = vec![Target { peer: &ours, msize: default }, Target { peer: &ours, msize: MSIZE_DIOD }];
    targets.extend(diod.iter().map(|peer| Target { peer, msize: MSIZE_DIOD }));
    let time = Duration::from_secs_f64(options.seconds);
    // The whole name of one is that one only.
    let is_name = |word: &str| Load::ALL.iter().any(|load| load.name() == word);
    let is_it = |name: &str, word: &str| name == word || !is_name(word) && name.contains(word);
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|word| is_it(name, word));
    let mut report = Report::new(options.rounds, &base);

    for load in Load::ALL {
        if !wanted(load.name()) {
            continue;
        }
        let depth = if load.is_sequential() { DEPTH_SEQUENTIAL } else { DEPTH };
        let mut runs: Vec<Runs> = targets.iter().map(|_| Runs::default()).collect();
        let mut pumped: Vec<(u32, Runs)> = [default, MSIZE_DIOD].map(|msize| (msize, Runs::default())).into();
        for round in 0..options.rounds as usize {
            // Who is first changes, as a machine that grows hot or is taken by others makes a difference.
            for i in (0..targets.len()).map(|i| (i + round) % targets.len()) {
                let Target { peer, msize } = targets[i];
                let run = Run { load, connections: 1, depth, time, polls };
                runs[i].push(generator::measure(&run, peer, msize)?);
                if load.writes() {
                    tree.settle()?;
                }
            }
            if load.is_sequential() {
                for (msize, runs) in &mut pumped {
                    runs.push(pump::measure(&pump, load, wire::payload_max(*msize), time, polls)?);
                    if load.writes() {
                        tree.settle()?;
                    }
                }
            }
        }
        for (target, runs) in targets.iter().zip(&runs) {
            report.add(Row::new(load.name(), target.peer.name, target.msize, 1, depth, runs));
        }
        if load.is_sequential() {
            for (msize, runs) in &pumped {
                report.add(Row::new(load.name(), pump.name, *msize, 1, 1, runs));
            }
        }
    }

    scale(options.rounds, (time, polls), &targets, &wanted, &mut report)?;
    for (name, measure) in through::ALL.into_iter().filter(|(name, _)| wanted(name)) {
        let mut runs: Vec<Runs> = targets.iter().map(|_| Runs::default()).collect();
        for round in 0..options.rounds as usize {
            for i in (0..targets.len()).map(|i| (i + round) % targets.len()) {
                runs[i].push(measure(targets[i].peer, targets[i].msize, time)?);
                tree.settle()?;
            }
        }
        for (target, runs) in targets.iter().zip(&runs) {
            report.add(Row::new(name, target.peer.name, target.msize, 1, through::DEPTH as u16, runs));
        }
    }
    report.print();
    match &options.out {
        Some(dir) => report.write(dir).with_context(|| format!("cannot write to {}", dir.display())),
        None => Ok(()),
    }
}

/// The same operation by more and more connections: with as many requests in flight on each, which is more and more work, and
/// with as many on all of them together.
fn scale(
    rounds: u32,
    (time, polls): (Duration, bool),
    targets: &[Target<'_>],
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<()> {
    let name = |how: &str, load: Load| format!("scale, {how}: {}", load.name().trim_end_matches(" 4 KiB"));
    for load in [Load::Getattr, Load::OpenReadClunk] {
        for target in targets.iter().filter(|target| target.msize == MSIZE_DIOD) {
            let each = CONNECTIONS.map(|connections| ("32 each", connections, DEPTH));
            // As many open files would be more than descriptors.
            let has_many = matches!(load, Load::Getattr);
            let many_each = CONNECTIONS.map(|connections| ("128 each", connections, DEPTH_MANY));
            let many_each = many_each.into_iter().filter(|_| has_many);
            let in_all = CONNECTIONS.map(|connections| ("512 in all", connections, (IN_ALL / connections) as u16));
            let cases = each.into_iter().chain(many_each).chain(in_all).filter(|(how, ..)| wanted(&name(how, load)));
            let mut cases: Vec<_> = cases.map(|case| (case, Runs::default())).collect();
            for round in 0..(rounds * TURNS) as usize {
                for i in 0..cases.len() {
                    let at = (i + round) % cases.len();
                    let ((_, connections, depth), runs) = &mut cases[at];
                    let run = Run { load, connections: *connections, depth: *depth, time: time / TURNS, polls };
                    runs.push(generator::measure(&run, target.peer, target.msize)?);
                }
            }
            for cases in cases.chunk_by(|((a, ..), _), ((b, ..), _)| a == b) {
                let of_best = report::of_best(&cases.iter().map(|(_, runs)| runs).collect::<Vec<_>>());
                for (((how, connections, depth), runs), of_best) in cases.iter().zip(of_best) {
                    let row = Row::new(&name(how, load), target.peer.name, target.msize, *connections, *depth, runs);
                    report.add(row.compared(of_best));
                }
            }
        }
    }
    Ok(())
}
