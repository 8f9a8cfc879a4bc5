//! What a misbehaviour sees of one connection, and the means it has.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Names, Qids};
use ninefold_proto::types::{Fid, Tag};
use ninefold_proto::{Dialect, Qid, R, T};

/// A request on its way to the honest server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'f> {
    pub tag: Tag,
    pub message: T<'f>,
    pub frame: &'f [u8],
}

/// A reply of the honest server on its way to the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply<'f> {
    pub tag: Tag,
    pub message: R<'f>,
    pub frame: &'f [u8],
    /// The request that it answers, as it was forwarded.
    pub to: T<'f>,
}

impl Reply<'_> {
    /// Whether the connection had been set up when it was asked for.
    pub fn is_work(&self) -> bool {
        !matches!(self.to, T::Version { .. } | T::Attach { .. } | T::Session { .. } | T::Auth { .. })
    }
}

/// What happens next towards the client.
#[derive(Debug)]
pub(super) enum Act {
    Say(Vec<u8>),
    Pause(Duration),
    HangUp,
}

/// One connection: what is known of it, and what a hook wants done.
#[derive(Debug)]
pub(super) struct Scene {
    pub dialect: Dialect,
    /// What the layouts of its messages are.
    pub version: Version,
    /// Bytes of the largest frame that client and honest server agreed to.
    pub msize: u32,
    /// The qid of what was attached last.
    root: Option<Qid>,
    fids: HashMap<Fid, Qid>,
    /// Frames that the honest server has not answered, those of a tag in the order in which it will.
    outstanding: HashMap<Tag, VecDeque<Vec<u8>>>,
    pub to_client: Vec<Act>,
    pub to_server: Vec<Vec<u8>>,
    /// The relay reads nothing more from the client.
    pub deaf: bool,
    /// For hooks: how often something happened.
    pub count: u64,
    /// For hooks: fids that something was done to.
    pub marked: HashSet<Fid>,
    /// For directories of 9P2000 and .u whose records were changed in length: where the client goes on, and where the honest
    /// server does.
    pub resumes: HashMap<Fid, (u64, u64)>,
    /// For hooks: requests that nobody answered, and the bytes that each asks for.
    pub unanswered: Vec<(Tag, u32)>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene {
            dialect: Dialect::Plan9,
            version: Dialect::Plan9.into(),
            msize: 0,
            root: None,
            fids: HashMap::new(),
            outstanding: HashMap::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
            deaf: false,
            count: 0,
            marked: HashSet::new(),
            resumes: HashMap::new(),
            unanswered: Vec::new(),
        }
    }

    /// Says a message to the client.
    pub fn answer(&mut self, tag: Tag, message: &R<'_>) {
        let mut frame = Vec::new();
        message.encode(tag, self.version, &mut frame);
        self.say(frame);
    }

    /// Says bytes to the client, a frame or not.
    pub fn say(&mut self, bytes: impl Into<Vec<u8>>) {
        self.to_client.push(Act::Say(bytes.into()));
    }

    /// Says nothing for a while.
    pub fn pause(&mut self, pause: Duration) {
        self.to_client.push(Act::Pause(pause));
    }

    /// Closes the connection behind what was said.
    pub fn hang_up(&mut self) {
        self.to_client.push(Act::HangUp);
    }

    /// Asks the honest server.
    pub fn ask(&mut self, tag: Tag, message: &T<'_>) {
        let mut frame = Vec::new();
        message.encode(tag, self.version, &mut frame);
        self.forward(tag, &frame);
    }

    /// Passes a request on to the honest server.
    pub fn forward(&mut self, tag: Tag, frame: &[u8]) {
        self.outstanding.entry(tag).or_default().push_back(frame.to_vec());
        self.to_server.push(frame.to_vec());
    }

    /// Walks on the honest server through other names than the client's.
    pub fn ask_walk(&mut self, tag: Tag, fid: Fid, newfid: Fid, names: &[&[u8]]) {
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        self.ask(tag, &T::Walk { fid, newfid, wnames });
    }

    /// Answers a walk.
    pub fn answer_walk(&mut self, tag: Tag, qids: &[Qid]) {
        let mut scratch = Vec::new();
        self.answer(tag, &R::Walk { wqids: Qids::encode(qids, &mut scratch) });
    }

    /// The qid of a fid that the honest server knows.
    pub fn qid(&self, fid: Fid) -> Option<Qid> {
        self.fids.get(&fid).copied()
    }

    /// Whether a fid stands for a plain file.
    pub fn is_plain(&self, fid: Fid) -> bool {
        self.qid(fid).is_some_and(|qid| qid.kind.0 == 0)
    }

    /// Whether a fid stands for a directory.
    pub fn is_dir(&self, fid: Fid) -> bool {
        self.qid(fid).is_some_and(|qid| qid.is_dir())
    }

    /// Whether a fid stands for the root of the tree.
    pub fn is_root(&self, fid: Fid) -> bool {
        self.root.is_some() && self.root == self.qid(fid)
    }

    /// The frame that a reply with this tag answers.
    pub fn take_outstanding(&mut self, tag: Tag) -> Option<Vec<u8>> {
        self.outstanding.get_mut(&tag)?.pop_front()
    }

    /// Learns from an exchange what the honest server knows.
    pub fn learn(&mut self, request: &T<'_>, reply: &R<'_>) {
        match (*request, *reply) {
            (T::Version { .. }, R::Version { msize, version }) => {
                self.version = Version::parse(version).unwrap_or(Dialect::Plan9.into());
                self.dialect = self.version.dialect;
                self.msize = msize;
                self.fids.clear();
            }
            (T::Attach { fid, .. }, R::Attach { qid }) | (T::Session { fid, .. }, R::Session { qid, .. }) => {
                self.root = Some(qid);
                self.fids.insert(fid, qid);
            }
            (T::Create { fid, .. }, R::Create { qid, .. }) | (T::Lcreate { fid, .. }, R::Lcreate { qid, .. }) => {
                self.fids.insert(fid, qid);
            }
            (T::Walk { fid, newfid, wnames }, R::Walk { wqids }) if wqids.len() == wnames.len() => {
                if let Some(qid) = wqids.iter().last().or(self.qid(fid)) {
                    self.fids.insert(newfid, qid);
                }
                self.marked.remove(&newfid);
            }
            (T::Clunk { fid } | T::Remove { fid }, _) => {
                self.fids.remove(&fid);
                self.marked.remove(&fid);
            }
            _ => {}
        }
    }
}
