//! The old client: one request at a time, 8 KiB of data in each, as the thesis's cp on Plan 9 did it; by `round_trips::wire`, as the
//! round-trips bench has it.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ninefold::proto::Fid;
use ninefold::proto::message::{Payload, Perm, R, T};
use ninefold::proto::stat::omode;
use serde::{Deserialize, Serialize};

pub use crate::round_trips::wire::IOUNIT;
use crate::round_trips::wire::Wire;

use super::way::TO;

/// Fids of the root and of the file.
const ROOT: Fid = Fid(0);
const FILE: Fid = Fid(1);

/// Requests that carry no data, of which the median is what a round trip takes.
const TRIPS: usize = 9;

/// When it gives up; whoever started it does so earlier.
const WITHIN: Duration = Duration::from_secs(3600);

/// What it tells.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Requests that carried data, and how long their replies were waited for: what a client does with a file of its own between them is no matter of the link.
    pub messages: u64,
    pub data_seconds: f64,
    /// What a request without data took, the median.
    pub trip_seconds: f64,
    /// What all of these took, which is no part of moving a file.
    pub trips_seconds: f64,
}

/// The median time of a request that carries next to nothing, and the time of all that were asked.
fn trip(wire: &mut Wire) -> Result<(f64, f64)> {
    let mut trips = Vec::new();
    let all = Instant::now();
    for _ in 0..TRIPS {
        let began = Instant::now();
        wire.walk(ROOT, FILE, &[])?;
        trips.push(began.elapsed().as_secs_f64());
        wire.ask(&T::Clunk { fid: FILE })?;
    }
    trips.sort_by(f64::total_cmp);
    Ok((trips[TRIPS / 2], all.elapsed().as_secs_f64()))
}

pub fn read(server: SocketAddr, name: &str, file: &Path) -> Result<Told> {
    let mut wire = Wire::attach(server, ROOT, b"", WITHIN)?;
    let (trip_seconds, trips_seconds) = trip(&mut wire)?;
    ensure!(wire.walk(ROOT, FILE, &[name])?, "{name} is not there");
    wire.ask(&T::Open { fid: FILE, mode: omode::READ })?;
    let file = File::create(file).with_context(|| file.display().to_string())?;
    let (mut waited, mut offset, mut messages) = (Duration::ZERO, 0, 0);
    loop {
        let asked = Instant::now();
        let R::Read { data: Payload(data) } = wire.ask(&T::Read { fid: FILE, offset, count: IOUNIT })? else {
            bail!("Tread: another reply");
        };
        if data.is_empty() {
            break;
        }
        waited += asked.elapsed();
        file.write_all_at(data, offset)?;
        offset += data.len() as u64;
        messages += 1;
    }
    let data_seconds = waited.as_secs_f64();
    wire.ask(&T::Clunk { fid: FILE })?;
    Ok(Told { messages, data_seconds, trip_seconds, trips_seconds })
}

pub fn write(server: SocketAddr, name: &str, file: &Path) -> Result<Told> {
    let mut wire = Wire::attach(server, ROOT, TO.as_bytes(), WITHIN)?;
    let (trip_seconds, trips_seconds) = trip(&mut wire)?;
    ensure!(wire.walk(ROOT, FILE, &[])?, "the root is gone");
    let file = OpenOptions::new().read(true).open(file).with_context(|| file.display().to_string())?;
    let (name, perm) = (name.as_bytes(), Perm(0o644));
    wire.ask(&T::Create { fid: FILE, name, perm, mode: omode::WRITE, extension: b"" })?;
    let mut buffer = vec![0; IOUNIT as usize];
    let (mut waited, mut offset, mut messages) = (Duration::ZERO, 0, 0);
    loop {
        let length = file.read_at(&mut buffer, offset)?;
        if length == 0 {
            break;
        }
        let asked = Instant::now();
        match wire.ask(&T::Write { fid: FILE, offset, data: Payload(&buffer[..length]) })? {
            R::Write { count } if count as usize == length => {}
            other => bail!("Twrite: {other:?}"),
        }
        waited += asked.elapsed();
        offset += length as u64;
        messages += 1;
    }
    let data_seconds = waited.as_secs_f64();
    wire.ask(&T::Clunk { fid: FILE })?;
    Ok(Told { messages, data_seconds, trip_seconds, trips_seconds })
}
