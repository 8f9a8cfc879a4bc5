//! From a path to a node: walks of any length, and symbolic links.

use std::collections::VecDeque;

use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::{Errno, Qid, QidType};

use super::chain::Promise;
use super::client::Client;
use super::error::Error;
use super::file::File;
use super::nameop::Base;
use super::node::{Node, Start, Walked};
use super::put::{Draft, Making, Said};

/// What to do about a symbolic link at the end of a path; on the way all are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Go on to what it points to.
    All,
    /// Stay at the link itself.
    NotLast,
}

/// Links that one path may go through (path_resolution(7)).
pub(crate) const LINKS_MAX: usize = 40;

/// Times that one path may go back by `..` in the targets of its links: more than any tree made by hand asks for.
const RESTARTS_MAX: usize = 4 * LINKS_MAX;

/// The names of a path: empty ones and `.` are nothing, `..` takes the one before it, at the root nothing.
pub fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(Name::new(name)?.as_bytes().to_vec()),
        }
    }
    Ok(names)
}

pub(super) async fn walk(client: &Client, path: &[u8], follow: Follow) -> Result<Node, Error> {
    walk_names(Base::root(client), components(path)?, follow).await
}

/// A step of a path that is not walked yet.
#[derive(Debug)]
enum Step {
    Name(Vec<u8>),
    Parent,
}

/// An absolute target of a link starts at the base, and `..` goes no higher.
pub(crate) async fn walk_names(base: Base<'_>, names: Vec<Vec<u8>>, follow: Follow) -> Result<Node, Error> {
    let steps = names.into_iter().map(Step::Name).collect();
    Ok(walk_steps(base, steps, follow, &mut 0).await?.0)
}

/// Where a file really is, behind all symbolic links.
#[derive(Debug)]
pub struct Located {
    /// The directory that holds it.
    pub dir: Node,
    /// The names from the root of the tree to the directory, none of them a link.
    pub dir_path: Vec<Vec<u8>>,
    /// Its name there, which need not exist.
    pub name: Vec<u8>,
    /// The file, if there is one.
    pub found: Option<Node>,
}

/// The same where no link is on the way, by one group of two walks, with the file of `draft` where nothing is; `None`: it is to be done step by step, and
/// nothing was made.
async fn locate_at_once(
    client: &Client,
    names: &[Vec<u8>],
    draft: Option<&Draft<'_>>,
) -> Result<Option<(Located, Option<File>)>, Error> {
    let Some((name, above)) = names.split_last() else { return Ok(None) };
    let slices: Vec<&[u8]> = above.iter().map(Vec::as_slice).collect();
    if !client.version().is_n1() || client.fitting(&slices).len() < slices.len() || slices.len() > MAXWELEM {
        return Ok(None);
    }
    let mut chain = client.chain();
    let said = draft.map(|draft| Said::begin(client, &chain, draft.parts)).transpose()?;
    let (dir, walked_dir) = chain.walk_root(&slices).await?;
    let guard = match &said {
        // The walk to the name, that to the directory for the file, and its making.
        Some(said) => Some(chain.unless(3 + said.members()).await?),
        None => None,
    };
    let (spot, walked) = chain.walk_spot(&dir, &[name]).await?;
    let made = match (draft, said) {
        (Some(draft), Some(said)) => {
            let (file, cloned) = chain.walk_spot(&dir, &[]).await?;
            Some((cloned, Making::ask(&mut chain, file, draft.part, draft.perm, said).await?))
        }
        _ => None,
    };
    let (walked_dir, guarded) = (walked_dir.take().await, take_if(guard).await);
    let (walked, made) = (walked.take().await, take_made(made).await?);
    // What is wrong with the path comes first.
    let walked_dir = walked_dir?;
    guarded?;
    let qid = match walked_dir.last() {
        Some(&qid) if walked_dir.len() == slices.len() && qid.is_dir() => qid,
        None if slices.is_empty() => client.attached().await?.qid,
        _ => return Ok(None),
    };
    let (found, made) = match walked {
        Ok(walked) => match walked.last() {
            Some(qid) if qid.kind.has(QidType::SYMLINK) => return Ok(None),
            Some(&qid) => (Some(spot.into_node(qid)?), None),
            None => return Ok(None),
        },
        Err(e) if e.is_not_found() => (None, made),
        Err(e) => return Err(e),
    };
    let located = Located { dir: dir.into_node(qid)?, dir_path: above.to_vec(), name: name.clone(), found };
    Ok(Some((located, made)))
}

async fn take_if(guard: Option<Promise<()>>) -> Result<(), Error> {
    match guard {
        Some(guard) => guard.take().await,
        None => Ok(()),
    }
}

