//! A laboratory for programs that talk over a network: two network namespaces of this machine, joined by a link whose delay, rate,
//! queue, jitter, loss and order are given, each direction on its own. The kernel's TCP runs end to end; what lies between is this
//! crate. Without root it works in a user namespace.
//!
//! `Lab::start` makes one, `Lab::command` runs a program in either end, `Lab::set`, `cut`, `heal`, `reset`, `freeze` and `thaw`
//! change it while it runs, `Lab::stats` tells what passed; dropping it removes all, and so does the end of the program that
//! started it, however it ends. `ninefold lab` does the same from a shell: see docs/lab.md.
//!
//! A lab is a process of its own, the `keeper`, which is the first of a process namespace: when it goes, the kernel ends everything
//! that was started in the lab, and the network namespaces with it.
#![forbid(unsafe_code)]

mod channel;
mod children;
pub mod command;
mod control;
mod enter;
mod flows;
mod freeze;
mod keeper;
mod lab;
mod line;
mod netns;
mod program;
mod pump;
mod run;
mod shape;
mod stats;
mod unavailable;
pub mod units;

pub use flows::Flow;
pub use lab::{Lab, Options};
pub use line::{Count, Counters, HELD_MAX};
pub use pump::Care;
pub use shape::{Change, Direction, End, InvalidShape, Shape};
pub use stats::{Connection, Side, Stats};
pub use unavailable::Unavailable;
