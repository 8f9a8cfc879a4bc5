//! `ninefold-lab-peer`: what the lab's tests put into its ends. It does what lines on standard input say, one after the other, and
//! answers each with a line.
//!
//! | Line | Answer |
//! |---|---|
//! | `listen PORT`, then `accept` | `listening`, `accepted PORT` |
//! | `connect ADDRESS` | `connected PORT`, its own |
//! | `send BYTES` | `sent` |
//! | `read BYTES` | `read`, when all have come |
//! | `trip` | `trip NANOSECONDS`: a byte there and one back |
//! | `echo` | `echo`, when the other end has closed: sends back what comes until then |
//! | `datagrams ADDRESS COUNT BYTES` | `sent` |
//! | `bind PORT` | `bound`: a socket for datagrams |
//! | `take COUNT` | `took ORDER`: datagrams of `datagrams` have come; ORDER tells whether they came as they were sent: `straight`, `mixed` |
//! | `squat NAME` | `squatted`: listens on an abstract Unix socket |
//! | `hold` | `held NAMESPACE…`: starts a lab of its own, with a process in each end |
//!
//! What fails is answered `error KIND`, as std::io::ErrorKind has it; what the machine lacks for a lab, `unavailable TEXT`.
#![forbid(unsafe_code)]

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ninefold_lab::{End, Lab, Options, Unavailable};

/// Bytes of a datagram's number.
const NUMBER: usize = size_of::<u32>();

/// Bound of every wait for the network.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Peer {
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    bound: Option<UdpSocket>,
    squat: Option<UnixListener>,
    /// The processes go with the lab.
    lab: Option<(Lab, Vec<Child>)>,
}

fn main() -> Result<()> {
    let mut peer = Peer::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match peer.obey(&words) {
            Ok(answer) => answer,
            Err(e) => match e.downcast_ref::<std::io::Error>() {
                Some(e) => format!("error {:?}", e.kind()),
                None if e.is::<Unavailable>() => format!("unavailable {e:#}"),
                None => format!("error {e:#}"),
            },
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

impl Peer {
    fn obey(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            ["listen", port] => {
                self.listener = Some(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.parse()?))?);
                Ok("listening".to_owned())
            }
            ["accept"] => {
                let (stream, from) = self.listener.as_ref().context("listen first")?.accept()?;
                self.set(stream)?;
                Ok(format!("accepted {}", from.port()))
            }
            ["connect", address] => {
                let address: SocketAddr = address.parse()?;
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                let port = stream.local_addr()?.port();
                self.set(stream)?;
                Ok(format!("connected {port}"))
            }
            ["send", bytes] => {
                self.stream()?.write_all(&vec![7; bytes.parse()?])?;
                Ok("sent".to_owned())
            }
            ["read", bytes] => {
                self.stream()?.read_exact(&mut vec![0; bytes.parse()?])?;
                Ok("read".to_owned())
            }
            ["trip"] => {
                let begin = Instant::now();
                self.stream()?.write_all(&[1])?;
                self.stream()?.read_exact(&mut [0])?;
                Ok(format!("trip {}", begin.elapsed().as_nanos()))
            }
            ["echo"] => {
                let mut stream = self.stream()?;
                let mut buffer = [0; 4096];
                loop {
                    match stream.read(&mut buffer) {
                        Ok(0) => return Ok("echo".to_owned()),
                        Ok(length) => stream.write_all(&buffer[..length])?,
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            ["datagrams", address, count, bytes] => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                let mut datagram = vec![0; bytes.parse::<usize>()?.max(NUMBER)];
                for number in 0..count.parse::<u32>()? {
                    datagram[..NUMBER].copy_from_slice(&number.to_le_bytes());
                    socket.send_to(&datagram, address)?;
                }
                Ok("sent".to_owned())
            }
            ["bind", port] => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port.parse()?))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                self.bound = Some(socket);
                Ok("bound".to_owned())
            }
            ["take", count] => {
                let socket = self.bound.as_ref().context("bind first")?;
                let mut numbers = Vec::new();
                for _ in 0..count.parse()? {
                    let mut number = [0; NUMBER];
                    socket.recv(&mut number)?;
                    numbers.push(u32::from_le_bytes(number));
                }
                Ok(format!("took {}", if numbers.is_sorted() { "straight" } else { "mixed" }))
            }
            ["squat", name] => {
                self.squat = Some(UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?);
                Ok("squatted".to_owned())
            }
            ["hold"] => self.hold(),
            _ => bail!("what is {words:?}?"),
        }
    }

    fn set(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        self.stream = Some(stream);
        Ok(())
    }

    fn stream(&self) -> Result<&TcpStream> {
        self.stream.as_ref().context("connect or accept first")
    }

    fn hold(&mut self) -> Result<String> {
        let lab = Lab::start(&Options::default())?;
        let mut children = Vec::new();
        let mut answer = "held".to_owned();
        for end in [End::Client, End::Server] {
            // One that has left its session, its terminal and its parent.
            let script = "readlink /proc/self/ns/net; setsid sleep 1000 >/dev/null 2>&1 & exec sleep 1000";
            let mut child = lab.command(end, "sh").args(["-c", script]).stdout(Stdio::piped()).spawn()?;
            let mut namespace = String::new();
            std::io::BufReader::new(child.stdout.take().context("output")?).read_line(&mut namespace)?;
            answer += " ";
            answer += namespace.trim_end();
            children.push(child);
        }
        self.lab = Some((lab, children));
        Ok(answer)
    }
}
