//! `ninefold bench` and `ninefold lab`: become `ninefold-bench`, which is a program of its own so that peers, plots and the link stay
//! out of the one that people copy.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};

/// The program that measures, and makes labs.
const PROGRAM: &str = "ninefold-bench";

/// Where it ought to lie.
fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    Ok(own.with_file_name(PROGRAM))
}

/// Its command line, as it tells it; `None` where it is missing, or of another version that does not.
pub fn described() -> Option<serde_json::Value> {
    let output =
        Command::new(beside().ok()?).arg("describe").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success())
}

/// Under `name`, where it tells how it is used.
fn become_it(name: &str, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let program = beside()?;
    // Only comes back when it fails.
    let error = Command::new(&program).arg0(name).args(words).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        bail!("{} is missing; from the source: cargo build --release -p ninefold-lab", program.display());
    }
    Err(error).with_context(|| program.display().to_string())
}

pub fn bench(words: &[OsString]) -> anyhow::Result<ExitCode> {
    become_it(PROGRAM, words)
}

pub fn lab(words: &[OsString]) -> anyhow::Result<ExitCode> {
    become_it("ninefold", &[&["lab".into()], words].concat())
}
