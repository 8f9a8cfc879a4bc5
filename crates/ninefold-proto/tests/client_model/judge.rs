//! The judge: sees every frame at the client's end of the wire, and what the owner of its fids does, and says what
//! 9P allows (flush(5), walk(5), clunk(5)). It is kept as plain maps, and never looks inside the session.

use std::collections::{BTreeMap, BTreeSet};

use ninefold_proto::client::{Answer, Limits, Parting, Refused, Session};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{R, T, info};
use ninefold_proto::plus::plus_entries;
use ninefold_proto::stat::{Stat, dir_entries, dm};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Fid, Tag};

/// The number of Tstreamend.
const TSTREAMEND: u8 = 162;

/// A request on which an answer is outstanding, or the Rflush behind one.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The T message's number.
    pub number: u8,
    /// What its reply may hold at most: bytes, or names of a walk.
    pub most: usize,
    /// The oldtag of a Tflush.
    pub oldtag: Option<u16>,
    /// The fids that it names, but for the one that it is to make.
    pub names: Vec<u32>,
    pub makes: Option<u32>,
    pub ends: Option<u32>,
    creates: Option<u32>,
    /// It was called; else the session sent it by itself.
    pub called: bool,
    /// Nobody waits for it any more.
    pub gone: bool,
    flushed: Flushed,
    answered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flushed {
    No,
    Asked,
    /// The Tflush was answered with an error.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    New,
    Making,
    Known,
    /// A newfid of a walk that ended early: the server knows it or not.
    Stray,
    Ending,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    life: Life,
    owned: bool,
    /// How its owner parted with it.
    parting: Option<Parting>,
    /// The last create on it made nothing.
    uncreated: bool,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Nothing,
    Partial,
    Success,
}

pub struct Judge {
    pub version: Version,
    pub msize: u32,
    pub limits: Limits,
    pub asked: BTreeMap<u16, Asked>,
    fids: BTreeMap<u32, Standing>,
    flushes: (u64, u64),
    counts: [u64; 256],
    oldest: Option<u64>,
}

/// What a request asks.
pub fn asked(message: &T<'_>, version: Version) -> Asked {
    let mut asked = Asked {
        number: message.number(),
        most: 0,
        oldtag: None,
        names: Vec::new(),
        makes: None,
        ends: None,
        creates: None,
        called: false,
        gone: false,
        flushed: Flushed::No,
        answered: false,
    };
    let mut names = |fids: &[Fid]| asked.names.extend(fids.iter().map(|fid| fid.0));
    match *message {
        T::Version { .. } => {}
        T::Flush { oldtag } => asked.oldtag = Some(oldtag.0),
        T::Auth { afid, .. } => asked.makes = Some(afid.0),
        T::Attach { fid, afid, .. } => {
            asked.makes = Some(fid.0);
            if afid != Fid::NONE {
                asked.names.push(afid.0);
            }
        }
        T::Walk { fid, newfid, wnames } => {
            asked.names.push(fid.0);
            asked.makes = (fid != newfid).then_some(newfid.0);
            asked.most = wnames.len();
        }
        T::Xattrwalk { fid, newfid, .. } => {
            asked.names.push(fid.0);
            asked.makes = (fid != newfid).then_some(newfid.0);
        }
        T::Clunk { fid } | T::Remove { fid } => {
            asked.names.push(fid.0);
            asked.ends = Some(fid.0);
        }
        T::Session { fid, .. } => asked.makes = Some(fid.0),
        T::Stream { fid, .. } => names(&[fid]),
        T::Streamend { .. } => {}
        T::Access { fid, mode } => {
            asked.names.push(fid.0);
            asked.most = mode.0 as usize;
        }
        T::Copyrange { srcfid, dstfid, length, .. } => {
            asked.names.extend([srcfid.0, dstfid.0]);
            asked.most = length as usize;
        }
        T::Guard { fid, .. } => asked.names.extend((fid != Fid::NONE).then_some(fid.0)),
        T::Read { fid, count, .. } | T::Readdir { fid, count, .. } | T::Readdirplus { fid, count, .. } => {
            asked.names.push(fid.0);
            asked.most = count as usize;
        }
        T::Write { fid, data, .. } | T::Writex { fid, data, .. } => {
            asked.names.push(fid.0);
            asked.most = data.0.len();
        }
        T::Create { fid, perm, extension, .. } => {
            asked.names.push(fid.0);
            asked.creates = Some(fid.0);
            if version.dialect == Dialect::Unix && perm.0 & dm::LINK != 0 {
                asked.names.extend(std::str::from_utf8(extension).ok().and_then(|text| text.parse::<u32>().ok()));
            }
        }
        T::Lcreate { fid, .. } => {
            asked.names.push(fid.0);
            asked.creates = Some(fid.0);
        }
        T::Link { dfid, fid, .. } | T::Rename { fid, dfid, .. } => names(&[fid, dfid]),
        T::Renameat { olddirfid, newdirfid, .. } | T::Rename2 { olddirfid, newdirfid, .. } => {
            names(&[olddirfid, newdirfid]);
        }
        T::Symlink { dfid, .. } | T::Mknod { dfid, .. } | T::Mkdir { dfid, .. } => names(&[dfid]),
        T::Unlinkat { dirfid, .. } => names(&[dirfid]),
        T::Open { fid, .. }
        | T::Stat { fid }
        | T::Wstat { fid, .. }
        | T::Statfs { fid }
        | T::Lopen { fid, .. }
        | T::Readlink { fid }
        | T::Getattr { fid, .. }
        | T::Setattr { fid, .. }
        | T::Xattrcreate { fid, .. }
        | T::Fsync { fid, .. }
        | T::Allocate { fid, .. }
        | T::Seek { fid, .. }
        | T::Lock { fid, .. }
        | T::Getlock { fid, .. } => names(&[fid]),
        T::Never(never, _) => match never {},
    }
    asked
}

