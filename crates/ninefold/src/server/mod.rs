//! The server library: write a [`FileServer`], hand it to a server, and any 9P client can use it.

mod answer;
mod cx;
mod file_server;
mod identity;
mod sock_diag;
mod user;

pub use answer::Answer;
pub use cx::{Cx, Parked};
pub use file_server::{Attach, Create, Created, DirSink, File, FileServer, Lock, LockKind, LockStatus, Walked};
pub use identity::Policy;
pub use user::User;
