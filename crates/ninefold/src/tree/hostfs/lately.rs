//! The directories that were walked through lately. They stay nodes, with their descriptors, while no fid stands on them: paths that
//! are walked again and again have most of their names in common, and who holds a name's file asks the kernel one thing about it where
//! it takes three to open it anew ([`Tree::lookup`](super::node::Tree::lookup)).
//!
//! Only directories, since a removed file that is held keeps its blocks; only those of the mount and the device that the export's root keeps busy anyway, so that
//! what is mounted below it can be unmounted, and subvolumes removed; none of a file system that answers from elsewhere, where a number may be another file's by now
//! although this one is held; and none so deep that the nodes above them, which stay with them, are many.

use std::sync::{Arc, Mutex};

use super::lock;
use super::node::{FileId, Node};

/// So many, each in a place that its numbers give it: two to the power of [`BITS`].
const PLACES: usize = 1 << BITS;
const BITS: u32 = 8;

/// A directory has at most so many names above it: 4 MB of nodes in all.
pub(super) const DEEPEST: u32 = 64;

#[derive(Debug)]
pub(super) struct Lately(Box<[Mutex<Option<Arc<Node>>>]>);

impl Default for Lately {
    fn default() -> Lately {
        Lately((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

impl Lately {
    fn place(&self, id: FileId) -> &Mutex<Option<Arc<Node>>> {
        // Some file systems give numbers that differ in few bits only (Fibonacci hashing).
        &self.0[((id.ino ^ id.dev).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize]
    }

    /// The file was walked to. What is no directory to be kept is not.
    pub(super) fn keep(&self, node: &Arc<Node>) {
        if !node.is_dir() || !node.at_home || node.slow || node.depth > DEEPEST {
            return;
        }
        let mut kept = lock(self.place(node.id));
        if !kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, node)) {
            let before = kept.replace(node.clone());
            // Its drop takes other locks.
            drop(kept);
            drop(before);
            // Its name may have been removed meanwhile, and this place been looked at before.
            if node.is_gone() {
                self.forget(node);
            }
        }
    }

    /// A directory got other names above it: how many is not known of those below it, which may be here.
    pub(super) fn forget_all(&self) {
        for place in &self.0 {
            let was = lock(place).take();
            drop(was);
        }
    }

    /// No name leads to it any more.
    pub(super) fn forget(&self, node: &Arc<Node>) {
        let mut kept = lock(self.place(node.id));
        let was = kept.take_if(|kept| Arc::ptr_eq(kept, node));
        drop(kept);
        drop(was);
    }
}
