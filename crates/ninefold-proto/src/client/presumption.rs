//! A session that begins before its version is agreed: on the one that this server agreed on the last time.
//!
//! Send [`Presumption::offer`], and right behind it what a [`Session`] made with [`Presumption::version`] and
//! [`Presumption::msize`] calls, each noted by [`Presumption::note`]. Hand the first frame that comes to
//! [`Presumption::handle_frame`]; only when it [holds](Verdict::Holds) are the frames behind it the session's. Else, and when
//! the connection ends before, the session is thrown away; what may have been done then [`Verdict`] and
//! [`Presumption::changes`] say.
//!
//! Promise: nothing is believed before the server has said which version it speaks, and what may have been carried out is
//! never taken for what was not.

use alloc::vec::Vec;

use super::handshake::Handshake;
use super::misbehaved::ServerMisbehaved;
use super::session::Session;
use crate::dialect::{Dialect, Step, Version};
use crate::message::{R, RVERSION, T};
use crate::open::lflags;
use crate::stat::omode;
use crate::types::Tag;
use crate::wire::split_frame;

/// Bytes of the largest frame that is sent early: what a small operation needs, and a small part of what is lost where the
/// server has changed.
const MSIZE_MAX: u32 = 64 * 1024;

/// What a session presumes, and what its server makes of it.
#[derive(Clone, Debug)]
pub struct Presumption {
    handshake: Handshake,
    version: Version,
    msize: u32,
    /// Bytes of the largest request noted.
    largest: usize,
    changes: bool,
}

/// What the server's first frame makes of a presumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It speaks what was presumed: the session goes on with this msize, which may be the smaller one.
    Holds { msize: u32 },
    /// It speaks something else, or refuses: it carried out nothing, for it has made no fid that the requests name.
    Fails,
    /// It may have carried out what came, and the session cannot go on: its msize is too small for what was sent, or its
    /// version is one that goes on where the presumed one ends.
    Unclear,
}

impl Presumption {
    /// Offers `version` and `offer` bytes to a server that agreed on `version` and `msize` before.
    pub fn new(offer: u32, version: Version, msize: u32) -> Presumption {
        let handshake = Handshake::new(offer, Some(version));
        Presumption { handshake, version, msize: msize.min(MSIZE_MAX).min(offer), largest: 0, changes: false }
    }

    /// Appends the Tversion.
    pub fn offer(&self, out: &mut Vec<u8>) {
        self.handshake.offer(out);
    }

    /// The version presumed.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of the largest frame that may be sent early: at most 64 KiB.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// Bytes of the largest first frame.
    pub fn frame_max(&self) -> u32 {
        self.handshake.frame_max()
    }

    /// A request of `size` bytes is sent early.
    pub fn note(&mut self, request: &T<'_>, size: usize) {
        self.largest = self.largest.max(size);
        self.changes |= changes(request);
    }

    /// Whether a request that was sent early changes files: where nobody knows whether it was carried out, it must not be
    /// sent again.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Takes the first frame from the server. An error: the server broke the protocol, and nobody knows what it did.
    pub fn handle_frame(&mut self, session: &Session, frame: &[u8]) -> Result<Verdict, ServerMisbehaved> {
        let (header, body) = split_frame(frame).map_err(ServerMisbehaved::Frame)?;
        // Servers refuse a version under other tags than its own, but not under one of the session's, where it would be
        // taken for a refusal of what may have been done.
        if header.tag != Tag::NONE && session.holds(header.tag) {
            return Err(ServerMisbehaved::BeforeVersion(header.tag));
        }
        if header.kind == RVERSION
            && let Ok(R::Version { version, .. }) = R::decode(RVERSION, body, Dialect::Plan9)
            && version != self.version.as_str().as_bytes()
        {
            // Before its msize: whatever that is, it has done nothing.
            let goes_on = version.starts_with(self.version.as_str().as_bytes());
            return Ok(if goes_on { Verdict::Unclear } else { Verdict::Fails });
        }
        Ok(match self.handshake.handle_frame(frame)? {
            Step::Agreed { msize, .. } if msize as usize >= self.largest => Verdict::Holds { msize },
            Step::Agreed { .. } => Verdict::Unclear,
            Step::OfferAgain | Step::Redial | Step::Failed => Verdict::Fails,
        })
    }
}

