//! Misbehaviours in directories.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::message::Names;
use ninefold_proto::stat::{Stat, dm};
use ninefold_proto::types::Fid;
use ninefold_proto::{Dialect, Qid, QidType, R, T};

use super::listing::{self, Asked, Entry};
use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Request, Scene};

/// walk(5) and the directories of Linux: what a name may be.
const NAMES: &str = "intro(5): a name is not empty, has no '/' and no NUL, and is neither '.' nor '..'";

/// Bytes of a message's data that are far under every msize.
const SMALL: u32 = 2048;

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::new(
        "dir-name-slash",
        DialectSet::PUL,
        Hook::Listed(|_, _| vec![Entry::file("../../etc/passwd")]),
        "lists a name with slashes",
        NAMES,
    ),
    Misbehaviour::new(
        "dir-name-nul",
        DialectSet::PUL,
        Hook::Listed(|_, _| vec![Entry::file("a\0b")]),
        "lists a name with a NUL",
        NAMES,
    ),
    Misbehaviour::new(
        "dir-name-empty",
        DialectSet::PUL,
        Hook::Listed(|_, _| vec![Entry::file("")]),
        "lists a name of no bytes",
        NAMES,
    ),
    Misbehaviour::new(
        "dir-name-dot",
        DialectSet::P,
        Hook::Listed(|_, _| vec![Entry::dir(".")]),
        "lists '.', as only 9P2000.u and 9P2000.L do",
        NAMES,
    ),
    Misbehaviour::new(
        "dir-name-dots",
        DialectSet::P,
        Hook::Listed(|_, _| vec![Entry::dir("..")]),
        "lists '..', as only 9P2000.u and 9P2000.L do",
        NAMES,
    ),
    Misbehaviour::odd(
        "dir-dots-again",
        DialectSet::UL,
        Hook::Listed(|_, _| vec![Entry::dir("."), Entry::dir(".."), Entry::file(".")]),
        "lists '.' and '..' twice, once as a plain file",
    ),
    Misbehaviour::new(
        "dir-name-long",
        DialectSet::PUL,
        Hook::Listed(|_, _| vec![Entry::file(vec![b'n'; 256])]),
        "lists a name of 256 bytes",
        "limits.h: NAME_MAX is 255",
    ),
    Misbehaviour::odd(
        "dir-names-odd",
        DialectSet::PUL,
        Hook::Names(&[b"\x1b[31mred\x07", b"line\nbreak", b"\xff\xfe", b"-rf", &[b'n'; 255]]),
        "has files whose names hold escape sequences, line breaks, no UTF-8, 255 bytes",
    ),
    Misbehaviour::new(
        "dir-record-length",
        DialectSet::PU,
        Hook::Reply(|scene, reply| {
            piece(scene, reply, |_, piece| {
                if let [low, ..] = &mut piece[..] {
                    *low = low.wrapping_add(1);
                }
            });
        }),
        "lists records whose length is not that of their fields",
        "stat(5): size counts what follows",
    ),
    Misbehaviour::new(
        "dir-record-cut",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| {
            piece(scene, reply, |_, piece| {
                piece.pop();
            });
        }),
        "lists a last record that lacks its last byte",
        "read(5): a directory is read in whole records",
    ),
    Misbehaviour::new(
        "dir-too-much",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match (reply.to, reply.message) {
            // So little is asked for that a byte more still fits a message.
            (T::Open { .. }, R::Open { qid, .. }) if qid.is_dir() => {
                scene.answer(reply.tag, &R::Open { qid, iounit: SMALL });
            }
            (T::Lopen { .. }, R::Lopen { qid, .. }) if qid.is_dir() => {
                scene.answer(reply.tag, &R::Lopen { qid, iounit: SMALL });
            }
            _ => piece(scene, reply, |asked, piece| piece.resize(asked.count as usize + 1, 0)),
        }),
        "lists one byte more than was asked for",
        "read(5): no more than count bytes",
    ),
    Misbehaviour::odd(
        "dir-endless",
        DialectSet::PUL,
        Hook::Both(
            |scene, request| endless_go_on(scene, request, new_names),
            |scene, reply| endless_begin(scene, reply, new_names),
        ),
        "lists new names for ever",
    ),
    Misbehaviour::odd(
        "dir-dots-endless",
        DialectSet::UL,
        Hook::Both(
            |scene, request| endless_go_on(scene, request, new_dot),
            |scene, reply| endless_begin(scene, reply, new_dot),
        ),
        "lists '.' for ever, each time with a new cookie or time",
    ),
    Misbehaviour::odd(
        "dir-again",
        DialectSet::PUL,
        Hook::Request(|scene, request| match (listing::asked(scene, &request.message), request.message) {
            (Some(Asked { fid, count, .. }), T::Readdir { .. }) => {
                scene.ask(request.tag, &T::Readdir { fid, offset: 0, count });
            }
            (Some(Asked { fid, count, .. }), _) => scene.ask(request.tag, &T::Read { fid, offset: 0, count }),
            (None, _) => scene.forward(request.tag, request.frame),
        }),
        "lists the same names over and over",
    ),
    Misbehaviour::new(
        "dir-cookie-zero",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            listing::entries(scene, reply, |entry| entry.offset = 0);
        }),
        "lists every entry with the cookie of the start",
        "diod protocol.md: offset is that of the next entry",
    ),
    Misbehaviour::new(
        "dir-kind-lies",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match (scene.dialect, listing::piece(scene, reply)) {
            (_, None) => scene.say(reply.frame),
            (Dialect::Linux, _) => listing::entries(scene, reply, |entry| {
                // getdents(2): DT_DIR and DT_REG.
                entry.kind = if entry.qid.is_dir() { 8 } else { 4 };
                entry.qid.kind = other_kind(entry.qid);
            }),
            _ => listing::records(scene, reply, |stat| {
                stat.mode ^= dm::DIR;
                stat.qid.kind = other_kind(stat.qid);
            }),
        }),
        "lists files as directories and directories as files",
        "intro(5): a file keeps its qid's type",
    ),
    Misbehaviour::new(
        "dir-inside-itself",
        DialectSet::PUL,
        Hook::Both(inside_itself, |scene, reply| {
            listing::at_the_end(scene, reply, |_, _| vec![Entry::dir("again")]);
        }),
        "has in every directory one that leads back, so that the tree is endlessly deep",
        "intro(5): a tree",
    ),
    Misbehaviour::new(
        "dir-twin-dir",
        DialectSet::UL,
        Hook::Both(
            |scene, request| twin(scene, request, b"decoy"),
            |scene, reply| {
                twin_listed(scene, reply, |scene, fid| twin_of(scene, fid, Entry::dir("trap")));
            },
        ),
        "lists a symbolic link that leads out, and then a directory of that name",
        "intro(5): the names in a directory differ",
    ),
    Misbehaviour::new(
        "dir-twin-file",
        DialectSet::UL,
        Hook::Both(
            |scene, request| twin(scene, request, b"greeting"),
            |scene, reply| {
                twin_listed(scene, reply, |scene, fid| twin_of(scene, fid, Entry::file("trap")));
            },
        ),
        "lists a symbolic link that leads out, and then a file of that name",
        "intro(5): the names in a directory differ",
    ),
];

