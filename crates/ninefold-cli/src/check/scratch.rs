//! The directory that the suite works in: made under the address's path, and removed with all that is in it.
//!
//! Names that a server lists are removed only beneath that directory, and only when they are names. The suite makes symbolic
//! links in dialects that do not follow them in walks, and has one directory for each dialect: removing never leads out.

use std::rc::Rc;
use std::time::Duration;

use ninefold::proto::message::{Names, T};
use ninefold::proto::{Dialect, Fid};

use super::conn::{Conn, Shared};
use super::cx::{Cx, MSIZE, Target, go};
use super::talk::{READ, without_dots};
use super::verdict::End;

/// Directories within each other that are removed; the cases make 18.
const DEPTH_MAX: u32 = 64;

/// Requests on the way while files are removed.
const AT_A_TIME: usize = 32;

/// The directory that the address names.
const PARENT: Fid = Fid(2);

/// The directory that is removed.
const DOOMED: Fid = Fid(3);

/// The names from the root of the tree to the scratch directory.
pub type Path = Vec<Vec<u8>>;

async fn connect(target: &Rc<Target>, dialect: Dialect, patience: Duration) -> Result<Conn, End> {
    let mut cx = Cx::new(target.clone(), dialect, Shared::new(patience), Vec::new(), String::new());
    let mut conn = cx.attached_with(MSIZE).await?;
    go(&mut conn, &target.path(), PARENT).await?;
    conn.restart_clock();
    Ok(conn)
}

/// Attaches and walks to the address's path: what every other case relies on.
pub async fn look(target: &Rc<Target>, dialect: Dialect, patience: Duration) -> Result<(), End> {
    connect(target, dialect, patience).await.map(drop)
}

/// Why there is no directory to work in.
#[derive(Debug)]
pub enum NoPlace {
    /// The server refuses to make one, as it may.
    Refused(String),
    /// It answers what no server may answer.
    Broken(End),
}

impl From<End> for NoPlace {
    fn from(end: End) -> NoPlace {
        NoPlace::Broken(end)
    }
}

/// Makes the directory `name`, unless it is there.
pub async fn make(target: &Rc<Target>, dialect: Dialect, name: &str, patience: Duration) -> Result<(), NoPlace> {
    let mut conn = connect(target, dialect, patience).await?;
    if !conn.exists(PARENT, name.as_bytes()).await? {
        let answer = conn.mkdir(PARENT, name.as_bytes()).await?;
        if let Some(refusal) = answer.frame.refusal() {
            return Err(NoPlace::Refused(refusal.told()));
        }
    }
    Ok(())
}

/// Removes it, if it is there, with all that is in it.
pub async fn remove(target: &Rc<Target>, dialect: Dialect, path: &Path, patience: Duration) -> Result<(), End> {
    let mut conn = connect(target, dialect, patience).await?;
    let Some(name) = path.last() else { return Ok(()) };
    let answer = conn.walk(PARENT, DOOMED, &[name]).await?;
    if answer.frame.is_error() {
        return Ok(());
    }
    empty(&mut conn, DOOMED, 0).await?;
    conn.remove(DOOMED).await?.ok().map(drop)
}

/// Removes what is in the directory that `dfid` stands for.
async fn empty(conn: &mut Conn, dfid: Fid, depth: u32) -> Result<(), End> {
    if depth >= DEPTH_MAX {
        return Err(End::fail(format!("no more than {DEPTH_MAX} directories within each other"), "more"));
    }
    let listing = Fid(100 + depth);
    conn.reach(dfid, listing, &[]).await?;
    conn.open(listing, READ).await?.ok()?;
    let count = conn.io_size();
    let names = without_dots(conn.entries_from(listing, 0, count).await?);
    conn.clunk(listing).await?.ok()?;
    for part in names.chunks(AT_A_TIME) {
        conn.restart_clock();
        let fids: Vec<Fid> = (0..part.len() as u32).map(|i| Fid(1_000 * (depth + 1) + i)).collect();
        let mut scratch: Vec<Vec<u8>> = part.iter().map(|_| Vec::new()).collect();
        let walks: Vec<T<'_>> = fids
            .iter()
            .zip(part)
            .zip(&mut scratch)
            .map(|((&newfid, name), scratch)| T::Walk {
                fid: dfid,
                newfid,
                wnames: Names::encode([name.as_slice()], scratch),
            })
            .collect();
        let mut removals = Vec::new();
        for (answer, &fid) in conn.ask_all(&walks).await?.into_iter().zip(&fids) {
            // Gone meanwhile, by whoever else: nothing to do.
            let Some(qid) = answer.frame.wqids().first().copied() else { continue };
            if qid.is_dir() {
                Box::pin(empty(conn, fid, depth + 1)).await?;
            }
            removals.push(T::Remove { fid });
        }
        for answer in conn.ask_all(&removals).await? {
            answer.ok()?;
        }
    }
    Ok(())
}
