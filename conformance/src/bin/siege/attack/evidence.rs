//! What would prove a leak: the marker in bytes read, a marked name listed, an outside inode or time answered.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Mutex;
use std::time::Instant;

use ninefold_proto::Qid;

use super::ground::{Ground, MARKED_TIME};

/// Leaks that are told in words; the others are counted.
const TOLD: usize = 5;

/// Collects leaks; shared by all visitors.
pub struct Evidence {
    marker: Vec<u8>,
    inodes: HashSet<u64>,
    leaks: Mutex<Leaks>,
}

#[derive(Default)]
struct Leaks {
    first: Option<Instant>,
    count: usize,
    texts: Vec<String>,
}

impl Evidence {
    /// What `ground` has outside. Inodes are compared only when the server's qids are inodes.
    pub fn new(ground: &Ground, qids_are_inodes: bool) -> Evidence {
        let inodes = if qids_are_inodes { ground.outside_inodes().clone() } else { HashSet::new() };
        Evidence { marker: ground.marker().as_bytes().to_vec(), inodes, leaks: Mutex::default() }
    }

    /// Looks at bytes that a file gave, or at a name.
    pub fn bytes(&self, what: &str, path: &impl Display, bytes: &[u8]) {
        if bytes.windows(self.marker.len()).any(|window| window == self.marker) {
            self.leak(format!("{what} of {path} gave the marker"));
        }
    }

    /// Looks at a qid.
    pub fn qid(&self, what: &str, path: &impl Display, qid: &Qid) {
        if self.inodes.contains(&qid.path) {
            self.leak(format!("{what} of {path} answered the outside inode {}", qid.path));
        }
    }

    /// Looks at a time of modification, in seconds since 1970.
    pub fn mtime(&self, what: &str, path: &impl Display, seconds: u64) {
        if seconds == MARKED_TIME {
            self.leak(format!("{what} of {path} answered the outside's time"));
        }
    }

    fn leak(&self, text: String) {
        let mut leaks = self.leaks.lock().expect("no panic under this lock");
        leaks.first.get_or_insert_with(Instant::now);
        leaks.count += 1;
        if leaks.texts.len() < TOLD {
            leaks.texts.push(text);
        }
    }

    /// Whether anything leaked.
    pub fn any(&self) -> bool {
        self.first().is_some()
    }

    /// When the first leak was seen.
    pub fn first(&self) -> Option<Instant> {
        self.leaks.lock().expect("no panic under this lock").first
    }

    /// How many leaks were seen, and some of them in words.
    pub fn texts(&self) -> (usize, Vec<String>) {
        let leaks = self.leaks.lock().expect("no panic under this lock");
        (leaks.count, leaks.texts.clone())
    }
}
