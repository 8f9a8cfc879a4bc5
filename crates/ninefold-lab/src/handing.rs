//! Handing over between two processes: one copies pieces in, the other sums them; by the kernel's pipe as it is made, or by a ring.
//!
//! The process that writes is this program, started with `--produce`; both are on the processor that this one is on, and the time is
//! what both took of it.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ninefold_stream::{Mode, Options, Stream};

use crate::turns::Took;

fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, &byte| sum.wrapping_add(u64::from(byte)))
}

/// Where the one that writes has its bytes from, and what they sum up to.
fn source(piece: usize) -> Vec<u8> {
    (0..piece).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// One measurement: so many bytes in pieces.
pub fn between(way: &str, piece: usize, bytes: u64) -> Result<Took> {
    let pieces = bytes / piece as u64;
    let bytes = pieces * piece as u64;
    let mut own = None;
    let mut took = Took::of_children(|| {
        let (from, to) = match way {
            "pipe" => {
                let (from, to) = std::io::pipe()?;
                (From::Pipe(from), OwnedFd::from(to))
            }
            "ring" => {
                let (from, to) = UnixStream::pair()?;
                let stream = Options::new().module("ring").take_only(from.into(), Mode::Read)?;
                (From::Ring(stream), OwnedFd::from(to))
            }
            other => bail!("no such way: {other}"),
        };
        let mut command = Command::new(std::env::current_exe().context("this program")?);
        command.args(["streams", "--produce", way, &piece.to_string(), &bytes.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(to).spawn().context("the process that writes")?;
        drop(command); // and its descriptor
        let mut total = 0;
        own = Some(Took::of(|| {
            total = from.sum(piece)?;
            Ok(bytes)
        })?);
        ensure!(child.wait()?.success(), "the process that writes failed");
        ensure!(total == sum(&source(piece)).wrapping_mul(pieces), "what came is not what was sent");
        Ok(bytes)
    })?;
    took.time += own.map_or_else(Default::default, |own| own.time);
    Ok(took)
}

enum From {
    Pipe(std::io::PipeReader),
    Ring(Stream),
}

impl From {
    fn sum(self, piece: usize) -> Result<u64> {
        let mut total = 0u64;
        match self {
            From::Pipe(mut pipe) => {
                let mut buffer = vec![0; piece];
                loop {
                    let n = pipe.read(&mut buffer)?;
                    if n == 0 {
                        break;
                    }
                    total = total.wrapping_add(sum(&buffer[..n]));
                }
            }
            From::Ring(stream) => loop {
                // All of a piece, as a sum of words has to begin where one does.
                let region = stream.alloc_full(piece)?;
                if region.is_empty() {
                    break;
                }
                total = total.wrapping_add(sum(&region));
                region.free()?;
            },
        }
        Ok(black_box(total))
    }
}

/// The other process.
pub fn produce(words: &[String]) -> Result<()> {
    let [way, piece, bytes] = words else { bail!("three words") };
    let (piece, bytes): (usize, u64) = (piece.parse()?, bytes.parse()?);
    let source = source(piece);
    let pieces = bytes / piece as u64;
    let to = std::io::stdout().as_fd().try_clone_to_owned()?;
    // The only one of it: else its end would not be seen.
    rustix::stdio::dup2_stdout(std::fs::File::options().write(true).open("/dev/null")?)?;
    if way == "pipe" {
        let mut pipe = std::fs::File::from(to);
        for _ in 0..pieces {
            pipe.write_all(&source)?;
        }
        return Ok(());
    }
    let stream = Options::new().module("ring").take_only(to, Mode::Write)?;
    for _ in 0..pieces {
        let mut region = stream.alloc(piece)?;
        region.copy_from_slice(&source);
        region.free()?;
    }
    Ok(stream.close()?)
}
