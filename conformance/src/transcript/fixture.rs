//! Files in the exported directory, made and checked beside the protocol: this directory lies on this machine.

use std::fmt::Debug;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ninefold_proto::print::{unquote, words};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Carries out `file …`, `dir …`, `symlink …` or `fifo …`.
pub fn make(dir: &Path, line: &str) -> anyhow::Result<()> {
    let words = words(line)?;
    let mode = match words[..] {
        ["file", name, content] | ["file", name, content, _] => {
            fs::write(path(dir, name)?, unquote(content)?)?;
            words.get(3)
        }
        ["dir", name] | ["dir", name, _] => {
            fs::create_dir(path(dir, name)?)?;
            words.get(2)
        }
        ["fifo", name] | ["fifo", name, _] => {
            mknodat(CWD, path(dir, name)?, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
            words.get(2)
        }
        ["symlink", name, target] => {
            symlink(text(target)?, path(dir, name)?)?;
            None
        }
        _ => bail!("expected: file NAME CONTENT [MODE], dir NAME [MODE], fifo NAME [MODE], symlink NAME TARGET"),
    };
    // Set apart from the making, because the making is subject to the umask.
    match mode {
        Some(mode) => Ok(fs::set_permissions(path(dir, words[1])?, Permissions::from_mode(octal(mode)?))?),
        None => Ok(()),
    }
}

/// Carries out what follows `check`.
pub fn check(dir: &Path, line: &str) -> anyhow::Result<()> {
    let words = words(line)?;
    match words[..] {
        ["file", name, content] => {
            let got = fs::read(path(dir, name)?)?;
            same(name, &String::from_utf8_lossy(&got), &String::from_utf8_lossy(&unquote(content)?))
        }
        ["mode", name, mode] => {
            let got = fs::symlink_metadata(path(dir, name)?)?.permissions().mode() & 0o7777;
            same(name, &format!("mode {got:04o}"), &format!("mode {:04o}", octal(mode)?))
        }
        ["owner", name, uid, gid] => {
            let got = fs::symlink_metadata(path(dir, name)?)?;
            same(name, &(got.uid(), got.gid()), &(uid.parse()?, gid.parse()?))
        }
        ["symlink", name, target] => same(name, &fs::read_link(path(dir, name)?)?, &PathBuf::from(text(target)?)),
        ["dir", name] => {
            ensure!(fs::symlink_metadata(path(dir, name)?)?.is_dir(), "{name} is no directory");
            Ok(())
        }
        ["absent", name] => match fs::symlink_metadata(path(dir, name)?) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e.into()),
            Ok(_) => bail!("{name} is there"),
        },
        _ => bail!("expected: check file, mode, owner, symlink, dir or absent, a name, and the value"),
    }
}

fn same<T: PartialEq + Debug>(name: &str, got: &T, expected: &T) -> anyhow::Result<()> {
    ensure!(got == expected, "{name}: expected {expected:?}, got {got:?}");
    Ok(())
}

fn path(dir: &Path, name: &str) -> anyhow::Result<PathBuf> {
    Ok(dir.join(text(name)?))
}

fn text(word: &str) -> anyhow::Result<String> {
    String::from_utf8(unquote(word)?).context("names here must be UTF-8")
}

fn octal(word: &str) -> anyhow::Result<u32> {
    u32::from_str_radix(word, 8).with_context(|| format!("'{word}' is no octal mode"))
}
