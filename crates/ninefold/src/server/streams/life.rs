//! One stream, from its Tstream to its end.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ninefold_proto::attr::getattr;
use ninefold_proto::{Errno, Error};
use rustix::fs::fstat;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::bare::Bare;
use super::closing::Way;
use super::conveying::{self, Conduit};
use super::copying::Backing;
use super::descriptor::{self, Descriptor};
use super::kernel_lease::{Pledge, WORTH, may_be_leased};
use super::lending::{self, Lenders};
use super::moving::{self, Copies};
use super::origin::Origin;
use super::pace::Pace;
use super::places::Place;
use super::table::{Ended, Entry, Hears, Hold};
use super::telling::Telling;
use super::{StreamLimits, copying};
use crate::server::alarm::{Alarm, until};
use crate::server::conduit::Seen;
use crate::server::dispatch::{Handle, outlive, survive};
use crate::server::{Cx, Server};
use crate::transport::{Peer, Stream};

/// How the bytes move.
pub(super) enum Moves {
    InKernel(Arc<dyn Descriptor>),
    Conveyed(Hold, Conduit),
    ByFile(Hold),
}

/// A stream. Dropped before it has run, it ends in an error.
pub(super) struct Life {
    pub server: Arc<Server>,
    pub place: Place,
    pub entry: Entry,
    /// Of the session.
    pub peer: Peer,
    /// Of the file, as the Rstream told it.
    pub modrev: u64,
    pub moves: Moves,
    pub read: bool,
    pub offset: u64,
    pub length: Option<u64>,
    /// What is written goes to the end of the file, piece by piece.
    pub appends: bool,
    /// Somebody may ask how it ended.
    pub is_asked_after: bool,
    /// The connection may go on with another stream.
    pub more: bool,
    /// The connection tells the end, if it came whole.
    pub told: bool,
    /// From that place in the file on what is sent is to be copied first.
    pub copies_from: Option<u64>,
}

/// What bounds the moving of bytes.
pub(super) struct Bounds {
    pub abort: CancellationToken,
    server: Arc<Server>,
    /// Locked for a moment.
    pace: Mutex<Pace>,
    /// Of the task in which it runs among others.
    alarm: Option<Arc<Alarm>>,
}

impl Bounds {
    pub fn new(abort: CancellationToken, server: Arc<Server>) -> Bounds {
        let StreamLimits { least, within, .. } = server.streams.limits;
        Bounds { abort, server, pace: Mutex::new(Pace::new(least, within)), alarm: None }
    }

    /// The same where it runs among others in one task.
    pub fn among(self, alarm: Option<&Arc<Alarm>>) -> Bounds {
        Bounds { alarm: alarm.cloned(), ..self }
    }

    /// Whether it has others in its task, which it must not hold up.
    pub fn are_of_one_among_others(&self) -> bool {
        self.alarm.is_some()
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams of the server that have not ended, this one included.
    pub fn streams(&self) -> usize {
        self.server.streams.open()
    }

    /// So many bytes went to the peer, or came.
    pub fn moved(&self, bytes: u64) {
        self.pace().moved(bytes);
    }

    /// Those that send what lies in memory.
    pub fn lenders(&self) -> &Lenders {
        &self.server.streams.lenders
    }

    /// Waits for the peer: ECANCELED when the stream is to end, ETIMEDOUT when nothing comes of it, or too little.
    pub async fn wait<T>(&self, ready: impl Future<Output = io::Result<T>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.abort.cancelled() => Err(aborted()),
            ready = self.in_time(ready) => ready,
        }
    }

    async fn in_time<T>(&self, ready: impl Future<Output = io::Result<T>>) -> Result<T, Error> {
        let mut ready = pin!(ready);
        let idle = self.server.streams.limits.idle;
        let mut waited = Duration::ZERO;
        loop {
            let left = self.pace().left();
            let since = Instant::now();
            let came = timeout(left.min(idle.saturating_sub(waited)), &mut ready).await;
            let took = since.elapsed();
            waited += took;
            self.pace().waited(took);
            match came {
                Ok(ready) => return ready.map_err(|error| of_peer(&error)),
                Err(_) if waited >= idle => return Err(idled()),
                Err(_) => self.keep_place()?,
            }
        }
    }

