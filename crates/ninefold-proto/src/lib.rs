//! 9P2000, 9P2000.u, 9P2000.L and 9P2000.L.n1 as data and state, without I/O, clock, threads or unsafe code.
//!
//! Bytes come in as slices, time comes in as an argument, effects go out as values. Start with
//! [`message`] (the table), [`wire`] (frames), [`dialect`] (negotiation), [`print`](mod@print) (the text form),
//! [`client`] and [`server`] (the two ends of a connection).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attr;
pub mod client;
pub mod dialect;
pub mod error;
pub mod message;
pub mod n1;
pub mod open;
pub mod plus;
pub mod print;
pub mod server;
pub mod stat;
pub mod stream;
pub mod types;
pub mod wire;

pub use dialect::Dialect;
pub use error::{Errno, Error};
pub use message::{R, T};
pub use types::{Fid, Name, Qid, QidType, Tag};
