//! The commands on files. Each has a file of its own, with `run`; [`World`] is what they share.

mod cat;
mod chmod;
mod chown;
mod cp;
mod du;
mod find;
mod ln;
mod ls;
mod mkdir;
mod mv;
mod rm;
mod stat;
mod truncate;
mod write;

use std::process::ExitCode;

use anyhow::Context;

use crate::args::Command;
use crate::report::Report;
use crate::servers::Servers;
use crate::signals::Signals;

/// What a command on files works with.
#[derive(Debug)]
pub struct World {
    pub servers: Servers,
    pub report: Report,
}

/// Exit status after SIGINT or SIGTERM, as a shell tells it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs a command on files to its end, or to a signal: then what it holds is dropped, which flushes its requests,
/// removes its temporary files and clunks its fids. `None`: it is no such command.
pub async fn run(command: Command, world: World) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let (result, in_haste) = tokio::select! {
        result = dispatch(command, &world) => (result, false),
        () = signals.next() => (Ok(ExitCode::from(INTERRUPTED)), true),
    };
    let closed = world.servers.close(in_haste).await;
    match result {
        // Whoever reads has seen enough: `ninefold cat URL | head`.
        Err(e) if is_broken_pipe(&e) => Ok(world.report.exit_code()),
        Err(e) => Err(e),
        Ok(code) => closed.map(|()| code),
    }
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn dispatch(command: Command, world: &World) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(args) => ls::run(args, world).await?,
        Command::Cat(args) => cat::run(args, world).await?,
        Command::Stat(args) => stat::run(args, world).await?,
        Command::Du(args) => du::run(args, world).await?,
        Command::Find(args) => find::run(args, world).await?,
        Command::Write(args) => write::run(args, world).await?,
        Command::Rm(args) => rm::run(args, world).await?,
        Command::Mv(args) => mv::run(args, world).await?,
        Command::Mkdir(args) => mkdir::run(args, world).await?,
        Command::Ln(args) => ln::run(args, world).await?,
        Command::Chmod(args) => chmod::run(args, world).await?,
        Command::Chown(args) => chown::run(args, world).await?,
        Command::Truncate(args) => truncate::run(args, world).await?,
        Command::Cp(args) => cp::run(args, world).await?,
        _ => anyhow::bail!("not a command on files"),
    }
    Ok(world.report.exit_code())
}
