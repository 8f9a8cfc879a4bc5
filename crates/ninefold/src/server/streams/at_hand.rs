//! What a task sends by itself of what others would send for it ([`lending`](super::lending)): to hand a short stream over to a thread, and to hear of it again, costs both
//! more than to send it, and wakes them for it. Of 10 MB by eight connections over 50 ms that was a tenth of the server's time.
//!
//! Only what lies in memory, all of it, as far as the kernel tells; and no more than a part of the time: the task may have others, those who come to a listener among them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::calls;
use super::descriptor::Descriptor;
use super::moving::{Copies, is_cached};

/// Bytes of the longest stream, some three milliseconds at the speed of memory, and of copies among them, of which each costs two to three times as much. To give way
/// meanwhile wakes another worker each time, which costs as much as a thread.
const MOST: u64 = 16 << 20;
const MOST_COPIED: u64 = 4 << 20;

/// One begins where no more time than this was spent lately; which is forgotten in so many times as long. So what waits for them in the task waits for a fifth of its time in the
/// long run, and at a time for this and one stream.
const SPENT: Duration = Duration::from_millis(4);
const FORGOTTEN: u32 = 5;

/// Where all pages are there, it is asked of one in so many bytes, and of the first and the last, whether it is still being read. What a reader has on its way lies together; this server
/// has 8 MiB on its way at a time, which hold some of these. Of what several read at once less may be missed, and then a disk is waited for.
const STEP_OF_ALL: u64 = 1 << 20;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct AtHand(Mutex<Option<Lately>>);

/// Locked for a moment.
#[derive(Clone, Copy, Debug)]
struct Lately {
    spent: Duration,
    at: Instant,
}

impl Lately {
    fn spent_by(&self, now: Instant) -> Duration {
        self.spent.saturating_sub(now.saturating_duration_since(self.at) / FORGOTTEN)
    }
}

/// One that is sent, until it is dropped.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    at_hand: &'a AtHand,
    began: Instant,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        self.at_hand.spent(now.saturating_duration_since(self.began), now);
    }
}

impl AtHand {
    /// Whether who asks is to send the file from `at` to `end` by himself, at once, and then to drop what he gets.
    pub fn begin(&self, file: &dyn Descriptor, at: u64, end: u64, copies: Copies) -> Option<Sending<'_>> {
        let (bytes, began) = (end.saturating_sub(at), Instant::now());
        let is_short = bytes <= MOST && copies.of(at, bytes) <= MOST_COPIED;
        let begins = is_short && self.has_time(began) && lies_in_memory(file, at, end);
        begins.then_some(Sending { at_hand: self, began })
    }

    fn has_time(&self, now: Instant) -> bool {
        let lately = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lately.is_none_or(|lately| lately.spent_by(now) < SPENT)
    }

    fn spent(&self, time: Duration, now: Instant) {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lately.map_or(Duration::ZERO, |lately| lately.spent_by(now));
        *lately = Some(Lately { spent: before + time, at: now });
    }
}

