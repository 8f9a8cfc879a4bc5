//! `ninefold cat`: files, one after another, on standard output.

use ninefold::client::{Error, Follow, Mode};
use ninefold::transport::Address;

use super::World;
use crate::args::Cat;
use crate::out::Out;
use crate::report::Failure;

pub async fn run(args: Cat, world: &World) -> anyhow::Result<()> {
    let mut out = Out::new();
    for place in &args.urls {
        let address = place.remote("cat")?;
        if let Err(e) = one(address, world, &mut out).await {
            match e {
                Trouble::Output(e) => return Err(e.into()),
                Trouble::File(failure) => world.report.complain(failure),
            }
        }
    }
    Ok(out.finish().await?)
}

/// What ended the printing of one file.
enum Trouble {
    /// Standard output takes no more: nothing else need be tried.
    Output(std::io::Error),
    File(Failure),
}

async fn one(address: &Address, world: &World, out: &mut Out) -> Result<(), Trouble> {
    let file_failed = |e: Error| Trouble::File(Failure::new(address, "", e));
    let client = world.servers.client(address).await.map_err(Trouble::File)?;
    let node = client.walk(&address.path, Follow::All).await.map_err(file_failed)?;
    if node.qid().is_dir() {
        return Err(file_failed(ninefold::proto::Errno::EISDIR.into()));
    }
    let file = node.open(Mode::READ).await.map_err(file_failed)?;
    let mut offset = 0;
    loop {
        let data = file.read_at(offset, u32::MAX).await.map_err(file_failed)?;
        if data.is_empty() {
            return Ok(());
        }
        offset += data.len() as u64;
        out.data(data).await.map_err(Trouble::Output)?;
    }
}
