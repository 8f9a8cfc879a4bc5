//! The directories of a tree, each before those in it, as ls -R, find and du visit them: [`Tree::next`] gives their
//! listings in that order, while it reads those that come next, so that a tree takes a few round trips a level and not
//! a few a directory.
//!
//! Bounded are the directories read ahead, the requests on the way in each, the levels, and the directories waiting.
//! Every directory is walked to from the one that it was found in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::{BoxFuture, join};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use ninefold::client::{Client, Error, FileType, Looked, Metadata, Node, Places, Sight, Suspicion, Visited};
use ninefold::proto::Qid;

use crate::files::are_same_file;
use crate::report::Failure;

/// Directories that are read at a time. By .n1 each takes one round trip; elsewhere it takes five, or seven with the attributes of
/// its entries, and holds two fids beside theirs.
const READING_MAX: usize = 128;

/// Directories, and entries in them, that were read and wait for their turn; a directory may hold a fid meanwhile.
const READY_MAX: usize = 256;
const READY_ENTRIES_MAX: usize = 1 << 16;

/// Entries of one directory whose attributes are asked for at a time, each with a fid of its own: two round trips for so
/// many, 2,560 a second at a delay of 50 ms. Four such directories fill all of a session's calls
/// ([`Limits`](ninefold::proto::client::Limits)).
const ENTRIES_AT_A_TIME: usize = 256;

/// Directories inside one another. A server can put a directory into itself; a tree that programs make by whole paths
/// (PATH_MAX, 4,096 bytes) rarely has a tenth of it.
const LEVELS_MAX: usize = 1000;

/// What is to be known of the entries.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub attributes: bool,
    /// Where symbolic links point to.
    pub targets: bool,
    /// Names that begin with a dot.
    pub hidden: bool,
    /// `.` and `..`.
    pub dots: bool,
    /// By their bytes; else in the server's order.
    pub sorted: bool,
    /// Levels of directories below the first that are read too.
    pub levels: usize,
}

impl Wants {
    /// How a directory is to be visited, `alone` if it is the only one that is.
    pub fn sight(&self, alone: bool) -> Sight {
        Sight { attributes: self.attributes, alone }
    }
}

/// What is known of a file.
#[derive(Debug)]
pub enum Attributes {
    NotAsked,
    Known(Box<Metadata>),
    Failed(Error),
}

/// Where a symbolic link points to, if that was asked for.
type Target = Option<Result<Vec<u8>, Error>>;

/// An entry of a directory.
#[derive(Debug)]
pub struct Item {
    pub name: Vec<u8>,
    pub kind: FileType,
    pub qid: Qid,
    pub attributes: Attributes,
    pub target: Target,
    /// It is a directory whose listing [`Tree::next`] gives when its turn comes.
    pub descends: bool,
}

impl Item {
    pub fn metadata(&self) -> Option<&Metadata> {
        match &self.attributes {
            Attributes::Known(metadata) => Some(metadata),
            _ => None,
        }
    }
}

/// A directory.
#[derive(Debug)]
pub struct Listing {
    /// Its path below the first: empty, or names with `/` between them.
    pub below: Vec<u8>,
    pub items: Vec<Item>,
    /// Why there is not all of it.
    pub trouble: Option<Trouble>,
}

/// Why a directory is not listed to its end.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It lies deeper than [`LEVELS_MAX`].
    TooDeep,
    /// It is one of the directories that it lies in.
    InItself,
    /// More directories wait to be visited than [`ninefold::client::Options::dir_entries_max`].
    TooMany(usize),
    /// It could not be opened: nothing of it is known.
    Open(Error),
    /// It could not be read to its end.
    Read(Error),
}

impl Trouble {
    /// It came when the directory was open: what its listing holds is in it.
    pub fn came_later(&self) -> bool {
        matches!(self, Trouble::TooMany(_) | Trouble::Read(_))
    }

    /// As a person is told.
    pub fn of(self, file: String) -> Complaint {
        Complaint { file, trouble: self }
    }
}

/// A [`Trouble`] with the name of its directory.
#[derive(Debug)]
pub struct Complaint {
    file: String,
    trouble: Trouble,
}

