//! The server's session at the far end, with a file server that is done in whatever order.

use std::collections::{BTreeSet, VecDeque};

use ninefold_proto::attr::{Attr, Time, getattr};
use ninefold_proto::message::T;
use ninefold_proto::plus::PlusEntry;
use ninefold_proto::server::{Begun, Done, Event, Farewell, Limits, Op, Outbox, Rename, Request, RequestId, Session};
use ninefold_proto::stat::{DirEntry, StatBuf};
use ninefold_proto::types::{Qid, QidType, WalkElem};
use ninefold_proto::wire::{frame_size, split_frame};
use ninefold_proto::{Errno, Error, Tag};

use super::tree::Tree;
use super::{MSIZE, Random, USERS};
use ninefold_proto::dialect::Version;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    Root,
    Dir(usize),
    Plain(usize, u64),
}

impl File {
    fn qid(self) -> Qid {
        match self {
            File::Root => Qid { kind: QidType::DIR, version: 0, path: 0 },
            File::Dir(user) => Qid { kind: QidType::DIR, version: 0, path: 1 + user as u64 },
            File::Plain(user, file) => Qid { kind: QidType(0), version: 0, path: 1000 + user as u64 + 64 * file },
        }
    }
}

/// What is to be done to the files, when its time comes.
enum Deed {
    Attach,
    Session,
    Walk(File, Vec<String>),
    Open(File),
    Create(File, char),
    Read(File, u64),
    Write(File, u64, u8),
    Writex(File, u64, u8),
    Stat(File),
    Getattr(File),
    Rename(File, char),
    /// With attributes, or without.
    List(File, bool),
    Move(File, char, File, char),
    Unlink(File, char),
}

/// A plain file, as getdents(2) has it.
const DT_REG: u8 = 8;

pub struct Server {
    session: Session<File, Vec<u8>>,
    out: Outbox<Vec<u8>>,
    pub trees: [Tree; USERS],
    pub incoming: VecDeque<Vec<u8>>,
    pub outgoing: VecDeque<Vec<u8>>,
    running: Vec<(RequestId, Deed)>,
    farewells: Vec<Farewell<File>>,
    cancelled: BTreeSet<RequestId>,
    /// A frame that waits for what runs.
    held: Option<Vec<u8>>,
}

impl Server {
    pub fn new(version: Version) -> Server {
        let (out, trees, incoming, outgoing, running) = Default::default();
        let (farewells, cancelled, held) = Default::default();
        let session = Session::new(Limits::default());
        let mut server = Server { session, out, trees, incoming, outgoing, running, farewells, cancelled, held };
        let mut offer = Vec::new();
        T::Version { msize: MSIZE, version: version.as_str().as_bytes() }.encode(
            Tag::NONE,
            version.dialect,
            &mut offer,
        );
        server.incoming.push_back(offer);
        server.receive();
        assert!(server.outgoing.pop_front().is_some(), "the version is not answered");
        server
    }

    pub fn fids(&self) -> usize {
        self.session.fids()
    }

    pub fn is_at_rest(&self) -> bool {
        let quiet = self.incoming.is_empty() && self.outgoing.is_empty() && self.held.is_none();
        quiet && self.farewells.is_empty() && self.session.outstanding() == 0
    }

    /// The last frame with a tag never left, if it has not come in.
    pub fn lose_last(&mut self, tag: Tag) -> bool {
        let of_tag = |frame: &Vec<u8>| split_frame(frame).unwrap().0.tag == tag;
        let last = self.incoming.iter().rposition(of_tag);
        last.and_then(|at| self.incoming.remove(at)).is_some()
    }

    /// A frame comes in.
    pub fn receive(&mut self) {
        let Some(frame) = self.held.take().or_else(|| self.incoming.pop_front()) else { return };
        match self.session.handle_frame(&frame, &|_| false, &mut self.out).expect("the client breaks a rule") {
            Event::Execute(Request { id, op, .. }) => self.running.push((id, deed(&op))),
            Event::Cancel(ids) => self.cancelled.extend(ids),
            Event::CancelAll => panic!("the client began a new session"),
            Event::Handled => {}
            Event::Wait => self.held = Some(frame),
        }
        self.go_on();
    }

