//! A connection to a server: whole frames out and in, every wait bounded.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ninefold_proto::wire::{self, DecodeError};

/// 9P's TCP port where an address names none; ninefold's default.
const PORT: u16 = 5640;

/// Bytes; what a frame may have before an msize is agreed. Rversion is far smaller.
const FIRST_MSIZE: u32 = 8192;

/// Where a server listens: `9p://HOST[:PORT]` or `9p+unix:/SOCKET`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Host and port, as `connect` takes them.
    Tcp(String, u16),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(socket) = text.strip_prefix("9p+unix:") {
            return Ok(Address::Unix(socket.into()));
        }
        let Some(host) = text.strip_prefix("9p://") else {
            return Err(format!("'{text}' is not 9p://HOST[:PORT] or 9p+unix:/SOCKET"));
        };
        let host = host.trim_end_matches('/');
        let port = |port: &str| port.parse().map_err(|_| format!("'{port}' is no port"));
        // The brackets of [::1]:5640 keep the colons of the host apart.
        let (host, port) = match host.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => (host, port(digits)?),
            _ => (host, PORT),
        };
        Ok(Address::Tcp(host.trim_matches(['[', ']']).to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "9p://[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "9p://{host}:{port}"),
            Address::Unix(socket) => write!(f, "9p+unix:{}", socket.display()),
        }
    }
}

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
}

impl Stream for TcpStream {
    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait)).and_then(|()| self.set_write_timeout(Some(wait)))
    }
}

impl Stream for UnixStream {
    fn limit(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait)).and_then(|()| self.set_write_timeout(Some(wait)))
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
        let stream: Box<dyn Stream> = match address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Address::Unix(socket) => Box::new(UnixStream::connect(socket)?),
        };
        Ok(Connection { stream, buffer: Vec::new(), msize: FIRST_MSIZE })
    }

    /// The largest frame that may come from now on, in bytes.
    pub fn set_msize(&mut self, msize: u32) {
        self.msize = msize;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print_back() {
        for text in ["9p://127.0.0.1:564", "9p://[::1]:5640", "9p://host:1", "9p+unix:/run/9p.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("9p://host".parse(), Ok(Address::Tcp("host".into(), PORT)));
        assert_eq!("9p://[::1]".parse(), Ok(Address::Tcp("::1".into(), PORT)));
        assert!("host:564".parse::<Address>().is_err());
        assert!("9p://host:port".parse::<Address>().is_err());
    }
}
