//! Bytes between a file of this machine and a socket, moved by the kernel.
//!
//! From the file: sendfile(2), by [`lending`](super::lending) where the page cache has what comes next, else where waiting is allowed. To the file: splice(2)
//! through a pipe that is empty between two turns, so that few pipes serve any number of streams. A turn is bounded, and
//! between two of one stream others have theirs. A file that the kernel moves in neither way goes through memory.

use std::cell::Cell;
use std::io::{self, IoSliceMut, Read};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use ninefold_proto::{Errno, Error};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatvfs, sendfile};
use rustix::io::{Errno as Os, ReadWriteFlags, preadv2, pwrite, read};
use rustix::net::sockopt::socket_send_buffer_size;
use tokio::io::Interest;
use tokio::time::Instant;

use super::bare::Bare;
use super::copied::Copied;
use super::descriptor::Descriptor;
use super::kernel_lease::Pledge;
use super::lending::LEAST as LEAST_LENT;
use super::life::{Bounds, cut_short, of_peer};
use super::mark::Mark;
use crate::server::{Answer, sock_diag};
use crate::transport::{PipeShare, Piped, Socket, open_window};

/// Bytes that are sent in one turn, some milliseconds at the speed of memory: to give way costs other threads their sleep.
pub(super) const TURN: usize = 4 << 20;

/// Bytes that are written in one turn: as long as a copy of the largest message takes, for which no other worker is woken.
const WRITTEN: usize = 1 << 20;

/// Bytes that are sent by one call, and looked for in the page cache at a time.
pub(super) const SENT: usize = 2 << 20;

/// The page cache is asked for a byte in each so many. It is filled and emptied in pieces that are mostly larger, or lie together;
/// and each question costs as much as to send four pages.
pub(super) const STEP: u64 = 512 * 1024;

/// At most so many bytes at the end of a stream are copied so that nobody has to wait for the peer behind them: what Linux lets a connection hold by
/// itself (tcp(7), tcp_wmem). Where it may hold more, the rest is waited for.
pub(super) const TAIL: u64 = 4 << 20;

/// Bytes that are asked of a disk ahead of need.
const AHEAD: u64 = 8 << 20;

/// Bytes of a stream among others that the blocking pool sends, behind a turn of a thread that took long, until a thread may have it again: a busy machine
/// makes turns long too.
const WHILE_HELD_UP: u64 = 64 << 20;

/// From so many bytes on blocks are reserved before they are written.
const RESERVED: u64 = 1 << 20;

/// From so many bytes on the peer of a stream to the file need not wait for what is read, as long as there are no more streams than that: what the kernel
/// keeps of their bytes is 64 times 4 MiB at most, whatever lengths their peers claim.
const LONG: u64 = 1 << 20;
const OPEN: usize = 64;

/// A turn that brings less has cost more than it moved: the next one waits for a little more to come.
const FEW: usize = 128 * 1024;
const PAUSE: Duration = Duration::from_millis(1);

/// A socket that took a part of what it was given has no room, and tells when it has. So the call that would only find that out, with as much work as one
/// that sends, is not made. Where there was another reason nobody tells: after so long it is asked.
pub(super) const LOOK_FOR_ROOM: Duration = Duration::from_millis(250);

/// Bytes in memory of a turn that finds no pipe, or of a file that the kernel does not move.
const BUFFER: usize = 256 * 1024;

/// A reservation leaves one part in so many of what a disk has free to others.
const LEFT_FREE: u64 = 8;

/// The first and the longest wait between two looks at what a peer has not taken yet.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(250);

/// A peer that takes nothing for so long is not waited for: longer than it takes to send a lost packet again (RFC 6298).
const STILL: Duration = Duration::from_secs(2);

type File = Arc<dyn Descriptor>;

fn os(error: Os) -> Error {
    Errno(error.raw_os_error().cast_unsigned()).into()
}

/// What of a file is copied before it is sent. Its pages are sent at less cost, but who changes them while they lie in the socket changes what the
/// peer gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copies {
    /// From that place in the file on.
    From(u64),
    /// As much at its end as the socket holds: when that is sent what came before it is taken, or nearly so, and nobody has to wait for the peer.
    End,
    None,
}

