//! What the commands that read directories and attributes share: [`tree`] reads, the others write.

pub mod json;
pub mod long;
pub mod names;
pub mod owners;
pub mod pattern;
pub mod show;
pub mod tree;
