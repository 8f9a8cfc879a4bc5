//! Messages counted: how many of each type, how many failed, how long they took (iostat(4)).
//!
//! A [`Counts`] is what was counted; clones of an `Arc<Mutex<Counts>>` let the [`Counter`] of every connection add to one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ninefold_proto::T;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{self, RVERSION, TFLUSH};
use ninefold_proto::types::Tag;
use ninefold_proto::wire;

use super::{Direction, Histogram, Observer, Part, Seen};

/// What was counted of one type of request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Count {
    pub requests: u64,
    /// Requests answered by Rerror or Rlerror.
    pub errors: u64,
    /// Bytes of the requests and of their replies.
    pub bytes_to_server: u64,
    pub bytes_to_client: u64,
    /// From the request's last byte to the reply's, as seen here. Requests without a reply are not in it.
    pub latency: Histogram,
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// By the request's name: `Tread`; `type 200` when no version that we know has it.
    pub by_type: BTreeMap<String, Count>,
    pub connections: u64,
    /// Every byte that passed, messages or not.
    pub bytes_to_server: u64,
    pub bytes_to_client: u64,
}

impl Counts {
    /// Adds what another counted.
    pub fn merge(&mut self, other: &Counts) {
        for (name, theirs) in &other.by_type {
            let mine = self.by_type.entry(name.clone()).or_default();
            mine.requests += theirs.requests;
            mine.errors += theirs.errors;
            mine.bytes_to_server += theirs.bytes_to_server;
            mine.bytes_to_client += theirs.bytes_to_client;
            mine.latency.merge(&theirs.latency);
        }
        self.connections += other.connections;
        self.bytes_to_server += other.bytes_to_server;
        self.bytes_to_client += other.bytes_to_client;
    }
}

/// The observer of one connection that counts.
#[derive(Debug)]
pub struct Counter {
    counts: Arc<Mutex<Counts>>,
    waiting: Mutex<Waiting>,
}

/// Requests without a reply so far, by tag; several of one tag are answered in order.
#[derive(Debug, Default)]
struct Waiting {
    by_tag: HashMap<Tag, VecDeque<Request>>,
    count: usize,
    /// The serial number of the next one.
    next: u64,
}

#[derive(Clone, Debug)]
struct Request {
    name: String,
    since: Instant,
    /// Counts the requests of the connection.
    serial: u64,
    /// Of a Tflush: the tag whose requests before it get no reply when this one has its own.
    oldtag: Option<Tag>,
}

/// Requests of a connection that are waited for: as many as there are tags. A client that has more open at once, under
/// shared tags, has some that are not timed.
const WAITING_MAX: usize = 1 << 16;

impl Waiting {
    fn push(&mut self, tag: Tag, name: String, since: Instant, oldtag: Option<Tag>) {
        if self.count < WAITING_MAX {
            let serial = self.next;
            self.next += 1;
            self.by_tag.entry(tag).or_default().push_back(Request { name, since, serial, oldtag });
            self.count += 1;
        }
    }

    fn pop(&mut self, tag: Tag) -> Option<Request> {
        let queue = self.by_tag.get_mut(&tag)?;
        let request = queue.pop_front();
        self.count -= usize::from(request.is_some());
        if queue.is_empty() {
            self.by_tag.remove(&tag);
        }
        request
    }

    /// Forgets what came under `tag` before the request `serial`.
    fn forget(&mut self, tag: Tag, serial: u64) {
        while self.by_tag.get(&tag).and_then(VecDeque::front).is_some_and(|request| request.serial < serial) {
            self.pop(tag);
        }
    }
}

impl Counter {
    /// Counts one more connection, into `counts`.
    pub fn new(counts: Arc<Mutex<Counts>>) -> Counter {
        counts.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
        Counter { counts, waiting: Mutex::default() }
    }

