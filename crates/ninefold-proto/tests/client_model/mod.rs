//! A client session driven by a program of small choices, with a judge at its end of the wire, and at the far end a
//! server that keeps to 9P in its own time, our own server's session, or anything at all.

mod judge;
mod ours;
mod server;

use std::collections::BTreeMap;

use ninefold_proto::client::{Answer, Limits, Parting, Session};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Names, Octal, Payload, Perm, R, T};
use ninefold_proto::stat::dm;
use ninefold_proto::types::StreamToken;
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Fid, Tag};

use judge::Judge;
use ours::Ours;
use server::{Habits, Server, success};

/// Where the choices come from. When they are over, every choice is 0.
pub trait Choose {
    /// A number under `n`, which is 1 to 256.
    fn below(&mut self, n: usize) -> usize;

    fn is_over(&self) -> bool;

    /// A frame with this tag that a hostile server might send; `request`: the number of what it would answer.
    fn frame(&mut self, version: Version, tag: u16, request: Option<u8>) -> Vec<u8>;
}

/// Small, so that frames do not fit it.
const MSIZE: u32 = 4096;

/// Steps of one program: more finds nothing new and costs speed.
const STEPS: usize = 400;

/// Who is at the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A server that keeps to 9P, or nearly: see [`Habits`].
    Honest,
    /// The session of our own server.
    Ours,
    Hostile,
}

enum Far {
    Honest(Server),
    Ours(Box<Ours>),
    /// The last frame that the client sent with each tag.
    Hostile(BTreeMap<u16, Vec<u8>>),
}

struct Run<'c, C> {
    choose: &'c mut C,
    session: Session,
    judge: Judge,
    far: Far,
    /// The offset of every read that was called, by tag.
    reads: BTreeMap<u16, u64>,
    next_offset: u64,
}

/// Plays a program to its end, and everything outstanding to an answer: nothing may be left then.
pub fn play(choose: &mut impl Choose, peer: Peer) {
    let version = Version::LAYOUTS[choose.below(4)];
    let limits = Limits { calls: 1 + choose.below(8), clunks: 1 + choose.below(3) };
    let habits = Habits { partial_walk_makes: choose.below(2) == 1, refuses_flush: choose.below(4) == 3 };
    let far = match peer {
        Peer::Honest => Far::Honest(Server::new(version, habits)),
        Peer::Ours => Far::Ours(Box::new(Ours::new(version, MSIZE))),
        Peer::Hostile => Far::Hostile(BTreeMap::new()),
    };
    let mut run = Run {
        choose,
        session: Session::new(version, MSIZE, limits),
        judge: Judge::new(version, MSIZE, limits),
        far,
        reads: BTreeMap::new(),
        next_offset: 0,
    };
    for _ in 0..STEPS {
        if run.choose.is_over() {
            break;
        }
        run.step();
        run.judge.agrees(&run.session);
    }
    run.finish();
}

