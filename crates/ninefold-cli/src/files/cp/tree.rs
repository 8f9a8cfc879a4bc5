//! The files of a copy, as many at a time as the user wants: directories are gone into while files are copied.
//!
//! What is to be done is a stack of tasks, and beside it the directories that wait to be gone into, the deepest first. Of each
//! level only so many are open at a time ([`OPEN`]). A directory is read a batch at a time, and read on when its files are
//! under way. When everything in it is done it gets its own attributes.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use ninefold::client::{FileType, Place as Taken, Places, Turn};

use super::cx::{Cx, Record};
use super::dest::{At, Dest, Slot};
use super::facts::Facts;
use super::file::{self, Copied};
use super::part::is_part_name;
use super::source::{Folder, Item, Listed, Listing};
use super::special::Thing;
use super::targets::Top;
use super::trouble::{Cause, Trouble};
use super::turn;
use crate::place::Place;

/// Directories inside one another. A server can put a directory into itself; a tree that programs make by whole paths
/// (PATH_MAX, 4,096 bytes) rarely has a tenth of it.
const LEVELS_MAX: usize = 1000;

/// Directories of each level that are open at a time, the last for all that are deeper: fewer than of the level above, so that
/// those that are in them find a place, too. Where a tree is deeper than places are left, one more is open for each level. Those
/// that the user named are the first.
const OPEN: [usize; 9] = [32, 128, 64, 32, 16, 8, 8, 8, 32];

/// Descriptors that they take at most, on this machine as on a server: two of each, one of them to list it.
pub const DESCRIPTORS: u64 = 2 * (32 + 128 + 64 + 32 + 16 + 8 + 8 + 8 + 32);

/// Tasks that wait for their turn, beyond which no further directory is gone into, nor any read on, while there is anything else
/// to do. One that is gone into or read adds the names that one message holds.
const WAITING_MAX: usize = 1 << 16;

/// A directory that is being copied.
struct Pair {
    source: Folder,
    source_place: Place,
    /// `None` in a dry run, where it would be made.
    dest: Option<Dest>,
    dest_place: Place,
    /// The names from what the user named to here, with `/` between.
    below: Vec<u8>,
    facts: Facts,
    parent: Option<Rc<Pair>>,
    /// Directories that it lies in.
    level: usize,
    /// Tasks that are not done, of this directory and of what is in it.
    pending: Cell<usize>,
    /// What a server has listed so far: a name that comes twice is a trick or a fault.
    listed: RefCell<HashSet<Vec<u8>>>,
    /// `None`: there was none, and nothing else to do.
    open: Option<Open>,
}

/// One of [`OPEN`]; dropped, another directory is gone into, behind what was done in this one.
struct Open {
    _place: Taken,
    /// That of the place, and of no client.
    turn: Turn,
}

impl Pair {
    /// So much of it was done.
    fn done(&self, turn: &Turn) {
        if let Some(open) = &self.open {
            open.turn.join(turn);
        }
    }

    /// Whether a server's directory with these attributes is this one, or one that this lies in: a tree with such a circle
    /// never ends.
    fn is_below_or_at(&self, facts: &Facts) -> bool {
        let Some(metadata) = &facts.metadata else { return false };
        let mut above = std::iter::successors(Some(self), |pair| pair.parent.as_deref());
        above.any(|pair| pair.facts.metadata.as_ref().is_some_and(|above| above.is_of_same_file(metadata)))
    }
}

impl Pair {
    /// Whether a directory of the source is the one that all of this is copied to: by another URL of the server, or by the
    /// path that it has here. Such a copy would be its own source for ever. Name, qid and times lead to the question; what
    /// is made in the one and turns up in the other decides it.
    async fn is_copied_to(&self, cx: &Cx<'_>, item: &mut Item, facts: &Facts) -> Result<bool, Cause> {
        let Some(first) = std::iter::successors(Some(self), |pair| pair.parent.as_deref()).last() else {
            return Ok(false);
        };
        let Some(dest) = &first.dest else { return Ok(false) };
        let is_known = dest.qid().is_some_and(|qid| facts.qid() == Some(qid));
        if !is_known && item.place.name() != first.dest_place.name() {
            return Ok(false);
        }
        Ok(dest.looks_like(item).await? && dest.is(item, &first.dest_place, &cx.how).await?)
    }
}

