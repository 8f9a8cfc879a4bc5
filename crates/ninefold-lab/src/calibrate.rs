//! `calibrate`: measures this machine, fits the constants of `ninefold_stream::Calibration` by it, and prints appendix A of the paper (Krieger,
//! Stumm and Unrau, CSRI-275, 1994), tables 4 to 7, for it.
//!
//! First the tables and how much is moved at a time (`sizes`), in turns; then, with those sizes, where mapping begins to pay (`mapping`). The
//! constants are chosen by `fit`, which is pure.

mod fit;
mod mapping;
mod sizes;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ninefold_stream::Calibration;

use crate::interrupted::Interrupted;
use crate::native::Native;
use crate::size::size;
use crate::turns::{Setting, Turns, cores, pin};

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Write rows.csv, tables.txt and calibration into this directory, and go on with what is there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where files are made, on the file system to be measured
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Bytes of the largest file, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = size)]
    size: u64,
    /// Rounds, of which the fastest counts
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Put the constants where streams look for them, in the place of what is there
    #[arg(long)]
    keep: bool,
}

/// The table that streams go by.
///
/// # Errors
/// What is wrong with the file that a person put: streams say nothing of it.
pub fn kept() -> Result<()> {
    let Some(place) = Calibration::place() else { return Ok(()) };
    Calibration::read(&place).with_context(|| {
        format!("{} is no calibration, so streams go by their defaults: mend it, or take it away", place.display())
    })?;
    Ok(())
}

pub fn run(options: &Options) -> Result<()> {
    let place = Calibration::place();
    if options.keep {
        ensure!(place.is_some(), "there is nowhere to keep it: set NINEFOLD_CALIBRATION, XDG_CONFIG_HOME or HOME");
    } else {
        kept()?;
    }
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let interrupted = Interrupted::catch()?;
    let mut turns = Turns::open(options.out.as_deref(), Setting::here("calibrate", &base, options.size)?)?;
    let scratch = tempfile::Builder::new().prefix("ninefold-bench-").tempdir_in(&base);
    let scratch = scratch.with_context(|| base.display().to_string())?;
    let cores = cores();
    pin(*cores.first().context("no processor")?)?;
    let native = Native::start(scratch.path())?;
    let lacking = native.as_ref().err().cloned();
    let native = native.ok().map(std::cell::RefCell::new);

    let mut cases = match &native {
        Some(native) => tables::cases(native, scratch.path(), options.size)?,
        None => Vec::new(),
    };
    cases.extend(sizes::cases(scratch.path(), options.size)?);
    turns.take(&mut cases, options.rounds, &interrupted)?;
    drop(cases);
    let table = fit::sizes(&turns);
    let beside = mapping::Beside::start(cores.get(1).copied());
    turns.take(&mut mapping::cases(scratch.path(), options.size, table)?, options.rounds, &interrupted)?;
    drop(beside);
    let table = fit::mapping(&turns, table);

    let mut text = heading(&turns.setting, options.rounds, cores.len());
    text += &tables::text(&turns, lacking.as_deref());
    text += &fit::text(&turns, table);
    text += &turns.warning();
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let calibration =
        format!("# ninefold bench calibrate: {}, {}\n{table}", turns.setting.machine, turns.setting.place);
    if let Some(out) = &options.out {
        write(&out.join("tables.txt"), &text)?;
        write(&out.join("calibration"), &calibration)?;
    }
    let Some(place) = place else { return Ok(()) };
    if options.keep {
        put(&place, &calibration)?;
    }
    let _ = match options.keep {
        true => writeln!(std::io::stdout(), "\nkept in {}", place.display()),
        false => writeln!(std::io::stdout(), "\nto have streams go by these, --keep: that writes {}", place.display()),
    };
    Ok(())
}

fn heading(setting: &Setting, rounds: u32, cores: usize) -> String {
    let beside = if cores > 1 { "a second thread runs on another while files are mapped" } else { "there is no other" };
    format!(
        "{}; {}; the fastest of {rounds} rounds on one processor, {beside}; data in the page cache\n",
        setting.machine, setting.place
    )
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Writes a file whole or not at all: a stream that is opened meanwhile finds the old table or the new one.
fn put(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut file = tempfile::Builder::new()
        .prefix(".calibration-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .with_context(|| directory.display().to_string())?;
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    file.persist(path).with_context(|| path.display().to_string())?;
    Ok(())
}
