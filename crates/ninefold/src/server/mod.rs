//! The server library: write a [`FileServer`], hand it to a server, and any 9P client can use it.

mod answer;
mod cx;
mod file_server;
mod user;

pub use answer::Answer;
#[cfg(test)]
pub(crate) use cx::{Cancel, Parking};
pub use cx::{Cx, Parked};
pub use file_server::{Attach, Create, Created, DirSink, File, FileServer, Lock, LockKind, LockStatus, Walked};
pub use user::User;