    fn see(&self, seen: &Seen<'_>, now: Instant) {
        let size = seen.size();
        let counts = &mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (head, frame): (&[u8], _) = match seen.part {
            Part::Whole(frame) => (frame, Some(frame)),
            Part::Head(head, _) => (head, None),
            Part::Raw(_) | Part::Data(_) => (&[], None),
        };
        let kind_and_tag = head.get(4..7).map(|b| (b[0], Tag(u16::from_le_bytes([b[1], b[2]]))));
        match seen.direction {
            Direction::ToServer => {
                counts.bytes_to_server += size;
                let Some((kind, tag)) = kind_and_tag else { return };
                let name = name(kind, seen.version);
                let oldtag = frame.filter(|_| kind == TFLUSH).and_then(|frame| oldtag(frame, seen.version));
                waiting.push(tag, name.clone(), now, oldtag);
                let count = counts.by_type.entry(name).or_default();
                count.requests += 1;
                count.bytes_to_server += size;
            }
            Direction::ToClient => {
                counts.bytes_to_client += size;
                let Some((kind, tag)) = kind_and_tag else { return };
                let request = waiting.pop(tag);
                if kind == RVERSION {
                    // version(5): whatever was outstanding is aborted.
                    *waiting = Waiting::default();
                }
                let Some(request) = request else { return };
                // A Tflush of its own tag is one of the group, and flushes nothing.
                if let Some(oldtag) = request.oldtag.filter(|oldtag| kind == TFLUSH + 1 && *oldtag != tag) {
                    waiting.forget(oldtag, request.serial);
                }
                let count = counts.by_type.entry(request.name).or_default();
                count.bytes_to_client += size;
                count.errors += u64::from(is_error(kind));
                count.latency.add(now.saturating_duration_since(request.since).max(Duration::from_nanos(1)));
            }
        }
    }
}

impl Observer for Counter {
    fn message(&self, seen: &Seen<'_>) {
        self.see(seen, Instant::now());
    }

    fn ended(&self, _result: &io::Result<()>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::default();
    }
}

fn name(kind: u8, version: Version) -> String {
    message::info(kind, version).map_or_else(|| format!("type {kind}"), |row| row.name.to_owned())
}

fn oldtag(frame: &[u8], version: Version) -> Option<Tag> {
    let (header, body) = wire::split_frame(frame).ok()?;
    match T::decode(header.kind, body, version).ok()? {
        T::Flush { oldtag } => Some(oldtag),
        _ => None,
    }
}

/// Rlerror and Rerror.
fn is_error(kind: u8) -> bool {
    matches!(kind, 7 | 107)
}

#[cfg(test)]
mod tests {
    use ninefold_proto::Dialect;

    use super::*;
    use ninefold_proto::types::Fid;
    use ninefold_proto::{Errno, R};

    struct Fixture {
        counter: Counter,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Fixture {
            Fixture { counter: Counter::new(Arc::default()), start: Instant::now() }
        }

        fn t(&self, ms: u64, tag: u16, t: &T<'_>) {
            let mut frame = Vec::new();
            t.encode(Tag(tag), Dialect::Linux, &mut frame);
            self.see(ms, Direction::ToServer, &frame);
        }

        fn r(&self, ms: u64, tag: u16, r: &R<'_>) {
            let mut frame = Vec::new();
            r.encode(Tag(tag), Dialect::Linux, &mut frame);
            self.see(ms, Direction::ToClient, &frame);
        }

        fn see(&self, ms: u64, direction: Direction, frame: &[u8]) {
            let seen = Seen { direction, part: Part::Whole(frame), version: Dialect::Linux.into() };
            self.counter.see(&seen, self.start + Duration::from_millis(ms));
        }

        fn count(&self, name: &str) -> Count {
            self.counter.counts.lock().unwrap().by_type.get(name).cloned().unwrap_or_default()
        }
    }

