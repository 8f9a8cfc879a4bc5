//! Streams of our server, by frames and data connections made by hand: tokens, limits, ends and errors, and the bytes.

mod arrivals;
mod bed;
mod conduit;
mod disk;
mod ends;
mod files;
mod kernel_leases;
mod limits;
mod namespace;
mod old;
mod send_buffer;
mod shares;
mod slow;
mod tls;
mod tokens;
mod tracks;
mod unix;