impl Copies {
    /// Bytes that are copied of so many from `offset` on, as far as that is known before they are sent.
    pub fn of(self, offset: u64, length: u64) -> u64 {
        match self {
            Copies::From(place) => length.min((offset + length).saturating_sub(place)),
            Copies::End => length.min(TAIL),
            Copies::None => 0,
        }
    }

    /// So many bytes from `at` to `end` are sent as pages: 0 where copies begin. `tail` tells what the socket holds.
    pub fn pages(self, at: u64, end: u64, tail: impl FnOnce() -> u64) -> u64 {
        let left = end - at;
        match self {
            Copies::From(place) => left.min(place.saturating_sub(at)),
            // Asked for where the next call may come to it.
            Copies::End if left <= TAIL + SENT as u64 => left.saturating_sub(tail()),
            Copies::End | Copies::None => left,
        }
    }
}

/// What was sent of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub count: u64,
    /// So many bytes at its end were copied before.
    pub copied: u64,
}

/// Sends the file from `offset` on: `length` bytes, or fewer where it ends before. A socket that is not given back is closed by a reset: the peer must not
/// take what it has for all. `is_covered`: nothing need be copied for as long as there is the `pledge`.
pub(super) async fn to_peer(
    file: &File,
    mut bare: Bare,
    offset: u64,
    length: Option<u64>,
    (asked, is_covered): (Copies, bool),
    pledge: &mut Pledge,
    bounds: &Bounds,
) -> Result<(Bare, Sent), Error> {
    bare.fill_segments();
    let end = length.map_or(i64::MAX as u64, |length| offset + length);
    let (mut at, mut cached_to, mut asked_to) = (offset, offset, offset);
    let (mut turn, mut by_memory, mut is_advised) = (0, false, false);
    // Nothing that may wait for a disk is done in their task, if it is what mostly does not, but for what is known to lie in memory.
    let others = bounds.are_of_one_among_others();
    let mut advises = false;
    let mut copied = None;
    let (mut copied_from, mut is_full) = (offset, false);
    // From there on, as far as it lies in memory, others send it.
    let mut lent_from = offset;
    while at < end {
        if pledge.is_asked_back() {
            bare.send_rest();
            bounds.unless_aborted(pledge.redeem(&bare)).await?;
            bare.fill_segments();
        }
        let copies = if is_covered && pledge.is_held() { Copies::None } else { asked };
        let soon = end.min(at + SENT as u64);
        if at >= lent_from
            && end - at >= LEAST_LENT
            && !by_memory
            && !file.is_slow()
            && is_cached(&**file, at, soon, STEP)
        {
            let lent = Lent { at, copied: copied.take(), copied_from, is_held_up: false };
            let (before, to) = (at, (soon, end, copies));
            let is_held_up;
            (bare, Lent { at, copied, copied_from, is_held_up }) = lend(file, bare, lent, to, pledge, bounds).await?;
            is_full &= at == before;
            // What comes next is not in memory, or not in the file.
            lent_from = match is_held_up {
                true if others => at + WHILE_HELD_UP,
                true => u64::MAX,
                false => at + SENT as u64,
            };
            continue;
        }
        if !std::mem::replace(&mut is_advised, true) {
            // What waits for more, of a stream before it too, does not wait for a disk.
            bare.send_rest();
            bare.fill_segments();
            match others {
                true => advises = true,
                false => advise(file, offset, length, Advice::Sequential),
            }
        }
        let socket = bare.watch().map_err(|error| of_peer(&error))?;
        let told = match is_full {
            true => {
                let mut room = pin!(bounds.wait(or_asked_back(pledge, socket.room(LOOK_FOR_ROOM))));
                match poll!(&mut room) {
                    Poll::Ready(told) => told?,
                    Poll::Pending => {
                        // Who waits gives way. To do that once more costs another thread its sleep.
                        turn = 0;
                        room.await?
                    }
                }
            }
            false => {
                let ready = async { socket.ready(Interest::WRITABLE).await.map(|_| true) };
                bounds.wait(or_asked_back(pledge, ready)).await?
            }
        };
        let Some(told) = told else {
            bare = Bare::Watched(socket);
            continue;
        };
        let mut left = end - at;
        if copied.is_none() {
            match copies.pages(at, end, || tail(&socket)) {
                0 => (copied, copied_from) = (Some(Copied::default()), at),
                pages => left = pages,
            }
        }
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(SENT);
        let may_be_here = !others && !by_memory && !file.is_slow();
        if at >= cached_to && may_be_here && is_cached(&**file, at, at + want as u64, STEP) {
            cached_to = at + want as u64;
        }
        let is_here = at < cached_to && !others;
        let count = if is_here { want.min((cached_to - at) as usize) } else { want };
        let sent = if is_here {
            send(file, &socket, told, at, count, &mut copied)
        } else {
            let asks = at + AHEAD / 2 > asked_to && !by_memory && !file.is_slow();
            let asks_from = asks.then_some(asked_to.max(at));
            asked_to = asks_from.map_or(asked_to, |from| from + AHEAD);
            let advises = std::mem::take(&mut advises);
            let (file, socket, mut taken) = (file.clone(), socket.clone(), copied.take());
            let send = Answer::blocking(move || {
                if advises {
                    advise(&file, offset, length, Advice::Sequential);
                }
                if let Some(from) = asks_from {
                    advise(&file, from, Some(AHEAD), Advice::WillNeed);
                }
                let sent = send(&file, &socket, told, at, count, &mut taken);
                Ok((sent, taken))
            });
            let (sent, taken) = send.wait().await?;
            copied = taken;
            sent
        };
        bare = Bare::Watched(socket);
        match sent {
            Ok(0) => break,
            Ok(n) => {
                is_full = n < count;
                at += n as u64;
                bounds.moved(n as u64);
                turn += n;
                if turn >= TURN {
                    turn = 0;
                    tokio::task::yield_now().await;
                }
            }
            Err(error) if is_no_matter(&error) => {}
            Err(error) if copied.is_none() && cannot_move(&error) => {
                (by_memory, cached_to) = (true, at);
                (copied, copied_from) = (Some(Copied::default()), at);
            }
            Err(error) => return Err(of_peer(&error)),
        }
    }
    let copied = if copied.is_some() { at - copied_from } else { 0 };
    Ok((bare, Sent { count: at - offset, copied }))
}

