//! What one connection may use.

use core::time::Duration;

/// Limits of one connection. The defaults serve Linux's client with everything cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest msize that is agreed to, in bytes.
    pub msize: u32,
    /// Fids. Linux's client keeps one for every cached name.
    pub fids: usize,
    /// Requests that run at one time; over it nothing more is read. Those that wait are not counted.
    pub running: usize,
    /// Requests that wait for something that may never come: locks, FIFOs. Over it: EAGAIN.
    pub parked: usize,
    /// Bytes of replies that wait for a slow reader and of requests that run; over it no request is started. Requests
    /// that wait may hold as many again.
    pub unsent: usize,
    /// Requests of one tag that are not answered, under `.ix`. Over it nothing more is read, or, where the tag waits for a
    /// request that is parked, what comes is told so in its turn: EAGAIN.
    pub group: usize,
    /// Requests of a connection that wait for those of their tag before them, or for a fid in use. Over it nothing more is
    /// read, or, where nothing runs that is not parked, what comes is told so in its turn: EAGAIN.
    pub waiting: usize,
    /// Requests that may be told EAGAIN in their turn. A client that goes on beyond that hears nothing any more.
    pub refused: usize,
    /// Streams of the connection that have not been asked the end of. Over it those that ended longest ago are forgotten; where
    /// none did: EMFILE.
    pub streams: usize,
    /// From the connection's start to its first Tversion.
    pub handshake: Duration,
    /// From a frame's first byte to its last. At 1 MiB and 56 kbit/s a frame takes 150 s.
    pub frame: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            msize: 8 << 20,
            fids: 1 << 18,
            running: 256,
            parked: 1024,
            unsent: 4 << 20,
            group: 64,
            waiting: 4096,
            refused: 1 << 16,
            streams: 64,
            handshake: Duration::from_secs(10),
            frame: Duration::from_secs(300),
        }
    }
}
