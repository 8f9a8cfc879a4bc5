//! `ninefold write`: standard input to a file, which appears whole or not at all.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::BytesMut;
use ninefold::client::{Client, Error, File, Follow, Mode, Writer, components};
use ninefold::proto::Dialect;
use ninefold::transport::Address;
use rustix::fs::{OFlags, fcntl_getfl, fstat, major, minor};
use tokio::io::{AsyncRead, AsyncReadExt, Stdin, stdin};

use super::World;
use super::destination::not_a_file;
use super::newborn::{self, Birth, Born};
use super::replace::{InPlace, Replacement, Target};
use super::target::temporary_name;
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
    let mut input = Input::new();
    if !args.append && !says_directory(&address.path) {
        // What is small is there before anything is asked.
        if let Err(e) = input.fill().await {
            world.report.complain(format_args!("standard input: cannot read it: {e}"));
            return Ok(());
        }
        if input.is_at_end {
            let name = components(&address.path).ok().and_then(|mut names| names.pop()).unwrap_or_default();
            let part = temporary_name(&name);
            let birth = Birth { part: &part, mode: NEW_FILE & !world.umask, set: None, sync: true };
            match newborn::make(world, address, birth, input.first.clone().freeze()).await {
                Ok(Born::Done) => return Ok(()),
                Ok(Born::WithoutMode(e)) => {
                    world.report.warn(format_args!("{address}: written, but its permissions cannot be set: {e}"));
                    return Ok(());
                }
                Ok(Born::Not) => {}
                Err(failure) => {
                    world.report.complain(failure);
                    return Ok(());
                }
            }
        }
    }
    let Some(client) = world.client(address).await else { return Ok(()) };
    if says_directory(&address.path) {
        world.complain(address, "cannot write", not_a_file(&client, address).await).await;
        return Ok(());
    }
    let written = match args.append {
        true => append(&client, address, world).await,
        false => replace(&client, address, world, input).await,
    };
    match written {
        Ok(()) => {}
        Err(Trouble::File(e)) => world.complain(address, "cannot write", e).await,
        Err(Trouble::Input(e)) => world.report.complain(format_args!("standard input: cannot read it: {e}")),
    }
    Ok(())
}

/// How long the end of a small input is waited for: what comes more slowly is written as it comes. A second round trip
/// would rarely take as long.
const PATIENCE: Duration = Duration::from_millis(500);

/// Bytes of standard input that are read at a time for a stream.
const PIECE: usize = 1 << 20;

/// How long nothing may come before the stream is ended that waits for it. A server ends one itself on which nothing moves, ours after 300 s
/// (docs/protocol.md, "Streams"), and a program that is piped into this one may be silent for as long as it likes. Another costs two
/// round trips.
const SILENCE: Duration = Duration::from_secs(30);

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

async fn replace(client: &Client, address: &Address, world: &World, input: Input) -> Result<(), Trouble> {
    let target = Target::locate(client, address).await?;
    let replacement = Replacement::begin(&world.temporaries, &target, NEW_FILE & !world.umask).await?;
    let in_place = |why: &InPlace| world.report.warn(format_args!("{address}: written in place: {why}"));
    replacement.in_place().into_iter().for_each(in_place);
    // A small input, and what a program may be behind, goes in messages.
    let streams = !input.is_at_end && replacement.in_place().is_none() && client.has_streams();
    let poured = if streams {
        let Input { mut stdin, first, .. } = input;
        pour_stream(first, &mut stdin, replacement.file(), SILENCE).await
    } else {
        pour(input, &mut replacement.writer(), replacement.file().write_max()).await
    };
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
    pour(Input::new(), &mut file.writer(offset, None), file.write_max()).await?;
    Ok(file.close().await?)
}

/// What was read of standard input.
struct Input {
    stdin: Stdin,
    first: BytesMut,
    is_at_end: bool,
}

impl Input {
    fn new() -> Input {
        Input { stdin: stdin(), first: BytesMut::new(), is_at_end: false }
    }

    /// Reads to the end, or until it is more than what is written at once, or takes its time.
    async fn fill(&mut self) -> io::Result<()> {
        let read = async {
            while !self.is_at_end && self.first.len() <= newborn::MOST {
                self.is_at_end = self.stdin.read_buf(&mut self.first).await? == 0;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap_or(Ok(()))
    }
}

/// What was read, and the rest of the input, to a file by streams: one, and another each time that nothing came for `silence`.
async fn pour_stream(
    first: BytesMut,
    input: &mut (impl AsyncRead + Unpin),
    file: &File,
    silence: Duration,
) -> Result<(), Trouble> {
    let (mut buffer, mut at, mut stream) = (first, 0, None);
    loop {
        if !buffer.is_empty() {
            let stream = match &mut stream {
                Some(stream) => stream,
                None => stream.insert(file.stream_write(at, None).await?),
            };
            stream.write(&buffer).await?;
            at += buffer.len() as u64;
            buffer.clear();
        }
        buffer.reserve(PIECE);
        let read = match tokio::time::timeout(silence, input.read_buf(&mut buffer)).await {
            Ok(read) => Some(read.map_err(Trouble::Input)?),
            Err(_) => None,
        };
        if matches!(read, None | Some(0))
            && let Some(stream) = stream.take()
        {
            stream.finish().await?;
        }
        if read == Some(0) {
            return Ok(());
        }
    }
}

/// What was read, and the rest of standard input, to a file; the rest is read `size` bytes at a time at most.
async fn pour(input: Input, file: &mut Writer<'_>, size: u32) -> Result<(), Trouble> {
    let Input { mut stdin, first, is_at_end } = input;
    if !first.is_empty() {
        file.write(first.freeze()).await?;
    }
    loop {
        if is_at_end {
            file.finish().await?;
            return Ok(());
        }
        let mut buffer = BytesMut::with_capacity(size as usize);
        if stdin.read_buf(&mut buffer).await.map_err(Trouble::Input)? == 0 {
            file.finish().await?;
            return Ok(());
        }
        file.write(buffer.freeze()).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ninefold::client::{Attach, Options};
    use ninefold::proto::dialect::Version;
    use ninefold::server::Server;
    use ninefold::transport::{Listener, dial};
    use ninefold::tree::ramfs::RamFs;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The bound of waits that ought to end soon.
    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_input_that_is_silent_for_long_is_written_by_one_stream_after_another() {
        let server = Server::builder().export("", Arc::new(RamFs::new()), false).build();
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(server.serve(stream, peer));
            }
        });
        let attach = Attach { dialect: Some(Version::N1), ..Attach::default() };
        let client = Client::over(dial(&address).await.unwrap(), &attach, Options::default()).await.unwrap();
        let file = client.root().await.unwrap().create(b"f", Mode::READ_WRITE, 0o644).await.unwrap();
        let (mut ours, mut input) = tokio::io::duplex(64);
        let feed = async {
            ours.write_all(b" two").await.unwrap();
            // What waits for more has ended by then.
            while !client.stats().messages.contains_key("Rstreamend") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ours.write_all(b" three").await.unwrap();
            drop(ours);
        };
        let poured = pour_stream(BytesMut::from(&b"one"[..]), &mut input, &file, Duration::from_millis(20));
        let both = async { tokio::join!(poured, feed).0 };
        assert!(tokio::time::timeout(SOON, both).await.expect("an end in time").is_ok());
        assert_eq!(client.read("/f", 100).await.unwrap(), &b"one two three"[..]);
        assert!(client.stats().messages["Tstream"] >= 2);
    }
}
