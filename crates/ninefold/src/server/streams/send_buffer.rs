//! How much of what is sent a connection takes at once, ahead of what its peer acknowledges.
//!
//! Linux gives a connection more room as it becomes fast (tcp(7), tcp_wmem): a new one has its first megabyte in eight or nine pieces, one in each round trip. Whoever sends
//! it is woken for each, and does on the way what the kernel has put off while the socket was his. One that gets room for all of it at once is given it by one call,
//! and the kernel does the rest when the peer's acknowledgements come. By how much that is less work is in docs/bench.md.
//!
//! What lies in a socket is memory, and who wants to change a leased file waits until it has been taken ([`kernel_lease`](super::kernel_lease)). So a connection gets room for
//! what leaves within [`AHEAD`] by what connections to its peer were like lately, and no more than Linux gives a fast one by itself; and Linux still gives it more, or
//! takes some away where memory is short, as of any other. Where nothing is known of the peer it begins as ever.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size};

use super::calls::{self, Pace};
use super::origin::Origin;

/// What may lie in a connection leaves within that, at the rate that those of its peer had lately.
const AHEAD: Duration = Duration::from_millis(500);

/// For so long it is believed.
const LATELY: Duration = Duration::from_secs(600);

/// Origins of which it is remembered.
const MOST: usize = 256;

/// Less than so many bytes more are not worth the calls.
const WORTH: u64 = 64 * 1024;

/// Of what lies in a socket the kernel counts its own records of it too, one byte in so many.
const RECORDS: u64 = 16;

/// How fast connections were lately, in bytes a second, by where their peers are; and until when that is believed.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<Origin, (u64, Instant)>>);

impl Rates {
    fn known(&self) -> MutexGuard<'_, HashMap<Origin, (u64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if known.len() >= MOST && !known.contains_key(&origin) {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < MOST || known.contains_key(&origin) {
            let one = known.entry(origin).or_insert((0, until));
            *one = (rate.max(one.0 / 2), until);
        }
    }

    fn lately(&self, origin: Origin, now: Instant) -> u64 {
        self.known().get(&origin).filter(|(_, until)| now < *until).map_or(0, |(rate, _)| *rate)
    }

    /// Gives a connection room for so many bytes that it is about to send, as far as its peer is known to be fast.
    pub fn make_room(&self, origin: Origin, tcp: BorrowedFd<'_>, bytes: u64) {
        let ahead = u128::from(self.lately(origin, Instant::now())) * AHEAD.as_millis() / 1000;
        let bytes = bytes.min(u64::try_from(ahead).unwrap_or(u64::MAX));
        let most = *TCP_WMEM_MAX;
        let room = bytes.saturating_add(bytes / RECORDS + WORTH).min(most);
        let has = socket_send_buffer_size(tcp).map_or(most, |has| has as u64);
        if room >= has.saturating_add(WORTH) {
            set_room(tcp, room as usize);
        }
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

/// Of no consequence where it cannot be set: then it grows as ever.
fn set_room(tcp: BorrowedFd<'_>, room: usize) {
    // The kernel doubles it (socket(7)). What any process may set is less than what TCP takes by itself on most machines (net.core.wmem_max).
    let half = room / 2;
    if set_socket_send_buffer_size_force(tcp, half).is_err() {
        let _ = set_socket_send_buffer_size(tcp, half);
    }
    // Else it would keep that for ever.
    let _ = calls::let_buffers_grow(tcp);
}

/// What Linux lets a connection hold by itself (tcp(7), tcp_wmem); 0 where it does not say.
static TCP_WMEM_MAX: LazyLock<u64> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok();
    told.and_then(|told| told.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0)
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
        let (rates, now) = (Rates::default(), Instant::now());
        assert_eq!(rates.lately(origin(1), now), 0);
        let note = |rate: u64| {
            rates.note(origin(1), rate, now);
            rates.lately(origin(1), now)
        };
        assert_eq!([note(1000), note(3000), note(100), note(800), note(0)], [1000, 3000, 1500, 800, 400]);
        assert_eq!((rates.lately(origin(1), now + LATELY), rates.lately(origin(2), now)), (0, 0));
    }

    #[test]
    fn no_more_peers_are_remembered_than_there_is_room_for() {
        let (rates, now) = (Rates::default(), Instant::now());
        let user = |n: usize| Origin::User(n as u32);
        for n in 0..=MOST {
            rates.note(user(n), 7, now);
        }
        assert_eq!([0, MOST - 1, MOST].map(|n| rates.lately(user(n), now)), [7, 7, 0]);
        // One that is known is still learned of, and those that are over make way.
        rates.note(user(0), 9, now + LATELY);
        assert_eq!((rates.lately(user(0), now + LATELY), rates.known().len()), (9, MOST));
        rates.note(user(MOST), 7, now + LATELY);
        assert_eq!((rates.lately(user(MOST), now + LATELY), rates.known().len()), (7, 2));
    }

    #[test]
    fn a_connection_to_a_peer_of_which_nothing_is_known_or_that_is_slow_begins_as_ever() {
        let rates = Rates::default();
        rates.note(origin(2), 10_000, Instant::now());
        let (near, _far) = pair();
        let before = room(&near);
        for last in [1, 2] {
            rates.make_room(origin(last), near.as_fd(), 4 << 20);
            assert_eq!(room(&near), before);
        }
    }

    #[test]
    fn a_connection_to_a_fast_peer_takes_what_leaves_within_a_moment_and_still_grows() {
        let rates = Rates::default();
        rates.note(origin(1), u64::MAX, Instant::now());
        rates.note(origin(2), 1 << 20, Instant::now());
        // On a connection with a window that is closed: all that it takes lies here.
        let ((mut near, mut far), (mut plain, _plain_far)) = (pair(), pair());
        let before = room(&near);
        rates.make_room(origin(2), near.as_fd(), 1 << 30);
        let of_slow = room(&near);
        let half = (1 << 20) / 2;
        assert!(of_slow >= before && (of_slow == before || of_slow <= half + half / RECORDS + WORTH), "{of_slow}");
        rates.make_room(origin(1), near.as_fd(), 1 << 30);
        let most = room(&near);
        assert!(most >= of_slow && most <= (*TCP_WMEM_MAX).max(before), "{most}");
        // Less is asked for: it keeps what it has.
        rates.make_room(origin(1), near.as_fd(), 300_000);
        assert_eq!(room(&near), most);
        let (taken, of_plain) = (takes(&mut near), takes(&mut plain));
        assert!(most == before || taken > of_plain, "{taken} for {of_plain}");
        // It grows by itself as one whose room nobody set does.
        far.set_nonblocking(false).unwrap();
        let mut left = taken;
        while left > 0 {
            left -= far.read(&mut [0; 4096]).unwrap() as u64;
        }
        assert!(room(&near) >= most);
        assert!(!calls::is_send_buffer_locked(near.as_fd()).unwrap());
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
        let rates = Rates::default();
        let (mut near, mut far) = pair();
        near.write_all(&[1; 4096]).unwrap();
        far.read_exact(&mut [0; 4096]).unwrap();
        rates.has_sent(origin(1), near.as_fd());
        assert!(rates.lately(origin(1), Instant::now()) > 0);
        rates.has_sent(origin(2), std::io::stdin().as_fd());
        assert_eq!(rates.lately(origin(2), Instant::now()), 0);
    }
}
