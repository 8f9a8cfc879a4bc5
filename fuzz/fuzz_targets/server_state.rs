//! A session driven by a program of bytes and compared with a model: what is sent, completed, flushed, lost; every
//! reply is decoded, and must be the one that the model expects, in its order.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ninefold_proto::attr::{Attr, Statfs, Time};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{R, T};
use ninefold_proto::server::{
    Begun, Done, Event, FarewellId, Holder, Limits, Member, Op, Outbox, RecordEnd, RequestId, Session, Streaming,
    Violation, WRITE_HEAD,
};
use ninefold_proto::stat::{Stat, StatBuf};
use ninefold_proto::types::{Fid, Qid, QidType, StreamToken};
use ninefold_proto::wire::{frame_size, split_frame};
use ninefold_proto::{Dialect, Errno, Error};

use ninefold_fuzz::frames::{self, Contents, TAGS};
use ninefold_fuzz::input::Input;
use ninefold_fuzz::model::{Expected, File, Model, Outcome, Place, Room, What};

/// One less than the fids that frames name, so that the limit is met.
const MAX_FIDS: usize = frames::FIDS as usize - 1;

const MSIZE: u32 = 8192;

/// Where in a frame its tag's first byte is.
const TAG: usize = 5;

/// Operations of one program, and requests at one time: more finds nothing new and costs speed.
const STEPS: usize = 400;
const RUNNING: usize = 12;

fuzz_target!(|data: &[u8]| {
    let mut run = Run::new(Input::new(data));
    run.start();
    for _ in 0..STEPS {
        if run.input.is_empty() || run.model.is_hung_up() {
            break;
        }
        run.step();
    }
    run.end();
});

/// What a request asked for, so that it can be answered.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Attach,
    Session,
    Access(u32),
    Writex(u32),
    Copy(u64),
    Stream,
    StreamEnd,
    Seek(u64),
    Walk(usize),
    Open,
    Create,
    Read(u32),
    ReadStats(u32),
    Readdir(u32),
    Readdirplus(u32),
    Write(u32),
    Stat,
    Statfs,
    Qid,
    Target,
    Attr,
    Xattr,
    Lock,
    Getlock,
    Unit,
}

fn ask(op: &Op<'_, File>) -> Ask {
    match *op {
        Op::Attach { .. } => Ask::Attach,
        Op::Session { .. } => Ask::Session,
        Op::Walk { ref elems, .. } => Ask::Walk(elems.len()),
        Op::Open { .. } => Ask::Open,
        Op::Create { .. } | Op::CreateSpecial { .. } => Ask::Create,
        Op::Read { count, .. } => Ask::Read(count),
        Op::ReadStats { max, .. } => Ask::ReadStats(max),
        Op::Readdir { max, .. } => Ask::Readdir(max),
        Op::Readdirplus { max, .. } => Ask::Readdirplus(max),
        Op::Access { mode, .. } => Ask::Access(mode),
        Op::Writex { data, .. } => Ask::Writex(data.len() as u32),
        Op::Copyrange { length, .. } => Ask::Copy(length),
        Op::Seek { offset, .. } => Ask::Seek(offset),
        Op::Stream { .. } => Ask::Stream,
        Op::StreamEnd { .. } => Ask::StreamEnd,
        Op::Write { data, .. } => Ask::Write(data.len() as u32),
        Op::WriteOutside { len, .. } => Ask::Write(len),
        Op::Stat { .. } => Ask::Stat,
        Op::Statfs { .. } => Ask::Statfs,
        Op::Symlink { .. } | Op::Mknod { .. } | Op::Mkdir { .. } => Ask::Qid,
        Op::Readlink { .. } => Ask::Target,
        Op::Getattr { .. } => Ask::Attr,
        Op::XattrRead { .. } => Ask::Xattr,
        Op::Lock { .. } => Ask::Lock,
        Op::Getlock { .. } => Ask::Getlock,
        Op::Wstat { .. }
        | Op::Rename { .. }
        | Op::RenameEntry { .. }
        | Op::RenameWith { .. }
        | Op::Allocate { .. }
        | Op::Unlink { .. }
        | Op::Link { .. }
        | Op::Setattr { .. }
        | Op::Fsync { .. } => Ask::Unit,
    }
}