impl Complaint {
    /// Nothing more will come from this server: see [`is_over`].
    pub fn is_over(&self) -> bool {
        matches!(&self.trouble, Trouble::Open(e) | Trouble::Read(e) if is_over(e))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = |tried, e: &Error| Failure::new(&self.file, tried, e.clone());
        let file = crate::report::Printable(&self.file);
        match &self.trouble {
            Trouble::Open(e) => failure("cannot open directory", e).fmt(f),
            Trouble::Read(e) => failure("cannot read directory", e).fmt(f),
            Trouble::TooDeep => {
                write!(f, "{file}: not read: more than {LEVELS_MAX} directories inside one another: is it in itself?")
            }
            Trouble::InItself => write!(f, "{file}: not read: it is a directory that it lies in"),
            Trouble::TooMany(most) => {
                write!(f, "{file}: the directories in it are not read: more than {most} wait to be")
            }
        }
    }
}

/// Whether asking the server for more files is in vain: it is gone, or does not answer in time.
pub fn is_over(error: &Error) -> bool {
    error.is_fatal() || matches!(error, Error::TimedOut(_))
}

/// A directory that others are walked to from.
#[derive(Debug)]
struct Dir {
    node: Arc<Node>,
    /// The one that it lies in.
    above: Option<Arc<Dir>>,
    below: Vec<u8>,
    level: usize,
}

/// How to come to a directory.
#[derive(Debug)]
enum Way {
    First(Box<Visited>),
    From(Arc<Dir>, Vec<u8>),
}

#[derive(Debug)]
enum State {
    Waiting(Way),
    Reading,
    Ready(Listing, Client),
}

impl Way {
    /// What the directory that it leads from was read with.
    fn client(&self) -> &Client {
        match self {
            Way::First(visited) => visited.node.client(),
            Way::From(parent, _) => parent.node.client(),
        }
    }
}

/// A directory not yet given, in a list in the order of the visit.
#[derive(Debug)]
struct Slot {
    level: usize,
    state: State,
    next: Option<u64>,
}

/// What reading a directory came to.
struct Loaded {
    listing: Listing,
    /// What it was read with: a lane of its own (see [`Client::fork`]).
    client: Client,
    /// `None` if it could not be opened.
    dir: Option<Arc<Dir>>,
}

/// See the module.
pub struct Tree {
    wants: Wants,
    waiting_max: usize,
    /// Knows of the replies that brought the directories given.
    client: Client,
    slots: HashMap<u64, Slot>,
    first: Option<u64>,
    last_id: u64,
    /// Slots that are ready, and their entries.
    ready: (usize, usize),
    /// Too much was ready: what is read next waited for one that was given.
    waited: bool,
    /// Of directories that are being read.
    places: Places,
    reading: FuturesUnordered<BoxFuture<'static, (u64, Loaded)>>,
}

impl Tree {
    /// The tree below a directory that was visited with [`Wants::sight`].
    pub fn new(visited: Visited, wants: Wants) -> Tree {
        let client = visited.node.client().clone();
        let waiting_max = client.options().dir_entries_max;
        let first = Slot { level: 0, state: State::Waiting(Way::First(Box::new(visited))), next: None };
        Tree {
            wants,
            waiting_max,
            client,
            slots: HashMap::from([(0, first)]),
            first: Some(0),
            last_id: 0,
            ready: (0, 0),
            waited: false,
            places: Places::new(READING_MAX),
            reading: FuturesUnordered::new(),
        }
    }

    /// The next directory; `None` when all were given.
    pub async fn next(&mut self) -> Option<Listing> {
        loop {
            self.read_ahead();
            let id = self.first?;
            let slot = self.slots.get_mut(&id)?;
            if let State::Ready(..) = slot.state {
                return match self.take_slot()?.state {
                    State::Ready(listing, client) => {
                        self.client.join(&client);
                        Some(listing)
                    }
                    _ => None,
                };
            }
            let (id, loaded) = self.reading.next().await?;
            self.arrived(id, loaded);
        }
    }

    /// Leaves out the next directory and all below it.
    pub fn skip(&mut self) {
        let Some(skipped) = self.take_slot() else { return };
        while self.first.and_then(|id| self.slots.get(&id)).is_some_and(|slot| slot.level > skipped.level) {
            self.take_slot();
        }
    }

    fn take_slot(&mut self) -> Option<Slot> {
        let slot = self.slots.remove(&self.first?)?;
        self.first = slot.next;
        if let State::Ready(listing, _) = &slot.state {
            self.ready = (self.ready.0 - 1, self.ready.1 - listing.items.len());
        }
        Some(slot)
    }

