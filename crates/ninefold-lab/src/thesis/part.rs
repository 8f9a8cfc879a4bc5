//! What this program does in the ends of the lab, each a command of its own.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{clients, old, pump, trip};

#[derive(clap::Subcommand, Debug)]
pub enum Part {
    /// Run the commands of a file at the same time, and print their times
    Clients {
        jobs: PathBuf,
        /// Milliseconds after which each is killed
        within: u64,
    },
    /// Wait until somebody listens there
    Listens {
        address: SocketAddr,
        /// Milliseconds
        within: u64,
    },
    /// Answer bytes
    Echo {
        address: SocketAddr,
    },
    /// What a byte and its answer take
    Trip {
        server: SocketAddr,
    },
    PumpServe {
        address: SocketAddr,
        served: PathBuf,
        to: PathBuf,
    },
    PumpGet(pump::Options),
    PumpPut(pump::Options),
    /// One request at a time
    OldRead {
        server: SocketAddr,
        name: String,
        file: PathBuf,
    },
    OldWrite {
        server: SocketAddr,
        name: String,
        file: PathBuf,
    },
}

pub fn run(part: &Part) -> Result<()> {
    match part {
        Part::Clients { jobs, within } => tell(&clients::run(jobs, *within)?),
        Part::Listens { address, within } => clients::listens(*address, Duration::from_millis(*within)),
        Part::Echo { address } => trip::echo(*address),
        Part::Trip { server } => tell(&trip::measure(*server)?),
        Part::PumpServe { address, served, to } => pump::serve(*address, served, to),
        Part::PumpGet(options) => pump::get(options),
        Part::PumpPut(options) => pump::put(options),
        Part::OldRead { server, name, file } => tell(&old::read(*server, name, file)?),
        Part::OldWrite { server, name, file } => tell(&old::write(*server, name, file)?),
    }
}

fn tell(what: &impl Serialize) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(what)?)?)
}
