//! The server's end of a connection as a state machine: tags, fids, flush order, msize and limits,
//! without I/O or clock.
//!
//! A driver owns a [`Session`] and the bytes. It
//!
//! 1. hands every whole frame to [`Session::handle_frame`], and does what the [`Event`] says:
//!    carry out a [`Request`], cancel requests, or hold the frame back and hand it in again after the next completion, and
//!    when a request comes to be parked; of a frame over [`Session::msize`] only the header, to
//!    [`Session::handle_large`]; and of a Twrite whose data it has elsewhere only what is before these, to
//!    [`Session::handle_write`];
//! 2. brings each request's result to [`Session::complete`];
//! 3. after any of 1, 2 and 4 takes [`Session::poll_member`] until there is none: requests whose turn has come among those of
//!    their tag, for [`Session::handle_member`], which says what [`Session::handle_frame`] does;
//! 4. and then [`Session::poll_farewell`]: files to clunk; their results go to [`Session::farewell_done`]; goes on with 3
//!    and 4 until neither brings anything;
//! 5. sends what is in the [`Outbox`], and asks [`Session::deadline`] how long it may wait for the peer.
//!
//! When the connection ends, [`Session::hang_up`] cancels everything; the driver goes on with 2 to 4
//! until [`Session::is_idle`].
//!
//! Promises: a tag is free only after its reply or its Rflush; Tclunk and Tremove always forget the
//! fid; a new fid exists only after a full walk; no reply is over msize; nothing is allocated for a
//! count before it was compared with the bytes there are; every file gets exactly one farewell, after
//! the last request that used it.

mod coming;
mod fids;
mod groups;
mod limits;
mod n1;
mod op;
mod outbox;
mod outside;
mod reply;
mod request;
mod session;
mod stream;

pub use groups::Member;
pub use limits::Limits;
pub use op::{
    Begun, Copied, Done, Farewell, FarewellId, Holder, Op, RecordEnd, Rename, Request, RequestId, Share, Special,
    Streaming, XattrWrite,
};
pub use outbox::{Bulk, Chunk, Outbox};
pub use outside::WRITE_HEAD;
pub use session::{Event, Parked, Session, Violation};

#[cfg(test)]
mod tests;
