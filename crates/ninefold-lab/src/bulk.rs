//! One file over one TCP connection each way, without a protocol: sendfile(2) at the end that has it, recv(2) at the other. What
//! a link and the kernels at its ends do with these bytes; `scripts/bulk-table.sh` puts it beside our own commands.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest silence.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that one recv(2) takes at most.
const TAKE: usize = 1 << 20;

/// The first byte that a client says. Behind [`PUT`] come the bytes of the file, and their number before, 8 bytes, little-endian;
/// a byte answers when they have come.
const GET: u8 = b'r';
const PUT: u8 = b'w';

#[derive(clap::Subcommand, Debug)]
pub enum Bulk {
    /// Serves one connection after another, until it is killed
    Serve { listen: SocketAddr, file: PathBuf },
    /// Takes the file, and prints the milliseconds to the connection, to the first bytes and to the last, and the bytes
    Get { server: SocketAddr },
    /// Gives a file, and prints the milliseconds to the connection and to the answer, and the bytes
    Put { server: SocketAddr, file: PathBuf },
}

pub fn run(bulk: &Bulk) -> Result<()> {
    match bulk {
        Bulk::Serve { listen, file } => {
            let listener = TcpListener::bind(listen)?;
            writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
            let mut buffer = vec![0; TAKE];
            for stream in listener.incoming() {
                let mut stream = stream?;
                if let Err(e) = serve(&mut stream, &File::open(file)?, &mut buffer) {
                    writeln!(std::io::stderr(), "ninefold-bench: {e:#}")?;
                }
            }
            Ok(())
        }
        Bulk::Get { server } => get(*server),
        Bulk::Put { server, file } => put(*server, &File::open(file)?),
    }
}

fn serve(stream: &mut TcpStream, file: &File, buffer: &mut [u8]) -> Result<()> {
    set_up(stream)?;
    let mut order = [0];
    stream.read_exact(&mut order)?;
    match order[0] {
        GET => give(stream, file),
        PUT => {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes)?;
            let mut left = u64::from_le_bytes(bytes);
            while left > 0 {
                let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                match stream.read(&mut buffer[..most])? {
                    0 => bail!("a client ended in the middle of its file"),
                    n => left -= n as u64,
                }
            }
            Ok(stream.write_all(&[PUT])?)
        }
        _ => bail!("a client asked for something else"),
    }
}

fn give(stream: &TcpStream, file: &File) -> Result<()> {
    let (mut at, end) = (0, file.metadata()?.len());
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        if rustix::fs::sendfile(stream, file, Some(&mut at), left)? == 0 {
            bail!("the file was cut while it was sent");
        }
    }
    Ok(())
}

fn connect(server: SocketAddr) -> Result<(TcpStream, Instant, Duration)> {
    let begun = Instant::now();
    let stream = TcpStream::connect_timeout(&server, PATIENCE).context("the pump does not listen")?;
    set_up(&stream)?;
    Ok((stream, begun, begun.elapsed()))
}

fn set_up(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream.set_nodelay(true)?)
}

fn get(server: SocketAddr) -> Result<()> {
    let (mut stream, begun, connected) = connect(server)?;
    stream.write_all(&[GET])?;
    let mut buffer = vec![0; TAKE];
    let (mut first, mut bytes) = (None, 0);
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        first.get_or_insert_with(|| begun.elapsed());
        bytes += n;
    }
    let all = begun.elapsed();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    writeln!(std::io::stdout(), "{:.1} {:.1} {:.1} {bytes}", ms(connected), ms(first.unwrap_or(all)), ms(all))?;
    Ok(())
}

fn put(server: SocketAddr, file: &File) -> Result<()> {
    let (mut stream, begun, connected) = connect(server)?;
    let bytes = file.metadata()?.len();
    stream.write_all(&[PUT])?;
    stream.write_all(&bytes.to_le_bytes())?;
    give(&stream, file)?;
    stream.read_exact(&mut [0])?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    writeln!(std::io::stdout(), "{:.1} {:.1} {bytes}", ms(connected), ms(begun.elapsed()))?;
    Ok(())
}
