//! What the fuzz targets share: reading a program from bytes, frames laid out from the message table, and the model
//! of a session.
//!
//! The targets are in `fuzz_targets/`; `run.sh` builds and runs them.

pub mod frames;
pub mod input;
pub mod model;
