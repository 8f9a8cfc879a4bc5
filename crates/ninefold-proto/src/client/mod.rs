//! The client's end of a connection as a state machine: negotiation, tags, fids, outstanding requests and
//! flushes, without I/O or clock.
//!
//! First a [`Handshake`]: send [`Handshake::offer`], hand each frame that comes to [`Handshake::handle_frame`] and do
//! what its [`Step`](crate::dialect::Step) says. Agreed, a [`Session`] takes over. Its methods are of three kinds:
//!
//! 1. commands: [`Session::call`] begins a request, [`Session::call_behind`] one that is carried out after it and may build on
//!    it, [`Session::cancel`] gives one up with what was called behind it, [`Session::withdraw`] takes one
//!    back that was not sent, [`Session::abandon`] parts with a fid;
//! 2. input: [`Session::handle_frame`] takes every whole frame that comes, and tells whose reply it is;
//! 3. output: [`Session::poll_transmit`], to be called after either until it gives nothing, appends the flushes and
//!    clunks that follow from them; [`Session::poll_turn`] tells which requests of chains go now, where the server has no groups.
//!
//! Promises: every reply is suspected: its tag was asked for, its type answers the request, its counts are no greater than
//! those asked; what is wrong is a [`ServerMisbehaved`], one variant a rule, after which the connection is of no use.
//! A tag is free only after its reply, or after the Rflush of the Tflush that gave it up, and is used again as late as can
//! be; tags cannot run out. A chain has the same answers whether it is sent at once, as a group, or one by one. A fid is clunked exactly once, after the last request that used it, whatever its owner does
//! meanwhile; a fid that a late reply established for a request given up is clunked too.
//!
//! With a server that is known a session may begin before the version is agreed: [`Presumption`].
//!
//! What it cannot do without a clock: see that a server never answers a Tflush or a Tclunk, for which nobody waits. The
//! driver watches [`Session::oldest_unattended`].

mod expect;
mod fids;
mod handshake;
mod line;
mod misbehaved;
mod presumption;
mod queue;
mod session;

pub use fids::Parting;
pub use handshake::Handshake;
pub use misbehaved::ServerMisbehaved;
pub use presumption::{Presumption, Verdict, changes};
pub use queue::Queue;
pub use session::{Answer, Due, Limits, Refused, Session, Turn};

#[cfg(test)]
mod tests;