/// Advice is free to be refused.
fn advise(file: &File, from: u64, length: Option<u64>, advice: Advice) {
    let _ = fadvise(file.fd(), from, length.and_then(NonZeroU64::new), advice);
}

/// What `ready` brings; `None` when the pledge is asked back before.
pub(super) async fn or_asked_back<T>(
    pledge: &Pledge,
    ready: impl Future<Output = io::Result<T>>,
) -> io::Result<Option<T>> {
    tokio::select! {
        biased;
        () = pledge.asked_back() => Ok(None),
        ready = ready => ready.map(Some),
    }
}

/// Waits until the peer has all that was sent but for the last `copied` bytes. Until then pages of the file lie in the socket, and who changes the
/// file changes what the peer gets of it.
/// `false`: the peer takes nothing now, or the kernel does not say.
pub(super) async fn wait_until_taken(bare: &Bare, copied: u64, bounds: &Bounds) -> Result<bool, Error> {
    let (mut first, mut least, mut since) = (0, None, Instant::now());
    let began = since;
    // Where both ends have ended it the peer has acknowledged our end, which was behind all.
    let Some((local, peer)) = bare.ends() else { return gone(bare).map(|()| true) };
    loop {
        let look = Answer::briefly(move || Ok(sock_diag::untaken(local, peer).ok()));
        // One that it does not know has come to its end: it has nothing left.
        let left = match look.wait().await? {
            None if least.is_none() => return gone(bare).map(|()| false),
            told => told.flatten().unwrap_or(0).saturating_sub(copied),
        };
        if left == 0 {
            // None is left of a connection either that the peer has reset.
            return gone(bare).map(|()| true);
        }
        if least.is_none() {
            first = left;
        }
        if least.is_none_or(|least| left < least) {
            bounds.moved(least.map_or(0, |least| least - left));
            (least, since) = (Some(left), Instant::now());
        } else if since.elapsed() >= STILL {
            return Ok(false);
        }
        let wait = until_next_look(began.elapsed(), since.elapsed(), first.saturating_sub(left), left);
        // What was sent still leaves, with its end: the stream was whole before.
        match bounds.sleep(wait).await {
            Err(error) if error.errno == Errno::ETIMEDOUT => return Ok(false),
            waited => waited?,
        }
    }
}

