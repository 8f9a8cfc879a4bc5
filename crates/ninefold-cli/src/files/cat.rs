//! `ninefold cat`: files, one after another, on standard output.

use bytes::Bytes;
use ninefold::client::{BeginRead, Begun, Error, Fault, File, Follow, Metadata};
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
        client.begin_read_as(path, BeginRead { most: STREAMED, ..BeginRead::default() }).await
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
    let mut at = begins;
    let size = metadata.as_ref().filter(|metadata| metadata.is_plain()).map_or(0, |metadata| metadata.size);
    out.data(first).await.map_err(Trouble::Output)?;
    if !done && size.saturating_sub(begins) >= STREAMED && file.client().has_streams() {
        let mut stream = file.stream_read(begins, None).await.map_err(file_failed)?;
        let ended = loop {
            match stream.next().await {
                Ok(Some(data)) => {
                    at += data.len() as u64;
                    out.data(data).await.map_err(Trouble::Output)?;
                }
                Ok(None) => break stream.finish().await.map(drop),
                Err(e) => break Err(e),
            }
        };
        match ended {
            Ok(()) => return Ok(()),
            Err(e) if goes_on(&e) && is_same(&file, metadata.as_ref()).await => {}
            Err(e) => return Err(file_failed(e)),
        }
    }
    let mut reader = file.reader(at, metadata.as_ref());
    while !done && let Some(data) = reader.next().await.map_err(file_failed)? {
        out.data(data).await.map_err(Trouble::Output)?;
    }
    Ok(())
}

/// Whether an error is one of a stream's connection, which a server does not keep for ever while nobody takes what it brings: a reader may
/// take his time. The rest goes in messages, which wait for him.
fn goes_on(e: &Error) -> bool {
    match e {
        Error::Stream(Fault::Cut(_) | Fault::Short { .. }) => true,
        Error::Refused(said) => said.errno == Errno::ETIMEDOUT,
        _ => false,
    }
}

/// Whether a file is what it was, as far as its attributes tell.
async fn is_same(file: &File, then: Option<&Metadata>) -> bool {
    let now = file.metadata().await;
    then.is_some_and(|then| now.is_ok_and(|now| now.is_of_same_file(then)))
}

/// Whether the first read took the whole file: it came to an end just where the size said that the file has, before it was
/// read. Anything else is read until a read gives nothing.
fn is_all(first: &Bytes, metadata: Option<&Metadata>) -> bool {
    first.is_empty() || metadata.is_some_and(|metadata| metadata.is_plain() && metadata.size == first.len() as u64)
}
