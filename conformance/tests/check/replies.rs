//! Faults in what a server replies.

use ninefold_proto::message::{Entries, Payload, Qids, R, StatBytes, T};
use ninefold_proto::stat::Stat;
use ninefold_proto::{Dialect, Qid, QidType};

use crate::relay::{Fault, Pass, Scene};

/// Where the nanoseconds stand in an Rgetattr: behind header, valid, qid, three fields of 4 and six of 8 bytes.
const ATIME_NSEC: usize = 7 + 8 + 13 + 3 * 4 + 6 * 8;
const MTIME_NSEC: usize = ATIME_NSEC + 16;

pub const TABLE: &[Fault] = &[
    Fault::new("reply-over-msize", "9P2000.L", "msize/reply-never-exceeds-it", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Read { count: u32::MAX, .. }, .. } => {
            scene.say(*tag, R::Read { data: Payload(&[b'x'; 5000]) })
        }
        _ => false,
    }),
    Fault::new("read-of-too-much", "9P2000", "io/read-gives-no-more-than-asked", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Read { count: 1, .. }, .. } => scene.say(*tag, R::Read { data: Payload(b"23") }),
        _ => false,
    }),
    Fault::new("read-past-the-end-refused", "9P2000.L", "io/read-past-the-end-is-empty", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Read { offset: 1.., .. }, message: R::Read { data }, .. } if data.0.is_empty() => {
            scene.refuse(*tag, 22)
        }
        _ => false,
    }),
    Fault::new("write-counts-too-much", "9P2000.u", "io/write-is-read-back", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Write { count }, .. } => scene.say(*tag, R::Write { count: count + 1 }),
        _ => false,
    }),
    Fault::new(
        "replies-under-each-others-tags",
        "9P2000.L",
        "tags/thirty-two-in-flight-are-each-answered-once",
        |scene, pass| {
            let Pass::Reply { tag, message: R::Read { .. }, frame, .. } = pass else { return false };
            let mut frame = frame.to_vec();
            let Some(mut held) = scene.held.take() else {
                scene.held = Some(frame);
                return true;
            };
            frame[5..7].copy_from_slice(&held[5..7]);
            held[5..7].copy_from_slice(&tag.0.to_le_bytes());
            scene.say_raw(&held);
            scene.say_raw(&frame)
        },
    ),
    Fault::new(
        "reply-comes-twice",
        "9P2000",
        "tags/different-requests-in-flight-are-answered",
        |scene, pass| match pass {
            Pass::Reply { message: R::Read { .. }, frame, .. } => {
                scene.say_raw(frame);
                scene.say_raw(frame)
            }
            _ => false,
        },
    ),
    Fault::new("reply-behind-the-rflush", "9P2000.L", "flush/together-with-its-request-is-in-order", |scene, pass| {
        match pass {
            Pass::Reply { message: R::Read { .. }, frame, .. } => {
                scene.held = Some(frame.to_vec());
                true
            }
            Pass::Reply { message: R::Flush {}, frame, .. } => {
                scene.say_raw(frame);
                match scene.held.take() {
                    Some(held) => scene.say_raw(&held),
                    None => true,
                }
            }
            _ => false,
        }
    }),
    Fault::new("entries-split", "9P2000.L", "readdir/entries-are-never-split", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Readdir { data }, .. } if data.0.len() > 100 => {
            scene.say(*tag, R::Readdir { data: Entries(&data.0[..data.0.len() - 3]) })
        }
        _ => false,
    }),
    Fault::new("entry-skipped", "9P2000.L", "readdir/small-counts-list-all", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Readdir { offset: 1.., .. }, message: R::Readdir { data }, .. }
            if !data.0.is_empty() =>
        {
            let first = ninefold_proto::stat::dir_entries(data.0).flatten().next();
            let length = first.map_or(0, |entry| entry.encoded_len());
            if scene.count > 0 || length == data.0.len() {
                return false;
            }
            scene.count += 1;
            scene.say(*tag, R::Readdir { data: Entries(&data.0[length..]) })
        }
        _ => false,
    }),
    Fault::new("msize-raised", "9P2000.u", "version/msize-is-not-raised", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Version { msize, version }, .. } if *msize == 8216 => {
            scene.say(*tag, R::Version { msize: 8217, version })
        }
        _ => false,
    }),
    Fault::new("nanoseconds-lost", "9P2000.L", "attr/nanoseconds-are-kept", |scene, pass| match pass {
        Pass::Reply { frame, message: R::Getattr { .. }, .. } => {
            let mut frame = frame.to_vec();
            frame[ATIME_NSEC..ATIME_NSEC + 8].fill(0);
            frame[MTIME_NSEC..MTIME_NSEC + 8].fill(0);
            scene.say_raw(&frame)
        }
        _ => false,
    })
    .differs(),
    Fault::new("parent-of-the-root", "9P2000", "walk/dot-dot-at-the-root-stays", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Walk { wnames, .. }, message: R::Walk { wqids }, .. }
            if wnames.iter().eq([&b".."[..]]) =>
        {
            let above: Vec<Qid> = wqids.iter().map(|qid| Qid { path: qid.path + 1, ..qid }).collect();
            let mut scratch = Vec::new();
            scene.say(*tag, R::Walk { wqids: Qids::encode(&above, &mut scratch) })
        }
        _ => false,
    }),
    Fault::new("newfid-in-use-taken", "9P2000", "walk/newfid-in-use-is-refused", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Walk { .. }, message: R::Error { ename: b"fid in use", .. }, .. } => {
            let mut scratch = Vec::new();
            let wqids = Qids::encode(&[Qid { kind: QidType::DIR, version: 0, path: 1 }], &mut scratch);
            scene.say(*tag, R::Walk { wqids })
        }
        _ => false,
    }),
    Fault::new("open-of-an-open-fid-taken", "9P2000.L", "fids/open-twice-is-refused", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Lopen { .. }, message: R::Lerror { .. }, .. } => {
            scene.say(*tag, R::Lopen { qid: Qid::default(), iounit: 0 })
        }
        _ => false,
    }),
    Fault::new("every-error-is-eio", "9P2000.L", "errors/enoent-for-a-missing-file", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Lerror { .. }, .. } => scene.refuse(*tag, 5),
        _ => false,
    }),
    Fault::new("rerror-in-l", "9P2000.L", "errors/number-is-an-errno", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Lerror { .. }, .. } => {
            let mut frame = Vec::new();
            R::Error { ename: b"no such file", errno: 0 }.encode(*tag, Dialect::Plan9, &mut frame);
            scene.say_raw(&frame)
        }
        _ => false,
    }),
    Fault::new("errno-0", "9P2000.u", "errors/number-is-beside-the-text", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Error { ename, .. }, .. } => scene.say(*tag, R::Error { ename, errno: 0 }),
        _ => false,
    }),
    Fault::new("text-is-empty", "9P2000", "errors/text-says-something", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Error { .. }, .. } => scene.say(*tag, R::Error { ename: b"", errno: 0 }),
        _ => false,
    }),
    Fault::new("unlinked-file-unknown", "9P2000.L", "unlink/open-file-tells-its-attributes", |scene, pass| {
        scene.count |= u64::from(matches!(pass, Pass::Reply { message: R::Remove {}, .. }));
        match pass {
            Pass::Reply { tag, message: R::Getattr { .. }, .. } if scene.count > 0 => scene.refuse(*tag, 2),
            _ => false,
        }
    }),
    Fault::new("renamed-open-file-lost", "9P2000.L", "rename/open-file-stays-readable-and-writable", |scene, pass| {
        scene.count |= u64::from(matches!(pass, Pass::Reply { message: R::Rename {}, .. }));
        match pass {
            Pass::Reply { tag, message: R::Write { .. }, .. } if scene.count > 0 => scene.refuse(*tag, 2),
            _ => false,
        }
    }),
    Fault::new("every-lock-granted", "9P2000.L", "locks/keeps-two-owners-apart", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Lock { .. }, .. } => scene.say(*tag, R::Lock { status: 0 }),
        _ => false,
    }),
    Fault::new("attribute-size-wrong", "9P2000.L", "xattr/size-is-told", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Xattrwalk { size }, .. } => scene.say(*tag, R::Xattrwalk { size: size + 1 }),
        _ => false,
    }),
    Fault::new("link-leads-elsewhere", "9P2000.L", "create/symlink-is-made-and-read", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Readlink { .. }, .. } => scene.say(*tag, R::Readlink { target: b"elsewhere" }),
        _ => false,
    }),
    Fault::new("iounit-too-large", "9P2000", "fids/iounit-fits-the-msize", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Open { qid, .. }, .. } => scene.say(*tag, R::Open { qid: *qid, iounit: 65_536 }),
        _ => false,
    }),
    Fault::new("stat-of-another-name", "9P2000.u", "stat/name-is-the-one-walked", |scene, pass| match pass {
        Pass::Reply { tag, message: R::Stat { stat: StatBytes(bytes) }, .. } => {
            let Ok(stat) = Stat::decode(bytes, scene.dialect) else { return false };
            let mut bytes = Vec::new();
            Stat { name: b"other", ..stat }.encode(scene.dialect, &mut bytes);
            scene.say(*tag, R::Stat { stat: StatBytes(&bytes) })
        }
        _ => false,
    }),
    Fault::new("bytes-behind-a-reply", "9P2000.L", "attr/basic-attributes-are-told", |scene, pass| match pass {
        Pass::Reply { message: R::Getattr { .. }, frame, .. } => longer(scene, frame),
        _ => false,
    }),
    Fault::new("frame-of-6-bytes", "9P2000", "attach/root-is-a-directory", |scene, pass| match pass {
        Pass::Reply { message: R::Stat { .. }, .. } => scene.say_raw(&[6, 0, 0, 0, 125, 1]),
        _ => false,
    }),
    Fault::new("partial-walk-is-an-error", "9P2000.u", "walk/partial-walk-tells-how-far", |scene, pass| match pass {
        Pass::Reply { tag, to: T::Walk { wnames, .. }, message: R::Walk { wqids }, .. }
            if wqids.len() < wnames.len() =>
        {
            scene.refuse(*tag, 2)
        }
        _ => false,
    }),
];

fn longer(scene: &mut Scene, frame: &[u8]) -> bool {
    let mut frame = frame.to_vec();
    frame.extend([0, 0, 0]);
    let size = (frame.len() as u32).to_le_bytes();
    frame[..4].copy_from_slice(&size);
    scene.say_raw(&frame)
}
