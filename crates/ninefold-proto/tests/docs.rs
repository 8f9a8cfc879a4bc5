//! docs/protocol.md against the code: a row of the document for every row of the table, and the numbers it quotes.

use ninefold_proto::dialect::{DialectSet, Version};
use ninefold_proto::message::{FieldInfo, MessageInfo, R, T};
use ninefold_proto::print::FieldKind;
use ninefold_proto::server::Limits;
use ninefold_proto::wire::MSIZE_MIN;
use ninefold_proto::{Dialect, Errno};

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `.u .L`; all of them are `all`. What has .L has .n1.
fn versions(set: DialectSet) -> String {
    let own = [(DialectSet::N, ".n1"), (DialectSet::S, ".s"), (DialectSet::SN, ".s .n1")];
    if let Some((_, name)) = own.into_iter().find(|(own, _)| set == *own) {
        return name.to_owned();
    }
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        assert_eq!(set.has(dialect), set.has(Version { streams: true, ..dialect.into() }));
    }
    let names = [(Dialect::Plan9, "9P2000"), (Dialect::Unix, ".u"), (Dialect::Linux, ".L")];
    let names: Vec<_> = names.into_iter().filter(|(dialect, _)| set.has(*dialect)).map(|(_, name)| name).collect();
    assert_eq!(set.has(Dialect::Linux), set.has(Version::N1));
    if names.len() == 3 { "all".to_owned() } else { names.join(" ") }
}

/// `fid[4]`, as the manual writes it; a field that some of the row's dialects lack stands in braces with those that
/// have it.
fn field(field: &FieldInfo, row: &MessageInfo) -> String {
    let name = field.name;
    let layout = match field.kind {
        FieldKind::U8 => format!("{name}[1]"),
        FieldKind::U16 | FieldKind::Tag => format!("{name}[2]"),
        FieldKind::U32 | FieldKind::Fid | FieldKind::Perm | FieldKind::Octal => format!("{name}[4]"),
        FieldKind::U64 | FieldKind::Mask => format!("{name}[8]"),
        FieldKind::Qid => format!("{name}[13]"),
        FieldKind::Str => format!("{name}[s]"),
        FieldKind::Optional => format!("({name}[4])"),
        FieldKind::Names => "nwname[2] nwname*(wname[s])".to_owned(),
        FieldKind::Qids => "nwqid[2] nwqid*(wqid[13])".to_owned(),
        FieldKind::Secret => format!("{name}[16]"),
        FieldKind::LongStr | FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => {
            "count[4] data[count]".to_owned()
        }
        FieldKind::Stat => "stat[n]".to_owned(),
    };
    if field.dialects == row.dialects {
        return layout;
    }
    format!("{{{}: {layout}}}", versions(field.dialects))
}

/// The row up to its last column, which says where the layout is from.
fn document_row(row: &MessageInfo) -> String {
    let fields: String = row.fields.iter().map(|f| format!(" {}", field(f, row))).collect();
    let set = versions(row.dialects);
    format!("| {} | {} | {set} | `size[4] {} tag[2]{fields}` |", row.number, row.name, row.name)
}

#[test]
fn every_row_of_the_table_stands_in_the_document() {
    let document = document();
    for row in T::TABLE.iter().chain(R::TABLE) {
        let expected = document_row(row);
        let source = document.lines().find_map(|line| line.strip_prefix(expected.as_str()));
        let source = source.unwrap_or_else(|| panic!("docs/protocol.md lacks this row:\n{expected} SOURCE |"));
        assert!(source.trim_end_matches('|').trim().len() > 2, "{}: where is its layout from?", row.name);
    }
}

#[test]
fn the_document_has_no_row_that_the_table_lacks() {
    let rows: Vec<_> = T::TABLE.iter().chain(R::TABLE).map(document_row).collect();
    let document = document();
    let of_messages = document.lines().filter(|line| line.contains("| `size[4] "));
    for line in of_messages {
        assert!(rows.iter().any(|row| line.starts_with(row.as_str())), "no such message: {line}");
    }
}

#[test]
fn the_numbers_from_160_to_191_are_ours_alone() {
    assert!(document().contains("160 to 191"));
    for row in T::TABLE.iter().chain(R::TABLE) {
        let is_own = [DialectSet::N, DialectSet::SN].contains(&row.dialects);
        assert_eq!((160..=191).contains(&row.number), is_own, "{}", row.name);
    }
}

/// The numbers of .n1's errors and bits, each as the document quotes it.
#[test]
fn the_bits_and_errors_of_n1_in_the_document_are_those_of_the_code() {
    use ninefold_proto::n1::{access, allocate, rename2, seek, session, streamend, writex};
    let document = document();
    for (name, value) in [
        ("CREATE", session::CREATE),
        ("ABORT", streamend::ABORT),
        ("APPEND", writex::APPEND),
        ("STABLE", writex::STABLE),
        ("KEEP_SIZE", allocate::KEEP_SIZE),
        ("PUNCH_HOLE", allocate::PUNCH_HOLE),
        ("ZERO_RANGE", allocate::ZERO_RANGE),
        ("DATA", seek::DATA),
        ("HOLE", seek::HOLE),
        ("NOREPLACE", rename2::NOREPLACE),
        ("EXCHANGE", rename2::EXCHANGE),
        ("EXECUTE", access::EXECUTE),
        ("WRITE", access::WRITE),
        ("READ", access::READ),
        ("ETRYLATER", Errno::ETRYLATER.0),
        ("ESTALE_LEASE", Errno::ESTALE_LEASE.0),
        ("ESESSION", Errno::ESESSION.0),
        ("EFENCED", Errno::EFENCED.0),
        ("EMOVED", Errno::EMOVED.0),
    ] {
        let quoted = [format!("`{name}` {value}"), format!("`{name}` {value:#x}")];
        assert!(quoted.iter().any(|quoted| document.contains(quoted)), "docs/protocol.md lacks {}", quoted[0]);
    }
}

#[test]
fn the_limits_in_the_document_are_those_of_the_code() {
    let limits = Limits::default();
    let document = document();
    for (name, value) in [
        ("msize", limits.msize as usize),
        ("fids", limits.fids),
        ("running", limits.running),
        ("parked", limits.parked),
        ("unsent", limits.unsent),
        ("streams", limits.streams),
        ("handshake", limits.handshake.as_secs() as usize),
        ("frame", limits.frame.as_secs() as usize),
        ("least msize", MSIZE_MIN as usize),
    ] {
        let row = format!("| {name} | {value} ");
        assert!(document.contains(&row), "docs/protocol.md lacks `{row}`");
    }
}
