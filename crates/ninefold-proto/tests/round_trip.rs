//! Any message of any dialect, laid out from the table by code that shares nothing with the encoder: it decodes, encodes
//! to the same bytes, prints, and parses back.

use ninefold_proto::dialect::Version;
use ninefold_proto::message::{FieldInfo, MessageInfo, Names, Qids, R, T};
use ninefold_proto::print::{Data, FieldKind, parse, print};
use ninefold_proto::stat::{DirEntry, Stat, dir_entries, stats};
use ninefold_proto::types::{Qid, QidType, Tag};
use ninefold_proto::wire::{DecodeError, HEADER, split_frame};
use ninefold_proto::{Dialect, Errno};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn concat(parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.concat()
}

/// `n` bytes, now and then the greatest value, which is printed in a way of its own.
fn fixed(n: usize) -> BoxedStrategy<Vec<u8>> {
    prop_oneof![6 => vec(any::<u8>(), n), 1 => Just(vec![0xff; n]), 1 => Just(vec![0; n])].boxed()
}

/// Behind its length in two bytes.
fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

/// A string: any bytes, or text with signs that have a meaning in the text form.
fn string() -> BoxedStrategy<Vec<u8>> {
    let text = "[a-z'\\\\ ()\\[\\]:\n\t\r\u{0}ä→]{0,12}";
    prop_oneof![vec(any::<u8>(), 0..40), text.prop_map(String::into_bytes)].prop_map(|s| counted(&s)).boxed()
}

/// `count[2]` and so many of them.
fn list(item: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    vec(item, 0..20).prop_map(|items| [&(items.len() as u16).to_le_bytes()[..], &items.concat()].concat()).boxed()
}

