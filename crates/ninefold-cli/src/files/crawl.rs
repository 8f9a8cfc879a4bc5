//! A tree gone through, many requests at a time, through no symbolic link: for `rm -r`, `chmod -R`, `chown -R`.
//!
//! A [`Visitor`] is shown each directory before what it holds, then its entries, then the directory again. Of each
//! directory the server is believed the names and no more: an entry is reached by one walk of one name from a fid of the
//! directory that was listed, so that neither a link nor a name leads elsewhere.
//!
//! Depth decides how many round trips a tree takes, as long as the bounds below are not met; where one is, who waits counts
//! as caused by who made room. A directory that one message does not hold is read on while its first entries are worked on:
//! what is kept of it does not grow with it. Only where the server may pass over entries while others are removed, as one of
//! another dialect than `.n1`, it is read to its end first.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use ninefold::client::{Client, Entry, Error, FileType, Node, Place, Places, ReadDir, Sight, Visited};
use ninefold::proto::Errno;
use ninefold::transport::Address;

use super::are_same_file;
use super::target::Target;

/// Steps under way at a time. A step is one to three requests; the session takes 1,024 calls at a time
/// ([`Limits`](ninefold::proto::client::Limits)), which fill a link of 50 ms with 20,000 requests a second.
const AT_A_TIME: usize = 1024;

/// Directories of each level that are held open at a time, each by a fid: half as many as of the level above, so that those that
/// are in them find a place, too. All levels together come to 584, and where a tree is deeper, to one more for each level: a
/// server holds one or two descriptors for each, of which a process has 1,024 where nobody has raised that.
const LEVELS: [usize; 17] = [1, 200, 100, 50, 25, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 32];

/// Entries that wait for their turn, beyond which no further directory is gone into, nor any read on that has entries left: about
/// 100 bytes each. Those that are being gone into by then add what they hold: by `.n1` the entries of one message each, else all.
const WAITING_MAX: usize = 1 << 16;

/// Entries of a directory that are left when more of it is read: more than are under way at a time.
const READ_ON_BELOW: usize = 2 * AT_A_TIME;

/// Directories in directories that are followed. Linux reaches 2,048 with one path (PATH_MAX); a server that goes deeper
/// than this goes on for ever.
const DEPTH_MAX: usize = 4096;

/// What is to be known of a directory: names, and what is a directory.
pub const SIGHT: Sight = Sight { attributes: false, alone: false };

/// What is done to a tree. Each method complains of its failures itself and tells whether all went well. What it asks the server
/// counts as caused by the replies that `client` knows of, and it has the client know of those that came.
pub trait Visitor {
    /// Whether a directory may be listed before anything else is done to it: then [`Visitor::enter`] is not called.
    fn lists_at_once(&self, client: &Client) -> bool;
    /// A directory, before its entries; `node` is it.
    async fn enter(&self, at: &Target, node: &Node) -> Way;
    /// Anything else.
    async fn file(&self, at: &Target, kind: FileType, client: &Client) -> bool;
    /// A directory, after its entries; not called when any of them failed.
    async fn leave(&self, at: &Target, client: &Client) -> bool;
    /// What stood in the way of a directory; whether it counts as done all the same, so that those that it is in are left.
    fn failed(&self, at: &Target, tried: &'static str, error: Error) -> bool;
}

/// What to do about a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Its entries are next, then [`Visitor::leave`].
    In,
    /// It is done.
    Past,
    /// It failed, and so did whatever it is in.
    Failed,
}

/// Goes through the tree at `start`, a directory; `begun`: it was listed already.
pub async fn crawl<V: Visitor>(visitor: &V, start: Target, begun: Option<Visited>) {
    let client = begun.as_ref().map_or_else(|| start.dir.client().clone(), |visited| visited.node.client().clone());
    let mut crawl = Crawl {
        visitor,
        dirs: Vec::new(),
        free: Vec::new(),
        files: Vec::new(),
        enters: Vec::new(),
        places: Places::new(AT_A_TIME),
        dir_places: LEVELS.map(Places::new),
        last: client.fork(),
        held_back: false,
        under_way: FuturesUnordered::new(),
    };
    crawl.enters.push(Enter::Start(Box::new((start, begun, client.clone()))));
    crawl.run().await;
    // What follows the tree follows from all that was done in it.
    client.join(&crawl.last);
}

