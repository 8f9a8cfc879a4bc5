//! A client's session driven by a program of bytes, with a judge at its end of the wire: what is called, given up,
//! parted with; against a server that keeps to 9P in any order, our own server's session, or one that sends frames near
//! and far from what was asked. What the session refuses must have changed nothing, and once everything outstanding is
//! answered nothing may be left at either end. In some of the programs the calls are chains, with groups and without: against our
//! own server's session each brings what it would have brought alone; against one that sends anything nothing is left.
#![no_main]

use libfuzzer_sys::fuzz_target;

use ninefold_fuzz::chain_model::{self, Random, hostile};
use ninefold_fuzz::client_model::{Peer, play};
use ninefold_fuzz::input::Input;
use ninefold_proto::Dialect;
use ninefold_proto::dialect::Version;

/// First bytes from here on are of programs of chains.
const CHAINS: u8 = 160;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let first = input.u8();
    if first < CHAINS {
        let peers = [Peer::Hostile, Peer::Hostile, Peer::Honest, Peer::Ours];
        return play(&mut input, peers[usize::from(first) % peers.len()]);
    }
    let dialect = if first & 1 == 0 { Dialect::Plan9 } else { Dialect::Unix };
    let version = Version { dialect, groups: first & 2 == 0, streams: false };
    let program = Random::of_bytes(input.rest());
    if first & 4 == 0 {
        chain_model::play(version, program);
    } else {
        hostile::play(version, program);
    }
});
