//! `ninefold cat`: files, one after another, on standard output.

use bytes::Bytes;
use ninefold::client::{Begun, Error, Follow, Metadata};
use ninefold::proto::Errno;

use super::World;
use super::cp::STREAMED;
use crate::args::Cat;
use crate::given::{self, Remote};
use crate::out::Out;
use crate::place::{self, says_directory};
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
    let path = &given.address.path;
    let begun = world.servers.first(&given.address, async |client| {
        if says_directory(path) {
            place::walk(client, path, Follow::All).await?;
            return Err(Errno::EISDIR.into());
        }
        client.begin_read_or_stream(path, u32::MAX, STREAMED).await
    });
    let (_, begun) = begun.await.map_err(Trouble::File)?;
    let Begun { file, data: first, metadata } = begun.map_err(|e| {
        let tried = if e.errno() == Errno::EISDIR { "" } else { "cannot access" };
        Trouble::File(given.failed(tried, e))
    })?;
    // Without attributes it is read one message after another.
    let done = first.as_ref().is_some_and(|first| is_all(first, metadata.as_ref()));
    let first = first.unwrap_or_default();
    let begins = first.len() as u64;
    let size = metadata.as_ref().filter(|metadata| metadata.is_plain()).map_or(0, |metadata| metadata.size);
    out.data(first).await.map_err(Trouble::Output)?;
    if !done && size.saturating_sub(begins) >= STREAMED && file.client().has_streams() {
        let mut stream = file.stream_read(begins, None).await.map_err(file_failed)?;
        while let Some(data) = stream.next().await.map_err(file_failed)? {
            out.data(data).await.map_err(Trouble::Output)?;
        }
        stream.finish().await.map_err(file_failed)?;
        return Ok(());
    }
    let mut reader = file.reader(begins, metadata.as_ref());
    while !done && let Some(data) = reader.next().await.map_err(file_failed)? {
        out.data(data).await.map_err(Trouble::Output)?;
    }
    Ok(())
}

/// Whether the first read took the whole file: it came to an end just where the size said that the file has, before it was
/// read. Anything else is read until a read gives nothing.
fn is_all(first: &Bytes, metadata: Option<&Metadata>) -> bool {
    first.is_empty() || metadata.is_some_and(|metadata| metadata.is_plain() && metadata.size == first.len() as u64)
}
