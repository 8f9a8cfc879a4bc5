//! What threads that share a stream read with the stream unlocked.
//!
//! A fill takes as long as dozens of regions, and who comes meanwhile would wait for it. So whoever takes a region behind the middle of a
//! buffer, and finds that nobody did before, makes a [`Plan`]: he leaves the stream, reads what follows the buffer, and lays it in
//! the [`Slot`]. Who needs the next buffer takes it from there. A thread alone does not do so: it would only read earlier.
//!
//! Order: the data of the slot continue the buffer that was current when the plan was made, and are taken only while that is so. The state
//! remembers where they begin, and forgets it when the stream goes elsewhere; then the next ones take their place.
//!
//! Locks: a stream's, then its slot's. Who reads has the slot's alone, from before he leaves the stream until the data lie there; so
//! who wants them waits for that read, and for nothing else. He has the stream then, as he would while he read himself.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::error::Result;
use crate::memory::{LONG, Memory, PAGE, POOLED};

/// Where data are read by several threads at a time.
pub trait Source: Send + Sync {
    /// Reads until the buffer is full, or to the end.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize>;
}

/// Data that follow those of the current buffer.
pub struct Fetched {
    pub memory: Memory,
    /// Where in the memory they begin, behind room for what was read before and not taken.
    pub start: usize,
    pub length: usize,
    /// Offset of the first of them.
    pub offset: u64,
    /// The file's count of changes before they were read.
    pub seen: u64,
}

/// Where they lie until they are wanted.
pub type Slot = Mutex<Option<Fetched>>;

/// A read to be made with the stream unlocked.
pub struct Plan {
    pub source: Arc<dyn Source>,
    pub offset: u64,
    /// Bytes at most.
    pub bytes: usize,
    /// Bytes of the current buffer that are probably left when it is taken: they go before the others.
    pub left: usize,
    pub memory: Option<Memory>,
    pub seen: u64,
}

impl Plan {
    /// Reads. What goes wrong, and the end, who wants the data meets again himself.
    pub fn carry_out(self, mut slot: MutexGuard<'_, Option<Fetched>>) {
        *slot = self.fetch();
    }

    fn fetch(self) -> Option<Fetched> {
        let Plan { source, offset, bytes, left, memory, seen } = self;
        // As it lies in the file's page, behind that room; and no more than a buffer that is kept for use again, where that is much.
        let start = left.max(1).next_multiple_of(PAGE) + (offset % PAGE as u64) as usize;
        let end = (start + bytes).next_multiple_of(PAGE);
        let kept = [POOLED, LONG].into_iter().find(|&kept| bytes <= kept && start <= kept / 4);
        let end = kept.map_or(end, |kept| end.min(kept));
        let mut memory = Memory::reused(memory, end).ok()?;
        let room = memory.as_mut_slice()?.get_mut(start..end)?;
        let length = source.read(offset, room).ok().filter(|&length| length > 0)?;
        Some(Fetched { memory, start, length, offset, seen })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::backplane::core::Core;
    use crate::backplane::file::File;
    use crate::backplane::state::State;
    use crate::calibration::Calibration;
    use crate::lock::StreamLock;
    use crate::memory::Frozen;
    use crate::module::{Chunk, Fill, StreamModule};
    use crate::raw::{Raw, Wanted};
    use crate::stream::Stream;

    /// Only a failing test waits so long.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Bytes of a fill, and of the stream.
    const PIECE: usize = 4 * PAGE;
    const ALL: u64 = 4 * PIECE as u64;

    /// What is at an offset.
    fn byte(at: u64) -> u8 {
        (at / 64 % 251) as u8
    }

    /// A module that says when it reads unlocked, and waits then.
    struct Slow {
        source: Arc<Gate>,
        fills: Arc<AtomicUsize>,
        /// Where the last one began to read.
        from: Arc<AtomicUsize>,
    }

    struct Gate {
        began: std::sync::Mutex<Sender<()>>,
        go_on: std::sync::Mutex<Receiver<()>>,
    }

    impl Source for Gate {
        fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
            self.began.lock().unwrap().send(()).unwrap();
            let _ = self.go_on.lock().unwrap().recv_timeout(PATIENCE);
            let length = buffer.len().min((ALL - at) as usize);
            (at..).zip(&mut buffer[..length]).for_each(|(at, to)| *to = byte(at));
            Ok(length)
        }
    }

