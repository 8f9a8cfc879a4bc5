//! A closed loop: each connection keeps so many operations in flight, and a reply brings the next request at once.
//!
//! All operations of a run begin together, and where there are thousands in flight they stay so: all walk, then all open. So what is counted are whole
//! rounds, in each of which as many operations end as are in flight.
//!
//! On a core of its own it does not sleep: to be woken takes a virtual machine longer than most servers take for a batch of small requests,
//! some microseconds of which are the server's, so that figures would be of the machine's wake-ups.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ninefold::proto::Errno;
use ninefold::proto::wire::{HEADER, frame_size};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::load::{Came, Load, Sent, Shared, Slot};
use super::peer::Peer;
use super::wire::{PATIENCE, Wire};

/// Bytes that one read takes: as many as stay in a core's own cache. The pump's receiver takes as many.
pub const TAKE: usize = 256 << 10;

/// Of a measurement's time: before it counts. It is longer where the first round is.
pub const WARM_UP: f64 = 0.25;

/// Rounds that count at least.
const ROUNDS: u64 = 2;

/// Types of replies that bring data or an error.
const RLERROR: u8 = 7;
const RREADDIR: u8 = 41;
const RREAD: u8 = 117;
const RWRITE: u8 = 119;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub load: Load,
    pub connections: usize,
    /// Operations in flight on each connection.
    pub depth: u16,
    pub time: Duration,
    /// Replies are looked for without sleeping.
    pub polls: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub operations: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    /// The server's.
    pub cpu: Duration,
    /// Of each operation, from its first request to its last reply, sorted, in nanoseconds.
    pub latencies: Vec<u64>,
}

/// One outcome a round.
pub type Runs = Vec<Outcome>;

pub fn measure(run: &Run, peer: &Peer, msize: u32) -> Result<Outcome> {
    measure_inner(run, peer, msize).with_context(|| format!("{} on {} at msize {msize}", run.load.name(), peer.name))
}

fn measure_inner(run: &Run, peer: &Peer, msize: u32) -> Result<Outcome> {
    let data = vec![0x5a; msize as usize];
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::new();
    for n in 0..run.connections {
        let mut wire = Wire::attach(peer, msize)?;
        run.load.prepare(&mut wire, run.depth)?;
        let stream = wire.stream;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(n as u64), epoll::EventFlags::IN)?;
        connections.push(Connection::new(run, stream, msize, n as u64));
    }

    let began = Instant::now();
    for (n, connection) in connections.iter_mut().enumerate() {
        for slot in 0..usize::from(run.depth) {
            connection.ask(slot, began, &data);
        }
        connection.flush(&data, &poll, n)?;
    }
    let warm = began + run.time.mul_f64(WARM_UP);
    let in_flight = run.connections as u64 * u64::from(run.depth);
    let mut round = Rounds { in_flight, ended: 0, at: None };
    // Operations that do not count.
    let mut before = 0;
    let mut counted: Option<(Instant, Duration)> = None;
    let mut outcome = Outcome::default();
    let mut over = None;
    let mut events = Vec::with_capacity(run.connections.min(64));
    let mut buffer = vec![0; TAKE];
    let patience = Timespec::try_from(if run.polls { Duration::ZERO } else { PATIENCE })?;
    let mut came = began;
    loop {
        events.clear();
        let ready = epoll::wait(&poll, spare_capacity(&mut events), Some(&patience))?;
        let now = Instant::now();
        if ready == 0 {
            ensure!(now - came < PATIENCE, "no reply in {} s", PATIENCE.as_secs());
            continue;
        }
        came = now;
        match counted {
            None if now >= warm && round.has_ended(outcome.operations, 1) => {
                counted = Some((now, peer.cpu()?));
                before = outcome.operations;
                outcome = Outcome::default();
            }
            Some((from, cpu))
                if over.is_none() && now >= from + run.time && round.has_ended(before + outcome.operations, ROUNDS) =>
            {
                outcome.elapsed = now - from;
                outcome.cpu = peer.cpu()?.saturating_sub(cpu);
                outcome.latencies.sort_unstable();
                over = Some(std::mem::take(&mut outcome));
                // Operations are finished before the connection is closed: diod aborts when it loses one in the middle.
                connections.iter_mut().for_each(|connection| connection.ends = true);
            }
            _ => {}
        }
        for event in &events {
            let n = event.data.u64() as usize;
            let connection = &mut connections[n];
            let flags = event.flags;
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                connection.take(&mut buffer, now, &data, &mut outcome)?;
            }
            connection.flush(&data, &poll, n)?;
        }
        if connections.iter().all(|connection| connection.idle == run.depth)
            && let Some(outcome) = over.take()
        {
            return Ok(outcome);
        }
    }
}

