//! From a path to a node: walks of any length, and symbolic links.

use std::collections::VecDeque;

use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::{Qid, QidType};

use super::client::Client;
use super::error::Error;
use super::node::{Node, Walked};

/// What to do about a symbolic link at the end of a path; on the way all are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Go on to what it points to.
    All,
    /// Stay at the link itself.
    NotLast,
}

/// Links that one path may go through (path_resolution(7)).
const LINKS_MAX: usize = 40;

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
    walk_names(client, components(path)?, follow).await
}

/// A step of a path that is not walked yet.
#[derive(Debug)]
enum Step {
    Name(Vec<u8>),
    Parent,
}

pub(super) async fn walk_names(client: &Client, names: Vec<Vec<u8>>, follow: Follow) -> Result<Node, Error> {
    let mut left: VecDeque<Step> = names.into_iter().map(Step::Name).collect();
    // The names from the root to `at`, none of them a link: `..` of a link's target may be taken from it.
    let mut trail: Vec<Vec<u8>> = Vec::new();
    let mut at: Option<Node> = None;
    let mut links = 0;
    loop {
        if let Some(Step::Parent) = left.front() {
            left.pop_front();
            trail.pop();
            restart(&mut trail, &mut at, &mut left);
            continue;
        }
        let names: Vec<&[u8]> = left
            .iter()
            .map_while(|step| match step {
                Step::Name(name) => Some(name.as_slice()),
                Step::Parent => None,
            })
            .take(MAXWELEM)
            .collect();
        if names.is_empty() {
            return match at {
                Some(node) => Ok(node),
                None => client.start().walk(&[]).await,
            };
        }
        let from = at.as_ref().map_or_else(|| client.start(), Node::start);
        let walked = from.walk_some(&names).await?;
        let (node, count) = match walked {
            Walked::Whole(node) => (node, names.len()),
            Walked::Part(qids) if ends_at_link(&qids) => (from.walk(&names[..qids.len()]).await?, qids.len()),
            Walked::Part(qids) => {
                // The walk tells where it ended but not why: the next name alone is asked for.
                let reached = from.walk(&names[..qids.len()]).await?;
                reached.walk(&names[qids.len()..=qids.len()]).await?;
                // It exists by now.
                (reached, qids.len())
            }
        };
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
        links += 1;
        if links > LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let target = node.read_link().await?;
        trail.pop();
        if target.starts_with(b"/") {
            trail.clear();
        }
        for part in target.split(|&b| b == b'/').rev() {
            match part {
                b"" | b"." => {}
                b".." => left.push_front(Step::Parent),
                name => left.push_front(Step::Name(Name::new(name)?.as_bytes().to_vec())),
            }
        }
        restart(&mut trail, &mut at, &mut left);
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
