//! The commands on files. Each has a file of its own, with `run`; [`World`] is what they share.

mod cat;
mod chmod;
mod chown;
mod cp;
mod crawl;
mod destination;
mod du;
mod find;
mod left;
mod ln;
mod look;
mod ls;
mod missing;
mod mkdir;
mod mode_change;
mod mv;
mod newborn;
mod replace;
mod rm;
#[cfg(test)]
mod sample;
mod size;
mod stat;
mod target;
mod temporaries;
mod truncate;
mod write;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join;
use ninefold::client::{Client, Error, Node};
use ninefold::proto::Errno;
use ninefold::transport::Address;
use rustix::fs::Mode;
use tokio::time::Instant;

pub use look::show::TimeStyle;

use crate::args::Command;
use crate::report::{Failure, Printable, Report};
use crate::servers::Servers;
use crate::signals::Signals;
use temporaries::Temporaries;

/// What a command on files works with.
#[derive(Debug)]
pub struct World {
    pub servers: Servers,
    pub report: Report,
    pub temporaries: Temporaries,
    /// Permissions that new files do not get (umask(2)); servers leave it to their clients.
    pub umask: u32,
}

impl World {
    /// Must be called while there is one thread.
    pub fn new(servers: Servers) -> World {
        // It can be read only by setting it.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        World { servers, report: Report::default(), temporaries: Temporaries::default(), umask: umask.as_raw_mode() }
    }
}

impl World {
    /// The client of a server, or a complaint.
    pub async fn client(&self, address: &Address) -> Option<Client> {
        self.servers.client(address).await.map_err(|failure| self.report.complain(failure)).ok()
    }

    /// What comes of the first operation on a server, and its client, or a complaint; see [`Servers::first`].
    pub async fn first<T>(
        &self,
        address: &Address,
        op: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Option<(Client, Result<T, Error>)> {
        self.servers.first(address, op).await.map_err(|failure| self.report.complain(failure)).ok()
    }

    /// Complains that `address` could not be worked on; where something on its way is missing, says what.
    pub async fn complain(&self, address: &Address, tried: &'static str, error: Error) {
        let advice = match error.is_not_found() {
            true => missing::advice(&self.servers, address).await,
            false => None,
        };
        self.report.complain(Failure { advice, ..Failure::new(address, tried, error) });
    }
}

/// Whether two nodes are the same file, as far as what is told of them can say; an error says nothing.
async fn are_same_file(one: &Node, other: &Node) -> bool {
    matches!(join(one.metadata(), other.metadata()).await, (Ok(one), Ok(other)) if one.is_of_same_file(&other))
}

/// Whether two names are of one file, for who would write to one and remove the other: an error where it cannot be told.
async fn is_one_file(one: &Node, other: &Node) -> Result<bool, Error> {
    if one.qid().path != other.qid().path {
        return Ok(false);
    }
    let (before, other, after) = (one.metadata().await?, other.metadata().await?, one.metadata().await?);
    // While somebody writes to it, two answers differ although the file is one.
    if !before.is_of_same_file(&after) {
        return Err(Errno::EBUSY.into());
    }
    Ok(before.is_of_same_file(&other))
}

/// Exit status after SIGINT or SIGTERM, as a shell tells it for SIGINT.
const INTERRUPTED: u8 = 130;

/// The longest end of a command, whatever servers say meanwhile.
const FAREWELL_MAX: Duration = Duration::from_secs(10);

/// Runs a command on files to its end, or to a signal: then what it holds is dropped, which flushes its requests,
/// removes its temporary files and clunks its fids. A second signal ends it at once.
pub async fn run(command: Command, world: World) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let (result, in_haste) = tokio::select! {
        result = dispatch(command, &world) => (result, false),
        () = signals.next() => (Ok(ExitCode::from(INTERRUPTED)), true),
    };
    let (closed, result) = tokio::select! {
        closed = farewell(&world, in_haste) => (closed, result),
        // A server can be heard of for ever and answer nothing.
        () = tokio::time::sleep(FAREWELL_MAX) => (Ok(()), result),
        () = signals.next() => (Ok(()), Ok(ExitCode::from(INTERRUPTED))),
    };
    for warning in world.temporaries.left() {
        world.report.complain(Printable(&warning));
    }
    match result {
        // Whoever reads has seen enough: `ninefold cat URL | head`.
        Err(e) if is_broken_pipe(&e) => Ok(world.report.exit_code()),
        Err(e) => Err(e),
        Ok(code) if code == ExitCode::SUCCESS => closed.map(|()| world.report.exit_code()),
        Ok(code) => closed.map(|()| code),
    }
}

/// Waits for what is being tidied up, then takes leave of the servers, until they have been silent for too long: one that
/// answers is waited for.
async fn farewell(world: &World, in_haste: bool) -> anyhow::Result<()> {
    let World { servers, temporaries, .. } = world;
    temporaries.end();
    let (began, patience) = (Instant::now(), servers.patience(in_haste).await);
    // What is under way comes to its end, or is given up and tidied up after, or is told to be left.
    if !servers.while_heard(began, patience / 4, temporaries.settled()).await {
        temporaries.cut();
        servers.while_heard(began, patience * 3 / 4, temporaries.settled()).await;
        temporaries.drop_all().await;
    }
    let silence = servers.heard_at(began).await.elapsed();
    // Long enough for the clunks to be sent at least.
    let well = !in_haste && world.report.failures() == 0;
    servers.close(patience.saturating_sub(silence).max(patience / 4), well).await
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