const ASKS: [Ask; 25] = [
    Ask::Attach,
    Ask::Session,
    Ask::Access(7),
    Ask::Writex(8),
    Ask::Copy(8),
    Ask::Seek(8),
    Ask::Stream,
    Ask::StreamEnd,
    Ask::Walk(1),
    Ask::Open,
    Ask::Create,
    Ask::Read(8),
    Ask::ReadStats(8),
    Ask::Readdir(8),
    Ask::Readdirplus(8),
    Ask::Write(8),
    Ask::Stat,
    Ask::Statfs,
    Ask::Qid,
    Ask::Target,
    Ask::Attr,
    Ask::Xattr,
    Ask::Lock,
    Ask::Getlock,
    Ask::Unit,
];

/// What is cancelled waits no longer.
fn note_cancels(event: &Event<'_, File>, parked: &mut BTreeSet<RequestId>, cancelled: &mut BTreeSet<RequestId>) {
    match event {
        Event::Cancel(ids) => ids.iter().for_each(|id| {
            parked.remove(id);
            cancelled.insert(*id);
        }),
        Event::CancelAll => cancelled.append(parked),
        _ => {}
    }
}

struct Run<'i> {
    input: Input<'i>,
    session: Session<File, Vec<u8>>,
    out: Outbox<Vec<u8>>,
    model: Model,
    running: Vec<(RequestId, Ask)>,
    parting: Vec<(FarewellId, File)>,
    /// A frame that must wait.
    held: Option<Vec<u8>>,
    /// Requests that wait for something that may never come.
    parked: BTreeSet<RequestId>,
    /// Members may have their turn that were not looked for.
    late: bool,
    /// Those that do not any more.
    cancelled: BTreeSet<RequestId>,
    next_file: File,
    now: Duration,
}