    /// The same while another moves bytes; `moved`: so many since it was asked last.
    pub async fn wait_moving<T>(&self, moved: impl Fn() -> u64, done: impl Future<Output = T>) -> Result<T, Error> {
        let mut done = pin!(done);
        let idle = self.server.streams.limits.idle;
        let mut waited = Duration::ZERO;
        loop {
            let left = self.pace().left();
            let since = Instant::now();
            let look = LOOK.min(idle / LOOKS).min(left).min(idle.saturating_sub(waited));
            let came = tokio::select! {
                biased;
                () = self.abort.cancelled() => return Err(aborted()),
                came = until(self.alarm.as_deref(), since + look, &mut done) => came,
            };
            let took = since.elapsed();
            self.pace().waited(took);
            match moved() {
                0 => waited += took,
                bytes => {
                    waited = Duration::ZERO;
                    self.moved(bytes);
                }
            }
            match came {
                Some(done) => return Ok(done),
                None if waited >= idle => return Err(idled()),
                None => self.keep_place()?,
            }
        }
    }

    /// Where the peer has used up its time: whether its place is wanted by others.
    fn keep_place(&self) -> Result<(), Error> {
        let mut pace = self.pace();
        if pace.left().is_zero() {
            if self.server.streams.places.are_short() {
                return Err(Error::with_text(
                    Errno::ETIMEDOUT,
                    "too little moved on the stream for too long, and the server has few left",
                ));
            }
            pace.renew();
        }
        Ok(())
    }

    /// Waits, and lets that count as a wait for the peer.
    pub async fn sleep(&self, time: Duration) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = self.abort.cancelled() => return Err(aborted()),
            () = tokio::time::sleep(time) => {}
        }
        self.pace().waited(time);
        self.keep_place()
    }

    /// Waits for the file's server, which has a bound of its own: ECANCELED when the stream is to end.
    pub async fn unless_aborted<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.abort.cancelled() => Err(aborted()),
            done = call => done,
        }
    }
}

pub(super) fn aborted() -> Error {
    Error::with_text(Errno::ECANCELED, "the stream was ended before its time")
}

fn idled() -> Error {
    Error::with_text(Errno::ETIMEDOUT, "nothing moved on the stream for too long")
}

/// What went wrong on a data connection.
pub(super) fn of_peer(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(raw) => Errno(raw.cast_unsigned()).into(),
        None => Error::with_text(Errno::EPIPE, "the data connection was closed"),
    }
}

/// A stream to the file that was ended before all of it had come.
pub(super) fn cut_short() -> Error {
    Error::with_text(Errno::EPIPE, "the data connection was closed before all bytes had come")
}

/// How often it is looked whether anything moves where another moves it: seldom, as each look wakes the runtime for every stream.
const LOOK: Duration = Duration::from_secs(10);
/// At least so many times while nothing may move: that is noticed as much later.
const LOOKS: u32 = 8;

/// Bytes that may lie in a socket without a place at the server.
const LITTLE: u64 = 64 * 1024;

/// What becomes of a data connection behind a stream.
pub(super) enum Next {
    /// Another stream may come.
    Another(Way),
    /// None does, but tokens may lie in it.
    Parts(Stream),
    /// None does, and the peer is to have the time to take what was sent, for which the stream keeps its place.
    IsTaken(Stream, Place),
    /// It is closed.
    Gone,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life").field("entry", &self.entry).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Life {
    /// Cancelled, it is to end before its time.
    pub fn abort(&self) -> CancellationToken {
        self.entry.aborted()
    }

    pub fn is_aborted(&self) -> bool {
        self.entry.is_aborted()
    }

