//! Our own server session at the far end, with a file server that is done in whatever order.

use std::collections::{BTreeSet, VecDeque};

use ninefold_proto::attr::{Attr, Statfs, Time};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::T;
use ninefold_proto::server::{Begun, Done, Event, FarewellId, Limits, Op, Outbox, RequestId, Session, Streaming};
use ninefold_proto::stat::StatBuf;
use ninefold_proto::types::{Qid, QidType, StreamToken};
use ninefold_proto::wire::frame_size;
use ninefold_proto::{Errno, Error, Tag};

use super::Choose;

const DIR: Qid = Qid { kind: QidType::DIR, version: 1, path: 1 };

/// What a request brings when it goes well. A file is a number that tells nothing.
type Success = Done<u32, Vec<u8>>;

pub struct Ours {
    session: Session<u32, Vec<u8>>,
    out: Outbox<Vec<u8>>,
    msize: u32,
    pub incoming: VecDeque<Vec<u8>>,
    pub outgoing: VecDeque<Vec<u8>>,
    running: Vec<(RequestId, Success)>,
    cancelled: BTreeSet<RequestId>,
    farewells: Vec<FarewellId>,
    /// A frame that waits for what runs.
    held: Option<Vec<u8>>,
}

impl Ours {
    pub fn new(version: Version, msize: u32) -> Ours {
        let (out, incoming, outgoing, running, cancelled, farewells, held) = Default::default();
        let session = Session::new(Limits::default());
        let mut ours = Ours { session, out, msize, incoming, outgoing, running, cancelled, farewells, held };
        let mut offer = Vec::new();
        T::Version { msize, version: version.as_str().as_bytes() }.encode(Tag::NONE, version, &mut offer);
        ours.take(offer);
        assert_eq!((ours.session.dialect(), ours.outgoing.pop_front().is_some()), (version.dialect, true));
        ours
    }

    pub fn fids(&self) -> usize {
        self.session.fids()
    }

    pub fn is_at_rest(&self) -> bool {
        let quiet = self.incoming.is_empty() && self.outgoing.is_empty() && self.held.is_none();
        quiet && self.farewells.is_empty() && self.session.outstanding() == 0
    }

    pub fn receive(&mut self) {
        if let Some(frame) = self.held.take().or_else(|| self.incoming.pop_front()) {
            self.take(frame);
        }
    }

    fn take(&mut self, frame: Vec<u8>) {
        let event = self.session.handle_frame(&frame, &|_| false, &mut self.out).expect("the client breaks a rule");
        if !began(event, &mut self.running, &mut self.cancelled) {
            self.held = Some(frame);
        }
        self.send();
    }

    /// Begins what waited for a fid that is free now.
    fn take_members(&mut self) {
        while let Some(member) = self.session.poll_member() {
            let event = self.session.handle_member(&member, &mut self.out).expect("the client breaks a rule");
            assert!(began(event, &mut self.running, &mut self.cancelled), "what has its turn does not wait");
        }
    }

    /// One request, or one farewell, is done.
    pub fn answer_one(&mut self, choose: &mut impl Choose) {
        let n = self.running.len() + self.farewells.len();
        if n == 0 {
            return;
        }
        let at = choose.below(n.min(256));
        let fails = choose.below(4) == 3;
        match at.checked_sub(self.running.len()) {
            Some(at) => {
                let id = self.farewells.swap_remove(at);
                let result = if fails { Err(Errno::EIO.into()) } else { Ok(()) };
                self.session.farewell_done(id, result, &mut self.out);
            }
            None => {
                let (id, mut done) = self.running.swap_remove(at);
                if let Done::Walked { qids, file } = &mut done
                    && qids.len() > 1
                    && choose.below(3) == 2
                {
                    qids.pop();
                    *file = None;
                }
                let result = match self.cancelled.remove(&id) && choose.below(2) == 1 {
                    true => Err(Errno::EINTR.into()),
                    false if fails => Err(Error::with_text(Errno::EIO, "bad\u{1b}luck")),
                    false => Ok(done),
                };
                self.session.complete(id, result, &mut self.out);
            }
        }
        self.send();
    }