impl<'i> Run<'i> {
    fn new(mut input: Input<'i>) -> Run<'i> {
        let mut limits = Limits { msize: MSIZE, fids: MAX_FIDS, ..Limits::default() };
        // Most programs are too short for the limits that a server has.
        limits.group = input.pick(&[limits.group, 1, 2, 4]);
        limits.waiting = input.pick(&[limits.waiting, 1, 3, 6]);
        limits.refused = input.pick(&[limits.refused, 0, 1, 4]);
        limits.unsent = input.pick(&[limits.unsent, 1, 40, 200]);
        Run {
            input,
            session: Session::new(limits),
            out: Outbox::default(),
            model: Model::new(limits),
            running: Vec::new(),
            parting: Vec::new(),
            held: None,
            parked: BTreeSet::new(),
            late: false,
            cancelled: BTreeSet::new(),
            next_file: 0,
            now: Duration::ZERO,
        }
    }

    /// Most programs begin as clients do.
    fn start(&mut self) {
        let offers =
            ["9P2000", "9P2000.u", "9P2000.L", "9P2000.ix", "9P2000.u.ix", "9P2000.L.n1", "9P2000.L.n1", "9P2000.s"];
        if let Some(offer) = offers.get(self.input.below(9)) {
            let version = Version::parse(offer.as_bytes()).unwrap();
            self.send(frames::version(u16::MAX, MSIZE, offer.as_bytes()));
            let attach = if version.is_n1() { "Tsession" } else { "Tattach" };
            let row = T::TABLE.iter().find(|row| row.name == attach).unwrap();
            self.send(frames::frame(row, version, 0, Contents::Tame, &mut Input::new(&[])));
        }
    }

    fn step(&mut self) {
        match self.input.below(16) {
            0..=6 => self.send_one(),
            7 => self.send_group(),
            8..=11 => self.complete_one(),
            12..=13 => self.part_one(),
            14 => self.flush_one(),
            _ => self.seldom(),
        }
    }

    fn send_one(&mut self) {
        if self.held.is_some() || self.running.len() >= RUNNING {
            return self.complete_one();
        }
        let version = self.session.version();
        let rows = frames::requests(version);
        let row = rows[self.input.below(rows.len())];
        let tag = self.input.below(TAGS) as u16;
        // A Tversion ends what was built up: not as often as the others.
        if row.name == "Tversion" && !self.input.one_in(4) {
            return;
        }
        let frame = frames::frame(row, version, tag, Contents::Tame, &mut self.input);
        self.send(frame);
    }

    /// A Tguard and what it guards, or some of it, where the dialect has it.
    fn send_group(&mut self) {
        let version = self.session.version();
        let rows = frames::requests(version);
        let Some(guard) = rows.iter().find(|row| row.name == "Tguard") else { return self.send_one() };
        let tag = self.input.below(TAGS) as u16;
        for at in 0..2 + self.input.below(3) {
            if self.held.is_some() || self.running.len() >= RUNNING || self.session.version() != version {
                return;
            }
            let row = if at == 0 { guard } else { &rows[self.input.below(rows.len())] };
            if row.name != "Tversion" {
                let frame = frames::frame(row, version, tag, Contents::Tame, &mut self.input);
                self.send(frame);
            }
        }
    }

    fn flush_one(&mut self) {
        if self.held.is_some() {
            return;
        }
        let (tag, oldtag) = (self.input.below(TAGS) as u16, self.input.below(TAGS) as u16);
        let mut frame = vec![9, 0, 0, 0, 108];
        frame.extend(tag.to_le_bytes());
        frame.extend(oldtag.to_le_bytes());
        self.send(frame);
    }

    fn seldom(&mut self) {
        match self.input.below(8) {
            0 => {
                self.session.hang_up();
                self.model.hang_up();
                self.held = None;
            }
            1 if self.held.is_none() => {
                let n = self.input.below(64);
                let bytes = self.input.bytes(n).to_vec();
                let frame = if bytes.len() >= 7 && !self.input.one_in(4) { frames::sized(bytes) } else { bytes };
                self.send(frame);
            }
            2 => {
                self.now += Duration::from_secs(self.input.below(64) as u64);
                self.session.note_partial_frame(self.input.one_in(2), self.now);
                let late = self.session.deadline().is_some_and(|deadline| self.now >= deadline);
                assert_eq!(self.session.handle_timeout(self.now).is_err(), late);
                self.session.note_partial_frame(false, self.now);
            }
            _ => {
                if !self.running.is_empty() {
                    let (id, _) = self.running[self.input.below(self.running.len())];
                    if !self.cancelled.contains(&id) {
                        self.parked.insert(id);
                    }
                }
                if let Some(frame) = self.held.take() {
                    self.send(frame);
                }
            }
        }
    }

    /// Hands in a frame and, now or later, those that have their turn then.
    fn send(&mut self, frame: Vec<u8>) {
        self.send_one_frame(frame, None);
        self.late = true;
        if !self.input.one_in(4) {
            self.members();
        }
    }

    /// Hands in what has its turn.
    fn members(&mut self) {
        while let Some(member) = self.session.poll_member() {
            match self.model.turn(member.tag().0, member.frame()) {
                Place::Frame(frame) => self.send_one_frame(frame, Some(&member)),
                Place::Refused(farewell) => self.refused(&member, farewell),
                Place::RefusedGuard(members) => {
                    self.model.cancel_behind(member.tag().0, members);
                    self.refused(&member, None);
                }
            }
        }
        self.model.none_is_left_waiting();
        self.late = false;
    }

    /// The turn of one that had no room: an error, and the fid of a Tclunk or Tremove is gone.
    fn refused(&mut self, member: &Member<Vec<u8>>, farewell: Option<(Fid, u8)>) {
        let (version, msize) = (self.session.version(), self.session.msize());
        let tag = member.tag().0;
        let event = self.session.handle_member(member, &mut self.out).expect("what is refused breaks nothing");
        note_cancels(&event, &mut self.parked, &mut self.cancelled);
        let expected = match farewell.filter(|(fid, _)| self.model.can_go(*fid)) {
            Some((fid, number)) => {
                let cancelled = self.model.clunked(tag, fid, number);
                match event {
                    Event::Handled => assert!(cancelled.is_empty()),
                    Event::Cancel(ids) => assert_eq!(ids, cancelled),
                    event => panic!("{event:?} for what is refused"),
                }
                Vec::new()
            }
            None => {
                assert!(matches!(event, Event::Handled));
                self.model.answered(tag);
                Vec::from([Expected { tag, what: What::Error }])
            }
        };
        self.check(version, msize, &expected);
        self.settle_farewells();
    }

    /// Hands in a frame and checks what the session does about it. `member`: its turn has come.
    fn send_one_frame(&mut self, frame: Vec<u8>, member: Option<&Member<Vec<u8>>>) {
        let (version, msize) = (self.session.version(), self.session.msize());
        let resetting = self.model.is_resetting();
        let handed = match member {
            Some(member) => self.session.handle_member(member, &mut self.out),
            None => {
                self.model.arrives();
                let parked = &self.parked;
                // The data of some writes are elsewhere.
                let is_whole = split_frame(&frame).is_ok();
                let head = frame.get(..WRITE_HEAD).filter(|head| is_whole && head[TAG] & 1 == 1);
                let file = head.and_then(|head| self.session.written_file(head));
                match head.and_then(|head| self.session.handle_write(head)) {
                    Some(request) => {
                        let Op::WriteOutside { file: written, .. } = request.op else { panic!("{request:?}") };
                        assert_eq!(file, Some(written));
                        Ok(Event::Execute(request))
                    }
                    None => {
                        assert_eq!(file, None);
                        self.session.handle_frame(&frame, &|id| parked.contains(&id), &mut self.out)
                    }
                }
            }
        };
        let event = match handed {
            Ok(event) => event,
            Err(violation) => {
                drop(violation.to_string());
                assert!(self.out.is_empty());
                if violation == Violation::TooManyMembers {
                    let tag = split_frame(&frame).unwrap().0.tag.0;
                    assert!(self.model.joins(tag), "too many of what need not wait");
                    assert_eq!(self.model.room(tag, &frame), Room::Never);
                    assert!(!self.model.room_will_come(tag, &self.parked), "closed where it could be held back");
                }
                if violation == Violation::TooManyGuards {
                    assert!(self.model.has_many_guards(), "there is room for a guard");
                }
                self.session.hang_up();
                self.model.hang_up();
                return self.settle_farewells();
            }
        };
        note_cancels(&event, &mut self.parked, &mut self.cancelled);
        let (header, body) = split_frame(&frame).expect("a frame that does not split was taken");
        assert!(header.size <= msize, "a frame over the msize was taken");
        let tag = header.tag.0;
        if self.model.is_hung_up() {
            assert!(matches!(event, Event::Handled));
            return;
        }
        let message = T::decode(header.kind, body, version);
        let joins = member.is_none() && self.model.joins(tag) && header.kind != 100;
        let room = self.model.room(tag, &frame);
        if let Event::Wait = event {
            assert!(member.is_none(), "what has its turn is held back");
            assert!(self.out.is_empty());
            assert!(
                resetting || self.late || self.model.something_ends(&self.parked),
                "a frame is held back for what may never end"
            );
            let held_up = || message.as_ref().is_ok_and(|message| self.model.is_held_up(message));
            match () {
                () if resetting => assert!(self.model.is_busy(), "a frame is held back for nothing"),
                () if joins => assert_ne!(room, Room::Yes, "there is room"),
                () if matches!(message, Ok(T::Guard { .. })) => {
                    assert!(self.model.has_many_guards(), "there is room for a guard")
                }
                () if self.model.groups => assert!(room != Room::Yes && held_up(), "there is room, or a free fid"),
                () => assert!(held_up(), "its fids are free"),
            }
            self.held = Some(frame);
            return;
        }
        assert!(!resetting, "a frame overtook the Tversion before it");
        if joins {
            assert!(matches!(event, Event::Handled) && self.out.is_empty(), "out of turn");
            let farewell = match message {
                Ok(T::Clunk { fid } | T::Remove { fid }) => Some((fid, header.kind)),
                _ => None,
            };
            let refused = match message {
                Ok(T::Guard { members, .. }) => Place::RefusedGuard(members),
                _ => Place::Refused(farewell),
            };
            match room {
                Room::Yes => self.model.wait(tag, Place::Frame(frame)),
                Room::Full => {
                    assert!(!self.model.room_will_come(tag, &self.parked), "refused where it could be held back");
                    self.model.wait(tag, refused);
                }
                Room::Never => panic!("taken, and there is no room for it"),
            }
            return self.settle_farewells();
        }
        // One that waits for a fid is known by this alone.
        if self.session.outstanding() == self.model.outstanding() + self.model.waiting() + 1
            && matches!(event, Event::Handled)
            && self.out.is_empty()
            && (header.kind != 120 && header.kind != 122)
        {
            assert!(member.is_some() || room == Room::Yes, "there is no room for it");
            let message = message.expect("what does not decode waits for no fid");
            self.model.block(tag, frame.clone(), &message);
            return self.settle_farewells();
        }
        let mut expected = Vec::new();
        match message {
            Err(_) => {
                assert!(matches!(event, Event::Handled));
                expected.push(Expected { tag, what: What::Error });
            }
            Ok(T::Version { .. }) => {
                let at_once = self.model.reset(tag);
                assert_eq!(matches!(event, Event::Handled), at_once);
                assert_eq!(matches!(event, Event::CancelAll), !at_once);
                expected = self.model.version_answered();
            }
            Ok(_) if self.model.tag_in_use(tag) => {
                assert!(matches!(event, Event::Handled));
                expected.push(Expected { tag, what: What::Error });
            }
            Ok(T::Guard { flags, epoch, lease, opid, members, .. }) if !self.model.is_cancelled(tag) => {
                assert!(matches!(event, Event::Handled));
                let holds = self.model.guard(tag, flags.0, (epoch, lease, opid), members);
                expected.push(Expected { tag, what: if holds { What::Success(header.kind) } else { What::Error } });
            }
            Ok(message) if self.model.is_cancelled(tag) && !matches!(message, T::Flush { .. }) => {
                if let T::Guard { members, .. } = message {
                    self.model.cancel_behind(tag, members);
                }
                match (message, event) {
                    (T::Clunk { fid } | T::Remove { fid }, event) if self.model.can_go(fid) => {
                        let cancelled = self.model.clunked(tag, fid, header.kind);
                        match event {
                            Event::Handled => assert!(cancelled.is_empty()),
                            Event::Cancel(ids) => assert_eq!(ids, cancelled),
                            event => panic!("{event:?} for {message:?}, which is not carried out"),
                        }
                    }
                    (_, event) => {
                        assert!(
                            matches!(event, Event::Handled),
                            "{message:?} is carried out, and its guard does not hold"
                        );
                        expected.push(Expected { tag, what: What::Error });
                    }
                }
            }
            Ok(T::Flush { oldtag }) => {
                let (now, cancel) = self.model.flush(tag, oldtag.0);
                expected.extend(now);
                match cancel {
                    None => assert!(matches!(event, Event::Handled)),
                    Some(Ok(id)) => assert!(matches!(event, Event::Cancel(ids) if ids == [id])),
                    Some(Err(())) => assert!(matches!(event, Event::Cancel(ids) if ids.len() == 1)),
                }
            }
            Ok(message) => match event {
                Event::Execute(request) => {
                    assert_eq!(request.dialect, version.dialect);
                    self.model.executed(request.id, tag, &message, &request.op);
                    self.running.push((request.id, ask(&request.op)));
                }
                Event::Handled => match message {
                    T::Clunk { fid } | T::Remove { fid } if self.out.is_empty() => {
                        assert!(self.model.clunked(tag, fid, header.kind).is_empty());
                    }
                    T::Clunk { .. } | T::Remove { .. } => expected.push(Expected { tag, what: What::Error }),
                    // Extended attributes are written and read within the session.
                    T::Read { .. } | T::Write { .. } | T::Xattrcreate { .. } => {
                        expected.push(Expected { tag, what: What::Either(header.kind) });
                    }
                    _ => expected.push(Expected { tag, what: What::Error }),
                },
                Event::Cancel(ids) => match message {
                    T::Clunk { fid } | T::Remove { fid } => {
                        assert_eq!(ids, self.model.clunked(tag, fid, header.kind));
                    }
                    message => panic!("{ids:?} are cancelled for {message:?}"),
                },
                event => panic!("{event:?} for {message:?}"),
            },
        }
        expected.iter().filter(|expected| expected.what != What::Version).for_each(|e| self.model.answered(e.tag));
        self.check(version, msize, &expected);
        self.settle_farewells();
    }

    fn complete_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.input.below(self.running.len());
        let (id, ask) = self.running.swap_remove(at);
        let (outcome, what) = self.outcome(id, ask);
        let less = match (ask, &outcome) {
            (Ask::Walk(names), Ok(Done::Walked { qids, .. })) => qids.len() < names,
            (Ask::Write(len) | Ask::Writex(len), Ok(Done::Count(count) | Done::Written { count, .. })) => *count < len,
            (Ask::Copy(length), Ok(Done::Copied(count))) => *count < length,
            _ => false,
        };
        if less {
            self.model.does_less(id);
        }
        self.complete(id, outcome, what);
    }

