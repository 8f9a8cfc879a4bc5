//! Transcripts: conversations with a 9P server, written down and replayed.
//!
//! A `.9p` file holds T lines that are sent and R lines that must come back, in the text form of
//! [`ninefold_proto::print`], which is also what a trace prints. [`Script::load`] reads one, [`run`] replays it
//! against a [`Target`]. The README of this directory's crate teaches the format with examples; this is the reference.
//!
//! One line is one step. Empty lines and lines that begin with `#` say nothing.
//!
//! | Line | Meaning |
//! |---|---|
//! | `dialect NAME` | the lines below are in that dialect: `9P2000`, `9P2000.u`, `9P2000.L` or `9P2000.L.n1`; the first step of a file |
//! | `include FILE` | the lines of FILE, which lies beside this one, stand here |
//! | `needs WORD` | skip the file where the target lacks WORD: `root`, `read-only` (a target that may not be changed, for which only such files are), or any word that the caller withholds |
//! | `T…` | sent as it stands, by [`print::parse`](ninefold_proto::print::parse) |
//! | `raw 0x…` | sent as it stands: these bytes, whether a frame or not |
//! | `R…` | a message that must come; `*` in place of the name stands for any message |
//! | `next` | between R lines: what stands above must come before what stands below |
//! | `none` | nothing was sent that no R line expected |
//! | `closed` | the server must close the connection, sending nothing more |
//! | `connect [NAME]` | opens a connection; the first one needs no such line |
//! | `NAME: …` | this T, raw, R, `none` or `closed` line is about the connection NAME |
//! | `file NAME CONTENT [MODE]`, `dir NAME [MODE]`, `symlink NAME TARGET`, `fifo NAME [MODE]` | made in the exported directory, on this machine |
//! | `check file NAME CONTENT`, `check mode NAME MODE`, `check owner NAME UID GID`, `check symlink NAME TARGET`, `check dir NAME`, `check absent NAME` | so must the exported directory look now |
//!
//! **Order.** A block of T lines is sent in one piece. R lines that follow each other form a group, in which
//! messages may come in any order; `next` divides it. Each R line takes exactly one message, and a message that no
//! line of the group takes is a failure. So is one that comes when the script is at its end.
//!
//! **Absence** is proven, not waited for: `none` sends a Tflush of a tag that is not in use, and its Rflush
//! must be the next message to come. The end of a script does the same on each connection still open. This shows that
//! the server had said nothing else by the time it answered.
//!
//! **Values.** R lines are compared word by word. `*` takes any word, `...` any number of words. `$name` takes any word
//! the first time it is met and the same word from then on; in T lines it stands for that word. A word in
//! parentheses is compared inside, in order; a list in brackets inside, in any order, as directories have none.
//! For an Rread of a directory write the data as a list of stat records, as Rstat prints them: `[('a' ...) ('b' ...)]`.
//! `5*'ab'` is the string `'ababababab'`. Inside quotes nothing is replaced.
//!
//! **Known from the start:** `$uid` and `$gid` (numbers of the user who runs this), `$user` (that user's name), `$aname`
//! (the tree to attach), `$dir` (the exported directory, if it lies on this machine).
//!
//! **Deadlines.** No wait is longer than [`Target::deadline`]. The size of every message is held against the msize
//! that the server agreed to.

mod connection;
mod fixture;
mod pattern;
mod run;
mod script;

pub use run::{Failure, Outcome, READ_ONLY, Target, run};
pub use script::Script;
