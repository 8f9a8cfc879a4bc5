//! Streams beside what a program of C has: the C library's calls, cmp(1), and the kernel's own copies. Ratios of one run.
//!
//! Everything runs on one processor, but for the case of two threads, and takes turns. The file is in the page cache. A time is that
//! of the whole job on the processor, with opening and closing, and by the clock where there are two threads; both sides look at as much of
//! the data.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ninefold_stream::{Calibration, Options as Opening, Stream, copy};
use serde_json::json;

use crate::interrupted::Interrupted;
use crate::native::Native;
use crate::size::{made, size};
use crate::turns::{Case, Setting, Took, Turns, cores, median, pin};

/// Bytes of a region of the cases that take short ones, and of those that take long ones.
const SHORT: usize = 64;
const PIECE: usize = 4096;
const LONG: usize = 64 << 10;

/// How many times as fast each is to be: what is done, the way of C, ours, and the ratio. The numbers are from the measurements that the
/// streams were designed by.
const BARS: [(&str, &str, &str, f64); 12] = [
    ("64 bytes", "fread", "pread", 3.0),
    ("64 bytes", "fread", "mmap", 5.0),
    ("lines", "getline", "pread", 2.0),
    ("lines", "getline", "mmap", 2.8),
    ("compare two files", "cmp", "pread", 3.0),
    ("compare two files", "cmp", "mmap", 4.0),
    ("read 64 KiB", "read", "pread", 0.95),
    ("read 64 KiB", "read", "mmap", 0.95),
    ("copy a file", "copy_file_range", "copy", 0.95),
    ("4 KiB with work", "one thread", "two threads", 1.6),
    ("pipe, 4 KiB", "pipe", "ring", 4.0),
    ("pipe, 64 KiB", "pipe", "ring", 4.0),
];

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Write rows.csv and report.json into this directory, and go on with what is there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the files are made, on the file system to be measured
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Bytes of each of the two files, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size)]
    size: u64,
    /// Rounds, of which the median is told
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Only what holds one of these words in its name: lines, compare, mmap
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    only: Vec<String>,
    /// Be the process that writes: pipe or ring, bytes of a piece, bytes in all; to the standard output
    #[arg(long, hide = true, num_args = 3, value_names = ["WAY", "PIECE", "BYTES"])]
    produce: Option<Vec<String>>,
}

