//! What operations on remote files cost over a distance: messages, round trips, and the time beside what the link alone takes.
//!
//! The same operations are done as the paper's old kernel did them, one message at a time (`kernel`), by our commands in three
//! dialects (`ours`), and by sshfs and rsync beside (`mounted`, `rsync`). For each round trip time a lab is made with the servers in
//! its one end (`bed`); each operation finds the trees as they are to be, and is looked at when it is done (`operation`), so that what
//! fails has no figure. What would take longer than the limit is computed from the round trips counted, or stopped, and says so.

mod bed;
mod exchange;
mod kernel;
mod mounted;
mod operation;
mod ours;
pub mod part;
mod report;
mod row;
mod rsync;
mod system;
pub mod timed;
mod trees;
pub mod wire;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use ninefold_lab::End;
use ninefold_lab::units::{Rate, Time};

use crate::interrupted::Interrupted;
use bed::{Bed, Failed, NINEFOLD, Words};
use mounted::Sshfs;
use operation::Operation;
use part::Asked;
use report::Report;
use row::{AT_ONCE, How, Row};
use system::System;
use trees::Trees;

/// One operation is not repeated any more when its rounds have taken so long together: what takes so long varies little.
const ENOUGH: Duration = Duration::from_secs(20);

/// Of `--quick`: the link, the limit for a command, and when no further row is begun; a command that runs then is stopped.
const QUICK_RTT: Duration = Duration::from_millis(15);
const QUICK_LIMIT: Duration = Duration::from_secs(5);
const QUICK: Duration = Duration::from_secs(45);

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Write rows.csv and report.json into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Round trip times of the link
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "0.5ms,15ms,50ms,150ms")]
    rtt: Vec<Time>,
    /// The link's rate in each direction, as 1gbit
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: String,
    /// Rounds, of which the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds after which a command is stopped, or computed where its messages are counted
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,
    /// Only rows whose operation or system holds one of these words: tree, sshfs, .L
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// One round at 15 ms, by the old kernel and by .n1 unless --only names others, no command longer than 5 s: done within a minute
    #[arg(long, conflicts_with_all = ["rtt", "rounds", "limit"])]
    quick: bool,
    /// Where the trees are made
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The ninefold to measure; the one beside this program when not given
    #[arg(long, value_name = "PROGRAM")]
    ninefold: Option<PathBuf>,
}

impl Options {
    fn wants(&self, operation: Operation, system: System) -> bool {
        let row = format!("{} {}", operation.name(), system.name());
        let is_among_few = matches!(system, System::Old | System::Ours(ours::Speech::Warm));
        match self.only.is_empty() {
            true => is_among_few || !self.quick,
            false => self.only.iter().any(|word| row.contains(word.as_str())),
        }
    }

    /// The rows of each link.
    fn rows(&self) -> impl Iterator<Item = (Operation, System)> {
        let all = Operation::ALL.into_iter().flat_map(|operation| System::ALL.map(|system| (operation, system)));
        all.filter(|&(operation, system)| system.does(operation) && self.wants(operation, system))
    }
}

pub fn run(options: &Options) -> Result<()> {
    let rate: Rate = options.rate.parse().map_err(anyhow::Error::msg)?;
    ensure!(options.rows().next().is_some(), "no operation and no system has a name with one of these words in it");
    let ninefold = match &options.ninefold {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe().context("this program's path")?.with_file_name("ninefold"),
    };
    ensure!(ninefold.is_file(), "{} is missing; name it with --ninefold", ninefold.display());
    let interrupted = Interrupted::catch()?;
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let trees = Trees::make(&base).with_context(|| format!("cannot make trees in {}", base.display()))?;
    let mut rtts: Vec<Duration> = options.rtt.iter().map(|time| time.0).collect();
    let mut bench = Bench { rounds: options.rounds, limit: Duration::from_secs(options.limit), until: None };
    if options.quick {
        rtts = vec![QUICK_RTT];
        bench = Bench { rounds: 1, limit: QUICK_LIMIT, until: Some(Instant::now() + QUICK) };
    }
    let mut report = Report::new(bench.rounds, options.rate.clone());
    let measured = rtts.into_iter().try_for_each(|rtt| {
        let bed = Bed::make(&trees, &ninefold, &interrupted, rtt, rate.0)?;
        bench.link(options, bed, rtt, &mut report)
    });
    // What was measured before it went wrong is no worse for that.
    report.print();
    if let Some(dir) = &options.out {
        report.write(dir).with_context(|| format!("cannot write to {}", dir.display()))?;
    }
    measured?;
    match report.failed() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} of the rows failed"),
    }
}

