//! The words that both ends of a ring have, and how one wakes the other.
//!
//! Each end has an [`End`] that it alone writes, but for `sleep`, which the other takes back to wake it. Who waits says so, looks once more,
//! and sleeps; who gives something looks behind a fence whether the other said so. Either the one sees what was given, or the other
//! that somebody sleeps: `tests/ring_model.rs` tries every order under loom, with [`wait`] as it is.
//!
//! What the other end wrote may be anything: who reads a word compares it with what can be before it is used.

use crate::primitives::{AtomicU32, AtomicU64, Ordering, fence};

/// Values of `sleep`. Anything else counts as [`ON_LINE`].
pub const AWAKE: u32 = 0;
/// It waits for the word itself (futex(2)).
pub const ON_WORD: u32 = 1;
/// It waits for the life line.
pub const ON_LINE: u32 = 2;
/// It found nothing and went: nobody is to be woken.
pub const AWAY: u32 = 3;

/// One end. On lines of the cache of its own.
#[repr(C, align(128))]
pub struct End {
    /// Bytes since the beginning: the writer's are in the ring up to there, the reader's are out of it.
    pub at: AtomicU64,
    /// The reader's: what the writer's `at` was when it last lay down.
    pub seen: AtomicU64,
    sleep: AtomicU32,
    /// The processor that it last lay down on, and one more; 0 is none. What the other end does by it is at most slower than could be.
    processor: AtomicU32,
}

#[repr(C)]
pub struct Words {
    /// What it is, and in which form: [`super::pages`].
    pub kind: AtomicU64,
    /// 0, or one more than the writer's `at` when it closed.
    pub closed: AtomicU64,
    pub writer: End,
    pub reader: End,
}

impl End {
    #[allow(dead_code, reason = "the model makes one; those of a ring are in its memory")]
    pub fn new() -> End {
        let (at, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        End { at, seen, sleep: AtomicU32::new(AWAKE), processor: AtomicU32::new(0) }
    }

    fn lie_down(&self, seen: u64, how: u32) {
        // Release, both: who sees it lie, or what it has seen, sees what it gave before. The other may see that it lay before, and this.
        self.seen.store(seen, Ordering::Release);
        self.sleep.store(how, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn get_up(&self) {
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }

    /// Did it lie down on this processor? Then it will hardly run while this end does: to wake it early is to wait for it.
    pub fn is_on(&self, processor: u32) -> bool {
        processor != 0 && self.processor.load(Ordering::Relaxed) == processor
    }

    /// Does it wait, having seen all up to there? What it gave before is seen by who asks.
    pub fn lies_at(&self, at: u64) -> bool {
        self.sleep.load(Ordering::Acquire) != AWAKE && self.seen.load(Ordering::Acquire) == at
    }

    /// Something was given: wakes the end if it sleeps.
    pub fn rouse(&self, bed: &impl Bed) {
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) != AWAKE {
            let how = self.sleep.swap(AWAKE, Ordering::AcqRel);
            if how != AWAKE && how != AWAY {
                bed.wake(&self.sleep, how);
            }
        }
    }
}

/// Where one sleeps.
pub trait Bed {
    type Error;

    /// May it be waited at all?
    fn may_sleep(&self) -> Result<(), Self::Error>;

    /// The one that this thread is on, and one more; 0 where nobody knows.
    fn processor(&self) -> u32;

    /// [`ON_WORD`] or [`ON_LINE`].
    fn how(&self) -> u32;

    /// Until the word is not `how` any more, or somebody wakes; it may return for no reason.
    fn sleep(&mut self, word: &AtomicU32) -> Result<(), Self::Error>;

    fn wake(&self, word: &AtomicU32, how: u32);
}

/// What one sees who looks.
pub enum Look<T> {
    Done(T),
    /// Not what is waited for; the other's `at` is this.
    Not(u64),
}

/// Waits until `look` sees what is waited for. The other end is woken before this one sleeps: it may wait for what this one has given, or
/// have to know that this one waits.
///
/// # Errors
/// Those of `look` and of the bed.
pub fn wait<T, B: Bed>(
    me: &End,
    other: &End,
    bed: &mut B,
    mut look: impl FnMut() -> Result<Look<T>, B::Error>,
) -> Result<T, B::Error> {
    loop {
        let seen = match look()? {
            Look::Done(done) => return Ok(done),
            Look::Not(seen) => seen,
        };
        let may = bed.may_sleep();
        me.processor.store(bed.processor(), Ordering::Relaxed);
        me.lie_down(seen, if may.is_ok() { bed.how() } else { AWAY });
        match look() {
            Ok(Look::Not(seen)) => me.seen.store(seen, Ordering::Release),
            found => {
                me.get_up();
                if let Look::Done(done) = found? {
                    return Ok(done);
                }
            }
        }
        other.rouse(bed);
        may?;
        let slept = bed.sleep(&me.sleep);
        me.get_up();
        if let Err(e) = slept {
            return match look()? {
                Look::Done(done) => Ok(done),
                Look::Not(_) => Err(e),
            };
        }
    }
}