/// Answers with a piece of a directory as `change` leaves it.
fn piece(scene: &mut Scene, reply: &Reply<'_>, change: fn(Asked, &mut Vec<u8>)) {
    match (listing::asked(scene, &reply.to), listing::piece(scene, reply)) {
        (Some(asked), Some(piece)) if !piece.is_empty() => {
            let mut piece = piece.to_vec();
            change(asked, &mut piece);
            listing::answer(scene, reply.tag, &piece);
        }
        _ => scene.say(reply.frame),
    }
}

fn other_kind(qid: Qid) -> QidType {
    if qid.is_dir() { QidType::FILE } else { QidType::DIR }
}

/// As many new names as were asked for.
fn new_names(scene: &mut Scene, asked: Asked) -> Vec<u8> {
    let entry = |n: u64| Entry::file(format!("endless{n:012}"));
    let each = listing::encode(scene.dialect, &[entry(0)], 0).len();
    let first = scene.count;
    scene.count += asked.count as u64 / each as u64;
    let names: Vec<Entry> = (first..scene.count).map(entry).collect();
    listing::encode(scene.dialect, &names, first)
}

/// One entry, `.`, of which nothing but the cookie is new.
fn new_dot(scene: &mut Scene, _: Asked) -> Vec<u8> {
    scene.count += 1;
    listing::encode(scene.dialect, &[Entry::dir(".")], scene.count)
}

/// Where the listing would end it goes on.
fn endless_begin(scene: &mut Scene, reply: &Reply<'_>, more: fn(&mut Scene, Asked) -> Vec<u8>) {
    match (listing::asked(scene, &reply.to), listing::piece(scene, reply)) {
        (Some(asked), Some([])) => {
            scene.marked.insert(asked.fid);
            let piece = more(scene, asked);
            listing::answer(scene, reply.tag, &piece);
        }
        _ => scene.say(reply.frame),
    }
}

fn endless_go_on(scene: &mut Scene, request: &Request<'_>, more: fn(&mut Scene, Asked) -> Vec<u8>) {
    match listing::asked(scene, &request.message) {
        Some(asked) if asked.offset > 0 && scene.marked.contains(&asked.fid) => {
            let piece = more(scene, asked);
            listing::answer(scene, request.tag, &piece);
        }
        _ => scene.forward(request.tag, request.frame),
    }
}

/// The names of a walk with `old` replaced by `new`.
fn renamed<'n>(wnames: Names<'n>, old: &[u8], new: &'n [u8]) -> Vec<&'n [u8]> {
    wnames.iter().map(|name| if name == old { new } else { name }).collect()
}

/// The directory that leads back is the one above; the root's is the root.
fn inside_itself(scene: &mut Scene, request: &Request<'_>) {
    match request.message {
        T::Walk { fid, newfid, wnames } => {
            scene.ask_walk(request.tag, fid, newfid, &renamed(wnames, b"again", b".."));
        }
        _ => listing::after_the_end(scene, request),
    }
}

/// Once the client knows where the link leads, its name stands for something else.
fn twin(scene: &mut Scene, request: &Request<'_>, other: &[u8]) {
    match request.message {
        T::Walk { fid, newfid, wnames } if scene.count > 0 => {
            scene.ask_walk(request.tag, fid, newfid, &renamed(wnames, b"trap", other));
        }
        _ => listing::after_the_end(scene, request),
    }
}

fn twin_listed(scene: &mut Scene, reply: &Reply<'_>, entries: fn(&Scene, Fid) -> Vec<Entry>) {
    let told = match reply.message {
        R::Readlink { target } => target == b"../outside",
        R::Stat { stat } => Stat::decode(stat.0, scene.dialect).is_ok_and(|stat| stat.extension == b"../outside"),
        _ => false,
    };
    scene.count += u64::from(told);
    listing::at_the_end(scene, reply, entries);
}

fn twin_of(scene: &Scene, fid: Fid, twin: Entry) -> Vec<Entry> {
    if scene.is_root(fid) { vec![twin] } else { Vec::new() }
}