impl Judge {
    pub fn new(version: Version, msize: u32, limits: Limits) -> Judge {
        let (asked, fids) = Default::default();
        Judge { version, msize, limits, asked, fids, flushes: (0, 0), counts: [0; 256], oldest: None }
    }

    /// Why a call must be refused.
    pub fn refusal(&self, message: &T<'_>) -> Option<Refused> {
        let name = message.name();
        let asked = asked(message, self.version);
        if self.asked.values().filter(|asked| asked.called).count() >= self.limits.calls {
            return Some(Refused::Full);
        }
        if info(message.number(), self.version).is_none() {
            return Some(Refused::NotInDialect { message: name, version: self.version });
        }
        match message {
            T::Version { .. } | T::Flush { .. } => return Some(Refused::NotACall(name)),
            T::Walk { wnames, .. } if wnames.len() > 16 => return Some(Refused::TooManyNames(wnames.len())),
            _ => {}
        }
        let usable = |fid: &&u32| self.fids.get(fid).is_some_and(|s| s.life == Life::Known && s.owned);
        if let Some(fid) = asked.names.iter().find(|fid| !usable(fid)) {
            return Some(Refused::UnknownFid(Fid(*fid)));
        }
        if let Some(fid) = asked.makes {
            match self.fids.get(&fid) {
                Some(standing) if standing.life == Life::New => {}
                None if !self.is_named(fid) => return Some(Refused::UnknownFid(Fid(fid))),
                _ => return Some(Refused::FidInUse(Fid(fid))),
            }
        }
        let mut whole = Vec::new();
        message.encode(Tag(0), self.version, &mut whole);
        let (size, msize) = (whole.len(), self.msize);
        (size > msize as usize).then_some(Refused::TooLarge { size, msize })
    }

    /// Whether a request outstanding names it.
    fn is_named(&self, fid: u32) -> bool {
        self.asked.values().any(|asked| !asked.answered && asked.names.contains(&fid))
    }

