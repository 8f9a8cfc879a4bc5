//! Writes of one file that were sent and are not known to be done: at their places, with the bytes of each, so that what a
//! server took only a part of is sent again.
//!
//! [`Pending::push`] cuts bytes into messages and sends them as the window has room, [`Pending::wait_for_some`] and
//! [`Pending::wait_for_all`] take the replies. After an error [`Pending::clear`] gives up the rest, or
//! [`Pending::drain`] waits for it.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::Bytes;
use ninefold_proto::message::Payload;
use ninefold_proto::{R, T};

use super::connection::Room;
use super::error::{Error, Suspicion};
use super::file::File;
use super::flight::{Arrival, Flight};
use super::node::unexpected;

/// See the [module](self). Every call is given the file that it was made for. Dropping it gives up what is on the way.
#[derive(Debug)]
pub(super) struct Pending {
    flight: Flight,
    /// Several writes may be on the way.
    several: bool,
    /// What was sent and is not known to be written, by its place. No two overlap.
    unwritten: BTreeMap<u64, Bytes>,
    /// What the server took less of than was sent: to be sent again, with the depth of the reply that told.
    again: Vec<(u64, u32)>,
    /// The depth of the deepest reply so far.
    depth: u32,
}

impl Pending {
    /// For writes of `file`; `several`: more than one may be on the way.
    pub fn new(file: &File, several: bool) -> Pending {
        let flight = Flight::new(&file.client, file.write_max(), &file.client.handle().windows().writing);
        Pending { flight, several, unwritten: BTreeMap::new(), again: Vec::new(), depth: 0 }
    }

    /// For the one write of `bytes` bytes that a call waits for.
    pub fn of_call(file: &File, bytes: usize) -> Pending {
        let learned = &file.client.handle().windows().writing;
        let flight = Flight::of_call(&file.client, file.write_max(), bytes, learned);
        Pending { flight, several: true, unwritten: BTreeMap::new(), again: Vec::new(), depth: 0 }
    }

    /// Where the first bytes lie that are not known to be written.
    pub fn first(&self) -> Option<u64> {
        self.unwritten.first_key_value().map(|(&offset, _)| offset)
    }

    /// Whether any of the `bytes` bytes from `offset` on is not known to be written.
    fn overlaps(&self, offset: u64, bytes: u64) -> bool {
        let last = self.unwritten.range(..offset.saturating_add(bytes)).next_back();
        last.is_some_and(|(&place, data)| place.saturating_add(data.len() as u64) > offset)
    }

    /// What the caller does now follows from all that came.
    pub fn join(&self, file: &File) {
        file.client.lane.raise(self.depth);
    }

    /// Gives up what is on the way.
    pub fn clear(&mut self, file: &File) {
        self.join(file);
        self.again.clear();
        self.flight.clear(file.client.lane.depth());
    }

    /// Waits for the replies to all that is on the way, whatever they say, and forgets all of it. Where one does not come it
    /// gives the rest up. Gives the place of the first bytes that are not known to be written.
    pub async fn drain(&mut self, file: &File) -> Option<u64> {
        while self.flight.oldest().is_some() {
            match self.take_arrivals(file, true).await {
                Err(Error::TimedOut(limit)) => {
                    self.clear(file);
                    // A server that is still at one of them would carry it out behind what the caller writes there next.
                    let handle = file.client.handle();
                    let _ = tokio::time::timeout(limit, handle.unnamed(file.fid.fid())).await;
                }
                Err(Error::Lost(_) | Error::Misbehaved(_)) => self.clear(file),
                _ => {}
            }
        }
        self.clear(file);
        let first = self.first();
        self.unwritten.clear();
        first
    }

    /// Takes what has arrived.
    pub async fn look(&mut self, file: &File) -> Result<(), Error> {
        self.take_arrivals(file, false).await
    }

    /// Waits until nothing is on the way to the `bytes` bytes from `offset` on.
    pub async fn part_from(&mut self, file: &File, offset: u64, bytes: u64) -> Result<(), Error> {
        while self.overlaps(offset, bytes) {
            self.wait_for_some(file).await?;
        }
        Ok(())
    }

    pub async fn wait_for_some(&mut self, file: &File) -> Result<(), Error> {
        self.send_again(file).await?;
        self.take_arrivals(file, true).await?;
        // What follows has waited for it.
        self.join(file);
        Ok(())
    }

