//! `ninefold du`: as du(1) prints, directories in the server's order, each after those in it.

use std::collections::HashSet;

use ninefold::client::{FileType, Follow, Metadata};
use ninefold::transport::Address;
use serde_json::json;

use super::World;
use super::look::names::Names;
use super::look::show;
use super::look::tree::{Attributes, Item, Tree, Wants, is_over, path};
use crate::args::Du;
use crate::given::{self, Remote};
use crate::out::{Out, text};
use crate::report::Failure;

pub async fn run(args: Du, world: &World) -> anyhow::Result<()> {
    let given = given::remote(args.urls.clone(), "du")?;
    // As du(1): what lies below two of the words counts for the first of them.
    let several = given.len() > 1;
    let mut du = Sums {
        args,
        world,
        names: Names::for_stdout(),
        out: Out::new(),
        several,
        total: 0,
        servers: Vec::new(),
        seen: HashSet::new(),
    };
    for given in &given {
        du.below(given).await?;
    }
    if du.args.total {
        du.print_total().await?;
    }
    Ok(du.out.finish().await?)
}

/// What one file on one server is known by: the server's place in [`Sums::servers`], and the qid's path.
type Identity = (usize, u64);

struct Sums<'w> {
    args: Du,
    world: &'w World,
    names: Names,
    out: Out,
    several: bool,
    /// Bytes of all the words.
    total: u64,
    /// Addresses without a path.
    servers: Vec<Address>,
    /// Files counted that may come again.
    seen: HashSet<Identity>,
}

/// A directory that is being summed up.
struct Frame {
    below: Vec<u8>,
    bytes: u64,
    left: std::vec::IntoIter<Item>,
}

impl Sums<'_> {
    async fn below(&mut self, given: &Remote) -> anyhow::Result<()> {
        let wants =
            Wants { attributes: true, targets: false, hidden: true, dots: false, sorted: false, levels: usize::MAX };
        let look = async {
            let mut visited = given.visit(self.world, Follow::NotLast, wants.sight(true)).await?;
            let metadata = match visited.looked.take() {
                Some(looked) => looked.metadata,
                None => visited.node.metadata().await.map_err(|e| given.failed("cannot access", e))?,
            };
            Ok((visited, metadata))
        };
        let (visited, metadata) = match look.await {
            Ok(found) => found,
            Err::<_, Failure>(failure) => {
                self.world.report.complain(failure);
                return Ok(());
            }
        };
        let server = self.server(&given.address);
        if !self.counts(server, &metadata) {
            return Ok(());
        }
        let bytes = self.bytes(&metadata);
        if metadata.kind != FileType::Dir {
            return self.print(given, b"", bytes, 0).await;
        }
        let mut tree = Tree::new(visited, wants);
        let mut frames: Vec<Frame> = Vec::new();
        let mut enters = Some(bytes);
        loop {
            if let Some(bytes) = enters.take() {
                self.out.pause().await?;
                let Some(listing) = tree.next().await else { return Ok(()) };
                if let Some(trouble) = listing.trouble {
                    let complaint = trouble.of(given.join_text(&listing.below));
                    self.world.report.complain(&complaint);
                    if complaint.is_over() {
                        return Ok(());
                    }
                }
                frames.push(Frame { below: listing.below, bytes, left: listing.items.into_iter() });
            }
            let Some(frame) = frames.last_mut() else { return Ok(()) };
            if let Some(item) = frame.left.next() {
                let path = path(&frame.below, &item.name);
                let metadata = match item.attributes {
                    Attributes::Known(metadata) => metadata,
                    Attributes::NotAsked => continue,
                    Attributes::Failed(e) => {
                        let over = is_over(&e);
                        self.world.report.complain(Failure::new(given.join_text(&path), "cannot access", e));
                        if over {
                            return Ok(());
                        }
                        if item.descends {
                            tree.skip();
                        }
                        continue;
                    }
                };
                if !self.counts(server, &metadata) {
                    if item.descends {
                        tree.skip();
                    }
                    continue;
                }
                let bytes = self.bytes(&metadata);
                if item.descends {
                    enters = Some(bytes);
                    continue;
                }
                frame.bytes = frame.bytes.saturating_add(bytes);
                if self.args.all {
                    self.print(given, &path, bytes, frames.len()).await?;
                }
            } else if let Some(Frame { below, bytes, .. }) = frames.pop() {
                if let Some(parent) = frames.last_mut() {
                    parent.bytes = parent.bytes.saturating_add(bytes);
                }
                self.print(given, &below, bytes, frames.len()).await?;
            }
        }
    }

    fn server(&mut self, address: &Address) -> usize {
        let address = Address { path: Vec::new(), ..address.clone() };
        self.servers.iter().position(|server| *server == address).unwrap_or_else(|| {
            self.servers.push(address);
            self.servers.len() - 1
        })
    }

    /// Whether the file is counted here, and not where another of its names is.
    fn counts(&mut self, server: usize, metadata: &Metadata) -> bool {
        let has_names = metadata.kind != FileType::Dir && metadata.nlink.is_some_and(|n| n > 1);
        !(self.several || has_names) || self.seen.insert((server, metadata.qid.path))
    }

    fn bytes(&self, metadata: &Metadata) -> u64 {
        if self.args.apparent_size || self.args.bytes { metadata.size } else { show::disk(metadata) }
    }

    /// `depth` below the word; what is too deep is not printed.
    async fn print(&mut self, given: &Remote, below: &[u8], bytes: u64, depth: usize) -> anyhow::Result<()> {
        if depth == 0 {
            self.total = self.total.saturating_add(bytes);
        }
        if depth > if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) } {
            return Ok(());
        }
        let name = given.join(below);
        if self.args.json {
            let url = given.address(below).to_string();
            return Ok(self.out.json(&json!({ "path": text(&name), "url": url, "bytes": bytes })).await?);
        }
        self.line(bytes, &self.names.show(&name)).await
    }

    async fn print_total(&mut self) -> anyhow::Result<()> {
        match self.args.json {
            true => Ok(self.out.json(&json!({ "total": true, "bytes": self.total })).await?),
            false => self.line(self.total, b"total").await,
        }
    }

    async fn line(&mut self, bytes: u64, name: &[u8]) -> anyhow::Result<()> {
        let size = match &self.args {
            Du { human_readable: true, .. } => show::human(bytes),
            Du { bytes: true, .. } => bytes.to_string(),
            _ => show::kib(bytes),
        };
        Ok(self.out.put(&[size.as_bytes(), b"\t", name, b"\n"].concat()).await?)
    }
}
