//! What a request allows its reply to be, and what the two do to the fids.

use super::ServerMisbehaved;
use crate::dialect::Dialect;
use crate::message::{R, T};
use crate::n1::listed;
use crate::open::lflags;
use crate::plus::plus_entries;
use crate::stat::{Stat, dir_entries, dm, omode};
use crate::stream::StreamAddress;
use crate::types::Fid;

/// What is remembered of a request until its reply is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expect {
    /// `Twalk`.
    pub request: &'static str,
    /// The number of the reply that is no error.
    pub reply: u8,
    bound: Bound,
    /// The fids that it names; they are not clunked before it is done.
    pub uses: [Option<Fid>; 2],
    /// The fid that its success establishes.
    pub makes: Option<Fid>,
    /// The fid of a directory that its success turns into the new file's.
    pub creates: Option<Fid>,
    /// The fid that its reply, success or error, forgets.
    pub ends: Option<Fid>,
    /// The fid through which something may be written, or is locked, from then on: its Tclunk may end in an error, or do something.
    pub writes: Option<Fid>,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Refused, or flushed before it was carried out.
    Nothing,
    /// A walk that ended early. It makes no fid (walk(5)), but diod makes one all the same.
    Partial,
    Success,
}

/// What the reply may hold at most.
#[derive(Clone, Copy, Debug)]
enum Bound {
    None,
    Qids {
        names: usize,
    },
    Data {
        asked: u32,
    },
    Entries {
        asked: u32,
    },
    PlusEntries {
        asked: u32,
    },
    Copied {
        asked: u64,
    },
    /// The bits asked for.
    Access {
        asked: u32,
    },
    Taken {
        sent: u32,
    },
    /// An address, which `.s` has; in `.n1` it may be empty.
    Stream {
        has_address: bool,
    },
    StreamEnd,
    Stat,
}

impl Expect {
    /// What `request` allows.
    pub fn of(request: &T<'_>, dialect: Dialect) -> Expect {
        let mut expect = Expect {
            request: request.name(),
            reply: request.number() + 1,
            bound: Bound::None,
            uses: [None; 2],
            makes: None,
            creates: None,
            ends: None,
            writes: None,
        };
        match *request {
            T::Version { .. } | T::Flush { .. } => {}
            T::Auth { afid, .. } => expect.makes = Some(afid),
            T::Attach { fid, afid, .. } => {
                expect.makes = Some(fid);
                expect.uses = [Some(afid).filter(|&afid| afid != Fid::NONE), None];
            }
            T::Walk { fid, newfid, wnames } => {
                expect.bound = Bound::Qids { names: wnames.len() };
                expect.uses = [Some(fid), None];
                expect.makes = Some(newfid).filter(|&newfid| newfid != fid);
            }
            T::Xattrwalk { fid, newfid, .. } => {
                expect.uses = [Some(fid), None];
                expect.makes = Some(newfid).filter(|&newfid| newfid != fid);
            }
            T::Read { fid, count, .. } => {
                expect.bound = Bound::Data { asked: count };
                expect.uses = [Some(fid), None];
            }
            T::Readdir { fid, count, .. } => {
                expect.bound = Bound::Entries { asked: count };
                expect.uses = [Some(fid), None];
            }
            T::Readdirplus { fid, count, .. } => {
                expect.bound = Bound::PlusEntries { asked: count };
                expect.uses = [Some(fid), None];
            }
            T::Access { fid, mode } => {
                expect.bound = Bound::Access { asked: mode.0 };
                expect.uses = [Some(fid), None];
            }
            T::Copyrange { srcfid, dstfid, length, .. } => {
                expect.bound = Bound::Copied { asked: length };
                expect.uses = [Some(srcfid), Some(dstfid)];
            }
            T::Stream { fid, .. } => {
                expect.bound = Bound::Stream { has_address: dialect != Dialect::Linux };
                expect.uses = [Some(fid), None];
            }
            T::Streamend { .. } => expect.bound = Bound::StreamEnd,
            T::Session { fid, .. } => expect.makes = Some(fid),
            T::Write { fid, data, .. } | T::Writex { fid, data, .. } => {
                expect.bound = Bound::Taken { sent: data.0.len() as u32 };
                expect.uses = [Some(fid), None];
            }
            T::Stat { fid } => {
                expect.bound = Bound::Stat;
                expect.uses = [Some(fid), None];
            }
            T::Clunk { fid } | T::Remove { fid } => {
                expect.uses = [Some(fid), None];
                expect.ends = Some(fid);
            }
            T::Create { fid, perm, extension, .. } => {
                expect.creates = Some(fid);
                expect.writes = Some(fid);
                // The fid of the file to link to is in the extension, and must not come to mean another meanwhile.
                let link = Some(extension).filter(|_| dialect == Dialect::Unix && perm.0 & dm::LINK != 0);
                let target = link.and_then(|text| str::from_utf8(text).ok()?.trim().parse().ok());
                expect.uses = [Some(fid), target.map(Fid)];
            }
            T::Lcreate { fid, .. } => {
                expect.creates = Some(fid);
                expect.writes = Some(fid);
                expect.uses = [Some(fid), None];
            }
            T::Open { fid, mode } => {
                expect.uses = [Some(fid), None];
                expect.writes = Some(fid).filter(|_| !matches!(mode, omode::READ | omode::EXEC));
            }
            T::Lopen { fid, flags } => {
                expect.uses = [Some(fid), None];
                let harmless = lflags::LARGEFILE | lflags::DIRECTORY | lflags::NOFOLLOW;
                expect.writes = Some(fid).filter(|_| flags.0 & !harmless != 0);
            }
            T::Xattrcreate { fid, .. } => {
                expect.uses = [Some(fid), None];
                expect.writes = Some(fid);
            }
            T::Wstat { fid, .. }
            | T::Statfs { fid }
            | T::Readlink { fid }
            | T::Getattr { fid, .. }
            | T::Setattr { fid, .. }
            | T::Fsync { fid, .. }
            | T::Allocate { fid, .. }
            | T::Seek { fid, .. }
            | T::Getlock { fid, .. } => expect.uses = [Some(fid), None],
            T::Lock { fid, .. } => {
                expect.uses = [Some(fid), None];
                // Its clunk gives up the lock.
                expect.writes = Some(fid);
            }
            T::Symlink { dfid, .. }
            | T::Mknod { dfid, .. }
            | T::Mkdir { dfid, .. }
            | T::Unlinkat { dirfid: dfid, .. } => expect.uses = [Some(dfid), None],
            T::Rename { fid, dfid, .. } | T::Link { dfid, fid, .. } => expect.uses = [Some(fid), Some(dfid)],
            T::Guard { fid, .. } => expect.uses = [Some(fid).filter(|&fid| fid != Fid::NONE), None],
            T::Renameat { olddirfid, newdirfid, .. } | T::Rename2 { olddirfid, newdirfid, .. } => {
                expect.uses = [Some(olddirfid), Some(newdirfid)]
            }
            T::Never(never, _) => match never {},
        }
        expect
    }

