//! Faults in what a server does with requests.

use ninefold_proto::message::{Octal, R, StatBytes, T};
use ninefold_proto::stat::Stat;
use ninefold_proto::types::Tag;
use ninefold_proto::{Fid, Qid};

use crate::relay::{Fault, Pass, Scene};

/// Goes for good at the first walk that ends early.
pub const DIES: Fault = Fault::new("dies", "9P2000.L", "walk/partial-walk-tells-how-far", |scene, pass| match pass {
    Pass::Reply { to: T::Walk { wnames, .. }, message: R::Walk { wqids }, .. } if wqids.len() < wnames.len() => {
        (scene.hang_up, scene.die) = (true, true);
        true
    }
    _ => false,
});

pub const TABLE: &[Fault] = &[
    Fault::new("partial-walk-makes-newfid", "9P2000.L", "walk/partial-walk-makes-no-newfid", |scene, pass| {
        if let Pass::Reply { to: T::Walk { newfid, wnames, .. }, message: R::Walk { wqids }, .. } = pass
            && wqids.len() < wnames.len()
        {
            scene.fids.insert(*newfid);
        }
        phantom(scene, pass)
    }),
    Fault::new("failed-walk-makes-newfid", "9P2000", "walk/first-name-missing-is-an-error", |scene, pass| {
        // Fid 20 is the case's own.
        if let Pass::Reply { to: T::Walk { newfid: Fid(20), .. }, message: R::Error { .. }, .. } = pass {
            scene.fids.insert(Fid(20));
        }
        phantom(scene, pass)
    }),
    Fault::new("failed-remove-keeps-fid", "9P2000.u", "fids/failed-remove-ends-the-fid", |scene, pass| {
        if let Pass::Reply { to: T::Remove { fid }, message: R::Error { .. }, .. } = pass {
            scene.fids.insert(*fid);
        }
        phantom(scene, pass)
    }),
    Fault::new("failed-attach-makes-fid", "9P2000.L", "attach/refused-attach-makes-no-fid", |scene, pass| {
        if let Pass::Reply { to: T::Attach { fid, .. }, message: R::Lerror { .. }, .. } = pass {
            scene.fids.insert(*fid);
        }
        phantom(scene, pass)
    }),
    Fault::new("clunk-keeps-fid", "9P2000.L", "fids/clunk-closes", |scene, pass| match pass {
        // Fid 20 is the case's own.
        Pass::Request { tag, message: T::Clunk { fid: Fid(20) }, .. } => scene.say(*tag, R::Clunk {}),
        _ => false,
    }),
    Fault::new("flush-unanswered", "9P2000", "flush/unknown-oldtag-is-answered", |_, pass| {
        matches!(pass, Pass::Request { message: T::Flush { .. }, .. })
    })
    .silent(),
    Fault::new(
        "flush-of-itself-unanswered",
        "9P2000.L",
        "flush/of-itself-is-answered",
        |_, pass| matches!(pass, Pass::Request { tag, message: T::Flush { oldtag }, .. } if tag == oldtag),
    )
    .silent(),
    Fault::new("flush-closes", "9P2000.u", "flush/after-the-reply-is-answered", |scene, pass| {
        scene.hang_up |= matches!(pass, Pass::Request { message: T::Flush { .. }, .. });
        scene.hang_up
    }),
    Fault::new("flush-refused", "9P2000.L", "flush/unknown-oldtag-is-answered", |scene, pass| match pass {
        Pass::Request { tag, message: T::Flush { .. }, .. } => scene.refuse(*tag, 22),
        _ => false,
    }),
    Fault::new(
        "duplicate-tag-lost",
        "9P2000.L",
        "tags/duplicate-tag-is-not-lost",
        |scene, pass| matches!(pass, Pass::Request { tag, .. } if scene.is_outstanding(*tag)),
    )
    .silent(),
    Fault::new("seventeen-names-walked", "9P2000.L", "walk/seventeen-names-are-refused", |scene, pass| match pass {
        Pass::Request { tag, message: T::Walk { wnames, .. }, .. } if wnames.len() == 17 => {
            let mut scratch = Vec::new();
            let wqids = ninefold_proto::message::Qids::encode(&[Qid::default(); 17], &mut scratch);
            scene.say(*tag, R::Walk { wqids })
        }
        _ => false,
    }),
    Fault::new("version-keeps-fids", "9P2000.L", "version/second-version-forgets-fids", |scene, pass| match pass {
        Pass::Request { tag, message: T::Version { msize, version }, .. } if scene.count > 0 => {
            scene.say(*tag, R::Version { msize: *msize, version })
        }
        Pass::Request { message: T::Version { .. }, .. } => {
            scene.count += 1;
            false
        }
        _ => false,
    }),
    Fault::new(
        "readdir-from-the-start-again",
        "9P2000.L",
        "readdir/three-hundred-entries-are-listed-once",
        |scene, pass| match pass {
            Pass::Request { tag, message: T::Readdir { fid, offset: 1.., count }, .. } if scene.count == 0 => {
                scene.count += 1;
                scene.ask(*tag, T::Readdir { fid: *fid, offset: 0, count: *count })
            }
            _ => false,
        },
    ),
    Fault::new("wstat-in-part", "9P2000", "stat/wstat-is-all-or-nothing", |scene, pass| match pass {
        Pass::Request { tag, message: T::Wstat { fid, stat: StatBytes(bytes) }, .. } => {
            let Ok(stat) = Stat::decode(bytes, scene.dialect) else { return false };
            if !stat.name.contains(&b'/') {
                return false;
            }
            let mut bytes = Vec::new();
            Stat { name: b"", ..stat }.encode(scene.dialect, &mut bytes);
            scene.count = 1;
            scene.ask(*tag, T::Wstat { fid: *fid, stat: StatBytes(&bytes) })
        }
        Pass::Reply { tag, to: T::Wstat { .. }, .. } if scene.count == 1 => scene.refuse(*tag, 22),
        _ => false,
    }),
    Fault::new(
        "wstat-takes-dont-touch-for-0",
        "9P2000.u",
        "stat/wstat-that-touches-nothing-changes-nothing",
        |scene, pass| match pass {
            Pass::Request { tag, message: T::Wstat { fid, stat: StatBytes(bytes) }, .. } => {
                let Ok(stat) = Stat::decode(bytes, scene.dialect) else { return false };
                let mut bytes = Vec::new();
                Stat { length: 0, ..stat }.encode(scene.dialect, &mut bytes);
                scene.ask(*tag, T::Wstat { fid: *fid, stat: StatBytes(&bytes) })
            }
            _ => false,
        },
    ),
    Fault::new("setattr-overlooks-valid", "9P2000.L", "attr/set-the-mode-alone", |scene, pass| match pass {
        Pass::Request { tag, message: T::Setattr { fid, mode, size, .. }, .. } => {
            // MODE and SIZE
            let all = T::Setattr {
                fid: *fid,
                valid: Octal(9),
                mode: *mode,
                uid: 0,
                gid: 0,
                size: *size,
                atime_sec: 0,
                atime_nsec: 0,
                mtime_sec: 0,
                mtime_nsec: 0,
            };
            scene.ask(*tag, all)
        }
        _ => false,
    }),
    Fault::new(
        "exclusive-overlooked",
        "9P2000.L",
        "create/exclusive-refuses-an-existing-name",
        |scene, pass| match pass {
            Pass::Request { tag, message: T::Lcreate { fid, name, flags, mode, gid }, .. } if flags.0 & 0o200 != 0 => {
                let flags = Octal(flags.0 & !0o200);
                scene.ask(*tag, T::Lcreate { fid: *fid, name, flags, mode: *mode, gid: *gid })
            }
            _ => false,
        },
    ),
    Fault::new("truncation-overlooked", "9P2000", "io/open-with-truncation-empties", |scene, pass| match pass {
        Pass::Request { tag, message: T::Open { fid, mode }, .. } => {
            scene.ask(*tag, T::Open { fid: *fid, mode: mode & !0x10 })
        }
        _ => false,
    }),
    Fault::new("unlock-overlooked", "9P2000.L", "locks/unlock-frees", |scene, pass| match pass {
        Pass::Request { tag, message: T::Lock { locktype: 2, .. }, .. } => scene.say(*tag, R::Lock { status: 0 }),
        _ => false,
    }),
    Fault::new("append-overlooked", "9P2000.L", "io/append-flag-writes-at-the-end", |scene, pass| match pass {
        Pass::Request { tag, message: T::Lopen { fid, flags }, .. } => {
            scene.ask(*tag, T::Lopen { fid: *fid, flags: Octal(flags.0 & !0o2000) })
        }
        _ => false,
    }),
    Fault::new("too-large-a-frame-taken", "9P2000.u", "msize/frame-over-it-is-refused", |scene, pass| match pass {
        // The case's msize is 8192.
        Pass::Request { tag, message: T::Write { data, .. }, frame } if frame.len() > 8192 => {
            scene.say(*tag, R::Write { count: data.0.len() as u32 })
        }
        _ => false,
    }),
    Fault::new("unknown-version-refused", "9P2000.L", "version/unknown-version-is-answered-unknown", |scene, pass| {
        match pass {
            Pass::Request { tag, message: T::Version { version: b"XYZZY", .. }, .. } => scene.refuse(*tag, 5),
            _ => false,
        }
    }),
    Fault::new("name-with-slash-walked", "9P2000.L", "walk/slash-in-a-name-is-refused", |scene, pass| match pass {
        Pass::Request { tag, message: T::Walk { fid, newfid, wnames }, .. }
            if wnames.iter().any(|n| n.contains(&b'/')) =>
        {
            let names: Vec<&[u8]> = wnames.iter().flat_map(|name| name.split(|&b| b == b'/')).collect();
            let mut scratch = Vec::new();
            let wnames = ninefold_proto::message::Names::encode(names, &mut scratch);
            scene.count = 1;
            scene.ask(*tag, T::Walk { fid: *fid, newfid: *newfid, wnames })
        }
        Pass::Reply { tag, message: R::Walk { wqids }, .. } if scene.count == 1 => {
            let last: Vec<Qid> = wqids.iter().last().into_iter().collect();
            let mut scratch = Vec::new();
            let wqids = ninefold_proto::message::Qids::encode(&last, &mut scratch);
            scene.say(*tag, R::Walk { wqids })
        }
        _ => false,
    }),
];

/// Clunks of the fids that only the fault knows succeed.
fn phantom(scene: &mut Scene, pass: &Pass<'_>) -> bool {
    match pass {
        Pass::Request { tag, message: T::Clunk { fid }, .. } if scene.fids.remove(fid) => {
            let tag: Tag = *tag;
            scene.say(tag, R::Clunk {})
        }
        _ => false,
    }
}
