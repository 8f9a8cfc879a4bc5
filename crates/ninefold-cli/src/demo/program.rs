//! This very command, run as a person would: [`Program`].

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::process::Command;
use tokio::time::timeout;

/// Bound of every single command and every other wait. A slow machine needs a second.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs where ssh would run at the other end of a line, with what ssh would be given. It leaves out the way there.
const SSH: &str = r#"#!/bin/sh
# Stands in for ssh on a machine without sshd: the last word is the command for the other end.
for command; do :; done
PATH=${0%/*}/bin:$PATH exec sh -c "$command"
"#;

/// Where the commands run, and by which program.
#[derive(Debug)]
pub struct Program {
    pub dir: PathBuf,
}

/// What a command came to.
#[derive(Debug)]
pub struct Outcome {
    /// As it would be typed.
    pub line: String,
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
}

impl Program {
    /// Puts this program under its name into `dir/bin`, and the stand-in for ssh into `dir`.
    pub fn new(dir: &Path) -> anyhow::Result<Program> {
        let me = std::env::current_exe().context("cannot find my own program")?;
        let make = || {
            std::fs::create_dir(dir.join("bin"))?;
            symlink(&me, dir.join("bin/ninefold"))?;
            std::fs::write(dir.join("ssh"), SSH)?;
            std::fs::set_permissions(dir.join("ssh"), PermissionsExt::from_mode(0o700))
        };
        make().with_context(|| format!("cannot make the demo's files in {}", dir.display()))?;
        Ok(Program { dir: dir.to_owned() })
    }

    /// What a shell would have to export.
    pub fn environment(&self) -> String {
        format!("NINEFOLD_SSH={}", quoted(&self.ssh()))
    }

    /// As a word of a shell: it is one that reads the variable.
    fn ssh(&self) -> String {
        quoted(&self.dir.join("ssh").to_string_lossy())
    }

    /// The command, not yet started. It is killed when it is forgotten.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.dir.join("bin/ninefold"));
        command.args(words).current_dir(&self.dir).env("NINEFOLD_SSH", self.ssh());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    pub async fn run(&self, words: &[&str]) -> anyhow::Result<Outcome> {
        let line = line(words);
        let began = Instant::now();
        let child = self.command(words).stderr(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("{line}: cannot start"))?;
        let Ok(output) = timeout(PATIENCE, child.wait_with_output()).await else {
            bail!("{line}: still running after {} s", PATIENCE.as_secs());
        };
        let output = output.with_context(|| line.clone())?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Ok(Outcome { line, status: output.status.code(), stdout: output.stdout, stderr, took: began.elapsed() })
    }
}

impl Outcome {
    /// For a command that did not do what it should have.
    pub fn complaint(&self) -> String {
        let end = self.status.map_or("it was killed".to_owned(), |status| format!("exit status {status}"));
        format!("{}: {end}: {}", self.line, self.stderr.replace('\n', "; "))
    }
}

/// As a person would type it.
pub fn line(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("ninefold {}", words.join(" "))
}

/// For a shell to read as one word.
fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=+,@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_pasted_into_a_shell() {
        assert_eq!(line(&["ls", "-l", "9p://h/a"]), "ninefold ls -l 9p://h/a");
        assert_eq!(
            line(&["ls", "9p://h/a?dialect=9P2000", "it's"]),
            r"ninefold ls '9p://h/a?dialect=9P2000' 'it'\''s'"
        );
    }
}
