//! A hostile server: decent in everything but one thing.
//!
//! A [`Misbehaviour`] is a row of a table: its name, the rule that it breaks, the dialects in which it can be played, and
//! what does it. [`Hostile::new`] makes a server that plays one; [`Hostile::serve`] serves one connection. Behind it stands
//! ninefold's own server with a small [`tree`]; between the two and the client lies a relay that sees every message and may
//! alter, withhold, repeat or replace it. What a misbehaviour does not touch is answered as it ought to be.
//!
//! Those of streams are played on TCP: there the relay stands between the data connections too.
//!
//! Some rows break no rule and are only odd: one byte a read, names with escape sequences. A client must live with those.

mod attach;
mod attribute;
mod carry;
mod data;
mod directory;
mod failure;
mod flush;
mod frame;
mod link;
mod listing;
mod misbehaviour;
mod open;
mod relay;
mod reply;
mod scene;
mod server;
mod silence;
mod stream;
pub mod tree;
mod version;
mod walk;
mod xattr;

pub use misbehaviour::{Misbehaviour, all, find, streams};
pub use server::Hostile;

#[cfg(test)]
mod tests;