/// A file or directory to copy.
struct Job {
    item: Item,
    slot: Slot,
    below: Vec<u8>,
}

enum Work {
    Top(Box<Top>),
    Copy(Box<Job>),
    List(Listing),
    Finish,
}

struct Task {
    work: Work,
    /// The directory that it is part of.
    pair: Option<Rc<Pair>>,
    /// If it may be a directory that is to be gone into.
    open: Option<Open>,
}

impl Task {
    fn new(work: Work, pair: Option<Rc<Pair>>) -> Task {
        if let Some(pair) = &pair {
            pair.pending.set(pair.pending.get() + 1);
        }
        Task { work, pair, open: None }
    }
}

/// What came of a task, the directory that it was part of, and its turn.
type Ran = (anyhow::Result<Vec<Task>>, Option<Rc<Pair>>, Turn, Taken);

type Running<'a> = FuturesUnordered<LocalBoxFuture<'a, Ran>>;

/// Tasks that have not begun.
struct Waiting {
    stack: Vec<Task>,
    /// Those that may be directories, by level.
    enters: [Vec<Task>; OPEN.len()],
    places: [Places; OPEN.len()],
}

impl Waiting {
    fn may_find_more(&self) -> bool {
        self.enters.iter().any(|waiting| !waiting.is_empty()) || self.stack.iter().any(Task::may_find_more)
    }

    fn add(&mut self, cx: &Cx<'_>, task: Task) {
        let level = match &task {
            Task { work: Work::Top(_), .. } => Some(0).filter(|_| cx.recursive),
            Task { work: Work::Copy(job), pair: Some(pair), .. } => {
                let may_be_one = job.item.listed.kind.is_none_or(|kind| kind == FileType::Dir);
                Some(pair.level + 1).filter(|_| may_be_one && cx.recursive)
            }
            _ => None,
        };
        match level {
            Some(level) => self.enters[level.min(OPEN.len() - 1)].push(task),
            None => self.stack.push(task),
        }
    }

    fn len(&self) -> usize {
        self.stack.len() + self.enters.iter().map(Vec::len).sum::<usize>()
    }

    /// The next task; `is_idle`: none has begun that is not done.
    fn next(&mut self, turn: &Turn, is_idle: bool) -> Option<(Task, Option<Open>)> {
        let is_full = self.len() > WAITING_MAX;
        let reads_on = self.stack.last().is_some_and(|task| matches!(task.work, Work::List(_)));
        let is_last = is_idle && self.len() == 1;
        if !is_full || self.stack.is_empty() || reads_on {
            for (waiting, places) in self.enters.iter_mut().zip(&self.places).rev() {
                if waiting.last().is_some_and(|task| is_last || !task.waits_for_all())
                    && let before = Turn::new()
                    && let Some(_place) = places.try_acquire(&before)
                {
                    turn.join(&before);
                    return waiting.pop().map(|task| (task, Some(Open { _place, turn: before })));
                }
            }
        }
        if !(is_full && reads_on && !is_idle)
            && let Some(task) = self.stack.pop_if(|task| is_idle || !task.waits_for_all())
        {
            return Some((task, None));
        }
        // Every directory waits for one that is in it.
        if !is_idle {
            return None;
        }
        self.enters.iter_mut().rev().find_map(Vec::pop).map(|task| (task, None))
    }
}

/// Copies everything, `jobs` at a time. An error is one of standard output.
pub async fn copy(cx: &Cx<'_>, tops: Vec<Top>, jobs: usize) -> anyhow::Result<()> {
    let mut waiting = Waiting { stack: Vec::new(), enters: Default::default(), places: OPEN.map(Places::new) };
    for top in tops.into_iter().rev() {
        waiting.add(cx, Task::new(Work::Top(Box::new(top)), None));
    }
    let mut running: Running<'_> = FuturesUnordered::new();
    let places = Places::new(jobs);
    loop {
        while !cx.lost.get() && waiting.len() > 0 {
            let turn = Turn::new();
            if running.len() >= jobs {
                // None is free: who gets the next one has waited for it.
                drop(places.try_acquire(&turn));
                break;
            }
            let Some((mut task, open)) = waiting.next(&turn, running.is_empty()) else { break };
            let place = places.acquire(&turn).await;
            if !waiting.may_find_more() && !task.may_find_more() {
                cx.progress.all_found();
            }
            task.open = open;
            let its = turn.clone();
            running.push(Box::pin(turn::run(turn, async move {
                let done = task.part_of();
                (run(cx, task).await, done, its, place)
            })));
        }
        let Some((more, pair, turn, place)) = running.next().await else { return Ok(()) };
        drop(place);
        more?.into_iter().for_each(|task| waiting.add(cx, task));
        settle(&mut waiting.stack, pair, &turn);
    }
}