    /// Compares a reply of the right type with what was asked.
    pub fn check(&self, reply: &R<'_>, dialect: Dialect) -> Result<(), ServerMisbehaved> {
        match (self.bound, reply) {
            (Bound::Qids { names }, R::Walk { wqids }) => match wqids.len() {
                got if got > names => Err(ServerMisbehaved::TooManyQids { names, got }),
                0 if names > 0 => Err(ServerMisbehaved::EmptyWalk(names)),
                _ => Ok(()),
            },
            (Bound::Data { asked }, R::Read { data }) => at_most(asked, data.0.len()),
            (Bound::Entries { asked }, R::Readdir { data }) => {
                at_most(asked, data.0.len())?;
                dir_entries(data.0).try_for_each(|entry| entry.map(drop)).map_err(ServerMisbehaved::Entries)
            }
            (Bound::PlusEntries { asked }, R::Readdirplus { flags, data }) => {
                at_most(asked, data.0.len())?;
                if flags.0 & !listed::ALL != 0 {
                    return Err(ServerMisbehaved::ListingFlags(flags.0));
                }
                plus_entries(data.0).try_for_each(|entry| entry.map(drop)).map_err(ServerMisbehaved::Entries)
            }
            (Bound::Copied { asked }, &R::Copyrange { count: got }) if got > asked => {
                Err(ServerMisbehaved::CopiedTooMuch { asked, got })
            }
            (Bound::Access { asked }, &R::Access { mode }) if mode.0 & !asked != 0 => {
                Err(ServerMisbehaved::AccessNotAsked { asked, got: mode.0 })
            }
            (Bound::Taken { sent }, &(R::Write { count: got } | R::Writex { count: got, .. })) if got > sent => {
                Err(ServerMisbehaved::TookTooMuch { sent, got })
            }
            (Bound::Stream { has_address }, &R::Stream { data, addr, offset, length, .. }) => {
                if offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
                    return Err(ServerMisbehaved::StreamPart { offset, length });
                }
                let text = if has_address { data.0 } else { addr };
                let is_own = !has_address && text.is_empty();
                match is_own || StreamAddress::parse(text).is_some() {
                    true => Ok(()),
                    false => Err(ServerMisbehaved::StreamAddress),
                }
            }
            (Bound::StreamEnd, &R::Streamend { count, .. }) if count > i64::MAX as u64 => {
                Err(ServerMisbehaved::StreamedTooMuch(count))
            }
            (Bound::Stat, R::Stat { stat }) => Stat::decode(stat.0, dialect).map(drop).map_err(ServerMisbehaved::Stat),
            _ => Ok(()),
        }
    }

    /// How the request ended by `reply`, which [`Expect::check`] let pass.
    pub fn outcome(&self, reply: &R<'_>) -> Outcome {
        match (self.bound, reply) {
            (_, R::Error { .. } | R::Lerror { .. }) => Outcome::Nothing,
            (Bound::Qids { names }, R::Walk { wqids }) if wqids.len() < names => Outcome::Partial,
            _ => Outcome::Success,
        }
    }
}

fn at_most(asked: u32, got: usize) -> Result<(), ServerMisbehaved> {
    if got > asked as usize { Err(ServerMisbehaved::TooMuchData { asked, got }) } else { Ok(()) }
}