    /// Starts to read those that come next. The first is read whatever else is.
    fn read_ahead(&mut self) {
        let mut at = self.first;
        while let Some(id) = at {
            let is_full = self.ready.0 >= READY_MAX || self.ready.1 >= READY_ENTRIES_MAX;
            if is_full && self.first != at {
                self.waited = true;
                return;
            }
            let Some(slot) = self.slots.get_mut(&id) else { return };
            let State::Waiting(way) = &slot.state else {
                at = slot.next;
                continue;
            };
            let (wants, client) = (self.wants, way.client().fork());
            let place = self.places.try_acquire(&client);
            if place.is_none() && self.first != at {
                return;
            }
            at = slot.next;
            if self.waited {
                client.join(&self.client);
            }
            if let State::Waiting(way) = std::mem::replace(&mut slot.state, State::Reading) {
                self.reading.push(Box::pin(async move {
                    let loaded = load(way, client, wants).await;
                    drop(place);
                    (id, loaded)
                }));
            }
        }
        self.waited = false;
    }

    fn arrived(&mut self, id: u64, Loaded { mut listing, client, dir }: Loaded) {
        // It may have been skipped.
        let Some(slot) = self.slots.get(&id) else { return };
        let (mut next, level) = (slot.next, slot.level + 1);
        let descending = listing.items.iter().filter(|item| item.descends).count();
        if self.slots.len() + descending > self.waiting_max {
            listing.items.iter_mut().for_each(|item| item.descends = false);
            listing.trouble.get_or_insert(Trouble::TooMany(self.waiting_max));
        }
        if let Some(dir) = dir {
            // From the last to the first, so that each knows who comes after it.
            for item in listing.items.iter().rev().filter(|item| item.descends) {
                self.last_id += 1;
                let state = State::Waiting(Way::From(dir.clone(), item.name.clone()));
                self.slots.insert(self.last_id, Slot { level, state, next });
                next = Some(self.last_id);
            }
        }
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.next = next;
            self.ready = (self.ready.0 + 1, self.ready.1 + listing.items.len());
            slot.state = State::Ready(listing, client);
        }
    }
}

