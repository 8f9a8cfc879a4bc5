//! Pages of files that lie in memory, sent by threads that do nothing else: sendfile(2) to each socket that has room.
//!
//! A task of the runtime can do the same, and does where reading may have to wait ([`moving`](super::moving)). But each time a socket has room again
//! the processor has done other things meanwhile, and what it takes to wake a worker, and the task on it, has left its caches: that took
//! as long again as to send. What one of these threads does fits into a few pages of code, and it wakes once for all sockets that have room.
//!
//! What is short is [sent by the task](super::at_hand) itself, as far as its socket has room.
//!
//! What has come to its end is told together with what does soon: to be woken costs the runtime more than to hear of one end more, and what was given to a socket last takes a
//! while to leave it.
//!
//! Whether a page lies in memory is asked here and there only, so that a thread may have to wait for a disk all the same. A stream whose turn took long goes back
//! to its task for good, or for long where that has others, and a thread that is held up gets no others meanwhile.
//!
//! The list of threads is locked before one's inbox, where both are.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ninefold_proto::{Errno, Error};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno as Os, read, write};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, recv};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::at_hand::AtHand;
use super::copied::Copied;
use super::descriptor::Descriptor;
use super::kernel_lease::KernelLease;
use super::life::{Bounds, of_peer};
use super::moving::{Copies, Lent, SENT, STEP, TURN, cannot_move, is_cached, is_no_matter, send_some, tail_of};
use super::returns::Returns;
use super::send_buffer::Leaves;
use super::untold::{Patience, Untold};

/// Bytes that are worth handing a socket over and back: some milliseconds of a fast link.
pub(super) const LEAST: u64 = 256 * 1024;

/// Processors for each thread: one sends what several links take.
const FOR_EACH: usize = 2;

/// Threads at most.
const MOST: usize = 8;

/// The number of what wakes a thread; jobs have others.
const WAKE: u64 = u64::MAX;

/// Events that are taken at a time.
const EVENTS: usize = 64;

/// A turn in which nothing was waited for takes less, on a busy machine too.
const SHORT: Duration = Duration::from_millis(20);

/// A thread whose turn takes so long is held up.
const HELD_UP: Duration = Duration::from_millis(50);

/// Turns one behind another in which a socket that says that it has room takes nothing, behind which somebody else is to find out why.
const VAIN: u8 = 2;

/// The threads, as far as there are any. Dropping it ends them, and what they have.
#[derive(Debug, Default)]
pub(super) struct Lenders {
    threads: Mutex<Vec<Arc<Lender>>>,
    returns: Arc<Returns<Done>>,
    at_hand: AtHand,
}

/// What is asked of one thread.
#[derive(Debug)]
struct Lender {
    wake: OwnedFd,
    inbox: Mutex<Inbox>,
    returns: Arc<Returns<Done>>,
    /// Jobs that it has, or will have.
    jobs: AtomicUsize,
    /// When its turn began, in milliseconds since some time; 0 while it has none.
    turn_began: AtomicU64,
}

#[derive(Debug, Default)]
struct Inbox {
    jobs: Vec<Job>,
    is_closed: bool,
}

/// A part of a file on its way to a socket.
struct Job {
    file: Arc<dyn Descriptor>,
    socket: TcpStream,
    lent: Lent,
    end: u64,
    copies: Copies,
    /// Of what lies in the socket: asked for it, who waits is to see to that first.
    lease: Option<Arc<KernelLease>>,
    /// Up to there it lies in memory.
    cached_to: u64,
    /// Turns one behind another in which nothing was sent.
    vain: u8,
    told: Arc<Told>,
    done: oneshot::Sender<Done>,
    /// A task of the runtime tells it, not the thread.
    is_handed_out: bool,
    /// Where files are closed that nobody waits for.
    runtime: Handle,
    _counted: Counted,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("at", &self.lent.at).field("end", &self.end).finish_non_exhaustive()
    }
}

/// What a job and who waits for it tell each other.
#[derive(Debug, Default)]
struct Told {
    /// Bytes that were sent.
    moved: AtomicU64,
    /// Nobody waits any more.
    is_given_up: AtomicBool,
}

/// What became of a job: the socket and how far it came, or what went wrong.
type Done = Result<(TcpStream, Lent), Error>;

