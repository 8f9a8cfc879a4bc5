//! Between interfaces and modules: the buffers that regions lie in, which of them are out, and what goes to the module when.
//!
//! Order of locks: the file's, then a stream's; one stream's at a time, but of streams on one file by who holds the file's;
//! then its slot's, see `ahead`. `lines` waits for none.

pub mod ahead;
pub mod core;
pub mod current;
pub mod file;
pub mod input;
pub mod ledger;
pub mod lines;
pub mod output;
pub mod state;
