//! Numbers of files, of which two servers' never share one.
//!
//! A server numbers its files as it likes. The first tree's numbers below 2^48, as inode numbers are, stay what they are; those of the next 65,533 trees
//! get the tree's number above them. Whatever does not fit that is given a number when it is first seen, and keeps it: of each tree and
//! of the names alone there are so many, and one that makes up more takes them from no other.
//!
//! Trees are numbered in the order of the table when the export is made, so the same table gives the same numbers each time; those
//! mounted later as they are first seen. Numbers that are given out are others in another run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use ninefold_proto::{Errno, Qid, QidType};

use super::super::Error;
use super::super::path::Path;
use crate::transport::Address;

/// Bits of a number that is kept beside its tree's.
const PLAIN_BITS: u32 = 48;

/// Where numbers begin that are given out: above all trees'.
const GIVEN: u64 = 0xffff << PLAIN_BITS;

/// Trees above it have numbers given out only.
const TREES_PLAIN: u32 = 0xfffe;

/// Numbers that are given out for one tree, or for names alone: 64 bytes each. A server that makes up more would fill the memory.
const GIVEN_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Qids {
    known: Mutex<Known>,
    /// See [`GIVEN_MAX`].
    most: usize,
}

#[derive(Debug, Default)]
struct Known {
    /// By address without a path.
    trees: HashMap<String, u32>,
    /// By tree, and then by the server's number.
    given: HashMap<u32, HashMap<u64, u64>>,
    made_up: HashMap<Vec<u8>, u64>,
    /// Of all of `given` and `made_up`.
    count: u64,
}

impl Qids {
    /// Numbers the trees as they come.
    pub fn new<'a>(trees: impl IntoIterator<Item = &'a Address>) -> Qids {
        let qids = Qids { known: Mutex::default(), most: GIVEN_MAX };
        for address in trees {
            qids.tree(address);
        }
        qids
    }

    /// The number of the tree that a file is of, from 0 on.
    pub fn tree(&self, address: &Address) -> u32 {
        let address = Address { path: Vec::new(), ..address.clone() }.to_string();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = known.trees.len() as u32;
        *known.trees.entry(address).or_insert(next)
    }

    /// What clients see for a server's qid.
    pub fn map(&self, tree: u32, qid: Qid) -> Result<Qid, Error> {
        if qid.path >> PLAIN_BITS == 0 && tree <= TREES_PLAIN {
            return Ok(Qid { path: u64::from(tree) << PLAIN_BITS | qid.path, ..qid });
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { given, count, .. } = &mut *known;
        let given = given.entry(tree).or_default();
        let full = given.len() >= self.most;
        let path = *match given.entry(qid.path) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return Err(Errno::ENFILE.into()),
            Entry::Vacant(free) => free.insert(next(count)),
        };
        Ok(Qid { path, ..qid })
    }

    /// That of a directory which is a name alone. Its version says that nobody may cache it.
    pub fn made_up(&self, path: &Path) -> Result<Qid, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { made_up, count, .. } = &mut *known;
        let full = made_up.len() >= self.most;
        let number = *match made_up.entry(path.as_bytes().to_vec()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return Err(Errno::ENFILE.into()),
            Entry::Vacant(free) => free.insert(next(count)),
        };
        Ok(Qid { kind: QidType::DIR, version: 0, path: number })
    }
}

/// A number that was not given out before.
fn next(count: &mut u64) -> u64 {
    *count += 1;
    GIVEN | *count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_files_of_different_servers_share_a_number() {
        let qids = Qids::new([]);
        let tree = |text: &str| qids.tree(&text.parse().unwrap());
        let trees = [tree("9p://a/x"), tree("9p://a/y"), tree("9p://b"), tree("9p://a?aname=z")];
        assert_eq!(trees, [0, 0, 1, 2]);
        let mut seen = std::collections::HashSet::new();
        let paths = [0, 1, 2, (1 << PLAIN_BITS) - 1, 1 << PLAIN_BITS, (1 << PLAIN_BITS) | 1, GIVEN | 1, u64::MAX];
        for tree in [0, 1, 2, 0xfffe, 0xffff, 70_000] {
            for path in paths {
                let qid = Qid { path, version: 7, kind: QidType::FILE };
                let mapped = qids.map(tree, qid).unwrap();
                assert!(seen.insert(mapped.path), "{tree} {path:#x}");
                assert_eq!((mapped.version, qids.map(tree, qid).unwrap()), (7, mapped));
            }
        }
        let made_up = qids.made_up(&Path::of([&b"n"[..]]).unwrap()).unwrap();
        assert!(seen.insert(made_up.path) && made_up.version == 0);
        assert_eq!(qids.map(0, Qid { path: 42, ..Qid::default() }).unwrap().path, 42);
    }

    #[test]
    fn a_tree_that_makes_up_numbers_takes_them_from_no_other_and_not_from_names() {
        let qids = Qids { most: 3, ..Qids::new([]) };
        let large = |path: u64| Qid { path: u64::MAX - path, ..Qid::default() };
        for path in 0..3 {
            qids.map(0, large(path)).unwrap();
        }
        assert_eq!(qids.map(0, large(3)).unwrap_err().errno(), Errno::ENFILE);
        // What it was given it keeps.
        qids.map(0, large(2)).unwrap();
        qids.map(1, large(3)).unwrap();
        qids.made_up(&Path::of([&b"n"[..]]).unwrap()).unwrap();
    }

    #[test]
    fn trees_are_numbered_as_they_come_and_later_ones_behind_them() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let qids = Qids::new(&[address("9p://b"), address("9p://a/x"), address("9p://b/y")]);
        let tree = |text: &str| qids.tree(&address(text));
        assert_eq!([tree("9p://c"), tree("9p://a"), tree("9p://b")], [2, 1, 0]);
    }
}
