//! One direction of a link, without a clock, a device or a thread: packets and instants come in, packets that are due go out.
//!
//! A packet is offered (`offer`), waits for its turn in a queue, is put on the wire bit by bit at the link's rate, may be lost there,
//! and arrives after the delay, when `take` hands it out. `wake` says when to call `take` next. All instants are nanoseconds since
//! the same start and never go back. Whatever the instants at which it is called, the packets' times come out the same: what
//! happens is worked out from when packets were offered, not from when somebody looked.
//!
//! Chance is drawn from a seed, three numbers for each packet that goes on the wire, whatever the shape: the n-th packet's fate
//! depends on seed, shape and n only.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::shape::Shape;
use crate::units::Queue;

/// Bytes that may wait and fly in one direction, so that no shape fills the memory: a second at 4 Gbit/s. Each packet counts for
/// `OVERHEAD` more than it has.
pub const HELD_MAX: u64 = 512 << 20;

/// Bytes that the smallest packet takes beside its own: what the allocator keeps, a `Flying`, and the room that queues have to spare.
const OVERHEAD: u64 = 128;

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
    /// Of IP packets, headers included.
    pub bytes: u64,
}

impl Count {
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// What became of the packets of one direction. Every packet offered is in one of the others, or still on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub offered: Count,
    /// Handed out to the other end.
    pub delivered: Count,
    /// Dropped by chance, as the loss asked for has it.
    pub lost: Count,
    /// Dropped because the queue was full.
    pub queue_full: Count,
    /// Dropped because the direction was cut, or was cut while they were on their way.
    pub cut: Count,
    /// Dropped because their connection had been reset.
    pub reset: Count,
    /// Dropped because `HELD_MAX` bytes were on their way.
    pub overrun: Count,
    /// Held back so that others overtake; delivered nonetheless.
    pub reordered: Count,
    /// Waiting or on the wire now.
    pub on_the_way: Count,
}

/// A packet on the wire.
#[derive(PartialEq, Eq, Debug)]
struct Flying {
    due: u64,
    /// In which order packets went on the wire: those due at once arrive in it.
    number: u64,
    packet: Vec<u8>,
}

impl Ord for Flying {
    fn cmp(&self, other: &Flying) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Flying) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Line {
    shape: Shape,
    queue: Queue,
    chance: fastrand::Rng,
    cut: bool,
    /// When the last bit of what went on the wire last is on it, rounded down.
    free_at: u64,
    /// What was rounded: this by the rate, of a nanosecond.
    rounded: u64,
    /// With the instant each was offered.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: u64,
    /// In the order in which they arrive.
    flying: VecDeque<Flying>,
    /// Those that others overtake.
    held_back: BinaryHeap<Reverse<Flying>>,
    flying_bytes: u64,
    last_due: u64,
    number: u64,
    counters: Counters,
}

impl Line {
    /// A shape that is beyond its bounds (`Shape::check`) is taken as the nearest that can be had.
    pub fn new(shape: Shape, seed: u64) -> Line {
        Line {
            shape,
            queue: shape.queue_limit(),
            chance: fastrand::Rng::with_seed(seed),
            cut: false,
            free_at: 0,
            rounded: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            flying: VecDeque::new(),
            held_back: BinaryHeap::new(),
            flying_bytes: 0,
            last_due: 0,
            number: 0,
            counters: Counters::default(),
        }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let on_the_way = Count { packets: self.packets(), bytes: self.waiting_bytes + self.flying_bytes };
        Counters { on_the_way, ..self.counters }
    }

    /// Packets that wait or fly.
    fn packets(&self) -> u64 {
        (self.waiting.len() + self.flying.len() + self.held_back.len()) as u64
    }

    /// Changes the shape: for packets that are offered from now on, and those that wait. What is on the wire keeps its time, and
    /// nothing overtakes it.
    pub fn set(&mut self, now: u64, shape: Shape) {
        self.advance(now);
        self.shape = shape;
        self.queue = shape.queue_limit();
        // It is of the former rate, and less than a nanosecond.
        self.rounded = 0;
    }

    /// Draws chance anew from a seed.
    pub fn reseed(&mut self, now: u64, seed: u64) {
        self.advance(now);
        self.chance = fastrand::Rng::with_seed(seed);
    }

    /// Cuts the direction: what is on its way is dropped, and what is offered until it is healed.
    pub fn cut(&mut self, now: u64) {
        self.advance(now);
        self.cut = true;
        let waiting = self.waiting.drain(..).map(|(_, packet)| packet);
        let flying = self.flying.drain(..).chain(self.held_back.drain().map(|Reverse(flying)| flying));
        for packet in waiting.chain(flying.map(|flying| flying.packet)) {
            self.counters.cut.add(packet.len());
        }
        (self.waiting_bytes, self.flying_bytes) = (0, 0);
        (self.free_at, self.rounded) = (self.free_at.min(now), 0);
        // Nothing is on the wire that what comes could overtake.
        self.last_due = 0;
    }

    pub fn heal(&mut self) {
        self.cut = false;
    }

