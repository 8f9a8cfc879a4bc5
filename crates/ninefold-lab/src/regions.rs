//! A server's file read once, by regions or by the client's stream; `scripts/regions-table.sh` puts them beside each other.
//!
//! Printed are the milliseconds from the question for the first byte to the end that was found good, without connection and open; bytes received,
//! and of them those that were copied between socket and region; and the milliseconds that the process had of the processor, its own
//! and the kernel's, all of it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use ninefold::blocking::Client;
use ninefold::client::{self, Follow, Mode};
use ninefold::transport::Address;
use ninefold_stream::Options as Streams;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// How it is read.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// `salloc` and `sfree`
    Salloc,
    /// The client's stream, whose bytes are looked at where they arrive
    Stream,
}

#[derive(clap::Args, Debug)]
pub struct Options {
    /// The file
    url: String,
    #[arg(long, value_enum, default_value_t = By::Salloc)]
    by: By,
    /// In messages, where the server has data connections too
    #[arg(long)]
    in_band: bool,
    /// Bytes of a region
    #[arg(long, default_value_t = 64 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    piece: u64,
    /// A file that must have the same bytes; what is compared takes its time
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

/// What came.
struct Read {
    took: Duration,
    received: u64,
    copied: u64,
}

/// Compares what comes with what ought to.
struct Check {
    expected: Option<Vec<u8>>,
    at: usize,
}

impl Check {
    fn came(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.at;
        self.at += bytes.len();
        let Some(expected) = &self.expected else { return Ok(()) };
        let same = expected.get(at..self.at).is_some_and(|expected| expected == bytes);
        ensure!(same, "other bytes came than the file has, between {at} and {}", self.at);
        Ok(())
    }

    fn end(&self) -> Result<()> {
        let expected = self.expected.as_ref().map_or(self.at, Vec::len);
        ensure!(self.at == expected, "{} bytes came of {expected}", self.at);
        Ok(())
    }
}

pub fn run(options: &Options) -> Result<()> {
    let address: Address = options.url.parse().with_context(|| format!("{} is no address", options.url))?;
    let client = Client::connect(&address, client::Options::default()).context("cannot connect")?;
    let file = client.walk(&address.path, Follow::All)?.open(Mode::READ)?;
    let expected = options.check.as_ref().map(fs::read).transpose()?;
    let mut check = Check { expected, at: 0 };
    let Read { took, received, copied } = match options.by {
        By::Salloc => {
            let module = if options.in_band { "ninep" } else { "ninep-stream" };
            let begun = Instant::now();
            let stream = Streams::new().module(module).take_remote(file)?;
            loop {
                let region = stream.alloc(options.piece as usize)?;
                if region.is_empty() {
                    break;
                }
                check.came(&region)?;
                region.free()?;
            }
            let counts = stream.remote_counts().unwrap_or_default();
            let took = begun.elapsed();
            stream.close()?;
            Read { took, received: counts.received, copied: counts.copied }
        }
        By::Stream => {
            let begun = Instant::now();
            let mut stream = match options.in_band {
                true => file.stream_read_in_band(0, None),
                false => file.stream_read(0, None)?,
            };
            while let Some(bytes) = stream.next()? {
                check.came(&bytes)?;
            }
            let received = stream.finish()?;
            Read { took: begun.elapsed(), received, copied: 0 }
        }
    };
    check.end()?;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let (user, system) = (usage.user_time().num_milliseconds(), usage.system_time().num_milliseconds());
    let ms = took.as_secs_f64() * 1e3;
    writeln!(std::io::stdout(), "{ms:.1} {received} {copied} {user} {system}")?;
    Ok(())
}
