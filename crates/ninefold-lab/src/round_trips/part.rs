//! What this program does in the ends of the lab: each part is a command of its own, which prints one line of JSON.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::kernel::Kernel;
use super::operation::Operation;
use super::{exchange, timed};

#[derive(clap::Subcommand, Debug)]
pub enum Part {
    /// Run a command and take its time
    Timed(timed::Options),
    /// Do an operation as the old kernel did it
    Kernel {
        operation: Operation,
        address: SocketAddr,
        /// Milliseconds after which it gives up
        within: u64,
    },
    /// Answer bare exchanges
    Serve { address: SocketAddr },
    /// Send and fetch so many bytes
    Exchange { address: SocketAddr, send: u64, want: u64 },
}

/// What the old kernel did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Asked {
    pub nanoseconds: u64,
    /// One at a time, so these are round trips.
    pub messages: u64,
    pub sent: u64,
    pub received: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Exchanged {
    pub nanoseconds: u64,
}

pub fn run(part: &Part) -> Result<()> {
    match part {
        Part::Timed(options) => tell(&timed::run(options)?),
        Part::Kernel { operation, address, within } => {
            let mut kernel = Kernel::attach(*address, Duration::from_millis(*within))?;
            let began = Instant::now();
            kernel.run(*operation).with_context(|| operation.name())?;
            let nanoseconds = began.elapsed().as_nanos() as u64;
            let wire = kernel.wire;
            tell(&Asked { nanoseconds, messages: wire.messages, sent: wire.sent, received: wire.received })
        }
        Part::Serve { address } => exchange::serve(*address),
        Part::Exchange { address, send, want } => {
            tell(&Exchanged { nanoseconds: exchange::ask(*address, *send, *want)?.as_nanos() as u64 })
        }
    }
}

fn tell(what: &impl Serialize) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(what)?)?)
}
