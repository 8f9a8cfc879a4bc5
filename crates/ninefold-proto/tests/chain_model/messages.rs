//! What the model's deeds are in each version's messages, and what a reply is to the model.

use ninefold_proto::attr::getattr;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Mask, Names, Octal, Payload, Perm, R, StatBytes, T};
use ninefold_proto::n1::{guard, rename2, session};
use ninefold_proto::open::lflags;
use ninefold_proto::plus::plus_entries;
use ninefold_proto::stat::{Stat, dir_entries};
use ninefold_proto::types::SessionId;
use ninefold_proto::{Dialect, Errno, Error, Fid};

use super::tree::{Brought, LONGEST, Step, To};

/// Tcreate's mode under `.ix`: the name must be new.
const EXCLUSIVE: u8 = 0x20;

/// Bytes of a listing: more than all names of a directory take, with their attributes.
const LISTING: u32 = 1024;

const MODE: u32 = 0o644;

/// What the names and fids of a user's deeds stand for.
pub struct Place<'r> {
    pub version: Version,
    /// By `.n1`'s own message, where it has one for what .L has, too.
    pub own: bool,
    pub user: usize,
    pub root: Fid,
    /// The user's directory, which is no chain's; .L only.
    pub dir: Fid,
    pub fids: &'r [Option<Fid>; 2],
}

/// Attaches `fid`.
pub fn attach(own: bool, fid: Fid) -> T<'static> {
    if own {
        let (flags, session, caps) = (Octal(session::CREATE), SessionId([7; 16]), Mask(0));
        return T::Session { flags, session, caps, fid, uname: b"u", aname: b"", n_uname: 0 };
    }
    T::Attach { fid, afid: Fid::NONE, uname: b"u", aname: b"", n_uname: 0 }
}

/// Walks to a user's directory, or to a file in it.
pub fn walk<'a>(root: Fid, newfid: Fid, user: usize, to: To, names: &'a mut Vec<u8>) -> T<'a> {
    let user = format!("u{user}").into_bytes();
    let path: Vec<&[u8]> = match to {
        To::Nowhere => vec![b"nowhere", b"a"],
        To::Dir => vec![&user],
        To::File(name) => vec![&user, letter(name)],
    };
    T::Walk { fid: root, newfid, wnames: Names::encode(path, names) }
}

fn letter(name: char) -> &'static [u8] {
    const LETTERS: &[u8] = b"abc";
    &LETTERS[usize::from(name as u8 - b'a')..][..1]
}

/// The message of a step. `bytes` takes what it borrows.
pub fn request<'a>(place: &Place<'_>, step: &Step, bytes: &'a mut Vec<u8>) -> T<'a> {
    let &Place { version, own, .. } = place;
    let linux = version.dialect == Dialect::Linux;
    if let Step::Stop { members } = *step {
        let flags = Octal(guard::STOP);
        return T::Guard { flags, epoch: 0, fid: Fid::NONE, lease: 0, opid: 0, members };
    }
    let of_slot = |slot: usize| place.fids[slot].expect("its walk was called");
    let fid = of_slot(step.slot());
    match *step {
        Step::Walk { to, .. } => walk(place.root, fid, place.user, to, bytes),
        Step::Open { write, .. } if linux => T::Lopen { fid, flags: Octal(if write { lflags::WRONLY } else { 0 }) },
        Step::Open { write, .. } => T::Open { fid, mode: u8::from(write) },
        Step::Create { name, .. } if linux => {
            let flags = Octal(lflags::WRONLY | lflags::CREAT | lflags::EXCL);
            T::Lcreate { fid, name: letter(name), flags, mode: Octal(MODE), gid: 0 }
        }
        Step::Create { name, .. } => {
            let mode = 1 | if version.groups { EXCLUSIVE } else { 0 };
            T::Create { fid, name: letter(name), perm: Perm(MODE), mode, extension: b"" }
        }
        Step::Read { offset, .. } => T::Read { fid, offset, count: LONGEST as u32 },
        Step::Write { offset, byte, .. } => {
            bytes.push(byte);
            let data = Payload(bytes);
            if own { T::Writex { fid, offset, flags: Octal(0), data } } else { T::Write { fid, offset, data } }
        }
        Step::Stat { .. } if linux => T::Getattr { fid, request_mask: Mask(getattr::BASIC) },
        Step::Stat { .. } => T::Stat { fid },
        Step::Rename { name, .. } if linux => T::Rename { fid, dfid: place.dir, name: letter(name) },
        Step::Rename { name, .. } => {
            Stat { name: letter(name), ..Stat::UNTOUCHED }.encode(version.dialect, bytes);
            T::Wstat { fid, stat: StatBytes(bytes) }
        }
        Step::Remove { .. } => T::Remove { fid },
        Step::Clunk { .. } => T::Clunk { fid },
        Step::List { .. } if own => {
            let (request_mask, flags) = (Mask(getattr::BASIC), Octal(0));
            T::Readdirplus { fid, offset: 0, count: LISTING, request_mask, flags }
        }
        Step::List { .. } => T::Readdir { fid, offset: 0, count: LISTING },
        Step::Move { into, old, new, .. } => {
            let (oldname, newname) = (letter(old), letter(new));
            let (olddirfid, newdirfid) = (fid, of_slot(into));
            match own {
                true => T::Rename2 { olddirfid, oldname, newdirfid, newname, flags: Octal(rename2::NOREPLACE) },
                false => T::Renameat { olddirfid, oldname, newdirfid, newname },
            }
        }
        Step::Unlink { name, .. } => T::Unlinkat { dirfid: fid, name: letter(name), flags: Octal(0) },
        Step::Stop { .. } => unreachable!("it names no fid"),
    }
}

/// What a reply brings.
pub fn brought(reply: &R<'_>, dialect: Dialect) -> Brought {
    let name = |name: &[u8]| char::from(name[0]);
    match *reply {
        R::Walk { wqids } => Brought::Walked(wqids.len()),
        R::Read { data } => Brought::Data(data.0.to_vec()),
        R::Write { count } | R::Writex { count, .. } => Brought::Count(count),
        R::Stat { stat } => Brought::Length(Stat::decode(stat.0, dialect).unwrap().length),
        R::Getattr { size, .. } => Brought::Length(size),
        R::Readdir { data } => Brought::Names(dir_entries(data.0).map(|entry| name(entry.unwrap().name)).collect()),
        R::Readdirplus { data, .. } => {
            Brought::Names(plus_entries(data.0).map(|entry| name(entry.unwrap().entry.name)).collect())
        }
        _ => Brought::Done,
    }
}

/// What an error brings. A fid that was not made is told in the same words everywhere.
pub fn refused(error: &Error) -> Brought {
    if error.errno == Errno::EBADF && error.text() == "unknown fid" { Brought::NotMade } else { Brought::Refused }
}