    /// One of what runs is done.
    pub fn finish_one(&mut self, random: &mut Random<'_>) {
        let n = self.running.len() + self.farewells.len();
        if n == 0 {
            return;
        }
        let at = random.below(n);
        match at.checked_sub(self.running.len()) {
            Some(at) => {
                let farewell = self.farewells.swap_remove(at);
                let result = match (farewell.error, farewell.remove, farewell.file) {
                    (Some(error), ..) => Err(error),
                    (None, false, _) => Ok(()),
                    (None, true, File::Plain(user, file)) => self.trees[user].remove(file),
                    (None, true, _) => Err(Errno::EPERM.into()),
                };
                self.session.farewell_done(farewell.id, result, &mut self.out);
            }
            None => {
                let (id, deed) = self.running.swap_remove(at);
                let undone = self.cancelled.remove(&id) && random.below(2) == 0;
                let result = if undone { Err(Errno::EINTR.into()) } else { self.carry_out(deed) };
                self.session.complete(id, result, &mut self.out);
            }
        }
        self.go_on();
    }

    /// Members of groups that have their turn now begin, and what is answered goes out.
    fn go_on(&mut self) {
        while let Some(member) = self.session.poll_member() {
            match self.session.handle_member(&member, &mut self.out).expect("the client breaks a rule") {
                Event::Execute(Request { id, op, .. }) => self.running.push((id, deed(&op))),
                Event::Cancel(ids) => self.cancelled.extend(ids),
                Event::Handled => {}
                event => panic!("{event:?} from a member"),
            }
        }
        while let Some(farewell) = self.session.poll_farewell() {
            self.farewells.push(farewell);
        }
        let bytes: Vec<u8> = self.out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().collect();
        self.out.advance(bytes.len());
        let mut rest = &bytes[..];
        while let Some(size) = frame_size(rest, MSIZE).expect("a frame over the msize") {
            self.outgoing.push_back(rest[..size].to_vec());
            rest = &rest[size..];
        }
    }

    fn carry_out(&mut self, deed: Deed) -> Result<Done<File, Vec<u8>>, Error> {
        let opened = |file: File| Done::Opened { qid: file.qid() };
        let (qid, file, read_only) = (File::Root.qid(), File::Root, false);
        Ok(match deed {
            Deed::Attach => Done::Attached { qid, file, read_only },
            Deed::Session => {
                let begun = Begun { epoch: 1, time: Time::default() };
                Done::SessionBegun { qid, file, read_only, begun }
            }
            Deed::Walk(from, names) => {
                let (mut file, mut qids) = (from, Vec::new());
                for name in &names {
                    let next = match (file, name.as_bytes()) {
                        (File::Root, [b'u', n]) => Some(File::Dir(usize::from(n - b'0'))),
                        (File::Dir(user), &[name]) => {
                            self.trees[user].find(name.into()).map(|id| File::Plain(user, id))
                        }
                        _ => None,
                    };
                    let Some(next) = next else { break };
                    file = next;
                    qids.push(file.qid());
                }
                if qids.is_empty() && !names.is_empty() {
                    return Err(Errno::ENOENT.into());
                }
                let file = (qids.len() == names.len()).then_some(file);
                Done::Walked { qids, file }
            }
            Deed::Open(file @ File::Plain(user, id)) => {
                self.trees[user].may_open(id)?;
                opened(file)
            }
            Deed::Open(file) => opened(file),
            Deed::Create(File::Dir(user), name) => {
                let file = File::Plain(user, self.trees[user].create(name)?);
                Done::Created { qid: file.qid(), file, opened: true }
            }
            Deed::Read(File::Plain(user, id), offset) => Done::Data(self.trees[user].read(id, offset)),
            Deed::Read(..) => Done::Stats(Vec::new(), Vec::new()),
            Deed::Write(File::Plain(user, id), offset, byte) => Done::Count(self.trees[user].write(id, offset, byte)),
            Deed::Writex(File::Plain(user, id), offset, byte) => {
                Done::Written { offset, count: self.trees[user].write(id, offset, byte) }
            }
            Deed::Stat(file) => {
                Done::Stat(StatBuf { qid: file.qid(), length: self.attr(file).size, ..StatBuf::default() })
            }
            Deed::Getattr(file) => Done::Attr(self.attr(file)),
            Deed::Rename(File::Plain(user, id), name) => {
                self.trees[user].rename(id, name)?;
                Done::Unit
            }
            Deed::List(File::Dir(user), true) => Done::Listed { entries: self.entries(user, true), end: true },
            Deed::List(File::Dir(user), false) => Done::Data(self.entries(user, false)),
            Deed::Move(File::Dir(user), old, into, new) if into == File::Dir(user) => {
                self.trees[user].rename_entry(old, new)?;
                Done::Unit
            }
            Deed::Unlink(File::Dir(user), name) => {
                self.trees[user].unlink(name)?;
                Done::Unit
            }
            _ => return Err(Errno::EPERM.into()),
        })
    }

