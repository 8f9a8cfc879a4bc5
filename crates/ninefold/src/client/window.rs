//! How much to have on the way: an estimate of a path's delay and rate, without I/O or clock.
//!
//! A stream of requests is told to [`Window::sent`] and [`Window::arrived`]; [`Window::bytes`] says how many bytes may
//! be asked for and not be taken yet, [`Window::message`] how many one request should ask for. Time is an argument: what
//! passed since any moment that stays the same.
//!
//! The model is that of BBR ("BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016): the least delay seen
//! lately times the greatest rate seen lately is what the path holds, and three times that is asked for. The delay is that of
//! the path alone, without the time that a message takes to pass at that rate. While less is on the way than the path
//! holds the rate doubles with each round trip and so does the window; when the path is full the rate stays, and so does
//! the window, so a short path never takes the buffers of a long one.
//!
//! The least delay can be seen only while no requests of ours wait in front of others. Every [`DELAY_LASTS`], and when
//! every reply has come late for some rounds, the window therefore shrinks to half of what the path holds for about two
//! round trips, and what is measured then replaces it.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a message while the rate is not known, and the least later: 5 ms at 100 Mbit/s. Larger ones would take
/// seconds on the slowest links before anything can be measured.
const MESSAGE_MIN: usize = 64 * 1024;

/// A message is to take at least so long on the way, so that what it costs besides (some 20 µs at each end) is little.
const MESSAGE_TIME: Duration = Duration::from_millis(1);

/// A window is at least so many messages, unless they would be smaller than [`MESSAGE_MIN`] or shorter than
/// [`MESSAGE_TIME`]: what one round trip brings comes in parts, and room comes back in parts.
const PARTS: usize = 8;

/// Messages of the first window.
const FIRST: usize = 4;

/// Messages besides what the path holds, and so of the least window but while the delay is measured: one is being made
/// at the far end while another is being taken here.
const LEAST: usize = 2;

/// How much of what the path holds is asked for. TCP may have up to twice that on the way (its queue, or BBR's cwnd_gain); the rest
/// waits at the far end, so that TCP there need not wait for our requests. (200 MB over 50 ms and 1 Gbit/s beside other
/// programs took 10 % longer than a bare pump with 2, 6 % with 3: five rounds each. On a quiet machine there is no difference.)
const GAIN: f64 = 3.0;

/// The same while the rate still grows: 3 / ln 2, after BBR's 2 / ln 2, so that it doubles although what is measured lags behind.
const STARTUP_GAIN: f64 = 4.33;

/// Growth of the rate in a round that tells that the path is not full yet (BBR's).
const GROWTH: f64 = 1.25;

/// Rounds without growth after which the path is full (BBR's).
const FULL_ROUNDS: u32 = 3;

/// Rounds for which the greatest rate counts. BBR takes 10; it probes in cycles of 8, which this does not.
const RATE_ROUNDS: u64 = 6;

/// How long the least delay counts (BBR's).
const DELAY_LASTS: Duration = Duration::from_secs(10);

/// A full window delays by [`GAIN`] times the least delay and [`LEAST`] messages; a round in which nothing came within this
/// many times the least delay and twice as many messages tells that the delay is another now.
const FAR: f64 = 4.5;

/// So many such rounds in a row.
const FAR_ROUNDS: u32 = 3;

/// A delay measured to be less than this part of the one before is measured once more.
const SHORTER: f64 = 0.75;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Window {
    /// Bounds, in bytes.
    message_max: usize,
    bytes_max: usize,
    /// What holds now, in bytes.
    message: usize,
    bytes: usize,
    delay: Option<Delay>,
    /// Bytes per second, with the round of each: the greatest first, and each greater than those behind it.
    rates: VecDeque<(u64, f64)>,
    /// Bytes that arrived in all, and when the last did.
    delivered: u64,
    delivered_at: Duration,
    /// When the request was sent whose reply came last.
    last_sent: Duration,
    requests: usize,
    round: Round,
    startup: Option<Startup>,
    drain: Option<Drain>,
}

