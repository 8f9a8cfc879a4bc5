//! What was measured and where: kept beside the rows, so that the report tells it, and so that rows of another ninefold are not
//! mixed with them.

use std::fs;
use std::hash::Hasher;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::files::Files;
use crate::debian::need;

const FILE: &str = "setting.json";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Version and checksum of the program.
    pub ninefold: String,
    pub machine: String,
    pub files: String,
    /// The peers' own words.
    pub peers: Vec<String>,
    /// The most bytes of a socket's buffers that the machine allows, to receive and to send.
    pub buffers: String,
}

/// The first line of what a program says of its version.
fn version(name: &str, package: &str, options: &[&str]) -> String {
    let Ok(program) = need(name, package) else { return format!("{name}: not installed (apt install {package})") };
    let output = Command::new(program).args(options).stdin(Stdio::null()).output();
    let line = output.ok().and_then(|output| {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        said.lines().find(|line| line.contains(|c: char| c.is_ascii_digit())).map(str::to_owned)
    });
    line.map_or(format!("{name}: it does not tell its version"), |line| format!("{name}: {}", line.trim()))
}

impl Setting {
    pub fn here(ninefold: &Path, files: &Files) -> Result<Setting> {
        let mut hasher = XxHash3_64::new();
        hasher.write(&fs::read(ninefold).with_context(|| ninefold.display().to_string())?);
        let output = Command::new(ninefold).arg("--version").stdin(Stdio::null()).output()?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let system = rustix::system::uname();
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let release = system.release().to_string_lossy();
        let buffers = ["rmem", "wmem"].map(|name| {
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default();
            text.split_whitespace().next_back().unwrap_or("unknown").to_owned()
        });
        Ok(Setting {
            ninefold: format!("{name}, checksum {:016x}", hasher.finish()),
            machine: format!("{} {release}, {processors} processors", system.sysname().to_string_lossy()),
            files: files.text(),
            peers: vec![
                version("nginx", "nginx-light", &["-v"]),
                version("curl", "curl", &["--version"]),
                // scp does not tell, and is of one package with ssh.
                version("ssh", "openssh-client", &["-V"]),
                version("rsync", "rsync", &["--version"]),
                // Nor does diod.
                version("dpkg-query", "dpkg", &["-W", "diod"]),
            ],
            buffers: format!("{} bytes to receive, {} to send", buffers[0], buffers[1]),
        })
    }

    /// Writes it beside new rows; beside rows that are there it has to be the same.
    pub fn keep(&self, out: &Path, is_new: bool) -> Result<()> {
        if !is_new {
            let before = Setting::read(out)?;
            let same = |what: &str, before: &str, now: &str| {
                ensure!(
                    before == now,
                    "the rows in {} are of another {what}: {before}, and now {now}; give another directory to --out",
                    out.display()
                );
                Ok(())
            };
            same("ninefold", &before.ninefold, &self.ninefold)?;
            same("machine", &before.machine, &self.machine)?;
            same("place", &before.files, &self.files)?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(out.join(FILE), text).with_context(|| out.join(FILE).display().to_string())
    }

    /// Empty where there is none.
    pub fn read(out: &Path) -> Result<Setting> {
        let path = out.join(FILE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Setting::default()),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_another_ninefold_are_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let setting = Setting { ninefold: "a".to_owned(), ..Setting::default() };
        setting.keep(dir.path(), true).unwrap();
        setting.keep(dir.path(), false).unwrap();
        let other = Setting { ninefold: "b".to_owned(), ..Setting::default() };
        let error = other.keep(dir.path(), false).unwrap_err().to_string();
        assert!(error.contains("are of another ninefold: a, and now b; give another directory"), "{error}");
        assert_eq!(Setting::read(dir.path()).unwrap(), setting);
    }

    #[test]
    fn what_is_not_installed_says_how_to_get_it() {
        assert_eq!(
            version("no-such-program", "its-package", &["-v"]),
            "no-such-program: not installed (apt install its-package)"
        );
    }
}
