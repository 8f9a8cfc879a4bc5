//! The C library, `libninefold`: Unix I/O and streams on files here and on files of 9P servers.
//!
//! What C is promised stands in `include/ninefold.h` and in docs/c.md. [`unix_io`], [`stream_io`], [`asi`] and [`stdio`] are the functions that C calls:
//! each passes [`fence`], which turns panics and errors into numbers, and then goes one of two ways. A kernel's descriptor goes
//! to the kernel ([`kernel`]); a descriptor of ours, [`table::FIRST`] or more, to the [`descriptor`] of an open file of a server.
//! [`process`] is what the process has of ours: the thread of the connections, the [`servers`], the [`table`]; a child of
//! fork(2) gets its own.
//!
//! Unsafe code lies in `asi`, `fence`, `kernel`, `process`, `signals`, `stdio`, `stream_io` and `unix_io` alone.
//!
//! Locks: the table's and the servers' are held for a look-up only, with no other; a descriptor's place and a stream are locked
//! for the length of a call on them, and then no other is waited for.

mod asf;
mod asi;
mod descriptor;
mod fence;
mod flags;
mod handles;
mod kernel;
#[cfg(test)]
mod mixed;
mod process;
mod remote;
mod servers;
mod signals;
mod stat;
mod stdio;
mod stream;
mod stream_io;
mod table;
mod unix_io;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("ninefold-capi is for 64-bit Linux: elsewhere struct stat and off_t have two layouts each");