/// One of a thread's jobs, until it is dropped.
struct Counted(Arc<Lender>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives a job up when nobody waits for it any more.
struct Waiting {
    told: Arc<Told>,
    lender: Arc<Lender>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.told.is_given_up.swap(true, Ordering::Relaxed) {
            return;
        }
        // A thread that is held up has not even looked at it.
        let unseen: Vec<Job> = {
            let mut inbox = self.lender.inbox();
            inbox.jobs.extract_if(.., |job| Arc::ptr_eq(&job.told, &self.told)).collect()
        };
        drop(unseen);
        // Nor does one that waits to be told.
        self.lender.returns.hand_out();
        self.lender.wake();
    }
}

/// Milliseconds since some time, and not 0.
fn now() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed().as_millis() as u64 + 1
}

impl Lender {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Any number but 0. It fails where so many are unheard that one will be heard.
        let _ = write(&self.wake, &1u64.to_le_bytes());
    }

    fn jobs(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }

    fn is_held_up(&self) -> bool {
        match self.turn_began.load(Ordering::Relaxed) {
            0 => false,
            began => u128::from(now().saturating_sub(began)) >= HELD_UP.as_millis(),
        }
    }
}

impl Drop for Lenders {
    fn drop(&mut self) {
        for lender in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner) {
            lender.inbox().is_closed = true;
            lender.wake();
        }
    }
}

/// However a thread ends, nobody waits for what it has no more.
struct Ends<'a>(&'a Lender);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let jobs = {
            let mut inbox = self.0.inbox();
            inbox.is_closed = true;
            std::mem::take(&mut inbox.jobs)
        };
        drop(jobs);
    }
}

impl Lenders {
    /// Sends what is left of the file up to `end`, by a thread, or [at once](AtHand) where that is little, as long as it lies in memory, as it is known to do up to `cached_to`. Gives the socket back, and how far it
    /// came: to the end, or where what comes next does not lie in memory, is not in the file, or is not moved by the kernel.
    pub async fn lend(
        &self,
        file: &Arc<dyn Descriptor>,
        socket: TcpStream,
        lent: Lent,
        (cached_to, end, copies): (u64, u64, Copies),
        lease: Option<Arc<KernelLease>>,
        bounds: &Bounds,
    ) -> Result<(TcpStream, Lent), Error> {
        let Some(counted) = self.lender() else { return Ok((socket, lent)) };
        let is_handed_out = self.returns.begin();
        let lender = counted.0.clone();
        let told = Arc::new(Told::default());
        let (done, mut ended) = oneshot::channel();
        let copied = if lent.copied.is_some() { Copies::From(lent.at) } else { copies };
        let at_hand = self.at_hand.begin(&**file, lent.at, end, copied);
        let mut job = Job {
            file: file.clone(),
            socket,
            lent,
            end,
            copies,
            lease,
            cached_to,
            vain: 0,
            told: told.clone(),
            done,
            is_handed_out,
            runtime: Handle::current(),
            _counted: counted,
        };
        if let Some(sending) = at_hand {
            let ended = job.send_at_hand();
            drop(sending);
            bounds.moved(job.told.moved.swap(0, Ordering::Relaxed));
            if let Some(result) = ended {
                return result.map(|()| (job.socket, job.lent));
            }
        }
        let refused = {
            let mut inbox = lender.inbox();
            if inbox.is_closed {
                Some(job)
            } else {
                inbox.jobs.push(job);
                None
            }
        };
        if let Some(Job { socket, lent, .. }) = refused {
            return Ok((socket, lent));
        }
        lender.wake();
        let waiting = Waiting { told, lender };
        let moved = || {
            // It may have what others wait for.
            if waiting.lender.is_held_up() {
                waiting.lender.returns.hand_out();
            }
            waiting.told.moved.swap(0, Ordering::Relaxed)
        };
        let ended = match bounds.wait_moving(moved, &mut ended).await {
            Ok(ended) => ended,
            Err(error) => {
                // The stream has not ended before its connection has, if the thread is not held up.
                drop(waiting);
                let _ = timeout(HELD_UP, ended).await;
                return Err(error);
            }
        };
        waiting.told.is_given_up.store(true, Ordering::Relaxed);
        ended.map_err(|_| Error::with_text(Errno::EIO, "what sent the stream has ended"))?
    }

