//! What the fuzz targets share: reading a program from bytes, frames laid out from the message table, and the models
//! of the sessions at both ends.
//!
//! The targets are in `fuzz_targets/`; `run.sh` builds and runs them.

/// Chains of requests, between both ends' states.
#[path = "../../crates/ninefold-proto/tests/chain_model/mod.rs"]
pub mod chain_model;
/// The client's model is that of the protocol crate's own tests, with frames that are nearer to good ones.
#[path = "../../crates/ninefold-proto/tests/client_model/mod.rs"]
pub mod client_model;
pub mod frames;
pub mod input;
pub mod model;
