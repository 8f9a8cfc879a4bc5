//! Measurements that take turns, and what each took in each round: a line of rows.csv as soon as it is known, so that a later run with the
//! same directory goes on where one ended.
//!
//! A bench makes its `Case`s and calls `Turns::take`; then it asks for the medians.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::interrupted::Interrupted;

/// What one measurement took of the processor, or by the clock, and how many units (bytes, calls) it did in that time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Took {
    pub time: Duration,
    pub units: u64,
}

impl Took {
    /// Of something that tells how much it did: this thread's time on the processor, in the kernel and outside. What other programs take of
    /// the processor is not in it.
    pub fn of(measure: impl FnOnce() -> Result<u64>) -> Result<Took> {
        let now = || Ok::<_, nix::Error>(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?));
        let begin = now()?;
        let units = measure()?;
        Ok(Took { time: now()?.saturating_sub(begin), units })
    }

    /// The same of what is done by processes that it starts and waits for.
    pub fn of_children(measure: impl FnOnce() -> Result<u64>) -> Result<Took> {
        let now = || {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            Ok::<_, nix::Error>(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
        };
        let begin = now()?;
        let units = measure()?;
        Ok(Took { time: now()?.saturating_sub(begin), units })
    }

    /// The same by the clock: of several threads.
    pub fn by_clock(measure: impl FnOnce() -> Result<u64>) -> Result<Took> {
        let begin = Instant::now();
        let units = measure()?;
        Ok(Took { time: begin.elapsed(), units })
    }
}

/// One thing to be measured: what is done, and by what. The two are its name, and go to rows.csv.
pub struct Case<'a> {
    pub what: String,
    pub way: String,
    pub measure: Box<dyn FnMut() -> Result<Took> + 'a>,
}

impl<'a> Case<'a> {
    pub fn new(
        what: impl Into<String>,
        way: impl Into<String>,
        measure: impl FnMut() -> Result<Took> + 'a,
    ) -> Case<'a> {
        Case { what: what.into(), way: way.into(), measure: Box::new(measure) }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub what: String,
    pub way: String,
    /// From 1.
    pub round: u32,
    pub seconds: f64,
    pub units: u64,
    /// How many others wanted a processor: the load average of the last minute.
    pub load: Option<f64>,
}

/// What rows are of; rows of another are not mixed with them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    pub bench: String,
    /// Version and checksum of this program.
    pub ninefold: String,
    pub machine: String,
    pub place: String,
    /// Bytes of the largest file.
    pub bytes: u64,
}

impl Setting {
    pub fn here(bench: &str, place: &Path, bytes: u64) -> Result<Setting> {
        let mut hasher = XxHash3_64::new();
        hasher.write(&fs::read("/proc/self/exe").context("this program")?);
        let system = rustix::system::uname();
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        Ok(Setting {
            bench: bench.to_owned(),
            ninefold: format!("{}, checksum {:016x}", env!("CARGO_PKG_VERSION"), hasher.finish()),
            machine: format!(
                "{} {}, {}, {processors} processors",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy(),
                system.machine().to_string_lossy()
            ),
            place: fs::canonicalize(place).with_context(|| place.display().to_string())?.display().to_string(),
            bytes,
        })
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Turns {
    file: Option<csv::Writer<File>>,
    rows: Vec<Row>,
    pub setting: Setting,
    /// When it was opened: who is pinned later has one.
    processors: usize,
}

impl Turns {
    /// In a directory, with what is there of the same setting; in memory where none is given.
    pub fn open(out: Option<&Path>, setting: Setting) -> Result<Turns> {
        let processors = cores().len();
        let Some(out) = out else { return Ok(Turns { file: None, rows: Vec::new(), setting, processors }) };
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let path = out.join("rows.csv");
        let name = || path.display().to_string();
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).with_context(name)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(name)?;
        // A line that was not finished is taken away, but only from a file of ours.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rows = parse(&text[..whole]).with_context(|| {
            format!("{} is not of this version: give another directory to --out, or take it away", path.display())
        })?;
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let kept = out.join("setting.json");
        if !rows.is_empty() {
            let before = match fs::read(&kept) {
                Ok(text) => serde_json::from_slice::<Setting>(&text).ok(),
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => return Err(e).with_context(|| kept.display().to_string()),
            };
            ensure!(
                before.as_ref() == Some(&setting),
                "the rows in {} are of another bench, program, machine, place or size; give another directory to --out",
                out.display()
            );
        }
        fs::write(&kept, serde_json::to_string_pretty(&setting)? + "\n").with_context(|| kept.display().to_string())?;
        let file = csv::WriterBuilder::new().has_headers(whole == 0).from_writer(file);
        Ok(Turns { file: Some(file), rows, setting, processors })
    }

    /// Each of them so many times, in turns, but what is there already. One that was not measured yet runs once before, for caches and
    /// for what it needs of the system the first time.
    pub fn take(&mut self, cases: &mut [Case<'_>], rounds: u32, interrupted: &Interrupted) -> Result<()> {
        let name = |case: &Case<'_>| format!("{}, {}", case.what, case.way);
        for case in cases.iter_mut().filter(|case| (1..=rounds).any(|round| !self.is_done(case, round))) {
            interrupted.check()?;
            (case.measure)().with_context(|| name(case))?;
        }
        for round in 1..=rounds {
            for i in 0..cases.len() {
                // Who is first changes, as a machine that grows hot or is taken by others makes a difference.
                let place = (i + round as usize) % cases.len();
                let case = &mut cases[place];
                if self.is_done(case, round) {
                    continue;
                }
                interrupted.check()?;
                let Took { time, units } = (case.measure)().with_context(|| name(case))?;
                ensure!(units > 0 && !time.is_zero(), "{}: nothing was done", name(case));
                let load = fs::read_to_string("/proc/loadavg").ok();
                let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
                let (what, way) = (case.what.clone(), case.way.clone());
                let row = Row { what, way, round, seconds: time.as_secs_f64(), units, load };
                if let Some(file) = &mut self.file {
                    file.serialize(&row).context("rows.csv")?;
                    file.flush().context("rows.csv")?;
                }
                self.rows.push(row);
            }
        }
        Ok(())
    }

    fn is_done(&self, case: &Case<'_>, round: u32) -> bool {
        self.rows.iter().any(|row| row.what == case.what && row.way == case.way && row.round == round)
    }

    /// Nanoseconds a unit, of each round.
    pub fn each(&self, what: &str, way: &str) -> Vec<f64> {
        let rows = self.rows.iter().filter(|row| row.what == what && row.way == way);
        rows.map(|row| row.seconds * 1e9 / row.units as f64).collect()
    }

    /// The same, of the fastest round: what else runs only adds. None where it was not measured.
    pub fn least(&self, what: &str, way: &str) -> Option<f64> {
        self.each(what, way).into_iter().min_by(f64::total_cmp)
    }

    /// A word of warning where more wanted a processor than there are: then the figures are of something else too. Empty else.
    pub fn warning(&self) -> String {
        let load = median(self.rows.iter().filter_map(|row| row.load).collect()).unwrap_or(0.0);
        let processors = self.processors;
        if load <= processors as f64 {
            return String::new();
        }
        format!(
            "\nother programs ran meanwhile (a load average of {load:.1} on {processors} processors): measure again when they do not\n"
        )
    }

    /// Nanoseconds a unit, of the middle one; None where it was not measured.
    pub fn median(&self, what: &str, way: &str) -> Option<f64> {
        median(self.each(what, way))
    }
}

pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => None,
        n if n % 2 == 1 => Some(figures[n / 2]),
        n => Some(f64::midpoint(figures[n / 2 - 1], figures[n / 2])),
    }
}

fn parse(text: &[u8]) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text);
    let rows: Vec<Row> = reader.deserialize().collect::<Result<_, _>>()?;
    let is_sound = |row: &Row| row.seconds.is_finite() && row.seconds > 0.0 && row.units > 0;
    ensure!(rows.iter().all(is_sound), "a time that is none");
    Ok(rows)
}

/// The processors that this program may use.
pub fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect()
}

/// This thread, and what it starts, stays on one processor.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).context("cannot pin a thread to a core")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn setting(bytes: u64) -> Setting {
        let words = || "same".to_owned();
        Setting { bench: words(), ninefold: words(), machine: words(), place: words(), bytes }
    }

    fn counting<'a>(way: &str, count: &'a Cell<u32>) -> Case<'a> {
        Case::new("sleep", way, || {
            count.set(count.get() + 1);
            Ok(Took { time: Duration::from_micros(u64::from(count.get())), units: 10 })
        })
    }

    #[test]
    fn what_was_measured_is_not_measured_again_and_half_a_line_is() {
        let dir = tempfile::tempdir().unwrap();
        let interrupted = Interrupted::catch().unwrap();
        let (one, two) = (Cell::new(0), Cell::new(0));
        let mut cases = [counting("one", &one), counting("two", &two)];
        Turns::open(Some(dir.path()), setting(1)).unwrap().take(&mut cases, 3, &interrupted).unwrap();
        // One more each, to begin with.
        assert_eq!((one.get(), two.get()), (4, 4));
        let path = dir.path().join("rows.csv");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 3]).unwrap();
        let mut turns = Turns::open(Some(dir.path()), setting(1)).unwrap();
        turns.take(&mut cases, 3, &interrupted).unwrap();
        assert_eq!(one.get() + two.get(), 8 + 2);
        assert_eq!(turns.each("sleep", "one").len(), 3);
        assert_eq!(Turns::open(Some(dir.path()), setting(1)).unwrap().rows, turns.rows);
        assert_eq!((turns.median("sleep", "none"), turns.least("sleep", "none")), (None, None));
        assert!(turns.least("sleep", "one") < turns.median("sleep", "one"));
    }

    #[test]
    fn rows_of_another_setting_and_files_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let count = Cell::new(0);
        let mut turns = Turns::open(Some(dir.path()), setting(1)).unwrap();
        turns.take(&mut [counting("one", &count)], 1, &Interrupted::catch().unwrap()).unwrap();
        let other = Turns::open(Some(dir.path()), setting(2)).unwrap_err().to_string();
        assert!(other.contains("give another directory to --out"), "{other}");
        let path = dir.path().join("rows.csv");
        fs::write(&path, "a,b\n1,2\nand more").unwrap();
        assert!(Turns::open(Some(dir.path()), setting(1)).unwrap_err().to_string().contains("not of this version"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a,b\n1,2\nand more");
    }

    #[test]
    fn a_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