    fn send(&mut self) {
        self.take_members();
        self.farewells.extend(std::iter::from_fn(|| self.session.poll_farewell()).map(|farewell| farewell.id));
        let bytes: Vec<u8> = self.out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().collect();
        self.out.advance(bytes.len());
        let mut rest = &bytes[..];
        while let Some(size) = frame_size(rest, self.msize).expect("a frame over the msize") {
            self.outgoing.push_back(rest[..size].to_vec());
            rest = &rest[size..];
        }
    }
}

/// Begins what a frame asks for, unless the frame must wait.
fn began(event: Event<'_, u32>, running: &mut Vec<(RequestId, Success)>, cancelled: &mut BTreeSet<RequestId>) -> bool {
    match event {
        Event::Handled => {}
        Event::Execute(request) => running.push((request.id, success(&request.op))),
        Event::Cancel(ids) => cancelled.extend(ids),
        Event::CancelAll => panic!("the client began a new session"),
        Event::Wait => return false,
    }
    true
}

fn success(op: &Op<'_, u32>) -> Success {
    let (qid, file) = (DIR, 0);
    match op {
        Op::Attach { .. } => Done::Attached { qid, file, read_only: false },
        Op::Session { .. } => {
            let begun = Begun { epoch: 1, time: Time::default() };
            Done::SessionBegun { qid, file, read_only: false, begun }
        }
        Op::Walk { elems, .. } => Done::Walked { qids: vec![qid; elems.len()], file: Some(file) },
        Op::Open { .. } => Done::Opened { qid },
        Op::Create { .. } | Op::CreateSpecial { .. } => Done::Created { qid, file, opened: true },
        Op::Read { offset, count, .. } => Done::Data(offset.to_le_bytes()[..8.min(*count as usize)].to_vec()),
        Op::ReadStats { .. } => Done::Stats(Vec::new(), Vec::new()),
        Op::Readdir { .. } => Done::Data(Vec::new()),
        Op::Readdirplus { .. } => Done::Listed { entries: Vec::new(), end: true },
        Op::Access { mode, .. } => Done::Access(*mode),
        Op::Writex { data, offset, .. } => Done::Written { offset: *offset, count: data.len() as u32 },
        Op::Copyrange { length, .. } => Done::Copied(*length),
        Op::Seek { offset, .. } => Done::Offset(*offset),
        Op::Write { data, .. } => Done::Count(data.len() as u32),
        Op::WriteOutside { len, .. } => Done::Count(*len),
        Op::Stat { .. } => Done::Stat(StatBuf::default()),
        Op::Statfs { .. } => Done::Statfs(Statfs::default()),
        Op::Symlink { .. } | Op::Mknod { .. } | Op::Mkdir { .. } => Done::Qid(qid),
        Op::Readlink { .. } => Done::Target(b"target".to_vec()),
        Op::Getattr { .. } => Done::Attr(Attr::default()),
        Op::XattrRead { .. } => Done::Xattr { value: Vec::new(), file },
        Op::Lock { .. } => Done::Lock { granted: true },
        Op::Getlock { .. } => Done::Getlock(None),
        Op::Stream { offset, length, .. } => {
            let (id, token, modrev) = (1, StreamToken([7; 16]), 1);
            Done::Streaming(Streaming { id, token, modrev, offset: *offset, length: *length, address: Vec::new() })
        }
        Op::StreamEnd { .. } => Done::StreamEnded { count: 1, modrev: 1 },
        Op::Wstat { .. }
        | Op::Rename { .. }
        | Op::RenameEntry { .. }
        | Op::RenameWith { .. }
        | Op::Allocate { .. }
        | Op::Unlink { .. }
        | Op::Link { .. }
        | Op::Setattr { .. }
        | Op::Fsync { .. } => Done::Unit,
    }
}