    #[test]
    fn a_reply_is_counted_with_its_request_and_timed() {
        let f = Fixture::new();
        f.t(0, 1, &T::Clunk { fid: Fid(1) });
        f.t(1, 2, &T::Clunk { fid: Fid(2) });
        f.r(4, 2, &R::Clunk {});
        f.r(5, 1, &R::Lerror { ecode: Errno::EBADF.0, retry_ms: 0, text: b"" });
        let count = f.count("Tclunk");
        assert_eq!((count.requests, count.errors, count.latency.count()), (2, 1, 2));
        assert_eq!((count.bytes_to_server, count.bytes_to_client), (22, 7 + 11));
        assert_eq!(count.latency.mean(), Some(Duration::from_millis(4)));
    }

    #[test]
    fn a_flushed_request_is_not_waited_for_and_its_tag_can_be_used_again() {
        let f = Fixture::new();
        f.t(0, 1, &T::Clunk { fid: Fid(1) });
        f.t(1, 2, &T::Flush { oldtag: Tag(1) });
        f.r(2, 2, &R::Flush {});
        f.t(10, 1, &T::Remove { fid: Fid(1) });
        f.r(13, 1, &R::Remove {});
        assert_eq!(f.count("Tclunk").latency.count(), 0);
        assert_eq!(f.count("Tremove").latency.mean(), Some(Duration::from_millis(3)));
        assert_eq!(f.counter.waiting.lock().unwrap().count, 0);
    }

    #[test]
    fn a_flush_forgets_only_what_came_before_it_and_nothing_of_its_own_tag() {
        let f = Fixture::new();
        f.t(0, 1, &T::Clunk { fid: Fid(1) });
        f.t(1, 2, &T::Flush { oldtag: Tag(1) });
        // Behind the Tflush, as a client sends that does not wait for the Rflush.
        f.t(2, 1, &T::Remove { fid: Fid(1) });
        f.r(3, 2, &R::Flush {});
        f.r(6, 1, &R::Remove {});
        assert_eq!(f.count("Tclunk").latency.count(), 0);
        assert_eq!(f.count("Tremove").latency.mean(), Some(Duration::from_millis(4)));

        f.t(10, 1, &T::Flush { oldtag: Tag(1) });
        f.t(10, 1, &T::Readlink { fid: Fid(1) });
        f.r(11, 1, &R::Flush {});
        f.r(15, 1, &R::Lerror { ecode: Errno::EBADF.0, retry_ms: 0, text: b"" });
        assert_eq!(f.count("Treadlink").latency.mean(), Some(Duration::from_millis(5)));
        assert_eq!(f.counter.waiting.lock().unwrap().count, 0);
    }

    #[test]
    fn replies_of_one_tag_come_in_the_order_of_its_requests() {
        let f = Fixture::new();
        f.t(0, 1, &T::Clunk { fid: Fid(1) });
        f.t(0, 1, &T::Remove { fid: Fid(2) });
        f.r(1, 1, &R::Clunk {});
        f.r(2, 1, &R::Remove {});
        assert_eq!(f.count("Tclunk").latency.mean(), Some(Duration::from_millis(1)));
        assert_eq!(f.count("Tremove").latency.mean(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn a_client_that_never_gets_replies_is_remembered_within_bounds() {
        let f = Fixture::new();
        (0..WAITING_MAX + 10).for_each(|_| f.t(0, 1, &T::Clunk { fid: Fid(1) }));
        assert_eq!(f.counter.waiting.lock().unwrap().count, WAITING_MAX);
    }

    #[test]
    fn what_is_no_message_counts_as_bytes_only() {
        let f = Fixture::new();
        let seen = Seen { direction: Direction::ToServer, part: Part::Raw(b"GET /"), version: Dialect::Plan9.into() };
        f.counter.message(&seen);
        let counts = f.counter.counts.lock().unwrap().clone();
        assert_eq!((counts.bytes_to_server, counts.by_type.len()), (5, 0));
    }
}