/// Whether a request may change what is in a tree.
pub fn changes(request: &T<'_>) -> bool {
    match *request {
        T::Version { .. }
        | T::Auth { .. }
        | T::Attach { .. }
        | T::Session { .. }
        | T::Flush { .. }
        | T::Walk { .. }
        | T::Read { .. }
        | T::Clunk { .. }
        | T::Stat { .. }
        | T::Statfs { .. }
        | T::Readlink { .. }
        | T::Getattr { .. }
        | T::Xattrwalk { .. }
        | T::Readdir { .. }
        | T::Readdirplus { .. }
        | T::Access { .. }
        | T::Seek { .. }
        | T::Fsync { .. }
        | T::Guard { .. }
        | T::Streamend { .. }
        // A lock ends with the fid.
        | T::Lock { .. }
        | T::Getlock { .. } => false,
        T::Open { mode, .. } => mode & (omode::TRUNC | omode::RCLOSE) != 0,
        T::Lopen { flags, .. } => flags.0 & (lflags::TRUNC | lflags::CREAT) != 0,
        // What is written comes by its data connection.
        T::Stream { isread, .. } => isread == 0,
        T::Create { .. }
        | T::Write { .. }
        | T::Remove { .. }
        | T::Wstat { .. }
        | T::Lcreate { .. }
        | T::Symlink { .. }
        | T::Mknod { .. }
        | T::Rename { .. }
        | T::Setattr { .. }
        | T::Xattrcreate { .. }
        | T::Link { .. }
        | T::Mkdir { .. }
        | T::Renameat { .. }
        | T::Unlinkat { .. }
        | T::Writex { .. }
        | T::Copyrange { .. }
        | T::Allocate { .. }
        | T::Rename2 { .. } => true,
        T::Never(never, _) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Limits;
    use crate::message::{Names, Octal};
    use crate::types::{Fid, SessionId};
    use crate::wire::MSIZE_MIN;

    const OFFER: u32 = 1 << 20;

    /// A presumption behind whose offer a session and the removal of a file were asked for.
    fn begun() -> (Presumption, Session) {
        let mut presumption = Presumption::new(OFFER, Version::N1, OFFER);
        let mut session = Session::new(Version::N1, presumption.msize(), Limits::default());
        let root = session.new_fid().unwrap();
        let mut out = Vec::new();
        let request = T::Session {
            flags: Octal(1),
            session: SessionId([7; 16]),
            caps: crate::message::Mask(0),
            fid: root,
            uname: b"u",
            aname: b"",
            n_uname: 0,
        };
        let tag = session.call(&request, &mut out).unwrap();
        presumption.note(&request, out.len());
        assert!(!presumption.changes());
        let unlink = T::Unlinkat { dirfid: root, name: b"f", flags: Octal(0) };
        session.call_behind(tag, &unlink, &mut out).unwrap();
        presumption.note(&unlink, 5_000);
        assert!(presumption.changes());
        (presumption, session)
    }

    fn said(tag: Tag, reply: R<'_>, version: impl Into<Version>) -> Result<Verdict, ServerMisbehaved> {
        let (mut presumption, session) = begun();
        let mut frame = Vec::new();
        reply.encode(tag, version, &mut frame);
        presumption.handle_frame(&session, &frame)
    }

    fn version(msize: u32, version: &str) -> Result<Verdict, ServerMisbehaved> {
        said(Tag::NONE, R::Version { msize, version: version.as_bytes() }, Dialect::Plan9)
    }

    #[test]
    fn a_session_goes_on_where_the_server_speaks_what_was_presumed() {
        assert_eq!(begun().0.msize(), MSIZE_MAX);
        for msize in [OFFER, MSIZE_MAX, MSIZE_MAX - 1, 5_000] {
            assert_eq!(version(msize, "9P2000.L.n1"), Ok(Verdict::Holds { msize }));
        }
    }

    #[test]
    fn a_server_of_another_version_has_done_nothing() {
        for other in ["9P2000.L", "9P2000.u", "9P2000", "9P2000.L.n", "unknown", "", "9P3000"] {
            assert_eq!(version(OFFER, other), Ok(Verdict::Fails), "{other}");
        }
        assert_eq!(version(0, "unknown"), Ok(Verdict::Fails));
        let refused = R::Lerror { ecode: 5, retry_ms: 0, text: b"" };
        for tag in [Tag::NONE, Tag(9)] {
            assert_eq!(said(tag, refused, Dialect::Linux), Ok(Verdict::Fails));
            assert_eq!(said(tag, R::Error { ename: b"no", errno: 0 }, Dialect::Plan9), Ok(Verdict::Fails));
        }
    }

    #[test]
    fn a_server_that_may_have_done_it_is_not_taken_for_one_that_has_not() {
        // What was sent does not fit, or the version only begins as the presumed one.
        assert_eq!(version(MSIZE_MIN, "9P2000.L.n1"), Ok(Verdict::Unclear));
        assert_eq!(version(OFFER, "9P2000.L.n1.x"), Ok(Verdict::Unclear));
        assert_eq!(version(OFFER, "9P2000.L.n10"), Ok(Verdict::Unclear));
        assert_eq!(version(OFFER + 1, "9P2000.L.n1"), Err(ServerMisbehaved::Msize { offered: OFFER, got: OFFER + 1 }));
    }

    #[test]
    fn nothing_is_believed_before_the_version() {
        let early = Err(ServerMisbehaved::BeforeVersion(Tag(0)));
        assert_eq!(said(Tag(0), R::Lerror { ecode: 2, retry_ms: 0, text: b"" }, Version::N1), early);
        assert_eq!(said(Tag(0), R::Unlinkat {}, Version::N1), early);
        assert_eq!(said(Tag(0), R::Version { msize: OFFER, version: b"9P2000.L.n1" }, Version::N1), early);
        assert!(matches!(said(Tag::NONE, R::Unlinkat {}, Version::N1), Err(ServerMisbehaved::WrongType { .. })));
    }

    #[test]
    fn a_server_of_another_version_has_done_nothing_whatever_its_msize() {
        for msize in [0, 2048, OFFER + 1, u32::MAX] {
            assert_eq!(version(msize, "9P2000.L"), Ok(Verdict::Fails), "{msize}");
        }
    }

    /// Every message of the table, all its numbers 0.
    #[test]
    fn every_request_is_known_to_change_files_or_not_to() {
        let looks = [
            "Tversion",
            "Tauth",
            "Tattach",
            "Tsession",
            "Tflush",
            "Twalk",
            "Topen",
            "Tlopen",
            "Tread",
            "Tclunk",
            "Tstat",
            "Tstatfs",
            "Treadlink",
            "Tgetattr",
            "Txattrwalk",
            "Treaddir",
            "Treaddirplus",
            "Taccess",
            "Tseek",
            "Tfsync",
            "Tguard",
            "Tstreamend",
            "Tlock",
            "Tgetlock",
        ];
        for row in T::TABLE {
            let version = Version::LAYOUTS.into_iter().find(|version| row.dialects.has(*version)).unwrap();
            let decoded =
                (0..200).find_map(|n| T::decode(row.number, &[0; 200][..n], version).map(|t| changes(&t)).ok());
            assert_eq!(decoded, Some(!looks.contains(&row.name)), "{}", row.name);
        }
    }

    #[test]
    fn what_only_looks_may_be_asked_again_and_what_changes_may_not() {
        let (fid, name) = (Fid(1), &b"f"[..]);
        let mut scratch = Vec::new();
        let wnames = Names::encode([name], &mut scratch);
        for (request, expected) in [
            (T::Walk { fid, newfid: Fid(2), wnames }, false),
            (T::Read { fid, offset: 0, count: 1 }, false),
            (T::Lopen { fid, flags: Octal(0) }, false),
            (T::Lopen { fid, flags: Octal(lflags::TRUNC) }, true),
            (T::Open { fid, mode: omode::READ }, false),
            (T::Open { fid, mode: omode::READ | omode::RCLOSE }, true),
            (T::Clunk { fid }, false),
            (T::Remove { fid }, true),
            (T::Lcreate { fid, name, flags: Octal(0), mode: Octal(0), gid: 0 }, true),
        ] {
            assert_eq!(changes(&request), expected, "{}", request.name());
        }
    }
}
