//! A connection of the generator: 9P2000.L written by hand, so that what is measured is the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ninefold::proto::message::{Names, R, T};
use ninefold::proto::wire::{HEADER, frame_size, split_frame};
use ninefold::proto::{Dialect, Errno, Fid, Tag};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::peer::Peer;

/// The longest wait for a reply. Far beyond any load here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The fid of the root.
pub const ROOT: Fid = Fid(0);

/// Bytes of data in the largest message: what Linux's client leaves room for too (`P9_IOHDRSZ`); diod refuses more.
pub fn payload_max(msize: u32) -> u32 {
    msize - 24
}

/// Nothing leaves by BBR's pace: within a machine its timers, of which the other end's core has its share, are no part of what is measured. Before a
/// socket is connected, or on a listener, or it goes on (docs/bench.md, "loopback").
pub fn do_not_pace(socket: impl AsFd) {
    // Where neither is allowed the machine's stays, and is measured with.
    let _ = ["cubic", "reno"].iter().any(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
}

/// Connects to a server on this machine, unpaced.
pub fn dial(peer: &Peer) -> Result<TcpStream> {
    let family = if peer.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    do_not_pace(&socket);
    rustix::net::connect(&socket, &peer.address).with_context(|| format!("{} is gone", peer.name))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A connection after version and attach, one call at a time.
#[derive(Debug)]
pub struct Wire {
    pub stream: TcpStream,
    frame: Vec<u8>,
    msize: u32,
}

impl Wire {
    /// Connects, agrees on 9P2000.L with this very msize, and attaches as the user of this process.
    pub fn attach(peer: &Peer, msize: u32) -> Result<Wire> {
        let mut wire = Wire { stream: dial(peer)?, frame: Vec::new(), msize };
        let version = Dialect::Linux.as_str().as_bytes();
        match wire.call(Tag::NONE, &T::Version { msize, version })? {
            R::Version { msize: agreed, version: answer } if agreed == msize && answer == version => {}
            other => bail!("{} answers {other:?} to msize {msize}", peer.name),
        }
        let n_uname = rustix::process::geteuid().as_raw();
        let attach = T::Attach { fid: ROOT, afid: Fid::NONE, uname: b"", aname: &peer.aname, n_uname };
        wire.ask(&attach).with_context(|| format!("{}: attach", peer.name))?;
        Ok(wire)
    }

    /// Walks from the root.
    pub fn walk(&mut self, newfid: Fid, names: &[&[u8]]) -> Result<()> {
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        match self.ask(&T::Walk { fid: ROOT, newfid, wnames })? {
            R::Walk { wqids } if wqids.len() == names.len() => Ok(()),
            _ => bail!("a name is missing in what is served"),
        }
    }

    /// A request and its reply, which is no error.
    pub fn ask(&mut self, request: &T<'_>) -> Result<R<'_>> {
        self.call(Tag(0), request)
    }

    fn call(&mut self, tag: Tag, request: &T<'_>) -> Result<R<'_>> {
        self.frame.clear();
        request.encode(tag, Dialect::Linux, &mut self.frame);
        self.stream.write_all(&self.frame)?;
        let mut head = [0; HEADER];
        self.stream.read_exact(&mut head)?;
        let size = frame_size(&head, self.msize)?.context("no size")?;
        self.frame.clear();
        self.frame.extend_from_slice(&head);
        self.frame.resize(size, 0);
        self.stream.read_exact(&mut self.frame[HEADER..])?;
        let (header, body) = split_frame(&self.frame)?;
        ensure!(header.tag == tag, "{}: the reply has tag {}", request.name(), header.tag.0);
        match R::decode(header.kind, body, Dialect::Linux)? {
            R::Lerror { ecode, .. } => bail!("{}: {}", request.name(), Errno(ecode)),
            reply => Ok(reply),
        }
    }
}
