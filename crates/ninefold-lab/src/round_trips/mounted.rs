//! sshfs beside: Debian's package, by an sshd of our own in the server's end, with keys made for this run and a configuration that is
//! read instead of the user's and the machine's. Each operation finds a mount that was made for it, so that nothing is cached; how long
//! mounting takes is not in its time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::debian::need;
use crate::sshd::Sshd;

use super::bed::{Bed, Failed, Words};
use super::operation::Operation;
use super::trees;

const PORT: &str = "2222";
const HOST: &str = "10.9.0.2";

/// The longest that making a mount may take, beyond its round trips.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is needed to mount.
#[derive(Debug)]
pub struct Sshfs {
    config: PathBuf,
    at: PathBuf,
}

impl Sshfs {
    /// Starts sshd. The error says what is missing.
    pub fn start(bed: &mut Bed<'_>) -> Result<Sshfs> {
        need("sshfs", "sshfs")?;
        let dir = bed.scratch("ssh");
        let sshd = Sshd::prepare(&dir, HOST, PORT, "")?;
        bed.serve(&Words::new(sshd.words), "listening on")?;
        let sshfs = Sshfs { config: sshd.config, at: dir.join("mnt") };
        fs::create_dir(&sshfs.at)?;
        Ok(sshfs)
    }

    /// Mounts what is served; it is unmounted when that is dropped.
    pub fn mount(&self, bed: &Bed<'_>) -> Result<Mount<'_>> {
        let mut from = OsString::from(format!("{HOST}:"));
        from.push(bed.trees.served());
        let words = Words::new(["sshfs", "-F"]).and(&self.config).and(from).and(&self.at);
        let mount = Mount(&self.at);
        match bed.run(&words, PATIENCE)? {
            Ok(_) => Ok(mount),
            Err(Failed::Stopped(_)) => bail!("sshfs did not mount within {} s", PATIENCE.as_secs()),
            Err(Failed::Status(told)) => bail!("sshfs cannot mount in the lab: {told}"),
        }
    }
}

#[derive(Debug)]
pub struct Mount<'a>(&'a Path);

impl Mount<'_> {
    /// The command that does an operation; none where there is none like it.
    pub fn words(&self, bed: &Bed<'_>, operation: Operation) -> Option<Words> {
        let at = |path: &str| self.0.join(path);
        let here = |name: &str| bed.trees.here().join(name);
        let down = |name: &str| bed.trees.down().join(name);
        let shell = |script: &str, path: PathBuf| Words::new(["sh", "-c", script, "sh"]).and(path);
        let write = |stdin: PathBuf| shell("exec cat > \"$1\"", at("made/x")).reading(stdin);
        Some(match operation {
            Operation::Pwd => shell("cd \"$1\" && exec pwd -P", at("d")),
            Operation::Ls => Words::new(["ls"]).and(at("few")),
            Operation::LsLong => Words::new(["ls", "-l"]).and(at("few")),
            Operation::LsMany => Words::new(["ls", "-l"]).and(at("many")),
            Operation::LsTree => Words::new(["ls", "-lR"]).and(at("tree")),
            Operation::Stat => Words::new(["stat"]).and(at("d/small")),
            Operation::Create => write("/dev/null".into()),
            Operation::WriteSmall => write(here("small")),
            Operation::WriteLarger => write(here("larger")),
            Operation::ReadSmall => Words::new(["cat"]).and(at("d/small")),
            Operation::ReadLarger => Words::new(["cat"]).and(at("d/larger")),
            Operation::CopyDown => Words::new(["cp"]).and(at("d/middle")).and(down("x")),
            Operation::CopyUp => Words::new(["cp"]).and(here("middle")).and(at("made/x")),
            Operation::Remove => Words::new(["rm"]).and(at("made/x")),
            Operation::Mkdir => Words::new(["mkdir", "-p"]).and(at("made").join(trees::DEEP)),
            Operation::CopyTreeDown => Words::new(["cp", "-r"]).and(at("tree")).and(down("tree")),
            Operation::CopyTreeUp => Words::new(["cp", "-r"]).and(here("tree")).and(at("made/tree")),
            Operation::RemoveTree => Words::new(["rm", "-r"]).and(at("made/tree")),
            Operation::CopyLarge => Words::new(["cp"]).and(at("d/large")).and(down("x")),
            Operation::CopyParallel => return None,
        })
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Lazily: a command that was killed may still be in it. Where nothing was mounted there is nothing to do.
        let mut command = Command::new("fusermount3");
        command.args(["-u", "-z", "-q"]).arg(self.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status();
    }
}
