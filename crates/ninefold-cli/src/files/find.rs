//! `ninefold find`: as find(1) prints, directories in the server's order.

use std::os::unix::ffi::OsStrExt;

use ninefold::client::{Error, FileType, Follow, Visited};

use super::World;
use super::look::json;
use super::look::names::Names;
use super::look::pattern::Pattern;
use super::look::tree::{self, Attributes, Item, Tree, Wants, is_over, path};
use crate::args::Find;
use crate::failure::Usage;
use crate::given::{self, Remote};
use crate::out::Out;
use crate::report::Failure;

pub async fn run(args: Find, world: &World) -> anyhow::Result<()> {
    let given = given::remote(args.urls.clone(), "find")?;
    let pattern = args.name.as_ref().map(|name| Pattern::new(name.as_bytes())).transpose();
    let pattern = pattern.map_err(|e| Usage::error(format!("--name: {e}")))?;
    let mut find = Finder { args, world, pattern, names: Names::for_stdout(), out: Out::new() };
    for given in &given {
        find.below(given).await?;
    }
    Ok(find.out.finish().await?)
}

struct Finder<'w> {
    args: Find,
    world: &'w World,
    pattern: Option<Pattern>,
    names: Names,
    out: Out,
}

/// A directory that is being visited: its path, and what is left of it.
type Frame = (Vec<u8>, std::vec::IntoIter<Item>);

impl Finder<'_> {
    async fn below(&mut self, given: &Remote) -> anyhow::Result<()> {
        let json = self.args.json;
        let levels = self.args.maxdepth.unwrap_or(usize::MAX).saturating_sub(1);
        let wants = Wants { attributes: json, targets: json, hidden: true, dots: false, sorted: false, levels };
        let look = async {
            let mut visited = given.visit(self.world, Follow::NotLast, wants.sight(true)).await?;
            let item = self.first(given, &mut visited).await.map_err(|e| given.failed("cannot access", e))?;
            Ok((visited, item))
        };
        let (visited, item) = match look.await {
            Ok(found) => found,
            Err::<_, Failure>(failure) => {
                self.world.report.complain(failure);
                return Ok(());
            }
        };
        let is_dir = item.kind == FileType::Dir;
        self.visit(given, b"", &item, 0).await?;
        if !is_dir || self.args.maxdepth == Some(0) {
            return Ok(());
        }
        let mut tree = Tree::new(visited, wants);
        let mut frames: Vec<Frame> = Vec::new();
        // The first directory is entered without having been found in one.
        let mut enters = true;
        loop {
            if enters {
                self.out.pause().await?;
                let Some(listing) = tree.next().await else { return Ok(()) };
                if let Some(trouble) = listing.trouble {
                    let complaint = trouble.of(given.join_text(&listing.below));
                    self.world.report.complain(&complaint);
                    if complaint.is_over() {
                        return Ok(());
                    }
                }
                frames.push((listing.below, listing.items.into_iter()));
            }
            enters = false;
            let depth = frames.len();
            let Some((below, items)) = frames.last_mut() else { return Ok(()) };
            let Some(item) = items.next() else {
                frames.pop();
                continue;
            };
            let path = path(below, &item.name);
            self.visit(given, &path, &item, depth).await?;
            if let Attributes::Failed(e) = &item.attributes
                && is_over(e)
            {
                return Ok(());
            }
            enters = item.descends;
        }
    }

    /// The file that a word names.
    async fn first(&self, given: &Remote, visited: &mut Visited) -> Result<Item, Error> {
        let node = &visited.node;
        let (qid, kind) = (node.qid(), FileType::from_qid(node.qid().kind));
        // A qid alone does not tell a device from a file.
        if self.args.json || (!self.args.kinds.is_empty() && kind == FileType::File) {
            return match visited.looked.take() {
                Some(looked) => Ok(tree::looked(looked, given.name())),
                None => tree::single(node, given.name(), true).await,
            };
        }
        Ok(Item { name: given.name(), kind, qid, attributes: Attributes::NotAsked, target: None, descends: false })
    }

    /// Prints a file if it is one of those wanted.
    async fn visit(&mut self, given: &Remote, below: &[u8], item: &Item, depth: usize) -> anyhow::Result<()> {
        if let Attributes::Failed(e) = &item.attributes {
            self.world.report.complain(Failure::new(given.join_text(below), "cannot access", e.clone()));
        }
        let kinds = &self.args.kinds;
        let is_wanted = depth >= self.args.mindepth
            && (kinds.is_empty() || kinds.contains(&item.kind))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(&item.name));
        if !is_wanted {
            return Ok(());
        }
        if self.args.json {
            return Ok(self.out.json(&json::item(given, below, item)).await?);
        }
        let name = given.join(below);
        let (mut line, end) = if self.args.print0 { (name, 0) } else { (self.names.show(&name), b'\n') };
        line.push(end);
        Ok(self.out.put(&line).await?)
    }
}