    impl StreamModule for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
            self.fills.fetch_add(1, Ordering::Relaxed);
            self.from.store(fill.at as usize + fill.tail.len(), Ordering::Relaxed);
            let mut memory = Memory::pooled(ALL as usize)?;
            let length = PIECE.max(fill.least).min((ALL - fill.at) as usize);
            let bytes = memory.as_mut_slice().unwrap();
            (fill.at..).zip(&mut bytes[..length]).for_each(|(at, to)| *to = byte(at));
            Ok(Chunk { memory: Frozen::new(memory), start: 0, length, offset: fill.at })
        }

        fn ahead(&mut self, _from: u64) -> Option<(Arc<dyn Source>, usize)> {
            Some((self.source.clone(), PIECE))
        }
    }

    /// A stream that threads share.
    struct Scene {
        stream: Stream,
        fills: Arc<AtomicUsize>,
        /// Where the last fill began to read.
        from: Arc<AtomicUsize>,
        /// Somebody began to read unlocked.
        began: Receiver<()>,
        /// Dropped, nobody who does waits any more.
        go: Sender<()>,
    }

    fn scene() -> Scene {
        let (tell, began) = channel();
        let (go, go_on) = channel();
        let source = Arc::new(Gate { began: std::sync::Mutex::new(tell), go_on: std::sync::Mutex::new(go_on) });
        let fills = Arc::new(AtomicUsize::new(0));
        let from = Arc::new(AtomicUsize::new(0));
        let module = Box::new(Slow { source, fills: fills.clone(), from: from.clone() });
        let state = State::new(module, (true, false), Calibration::default());
        let stream = Stream::new(Arc::new(Core::new(StreamLock::new(None), File::of(None), state)));
        Scene { stream, fills, from, began, go }
    }

    /// One thread comes behind the middle of the first buffer and reads, and meanwhile another takes a region.
    fn take_while_one_reads(take: &(impl Fn(u64) + Sync), began: &Receiver<()>, go: Sender<()>) {
        std::thread::scope(|scope| {
            take(0);
            // Now half of the buffer is gone: this one goes and reads.
            let reader = scope.spawn(|| take(1));
            began.recv_timeout(PATIENCE).unwrap();
            let (done, is_done) = channel();
            let other = scope.spawn(move || {
                take(2);
                done.send(()).unwrap();
            });
            let taken = is_done.recv_timeout(PATIENCE);
            drop(go); // nobody waits any more, also where this fails
            taken.expect("a region, while another thread reads");
            reader.join().unwrap();
            other.join().unwrap();
        });
    }

    #[test]
    fn others_take_regions_while_one_reads_and_the_next_buffer_is_what_he_read() {
        let Scene { stream, fills, began, go, .. } = scene();
        let stream = &stream;
        let take = move |region: u64| {
            let taken = stream.alloc(PAGE).unwrap();
            assert!(taken.iter().zip(region * PAGE as u64..).all(|(&is, at)| is == byte(at)), "region {region}");
        };
        take_while_one_reads(&take, &began, go);
        (3..16).for_each(take);
        assert_eq!(fills.load(Ordering::Relaxed), 1);
        assert_eq!(stream.alloc(PAGE).unwrap().len(), 0);
        // Elsewhere it is no use.
        stream.seek(std::io::SeekFrom::Start(0)).unwrap();
        take(0);
        take(1);
        stream.seek(std::io::SeekFrom::Start(ALL / 2)).unwrap();
        (8..16).for_each(take);
        assert_eq!(fills.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn what_was_read_unlocked_is_not_read_again_however_much_was_left_before_it() {
        // A long region at the end is as long as what is at hand and was read, or longer: then the rest is read, and no more.
        for (last, fills_then, from_then) in [(5, 1, 0), (8, 2, 12)] {
            let Scene { stream, fills, from, go, began: _began } = scene();
            drop(go); // nobody waits
            let mut at = 0;
            let halves = [4, 1, 5, 1, 2 * last];
            for (n, bytes) in halves.map(|half| half * PAGE / 2).into_iter().enumerate() {
                let taken = stream.alloc(bytes).unwrap();
                assert_eq!(taken.len(), bytes);
                assert!(taken.iter().zip(at..).all(|(&is, at)| is == byte(at)), "region {n} of {last}");
                at += bytes as u64;
            }
            assert_eq!((fills.load(Ordering::Relaxed), from.load(Ordering::Relaxed)), (fills_then, from_then * PAGE));
        }
    }

    #[test]
    fn who_has_regions_by_their_addresses_reads_with_the_stream_unlocked_too() {
        let Scene { stream, fills, began, go, .. } = scene();
        let raw = &Raw::new(stream);
        let take = move |region: u64| {
            let taken = match region % 2 {
                0 => raw.alloc(Wanted::bytes(PAGE)).unwrap(),
                // Up to a byte that is not in there.
                _ => raw.until(0xff, PAGE).unwrap(),
            };
            assert_eq!(taken.bytes, PAGE);
            raw.free(taken.at).unwrap();
        };
        take_while_one_reads(&take, &began, go);
        (3..16).for_each(take);
        assert_eq!(fills.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_was_read_before_a_change_is_read_again() {
        let Scene { stream, fills, began, go, .. } = scene();
        drop((stream.alloc(PAGE).unwrap(), stream.alloc(0)));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| drop(stream.alloc(PAGE).unwrap()));
            began.recv_timeout(PATIENCE).unwrap();
            // Somebody in this process writes the file while it is read.
            stream.core().file.changed();
            drop(go);
            reader.join().unwrap();
        });
        let before = fills.load(Ordering::Relaxed);
        (0..2).for_each(|_| drop(stream.alloc(PAGE).unwrap()));
        drop(stream.alloc(PAGE).unwrap());
        assert!(fills.load(Ordering::Relaxed) > before, "what the slot has is of before the change");
        // All that follows is the module's.
        let taken = stream.alloc(PAGE).unwrap();
        assert!(taken.iter().zip(5 * PAGE as u64..).all(|(&is, at)| is == byte(at)));
    }
}
