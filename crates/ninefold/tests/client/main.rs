//! The client against our own server and against servers that misbehave, in memory and in virtual time.

mod fake;
mod files;
mod listing;
mod reading;
mod support;
mod writing;
