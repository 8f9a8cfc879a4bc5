//! The client against our own server and against servers that misbehave, in memory and in virtual time.

mod ahead;
mod behind;
mod beside;
mod cancelled;
mod chains;
mod chains_cut;
mod closing;
mod exclusive;
mod extent;
mod fake;
mod files;
mod giving_up;
mod listing;
mod negotiation;
mod paths;
mod putting;
mod ranges;
mod reading;
mod slow;
mod streams;
mod support;
mod visit;
mod waiting;
mod warm;
mod wire;
mod writing;
