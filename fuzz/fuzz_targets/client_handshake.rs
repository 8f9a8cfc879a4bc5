//! A client's handshake and answers of any kind: it ends after a few of them, in what was offered or in a failure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ninefold_proto::Dialect;
use ninefold_proto::client::Handshake;
use ninefold_proto::dialect::{Step, Version};
use ninefold_proto::message::{R, T};
use ninefold_proto::wire::{MSIZE_MIN, split_frame};

use ninefold_fuzz::frames::{self, Contents, sized};
use ninefold_fuzz::input::Input;

/// The strings that are offered are six, and one of them may be offered twice.
const MOST_OFFERS: usize = 7;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let msize = MSIZE_MIN + u32::from(input.u16());
    let pinned =
        [None, None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(8)][input.below(9)].map(|i: usize| {
            match i {
                0..3 => Version::from(Dialect::ALL[i]),
                _ => Version::ALL[i],
            }
        });
    let mut client = Handshake::new(msize, pinned);
    assert_eq!(client.is_pinned(), pinned.is_some());
    let mut ended = false;
    for _ in 0..MOST_OFFERS {
        let offered = client.offered();
        offer(&client, msize);
        let step = if input.one_in(8) {
            client.handle_close()
        } else {
            match client.handle_frame(&answer(&mut input, msize, offered)) {
                Ok(step) => step,
                Err(misbehaved) => {
                    assert!(!misbehaved.to_string().is_empty());
                    // It changed nothing: the same offer is open.
                    assert_eq!(client.offered(), offered);
                    continue;
                }
            }
        };
        match step {
            Step::Agreed { version, msize: agreed } => {
                assert!((MSIZE_MIN..=msize).contains(&agreed));
                assert!(offered.starts_with(version.as_str()), "{version} for {offered}");
                assert!(pinned.is_none_or(|pinned| pinned == version));
                ended = true;
            }
            Step::Failed => ended = true,
            Step::OfferAgain | Step::Redial => {
                assert!(pinned.is_none() && client.offered() != offered);
                assert!(!ended, "it goes on after its end");
            }
        }
        if ended {
            break;
        }
    }
    if ended || input.is_empty() {
        // Whoever asks on after the end gets no panic.
        let _ = client.handle_frame(&answer(&mut input, msize, "9P2000"));
        client.handle_close();
        offer(&client, msize);
    }
    // A server that refuses each offer comes to the end of them.
    for _ in 0..=MOST_OFFERS {
        if client.handle_close() == Step::Failed {
            return;
        }
    }
    panic!("the negotiation does not end");
});

/// What is offered is a Tversion within bounds.
fn offer(client: &Handshake, msize: u32) {
    let mut frame = Vec::new();
    client.offer(&mut frame);
    let (header, body) = split_frame(&frame).unwrap();
    assert_eq!(header.tag.0, u16::MAX);
    let version = client.offered().as_bytes();
    assert_eq!(T::decode(header.kind, body, Dialect::Plan9), Ok(T::Version { msize, version }));
}

fn answer(input: &mut Input<'_>, msize: u32, offered: &str) -> Vec<u8> {
    let tag = input.pick(&[u16::MAX, 0, 1]);
    let mut frame = Vec::new();
    let mut version = |msize, version: &[u8]| {
        let reply = R::Version { msize, version };
        reply.encode(ninefold_proto::Tag(tag), Dialect::Plan9, &mut frame);
    };
    match input.below(8) {
        0 => version(msize, b"unknown"),
        1 => version(input.u32(), b"unknown"),
        2 | 3 => {
            let msize = if input.one_in(4) { input.u32() } else { msize - input.u32() % (msize - MSIZE_MIN + 1) };
            version(msize, &offered.as_bytes()[..input.below(offered.len() + 1)]);
        }
        4 => {
            let agreed = Version::LAYOUTS[input.below(4)];
            version(msize, agreed.as_str().as_bytes());
        }
        5 => {
            let version = Version::LAYOUTS[input.below(4)];
            let rows: Vec<_> = frames::rows(version).into_iter().filter(|row| matches!(row.number, 7 | 107)).collect();
            return frames::frame(rows[input.below(rows.len())], version, tag, Contents::Wild, input);
        }
        6 => {
            let version = Version::LAYOUTS[input.below(4)];
            let rows = frames::rows(version);
            return frames::frame(rows[input.below(rows.len())], version, tag, Contents::Wild, input);
        }
        _ => {
            let n = input.below(64);
            let bytes = input.bytes(n).to_vec();
            return if bytes.len() >= 7 && !input.one_in(4) { sized(bytes) } else { bytes };
        }
    }
    frame
}