    fn complete(&mut self, id: RequestId, outcome: Outcome, what: What) {
        self.parked.remove(&id);
        self.cancelled.remove(&id);
        let (version, msize) = (self.session.version(), self.session.msize());
        let expected = self.model.completed(id, &outcome, what);
        self.session.complete(id, outcome, &mut self.out);
        self.check(version, msize, &expected);
        self.settle_farewells();
        // Brought twice: nothing.
        self.session.complete(id, Ok(Done::Unit), &mut self.out);
        assert!(self.out.is_empty());
        self.hand_in_again();
    }

    fn part_one(&mut self) {
        if self.parting.is_empty() {
            return;
        }
        let at = self.input.below(self.parting.len());
        let (id, file) = self.parting.swap_remove(at);
        let result = match self.input.below(4) {
            0 => Err(self.error()),
            _ => Ok(()),
        };
        let (version, msize) = (self.session.version(), self.session.msize());
        let expected = self.model.parted(file, id);
        self.session.farewell_done(id, result, &mut self.out);
        self.check(version, msize, &expected);
        self.settle_farewells();
        self.hand_in_again();
    }

    fn hand_in_again(&mut self) {
        self.late = true;
        if self.input.one_in(4) {
            return;
        }
        self.members();
        if let Some(frame) = self.held.take() {
            self.send(frame);
        }
    }

