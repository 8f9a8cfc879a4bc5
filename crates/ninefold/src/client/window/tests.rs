//! A window on a path that is computed: delay, rate and queue are known, and so is what the window should be.

use std::collections::VecDeque;

use super::*;

const MIB: usize = 1 << 20;
const MS: Duration = Duration::from_millis(1);

/// A server at the far end of one link: replies leave it one after another at `rate`, whatever was asked when.
struct Path {
    window: Window,
    now: Duration,
    /// There and back, without any queue.
    delay: Duration,
    /// Bytes per second.
    rate: f64,
    /// Each reply is held up by up to so many milliseconds.
    jitter: u64,
    random: u64,
    /// When the last reply has left.
    free: Duration,
    /// On the way: when it arrives, bytes, what was remembered of it.
    replies: VecDeque<(Duration, usize, Sent)>,
    outstanding: usize,
    /// Bytes that arrived.
    got: usize,
}

impl Path {
    fn new(delay: Duration, rate: f64, message_max: usize, bytes_max: usize) -> Path {
        Path {
            window: Window::new(message_max, bytes_max, 0),
            now: Duration::from_secs(5),
            delay,
            rate,
            jitter: 0,
            random: 1,
            free: Duration::ZERO,
            replies: VecDeque::new(),
            outstanding: 0,
            got: 0,
        }
    }

    fn send(&mut self, limited: bool) {
        let bytes = self.window.message();
        self.free = self.free.max(self.now + self.delay / 2) + Duration::from_secs_f64(bytes as f64 / self.rate);
        // A link does not overtake itself, even when it got shorter.
        let last = self.replies.back().map_or(Duration::ZERO, |reply| reply.0);
        let sent = self.window.sent(self.now, limited);
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let late = MS * ((self.random >> 33) % (self.jitter + 1)) as u32;
        self.replies.push_back(((self.free + self.delay / 2 + late).max(last), bytes, sent));
        self.outstanding += bytes;
    }

    fn fill(&mut self) {
        while self.outstanding == 0 || self.outstanding + self.window.message() <= self.window.bytes() {
            self.send(false);
        }
    }

    fn receive(&mut self) {
        let (at, bytes, sent) = self.replies.pop_front().unwrap();
        self.now = at;
        self.window.arrived(sent, bytes, at);
        self.outstanding -= bytes;
        self.got += bytes;
    }

    /// Reads as fast as the window lets it; gives the greatest window seen and the bytes per second.
    fn run(&mut self, time: Duration) -> (usize, f64) {
        let (start, before) = (self.now, self.got);
        let mut most = 0;
        while self.now < start + time {
            self.fill();
            most = most.max(self.window.bytes());
            self.receive();
        }
        (most, (self.got - before) as f64 / (self.now - start).as_secs_f64())
    }

    /// What the path holds, in bytes.
    fn held(&self) -> f64 {
        self.delay.as_secs_f64() * self.rate
    }
}

#[test]
fn a_long_fast_path_is_full_after_a_few_round_trips() {
    // 10 Gbit/s over 50 ms hold 62.5 MB. From 256 KiB, doubling, that takes 8 round trips.
    let mut path = Path::new(50 * MS, 1.25e9, MIB, 64 * MIB);
    path.run(10 * 50 * MS);
    assert_eq!(path.window.bytes(), 64 * MIB);
    let (most, rate) = path.run(Duration::from_secs(1));
    assert_eq!(most, 64 * MIB);
    assert!(rate > 0.99 * path.rate, "{rate}");
}