    fn attr(&self, file: File) -> Attr {
        let size = if let File::Plain(user, id) = file { self.trees[user].length(id) } else { 0 };
        Attr { valid: getattr::SIZE, qid: file.qid(), size, ..Attr::default() }
    }

    fn entries(&self, user: usize, plus: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, name) in self.trees[user].names().chars().enumerate() {
            let file = File::Plain(user, self.trees[user].find(name).expect("it is listed"));
            let entry = DirEntry { qid: file.qid(), offset: at as u64 + 1, kind: DT_REG, name: &[name as u8] };
            match plus {
                true => PlusEntry { entry, attr: self.attr(file) }.encode(&mut out),
                false => entry.encode(&mut out),
            }
        }
        out
    }
}

fn deed(op: &Op<'_, File>) -> Deed {
    let letter = |name: &[u8]| char::from(name[0]);
    match op {
        Op::Attach { .. } => Deed::Attach,
        Op::Session { .. } => Deed::Session,
        Op::Walk { file, elems } => {
            let name = |elem: &WalkElem<'_>| match elem {
                WalkElem::Name(name) => String::from_utf8(name.as_bytes().to_vec()).unwrap(),
                WalkElem::Parent | WalkElem::Here => panic!("{elem:?} was never asked"),
            };
            Deed::Walk(*file, elems.iter().map(name).collect())
        }
        Op::Open { file, .. } => Deed::Open(*file),
        Op::Create { file, name, exclusive, .. } => {
            assert!(exclusive, "a file that is there may be cut");
            Deed::Create(*file, letter(name.as_bytes()))
        }
        Op::Read { file, offset, .. } => Deed::Read(*file, *offset),
        Op::ReadStats { file, at, .. } => Deed::Read(*file, *at),
        Op::Write { file, offset, data } => Deed::Write(*file, *offset, data[0]),
        Op::Stat { file } => Deed::Stat(*file),
        Op::Wstat { file, stat } => Deed::Rename(*file, letter(stat.name)),
        Op::Getattr { file, .. } => Deed::Getattr(*file),
        Op::Writex { file, offset, data, .. } => Deed::Writex(*file, *offset, data[0]),
        Op::Readdir { file, .. } => Deed::List(*file, false),
        Op::Readdirplus { file, .. } => Deed::List(*file, true),
        Op::Rename { file, newdir, name } => {
            if let File::Plain(user, _) = file {
                assert_eq!(*newdir, File::Dir(*user), "another user's directory");
            }
            Deed::Rename(*file, letter(name.as_bytes()))
        }
        Op::RenameEntry { file, old, newdir, new }
        | Op::RenameWith { file, old, newdir, new, how: Rename::NoReplace } => {
            Deed::Move(*file, letter(old.as_bytes()), *newdir, letter(new.as_bytes()))
        }
        Op::Unlink { file, name, dir: false } => Deed::Unlink(*file, letter(name.as_bytes())),
        op => panic!("{op:?} was never asked"),
    }
}
