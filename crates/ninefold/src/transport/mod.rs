//! How bytes come and go: TCP, TLS, Unix sockets, standard input and output, ssh, memory.
//!
//! An [`Address`] says where. A server binds a [`Listener`] to it and takes a [`Stream`] and its [`Peer`] from each
//! [`Listener::accept`]; a client gets its `Stream` from [`dial`]. Everything above sees one type of stream.

mod address;
mod dial;
mod listener;
mod low_mark;
pub mod memory;
mod peer;
mod piped;
mod process;
mod socket;
mod ssh;
pub mod standard;
pub mod stdio;
mod stream;
mod tcp;
mod tls;
mod unix;

pub use address::{Address, BadAddress, PORT, Place};
pub(crate) use dial::reach;
pub use dial::{DIAL_TIMEOUT, dial};
pub use listener::Listener;
#[cfg(test)]
pub(crate) use low_mark::is_open as is_window_open;
pub(crate) use low_mark::{has_low_marks, open_window, set_low_mark};
pub use peer::Peer;
#[cfg(test)]
pub(crate) use piped::ALONE as PIPES_ALONE;
pub(crate) use piped::{PipeShare, Piped, close_idle_pipes};
pub(crate) use socket::Socket;
pub(crate) use stream::Received;
pub use stream::{Carrier, Stream};
pub(crate) use tcp::{dial_address as dial_tcp, finds_the_rate as tcp_finds_the_rate, set_up as set_up_tcp};
pub use tls::{Identity, Pin, Terms, Tls};
pub(crate) use unix::dial as dial_unix;