/// From a request to the end of its reply.
#[derive(Clone, Copy, Debug)]
struct Delay {
    all: Duration,
    /// Of the reply.
    bytes: usize,
    seen: Duration,
}

impl Delay {
    /// Seconds on a path of `rate` bytes per second, had the reply no length.
    fn of_path(&self, rate: f64) -> f64 {
        let passing = if rate > 0.0 { self.bytes as f64 / rate } else { 0.0 };
        (self.all.as_secs_f64() - passing).max(0.0)
    }
}

/// From a moment to the arrival of what is sent at that moment.
#[derive(Debug)]
struct Round {
    number: u64,
    /// It ends with a reply to what was sent when so many bytes had arrived.
    end: u64,
    least: Duration,
    /// Rounds in a row in which every reply was late.
    far: u32,
}

#[derive(Debug, Default)]
struct Startup {
    best: f64,
    rounds_without_growth: u32,
}

/// The queue is being let go, to see the delay without it.
#[derive(Debug, Default)]
struct Drain {
    least: Option<Delay>,
    /// Ends with a reply to what was sent when so many bytes had arrived.
    end: u64,
}

/// What is remembered of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Duration,
    delivered: u64,
    delivered_at: Duration,
    last_sent: Duration,
    limited: bool,
    drained: bool,
}

impl Window {
    /// For messages of at most `message_max` bytes and never more than `bytes_max` bytes on the way; both at least 1.
    /// `known`: bytes that another window on the same path ended with ([`Window::learned`]), 0 for none; it starts there
    /// if that is more than [`FIRST`] messages.
    pub fn new(message_max: usize, bytes_max: usize, known: usize) -> Window {
        let message_max = message_max.min(bytes_max / LEAST).max(1);
        let message = (known / PARTS).max(MESSAGE_MIN).min(message_max);
        Window {
            message_max,
            bytes_max,
            message,
            bytes: known.max(FIRST * message).min(bytes_max),
            delay: None,
            rates: VecDeque::new(),
            delivered: 0,
            delivered_at: Duration::ZERO,
            last_sent: Duration::ZERO,
            requests: 0,
            round: Round { number: 0, end: 0, least: Duration::MAX, far: 0 },
            startup: Some(Startup::default()),
            drain: None,
        }
    }

    /// What it holds by what it measured, for another window on the same path.
    pub fn learned(&self) -> Option<usize> {
        Some(self.bytes).filter(|_| self.delay.is_some() && self.drain.is_none())
    }

    /// Bytes that may be on the way, or arrived and not taken. One message may always be.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that the next message should carry.
    pub fn message(&self) -> usize {
        self.message
    }

    /// A request goes out. `limited`: it might have gone sooner, had the program been faster; what the path can do is
    /// not seen from it.
    pub fn sent(&mut self, now: Duration, limited: bool) -> Sent {
        if self.requests == 0 {
            // The time without any request is nobody's rate.
            (self.delivered_at, self.last_sent) = (now, now);
        }
        self.requests += 1;
        Sent {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            last_sent: self.last_sent,
            limited,
            drained: self.drain.is_some(),
        }
    }

