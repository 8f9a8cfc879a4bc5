//! One connection: moves bytes between a stream and a [`Session`], and carries out its requests.
//!
//! Everything of a connection runs in one task. A request whose answer is there at once costs no
//! allocation beyond its reply; the others are polled here too, so no lock is shared with other
//! connections. Replies that are ready leave together.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ninefold_proto::Error;
use ninefold_proto::server::{Done, Event, FarewellId, Op, Outbox, Request, RequestId, Session, Violation, WRITE_HEAD};
use ninefold_proto::wire::{DecodeError, HEADER, frame_size};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;
use tracing::{debug, warn};

use super::cx::{Cancel, Parking};
use super::dispatch::{self, Carried, Handle};
use super::draining::DrainWatch;
use super::early::Early;
use super::held::{AHEAD, Held, tflush};
use super::incoming::Incoming;
use super::large::{Large, Wanted};
use super::outlet::Outlet;
use super::streams::{self, OfConnection};
use super::together::Together;
use super::{Answer, Cx, Data, Server};
use crate::transport::{Peer, PipeShare, Stream};

/// Bytes that one read asks for while no larger frame is expected. Linux's loopback hands over 64 KiB at a time.
const READ_CHUNK: usize = 64 * 1024;

/// Bytes that are read beside the runtime at a time: those of more than a hundred small requests.
const LITTLE: usize = 4096;

/// Frames and farewells handled before other connections of this thread get their turn.
const TURN: usize = 64;

/// Replies of so many bytes are sent before more requests are handled: what they hold is free the sooner.
const ENOUGH: usize = 512 * 1024;

/// How long a reply waits for those behind it in its group. Each that left alone would be a packet, and of packets a connection has ten on
/// the way before the first is acknowledged (RFC 6928): a group of more would take another round trip.
const GATHER: Duration = Duration::from_millis(1);

/// Bytes of replies that wait for no others: half of what those ten packets hold.
const GATHER_MAX: usize = 7 * 1024;

/// How long a connection that ends waits for the peer to take the last replies.
const LINGER: Duration = Duration::from_secs(5);

/// Bytes that a thread keeps for arrivals. Threads of the blocking pool become workers too, so there may be many.
const ARRIVALS_KEEP: usize = 4 * READ_CHUNK;

/// Connections of this process so far.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Where bytes arrive while a connection holds no part of a frame: an idle connection has no buffer.
    static ARRIVALS: RefCell<BytesMut> = RefCell::new(BytesMut::new());

    /// Where replies are made while a connection has none to send.
    static REPLIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };

    /// Which connection, of whatever server, had the last turn on this thread, and when that ended.
    static LAST_TURN: Cell<Option<(u64, Instant)>> = const { Cell::new(None) };
}

/// What a future of this connection brought.
enum Finished {
    Request(RequestId, u64, Result<Done<Handle, Data>, Error>),
    Farewell(FarewellId, Result<(), Error>),
}

type Running = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// Why nothing more is read.
enum End {
    /// The peer closed, or the stream failed.
    Lost(Option<io::Error>),
    Broken(Violation),
    Drained,
}

pub(super) struct Connection {
    server: Arc<Server>,
    stream: Stream,
    peer: Peer,
    id: u64,
    session: Session<Handle, Data, Bytes>,
    out: Outbox<Data>,
    outlet: Outlet,
    arrived: BytesMut,
    large: Large,
    /// The data of a frame of which `arrived` has what is before them.
    incoming: Incoming,
    /// A frame that waits for a request to complete, and those behind it.
    held: Held,
    /// Bytes to come of a frame that is not kept.
    skip: usize,
    running: Together<Running>,
    cancels: HashMap<RequestId, Arc<Cancel>>,
    parking: Arc<Parking>,
    /// In this turn the stream took no more.
    stalled: bool,
    /// The peer is on this machine.
    is_here: bool,
    early: Early,
    /// Of this process.
    number: u64,
    /// For the next request; most are done at once and give it back.
    spare_cancel: Arc<Cancel>,
    /// Bytes that running requests will read or have to write.
    in_flight: u64,
    began: Instant,
    streams: Arc<OfConnection>,
    /// Of the session, when its streams were last looked at.
    resets: u64,
    timer: Option<Pin<Box<Sleep>>>,
    /// Replies wait so long for others of their groups.
    gathering: Option<Pin<Box<Sleep>>>,
    drain: DrainWatch,
    /// No more frames are read; a peer that does not take what is still sent has [`LINGER`] from the first time on,
    /// and one that takes it slowly has until about the second.
    closing_since: Option<(Instant, Instant)>,
    /// The stream takes no more bytes.
    deaf: bool,
    /// What the stream has taken may still lie in a buffer of its own: TLS seals more than its socket takes.
    unflushed: bool,
    /// The peer sends no more; frames are still held.
    ended: bool,
    /// Dropped behind what runs, which may still make this a connection of a session.
    _membership: Membership,
}

