//! Whole files over a distance: the tables of Floren's thesis ("FTP-like Streams for the 9P File Protocol", 2010) again, 2.2 to 2.4 and
//! 7.1 to 7.4, with today's peers beside.
//!
//! `plan` has the tables and makes `case`s of them; for those of one link a lab is made with the servers in its one end (`bed`,
//! `servers`), and the ways in which a file is moved (`way`, the one table of command lines) take turns, so many runs, each run
//! looked at when its time was taken (`files`). Every run is a line of rows.csv as soon as it is known (`rows`), so that another
//! measurement goes on where one ended; `sums` and `report` make the page of what is there.

mod bed;
mod case;
mod clients;
mod cpu;
mod files;
mod old;
mod page;
mod paper;
pub mod part;
mod plan;
mod plot;
mod pump;
mod report;
mod rows;
mod servers;
mod setting;
mod sums;
mod trip;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ninefold_lab::units::{Rate, Share, Time};
use serde::Deserialize;

use crate::debian;
use crate::interrupted::Interrupted;
use bed::{Bed, Failed, Ran};
use case::{Case, Direction};
use files::Files;
use old::Told;
use plan::{Plan, Table};
use rows::{How, Row, Rows};
use setting::Setting;
use way::{CHECK, Places, Server, Way};

/// Bytes of a file by which each way is tried first, so that programs are in the page cache, and what does not work is known.
const PROBE: u64 = 100_000;

/// Bytes of the file by which a link is judged: 64 requests of 8 KiB.
const CHECKED: u64 = 512 << 10;

/// Bytes of the largest file of which one request at a time is waited for however long it takes.
const SMALL: u64 = 10_000_000;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Where rows.csv and the report are; what is there is gone on with
    #[arg(long, value_name = "DIR", default_value = "ninefold-thesis")]
    out: PathBuf,
    /// Tables; all of them when not given
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    table: Vec<Table>,
    /// Round trip times, instead of 0.5ms, 15ms, 50ms and 150ms, and instead of 50ms where a table has but that
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    rtt: Vec<Time>,
    /// Sizes of files, in bytes, or with M for 10^6
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "10M,50M,100M,200M", value_parser = size)]
    size: Vec<u64>,
    /// Only ways of these names, or with these words in their names: http1, pump, stream. Whether the link is what it ought to be is
    /// looked at in any case
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    only: Vec<String>,
    /// Runs of each way, which take turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// The link's rate in each direction
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Rate,
    /// Congestion controls of both ends: the machine's when not given, and cubic and bbr for the table of losses
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    control: Vec<String>,
    /// Shares of packets that are lost, for the table of losses: 0.01%, 0.1% and 1% when not given
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    loss: Vec<Share>,
    /// Clients at a time, for the table of clients: 2, 4, 8 and 16 when not given
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=64))]
    clients: Vec<u32>,
    /// The most bytes of a socket's buffers in both ends; the machine's when not given
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    buffers: u64,
    /// Seconds from which on a run is not repeated
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    once_over: u64,
    /// Seconds after which a run is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=7200))]
    limit: u64,
    /// Where the files lie that are read
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the files are written that arrive, at both ends: /dev/shm when it is there
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// The ninefold to measure; the one beside this program when not given
    #[arg(long, value_name = "PROGRAM")]
    ninefold: Option<PathBuf>,
    /// Measure nothing: make the report of the rows that are there
    #[arg(long)]
    report_only: bool,
}

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.strip_suffix('M').map_or((text, 1), |number| (number, 1_000_000));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    // A file lies in memory at both ends.
    bytes.filter(|bytes| (1..=4_000_000_000).contains(bytes)).ok_or_else(|| {
        format!("'{text}' is no size: expected 1 to 4000000000 bytes, or 1M to 4000M, and not {CHECKED}")
    })
}

