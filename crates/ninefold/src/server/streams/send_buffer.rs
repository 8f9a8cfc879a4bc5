//! How much of what is sent a connection takes at once, ahead of what its peer acknowledges.
//!
//! Linux gives a connection more room as it becomes fast (tcp(7), tcp_wmem): a new one has its first megabyte in eight or nine pieces, one in each round trip. Whoever sends
//! it is woken for each, and does on the way what the kernel has put off while the socket was his. One that gets room for all of it at once is given it by one call,
//! and the kernel does the rest when the peer's acknowledgements come. By how much that is less work is in docs/bench.md.
//!
//! What lies in a socket is memory, and who wants to change a leased file waits until it has been taken ([`kernel_lease`](super::kernel_lease)). So a connection gets room for
//! what leaves within [`AHEAD`] by what connections to its peer were like lately, [`MOST`] at the most, and all of them together a part of the machine's
//! memory. From there on Linux gives it more, or takes some away where memory is short, as of any other. Where nothing is known of the peer it begins as ever.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size};
use rustix::system::sysinfo;

use super::calls::{self, Pace};
use super::origin::Origin;

/// What may lie in a connection leaves within that, at the rate that those of its peer had lately.
const AHEAD: Duration = Duration::from_millis(500);

/// For so long it is believed.
const LATELY: Duration = Duration::from_secs(600);

/// Origins of which it is remembered.
const ORIGINS: usize = 256;

/// What a connection has room for at most, its kernel's records included: a short file, or a long piece. With the 4 MiB that Linux gives it by itself at most, it took a fifth more of the
/// server's time to send 200 MB.
const MOST: u64 = 16 << 20;

/// All of them together have more room than without this by one part in so many of the machine's memory. Linux thinks four times as much is much for TCP (tcp(7), tcp_mem), which
/// is told in no name space of networks but the first.
const PART: u64 = 64;

/// Less than so many bytes more are not worth the calls.
const WORTH: u64 = 64 * 1024;

/// Of what lies in a socket the kernel counts its own records of it too, one byte in so many.
const RECORDS: u64 = 16;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct SendBuffers {
    /// How fast connections were lately, in bytes a second, by where their peers are; and until when that is believed.
    rates: Mutex<HashMap<Origin, (u64, Instant)>>,
    /// Bytes that all of them have room for, more than they had.
    taken: Arc<AtomicU64>,
}

/// What a connection has of that. Dropped, others may have it.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: u64,
    of: Arc<AtomicU64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl SendBuffers {
    fn known(&self) -> MutexGuard<'_, HashMap<Origin, (u64, Instant)>> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has sent what it was to.
    pub fn has_sent(&self, origin: Origin, tcp: BorrowedFd<'_>) {
        // Of one that is gone nothing is told.
        if let Ok(pace) = calls::pace(tcp) {
            self.note(origin, pace.rate, Instant::now());
        }
    }

    /// One ended before it had: it may be that its peer is as fast as ever no more.
    pub fn has_failed(&self, origin: Origin) {
        if self.lately(origin, Instant::now()) > 0 {
            self.note(origin, 0, Instant::now());
        }
    }

    /// One that had little to send has not become fast, and one of several has its part only: so it falls by half at most.
    fn note(&self, origin: Origin, rate: u64, now: Instant) {
        let (mut known, until) = (self.known(), now + LATELY);
        if known.len() >= ORIGINS && !known.contains_key(&origin) {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < ORIGINS || known.contains_key(&origin) {
            let one = known.entry(origin).or_insert((0, until));
            *one = (rate.max(one.0 / 2), until);
        }
    }

    fn lately(&self, origin: Origin, now: Instant) -> u64 {
        self.known().get(&origin).filter(|(_, until)| now < *until).map_or(0, |(rate, _)| *rate)
    }

    /// Gives a connection room for so many bytes that it is about to send, as far as its peer is known to be fast, and there is room. `holds`: what it has got so far.
    pub fn make_room(&self, origin: Origin, tcp: BorrowedFd<'_>, bytes: u64, holds: &mut Room) {
        let ahead = u128::from(self.lately(origin, Instant::now())) * AHEAD.as_millis() / 1000;
        let bytes = bytes.min(u64::try_from(ahead).unwrap_or(u64::MAX)).min(MOST);
        let wanted = (bytes + bytes / RECORDS + WORTH).min(MOST);
        let Ok(has) = socket_send_buffer_size(tcp).map(|has| has as u64) else { return };
        // Most connections have enough, so that nobody is asked for what is all.
        if wanted < has + WORTH {
            return;
        }
        let more = self.take(wanted - has, *MOST_OF_ALL);
        if more >= WORTH {
            set_room(tcp, has, has + more);
        }
        // It may be less: not every process may ask for so much.
        let got = socket_send_buffer_size(tcp).map_or(0, |got| (got as u64).saturating_sub(has)).min(more);
        self.taken.fetch_sub(more - got, Ordering::Relaxed);
        if holds.bytes == 0 {
            holds.of = self.taken.clone();
        }
        holds.bytes += got;
    }

    /// As much of so many bytes as there is.
    fn take(&self, bytes: u64, of: u64) -> u64 {
        let taking = |taken: u64| Some(taken + bytes.min(of.saturating_sub(taken)));
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taking).unwrap_or(of);
        bytes.min(of.saturating_sub(before))
    }
}

