//! A connection of the old client: 9P2000, one message at a time, each waiting for the reply to the one before. Every request is
//! counted, and as none is sent before the reply to the last has come, requests are round trips.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ninefold::proto::message::{Names, R, T};
use ninefold::proto::types::MAXWELEM;
use ninefold::proto::wire::{HEADER, IO_HEADER, frame_size, split_frame};
use ninefold::proto::{Dialect, Fid, Tag};

/// Bytes of data in a message: the iounit in the paper's traces.
pub const IOUNIT: u32 = 8192;

/// Bytes of a frame with that.
const MSIZE: u32 = IOUNIT + IO_HEADER;

/// The one tag, as in the paper's traces.
const TAG: Tag = Tag(7);

/// The longest wait for a connection or a reply, beyond any round trip here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A reply, as far as what follows depends on it.
#[derive(Debug)]
pub enum Reply<'a> {
    Ok(R<'a>),
    /// Rerror's text.
    Refused(String),
}

/// A connection after version and attach, which are not counted: a kernel has done them when a file is used.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    frame: Vec<u8>,
    /// Nothing is asked after that.
    until: Instant,
    /// Requests since the attach, and bytes both ways.
    pub messages: u64,
    pub sent: u64,
    pub received: u64,
}

impl Wire {
    /// Connects, and attaches `root` to the tree of that name. Asks nothing more when `within` is over.
    pub fn attach(address: SocketAddr, root: Fid, aname: &[u8], within: Duration) -> Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| address.to_string())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let until = Instant::now() + within;
        let mut wire = Wire { stream, frame: Vec::new(), until, messages: 0, sent: 0, received: 0 };
        let version = Dialect::Plan9.as_str().as_bytes();
        match wire.call(Tag::NONE, &T::Version { msize: MSIZE, version })? {
            Reply::Ok(R::Version { msize: MSIZE, version: answer }) if answer == version => {}
            other => bail!("the server answers {other:?} to 9P2000 with msize {MSIZE}"),
        }
        let attach = T::Attach { fid: root, afid: Fid::NONE, uname: b"none", aname, n_uname: u32::MAX };
        wire.ask(&attach)?;
        wire.restart();
        Ok(wire)
    }

    /// Counts from here on.
    pub fn restart(&mut self) {
        (self.messages, self.sent, self.received) = (0, 0, 0);
    }

    /// A request that is not refused.
    pub fn ask(&mut self, request: &T<'_>) -> Result<R<'_>> {
        let name = request.name();
        match self.try_ask(request)? {
            Reply::Ok(reply) => Ok(reply),
            Reply::Refused(why) => bail!("{name}: {why}"),
        }
    }

    /// Walks through names; `false` when the first of them is missing.
    pub fn walk(&mut self, fid: Fid, newfid: Fid, names: &[&str]) -> Result<bool> {
        ensure!(names.len() <= MAXWELEM, "a walk of {} names", names.len());
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().map(|name| name.as_bytes()), &mut scratch);
        match self.try_ask(&T::Walk { fid, newfid, wnames })? {
            Reply::Ok(R::Walk { wqids }) if wqids.len() == names.len() => Ok(true),
            // The server has the directories on the way: another partial walk is none that was meant.
            Reply::Ok(R::Walk { wqids }) if wqids.len() + 1 == names.len() => Ok(false),
            Reply::Refused(_) if names.len() == 1 => Ok(false),
            other => bail!("Twalk {}: {other:?}", names.join("/")),
        }
    }

    /// A request and its reply, which may be that it is refused.
    pub fn try_ask(&mut self, request: &T<'_>) -> Result<Reply<'_>> {
        self.call(TAG, request)
    }

    fn call(&mut self, tag: Tag, request: &T<'_>) -> Result<Reply<'_>> {
        ensure!(Instant::now() < self.until, "the time for it is over after {} messages", self.messages);
        self.frame.clear();
        request.encode(tag, Dialect::Plan9, &mut self.frame);
        self.stream.write_all(&self.frame).context("cannot send to the server")?;
        self.messages += 1;
        self.sent += self.frame.len() as u64;
        let mut head = [0; HEADER];
        self.stream.read_exact(&mut head).with_context(|| format!("{}: no reply", request.name()))?;
        let size = frame_size(&head, MSIZE)?.context("a reply without a size")?;
        self.frame.clear();
        self.frame.extend_from_slice(&head);
        self.frame.resize(size, 0);
        self.stream.read_exact(&mut self.frame[HEADER..]).context("half a reply")?;
        self.received += size as u64;
        let (header, body) = split_frame(&self.frame)?;
        ensure!(header.tag == tag, "{}: the reply has tag {}", request.name(), header.tag.0);
        Ok(match R::decode(header.kind, body, Dialect::Plan9)? {
            R::Error { ename, .. } => Reply::Refused(String::from_utf8_lossy(ename).into_owned()),
            reply => Reply::Ok(reply),
        })
    }
}
