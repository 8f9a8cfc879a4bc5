//! `ninefold truncate`.

use ninefold::client::{Client, Error, Follow, Mode, Node};
use ninefold::proto::Errno;
use ninefold::transport::Address;

use super::World;
use super::destination::not_a_file;
use super::size::SizeChange;
use super::target::Target;
use crate::args::Truncate;
use crate::failure::Usage;
use crate::place::says_directory;

/// Permissions of a new file before the umask takes some away.
const NEW_FILE: u32 = 0o666;

pub async fn run(args: Truncate, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(|place| place.remote("truncate")).collect::<Result<Vec<_>, _>>()?;
    let change: SizeChange = args.size.parse().map_err(Usage::error)?;
    for address in addresses {
        let Some(client) = world.client(address).await else { continue };
        if let Err(e) = one(&client, address, change, (!args.no_create).then_some(NEW_FILE & !world.umask)).await {
            world.complain(address, "cannot change the size", e).await;
        }
    }
    Ok(())
}

/// `perm` of the file to make if there is none.
async fn one(client: &Client, address: &Address, change: SizeChange, perm: Option<u32>) -> Result<(), Error> {
    if says_directory(&address.path) {
        let e = not_a_file(client, address).await;
        return if perm.is_none() && e.is_not_found() { Ok(()) } else { Err(e) };
    }
    let node = match (client.walk(&address.path, Follow::All).await, perm) {
        (Err(e), None) if e.is_not_found() => return Ok(()),
        (Err(e), Some(perm)) if e.is_not_found() => made(client, address, perm).await?,
        (other, _) => other?,
    };
    if node.qid().is_dir() {
        return Err(Errno::EISDIR.into());
    }
    let old = if change.is_relative() { node.metadata().await?.size } else { 0 };
    let size = change.apply(old).ok_or(Error::TooLarge("the size", client.dialect()))?;
    node.truncate(size).await
}

async fn made(client: &Client, address: &Address, perm: u32) -> Result<Node, Error> {
    let target = Target::locate(client, address).await?;
    match target.dir.walk(&[]).await?.create(&target.name, Mode::WRITE, perm).await {
        Ok(file) => file.close().await?,
        // By somebody else meanwhile.
        Err(e) if e.errno() == Errno::EEXIST => {}
        Err(e) => return Err(e),
    }
    target.walk().await
}
