//! How much of what is sent a connection takes at once, ahead of what its peer acknowledges.
//!
//! Linux gives a connection more room as it becomes fast (tcp(7), tcp_wmem): a new one has its first megabyte in eight or nine pieces, one in each round trip. Whoever sends
//! it is woken for each, and does on the way what the kernel has put off while the socket was his. One that gets room for all of it at once is given it by one call,
//! and the kernel does the rest when the peer's acknowledgements come (docs/bench.md, "thesis").
//!
//! What lies in a socket is memory, and who wants to change a leased file waits until it has been taken ([`kernel_lease`](super::kernel_lease)). So the connections of an
//! origin get room for what it takes within [`AHEAD`], by what all of them took together lately; one gets [`MOST`], and all that there are a part of the machine's memory. Linux
//! goes on to give them more, or takes some away, as of any other. Where nothing is known of a peer its connections begin as ever.

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

/// What lies in the connections of an origin leaves them within that, at the rate that it had lately.
const AHEAD: Duration = Duration::from_secs(1);

/// For so long it is believed.
const LATELY: Duration = Duration::from_secs(600);

/// A rate falls by half at most in so long: those of one file end at about the same time, the last of them alone.
const FALLS: Duration = Duration::from_secs(1);

/// What a connection has sent before it tells how fast it is.
const TELLS: u64 = 256 * 1024;

/// Origins of which it is remembered.
const ORIGINS: usize = 256;

/// What a connection has room for at most, the kernel's own records included: a short file, or a long piece.
const MOST: u64 = 16 << 20;

/// The same where a round trip takes so long that the room is what keeps several connections from putting more on the way than it holds: what Linux gives them at most by
/// itself (tcp(7), tcp_wmem). With 16 MiB 200 MB took a thirtieth longer over 150 ms.
const LONG_TRIP: Duration = Duration::from_millis(100);
const MOST_OF_LONG: u64 = 4 << 20;

/// All of them together have more room than without this by one part in so many of the machine's memory, and by so much at most. Linux thinks four times that part is much
/// for TCP (tcp(7), tcp_mem), which is told in no name space of networks but the first.
const PART: u64 = 64;
const MOST_OF_ALL: u64 = 256 << 20;

/// Less than so many bytes more are not worth the calls.
const WORTH: u64 = 64 * 1024;

/// Of what lies in a socket the kernel counts its own records of it too, one byte in so many.
const RECORDS: u64 = 16;

/// What the connections of an origin have.
#[derive(Debug, Default)]
struct Share {
    /// Those that there are.
    connections: AtomicU64,
    /// Bytes that they have room for, more than they had.
    room: AtomicU64,
}

#[derive(Debug)]
struct Known {
    share: Arc<Share>,
    /// Bytes a second of all of its connections, and since when.
    rate: u64,
    since: Instant,
    until: Instant,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct SendBuffers {
    origins: Mutex<HashMap<Origin, Known>>,
    /// Bytes that all of them have room for, more than they had.
    taken: Arc<AtomicU64>,
}

/// What a connection has of that, until it is closed. Dropped, others may have it.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What it had before.
    began_with: u64,
    bytes: u64,
    of: Option<(Arc<Share>, Arc<AtomicU64>)>,
}

impl Room {
    /// It has some.
    pub fn is_held(&self) -> bool {
        self.bytes > 0
    }

    fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some((share, taken)) = &self.of {
            share.room.fetch_add(bytes, Ordering::Relaxed);
            taken.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((share, taken)) = &self.of {
            share.connections.fetch_sub(1, Ordering::Relaxed);
            share.room.fetch_sub(self.bytes, Ordering::Relaxed);
            taken.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl SendBuffers {
    fn origins(&self) -> MutexGuard<'_, HashMap<Origin, Known>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has sent what it was to.
    pub fn has_sent(&self, origin: Origin, tcp: BorrowedFd<'_>) {
        let told = calls::pace(tcp).and_then(|pace| Ok((pace, calls::unsent(tcp)?)));
        // One that had little to send has not become fast.
        if let Ok((Pace { rate, taken: TELLS.., .. }, 0)) = told {
            self.note(origin, rate, Instant::now());
        }
    }

    /// One that had room ended before it had: it may be that its peer is as fast as ever no more.
    pub fn has_failed(&self, origin: Origin, had: &Room) {
        if had.is_held() {
            self.note(origin, 0, Instant::now());
        }
    }

    /// One connection's rate: it has its part only of what all of them have.
    fn note(&self, origin: Origin, rate: u64, now: Instant) {
        let mut origins = self.origins();
        let Some(known) = origins.get_mut(&origin) else { return };
        let rate = rate.saturating_mul(known.share.connections.load(Ordering::Relaxed).max(1));
        if rate >= known.rate || now.saturating_duration_since(known.since) >= FALLS {
            (known.rate, known.since) = (rate.max(known.rate / 2), now);
        }
        known.until = now + LATELY;
    }

    /// What an origin's connections have together, and the rate that they had lately. `None` where too many others are remembered that have some.
    fn of(&self, origin: Origin, now: Instant) -> Option<(Arc<Share>, u64)> {
        let mut origins = self.origins();
        if origins.len() >= ORIGINS && !origins.contains_key(&origin) {
            let oldest = origins.iter().filter(|(_, known)| Arc::strong_count(&known.share) == 1);
            let oldest = oldest.min_by_key(|(_, known)| known.until).map(|(origin, _)| *origin)?;
            origins.remove(&oldest);
        }
        let begin = || Known { share: Arc::default(), rate: 0, since: now, until: now };
        let known = origins.entry(origin).or_insert_with(begin);
        Some((known.share.clone(), if now < known.until { known.rate } else { 0 }))
    }

    /// Gives a connection room for so many bytes that it is about to send, beside what lies in it, as far as its peer is known to be fast, and there is room. `holds`: what it has got
    /// so far.
    pub fn make_room(&self, origin: Origin, tcp: BorrowedFd<'_>, bytes: u64, holds: &mut Room) {
        // Of a socket whose buffer somebody has set, or that cannot be let grow again, nothing is changed.
        let Ok(locked) = calls::buffer_lock(tcp) else { return };
        if locked & calls::SEND != 0 {
            return;
        }
        let Some((share, rate)) = self.of(origin, Instant::now()) else { return };
        if holds.of.is_none() {
            share.connections.fetch_add(1, Ordering::Relaxed);
            holds.of = Some((share.clone(), self.taken.clone()));
        }
        let (Ok(Pace { trip, .. }), Ok(has)) = (calls::pace(tcp), socket_send_buffer_size(tcp)) else { return };
        let has = has as u64;
        if !holds.is_held() {
            holds.began_with = has;
        }
        let ahead = u64::try_from(u128::from(rate) * AHEAD.as_millis() / 1000).unwrap_or(u64::MAX);
        let of_others = share.room.load(Ordering::Relaxed).saturating_sub(holds.bytes);
        let most = if trip >= LONG_TRIP { MOST_OF_LONG } else { MOST };
        // Another stream's last bytes may lie in it yet.
        let lie = calls::unacknowledged(tcp).map_or(0, |bytes| bytes as u64);
        let bytes = bytes.saturating_add(lie).min(ahead.saturating_sub(of_others)).min(most);
        let wanted = (bytes + bytes / RECORDS + WORTH).min(most);
        // Linux may have taken some away, which is its own all the same.
        let own = holds.began_with + holds.bytes;
        let room = wanted.min(own.max(has) + self.free(wanted.saturating_sub(own.max(has))));
        if room < has + WORTH {
            return;
        }
        set_room(tcp, has, room, locked);
        // It may be less: not every process may ask for so much.
        let got = socket_send_buffer_size(tcp).map_or(0, |got| got as u64);
        holds.grow(got.saturating_sub(own.max(has)));
    }

    /// Of so many bytes what is free: no more than is left to others.
    fn free(&self, bytes: u64) -> u64 {
        bytes.min(OF_ALL.saturating_sub(self.taken.load(Ordering::Relaxed)) / 2)
    }
}

/// How soon what was given to a connection leaves it.
pub(super) struct Leaves {
    /// What a round trip takes.
    pub trip: Duration,
    /// How long what has not left yet needs to, at least: where what is on the way doubles with each round trip, as at a connection's beginning.
    pub rest: Duration,
}

impl Leaves {
    pub fn of(tcp: BorrowedFd<'_>) -> io::Result<Leaves> {
        let (Pace { trip, window, .. }, unsent) = (calls::pace(tcp)?, calls::unsent(tcp)?);
        let trips = (1.0 + unsent as f64 / window.max(1) as f64).log2();
        Ok(Leaves { trip, rest: trip.mul_f64(trips) })
    }
}

/// Where it cannot be set it grows as ever. It is never made less. `locked`: what it is to keep as it was set.
fn set_room(tcp: BorrowedFd<'_>, has: u64, room: u64, locked: i32) {
    // The kernel doubles it (socket(7)).
    let half = |room: u64| usize::try_from(room / 2).unwrap_or(usize::MAX);
    if set_socket_send_buffer_size_force(tcp, half(room)).is_err() {
        // What any process may ask for, which is less than what TCP takes by itself on most machines.
        let room = room.min(WMEM_MAX.saturating_mul(2));
        if room <= has || set_socket_send_buffer_size(tcp, half(room)).is_err() {
            return;
        }
    }
    // Else it would keep that for ever.
    let _ = calls::set_buffer_lock(tcp, locked);
}

/// Half of what any process may give a socket (socket(7), SO_SNDBUF); 0 where the kernel does not say.
static WMEM_MAX: LazyLock<u64> = LazyLock::new(|| {
    let told = std::fs::read_to_string("/proc/sys/net/core/wmem_max").ok();
    told.and_then(|told| told.trim().parse().ok()).unwrap_or(0)
});

/// What all of them have room for together, more than they had.
static OF_ALL: LazyLock<u64> = LazyLock::new(|| {
    let machine = sysinfo();
    (machine.totalram.saturating_mul(machine.mem_unit.into()) / PART).min(MOST_OF_ALL)
});

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

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

    /// Of a peer that has this rate.
    fn known(rate: u64) -> SendBuffers {
        let buffers = SendBuffers::default();
        buffers.of(origin(1), Instant::now());
        buffers.note(origin(1), rate, Instant::now());
        buffers
    }

    fn lately(buffers: &SendBuffers, origin: Origin, now: Instant) -> u64 {
        buffers.of(origin, now).map_or(0, |(_, rate)| rate)
    }

    fn taken(buffers: &SendBuffers) -> u64 {
        buffers.taken.load(Ordering::Relaxed)
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

    /// Whether this process may give a socket whatever it wants (CAP_NET_ADMIN). The same is tried of whole streams (tests/streams/send_buffer.rs), which says so where it cannot be.
    fn may_ask_for_all() -> bool {
        set_socket_send_buffer_size_force(pair().0, 1 << 20).is_ok()
    }

    #[test]
    fn what_is_known_of_a_peer_is_believed_for_a_while_and_falls_by_half_at_most_in_a_second() {
        let (buffers, now) = (SendBuffers::default(), Instant::now());
        assert_eq!(lately(&buffers, origin(1), now), 0);
        let note = |rate: u64, seconds: u32| {
            buffers.note(origin(1), rate, now + SECOND * seconds);
            lately(&buffers, origin(1), now + SECOND * seconds)
        };
        assert_eq!([note(1000, 0), note(3000, 0), note(100, 0)], [1000, 3000, 3000]);
        assert_eq!([note(100, 1), note(100, 1), note(0, 2), note(800, 2), note(0, 9)], [1500, 1500, 750, 800, 400]);
        assert_eq!(lately(&buffers, origin(1), now + SECOND * 9 + LATELY), 0);
        // Of whom nothing was asked nothing is kept.
        buffers.note(origin(2), 9, now);
        assert_eq!(lately(&buffers, origin(2), now), 0);
    }

    #[test]
    fn one_connection_has_its_part_of_what_all_of_an_origin_have() {
        let (buffers, now) = (known(0), Instant::now());
        let connections = [pair(), pair(), pair()];
        let mut holds: Vec<_> = connections.iter().map(|_| Room::default()).collect();
        for ((near, _), room) in connections.iter().zip(&mut holds) {
            for _ in 0..2 {
                buffers.make_room(origin(1), near.as_fd(), 1, room);
            }
        }
        buffers.note(origin(1), 100, now);
        assert_eq!(lately(&buffers, origin(1), now), 300);
        drop(holds);
        buffers.note(origin(1), 400, now);
        assert_eq!(lately(&buffers, origin(1), now), 400);
    }

    #[test]
    fn of_many_peers_those_that_were_here_last_are_remembered_and_those_that_have_connections() {
        let (buffers, now) = (known(1), Instant::now());
        let user = |n: usize| Origin::User(n as u32);
        let here = buffers.of(user(0), now).unwrap();
        for n in 1..=ORIGINS {
            buffers.of(user(n), now).unwrap();
            buffers.note(user(n), 7, now + SECOND * n as u32);
        }
        let origins = buffers.origins();
        let is_there = |n: usize| origins.contains_key(&user(n));
        assert_eq!(([0, 1, ORIGINS].map(is_there), origins.len()), ([true, false, true], ORIGINS));
        drop(here);
    }

    #[test]
    fn a_connection_to_a_peer_of_which_nothing_is_known_or_that_is_slow_begins_as_ever() {
        let ((near, _far), mut holds) = (pair(), Room::default());
        let before = room(&near);
        for buffers in [SendBuffers::default(), known(10_000)] {
            buffers.make_room(origin(1), near.as_fd(), MOST, &mut holds);
            assert_eq!((room(&near), holds.bytes), (before, 0));
            holds = Room::default();
        }
    }

    #[test]
    fn a_buffer_that_somebody_has_set_is_left_as_it_is() {
        let ((near, _far), mut holds) = (pair(), Room::default());
        set_socket_send_buffer_size(&near, 50_000).unwrap();
        known(u64::MAX).make_room(origin(1), near.as_fd(), MOST, &mut holds);
        assert_eq!((room(&near), holds.is_held()), (100_000, false));
    }

    #[test]
    fn what_a_process_may_not_ask_for_leaves_a_connection_what_it_has() {
        let (near, _far) = pair();
        let before = room(&near);
        set_room(near.as_fd(), before, before + WORTH, 0);
        assert!(room(&near) >= before && calls::buffer_lock(near.as_fd()).unwrap() == 0);
    }

    #[test]
    fn a_connection_to_a_fast_peer_takes_what_leaves_within_a_second() {
        if !may_ask_for_all() {
            return;
        }
        let ((near, _far), (mut plain, _plain_far), mut holds) = (pair(), pair(), Room::default());
        let before = room(&near);
        let rate = before + (1 << 20);
        let buffers = known(rate);
        buffers.make_room(origin(1), near.as_fd(), u64::MAX, &mut holds);
        let first = room(&near);
        assert!((rate..=rate + rate / RECORDS + WORTH).contains(&first), "{first} for {rate}");
        assert_eq!((holds.bytes, taken(&buffers)), (first - before, first - before));
        // Others of the same origin have no more of that.
        let mut others = Room::default();
        buffers.make_room(origin(1), plain.as_fd(), u64::MAX, &mut others);
        assert!(room(&plain) <= before.max(2 * WORTH + rate - holds.bytes), "{} of {rate}", room(&plain));
        drop(others);
        let ((mut other, _other_far), mut its) = (pair(), Room::default());
        let (more, less) = (known(rate), takes(&mut plain));
        more.make_room(origin(1), other.as_fd(), u64::MAX, &mut its);
        let takes_more = takes(&mut other);
        assert!(takes_more > less, "{takes_more} for {less}");
        // As when Linux takes some away: it is not counted twice.
        buffers.note(origin(1), u64::MAX, Instant::now());
        set_room(near.as_fd(), 0, before, 0);
        buffers.make_room(origin(1), near.as_fd(), first - WORTH - first / RECORDS, &mut holds);
        assert!(room(&near) > before && holds.bytes == first - before, "{} {holds:?}", room(&near));
        buffers.make_room(origin(1), near.as_fd(), u64::MAX, &mut holds);
        assert_eq!((room(&near), holds.bytes, taken(&buffers)), (MOST, MOST - before, MOST - before));
        assert_eq!(calls::buffer_lock(near.as_fd()).unwrap(), 0);
        drop(holds);
        assert_eq!(taken(&buffers), 0);
    }

    #[test]
    fn what_lies_in_a_connection_from_before_has_room_beside_what_comes() {
        const COMES: u64 = 4 << 20;
        if !may_ask_for_all() {
            return;
        }
        let ((mut near, _far), mut holds) = (pair(), Room::default());
        let lies = takes(&mut near);
        known(u64::MAX).make_room(origin(1), near.as_fd(), COMES, &mut holds);
        let more = takes(&mut near);
        assert!(more >= COMES, "{more} beside {lies}");
    }

    #[test]
    fn all_together_have_no_more_than_there_is() {
        let (buffers, all) = (known(u64::MAX), *OF_ALL);
        assert_eq!([100, u64::MAX].map(|bytes| buffers.free(bytes)), [100, all / 2]);
        buffers.taken.store(all - 1000, Ordering::Relaxed);
        assert_eq!([100, u64::MAX].map(|bytes| buffers.free(bytes)), [100, 500]);
        buffers.taken.store(all, Ordering::Relaxed);
        let ((near, _far), mut holds) = (pair(), Room::default());
        let before = room(&near);
        buffers.make_room(origin(1), near.as_fd(), MOST, &mut holds);
        assert_eq!((room(&near), holds.bytes), (before, 0));
    }

    #[test]
    fn what_has_not_left_needs_the_longer_the_more_it_is() {
        let (mut near, _far) = pair();
        assert!(Leaves::of(near.as_fd()).unwrap().rest.is_zero());
        takes(&mut near);
        let Leaves { trip, rest } = Leaves::of(near.as_fd()).unwrap();
        assert!(!trip.is_zero() && !rest.is_zero());
        assert!(Leaves::of(rustix::stdio::stdin()).is_err());
    }

    #[test]
    fn how_fast_a_connection_was_is_known_when_it_has_sent_enough_and_when_one_with_room_failed() {
        let (buffers, now) = (known(0), Instant::now());
        let ((mut near, mut far), mut sent) = (pair(), 0);
        let mut send = |bytes: u64| {
            let all = vec![1; bytes as usize];
            std::thread::scope(|scope| {
                scope.spawn(|| near.write_all(&all).unwrap());
                far.read_exact(&mut vec![0; bytes as usize]).unwrap();
            });
            // What is acknowledged is known here soon.
            sent += bytes;
            let looks = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(1));
                calls::pace(near.as_fd()).unwrap().taken
            });
            assert!(looks.take(10_000).any(|taken| taken >= sent), "the acknowledgement");
            buffers.has_sent(origin(1), near.as_fd());
            lately(&buffers, origin(1), now)
        };
        assert_eq!(send(TELLS / 2), 0);
        let rate = send(2 * TELLS);
        assert!(rate > 0);
        buffers.has_sent(origin(1), rustix::stdio::stdin());
        buffers.has_failed(origin(1), &Room::default());
        assert_eq!(lately(&buffers, origin(1), now), rate);
        buffers.origins().get_mut(&origin(1)).unwrap().since = now - FALLS;
        let mut had = Room::default();
        had.grow(1);
        buffers.has_failed(origin(1), &had);
        assert_eq!(lately(&buffers, origin(1), now), rate / 2);
    }
}