/// Ends a connection's part in its client's session.
struct Membership {
    server: Arc<Server>,
    connection: u64,
    streams: Arc<OfConnection>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.server.sessions.leave(self.connection);
        streams::end_all(&self.server, &self.streams, true);
    }
}

impl Connection {
    /// `arrived`: the first bytes of a connection that began at `began`.
    pub fn new(
        server: Arc<Server>,
        stream: Stream,
        peer: Peer,
        id: u64,
        arrived: BytesMut,
        began: Instant,
    ) -> Connection {
        let limits = server.limits;
        let drain = server.draining.watch();
        let streams = OfConnection::new(limits.streams);
        let share = PipeShare::default();
        let pipes = stream.takes_pipes().then(|| share.clone());
        let is_here = peer.is_here();
        let incoming = Incoming::new(pipes.clone().filter(|_| is_here));
        Connection {
            _membership: Membership { server: server.clone(), connection: id, streams: streams.clone() },
            server,
            stream,
            peer,
            id,
            session: Session::new(limits),
            out: Outbox::default(),
            outlet: Outlet::new(share),
            arrived,
            large: Large::default(),
            incoming,
            held: Held::default(),
            skip: 0,
            running: Together::default(),
            cancels: HashMap::new(),
            parking: Parking::new(limits.parked, limits.unsent as u64, pipes),
            spare_cancel: Arc::default(),
            stalled: false,
            is_here,
            early: Early::new(began),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            in_flight: 0,
            began,
            streams: streams.clone(),
            resets: 0,
            timer: None,
            gathering: None,
            drain,
            closing_since: None,
            deaf: false,
            unflushed: false,
            ended: false,
        }
    }

    /// Serves until the peer is gone or broke the protocol, and every file was taken leave of.
    pub async fn run(mut self) {
        debug!(connection = self.id, peer = %self.peer, "connected");
        std::future::poll_fn(|task| self.poll(task)).await;
        debug!(connection = self.id, peer = %self.peer, "closed");
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let last = LAST_TURN.get().filter(|(number, _)| *number == self.number);
        self.early.begin(Instant::now(), last.map(|(_, ended)| ended));
        let polled = self.take_turn(task);
        LAST_TURN.set(Some((self.number, Instant::now())));
        polled
    }

