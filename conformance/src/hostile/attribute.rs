//! Misbehaviours in attributes and stat records.

use ninefold_proto::dialect::DialectSet;
use ninefold_proto::message::{Mask, StatBytes};
use ninefold_proto::stat::dm;
use ninefold_proto::{Dialect, R, attr::getattr};

use super::listing;
use super::misbehaviour::{Hook, Misbehaviour};
use super::scene::{Reply, Scene};

/// Where Linux and 9P2000 keep the type in a mode.
const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;

pub(super) const TABLE: &[Misbehaviour] = &[
    Misbehaviour::odd(
        "attr-size-greatest",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| sized(scene, reply, u64::MAX)),
        "says that every file has 2^64 - 1 bytes",
    ),
    Misbehaviour::odd(
        "attr-size-large",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| sized(scene, reply, i64::MAX as u64)),
        "says that every file has 2^63 - 1 bytes",
    ),
    Misbehaviour::new(
        "attr-nsec",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            attr(scene, reply, |attr| {
                if let R::Getattr { atime_nsec, mtime_nsec, ctime_nsec, .. } = attr {
                    (*atime_nsec, *mtime_nsec, *ctime_nsec) = (u64::MAX, 1_000_000_000, u64::MAX);
                }
            });
        }),
        "gives times with a second or more of nanoseconds",
        "stat(2): nanoseconds are 0 to 999,999,999",
    ),
    Misbehaviour::odd(
        "attr-sec",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            attr(scene, reply, |attr| {
                if let R::Getattr { atime_sec, mtime_sec, ctime_sec, .. } = attr {
                    (*atime_sec, *mtime_sec, *ctime_sec) = (i64::MAX as u64, i64::MIN as u64, u64::MAX);
                }
            });
        }),
        "gives times at the ends of 64 bits",
    ),
    Misbehaviour::odd(
        "attr-numbers-greatest",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            attr(scene, reply, |attr| {
                if let R::Getattr { valid, nlink, rdev, blksize, blocks, uid, gid, .. } = attr {
                    *valid = Mask(u64::MAX);
                    (*nlink, *rdev, *blksize, *blocks) = (u64::MAX, u64::MAX, 0, u64::MAX);
                    (*uid, *gid) = (u32::MAX, u32::MAX);
                }
            });
        }),
        "gives links, blocks, device and owner as the greatest numbers that there are, and blocks of no bytes",
    ),
    Misbehaviour::new(
        "attr-no-mode",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            attr(scene, reply, |attr| {
                if let R::Getattr { valid, mode, .. } = attr {
                    valid.0 &= !getattr::MODE;
                    mode.0 = 0;
                }
            });
        }),
        "gives attributes of which the mode is not valid",
        "diod protocol.md: what was asked for is answered",
    ),
    Misbehaviour::new(
        "attr-nothing",
        DialectSet::L,
        Hook::Reply(|scene, reply| {
            attr(scene, reply, |attr| {
                if let R::Getattr { valid, .. } = attr {
                    *valid = Mask(0);
                }
            });
        }),
        "gives attributes of which none is valid",
        "diod protocol.md: what was asked for is answered",
    ),
    Misbehaviour::new(
        "attr-other-kind",
        DialectSet::PUL,
        Hook::Reply(|scene, reply| match scene.dialect {
            Dialect::Linux => attr(scene, reply, |attr| {
                if let R::Getattr { mode, .. } = attr {
                    let kind = if mode.0 & S_IFMT == S_IFDIR { S_IFREG } else { S_IFDIR };
                    mode.0 = mode.0 & !S_IFMT | kind;
                }
            }),
            _ => listing::records(scene, reply, |stat| stat.mode ^= dm::DIR),
        }),
        "gives files the mode of directories and directories that of files, beside qids that say otherwise",
        "intro(5): the qid's type is the high byte of the mode",
    ),
    Misbehaviour::new(
        "stat-length",
        DialectSet::PU,
        Hook::Reply(|scene, reply| match reply.message {
            R::Stat { stat } => {
                let mut record = stat.0.to_vec();
                record[0] = record[0].wrapping_sub(1);
                scene.answer(reply.tag, &R::Stat { stat: StatBytes(&record) });
            }
            _ => scene.say(reply.frame),
        }),
        "gives a stat record whose length is not that of its fields",
        "stat(5): size counts what follows",
    ),
    Misbehaviour::new(
        "stat-name-slash",
        DialectSet::PU,
        Hook::Reply(|scene, reply| match reply.message {
            R::Stat { .. } => listing::records(scene, reply, |stat| stat.name = b"../../etc/passwd"),
            _ => scene.say(reply.frame),
        }),
        "gives stat records whose name has slashes",
        "stat(5): the last element of the path",
    ),
    Misbehaviour::odd(
        "stat-owner-escape",
        DialectSet::PU,
        Hook::Both(listing::resumed, |scene, reply| {
            listing::records(scene, reply, |stat| (stat.uid, stat.gid) = (b"\x1b[31mred\x07", b"new\nline"));
        }),
        "gives owners whose names hold escape sequences",
    ),
];

/// Gives plain files another size.
fn sized(scene: &mut Scene, reply: &Reply<'_>, to: u64) {
    match reply.message {
        R::Getattr { .. } => attr(scene, reply, |attr| {
            if let R::Getattr { qid, size, .. } = attr
                && !qid.is_dir()
            {
                *size = to;
            }
        }),
        _ => listing::records(scene, reply, |stat| stat.length = if stat.qid.is_dir() { stat.length } else { to }),
    }
}

/// Answers Tgetattr as `change` leaves the attributes. Other replies pass.
fn attr(scene: &mut Scene, reply: &Reply<'_>, change: impl Fn(&mut R<'_>)) {
    let mut message = reply.message;
    match message {
        R::Getattr { .. } => {
            change(&mut message);
            scene.answer(reply.tag, &message);
        }
        _ => scene.say(reply.frame),
    }
}