/// A directory that has entries left.
struct Dir {
    at: Target,
    /// Its own, for what is in it.
    address: Address,
    /// The directory that it is in, and that waits for it.
    above: Option<usize>,
    depth: usize,
    node: Arc<Node>,
    /// Knows of the replies that brought its entries.
    client: Client,
    /// Knows of what became of them, too.
    ended: Client,
    /// What is not read yet; `None` also while it is being read.
    more: Option<Box<ReadDir>>,
    /// Entries that are not done with, and one for what is being read.
    left: usize,
    all_well: bool,
    /// `None`: there was none, and it was gone into because nothing else was to be done.
    place: Option<Place>,
}

/// A directory to go into.
enum Enter {
    Start(Box<(Target, Option<Visited>, Client)>),
    Of { name: Vec<u8>, above: usize },
}

/// What is done without holding another directory.
enum Step {
    File { name: Vec<u8>, kind: FileType, above: usize },
    More { above: usize, more: Box<ReadDir> },
    Leave(Box<Dir>),
}

/// A directory that was gone into, and what was read of it.
struct Held {
    node: Arc<Node>,
    entries: Vec<Entry>,
    more: Option<Box<ReadDir>>,
}

enum Done {
    /// A directory and what it holds.
    Entered(Box<Dir>, Vec<Entry>),
    /// A directory that might have been one that it is in, and is not.
    Cleared(Box<Dir>, Vec<Entry>),
    /// More of a directory.
    Read {
        above: usize,
        more: Box<ReadDir>,
        first: Result<Option<Entry>, Error>,
    },
    Ended {
        above: Option<usize>,
        well: bool,
        client: Client,
    },
}

/// The place of a step comes back with what came of it.
type UnderWay<'v> = LocalBoxFuture<'v, (Done, Place)>;

struct Crawl<'v, V> {
    visitor: &'v V,
    /// By number; those done with are free for others.
    dirs: Vec<Option<Dir>>,
    free: Vec<usize>,
    files: Vec<Step>,
    /// The last first: deep before wide, so that few directories are open at a time.
    enters: Vec<Enter>,
    places: Places,
    /// Of each level; the last are for all that are deeper.
    dir_places: [Places; LEVELS.len()],
    /// Knows of all that was done.
    last: Client,
    /// A directory was not gone into because too much waited: what is, is caused by what made room.
    held_back: bool,
    under_way: FuturesUnordered<UnderWay<'v>>,
}

impl<'v, V: Visitor> Crawl<'v, V> {
    async fn run(&mut self) {
        loop {
            // Directories first: what is in them is known a round trip later.
            while self.go_in() {}
            while self.go_on() {}
            let Some((done, place)) = self.under_way.next().await else { return };
            match done {
                Done::Ended { above, well, client } => {
                    self.last.join(&client);
                    drop(place);
                    self.ended(above, well, &client);
                }
                Done::Entered(dir, entries) => {
                    let alike = self.with_its_qid(&dir);
                    if alike.is_empty() {
                        drop(place);
                        self.entered(*dir, entries);
                    } else {
                        self.under_way.push(Box::pin(compare(self.visitor, dir, entries, alike, place)));
                    }
                }
                Done::Cleared(dir, entries) => {
                    drop(place);
                    self.entered(*dir, entries);
                }
                Done::Read { above, more, first } => {
                    drop(place);
                    self.read(above, more, first);
                }
            }
        }
    }

    /// Begins to go into the next directory, if there is room.
    fn go_in(&mut self) -> bool {
        let Some(next) = self.enters.pop() else { return false };
        let is_idle = self.under_way.is_empty() && self.files.is_empty();
        // Of directories alone there is nothing but to go into one.
        if self.is_full() && !self.files.is_empty() {
            self.held_back = true;
            self.enters.push(next);
            return false;
        }
        let (client, depth) = match &next {
            Enter::Start(start) => (start.2.fork(), 0),
            Enter::Of { above, .. } => match &self.dirs[*above] {
                Some(dir) => (dir.client.fork(), dir.depth + 1),
                None => return true,
            },
        };
        if std::mem::take(&mut self.held_back) {
            client.join(&self.last);
        }
        let dir_place = self.dir_places[depth.min(LEVELS.len() - 1)].try_acquire(&client);
        if dir_place.is_none() && !is_idle {
            self.enters.push(next);
            return false;
        }
        let Some(place) = self.places.try_acquire(&client) else {
            self.enters.push(next);
            return false;
        };
        let (at, above, begun) = match next {
            Enter::Start(start) => {
                let (at, begun, _) = *start;
                (at, None, begun)
            }
            Enter::Of { name, above } => match &self.dirs[above] {
                Some(dir) => (dir.target(name), Some(above), None),
                None => return true,
            },
        };
        let entering = Entering { at, above, depth, client, dir_place };
        self.under_way.push(Box::pin(enter(self.visitor, entering, begun, place)));
        true
    }