/// The file if it was made; dropped, it is removed.
async fn take_made(made: Option<(Promise<Vec<Qid>>, Making)>) -> Result<Option<File>, Error> {
    let Some((cloned, making)) = made else { return Ok(None) };
    // Without it nothing was made, and that tells why.
    drop(cloned);
    match making.take().await {
        Ok(mut file) => {
            file.remove_on_drop();
            Ok(Some(file))
        }
        Err(Error::Refused(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) async fn locate(client: &Client, path: &[u8]) -> Result<Located, Error> {
    locate_or_make(client, path, None).await.map(|(located, _)| located)
}

/// See [`Client::locate_or_make`].
pub(super) async fn locate_or_make(
    client: &Client,
    path: &[u8],
    draft: Option<&Draft<'_>>,
) -> Result<(Located, Option<File>), Error> {
    let names = components(path)?;
    if let Some(found) = locate_at_once(client, &names, draft).await? {
        return Ok(found);
    }
    locate_by_steps(client, names).await.map(|located| (located, None))
}

async fn locate_by_steps(client: &Client, names: Vec<Vec<u8>>) -> Result<Located, Error> {
    let mut steps: VecDeque<Step> = names.into_iter().map(Step::Name).collect();
    let mut links = 0;
    loop {
        let name = match steps.pop_back() {
            Some(Step::Name(name)) => name,
            // A link's target that ends in `..` or at the root: a directory.
            _ => return Err(Errno::EISDIR.into()),
        };
        let (dir, mut dir_path) = walk_steps(Base::root(client), steps, Follow::All, &mut links).await?;
        let link = match dir.walk(&[&name]).await {
            Ok(node) if node.qid().kind.has(QidType::SYMLINK) => node,
            Ok(node) => return Ok(Located { dir, dir_path, name, found: Some(node) }),
            Err(e) if e.is_not_found() => return Ok(Located { dir, dir_path, name, found: None }),
            Err(e) => return Err(e),
        };
        let target = follow_link(&link, &mut links).await?;
        if target.starts_with(b"/") {
            dir_path.clear();
        }
        steps = dir_path.into_iter().map(Step::Name).collect();
        steps.extend(target_steps(&target)?);
    }
}

/// The target of a link that a path goes through, the `links`th.
async fn follow_link(link: &Node, links: &mut usize) -> Result<Vec<u8>, Error> {
    *links += 1;
    if *links > LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    link.read_link().await
}

fn target_steps(target: &[u8]) -> Result<Vec<Step>, Error> {
    let parts = target.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let step = |part: &[u8]| match part {
        b".." => Ok(Step::Parent),
        name => Ok(Step::Name(Name::new(name)?.as_bytes().to_vec())),
    };
    parts.map(step).collect()
}

/// The node, and the names from the root to it, none of them a link before the last.
async fn walk_steps(
    base: Base<'_>,
    mut left: VecDeque<Step>,
    follow: Follow,
    links: &mut usize,
) -> Result<(Node, Vec<Vec<u8>>), Error> {
    // The names from the root to `at`, none of them a link: `..` of a link's target may be taken from it.
    let mut trail: Vec<Vec<u8>> = Vec::new();
    let mut at: Option<Node> = None;
    let mut restarts = 0;
    loop {
        if let Some(Step::Parent) = left.front() {
            if at.as_ref().is_some_and(|node| !node.qid().is_dir()) {
                return Err(Errno::ENOTDIR.into());
            }
            // All of them at once: each walk from the root is a round trip or more, and a target may be full of them.
            restarts += 1;
            if restarts > RESTARTS_MAX {
                return Err(Error::TooManyLinks);
            }
            while let Some(Step::Parent) = left.front() {
                left.pop_front();
                trail.pop();
            }
            restart(&mut trail, &mut at, &mut left);
            continue;
        }
        let names: Vec<&[u8]> = left
            .iter()
            .map_while(|step| match step {
                Step::Name(name) => Some(name.as_slice()),
                Step::Parent => None,
            })
            .collect();
        if names.is_empty() {
            let node = match at {
                Some(node) => node,
                None => base.start().await?.walk(&[]).await?,
            };
            return Ok((node, trail));
        }
        let from = match &at {
            Some(node) => node.start(),
            None => base.start().await?,
        };
        let (node, count) = advance(from, &names).await?;
        let is_last = count == left.len();
        let taken = left.drain(..count).filter_map(|step| match step {
            Step::Name(name) => Some(name),
            Step::Parent => None,
        });
        trail.extend(taken);
        if !node.qid().kind.has(QidType::SYMLINK) || (is_last && follow == Follow::NotLast) {
            at = Some(node);
            continue;
        }
        let target = follow_link(&node, links).await?;
        trail.pop();
        if target.starts_with(b"/") {
            trail.clear();
        }
        for step in target_steps(&target)?.into_iter().rev() {
            left.push_front(step);
        }
        restart(&mut trail, &mut at, &mut left);
    }
}

/// Walks as many of `names` as go into one walk, and no further than the first link: the file that was reached, and how many.
pub(crate) async fn advance(from: Start<'_>, names: &[&[u8]]) -> Result<(Node, usize), Error> {
    let names = from.fitting(names);
    match from.walk_some(names).await? {
        Walked::Whole(node) => Ok((node, names.len())),
        Walked::Part(qids) if ends_at_link(&qids) => Ok((from.walk(&names[..qids.len()]).await?, qids.len())),
        Walked::Part(qids) => {
            // The walk tells where it ended but not why: the next name alone is asked for.
            let reached = from.walk(&names[..qids.len()]).await?;
            reached.walk(&names[qids.len()..=qids.len()]).await?;
            // It exists by now.
            Ok((reached, qids.len()))
        }
    }
}

/// Whether a walk ended because its last name is a link, through which no server goes.
fn ends_at_link(qids: &[Qid]) -> bool {
    qids.last().is_some_and(|qid| qid.kind.has(QidType::SYMLINK))
}

/// Goes to the end of the trail again, from the root.
fn restart(trail: &mut Vec<Vec<u8>>, at: &mut Option<Node>, left: &mut VecDeque<Step>) {
    *at = None;
    for name in trail.drain(..).rev() {
        left.push_front(Step::Name(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_of_a_path_never_reach_a_server() {
        let names = |path: &str| -> Vec<String> {
            let names = components(path.as_bytes()).unwrap();
            names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
        };
        assert_eq!(names("//a/./b//c/"), ["a", "b", "c"]);
        assert_eq!(names("/a/../../b/c/.."), ["b"]);
        assert!(names("/..").is_empty());
        assert!(matches!(components(&[b'x'; 256]), Err(Error::Name(_))));
        assert!(matches!(components(b"a\0b"), Err(Error::Name(_))));
    }
}