#[test]
fn the_window_doubles_with_each_round_trip_while_the_path_is_not_full() {
    let mut path = Path::new(100 * MS, 1e12, MIB, 1 << 30);
    let mut windows = Vec::new();
    for _ in 0..6 {
        path.run(path.delay);
        windows.push(path.window.bytes());
    }
    assert!(windows.windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{windows:?}");
    assert!(windows[0] <= 3 * FIRST * MESSAGE_MIN, "{windows:?}");
}

#[test]
fn a_short_path_never_takes_the_buffers_of_a_long_one() {
    // Loopback: 60 us and 3 GB/s hold 180 KB, less than one message.
    let mut path = Path::new(Duration::from_micros(60), 3e9, MIB, 64 * MIB);
    let (most, _) = path.run(Duration::from_secs(2));
    assert!(most <= 4 * MIB, "{most}");
    let (most, rate) = path.run(Duration::from_secs(20));
    assert!(most <= 4 * MIB, "{most}");
    assert!(rate > 0.9 * path.rate, "{rate}");
}

#[test]
fn a_slow_path_is_asked_for_little_at_a_time() {
    // 1 Mbit/s over 30 ms: two messages of 64 KiB take a second. Two of 1 MiB would take 17.
    let mut path = Path::new(30 * MS, 125e3, MIB, 64 * MIB);
    let (most, _) = path.run(Duration::from_secs(60));
    assert!(most <= FIRST * MESSAGE_MIN, "{most}");
    let (most, rate) = path.run(Duration::from_secs(60));
    assert!(most <= (LEAST + 1) * MESSAGE_MIN, "{most}");
    assert_eq!(path.window.message(), MESSAGE_MIN);
    assert!(rate > 0.9 * path.rate, "{rate}");
}

#[test]
fn a_full_path_holds_no_more_than_three_times_what_it_can() {
    for (delay, rate) in [(10 * MS, 125e6), (50 * MS, 12.5e6), (200 * MS, 125e6), (300 * MS, 1.25e6)] {
        let mut path = Path::new(delay, rate, MIB, 64 * MIB);
        path.run(60 * delay);
        // Longer than the least delay counts, so that it is measured again on the way.
        let (most, got) = path.run(Duration::from_secs(30));
        let bound = (3.3 * path.held()) as usize + LEAST * MIB;
        assert!(most <= bound, "{delay:?} {rate}: {most} of {bound}");
        assert!(got > 0.9 * rate, "{delay:?} {rate}: {got}");
    }
}

#[test]
fn a_path_that_gets_longer_or_shorter_is_measured_again() {
    let mut path = Path::new(10 * MS, 125e6, MIB, 64 * MIB);
    path.run(Duration::from_secs(2));
    path.delay = 200 * MS;
    path.run(Duration::from_secs(10));
    let (_, rate) = path.run(Duration::from_secs(5));
    assert!(rate > 0.9 * path.rate, "longer: {rate}");
    path.delay = 5 * MS;
    path.run(DELAY_LASTS + Duration::from_secs(2));
    let (most, rate) = path.run(Duration::from_secs(5));
    assert!(rate > 0.9 * path.rate, "shorter: {rate}");
    assert!(most <= (3.3 * path.held()) as usize + LEAST * MIB, "shorter: {most}");
}

#[test]
fn a_path_that_gets_slower_or_faster_is_measured_again() {
    let mut path = Path::new(40 * MS, 125e6, MIB, 64 * MIB);
    path.run(Duration::from_secs(2));
    path.rate = 6.25e6;
    // Rounds of the window before take some 3 s each now, and six of them tell.
    path.run(Duration::from_secs(25));
    let (most, rate) = path.run(Duration::from_secs(5));
    assert!(rate > 0.9 * path.rate, "slower: {rate}");
    assert!(most <= (3.3 * path.held()) as usize + LEAST * MIB, "slower: {most}");
    path.rate = 250e6;
    path.run(Duration::from_secs(3));
    let (_, rate) = path.run(Duration::from_secs(5));
    assert!(rate > 0.9 * path.rate, "faster: {rate}");
}

#[test]
fn a_program_that_is_slow_does_not_make_the_path_look_slow() {
    let mut path = Path::new(50 * MS, 125e6, MIB, 64 * MIB);
    path.run(Duration::from_secs(3));
    let before = path.window.bytes();
    // One message at a time, far below what the path can do.
    for _ in 0..30 {
        while !path.replies.is_empty() {
            path.receive();
        }
        path.now += 20 * MS;
        path.send(true);
    }
    assert_eq!(path.window.bytes(), before);
}

#[test]
fn no_window_is_over_its_bound_or_under_two_messages() {
    for bytes_max in [1, 2, 3, 4096, 100_000, 3 * MIB] {
        let mut path = Path::new(50 * MS, 1.25e9, MIB, bytes_max);
        for _ in 0..200 {
            path.fill();
            assert!(path.window.bytes() <= bytes_max);
            assert!(bytes_max == 1 || path.window.bytes() >= LEAST * path.window.message());
            path.receive();
        }
    }
}

#[test]
fn a_path_without_delay_or_without_clock_gives_no_absurd_window() {
    let mut window = Window::new(MIB, 64 * MIB, 0);
    for _ in 0..100 {
        let sent = window.sent(Duration::ZERO, false);
        window.arrived(sent, MIB, Duration::ZERO);
    }
    assert!(window.bytes() <= 4 * MIB, "{}", window.bytes());
    // A clock that goes back.
    let sent = window.sent(Duration::from_secs(9), false);
    window.arrived(sent, MIB, Duration::from_secs(3));
    assert!(window.bytes() <= 64 * MIB);
}

#[test]
fn a_window_starts_where_another_on_the_same_path_ended() {
    let mut path = Path::new(50 * MS, 125e6, MIB, 64 * MIB);
    assert_eq!(path.window.learned(), None);
    path.run(Duration::from_secs(5));
    let known = path.window.learned().unwrap();
    let mut next = Path::new(50 * MS, 125e6, MIB, 64 * MIB);
    next.window = Window::new(MIB, 64 * MIB, known);
    let (_, rate) = next.run(4 * 50 * MS);
    // The first round trip brings nothing.
    assert!(rate > 0.7 * path.rate, "{rate}");
    // A path that is slower by now soon takes it back.
    let mut slower = Path::new(50 * MS, 2e6, MIB, 64 * MIB);
    slower.window = Window::new(MIB, 64 * MIB, known);
    slower.run(Duration::from_secs(40));
    let (most, rate) = slower.run(Duration::from_secs(5));
    assert!(most <= 5 * slower.held() as usize + 3 * MESSAGE_MIN, "{most}");
    assert!(rate > 0.9 * slower.rate, "{rate}");
}

#[test]
fn replies_that_come_unevenly_keep_the_path_full() {
    // As on a radio link.
    let mut path = Path::new(20 * MS, 12.5e6, MIB, 64 * MIB);
    path.jitter = 20;
    path.run(Duration::from_secs(2));
    let (most, rate) = path.run(Duration::from_secs(30));
    assert!(rate > 0.85 * path.rate, "{rate}");
    assert!(most < 2 * MIB, "{most}");
}
