//! Serve and use 9P file trees.
//!
//! [`client`] uses any server's files, and [`blocking`] does the same for programs without an async runtime; [`server`] has
//! the contract of a file server and the server that drives it; [`tree`] the file servers that come with it;
//! [`transport`] how clients and servers reach each other; [`relay`] what stands between the two to watch. The protocol
//! itself is [`ninefold_proto`], re-exported as [`proto`].

pub use ninefold_proto as proto;

pub mod blocking;
pub mod client;
pub mod ns;
pub mod relay;
pub mod server;
pub mod transport;
pub mod tree;
