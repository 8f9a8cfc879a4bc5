//! A client's session driven by a program of bytes, with a judge at its end of the wire: what is called, given up,
//! parted with; against a server that keeps to 9P in any order, our own server's session, or one that sends frames near
//! and far from what was asked. What the session refuses must have changed nothing, and once everything outstanding is
//! answered nothing may be left at either end.
#![no_main]

use libfuzzer_sys::fuzz_target;

use ninefold_fuzz::client_model::{Peer, play};
use ninefold_fuzz::input::Input;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let peer = input.pick(&[Peer::Hostile, Peer::Hostile, Peer::Honest, Peer::Ours]);
    play(&mut input, peer);
});
