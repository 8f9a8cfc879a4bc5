//! Any bytes, in every version: nothing panics, what decodes encodes to the same bytes, what prints parses back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ninefold_proto::dialect::{Negotiation, Step, Version, VersionAnswer, answer_version};
use ninefold_proto::message::{Optional, R, T};
use ninefold_proto::plus::plus_entries;
use ninefold_proto::print::{Data, parse, print};
use ninefold_proto::stat::{Stat, dir_entries, stats};
use ninefold_proto::wire::{HEADER, frame_size, split_frame};
use ninefold_proto::{Dialect, Errno};

use ninefold_fuzz::frames::sized;
use ninefold_fuzz::input::Input;

fuzz_target!(|data: &[u8]| {
    for msize in [0, 4096, u32::MAX] {
        if let Ok(Some(size)) = frame_size(data, msize) {
            assert!((HEADER..=msize as usize).contains(&size));
        }
    }
    offered(data);
    negotiation(data);
    let _ = Errno::from_text(data).text();
    let text = String::from_utf8_lossy(data);
    let repaired = (data.len() >= HEADER).then(|| sized(data.to_vec()));
    for version in Version::LAYOUTS {
        frame(data, version);
        if let Some(repaired) = &repaired {
            frame(repaired, version);
        }
        records(data, version);
        if let Ok(parsed) = parse(&text, version) {
            printed(&parsed, version);
        }
    }
});

fn frame(frame: &[u8], version: Version) {
    printed(frame, version);
    let Ok((header, body)) = split_frame(frame) else { return };
    assert_eq!(header.size as usize, frame.len());
    let mut again = Vec::new();
    if let Ok(message) = T::decode(header.kind, body, version) {
        assert_eq!(message.number(), header.kind);
        message.encode(header.tag, version, &mut again);
        if let T::Fsync { datasync: Optional(0), .. } = message
            && body.len() == 4
        {
            // Left out by old peers; we always send it.
            assert_eq!(again[HEADER..], [body, &[0; 4]].concat());
        } else {
            assert_eq!(again, frame);
        }
        if let T::Walk { wnames, .. } = message {
            assert_eq!(wnames.iter().count(), wnames.len());
        }
        if let T::Wstat { stat, .. } = message {
            records(stat.0, version);
        }
    }
    again.clear();
    if let Ok(message) = R::decode(header.kind, body, version) {
        message.encode(header.tag, version, &mut again);
        assert_eq!(again, frame);
        records(message.payload(), version);
    }
}

/// What is printed whole parses back to the same frame; what is elided only must print.
fn printed(frame: &[u8], version: Version) {
    let text = print(frame, version, Data::Whole).to_string();
    match parse(&text, version) {
        Ok(again) => assert_eq!(again, frame, "{text}"),
        Err(error) => panic!("{text}: {error}"),
    }
    let _ = print(frame, version, Data::Elided).to_string();
}

fn records(data: &[u8], version: Version) {
    let mut again = Vec::new();
    if let Ok(stat) = Stat::decode(data, version.dialect) {
        stat.encode(version.dialect, &mut again);
        assert_eq!(again, data);
        assert_eq!(stat.encoded_len(version.dialect), data.len());
    }
    if let Ok(all) = stats(data, version.dialect).collect::<Result<Vec<_>, _>>() {
        again.clear();
        all.iter().for_each(|stat| stat.encode(version.dialect, &mut again));
        assert_eq!(again, data);
    }
    if let Ok(all) = dir_entries(data).collect::<Result<Vec<_>, _>>() {
        again.clear();
        all.iter().for_each(|entry| entry.encode(&mut again));
        assert_eq!(again, data);
        assert_eq!(all.iter().map(|entry| entry.encoded_len()).sum::<usize>(), data.len());
    }
    if let Ok(all) = plus_entries(data).collect::<Result<Vec<_>, _>>() {
        again.clear();
        all.iter().for_each(|entry| entry.encode(&mut again));
        assert_eq!(again, data);
        assert_eq!(all.iter().map(|entry| entry.encoded_len()).sum::<usize>(), data.len());
    }
}

fn offered(data: &[u8]) {
    let mut input = Input::new(data);
    let (msize, most) = (input.u32(), input.u32());
    for offer in [data, input.bytes(usize::MAX)] {
        let answer = answer_version(offer, msize, most);
        assert_eq!(answer.msize, msize.min(most));
        if let Some(version) = answer.version {
            assert!(msize >= 4096);
            assert!(version == Dialect::Plan9.into() || offer.starts_with(answer.name.as_bytes()));
            assert_eq!(Version::parse(answer.name.as_bytes()), Some(version));
            assert!(offer.starts_with(b"9P"));
        }
    }
}

/// Every negotiation ends after a few answers, whatever they are, and in nothing that was not offered.
fn negotiation(data: &[u8]) {
    let mut input = Input::new(data);
    let msize = 4096 + u32::from(input.u16());
    let mut client = match input.below(4) {
        0 => Negotiation::pinned(msize, Dialect::ALL[input.below(3)]),
        1 => Negotiation::pinned(msize, Version::ALL[input.below(Version::ALL.len())]),
        _ => Negotiation::new(msize),
    };
    for _ in 0..8 {
        let (offer, _) = client.offer();
        let answer = match input.below(6) {
            0 => VersionAnswer::Refused,
            1 => VersionAnswer::Closed,
            2 => VersionAnswer::Version { msize: input.u32(), version: input.bytes(8) },
            3 => VersionAnswer::Version { msize, version: b"unknown" },
            _ => VersionAnswer::Version { msize, version: &offer.as_bytes()[..input.below(offer.len() + 1)] },
        };
        match client.handle(answer) {
            Step::Agreed { version, msize: agreed } => {
                assert!(offer.starts_with(version.as_str()) && (4096..=msize).contains(&agreed));
                return;
            }
            Step::Failed => return,
            Step::OfferAgain | Step::Redial => {}
        }
    }
    panic!("the negotiation does not end");
}