impl Options {
    fn plan(&self, own_control: &str) -> Plan {
        let rtts = [500, 15_000, 50_000, 150_000].map(Duration::from_micros);
        let given: Vec<Duration> = self.rtt.iter().map(|time| time.0).collect();
        Plan {
            tables: if self.table.is_empty() { Table::value_variants().to_vec() } else { self.table.clone() },
            has_rtts: !given.is_empty(),
            rtts: if given.is_empty() { rtts.to_vec() } else { given },
            sizes: self.size.clone(),
            rate: self.rate.0.unwrap_or(0),
            controls: self.control.clone(),
            own_control: own_control.to_owned(),
            losses: self.loss.iter().map(|share| (share.0 * 1e6).round() as u32).collect(),
            clients: self.clients.clone(),
            buffers: self.buffers,
        }
    }

    fn ninefold(&self, bench: &Path) -> Result<PathBuf> {
        let ninefold = match &self.ninefold {
            Some(program) => std::path::absolute(program)?,
            None => bench.with_file_name("ninefold"),
        };
        ensure!(ninefold.is_file(), "{} is missing; name it with --ninefold", ninefold.display());
        Ok(ninefold)
    }
}

pub fn run(options: &Options) -> Result<()> {
    let mut ways = way::chosen(&options.only).map_err(anyhow::Error::msg)?;
    ways.extend(way::find(CHECK).filter(|check| !ways.contains(check)));
    // A name goes into a command line.
    let is_name =
        |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    ensure!(options.control.iter().all(is_name), "a congestion control is named by letters and digits, as cubic");
    let measured = if options.report_only { Ok(()) } else { measure(options, &ways) };
    // What was measured before it went wrong is no worse for that.
    let rows = Rows::read(&options.out.join("rows.csv"))?;
    if rows.is_empty() {
        measured?;
        bail!("{} has no rows", options.out.display());
    }
    let setting = Setting::read(&options.out)?;
    let report = report::Report::new(&rows, &setting, options.once_over as f64);
    let page = options.out.join("report.html");
    report.write(&options.out).with_context(|| format!("cannot write to {}", options.out.display()))?;
    let _ = writeln!(std::io::stdout(), "{}{}", report.summary(), page.display());
    measured?;
    match report.failed() {
        0 => Ok(()),
        failed => bail!("{failed} runs failed"),
    }
}

fn measure(options: &Options, ways: &[Way]) -> Result<()> {
    let bench = std::env::current_exe().context("this program's path")?;
    let ninefold = options.ninefold(&bench)?;
    // In a user namespace there is but one user, and nginx, sshd, rsync and diod want to become others.
    ensure!(rustix::process::geteuid().is_root(), "only root can start the servers beside: run it as root, or by sudo");
    let control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").context("the congestion control")?;
    let cases = with_checks(options.plan(control.trim()).cases());
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let memory = PathBuf::from("/dev/shm");
    let to = options.to.clone().unwrap_or_else(|| if memory.is_dir() { memory } else { base.clone() });
    let interrupted = Interrupted::catch()?;
    fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    let rows = Rows::open(&options.out.join("rows.csv"))?;
    let sizes: BTreeSet<u64> = cases.iter().map(|case| case.bytes).chain([PROBE]).collect();
    let files = Files::make(&base, &to, &sizes.into_iter().collect::<Vec<u64>>())?;
    Setting::here(&ninefold, &files)?.keep(&options.out, rows.all().is_empty())?;
    let mut bench = Bench { options, ways, files: &files, interrupted: &interrupted, bench, ninefold, rows };
    cases.chunk_by(|a, b| a.link == b.link).try_for_each(|cases| bench.link(cases))
}

/// Each link is judged, before what is measured on it, unless it loses packets.
fn with_checks(cases: Vec<Case>) -> Vec<Case> {
    let with_check = |cases: &[Case]| {
        let first = cases.first().filter(|case| case.link.loss_ppm == 0);
        let check = first.map(|case| Case { bytes: CHECKED, clients: 1, direction: Direction::Read, ..case.clone() });
        check.into_iter().chain(cases.iter().cloned()).collect::<Vec<Case>>()
    };
    cases.chunk_by(|a, b| a.link == b.link).flat_map(with_check).collect()
}

struct Bench<'a> {
    options: &'a Options,
    ways: &'a [Way],
    files: &'a Files,
    interrupted: &'a Interrupted,
    /// This program.
    bench: PathBuf,
    ninefold: PathBuf,
    rows: Rows,
}

