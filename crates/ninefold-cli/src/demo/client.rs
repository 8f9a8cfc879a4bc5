//! A client that sends one request and waits for its reply: enough for a demonstration, and no more.

use std::io::{Read, Write};

use anyhow::{Context, bail, ensure};
use ninefold::proto::types::NONUNAME;
use ninefold::proto::wire::{HEADER, frame_size, split_frame};
use ninefold::proto::{Dialect, Errno, Fid, R, T, Tag};

/// A stream of bytes both ways.
pub trait Wire: Read + Write {}
impl<S: Read + Write> Wire for S {}

/// Bytes a message may have: what Linux's client asks for by default.
const MSIZE: u32 = 128 * 1024 + 24;

pub struct Client {
    wire: Box<dyn Wire>,
    pub dialect: Dialect,
    pub msize: u32,
    /// The request being sent, then the reply to it.
    frame: Vec<u8>,
}

impl Client {
    /// Agrees on a version and attaches: fid 0 is the root.
    pub fn new(wire: Box<dyn Wire>, dialect: Dialect) -> anyhow::Result<Client> {
        let mut client = Client { wire, dialect, msize: MSIZE, frame: Vec::new() };
        let offer = dialect.as_str().as_bytes();
        match client.exchange(Tag::NONE, &T::Version { msize: MSIZE, version: offer })? {
            R::Version { msize, version } => {
                ensure!(version == offer, "offered {dialect}, got {}", version.escape_ascii());
                ensure!((4096..=MSIZE).contains(&msize), "offered msize {MSIZE}, got {msize}");
                client.msize = msize;
            }
            other => bail!("Tversion was answered by {}", other.name()),
        }
        let root = T::Attach { fid: Fid(0), afid: Fid::NONE, uname: b"", aname: b"", n_uname: NONUNAME };
        match client.rpc(&root)? {
            R::Attach { qid } => ensure!(qid.is_dir(), "the root is no directory"),
            other => bail!("Tattach was answered by {}", other.name()),
        }
        Ok(client)
    }

    /// Sends a request and takes its reply; an error reply is an error.
    pub fn rpc(&mut self, request: &T<'_>) -> anyhow::Result<R<'_>> {
        self.exchange(Tag(1), request)
    }

    fn exchange(&mut self, tag: Tag, request: &T<'_>) -> anyhow::Result<R<'_>> {
        let name = request.name();
        self.frame.clear();
        request.encode(tag, self.dialect, &mut self.frame);
        self.wire.write_all(&self.frame).with_context(|| format!("{name}: cannot send"))?;
        self.receive().with_context(|| format!("{name}: no reply"))?;
        let (header, body) = split_frame(&self.frame)?;
        ensure!(header.tag == tag, "{name} with tag {tag} was answered with tag {}", header.tag);
        match R::decode(header.kind, body, self.dialect).with_context(|| format!("{name}: the reply is malformed"))? {
            R::Error { ename, .. } => bail!("{name}: {}", ename.escape_ascii()),
            R::Lerror { ecode } => bail!("{name}: {}", Errno(ecode)),
            reply if reply.number() == request.number() + 1 => Ok(reply),
            reply => bail!("{name} was answered by {}", reply.name()),
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        self.frame.resize(HEADER, 0);
        self.wire.read_exact(&mut self.frame)?;
        let size = frame_size(&self.frame, self.msize)?.context("a header without size")?;
        self.frame.resize(size, 0);
        self.wire.read_exact(&mut self.frame[HEADER..])?;
        Ok(())
    }
}
