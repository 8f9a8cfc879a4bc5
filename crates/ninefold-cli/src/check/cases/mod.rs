//! The cases, a file a subject.

mod attach;
mod attr;
mod create;
mod errors;
mod fids;
mod flush;
mod framing;
mod io;
mod locks;
mod msize;
mod readdir;
mod rename;
mod stat;
mod tags;
mod unlink;
mod version;
mod walk;
mod xattr;

use super::case::Group;

/// Every group, in the order in which they are run: what the later rely on comes first.
pub const GROUPS: [&Group; 18] = [
    &version::GROUP,
    &msize::GROUP,
    &framing::GROUP,
    &attach::GROUP,
    &walk::GROUP,
    &tags::GROUP,
    &flush::GROUP,
    &fids::GROUP,
    &io::GROUP,
    &create::GROUP,
    &readdir::GROUP,
    &stat::GROUP,
    &attr::GROUP,
    &rename::GROUP,
    &unlink::GROUP,
    &errors::GROUP,
    &locks::GROUP,
    &xattr::GROUP,
];