    fn settle_farewells(&mut self) {
        while let Some(farewell) = self.session.poll_farewell() {
            self.model.farewell(farewell.file, farewell.remove);
            self.parting.push((farewell.id, farewell.file));
        }
        self.model.no_farewell_left();
        assert!(self.session.fids() <= MAX_FIDS);
        assert_eq!(self.session.fids(), self.model.fids());
        assert_eq!(self.session.outstanding(), self.model.outstanding() + self.model.waiting());
    }

    fn error(&mut self) -> Error {
        match self.input.below(6) {
            0..=2 => Errno::EINTR.into(),
            3 => Error::with_text(Errno::EIO, "x".repeat(self.input.u16().into())),
            4 => Errno(self.input.u32()).into(),
            _ => Errno::EIO.into(),
        }
    }

    fn file(&mut self) -> File {
        self.next_file += 1;
        self.next_file
    }

    /// A directory, mostly: more can be done with it.
    fn qid(&mut self) -> Qid {
        let kind = self.input.pick(&[QidType::DIR, QidType::DIR, QidType::FILE, QidType::SYMLINK]);
        Qid { kind, version: 1, path: self.input.u8().into() }
    }

    fn outcome(&mut self, id: RequestId, ask: Ask) -> (Outcome, What) {
        let number = self.model.request(id).number;
        match self.input.below(10) {
            0..=5 => self.right(number, ask),
            6 | 7 => (Err(self.error()), What::Error),
            8 => (self.wrong(ask), What::Error),
            _ => {
                let other = self.input.pick(&ASKS);
                (self.right(number, other).0, What::Either(number))
            }
        }
    }

