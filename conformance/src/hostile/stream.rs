//! Misbehaviours in streams: in what is said of them, and on their data connections.
//!
//! The rows of 9P2000 and 9P2000.u are played in `.s` (S1, table 4.2), those of 9P2000.L in `.n1`.

use std::time::Duration;

use ninefold_proto::dialect::{DialectSet, Version};
use ninefold_proto::message::{LongStr, R};
use ninefold_proto::stream::StreamAddress;
use ninefold_proto::types::StreamToken;
use ninefold_proto::{Dialect, Errno};

use super::carry::{self, Carried};
use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

/// What is said and done of a stream.
#[derive(Debug)]
pub(super) struct Trick {
    said: Said,
    pub carried: Carried,
}

#[derive(Debug)]
enum Said {
    /// What the honest server says.
    Honestly,
    /// Another address than the one that is listened at, which has this port.
    Address(fn(u16) -> Vec<u8>),
    /// A token that is none.
    Token,
    /// Another part of the file than that from there on, of so many bytes.
    Part(fn(u64, u64) -> (u64, u64)),
    /// An Rstream without its last byte.
    Short,
    /// No Rstream, ever.
    Nothing,
    /// So many bytes more than moved, or fewer.
    Count(i64),
    /// Another number of the file at the end.
    Modrev,
    /// An error at the end.
    Error(Errno),
    /// No word of the end, ever.
    NoEnd,
    /// The session is closed behind Rstream.
    HangUp,
}

const fn told(said: Said) -> Hook {
    Hook::Stream(Trick { said, carried: Carried::Honestly })
}

const fn carried(carried: Carried) -> Hook {
    Hook::Stream(Trick { said: Said::Honestly, carried })
}

/// Bytes after which a connection is cut: more than a page, and less than a megabyte.
const MIDST: u64 = 300_001;

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "stream-address-elsewhere",
        DialectSet::PUL,
        told(Said::Address(|port| format!("tcp!192.0.2.1!{port}").into_bytes())),
        "sends the client to another host for its data",
        "protocol.md, Streams: the address is the session's own",
    ),
    Misbehaviour::new(
        "stream-address-port-0",
        DialectSet::PUL,
        told(Said::Address(|_| b"tcp!127.0.0.1!0".to_vec())),
        "gives port 0 for the data",
        "S1, table 4.2: the address of the stream",
    ),
    Misbehaviour::new(
        "stream-address-garbage",
        DialectSet::PUL,
        told(Said::Address(|_| b"\xff\0one of mine!".to_vec())),
        "gives rubbish for an address",
        "S1, table 4.2: the address of the stream",
    ),
    Misbehaviour::new(
        "stream-address-long",
        DialectSet::PUL,
        told(Said::Address(|port| format!("tcp!{}!{port}", "1".repeat(60_000)).into_bytes())),
        "gives an address of 60,000 letters",
        "S1, table 4.2: the address of the stream",
    ),
    Misbehaviour::odd(
        "stream-port-closed",
        DialectSet::PUL,
        told(Said::Address(|_| {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            format!("tcp!127.0.0.1!{}", socket.map_or(1, |closed| closed.port())).into_bytes()
        })),
        "gives a port at which nobody listens",
    ),
    Misbehaviour::new(
        "stream-reply-short",
        DialectSet::PUL,
        told(Said::Short),
        "leaves out the last byte of Rstream",
        "intro(5): size is that of the message",
    ),
    Misbehaviour::new(
        "stream-reply-silent",
        DialectSet::PUL,
        told(Said::Nothing),
        "never answers Tstream",
        "intro(5): each request is answered",
    ),
    Misbehaviour::odd(
        "stream-session-closed",
        DialectSet::PUL,
        told(Said::HangUp),
        "closes the session behind Rstream, long before the Tclunk",
    ),
    Misbehaviour::new(
        "stream-silent",
        DialectSet::PUL,
        carried(Carried::Silent),
        "takes the data connection, and neither says nor takes anything there",
        "S1, section 4.2: the data follow",
    ),
    Misbehaviour::new(
        "stream-reset",
        DialectSet::PUL,
        carried(Carried::Reset(MIDST)),
        "resets the data connection in the middle of the data",
        "S1, section 4.2: a stream ends with the file",
    ),
    Misbehaviour::new(
        "stream-less",
        DialectSet::PUL,
        carried(Carried::Short(MIDST)),
        "closes the data connection in the middle of the data",
        "S1, section 4.2: a stream ends with the file",
    ),
    Misbehaviour::new(
        "stream-more",
        DialectSet::PUL,
        carried(Carried::More(b"and more")),
        "sends more than the file has",
        "S1, section 4.2: a stream ends with the file",
    ),
    Misbehaviour::new(
        "stream-greets",
        DialectSet::L,
        carried(Carried::Before(b"9Pstream")),
        "says a preface of its own on the data connection",
        "protocol.md, Streams: the server says nothing of its own",
    ),
    Misbehaviour::new(
        "stream-unended",
        DialectSet::PUL,
        carried(Carried::Unended),
        "sends all and never closes the data connection",
        "S1, section 4.2: a stream ends when its server closes it",
    ),
    Misbehaviour::odd(
        "stream-drip",
        DialectSet::PUL,
        carried(Carried::Drip(Duration::from_millis(50))),
        "sends a byte of data each 50 ms",
    ),
    Misbehaviour::new(
        "stream-swallows",
        DialectSet::PUL,
        carried(Carried::Swallow),
        "takes what is written and writes nothing of it",
        "S1, section 4.2: what is sent is written",
    ),
    Misbehaviour::new(
        "stream-token-wrong",
        DialectSet::L,
        told(Said::Token),
        "gives a token that is good for nothing",
        "protocol.md, Streams: a token is good once",
    ),
    Misbehaviour::new(
        "stream-part-elsewhere",
        DialectSet::L,
        told(Said::Part(|offset, length| (offset + 1, length))),
        "says that a stream begins a byte behind where it does",
        "protocol.md, Streams: Rstream tells the part of the file",
    ),
    Misbehaviour::new(
        "stream-part-longer",
        DialectSet::L,
        told(Said::Part(|offset, length| (offset, length + 1))),
        "says that a stream has a byte more than was asked for",
        "protocol.md, Streams: Rstream tells the part of the file",
    ),
    Misbehaviour::new(
        "stream-part-beyond",
        DialectSet::L,
        told(Said::Part(|_, _| (u64::MAX, u64::MAX))),
        "says that a stream begins behind all that a file can have",
        "protocol.md, Streams: offset and length end at 2^63 - 1",
    ),
    Misbehaviour::new(
        "stream-end-count-more",
        DialectSet::L,
        told(Said::Count(1)),
        "tells a byte more at the end than moved",
        "protocol.md, Streams: Rstreamend tells the bytes",
    ),
    Misbehaviour::new(
        "stream-end-count-less",
        DialectSet::L,
        told(Said::Count(-1)),
        "tells a byte less at the end than moved",
        "protocol.md, Streams: Rstreamend tells the bytes",
    ),
    Misbehaviour::odd(
        "stream-end-modrev",
        DialectSet::L,
        told(Said::Modrev),
        "tells at the end of every stream that the file was changed",
    ),
    Misbehaviour::odd(
        "stream-end-error",
        DialectSet::L,
        told(Said::Error(Errno::EIO)),
        "tells an error behind all of the data",
    ),
    Misbehaviour::new(
        "stream-end-silent",
        DialectSet::L,
        told(Said::NoEnd),
        "never answers Tstreamend",
        "intro(5): each request is answered",
    ),
];

