//! `ninefold mkdir`.

use ninefold::client::{Client, Error, Follow, MadeDir, Node, components};
use ninefold::proto::Errno;
use ninefold::proto::attr::SetAttr;
use ninefold::transport::Address;

use super::World;
use super::mode_change::ModeChange;
use crate::args::Mkdir;
use crate::failure::Usage;

/// Permissions of a new directory before the umask takes some away.
const NEW_DIR: u32 = 0o777;

/// What the owner must be allowed in directories that more are to be made in, as POSIX has `mkdir -p`.
const WRITE_AND_SEARCH: u32 = 0o300;

pub async fn run(args: Mkdir, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(|place| place.remote("mkdir")).collect::<Result<Vec<_>, _>>()?;
    let change = args.mode.as_deref().map(str::parse::<ModeChange>).transpose().map_err(Usage::error)?;
    let making = Making { mode: change.map(|change| change.apply(NEW_DIR, true, world.umask)), umask: world.umask };
    for address in addresses {
        let made = match (args.parents, making.mode) {
            (false, None) => {
                let perm = NEW_DIR & !making.umask;
                world.first(address, async |client| client.mkdir(&address.path, perm).await).await.map(|(_, made)| made)
            }
            (false, Some(_)) => match world.client(address).await {
                Some(client) => Some(making.one(&client, address).await),
                None => None,
            },
            (true, _) => {
                let all = async |client: &Client| making.all(client, address).await;
                world.first(address, all).await.map(|(_, made)| made)
            }
        };
        let Some(made) = made else { continue };
        if let Err(e) = made {
            world.complain(address, "cannot make the directory", e).await;
        }
    }
    Ok(())
}

struct Making {
    /// Asked for with -m.
    mode: Option<u32>,
    umask: u32,
}

impl Making {
    async fn one(&self, client: &Client, address: &Address) -> Result<(), Error> {
        // There is a root already.
        if components(&address.path)?.is_empty() {
            return Err(Errno::EEXIST.into());
        }
        let (above, name) = client.walk_parent(&address.path).await?;
        self.last(&above, &name).await
    }

    async fn last(&self, above: &Node, name: &[u8]) -> Result<(), Error> {
        let Some(mode) = self.mode else { return above.mkdir(name, NEW_DIR & !self.umask).await };
        // Nobody may look in before the mode is what was asked for.
        above.mkdir(name, mode & NEW_DIR & !self.umask).await?;
        let made = above.walk(&[name]).await?;
        if made.metadata().await?.mode == mode {
            return Ok(());
        }
        made.set(&SetAttr { mode: Some(mode), ..SetAttr::default() }).await
    }

    /// Gives a directory that was made the mode asked for.
    async fn finish(&self, MadeDir { node, made, metadata }: MadeDir) -> Result<(), Error> {
        match self.mode.filter(|_| made) {
            Some(mode) if metadata?.mode != mode => node.set(&SetAttr { mode: Some(mode), ..SetAttr::default() }).await,
            _ => Ok(()),
        }
    }

    /// Those above it too. Made by others meanwhile is as good.
    async fn all(&self, client: &Client, address: &Address) -> Result<(), Error> {
        let perm = self.mode.unwrap_or(NEW_DIR) & NEW_DIR & !self.umask;
        let perm_above = NEW_DIR & !self.umask | WRITE_AND_SEARCH;
        if let Some(there) = client.mkdir_all(&address.path, perm_above, perm).await? {
            return self.finish(there).await;
        }
        let names = components(&address.path)?;
        let mut at = client.root().await?;
        for (i, name) in names.iter().enumerate() {
            let path = names[..=i].join(&b'/');
            match client.walk(&path, Follow::All).await {
                Ok(node) => {
                    at = directory(node)?;
                    continue;
                }
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
            }
            let made = match i + 1 == names.len() {
                true => self.last(&at, name).await,
                false => at.mkdir(name, NEW_DIR & !self.umask | WRITE_AND_SEARCH).await,
            };
            match made {
                Err(e) if e.errno() != Errno::EEXIST => return Err(e),
                _ => at = directory(client.walk(&path, Follow::All).await?)?,
            }
        }
        Ok(())
    }
}

fn directory(node: Node) -> Result<Node, Error> {
    if node.qid().is_dir() { Ok(node) } else { Err(Errno::ENOTDIR.into()) }
}
