//! A bare exchange over TCP: a client connects and sends so many bytes, and when all have come the server answers with so many. It
//! meets the same link, the same handshake and the same slow start as a command that moves as much; no program that asks before it is
//! told can be faster.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The longest silence, beyond any round trip here.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are sent or taken at one go.
const PIECE: usize = 256 << 10;

/// What a client says first: the bytes that it will send, and those that it wants, 8 bytes each, little-endian.
const ORDER: usize = 16;

/// The most bytes of either: beyond the largest copy here.
const MOST: u64 = 1 << 32;

/// Serves one connection after another, until it is killed.
pub fn serve(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    writeln!(std::io::stdout(), "at {}", listener.local_addr()?)?;
    for stream in listener.incoming() {
        if let Err(e) = answer(stream?) {
            writeln!(std::io::stderr(), "{e:#}")?;
        }
    }
    Ok(())
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream.set_write_timeout(Some(PATIENCE))?)
}

fn answer(mut stream: TcpStream) -> Result<()> {
    prepare(&stream)?;
    let mut order = [0; ORDER];
    stream.read_exact(&mut order)?;
    let [send, want] =
        [0, 8].map(|at| order[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)));
    ensure!(send <= MOST && want <= MOST, "{send} and {want} bytes are more than {MOST}");
    take(&mut stream, send)?;
    give(&mut stream, want)
}

fn give(stream: &mut TcpStream, bytes: u64) -> Result<()> {
    let piece = vec![0x5a; PIECE];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE as u64);
        stream.write_all(&piece[..length as usize])?;
        left -= length;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE as u64) as usize;
        let came = stream.read(&mut piece[..length])?;
        ensure!(came > 0, "the connection ended {left} bytes before the end");
        left -= came as u64;
    }
    Ok(())
}

/// Sends and fetches so many bytes; the time from the connection's beginning to the last byte.
pub fn ask(address: SocketAddr, send: u64, want: u64) -> Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| address.to_string())?;
    prepare(&stream)?;
    // The order is a part of what is sent, and at least that.
    let rest = send.saturating_sub(ORDER as u64);
    let order = [rest.to_le_bytes(), want.to_le_bytes()].concat();
    stream.write_all(&order)?;
    give(&mut stream, rest)?;
    take(&mut stream, want)?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_go_each_way_as_were_ordered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..3 {
                answer(listener.accept().unwrap().0).unwrap();
            }
            // Then one that answers less than it should.
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; ORDER]).unwrap();
            give(&mut stream, 99).unwrap();
        });
        for (send, want) in [(0, 0), (100, 1_000_000), (1_000_000, 1)] {
            ask(address, send, want).unwrap();
        }
        let short = ask(address, 0, 100).expect_err("1 byte is missing");
        assert!(short.to_string().contains("ended 1 bytes before"), "{short:#}");
        server.join().unwrap();
    }
}
