//! `ninefold write`: standard input to a file, which appears whole or not at all.

use std::io;
use std::os::fd::AsFd;

use bytes::BytesMut;
use ninefold::client::{Client, Error, Follow, Mode, Writer};
use ninefold::proto::Dialect;
use ninefold::transport::Address;
use rustix::fs::{OFlags, fcntl_getfl, fstat, major, minor};
use tokio::io::{AsyncReadExt, Stdin, stdin};

use super::World;
use super::destination::not_a_file;
use super::replace::{InPlace, Replacement, Target};
use crate::args::Write;
use crate::place::says_directory;

/// Permissions of a new file before the umask takes some away, as every program that makes plain files asks for them.
const NEW_FILE: u32 = 0o666;

pub async fn run(args: Write, world: &World) -> anyhow::Result<()> {
    let address = args.url.remote("cat")?;
    if is_dead(io::stdin()) {
        world.report.complain(format_args!(
            "standard input is closed, or not open for reading, and {address} is left as it is: give what is to be written, \
             or </dev/null for nothing"
        ));
        return Ok(());
    }
    let Some(client) = world.client(address).await else { return Ok(()) };
    if says_directory(&address.path) {
        world.complain(address, "cannot write", not_a_file(&client, address).await).await;
        return Ok(());
    }
    let written = match args.append {
        true => append(&client, address, world).await,
        false => replace(&client, address, world).await,
    };
    match written {
        Ok(()) => {}
        Err(Trouble::File(e)) => world.complain(address, "cannot write", e).await,
        Err(Trouble::Input(e)) => world.report.complain(format_args!("standard input: cannot read it: {e}")),
    }
    Ok(())
}

/// /dev/null, by its numbers (null(4)).
const NULL: (u32, u32) = (1, 3);

/// Whether nothing can come from this input, which Rust's library would show as one that is empty: it is open for writing
/// only, as nohup(1) leaves it, or the command was started without it. Then, before `main`, Rust's runtime opened
/// /dev/null in its place for reading and writing; a shell's `</dev/null` is for reading only.
fn is_dead(input: impl AsFd) -> bool {
    let (Ok(flags), Ok(stat)) = (fcntl_getfl(&input), fstat(&input)) else { return true };
    let is_null = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device()
        && (major(stat.st_rdev), minor(stat.st_rdev)) == NULL;
    match flags & OFlags::ACCMODE {
        OFlags::WRONLY => true,
        OFlags::RDWR => is_null,
        _ => false,
    }
}

/// What ended the writing.
enum Trouble {
    File(Error),
    Input(io::Error),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Trouble {
        Trouble::File(e)
    }
}

async fn replace(client: &Client, address: &Address, world: &World) -> Result<(), Trouble> {
    let target = Target::locate(client, address).await?;
    let replacement = Replacement::begin(&world.temporaries, &target, NEW_FILE & !world.umask).await?;
    let in_place = |why: &InPlace| world.report.warn(format_args!("{address}: written in place: {why}"));
    replacement.in_place().into_iter().for_each(in_place);
    let poured = pour(&mut stdin(), &mut replacement.writer(), replacement.file().write_max()).await;
    match poured {
        Ok(()) => {}
        Err(trouble) => {
            if replacement.in_place().is_some() {
                world.report.warn(format_args!("{address}: it is not whole: what was to be written came in part"));
            }
            // What became of a temporary file is told at the end.
            let _ = replacement.abandon().await;
            return Err(trouble);
        }
    }
    replacement.commit(true).await?.iter().for_each(in_place);
    Ok(())
}

/// Adds to the end of the file; nothing of it needs undoing.
async fn append(client: &Client, address: &Address, world: &World) -> Result<(), Trouble> {
    let at_end = if client.dialect() == Dialect::Plan9 { Mode::WRITE } else { Mode::APPEND };
    let file = match client.walk(&address.path, Follow::All).await {
        Ok(node) => node.open(at_end).await?,
        Err(e) if e.is_not_found() => {
            let target = Target::locate(client, address).await?;
            target.dir.walk(&[]).await?.create(&target.name, at_end, NEW_FILE & !world.umask).await?
        }
        Err(e) => return Err(e.into()),
    };
    // 9P2000 has no word for "at the end": at the end as it is now.
    let offset = file.metadata().await?.size;
    // One after another: what is sent first is to come first, wherever the end is by then.
    pour(&mut stdin(), &mut file.writer(offset, None), file.write_max()).await?;
    Ok(file.close().await?)
}

/// Standard input to a file, `size` bytes at a time at most.
async fn pour(input: &mut Stdin, file: &mut Writer<'_>, size: u32) -> Result<(), Trouble> {
    loop {
        let mut buffer = BytesMut::with_capacity(size as usize);
        if input.read_buf(&mut buffer).await.map_err(Trouble::Input)? == 0 {
            file.finish().await?;
            return Ok(());
        }
        file.write(buffer.freeze()).await?;
    }
}
