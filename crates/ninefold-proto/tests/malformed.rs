//! Golden frames cut short, made longer, and with every count raised: an error each time, and never a panic.

mod frames;

use frames::goldens;
use ninefold_proto::Dialect;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{MessageInfo, R, T, info};
use ninefold_proto::plus::plus_entries;
use ninefold_proto::print::{Data, FieldKind, parse, print};
use ninefold_proto::stat::{Stat, dir_entries, stats};
use ninefold_proto::wire::{DecodeError, HEADER, MSIZE_MIN, frame_size, split_frame};

/// A whole frame of this number and body.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let size = (HEADER + body.len()) as u32;
    [&size.to_le_bytes()[..], &[kind, 5, 0], body].concat()
}

fn decode(kind: u8, body: &[u8], version: Version) -> Result<(), DecodeError> {
    // What does not decode must print all the same, and parse back.
    let frame = frame(kind, body);
    let line = print(&frame, version, Data::Whole).to_string();
    assert_eq!(parse(&line, version).as_deref(), Ok(&frame[..]), "{line}");
    match kind % 2 {
        0 => T::decode(kind, body, version).map(drop),
        _ => R::decode(kind, body, version).map(drop),
    }
}

/// Every golden frame in every layout: its row and its body.
fn bodies() -> Vec<(&'static MessageInfo, Version, Vec<u8>)> {
    let mut bodies = Vec::new();
    for golden in goldens() {
        for &version in golden.versions {
            let (header, body) = split_frame(&golden.frame).unwrap();
            assert_eq!(header.tag, golden.tag);
            bodies.push((info(header.kind, version).unwrap(), version, body.to_vec()));
        }
    }
    bodies
}

/// Where the counts of a body stand: offset and width in bytes.
fn counts(row: &MessageInfo, version: Version, body: &[u8]) -> Vec<(usize, usize)> {
    let mut counts = Vec::new();
    let mut at = 0;
    let number =
        |at: usize, width: usize| body[at..at + width].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    for field in row.fields.iter().filter(|field| field.dialects.has(version)) {
        let fixed = match field.kind {
            FieldKind::U8 => 1,
            FieldKind::U16 | FieldKind::Tag => 2,
            FieldKind::U32 | FieldKind::Fid | FieldKind::Perm | FieldKind::Octal | FieldKind::Optional => 4,
            FieldKind::U64 | FieldKind::Mask => 8,
            FieldKind::Qid => 13,
            FieldKind::Str | FieldKind::Stat => {
                counts.push((at, 2));
                2 + number(at, 2)
            }
            FieldKind::Secret => 16,
            FieldKind::LongStr | FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => {
                counts.push((at, 4));
                4 + number(at, 4)
            }
            FieldKind::Qids => {
                counts.push((at, 2));
                2 + 13 * number(at, 2)
            }
            FieldKind::Names => {
                counts.push((at, 2));
                let mut inside = at + 2;
                for _ in 0..number(at, 2) {
                    counts.push((inside, 2));
                    inside += 2 + number(inside, 2);
                }
                inside - at
            }
        };
        at += fixed;
    }
    assert_eq!(at, body.len(), "{}", row.name);
    counts
}

#[test]
fn a_body_cut_short_at_any_length_is_short() {
    for (row, version, body) in bodies() {
        for n in 0..body.len() {
            if row.name == "Tfsync" && n == 4 {
                continue;
            }
            let error = decode(row.number, &body[..n], version).unwrap_err();
            assert!(matches!(error, DecodeError::Short(_)), "{} cut to {n} bytes: {error}", row.name);
        }
    }
}

#[test]
fn bytes_behind_the_last_field_are_refused() {
    for (row, version, body) in bodies() {
        for more in [1, 4, 100] {
            let longer = [&body[..], &vec![0; more]].concat();
            assert_eq!(decode(row.number, &longer, version), Err(DecodeError::Trailing(more)), "{}", row.name);
        }
    }
}