/// The rounds of a run: each has as many operations as are in flight.
struct Rounds {
    in_flight: u64,
    /// So many operations there were at the end that was waited for before.
    ended: u64,
    /// And so many there will be at the one that is waited for now.
    at: Option<u64>,
}

impl Rounds {
    /// Whether the round has ended that was under way when this was first asked since it last had, and at least `least` rounds.
    fn has_ended(&mut self, operations: u64, least: u64) -> bool {
        let under_way = operations.max(self.ended + least * self.in_flight);
        let at = *self.at.get_or_insert(under_way.div_ceil(self.in_flight) * self.in_flight);
        let has = operations >= at;
        if has {
            (self.ended, self.at) = (at, None);
        }
        has
    }
}

struct Connection {
    load: Load,
    stream: TcpStream,
    msize: u32,
    shared: Shared,
    slots: Vec<(Slot, Sent, Instant)>,
    /// Heads of requests, and for each how long it and the data behind it are.
    heads: Vec<u8>,
    requests: VecDeque<(usize, usize)>,
    /// Of the first request: what has been sent.
    sent: usize,
    /// Where the first head begins.
    first: usize,
    waits_to_write: bool,
    /// No operation is begun any more; how many have ended since.
    ends: bool,
    idle: u16,
    /// What came of a frame that is not whole.
    part: Vec<u8>,
    /// Data still to come, whose they are and how many they were.
    skip: Option<(usize, u32, usize)>,
}

impl Connection {
    fn new(run: &Run, stream: TcpStream, msize: u32, seed: u64) -> Connection {
        let slot = |number| (Slot::new(number), Sent { reply: 0, data: 0 }, Instant::now());
        Connection {
            load: run.load,
            stream,
            msize,
            shared: Shared::new(msize, seed),
            slots: (0..run.depth).map(slot).collect(),
            heads: Vec::new(),
            requests: VecDeque::new(),
            sent: 0,
            first: 0,
            waits_to_write: false,
            ends: false,
            idle: 0,
            part: Vec::new(),
            skip: None,
        }
    }

    fn ask(&mut self, slot: usize, now: Instant, data: &[u8]) {
        let (state, sent, began) = &mut self.slots[slot];
        let start = self.heads.len();
        *sent = self.load.ask(state, &mut self.shared, data, &mut self.heads);
        *began = now;
        self.requests.push_back((self.heads.len() - start, sent.data));
    }

    /// The same, in the middle of an operation.
    fn go_on(&mut self, slot: usize, data: &[u8]) {
        let began = self.slots[slot].2;
        self.ask(slot, began, data);
    }

