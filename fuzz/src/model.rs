//! What a client may expect of a session, kept as plain maps beside it.
//!
//! The model is told every frame that was taken, every result and every farewell, and says which replies
//! must have come; it never looks inside the session. A file is a number that is never used twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ninefold_proto::message::T;
use ninefold_proto::server::{Done, FarewellId, Limits, Op, RequestId};
use ninefold_proto::types::Fid;
use ninefold_proto::{Errno, Error};

/// The driver's handle on a file.
pub type File = u32;

/// What a session gets as the result of a request.
pub type Outcome = Result<Done<File, Vec<u8>>, Error>;

/// A reply that must come: its tag, and what it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    pub tag: u16,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Flush,
    Version,
    Error,
    /// The reply to the T message with this number.
    Success(u8),
    /// That, or an error.
    Either(u8),
}

/// What a request does when it succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Attach { fid: u32 },
    Session { fid: u32 },
    Walk { fid: u32, newfid: u32, names: usize },
    Xattr { newfid: u32 },
    Create { fid: u32 },
    Other,
}

/// A request that was taken and not answered.
#[derive(Clone, Debug)]
pub struct Pending {
    pub tag: u16,
    /// The T message's number.
    pub number: u8,
    pub after: After,
    /// Files in use by it, the one of the first fid in front.
    pub files: Vec<File>,
    flushed: bool,
    flushes: Vec<u16>,
    /// The session it belonged to is gone.
    void: bool,
    /// The Tclunk or Tremove that came for the fid before this made it; the serial number of a request.
    clunk: Option<u64>,
}

/// A file between its making and the end of its farewell.
#[derive(Clone, Debug, Default)]
struct Life {
    read_only: bool,
    uses: usize,
    /// No fid stands for it.
    retired: bool,
    parting: bool,
    /// The Tclunk or Tremove that is answered by its farewell; the serial number of a request.
    clunk: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Request(u64),
    Flush(u64),
}

/// What stands in a request's place while it waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Frame(Vec<u8>),
    /// There was no room for it; the fid and the number of a Tclunk or Tremove.
    Refused(Option<(Fid, u8)>),
    /// The same for a Tguard, of so many requests.
    RefusedGuard(u16),
}

impl Place {
    fn is_refused(&self) -> bool {
        !matches!(self, Place::Frame(_))
    }
}

/// Whether a frame may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Yes,
    Full,
    Never,
}

/// What waits for a fid.
#[derive(Clone, Debug)]
struct Blocked {
    /// The fids that it names.
    fids: Vec<u32>,
    /// Nothing may run beside it on one of them, or so it is with some.
    alone: bool,
}

/// The numbers of the T messages beside which nothing may run on their fid, or so it is with some: Tlopen, Tlcreate,
/// Txattrcreate, Twalk, Topen, Tcreate, Tread.
const ALONE: [u8; 7] = [12, 14, 32, 110, 112, 114, 116];

/// What becomes of what a Tguard guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Course {
    Void,
    UntilFailure,
    /// How many were answered, the Tguard among them, and whether the first behind it failed.
    Unless {
        answered: u32,
        failed: bool,
    },
}

impl Course {
    /// Whether nothing more is carried out. That the first behind a Tguard did not fail is known when its reply was looked at,
    /// behind its being answered.
    fn is_void(self) -> bool {
        match self {
            Course::Void => true,
            Course::UntilFailure => false,
            Course::Unless { answered, failed } => answered >= 2 && !failed,
        }
    }
}

/// The model.
#[derive(Default)]
pub struct Model {
    /// With the serial number of the frame.
    tags: BTreeMap<u16, (Owner, u64)>,
    /// By serial number; those with a request id are also in `running`.
    pending: BTreeMap<u64, Pending>,
    running: BTreeMap<RequestId, u64>,
    fids: BTreeMap<u32, File>,
    reserved: BTreeSet<u32>,
    files: BTreeMap<File, Life>,
    /// The tag of a Tversion that is not answered.
    version: Option<u16>,
    /// Whether requests may share a tag, and what waits: for those before it in its tag, or for a fid.
    pub groups: bool,
    waiting: BTreeMap<u16, VecDeque<(Place, u64)>>,
    /// Frames that came, and the serial number of the one that is looked at.
    frames: u64,
    frame: u64,
    /// Tags whose first one waits for a fid.
    blocked: BTreeMap<u16, Blocked>,
    /// By tags with a Tguard that does not hold, or says what is to be carried out: how many requests more it guards, itself among
    /// them, what becomes of them, and the Tguard's serial number.
    guarded: BTreeMap<u16, (u32, Course, u64)>,
    /// What a Tsession told.
    epoch: Option<u64>,
    limits: Limits,
    hung_up: bool,
    next: u64,
}