    /// Takes a packet that an end sends.
    pub fn offer(&mut self, now: u64, packet: Vec<u8>) {
        self.advance(now);
        let bytes = packet.len() as u64;
        self.counters.offered.add(packet.len());
        if self.cut {
            self.counters.cut.add(packet.len());
        } else if self.waiting_bytes + self.flying_bytes + bytes + (self.packets() + 1) * OVERHEAD > HELD_MAX {
            self.counters.overrun.add(packet.len());
        } else if !self.has_room(now, bytes) {
            self.counters.queue_full.add(packet.len());
        } else {
            self.waiting.push_back((now, packet));
            self.waiting_bytes += bytes;
            self.advance(now);
        }
    }

    /// An idle link takes a packet at once, whatever the queue.
    fn has_room(&self, now: u64, bytes: u64) -> bool {
        let idle = self.waiting.is_empty() && self.free_at <= now;
        idle || match self.queue {
            Queue::Packets(packets) => (self.waiting.len() as u64) < packets,
            Queue::Bytes(most) => self.waiting_bytes + bytes <= most,
            Queue::Auto => unreachable!("queue_limit works it out"),
        }
    }

    /// Takes a packet of a connection that was reset: it goes no further.
    pub fn refuse(&mut self, bytes: usize) {
        self.counters.offered.add(bytes);
        self.counters.reset.add(bytes);
    }

    /// Says of a packet that was handed out that it went no further, as its connection was reset meanwhile.
    pub fn refused(&mut self, bytes: usize) {
        self.counters.reset.add(bytes);
        self.counters.delivered.packets -= 1;
        self.counters.delivered.bytes -= bytes as u64;
    }

    /// The next packet that is due, with the instant at which it is.
    pub fn take(&mut self, now: u64) -> Option<(u64, Vec<u8>)> {
        self.advance(now);
        let straight = self.flying.front();
        let held = self.held_back.peek().map(|Reverse(flying)| flying);
        let next = match (straight, held) {
            (Some(straight), Some(held)) => straight.min(held),
            (straight, held) => straight.or(held)?,
        };
        if next.due > now {
            return None;
        }
        let straight_first = straight == Some(next);
        let Flying { due, packet, .. } = match straight_first {
            true => self.flying.pop_front()?,
            false => self.held_back.pop()?.0,
        };
        self.flying_bytes -= packet.len() as u64;
        self.counters.delivered.add(packet.len());
        Some((due, packet))
    }

    /// When `take` may have something next: not later than that. None while nothing is on its way.
    pub fn wake(&self) -> Option<u64> {
        let straight = self.flying.front().map(|flying| flying.due);
        let held = self.held_back.peek().map(|Reverse(flying)| flying.due);
        // What waits arrives behind what flies straight, so its turn is of interest only when nothing does.
        let turn = self.waiting.front().filter(|_| straight.is_none()).map(|(offered, _)| self.free_at.max(*offered));
        [straight, held, turn].into_iter().flatten().min()
    }

    /// Puts on the wire what had its turn until now.
    fn advance(&mut self, now: u64) {
        while let Some((offered, _)) = self.waiting.front() {
            let start = self.free_at.max(*offered);
            if start > now {
                return;
            }
            let Some((_, packet)) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= packet.len() as u64;
            if start > self.free_at {
                // The link was idle, and begins anew.
                self.rounded = 0;
            }
            self.occupy(start, packet.len());
            self.launch(packet);
        }
    }

    /// The link is busy with so many bytes from then on. Nothing gets lost by rounding: n packets take the time of all their bits.
    fn occupy(&mut self, start: u64, bytes: usize) {
        let Some(rate) = self.shape.rate else {
            self.free_at = start;
            return;
        };
        let rate = u128::from(rate.max(1));
        let scaled = bytes as u128 * 8 * 1_000_000_000 + u128::from(self.rounded);
        self.free_at = start.saturating_add(u64::try_from(scaled / rate).unwrap_or(u64::MAX));
        // Less than a rate.
        self.rounded = (scaled % rate) as u64;
    }

    /// A packet's last bit is on the wire at `free_at`.
    fn launch(&mut self, packet: Vec<u8>) {
        // All three are drawn for each packet, so that one shape's chances do not shift another's.
        let [lost, reordered, jitter] = [(); 3].map(|()| self.chance.f64());
        if lost < self.shape.loss {
            self.counters.lost.add(packet.len());
            return;
        }
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let jitter = (nanoseconds(self.shape.jitter) as f64 * jitter) as u64;
        let due = self.free_at.saturating_add(nanoseconds(self.shape.delay)).saturating_add(jitter);
        // None overtakes, and who is held back overtakes none the more.
        let due = due.max(self.last_due);
        self.number += 1;
        self.flying_bytes += packet.len() as u64;
        let number = self.number;
        if reordered < self.shape.reorder {
            self.counters.reordered.add(packet.len());
            let due = due.saturating_add(nanoseconds(self.shape.reorder_by));
            self.held_back.push(Reverse(Flying { due, number, packet }));
        } else {
            self.last_due = due;
            self.flying.push_back(Flying { due, number, packet });
        }
    }
}

#[cfg(test)]
#[path = "line/tests.rs"]
mod tests;
