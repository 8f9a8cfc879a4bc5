//! A tree gone through, many requests at a time, through no symbolic link: for `rm -r`, `chmod -R`, `chown -R`.
//!
//! A [`Visitor`] is shown each directory before what it holds, then its entries, then the directory again. Of each
//! directory the server is believed the names and no more: an entry is reached by one walk of one name from a fid of the
//! directory that was listed, so that neither a link nor a name leads elsewhere.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use ninefold::client::{Error, FileType, Node};
use ninefold::proto::Errno;

use super::are_same_file;
use super::target::Target;

/// Steps under way at a time. A step is one to three requests; 64 fill a link of 100 ms with 2,000 requests a second.
const AT_A_TIME: usize = 64;

/// Directories in directories that are followed. Linux reaches 2,048 with one path (PATH_MAX); a server that goes deeper
/// than this goes on for ever.
const DEPTH_MAX: usize = 4096;

/// What is done to a tree. Each method complains of its failures itself and tells whether all went well.
pub trait Visitor {
    /// A directory, before its entries; `node` is it.
    async fn enter(&self, at: &Target, node: &Node) -> Way;
    /// Anything else.
    async fn file(&self, at: &Target, kind: FileType) -> bool;
    /// A directory, after its entries; not called when any of them failed.
    async fn leave(&self, at: &Target) -> bool;
    /// What stood in the way of a directory.
    fn failed(&self, at: &Target, tried: &'static str, error: Error);
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

/// Goes through the tree at `start`, a directory.
pub async fn crawl<V: Visitor>(visitor: &V, start: Target) {
    let mut crawl =
        Crawl { visitor, dirs: Vec::new(), free: Vec::new(), todo: Vec::new(), under_way: FuturesUnordered::new() };
    crawl.todo.push(Step::Enter { at: start, above: None, depth: 0 });
    crawl.run().await;
}

/// A directory that has entries left.
struct Dir {
    at: Target,
    /// The directory that it is in, and that waits for it.
    above: Option<usize>,
    depth: usize,
    node: Arc<Node>,
    left: usize,
    all_well: bool,
}

enum Step {
    Enter { at: Target, above: Option<usize>, depth: usize },
    File { at: Target, kind: FileType, above: usize },
    Leave(Dir),
}

/// A directory's node, and its entries.
type Held = (Arc<Node>, Vec<(Vec<u8>, FileType)>);

enum Done {
    /// A directory and what it holds.
    Entered {
        at: Target,
        above: Option<usize>,
        depth: usize,
        held: Held,
    },
    /// A directory that might have been one that it is in, and is not.
    Cleared(Dir, Vec<(Vec<u8>, FileType)>),
    Ended {
        above: Option<usize>,
        well: bool,
    },
}

struct Crawl<'v, V> {
    visitor: &'v V,
    /// By number; those done with are free for others.
    dirs: Vec<Option<Dir>>,
    free: Vec<usize>,
    /// The last first: deep before wide, so that few directories are open at a time.
    todo: Vec<Step>,
    under_way: FuturesUnordered<LocalBoxFuture<'v, Done>>,
}

impl<'v, V: Visitor> Crawl<'v, V> {
    async fn run(&mut self) {
        loop {
            while self.under_way.len() < AT_A_TIME
                && let Some(step) = self.todo.pop()
            {
                self.under_way.push(Box::pin(take(self.visitor, step)));
            }
            match self.under_way.next().await {
                None => return,
                Some(Done::Ended { above, well }) => self.ended(above, well),
                Some(Done::Entered { at, above, depth, held: (node, entries) }) => {
                    let dir = Dir { at, above, depth, node, left: entries.len(), all_well: true };
                    let alike = self.with_its_qid(&dir);
                    if alike.is_empty() {
                        self.entered(dir, entries);
                    } else {
                        self.under_way.push(Box::pin(compare(self.visitor, dir, entries, alike)));
                    }
                }
                Some(Done::Cleared(dir, entries)) => self.entered(dir, entries),
            }
        }
    }

    fn entered(&mut self, dir: Dir, entries: Vec<(Vec<u8>, FileType)>) {
        if entries.is_empty() {
            self.todo.push(Step::Leave(dir));
            return;
        }
        let (depth, node) = (dir.depth + 1, dir.node.clone());
        let address = dir.at.own_address();
        let number = self.free.pop().unwrap_or_else(|| {
            self.dirs.push(None);
            self.dirs.len() - 1
        });
        self.dirs[number] = Some(dir);
        for (name, kind) in entries {
            let at = Target { dir: node.clone(), name, address: address.clone() };
            self.todo.push(match kind {
                FileType::Dir => Step::Enter { at, above: Some(number), depth },
                kind => Step::File { at, kind, above: number },
            });
        }
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

    /// One entry less; the last one ends its directory.
    fn ended(&mut self, above: Option<usize>, well: bool) {
        let Some(number) = above else { return };
        let Some(dir) = &mut self.dirs[number] else { return };
        dir.left -= 1;
        dir.all_well &= well;
        if dir.left > 0 {
            return;
        }
        self.free.push(number);
        let Some(dir) = self.dirs[number].take() else { return };
        if dir.all_well { self.todo.push(Step::Leave(dir)) } else { self.ended(dir.above, false) }
    }
}

/// Fails a directory that is one of those `alike`, which it is in.
async fn compare<V: Visitor>(visitor: &V, dir: Dir, entries: Vec<(Vec<u8>, FileType)>, alike: Vec<Arc<Node>>) -> Done {
    for above in alike {
        if are_same_file(&dir.node, &above).await {
            visitor.failed(&dir.at, "it is a directory that it is in", Errno::ELOOP.into());
            return Done::Ended { above: dir.above, well: false };
        }
    }
    Done::Cleared(dir, entries)
}

async fn take<V: Visitor>(visitor: &V, step: Step) -> Done {
    match step {
        Step::File { at, kind, above } => Done::Ended { above: Some(above), well: visitor.file(&at, kind).await },
        Step::Leave(dir) => Done::Ended { above: dir.above, well: visitor.leave(&dir.at).await },
        Step::Enter { at, above, depth } => match enter(visitor, &at, depth).await {
            Ok(held) => Done::Entered { at, above, depth, held },
            Err(well) => Done::Ended { above, well },
        },
    }
}

/// What a directory holds, or whether all went well without going in.
async fn enter<V: Visitor>(visitor: &V, at: &Target, depth: usize) -> Result<Held, bool> {
    let failed = |tried: &'static str, e: Error| {
        visitor.failed(at, tried, e);
        false
    };
    if depth > DEPTH_MAX {
        return Err(failed("more than 4096 directories deep", Errno::ELOOP.into()));
    }
    let node = at.walk().await.map_err(|e| failed("cannot go into it", e))?;
    match visitor.enter(at, &node).await {
        Way::In => {}
        Way::Past => return Err(true),
        Way::Failed => return Err(false),
    }
    let entries = async { node.read_dir().await?.all().await };
    let entries = entries.await.map_err(|e| failed("cannot list it", e))?;
    Ok((Arc::new(node), entries.into_iter().map(|entry| (entry.name, entry.kind)).collect()))
}
