//! Directory listings in both forms: entries of Rreaddir, and stat records in Rread.

use ninefold_proto::message::{Entries, Payload, StatBytes};
use ninefold_proto::stat::{DirEntry, Stat, dir_entries, dm, stats};
use ninefold_proto::types::{Fid, Tag};
use ninefold_proto::{Dialect, Qid, QidType, R, T};

use super::scene::{Reply, Request, Scene};

/// The first cookie of entries that the honest server does not have; its own are far below.
const COOKIE: u64 = 1 << 40;

/// The first qid path of such entries.
const PATH: u64 = 1 << 40;

/// An entry that a listing is made to hold.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub kind: QidType,
}

impl Entry {
    pub fn file(name: impl Into<Vec<u8>>) -> Entry {
        Entry { name: name.into(), kind: QidType::FILE }
    }

    pub fn dir(name: impl Into<Vec<u8>>) -> Entry {
        Entry { name: name.into(), kind: QidType::DIR }
    }
}

/// A request for a piece of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub fid: Fid,
    /// Where to go on; 0 is the start.
    pub offset: u64,
    /// Bytes.
    pub count: u32,
}

/// What a request asks of a directory, if that is what it reads.
pub(super) fn asked(scene: &Scene, request: &T<'_>) -> Option<Asked> {
    match *request {
        T::Readdir { fid, offset, count } => Some(Asked { fid, offset, count }),
        T::Read { fid, offset, count } if scene.is_dir(fid) => Some(Asked { fid, offset, count }),
        _ => None,
    }
}

/// The bytes of a piece of a directory, if the reply is one.
pub(super) fn piece<'f>(scene: &Scene, reply: &Reply<'f>) -> Option<&'f [u8]> {
    asked(scene, &reply.to).filter(|_| !reply.message.is_error()).map(|_| reply.message.payload())
}

/// Answers with a piece of a directory.
pub(super) fn answer(scene: &mut Scene, tag: Tag, piece: &[u8]) {
    let reply = match scene.dialect {
        Dialect::Linux => R::Readdir { data: Entries(piece) },
        Dialect::Plan9 | Dialect::Unix => R::Read { data: Payload(piece) },
    };
    scene.answer(tag, &reply);
}

/// The bytes of entries, with cookies and qids that count from `number`.
pub(super) fn encode(dialect: Dialect, entries: &[Entry], number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, entry) in (number..).zip(entries) {
        let qid = Qid { kind: entry.kind, version: 0, path: PATH + number };
        match dialect {
            Dialect::Linux => {
                // getdents(2): DT_DIR, DT_LNK, DT_REG.
                let kind = match entry.kind {
                    QidType::DIR => 4,
                    QidType::SYMLINK => 10,
                    _ => 8,
                };
                DirEntry { qid, offset: COOKIE + number + 1, kind, name: &entry.name }.encode(&mut out);
            }
            Dialect::Plan9 | Dialect::Unix => {
                let mode = match entry.kind {
                    QidType::DIR => dm::DIR | 0o755,
                    QidType::SYMLINK => dm::SYMLINK | 0o777,
                    _ => 0o644,
                };
                let stat = Stat { kind: 0, dev: 0, qid, mode, length: 0, name: &entry.name, ..Stat::UNTOUCHED };
                Stat { atime: 0, mtime: 0, uid: b"root", gid: b"root", n_uid: 0, n_gid: 0, ..stat }
                    .encode(dialect, &mut out);
            }
        }
    }
    out
}

/// Answers with the entries of a piece as `change` leaves them; 9P2000.L.
pub(super) fn entries(scene: &mut Scene, reply: &Reply<'_>, change: fn(&mut DirEntry<'_>)) {
    let Some(piece) = piece(scene, reply).filter(|_| scene.dialect == Dialect::Linux) else {
        return scene.say(reply.frame);
    };
    let mut out = Vec::new();
    // The honest server's pieces decode.
    dir_entries(piece).flatten().for_each(|mut entry| {
        change(&mut entry);
        entry.encode(&mut out);
    });
    answer(scene, reply.tag, &out);
}

/// Answers with stat records, of Rstat or of a directory, as `change` leaves them; 9P2000 and .u. Where their length changes
/// [`resumed`] must be the hook for requests. Other replies pass.
pub(super) fn records<'r>(scene: &mut Scene, reply: &Reply<'r>, change: impl Fn(&mut Stat<'r>)) {
    let dialect = scene.dialect;
    let mut out = Vec::new();
    match (reply.message, asked(scene, &reply.to), piece(scene, reply)) {
        // The honest server's records decode.
        (R::Stat { stat }, ..) => {
            if let Ok(mut record) = Stat::decode(stat.0, dialect) {
                change(&mut record);
                record.encode(dialect, &mut out);
            }
            scene.answer(reply.tag, &R::Stat { stat: StatBytes(&out) });
        }
        (_, Some(asked), Some(piece)) if dialect != Dialect::Linux => {
            let mut room = asked.count as usize;
            for honest in stats(piece, dialect).flatten() {
                let mut record = honest;
                change(&mut record);
                // What is not asked for is another misbehaviour.
                let told = if record.encoded_len(dialect) <= room { record } else { honest };
                told.encode(dialect, &mut out);
                room = room.saturating_sub(told.encoded_len(dialect));
            }
            let before = scene.resumes.get(&asked.fid).filter(|_| asked.offset > 0).map_or(0, |&(said, _)| said);
            let resume = (before + out.len() as u64, asked.offset + piece.len() as u64);
            scene.resumes.insert(asked.fid, resume);
            answer(scene, reply.tag, &out);
        }
        _ => scene.say(reply.frame),
    }
}

/// As a hook for requests, with [`records`]: the honest server is asked for what comes next by its own count.
pub(super) fn resumed(scene: &mut Scene, request: &Request<'_>) {
    match (request.message, asked(scene, &request.message)) {
        (T::Read { .. }, Some(Asked { fid, offset: offset @ 1.., count })) => {
            let honest = scene.resumes.get(&fid).filter(|&&(said, _)| said == offset).map(|&(_, honest)| honest);
            scene.ask(request.tag, &T::Read { fid, offset: honest.unwrap_or(offset), count });
        }
        _ => scene.forward(request.tag, request.frame),
    }
}

/// As a hook for replies: one more piece with `entries` where the listing would end.
pub(super) fn at_the_end(scene: &mut Scene, reply: &Reply<'_>, entries: fn(&Scene, Fid) -> Vec<Entry>) {
    match (asked(scene, &reply.to), piece(scene, reply)) {
        (Some(asked), Some([])) if scene.marked.insert(asked.fid) => {
            let piece = encode(scene.dialect, &entries(scene, asked.fid), 0);
            answer(scene, reply.tag, &piece);
        }
        _ => scene.say(reply.frame),
    }
}

/// As a hook for requests, with [`at_the_end`]: behind the entries that were added comes the end.
pub(super) fn after_the_end(scene: &mut Scene, request: &Request<'_>) {
    match asked(scene, &request.message) {
        Some(Asked { fid, offset: 1.., .. }) if scene.marked.contains(&fid) => answer(scene, request.tag, &[]),
        Some(Asked { fid, .. }) => {
            scene.marked.remove(&fid);
            scene.forward(request.tag, request.frame);
        }
        None => scene.forward(request.tag, request.frame),
    }
}
