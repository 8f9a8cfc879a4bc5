//! Every message with any contents, laid out from the table: decoded and encoded to the same bytes, head and payload
//! apart too; printed and parsed to the same bytes; a byte less or more is an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ninefold_proto::Tag;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{MessageInfo, R, T};
use ninefold_proto::print::{Data, FieldKind, parse, print};
use ninefold_proto::wire::{DecodeError, HEADER, split_frame};

use ninefold_fuzz::frames::{self, Contents};
use ninefold_fuzz::input::Input;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let version = Version::LAYOUTS[input.below(4)];
    let rows = frames::rows(version);
    let row = rows[input.below(rows.len())];
    let tag = input.u16();
    let frame = frames::frame(row, version, tag, Contents::Wild, &mut input);
    let (header, body) = split_frame(&frame).unwrap();
    assert_eq!((header.kind, header.tag), (row.number, Tag(tag)));

    macro_rules! check {
        ($side:ident) => {{
            let message = $side::decode(row.number, body, version).unwrap();
            assert_eq!(message.name(), row.name);
            let (mut whole, mut head) = (Vec::new(), Vec::new());
            message.encode(header.tag, version, &mut whole);
            assert_eq!(whole, frame);
            message.encode_head(header.tag, version, &mut head);
            head.extend(message.payload());
            assert_eq!(head, frame);
            assert_eq!($side::decode(row.number, &whole[HEADER..], version), Ok(message));
            edges(row, body, |body| $side::decode(row.number, body, version).map(drop));
        }};
    }
    if row.name.starts_with('T') {
        check!(T)
    } else {
        check!(R)
    }

    let line = print(&frame, version, Data::Whole).to_string();
    assert!(line.starts_with(row.name), "{line}");
    assert_eq!(parse(&line, version).as_deref(), Ok(&frame[..]), "{line}");
});

/// Every byte is accounted for: a body cut short or made longer does not decode.
fn edges(row: &MessageInfo, body: &[u8], decode: impl Fn(&[u8]) -> Result<(), DecodeError>) {
    let optional = row.fields.last().is_some_and(|field| field.kind == FieldKind::Optional);
    for n in 0..body.len() {
        if optional && n + 4 == body.len() {
            assert_eq!(decode(&body[..n]), Ok(()));
        } else {
            let error = decode(&body[..n]).unwrap_err();
            assert!(matches!(error, DecodeError::Short(_)), "{n} of {} bytes: {error}", body.len());
        }
    }
    let longer = [body, &[0]].concat();
    assert_eq!(decode(&longer), Err(DecodeError::Trailing(1)));
}