fn data(bytes: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    bytes.prop_map(|bytes| [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()).boxed()
}

fn record(dialect: Dialect) -> BoxedStrategy<Vec<u8>> {
    let mut parts = vec![fixed(2), fixed(4), fixed(13), fixed(4), fixed(4), fixed(4), fixed(8)];
    parts.extend([string(), string(), string(), string()]);
    if dialect == Dialect::Unix {
        parts.extend([string(), fixed(4), fixed(4), fixed(4)]);
    }
    parts.prop_map(|parts| counted(&parts.concat())).boxed()
}

fn entry() -> BoxedStrategy<Vec<u8>> {
    vec![fixed(13), fixed(8), fixed(1), string()].prop_map(concat).boxed()
}

/// With three numbers of four bytes and sixteen of eight.
fn plus_entry() -> BoxedStrategy<Vec<u8>> {
    let numbers = [8, 4, 4, 4].into_iter().chain(std::iter::repeat_n(8, 15)).map(fixed);
    std::iter::once(entry()).chain(numbers).collect::<Vec<_>>().prop_map(concat).boxed()
}

fn field(field: &FieldInfo, version: Version) -> BoxedStrategy<Vec<u8>> {
    match field.kind {
        FieldKind::U8 => fixed(1),
        FieldKind::U16 | FieldKind::Tag => fixed(2),
        FieldKind::U32 | FieldKind::Fid | FieldKind::Perm | FieldKind::Octal | FieldKind::Optional => fixed(4),
        FieldKind::U64 | FieldKind::Mask => fixed(8),
        FieldKind::Qid => fixed(13),
        FieldKind::Str => string(),
        FieldKind::Names => list(string()),
        FieldKind::Qids => list(fixed(13)),
        FieldKind::LongStr => data(vec(any::<u8>(), 0..40).boxed()),
        FieldKind::Payload => data(vec(any::<u8>(), 0..200).boxed()),
        FieldKind::Entries => data(prop_oneof![vec(entry(), 0..4).prop_map(concat), vec(any::<u8>(), 0..60)].boxed()),
        FieldKind::PlusEntries => {
            data(prop_oneof![vec(plus_entry(), 0..3).prop_map(concat), vec(any::<u8>(), 0..60)].boxed())
        }
        FieldKind::Secret => fixed(16),
        FieldKind::Stat => {
            prop_oneof![4 => record(version.dialect), 1 => vec(any::<u8>(), 0..60)].prop_map(|r| counted(&r)).boxed()
        }
    }
}

/// A version, one of its rows, and a frame.
fn message() -> BoxedStrategy<(Version, &'static MessageInfo, Tag, Vec<u8>)> {
    let rows = |version| {
        let rows = T::TABLE.iter().chain(R::TABLE).filter(move |row: &&MessageInfo| row.dialects.has(version));
        (Just(version), select(rows.collect::<Vec<_>>()))
    };
    let frame = |(version, row): (Version, &'static MessageInfo)| {
        let fields = row.fields.iter().filter(|f| f.dialects.has(version)).map(|f| field(f, version));
        (fields.collect::<Vec<_>>(), any::<u16>()).prop_map(move |(fields, tag)| {
            let body = fields.concat();
            let size = (HEADER + body.len()) as u32;
            let head = [&size.to_le_bytes()[..], &[row.number], &tag.to_le_bytes()];
            (version, row, Tag(tag), [head.concat(), body].concat())
        })
    };
    select(&Version::LAYOUTS[..]).prop_flat_map(rows).prop_flat_map(frame).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_message_decodes_and_encodes_to_the_same_bytes((version, row, tag, frame) in message()) {
        let (header, body) = split_frame(&frame).unwrap();
        prop_assert_eq!((header.kind, header.tag, header.size as usize), (row.number, tag, frame.len()));
        let (mut whole, mut head) = (Vec::new(), Vec::new());
        if row.name.starts_with('T') {
            let message = T::decode(row.number, body, version).unwrap();
            prop_assert_eq!((message.name(), message.number()), (row.name, row.number));
            message.encode(tag, version, &mut whole);
            message.encode_head(tag, version, &mut head);
            head.extend(message.payload());
            prop_assert_eq!(T::decode(row.number, &whole[HEADER..], version), Ok(message));
        } else {
            let message = R::decode(row.number, body, version).unwrap();
            prop_assert_eq!((message.name(), message.number()), (row.name, row.number));
            message.encode(tag, version, &mut whole);
            message.encode_head(tag, version, &mut head);
            head.extend(message.payload());
            prop_assert_eq!(R::decode(row.number, &whole[HEADER..], version), Ok(message));
        }
        prop_assert_eq!(&whole, &frame);
        prop_assert_eq!(&head, &frame);
    }

    #[test]
    fn every_message_prints_and_parses_to_the_same_bytes((version, row, _, frame) in message()) {
        let line = print(&frame, version, Data::Whole).to_string();
        prop_assert!(line.starts_with(row.name), "{}", line);
        prop_assert!(!line.contains(['\n', '\t']), "{}", line);
        prop_assert_eq!(parse(&line, version), Ok(frame), "{}", line);
    }

    #[test]
    fn no_byte_is_ignored((version, row, _, frame) in message(), more in 1usize..5, at in any::<prop::sample::Index>()) {
        let body = &frame[HEADER..];
        let decode = |body: &[u8]| match row.name.starts_with('T') {
            true => T::decode(row.number, body, version).map(drop),
            false => R::decode(row.number, body, version).map(drop),
        };
        prop_assert_eq!(decode(&[body, &vec![0; more]].concat()), Err(DecodeError::Trailing(more)));
        if !body.is_empty() {
            let n = at.index(body.len());
            let optional = row.name == "Tfsync" && n == 4;
            prop_assert!(optional || matches!(decode(&body[..n]), Err(DecodeError::Short(_))));
        }
    }

    #[test]
    fn any_bytes_print_and_parse_back(frame in vec(any::<u8>(), 0..80), version in select(&Version::LAYOUTS[..])) {
        let line = print(&frame, version, Data::Whole).to_string();
        prop_assert_eq!(parse(&line, version), Ok(frame), "{}", line);
    }

    #[test]
    fn any_text_parses_or_is_refused_without_a_panic(line in "\\PC{0,60}", version in select(&Version::LAYOUTS[..])) {
        let _ = parse(&line, version);
        let _ = Errno::from_text(line.as_bytes());
    }

    #[test]
    fn records_and_entries_encode_to_the_same_bytes(
        records in vec(record(Dialect::Plan9), 0..4),
        unix in vec(record(Dialect::Unix), 0..4),
        entries in vec(entry(), 0..4),
    ) {
        for (dialect, records) in [(Dialect::Plan9, records.concat()), (Dialect::Unix, unix.concat())] {
            let read: Vec<Stat<'_>> = stats(&records, dialect).map(Result::unwrap).collect();
            let mut again = Vec::new();
            for stat in read {
                let start = again.len();
                stat.encode(dialect, &mut again);
                prop_assert_eq!(stat.encoded_len(dialect), again.len() - start);
            }
            prop_assert_eq!(again, records);
        }
        let entries = entries.concat();
        let read: Vec<DirEntry<'_>> = dir_entries(&entries).map(Result::unwrap).collect();
        let mut again = Vec::new();
        read.iter().for_each(|entry| entry.encode(&mut again));
        prop_assert_eq!(read.iter().map(DirEntry::encoded_len).sum::<usize>(), again.len());
        prop_assert_eq!(again, entries);
    }

    #[test]
    fn names_and_qids_come_back_as_they_were_given(
        given in vec(vec(any::<u8>(), 0..30), 0..20),
        kinds in vec((any::<u8>(), any::<u32>(), any::<u64>()), 0..20),
    ) {
        let (mut names, mut qids) = (Vec::new(), Vec::new());
        let names = Names::encode(given.iter().map(Vec::as_slice), &mut names);
        prop_assert_eq!(names.len(), given.len());
        prop_assert!(names.iter().eq(given.iter().map(Vec::as_slice)));
        let kinds: Vec<Qid> =
            kinds.into_iter().map(|(kind, version, path)| Qid { kind: QidType(kind), version, path }).collect();
        let qids = Qids::encode(&kinds, &mut qids);
        prop_assert_eq!(qids.len(), kinds.len());
        prop_assert!(qids.iter().eq(kinds.iter().copied()));
    }
}