#[test]
fn a_count_over_the_bytes_there_are_is_short() {
    let mut raised = 0;
    for (row, version, body) in bodies() {
        for (at, width) in counts(row, version, &body) {
            for value in [u32::MAX, 0x7fff_ffff, body.len() as u32] {
                let mut body = body.clone();
                body[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                let error = decode(row.number, &body, version).unwrap_err();
                assert!(matches!(error, DecodeError::Short(_)), "{} with {value} at {at}: {error}", row.name);
                raised += 1;
            }
        }
    }
    assert!(raised > 100, "{raised}");
}

#[test]
fn a_count_that_is_off_by_one_is_an_error() {
    for (row, version, body) in bodies() {
        for (at, width) in counts(row, version, &body) {
            for step in [1, u8::MAX] {
                let mut body = body.clone();
                body[at] = body[at].wrapping_add(step);
                assert!(decode(row.number, &body, version).is_err(), "{} {step} at {at} of {width}", row.name);
            }
        }
    }
}

#[test]
fn a_frame_whose_size_is_not_its_length_does_not_split() {
    for golden in goldens() {
        let size = golden.frame.len() as u32;
        for wrong in [0, 6, size - 1, size + 1, u32::MAX] {
            let mut frame = golden.frame.clone();
            frame[..4].copy_from_slice(&wrong.to_le_bytes());
            assert!(split_frame(&frame).is_err(), "{} with size {wrong}", golden.name());
        }
        for n in 0..golden.frame.len() {
            assert!(split_frame(&golden.frame[..n]).is_err());
        }
    }
}

#[test]
fn a_size_under_the_header_or_over_the_msize_is_refused_as_soon_as_it_is_there() {
    for n in 0..4 {
        assert_eq!(frame_size(&[0xff; 4][..n], MSIZE_MIN), Ok(None));
    }
    for size in 0..HEADER as u32 {
        assert_eq!(frame_size(&size.to_le_bytes(), MSIZE_MIN), Err(DecodeError::SizeTooSmall(size)));
    }
    assert_eq!(frame_size(&7u32.to_le_bytes(), MSIZE_MIN), Ok(Some(7)));
    assert_eq!(frame_size(&MSIZE_MIN.to_le_bytes(), MSIZE_MIN), Ok(Some(MSIZE_MIN as usize)));
    for size in [MSIZE_MIN + 1, u32::MAX] {
        let error = DecodeError::SizeTooLarge { size, msize: MSIZE_MIN };
        assert_eq!(frame_size(&size.to_le_bytes(), MSIZE_MIN), Err(error));
    }
}

/// The stat records of the golden frames.
fn records() -> Vec<(Version, Vec<u8>)> {
    let stats = bodies().into_iter().filter_map(|(row, version, body)| match row.name {
        "Rstat" => Some((version, body[2..].to_vec())),
        "Twstat" => Some((version, body[6..].to_vec())),
        _ => None,
    });
    stats.collect()
}

#[test]
fn a_stat_record_cut_short_or_with_a_wrong_size_is_refused() {
    assert_eq!(records().len(), 8);
    for (version, record) in records() {
        assert!(Stat::decode(&record, version.dialect).is_ok());
        for n in 0..record.len() {
            assert!(Stat::decode(&record[..n], version.dialect).is_err(), "cut to {n}");
            if n > 1 {
                // The same, with a size that agrees.
                let size = (n as u16 - 2).to_le_bytes();
                let cut = [&size[..], &record[2..n]].concat();
                assert!(Stat::decode(&cut, version.dialect).is_err(), "cut to {n}, size put right");
            }
        }
        let longer = [&record[..], &[0]].concat();
        assert_eq!(Stat::decode(&longer, version.dialect), Err(DecodeError::Trailing(1)));
        let size = record.len() as u16 - 2 + 1;
        let longer = [&size.to_le_bytes()[..], &record[2..], &[0]].concat();
        assert_eq!(Stat::decode(&longer, version.dialect), Err(DecodeError::StatLength(size.into())));
    }
}

#[test]
fn a_stat_record_of_the_other_dialect_is_refused() {
    for (version, record) in records() {
        let other = if version.dialect == Dialect::Unix { Dialect::Plan9 } else { Dialect::Unix };
        assert!(Stat::decode(&record, other).is_err());
    }
}

#[test]
fn a_list_of_records_ends_at_the_first_bad_one() {
    for (version, record) in records() {
        let list = [&record[..], &record, &record[..10]].concat();
        let read: Vec<_> = stats(&list, version.dialect).collect();
        assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    }
    let (_, _, body) = bodies().into_iter().find(|(row, ..)| row.name == "Rreaddir").unwrap();
    let entry = &body[4..];
    for n in 1..entry.len() {
        let list = [entry, entry, &entry[..n]].concat();
        let read: Vec<_> = dir_entries(&list).collect();
        assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{n} bytes");
    }
    let (_, _, body) = bodies().into_iter().find(|(row, ..)| row.name == "Rreaddirplus").unwrap();
    let entry = &body[8..];
    for n in 1..entry.len() {
        let list = [entry, entry, &entry[..n]].concat();
        let read: Vec<_> = plus_entries(&list).collect();
        assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{n} bytes");
    }
}
