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

#[repr(C)]
pub struct Ledger {
    /// First: C's header looks at the first of them. At no address where a place is vacant.
    pub few: [Lent; FEW],
    more: HashMap<usize, Lent, BuildHasherDefault<Addresses>>,
    /// Those of which another one at the same address is among the others: what lies in a mapped file is lent to whoever asks.
    again: Vec<Lent>,
    /// Regions that were made empty. Each has a byte for its own, so that no other region begins there.
    #[expect(clippy::vec_box, reason = "their addresses stay")]
    empty: Vec<Box<u8>>,
}

const VACANT: Lent = Lent { at: std::ptr::null_mut(), bytes: 0, mode: Mode::Read };

impl Default for Ledger {
    fn default() -> Self {
        Ledger { few: [VACANT; FEW], more: HashMap::default(), again: Vec::new(), empty: Vec::new() }
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
        if at.is_null() {
            return None;
        }
        // Of several at one address, all of which are read, any: they are counted.
        self.few.iter_mut().find(|lent| lent.at == at)
    }

    /// From now on `put` of one region, and `put_empty` of one, cannot fail.
    pub fn reserve(&mut self) -> Result<()> {
        self.more.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.again.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.empty.try_reserve(1).map_err(|_| Error::NoMemory)
    }

    pub fn put(&mut self, lent: Lent) {
        if lent.bytes == 0 {
            return;
        }
        if let Some(place) = self.vacant() {
            *place = lent;
        } else if let Some(older) = self.more.insert(lent.at.addr(), lent) {
            self.again.push(older);
        }
    }

    /// An empty one: where it lies.
    pub fn put_empty(&mut self) -> *mut u8 {
        let mut byte = Box::new(0);
        let at: *mut u8 = &mut *byte;
        self.empty.push(byte);
        at
    }

    /// Does an empty one lie there?
    pub fn has_empty(&self, at: *mut u8) -> bool {
        self.empty.iter().any(|empty| std::ptr::addr_eq(&raw const **empty, at))
    }

    /// `take`, of several at that address one that ends there.
    pub fn take_ending(&mut self, at: *mut u8, end: *mut u8) -> Result<Lent> {
        let is_it = |lent: &Lent| lent.at == at && lent.at.wrapping_add(lent.bytes) == end;
        if let Some(place) = self.again.iter().rposition(is_it) {
            return Ok(self.again.swap_remove(place));
        }
        if let Some(place) = self.few.iter_mut().find(|lent| is_it(lent) && !at.is_null()) {
            return Ok(std::mem::replace(place, VACANT));
        }
        match self.more.get(&at.addr()) {
            Some(lent) if is_it(lent) => self.more.remove(&at.addr()).ok_or(Error::NotLent),
            _ => self.take(at),
        }
    }

    /// The region is none of these any more. One that is empty has no bytes.
    pub fn take(&mut self, at: *mut u8) -> Result<Lent> {
        if let Some(place) = self.empty.iter().position(|empty| std::ptr::addr_eq(&raw const **empty, at)) {
            self.empty.swap_remove(place);
            return Ok(Lent { at, ..VACANT });
        }
        if let Some(place) = self.again.iter().rposition(|lent| lent.at == at) {
            return Ok(self.again.swap_remove(place));
        }
        if let Some(place) = self.few.iter_mut().find(|lent| lent.at == at && !at.is_null()) {
            return Ok(std::mem::replace(place, VACANT));
        }
        self.more.remove(&at.addr()).ok_or(Error::NotLent)
    }

    /// Is the byte there in one that is out?
    pub fn covers(&self, byte: usize) -> bool {
        let all = self.few.iter().chain(&self.again).chain(self.more.values());
        all.into_iter().any(|lent| byte.wrapping_sub(lent.at.addr()) < lent.bytes)
    }

    /// Is any out that has bytes?
    pub fn is_empty(&self) -> bool {
        self.again.is_empty() && self.more.is_empty() && self.few.iter().all(|lent| lent.at.is_null())
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
    fn an_empty_one_lies_where_no_other_does() {
        let mut ledger = Ledger::default();
        let empty = [ledger.put_empty(), ledger.put_empty()];
        assert!(ledger.is_empty() && empty[0] != empty[1]);
        for at in empty {
            assert_eq!(ledger.take(at).map(|lent| lent.bytes), Ok(0));
            assert!(ledger.take(at).is_err());
        }
    }

    #[test]
    fn many_at_one_address_are_each_taken_once() {
        let mut ledger = Ledger::default();
        for n in 1..=100 {
            ledger.reserve().unwrap();
            ledger.put(lent(64, n));
        }
        let end = |n: usize| lent(64 + n, 0).at;
        for n in [1, 5, 9, 50, 99, 100] {
            assert_eq!(ledger.take_ending(lent(64, 0).at, end(n)).map(|lent| lent.bytes), Ok(n));
        }
        // Of which none ends there, any.
        assert!(ledger.take_ending(lent(64, 0).at, end(1000)).is_ok());
        for _ in 0..93 {
            assert!(!ledger.is_empty());
            take(&mut ledger, 64).unwrap();
        }
        assert!(ledger.is_empty());
        assert_eq!(take(&mut ledger, 64), Err(Error::NotLent));
    }
}
