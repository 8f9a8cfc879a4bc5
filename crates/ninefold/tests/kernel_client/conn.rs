//! A connection to our server, message by message: what goes out and comes in is frames.
//!
//! [`Conn::send`] sends a request and tells its tag, [`Conn::reply`] waits for the reply to that tag and keeps others for
//! later, [`Conn::ask`] does both. Time is virtual, so that waiting for what never comes takes no time.

use std::collections::HashMap;
use std::time::Duration;

use bytes::BytesMut;
use ninefold::proto::types::{MAXWELEM, NONUNAME};
use ninefold::proto::wire::HEADER;
use ninefold::proto::{Dialect, Errno, Fid, R, T, Tag};
use ninefold::transport::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The bound of a wait that ought to end at once.
pub const SOON: Duration = Duration::from_secs(3600);

/// Longer than the 30 s that Linux's client sleeps when a lock that it waits for is answered "blocked"
/// (v9fs_file_do_lock in fs/9p/vfs_file.c).
const SILENCE: Duration = Duration::from_secs(300);

/// Bytes; what Linux's client offers on TCP (`DEFAULT_MSIZE` in net/9p/client.c).
const MSIZE: u32 = 128 << 10;

/// A reply as it came.
#[derive(Debug)]
pub struct Reply {
    frame: BytesMut,
    dialect: Dialect,
}

impl Reply {
    pub fn message(&self) -> R<'_> {
        R::decode(self.frame[4], &self.frame[HEADER..], self.dialect).expect("a message of the dialect")
    }

    fn tag(&self) -> Tag {
        Tag(u16::from_le_bytes([self.frame[5], self.frame[6]]))
    }

    /// The error, if it is one. 9P2000 has texts only.
    fn errno(&self) -> Option<Errno> {
        match self.message() {
            R::Lerror { ecode, .. } => Some(Errno(ecode)),
            R::Error { ename, .. } if self.dialect == Dialect::Plan9 => Some(Errno::from_text(ename)),
            R::Error { errno, .. } => Some(Errno(errno)),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    pub dialect: Dialect,
    tag: u16,
    fid: u32,
    arrived: BytesMut,
    /// Replies that came before they were waited for.
    early: HashMap<Tag, Reply>,
}

impl Conn {
    /// Agrees on the dialect.
    pub async fn over(stream: Stream, dialect: Dialect) -> Conn {
        let (arrived, early) = (BytesMut::new(), HashMap::new());
        let mut conn = Conn { stream, dialect, tag: 0, fid: 0, arrived, early };
        let version = dialect.as_str().as_bytes();
        conn.send_as(Tag::NONE, &T::Version { msize: MSIZE, version }).await;
        let reply = conn.reply(Tag::NONE).await;
        assert_eq!(reply.message(), R::Version { msize: MSIZE, version });
        conn
    }

    /// A fid that was never used.
    pub fn new_fid(&mut self) -> Fid {
        self.fid += 1;
        Fid(self.fid)
    }

    pub async fn send(&mut self, message: &T<'_>) -> Tag {
        // No more than a few are outstanding: long before it is used again a tag is free.
        self.tag = if self.tag == u16::MAX - 1 { 1 } else { self.tag + 1 };
        self.send_as(Tag(self.tag), message).await;
        Tag(self.tag)
    }

    async fn send_as(&mut self, tag: Tag, message: &T<'_>) {
        let mut frame = Vec::new();
        message.encode(tag, self.dialect, &mut frame);
        timeout(SOON, self.stream.write_all(&frame)).await.expect("the server takes a request").unwrap();
    }

    /// The reply to the request of that tag.
    pub async fn reply(&mut self, tag: Tag) -> Reply {
        loop {
            if let Some(reply) = self.early.remove(&tag) {
                return reply;
            }
            let reply = timeout(SOON, self.next()).await.unwrap_or_else(|_| panic!("no reply to tag {tag}"));
            assert!(self.early.insert(reply.tag(), reply).is_none(), "two replies to one tag");
        }
    }

    /// Asserts that nothing is answered, now or in the next minutes.
    pub async fn is_silent(&mut self) {
        assert!(self.early.is_empty(), "answered: {:?}", self.early);
        if let Ok(reply) = timeout(SILENCE, self.next()).await {
            panic!("answered: {:?}", reply.message());
        }
    }

    async fn next(&mut self) -> Reply {
        loop {
            if let Some(size) = self.arrived.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize)
                && self.arrived.len() >= size
            {
                return Reply { frame: self.arrived.split_to(size), dialect: self.dialect };
            }
            let read = self.stream.read_buf(&mut self.arrived).await.unwrap();
            assert_ne!(read, 0, "the server closed the connection");
        }
    }

    pub async fn ask(&mut self, message: &T<'_>) -> Result<Reply, Errno> {
        let tag = self.send(message).await;
        let reply = self.reply(tag).await;
        reply.errno().map_or(Ok(reply), Err)
    }

    pub async fn attach(&mut self, uname: &str, n_uname: u32) -> Result<Fid, Errno> {
        let fid = self.new_fid();
        let attach = T::Attach { fid, afid: Fid::NONE, uname: uname.as_bytes(), aname: b"", n_uname };
        self.ask(&attach).await.map(|_| fid)
    }

    /// The root as whoever the server takes this process for.
    pub async fn root(&mut self) -> Fid {
        self.attach("", NONUNAME).await.unwrap()
    }

    /// Walks as Linux's client does: sixteen names a message, and what follows onto the new fid itself.
    pub async fn walk(&mut self, from: Fid, names: &[&[u8]]) -> Result<Fid, Errno> {
        let newfid = self.new_fid();
        let mut fid = from;
        let first = &names[..names.len().min(MAXWELEM)];
        for piece in std::iter::once(first).chain(names[first.len()..].chunks(MAXWELEM)) {
            let mut scratch = Vec::new();
            let wnames = ninefold::proto::message::Names::encode(piece.iter().copied(), &mut scratch);
            let walked = self.ask(&T::Walk { fid, newfid, wnames }).await;
            let walked = walked.and_then(|reply| match reply.message() {
                R::Walk { wqids } if wqids.len() == piece.len() => Ok(()),
                R::Walk { .. } => Err(Errno::ENOENT),
                other => panic!("{other:?}"),
            });
            if let Err(errno) = walked {
                if fid == newfid {
                    self.clunk(newfid).await;
                }
                return Err(errno);
            }
            fid = newfid;
        }
        Ok(newfid)
    }

    pub async fn clunk(&mut self, fid: Fid) {
        self.ask(&T::Clunk { fid }).await.unwrap();
    }
}