/// How soon what was given to a connection leaves it.
pub(super) struct Leaves {
    /// What a round trip takes.
    pub trip: Duration,
    /// How long what has not left yet needs to.
    pub rest: Duration,
}

impl Leaves {
    pub fn of(tcp: BorrowedFd<'_>) -> io::Result<Leaves> {
        let (Pace { trip, rate }, unsent) = (calls::pace(tcp)?, calls::unsent(tcp)?);
        let rest = Duration::try_from_secs_f64(unsent as f64 / rate as f64).unwrap_or(Duration::MAX);
        Ok(Leaves { trip, rest })
    }
}

/// Of no consequence where it cannot be set: then it grows as ever. It is never made less.
fn set_room(tcp: BorrowedFd<'_>, has: u64, room: u64) {
    // The kernel doubles it (socket(7)).
    let half = |room: u64| usize::try_from(room / 2).unwrap_or(usize::MAX);
    if set_socket_send_buffer_size_force(tcp, half(room)).is_err() {
        // What any process may ask for, which is less than what TCP takes by itself on most machines.
        let room = room.min(*WMEM_MAX * 2);
        if room <= has || set_socket_send_buffer_size(tcp, half(room)).is_err() {
            return;
        }
    }
    // Else it would keep that for ever.
    let _ = calls::let_buffers_grow(tcp);
}

/// Half of what any process may give a socket (socket(7), SO_SNDBUF); 0 where the kernel does not say.
static WMEM_MAX: LazyLock<u64> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/net/core/wmem_max").ok();
    told.and_then(|told| told.trim().parse().ok()).unwrap_or(0)
});

