//! A server of our own making, that does what a test tells it to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::proto::attr::getattr;
use ninefold::proto::dialect::Version;
use ninefold::proto::message::{Entries, Mask, Octal, Payload, Qids, StatBytes};
use ninefold::proto::stat::{Stat, dm};
use ninefold::proto::wire::{frame_size, split_frame};
use ninefold::proto::{Dialect, Errno, Fid, Qid, QidType, R, T, Tag};
use ninefold::transport::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// After so many bytes the content of a file comes again: a prime, so that what lies a power of two away differs.
const PERIOD: usize = 1_000_003;

/// The bytes of every file from `offset` on.
pub fn content(offset: u64, count: usize) -> Bytes {
    static TWICE: LazyLock<Bytes> = LazyLock::new(|| {
        let once = (0..PERIOD).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8);
        once.clone().chain(once).collect::<Vec<_>>().into()
    });
    let mut bytes = BytesMut::new();
    let mut at = (offset % PERIOD as u64) as usize;
    if count <= PERIOD {
        return TWICE.slice(at..at + count);
    }
    while bytes.len() < count {
        let part = (count - bytes.len()).min(PERIOD);
        bytes.extend_from_slice(&TWICE[at..at + part]);
        at = (at + part) % PERIOD;
    }
    bytes.freeze()
}

/// Where the replies go; may be kept to send them later.
#[derive(Clone)]
pub struct Replies {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    pub dialect: Dialect,
    version: Version,
}

impl Replies {
    pub fn send(&self, tag: Tag, reply: R<'_>) {
        let mut frame = Vec::new();
        reply.encode(tag, self.version, &mut frame);
        // The client may be gone.
        let _ = self.frames.send(frame);
    }

    fn request<'f>(&self, frame: &'f [u8]) -> (Tag, T<'f>) {
        let (header, body) = split_frame(frame).unwrap();
        (header.tag, T::decode(header.kind, body, self.version).unwrap())
    }

    /// Answers Tversion, and says whether it was one.
    fn agree(&mut self, tag: Tag, request: &T<'_>) -> bool {
        let T::Version { msize, version } = *request else { return false };
        self.version = Version::parse(version).expect("a test pins its version");
        self.dialect = self.version.dialect;
        self.send(tag, R::Version { msize, version });
        true
    }

    pub fn is_n1(&self) -> bool {
        self.version.is_n1()
    }

    pub fn error(&self, tag: Tag, errno: Errno) {
        match self.dialect {
            Dialect::Linux => self.send(tag, R::Lerror { ecode: errno.0, retry_ms: 0, text: b"" }),
            _ => self.send(tag, R::Error { ename: errno.text().as_bytes(), errno: errno.0 }),
        }
    }
}

/// Whether a request is dealt with; else the fake's own tree answers.
pub type Handled = bool;

/// Serves `stream`: every request is put to `answer` first. The fake's own tree has every name, those that begin with
/// `d` as empty directories, the others as files of `size` bytes.
pub fn serve(stream: Stream, size: u64, mut answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static) {
    let (mut read, mut replies) = split(stream);
    tokio::spawn(async move {
        let mut tree = Tree { size, fids: Fids::default() };
        let mut buffer = BytesMut::new();
        while let Some(frame) = next(&mut read, &mut buffer).await {
            let (tag, request) = replies.request(&frame);
            if !replies.agree(tag, &request) && !answer(&replies, tag, &request) {
                tree.answer(&replies, tag, &request);
            }
        }
    });
}

/// The fids that a fake knows, and what they stand for.
pub type Fids = Arc<Mutex<HashMap<Fid, Qid>>>;

/// Serves `stream` by a tree as [`serve`]'s, but carries each request out after a time of its own, given by `delay`: in any
/// order. A Tflush finds a request carried out, and then its reply comes first, or prevents it. Gives the fids.
pub fn serve_late(stream: Stream, size: u64, mut delay: impl FnMut() -> Duration + Send + 'static) -> Fids {
    let (mut read, mut replies) = split(stream);
    let fids = Fids::default();
    let mut tree = Tree { size, fids: fids.clone() };
    tokio::spawn(async move {
        let mut buffer = BytesMut::new();
        let mut waiting: BTreeMap<(Instant, u64), Bytes> = BTreeMap::new();
        for number in 0.. {
            let due = waiting.first_key_value().map(|((at, _), _)| *at);
            let frame = tokio::select! {
                biased;
                () = async { tokio::time::sleep_until(due.unwrap()).await }, if due.is_some() => None,
                frame = next(&mut read, &mut buffer) => match frame {
                    None => return,
                    frame => frame,
                },
            };
            match frame {
                None => {
                    let (_, frame) = waiting.pop_first().unwrap();
                    let (tag, request) = replies.request(&frame);
                    tree.answer(&replies, tag, &request);
                }
                Some(frame) => {
                    let (tag, request) = replies.request(&frame);
                    match request {
                        _ if replies.agree(tag, &request) => {}
                        T::Flush { oldtag } => {
                            waiting.retain(|_, frame| split_frame(frame).unwrap().0.tag != oldtag);
                            tree.answer(&replies, tag, &request);
                        }
                        _ => drop(waiting.insert((Instant::now() + delay(), number), frame)),
                    }
                }
            }
        }
    });
    fids
}

