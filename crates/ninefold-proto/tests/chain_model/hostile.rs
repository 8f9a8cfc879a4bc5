//! A server that sends frames near and far from what was asked, to a client that chains calls, gives them up and parts with
//! fids in whatever order: nothing panics, what is refused changes nothing that shows, and once everything is answered nothing
//! is left.

use ninefold_proto::client::{Answer, Limits, Parting, Session};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Mask, Names, Octal, R, T};
use ninefold_proto::{Dialect, Errno, Fid, Tag};

use super::{MSIZE, Random, messages};

/// Tags that a program of so many steps can come to.
const TAGS: u16 = 512;

const STEPS: usize = 300;

/// Message types that a reply to a request of the program may have, and some that none has.
const KINDS: [u8; 12] = [107, 107, 111, 111, 113, 117, 121, 121, 123, 125, 109, 104];

/// The same in .L and `.n1`.
const LINUX_KINDS: [u8; 16] = [7, 7, 111, 111, 13, 117, 121, 121, 123, 25, 109, 104, 41, 75, 173, 189];

pub fn play(version: Version, mut random: Random<'_>) {
    let limits = Limits { calls: 40, clunks: 3 };
    let mut session = Session::new(version, MSIZE, limits);
    let root = session.new_fid().unwrap();
    let mut out = Vec::new();
    let own = version.is_n1() && random.below(2) == 0;
    let tag = session.call(&messages::attach(own, root), &mut out).unwrap();
    let mut frame = Vec::new();
    attached(own).encode(tag, version, &mut frame);
    session.handle_frame(&frame).unwrap();
    let mut fids = Vec::new();
    let mut last = tag;
    for _ in 0..STEPS {
        if random.is_over() {
            break;
        }
        match random.below(10) {
            0..=3 => last = call(&mut session, &mut random, (root, &mut fids), last),
            4 if random.below(3) == 0 => {
                let tag = Tag(random.below(usize::from(last.0) + 2) as u16);
                // What has not left is taken back first.
                for _ in 0..random.below(4) {
                    session.withdraw_last(tag);
                }
                session.cancel(tag);
            }
            5 if !fids.is_empty() => {
                let fid = fids.swap_remove(random.below(fids.len()));
                session.abandon(fid, if random.below(3) == 0 { Parting::Remove } else { Parting::Clunk });
            }
            6 => while session.poll_transmit(&mut out) {},
            _ => {
                let frame = reply(&mut random, version, last);
                if let Err(misbehaved) = session.handle_frame(&frame) {
                    assert!(!misbehaved.to_string().is_empty());
                }
            }
        }
        while session.poll_turn().is_some() {}
        assert!(session.calls() <= limits.calls && session.unattended() <= limits.calls + limits.clunks);
        out.clear();
    }
    finish(&mut session, fids, version);
    assert!(session.is_idle());
    assert_eq!((session.fids(), session.calls(), session.unattended()), (1, 0, 0));
}

fn attached(own: bool) -> R<'static> {
    let qid = Default::default();
    if !own {
        return R::Attach { qid };
    }
    let (caps, epoch, time_sec, time_nsec, term_ms) = (Mask(0), 1, 0, 0, 0);
    let (fids, running, parked, group, waiting) = (100, 100, 100, 64, 100);
    R::Session { caps, epoch, time_sec, time_nsec, term_ms, fids, running, parked, group, waiting, qid }
}

/// Calls something, mostly behind what was called last, and gives the tag.
fn call(session: &mut Session, random: &mut Random<'_>, (root, fids): (Fid, &mut Vec<Fid>), last: Tag) -> Tag {
    let (mut names, mut out) = (Vec::new(), Vec::new());
    let new = if random.below(3) == 0 { session.new_fid() } else { None };
    let some = fids.get(random.below(fids.len().max(1))).copied().unwrap_or(root);
    let request = match new {
        Some(newfid) => {
            if random.below(2) == 0 {
                session.keep(newfid, true);
            }
            fids.push(newfid);
            let wnames = Names::encode(vec![&b"n"[..]; random.below(4)], &mut names);
            T::Walk { fid: root, newfid, wnames }
        }
        None if session.dialect() == Dialect::Linux => {
            let other = fids.get(random.below(fids.len().max(1))).copied().unwrap_or(root);
            let own = session.version().is_n1() && random.below(2) == 0;
            let (oldname, newname, flags) = (&b"n"[..], &b"m"[..], Octal(0));
            match random.below(6) {
                0 if some != root => T::Clunk { fid: some },
                1 => T::Getattr { fid: some, request_mask: Mask(0) },
                2 => T::Read { fid: some, offset: 0, count: 8 },
                3 if own => T::Readdirplus { fid: some, offset: 0, count: 24, request_mask: Mask(0), flags },
                3 => T::Readdir { fid: some, offset: 0, count: 24 },
                4 if own => T::Rename2 { olddirfid: some, oldname, newdirfid: other, newname, flags },
                4 => T::Renameat { olddirfid: some, oldname, newdirfid: other, newname },
                _ => T::Lopen { fid: some, flags },
            }
        }
        None => match random.below(4) {
            0 if some != root => T::Clunk { fid: some },
            1 => T::Stat { fid: some },
            2 => T::Read { fid: some, offset: 0, count: 8 },
            _ => T::Open { fid: some, mode: 0 },
        },
    };
    let called = match random.below(4) {
        0 => session.call(&request, &mut out).ok(),
        _ => match session.call_behind(last, &request, &mut out) {
            Ok(_) => Some(last),
            Err(_) => session.call(&request, &mut out).ok(),
        },
    };
    called.unwrap_or(last)
}

/// Any bytes under a header that may be right.
fn reply(random: &mut Random<'_>, version: Version, last: Tag) -> Vec<u8> {
    let body: Vec<u8> =
        (0..random.below(40)).map(|_| [0, 0, 1, 255, random.below(256) as u8][random.below(5)]).collect();
    let mut frame = (7 + body.len() as u32).to_le_bytes().to_vec();
    let kinds: &[u8] = if version.dialect == Dialect::Linux { &LINUX_KINDS } else { &KINDS };
    frame.push(kinds[random.below(kinds.len())]);
    frame.extend((last.0.saturating_sub(random.below(6) as u16)).to_le_bytes());
    frame.extend(body);
    frame
}

/// Everything is answered, by an error, which even a Tflush may be.
fn finish(session: &mut Session, fids: Vec<Fid>, version: Version) {
    fids.into_iter().for_each(|fid| session.abandon(fid, Parting::Clunk));
    let mut out = Vec::new();
    // Each round answers all there is, and leaves fewer fids.
    for _ in 0..STEPS {
        while session.poll_transmit(&mut out) {}
        for tag in (0..TAGS).map(Tag) {
            // Between two replies of a chain one may have to have its turn.
            while session.ordinal(tag).is_some() {
                let mut frame = Vec::new();
                let error = match version.dialect {
                    Dialect::Linux => R::Lerror { ecode: Errno::EIO.0, retry_ms: 0, text: b"no" },
                    _ => R::Error { ename: b"no", errno: Errno::EIO.0 },
                };
                error.encode(tag, version, &mut frame);
                match session.handle_frame(&frame) {
                    Ok(Answer::Failed { .. } | Answer::Settled) => {}
                    // Its replies are all there, and its Rflush is not.
                    Err(_) => break,
                    Ok(reply) => panic!("{reply:?} by an error"),
                }
                while session.poll_turn().is_some() {}
            }
        }
        out.clear();
        if session.is_idle() {
            return;
        }
    }
}
