//! Reading a file from one place on, with as many requests on the way as delay and rate ask for.
//!
//! [`File::reader`] makes a [`Reader`], [`Reader::next`] gives the bytes in order. Below the size that its metadata tells a
//! plain file is asked for at several places at a time; everything else, and what lies behind that size, by one request
//! after another, each when its bytes are wanted and not before, because a synthetic file may act on every read.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ninefold_proto::T;

use super::connection::Room;
use super::error::Error;
use super::file::{File, Lent};
use super::flight::{Arrival, Flight};
use super::metadata::Metadata;
use super::node::unexpected;

/// The rest of a reply that was too short is asked for at once when so many bytes came. Less comes from a server that
/// trickles: its pieces, each with a buffer, must not be let in before their turn.
const REPAIR_AT_ONCE: usize = 4096;

/// Replies in a row that all are short by the same count tell that the server gives no more at a time.
const SAME_SHORT: u32 = 3;

/// See the module. Dropping it gives up what is on the way.
#[derive(Debug)]
pub struct Reader<'f> {
    file: Lent<'f>,
    flight: Flight,
    /// What is asked for and not given yet, in the order of the file and without a gap.
    slots: VecDeque<Slot>,
    /// Slots that are [`State::Wanted`].
    wanted: usize,
    /// The next byte to give, and to ask for.
    position: u64,
    next: u64,
    /// Below it several requests may be on the way.
    known: u64,
    /// No byte from here on is asked for.
    until: u64,
    /// The size that the metadata told.
    told: Option<u64>,
    /// The most bytes that the server gives at a time, as its replies tell.
    most: u32,
    /// The count of the last reply that was short, and how many such there were in a row.
    short: (u32, u32),
    /// Where a reply came to the end of the file, at or behind the size that was told: nothing need be asked from there on.
    end: Option<u64>,
    /// A short reply ends it, whatever is behind.
    ends_short: bool,
    /// Where what is asked for ends, if that can be: so many bytes, and as many again, behind that place.
    steps: (u64, u32),
    /// The connection had no room when it was last asked for.
    refused: bool,
    ended: Option<Result<(), Error>>,
}

#[derive(Debug)]
struct Slot {
    offset: u64,
    count: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not asked for yet; it follows from a reply of depth `cause`, and may be asked for before its turn if `eager`.
    Wanted {
        cause: u32,
        eager: bool,
    },
    Asked,
    Arrived {
        data: Result<Bytes, Error>,
        depth: u32,
    },
}

impl File {
    /// Reads from `offset` on, pipelined where `metadata` says that it can be: for a plain file with a size. Without
    /// metadata one request after another.
    pub fn reader(&self, offset: u64, metadata: Option<&Metadata>) -> Reader<'_> {
        Reader::of(Lent::Theirs(self), offset, metadata)
    }

    /// Reads `count` bytes from `offset` on by as many requests at a time as the window takes, up to the first short reply.
    pub(super) fn reader_of_call(&self, offset: u64, count: u32) -> Reader<'_> {
        let windows = self.client.handle().windows();
        let flight = Flight::of_call(&self.client, self.read_max(), count as usize, &windows.reading);
        let end = offset.saturating_add(count.into());
        Reader { until: end, ends_short: true, ..Reader::new(Lent::Theirs(self), flight, offset, end) }
    }
}