pub fn run(options: &Options) -> Result<()> {
    if let Some(words) = &options.produce {
        return crate::handing::produce(words);
    }
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    crate::calibrate::kept()?;
    let has = |text: &str| options.only.iter().any(|word| text.contains(word.as_str()));
    let wanted: Vec<_> =
        BARS.into_iter().filter(|(what, _, ours, _)| options.only.is_empty() || has(what) || has(ours)).collect();
    ensure!(!wanted.is_empty(), "no case has a name with one of these words");
    let cores = cores();
    let &first = cores.first().context("no processor")?;
    let interrupted = Interrupted::catch()?;
    let mut turns = Turns::open(options.out.as_deref(), Setting::here("streams", &base, options.size)?)?;
    let scratch = tempfile::Builder::new().prefix("ninefold-bench-").tempdir_in(&base);
    let scratch = scratch.with_context(|| base.display().to_string())?;
    let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
    made(&a, options.size)?;
    made(&b, options.size)?;
    pin(first)?;
    let mut notes = Vec::new();
    let native = match Native::start(scratch.path())? {
        Ok(native) => Some(std::cell::RefCell::new(native)),
        Err(why) => {
            notes.push(why);
            None
        }
    };
    let has_cmp = Command::new("cmp").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !has_cmp {
        notes.push("no cmp: apt install diffutils".to_owned());
    }
    if cores.len() < 2 {
        notes.push("two threads: one processor".to_owned());
    }
    let target = scratch.path().join("copy");
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (what, way) in wanted.iter().flat_map(|&(what, theirs, ours, _)| [(what, theirs), (what, ours)]) {
        if cases.iter().any(|case| case.what == what && case.way == way) {
            continue;
        }
        let short = SHORT.to_string();
        let long = LONG.to_string();
        let (a, b, target, cores) = (a.as_path(), b.as_path(), target.as_path(), cores.as_slice());
        let ask = |words: Vec<String>| {
            let native = native.as_ref()?;
            let measure = move || {
                let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
                native.borrow_mut().ask(&words)
            };
            Some(Case::new(what, way, measure))
        };
        let path = a.to_str().context("a path that is no text")?.to_owned();
        let case = match way {
            "fread" => ask(vec!["fread".to_owned(), path, short]),
            "getline" => ask(vec!["getline".to_owned(), path]),
            "read" => ask(vec!["read".to_owned(), path, long]),
            "copy_file_range" => {
                ask(vec!["file_to_file".to_owned(), path, target.to_str().context("a path")?.to_owned()])
            }
            "cmp" => has_cmp.then(|| Case::new(what, way, move || cmp(a, b))),
            "copy" => Some(Case::new(what, way, move || file_to_file(a, target))),
            "one thread" | "two threads" if cores.len() < 2 => None,
            "one thread" => Some(Case::new(what, way, move || Took::by_clock(|| worked(&stream(a, "pread")?)))),
            "two threads" => Some(Case::new(what, way, move || shared(a, [cores[0], cores[1]]))),
            "pipe" | "ring" => {
                let piece = if what == "pipe, 4 KiB" { PIECE } else { LONG };
                Some(Case::new(what, way, move || crate::handing::between(way, piece, options.size)))
            }
            module => Some(match what {
                "64 bytes" => Case::new(what, way, move || regions(a, module)),
                "lines" => Case::new(what, way, move || lines(a, module)),
                "read 64 KiB" => Case::new(what, way, move || reads(a, module)),
                _ => Case::new(what, way, move || compare(a, b, module)),
            }),
        };
        cases.extend(case);
    }
    turns.take(&mut cases, options.rounds, &interrupted)?;
    drop(cases);
    report(&turns, &wanted, &notes, options)
}

/// Of ours to theirs, by rounds.
fn ratios(turns: &Turns, what: &str, theirs: &str, ours: &str) -> Vec<f64> {
    turns.each(what, theirs).iter().zip(turns.each(what, ours)).map(|(theirs, ours)| theirs / ours).collect()
}

