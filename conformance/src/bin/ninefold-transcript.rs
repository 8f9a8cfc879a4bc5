//! Replays transcripts against any 9P server and says which of them it passes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, ensure};
use clap::Parser;
use ninefold::transport::Address;
use ninefold_conformance::transcript::{Outcome, Script, Target, run};

/// Replay .9p transcripts against a 9P server. Exit status: 0 all passed, 1 one failed, 2 usage.
#[derive(Parser)]
#[command(name = "ninefold-transcript", version)]
struct Args {
    /// The server: 9p://HOST[:PORT] or 9p+unix:/SOCKET; ?aname=NAME names the tree to attach
    address: Address,
    /// Transcripts
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The exported directory, if it lies on this machine; it must be empty, and is again after each transcript
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Skip the transcripts that need this; may be given several times
    #[arg(long, value_name = "WORD")]
    without: Vec<String>,
    /// The tree may not be changed: replay the transcripts that need that, and no others
    #[arg(long)]
    read_only: bool,
    /// Seconds that any wait may take
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    deadline: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match replay(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("ninefold-transcript: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all passed. The lines it prints are those that `make test` counts.
fn replay(args: &Args) -> anyhow::Result<bool> {
    let deadline = Duration::try_from_secs_f64(args.deadline).context("--deadline")?;
    let lacks = args.without.iter().map(|word| (word.clone(), format!("--without {word}")));
    let mut target = Target::new(args.address.clone());
    target.lacks.extend(lacks);
    target.dir.clone_from(&args.dir);
    target.deadline = deadline;
    target.read_only = args.read_only;
    if let Some(dir) = &args.dir {
        // What is in it after a transcript is removed, so nobody's files may be there before.
        let mut entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
        ensure!(entries.next().is_none(), "{}: must be empty, transcripts make and remove files there", dir.display());
    }
    let mut good = true;
    for file in &args.files {
        let name = file.with_extension("").display().to_string();
        let script = Script::load(file)?;
        match run(&script, &target) {
            Ok(Outcome::Passed) => println!("ok {name}"),
            Ok(Outcome::Skipped(why)) => println!("skip {name} - {why}"),
            Err(failure) => {
                println!("not ok {name} - {failure}");
                good = false;
            }
        }
        if let Some(dir) = &args.dir {
            clear(dir).with_context(|| format!("cannot clear {}", dir.display()))?;
        }
    }
    Ok(good)
}

fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}