    /// Begins the next step that needs no directory, if there is a place for it.
    fn go_on(&mut self) -> bool {
        let Some(step) = self.files.pop() else { return false };
        let client = match &step {
            Step::File { above, .. } | Step::More { above, .. } => match &self.dirs[*above] {
                Some(dir) => dir.client.fork(),
                None => return true,
            },
            Step::Leave(dir) => dir.ended.fork(),
        };
        let Some(place) = self.places.try_acquire(&client) else {
            self.files.push(step);
            return false;
        };
        let visitor = self.visitor;
        self.under_way.push(match step {
            Step::File { name, kind, above } => {
                let Some(dir) = &self.dirs[above] else { return true };
                let at = dir.target(name);
                Box::pin(async move {
                    let well = visitor.file(&at, kind, &client).await;
                    (Done::Ended { above: Some(above), well, client }, place)
                })
            }
            Step::More { above, mut more } => Box::pin(async move {
                more.join(&client);
                let first = more.next().await;
                (Done::Read { above, more, first }, place)
            }),
            Step::Leave(dir) => Box::pin(async move {
                let Dir { at, above, client: entered, place: dir_place, node, .. } = *dir;
                // Its fid goes before the directory does.
                drop(node);
                let well = visitor.leave(&at, &client).await;
                entered.join(&client);
                drop(dir_place);
                (Done::Ended { above, well, client }, place)
            }),
        });
        true
    }

    fn entered(&mut self, dir: Dir, entries: Vec<Entry>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.dirs.push(None);
            self.dirs.len() - 1
        });
        self.dirs[number] = Some(dir);
        self.add(number, entries);
    }

    /// Whether so many entries wait for their turn that no more are read where there is a choice.
    fn is_full(&self) -> bool {
        self.files.len() + self.enters.len() > WAITING_MAX
    }

    /// What was read of a directory waits for its turn from now on; one that has nothing left is left.
    fn add(&mut self, number: usize, entries: Vec<Entry>) {
        let Some(dir) = &mut self.dirs[number] else { return };
        dir.left += entries.len();
        for Entry { name, kind, .. } in entries {
            match kind {
                FileType::Dir => self.enters.push(Enter::Of { name, above: number }),
                kind => self.files.push(Step::File { name, kind, above: number }),
            }
        }
        if let Some((above, client)) = self.settle(number) {
            self.ended(above, false, &client);
        }
    }

    /// Reads more of a directory, or leaves it, if it is time. What it is in, when it has failed and is done with, and what knows of
    /// all that was done in it.
    fn settle(&mut self, number: usize) -> Option<(Option<usize>, Client)> {
        let is_full = self.is_full();
        let dir = self.dirs[number].as_mut()?;
        if (dir.left == 0 || (dir.left < READ_ON_BELOW && !is_full))
            && let Some(more) = dir.more.take()
        {
            // Where nothing has ended yet it knows of nothing more.
            more.join(&dir.ended);
            dir.left += 1;
            self.files.push(Step::More { above: number, more });
            return None;
        }
        if dir.left > 0 {
            return None;
        }
        self.free.push(number);
        let dir = self.dirs[number].take()?;
        if dir.all_well {
            self.files.push(Step::Leave(Box::new(dir)));
            return None;
        }
        let Dir { above, client, ended, .. } = dir;
        client.join(&ended);
        Some((above, ended))
    }

    /// More of a directory was read, or could not be.
    fn read(&mut self, number: usize, mut more: Box<ReadDir>, first: Result<Option<Entry>, Error>) {
        let Some(dir) = &mut self.dirs[number] else { return };
        dir.left -= 1;
        let mut entries = Vec::with_capacity(more.ready() + 1);
        match first {
            Ok(first) => {
                entries.extend(first);
                entries.extend(std::iter::from_fn(|| more.next_read()));
                dir.more = Some(more).filter(|more| !more.is_read());
            }
            Err(e) => dir.all_well &= self.visitor.failed(&dir.at, "cannot list it", e),
        }
        self.add(number, entries);
    }

    /// The directories above whose qid is the same: it may be one of them, by a link that 9P2000 does not show or by a server
    /// gone wrong; or the server exports several file systems as one tree, as diod does, and numbers them alike.
    fn with_its_qid(&self, dir: &Dir) -> Vec<Arc<Node>> {
        let mut alike = Vec::new();
        let mut above = dir.above;
        while let Some(Some(at)) = above.map(|number| &self.dirs[number]) {
            if at.node.qid().path == dir.node.qid().path {
                alike.push(at.node.clone());
            }
            above = at.above;
        }
        alike
    }

    /// One entry less; with the last one that failed all that it is in is done with, level by level.
    fn ended(&mut self, mut above: Option<usize>, mut well: bool, client: &Client) {
        let mut client = client.clone();
        while let Some(number) = above {
            let Some(dir) = &mut self.dirs[number] else { return };
            dir.left -= 1;
            dir.all_well &= well;
            dir.ended.join(&client);
            let Some(failed) = self.settle(number) else { return };
            (above, client) = failed;
            well = false;
        }
    }
}

