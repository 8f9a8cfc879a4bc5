//! 9P without I/O, clock, threads or unsafe code.
#![forbid(unsafe_code)]
#![no_std]
extern crate alloc;
