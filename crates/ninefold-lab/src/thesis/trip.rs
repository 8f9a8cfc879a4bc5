//! A byte there and [`REPLY`] bytes back between a process at each end, one after the other, by bare sockets: what a request that is waited for takes on
//! the link at least, by two kernels and what carries their packets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::round_trips::wire::IOUNIT;

/// What one request brings where they are asked for one at a time.
const REPLY: usize = IOUNIT as usize;

/// Headers of a packet: of IP and TCP, with time stamps; and what it carries in 1500 bytes.
const HEADERS: u64 = 20 + 20 + 12;
const CARRIED: u64 = 1500 - HEADERS;

/// Bytes of all packets there and back, one after the other.
pub const PACKETS: u64 = HEADERS + 1 + (REPLY as u64).div_ceil(CARRIED) * HEADERS + REPLY as u64;

/// The first of a connection find everything cold, and are not counted.
const COLD: usize = 3;

/// How many of a connection are counted at least, and at most; how many connections there are at most; and how long all may take if that is more than the least.
const LEAST: usize = 9;
const MOST: usize = 64;
const CONNECTIONS: usize = 15;
const WITHIN: Duration = Duration::from_secs(1);

/// The longest silence.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it tells.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// The mean of a connection, and of these the median, in nanoseconds.
    pub nanoseconds: u64,
}

/// Answers every byte that comes, of one after the other who connects, until it is killed.
pub fn echo(address: SocketAddr) -> Result<()> {
    serve(&TcpListener::bind(address).with_context(|| address.to_string())?)
}

fn serve(listener: &TcpListener) -> Result<()> {
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let reply = [0; REPLY];
        // Whoever only looks whether it listens says nothing, and one that has gone is no error.
        while stream.read(&mut [0]).is_ok_and(|length| length > 0) && stream.write_all(&reply).is_ok() {}
    }
    Ok(())
}

pub fn measure(server: SocketAddr) -> Result<Told> {
    let (began, mut means) = (Instant::now(), Vec::new());
    while means.is_empty() || means.len() < CONNECTIONS && began.elapsed() < WITHIN {
        means.push(mean(server, began)?);
    }
    means.sort_unstable();
    Ok(Told { nanoseconds: u64::try_from(means[means.len() / 2].as_nanos()).unwrap_or(u64::MAX) })
}

/// The mean of a connection.
fn mean(server: SocketAddr, began: Instant) -> Result<Duration> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).context("nobody answers")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reply = [0; REPLY];
    let mut ask = || {
        let sent = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut reply).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => anyhow!("an answer did not come within {} s", PATIENCE.as_secs()),
            _ => e.into(),
        })?;
        anyhow::Ok(sent.elapsed())
    };
    (0..COLD).try_for_each(|_| ask().map(drop))?;
    let (mut all, mut counted) = (Duration::ZERO, 0);
    while counted < LEAST || counted < MOST && began.elapsed() < WITHIN {
        all += ask()?;
        counted += 1;
    }
    Ok(all / u32::try_from(counted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_as_long_as_what_answers_waits_and_one_that_says_nothing_is_no_matter() {
        let wait = Duration::from_millis(20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener));
        drop(TcpStream::connect(address).unwrap());
        let near = measure(address).unwrap();
        assert!(near.nanoseconds > 0);
        // The same behind one who holds back each byte.
        let holding = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = holding.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut reply = [0; REPLY];
            for here in holding.incoming() {
                let (mut here, mut there) = (here.unwrap(), TcpStream::connect(address).unwrap());
                while here.read(&mut reply[..1]).unwrap() > 0 {
                    std::thread::sleep(wait);
                    there.write_all(&[1]).unwrap();
                    there.read_exact(&mut reply).unwrap();
                    here.write_all(&reply).unwrap();
                }
            }
        });
        assert!(u128::from(measure(far).unwrap().nanoseconds) >= wait.as_nanos());
    }

    #[test]
    fn one_who_goes_away_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || drop(listener.accept()));
        measure(address).unwrap_err();
    }
}
