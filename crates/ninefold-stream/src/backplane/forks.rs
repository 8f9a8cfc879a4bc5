//! Forks, as streams hear of them: a child of fork(2) is not to write what its parent freed and will write itself.
//!
//! Nothing of a stream is touched at the fork, where another thread may be in the middle of it. The child's thread gets another seat, so that
//! every stream refuses it short sections, and the count of forks is another: whoever enters a stream sees that it is a parent's, and
//! leaves to that what was freed by then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::libc;

use crate::error::{Error, Result};
use crate::primitives::{prepare_heir, take_heir};

/// Forks between this process and the first that had a stream.
static FORKS: AtomicU64 = AtomicU64::new(0);

pub fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn before() {
    prepare_heir();
}

extern "C" fn forked() {
    take_heir();
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// From now on children are told from their parents; where two threads ask at once, twice, which is as good.
pub fn hear() -> Result<()> {
    static HEARD: AtomicBool = AtomicBool::new(false);
    if !HEARD.load(Ordering::Acquire) {
        // SAFETY: what is called in the child writes to a variable of its thread's and counts, and stays loaded as the library does.
        if unsafe { libc::pthread_atfork(Some(before), None, Some(forked)) } != 0 {
            return Err(Error::NoMemory);
        }
        HEARD.store(true, Ordering::Release);
    }
    Ok(())
}
