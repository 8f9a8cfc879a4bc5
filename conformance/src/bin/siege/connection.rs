//! A client's connection that blocks: one request at a time with [`Connection::call`], or many tags at once
//! with [`Connection::many`]. Every wait has a bound.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ninefold::server::User;
use ninefold_proto::message::{Names, R, T};
use ninefold_proto::types::NONUNAME;
use ninefold_proto::wire::{self, DecodeError};
use ninefold_proto::{Dialect, Errno, Fid, Qid, Tag};

use crate::address::Address;

/// The msize that is offered, in bytes. diod 1.0.24 agrees to no more.
const MSIZE: u32 = 65536;
/// The longest wait for a connection or a reply. A server that needs longer under siege has stopped serving.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests that [`Connection::many`] keeps outstanding.
const WINDOW: usize = 128;
/// Bytes of a frame that are no data, as Linux's client counts them (`P9_IOHDRSZ`); diod refuses a count over that.
const IO_OVERHEAD: u32 = 24;
/// The fid of the tree's root, on every connection.
pub const ROOT: Fid = Fid(0);

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the connection is lost: {0}")]
    Lost(#[from] io::Error),
    #[error("the reply is no message: {0}")]
    Broken(#[from] DecodeError),
    #[error("{asked} was answered by {answered}, tag {tag}")]
    Unexpected { asked: &'static str, answered: &'static str, tag: u16 },
    #[error("{asked}: {errno}")]
    Refused { asked: &'static str, errno: Errno },
    #[error("the server does not speak {0}")]
    Dialect(Dialect),
}

impl Failure {
    /// Whether the connection can go on: the server said no, as it may.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Failure::Refused { .. })
    }
}

/// One connection, after version and attach.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    dialect: Dialect,
    msize: u32,
    next_fid: u32,
    root: Qid,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// Requests under way to [`Connection::many`].
pub struct Requests<'a> {
    out: &'a mut Vec<u8>,
    dialect: Dialect,
    tag: u16,
}

impl Requests<'_> {
    /// Writes the one request that was asked for.
    pub fn put(self, request: &T<'_>) {
        request.encode(Tag(self.tag), self.dialect, self.out);
    }
}

impl Connection {
    /// Connects, agrees on `dialect`, and attaches as the user of this process.
    pub fn attach(address: &Address, dialect: Dialect) -> Result<Connection, Failure> {
        let stream = TcpStream::connect_timeout(&address.socket, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Connection {
            stream,
            dialect,
            msize: MSIZE,
            next_fid: ROOT.0 + 1,
            root: Qid::default(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
        };
        let offer = dialect.as_str().as_bytes();
        match connection.call(&T::Version { msize: MSIZE, version: offer }) {
            Ok(R::Version { msize, version }) if version == offer && msize <= MSIZE => connection.msize = msize,
            // diod answers another dialect's offer with an error or with silence and a closed connection.
            Ok(_) | Err(Failure::Refused { .. } | Failure::Broken(_) | Failure::Unexpected { .. }) => {
                return Err(Failure::Dialect(dialect));
            }
            Err(failure) => return Err(failure),
        }
        let user = User::of_process();
        let attach = T::Attach {
            fid: ROOT,
            afid: Fid::NONE,
            uname: user.name.as_bytes(),
            aname: &address.aname,
            n_uname: if dialect == Dialect::Plan9 { NONUNAME } else { user.uid },
        };
        if let R::Attach { qid } = connection.call(&attach)? {
            connection.root = qid;
        }
        Ok(connection)
    }

    /// The qid of the tree's root.
    pub fn root(&self) -> Qid {
        self.root
    }

    /// The dialect agreed on.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The most bytes that one Tread, Twrite or Treaddir moves.
    pub fn iounit(&self) -> u32 {
        self.msize - IO_OVERHEAD
    }

    /// A fid that this connection has not used before.
    pub fn new_fid(&mut self) -> Fid {
        self.next_fid += 1;
        Fid(self.next_fid - 1)
    }

    /// Sends a request and waits for its reply, whose type is the request's own.
    pub fn call(&mut self, request: &T<'_>) -> Result<R<'_>, Failure> {
        let tag = if matches!(request, T::Version { .. }) { Tag::NONE } else { Tag(1) };
        self.outgoing.clear();
        request.encode(tag, self.dialect, &mut self.outgoing);
        self.stream.write_all(&self.outgoing)?;
        let (asked, number, dialect) = (request.name(), request.number(), self.dialect);
        let (came, reply) = self.receive()?;
        let refused = |errno| Failure::Refused { asked, errno };
        match reply {
            R::Lerror { ecode, .. } => Err(refused(Errno(ecode))),
            R::Error { errno, .. } if dialect == Dialect::Unix && errno != 0 => Err(refused(Errno(errno))),
            R::Error { ename, .. } => Err(refused(Errno::from_text(ename))),
            reply if came == tag && reply.number() == number + 1 => Ok(reply),
            reply => Err(Failure::Unexpected { asked, answered: reply.name(), tag: came.0 }),
        }
    }

    /// Sends `n` requests, up to [`WINDOW`] outstanding under tags of their own, and hands each reply to `take`
    /// with the number of its request. Requests of one call must not depend on each other.
    pub fn many(
        &mut self,
        n: usize,
        mut make: impl FnMut(usize, Requests<'_>),
        mut take: impl FnMut(usize, R<'_>),
    ) -> Result<(), Failure> {
        for first in (0..n).step_by(WINDOW) {
            let count = WINDOW.min(n - first);
            self.outgoing.clear();
            for i in 0..count {
                make(first + i, Requests { out: &mut self.outgoing, dialect: self.dialect, tag: i as u16 });
            }
            self.stream.write_all(&self.outgoing)?;
            let mut missing = [true; WINDOW];
            for _ in 0..count {
                let (tag, reply) = self.receive()?;
                let open = missing.get_mut(usize::from(tag.0)).filter(|open| **open && usize::from(tag.0) < count);
                let Some(open) = open else {
                    return Err(Failure::Unexpected { asked: "a batch", answered: reply.name(), tag: tag.0 });
                };
                *open = false;
                take(first + usize::from(tag.0), reply);
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(Tag, R<'_>), Failure> {
        let mut head = [0; wire::HEADER];
        self.stream.read_exact(&mut head)?;
        let size = wire::frame_size(&head, self.msize)?.unwrap_or_default();
        self.incoming.clear();
        self.incoming.extend_from_slice(&head);
        self.incoming.resize(size, 0);
        self.stream.read_exact(&mut self.incoming[wire::HEADER..])?;
        let (header, body) = wire::split_frame(&self.incoming)?;
        Ok((header.tag, R::decode(header.kind, body, self.dialect)?))
    }

    /// Walks from `fid` to a new fid; the qids that were walked, and whether the fid was made.
    pub fn walk(&mut self, fid: Fid, names: &[&[u8]]) -> Result<(Fid, Vec<Qid>), Failure> {
        let newfid = self.new_fid();
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        let R::Walk { wqids } = self.call(&T::Walk { fid, newfid, wnames })? else { unreachable!("call checks it") };
        Ok((newfid, wqids.iter().collect()))
    }

    /// Forgets a fid.
    pub fn clunk(&mut self, fid: Fid) -> Result<(), Failure> {
        self.call(&T::Clunk { fid }).map(|_| ())
    }
}
