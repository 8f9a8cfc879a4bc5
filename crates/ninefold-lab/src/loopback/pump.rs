//! What the kernel does without a protocol: sendfile(2) one way, recv(2) and pwrite(2) the other. No server that moves files
//! through a socket does better on this machine.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::generator::{Outcome, TAKE, WARM_UP};
use super::load::Load;
use super::peer::Peer;
use super::tree::BIG;
use super::wire::{dial, do_not_pace};

/// The first byte that a connection says; then come the bytes of a piece, 4 bytes, little-endian.
const GIVE: u8 = b'r';
const TAKE_ALL: u8 = b'w';

#[derive(clap::Args, Debug)]
pub struct Options {
    /// The file that is sent, over and over
    read: PathBuf,
    /// The file that what comes is written to
    write: PathBuf,
}

/// Serves one connection after another, until it is killed.
pub fn serve(options: &Options) -> Result<()> {
    let (given, taken) = (File::open(&options.read)?, File::options().write(true).open(&options.write)?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // It is the limit: what can be had, as both ends of ninefold have it within a machine.
    do_not_pace(&listener);
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    for stream in listener.incoming() {
        // Every connection ends by being closed in the middle.
        let _ = pump(stream?, &given, &taken);
    }
    Ok(())
}

fn pump(mut stream: TcpStream, given: &File, taken: &File) -> Result<()> {
    let mut order = [0; 5];
    stream.read_exact(&mut order)?;
    let piece = u32::from_le_bytes([order[1], order[2], order[3], order[4]]) as usize;
    let mut buffer = vec![0; if order[0] == TAKE_ALL { piece } else { 0 }];
    let mut at = 0;
    loop {
        if at + piece as u64 > BIG {
            at = 0;
        }
        if order[0] == GIVE {
            let end = at + piece as u64;
            while at < end {
                let left = (end - at) as usize;
                rustix::fs::sendfile(&stream, given, Some(&mut at), left)?;
            }
        } else {
            stream.read_exact(&mut buffer)?;
            taken.write_all_at(&buffer, at)?;
            at += piece as u64;
        }
    }
}

/// Moves pieces of so many bytes for so long; without sleeping if it `polls`, as the generator does.
pub fn measure(pump: &Peer, load: Load, piece: u32, time: Duration, polls: bool) -> Result<Outcome> {
    let mut stream = dial(pump)?;
    let reads = load == Load::ReadSequential;
    let [a, b, c, d] = piece.to_le_bytes();
    stream.write_all(&[if reads { GIVE } else { TAKE_ALL }, a, b, c, d])?;
    stream.set_nonblocking(polls)?;
    let mut buffer = vec![0; if reads { TAKE } else { piece as usize }];
    let mut moved = |stream: &mut TcpStream, until: Instant| -> Result<(u64, Instant)> {
        let mut bytes = 0;
        loop {
            let some = if reads { stream.read(&mut buffer) } else { stream.write(&buffer) };
            match some {
                Ok(0) => bail!("the pump ended"),
                Ok(some) => bytes += some as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock && polls => {}
                Err(e) => return Err(e.into()),
            }
            let now = Instant::now();
            if now >= until {
                return Ok((bytes, now));
            }
        }
    };
    let (_, from) = moved(&mut stream, Instant::now() + time.mul_f64(WARM_UP))?;
    let cpu = pump.cpu()?;
    let (bytes, now) = moved(&mut stream, from + time)?;
    let cpu = pump.cpu()?.saturating_sub(cpu);
    Ok(Outcome { operations: bytes / u64::from(piece), bytes, elapsed: now - from, cpu, latencies: Vec::new() })
}
