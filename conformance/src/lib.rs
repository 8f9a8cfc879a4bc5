//! Suites that run against any 9P server; so far the transcripts, see [`transcript`].
#![forbid(unsafe_code)]

pub mod hostile;
pub mod transcript;
