//! File servers that come with the library.

mod hostfs {
    mod locks;
}
mod locks;
pub mod ramfs;
mod ranges;
