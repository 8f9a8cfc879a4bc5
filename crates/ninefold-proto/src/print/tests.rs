use super::*;
use alloc::format;
use alloc::string::ToString;

/// S4, "The 9P2000 Protocol": the paper's own transaction log (one write's data is given whole here).
const S4_LOG: &str = "\
→ Tversion tag -1 msize 8216 version '9P2000'
← Rversion tag -1 msize 8216 version '9P2000'
→ Tauth tag 5 afid 291 uname 'bootes' aname ''
← Rerror tag 5 ename 'u9fs authnone: no authentication required'
→ Tattach tag 5 fid 291 afid -1 uname 'bootes' aname ''
← Rattach tag 5 qid (0902 1097266316 d)
→ Twalk tag 5 fid 291 newfid 308 nwname 0
← Rwalk tag 5 nwqid 0
→ Twalk tag 5 fid 308 newfid 296 nwname 2 0:tmp 1:usr
← Rwalk tag 5 nwqid 2 0:(0034901 1093689656 d) 1:(0074cdd0 1096825323 d)
→ Tcreate tag 5 fid 296 perm --rw-rw-rw- mode 1 name 'testfile'
← Rcreate tag 5 qid (074cdd4 1097874034 ) iounit 0
→ Tclunk tag 5 fid 308
← Rclunk tag 5
→ Twrite tag 5 fid 296 offset 0 count 4 'test'
← Rwrite tag 5 count 4";

#[test]
fn the_transaction_log_of_the_paper_parses_and_prints_back() {
    for line in S4_LOG.lines() {
        let frame = parse(line, Dialect::Plan9).unwrap_or_else(|e| panic!("{line}: {e}"));
        let printed = print(&frame, Dialect::Plan9, Data::Whole).to_string();
        assert_eq!(parse(&printed, Dialect::Plan9).as_deref(), Ok(&frame[..]), "{printed}");
        if !line.contains("qid") && !line.contains("Tcreate") {
            assert_eq!(printed, line[line.find(' ').unwrap() + 1..]);
        }
    }
}

#[test]
fn strings_of_any_bytes_survive_printing_and_parsing() {
    let all: Vec<u8> = (0..=255).collect();
    for bytes in [&b""[..], b"it's", b"a\\b", b"\\x41", b"\xff\xfe'", "größe".as_bytes(), &all] {
        let text = Quoted(bytes).to_string();
        assert_eq!(unquote(&text).as_deref(), Ok(bytes), "{text}");
        assert_eq!(words(&text).unwrap().len(), 1, "{text}");
    }
}

#[test]
fn file_data_is_not_printed_when_elided() {
    let frame = parse("Twrite tag 1 fid 2 offset 0 count 6 'secret'", Dialect::Linux).unwrap();
    let line = print(&frame, Dialect::Linux, Data::Elided).to_string();
    assert_eq!(line, "Twrite tag 1 fid 2 offset 0 count 6 ...");
    let raw = print(&frame[..frame.len() - 1], Dialect::Linux, Data::Elided).to_string();
    assert!(!raw.contains("73"), "{raw}");
}

#[test]
fn a_frame_that_is_no_message_prints_as_raw_and_parses_back() {
    for frame in [&b""[..], b"\x07\0\0\0\xff\0\0", b"\x08\0\0\0\x78\0\0\0", b"\xff"] {
        let line = print(frame, Dialect::Linux, Data::Whole).to_string();
        assert_eq!(parse(&line, Dialect::Linux).as_deref(), Ok(frame), "{line}");
    }
}

#[test]
fn wrong_lines_are_refused_with_the_field_that_is_wrong() {
    let error = |line: &str| parse(line, Dialect::Linux).unwrap_err();
    assert_eq!(error(""), ParseError::Empty);
    assert!(matches!(error("Twalkx tag 1"), ParseError::UnknownMessage(..)));
    assert!(matches!(error("Topen tag 1 fid 1 mode 0"), ParseError::UnknownMessage(..)));
    assert!(matches!(error("Tclunk tag 1 fib 1"), ParseError::UnknownField { .. }));
    assert!(matches!(error("Tclunk tag 1"), ParseError::MissingField { field: "fid", .. }));
    assert!(matches!(error("Tclunk tag 1 fid 1 fid 2"), ParseError::RepeatedField { .. }));
    assert!(matches!(error("Tclunk fid 1"), ParseError::MissingField { field: "tag", .. }));
    assert!(matches!(error("Tclunk tag 65536 fid 1"), ParseError::BadValue { .. }));
    assert!(matches!(error("Tclunk tag 1 fid"), ParseError::NoValue("fid")));
    assert!(matches!(error("Twalk tag 1 fid 1 newfid 2 nwname 1 1:x"), ParseError::BadValue { .. }));
    assert!(matches!(error("Twrite tag 1 fid 1 offset 0 count 3 'ab'"), ParseError::Count { .. }));
    assert!(matches!(error("raw 0x0700 00"), ParseError::BadValue { field: "raw", .. }));
    assert!(matches!(error("Tclunk tag 1 fid +5"), ParseError::BadValue { .. }));
    let long = "x".repeat(65_536);
    assert!(matches!(error(&format!("Txattrwalk tag 1 fid 1 newfid 2 name '{long}'")), ParseError::Count { .. }));
    assert!(matches!(error("Tattach tag 1 fid 1 afid -1 uname 'x aname '' n_uname 0"), ParseError::Unclosed));
}

#[test]
fn stat_records_and_directory_entries_print_field_by_field() {
    let line = "Rstat tag 1 stat 'f' 'glenda' 'sys' 'glenda' q (1f 3 al) m al-rw-r--r-- at 1 mt 2 l 9 t 0 d 0";
    let line = line.replace("al-rw-r--r--", "alrw-r--r--");
    let frame = parse(&line, Dialect::Plan9).unwrap();
    assert_eq!(print(&frame, Dialect::Plan9, Data::Whole).to_string(), line);

    let unix = "Twstat tag 1 fid 4 stat '' '' '' '' q (ffffffffffffffff -1 dalmAtLh) m -1 at -1 mt -1 l -1 t -1 d -1";
    let unix = format!("{unix} ext '' nu -1 ng 7 nm -1");
    let frame = parse(&unix, Dialect::Unix).unwrap();
    assert_eq!(print(&frame, Dialect::Unix, Data::Whole).to_string(), unix);

    let dir = "Rreaddir tag 1 count 51 [((2 0 d) 1 4 '.') ((3 9 ) 2 8 'a b')]";
    let dir = dir.replace("51", &(24 * 2 + 4).to_string());
    let frame = parse(&dir, Dialect::Linux).unwrap();
    assert_eq!(print(&frame, Dialect::Linux, Data::Whole).to_string(), dir);
}