    /// Has the threads look for leases that were asked back.
    pub fn ask_back(&self) {
        for lender in &*self.threads.lock().unwrap_or_else(PoisonError::into_inner) {
            lender.wake();
        }
        // What their ends wait for, too, whatever the threads do now.
        self.returns.hand_out();
    }

    /// The thread that has least to do, with the job that it is going to have counted; `None` where all are held up, or none can be started.
    fn lender(&self) -> Option<Counted> {
        // To find that out takes a dozen files.
        static PROCESSORS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|lender| !lender.inbox().is_closed);
        let has_idle = threads.iter().any(|lender| lender.jobs() == 0 && !lender.is_held_up());
        if !has_idle && threads.len() < (*PROCESSORS / FOR_EACH).clamp(1, MOST) {
            match start(self.returns.clone()) {
                Ok(lender) => threads.push(lender),
                Err(error) => tracing::debug!(%error, "no thread for streams could be started"),
            }
        }
        if threads.iter().any(|lender| lender.is_held_up()) {
            // It may have what others wait for.
            self.returns.hand_out();
        }
        let least = threads.iter().filter(|lender| !lender.is_held_up()).min_by_key(|lender| lender.jobs())?;
        least.jobs.fetch_add(1, Ordering::Relaxed);
        Some(Counted(least.clone()))
    }
}

fn start(returns: Arc<Returns<Done>>) -> io::Result<Arc<Lender>> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    epoll::add(&poll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
    let (inbox, jobs, turn_began) = (Mutex::default(), AtomicUsize::new(0), AtomicU64::new(0));
    let lender = Arc::new(Lender { wake, inbox, returns, jobs, turn_began });
    let for_thread = lender.clone();
    thread::Builder::new().name("ninefold-lends".to_owned()).spawn(move || run(&poll, &for_thread))?;
    Ok(lender)
}

/// The thread: until its server is gone.
fn run(poll: &OwnedFd, lender: &Lender) {
    let _ends = Ends(lender);
    let mut untold = Untold::new(lender.returns.clone());
    let mut jobs: HashMap<u64, Job> = HashMap::new();
    let mut next = 0;
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        let wait = untold.wait(jobs.is_empty());
        match epoll::wait(poll, spare_capacity(&mut events), wait.as_ref()) {
            Ok(_) | Err(Os::INTR) => {}
            // It goes with its jobs, whose streams end in an error.
            Err(error) => return tracing::error!(%error, "a thread for streams cannot go on"),
        }
        for event in &events {
            let number = event.data.u64();
            if number == WAKE {
                let _ = read(&lender.wake, &mut [0; 8]);
                let new = {
                    let mut inbox = lender.inbox();
                    if inbox.is_closed {
                        return;
                    }
                    std::mem::take(&mut inbox.jobs)
                };
                for (_, job) in jobs.extract_if(|_, job| job.is_given_up()) {
                    job.leave(poll, &mut untold, None);
                }
                for (_, job) in jobs.extract_if(|_, job| job.is_asked_back()) {
                    job.leave(poll, &mut untold, Some(Ok(())));
                }
                for job in new {
                    if job.is_asked_back() {
                        // That may have been told before it was here.
                        job.end(&mut untold, Ok(()));
                        continue;
                    }
                    let out = epoll::EventFlags::OUT;
                    match epoll::add(poll, &job.socket, epoll::EventData::new_u64(next), out) {
                        Ok(()) => drop(jobs.insert(next, job)),
                        // Who waits goes on by himself.
                        Err(_) => job.end(&mut untold, Ok(())),
                    }
                    next += 1;
                }
                // Among those that wait to be told are some that are asked back.
                untold.tell();
            } else if let Some(job) = jobs.get_mut(&number) {
                // A turn may take long.
                untold.before_turn();
                lender.turn_began.store(now(), Ordering::Relaxed);
                let ended = job.turn();
                lender.turn_began.store(0, Ordering::Relaxed);
                if ended.is_some()
                    && let Some(job) = jobs.remove(&number)
                {
                    job.leave(poll, &mut untold, ended);
                }
            }
        }
    }
}

impl Job {
    fn is_given_up(&self) -> bool {
        self.told.is_given_up.load(Ordering::Relaxed)
    }