impl Task {
    /// The directory that has one task less when this is done.
    fn part_of(&self) -> Option<Rc<Pair>> {
        match (&self.work, &self.pair) {
            (Work::Finish, Some(pair)) => pair.parent.clone(),
            (_, pair) => pair.clone(),
        }
    }

    fn waits_for_all(&self) -> bool {
        matches!(&self.work, Work::Top(top) if top.waits_for_all)
    }

    fn may_find_more(&self) -> bool {
        match &self.work {
            Work::Top(_) | Work::List(_) => true,
            // Of what is no directory the size is found when its turn comes.
            Work::Copy(_) => true,
            Work::Finish => false,
        }
    }
}

/// A task of a directory is done. Behind the last one the directory is.
fn settle(stack: &mut Vec<Task>, pair: Option<Rc<Pair>>, turn: &Turn) {
    let Some(pair) = pair else { return };
    pair.done(turn);
    pair.pending.set(pair.pending.get() - 1);
    if pair.pending.get() == 0 {
        stack.push(Task { work: Work::Finish, pair: Some(pair), open: None });
    }
}

async fn run(cx: &Cx<'_>, task: Task) -> anyhow::Result<Vec<Task>> {
    let Task { work, pair, open } = task;
    match (work, pair) {
        (Work::Top(top), _) => {
            let places = (top.source.clone(), top.slot.place.clone());
            match top.item(cx).await {
                Ok((item, slot)) => entry(cx, Job { item, slot, below: Vec::new() }, None, open).await,
                Err(trouble) => cx.failed(&places.0, &places.1, &trouble).await.map(|()| Vec::new()),
            }
        }
        (Work::Copy(job), pair) => entry(cx, *job, pair, open).await,
        (Work::List(listing), Some(pair)) => list(cx, listing, &pair).await,
        (Work::Finish, Some(pair)) => finish(cx, &pair).await,
        (Work::List(_) | Work::Finish, None) => Ok(Vec::new()),
    }
}

async fn entry(cx: &Cx<'_>, job: Job, pair: Option<Rc<Pair>>, open: Option<Open>) -> anyhow::Result<Vec<Task>> {
    let began = Instant::now();
    let (source, place) = (job.item.place.clone(), job.slot.place.clone());
    let result = match attempt(cx, job, pair, open).await {
        Ok(Attempt::Directory(tasks, record)) => {
            cx.done(&record).await?;
            return Ok(tasks);
        }
        Ok(Attempt::LeftOut) => Ok(()),
        Ok(Attempt::Done(mut record)) => {
            if record.took.is_zero() {
                record.took = began.elapsed();
            }
            cx.done(&record).await
        }
        Err(trouble) => cx.failed(&source, &place, &trouble).await,
    };
    result.map(|()| Vec::new())
}

enum Attempt {
    Directory(Vec<Task>, Record),
    LeftOut,
    Done(Record),
}

