//! Does with a mounted directory what programs do with directories, and says what did not come out as on a local one.
//! It knows nothing of 9P: it must pass on any file system of this machine, and `tests/mounted.rs` holds it to that.
//!
//! [`check::Check`] is one thing done in a directory of its own; the tables of them are in the files named after their
//! subjects. Second processes are [`actor::Actor`]s: this very program, started with `--actor`.

mod actor;
mod check;
mod data;
mod directories;
mod links;
mod listing;
mod locks;
mod many;
mod maps;
mod modes;
mod names;
mod opening;
mod other_mount;
mod permissions;
mod ranges;
mod renames;
mod special;
mod system;
mod times;
mod unlinked;
mod user;
mod xattrs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, ensure};
use clap::Parser;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use check::{Check, Place, Skip};

/// Do what programs do with files in DIR, and compare with what Linux promises. Prints `ok NAME`, `not ok NAME - why` or
/// `skip NAME - why`; exit status 1 when one failed.
#[derive(Parser)]
#[command(name = "ninefold-mounted", version)]
struct Args {
    /// Where to work; what is made in it is removed, but for --keep
    #[arg(required_unless_present_any = ["list", "actor"])]
    dir: Option<PathBuf>,
    /// The same directory by another mount, for locks and changes between two clients; DIR itself when not given
    #[arg(long, value_name = "DIR")]
    second: Option<PathBuf>,
    /// Only the checks of this name; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Skip what needs this: xattr, users, devices, direct (O_DIRECT); may be given several times
    #[arg(long, value_name = "WORD")]
    without: Vec<String>,
    /// Special files to link to, for a server that serves but does not make them: pipe, socket and null, a character device
    #[arg(long, value_name = "DIR")]
    nodes: Option<PathBuf>,
    /// Leave what was made, so that no inode number comes again
    #[arg(long)]
    keep: bool,
    /// Entries of the large directory
    #[arg(long, default_value_t = 5000, value_name = "COUNT")]
    entries: usize,
    /// Seconds that one check may take
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    deadline: u64,
    /// Print the milliseconds that each took to standard error
    #[arg(long)]
    times: bool,
    /// Print the names
    #[arg(long)]
    list: bool,
    /// Be the second process: take orders on standard input
    #[arg(long, hide = true)]
    actor: bool,
}

/// Descriptors: the check of many open files and what the rest needs.
const DESCRIPTORS: u64 = 8192;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.actor {
        actor::obey().map(|()| true)
    } else if args.list {
        all().for_each(|check| println!("{}", check.name()));
        Ok(true)
    } else {
        run(&args)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("ninefold-mounted: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> impl Iterator<Item = &'static Check> {
    let tables = [
        names::CHECKS,
        opening::CHECKS,
        data::CHECKS,
        times::CHECKS,
        modes::CHECKS,
        permissions::CHECKS,
        links::CHECKS,
        renames::CHECKS,
        unlinked::CHECKS,
        directories::CHECKS,
        listing::CHECKS,
        locks::CHECKS,
        ranges::CHECKS,
        special::CHECKS,
        xattrs::CHECKS,
        maps::CHECKS,
        many::CHECKS,
        system::CHECKS,
        other_mount::CHECKS,
    ];
    tables.into_iter().flatten()
}

/// Whether all passed.
fn run(args: &Args) -> anyhow::Result<bool> {
    let dir = args.dir.as_deref().context("a directory")?;
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let second = args.second.as_ref().unwrap_or(&dir);
    let second = second.canonicalize().with_context(|| second.display().to_string())?;
    for name in &args.only {
        ensure!(all().any(|check| check.name() == *name), "{name}: no check of that name; --list prints them");
    }
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).context("descriptors")?;
    umask(Mode::from_raw_mode(0o022));
    let mut good = true;
    for check in all().filter(|check| args.only.is_empty() || args.only.contains(&check.name())) {
        let start = Instant::now();
        let outcome = one(args, *check, &dir, &second);
        if args.times {
            eprintln!("{} ms {}", start.elapsed().as_millis(), check.name());
        }
        let line = match outcome {
            Ok(()) => format!("ok {}", check.name()),
            Err(e) if e.is::<Skip>() => format!("skip {} - {e}", check.name()),
            Err(e) => {
                good = false;
                format!("not ok {} - {}", check.name(), format!("{e:#}").replace('\n', " "))
            }
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(good)
}

/// One check in a fresh directory, which is removed again. A check that hangs is left behind in its thread.
fn one(args: &Args, check: Check, dir: &Path, second: &Path) -> anyhow::Result<()> {
    if let Some(word) = check.needs().find(|word| args.without.iter().any(|without| without == word)) {
        return Err(Skip(format!("--without {word}")).into());
    }
    let place = Place::make(dir, second, args.nodes.as_deref(), &check.name(), args.entries)?;
    let root = place.root().to_owned();
    let (done, outcome) = mpsc::channel();
    thread::Builder::new().name(check.name()).spawn(move || {
        let caught = std::panic::catch_unwind(|| check.run(&place));
        // Nobody listens any more when the deadline has passed.
        let _ = done.send(caught.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked"))));
    })?;
    let Ok(result) = outcome.recv_timeout(Duration::from_secs(args.deadline)) else {
        anyhow::bail!("still running after {} s", args.deadline);
    };
    if args.keep {
        return result;
    }
    let removed = fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()));
    result.and(removed)
}