impl<'f> Reader<'f> {
    /// [`File::reader`] of a file that may be the reader's own.
    pub(super) fn of(file: Lent<'f>, offset: u64, metadata: Option<&Metadata>) -> Reader<'f> {
        let told = metadata.map(|metadata| metadata.size);
        let known = metadata.filter(|metadata| metadata.is_plain()).map_or(0, |metadata| metadata.size);
        let flight = Flight::new(&file.client, file.read_max(), &file.client.handle().windows().reading);
        Reader { told, ..Reader::new(file, flight, offset, known.max(offset)) }
    }

    fn new(file: Lent<'f>, flight: Flight, offset: u64, known: u64) -> Reader<'f> {
        Reader {
            most: file.read_max(),
            file,
            flight,
            slots: VecDeque::new(),
            wanted: 0,
            position: offset,
            next: offset,
            known,
            until: u64::MAX,
            told: None,
            short: (0, 0),
            end: None,
            ends_short: false,
            steps: (offset, 1),
            refused: false,
            ended: None,
        }
    }
}

impl Reader<'_> {
    /// Asks for no byte at `end` or behind it, and ends there.
    pub fn until(mut self, end: u64) -> Self {
        self.until = end;
        self.known = self.known.min(end);
        self
    }

    /// What is asked for ends where steps of `bytes` bytes behind `from` do, where a message holds one: who takes so many at a time has
    /// each in one buffer.
    pub(super) fn in_steps(self, from: u64, bytes: u32) -> Self {
        Reader { steps: (from, bytes.max(1)), ..self }
    }

    /// As much as ends a step, of `count` bytes from `next` on; all of them where none ends there.
    fn to_step(&self, count: u32) -> u32 {
        let (from, step) = self.steps;
        let beyond = (self.next.saturating_sub(from).saturating_add(u64::from(count)) % u64::from(step)) as u32;
        if beyond < count { count - beyond } else { count }
    }

    /// Where the bytes that come next lie in the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes between where the file ended and the size that its metadata told: it was cut while it was read, or the
    /// server lied. 0 before the end.
    pub fn missing(&self) -> u64 {
        match (&self.ended, self.told) {
            (Some(Ok(())), Some(told)) => told.min(self.until).saturating_sub(self.position),
            _ => 0,
        }
    }

    /// The next bytes, at least one; `None` at the end of the file. They are the buffer that they arrived in, but for
    /// small ones. Where a reply came short at the size that is known or behind it, that was the end, and no more is asked; else
    /// the end costs one more request. Who needs only so many bytes stops at [`Reader::position`] or says so by
    /// [`Reader::until`].
    ///
    /// After an error it gives that error for ever. Dropped before it is done it has lost nothing: the next call goes on.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match &self.ended {
            Some(Ok(())) => return Ok(None),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        self.file.behind.settle(&self.file).await;
        let result = self.advance().await;
        match &result {
            Ok(Some(_)) => {}
            Ok(None) => self.end(Ok(())),
            Err(error) => self.end(Err(error.clone())),
        }
        result
    }