async fn attempt(cx: &Cx<'_>, mut job: Job, pair: Option<Rc<Pair>>, open: Option<Open>) -> Result<Attempt, Trouble> {
    let source = job.item.place.clone();
    let kind = job.item.kind().await.map_err(Trouble::of(&source, "cannot look at it"))?;
    let wanted = match &pair {
        Some(pair) => wanted(cx, pair, &job.below, kind).map_err(Trouble::of(&source, ""))?,
        // What the user named is itself its path below what is copied; a directory's is empty.
        None => kind == FileType::Dir || cx.filter.takes(&source.name().unwrap_or_default(), false),
    };
    if !wanted {
        if pair.is_none() {
            cx.warn(format_args!("{source}: not copied: --include and --exclude leave it out"));
        }
        return Ok(Attempt::LeftOut);
    }
    // What a program writes, and the user named: `cp <(date) URL`, `cp /dev/stdin URL`.
    let is_stream = kind == FileType::Fifo && !cx.recursive && matches!(source, Place::Local(_));
    let open = open.filter(|_| kind == FileType::Dir);
    match kind {
        FileType::Dir if cx.recursive => directory(cx, job, pair, open).await,
        FileType::Dir => Err(Trouble::new(&source, "", Cause::words("it is a directory: give -r to copy it"))),
        _ if kind == FileType::File || is_stream => match file::copy(cx, job.item, &job.slot).await? {
            Copied::Done(record) => Ok(Attempt::Done(record)),
            Copied::Special(facts) => special(cx, &source, None, &job.slot, &facts).await,
        },
        _ => {
            let facts = job.item.facts().await.map_err(Trouble::of(&source, "cannot look at it"))?;
            special(cx, &source, Some(job.item), &job.slot, &facts).await
        }
    }
}

/// A link, device, fifo or socket, which is copied as what it is.
async fn special(
    cx: &Cx<'_>,
    source: &Place,
    item: Option<Item>,
    slot: &Slot,
    facts: &Facts,
) -> Result<Attempt, Trouble> {
    let wrong = |words: &str| Err(Trouble::new(source, "", Cause::words(words)));
    if !cx.recursive {
        return wrong("it is no plain file: only -r copies devices, fifos and sockets, as what they are");
    }
    let record = Record::new(source, &slot.place, facts.kind);
    let what = match (facts.kind, item) {
        (FileType::Dir, _) => return wrong("it became a directory while it was copied"),
        (FileType::Symlink, Some(item)) => {
            Thing::Link(item.read_link().await.map_err(Trouble::of(source, "cannot read the link"))?)
        }
        (FileType::Symlink, None) => return wrong("it became a link while it was copied"),
        _ => Thing::Special,
    };
    if cx.dry_run {
        return Ok(Attempt::Done(record));
    }
    let At::Entry(dest, name) = &slot.at else { return wrong("a pipe or device cannot take it") };
    let put = dest.put(&slot.place, name, &what, facts, &cx.how).await;
    let not_preserved = put.map_err(Trouble::of(&slot.place, "cannot make it"))?;
    cx.not_preserved(&slot.place, not_preserved);
    cx.progress.file_done();
    Ok(Attempt::Done(record))
}

/// Makes a directory and begins to read the one that it is a copy of.
async fn directory(
    cx: &Cx<'_>,
    mut job: Job,
    parent: Option<Rc<Pair>>,
    open: Option<Open>,
) -> Result<Attempt, Trouble> {
    let source_place = job.item.place.clone();
    let facts = job.item.facts().await.map_err(Trouble::of(&source_place, "cannot look at it"))?;
    refuse_itself(cx, &source_place, &facts)?;
    let level = parent.as_ref().map_or(0, |parent| parent.level + 1);
    if let Some(parent) = &parent {
        let is_copied_to = parent.is_copied_to(cx, &mut job.item, &facts).await;
        let why = if parent.is_below_or_at(&facts) {
            "it is a directory that it lies in"
        } else if is_copied_to.map_err(Trouble::of(&source_place, "cannot look at it"))? {
            "a directory is not copied into itself"
        } else if level > LEVELS_MAX {
            "it lies in more than 1,000 directories inside one another: is it in itself?"
        } else {
            ""
        };
        if !why.is_empty() {
            return Err(Trouble::new(&source_place, "", Cause::words(why)));
        }
    }
    let dest_place = job.slot.place.clone();
    let make = async {
        let made = match &job.slot.at {
            At::Entry(dest, name) if name.is_empty() => Ok(Some(dest.clone())),
            At::Entry(dest, name) if cx.dry_run => dest.open_dir(name).await,
            At::Entry(dest, name) => dest.make_dir(name, &facts, &cx.how).await.map(Some),
            At::Nowhere => Ok(None),
            At::Direct(_) => Err(Cause::words("what has its name is no directory")),
        };
        made.map_err(Trouble::of(&dest_place, "cannot make the directory"))
    };
    let list = async { job.item.list().await.map_err(Trouble::of(&source_place, "cannot read the directory")) };
    let (dest, listed) = tokio::join!(make, list);
    let (dest, (folder, listing)) = (dest?, listed?);
    if let (None, Some(Dest::There(dir)), Place::Remote(address)) = (&parent, &dest, &dest_place) {
        cx.roots.borrow_mut().push((address.place.clone(), dir.node.qid().path));
    }
    let record = Record::new(&source_place, &dest_place, FileType::Dir);
    let pair = Rc::new(Pair {
        source: folder,
        source_place,
        dest,
        dest_place,
        below: job.below,
        facts,
        // It is part of the directory above until everything in it is done.
        parent: parent.inspect(|parent| parent.pending.set(parent.pending.get() + 1)),
        level,
        pending: Cell::new(0),
        listed: RefCell::default(),
        open,
    });
    Ok(Attempt::Directory(vec![Task::new(Work::List(listing), Some(pair))], record))
}

