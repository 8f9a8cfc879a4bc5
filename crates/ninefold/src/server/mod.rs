//! The server library: write a [`FileServer`], hand it to a [`Server`], and any 9P client can use it.

mod alarm;
mod answer;
mod arrivals;
mod calm;
mod conduit;
mod connection;
mod cx;
mod data;
mod decisions;
mod dispatch;
mod draining;
mod early;
mod egress;
mod exports;
pub(crate) mod fallback;
mod file_server;
mod held;
mod identity;
mod incoming;
mod large;
mod outlet;
#[allow(clippy::module_inception)] // the noun is the module's
mod server;
mod sessions;
mod sock_diag;
mod streams;
mod throttle;
mod together;
mod user;
mod ways;

pub use answer::Answer;
pub use conduit::{Conveyed, Seen, Sink, Source};
#[cfg(test)]
pub(crate) use cx::{Cancel, Parking};
pub use cx::{Cx, Parked};
pub use data::Data;
pub use file_server::{
    Attach, Create, Created, DirSink, File, FileServer, Listed, Lock, LockKind, LockStatus, Records, StatSink, Walked,
    Written,
};
pub use identity::Policy;
pub use ninefold_proto::server::{Limits, RecordEnd, Rename};
pub use server::{Server, ServerBuilder};
pub use streams::{Descriptor, StreamCounts, StreamLimits};
pub use user::User;