/// The version in which the rows of a dialect are played.
pub(super) fn version(dialect: Dialect) -> Version {
    match dialect {
        Dialect::Linux => Version::N1,
        dialect => Version { dialect, groups: false, streams: true },
    }
}

/// What is said in the place of a reply.
pub(super) fn say(scene: &mut Scene, reply: &Reply<'_>, trick: &'static Trick) {
    match reply.message {
        R::Stream { data, id, token, modrev, offset, length, addr } => {
            let mut address = data.0.to_vec();
            if let Some(honest) = StreamAddress::parse(&address) {
                // Where its one connection is to come: a way to the honest port.
                match carry::listen(honest.port, &trick.carried) {
                    Ok(port) => address = format!("tcp!127.0.0.1!{port}").into_bytes(),
                    Err(_) => return scene.hang_up(),
                }
            }
            let (mut token, mut addr, mut offset, mut length) = (token, addr.to_vec(), offset, length);
            match trick.said {
                Said::Address(other) => {
                    let port = StreamAddress::parse(&address).map_or(1, |address| address.port);
                    let elsewhere = if scene.version.is_n1() { &mut addr } else { &mut address };
                    *elsewhere = other(port);
                }
                Said::Part(other) => (offset, length) = other(offset, length),
                Said::Token => token = StreamToken(token.0.map(|byte| !byte)),
                Said::Nothing => return,
                _ => {}
            }
            let message = R::Stream { data: LongStr(&address), id, token, modrev, offset, length, addr: &addr };
            let mut frame = Vec::new();
            message.encode(reply.tag, scene.version, &mut frame);
            if let Said::Short = trick.said {
                frame.pop();
                let size = frame.len() as u32;
                frame[..4].copy_from_slice(&size.to_le_bytes());
            }
            scene.say(frame);
            if let Said::HangUp = trick.said {
                scene.hang_up();
            }
        }
        R::Streamend { count, modrev } => match trick.said {
            Said::Count(more) => {
                let count = count.saturating_add_signed(more);
                scene.answer(reply.tag, &R::Streamend { count, modrev });
            }
            Said::Modrev => scene.answer(reply.tag, &R::Streamend { count, modrev: modrev ^ 1 }),
            Said::Error(errno) => scene.answer(reply.tag, &R::Lerror { ecode: errno.0, retry_ms: 0, text: b"" }),
            Said::NoEnd => {}
            _ => scene.say(reply.frame),
        },
        _ => scene.say(reply.frame),
    }
}