impl<C: Choose> Run<'_, C> {
    fn step(&mut self) {
        match self.choose.below(16) {
            0..=4 => self.call(),
            5 => self.cancel(),
            6 => self.abandon(),
            7 => _ = self.take_fid(),
            8 => _ = self.transmit(),
            9 => self.drain(),
            _ => self.far_step(),
        }
    }

    fn far_step(&mut self) {
        match &mut self.far {
            Far::Honest(server) => match self.choose.below(4) {
                0 => server.receive(),
                1 | 2 => server.answer_one(self.choose),
                _ => self.deliver(),
            },
            Far::Ours(ours) => match self.choose.below(4) {
                0 => ours.receive(),
                1 | 2 => ours.answer_one(self.choose),
                _ => self.deliver(),
            },
            Far::Hostile(_) => match self.choose.below(4) {
                0 | 1 => self.answer_truly(),
                _ => self.assault(),
            },
        }
    }

    /// A fid from those that there are, seldom one that is not the caller's.
    fn fid(&mut self) -> Fid {
        let owned = self.judge.owned();
        let choice = self.choose.below(64);
        match choice {
            0 => Fid(self.choose.below(16) as u32),
            1 => Fid::NONE,
            _ if owned.is_empty() => Fid(0),
            _ => owned[choice % owned.len()],
        }
    }

    fn newfid(&mut self) -> Fid {
        let new = self.judge.new_fids();
        if self.choose.below(32) == 31 {
            return Fid(self.choose.below(16) as u32);
        }
        match new.first() {
            Some(&fid) => fid,
            None => self.take_fid(),
        }
    }

    fn take_fid(&mut self) -> Fid {
        let fid = self.session.new_fid().expect("fids are left");
        self.judge.took(fid);
        fid
    }

    fn call(&mut self) {
        let (mut scratch, mut data) = (Vec::new(), Vec::new());
        let request = self.request(&mut scratch, &mut data);
        let refusal = self.judge.refusal(&request);
        let mut out = b"before".to_vec();
        match self.session.call(&request, &mut out) {
            Ok(tag) => {
                assert_eq!(refusal, None, "{request:?} is not refused");
                let mut frame = out.split_off(6);
                frame.extend(request.payload());
                assert_eq!(self.judge.sent(&frame, true), tag.0);
                if let T::Read { offset, .. } = request {
                    self.reads.insert(tag.0, offset);
                }
                self.post(tag.0, frame);
            }
            Err(refused) => assert_eq!((refusal, out.as_slice()), (Some(refused), &b"before"[..]), "{request:?}"),
        }
    }

    fn request<'a>(&mut self, scratch: &'a mut Vec<u8>, data: &'a mut Vec<u8>) -> T<'a> {
        let linux = self.judge.version.dialect == Dialect::Linux;
        let uname = b"u";
        if self.judge.owned().is_empty() || self.choose.below(16) == 15 {
            let (fid, afid) = (self.newfid(), if self.choose.below(4) == 3 { self.fid() } else { Fid::NONE });
            return match self.choose.below(8) {
                7 => T::Auth { afid: fid, uname, aname: b"", n_uname: 0 },
                _ => T::Attach { fid, afid, uname, aname: b"", n_uname: 0 },
            };
        }
        let fid = self.fid();
        let other = self.fid();
        match self.choose.below(20) {
            0..=4 => {
                let n = if self.choose.below(40) == 39 { 17 } else { self.choose.below(4) };
                let wnames = Names::encode(vec![&b"name"[..]; n], scratch);
                T::Walk { fid, newfid: self.newfid(), wnames }
            }
            5 => T::Walk { fid, newfid: fid, wnames: Names::encode([&b"name"[..]], scratch) },
            6..=8 => {
                self.next_offset += 1;
                T::Read { fid, offset: self.next_offset, count: 8 }
            }
            9 => {
                let n = if self.choose.below(16) == 15 { MSIZE as usize } else { self.choose.below(9) };
                data.resize(n, b'd');
                T::Write { fid, offset: 0, data: Payload(data) }
            }
            10 | 11 => T::Clunk { fid },
            12 => T::Remove { fid },
            13 if linux => T::Lcreate { fid, name: b"n", flags: Octal(0), mode: Octal(0), gid: 0 },
            13 => {
                data.extend(other.0.to_string().bytes());
                let perm = if self.choose.below(2) == 1 { dm::LINK } else { 0 };
                T::Create { fid, name: b"n", perm: Perm(perm), mode: 1, extension: data }
            }
            14 if linux => T::Lopen { fid, flags: Octal(0) },
            14 => T::Open { fid, mode: 0 },
            15 if linux => T::Getattr { fid, request_mask: Default::default() },
            15 => T::Stat { fid },
            16 => T::Xattrwalk { fid, newfid: self.newfid(), name: b"" },
            17 => T::Readdir { fid, offset: 0, count: self.choose.below(64) as u32 },
            18 => T::Link { dfid: fid, fid: other, name: b"n" },
            _ => match self.choose.below(16) {
                8 => T::Session {
                    flags: Octal(1),
                    session: Default::default(),
                    caps: Default::default(),
                    fid: self.newfid(),
                    uname: b"u",
                    aname: b"",
                    n_uname: 0,
                },
                9 => T::Readdirplus {
                    fid,
                    offset: 0,
                    count: self.choose.below(256) as u32,
                    request_mask: Default::default(),
                    flags: Octal(0),
                },
                10 => T::Access { fid, mode: Octal(self.choose.below(8) as u32) },
                11 => {
                    data.resize(self.choose.below(9), b'd');
                    T::Writex { fid, offset: 0, flags: Octal(0), data: Payload(data) }
                }
                12 => {
                    let length = self.choose.below(9) as u64;
                    T::Copyrange { srcfid: fid, srcoffset: 0, dstfid: other, dstoffset: 0, length, flags: Octal(0) }
                }
                13 => T::Rename2 { olddirfid: fid, oldname: b"o", newdirfid: other, newname: b"n", flags: Octal(1) },
                14 => T::Seek { fid, offset: 0, whence: 3 },
                5 => T::Stream { fid, flags: Octal(0), isread: 1, offset: 0, length: 0, token: StreamToken::default() },
                6 => T::Streamend { id: 0, flags: Octal(1) },
                15 => T::Allocate { fid, mode: Octal(0), offset: 0, length: 1 },
                0 => T::Version { msize: MSIZE, version: b"9P2000" },
                1 => T::Flush { oldtag: Tag(self.choose.below(16) as u16) },
                2 => T::Wstat { fid, stat: Default::default() },
                3 => T::Rename { fid, dfid: other, name: b"n" },
                4 => T::Renameat { olddirfid: fid, oldname: b"o", newdirfid: other, newname: b"n" },
                _ => T::Fsync { fid, datasync: Default::default() },
            },
        }
    }

    fn cancel(&mut self) {
        let waited = self.judge.waited();
        let choice = self.choose.below(256);
        // Seldom a tag on which nobody waits.
        let tag = match waited.get(choice % waited.len().max(1)) {
            Some(&tag) if choice < 250 => tag,
            _ => choice as u16,
        };
        if choice % 2 == 1 && self.is_unsent(tag) {
            return self.withdraw(tag);
        }
        self.session.cancel(Tag(tag));
        self.judge.cancelled(tag);
    }

    /// Whether the last frame with this tag has not reached the far end: it may as well not have been sent.
    fn is_unsent(&self, tag: u16) -> bool {
        let of_tag = |frame: &Vec<u8>| split_frame(frame).unwrap().0.tag.0 == tag;
        match &self.far {
            Far::Honest(server) => server.incoming.iter().any(of_tag),
            Far::Ours(ours) => ours.incoming.iter().any(of_tag),
            Far::Hostile(_) => true,
        }
    }

    fn withdraw(&mut self, tag: u16) {
        let taken_back = self.session.withdraw(Tag(tag));
        assert_eq!(taken_back, self.judge.withdrew(tag));
        if !taken_back {
            return;
        }
        let of_others = |frame: &Vec<u8>| split_frame(frame).unwrap().0.tag.0 != tag;
        match &mut self.far {
            Far::Honest(server) => server.incoming.retain(of_others),
            Far::Ours(ours) => ours.incoming.retain(of_others),
            Far::Hostile(requests) => drop(requests.remove(&tag)),
        }
        self.reads.remove(&tag);
    }

    /// Parts with any fid, whatever it is about.
    fn abandon(&mut self) {
        let all = self.judge.all();
        let Some(&fid) = all.get(self.choose.below(all.len().clamp(1, 256))) else { return };
        let parting = match self.choose.below(4) {
            0 => {
                self.session.release(fid);
                return self.judge.released(fid);
            }
            1 => Parting::Remove,
            _ => Parting::Clunk,
        };
        self.session.abandon(fid, parting);
        self.judge.abandoned(fid, parting);
    }

    /// One message that the session sends by itself.
    fn transmit(&mut self) -> bool {
        let mut frame = Vec::new();
        let sent = self.session.poll_transmit(&mut frame);
        assert_eq!(sent, !frame.is_empty());
        if sent {
            let tag = self.judge.sent(&frame, false);
            self.post(tag, frame);
        }
        sent
    }

    fn drain(&mut self) {
        while self.transmit() {
            self.judge.agrees(&self.session);
        }
        self.judge.drained(&self.session);
    }

    fn post(&mut self, tag: u16, frame: Vec<u8>) {
        match &mut self.far {
            Far::Honest(server) => server.incoming.push_back(frame),
            Far::Ours(ours) => ours.incoming.push_back(frame),
            Far::Hostile(requests) => drop(requests.insert(tag, frame)),
        }
    }

    /// One frame reaches the client.
    fn deliver(&mut self) {
        let outgoing = match &mut self.far {
            Far::Honest(server) => &mut server.outgoing,
            Far::Ours(ours) => &mut ours.outgoing,
            Far::Hostile(_) => return,
        };
        let Some(frame) = outgoing.pop_front() else { return };
        let taken = self.take(&frame);
        assert!(taken, "an honest reply is refused");
    }

    /// Hands a frame to the session, and says whether it was taken.
    fn take(&mut self, frame: &[u8]) -> bool {
        let answer = match self.session.handle_frame(frame) {
            Ok(answer) => answer,
            Err(misbehaved) => {
                assert!(!misbehaved.to_string().is_empty());
                return false;
            }
        };
        self.judge.taken(frame, &answer);
        let read = split_frame(frame).ok().and_then(|(header, _)| self.reads.remove(&header.tag.0));
        match answer {
            // From our own server nothing where a directory or an attribute is read.
            Answer::Reply { reply: R::Read { data }, .. } if !matches!(self.far, Far::Hostile(_)) => {
                let nothing = matches!(self.far, Far::Ours(_)) && data.0.is_empty();
                assert!(nothing || data.0 == read.unwrap().to_le_bytes(), "data of another read");
            }
            Answer::Failed { error, .. } => assert!(!error.text().contains(char::is_control)),
            _ => {}
        }
        true
    }

    /// The hostile server keeps to 9P for once.
    fn answer_truly(&mut self) {
        let tags = self.judge.tags();
        let Some(&tag) = tags.get(self.choose.below(tags.len().clamp(1, 256))) else { return };
        let Far::Hostile(requests) = &self.far else { return };
        let (header, body) = split_frame(&requests[&tag]).unwrap();
        let request = T::decode(header.kind, body, self.judge.version).unwrap();
        let frame = success(tag, &request, self.judge.version, self.choose);
        assert!(self.take(&frame), "an honest reply is refused");
    }

    /// The hostile server sends what it likes. What is refused must have changed nothing.
    fn assault(&mut self) {
        let tags = self.judge.tags();
        let choice = self.choose.below(256);
        let tag = match tags.get(choice % tags.len().max(1)) {
            Some(&tag) if choice < 224 => tag,
            _ => [u16::MAX, choice as u16][choice % 2],
        };
        let request = self.judge.asked.get(&tag).map(|asked| asked.number);
        let frame = self.choose.frame(self.judge.version, tag, request);
        self.take(&frame);
    }

    /// Everything outstanding is answered; then only what has an owner is left, on both ends.
    fn finish(mut self) {
        // Each round answers something, and what can be asked is bounded by the fids.
        for _ in 0..10 * STEPS {
            self.drain();
            match &mut self.far {
                Far::Honest(server) => {
                    if server.is_at_rest() {
                        break;
                    }
                    server.receive();
                    server.answer_one(self.choose);
                    self.deliver();
                }
                Far::Ours(ours) => {
                    if ours.is_at_rest() {
                        break;
                    }
                    ours.receive();
                    ours.answer_one(self.choose);
                    self.deliver();
                }
                Far::Hostile(_) if self.judge.tags().is_empty() => break,
                Far::Hostile(_) => self.answer_truly(),
            }
            self.judge.agrees(&self.session);
        }
        assert!(self.session.is_idle(), "something is outstanding for ever: {:?}", self.judge.asked);
        assert_eq!((self.session.calls(), self.session.unattended()), (0, 0));
        let (owned, new) = (self.judge.owned().len(), self.judge.new_fids().len());
        assert_eq!(self.session.fids(), owned + new, "fids that nobody owns");
        let far = match &self.far {
            Far::Honest(server) => server.fids(),
            Far::Ours(ours) => ours.fids(),
            Far::Hostile(_) => owned,
        };
        assert_eq!(far, owned, "fids that only one end knows");
    }
}