fn split(stream: Stream) -> (ReadHalf<Stream>, Replies) {
    let (read, mut write) = tokio::io::split(stream);
    let (frames, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            if write.write_all(&frame).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    });
    (read, Replies { frames, dialect: Dialect::Plan9, version: Dialect::Plan9.into() })
}

async fn next(read: &mut ReadHalf<Stream>, buffer: &mut BytesMut) -> Option<Bytes> {
    loop {
        match frame_size(buffer, u32::MAX).unwrap() {
            Some(size) if size <= buffer.len() => return Some(buffer.split_to(size).freeze()),
            _ => {}
        }
        if !matches!(read.read_buf(buffer).await, Ok(1..)) {
            return None;
        }
    }
}

struct Tree {
    size: u64,
    fids: Fids,
}

/// The qid of whatever is called `name`.
pub fn qid(name: &[u8]) -> Qid {
    let path = name.iter().fold(1, |path: u64, &b| path.wrapping_mul(257).wrapping_add(b.into()));
    let kind = if name.first().is_none_or(|&b| b == b'd') { QidType::DIR } else { QidType::FILE };
    Qid { kind, version: 0, path }
}

impl Tree {
    fn answer(&mut self, replies: &Replies, tag: Tag, request: &T<'_>) {
        let mut fids = self.fids.lock().unwrap();
        match *request {
            T::Attach { fid, .. } => {
                fids.insert(fid, qid(b""));
                replies.send(tag, R::Attach { qid: qid(b"") });
            }
            T::Session { fid, .. } => {
                fids.insert(fid, qid(b""));
                let (caps, qid) = (Mask(0), qid(b""));
                let (epoch, time_sec, time_nsec, term_ms) = (1, 0, 0, 0);
                let (fids, running, parked, group, waiting) = (1 << 18, 256, 1024, 64, 4096);
                replies.send(
                    tag,
                    R::Session {
                        caps,
                        epoch,
                        time_sec,
                        time_nsec,
                        term_ms,
                        fids,
                        running,
                        parked,
                        group,
                        waiting,
                        qid,
                    },
                );
            }
            T::Walk { fid, newfid, wnames } => {
                let qids: Vec<Qid> = wnames.iter().map(qid).collect();
                let here = qids.last().copied().unwrap_or(fids[&fid]);
                fids.insert(newfid, here);
                replies.send(tag, R::Walk { wqids: Qids::encode(&qids, &mut Vec::new()) });
            }
            T::Lopen { fid, .. } => replies.send(tag, R::Lopen { qid: fids[&fid], iounit: 0 }),
            T::Open { fid, .. } => replies.send(tag, R::Open { qid: fids[&fid], iounit: 0 }),
            T::Lcreate { fid, name, .. } => {
                fids.insert(fid, qid(name));
                replies.send(tag, R::Lcreate { qid: qid(name), iounit: 0 });
            }
            T::Read { offset, count, .. } => {
                let count = self.size.saturating_sub(offset).min(count.into());
                replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
            }
            T::Write { data, .. } => replies.send(tag, R::Write { count: data.0.len() as u32 }),
            T::Readdir { .. } => replies.send(tag, R::Readdir { data: Entries(&[]) }),
            T::Getattr { fid, .. } => replies.send(tag, getattr_of(fids[&fid], self.size)),
            T::Stat { fid } => {
                let qid = fids[&fid];
                let dir = qid.is_dir();
                let mode = if dir { dm::DIR | 0o755 } else { 0o644 };
                let length = if dir { 0 } else { self.size };
                let mut stat = Vec::new();
                Stat { qid, mode, length, name: b"f", uid: b"u", gid: b"g", muid: b"u", ..Stat::UNTOUCHED }
                    .encode(replies.dialect, &mut stat);
                replies.send(tag, R::Stat { stat: StatBytes(&stat) });
            }
            T::Clunk { fid } | T::Remove { fid } => {
                let known = fids.remove(&fid).is_some();
                match request {
                    _ if !known => replies.error(tag, Errno::EBADF),
                    T::Clunk { .. } => replies.send(tag, R::Clunk {}),
                    _ => replies.send(tag, R::Remove {}),
                }
            }
            T::Flush { .. } => replies.send(tag, R::Flush {}),
            _ => replies.error(tag, Errno::EOPNOTSUPP),
        }
    }
}

/// The attributes of a file of `size` bytes, or of a directory.
pub fn getattr_of(qid: Qid, size: u64) -> R<'static> {
    let mode = if qid.is_dir() { 0o040_755 } else { 0o100_644 };
    R::Getattr {
        valid: Mask(getattr::BASIC),
        qid,
        mode: Octal(mode),
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size,
        blksize: 4096,
        blocks: 0,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
        ctime_sec: 0,
        ctime_nsec: 0,
        btime_sec: 0,
        btime_nsec: 0,
        generation: 0,
        data_version: 0,
    }
}