    /// A frame left the client.
    pub fn sent(&mut self, frame: &[u8], called: bool) -> u16 {
        let (header, body) = split_frame(frame).expect("the client sends exactly one frame");
        assert!(header.size <= self.msize, "a frame over the msize");
        let message = T::decode(header.kind, body, self.version).expect("the client's frames decode");
        let tag = header.tag.0;
        assert!(tag != u16::MAX, "NOTAG is used");
        assert!(!self.asked.contains_key(&tag), "tag {tag} is used again while it is outstanding");
        self.counts[usize::from(header.kind)] += 1;
        let mut asked = asked(&message, self.version);
        asked.called = called;
        if let Some(oldtag) = asked.oldtag {
            assert!(!called);
            let old = self.asked.get_mut(&oldtag).expect("a flush of what is not outstanding");
            assert!(old.called && old.gone && !old.answered, "a flush of what somebody waits for");
            assert!(old.ends.is_none() && old.flushed == Flushed::No, "a flush of a clunk, or a second one");
            old.flushed = Flushed::Asked;
            self.flushes.0 += 1;
        }
        for fid in &asked.names {
            let standing = self.fids.get(fid).unwrap_or_else(|| panic!("{message:?} names a fid that is unknown"));
            let ends = asked.ends.is_some();
            assert!(
                standing.life == Life::Known || standing.life == Life::Stray && ends && !called,
                "{message:?} names a fid that is {standing:?}"
            );
            assert!(standing.owned || !called);
        }
        if let Some(fid) = asked.ends {
            let standing = self.fids[&fid];
            if !called {
                assert!(!standing.owned, "a fid that has an owner is clunked");
                assert!(!self.is_named(fid), "a fid that is in use is clunked");
                let remove =
                    standing.parting == Some(Parting::Remove) && standing.life == Life::Known && !standing.uncreated;
                assert_eq!(header.kind == 122, remove, "{message:?} for {standing:?}");
                let own = self.asked.values().filter(|asked| asked.ends.is_some() && !asked.called).count();
                assert!(own < self.limits.clunks, "too many clunks at a time");
            }
            self.fids.insert(fid, Standing { life: Life::Ending, owned: false, ..standing });
        }
        if let Some(fid) = asked.makes {
            assert!(called && !self.is_named(fid), "a newfid that is in use");
            let standing = self.fids.get_mut(&fid).expect("a newfid that was not taken");
            assert_eq!(standing.life, Life::New);
            standing.life = Life::Making;
        }
        self.asked.insert(tag, asked);
        tag
    }

    /// The session took a frame and said this of it.
    pub fn taken(&mut self, frame: &[u8], answer: &Answer<'_>) {
        let (header, body) = split_frame(frame).expect("a frame that does not split was taken");
        assert!(header.size <= self.msize, "a frame over the msize was taken");
        let reply = R::decode(header.kind, body, self.version).expect("a frame that does not decode was taken");
        let tag = header.tag.0;
        let asked = self.asked.get(&tag).expect("a reply to what is not outstanding was taken").clone();
        assert!(!asked.answered, "a second reply was taken");
        assert!(reply.is_error() || header.kind == asked.number + 1, "{reply:?} was taken for {asked:?}");
        self.counts[usize::from(header.kind)] += 1;
        let end = self.end_of(&asked, &reply);
        if let Some(oldtag) = asked.oldtag {
            assert_eq!(*answer, Answer::Settled);
            self.asked.remove(&tag);
            self.flushes.1 += 1;
            return self.flush_answered(oldtag, end == End::Success);
        }
        let waited = asked.called && !asked.gone;
        let made = asked.makes.filter(|_| end == End::Success).map(Fid);
        match answer {
            Answer::Settled => assert!(!waited, "a reply that somebody waits for is not told"),
            Answer::Reply { tag: told, reply: with, made: fid } => {
                assert!(waited && end != End::Nothing);
                assert_eq!((told.0, *with, *fid), (tag, reply, made));
            }
            Answer::Failed { tag: told, .. } => assert!(waited && end == End::Nothing && told.0 == tag),
        }
        self.ended(&asked, end, waited);
        match asked.flushed {
            Flushed::Asked => self.asked.get_mut(&tag).unwrap().answered = true,
            Flushed::No | Flushed::Refused => drop(self.asked.remove(&tag)),
        }
    }

