//! `ninefold cat`: files, one after another, on standard output.

use bytes::Bytes;
use futures_util::future::join;
use ninefold::client::{Error, File, Follow, Metadata, Mode};
use ninefold::proto::Errno;

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
        return Err(file_failed(Errno::EISDIR.into()));
    }
    let file = node.open(Mode::READ).await.map_err(file_failed)?;
    // Together: a small file then takes no round trip more, and a large one is known for what it is.
    let (first, metadata) = join(file.read_at(0, u32::MAX), file.metadata()).await;
    let first = first.map_err(file_failed)?;
    // Without attributes it is read one message after another.
    let metadata = metadata.ok();
    let done = is_all(&file, &first, metadata.as_ref());
    let mut reader = file.reader(first.len() as u64, metadata.as_ref());
    out.data(first).await.map_err(Trouble::Output)?;
    while !done && let Some(data) = reader.next().await.map_err(file_failed)? {
        out.data(data).await.map_err(Trouble::Output)?;
    }
    Ok(())
}

/// Whether the first read took the whole file: it came to an end before the message did, and just where the size of the
/// file says. Anything else is read until a read gives nothing, as sizes are no promise.
fn is_all(file: &File, first: &Bytes, metadata: Option<&Metadata>) -> bool {
    let ends_there = metadata.is_some_and(|metadata| metadata.is_plain() && metadata.size == first.len() as u64);
    first.is_empty() || (ends_there && first.len() < file.read_max() as usize)
}
