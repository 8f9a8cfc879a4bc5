//! What Linux's own client asks of a server, and mounts of many servers showed to go wrong: each a conversation with
//! our server, on a directory of the host and on a tree in memory, in every dialect that has the words for it.

mod attach;
mod conn;
mod fids;
mod files;
mod lock_owners;
mod lock_waits;
mod paths;
mod renamed;
mod scene;
mod special;
mod unlinked;