    /// How a reply ends a request; what it may not hold must not have been taken.
    fn end_of(&self, asked: &Asked, reply: &R<'_>) -> End {
        match *reply {
            R::Lerror { ecode, .. } => {
                assert_ne!(ecode, 0, "an error 0 was taken");
                return End::Nothing;
            }
            R::Error { .. } => return End::Nothing,
            R::Walk { wqids } => {
                assert!(wqids.len() <= asked.most, "more qids than names were taken");
                assert!(asked.most == 0 || !wqids.is_empty(), "a walk to nowhere was taken");
                if wqids.len() < asked.most {
                    return End::Partial;
                }
            }
            R::Read { data } => assert!(data.0.len() <= asked.most, "more data than asked for was taken"),
            R::Readdir { data } => {
                assert!(data.0.len() <= asked.most, "more data than asked for was taken");
                assert!(dir_entries(data.0).all(|entry| entry.is_ok()), "half an entry was taken");
            }
            R::Readdirplus { flags, data } => {
                assert!(flags.0 <= 1, "unknown flags were taken");
                assert!(data.0.len() <= asked.most, "more data than asked for was taken");
                assert!(plus_entries(data.0).all(|entry| entry.is_ok()), "half an entry was taken");
            }
            R::Access { mode } => assert_eq!(mode.0 as usize & !asked.most, 0, "what was not asked was taken"),
            R::Copyrange { count } => assert!(count as usize <= asked.most, "more was copied than was asked for"),
            R::Write { count } | R::Writex { count, .. } => {
                assert!(count as usize <= asked.most, "more was written than was sent");
            }
            R::Stat { stat } => assert!(Stat::decode(stat.0, self.version.dialect).is_ok(), "a bad record was taken"),
            _ => {}
        }
        End::Success
    }

    fn flush_answered(&mut self, oldtag: u16, done: bool) {
        let Some(old) = self.asked.get_mut(&oldtag) else { panic!("an old tag was let go of before its Rflush") };
        if old.answered {
            self.asked.remove(&oldtag);
        } else if done {
            let old = self.asked.remove(&oldtag).unwrap();
            self.ended(&old, End::Nothing, false);
        } else {
            old.flushed = Flushed::Refused;
        }
    }

    fn ended(&mut self, asked: &Asked, end: End, waited: bool) {
        if let Some(fid) = asked.ends {
            self.fids.remove(&fid);
        }
        if let Some(standing) = asked.creates.and_then(|fid| self.fids.get_mut(&fid)) {
            standing.uncreated = end == End::Nothing;
        }
        let Some(fid) = asked.makes else { return };
        let standing = self.fids.get_mut(&fid).unwrap();
        match end {
            End::Nothing => drop(self.fids.remove(&fid)),
            End::Partial => (standing.life, standing.owned) = (Life::Stray, false),
            End::Success => {
                standing.life = Life::Known;
                standing.owned &= waited;
            }
        }
    }

    pub fn took(&mut self, fid: Fid) {
        assert!(fid != Fid::NONE && !self.is_named(fid.0), "a fid that is in use is given out");
        let new = Standing { life: Life::New, owned: true, parting: None, uncreated: false };
        assert!(self.fids.insert(fid.0, new).is_none(), "a fid is given out twice");
    }

    pub fn released(&mut self, fid: Fid) {
        if self.fids.get(&fid.0).is_some_and(|standing| standing.life == Life::New) {
            self.fids.remove(&fid.0);
        }
    }

    pub fn abandoned(&mut self, fid: Fid, parting: Parting) {
        self.released(fid);
        if let Some(standing) = self.fids.get_mut(&fid.0)
            && standing.owned
        {
            standing.owned = false;
            standing.parting = Some(parting);
        }
    }

    pub fn cancelled(&mut self, tag: u16) {
        if let Some(asked) = self.asked.get_mut(&tag)
            && asked.called
        {
            asked.gone = true;
        }
    }