/// The fids whose files a request uses, in the order of [`files_of`].
fn fids_of(message: &T<'_>) -> Vec<Fid> {
    match *message {
        T::Link { dfid, fid, .. } => vec![dfid, fid],
        T::Rename { fid, dfid, .. } => vec![fid, dfid],
        T::Renameat { olddirfid, newdirfid, .. } | T::Rename2 { olddirfid, newdirfid, .. } => {
            vec![olddirfid, newdirfid]
        }
        T::Copyrange { srcfid, dstfid, .. } => vec![srcfid, dstfid],
        T::Symlink { dfid, .. } | T::Mknod { dfid, .. } | T::Mkdir { dfid, .. } => vec![dfid],
        T::Unlinkat { dirfid, .. } => vec![dirfid],
        T::Walk { fid, .. }
        | T::Open { fid, .. }
        | T::Create { fid, .. }
        | T::Read { fid, .. }
        | T::Write { fid, .. }
        | T::Stat { fid }
        | T::Wstat { fid, .. }
        | T::Statfs { fid }
        | T::Lopen { fid, .. }
        | T::Lcreate { fid, .. }
        | T::Readlink { fid }
        | T::Getattr { fid, .. }
        | T::Setattr { fid, .. }
        | T::Xattrwalk { fid, .. }
        | T::Readdir { fid, .. }
        | T::Fsync { fid, .. }
        | T::Readdirplus { fid, .. }
        | T::Access { fid, .. }
        | T::Writex { fid, .. }
        | T::Allocate { fid, .. }
        | T::Seek { fid, .. }
        | T::Lock { fid, .. }
        | T::Stream { fid, .. }
        | T::Getlock { fid, .. } => vec![fid],
        _ => Vec::new(),
    }
}

fn files_of(op: &Op<'_, File>) -> Vec<File> {
    use ninefold_proto::server::Special;
    match *op {
        Op::Attach { .. } | Op::Session { .. } | Op::StreamEnd { .. } => Vec::new(),
        Op::Rename { file, newdir, .. }
        | Op::RenameEntry { file, newdir, .. }
        | Op::RenameWith { file, newdir, .. } => {
            vec![file, newdir]
        }
        Op::Copyrange { file, target, .. } => vec![file, target],
        Op::Link { file, target, .. } => vec![file, target],
        Op::CreateSpecial { file, special: Special::Link { target }, .. } => vec![file, target],
        Op::Walk { file, .. }
        | Op::Open { file, .. }
        | Op::Create { file, .. }
        | Op::CreateSpecial { file, .. }
        | Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::WriteOutside { file, .. }
        | Op::ReadStats { file, .. }
        | Op::Stat { file }
        | Op::Wstat { file, .. }
        | Op::Statfs { file }
        | Op::Symlink { file, .. }
        | Op::Mknod { file, .. }
        | Op::Mkdir { file, .. }
        | Op::Unlink { file, .. }
        | Op::Readlink { file }
        | Op::Getattr { file, .. }
        | Op::Setattr { file, .. }
        | Op::XattrRead { file, .. }
        | Op::Readdir { file, .. }
        | Op::Fsync { file, .. }
        | Op::Readdirplus { file, .. }
        | Op::Access { file, .. }
        | Op::Writex { file, .. }
        | Op::Allocate { file, .. }
        | Op::Seek { file, .. }
        | Op::Lock { file, .. }
        | Op::Stream { file, .. }
        | Op::Getlock { file, .. } => vec![file],
    }
}

/// The file that a result brings, and whether nothing may be changed through it.
fn brought(done: &Done<File, Vec<u8>>) -> Option<(File, bool)> {
    match *done {
        Done::Attached { file, read_only, .. } | Done::SessionBegun { file, read_only, .. } => Some((file, read_only)),
        Done::Walked { file, .. } => file.map(|file| (file, false)),
        Done::Created { file, .. } | Done::Xattr { file, .. } => Some((file, false)),
        _ => None,
    }
}

