//! `ninefold chmod`.

use ninefold::client::{Client, Error, FileType, Follow, Node};
use ninefold::proto::attr::SetAttr;
use ninefold::transport::Address;

use super::World;
use super::crawl::{Visitor, Way, crawl};
use super::mode_change::ModeChange;
use super::target::Target;
use crate::args::Chmod;
use crate::failure::Usage;
use crate::place;

pub async fn run(args: Chmod, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(|place| place.remote("chmod")).collect::<Result<Vec<_>, _>>()?;
    let change = Change { mode: args.mode.parse().map_err(Usage::error)?, world };
    for address in addresses {
        if let Err(e) = change.one(address, args.recursive).await {
            world.complain(address, "cannot change the permissions", e).await;
        }
    }
    Ok(())
}

struct Change<'a> {
    mode: ModeChange,
    world: &'a World,
}

impl Change<'_> {
    /// Through a symbolic link, as chmod(1) does: a link has no permissions of its own.
    async fn one(&self, address: &Address, recursive: bool) -> Result<(), Error> {
        let Some(client) = self.world.client(address).await else { return Ok(()) };
        let node = place::walk(&client, &address.path, Follow::All).await?;
        if !recursive || !node.qid().is_dir() {
            return self.apply(&node).await;
        }
        crawl(self, Target::itself(node, address), None).await;
        Ok(())
    }

    async fn apply(&self, node: &Node) -> Result<(), Error> {
        let old = node.metadata().await?;
        let mode = self.mode.apply(old.mode, old.kind == FileType::Dir, self.world.umask);
        node.set(&SetAttr { mode: Some(mode), ..SetAttr::default() }).await
    }

    fn done(&self, at: &Target, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => true,
            Err(e) => self.failed(at, "cannot change the permissions", e),
        }
    }
}

impl Visitor for Change<'_> {
    /// What may not be read may be once it is changed.
    fn lists_at_once(&self, _: &Client) -> bool {
        false
    }

    async fn enter(&self, at: &Target, node: &Node) -> Way {
        if self.done(at, self.apply(node).await) { Way::In } else { Way::Failed }
    }

    /// Symbolic links that are found on the way are left alone, and what they point to.
    async fn file(&self, at: &Target, kind: FileType, client: &Client) -> bool {
        if kind == FileType::Symlink {
            return true;
        }
        let changed = async { self.apply(&at.walk_as(client).await?).await };
        self.done(at, changed.await)
    }

    async fn leave(&self, _: &Target, _: &Client) -> bool {
        true
    }

    fn failed(&self, at: &Target, tried: &'static str, e: Error) -> bool {
        self.world.report.fail(at.own_address(), tried, e);
        false
    }
}