    /// The next bytes if they are there already; `None` when they are not, or at the end.
    pub(super) fn next_arrived(&mut self) -> Result<Option<Bytes>, Error> {
        let next = std::pin::pin!(self.next());
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => Ok(None),
        }
    }

    fn end(&mut self, how: Result<(), Error>) {
        self.ended = Some(how);
        if !self.ends_short {
            self.give_up();
        }
    }

    /// Waits for the replies to what a call asked for behind its end. They follow at once, where a Tflush for each would be as many
    /// messages again; and some servers answer what was flushed.
    pub(super) async fn settle(&mut self) {
        let handle = self.file.client.handle().clone();
        while let Some(oldest) = self.flight.oldest()
            && handle.check(oldest).is_ok()
            && handle.patiently(oldest, self.take_arrivals(true)).await.is_ok()
        {}
    }

    fn give_up(&mut self) {
        self.slots.clear();
        self.wanted = 0;
        self.next = self.position;
        self.flight.clear(self.file.client.lane.depth());
    }

    async fn advance(&mut self) -> Result<Option<Bytes>, Error> {
        let mut waited = false;
        loop {
            self.take_arrivals(false).await;
            if self.position >= self.until || self.end.is_some_and(|end| self.position >= end) {
                return Ok(None);
            }
            let limited = !waited && self.slots.front().is_some_and(|slot| matches!(slot.state, State::Arrived { .. }));
            self.repair(limited)?;
            if self.wanted == 0 {
                self.extend(limited)?;
            }
            self.ask_first(limited).await?;
            match self.slots.pop_front() {
                None => return Ok(None),
                Some(Slot { state: State::Arrived { data, depth }, .. }) => {
                    // What the caller does now follows from it.
                    let lane = &self.file.client.lane;
                    lane.raise(depth);
                    let data = data?;
                    if !data.is_empty() {
                        self.position += data.len() as u64;
                        self.flight.free(data.len(), lane.depth());
                        return Ok(Some(data));
                    }
                    if self.position >= self.known || self.ends_short {
                        return Ok(None);
                    }
                    // Shorter than was told. What came from behind the end came of a file that changes: it is asked for
                    // again, in order.
                    self.known = self.position;
                    self.give_up();
                }
                Some(slot) => {
                    self.slots.push_front(slot);
                    waited = true;
                    // One may be left unanswered while the rest trickles in.
                    let oldest = self.flight.oldest().ok_or_else(unexpected)?;
                    let handle = self.file.client.handle().clone();
                    handle.check(oldest)?;
                    handle.patiently(oldest, self.take_arrivals(true)).await?;
                }
            }
        }
    }

    /// Takes what has arrived, after waiting for it if `wait`.
    async fn take_arrivals(&mut self, wait: bool) {
        let mut any = false;
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(arrival)) = self.flight.poll_arrival(cx) {
                self.arrived(arrival);
                any = true;
            }
            if any || !wait { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn arrived(&mut self, arrival: Arrival) {
        let bytes = arrival.reply.as_ref().map_or(0, |reply| reply.data_len());
        self.flight.arrived(&arrival, bytes);
        let Arrival { offset, count, depth, reply, .. } = arrival;
        // Every request on the way has its slot: both are given up together.
        let Ok(index) = self.slots.binary_search_by_key(&offset, |slot| slot.offset) else { return };
        let data = reply.map(|reply| reply.data());
        let got = data.as_ref().map_or(0, Bytes::len) as u32;
        self.slots[index].state = State::Arrived { data, depth };
        if got == 0 || got >= count {
            return;
        }
        self.slots[index].count = got;
        if self.ends_short {
            // What was asked for behind it is given up with the rest.
            self.until = self.until.min(offset + u64::from(got));
            return;
        }
        let rest = Slot {
            offset: offset + u64::from(got),
            count: count - got,
            state: State::Wanted { cause: depth, eager: got as usize >= REPAIR_AT_ONCE },
        };
        if rest.offset < self.known {
            self.learn_short(got);
            self.slots.insert(index + 1, rest);
            self.wanted += 1;
        } else {
            // One that ends elsewhere may be all that the server gives at a time.
            if offset < self.known && rest.offset == self.known && self.told.is_some_and(|told| self.known >= told) {
                self.end = Some(rest.offset);
            }
            self.next = rest.offset;
            self.flight.free(rest.count as usize, depth);
        }
    }

    fn learn_short(&mut self, got: u32) {
        let times = if self.short.0 == got { self.short.1 + 1 } else { 1 };
        self.short = (got, times);
        if times >= SAME_SHORT {
            self.most = got;
        }
    }

    /// Asks for what is wanted and may come before its turn, while the connection has room.
    fn repair(&mut self, limited: bool) -> Result<(), Error> {
        for index in 0..self.slots.len() {
            if self.wanted == 0 {
                break;
            }
            if matches!(self.slots[index].state, State::Wanted { eager: true, .. }) && !self.try_ask(index, limited)? {
                break;
            }
        }
        Ok(())
    }

    /// Wants as much more as the window has room for, and asks for it while the connection has room.
    fn extend(&mut self, limited: bool) -> Result<(), Error> {
        while self.next < self.until.min(self.end.unwrap_or(u64::MAX)) {
            let several = self.next < self.known;
            let message = if several { self.flight.message() } else { self.file.read_max() };
            // The last one reaches over the end that was told, so that its reply tells whether it is still there.
            let left = u32::try_from(self.until - self.next).unwrap_or(u32::MAX);
            let count = self.to_step(message.min(self.most)).min(left);
            if !self.slots.is_empty() && (!several || !self.flight.has_room(count)) {
                break;
            }
            let cause = self.flight.take_room(count).max(self.file.client.lane.depth());
            let index = self.slots.len();
            self.slots.push_back(Slot { offset: self.next, count, state: State::Wanted { cause, eager: true } });
            self.next += u64::from(count);
            self.wanted += 1;
            if !self.try_ask(index, limited)? {
                break;
            }
        }
        Ok(())
    }

    /// Asks for a slot that is wanted if the connection has room, and says whether it had.
    fn try_ask(&mut self, index: usize, limited: bool) -> Result<bool, Error> {
        let handle = self.file.client.handle().clone();
        match handle.try_room(self.refused) {
            None => {
                self.refused = true;
                Ok(false)
            }
            Some(room) => self.ask(index, room?, limited).map(|()| true),
        }
    }

    /// Asks for what comes next, once the connection has room.
    async fn ask_first(&mut self, limited: bool) -> Result<(), Error> {
        if !self.slots.front().is_some_and(|slot| matches!(slot.state, State::Wanted { .. })) {
            return Ok(());
        }
        let handle = self.file.client.handle().clone();
        let room = handle.room().await?;
        self.ask(0, room, limited)
    }

    fn ask(&mut self, index: usize, room: Room<'_>, limited: bool) -> Result<(), Error> {
        let slot = &mut self.slots[index];
        let State::Wanted { cause, .. } = slot.state else { return Ok(()) };
        let request = T::Read { fid: self.file.fid.fid(), offset: slot.offset, count: slot.count };
        let waiting = self.file.client.handle().queue(room, &request, Bytes::new(), cause)?;
        self.flight.ask(waiting, (slot.offset, slot.count), limited);
        slot.state = State::Asked;
        self.wanted -= 1;
        self.refused = false;
        Ok(())
    }
}
