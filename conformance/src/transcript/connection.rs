//! A connection to a server: whole frames out and in, every wait bounded.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ninefold::transport::{Address, Place};
use ninefold_proto::wire::{self, DecodeError};

/// Bytes; what a frame may have before an msize is agreed. Rversion is far smaller.
const FIRST_MSIZE: u32 = 8192;

/// What came, or why nothing did.
#[derive(Debug)]
pub enum Received {
    /// One whole frame.
    Frame(Vec<u8>),
    /// The server closed the connection.
    Closed,
    /// The deadline passed.
    Nothing,
    /// A frame that no client could read.
    Broken(DecodeError),
}

trait Stream: Read + Write {
    fn limit(&self, wait: Duration) -> io::Result<()>;
    /// No more is sent.
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait)).and_then(|()| self.set_write_timeout(Some(wait)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait)).and_then(|()| self.set_write_timeout(Some(wait)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// An open connection.
pub struct Connection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    msize: u32,
}

impl Connection {
    /// Connects; a host that does not answer is given up by the system.
    pub fn open(address: &Address) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match &address.place {
            Place::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Place::Unix { socket } => Box::new(UnixStream::connect(socket)?),
            Place::Tls { .. } | Place::Ssh { .. } => {
                let why = format!("{address}: only 9p:// and 9p+unix: addresses can be judged");
                return Err(io::Error::new(ErrorKind::Unsupported, why));
            }
        };
        Ok(Connection { stream, buffer: Vec::new(), msize: FIRST_MSIZE })
    }

    /// The largest frame that may come from now on, in bytes.
    pub fn set_msize(&mut self, msize: u32) {
        self.msize = msize;
    }

    /// Sends no more.
    pub fn end(&mut self) -> io::Result<()> {
        self.stream.end()
    }

    /// All bytes that come until the server closes the connection, which are no frames; an error after `deadline`.
    pub fn rest(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.limit(wait)?;
            let mut part = [0; 16 * 1024];
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(std::mem::take(&mut self.buffer)),
                Ok(n) => self.buffer.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends `bytes`. That the server has closed is no error here: what it did is found by reading.
    pub fn send(&mut self, bytes: &[u8], wait: Duration) -> io::Result<()> {
        self.stream.limit(wait)?;
        match self.stream.write_all(bytes) {
            Err(e) if is_closed(&e) => Ok(()),
            result => result,
        }
    }

    /// Waits for one frame until `deadline`.
    pub fn receive(&mut self, deadline: Instant) -> io::Result<Received> {
        loop {
            match wire::frame_size(&self.buffer, self.msize) {
                Err(e) => return Ok(Received::Broken(e)),
                Ok(Some(size)) if self.buffer.len() >= size => {
                    let rest = self.buffer.split_off(size);
                    return Ok(Received::Frame(std::mem::replace(&mut self.buffer, rest)));
                }
                Ok(_) => {}
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Ok(Received::Nothing);
            }
            self.stream.limit(wait)?;
            let mut part = [0; 16 * 1024];
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(Received::Closed),
                Ok(n) => self.buffer.extend_from_slice(&part[..n]),
                Err(e) if is_closed(&e) => return Ok(Received::Closed),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(Received::Nothing);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// A server that closes with bytes of ours unread resets the connection.
fn is_closed(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