/// A copy of a directory into itself would never end.
fn refuse_itself(cx: &Cx<'_>, source: &Place, facts: &Facts) -> Result<(), Trouble> {
    let (Place::Remote(address), Some(qid)) = (source, facts.qid()) else { return Ok(()) };
    if cx.roots.borrow().iter().any(|(place, root)| *place == address.place && *root == qid) {
        return Err(Trouble::new(source, "", Cause::words("a directory is not copied into itself")));
    }
    Ok(())
}

/// The next names of a directory.
async fn list(cx: &Cx<'_>, listing: Listing, pair: &Rc<Pair>) -> anyhow::Result<Vec<Task>> {
    if let Folder::There(dir) = &pair.source {
        turn::follow(dir.client());
    }
    let (entries, rest) = match listing.batch().await {
        Ok(batch) => batch,
        Err(cause) => {
            let trouble = Trouble::new(&pair.source_place, "cannot read the directory to its end", cause);
            cx.failed(&pair.source_place, &pair.dest_place, &trouble).await?;
            return Ok(Vec::new());
        }
    };
    let mut tasks = Vec::with_capacity(entries.len() + 1);
    if let Some(rest) = rest {
        tasks.push(Task::new(Work::List(rest), Some(pair.clone())));
    }
    for (name, listed) in entries.into_iter().rev() {
        let (source, place) = (pair.source_place.join(&name), pair.dest_place.join(&name));
        match job(pair, &name, listed, source.clone(), place.clone()) {
            Ok(job) => tasks.push(Task::new(Work::Copy(Box::new(job)), Some(pair.clone()))),
            Err(cause) => cx.failed(&source, &place, &Trouble::new(&source, "", cause)).await?,
        }
    }
    Ok(tasks)
}

fn job(pair: &Rc<Pair>, name: &[u8], listed: Listed, source: Place, place: Place) -> Result<Job, Cause> {
    let separator: &[u8] = if pair.below.is_empty() { b"" } else { b"/" };
    let below = [&pair.below, separator, name].concat();
    let at = pair.dest.clone().map_or(At::Nowhere, |dest| At::Entry(dest, name.to_vec()));
    Ok(Job { item: pair.source.item(source, name, listed)?, slot: Slot { place, at }, below })
}

/// Whether a name that a directory lists is to be copied.
fn wanted(cx: &Cx<'_>, pair: &Pair, below: &[u8], kind: FileType) -> Result<bool, Cause> {
    if !cx.filter.takes(below, kind == FileType::Dir) {
        return Ok(false);
    }
    let name = below.rsplit(|&b| b == b'/').next().unwrap_or(below);
    if is_part_name(name) {
        return Err(Cause::words("it looks like what an interrupted copy left: copy it alone, or --exclude it"));
    }
    if matches!(pair.source, Folder::There(_)) && !pair.listed.borrow_mut().insert(name.to_vec()) {
        return Err(Cause::words("the server listed it twice in one directory: only the first is copied"));
    }
    Ok(true)
}

/// Everything in a directory is done.
async fn finish(cx: &Cx<'_>, pair: &Rc<Pair>) -> anyhow::Result<Vec<Task>> {
    pair.done(&turn::now());
    if !cx.dry_run
        && !cx.lost.get()
        && let Some(dest) = &pair.dest
        && let Err(cause) = dest.finish_dir(&pair.facts, &cx.how).await
    {
        cx.not_preserved(&pair.dest_place, Some(cause));
    }
    Ok(Vec::new())
}