    /// A request of [`Window::sent`] is given up, or failed.
    pub fn lost(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Its reply came, with `bytes` bytes.
    pub fn arrived(&mut self, sent: Sent, bytes: usize, now: Duration) {
        self.lost();
        self.delivered += bytes as u64;
        self.delivered_at = now;
        self.last_sent = sent.at;
        self.take_rate(sent, now);
        self.take_delay(sent, Delay { all: now.saturating_sub(sent.at), bytes, seen: now });
        if sent.delivered >= self.round.end {
            self.end_round();
        }
        self.settle();
    }

    fn take_delay(&mut self, sent: Sent, delay: Delay) {
        self.round.least = self.round.least.min(delay.all);
        let rate = self.rate();
        let less = |known: &Delay| delay.of_path(rate) <= known.of_path(rate);
        if let Some(drain) = &mut self.drain {
            if !sent.drained {
                return;
            }
            match drain.least {
                None => drain.end = self.delivered,
                Some(known) if !less(&known) => {}
                Some(_) => drain.least = None,
            }
            let least = *drain.least.get_or_insert(delay);
            if sent.delivered >= drain.end {
                let known = self.delay.replace(Delay { seen: delay.seen, ..least });
                // A path that got much shorter: half of what it held before may still queue on it.
                let shorter = known.is_some_and(|known| least.of_path(rate) < known.of_path(rate) * SHORTER);
                self.drain = shorter.then(Drain::default);
            }
            return;
        }
        match &self.delay {
            Some(known) if !less(known) => {
                if delay.seen.saturating_sub(known.seen) > DELAY_LASTS {
                    self.start_drain();
                }
            }
            _ => self.delay = Some(delay),
        }
    }

    fn start_drain(&mut self) {
        self.round.far = 0;
        self.drain = Some(Drain::default());
    }

    fn take_rate(&mut self, sent: Sent, now: Duration) {
        // Replies that come in a bunch, because something on the way held them up, have not come faster than they were
        // asked for.
        let interval = now.saturating_sub(sent.delivered_at).max(sent.at.saturating_sub(sent.last_sent));
        // The clocks of computers tell microseconds apart.
        let seconds = interval.as_secs_f64().max(1e-6);
        let rate = (self.delivered - sent.delivered) as f64 / seconds;
        if sent.limited && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|&(_, slower)| slower <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round.number, rate));
        while self.rates.front().is_some_and(|&(round, _)| round + RATE_ROUNDS < self.round.number) {
            self.rates.pop_front();
        }
    }

    fn end_round(&mut self) {
        let rate = self.rate();
        self.startup = self.startup.take().and_then(|mut startup| {
            if rate >= startup.best * GROWTH {
                startup = Startup { best: rate, rounds_without_growth: 0 };
            } else {
                startup.rounds_without_growth += 1;
            }
            Some(startup).filter(|startup| startup.rounds_without_growth < FULL_ROUNDS)
        });
        let late = self.delay.is_some_and(|delay| {
            let in_time = delay.of_path(rate) * FAR + (2 * LEAST * self.message) as f64 / rate;
            self.round.least.as_secs_f64() > in_time
        });
        let far = if late && self.drain.is_none() { self.round.far + 1 } else { 0 };
        self.round = Round { number: self.round.number + 1, end: self.delivered, least: Duration::MAX, far };
        if far >= FAR_ROUNDS {
            // The path is another: what was seen before these rounds is not of it.
            let first = self.round.number - u64::from(FAR_ROUNDS);
            self.rates.retain(|&(round, _)| round >= first);
            self.startup = Some(Startup::default());
            self.start_drain();
        }
    }

    fn settle(&mut self) {
        let Some(delay) = self.delay else { return };
        let rate = self.rate();
        let held = delay.of_path(rate) * rate;
        let gain = if self.startup.is_some() { STARTUP_GAIN } else { GAIN };
        // Floats that are too large become the largest integer; the bounds see to it.
        let wanted = (held * gain) as usize;
        let slow = (rate * MESSAGE_TIME.as_secs_f64()) as usize;
        let message = slow.max(wanted / PARTS).clamp(MESSAGE_MIN.min(self.message_max), self.message_max);
        self.message = message;
        let bytes = match (&self.drain, &self.startup) {
            // A single message, where the path holds no more: a second one would wait for it.
            (Some(_), _) => ((held / 2.0) as usize).max(message),
            // Not yet all replies of the first rounds are there to be measured.
            (None, Some(_)) => wanted.saturating_add(LEAST * message).max(self.bytes),
            (None, None) => wanted.saturating_add(LEAST * message),
        };
        self.bytes = bytes.min(self.bytes_max);
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |&(_, rate)| rate)
    }
}

#[cfg(test)]
mod tests;
