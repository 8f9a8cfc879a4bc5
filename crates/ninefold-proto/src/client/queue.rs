//! A queue that costs no allocation while it holds one: most calls are no part of a chain.

use alloc::collections::VecDeque;
use core::{iter, mem, option};

/// First in, first out.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// `None` only where nothing is behind it.
    first: Option<T>,
    behind: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { first: None, behind: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    pub fn push_back(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.behind.push_back(item),
        }
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let next = self.behind.pop_front();
        mem::replace(&mut self.first, next)
    }

    pub fn pop_back(&mut self) -> Option<T> {
        self.behind.pop_back().or_else(|| self.first.take())
    }

    pub fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    pub fn back(&self) -> Option<&T> {
        self.behind.back().or(self.first.as_ref())
    }

    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.behind.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.behind)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.behind)
    }

    /// Takes those from the first on for which `is_left` does not hold; it must hold for a beginning of the queue and for
    /// none behind that.
    pub fn split_off(&mut self, is_left: impl Fn(&T) -> bool) -> Queue<T> {
        if self.first.as_ref().is_some_and(|first| !is_left(first)) {
            return mem::take(self);
        }
        let mut behind = self.behind.split_off(self.behind.partition_point(is_left));
        Queue { first: behind.pop_front(), behind }
    }
}

impl<T> IntoIterator for Queue<T> {
    type Item = T;
    type IntoIter = iter::Chain<option::IntoIter<T>, alloc::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.behind)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn what_comes_first_goes_first_and_the_end_can_be_taken_off() {
        let mut queue = Queue::default();
        assert_eq!((queue.pop_front(), queue.len(), queue.back()), (None, 0, None));
        for n in 0..5 {
            queue.push_back(n);
            assert_eq!((queue.front(), queue.back(), queue.len()), (Some(&0), Some(&n), n + 1));
        }
        let taken = [0, 1, 3, 5].map(|left| {
            let mut left_over = queue.clone();
            let taken = left_over.split_off(|n| *n < left);
            assert_eq!(left_over.iter().copied().collect::<Vec<_>>(), (0..left).collect::<Vec<_>>());
            taken.into_iter().collect::<Vec<_>>()
        });
        assert_eq!(taken, [(0..5).collect::<Vec<_>>(), (1..5).collect(), (3..5).collect(), Vec::new()]);
        let mut other = queue.clone();
        assert_eq!(core::iter::from_fn(|| other.pop_back()).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        assert_eq!(core::iter::from_fn(|| queue.pop_front()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(queue.is_empty());
    }
}