/// What all of them have room for together, more than they had.
static MOST_OF_ALL: LazyLock<u64> = LazyLock::new(|| {
    let machine = sysinfo();
    machine.totalram.saturating_mul(machine.mem_unit.into()) / PART
});

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::Net(IpAddr::from([192, 0, 2, last]))
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn room(tcp: &TcpStream) -> u64 {
        socket_send_buffer_size(tcp).unwrap() as u64
    }

    /// What a connection takes of which the peer reads nothing.
    fn takes(tcp: &mut TcpStream) -> u64 {
        tcp.set_nonblocking(true).unwrap();
        let (mut all, some) = (0, vec![1; 64 * 1024]);
        while let Ok(n) = tcp.write(&some) {
            all += n as u64;
        }
        all
    }

    #[test]
    fn what_is_known_of_a_peer_is_believed_for_a_while_and_falls_by_half_at_most() {
        let (buffers, now) = (SendBuffers::default(), Instant::now());
        assert_eq!(buffers.lately(origin(1), now), 0);
        let note = |rate: u64| {
            buffers.note(origin(1), rate, now);
            buffers.lately(origin(1), now)
        };
        assert_eq!([note(1000), note(3000), note(100), note(800), note(0)], [1000, 3000, 1500, 800, 400]);
        assert_eq!((buffers.lately(origin(1), now + LATELY), buffers.lately(origin(2), now)), (0, 0));
    }

    #[test]
    fn no_more_peers_are_remembered_than_there_is_room_for() {
        let (buffers, now) = (SendBuffers::default(), Instant::now());
        let user = |n: usize| Origin::User(n as u32);
        for n in 0..=ORIGINS {
            buffers.note(user(n), 7, now);
        }
        assert_eq!([0, ORIGINS - 1, ORIGINS].map(|n| buffers.lately(user(n), now)), [7, 7, 0]);
        // One that is known is still learned of, and those that are over make way.
        buffers.note(user(0), 9, now + LATELY);
        assert_eq!((buffers.lately(user(0), now + LATELY), buffers.known().len()), (9, ORIGINS));
        buffers.note(user(ORIGINS), 7, now + LATELY);
        assert_eq!((buffers.lately(user(ORIGINS), now + LATELY), buffers.known().len()), (7, 2));
    }

    #[test]
    fn a_connection_to_a_peer_of_which_nothing_is_known_or_that_is_slow_begins_as_ever() {
        let (buffers, mut holds) = (SendBuffers::default(), Room::default());
        buffers.note(origin(2), 10_000, Instant::now());
        let (near, _far) = pair();
        let before = room(&near);
        for last in [1, 2] {
            buffers.make_room(origin(last), near.as_fd(), MOST, &mut holds);
            assert_eq!((room(&near), holds.bytes), (before, 0));
        }
    }

    #[test]
    fn what_a_process_may_not_ask_for_leaves_a_connection_what_it_has() {
        let (near, _far) = pair();
        let before = room(&near);
        set_room(near.as_fd(), before, before + WORTH);
        assert!(room(&near) >= before);
        // As where it may ask for less than there is.
        if !may_ask_for_all() {
            set_room(near.as_fd(), u64::MAX, WORTH);
            assert!(room(&near) >= before);
        }
    }

    /// Whether this process may give a socket whatever it wants (CAP_NET_ADMIN).
    fn may_ask_for_all() -> bool {
        set_socket_send_buffer_size_force(pair().0, 1 << 20).is_ok()
    }

    #[test]
    fn a_connection_to_a_fast_peer_takes_what_leaves_within_a_moment_and_still_grows() {
        // The same is tried of whole streams (tests/streams/send_buffer.rs), which says so where it cannot be.
        if !may_ask_for_all() && *WMEM_MAX < MOST / 2 {
            return;
        }
        let (buffers, mut holds) = (SendBuffers::default(), Room::default());
        buffers.note(origin(1), u64::MAX, Instant::now());
        let ((mut near, _far), (mut plain, _plain_far)) = (pair(), pair());
        let before = room(&near);
        // As much as within half a second.
        buffers.note(origin(2), 2 * (before + (1 << 20)), Instant::now());
        buffers.make_room(origin(2), near.as_fd(), u64::MAX, &mut holds);
        let of_slower = before + (1 << 20);
        let first = room(&near);
        assert!((of_slower..=of_slower + of_slower / RECORDS + WORTH).contains(&first), "{first} for {of_slower}");
        assert_eq!(buffers.taken.load(Ordering::Relaxed), first - before);
        buffers.make_room(origin(1), near.as_fd(), u64::MAX, &mut holds);
        let most = room(&near);
        assert!(first < most && most <= MOST, "{most}");
        // Less is asked for: it keeps what it has.
        buffers.make_room(origin(1), near.as_fd(), 300_000, &mut holds);
        assert_eq!(
            (room(&near), holds.bytes, buffers.taken.load(Ordering::Relaxed)),
            (most, most - before, most - before)
        );
        let (taken, of_plain) = (takes(&mut near), takes(&mut plain));
        assert!(taken > of_plain, "{taken} for {of_plain}");
        assert!(!calls::is_send_buffer_locked(near.as_fd()).unwrap());
        drop(holds);
        assert_eq!(buffers.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_together_have_no_more_than_there_is_and_what_is_given_back_others_get() {
        let buffers = SendBuffers::default();
        assert_eq!([700, 700, 700].map(|bytes| buffers.take(bytes, 1000)), [700, 300, 0]);
        drop(Room { bytes: 700, of: buffers.taken.clone() });
        assert_eq!([100, u64::MAX, 1].map(|bytes| buffers.take(bytes, 1000)), [100, 600, 0]);
        // Where there is none a connection begins as ever.
        buffers.taken.store(*MOST_OF_ALL, Ordering::Relaxed);
        buffers.note(origin(1), u64::MAX, Instant::now());
        let ((near, _far), mut holds) = (pair(), Room::default());
        let before = room(&near);
        buffers.make_room(origin(1), near.as_fd(), MOST, &mut holds);
        assert_eq!((room(&near), holds.bytes, buffers.taken.load(Ordering::Relaxed)), (before, 0, *MOST_OF_ALL));
    }

    #[test]
    fn what_has_not_left_needs_the_longer_the_more_it_is() {
        let (mut near, _far) = pair();
        assert!(Leaves::of(near.as_fd()).unwrap().rest.is_zero());
        takes(&mut near);
        let Leaves { trip, rest } = Leaves::of(near.as_fd()).unwrap();
        assert!(!trip.is_zero() && !rest.is_zero());
        assert!(Leaves::of(io::stdin().as_fd()).is_err());
    }

    #[test]
    fn how_fast_a_connection_was_is_known_when_it_has_sent() {
        let buffers = SendBuffers::default();
        let (mut near, mut far) = pair();
        near.write_all(&[1; 4096]).unwrap();
        far.read_exact(&mut [0; 4096]).unwrap();
        buffers.has_sent(origin(1), near.as_fd());
        assert!(buffers.lately(origin(1), Instant::now()) > 0);
        buffers.has_sent(origin(2), std::io::stdin().as_fd());
        assert_eq!(buffers.lately(origin(2), Instant::now()), 0);
    }
}