    /// What the op asks for.
    fn right(&mut self, number: u8, ask: Ask) -> (Outcome, What) {
        let mut what = What::Success(number);
        // Names and link targets can be longer than a reply; the session must not send them.
        let mut long = |input: &mut Input<'_>| {
            let n = if input.one_in(8) { 60_000 } else { input.below(20) };
            if n == 60_000 {
                what = What::Error;
            }
            vec![b'n'; n]
        };
        let done = match ask {
            Ask::Attach => Done::Attached { qid: self.qid(), file: self.file(), read_only: self.input.one_in(8) },
            Ask::Session => {
                let begun = Begun { epoch: self.input.pick(&[1, 1, 1, 2]), time: Time::default() };
                Done::SessionBegun { qid: self.qid(), file: self.file(), read_only: self.input.one_in(8), begun }
            }
            Ask::Access(mode) => Done::Access(mode & u32::from(self.input.u8())),
            Ask::Writex(len) => Done::Written { offset: self.input.u64() >> 1, count: self.length(len) as u32 },
            Ask::Copy(length) => Done::Copied(length / (1 + u64::from(self.input.u8()))),
            Ask::Stream => {
                let (id, token, modrev) = (self.input.u32(), StreamToken([7; 16]), 1);
                let (offset, length) = (self.input.u64(), self.input.one_in(2).then(|| self.input.u64()));
                Done::Streaming(Streaming { id, token, modrev, offset, length, address: b"tcp!192.0.2.1!1".to_vec() })
            }
            Ask::StreamEnd => Done::StreamEnded { count: self.input.u32().into(), modrev: 1 },
            Ask::Seek(offset) => Done::Offset((offset + u64::from(self.input.u8())).min(i64::MAX as u64)),
            Ask::Walk(names) => {
                let full = names == 0 || !self.input.one_in(4);
                let n = if full { names } else { 1 + self.input.below(names) };
                let n = n.min(names);
                let qids = (0..n).map(|_| self.qid()).collect();
                Done::Walked { qids, file: (n == names).then(|| self.file()) }
            }
            Ask::Open => Done::Opened { qid: self.qid() },
            Ask::Create => Done::Created { qid: self.qid(), file: self.file(), opened: !self.input.one_in(4) },
            Ask::Read(count) | Ask::Readdir(count) => Done::Data(vec![0; self.length(count)]),
            Ask::Readdirplus(count) => Done::Listed { entries: vec![0; self.length(count)], end: self.input.one_in(2) },
            Ask::ReadStats(max) => {
                let (len, cookie) = (self.length(max), self.input.u64());
                // Two records, where there are bytes for two.
                let ends =
                    [len / 2, len].into_iter().filter(|&end| end > 0).map(|end| RecordEnd { end: end as u32, cookie });
                Done::Stats(vec![0; len], ends.collect())
            }
            Ask::Write(len) => Done::Count(self.length(len) as u32),
            Ask::Stat => Done::Stat(StatBuf { name: long(&mut self.input), ..StatBuf::default() }),
            Ask::Statfs => Done::Statfs(Statfs::default()),
            Ask::Qid => Done::Qid(self.qid()),
            Ask::Target => Done::Target(long(&mut self.input)),
            Ask::Attr => Done::Attr(Attr { valid: self.input.u64(), ..Attr::default() }),
            Ask::Xattr => Done::Xattr { value: vec![7; self.input.u8().into()], file: self.file() },
            Ask::Lock => Done::Lock { granted: self.input.one_in(2) },
            Ask::Getlock if self.input.one_in(2) => Done::Getlock(None),
            Ask::Getlock => {
                let client_id = long(&mut self.input);
                Done::Getlock(Some(Holder { kind: 1, start: 0, length: 0, proc_id: 1, client_id }))
            }
            Ask::Unit => Done::Unit,
        };
        (Ok(done), what)
    }

    fn length(&mut self, most: u32) -> usize {
        let most = most as usize;
        if self.input.one_in(3) { most } else { usize::from(self.input.u8()).min(most) }
    }

    /// What breaks the contract of the op.
    fn wrong(&mut self, ask: Ask) -> Outcome {
        let more = 1 + usize::from(self.input.u16());
        Ok(match ask {
            Ask::Walk(names) => match self.input.below(3) {
                0 => Done::Walked { qids: vec![Qid::default(); names + 1], file: None },
                1 => Done::Walked { qids: vec![Qid::default(); names + 1], file: Some(self.file()) },
                _ => Done::Walked { qids: vec![Qid::default(); names], file: None },
            },
            Ask::Read(count) | Ask::Readdir(count) => Done::Data(vec![0; count as usize + more]),
            Ask::Readdirplus(count) => Done::Listed { entries: vec![0; count as usize + more], end: false },
            Ask::ReadStats(max) => {
                // Longer than it may be, or not as long as it says.
                let len = if self.input.one_in(2) { max as usize + more } else { 0 };
                Done::Stats(vec![0; len], vec![RecordEnd { end: (max as usize + more) as u32, cookie: 1 }])
            }
            Ask::Write(len) => Done::Count(len + more as u32),
            Ask::Writex(len) => Done::Written { offset: 0, count: len + more as u32 },
            Ask::Copy(length) if length < u64::MAX => Done::Copied(length + 1),
            Ask::Access(mode) if mode != u32::MAX => Done::Access(mode | (mode + 1)),
            Ask::Seek(offset) if offset > 0 => Done::Offset(offset - 1),
            Ask::Session => Done::Attached { qid: self.qid(), file: self.file(), read_only: false },
            Ask::Unit => Done::Count(1),
            Ask::Attach => Done::Created { qid: self.qid(), file: self.file(), opened: true },
            Ask::Create => Done::Attached { qid: self.qid(), file: self.file(), read_only: false },
            Ask::Xattr => Done::Walked { qids: Vec::new(), file: Some(self.file()) },
            _ => Done::Unit,
        })
    }

    /// Takes the outbox, in writes of any length, and compares its frames with what must be there.
    fn check(&mut self, version: Version, msize: u32, expected: &[Expected]) {
        let mut bytes = Vec::new();
        while !self.out.is_empty() {
            let step = 1 + self.input.below(256) * 37;
            let some: Vec<u8> =
                self.out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().take(step).collect();
            self.out.advance(some.len());
            bytes.extend(some);
        }
        let mut at = 0;
        let mut expected = expected.iter();
        while at < bytes.len() {
            let size = frame_size(&bytes[at..], msize).expect("a reply over the msize").expect("half a reply");
            let (header, body) = split_frame(&bytes[at..at + size]).unwrap();
            at += size;
            let reply = R::decode(header.kind, body, version)
                .unwrap_or_else(|error| panic!("reply {} of {version} does not decode: {error}", header.kind));
            let Some(Expected { tag, what }) = expected.next() else { panic!("a reply too many: {reply:?}") };
            assert_eq!(header.tag.0, *tag, "{reply:?}");
            match what {
                What::Flush => assert_eq!(reply, R::Flush {}),
                What::Version => self.agreed(&reply),
                What::Error => assert!(reply.is_error(), "{reply:?} where an error must be"),
                What::Success(number) => assert_eq!(header.kind, number + 1, "{reply:?}"),
                What::Either(number) => assert!(reply.is_error() || header.kind == number + 1, "{reply:?}"),
            }
            if reply.is_error() {
                self.model.failed(header.tag.0);
            }
            if let R::Stat { stat } = reply {
                Stat::decode(stat.0, version.dialect).unwrap();
            }
        }
        assert_eq!(expected.next(), None, "a reply is missing");
    }

    fn agreed(&mut self, reply: &R<'_>) {
        let R::Version { msize, version } = *reply else { panic!("{reply:?}") };
        match Version::parse(version) {
            Some(version) => {
                assert_eq!((self.session.version(), self.session.msize()), (version, msize));
                self.model.agreed(version.groups);
            }
            None => assert_eq!(version, b"unknown"),
        }
    }

    /// Whatever was left open comes to its end, with the peer or without.
    fn end(&mut self) {
        let lost = self.input.one_in(2);
        if lost {
            self.session.hang_up();
            self.model.hang_up();
            self.held = None;
            self.settle_farewells();
        }
        while self.model.is_busy() || self.late || self.held.is_some() {
            self.complete_one();
            self.part_one();
            self.members();
            if let Some(frame) = self.held.take() {
                self.send(frame);
            }
        }
        assert!(self.held.is_none() && self.model.waiting() == 0, "a frame is held back for ever");
        assert_eq!(self.model.outstanding(), 0, "a request has no reply");
        self.session.hang_up();
        self.model.hang_up();
        self.settle_farewells();
        while self.model.is_busy() {
            self.part_one();
        }
        assert!(self.session.is_idle() && self.model.is_idle() && self.out.is_empty());
        assert_eq!(self.session.fids(), 0);
        // After the end nothing happens any more.
        let fid = Fid(0);
        let mut frame = Vec::new();
        T::Clunk { fid }.encode(ninefold_proto::Tag(1), Dialect::Linux, &mut frame);
        assert!(matches!(self.session.handle_frame(&frame, &|_| false, &mut self.out), Ok(Event::Handled)));
        assert!(self.out.is_empty());
    }
}
