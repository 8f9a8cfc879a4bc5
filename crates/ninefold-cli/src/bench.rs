//! `ninefold bench` and `ninefold lab`: become `ninefold-bench`, which is a program of its own so that peers, plots and the link stay
//! out of the one that people copy.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

/// The program that measures, and makes labs.
const PROGRAM: &str = "ninefold-bench";

/// Under `name`, where it tells how it is used.
fn become_it(name: &str, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let program = own.with_file_name(PROGRAM);
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
