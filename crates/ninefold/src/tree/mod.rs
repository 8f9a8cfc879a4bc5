//! File servers that come with the library.

pub mod hostfs;
mod locks;
pub mod ramfs;
mod ranges;
