//! Every message of every dialect against bytes that were written by hand.

mod frames;

use frames::{Golden, Message, bytes, goldens};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{MessageInfo, Optional, R, T};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Fid};

#[test]
fn every_message_encodes_to_the_bytes_of_the_manual() {
    for Golden { versions, tag, message, frame } in goldens() {
        for &version in versions {
            let (mut whole, mut head) = (Vec::new(), Vec::new());
            match message {
                Message::T(message) => {
                    message.encode(tag, version, &mut whole);
                    message.encode_head(tag, version, &mut head);
                    head.extend(message.payload());
                }
                Message::R(message) => {
                    message.encode(tag, version, &mut whole);
                    message.encode_head(tag, version, &mut head);
                    head.extend(message.payload());
                }
            }
            assert_eq!(whole, frame, "{message:?} in {version}");
            assert_eq!(head, frame, "{message:?} in {version}, head and data apart");
        }
    }
}

#[test]
fn the_bytes_of_the_manual_decode_to_every_message() {
    for golden in goldens() {
        for &version in golden.versions {
            let (header, body) = split_frame(&golden.frame).unwrap();
            assert_eq!(header.tag, golden.tag);
            let decoded = match golden.message {
                Message::T(_) => T::decode(header.kind, body, version).map(|m| format!("{m:?}")),
                Message::R(_) => R::decode(header.kind, body, version).map(|m| format!("{m:?}")),
            };
            let expected = match golden.message {
                Message::T(message) => format!("{message:?}"),
                Message::R(message) => format!("{message:?}"),
            };
            assert_eq!(decoded.as_ref(), Ok(&expected), "{version}");
        }
    }
}

#[test]
fn tfsync_without_its_last_field_is_taken_as_fsync() {
    let frame = bytes("0b000000 32 0500 01000000");
    let (header, body) = split_frame(&frame).unwrap();
    let fsync = T::Fsync { fid: Fid(1), datasync: Optional(0) };
    assert_eq!(T::decode(header.kind, body, Dialect::Linux), Ok(fsync));
}

#[test]
fn every_row_of_the_table_has_a_golden_frame_in_each_of_its_layouts() {
    let goldens = goldens();
    let missing = |row: &MessageInfo, version| {
        !goldens.iter().any(|golden| golden.name() == row.name && golden.versions.contains(&version))
    };
    for row in T::TABLE.iter().chain(R::TABLE) {
        for version in Version::LAYOUTS.into_iter().filter(|version| row.dialects.has(*version)) {
            assert!(!missing(row, version), "{} in {version}: write a golden frame", row.name);
        }
    }
}

#[test]
fn no_message_decodes_in_a_version_that_does_not_have_it() {
    for Golden { frame, .. } in goldens() {
        let (header, body) = split_frame(&frame).unwrap();
        for version in Version::LAYOUTS {
            let known =
                |table: &[MessageInfo]| table.iter().any(|row| row.number == header.kind && row.dialects.has(version));
            assert!(known(T::TABLE) || T::decode(header.kind, body, version).is_err());
            assert!(known(R::TABLE) || R::decode(header.kind, body, version).is_err());
        }
    }
}

#[test]
fn the_numbers_of_a_pair_are_even_and_one_more_and_no_number_is_used_twice() {
    let mut numbers = std::collections::BTreeSet::new();
    for row in T::TABLE.iter().chain(R::TABLE) {
        assert!(numbers.insert(row.number), "{} has a number that another has", row.name);
    }
    for t in T::TABLE {
        assert!(t.number.is_multiple_of(2), "{}", t.name);
        let r = R::TABLE.iter().find(|r| r.name[1..] == t.name[1..]).expect(t.name);
        assert_eq!((r.number, r.dialects), (t.number + 1, t.dialects), "{}", r.name);
    }
}