    fn take_turn(&mut self, task: &mut Context<'_>) -> Poll<()> {
        // What the turn before has left.
        self.warm();
        if !self.closing() && self.drain.poll(task) {
            self.end(End::Drained);
        }
        let mut turns = TURN;
        self.stalled = false;
        loop {
            self.hang_up_at_the_end();
            let mut progress = self.poll_running(task);
            progress |= self.poll_farewells(&mut turns);
            progress |= self.poll_members(task, &mut turns);
            progress |= self.poll_frames(task, &mut turns);
            if !self.gathers(task) {
                progress |= self.poll_write(task);
            }
            progress |= self.poll_flush(task);
            progress |= self.poll_read(task);
            if self.closing() && self.session.is_idle() && (self.deaf || self.unsent() == 0) {
                if self.poll_shutdown(task).is_ready() {
                    return Poll::Ready(());
                }
                progress = false;
            }
            if turns == 0 {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !progress && !self.poll_timer(task) {
                return Poll::Pending;
            }
        }
    }

    /// Hangs up when all is answered, or nobody is left to answer. Before the farewells are polled: nothing else may come
    /// to wake them.
    fn hang_up_at_the_end(&mut self) {
        let over = self.deaf || self.session.outstanding() == 0;
        if self.closing() && over && !self.session.is_resetting() && !self.session.is_hung_up() {
            self.cancel_all();
            self.session.hang_up();
        }
    }

    /// Takes the results that are there.
    fn poll_running(&mut self, task: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(finished) = self.running.poll(task) {
            progress = true;
            match finished {
                Finished::Request(id, bytes, result) => {
                    self.in_flight -= bytes;
                    self.cancels.remove(&id);
                    self.session.complete(id, result, &mut self.out);
                }
                Finished::Farewell(id, result) => self.farewell_done(id, result),
            }
        }
        if progress {
            // The peer's time to take a reply begins with the reply.
            self.still_closing();
        }
        progress
    }

    fn farewell_done(&mut self, id: FarewellId, result: Result<(), Error>) {
        if let Err(error) = &result {
            debug!(connection = self.id, %error, "clunk failed");
        }
        self.session.farewell_done(id, result, &mut self.out);
    }

    /// Takes leave of files whose fids are gone. A connection that is lost with all its fids open does not put
    /// all their clunks on the blocking pool at once.
    fn poll_farewells(&mut self, turns: &mut usize) -> bool {
        let mut progress = false;
        while *turns > 0
            && self.has_room()
            && let Some(farewell) = self.session.poll_farewell()
        {
            *turns -= 1;
            progress = true;
            let id = farewell.id;
            let cx = self.cx();
            match dispatch::survive(|| dispatch::farewell(&cx, &self.streams, farewell)) {
                Answer::Now(result) => self.farewell_done(id, result),
                Answer::Later(future) => {
                    self.running.push(Box::pin(async move { Finished::Farewell(id, dispatch::outlive(future).await) }));
                }
            }
        }
        progress
    }

    /// Handles the requests whose turn in their group has come, also when nothing more is read.
    fn poll_members(&mut self, task: &mut Context<'_>, turns: &mut usize) -> bool {
        let mut progress = false;
        while *turns > 0
            && self.may_start()
            && let Some(member) = self.session.poll_member()
        {
            *turns -= 1;
            progress = true;
            let event = self.session.handle_member(&member, &mut self.out);
            self.act_on(event, member.frame());
            self.send_enough(task);
        }
        progress
    }

    /// Handles the whole frames that have arrived, as far as the limits allow.
    fn poll_frames(&mut self, task: &mut Context<'_>, turns: &mut usize) -> bool {
        let mut progress = false;
        while *turns > 0 && !self.closing() && self.may_start() {
            if self.incoming.is_under_way() {
                // What has arrived is the beginning of that.
                let Some(data) = self.incoming.take_whole() else { break };
                *turns -= 1;
                progress = true;
                self.session.note_partial_frame(false, Duration::ZERO);
                self.take_write(data);
                self.send_enough(task);
                continue;
            }
            let cancels = &self.cancels;
            let parked = |id: RequestId| cancels.get(&id).is_some_and(|cancel| cancel.is_parked());
            let frame = match self.held.pop() {
                Some(frame) => frame,
                None => match next_frame(&self.arrived, self.skip, &self.session) {
                    Ok(Next::Whole(size)) => {
                        self.session.note_partial_frame(false, Duration::ZERO);
                        self.large.came(size);
                        if Large::is_one(size) {
                            self.incoming.came_otherwise();
                        }
                        self.arrived.split_to(size).freeze()
                    }
                    Ok(Next::Large(size)) => {
                        let event = self.session.handle_large(&self.arrived[..HEADER], &parked, &mut self.out);
                        if matches!(event, Ok(Event::Wait)) {
                            break;
                        }
                        *turns -= 1;
                        // Its time is its own, also where another was skipped just before.
                        self.session.note_partial_frame(false, Duration::ZERO);
                        self.skip = size;
                        self.act_on(event, None);
                        progress = true;
                        continue;
                    }
                    Ok(Next::Skip(bytes)) if bytes > 0 => {
                        self.arrived.advance(bytes);
                        self.skip -= bytes;
                        continue;
                    }
                    Ok(Next::Skip(_) | Next::Partial(_)) => break,
                    Err(error) => {
                        self.end(End::Broken(Violation::Frame(error)));
                        return true;
                    }
                },
            };
            *turns -= 1;
            self.out.lend(|| REPLIES.take());
            let event = self.session.handle_frame(&frame, &parked, &mut self.out);
            if matches!(event, Ok(Event::Wait)) {
                self.held.put_back(frame);
                break;
            }
            self.act_on(event, Some(&frame));
            progress = true;
            self.send_enough(task);
        }
        progress |= self.look_ahead(turns);
        let next = next_frame(&self.arrived, self.skip, &self.session);
        let begun = match next {
            _ if self.incoming.is_under_way() => true,
            Ok(Next::Skip(_)) => true,
            Ok(Next::Partial(_)) | Err(_) => !self.arrived.is_empty(),
            Ok(Next::Whole(_) | Next::Large(_)) => false,
        };
        // The peer's time runs only while we read.
        let partial = begun && self.may_read();
        self.session.note_partial_frame(partial, if partial { self.began.elapsed() } else { Duration::ZERO });
        progress
    }

    /// Takes a write whose data have come elsewhere, and what is before them here.
    fn take_write(&mut self, data: Data) {
        if let Some(request) = self.session.handle_write(&self.arrived) {
            self.large.came(self.arrived.len() + data.len());
            self.arrived.clear();
            return self.start(request, Carried::Outside(data));
        }
        // It was to be carried out when it began to come, but is not any more: a frame like any other.
        match data.into_bytes() {
            Ok(bytes) => self.arrived.extend_from_slice(&bytes),
            Err(error) => self.end(End::Lost(Some(io::Error::other(error)))),
        }
    }

    /// Looks at what came behind a frame that is held back. A Tflush passes it, with what it flushes: that may be what the
    /// frame waits for, and the peer that sent it may wait for nothing else.
    fn look_ahead(&mut self, turns: &mut usize) -> bool {
        let mut progress = false;
        while *turns > 0
            && !self.closing()
            && self.may_start()
            && !self.held.is_empty()
            && self.may_look_ahead()
            && let Ok(Next::Whole(size)) = next_frame(&self.arrived, self.skip, &self.session)
        {
            *turns -= 1;
            progress = true;
            self.session.note_partial_frame(false, Duration::ZERO);
            let frame = self.arrived.split_to(size).freeze();
            match tflush(&frame) {
                Some((tag, oldtag))
                    if self.session.is_free(tag) && !self.held.has(tag) && !self.held.has_leave(oldtag) =>
                {
                    self.held.flush(oldtag);
                    let event = self.session.handle_frame(&frame, &|_| false, &mut self.out);
                    self.act_on(event, Some(&frame));
                }
                _ => self.held.push(&frame),
            }
        }
        progress
    }

    /// Whether more is read behind a frame that is held back.
    fn may_look_ahead(&self) -> bool {
        let next = next_frame(&self.arrived, self.skip, &self.session);
        let fits = matches!(next, Ok(Next::Whole(_))) || matches!(next, Ok(Next::Partial(missing)) if missing <= AHEAD);
        fits && self.held.has_room() && !self.session.is_resetting()
    }

    fn may_read(&self) -> bool {
        !self.closing() && !self.ended && self.may_start() && (self.held.is_empty() || self.may_look_ahead())
    }

    /// Whether a request may be started: running requests, bytes under way and unsent replies are bounded.
    /// Requests that wait for something that may never come do not count, or a Tflush could not get through.
    fn may_start(&self) -> bool {
        let limits = &self.server.limits;
        self.has_room()
            && self.in_flight.saturating_sub(self.parking.bulk()) + (self.unsent() as u64) < limits.unsent as u64
    }

    /// Whether fewer futures than the limit are running, those that wait not counted.
    fn has_room(&self) -> bool {
        self.running.len().saturating_sub(self.parking.count()) < self.server.limits.running
    }

    /// Does what the session says of a frame; one that has to wait is its caller's.
    fn act_on(&mut self, event: Result<Event<'_, Handle>, Violation>, frame: Option<&Bytes>) {
        if std::mem::replace(&mut self.resets, self.session.resets()) != self.resets {
            streams::end_all(&self.server, &self.streams, false);
        }
        match event {
            Ok(Event::Handled | Event::Wait) => {}
            Ok(Event::Execute(request)) => {
                // The request borrows from the frame, which outlives the call.
                let Some(frame) = frame else { return };
                self.start(request, Carried::InFrame(frame));
            }
            Ok(Event::Cancel(ids)) => {
                ids.iter().filter_map(|id| self.cancels.get(id)).for_each(|cancel| cancel.cancel());
            }
            Ok(Event::CancelAll) => self.cancel_all(),
            Err(violation) => self.end(End::Broken(violation)),
        }
    }

    /// Carries out a request.
    fn start(&mut self, request: Request<'_, Handle>, carried: Carried<'_>) {
        let server = self.server.clone();
        let (id, bytes) = (request.id, bulk_bytes(&request));
        let cx = self.cx().with_bulk(bytes);
        match dispatch::survive(|| dispatch::execute(&server, &self.peer, &cx, &self.streams, request, carried)) {
            Answer::Now(result) => self.session.complete(id, result, &mut self.out),
            Answer::Later(future) => {
                self.in_flight += bytes;
                let cancel = std::mem::take(&mut self.spare_cancel);
                if self.closing() {
                    // The others were cancelled when the closing began.
                    cancel.cancel();
                }
                self.cancels.insert(id, cancel);
                self.running
                    .push(Box::pin(async move { Finished::Request(id, bytes, dispatch::outlive(future).await) }));
            }
        }
    }

    /// A context for the next request. One that was kept by a future is not used again.
    fn cx(&mut self) -> Cx {
        if Arc::strong_count(&self.spare_cancel) > 1 {
            self.spare_cancel = Arc::default();
        }
        Cx::new(self.id, self.spare_cancel.clone(), self.parking.clone())
    }

    fn closing(&self) -> bool {
        self.closing_since.is_some()
    }

    /// Something that was begun was finished, or the peer took bytes: it gets [`LINGER`] anew, within the time that a
    /// frame may take.
    fn still_closing(&mut self) {
        if let Some((since, ends)) = &mut self.closing_since {
            *since = Instant::now().min(*ends);
        }
    }

    fn cancel_all(&mut self) {
        self.cancels.values().for_each(|cancel| cancel.cancel());
    }

    /// Sends when there is much to send, or when much was done for it and none of it waits for others.
    fn send_enough(&mut self, task: &mut Context<'_>) {
        if self.stalled || self.unsent() == 0 {
            return;
        }
        let may_share = self.is_here && self.unsent() < READ_CHUNK && self.session.waiting() == 0;
        if self.unsent() >= ENOUGH || may_share && self.early.is_time(self.arrived.len(), Instant::now()) {
            self.poll_write(task);
        }
    }

    /// Whether what there is to send waits for what follows in its group, of which one is running: one that does not wait
    /// itself for what may never come.
    fn gathers(&mut self, task: &mut Context<'_>) -> bool {
        let follows = self.session.waiting() > 0 && self.running.len() > self.parking.count();
        let waits = follows && !self.closing() && !self.deaf && (1..GATHER_MAX).contains(&self.unsent());
        if waits {
            let timer = self.gathering.get_or_insert_with(|| Box::pin(tokio::time::sleep(GATHER)));
            if timer.as_mut().poll(task).is_pending() {
                return true;
            }
        }
        self.gathering = None;
        false
    }

    fn poll_write(&mut self, task: &mut Context<'_>) -> bool {
        if self.deaf {
            // What nobody takes keeps no memory, and no pipes from others, until the last request is done.
            let cleared = self.unsent() > 0;
            self.out = Outbox::default();
            self.outlet.clear();
            // Room for what waits.
            return cleared;
        }
        let mut progress = false;
        while self.unsent() > 0 && !self.deaf {
            match self.outlet.poll_send(&mut self.stream, &mut self.out, task) {
                Poll::Ready(Ok(())) => {
                    self.unflushed = true;
                    self.still_closing();
                }
                Poll::Ready(Err(error)) => {
                    // Also while closing, when the end is known already.
                    self.deaf = true;
                    self.end(End::Lost(Some(error)));
                }
                Poll::Pending => {
                    self.stalled = true;
                    break;
                }
            }
            progress = true;
        }
        if progress {
            self.early.sent(self.arrived.len(), Instant::now());
        }
        if let Some(buffer) = self.out.spare() {
            REPLIES.set(buffer);
        }
        progress
    }

    /// Has the stream send what it took. What it cannot send yet wakes this task when it can; nothing else may come to do so.
    fn poll_flush(&mut self, task: &mut Context<'_>) -> bool {
        if !self.unflushed || self.deaf {
            return false;
        }
        match Pin::new(&mut self.stream).poll_flush(task) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                false
            }
            Poll::Ready(Err(error)) => {
                self.deaf = true;
                self.end(End::Lost(Some(error)));
                true
            }
        }
    }

    /// Reads what has arrived, unless whole frames wait to be handled or the limits say no.
    fn poll_read(&mut self, task: &mut Context<'_>) -> bool {
        let next = next_frame(&self.arrived, self.skip, &self.session);
        if self.ended && !self.closing() && self.held.is_empty() && !matches!(next, Ok(Next::Whole(_) | Next::Large(_)))
        {
            self.end(End::Lost(None));
            return true;
        }
        if !self.may_read() {
            return false;
        }
        if self.incoming.is_under_way() {
            return self.poll_incoming(task);
        }
        let wanted = match next {
            // Before an attach memory follows the bytes that came, not the size that is only announced.
            Ok(Next::Partial(missing)) if self.session.fids() == 0 => {
                self.large.forget();
                Wanted::all(missing.clamp(1, READ_CHUNK))
            }
            Ok(Next::Partial(missing)) => {
                let alone = self.large.rest(self.arrived.len(), missing);
                alone.unwrap_or_else(|| Wanted::all(missing.max(READ_CHUNK)))
            }
            Ok(Next::Skip(_)) => {
                self.large.forget();
                Wanted::all(READ_CHUNK)
            }
            Ok(Next::Whole(_) | Next::Large(_)) | Err(_) => return false,
        };
        if self.arrived.capacity() == 0 {
            self.arrived = ARRIVALS.take();
        }
        let most = self.large.make_room(&mut self.arrived, wanted, self.incoming.is_expected());
        let mut read = poll_read_buf(Pin::new(&mut self.stream), task, &mut (&mut self.arrived).limit(most));
        if read.is_ready() {
            self.early.was_told();
        } else if self.is_here && self.early.may_look() {
            read = self.look_again(most);
        }
        if self.arrived.is_empty() {
            let buffer = std::mem::take(&mut self.arrived);
            if buffer.capacity() <= ARRIVALS_KEEP {
                ARRIVALS.set(buffer);
            }
            // Of one whose data come elsewhere hardly anything is read here: it may be expected for as long as the peer likes.
            if !self.incoming.is_expected() {
                self.large.forget();
            }
        }
        match read {
            Poll::Pending => return false,
            // What was sent before is still answered.
            Poll::Ready(Ok(0)) if !self.held.is_empty() => self.ended = true,
            Poll::Ready(Ok(0)) => self.end(End::Lost(None)),
            Poll::Ready(Ok(_)) => {
                self.early.came(self.arrived.len(), Instant::now());
                self.warm();
                self.begin_incoming();
            }
            Poll::Ready(Err(error)) => self.end(End::Lost(Some(error))),
        }
        true
    }

    /// Has what the next requests are about to use asked of memory, all together: where many connections have many fids each, a request waits for memory
    /// longer than it works, one look after the other.
    fn warm(&self) {
        if self.skip == 0 {
            self.session.coming(&self.arrived, TURN).for_each(|file| file.warm());
        }
    }

    /// Where what is before the data of a large write has come, and nothing else, its data may come elsewhere.
    fn begin_incoming(&mut self) {
        if self.arrived.len() != WRITE_HEAD || self.skip > 0 || !self.held.is_empty() || !self.incoming.is_expected() {
            return;
        }
        if let Ok(Next::Partial(missing)) = next_frame(&self.arrived, self.skip, &self.session)
            && Large::is_one(WRITE_HEAD + missing)
        {
            match self.session.written_file(&self.arrived) {
                Some(file) if file.takes_pipes() => self.incoming.begin(missing),
                _ => self.incoming.pass(),
            }
        }
    }

    /// Reads data that come elsewhere.
    fn poll_incoming(&mut self, task: &mut Context<'_>) -> bool {
        match self.incoming.poll_receive(&self.stream, task, &mut self.arrived) {
            Poll::Pending => return false,
            Poll::Ready(Ok(true)) => self.early.was_told(),
            Poll::Ready(Ok(false)) => self.end(End::Lost(None)),
            Poll::Ready(Err(error)) => self.end(End::Lost(Some(error))),
        }
        true
    }

    /// Reads what came while the last requests were done, which the runtime does not know yet: to wait for it to look is two calls more.
    fn look_again(&mut self, most: usize) -> Poll<io::Result<usize>> {
        let mut little = [0; LITTLE];
        match self.stream.read_now(&mut little[..LITTLE.min(most)]) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Poll::Pending
            }
            read => Poll::Ready(read.inspect(|&n| self.arrived.extend_from_slice(&little[..n]))),
        }
    }

    /// Watches the deadline of the session or of the closing; `true` when it has passed.
    fn poll_timer(&mut self, task: &mut Context<'_>) -> bool {
        let deadline = match self.closing_since {
            // What is still running is waited for; only the peer is not.
            Some((since, _)) if !self.deaf && (self.unsent() > 0 || self.session.is_idle()) => Some(since + LINGER),
            Some(_) => None,
            None => self.session.deadline().map(|deadline| self.began + deadline),
        };
        let Some(deadline) = deadline else {
            self.timer = None;
            return false;
        };
        let timer = match &mut self.timer {
            Some(timer) if timer.deadline() == deadline => timer,
            timer => timer.insert(Box::pin(tokio::time::sleep_until(deadline))),
        };
        if timer.as_mut().poll(task).is_pending() {
            return false;
        }
        self.timer = None;
        if self.closing() {
            self.deaf = true;
            return true;
        }
        if let Err(violation) = self.session.handle_timeout(self.began.elapsed()) {
            self.end(End::Broken(violation));
        }
        true
    }

    /// Bytes of replies that the stream has not taken.
    fn unsent(&self) -> usize {
        self.out.len() + self.outlet.len()
    }

    /// Stops reading, wakes all waits, and lets what was begun finish.
    fn end(&mut self, end: End) {
        if self.closing() {
            return;
        }
        let now = Instant::now();
        self.closing_since = Some((now, now + self.server.limits.frame));
        self.held = Held::default();
        self.arrived = BytesMut::new();
        self.incoming.stop();
        streams::end_all(&self.server, &self.streams, true);
        self.cancel_all();
        match end {
            // What was begun is still answered, also to a peer that closed only its own direction; the session
            // hangs up when it is. What waits for its turn has come from that peer before the end of its requests; a
            // server that drains starts nothing more.
            End::Drained | End::Lost(None) => {
                if matches!(end, End::Drained) {
                    self.session.drop_members();
                }
                debug!(connection = self.id, peer = %self.peer, "no more requests");
                return;
            }
            End::Broken(violation) => {
                let (connection, peer) = (self.id, &self.peer);
                match self.server.broken.admit(Instant::now()) {
                    Some(0) => warn!(connection, %peer, reason = %violation, "connection closed: protocol broken"),
                    Some(left_out) => {
                        warn!(connection, %peer, reason = %violation, left_out, "connection closed: protocol broken");
                    }
                    None => debug!(connection, %peer, reason = %violation, "connection closed: protocol broken"),
                }
                self.deaf |= self.unsent() == 0;
            }
            End::Lost(Some(error)) => {
                debug!(connection = self.id, peer = %self.peer, %error, "connection lost");
                self.deaf = true;
            }
        }
        self.session.hang_up();
    }

    fn poll_shutdown(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if !self.deaf {
            // An error means the peer was quicker.
            let _ = ready!(Pin::new(&mut self.stream).poll_shutdown(task));
        }
        Poll::Ready(())
    }
}

