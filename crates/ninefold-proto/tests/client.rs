//! A client's session under random programs: what is called, given up and parted with in whatever order, against a
//! server that answers in whatever order, against our own server's session, or against one that sends whatever it likes.

mod client_model;

use ninefold_proto::dialect::Version;
use proptest::collection::vec;
use proptest::prelude::*;

use client_model::{Choose, Peer, play};

/// Choices that proptest makes, and can make fewer of.
struct Program<'p> {
    left: &'p [u8],
}

impl Choose for Program<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((&first, rest)) = self.left.split_first() else { return 0 };
        self.left = rest;
        usize::from(first) % n
    }

    fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Any number of a message, mostly that of the reply, and any bytes.
    fn frame(&mut self, _: Version, tag: u16, request: Option<u8>) -> Vec<u8> {
        let kind = request.filter(|_| self.below(4) > 0).map_or_else(|| self.below(128) as u8, |number| number + 1);
        let n = self.below(64);
        let body: Vec<u8> = (0..n).map(|_| [0, 1, 255, self.below(256) as u8][self.below(4)]).collect();
        let mut frame = (7 + n as u32).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(tag.to_le_bytes());
        frame.extend(body);
        frame
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_left_at_either_end_when_an_honest_server_has_answered(program in vec(any::<u8>(), 0..1500)) {
        play(&mut Program { left: &program }, Peer::Honest);
    }

    #[test]
    fn nothing_is_left_at_either_end_when_our_own_server_has_answered(program in vec(any::<u8>(), 0..1500)) {
        play(&mut Program { left: &program }, Peer::Ours);
    }

    #[test]
    fn a_hostile_server_gets_nothing_past_the_judge(program in vec(any::<u8>(), 0..1500)) {
        play(&mut Program { left: &program }, Peer::Hostile);
    }
}