/// Whether all of it does: each page is there (one of a file in memory may have been swapped out), and none of those that are looked at is still being read. Which may not hold any more
/// when they are sent, and then a disk is waited for.
fn lies_in_memory(file: &dyn Descriptor, at: u64, end: u64) -> bool {
    calls::is_all_cached(file.fd(), at, end - at).unwrap_or(false) && is_cached(file, at, end, STEP_OF_ALL)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::{self, ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Poll;

    use ninefold_proto::Error;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{ReadWriteFlags, preadv2, pwrite};
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::super::bare::Bare;
    use super::super::kernel_lease::{KernelLease, Pledge};
    use super::super::life::Bounds;
    use super::super::moving::Lent;
    use super::super::plain::Plain;
    use super::*;
    use crate::server::{Server, StreamLimits};

    /// The bound of what ought to come soon.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn no_more_than_a_part_of_the_time_is_spent() {
        let (at_hand, now) = (AtHand::default(), Instant::now());
        assert!(at_hand.has_time(now));
        at_hand.spent(SPENT / 2, now);
        assert!(at_hand.has_time(now));
        at_hand.spent(SPENT, now);
        assert!(!at_hand.has_time(now));
        // Half of that is forgotten in five times as long.
        assert!(!at_hand.has_time(now + SPENT * 2) && at_hand.has_time(now + SPENT * 3));
        at_hand.spent(SPENT, now + SPENT * 3);
        assert!(!at_hand.has_time(now + SPENT * 4));
        assert!(at_hand.has_time(now + SPENT * 20));
    }

    /// One on a disk. What is asked of it for the n-th time, its page counts among that first, something else is asked that can tell nothing.
    struct AskedAt {
        file: File,
        other: io::PipeReader,
        asked: AtomicUsize,
        n: usize,
    }

    impl Descriptor for AskedAt {
        fn fd(&self) -> BorrowedFd<'_> {
            let is_it = self.asked.fetch_add(1, Ordering::Relaxed) + 1 == self.n;
            if is_it { self.other.as_fd() } else { self.file.as_fd() }
        }

        fn as_user(&self, call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
            call()
        }

        fn is_slow(&self) -> bool {
            false
        }

        fn is_in_memory(&self) -> bool {
            false
        }
    }

    #[test]
    fn of_what_is_all_there_few_places_are_looked_at_and_each_must_be_read() {
        let name = "of_what_is_all_there_few_places_are_looked_at_and_each_must_be_read";
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; MOST as usize]).unwrap();
        for (length, asked) in [(1 << 20, 1 + 1 + 2), (MOST, 1 + 16 + 2)] {
            let begins = |n| {
                let (file, other) = (file.try_clone().unwrap(), io::pipe().unwrap().0);
                let one = AskedAt { file, other, asked: AtomicUsize::new(0), n };
                let begins = AtHand::default().begin(&one, 0, length, Copies::None).is_some();
                (begins, one.asked.into_inner())
            };
            let is_told = calls::is_all_cached(file.as_fd(), 0, length).unwrap_or(false);
            let at_once = preadv2(&file, &mut [io::IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT);
            if !is_told || at_once != Ok(1) {
                return skip(name, "needs cachestat(2), and a disk that is read without waiting");
            }
            assert_eq!(begins(usize::MAX), (true, asked));
            for n in 1..=asked {
                assert_eq!(begins(n), (false, n));
            }
        }
    }

    fn skip(name: &str, why: &str) {
        let line = format!("skip {name} - {why}\n");
        eprint!("{line}");
        if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(line.as_bytes()).unwrap(); // one write: tests run side by side
        }
    }

    #[test]
    fn what_is_long_or_to_be_copied_or_does_not_lie_in_memory_is_for_others() {
        const LENGTH: u64 = 1 << 20;
        let file = memfd_create("f", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 2 * MOST).unwrap();
        assert_eq!(pwrite(&file, &[1; LENGTH as usize], 0).unwrap(), LENGTH as usize);
        let file = Plain::new(file).in_memory();
        // Before Linux 6.5, or in a box that does not let that through, none is.
        let is_told = calls::is_all_cached(file.fd(), 0, LENGTH).is_ok();
        let begins = |to, copies| AtHand::default().begin(&file, 0, to, copies).is_some();
        assert_eq!(begins(LENGTH, Copies::None), is_told);
        assert_eq!(begins(LENGTH, Copies::From(0)), is_told);
        // It has no page there.
        assert!(!begins(LENGTH + 1, Copies::None));
        assert_eq!(pwrite(&file.file, &vec![1; 2 * MOST as usize], 0).unwrap(), 2 * MOST as usize);
        assert_eq!(begins(MOST, Copies::None), is_told);
        assert!(!begins(MOST + 1, Copies::None) && !begins(MOST, Copies::From(0)));
        // Where all the time was spent.
        let at_hand = AtHand::default();
        at_hand.spent(SPENT * 1000, Instant::now());
        assert!(at_hand.begin(&file, 0, 1, Copies::None).is_none());
    }

    /// Somebody wants to write a file when the first of it is about to be sent: who sends it goes on when that has been heard.
    struct Wanted {
        path: tempfile::TempPath,
        lease: Mutex<Option<Arc<KernelLease>>>,
        was_looked_at: AtomicBool,
    }

    impl Wanted {
        fn look_at(&self) -> bool {
            self.was_looked_at.store(true, Ordering::Relaxed);
            true
        }

        fn use_now(&self) {
            if self.was_looked_at.swap(false, Ordering::Relaxed)
                && let Some(lease) = self.lease.lock().unwrap().take()
            {
                assert_eq!(ask(&self.path).unwrap_err().kind(), ErrorKind::WouldBlock);
                let began = Instant::now();
                while !lease.is_asked_back() {
                    assert!(began.elapsed() < SOON, "it is heard in time");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Somebody wants to write it, without a wait.
    fn ask(path: &Path) -> std::io::Result<File> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(nonblock).open(path)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_that_is_asked_back_meanwhile_ends_it_and_the_task_has_its_socket() {
        const LENGTH: usize = 1 << 20;
        // What any socket takes at once: then copies would begin.
        const PAGES: usize = 64 << 10;
        let limits = StreamLimits { kernel_leases: true, all_ways_copy: true, ..StreamLimits::default() };
        let server = Server::builder().streams(limits).build();
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        // In memory: of other files it depends on the file system whether they are leased.
        let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap().into_temp_path();
        let content: Vec<u8> = (0..LENGTH).map(|n| (n ^ n >> 9) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        let name = "a_lease_that_is_asked_back_meanwhile_ends_it_and_the_task_has_its_socket";
        if calls::is_all_cached(file.as_fd(), 0, LENGTH as u64).is_err() {
            // No task sends anything by itself then.
            return skip(name, "needs cachestat(2), since Linux 6.5");
        }
        let (lease, was_looked_at) = (Mutex::default(), AtomicBool::new(false));
        let wanted = Arc::new(Wanted { path, lease, was_looked_at });
        let (looked_at, used) = (wanted.clone(), wanted.clone());
        let file = Plain::new(file).leased().in_memory_while(move || looked_at.look_at()).asked(move || used.use_now());
        let (file, bare): (Arc<dyn Descriptor>, _) = (Arc::new(file), Bare::Unwatched(near));
        let mut pledge = Pledge::default();
        if !pledge.covers(&server, &file, &bare).await {
            return skip(name, "needs a kernel that leases files, and waits for it (fs.lease-break-time)");
        }
        *wanted.lease.lock().unwrap() = pledge.lease();
        let (Ok(Ok(mut near)), mut at) = (bare.unwatch(), 0) else { panic!("it is one of TCP") };
        // In the middle of it, and before it begins, by whomever.
        for is_at_hand in [true, false] {
            let lent = Lent { at, copied: None, copied_from: at, is_held_up: false };
            let (end, copies) = (LENGTH as u64, Copies::From(PAGES as u64));
            let lend = server.streams.lenders.lend(&file, near, lent, (end, end, copies), pledge.lease(), &bounds);
            let mut lend = std::pin::pin!(lend);
            let lent = match futures_util::poll!(&mut lend) {
                Poll::Ready(lent) => lent,
                Poll::Pending => {
                    assert!(!is_at_hand, "a thread has it");
                    timeout(SOON, lend).await.expect("its end")
                }
            };
            (near, Lent { at, .. }) = lent.unwrap();
            assert_eq!((at, pledge.is_asked_back()), (PAGES as u64, true));
        }
        near.write_all(b"more").unwrap();
        let mut came = vec![0; PAGES + 4];
        std::io::Read::read_exact(&mut far, &mut came).unwrap();
        assert!(came[..PAGES] == content[..PAGES] && came[PAGES..] == *b"more");
        assert_eq!(ask(&wanted.path).unwrap_err().kind(), ErrorKind::WouldBlock, "it is the task's to give up");
        pledge.redeem(&near).await.unwrap();
        ask(&wanted.path).unwrap();
    }
}