/// What stands at the front of what has arrived; numbers are of bytes.
enum Next {
    /// A frame.
    Whole(usize),
    /// The header of a frame that is too large to be kept.
    Large(usize),
    /// So much of a frame that is not kept.
    Skip(usize),
    /// A part of a frame, of which so much is missing.
    Partial(usize),
}

fn next_frame(arrived: &[u8], skip: usize, session: &Session<Handle, Data, Bytes>) -> Result<Next, DecodeError> {
    if skip > 0 {
        return Ok(Next::Skip(skip.min(arrived.len())));
    }
    Ok(match frame_size(arrived, session.largest_frame())? {
        Some(size) if size > session.msize() as usize && arrived.len() >= HEADER => Next::Large(size),
        Some(size) if size > session.msize() as usize => Next::Partial(HEADER - arrived.len()),
        Some(size) if size <= arrived.len() => Next::Whole(size),
        Some(size) => Next::Partial(size - arrived.len()),
        None => Next::Partial(READ_CHUNK),
    })
}

/// Bytes that a request will bring or carries: they count against the connection's memory.
fn bulk_bytes(request: &Request<'_, Handle>) -> u64 {
    match &request.op {
        Op::Read { count, .. } => (*count).into(),
        Op::ReadStats { max, .. } | Op::Readdir { max, .. } | Op::Readdirplus { max, .. } => (*max).into(),
        Op::Write { data, .. } | Op::Writex { data, .. } => data.len() as u64,
        Op::WriteOutside { len, .. } => (*len).into(),
        _ => 0,
    }
}