/// Soon at first, later no more often than is felt, and about when all is taken, if it goes on as since the first look: who waits for that would
/// wait for the rest of a long wait too. While nothing is taken, for longer and longer.
fn until_next_look(elapsed: Duration, still: Duration, taken: u64, left: u64) -> Duration {
    let rest = if taken > 0 { elapsed.mul_f64(left as f64 / taken as f64) } else { elapsed };
    rest.min(elapsed / 4).max(still / 4).clamp(LOOK_FIRST, LOOK_LAST)
}

/// What has become of a connection of which nothing is left.
fn gone(bare: &Bare) -> Result<(), Error> {
    bare.take_error().map_err(|error| of_peer(&error))
}

/// How far a file was sent.
#[derive(Debug)]
pub(super) struct Lent {
    pub at: u64,
    /// From `copied_from` on copies were sent; they are, from now on.
    pub copied: Option<Copied>,
    pub copied_from: u64,
    /// It took so long that somebody waited for a disk.
    pub is_held_up: bool,
}

/// What lies in memory of a part of the file is sent where that costs least.
async fn lend(
    file: &File,
    bare: Bare,
    lent: Lent,
    to: (u64, u64, Copies),
    pledge: &Pledge,
    bounds: &Bounds,
) -> Result<(Bare, Lent), Error> {
    match bare.unwatch().map_err(|error| of_peer(&error))? {
        Ok(tcp) => {
            let (tcp, lent) = bounds.lenders().lend(file, tcp, lent, to, pledge.lease(), bounds).await?;
            Ok((Bare::Unwatched(tcp), lent))
        }
        Err(bare) => Ok((bare, lent)),
    }
}

/// How many bytes a socket holds; none is waited for where it is none of TCP.
fn tail(socket: &Socket) -> u64 {
    if let Socket::Tcp(tcp) = socket { tail_of(tcp) } else { 0 }
}

pub(super) fn tail_of(tcp: impl AsFd) -> u64 {
    socket_send_buffer_size(tcp).map_or(0, |size| (size as u64).min(TAIL))
}

/// Whether it says that the kernel does not move a file's bytes by itself: some of proc(5) and of file systems in programs.
pub(super) fn cannot_move(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Os::from_raw_os_error);
    matches!(error, Some(Os::INVAL | Os::OPNOTSUPP | Os::NOSYS))
}