/// Ways that do not work over a link, and why.
type Lacking = BTreeMap<(&'static str, Direction), (How, String)>;

impl Bench<'_> {
    fn wanted<'w>(&self, case: &'w Case) -> impl Iterator<Item = Way> + use<'w, '_> {
        let is_check = case.bytes == CHECKED;
        self.ways.iter().copied().filter(move |way| way.does(case.direction) && way.is_check() == is_check)
    }

    /// Whether a run is there already, or need not be: what takes so long is not repeated.
    fn is_done(&self, case: &Case, way: Way, run: u32) -> bool {
        let long = self.options.once_over as f64;
        let is_long = |row: &Row| row.how == How::Measured && row.seconds.is_some_and(|seconds| seconds > long);
        self.rows.is_done(case, way.name, run) || self.rows.of(case, way.name).any(is_long)
    }

    /// All cases of one link.
    fn link(&mut self, cases: &[Case]) -> Result<()> {
        let Some(first) = cases.first() else { return Ok(()) };
        let is_open =
            |case: &Case| self.wanted(case).any(|way| (1..=self.options.runs).any(|run| !self.is_done(case, way, run)));
        if !cases.iter().any(is_open) {
            return Ok(());
        }
        let places = self.files.places(&self.ninefold, &self.bench);
        let (files, interrupted) = (self.files, self.interrupted);
        let mut bed = match Bed::make(files, places, interrupted, &first.link)? {
            Ok(bed) => bed,
            Err(why) => {
                for case in cases {
                    for way in self.wanted(case).collect::<Vec<Way>>() {
                        self.lack(case, way, How::Missing, &why)?;
                    }
                }
                return Ok(());
            }
        };
        let mut lacking = Lacking::new();
        let mut tried = BTreeSet::new();
        for case in cases {
            for run in 1..=self.options.runs {
                for way in self.wanted(case).collect::<Vec<Way>>() {
                    if self.is_done(case, way, run) {
                        continue;
                    }
                    let key = (way.name, case.direction);
                    if tried.insert(key)
                        && let Err(lack) = self.probe(&mut bed, case, way)?
                    {
                        lacking.insert(key, lack);
                    }
                    match lacking.get(&key) {
                        Some((how, why)) => self.lack(case, way, *how, why)?,
                        None => self.take(&bed, case, way, run)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells once that a way does not work.
    fn lack(&mut self, case: &Case, way: Way, how: How, why: &str) -> Result<()> {
        let mut row = Row::new(case, way.name, 1, how);
        row.note = why.replace('\n', " ");
        if self.rows.of(case, way.name).last().is_some_and(|last| last.how == how && last.note == row.note) {
            return Ok(());
        }
        tell(&format!("{}: {}: {}: {why}", case.text(), way.name, how.word()));
        self.rows.add(row)
    }

    /// Tries a way by a small file. The inner error: it does not work over this link.
    fn probe(&self, bed: &mut Bed<'_>, case: &Case, way: Way) -> Result<Result<(), (How, String)>> {
        if let Some(Err(e)) = way.needs().map(|(program, package)| debian::need(program, package)) {
            return Ok(Err((How::Missing, format!("{e:#}"))));
        }
        if let Err(lack) = bed.serve(way.server()) {
            // Whoever was not waited for lacks nothing.
            self.interrupted.check()?;
            return Ok(Err(lack));
        }
        if way.server() == Server::Ninefold || way.server().behind().is_some() {
            bed.remember(way.server())?;
        }
        let small = Case { bytes: PROBE, clients: 1, ..case.clone() };
        Ok(match bed.run(way, &small, 0, self.limit())? {
            Ok(_) => Ok(()),
            Err(failed) => Err(told(&failed)),
        })
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.options.limit)
    }

    /// What a run of one request at a time will take about: by a smaller file that was measured, or by what waiting takes. None of
    /// other ways.
    fn expected(&self, case: &Case, way: Way) -> Option<f64> {
        let measured = |case: &Case| {
            self.rows.of(case, way.name).filter(|row| row.how == How::Measured).find_map(|row| row.seconds)
        };
        let least = way.one_by_one(case)?.as_secs_f64();
        let smaller = Case { bytes: self.options.size.iter().copied().min()?, ..case.clone() };
        let share = case.bytes as f64 / smaller.bytes as f64;
        Some(measured(&smaller).map_or(least, |seconds| seconds * share))
    }

    fn take(&mut self, bed: &Bed<'_>, case: &Case, way: Way, run: u32) -> Result<()> {
        self.interrupted.check()?;
        let expected = self.expected(case, way).filter(|seconds| *seconds > self.options.once_over as f64);
        if let Some(seconds) = expected.filter(|_| case.bytes > SMALL) {
            let mut row = Row::new(case, way.name, 1, How::Computed);
            row.seconds = Some(seconds);
            tell(&format!("{}: {}: {seconds:.1} s, computed", case.text(), way.name));
            return self.rows.add(row);
        }
        let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse().ok());
        let mut row = match bed.run(way, case, run, self.limit())? {
            Ok(ran) => measured(bed, case, way, run, &ran)?,
            Err(failed) => {
                let (how, note) = told(&failed);
                Row { note, ..Row::new(case, way.name, run, how) }
            }
        };
        row.load = load;
        let seconds =
            row.seconds.map_or(format!("{} {}", row.how.word(), row.note), |seconds| format!("{seconds:.3} s"));
        tell(&format!("{}: run {run}: {}: {seconds}", case.text(), way.name));
        self.rows.add(row)
    }
}

/// A run that was measured, with what it counted of itself.
fn measured(bed: &Bed<'_>, case: &Case, way: Way, run: u32, ran: &Ran) -> Result<Row> {
    let mut row = Row::new(case, way.name, run, How::Measured);
    row.seconds = ran.took.iter().copied().reduce(f64::max);
    row.mean_seconds = Some(ran.took.iter().sum::<f64>() / ran.took.len() as f64);
    row.cpu_seconds = Some(ran.cpu);
    (row.missed, row.connections) = (Some(ran.missed), Some(ran.connections));
    row.own_us = Some(u64::try_from(bed.own.as_micros()).unwrap_or(u64::MAX));
    if way.is_ours() {
        let streams = (0..case.clients).map(|client| streams(&bed.places, client)).sum::<Result<u64>>()?;
        row.streams = Some(streams);
    }
    if way.is_old() {
        let told: Told =
            serde_json::from_slice(&fs::read(bed.places.stdout(0))?).context("what the old client told")?;
        row.messages = Some(told.messages);
        (row.data_seconds, row.trip_seconds) = (Some(told.data_seconds), Some(told.trip_seconds));
        for seconds in [&mut row.seconds, &mut row.mean_seconds].into_iter().flatten() {
            *seconds -= told.trips_seconds;
        }
    }
    Ok(row)
}

/// Tstream messages that one of our commands sent, as --stats has them.
fn streams(places: &Places, client: u32) -> Result<u64> {
    #[derive(Deserialize)]
    struct Counted {
        messages: BTreeMap<String, u64>,
    }
    let text = fs::read_to_string(places.stats(client)).context("--stats wrote nothing")?;
    // One object for each server.
    let counted = serde_json::Deserializer::from_str(&text).into_iter::<Counted>();
    counted.map(|counted| Ok(counted?.messages.get("Tstream").copied().unwrap_or(0))).sum()
}

fn told(failed: &Failed) -> (How, String) {
    let (how, text) = match failed {
        Failed::Stopped(after) => (How::Stopped, format!("not done after {} s", after.as_secs())),
        Failed::Refused(told) => (How::Refused, told.clone()),
        Failed::Wrong(told) => (How::Failed, told.clone()),
    };
    (how, text.replace('\n', " "))
}

/// It takes hours, and whoever waits sees that it goes on; nobody may look.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_millions_of_them() {
        assert_eq!((size("200M"), size("4096")), (Ok(200_000_000), Ok(4096)));
        for text in ["", "M", "0", "5G", "-1", "4001M", "99999999999999999999M"] {
            assert!(size(text).unwrap_err().contains("is no size"), "{text}");
        }
    }
}