/// A name in the directory at `below`.
pub fn path(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

async fn load(way: Way, client: Client, wants: Wants) -> Loaded {
    let (below, level) = match &way {
        Way::First(_) => (Vec::new(), 0),
        Way::From(parent, name) => (path(&parent.below, name), parent.level + 1),
    };
    let failed = |below, trouble| {
        let listing = Listing { below, items: Vec::new(), trouble: Some(trouble) };
        Loaded { listing, client: client.clone(), dir: None }
    };
    if level > LEVELS_MAX {
        return failed(below, Trouble::TooDeep);
    }
    let (visited, above) = match way {
        Way::First(visited) => (Ok(*visited), None),
        Way::From(parent, name) => (parent.node.visit_as(&client, &name, wants.sight(false)).await, Some(parent)),
    };
    let Visited { node, entries, .. } = match visited {
        Ok(visited) => visited,
        Err(e) => return failed(below, Trouble::Open(e)),
    };
    // What came is the first one's own.
    client.join(node.client());
    if is_above(&node, above.as_ref()).await {
        return failed(below, Trouble::InItself);
    }
    let mut reading = match entries {
        Ok(reading) => reading,
        Err(e) => return failed(below, Trouble::Open(e)),
    };
    let mut items = if wants.dots { dots(&node) } else { Vec::new() };
    let trouble = loop {
        let entry = match reading.next().await {
            Ok(Some(entry)) => entry,
            Ok(None) => break None,
            Err(e) => break Some(Trouble::Read(e)),
        };
        if entry.name.starts_with(b".") && !wants.hidden {
            continue;
        }
        let known = entry.metadata.filter(|_| wants.attributes);
        items.push(Item {
            descends: entry.kind == FileType::Dir && level < wants.levels,
            name: entry.name,
            kind: entry.kind,
            qid: entry.qid,
            target: known.as_ref().and_then(|metadata| metadata.link_target.clone()).map(Ok),
            attributes: known.map_or(Attributes::NotAsked, Attributes::Known),
        });
    };
    drop(reading);
    client.join(node.client());
    if let Some(Trouble::Read(Error::Suspect(Suspicion::EndlessDirectory(_) | Suspicion::LoopingDirectory))) = trouble {
        // Millions of names, or the same ones many times, each perhaps a directory of that kind again.
        items.clear();
    }
    if wants.sorted {
        items.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if wants.attributes {
        items = complete_all(&node, items, wants.targets).await;
    }
    let listing = Listing { below: below.clone(), items, trouble };
    Loaded { listing, client, dir: Some(Arc::new(Dir { node, above, below, level })) }
}

/// Asks for what the listing did not tell. Unlike [`Node::list`] it leaves out what is not listed, and asks for the
/// targets of links beside their attributes.
async fn complete_all(dir: &Node, items: Vec<Item>, targets: bool) -> Vec<Item> {
    // The first error after which more need not be asked: each would cost the time of its timeout.
    let over = OnceLock::new();
    let asked = stream::iter(items).map(|item| complete(dir, dir.client().fork(), item, targets, &over));
    let mut asked = std::pin::pin!(asked.buffered(ENTRIES_AT_A_TIME));
    let mut all = Vec::new();
    while let Some((item, client)) = asked.next().await {
        // Whatever is asked for next waited for this one.
        dir.client().join(&client);
        all.push(item);
    }
    all
}

/// Whether a directory is one of those that it lies in: fts(3) calls that a cycle.
async fn is_above(node: &Node, above: Option<&Arc<Dir>>) -> bool {
    let mut next = above;
    while let Some(dir) = next {
        next = dir.above.as_ref();
        if dir.node.qid().path == node.qid().path && are_same_file(node, &dir.node).await {
            return true;
        }
    }
    false
}

/// `.` and `..`, as ls -a has them.
fn dots(node: &Node) -> Vec<Item> {
    let item = |name: &[u8]| Item {
        name: name.to_vec(),
        kind: FileType::Dir,
        qid: node.qid(),
        attributes: Attributes::NotAsked,
        target: None,
        descends: false,
    };
    vec![item(b"."), item(b"..")]
}

async fn complete(dir: &Node, client: Client, mut item: Item, targets: bool, over: &OnceLock<Error>) -> (Item, Client) {
    // A target that did not come with the rest, or was none, is asked for: it comes with its error.
    let wants_target = targets && item.kind == FileType::Symlink && item.target.is_none();
    if let (Attributes::Known(_), false) = (&item.attributes, wants_target) {
        return (item, client);
    }
    let asked = match over.get() {
        Some(error) => Err(error.clone()),
        None => ask(dir, &client, &item, targets).await,
    };
    match asked {
        Ok((metadata, target)) => {
            item.attributes = Attributes::Known(Box::new(metadata));
            item.target = target;
        }
        Err(error) => {
            if is_over(&error) {
                // It may be another's by now, which is as good.
                let _ = over.set(error.clone());
            }
            item.attributes = Attributes::Failed(error);
        }
    }
    (item, client)
}

async fn ask(dir: &Node, client: &Client, item: &Item, targets: bool) -> Result<(Metadata, Target), Error> {
    // A directory is another fid's without any name.
    let name = Some(item.name.as_slice()).filter(|name| *name != b".");
    if client.version().is_n1() {
        let Looked { metadata, target } = dir.look_as(client, name).await?;
        return Ok((metadata, target));
    }
    let names: Vec<&[u8]> = name.into_iter().collect();
    let node = dir.walk_as(client, &names).await?;
    let wants_target = targets && item.kind == FileType::Symlink;
    let target = async { if wants_target { Some(node.read_link().await) } else { None } };
    let (metadata, target) = join(node.metadata(), target).await;
    Ok((metadata?, target))
}

/// What was looked at, by a name that it is known by.
pub fn looked(looked: Looked, name: Vec<u8>) -> Item {
    let Looked { metadata, target } = looked;
    let (kind, qid) = (metadata.kind, metadata.qid);
    Item { name, kind, qid, attributes: Attributes::Known(Box::new(metadata)), target, descends: false }
}

/// The file itself, by a name that it is known by.
pub async fn single(node: &Node, name: Vec<u8>, targets: bool) -> Result<Item, Error> {
    let metadata = node.metadata().await?;
    let target = match (metadata.kind, &metadata.link_target) {
        (FileType::Symlink, Some(target)) => Some(Ok(target.clone())),
        (FileType::Symlink, None) if targets => Some(node.read_link().await),
        _ => None,
    };
    let (kind, qid) = (metadata.kind, metadata.qid);
    Ok(Item { name, kind, qid, attributes: Attributes::Known(Box::new(metadata)), target, descends: false })
}