pub(super) fn is_no_matter(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sends up to `count` bytes of what the file has at `at`: its pages, or what is copied of it. A socket that takes fewer is ready again when it has room;
/// `told`: it told that it is.
fn send(
    file: &File,
    socket: &Socket,
    told: bool,
    at: u64,
    count: usize,
    copied: &mut Option<Copied>,
) -> io::Result<usize> {
    let mut sent = 0;
    let result = socket.try_write(told, |socket| send_some(file, socket, at, count, copied, &mut sent));
    // What failed behind that fails again, if not by the same number: the peer is gone.
    if sent > 0 { Ok(sent) } else { result.map(|()| 0) }
}

/// The same of a socket that has room; `sent` is how many, whatever the result. EAGAIN: it takes no more now.
pub(super) fn send_some(
    file: &File,
    socket: BorrowedFd<'_>,
    at: u64,
    count: usize,
    copied: &mut Option<Copied>,
    sent: &mut usize,
) -> io::Result<()> {
    match copied {
        Some(copied) => copied.send(file.fd(), socket, at, count, sent),
        None => {
            *sent = sendfile(socket, file.fd(), Some(&mut { at }), count)?;
            if *sent > 0 && *sent < count { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }
    }
}

/// Whether reading need not wait, as far as a few bytes tell, one in each `step`: sendfile(2) has no flag that forbids waiting.
pub(super) fn is_cached(file: &dyn Descriptor, from: u64, to: u64, step: u64) -> bool {
    if file.is_in_memory() {
        return true;
    }
    let has = |at: u64| preadv2(file.fd(), &mut [IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT).is_ok();
    let any = (from..to).step_by(step as usize).map(|at| at + fastrand::u64(..step.min(to - at)));
    any.chain([from, to - 1]).all(has)
}

/// Reserves blocks for a stream whose length is known, so that they lie together. It is no more than a help: where the disk has
/// little more room than that, or what is written takes less, as holes and what is there already do, the writes tell.
/// If the stream fails the blocks stay the file's until that is cut or removed: to punch them out might take away what
/// another has written there meanwhile. In memory nothing lies together, and each page would be made while the peer waits (200 MB: 38 ms).
async fn reserve(file: &File, offset: u64, length: u64) -> Result<(), Error> {
    if length < RESERVED || file.is_in_memory() {
        return Ok(());
    }
    let file = file.clone();
    let reserve = move || {
        file.as_user(&mut || {
            while has_room(&file, length)
                && fallocate(file.fd(), FallocateFlags::KEEP_SIZE, offset, length) == Err(Os::INTR)
            {}
            Ok(())
        })
    };
    Answer::blocking(reserve).wait().await
}

/// Whether the disk has so many bytes for this user, and some for others.
fn has_room(file: &File, length: u64) -> bool {
    fstatvfs(file.fd()).is_ok_and(|disk| {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        length <= free - free / LEFT_FREE
    })
}

/// What a turn brought.
struct Turn {
    moved: usize,
    /// Nothing more is there now.
    is_dry: bool,
    /// The peer has ended its direction.
    is_over: bool,
    /// The kernel does not move the file's bytes: the next turns go through memory.
    by_memory: bool,
}

impl Turn {
    fn new() -> Turn {
        Turn { moved: 0, is_dry: false, is_over: false, by_memory: false }
    }
}

/// Writes to the file, from `offset` on, what comes: `length` bytes, or until the peer ends. Answers how many.
pub(super) async fn from_peer(
    file: &File,
    socket: &Arc<Socket>,
    offset: u64,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<u64, Error> {
    if let Some(length) = length {
        if let Socket::Tcp(tcp) = &**socket
            && length >= LONG
            && bounds.streams() <= OPEN
        {
            open_window(tcp, length);
        }
        reserve(file, offset, length).await?;
    }
    take_all(file, socket, offset, length, bounds).await
}

async fn take_all(
    file: &File,
    socket: &Arc<Socket>,
    offset: u64,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<u64, Error> {
    let end = length.map_or(i64::MAX as u64, |length| offset + length);
    let (mut at, mut by_memory) = (offset, false);
    let mut mark = Mark::new(socket);
    while at < end {
        let told = bounds.wait(mark.ready()).await?;
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(WRITTEN);
        let turn = {
            let (file, socket) = (file.clone(), socket.clone());
            move || {
                let turn = Cell::new(None);
                file.as_user(&mut || {
                    turn.set(Some(take(&file, (&socket, told), at, want, by_memory)?));
                    Ok(())
                })?;
                turn.take().ok_or_else(|| Error::new(Errno::EIO))
            }
        };
        let turn = match &**file {
            file if file.is_slow() => Answer::blocking(turn),
            file if file.is_in_memory() => Answer::Now(turn()),
            _ => Answer::briefly(turn),
        };
        let Turn { moved, is_dry, is_over, by_memory: cannot_move } = turn.wait().await?;
        at += moved as u64;
        bounds.moved(moved as u64);
        by_memory |= cannot_move;
        if is_over {
            return if length.is_some() && at < end { Err(cut_short()) } else { Ok(at - offset) };
        }
        mark.came(moved as u64, is_dry, end - at).map_err(|error| of_peer(&error))?;
        let is_near_its_end = length.is_some() && end - at < RESERVED;
        if is_dry && moved < FEW && !is_near_its_end && !mark.is_set() {
            tokio::time::sleep(PAUSE).await;
        } else if is_dry {
            // Who waits for more gives way by that, unless it is there already each time.
            tokio::task::coop::consume_budget().await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    // More than the file holds: an offset beyond i64::MAX is none.
    if length.is_none() { Err(Errno::EFBIG.into()) } else { Ok(at - offset) }
}

/// One turn, with nothing left between the socket and the file. `told`: the socket told that it has something.
fn take(file: &File, (socket, told): (&Socket, bool), at: u64, want: usize, by_memory: bool) -> Result<Turn, Error> {
    let socket = (socket, told);
    match PipeShare::default().take() {
        _ if by_memory => take_copied(file, socket, at, want),
        Some(pipe) => take_piped(file, socket, at, want, pipe),
        None => take_copied(file, socket, at, want),
    }
}

fn take_piped(
    file: &File,
    (socket, told): (&Socket, bool),
    at: u64,
    want: usize,
    mut pipe: Piped,
) -> Result<Turn, Error> {
    let mut turn = Turn::new();
    while turn.moved < want && !turn.by_memory {
        match socket.try_read(told, |fd| Ok(pipe.receive(fd, want - turn.moved)?)) {
            Ok(0) => {
                turn.is_over = true;
                break;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                turn.is_dry = true;
                break;
            }
            Err(error) if cannot_move(&error) => {
                turn.by_memory = true;
                break;
            }
            Err(error) => return Err(of_peer(&error)),
        }
        while pipe.len() > 0 {
            match pipe.store(file.fd(), at + turn.moved as u64) {
                Ok(0) => return Err(Errno::EIO.into()),
                Ok(n) => turn.moved += n,
                Err(Os::INTR) => {}
                Err(error) if cannot_move(&error.into()) => {
                    turn.by_memory = true;
                    turn.moved += empty(&mut pipe, file, at + turn.moved as u64)?;
                }
                Err(error) => return Err(os(error)),
            }
        }
    }
    Ok(turn)
}

/// Writes what is in the pipe through memory; how much that was.
fn empty(pipe: &mut Piped, file: &File, at: u64) -> Result<usize, Error> {
    let (mut buffer, mut moved) = (vec![0; pipe.len().min(BUFFER)], 0);
    while pipe.len() > 0 {
        match pipe.read(&mut buffer) {
            Ok(0) => return Err(Errno::EIO.into()),
            Ok(n) => {
                write_all(file, &buffer[..n], at + moved as u64)?;
                moved += n;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(of_peer(&error)),
        }
    }
    Ok(moved)
}

fn write_all(file: &File, bytes: &[u8], at: u64) -> Result<(), Error> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(file.fd(), &bytes[written..], at + written as u64) {
            Ok(0) => return Err(Errno::EIO.into()),
            Ok(more) => written += more,
            Err(Os::INTR) => {}
            Err(error) => return Err(os(error)),
        }
    }
    Ok(())
}

/// The same through memory.
fn take_copied(file: &File, (socket, told): (&Socket, bool), at: u64, want: usize) -> Result<Turn, Error> {
    let mut turn = Turn::new();
    let mut buffer = vec![0; want.min(BUFFER)];
    while turn.moved < want {
        let most = buffer.len().min(want - turn.moved);
        let n = match socket.try_read(told, |fd| Ok(read(fd, &mut buffer[..most])?)) {
            Ok(0) => {
                turn.is_over = true;
                break;
            }
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                turn.is_dry = true;
                break;
            }
            Err(error) => return Err(of_peer(&error)),
        };
        write_all(file, &buffer[..n], at + turn.moved as u64)?;
        turn.moved += n;
    }
    Ok(turn)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::super::plain::Plain;
    use super::*;
    use crate::server::Server;
    use crate::server::alarm::Alarm;

    #[tokio::test]
    async fn what_a_thread_gives_back_because_it_took_long_is_not_sent_in_a_task_that_has_others() {
        // More than a task sends by itself.
        const LENGTH: usize = 24 << 20;
        let server = Server::builder().build();
        for alarm in [None, Some(Arc::new(Alarm::default()))] {
            let file = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let file = std::fs::File::from(file);
            file.set_len(LENGTH as u64).unwrap();
            // It is said to lie in memory, and its first reading takes long all the same.
            let asked_by: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
            let threads = asked_by.clone();
            let asked = move || {
                let is_first = {
                    let mut threads = threads.lock().unwrap();
                    threads.push(thread::current().id());
                    threads.len() == 1
                };
                if is_first {
                    thread::sleep(Duration::from_millis(40));
                }
            };
            let sticks = Plain::new(file).in_memory().asked(asked);
            let bounds = Bounds::new(CancellationToken::new(), server.clone()).among(alarm.as_ref());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
            let (bare, mut far) = (Bare::Watched(Arc::new(Socket::Tcp(near.unwrap()))), far.unwrap().0);
            let (file, mut pledge): (File, _) = (Arc::new(sticks), Pledge::default());
            let how = (Copies::None, false);
            let sends = to_peer(&file, bare, 0, Some(LENGTH as u64), how, &mut pledge, &bounds);
            let takes = async {
                let mut came = vec![1; LENGTH];
                far.read_exact(&mut came).await.unwrap();
                assert!(came.iter().all(|byte| *byte == 0));
            };
            let (sent, ()) = tokio::join!(sends, takes);
            assert_eq!(sent.unwrap().1.count, LENGTH as u64);
            let threads = asked_by.lock().unwrap();
            assert_ne!(threads[0], thread::current().id(), "it was lent");
            let here = threads.iter().filter(|one| **one == thread::current().id()).count();
            // Advice is one.
            assert!(if alarm.is_none() { here > 2 } else { here == 0 }, "{here}");
        }
    }

    #[test]
    fn pages_are_what_comes_before_copies() {
        let unknown = || -> u64 { panic!("the socket was asked") };
        assert_eq!(Copies::None.pages(10, 100, unknown), 90);
        assert_eq!([10, 59, 60, 99].map(|at| Copies::From(60).pages(at, 100, unknown)), [50, 1, 0, 0]);
        assert_eq!(
            [Copies::From(0), Copies::From(10), Copies::From(200)].map(|c| c.pages(10, 100, unknown)),
            [0, 0, 90]
        );
        let far = TAIL + SENT as u64 + 1;
        assert_eq!(Copies::End.pages(0, far, unknown), far);
        assert_eq!([0, 30, 90, 91].map(|tail| Copies::End.pages(10, 100, || tail)), [90, 60, 0, 0]);
    }

    #[test]
    fn the_last_look_is_about_when_all_is_taken() {
        let ms = Duration::from_millis;
        // Nothing is known of the rate, then much is left, then little.
        assert_eq!(until_next_look(ms(1), ms(0), 0, 4000), LOOK_FIRST);
        assert_eq!(until_next_look(ms(40), ms(0), 0, 4000), ms(10));
        assert_eq!(until_next_look(ms(40), ms(0), 1000, 3000), ms(10));
        assert_eq!(until_next_look(ms(40), ms(0), 3600, 400).as_millis(), 4);
        assert_eq!(until_next_look(ms(40), ms(0), 3999, 1), LOOK_FIRST);
        assert_eq!(until_next_look(ms(400_000), ms(0), 1, u64::from(u32::MAX)), LOOK_LAST);
    }

    #[test]
    fn a_peer_that_takes_nothing_more_is_looked_at_less_and_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(until_next_look(ms(40), ms(20), 3999, 1), ms(5));
        assert_eq!(until_next_look(ms(1020), ms(1000), 3999, 1), LOOK_LAST);
    }
}