    pub async fn wait_for_all(&mut self, file: &File) -> Result<(), Error> {
        self.take_arrivals(file, false).await?;
        while !self.unwritten.is_empty() {
            self.send_again(file).await?;
            self.take_arrivals(file, true).await?;
        }
        // What follows has waited for all of them.
        self.join(file);
        Ok(())
    }

    /// Sends `data` for `next` on, which moves on with what is sent; waits while there is no room.
    pub async fn push(&mut self, file: &File, next: &mut u64, data: &mut Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            let mut waited = false;
            self.take_arrivals(file, false).await?;
            let piece = loop {
                self.send_again(file).await?;
                let piece = self.piece(file, data.len());
                if self.has_room(piece) {
                    break piece;
                }
                waited = true;
                self.take_arrivals(file, true).await?;
            };
            let room = file.client.handle().room().await?;
            let lane = &file.client.lane;
            let cause = self.flight.take_room(piece);
            if waited {
                // What the caller does next has waited for that reply too.
                lane.raise(cause);
            }
            // The data follows from what the caller did before.
            let cause = cause.max(lane.depth());
            let offset = *next;
            self.unwritten.insert(offset, data.split_to(piece as usize));
            *next += u64::from(piece);
            // While there is more room it is the caller who is slow.
            let limited = !waited && self.has_room(piece);
            self.send(file, offset, room, cause, limited)?;
        }
        Ok(())
    }

    /// Bytes of the next request, when `left` are to be written.
    fn piece(&self, file: &File, left: usize) -> u32 {
        let most = if self.several { self.flight.message() } else { file.write_max() };
        most.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn has_room(&mut self, piece: u32) -> bool {
        if self.several { self.flight.has_room(piece) } else { self.unwritten.is_empty() }
    }

    /// Sends the rest of what the server took only a part of, at its place.
    async fn send_again(&mut self, file: &File) -> Result<(), Error> {
        while let Some(&(offset, cause)) = self.again.last() {
            let room = file.client.handle().room().await?;
            self.again.pop();
            self.send(file, offset, room, cause, true)?;
        }
        Ok(())
    }

    fn send(&mut self, file: &File, offset: u64, room: Room<'_>, cause: u32, limited: bool) -> Result<(), Error> {
        let Some(data) = self.unwritten.get(&offset) else { return Ok(()) };
        let request = T::Write { fid: file.fid.fid(), offset, data: Payload(data) };
        let waiting = file.client.handle().queue(room, &request, data.clone(), cause)?;
        self.flight.ask(waiting, (offset, data.len() as u32), limited);
        Ok(())
    }

    /// Takes what has arrived, after waiting for it if `wait`. A write that is left unanswered is noticed whatever the
    /// others bring.
    async fn take_arrivals(&mut self, file: &File, wait: bool) -> Result<(), Error> {
        let oldest = self.flight.oldest();
        let arrivals = std::future::poll_fn(|cx| {
            let mut any = false;
            while let Poll::Ready(Some(arrival)) = self.flight.poll_arrival(cx) {
                self.arrived(arrival)?;
                any = true;
            }
            if any || !wait { Poll::Ready(Ok::<_, Error>(())) } else { Poll::Pending }
        });
        let Some(oldest) = oldest else { return if wait { Err(unexpected()) } else { Ok(()) } };
        let handle = file.client.handle();
        handle.patiently(oldest, arrivals).await??;
        self.flight.oldest().map_or(Ok(()), |oldest| handle.check(oldest))
    }

    fn arrived(&mut self, arrival: Arrival) -> Result<(), Error> {
        self.depth = self.depth.max(arrival.depth);
        let taken = match &arrival.reply {
            Err(error) => Err(error.clone()),
            Ok(reply) => match reply.message()? {
                R::Write { count: 0 } => Err(Suspicion::NoProgress.into()),
                R::Write { count } => Ok(count as usize),
                _ => Err(unexpected()),
            },
        };
        self.flight.arrived(&arrival, taken.as_ref().copied().unwrap_or_default());
        let (taken, Arrival { offset, depth, .. }) = (taken?, arrival);
        // Every request on the way has its bytes here.
        let Some(mut data) = self.unwritten.remove(&offset) else { return Ok(()) };
        self.flight.free(taken, depth);
        let rest = data.split_off(taken.min(data.len()));
        if !rest.is_empty() {
            let place = offset + taken as u64;
            self.unwritten.insert(place, rest);
            self.again.push((place, depth));
        }
        Ok(())
    }
}
