//! Random chains of calls between the client's session and the server's, delayed, reordered among each other, refused and given
//! up: each brings what it would have brought by itself, one request at a time, and leaves the same files; once all is
//! answered no fid and no tag is left at either end.
//!
//! `NINEFOLD_CHAINS` is the number of chains, over all runs; see docs/testing.md.

mod chain_model;

use ninefold_proto::Dialect;
use ninefold_proto::dialect::Version;

use chain_model::{Random, hostile, play};

/// Enough to find each fault that was planted, in about a second.
const CHAINS: u64 = 6_000;

/// Of two that differ in Tcreate or in errors' numbers alone, one.
const PLAYED: [Version; 4] = [
    Version { dialect: Dialect::Unix, groups: true, streams: false },
    Version { dialect: Dialect::Unix, groups: false, streams: false },
    Version::N1,
    Version { dialect: Dialect::Linux, groups: false, streams: false },
];

fn chains() -> u64 {
    match std::env::var("NINEFOLD_CHAINS") {
        Ok(n) => n.parse().expect("NINEFOLD_CHAINS is a number"),
        Err(_) => CHAINS,
    }
}

/// Tells the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn all_agree(version: Version) {
    let (mut done, mut aborted, mut withdrawn, mut called_late, mut short, mut seed) = (0, 0, 0, 0, 0, 0);
    while done < chains() {
        let _told = Seed(seed);
        let played = play(version, Random::of_seed(seed));
        done += played.chains;
        aborted += played.aborted;
        withdrawn += played.withdrawn;
        called_late += played.called_late;
        short += played.short_of_its_guard;
        seed += 1;
    }
    // The programs do what they are for.
    assert!(!version.is_n1() || short * 20 > done, "{short} of {done} had less than their guard guards");
    assert!(aborted * 10 > done && aborted * 2 < done, "{aborted} of {done} were given up");
    assert!(
        withdrawn * 20 > done && called_late * 4 > done,
        "{withdrawn} taken back, {called_late} called late, of {done}"
    );
}

#[test]
fn chains_of_groups_agree_with_one_request_at_a_time() {
    all_agree(Version { dialect: Dialect::Plan9, groups: true, streams: false });
    all_agree(Version { dialect: Dialect::Unix, groups: true, streams: false });
    all_agree(Version::N1);
}

#[test]
fn chains_without_groups_agree_with_one_request_at_a_time() {
    all_agree(Dialect::Plan9.into());
    all_agree(Dialect::Unix.into());
    all_agree(Dialect::Linux.into());
}

#[test]
fn a_server_that_sends_anything_leaves_nothing_of_a_chain_behind() {
    for seed in 0..chains() / 4 {
        let _told = Seed(seed);
        for version in PLAYED {
            hostile::play(version, Random::of_seed(seed));
        }
    }
}

#[test]
fn a_program_of_chains_that_breaks_off_anywhere_is_brought_to_an_end_as_a_fuzzer_needs_it() {
    for seed in 0..100 {
        let _told = Seed(seed);
        let mut random = Random::of_seed(seed);
        let program: Vec<u8> = (0..8 * seed).map(|_| random.below(256) as u8).collect();
        for version in PLAYED {
            play(version, Random::of_bytes(&program));
            hostile::play(version, Random::of_bytes(&program));
        }
    }
}
