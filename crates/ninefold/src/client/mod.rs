//! Use any 9P server: [`Client`] connects and attaches, a [`Node`] is a file walked to, a [`File`] one that is open.
//!
//! [`Client::connect`] dials an [`Address`](crate::transport::Address), agrees on the best dialect and attaches;
//! [`Client::walk`] goes to a file by its path, through symbolic links; a [`Node`]'s methods are the operations on files
//! and directories, alike in every dialect; what a dialect cannot do is [`Error::Unsupported`]. [`File::reader`] and
//! [`File::writer`] keep as many requests on the way as the connection's delay and rate ask for.
//!
//! ```no_run
//! use bytes::Bytes;
//! use ninefold::client::{Client, Error, Follow, Mode, Options};
//!
//! /// Copies a file to another name in its directory.
//! async fn copy(address: &str, name: &[u8]) -> Result<u64, Error> {
//!     let address = address.parse().expect("an address");
//!     let client = Client::connect(&address, Options::default()).await?;
//!     let (dir, from) = client.walk_parent(&address.path).await?;
//!     let node = client.walk(&address.path, Follow::All).await?;
//!     let metadata = node.metadata().await?;
//!     let source = node.open(Mode::READ).await?;
//!     println!("{} has {} bytes", String::from_utf8_lossy(&from), metadata.size);
//!
//!     let mut copy = dir.create(name, Mode::WRITE, metadata.mode).await?;
//!     copy.remove_on_drop(); // Until it is whole.
//!     let mut reader = source.reader(0, Some(&metadata));
//!     let mut writer = copy.writer(0, None);
//!     while let Some(bytes) = reader.next().await? {
//!         let bytes: Bytes = bytes; // As they arrived.
//!         writer.write(bytes).await?;
//!     }
//!     let written = writer.finish().await?;
//!     drop(writer);
//!     copy.sync().await?;
//!     copy.keep();
//!     copy.close().await?;
//!     Ok(written)
//! }
//! ```
//!
//! Every call has a bound, [`Options::timeout`]; a future that is dropped gives its request up (Tflush, or it is not
//! even sent); a `Node` or a
//! `File` that is dropped is clunked. Nothing a server says is believed without a check: see [`Error::Misbehaved`] and
//! [`Error::Suspect`]. A connection that is lost stays lost: every later call fails with [`Error::Lost`].
//!
//! Everything here is called within a tokio runtime; [`blocking`](crate::blocking) has the same for programs without one.

mod ahead;
mod behind;
mod budget;
pub mod chain;
#[allow(clippy::module_inception, reason = "the noun of this module")]
mod client;
mod connection;
mod credit;
mod dialer;
mod driver;
mod error;
mod extent;
mod fetch;
mod fid;
mod file;
mod first;
mod flight;
mod handshake;
mod listing;
mod lock;
mod memory;
mod metadata;
mod mkdirs;
pub(crate) mod nameop;
mod names;
mod node;
mod nudge;
mod options;
mod outbox;
mod owned_stream;
mod pending;
mod places;
mod progress;
mod put;
mod ranges;
mod read_dir;
mod reader;
pub(crate) mod resolve;
mod root;
mod stats;
mod stream;
pub(crate) mod visit;
mod window;
mod writer;
mod xattr;

pub use ahead::ReadAhead;
pub use chain::{Chain, Opened, Promise, Spot};
pub use client::{Attach, Client};
pub use error::{Error, Fault, Loss, Suspicion};
pub use extent::Extent;
pub use fetch::Fetched;
pub use file::File;
pub use listing::{Listed, Listing};
pub use lock::{Lock, LockKind};
pub use memory::Memory;
pub use metadata::{FileType, Metadata};
pub use mkdirs::MadeDir;
pub use nameop::{BeginRead, Begun, Looked};
pub use node::{Mode, Node};
pub use options::Options;
pub use places::{Holder, Place, Places, Turn};
pub use put::{Draft, NewFile, Step, Stretch, Unput};
pub use ranges::Ranges;
pub use read_dir::{Entry, ReadDir};
pub use reader::Reader;
pub use resolve::{Follow, Located, components};
pub use root::{Limits, Session};
pub use stats::Stats;
pub use stream::Stream;
pub use visit::{Named, Sight, Visited};
pub use writer::Writer;
