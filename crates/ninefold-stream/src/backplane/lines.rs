//! Streams of this process that write to terminals. Whoever waits for a terminal has them written before: who is asked sees the question,
//! on whichever stream it is.
//!
//! Order of locks: none is waited for. A stream that another thread is at is left to it: it writes its lines itself, or waits for the
//! terminal and has had this done.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::io::Errno;

use super::core::Core;
use crate::error::{Error, Result};

/// With the process that each is of: a child of fork(2) has copies of its parent's, whose bytes the parent writes, and whose threads it has not.
static STREAMS: Mutex<Vec<(u32, Weak<Core>)>> = Mutex::new(Vec::new());

/// A stream that writes lines begins.
pub fn join(core: &Arc<Core>) {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.retain(|(_, stream)| stream.strong_count() > 0);
    streams.push((std::process::id(), Arc::downgrade(core)));
}

/// What was freed on the others goes to where it goes. `me` is entered by this thread, and has written its own.
///
/// # Errors
/// Of a signal: who waits for the terminal is to hear of it. Others are kept, and told by the stream that they are of.
pub fn write_others(me: &Core) -> Result<()> {
    let others: Vec<Arc<Core>> = {
        let streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let ours = streams.iter().filter(|(of, _)| *of == process).filter_map(|(_, stream)| stream.upgrade());
        ours.filter(|core| !std::ptr::eq(&raw const **core, me)).collect()
    };
    for core in others {
        if let Some(mut state) = core.try_enter()
            && state.write
            && state.drain() == Err(Error::Os(Errno::INTR))
        {
            return Err(Error::Os(Errno::INTR));
        }
    }
    Ok(())
}
