//! Name spaces: many servers as one tree (S5).
//!
//! A [`Path`] is parsed once and has no dots. The mount table, [`Mtab`], maps names to files and asks no server; [`Dot`] is the
//! current directory. [`mod@file`] reads and writes descriptions of a name space. A [`Namespace`] joins them to servers: a name is
//! resolved in the table with no message, and what is done with it is one group at the server that has the file.
//!
//! ```no_run
//! use ninefold::client::{Follow, Options};
//! use ninefold::ns::{Error, Flags, Namespace, Order};
//!
//! async fn two_in_one() -> Result<(), Error> {
//!     let ns = Namespace::new(Options::default());
//!     ns.mount(&"9p://near".parse()?, "/", (Order::Replace, Flags::default())).await?;
//!     ns.mount(&"9p://far/bin".parse()?, "/bin", (Order::After, Flags::default())).await?;
//!     println!("{} bytes", ns.metadata("/bin/ls", Follow::All).await?.size);
//!     print!("{}", String::from_utf8_lossy(&ns.show()));
//!     Ok(())
//! }
//! ```

pub mod dot;
mod error;
pub mod export;
pub mod file;
mod list;
mod mounted;
pub mod mtab;
pub mod nameop;
mod namespace;
pub mod path;
mod servers;

pub use dot::Dot;
pub use error::Error;
pub use export::NsFs;
pub use mounted::Mounted;
pub use mtab::{Flags, Member, Mtab, Order, Refused, Resolved, Source};
pub use namespace::Namespace;
pub use path::{BadPath, Path};
