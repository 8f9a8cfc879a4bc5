//! Room in a window, and which reply gave it: what makes [`Stats::round_trips`](super::Stats::round_trips) a chain.

use std::collections::VecDeque;

/// Bytes that may be asked for. What is taken is the room that was given first, so that a request counts as caused by the
/// reply that freed its place in the window, and not by every reply that came before it.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// Bytes, and the depth of the reply that gave them.
    given: VecDeque<(usize, u32)>,
    bytes: usize,
}

impl Credit {
    /// There is room for `bytes` in all now; what is new was given by a reply of `depth`.
    pub fn settle(&mut self, bytes: usize, depth: u32) {
        if bytes > self.bytes {
            self.given.push_back((bytes - self.bytes, depth));
        }
        // A window that shrank takes back what it gave last: the rest has been there all along.
        while self.bytes > bytes
            && let Some(last) = self.given.back_mut()
        {
            let less = last.0.min(self.bytes - bytes);
            last.0 -= less;
            self.bytes -= less;
            if last.0 == 0 {
                self.given.pop_back();
            }
        }
        self.bytes = bytes;
    }

    /// Takes room for `bytes`, or what there is, and gives the depth of the deepest reply that gave it; 0 for none.
    pub fn take(&mut self, bytes: usize) -> u32 {
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        let mut depth = 0;
        while left > 0
            && let Some(first) = self.given.front_mut()
        {
            let taken = first.0.min(left);
            depth = depth.max(first.1);
            first.0 -= taken;
            left -= taken;
            if first.0 == 0 {
                self.given.pop_front();
            }
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_caused_by_the_reply_that_freed_its_place() {
        let mut credit = Credit::default();
        credit.settle(30, 4);
        assert_eq!([credit.take(10), credit.take(10), credit.take(10)], [4, 4, 4]);
        credit.settle(10, 5);
        credit.settle(20, 9);
        assert_eq!((credit.take(10), credit.bytes), (5, 10));
        credit.settle(20, 7);
        assert_eq!(credit.take(15), 9);
        assert_eq!(credit.take(15), 7);
        assert_eq!((credit.take(15), credit.bytes), (0, 0));
    }

    #[test]
    fn a_window_that_shrinks_takes_back_what_it_gave_last() {
        let mut credit = Credit::default();
        credit.settle(10, 1);
        credit.settle(30, 2);
        credit.settle(15, 3);
        assert_eq!((credit.take(10), credit.take(10)), (1, 2));
        credit.settle(10, 4);
        credit.settle(0, 5);
        assert_eq!((credit.take(1), credit.bytes), (0, 0));
    }
}
