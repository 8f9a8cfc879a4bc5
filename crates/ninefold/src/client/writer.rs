//! Writing a file from one place on, with as many requests on the way as delay and rate ask for.
//!
//! [`File::writer`] makes a [`Writer`]; [`Writer::write`] takes bytes and waits while the window is full, [`Writer::skip`]
//! leaves bytes out; [`Writer::finish`] waits for the replies to all of it. Only plain files take several writes at a
//! time: everything else gets one after another.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::Bytes;
use ninefold_proto::message::Payload;
use ninefold_proto::{QidType, R, T};

use super::connection::Room;
use super::error::{Error, Suspicion};
use super::file::File;
use super::flight::{Arrival, Flight};
use super::metadata::Metadata;
use super::node::unexpected;

/// See the module. Dropping it gives up what is on the way, which the server may have written or not.
#[derive(Debug)]
pub struct Writer<'f> {
    file: &'f File,
    flight: Flight,
    /// Several writes may be on the way.
    several: bool,
    start: u64,
    /// Where the next bytes go.
    next: u64,
    /// What was sent and is not known to be written, by its place.
    unwritten: BTreeMap<u64, Bytes>,
    /// What the server took less of than was sent: to be sent again, with the depth of the reply that told.
    again: Vec<(u64, u32)>,
    /// The depth of the deepest reply so far.
    depth: u32,
    failed: Option<Error>,
}

impl File {
    /// Writes from `offset` on, pipelined where the file was made by the [`Node::create`](super::Node::create) that opened
    /// it, or where `metadata` tells a plain file with a size; else, and where it is append-only or opened to append, one
    /// request after another.
    pub fn writer(&self, offset: u64, metadata: Option<&Metadata>) -> Writer<'_> {
        let options = self.client().options();
        // A synthetic file may act on every write; it has size 0 (and so have plain files that are empty).
        let known = self.is_made() || metadata.is_some_and(|metadata| metadata.is_plain() && metadata.size > 0);
        Writer {
            file: self,
            flight: Flight::new(
                self.write_max(),
                options.window_max,
                self.client.lane.depth(),
                &self.client.handle().windows().writing,
            ),
            // Where the server chooses the place, what arrives first comes first.
            several: known && !self.mode().append && !self.qid().kind.has(QidType::APPEND),
            start: offset,
            next: offset,
            unwritten: BTreeMap::new(),
            again: Vec::new(),
            depth: 0,
            failed: None,
        }
    }
}

impl Writer<'_> {
    /// Where the next bytes go.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Bytes that are known to be written, from the writer's first on and without a gap. What was sent behind them may be
    /// written too, or in part, after an error: whoever goes on writes it again.
    pub fn written(&self) -> u64 {
        self.unwritten.first_key_value().map_or(self.next, |(&offset, _)| offset) - self.start
    }

    /// Writes `data` behind what was written before: waits until the window has room for all of it, not until it is
    /// written. The bytes are sent from where they are, without a copy. An error may be that of an earlier write; after
    /// one nothing more is sent, and every call gives it. Dropped before it is done it may have taken a part of `data`:
    /// [`Writer::position`] tells how much.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), Error> {
        self.check()?;
        let result = self.take(&mut data).await;
        self.note(result)
    }

    /// Leaves out `bytes` bytes, which the file has or need not have: what is written next goes behind them. In
    /// [`Writer::written`] they count as written.
    pub fn skip(&mut self, bytes: u64) {
        self.next += bytes;
    }

    /// Waits until no more than `span` bytes lie between what is known to be written without a gap and
    /// [`Writer::position`]: so much at most an interrupted writer leaves in doubt.
    pub async fn within(&mut self, span: u64) -> Result<(), Error> {
        self.check()?;
        while self.next - self.start - self.written() > span {
            let result = self.wait_for_some().await;
            self.note(result)?;
        }
        Ok(())
    }

    async fn wait_for_some(&mut self) -> Result<(), Error> {
        self.send_again().await?;
        self.take_arrivals(true).await?;
        // What follows has waited for it.
        self.file.client.lane.raise(self.depth);
        Ok(())
    }

    /// Waits until all of it is written, and tells how many bytes that are. It may be on the server's disk or not:
    /// [`File::sync`]. Some servers tell only at the clunk that they could not write: [`File::close`].
    pub async fn finish(&mut self) -> Result<u64, Error> {
        self.check()?;
        let result = self.wait_for_all().await;
        self.note(result)?;
        Ok(self.written())
    }

    async fn wait_for_all(&mut self) -> Result<(), Error> {
        self.take_arrivals(false).await?;
        while !self.unwritten.is_empty() {
            self.send_again().await?;
            self.take_arrivals(true).await?;
        }
        // What follows has waited for all of them.
        self.file.client.lane.raise(self.depth);
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The first error stops everything.
    fn note(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &result {
            self.file.client.lane.raise(self.depth);
            self.failed = Some(error.clone());
            self.again.clear();
            self.flight.clear(self.file.client.lane.depth());
        }
        result
    }

    async fn take(&mut self, data: &mut Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            let mut waited = false;
            self.take_arrivals(false).await?;
            let piece = loop {
                self.send_again().await?;
                let piece = self.piece(data.len());
                if self.has_room(piece) {
                    break piece;
                }
                waited = true;
                self.take_arrivals(true).await?;
            };
            let room = self.file.client.handle().room().await?;
            let lane = &self.file.client.lane;
            let cause = self.flight.take_room(piece);
            if waited {
                // What the caller does next has waited for that reply too.
                lane.raise(cause);
            }
            // The data follows from what the caller did before.
            let cause = cause.max(lane.depth());
            let offset = self.next;
            self.unwritten.insert(offset, data.split_to(piece as usize));
            self.next += u64::from(piece);
            // While there is more room it is the caller who is slow.
            let limited = !waited && self.has_room(piece);
            self.send(offset, room, cause, limited)?;
        }
        Ok(())
    }

    /// Bytes of the next request, when `left` are to be written.
    fn piece(&self, left: usize) -> u32 {
        let most = if self.several { self.flight.message() } else { self.file.write_max() };
        most.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn has_room(&self, piece: u32) -> bool {
        if self.several { self.flight.has_room(piece) } else { self.unwritten.is_empty() }
    }

    /// Sends the rest of what the server took only a part of, at its place.
    async fn send_again(&mut self) -> Result<(), Error> {
        while let Some(&(offset, cause)) = self.again.last() {
            let room = self.file.client.handle().room().await?;
            self.again.pop();
            self.send(offset, room, cause, true)?;
        }
        Ok(())
    }

    fn send(&mut self, offset: u64, room: Room<'_>, cause: u32, limited: bool) -> Result<(), Error> {
        let Some(data) = self.unwritten.get(&offset) else { return Ok(()) };
        let request = T::Write { fid: self.file.fid.fid(), offset, data: Payload(data) };
        let waiting = self.file.client.handle().queue(room, &request, data.clone(), cause)?;
        self.flight.ask(waiting, (offset, data.len() as u32), limited);
        Ok(())
    }

    /// Takes what has arrived, after waiting for it if `wait`. A write that is left unanswered is noticed whatever the
    /// others bring.
    async fn take_arrivals(&mut self, wait: bool) -> Result<(), Error> {
        let (file, oldest) = (self.file, self.flight.oldest());
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