impl Dir {
    fn target(&self, name: Vec<u8>) -> Target {
        Target { dir: self.node.clone(), name, address: self.address.clone() }
    }
}

/// A directory that is being gone into.
struct Entering {
    at: Target,
    above: Option<usize>,
    depth: usize,
    client: Client,
    dir_place: Option<Place>,
}

/// Fails a directory that is one of those `alike`, which it is in.
async fn compare<V: Visitor>(
    visitor: &V,
    dir: Box<Dir>,
    entries: Vec<Entry>,
    alike: Vec<Arc<Node>>,
    place: Place,
) -> (Done, Place) {
    for above in alike {
        if are_same_file(&dir.node, &above).await {
            let well = visitor.failed(&dir.at, "it is a directory that it is in", Errno::ELOOP.into());
            return (Done::Ended { above: dir.above, well, client: dir.client }, place);
        }
    }
    (Done::Cleared(dir, entries), place)
}

async fn enter<V: Visitor>(visitor: &V, entering: Entering, begun: Option<Visited>, place: Place) -> (Done, Place) {
    let Entering { at, above, depth, client, dir_place } = entering;
    match look_in(visitor, &at, depth, &client, begun).await {
        Ok(Held { node, entries, more }) => {
            let (address, ended) = (at.own_address(), client.fork());
            let dir =
                Dir { at, address, above, depth, node, client, ended, more, left: 0, all_well: true, place: dir_place };
            (Done::Entered(Box::new(dir), entries), place)
        }
        Err(well) => (Done::Ended { above, well, client }, place),
    }
}

/// What a directory holds, or whether all went well without going in.
async fn look_in<V: Visitor>(
    visitor: &V,
    at: &Target,
    depth: usize,
    client: &Client,
    begun: Option<Visited>,
) -> Result<Held, bool> {
    let failed = |tried: &'static str, e: Error| visitor.failed(at, tried, e);
    if depth > DEPTH_MAX {
        return Err(failed("more than 4096 directories deep", Errno::ELOOP.into()));
    }
    let visited = match begun {
        Some(visited) => visited,
        None if visitor.lists_at_once(client) && !at.name.is_empty() => {
            at.dir.visit_as(client, &at.name, SIGHT).await.map_err(|e| failed("cannot go into it", e))?
        }
        None => {
            let node = at.walk_as(client).await.map_err(|e| failed("cannot go into it", e))?;
            match visitor.enter(at, &node).await {
                Way::In => node.list_as(client, SIGHT).await.map_err(|e| failed("cannot list it", e))?,
                Way::Past => return Err(true),
                Way::Failed => return Err(false),
            }
        }
    };
    let Visited { node, entries, .. } = visited;
    let held = async {
        let mut reading = entries?;
        if !client.version().is_n1() {
            return Ok((reading.all().await?, None));
        }
        // The first piece, if it is not there yet.
        let first = reading.next().await?;
        let entries = first.into_iter().chain(std::iter::from_fn(|| reading.next_read())).collect();
        Ok((entries, Some(Box::new(reading)).filter(|reading| !reading.is_read())))
    };
    let (entries, more) = held.await.map_err(|e| failed("cannot list it", e))?;
    Ok(Held { node, entries, more })
}
