//! `ninefold ns`: name spaces, as files describe them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ninefold::client::{Memory, Options};
use ninefold::ns::Namespace;
use ninefold::ns::file::{FILE_MAX, Source, load};
use serde_json::json;

use crate::args::NsShow;

/// Where a file of names is looked for when none is named: under the home directory, as on Plan 9.
const FILE: &str = "lib/namespace";

/// Prints the table that a file makes, as a file that makes it.
pub async fn show(args: NsShow, timeout: Option<Duration>) -> anyhow::Result<ExitCode> {
    let ns = composed(args.ns.as_deref(), timeout).await?;
    let mut out = io::stdout().lock();
    let written = if args.json {
        ns.table().mounts().into_iter().try_for_each(|(path, members)| {
            members.iter().enumerate().try_for_each(|(at, member)| {
                let row = json!({
                    "name": crate::out::text(path.as_bytes()),
                    "address": member.file.address().to_string(),
                    "member": at,
                    "create": member.flags.create,
                    "cache": member.flags.cache,
                });
                writeln!(out, "{row}")
            })
        })
    } else {
        out.write_all(&ns.show())
    };
    match written.and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).context("standard output"),
    }
}

/// The name space that a file describes, its servers connected to; without one, that of the user.
pub async fn composed(file: Option<&Path>, timeout: Option<Duration>) -> anyhow::Result<Namespace> {
    let file = match file {
        Some(file) => file.to_owned(),
        None => of_user().context("HOME is not set: name the file, --ns FILE")?,
    };
    let lines = load(&file, &Here)?;
    let mut options = Options { memory: Memory::of_user(), ..Options::default() };
    if let Some(timeout) = timeout {
        let limit = Some(timeout).filter(|timeout| !timeout.is_zero());
        (options.timeout, options.login_timeout) = (limit, limit);
    }
    let ns = Namespace::new(options);
    ns.run(&lines).await?;
    Ok(ns)
}

fn of_user() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("HOME")?).join(FILE))
}

/// Files and variables of this process.
struct Here;

impl Source for Here {
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        // One byte more tells that it is too large.
        File::open(file)?.take(FILE_MAX as u64 + 1).read_to_end(&mut text)?;
        Ok(text)
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStringExt;
        std::env::var_os(name).map(OsStringExt::into_vec)
    }
}
