//! The wake-ups of a ring under loom: every order of the steps of a writer and a reader, with the words and the waiting of the product. A
//! wake-up that is lost leaves one of them asleep for ever, which loom tells.

/// What `src/primitives.rs` is to the product, of loom's atomics.
mod primitives {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[allow(dead_code, reason = "the model asks for less than a ring does")]
#[path = "../src/module/ring/words.rs"]
mod words;

use std::convert::Infallible;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use words::{Bed, End, Look, ON_WORD, Words, wait};

/// futex(2): one that sleeps compares the word and sleeps in one step.
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn new() -> Futex {
        Futex { queue: Mutex::new(()), woken: Condvar::new() }
    }
}

struct Model {
    words: Words,
    /// Of the writer's word, and of the reader's.
    futexes: [Futex; 2],
    capacity: u64,
}

impl Model {
    fn new(capacity: u64) -> Arc<Model> {
        let words =
            Words { kind: AtomicU64::new(0), closed: AtomicU64::new(0), writer: End::new(), reader: End::new() };
        Arc::new(Model { words, futexes: [Futex::new(), Futex::new()], capacity })
    }

    fn bed(&self, own: usize) -> Place<'_> {
        Place { own: &self.futexes[own], other: &self.futexes[1 - own] }
    }

    /// As the writer waits for room: false where there will be none, as the reader waits too.
    fn room(&self, at: u64, bytes: u64) -> bool {
        let words = &self.words;
        let free = || self.capacity - (at - words.reader.at.load(Ordering::Acquire));
        let done = wait(&words.writer, &words.reader, &mut self.bed(0), || {
            Ok(match () {
                () if free() >= bytes => Look::Done(true),
                () if words.reader.lies_at(at) => Look::Done(free() >= bytes),
                () => Look::Not(0),
            })
        });
        done.unwrap_or_else(|never| match never {})
    }

    fn give(&self, at: u64, rouse: bool) {
        self.words.writer.at.store(at, Ordering::Release);
        if rouse {
            self.words.reader.rouse(&self.bed(0));
        }
    }

    fn close(&self, at: u64) {
        self.words.closed.store(at + 1, Ordering::Release);
        self.words.reader.rouse(&self.bed(0));
    }

    /// As the reader waits for data: where it ends, None where it is closed.
    fn data(&self, next: u64, bytes: u64) -> Option<u64> {
        let words = &self.words;
        let done = wait(&words.reader, &words.writer, &mut self.bed(1), || {
            let closed = words.closed.load(Ordering::Acquire);
            let end = words.writer.at.load(Ordering::Acquire);
            Ok(match end - next {
                have if have >= bytes => Look::Done(Some(end)),
                _ if closed != 0 => Look::Done(None),
                _ => Look::Not(end),
            })
        });
        done.unwrap_or_else(|never| match never {})
    }

    fn give_back(&self, to: u64, rouse: bool) {
        self.words.reader.at.store(to, Ordering::Release);
        if rouse {
            self.words.writer.rouse(&self.bed(1));
        }
    }
}

struct Place<'a> {
    own: &'a Futex,
    other: &'a Futex,
}

impl Bed for Place<'_> {
    type Error = Infallible;

    fn may_sleep(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn processor(&self) -> u32 {
        0
    }

    fn how(&self) -> u32 {
        ON_WORD
    }

    fn sleep(&mut self, word: &AtomicU32) -> Result<(), Infallible> {
        let queue = self.own.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == ON_WORD {
            drop(self.own.woken.wait(queue).unwrap());
        }
        Ok(())
    }

    fn wake(&self, _word: &AtomicU32, _how: u32) {
        let _queue = self.other.queue.lock().unwrap();
        self.other.woken.notify_all();
    }
}

/// Every order with at most three preemptions, as in `lock_model.rs`.
fn every_order(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

#[test]
fn a_reader_that_waits_gets_what_is_flushed_and_the_end() {
    every_order(|| {
        let model = Model::new(4);
        let writer = {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.give(1, true);
                model.close(1);
            })
        };
        assert_eq!(model.data(0, 1), Some(1));
        assert_eq!(model.data(1, 1), None);
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_that_waits_for_room_wakes_who_was_not_told_of_data_and_is_woken() {
    every_order(|| {
        let model = Model::new(2);
        let writer = {
            let model = model.clone();
            loom::thread::spawn(move || {
                // Too little to wake anybody for, until it waits itself.
                model.give(1, false);
                assert!(model.room(1, 2), "it is given back");
                model.give(3, true);
            })
        };
        assert_eq!(model.data(0, 1), Some(1));
        model.give_back(1, true);
        assert_eq!(model.data(1, 2), Some(3));
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_that_waits_wakes_who_was_not_told_of_room() {
    every_order(|| {
        let model = Model::new(2);
        let writer = {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.give(2, true);
                assert!(model.room(2, 1), "it is given back");
                model.give(3, true);
            })
        };
        let end = model.data(0, 2).unwrap();
        assert_eq!(end, 2);
        // Too little to wake anybody for, until it waits itself.
        model.give_back(1, false);
        assert_eq!(model.data(2, 1), Some(3));
        writer.join().unwrap();
    });
}

#[test]
fn where_the_reader_keeps_all_and_waits_the_writer_knows_and_does_not_wait() {
    every_order(|| {
        let model = Model::new(2);
        let writer = {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.give(2, false);
                assert!(!model.room(2, 1), "nothing is given back");
                model.close(2);
            })
        };
        assert_eq!(model.data(0, 1), Some(2));
        assert_eq!(model.data(2, 1), None);
        writer.join().unwrap();
    });
}