/// How it is measured.
#[derive(Debug)]
struct Bench {
    rounds: u32,
    limit: Duration,
    /// No row is begun any more.
    until: Option<Instant>,
}

/// What there is beside our own server in a lab, or why not.
#[derive(Debug, Default)]
struct Peers {
    sshfs: Option<Result<Sshfs, String>>,
    rsync: Option<Result<(), String>>,
}

impl Bench {
    /// All rows over one link.
    fn link(&self, options: &Options, mut bed: Bed<'_>, rtt: Duration, report: &mut Report) -> Result<()> {
        let mut peers = Peers::default();
        for (operation, system) in options.rows() {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                let how = How::Missing("the time was over".to_owned());
                report.add(Row::new(rtt, operation, system, how));
                continue;
            }
            // It takes minutes, and whoever waits sees that it goes on; nobody may look.
            let _ =
                writeln!(std::io::stderr(), "{} ms: {}, {}", rtt.as_secs_f64() * 1e3, operation.name(), system.name());
            let row = match system {
                System::Old => self.old(&bed, rtt, operation),
                System::Ours(_) => self.ours(&bed, rtt, operation, system),
                System::Sshfs => {
                    let sshfs = peers.sshfs.get_or_insert_with(|| Sshfs::start(&mut bed).map_err(|e| format!("{e:#}")));
                    match sshfs {
                        Ok(sshfs) => self.sshfs(&bed, rtt, operation, sshfs),
                        Err(why) => Ok(Row::new(rtt, operation, system, How::Missing(why.clone()))),
                    }
                }
                System::Rsync => {
                    let rsync = peers.rsync.get_or_insert_with(|| rsync::start(&mut bed).map_err(|e| format!("{e:#}")));
                    match rsync {
                        Ok(()) => self.rsync(&bed, rtt, operation),
                        Err(why) => Ok(Row::new(rtt, operation, system, How::Missing(why.clone()))),
                    }
                }
            };
            bed.interrupted.check()?;
            report.add(row.unwrap_or_else(|e| Row::new(rtt, operation, system, How::Failed(format!("{e:#}")))));
        }
        Ok(())
    }

    /// Does a round again and again, until there are enough. `false` from a round: it is the last.
    fn repeat(&self, row: &mut Row, mut round: impl FnMut(&mut Row) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        for _ in 0..self.rounds {
            if !round(row)? || began.elapsed() > ENOUGH {
                break;
            }
        }
        Ok(())
    }

    /// What a command may take now.
    fn limit(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(self.limit, |left| left.min(self.limit))
    }

    /// Takes a command's time, and looks at what it did. `false` where it was stopped.
    fn take(&self, bed: &Bed<'_>, row: &mut Row, words: &Words) -> Result<bool> {
        match bed.run(words, self.limit())? {
            Ok(took) => {
                row.operation.check(bed.trees, &bed.output())?;
                row.took.push(took);
                Ok(true)
            }
            Err(Failed::Stopped(after)) => {
                row.how = How::Stopped(after);
                Ok(false)
            }
            Err(Failed::Status(told)) => anyhow::bail!(told),
        }
    }

    /// As the paper's kernel did it. Its messages are counted where they take no time, in the server's own end, first: where as many
    /// round trips would take too long, that is what is told.
    fn old(&self, bed: &Bed<'_>, rtt: Duration, operation: Operation) -> Result<Row> {
        let ask = |end: End, within: Duration| -> Result<Asked> {
            operation.prepare(bed.trees)?;
            let mut command = bed.part(end, "kernel");
            let name = operation.to_possible_value().context("no name")?;
            command.args([name.get_name(), NINEFOLD, &within.as_millis().to_string()]);
            bed.ask(command, within)
        };
        let counted = ask(End::Server, self.limit)?;
        let mut row = Row::new(rtt, operation, System::Old, How::Computed);
        row.messages = Some(counted.messages);
        row.round_trips = Some(counted.messages);
        (row.sent, row.received) = (Some(counted.sent), Some(counted.received));
        if row.link().is_none_or(|link| link > self.limit) {
            return Ok(row);
        }
        row.how = How::Measured;
        self.repeat(&mut row, |row| {
            // Beside its round trips there is the work of both ends, as it was without them.
            let asked = ask(End::Client, self.limit * 2 + Duration::from_nanos(counted.nanoseconds))?;
            ensure!(Some(asked.messages) == row.messages, "{} messages, and then {}", counted.messages, asked.messages);
            row.took.push(Duration::from_nanos(asked.nanoseconds));
            Ok(true)
        })?;
        Ok(row)
    }

    fn ours(&self, bed: &Bed<'_>, rtt: Duration, operation: Operation, system: System) -> Result<Row> {
        let System::Ours(speech) = system else { anyhow::bail!("{} is not ours", system.name()) };
        let Some(words) = ours::words(bed, operation, speech) else {
            let mut row = Row::new(rtt, operation, system, How::Nothing);
            (row.messages, row.round_trips) = (Some(0), Some(0));
            return Ok(row);
        };
        if speech == ours::Speech::Warm {
            match bed.run(&ours::remember(bed), self.limit)? {
                Ok(_) => {}
                Err(e) => anyhow::bail!("the server cannot be remembered: {e:?}"),
            }
        }
        let mut row = Row::new(rtt, operation, system, How::Measured);
        self.repeat(&mut row, |row| {
            operation.prepare(bed.trees)?;
            if !self.take(bed, row, &words)? {
                return Ok(false);
            }
            let counted = ours::counted(bed, speech)?;
            // The most of the rounds: what depends on chance is not told by its luck.
            row.messages = row.messages.max(Some(counted.messages()));
            row.round_trips = row.round_trips.max(Some(counted.round_trips));
            (row.sent, row.received) = (Some(counted.bytes_sent), Some(counted.bytes_received));
            if counted.bytes_sent.max(counted.bytes_received) > AT_ONCE {
                row.exchanged.push(bed.exchange(counted.bytes_sent, counted.bytes_received, self.limit)?);
            }
            Ok(true)
        })?;
        Ok(row)
    }

    fn sshfs(&self, bed: &Bed<'_>, rtt: Duration, operation: Operation, sshfs: &Sshfs) -> Result<Row> {
        let mut row = Row::new(rtt, operation, System::Sshfs, How::Measured);
        self.repeat(&mut row, |row| {
            operation.prepare(bed.trees)?;
            let mount = match sshfs.mount(bed) {
                Ok(mount) => mount,
                // Not every machine lets one mount in a network of its own.
                Err(e) => {
                    row.how = How::Missing(format!("{e:#}"));
                    return Ok(false);
                }
            };
            let words = mount.words(bed, operation).context("no such command")?;
            self.take(bed, row, &words)
        })?;
        Ok(row)
    }

    fn rsync(&self, bed: &Bed<'_>, rtt: Duration, operation: Operation) -> Result<Row> {
        let words = rsync::words(bed, operation).context("no such command")?;
        let mut row = Row::new(rtt, operation, System::Rsync, How::Measured);
        self.repeat(&mut row, |row| {
            operation.prepare(bed.trees)?;
            self.take(bed, row, &words)
        })?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn rows(words: &[&str]) -> Vec<String> {
        let options =
            Line::try_parse_from([&["round-trips"], words].concat()).unwrap_or_else(|e| panic!("{e}")).options;
        options.rows().map(|(operation, system)| format!("{} by {}", operation.name(), system.name())).collect()
    }

    #[test]
    fn words_choose_rows_by_their_operation_or_their_system() {
        let all = rows(&[]);
        for name in Operation::ALL.map(Operation::name) {
            assert!(all.contains(&format!("{name} by ninefold .n1, warm")), "{name}");
        }
        assert!(all.contains(&"ls of 20 by sshfs".to_owned()) && !all.contains(&"ls of 20 by rsync".to_owned()));
        let chosen = rows(&["--only", "rsync", "--only", "stat"]);
        let copies =
            ["copy 80 KiB down", "copy 80 KiB up", "cp -r 1,000 x 4 KiB down", "cp -r 1,000 x 4 KiB up", "copy 64 MiB"];
        let stats = ["9P2000, one at a time", "ninefold .L", "ninefold .ix", "ninefold .n1, warm", "sshfs"];
        let expected = stats.map(|system| format!("stat by {system}")).into_iter();
        let expected: Vec<String> = expected.chain(copies.map(|copy| format!("{copy} by rsync"))).collect();
        assert_eq!(chosen, expected);
        assert_eq!(rows(&["--only", "no such word"]), [] as [String; 0]);
    }

    #[test]
    fn the_quick_bench_leaves_out_the_peers_unless_they_are_named() {
        let quick = rows(&["--quick"]);
        assert!(quick.iter().all(|row| row.ends_with("one at a time") || row.ends_with(".n1, warm")), "{quick:?}");
        assert!(rows(&["--quick", "--only", "sshfs"]).contains(&"stat by sshfs".to_owned()));
    }

    #[test]
    fn a_quick_bench_has_its_own_link_and_limits() {
        for words in [["--rtt", "1ms"], ["--rounds", "2"], ["--limit", "3"]] {
            assert!(Line::try_parse_from([&["round-trips", "--quick"][..], &words].concat()).is_err(), "{words:?}");
        }
    }
}
