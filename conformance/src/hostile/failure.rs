//! Misbehaviours in error replies: nothing can be opened, and nobody can be sure why.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::types::Tag;
use ninefold_proto::{Dialect, R, T};

use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "error-zero",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| opened(scene, reply, b"", 0)),
        "refuses with error number 0, or a text of no bytes",
        "error(5): ename tells why",
    ),
    Misbehaviour::new(
        "error-greatest",
        DialectSet::UL,
        Hook::Reply(|scene, reply| opened(scene, reply, b"", u32::MAX)),
        "refuses with error number 2^32 - 1",
        "errno(3): Linux has 1 to 4095",
    ),
    Misbehaviour::odd(
        "error-escape",
        DialectSet::PU,
        Hook::Reply(|scene, reply| opened(scene, reply, b"\x1b]0;owned\x07\x1b[2J\nok", 5)),
        "refuses with a text that a terminal would obey",
    ),
    Misbehaviour::new(
        "error-bytes",
        DialectSet::PU,
        Hook::Reply(|scene, reply| opened(scene, reply, b"\xff\xfe\x9b31m", 5)),
        "refuses with a text that is not UTF-8",
        "intro(5): strings are UTF-8",
    ),
    Misbehaviour::odd(
        "error-long",
        DialectSet::PU,
        Hook::Reply(|scene, reply| opened(scene, reply, &[b'x'; 65_000], 5)),
        "refuses with a text of 65,000 bytes",
    ),
    Misbehaviour::odd(
        "clunk-fails",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match reply.to {
            T::Clunk { .. } => refuse(scene, reply.tag, b"i/o error", 5),
            _ => scene.say(reply.frame),
        }),
        "answers every Tclunk with an I/O error",
    ),
];

/// Refuses what would open a file.
fn opened(scene: &mut Scene, reply: &Reply<'_>, text: &[u8], number: u32) {
    match reply.to {
        T::Open { .. } | T::Lopen { .. } => refuse(scene, reply.tag, text, number),
        _ => scene.say(reply.frame),
    }
}

/// Answers with an error, as the dialect tells it.
fn refuse(scene: &mut Scene, tag: Tag, text: &[u8], number: u32) {
    let error = match scene.dialect {
        Dialect::Linux => R::Lerror { ecode: number, retry_ms: 0, text: b"" },
        Dialect::Plan9 | Dialect::Unix => R::Error { ename: text, errno: number },
    };
    scene.answer(tag, &error);
}