    fn flush(&mut self, data: &[u8], poll: &rustix::fd::OwnedFd, n: usize) -> Result<()> {
        while let Some(&(head, body)) = self.requests.front() {
            // Heads without data lie one behind another and leave together.
            let mut run = head;
            if body == 0 {
                run = self.requests.iter().take_while(|(_, body)| *body == 0).map(|(head, _)| head).sum();
            }
            let head_left = &self.heads[self.first + self.sent.min(run)..self.first + run];
            let body_left = &data[self.sent.saturating_sub(run)..body];
            match self.stream.write_vectored(&[IoSlice::new(head_left), IoSlice::new(body_left)]) {
                Ok(wrote) => self.sent += wrote,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
            while let Some(&(head, body)) = self.requests.front()
                && self.sent >= head + body
            {
                self.sent -= head + body;
                self.first += head;
                self.requests.pop_front();
            }
        }
        if self.requests.is_empty() {
            self.heads.clear();
            self.first = 0;
        }
        if self.waits_to_write == self.requests.is_empty() {
            self.waits_to_write = !self.waits_to_write;
            let out = if self.waits_to_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(poll, &self.stream, epoll::EventData::new_u64(n as u64), epoll::EventFlags::IN | out)?;
        }
        Ok(())
    }

    fn take(&mut self, buffer: &mut [u8], now: Instant, data: &[u8], outcome: &mut Outcome) -> Result<()> {
        let came = match self.stream.read(buffer) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(came) => came,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if self.part.is_empty() {
            let used = self.parse(&buffer[..came], now, data, outcome)?;
            self.part.extend_from_slice(&buffer[used..came]);
        } else {
            let mut part = std::mem::take(&mut self.part);
            part.extend_from_slice(&buffer[..came]);
            let used = self.parse(&part, now, data, outcome)?;
            part.drain(..used);
            self.part = part;
        }
        Ok(())
    }

    /// Takes the replies in `bytes`; how many bytes of it are done with.
    fn parse(&mut self, bytes: &[u8], now: Instant, data: &[u8], outcome: &mut Outcome) -> Result<usize> {
        let mut at = 0;
        loop {
            if let Some((slot, count, left)) = self.skip {
                let some = left.min(bytes.len() - at);
                at += some;
                if some < left {
                    self.skip = Some((slot, count, left - some));
                    return Ok(at);
                }
                self.skip = None;
                self.took(slot, Came { count, entries: &[] }, now, data, outcome)?;
            }
            let rest = &bytes[at..];
            let Some(size) = frame_size(rest, self.msize)? else { return Ok(at) };
            let known = rest.len().min(size);
            if known < HEADER + 4 && known < size {
                return Ok(at);
            }
            let (kind, slot) = (rest[4], usize::from(u16::from_le_bytes([rest[5], rest[6]])));
            let expected = self.slots.get(slot).with_context(|| format!("a reply with tag {slot}"))?.1.reply;
            let word = || rest[HEADER..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).unwrap_or_default();
            if kind != expected {
                let what = if kind == RLERROR { Errno(word()).to_string() } else { format!("type {kind}") };
                bail!("answered by {what}");
            }
            if kind == RREAD {
                self.skip = Some((slot, word(), size - HEADER - 4));
                at += HEADER + 4;
                continue;
            }
            if rest.len() < size {
                return Ok(at);
            }
            at += size;
            let came = match kind {
                RWRITE => Came { count: word(), entries: &[] },
                RREADDIR => Came { count: word(), entries: &rest[HEADER + 4..size] },
                _ => Came { count: 0, entries: &[] },
            };
            self.took(slot, came, now, data, outcome)?;
        }
    }

    fn took(&mut self, slot: usize, came: Came<'_>, now: Instant, data: &[u8], outcome: &mut Outcome) -> Result<()> {
        let (state, _, began) = &mut self.slots[slot];
        let (done, bytes) = self.load.took(state, &self.shared, came)?;
        outcome.bytes += u64::from(bytes);
        if done {
            outcome.operations += 1;
            outcome.latencies.push((now - *began).as_nanos() as u64);
            if self.ends {
                self.idle += 1;
            } else {
                self.ask(slot, now, data);
            }
        } else {
            self.go_on(slot, data);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_are_whole_rounds_however_late_their_ends_are_seen() {
        let mut rounds = Rounds { in_flight: 100, ended: 0, at: None };
        let ended = |rounds: &mut Rounds, counts: &[u64], least| {
            counts.iter().copied().find(|&count| rounds.has_ended(count, least))
        };
        assert_eq!(ended(&mut rounds, &[0, 99, 103, 110], 1), Some(103), "the first, though nothing was done of it");
        // Two more, from the first one's end and not from where that was seen.
        assert_eq!(ended(&mut rounds, &[180, 299, 300], 2), Some(300));
        assert_eq!(ended(&mut rounds, &[650, 699, 712], 2), Some(712), "the one that was under way");
        assert_eq!(rounds.ended, 700);
    }
}
