//! Regions that are out by their addresses alone, for interfaces whose languages free them so: which are, how long and in which mode.
//!
//! What is asked for by an address that is not in it was never lent, or freed before: so such an address does nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::error::{Error, Result};
use crate::region::Lent;

use super::current::Mode;

/// Regions that a short section finds. Who has more out at a time goes the longer way.
const FEW: usize = 8;

pub struct Ledger {
    /// At no address where a place is vacant.
    few: [Lent; FEW],
    more: HashMap<usize, Lent, BuildHasherDefault<Addresses>>,
    /// Addresses of regions that were made empty: they have no bytes, so others may begin there.
    empty: Vec<usize>,
}

const VACANT: Lent = Lent { at: std::ptr::null_mut(), bytes: 0, mode: Mode::Read };

impl Default for Ledger {
    fn default() -> Self {
        Ledger { few: [VACANT; FEW], more: HashMap::default(), empty: Vec::new() }
    }
}

impl Ledger {
    /// A place for one more, if a short section has one.
    #[inline(always)]
    pub fn vacant(&mut self) -> Option<&mut Lent> {
        self.few.iter_mut().find(|lent| lent.at.is_null())
    }

    /// The place of the region, if a short section finds it. Made vacant by the address being taken away.
    #[inline(always)]
    pub fn place(&mut self, at: *mut u8) -> Option<&mut Lent> {
        // An empty one may have the same address, and goes first.
        if at.is_null() || !self.empty.is_empty() {
            return None;
        }
        self.few.iter_mut().find(|lent| lent.at == at)
    }

    /// From now on `put` of one region, and `put_empty` of one, cannot fail.
    pub fn reserve(&mut self) -> Result<()> {
        self.more.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.empty.try_reserve(1).map_err(|_| Error::NoMemory)
    }

    pub fn put(&mut self, lent: Lent) {
        if lent.bytes == 0 {
            return;
        }
        match self.vacant() {
            Some(place) => *place = lent,
            None => drop(self.more.insert(lent.at.addr(), lent)),
        }
    }

    pub fn put_empty(&mut self, at: *mut u8) {
        self.empty.push(at.addr());
    }

    /// The region is none of these any more. One that is empty has no bytes.
    pub fn take(&mut self, at: *mut u8) -> Result<Lent> {
        if let Some(place) = self.empty.iter().position(|&empty| empty == at.addr()) {
            self.empty.swap_remove(place);
            return Ok(Lent { at, ..VACANT });
        }
        if let Some(place) = self.few.iter_mut().find(|lent| lent.at == at && !at.is_null()) {
            return Ok(std::mem::replace(place, VACANT));
        }
        self.more.remove(&at.addr()).ok_or(Error::NotLent)
    }

    /// Is any out that has bytes?
    pub fn is_empty(&self) -> bool {
        self.more.is_empty() && self.few.iter().all(|lent| lent.at.is_null())
    }
}

/// Addresses as keys. Nobody chooses them to collide: they are the library's own.
#[derive(Default)]
pub struct Addresses(u64);

impl Hasher for Addresses {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, n: usize) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4): 2^64 divided by the golden ratio. The table looks at both ends
        // of what comes of it.
        let spread = (self.0 ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(at: usize, bytes: usize) -> Lent {
        Lent { at: std::ptr::without_provenance_mut(at), bytes, mode: Mode::Write }
    }

    fn take(ledger: &mut Ledger, at: usize) -> Result<usize> {
        ledger.take(lent(at, 0).at).map(|lent| lent.bytes)
    }

    #[test]
    fn each_region_is_taken_once_however_many_there_are() {
        let mut ledger = Ledger::default();
        for n in 1..=1000 {
            ledger.reserve().unwrap();
            ledger.put(lent(n * 64, n));
        }
        assert_eq!(take(&mut ledger, 0), Err(Error::NotLent));
        assert_eq!(take(&mut ledger, 65), Err(Error::NotLent));
        for n in (1..=1000).rev() {
            assert_eq!(take(&mut ledger, n * 64), Ok(n));
            assert_eq!(take(&mut ledger, n * 64), Err(Error::NotLent));
        }
        assert!(ledger.is_empty());
    }

    #[test]
    fn of_two_at_one_address_the_one_without_bytes_goes_first() {
        let mut ledger = Ledger::default();
        ledger.put_empty(lent(64, 0).at);
        assert!(ledger.is_empty());
        ledger.put(lent(64, 10));
        assert_eq!(take(&mut ledger, 64), Ok(0));
        assert!(!ledger.is_empty());
        assert_eq!(take(&mut ledger, 64), Ok(10));
        assert_eq!(take(&mut ledger, 64), Err(Error::NotLent));
    }
}
