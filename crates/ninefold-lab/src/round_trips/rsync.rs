//! rsync beside, for the copies: Debian's package, by its own protocol to a daemon in the server's end, with nothing encrypted, as ours.

use std::fs;

use anyhow::Result;

use crate::debian::need;

use super::bed::{Bed, Words};
use super::operation::Operation;

const PORT: &str = "8730";
const HOST: &str = "10.9.0.2";

/// Starts the daemon. The error says what is missing.
pub fn start(bed: &mut Bed<'_>) -> Result<()> {
    let rsync = need("rsync", "rsync")?;
    let config = bed.scratch("rsyncd.conf");
    // As root it would become nobody, and change the owner; that of everybody else is what it is.
    let user = if rustix::process::geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" };
    let text = format!(
        "use chroot = no\naddress = {HOST}\nport = {PORT}\nreverse lookup = no\n[served]\npath = {}\nread only = no\n{user}",
        bed.trees.served().display()
    );
    fs::write(&config, text)?;
    let words = Words::new([rsync.into_os_string(), "--daemon".into(), "--no-detach".into()]);
    bed.serve(&words.and("--log-file=/dev/stdout").and("--config").and(config), "listening on port")
}

/// The command that does an operation, if it is a copy.
pub fn words(bed: &Bed<'_>, operation: Operation) -> Option<Words> {
    let url = |path: &str| format!("rsync://{HOST}:{PORT}/served/{path}");
    let here = |name: &str| bed.trees.here().join(name);
    let down = |name: &str| bed.trees.down().join(name);
    let rsync = || Words::new(["rsync", "-r"]);
    Some(match operation {
        Operation::CopyDown => rsync().and(url("d/middle")).and(down("x")),
        Operation::CopyUp => rsync().and(here("middle")).and(url("made/x")),
        Operation::CopyTreeDown => rsync().and(url("tree")).and(bed.trees.down()),
        Operation::CopyTreeUp => rsync().and(here("tree")).and(url("made/")),
        Operation::CopyLarge => rsync().and(url("d/large")).and(down("x")),
        _ => return None,
    })
}
