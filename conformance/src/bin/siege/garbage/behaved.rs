//! The client that behaves: getattr and a read of 4 KiB, in turn, at a fixed pace, on one connection.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ninefold_proto::attr::getattr;
use ninefold_proto::message::{Mask, Octal, Payload, R, T};
use ninefold_proto::open::lflags;
use ninefold_proto::{Dialect, Fid};

use crate::address::Address;
use crate::connection::{Connection, ROOT};
use crate::random::Random;
use crate::report::Report;

/// Bytes of the file, and of each read: a page.
const SIZE: u32 = 4_096;

/// The client, with its file open.
pub struct Behaved {
    connection: Connection,
    fid: Fid,
    path: u64,
    content: Vec<u8>,
    interval: Duration,
    wrong: usize,
}

impl Behaved {
    /// Attaches and makes the file that it will read; `pace` rounds a second.
    pub fn attach(address: &Address, seed: u64, pace: u32) -> Result<Behaved> {
        ensure!(pace > 0, "a pace of 0 measures nothing");
        let mut connection = Connection::attach(address, Dialect::Linux)?;
        let name = format!("siege-{seed:016x}");
        let mut content = Vec::new();
        Random::new(seed).bytes(SIZE as usize, &mut content);
        let fid = connection.walk(ROOT, &[])?.0;
        let flags = Octal(lflags::RDWR | lflags::EXCL | lflags::LARGEFILE);
        let gid = rustix::process::getegid().as_raw();
        let create = T::Lcreate { fid, name: name.as_bytes(), flags, mode: Octal(0o644), gid };
        let mut path = 0;
        if let R::Lcreate { qid, .. } = connection.call(&create).context("making the file to read")? {
            path = qid.path;
        }
        connection.call(&T::Write { fid, offset: 0, data: Payload(&content) })?;
        Ok(Behaved { connection, fid, path, content, interval: Duration::from_secs(1) / pace, wrong: 0 })
    }

    /// Works for `time` and adds the latency of each round trip to `latencies`.
    pub fn measure(&mut self, time: Duration, latencies: &mut Latencies) -> Result<()> {
        let end = Instant::now() + time;
        let mut due = Instant::now();
        while due < end {
            // A round that is late because the one before took long counts from when it was due: a client that
            // waits politely would otherwise hide the stall that it waited for. One that is late because this
            // process overslept counts from now.
            let now = Instant::now();
            let start = match due.checked_duration_since(now) {
                Some(wait) if !wait.is_zero() => {
                    std::thread::sleep(wait);
                    Instant::now()
                }
                _ => due,
            };
            let attributes = T::Getattr { fid: self.fid, request_mask: Mask(getattr::BASIC) };
            let right = matches!(self.connection.call(&attributes)?, R::Getattr { qid, size, .. }
                if qid.path == self.path && size == u64::from(SIZE));
            self.wrong += usize::from(!right);
            let halfway = Instant::now();
            latencies.0.push(halfway - start);
            let read = T::Read { fid: self.fid, offset: 0, count: SIZE };
            let right = matches!(self.connection.call(&read)?, R::Read { data } if data.0 == self.content);
            self.wrong += usize::from(!right);
            latencies.0.push(halfway.elapsed());
            due += self.interval;
        }
        Ok(())
    }

    /// Replies that were not what the file holds.
    pub fn wrong(&self) -> usize {
        self.wrong
    }

    /// Removes the file.
    pub fn leave(mut self) -> Result<()> {
        self.connection.call(&T::Remove { fid: self.fid })?;
        Ok(())
    }
}

/// Latencies of round trips, in no order.
#[derive(Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// The latency that a share of them does not exceed, 0.0 to 1.0.
    pub fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Adds the usual figures.
    pub fn report(&self, phase: &str, report: &mut Report) {
        report.figure(format!("round_trips_{phase}"), self.0.len());
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            report.figure(format!("{name}_{phase}_us"), self.percentile(share).as_micros() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_latency_that_the_share_does_not_exceed() {
        let latencies = Latencies((1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!(latencies.percentile(0.5), Duration::from_millis(100));
        assert_eq!(latencies.percentile(0.99), Duration::from_millis(198));
        assert_eq!(latencies.percentile(1.0), Duration::from_millis(200));
        assert_eq!(Latencies::default().percentile(0.99), Duration::ZERO);
    }
}
