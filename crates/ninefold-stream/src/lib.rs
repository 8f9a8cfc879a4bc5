//! Stream I/O without copies: the Alloc Stream Facility of Krieger, Stumm and Unrau (CSRI-275, 1994), for any descriptor.
//!
//! Ordinary calls copy between the program's buffer and the library's. Here the library lends its own: [`Stream::alloc`] gives the
//! next bytes of the stream as a [`Region`], to read or to write, and freeing the region gives them back. Regions may be freed in any
//! order and by any thread; what was written goes to the file in the order in which it was allocated. `std::io`'s traits work on the
//! same stream, between any two of these calls.
//!
//! ```
//! use ninefold_stream::Stream;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
//! # std::fs::write(&from, "one\ntwo\n")?;
//! let lines = Stream::open(&from)?;
//! let out = Stream::create(&to)?;
//! loop {
//!     let line = lines.alloc_line()?;
//!     if line.is_empty() {
//!         break;
//!     }
//!     let mut room = out.alloc(line.len())?;
//!     room.copy_from_slice(&line);
//!     room.free()?; // visible in this process
//! }
//! out.close()?; // in the file
//! # assert_eq!(std::fs::read(&to)?, b"one\ntwo\n");
//! # Ok(())
//! # }
//! ```
//!
//! Layers, as in figure 6: interfaces (`stream`, `raw`, `io`) over the backplane (`backplane/`) over stream modules (`module/`), which are
//! chosen for each stream by what it is of. What is promised: docs/stream.md.

mod backplane;
mod calibration;
mod copy;
mod directory;
mod error;
mod fault;
mod io;
mod lock;
mod memory;
mod module;
#[cfg(feature = "ninep")]
pub mod ninep;
mod open;
mod primitives;
mod raw;
mod region;
mod search;
mod stream;

pub use backplane::current::Mode;
pub use calibration::{BadCalibration, BadLine, Calibration};
pub use copy::copy;
pub use directory::Entry;
pub use error::{Error, Result};
pub use open::Options;
pub use primitives::seat_place;
pub use raw::{Front, LAYOUT, Raw, RawRegion, Wanted};
pub use region::Region;
pub use stream::{Locked, Stream};
