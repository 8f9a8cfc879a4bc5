//! File servers that come with the library.

pub mod hostfs;