    fn is_asked_back(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_asked_back())
    }

    /// Sends until the socket has no room, or so much that others have their turn: `None`. Else it is done.
    fn turn(&mut self) -> Option<Result<(), Error>> {
        let (began, from) = (Instant::now(), self.lent.at);
        // A file server's failure is none of the others'.
        let ended = catch_unwind(AssertUnwindSafe(|| self.send()));
        let ended = ended.unwrap_or_else(|_| Some(Err(Error::with_text(Errno::EIO, "file server failed"))));
        self.vain = if self.lent.at > from { 0 } else { self.vain + 1 };
        // Until the next one what lies in memory may have left it.
        self.cached_to = self.lent.at;
        if began.elapsed() > SHORT {
            self.lent.is_held_up = true;
        }
        let goes_back = self.lent.is_held_up || self.vain >= VAIN;
        ended.or_else(|| goes_back.then_some(Ok(())))
    }

    /// Turn by turn until the socket has no room: `None`.
    fn send_at_hand(&mut self) -> Option<Result<(), Error>> {
        loop {
            let before = self.lent.at;
            // It was asked for all of it.
            self.cached_to = self.end;
            if let Some(ended) = self.turn() {
                return Some(ended);
            }
            if self.lent.at - before < TURN as u64 {
                // That it took nothing is no wonder: it had not said that it has room.
                self.vain = 0;
                return None;
            }
        }
    }

    fn send(&mut self) -> Option<Result<(), Error>> {
        let mut turn = 0;
        while self.lent.at < self.end && turn < TURN && !self.is_given_up() {
            if self.is_asked_back() {
                return Some(Ok(()));
            }
            let at = self.lent.at;
            if at >= self.cached_to {
                let to = self.end.min(at + SENT as u64);
                if !is_cached(&*self.file, at, to, STEP) {
                    return Some(Ok(()));
                }
                self.cached_to = to;
            }
            let mut count = (self.cached_to - at).min(SENT as u64) as usize;
            if self.lent.copied.is_none() {
                match self.copies.pages(at, self.end, || tail_of(&self.socket)) {
                    0 => (self.lent.copied, self.lent.copied_from) = (Some(Copied::default()), at),
                    pages => count = count.min(usize::try_from(pages).unwrap_or(usize::MAX)),
                }
            }
            let mut sent = 0;
            let result = send_some(&self.file, self.socket.as_fd(), at, count, &mut self.lent.copied, &mut sent);
            self.lent.at += sent as u64;
            self.told.moved.fetch_add(sent as u64, Ordering::Relaxed);
            turn += sent;
            match result {
                // The file has no more.
                Ok(()) if sent == 0 => return Some(Ok(())),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if is_no_matter(&error) => {}
                // Who waits sees whether the kernel does not move this file.
                Err(error) if cannot_move(&error) => return Some(Ok(())),
                Err(error) => return Some(Err(of_peer(&error))),
            }
        }
        (self.lent.at == self.end).then_some(Ok(()))
    }

    /// The thread has it no more. Without `ended` nobody waits for it.
    fn leave(self, poll: &OwnedFd, untold: &mut Untold<Done>, ended: Option<Result<(), Error>>) {
        // Where a copy of the descriptor is left, its close alone would leave it to be told of for ever.
        let _ = epoll::delete(poll, &self.socket);
        match ended {
            Some(result) if !self.is_given_up() => self.end(untold, result),
            _ => {
                let Job { file, socket, lease, runtime, .. } = self;
                drop(socket);
                // Not behind those who wait for it.
                drop(lease);
                // The last close of a file that was removed may take long.
                drop(runtime.spawn_blocking(move || drop(file)));
            }
        }
    }

    /// How long who waits for it need not hear of its end: not at all where anything is to be done by then. An error is the connection's.
    fn patience(&self, leaves: impl FnOnce(BorrowedFd<'_>) -> io::Result<Leaves>) -> Result<Patience, Error> {
        let is_over = self.lent.at == self.end && !self.lent.is_held_up && !self.is_asked_back();
        if !is_over || !self.is_handed_out {
            return Ok(Patience::NONE);
        }
        let goes_on = match recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Err(Os::AGAIN | Os::INTR) => false,
            // Its peer has ended it.
            Ok((0, _)) => return Ok(Patience::NONE),
            // Another stream's token.
            Ok(_) => true,
            Err(error) => return Err(of_peer(&error.into())),
        };
        let patience = leaves(self.socket.as_fd()).map_or(Patience::NONE, |leaves| Patience::of(&leaves, goes_on));
        if patience != Patience::NONE {
            // What waits to fill a segment does not wait for who is told.
            let _ = set_tcp_nodelay(&self.socket, true);
        }
        Ok(patience)
    }

    fn end(self, untold: &mut Untold<Done>, result: Result<(), Error>) {
        let (result, patience) = match result.and_then(|()| self.patience(Leaves::of)) {
            Ok(patience) => (Ok(()), patience),
            Err(error) => (Err(error), Patience::NONE),
        };
        let Job { file, socket, lent, lease, done, is_handed_out, .. } = self;
        // Before it is told: who waits has others, and closes the last one where that may take long.
        drop((file, lease));
        let result = result.map(|()| (socket, lent));
        // Where nobody waits the socket is closed, by a reset as it was set before.
        match is_handed_out {
            true => untold.put(done, result, patience),
            false => drop(done.send(result)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::task::Poll;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::super::moving::TAIL;
    use super::super::plain::Plain;
    use super::*;
    use crate::server::{Server, StreamLimits};

    #[tokio::test]
    async fn an_end_that_waits_is_told_when_another_gives_up_or_a_lease_is_asked_back() {
        const LONG: Patience = Patience { time: Duration::from_secs(3600), is_waited_for: false };
        let lenders = Lenders::default();
        assert!(lenders.returns.begin());
        let lender = lenders.lender().unwrap().0.clone();
        let mut untold = Untold::new(lender.returns.clone());
        let mut end = || {
            let (to, gets) = oneshot::channel();
            untold.put(to, Err(Errno::EIO.into()), LONG);
            gets
        };
        let mut gives_up = end();
        assert!(gives_up.try_recv().is_err());
        drop(Waiting { told: Arc::default(), lender: lender.clone() });
        assert!(gives_up.try_recv().unwrap().is_err());
        let mut asked_back = end();
        lenders.ask_back();
        assert!(asked_back.try_recv().unwrap().is_err());
        // Who waits no more for what has ended holds nobody up.
        let mut later = end();
        drop(Waiting { told: Arc::new(Told { is_given_up: true.into(), ..Told::default() }), lender: lender.clone() });
        assert!(later.try_recv().is_err());
    }

    #[tokio::test]
    async fn an_end_whose_thread_is_held_up_is_told_when_somebody_asks_for_a_thread_or_looks_what_moves() {
        let server = server(Duration::from_secs(24));
        let lenders = &server.streams.lenders;
        assert!(lenders.returns.begin());
        let lender = lenders.lender().unwrap().0.clone();
        let held_up = |is: bool| lender.turn_began.store(u64::from(is), Ordering::Relaxed);
        let end = || {
            let (to, gets) = oneshot::channel();
            lenders.returns.put(to, Err(Errno::EIO.into()));
            gets
        };
        // So that its beginning was long ago.
        now();
        tokio::time::sleep(HELD_UP).await;
        let mut first = end();
        drop(lenders.lender());
        assert!(first.try_recv().is_err());
        held_up(true);
        drop(lenders.lender());
        assert!(first.try_recv().unwrap().is_err());
        held_up(false);

        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        // Who takes nothing.
        let (near, _far) = pair().await;
        let file = file();
        let mut lend = Box::pin(lenders.lend(&file, near, from(0), (0, LENGTH as u64, Copies::None), None, &bounds));
        assert!(timeout(Duration::from_millis(20), lend.as_mut()).await.is_err());
        let mut second = end();
        let told = async {
            // It may just end a turn.
            while timeout(Duration::from_millis(20), &mut second).await.is_err() {
                held_up(true);
            }
        };
        tokio::select! {
            told = timeout(SOON, told) => told.expect("the end"),
            _ = lend.as_mut() => panic!("nothing moves"),
        }
        held_up(false);
    }

    #[tokio::test]
    async fn an_end_can_wait_for_a_part_of_a_round_trip_or_of_what_is_left_where_nothing_is_to_be_done() {
        let millis = Duration::from_millis;
        let leaves = |trip, rest| move |_: BorrowedFd<'_>| Ok(Leaves { trip: millis(trip), rest: millis(rest) });
        let far = |ms| leaves(ms, 0);
        let (lenders, file) = (Lenders::default(), file());
        let job = async |at, is_handed_out| {
            let (socket, far) = pair().await;
            let (done, _) = oneshot::channel();
            let _counted = lenders.lender().unwrap();
            let (file, told, runtime) = (file.clone(), Arc::default(), Handle::current());
            let (lent, copies, lease) = (from(at), Copies::None, None);
            let (end, cached_to, vain) = (10, at, 0);
            (
                Job {
                    file,
                    socket,
                    lent,
                    end,
                    copies,
                    lease,
                    cached_to,
                    vain,
                    told,
                    done,
                    is_handed_out,
                    runtime,
                    _counted,
                },
                far,
            )
        };
        let (over, mut peer) = job(10, true).await;
        for (trip, patience) in [(0, 0), (7, 0), (8, 2), (40, 10), (80, 20), (500, 20)] {
            assert_eq!(over.patience(far(trip)).unwrap().time, millis(patience), "{trip}");
        }
        for (rest, patience) in [(3, 2), (4, 2), (30, 15), (900, 20)] {
            assert_eq!(over.patience(leaves(8, rest)).unwrap().time, millis(patience), "{rest}");
        }
        assert_eq!(over.patience(|_| Err(Os::INVAL.into())).unwrap().time, Duration::ZERO);
        // It is short of its end, or nobody hands it out, or it took long.
        assert_eq!(job(9, true).await.0.patience(far(40)).unwrap().time, Duration::ZERO);
        assert_eq!(job(10, false).await.0.patience(far(40)).unwrap().time, Duration::ZERO);
        let (mut slow, _peer) = job(10, true).await;
        slow.lent.is_held_up = true;
        assert_eq!(slow.patience(far(40)).unwrap().time, Duration::ZERO);
        // Another stream's token has come, which waits for what is before it only, or the peer's end, or a reset.
        peer.write_all(b"t").await.unwrap();
        until(|| over.patience(far(40)).unwrap().time.is_zero()).await;
        assert_eq!(over.patience(leaves(40, 30)).unwrap(), Patience { time: millis(15), is_waited_for: true });
        let (ended, peer) = job(10, true).await;
        drop(peer);
        until(|| ended.patience(leaves(40, 30)).unwrap().time.is_zero()).await;
        let (reset, peer) = job(10, true).await;
        let peer = peer.into_std().unwrap();
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        until(|| reset.patience(far(40)).is_err_and(|error| error.errno == Errno::ECONNRESET)).await;
    }

    /// What a packet brings is here at once, but for the kernel's own threads.
    async fn until(is: impl Fn() -> bool) {
        let comes = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, comes).await.expect("it to come");
    }

    /// More than a socket and its peer's hold: tcp(7), tcp_wmem and tcp_rmem.
    const LENGTH: usize = 64 << 20;

    /// The bound of what ought to come soon.
    const SOON: Duration = Duration::from_secs(60);

    fn content() -> Vec<u8> {
        (0..LENGTH / 4).flat_map(|n| (n as u32).to_le_bytes()).collect()
    }

    fn file() -> Arc<dyn Descriptor> {
        file_for(usize::MAX)
    }

    /// One that lies in memory for so many questions.
    fn file_for(questions: usize) -> Arc<dyn Descriptor> {
        // tmpfs has no way to ask it whether it would wait.
        let file = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(file);
        file.write_all_at(&content(), 0).unwrap();
        let left = AtomicUsize::new(questions);
        let is_left =
            move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        Arc::new(Plain::new(file).in_memory_while(is_left))
    }

    async fn pair() -> (TcpStream, tokio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap().into_std().unwrap(), far.unwrap().0)
    }

    fn server(idle: Duration) -> Arc<Server> {
        Server::builder().streams(StreamLimits { idle, ..StreamLimits::default() }).build()
    }

    fn from(at: u64) -> Lent {
        Lent { at, copied: None, copied_from: at, is_held_up: false }
    }

    fn jobs(server: &Server) -> usize {
        server.streams.lenders.threads.lock().unwrap().iter().map(|lender| lender.jobs()).sum()
    }

    #[tokio::test]
    async fn what_lies_in_memory_comes_to_many_peers_and_their_sockets_come_back() {
        let server = server(SOON);
        let (file, content) = (file(), content());
        let one = async |number: usize| {
            let bounds = Bounds::new(CancellationToken::new(), server.clone());
            let (near, mut far) = pair().await;
            // One asks for more than there is, one for copies at the end.
            let (begin, end) = (number * 1_000_003, if number == 0 { i64::MAX as usize } else { LENGTH - number });
            let to = (begin as u64, end as u64, if number == 1 { Copies::End } else { Copies::None });
            let lend = server.streams.lenders.lend(&file, near, from(begin as u64), to, None, &bounds);
            let take = async {
                let mut came = vec![0; end.min(LENGTH) - begin];
                far.read_exact(&mut came).await.unwrap();
                assert!(came == content[begin..end.min(LENGTH)]);
            };
            let (lent, ()) = tokio::join!(lend, take);
            let (near, lent) = lent.unwrap();
            let mut near = tokio::net::TcpStream::from_std(near).unwrap();
            assert_eq!(lent.at as usize, end.min(LENGTH));
            assert_eq!(lent.copied.is_some(), number == 1);
            assert!(number != 1 || (1..=TAIL).contains(&(lent.at - lent.copied_from)));
            near.write_all(b"more").await.unwrap();
            let mut more = [0; 4];
            far.read_exact(&mut more).await.unwrap();
            assert_eq!(&more, b"more");
        };
        timeout(SOON, futures_util::future::join_all((0..5).map(one))).await.unwrap();
        let over = async {
            while jobs(&server) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, over).await.expect("the end of the jobs");
    }

    #[tokio::test]
    async fn what_is_short_goes_at_once_and_by_a_thread_as_far_as_the_socket_has_no_room() {
        let server = server(SOON);
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let (file, content) = (file(), content());
        for length in [30_000, 16 << 20] {
            let (near, mut far) = pair().await;
            let to = (0, length as u64, Copies::None);
            let lend = |near, at| server.streams.lenders.lend(&file, near, from(at), to, None, &bounds);
            let mut first = std::pin::pin!(lend(near, 0));
            // Before anybody waits, for a thread or for the peer. (Where the kernel does not tell what lies in memory, a thread sends it.)
            let told = futures_util::poll!(first.as_mut());
            let is_told = super::super::calls::is_all_cached(file.fd(), 0, 1).is_ok();
            // A busy machine may hold it up: then it is given back.
            let is_held_up = matches!(&told, Poll::Ready(Ok((_, lent))) if lent.is_held_up);
            assert!(!is_told || is_held_up || told.is_ready() == (length == 30_000), "{length}: {told:?}");
            let sends = async {
                let (mut near, mut lent) = match told {
                    Poll::Ready(done) => done.unwrap(),
                    Poll::Pending => first.await.unwrap(),
                };
                while lent.at < length as u64 {
                    assert!(lent.is_held_up);
                    (near, lent) = lend(near, lent.at).await.unwrap();
                }
                (near, lent.at)
            };
            let mut came = vec![0; length];
            let ((_near, sent), took) = tokio::join!(sends, far.read_exact(&mut came));
            took.unwrap();
            assert_eq!(sent, length as u64);
            assert!(came == content[..length]);
        }
    }

    #[tokio::test]
    async fn who_waits_no_more_or_for_too_long_has_the_connection_closed() {
        let (file, idle) = (file(), Duration::from_millis(50));
        for (idle, aborts) in [(idle, false), (SOON, true), (SOON, false)] {
            let server = server(idle);
            let abort = CancellationToken::new();
            let bounds = Bounds::new(abort.clone(), server.clone());
            let (near, mut far) = pair().await;
            let mut lend = Box::pin(server.streams.lenders.lend(
                &file,
                near,
                from(0),
                (0, LENGTH as u64, Copies::None),
                None,
                &bounds,
            ));
            if idle < SOON {
                assert_eq!(lend.as_mut().await.unwrap_err().errno, Errno::ETIMEDOUT);
            } else {
                assert!(timeout(Duration::from_millis(20), lend.as_mut()).await.is_err());
                assert_eq!(jobs(&server), 1);
                if aborts {
                    abort.cancel();
                    assert_eq!(lend.as_mut().await.unwrap_err().errno, Errno::ECANCELED);
                }
            }
            drop(lend);
            let gone = async {
                while jobs(&server) > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(SOON, gone).await.expect("the end of the job");
            // What lay in the sockets, and an end.
            let took = timeout(SOON, far.read_to_end(&mut Vec::new())).await.unwrap();
            assert!(took.is_ok_and(|took| took < LENGTH));
        }
    }

    #[tokio::test]
    async fn where_what_comes_next_is_not_in_memory_the_socket_comes_back() {
        let server = server(SOON);
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let (near, mut far) = pair().await;
        let file = file_for(3);
        let lend = server.streams.lenders.lend(&file, near, from(0), (0, LENGTH as u64, Copies::None), None, &bounds);
        let take = async {
            let mut taken = vec![0; 1 << 20];
            while far.read(&mut taken).await.is_ok() {}
        };
        let at = tokio::select! {
            lent = timeout(SOON, lend) => lent.unwrap().unwrap().1.at,
            () = take => panic!("the connection failed"),
        };
        assert!((1..=3 * SENT as u64).contains(&at), "{at}");
    }

    #[tokio::test]
    async fn a_file_server_that_panics_ends_its_own_stream_and_no_other() {
        let server = server(SOON);
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let none = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let panics = Plain::new(none).in_memory().asked(|| panic!("no descriptor"));
        let (file, panics): (_, Arc<dyn Descriptor>) = (file(), Arc::new(panics));
        let ((near, mut far), (other, _other)) = (pair().await, pair().await);
        let lenders = &server.streams.lenders;
        let good = lenders.lend(&file, near, from(0), (0, LENGTH as u64, Copies::None), None, &bounds);
        let bad = lenders.lend(&panics, other, from(0), (0, LENGTH as u64, Copies::None), None, &bounds);
        let take = async {
            let mut all = vec![0; LENGTH];
            far.read_exact(&mut all[..1]).await.unwrap();
            assert_eq!(timeout(SOON, bad).await.unwrap().unwrap_err().errno, Errno::EIO);
            far.read_exact(&mut all[1..]).await.unwrap();
            assert!(all == content());
        };
        let (good, ()) = timeout(SOON, async { tokio::join!(good, take) }).await.unwrap();
        assert_eq!(good.unwrap().1.at as usize, LENGTH);
    }

    #[tokio::test]
    async fn a_thread_that_is_held_up_gets_no_others() {
        let lenders = Lenders::default();
        let first = lenders.lender().unwrap().0.clone();
        assert!(!first.is_held_up());
        first.turn_began.store(now(), Ordering::Relaxed);
        tokio::time::sleep(HELD_UP + Duration::from_millis(5)).await;
        assert!(first.is_held_up());
        assert!(lenders.lender().is_none_or(|another| !Arc::ptr_eq(&another.0, &first)));
        first.turn_began.store(0, Ordering::Relaxed);
        assert!(lenders.lender().is_some());
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_told_as_such() {
        let server = server(SOON);
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let (near, far) = pair().await;
        drop(far);
        let file = file();
        let lend = server.streams.lenders.lend(&file, near, from(0), (0, LENGTH as u64, Copies::None), None, &bounds);
        let error = timeout(SOON, lend).await.unwrap().unwrap_err();
        assert!([Os::PIPE, Os::CONNRESET].map(|os| os.raw_os_error() as u32).contains(&error.errno.0), "{error}");
    }

    #[tokio::test]
    async fn the_threads_end_with_what_they_have_when_their_server_does() {
        let (server, lenders, file) = (server(SOON), Lenders::default(), file());
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let (near, mut far) = pair().await;
        let lender = Arc::downgrade(&lenders.lender().unwrap().0);
        let lends = async move {
            let lend = lenders.lend(&file, near, from(0), (0, LENGTH as u64, Copies::None), None, &bounds);
            assert!(timeout(Duration::from_millis(20), lend).await.is_err());
        };
        lends.await;
        assert!(timeout(SOON, far.read_to_end(&mut Vec::new())).await.unwrap().is_ok());
        let ended = async {
            while lender.upgrade().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, ended).await.expect("the end of the thread");
    }
}