    /// A call of which nothing was sent is taken back, if it can be.
    pub fn withdrew(&mut self, tag: u16) -> bool {
        let taken_back = |asked: &&Asked| asked.called && !asked.gone && asked.ends.is_none();
        let Some(asked) = self.asked.get(&tag).filter(taken_back).cloned() else { return false };
        self.asked.remove(&tag);
        self.counts[usize::from(asked.number)] -= 1;
        self.ended(&asked, End::Nothing, false);
        true
    }

    /// Fids that a call may name, and new ones.
    pub fn owned(&self) -> Vec<Fid> {
        self.with(|standing| standing.owned && standing.life == Life::Known)
    }

    pub fn new_fids(&self) -> Vec<Fid> {
        self.with(|standing| standing.life == Life::New)
    }

    /// Every fid, whatever became of it.
    pub fn all(&self) -> Vec<Fid> {
        self.with(|_| true)
    }

    fn with(&self, is: impl Fn(&Standing) -> bool) -> Vec<Fid> {
        self.fids.iter().filter(|(_, standing)| is(standing)).map(|(&fid, _)| Fid(fid)).collect()
    }

    /// Tags on which an answer may come.
    pub fn tags(&self) -> Vec<u16> {
        self.asked.iter().filter(|(_, asked)| !asked.answered).map(|(&tag, _)| tag).collect()
    }

    /// Calls that somebody waits for.
    pub fn waited(&self) -> Vec<u16> {
        self.asked.iter().filter(|(_, asked)| asked.called && !asked.gone).map(|(&tag, _)| tag).collect()
    }

    /// What the session says of itself agrees with what was seen.
    pub fn agrees(&mut self, session: &Session) {
        let count = |is: &dyn Fn(&Asked) -> bool| self.asked.values().filter(|asked| is(asked)).count();
        assert_eq!(session.calls(), count(&|asked| asked.called));
        let own_clunk = |asked: &Asked| !asked.called && asked.ends.is_some();
        assert_eq!(session.unattended(), count(&|asked| asked.called && asked.gone || own_clunk(asked)));
        assert_eq!(session.oldest_unattended().is_some(), session.unattended() > 0);
        if let Some(oldest) = session.oldest_unattended() {
            assert!(self.oldest.is_none_or(|before| before <= oldest), "what is younger is said to be older");
            self.oldest = Some(oldest);
        }
        let named = self.asked.values().filter(|asked| !asked.answered).flat_map(|asked| &asked.names);
        let fids: BTreeSet<&u32> = self.fids.keys().chain(named).collect();
        assert_eq!(session.fids(), fids.len(), "fids that are not free");
        assert_eq!(session.flushes(), self.flushes);
        assert_eq!(*session.counts(), self.counts);
        // The end of a stream that nobody came for is the connection's end, too.
        let own_end = |asked: &Asked| !asked.called && asked.number == TSTREAMEND;
        assert_eq!(session.is_idle(), self.asked.values().all(own_end) && !self.is_leaving());
    }

    /// The session has nothing to send: nothing that should have been sent is missing.
    pub fn drained(&self, session: &Session) {
        for (tag, asked) in &self.asked {
            let flush_is_due = asked.called && asked.gone && asked.ends.is_none() && !asked.answered;
            assert!(!flush_is_due || asked.flushed != Flushed::No, "tag {tag} is not flushed");
        }
        let own = self.asked.values().filter(|asked| !asked.called && asked.ends.is_some()).count();
        for (&fid, standing) in &self.fids {
            let left = !standing.owned && matches!(standing.life, Life::Known | Life::Stray);
            assert!(!left || self.is_named(fid) || own == self.limits.clunks, "fid {fid} is not clunked: {standing:?}");
        }
        // The end of a stream that nobody came for is the connection's end, too.
        let own_end = |asked: &Asked| !asked.called && asked.number == TSTREAMEND;
        assert_eq!(session.is_idle(), self.asked.values().all(own_end) && !self.is_leaving());
    }

    /// Whether a fid that nobody owns is not clunked yet.
    fn is_leaving(&self) -> bool {
        self.fids.values().any(|standing| !standing.owned && matches!(standing.life, Life::Known | Life::Stray))
    }
}
