//! Byte streams.
mod peer;
pub use peer::Peer;