    /// Ends it: its data connection has not come.
    pub fn give_up(self: Box<Life>, why: Error) {
        // Without a runtime nobody waits for files, or for what is told.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let server = self.server.clone();
            drop(
                server
                    .streams
                    .tasks
                    .spawn_on(async move { drop(self.run(Err(why), &mut Pledge::default(), None).await) }, &runtime),
            );
        }
    }

    /// Whether threads of our own may send it ([`lending`]), or it is [at hand](super::at_hand), so that others in its task wait for it for some milliseconds at most.
    pub fn may_be_lent(&self, way: &Way) -> bool {
        let Moves::InKernel(file) = &self.moves else { return false };
        let is_long = self.length.is_none_or(|length| length >= lending::LEAST);
        self.read && is_long && !file.is_slow() && way.is_tcp()
    }

    /// The whole of it, with its data connection, or with what became of that; `pledge`: what lies in that connection; `alarm`: of the task in which it runs among others.
    pub async fn run(
        self: Box<Life>,
        arrived: Result<Way, Error>,
        pledge: &mut Pledge,
        alarm: Option<&Arc<Alarm>>,
    ) -> Next {
        let Life {
            server,
            place,
            entry,
            peer,
            modrev,
            moves,
            read,
            offset,
            length,
            appends,
            is_asked_after,
            more,
            told,
            copies_from,
        } = *self;
        let bounds = Bounds::new(entry.aborted(), server.clone()).among(alarm);
        // It may have been since it was given to its connection: then nothing is to come of it.
        let arrived = arrived.and_then(|way| if entry.is_aborted() { Err(aborted()) } else { Ok(way) });
        // What ends before its length ends the connection: the peer is to know it by that.
        let goes_on = |count| more && length == Some(count);
        // So much of it may still lie in the socket.
        let mut lies_in_socket = 0;
        // Where nothing is sent by pages nobody sees to what lies in the connection from a stream before.
        let sends_pages = read && matches!(moves, Moves::InKernel(_));
        let arrived = match arrived {
            Ok(Way::Bare(bare)) if !sends_pages && pledge.is_held() => {
                let redeemed = redeem(&bare, pledge, &bounds).await;
                redeemed.map(|()| Way::Bare(bare))
            }
            arrived => arrived,
        };
        if arrived.is_err() {
            pledge.end();
        }
        // What fails drops its connection, which resets it, before anything else is waited for.
        let moved = match moves {
            Moves::InKernel(file) => {
                let moved = async {
                    let way = arrived?;
                    let host = || Backing::Host(file.clone());
                    let mut is_kept = false;
                    let copies = match (copies_from, &way) {
                        (Some(place), _) => Copies::From(place),
                        (None, Way::Bare(bare)) if read && is_asked_after && !more => {
                            // Pages of what is not copied on its way change when they are with the peer, too, and nobody could say whether they have.
                            if server.streams.ways.copies(bare.ends()).await {
                                Copies::End
                            } else {
                                Copies::From(offset)
                            }
                        }
                        (None, _) => Copies::None,
                    };
                    let (mut way, count, copied) = match (way, read) {
                        (Way::Bare(bare), true) => {
                            let is_long = || {
                                let comes = length.unwrap_or_else(|| left_of(&*file, offset));
                                copies.of(offset, comes) >= WORTH
                            };
                            let is_worth_it = copies != Copies::None && may_be_leased(&server, &*file) && is_long();
                            let is_covered = is_worth_it && pledge.covers(&server, &file, &bare).await;
                            let how = (copies, is_covered);
                            // Without a Tstreamend nobody waits until it is taken. And as much as it holds is copied at the end of one that is to tell whether the file was changed.
                            let is_copied_at_its_end = copies == Copies::End && !is_covered;
                            if let Some(tcp) = bare.tcp().filter(|_| is_asked_after && !is_copied_at_its_end) {
                                let comes = length.unwrap_or_else(|| left_of(&*file, offset));
                                let origin = Origin::of(&peer);
                                server.streams.send_buffers.make_room(origin, tcp, comes, &mut pledge.room);
                            }
                            let (bare, sent) =
                                moving::to_peer(&file, bare, offset, length, how, pledge, &bounds).await?;
                            is_kept = is_covered && pledge.is_held();
                            (Way::Bare(bare), sent.count, sent.copied)
                        }
                        (Way::Bare(bare), false) => {
                            // That of a stream before it: nothing is sent behind it.
                            bare.send_rest();
                            let socket = bare.watch().map_err(|error| of_peer(&error))?;
                            let count = moving::from_peer(&file, &socket, offset, length, &bounds).await?;
                            (Way::Bare(Bare::Watched(socket)), count, 0)
                        }
                        (Way::Stream(mut stream), true) => {
                            let count = copying::to_peer(&host(), &mut stream, offset, length, &bounds).await?;
                            (Way::Stream(stream), count, 0)
                        }
                        (Way::Stream(mut stream), false) => {
                            let count =
                                copying::from_peer(&host(), &mut stream, offset, length, false, &bounds).await?;
                            (Way::Stream(stream), count, 0)
                        }
                    };
                    let mut is_taken = true;
                    if read && !goes_on(count) {
                        way.end_sending(pledge, &bounds).await?;
                    }
                    lies_in_socket = copied;
                    if let Way::Bare(bare) = &way
                        && read
                        && is_asked_after
                        && copied < count
                    {
                        if copies_from.is_none() && !is_kept {
                            // Behind it others are sent, of which some are always on the way.
                            let taken = async {
                                tokio::select! {
                                    biased;
                                    taken = moving::wait_until_taken(bare, copied, &bounds) => taken,
                                    () = pledge.asked_back() => Ok(false),
                                }
                            };
                            is_taken = !more && taken.await?;
                        }
                        // Who asks for copies looks at the file when he has the pages before them: nobody waited for those.
                        if copies_from.is_some() || is_kept || !is_taken {
                            lies_in_socket = count;
                        }
                    }
                    Ok::<_, Error>((count, way, is_taken))
                };
                let moved = moved.await;
                let last = descriptor::let_go(file, !read).await;
                moved.and_then(|(count, way, is_taken)| {
                    // What the peer has not taken may still change, and nobody would see it.
                    let last = last.map(|last| if is_taken || last != modrev { last } else { 0 });
                    Ok((Ended { count, modrev: last? }, way))
                })
            }
            Moves::Conveyed(hold, conduit) => {
                let moved = async {
                    let mut stream = arrived?.into_stream()?;
                    let (count, seen) = match conduit {
                        Conduit::Source(source) => conveying::to_peer(source, &mut stream, length, &bounds).await?,
                        Conduit::Sink(sink) => {
                            let count = conveying::from_peer(sink, &mut stream, offset, length, &bounds).await?;
                            (count, Seen::Unchanged)
                        }
                    };
                    let mut way = Way::from(stream);
                    if read && !goes_on(count) {
                        way.end_sending(pledge, &bounds).await?;
                    }
                    // All of it is there: who cannot say what became of the file since does not know.
                    let last = modrev_of(&hold.file).await.unwrap_or(0);
                    let last = match seen {
                        // Where nothing tells of changes the peer would not look at the number.
                        Seen::Changed if modrev == 0 => {
                            return Err(Error::with_text(Errno::ESTALE, "the file was changed meanwhile"));
                        }
                        Seen::Changed if last == modrev || last == 0 => descriptor::mix(&[modrev]),
                        Seen::Unknown if last == modrev => 0,
                        _ => last,
                    };
                    Ok((Ended { count, modrev: last }, way))
                };
                // The conduit is gone by then, whatever it ended by.
                let moved = moved.await;
                let released = hold.release().await;
                moved.and_then(|ended| released.map(|()| ended))
            }
            Moves::ByFile(hold) => {
                let moved = async {
                    let mut stream = arrived?.into_stream()?;
                    let backing = Backing::File(hold.file.clone());
                    let count = match read {
                        true => copying::to_peer(&backing, &mut stream, offset, length, &bounds).await?,
                        false => copying::from_peer(&backing, &mut stream, offset, length, appends, &bounds).await?,
                    };
                    let mut way = Way::from(stream);
                    if read && !goes_on(count) {
                        way.end_sending(pledge, &bounds).await?;
                    }
                    let last = modrev_of(&hold.file).await?;
                    Ok((Ended { count, modrev: last }, way))
                };
                let moved = moved.await;
                // A file that is written at its clunk tells here that it was not.
                let released = hold.release().await;
                moved.and_then(|ended| released.map(|()| ended))
            }
        };
        let mut next = Next::Gone;
        let mut place = Some(place);
        let mut hears = if is_asked_after { Hears::WhoAsks } else { Hears::Nobody };
        let end = match moved {
            Ok((ended, way)) if goes_on(ended.count) => {
                let way = match told {
                    true => Telling::new(ended.modrev).send(way, pledge, &bounds).await,
                    false => Ok(way),
                };
                way.map(|way| {
                    next = Next::Another(way);
                    if told {
                        hears = Hears::HasBeenTold;
                    }
                    ended
                })
            }
            Ok((ended, way)) => {
                if !read {
                    way.close_whole(&bounds).await;
                } else if (more || lies_in_socket > LITTLE || pledge.is_held())
                    && let Ok(stream) = way.into_stream()
                {
                    next = match place.take().filter(|_| !more) {
                        // Who takes nothing has no more of such than of streams.
                        Some(place) => Next::IsTaken(stream, place),
                        None => Next::Parts(stream),
                    };
                }
                Ok(ended)
            }
            Err(error) => Err(error),
        };
        server.streams.count_end(&peer, end.as_ref().err());
        if end.is_err() {
            server.streams.send_buffers.has_failed(Origin::of(&peer), &pledge.room);
        }
        drop(place);
        entry.end(end, hears);
        next
    }
}

/// Bytes of a file behind `offset`, as far as that is known. Of one that may be leased, which nobody waits for.
fn left_of(file: &dyn Descriptor, offset: u64) -> u64 {
    fstat(file.fd()).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0).saturating_sub(offset))
}

/// Waits until the peer has taken what lies in its connection from the streams before.
async fn redeem(bare: &Bare, pledge: &mut Pledge, bounds: &Bounds) -> Result<(), Error> {
    bare.send_rest();
    let taken = async {
        pledge.taken_or_asked_back(bare).await;
        Ok(())
    };
    bounds.wait(taken).await?;
    bounds.unless_aborted(pledge.redeem(bare)).await
}

/// The number that the file has now, as its attributes tell it.
async fn modrev_of(file: &Handle) -> Result<u64, Error> {
    let cx = Cx::detached();
    let attr = outlive(survive(|| file.getattr(&cx, getattr::ALL)).wait()).await?;
    Ok(super::modrev(&attr))
}