fn report(turns: &Turns, wanted: &[(&str, &str, &str, f64)], notes: &[String], options: &Options) -> Result<()> {
    let Setting { machine, place, bytes, .. } = &turns.setting;
    let mut text = format!(
        "{machine}; files of {bytes} bytes in {place}; medians of {} rounds; ns of a region, line or byte, with opening and closing\n\n",
        options.rounds
    );
    let _ = writeln!(
        text,
        "{:18} {:16} {:>9}  {:12} {:>9} {:>7} {:>7} {:>7} {:>6}",
        "what", "by", "ns", "beside", "ns", "ratio", "least", "most", "bar"
    );
    let mut rows = Vec::new();
    for &(what, theirs, ours, bar) in wanted {
        let (a, b) = (turns.median(what, theirs), turns.median(what, ours));
        let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), |ns| format!("{ns:.3}"));
        let ratios = ratios(turns, what, theirs, ours);
        let ratio = a.zip(b).map(|(a, b)| a / b);
        let show = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let least = ratios.iter().copied().min_by(f64::total_cmp);
        let most = ratios.iter().copied().max_by(f64::total_cmp);
        let verdict = ratio.map_or("", |ratio| if ratio < bar { " below" } else { "" });
        let _ = writeln!(
            text,
            "{what:18} {theirs:16} {:>9}  {ours:12} {:>9} {:>7} {:>7} {:>7} {bar:>6}{verdict}",
            figure(a),
            figure(b),
            show(ratio),
            show(least),
            show(most)
        );
        rows.push(json!({
            "what": what, "native": theirs, "stream": ours, "native_ns": a, "stream_ns": b, "ratio": ratio,
            "median_of_ratios": median(ratios), "least": least, "most": most, "bar": bar,
        }));
    }
    for note in notes {
        let _ = writeln!(text, "not measured: {note}");
    }
    text += &turns.warning();
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if let Some(out) = &options.out {
        let table = Calibration::of_machine();
        let report = json!({
            "bench": "streams", "setting": turns.setting, "rounds": options.rounds, "rows": rows, "missing": notes,
            "calibration": table.to_string(),
        });
        let path = out.join("report.json");
        std::fs::write(&path, format!("{report:#}\n")).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn stream(path: &Path, module: &str) -> Result<Stream> {
    Opening::new().read(true).module(module).open(path).with_context(|| path.display().to_string())
}

fn regions(path: &Path, module: &str) -> Result<Took> {
    Took::of(|| {
        let stream = stream(path, module)?;
        let (mut sum, mut count) = (0u64, 0);
        loop {
            let region = stream.alloc(SHORT)?;
            if region.len() < SHORT {
                break;
            }
            sum += u64::from(region[0]);
            count += 1;
            region.free()?;
        }
        black_box(sum);
        stream.close()?;
        Ok(count)
    })
}

fn lines(path: &Path, module: &str) -> Result<Took> {
    Took::of(|| {
        let stream = stream(path, module)?;
        let (mut sum, mut count) = (0, 0);
        loop {
            let line = stream.alloc_line()?;
            if line.is_empty() {
                break;
            }
            sum += line.len();
            count += 1;
            line.free()?;
        }
        black_box(sum);
        stream.close()?;
        Ok(count)
    })
}

fn cmp(a: &Path, b: &Path) -> Result<Took> {
    let bytes = std::fs::metadata(a)?.len();
    Took::of_children(|| {
        let status = Command::new("cmp").args([a, b]).stdin(Stdio::null()).status().context("cmp")?;
        ensure!(status.success(), "cmp: the files differ");
        Ok(bytes)
    })
}

fn compare(a: &Path, b: &Path, module: &str) -> Result<Took> {
    Took::of(|| {
        let (a, b) = (stream(a, module)?, stream(b, module)?);
        let mut bytes = 0;
        loop {
            let (x, y) = (a.alloc(LONG)?, b.alloc(LONG)?);
            if *x != *y {
                bail!("the files differ");
            }
            if x.is_empty() {
                break;
            }
            bytes += x.len() as u64;
            x.free()?;
            y.free()?;
        }
        a.close()?;
        b.close()?;
        Ok(bytes)
    })
}

/// Where read(2) puts data fastest, on either side: it begins at a page.
#[repr(align(4096))]
struct Aligned([u8; LONG]);

fn reads(path: &Path, module: &str) -> Result<Took> {
    let mut buffer = Box::new(Aligned([1; LONG]));
    Took::of(|| {
        let mut stream = stream(path, module)?;
        let (mut sum, mut bytes) = (0u64, 0);
        loop {
            let n = stream.read(&mut buffer.0)?;
            if n == 0 {
                break;
            }
            sum += u64::from(buffer.0[0]);
            bytes += n as u64;
        }
        black_box(sum);
        stream.close()?;
        Ok(bytes)
    })
}

fn file_to_file(from: &Path, to: &Path) -> Result<Took> {
    Took::of(|| {
        let (from, to) = (Stream::open(from)?, Stream::create(to)?);
        let bytes = copy(&from, &to, u64::MAX)?;
        to.close()?;
        Ok(bytes)
    })
}

/// All that a stream still has, 4 KiB at a time, and something done with each byte: some five microseconds a region.
fn worked(stream: &Stream) -> Result<u64> {
    let (mut sum, mut bytes) = (0u32, 0);
    loop {
        let region = stream.alloc(PIECE)?;
        if region.is_empty() {
            break;
        }
        bytes += region.len() as u64;
        sum = region.iter().fold(sum, |sum, &b| sum.rotate_left(5) ^ u32::from(b));
        region.free()?;
    }
    black_box(sum);
    Ok(bytes)
}

/// The same by two threads, each on a processor of its own.
fn shared(path: &Path, cores: [usize; 2]) -> Result<Took> {
    Took::by_clock(|| {
        let stream = stream(path, "pread")?;
        let on = |core: usize| {
            pin(core)?;
            worked(&stream)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| on(cores[1]));
            let own = on(cores[0])?;
            let other = other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            Ok(own + other)
        })
    })
}