/// The fids that a request needs to be free: those of its files, the one that it makes, and that of its extension.
fn names(message: &T<'_>) -> Vec<u32> {
    let mut fids: Vec<u32> = fids_of(message).iter().map(|fid| fid.0).collect();
    match *message {
        T::Attach { fid, .. } | T::Session { fid, .. } | T::Xattrcreate { fid, .. } => fids.push(fid.0),
        T::Walk { newfid, .. } | T::Xattrwalk { newfid, .. } => fids.push(newfid.0),
        T::Create { extension, .. } => {
            fids.extend(std::str::from_utf8(extension).ok().and_then(|text| text.trim().parse::<u32>().ok()));
        }
        _ => {}
    }
    fids
}

impl Model {
    pub fn new(limits: Limits) -> Model {
        Model { limits, ..Model::default() }
    }

    /// Whether a request or a farewell is on its way, so that a frame may be held back for it.
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty() || self.files.values().any(|life| life.parting)
    }

    /// Whether nothing at all is left.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.files.is_empty()
    }

    /// Fids, those included that a request is to make.
    pub fn fids(&self) -> usize {
        self.fids.len() + self.reserved.len()
    }

    /// Requests that were taken and are not complete, whoever completes them.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Whether a Tversion waits for what was there before it.
    pub fn is_resetting(&self) -> bool {
        self.version.is_some()
    }

    pub fn tag_in_use(&self, tag: u16) -> bool {
        self.tags.contains_key(&tag)
    }

    /// Whether the next request of a tag is not carried out.
    pub fn is_cancelled(&self, tag: u16) -> bool {
        self.guarded.get(&tag).is_some_and(|(_, course, _)| course.is_void())
    }

    /// A Tguard is answered: does what it guards come to be carried out?
    pub fn guard(&mut self, tag: u16, flags: u32, (epoch, lease, opid): (u64, u32, u64), members: u16) -> bool {
        let in_this_run = flags > 0 && epoch == 0 || self.epoch == Some(epoch);
        let has_room = usize::from(members) < self.limits.group;
        let around = self.guarded.get(&tag).map(|(_, course, _)| *course);
        let fits = match flags {
            0 => true,
            1 => matches!(around, None | Some(Course::UntilFailure)),
            2 => around.is_none(),
            _ => false,
        };
        let holds = fits && in_this_run && (lease, opid) == (0, 0) && has_room;
        if !holds {
            self.cancel_behind(tag, members);
        } else if flags > 0 && members > 0 {
            let course = if flags == 1 { Course::UntilFailure } else { Course::Unless { answered: 0, failed: false } };
            self.guard_behind(tag, members, course);
        }
        holds
    }

    /// A request that runs does less than it was asked to.
    pub fn does_less(&mut self, id: RequestId) {
        let Pending { tag, void, .. } = *self.request(id);
        if !void {
            self.failed(tag);
        }
    }

    /// The request of this tag that is answered next fails, or the last one did.
    pub fn failed(&mut self, tag: u16) {
        match self.guarded.get_mut(&tag) {
            Some((_, course @ Course::UntilFailure, _)) => *course = Course::Void,
            // The Tguard and the first behind it: that one is answered next, or was last.
            Some((_, Course::Unless { answered: 1 | 2, failed }, _)) => *failed = true,
            _ => {}
        }
    }

    /// What is behind the request of this tag that is answered next is not carried out.
    pub fn cancel_behind(&mut self, tag: u16, members: u16) {
        self.guard_behind(tag, members, Course::Void);
    }

    fn guard_behind(&mut self, tag: u16, members: u16, course: Course) {
        let (left, before, _) = self.guarded.get(&tag).copied().unwrap_or((0, course, 0));
        let course = if before.is_void() { Course::Void } else { course };
        self.guarded.insert(tag, (left.max(u32::from(members) + 1), course, self.frame));
    }

    /// A request of this tag is answered, or never will be.
    pub fn answered(&mut self, tag: u16) {
        if let Some((left, course, _)) = self.guarded.get_mut(&tag) {
            *left -= 1;
            if let Course::Unless { answered, .. } = course {
                *answered += 1;
            }
            if *left == 0 {
                self.guarded.remove(&tag);
            }
        }
    }

    /// A version was agreed.
    pub fn agreed(&mut self, groups: bool) {
        self.groups = groups;
        self.epoch = None;
        self.guarded.clear();
    }

    /// Whether frames of this tag wait.
    pub fn waits(&self, tag: u16) -> bool {
        self.waiting.contains_key(&tag)
    }

    /// Whether a request with this tag has others before it.
    pub fn joins(&self, tag: u16) -> bool {
        self.groups && (self.tag_in_use(tag) || self.waits(tag))
    }

    /// Whether a guard more waits until what one of the others guards is answered.
    pub fn has_many_guards(&self) -> bool {
        self.guarded.len() >= self.limits.waiting
    }

    /// Frames that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Whether `frame` may wait.
    pub fn room(&self, tag: u16, frame: &[u8]) -> Room {
        let places = || self.waiting.values().flatten().map(|(place, _)| place);
        let bytes: usize = places().map(|place| if let Place::Frame(frame) = place { frame.len() } else { 0 }).sum();
        let refused = places().filter(|place| place.is_refused()).count();
        let of_tag = self.waiting.get(&tag).map_or(0, VecDeque::len);
        let fits = bytes == 0 || bytes + frame.len() <= self.limits.unsent;
        match () {
            () if of_tag + 1 < self.limits.group && self.waiting() < self.limits.waiting && fits => Room::Yes,
            () if refused < self.limits.refused => Room::Full,
            () => Room::Never,
        }
    }

    /// Whether a request or a farewell ends that is not parked.
    pub fn something_ends(&self, parked: &BTreeSet<RequestId>) -> bool {
        self.running.keys().any(|id| !parked.contains(id)) || self.files.values().any(|life| life.parting)
    }

    /// Whether one that has no room in its tag is to be held back: what its tag waits for is known to end.
    pub fn room_will_come(&self, tag: u16, parked: &BTreeSet<RequestId>) -> bool {
        let of_tag = self.waiting.get(&tag).map_or(0, VecDeque::len);
        if of_tag + 1 < self.limits.group {
            return self.running.keys().any(|id| !parked.contains(id));
        }
        let Some((Owner::Request(serial) | Owner::Flush(serial), _)) = self.tags.get(&tag) else { return false };
        self.running.iter().any(|(id, running)| running == serial && !parked.contains(id))
    }

    /// A frame is handed in that has not waited.
    pub fn arrives(&mut self) {
        self.frame = self.frames;
        self.frames += 1;
    }

    /// A request is to wait behind those of its tag.
    pub fn wait(&mut self, tag: u16, place: Place) {
        assert!(self.groups, "a request waits in its tag without .ix");
        self.waiting.entry(tag).or_default().push_back((place, self.frame));
    }

    /// One needs a fid in use: it waits before those of its tag.
    pub fn block(&mut self, tag: u16, frame: Vec<u8>, message: &T<'_>) {
        assert!(self.groups, "a request waits for a fid without .ix");
        assert!(self.is_held_up(message), "it waits for a fid that nothing uses");
        self.waiting.entry(tag).or_default().push_front((Place::Frame(frame), self.frame));
        let blocked = Blocked { fids: names(message), alone: ALONE.contains(&message.number()) };
        assert!(self.blocked.insert(tag, blocked).is_none(), "two of a tag wait for fids");
    }

    /// The turn of what waited.
    pub fn turn(&mut self, tag: u16, frame: Option<&Vec<u8>>) -> Place {
        assert!(!self.tag_in_use(tag), "begun before the one before it is answered");
        let places = self.waiting.get_mut(&tag).expect("what did not wait has its turn");
        let (place, serial) = places.pop_front().expect("no line is empty");
        self.frame = serial;
        match &place {
            Place::Frame(first) => assert_eq!(frame, Some(first), "not the first of its tag"),
            Place::Refused(_) | Place::RefusedGuard(_) => assert_eq!(frame, None, "not the first of its tag"),
        }
        if places.is_empty() {
            self.waiting.remove(&tag);
        }
        self.blocked.remove(&tag);
        place
    }

    fn in_use(&self, fid: u32) -> bool {
        self.reserved.contains(&fid) || self.fids.get(&fid).is_some_and(|file| self.files[file].uses > 0)
    }

    /// Whether something uses a fid that a request names, or waits for it.
    pub fn is_held_up(&self, message: &T<'_>) -> bool {
        names(message)
            .iter()
            .any(|fid| self.in_use(*fid) || self.blocked.values().any(|blocked| blocked.fids.contains(fid)))
    }

    /// All that could have its turn had it.
    pub fn none_is_left_waiting(&self) {
        for tag in self.waiting.keys().filter(|tag| !self.tag_in_use(**tag)) {
            let Blocked { fids, .. } = self.blocked.get(tag).unwrap_or_else(|| panic!("tag {tag} waits for nothing"));
            assert!(
                fids.iter().any(|fid| self.in_use(*fid) && !self.is_shared_by_all(*fid)),
                "tag {tag} waits for fids {fids:?}, which are free"
            );
        }
    }

    /// Whether all that use a fid, and all that wait for it, may run beside each other on it.
    fn is_shared_by_all(&self, fid: u32) -> bool {
        let file = self.fids.get(&fid);
        let uses = |pending: &&Pending| file.is_some_and(|file| pending.files.contains(file));
        !self.reserved.contains(&fid)
            && !self.pending.values().filter(uses).any(|pending| ALONE.contains(&pending.number))
            && !self.blocked.values().any(|blocked| blocked.alone && blocked.fids.contains(&fid))
    }

    /// Whether the fid of a Tclunk is known or about to be, and not clunked already.
    pub fn can_go(&self, fid: Fid) -> bool {
        let makes = |pending: &Pending| !pending.void && reserved(pending.after) == Some(fid.0);
        self.fids.contains_key(&fid.0) || self.pending.values().any(|p| makes(p) && p.clunk.is_none())
    }

    fn take(&mut self, tag: u16, pending: Pending) -> u64 {
        let serial = self.next;
        self.next += 1;
        self.tags.insert(tag, (Owner::Request(serial), self.frame));
        self.pending.insert(serial, pending);
        serial
    }

    /// A request is to be carried out.
    pub fn executed(&mut self, id: RequestId, tag: u16, message: &T<'_>, op: &Op<'_, File>) {
        assert!(!self.tag_in_use(tag), "executed under a tag that is in use");
        let mut files: Vec<File> =
            fids_of(message).iter().map(|fid| *self.fids.get(&fid.0).expect("executed on an unknown fid")).collect();
        let used = files_of(op);
        if let Op::CreateSpecial { .. } = op {
            // The target's fid is in the extension.
            files.extend(used.get(1));
            assert!(used.iter().all(|file| self.fids.values().any(|known| known == file)));
        }
        assert_eq!(files, used, "executed on other files than those of the fids");
        for file in &files {
            let life = self.files.get_mut(file).expect("executed on a file that is gone");
            assert!(!life.retired);
            life.uses += 1;
        }
        let after = match *message {
            T::Attach { fid, .. } => After::Attach { fid: fid.0 },
            T::Session { fid, .. } => After::Session { fid: fid.0 },
            T::Walk { fid, newfid, wnames } => After::Walk { fid: fid.0, newfid: newfid.0, names: wnames.len() },
            T::Xattrwalk { newfid, .. } => After::Xattr { newfid: newfid.0 },
            T::Create { fid, .. } | T::Lcreate { fid, .. } => After::Create { fid: fid.0 },
            _ => After::Other,
        };
        if let Some(fid) = reserved(after) {
            assert!(!self.fids.contains_key(&fid) && self.reserved.insert(fid), "a fid that exists is made");
        }
        let number = message.number();
        let pending =
            Pending { tag, number, after, files, flushed: false, flushes: Vec::new(), void: false, clunk: None };
        let serial = self.take(tag, pending);
        assert!(self.running.insert(id, serial).is_none(), "a request id was used twice");
    }

    /// A Tclunk or Tremove was taken: the fid is gone, its answer comes with the farewell. The requests that use
    /// its file are to be cancelled.
    pub fn clunked(&mut self, tag: u16, fid: Fid, number: u8) -> Vec<RequestId> {
        let (after, files) = (After::Other, Vec::new());
        let pending =
            Pending { tag, number, after, files, flushed: false, flushes: Vec::new(), void: false, clunk: None };
        let serial = self.take(tag, pending);
        let Some(file) = self.fids.remove(&fid.0) else {
            // It is about to be made.
            let makes = |pending: &Pending| !pending.void && reserved(pending.after) == Some(fid.0);
            let (maker, pending) =
                self.pending.iter_mut().find(|(_, p)| makes(p)).expect("a fid that nobody knows was clunked");
            assert!(pending.clunk.replace(serial).is_none(), "a fid was clunked twice");
            return self.running.iter().filter(|(_, serial)| *serial == maker).map(|(id, _)| *id).collect();
        };
        let life = self.files.get_mut(&file).expect("a fid without a file");
        life.retired = true;
        life.clunk = Some(serial);
        let uses = |serial: &u64| self.pending[serial].files.contains(&file);
        self.running.iter().filter(|(_, serial)| uses(serial)).map(|(id, _)| *id).collect()
    }

    /// A Tflush was taken: what must be answered now, and the request that is to be cancelled, `Err` when it is one
    /// that only its farewell completes.
    #[allow(clippy::type_complexity)] // three answers to one question
    pub fn flush(&mut self, tag: u16, oldtag: u16) -> (Option<Expected>, Option<Result<RequestId, ()>>) {
        let now = self.frame;
        if tag != oldtag && self.guarded.get(&oldtag).is_some_and(|(_, _, serial)| *serial < now) {
            self.guarded.remove(&oldtag);
        }
        if tag != oldtag
            && let Some(places) = self.waiting.get_mut(&oldtag)
        {
            let all = places.len();
            places.retain(|(_, serial)| *serial > now);
            if places.len() < all {
                self.blocked.remove(&oldtag);
            }
            if places.is_empty() {
                self.waiting.remove(&oldtag);
            }
        }
        let before = self.tags.get(&oldtag).filter(|(_, frame)| *frame < now);
        let Some(&(Owner::Request(serial) | Owner::Flush(serial), _)) = before else {
            return (Some(Expected { tag, what: What::Flush }), None);
        };
        self.tags.insert(tag, (Owner::Flush(serial), now));
        let pending = self.pending.get_mut(&serial).unwrap();
        pending.flushes.push(tag);
        let first = !std::mem::replace(&mut pending.flushed, true);
        let id = self.running.iter().find(|(_, s)| **s == serial).map(|(id, _)| *id);
        (None, first.then_some(id.ok_or(())))
    }

    /// A Tversion was taken; whether it must be answered at once.
    pub fn reset(&mut self, tag: u16) -> bool {
        self.forget_everything();
        self.version = Some(tag);
        self.is_idle()
    }

    /// The connection was lost.
    pub fn hang_up(&mut self) {
        self.forget_everything();
        self.version = None;
        self.hung_up = true;
    }

    fn forget_everything(&mut self) {
        self.tags.clear();
        self.waiting.clear();
        self.blocked.clear();
        self.reserved.clear();
        self.pending.values_mut().for_each(|pending| pending.void = true);
        for file in std::mem::take(&mut self.fids).into_values() {
            self.files.get_mut(&file).unwrap().retired = true;
        }
    }

    /// The request as it was taken.
    pub fn request(&self, id: RequestId) -> &Pending {
        &self.pending[&self.running[&id]]
    }

    /// A result is brought: what must be answered. `what`: the reply if there is one.
    pub fn completed(&mut self, id: RequestId, outcome: &Outcome, what: What) -> Vec<Expected> {
        let serial = self.running.remove(&id).expect("completed a request that does not run");
        let pending = self.pending.remove(&serial).unwrap();
        for file in &pending.files {
            self.files.get_mut(file).unwrap().uses -= 1;
        }
        self.settle(&pending, outcome);
        if let (false, After::Session { .. }, Ok(Done::SessionBegun { begun, .. })) =
            (pending.void, pending.after, outcome)
        {
            self.epoch = Some(begun.epoch);
        }
        if pending.void {
            pending.clunk.map(|clunk| self.pending.remove(&clunk));
            return self.version_answer();
        }
        let silent = pending.flushed && matches!(outcome, Err(error) if error.errno == Errno::EINTR);
        let mut expected = self.answer(&pending, (!silent).then_some(what));
        if let Some(clunk) = pending.clunk {
            match reserved(pending.after).and_then(|fid| self.fids.remove(&fid)) {
                Some(file) => {
                    let life = self.files.get_mut(&file).unwrap();
                    (life.retired, life.clunk) = (true, Some(clunk));
                }
                None => {
                    let clunk = self.pending.remove(&clunk).unwrap();
                    expected.extend(self.answer(&clunk, Some(What::Error)));
                }
            }
        }
        expected
    }

    fn answer(&mut self, pending: &Pending, what: Option<What>) -> Vec<Expected> {
        let mut expected = Vec::new();
        assert!(self.tags.remove(&pending.tag).is_some());
        self.answered(pending.tag);
        pending.flushes.iter().for_each(|tag| self.answered(*tag));
        expected.extend(what.map(|what| Expected { tag: pending.tag, what }));
        for tag in &pending.flushes {
            assert!(self.tags.remove(tag).is_some());
            expected.push(Expected { tag: *tag, what: What::Flush });
        }
        expected
    }

    fn settle(&mut self, pending: &Pending, outcome: &Outcome) {
        if let Some(fid) = reserved(pending.after).filter(|_| !pending.void) {
            assert!(self.reserved.remove(&fid));
        }
        let Some((file, read_only)) = outcome.as_ref().ok().and_then(brought) else { return };
        let base = pending.files.first();
        let inherited = base.is_some_and(|file| self.files[file].read_only);
        let attached = matches!(outcome, Ok(Done::Attached { .. } | Done::SessionBegun { .. }));
        let life = Life { read_only: if attached { read_only } else { inherited }, ..Life::default() };
        assert!(self.files.insert(file, life).is_none());
        let fid = match (pending.after, outcome) {
            _ if pending.void => None,
            (After::Attach { fid }, Ok(Done::Attached { .. }))
            | (After::Session { fid }, Ok(Done::SessionBegun { .. })) => Some(fid),
            (After::Xattr { newfid }, Ok(Done::Xattr { .. })) => Some(newfid),
            (After::Walk { fid, newfid, names }, Ok(Done::Walked { qids, .. })) if qids.len() == names => {
                // Onto itself: unless it was clunked meanwhile.
                (fid != newfid || self.fids.get(&fid) == base).then_some(newfid)
            }
            (After::Create { fid }, Ok(Done::Created { .. })) => (self.fids.get(&fid) == base).then_some(fid),
            _ => None,
        };
        match fid {
            Some(fid) => {
                if let Some(old) = self.fids.insert(fid, file) {
                    self.files.get_mut(&old).unwrap().retired = true;
                }
            }
            None => self.files.get_mut(&file).unwrap().retired = true,
        }
    }

    fn version_answer(&mut self) -> Vec<Expected> {
        if !self.is_idle() {
            return Vec::new();
        }
        self.version.take().map(|tag| Expected { tag, what: What::Version }).into_iter().collect()
    }

    /// A Tversion that found nothing to wait for is answered.
    pub fn version_answered(&mut self) -> Vec<Expected> {
        self.version_answer()
    }

    /// A farewell was asked for.
    pub fn farewell(&mut self, file: File, remove: bool) {
        let life = self.files.get_mut(&file).expect("farewell to a file that is gone");
        assert!(life.retired, "farewell to a file that a fid stands for");
        assert_eq!(life.uses, 0, "farewell to a file that is in use");
        assert!(!std::mem::replace(&mut life.parting, true), "a second farewell");
        assert!(!(remove && life.read_only), "a file is removed that may not be changed");
    }

    /// No farewell is left to ask for.
    pub fn no_farewell_left(&self) {
        for (file, life) in &self.files {
            assert!(!life.retired || life.uses > 0 || life.parting, "no farewell to file {file}");
        }
    }

    /// A farewell is over: what must be answered.
    pub fn parted(&mut self, file: File, _id: FarewellId) -> Vec<Expected> {
        let life = self.files.remove(&file).unwrap();
        let mut expected = Vec::new();
        if let Some(serial) = life.clunk {
            let pending = self.pending.remove(&serial).unwrap();
            if !pending.void {
                // Also when it was flushed: the fid is gone, and the client must learn it.
                expected = self.answer(&pending, Some(What::Either(pending.number)));
            }
        }
        expected.extend(self.version_answer());
        expected
    }

    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }
}

fn reserved(after: After) -> Option<u32> {
    match after {
        After::Attach { fid } | After::Session { fid } => Some(fid),
        After::Walk { fid, newfid, .. } => (fid != newfid).then_some(newfid),
        After::Xattr { newfid } => Some(newfid),
        _ => None,
    }
}
