//! Negotiation through frames, with every style of refusal that servers in the field have.

use super::*;
use crate::dialect::{Step, Version};

/// What a server does about a Tversion.
type Server = fn(version: &str, msize: u32) -> Does;

enum Does {
    Agrees(u32, &'static str),
    /// Rerror.
    Errors(&'static str),
    /// Rerror with .u's number.
    UnixErrors(&'static str, u32),
    /// Rlerror.
    LinuxErrors(u32),
    Closes,
}

use Does::*;

/// One that compares the whole string, and refuses with `refusal`.
macro_rules! exact {
    ([$($known:literal),*], |$msize:ident| $refusal:expr) => {
        |version, $msize| match version {
            $($known => Agrees($msize, $known),)*
            _ => $refusal,
        }
    };
}

/// Name, behaviour, what must be agreed when nothing is pinned, and in how many offers.
const SERVERS: &[(&str, Server, Dialect, u32)] = &[
    ("QEMU", exact!(["9P2000.u", "9P2000.L"], |msize| Agrees(msize, "unknown")), Dialect::Linux, 2),
    ("rust-p9", exact!(["9P2000.L"], |msize| Agrees(msize, "unknown")), Dialect::Linux, 2),
    ("hugelgupf/p9", exact!(["9P2000.L"], |_msize| Agrees(0, "unknown")), Dialect::Linux, 2),
    ("diod", exact!(["9P2000.L"], |_msize| LinuxErrors(5)), Dialect::Linux, 2),
    ("nfs-ganesha", exact!(["9P2000.L"], |_msize| LinuxErrors(2)), Dialect::Linux, 2),
    ("WSL", exact!(["9P2000.L"], |_msize| LinuxErrors(95)), Dialect::Linux, 2),
    (
        "lib9p",
        exact!(["9P2000", "9P2000.u", "9P2000.L"], |_msize| Errors("Function not implemented")),
        Dialect::Linux,
        2,
    ),
    ("lib9p without .L", exact!(["9P2000", "9P2000.u"], |_msize| UnixErrors("no", 38)), Dialect::Unix, 4),
    ("a server of .u with errors of .u", exact!(["9P2000.u"], |_msize| UnixErrors("", 0)), Dialect::Unix, 4),
    ("libixp", exact!(["9P", "9P2000"], |msize| Agrees(msize, "unknown")), Dialect::Plan9, 6),
    ("knusbaum/go9p", exact!(["9P2000"], |_msize| Closes), Dialect::Plan9, 2),
    ("plan9port", |_, msize| Agrees(msize, "9P2000"), Dialect::Plan9, 4),
    (
        "lionkov/go9p",
        |version, msize| Agrees(msize, if version == "9P2000.u" { "9P2000.u" } else { "9P2000" }),
        Dialect::Unix,
        3,
    ),
    (
        "one that says .ix before it is asked",
        |version, msize| Agrees(msize, if version == "9P2000" { "9P2000" } else { "9P2000.ix" }),
        Dialect::Plan9,
        6,
    ),
    ("v86", |_, msize| Agrees(msize, "9P2000.L"), Dialect::Linux, 1),
    (
        "ours",
        |version, msize| {
            let answer = crate::dialect::answer_version(version.as_bytes(), msize, 8 << 20);
            Agrees(answer.msize, answer.name)
        },
        Dialect::Linux,
        1,
    ),
    (
        "one with small buffers",
        |version, msize| match version {
            "9P2000.L" => Agrees(msize.min(4096), "9P2000.L"),
            _ => Agrees(msize.min(4096), "unknown"),
        },
        Dialect::Linux,
        2,
    ),
];

/// The dialects that a server agrees to when only one is offered.
fn pinned(server: Server, dialect: Dialect) -> bool {
    matches!(server(dialect.as_str(), MSIZE), Agrees(_, version) if version == dialect.as_str())
}

fn answer(does: Does, tag: Tag) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    match does {
        Agrees(msize, version) => {
            R::Version { msize, version: version.as_bytes() }.encode(tag, Dialect::Plan9, &mut frame);
        }
        Errors(text) => R::Error { ename: text.as_bytes(), errno: 0 }.encode(tag, Dialect::Plan9, &mut frame),
        UnixErrors(text, errno) => {
            R::Error { ename: text.as_bytes(), errno }.encode(tag, Dialect::Unix, &mut frame);
        }
        LinuxErrors(ecode) => R::Lerror { ecode, retry_ms: 0, text: b"" }.encode(tag, Dialect::Linux, &mut frame),
        Closes => return None,
    }
    Some(frame)
}

/// Plays a handshake to its end: how it ended, the offers it took, and whether it was by a new connection.
fn play(mut client: Handshake, server: Server, echo_tag: bool) -> (Step, u32, bool) {
    let (mut offers, mut redialled) = (0, false);
    loop {
        offers += 1;
        assert!(offers < 10, "the negotiation does not end");
        let mut frame = Vec::new();
        client.offer(&mut frame);
        let (header, body) = split_frame(&frame).unwrap();
        assert_eq!(header.tag, Tag::NONE);
        let Ok(T::Version { msize, version }) = T::decode(header.kind, body, Dialect::Plan9) else {
            panic!("an offer that is no Tversion")
        };
        assert_eq!((msize, version), (MSIZE, client.offered().as_bytes()), "the msize never changes");
        let tag = if echo_tag { header.tag } else { Tag(0) };
        let step = match answer(server(client.offered(), msize), tag) {
            Some(frame) => {
                assert!(frame.len() as u32 <= client.frame_max());
                client.handle_frame(&frame).unwrap()
            }
            None => client.handle_close(),
        };
        redialled |= step == Step::Redial;
        if matches!(step, Step::Agreed { .. } | Step::Failed) {
            return (step, offers, redialled);
        }
    }
}

#[test]
fn every_style_of_refusal_ends_in_the_best_dialect_of_the_server() {
    for &(name, server, dialect, offers) in SERVERS {
        for echo_tag in [true, false] {
            let (step, took, redialled) = play(Handshake::new(MSIZE, None), server, echo_tag);
            let msize = if name == "one with small buffers" { 4096 } else { MSIZE };
            let version = if name == "ours" { Version::N1 } else { dialect.into() };
            assert_eq!(step, Step::Agreed { version, msize }, "{name}");
            assert_eq!((took, redialled), (offers, name == "knusbaum/go9p"), "{name}");
        }
    }
}

#[test]
fn streams_are_agreed_wherever_the_server_knows_them() {
    let servers: [(&str, Server, &[u8], u32); 4] = [
        ("one of .s that compares", exact!(["9P2000", "9P2000.s"], |msize| Agrees(msize, "9P2000")), b"9P2000.s", 4),
        ("one of .s that says no", exact!(["9P2000", "9P2000.s"], |_msize| Errors("no")), b"9P2000.s", 5),
        ("one of .u.s", exact!(["9P2000.u", "9P2000.u.s"], |msize| Agrees(msize, "9P2000")), b"9P2000.u.s", 2),
        (
            "one that cuts",
            |version, msize| {
                let known = ["9P2000.u.s", "9P2000.u", "9P2000.s", "9P2000"];
                Agrees(msize, known.into_iter().find(|known| version.starts_with(known)).unwrap_or("unknown"))
            },
            b"9P2000.u.s",
            2,
        ),
    ];
    for (name, server, version, offers) in servers {
        let version = Version::parse(version).unwrap();
        let (step, took, redialled) = play(Handshake::new(MSIZE, None), server, true);
        assert_eq!((step, took, redialled), (Step::Agreed { version, msize: MSIZE }, offers, false), "{name}");
    }
}

#[test]
fn a_pinned_dialect_is_agreed_or_nothing_is() {
    for &(name, server, ..) in SERVERS {
        for dialect in Dialect::ALL {
            let (step, offers, redialled) = play(Handshake::new(MSIZE, Some(dialect.into())), server, true);
            match pinned(server, dialect) {
                true => assert!(matches!(step, Step::Agreed { version, .. } if version == dialect.into()), "{name}"),
                false => assert_eq!(step, Step::Failed, "{name} {dialect}"),
            }
            assert_eq!((offers, redialled), (1, false), "{name}");
        }
    }
}

#[test]
fn a_server_that_refuses_everything_fails_the_handshake_in_any_style() {
    let servers: [Server; 6] = [
        |_, msize| Agrees(msize, "unknown"),
        |_, msize| Agrees(msize, "9P1"),
        |_, _| Errors("no"),
        |_, _| UnixErrors("no", 1),
        |_, _| LinuxErrors(1),
        |_, _| Closes,
    ];
    for server in servers {
        assert_eq!(play(Handshake::new(MSIZE, None), server, true).0, Step::Failed);
    }
}

#[test]
fn an_msize_that_cannot_be_fails_at_once() {
    for (got, version) in [(MSIZE + 1, "9P2000.L"), (u32::MAX, "9P2000.L"), (4095, "9P2000.L"), (0, "9P2000")] {
        let mut client = Handshake::new(MSIZE, None);
        let mut reply = Vec::new();
        R::Version { msize: got, version: version.as_bytes() }.encode(Tag::NONE, Dialect::Plan9, &mut reply);
        assert_eq!(client.handle_frame(&reply), Err(ServerMisbehaved::Msize { offered: MSIZE, got }));
    }
}

#[test]
fn an_answer_that_is_none_breaks_a_rule() {
    let wrong = |reply| ServerMisbehaved::WrongType { request: "Tversion", reply };
    let mut long = Vec::new();
    R::Version { msize: MSIZE, version: &[b'x'; 65_535] }.encode(Tag::NONE, Dialect::Plan9, &mut long);
    let most = long.len() as u32;
    assert_eq!(Handshake::new(MSIZE, None).handle_frame(&long), Ok(Step::OfferAgain));
    long.push(0);
    long[..4].copy_from_slice(&(most + 1).to_le_bytes());
    let body = |error| ServerMisbehaved::Body { name: "Rversion", error };
    for (frame, misbehaved) in [
        (&b""[..], ServerMisbehaved::Frame(DecodeError::Short("size"))),
        (b"HTTP/1.1 400", ServerMisbehaved::Frame(DecodeError::Short("body"))),
        (b"\x06\0\0\0\x65\xff\xff", ServerMisbehaved::Frame(DecodeError::SizeTooSmall(6))),
        (b"\x07\0\0\0\x65\xff\xff", body(DecodeError::Short("msize"))),
        (b"\x0e\0\0\0\x65\xff\xff\0\x20\0\0\0\0\0", body(DecodeError::Trailing(1))),
        (&long, ServerMisbehaved::Frame(DecodeError::SizeTooLarge { size: most + 1, msize: most })),
        (b"\x07\0\0\0\x64\xff\xff", ServerMisbehaved::RequestFromServer("Tversion")),
        (b"\x07\0\0\0\x6d\xff\xff", wrong("Rflush")),
        (b"\x07\0\0\0\x0d\xff\xff", wrong("Rlopen")),
        (b"\x07\0\0\0\xff\xff\xff", ServerMisbehaved::UnknownType(255)),
    ] {
        assert_eq!(Handshake::new(MSIZE, None).handle_frame(frame), Err(misbehaved));
    }
}

#[test]
fn what_stands_in_an_error_does_not_matter() {
    for frame in [&b"\x07\0\0\0\x07\0\0"[..], b"\x09\0\0\0\x6b\0\0\xff\xff", b"\x08\0\0\0\x6b\xff\xff\0"] {
        let mut client = Handshake::new(MSIZE, None);
        assert_eq!(client.handle_frame(frame), Ok(Step::OfferAgain));
        assert_eq!(client.offered(), "9P2000.L");
    }
}
