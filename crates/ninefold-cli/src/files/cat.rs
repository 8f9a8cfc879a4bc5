//! `ninefold cat`: files, one after another, on standard output.

use ninefold::client::{Error, Follow, Mode};

use super::World;
use crate::args::Cat;
use crate::given::{self, Remote};
use crate::out::Out;
use crate::report::Failure;

pub async fn run(args: Cat, world: &World) -> anyhow::Result<()> {
    let mut out = Out::new();
    for given in given::remote(args.urls, "cat")? {
        if let Err(e) = one(&given, world, &mut out).await {
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

async fn one(given: &Remote, world: &World, out: &mut Out) -> Result<(), Trouble> {
    let file_failed = |e: Error| Trouble::File(given.failed("", e));
    let node = given.walk(world, Follow::All).await.map_err(Trouble::File)?;
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
