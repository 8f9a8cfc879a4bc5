//! A file over bare TCP connections, each with a range of it: sendfile(2) at the end that has it, recv(2) and pwrite(2) at the other.
//! No program that asks for a file by TCP can do less; what it takes is what the link and the kernels take.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::way::range;

/// The longest silence, beyond what TCP takes for a link that loses a hundredth of its packets.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that one recv(2) takes at most.
const TAKE: usize = 256 << 10;

/// What a client says first: which way, the first byte and the number of bytes, 8 bytes each, little-endian, and the length of the
/// name that follows. Behind that come the bytes of a PUT, which is answered with one byte when they are written.
const ORDER: usize = 18;
const GET: u8 = b'r';
const PUT: u8 = b'w';

/// Serves what is in `served`, and writes to `to`, until it is killed.
pub fn serve(address: SocketAddr, served: &Path, to: &Path) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    for stream in listener.incoming() {
        let (stream, served, to) = (stream?, served.to_owned(), to.to_owned());
        std::thread::Builder::new().spawn(move || {
            // A connection that says nothing was one to see whether it listens.
            if let Err(e) = answer(stream, &served, &to) {
                let _ = writeln!(std::io::stderr(), "pump: {e:#}");
            }
        })?;
    }
    Ok(())
}

fn set_up(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream.set_nodelay(true)?)
}

fn answer(mut stream: TcpStream, served: &Path, to: &Path) -> Result<()> {
    set_up(&stream)?;
    let mut order = [0; ORDER];
    stream.read_exact(&mut order).context("no order")?;
    let number = |at: usize| order[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let mut name = vec![0; usize::from(order[ORDER - 1])];
    stream.read_exact(&mut name)?;
    let name = String::from_utf8(name)?;
    ensure!(!name.is_empty() && !name.contains('/') && !name.starts_with('.'), "'{name}' is no name");
    let (from, length) = (number(1), number(9));
    match order[0] {
        GET => give(&stream, &File::open(served.join(name))?, from, length),
        PUT => {
            // Every range of it comes by a connection of its own.
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(to.join(name))?;
            take(&mut stream, &file, from, length)?;
            Ok(stream.write_all(&[PUT])?)
        }
        _ => bail!("a client asked for something else"),
    }
}

fn give(stream: &TcpStream, file: &File, from: u64, length: u64) -> Result<()> {
    let (mut at, end) = (from, from.saturating_add(length));
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        ensure!(rustix::fs::sendfile(stream, file, Some(&mut at), left)? > 0, "the file ends before its range");
    }
    Ok(())
}

fn take(stream: &mut TcpStream, file: &File, from: u64, length: u64) -> Result<()> {
    let mut buffer = vec![0; TAKE];
    let mut got = 0;
    while got < length {
        let most = TAKE.min(usize::try_from(length - got).unwrap_or(TAKE));
        match stream.read(&mut buffer[..most])? {
            0 => bail!("the connection ended {} bytes before the end", length - got),
            n => {
                file.write_all_at(&buffer[..n], from.saturating_add(got))?;
                got += n as u64;
            }
        }
    }
    Ok(())
}

fn order(server: SocketAddr, way: u8, name: &str, from: u64, length: u64) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).context("the pump does not listen")?;
    set_up(&stream)?;
    let mut order = vec![way];
    order.extend(from.to_le_bytes());
    order.extend(length.to_le_bytes());
    order.push(u8::try_from(name.len()).context("a name is too long")?);
    order.extend(name.as_bytes());
    stream.write_all(&order)?;
    Ok(stream)
}

/// Does one thing for each range at a time, and waits for all.
fn ranges(bytes: u64, connections: u32, one: impl Fn(u64, u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| {
                let (from, to) = range(bytes, connections, number);
                let one = &one;
                scope.spawn(move || one(from, to - from))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })
}

/// A file, and by how many connections.
#[derive(clap::Args, Debug)]
pub struct Options {
    server: SocketAddr,
    /// At the other end
    name: String,
    bytes: u64,
    connections: u32,
    /// At this end
    file: PathBuf,
}

pub fn get(options: &Options) -> Result<()> {
    let Options { server, name, bytes, connections, file } = options;
    let file = File::create(file).with_context(|| file.display().to_string())?;
    ranges(*bytes, *connections, |from, length| {
        take(&mut order(*server, GET, name, from, length)?, &file, from, length)
    })
}

pub fn put(options: &Options) -> Result<()> {
    let Options { server, name, bytes, connections, file } = options;
    let file = File::open(file).with_context(|| file.display().to_string())?;
    ranges(*bytes, *connections, |from, length| {
        let mut stream = order(*server, PUT, name, from, length)?;
        give(&stream, &file, from, length)?;
        stream.read_exact(&mut [0]).context("no answer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_both_ways_over_any_number_of_connections() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let mut data = vec![0; 1_000_003];
        fastrand::Rng::with_seed(1).fill(&mut data);
        std::fs::write(dir.path().join("source"), &data).unwrap();
        let served = dir.path().to_owned();
        // As many connections as are made below.
        let answering = std::thread::spawn(move || {
            let threads: Vec<_> = (0..2 * (1 + 16))
                .map(|_| {
                    let (stream, served) = (listener.accept().unwrap().0, served.clone());
                    std::thread::spawn(move || answer(stream, &served, &served).unwrap())
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        for connections in [1, 16] {
            let options = |name: String, file: &str| Options {
                server,
                name,
                bytes: data.len() as u64,
                connections,
                file: dir.path().join(file),
            };
            get(&options("source".to_owned(), "got")).unwrap();
            put(&options(format!("put{connections}"), "source")).unwrap();
            for name in ["got".to_owned(), format!("put{connections}")] {
                assert!(std::fs::read(dir.path().join(&name)).unwrap() == data, "{name} by {connections}");
            }
        }
        answering.join().unwrap();
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        for name in ["", "../x", "a/b", ".x"] {
            let stream = order(server, GET, name, 0, 1).unwrap();
            let error = answer(listener.accept().unwrap().0, Path::new("/"), Path::new("/")).unwrap_err();
            assert!(error.to_string().contains("is no name"), "{error:#}");
            drop(stream);
        }
    }
}
