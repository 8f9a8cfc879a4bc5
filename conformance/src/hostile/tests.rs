//! Each misbehaviour against a client that believes everything: what it hears is not what an honest server says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ninefold::transport::{Stream, memory};
use ninefold_proto::message::{Mask, Names, Octal, Payload, R, T};
use ninefold_proto::print::{Data, print};
use ninefold_proto::stat::{Stat, stats};
use ninefold_proto::types::{Fid, NONUNAME, Tag};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Errno};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::misbehaviour::Hook;
use super::*;

/// A server of which nothing is wrong.
static HONEST: Misbehaviour =
    Misbehaviour::odd("honest", ninefold_proto::dialect::DialectSet::PUL, Hook::Tree, "does nothing wrong");

/// Silence of this long is taken for the end of what comes; time is virtual. Less than the second that a drip takes.
const QUIET: Duration = Duration::from_millis(500);

const MSIZE: u32 = 65_536;
const ROOT: Fid = Fid(0);

/// A client that believes everything: it sends a fixed list of requests and writes down what comes.
struct Listener {
    stream: Stream,
    dialect: Dialect,
    heard: Vec<String>,
}

impl Listener {
    async fn send(&mut self, request: T<'_>) {
        let mut frame = Vec::new();
        request.encode(if matches!(request, T::Version { .. }) { Tag::NONE } else { Tag(1) }, self.dialect, &mut frame);
        self.send_bytes(&frame).await;
    }

    async fn send_bytes(&mut self, frame: &[u8]) {
        // A server that has hung up, or does not read, is heard by what does not come.
        let _ = timeout(QUIET, self.stream.write_all(frame)).await;
        let mut all = Vec::new();
        let mut part = vec![0; 1 << 20];
        while let Ok(Ok(n @ 1..)) = timeout(QUIET, self.stream.read(&mut part)).await {
            all.extend_from_slice(&part[..n]);
            if let Some(size) = all.first_chunk().map(|size| u32::from_le_bytes(*size) as usize)
                && size == all.len()
            {
                // A second reply would follow at once.
                while let Ok(Ok(n @ 1..)) = timeout(Duration::from_millis(1), self.stream.read(&mut part)).await {
                    all.extend_from_slice(&part[..n]);
                }
                break;
            }
        }
        self.heard.push(timeless(&all, self.dialect));
    }

    async fn walk(&mut self, newfid: u32, path: &str) {
        let mut scratch = Vec::new();
        let names = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes);
        let wnames = Names::encode(names, &mut scratch);
        self.send(T::Walk { fid: ROOT, newfid: Fid(newfid), wnames }).await;
    }

    async fn open(&mut self, fid: u32, write: bool) {
        let fid = Fid(fid);
        self.send(match self.dialect {
            Dialect::Linux => T::Lopen { fid, flags: Octal(u32::from(write)) },
            _ => T::Open { fid, mode: u8::from(write) },
        })
        .await;
    }

    async fn stat(&mut self, fid: u32) {
        let fid = Fid(fid);
        self.send(match self.dialect {
            Dialect::Linux => T::Getattr { fid, request_mask: Mask(0x7ff) },
            _ => T::Stat { fid },
        })
        .await;
    }

    async fn list(&mut self, fid: u32) {
        let (fid, count) = (Fid(fid), MSIZE - 1000);
        let mut offset = 0;
        for _ in 0..4 {
            self.send(match self.dialect {
                Dialect::Linux => T::Readdir { fid, offset, count },
                _ => T::Read { fid, offset, count },
            })
            .await;
            offset += self.next_offset();
        }
    }

    /// Where a listing goes on, by what the last reply says.
    fn next_offset(&self) -> u64 {
        let last = self.heard.last().expect("something was heard");
        let cookie = last.rsplit("cookie ").next().and_then(|rest| rest.split(' ').next()?.parse().ok());
        cookie.unwrap_or(0)
    }

    /// Everything that a misbehaviour may touch, in 41 requests or fewer.
    async fn use_everything(&mut self, version: &[u8]) {
        let n_uname = NONUNAME;
        self.send(T::Version { msize: MSIZE, version }).await;
        self.send(T::Attach { fid: ROOT, afid: Fid::NONE, uname: b"", aname: b"", n_uname }).await;
        self.walk(1, "greeting").await;
        self.stat(1).await;
        self.open(1, false).await;
        self.send(T::Read { fid: Fid(1), offset: 0, count: 100 }).await;
        self.send(T::Read { fid: Fid(1), offset: 6, count: 100 }).await;
        self.send(T::Flush { oldtag: Tag(1) }).await;
        self.send(T::Clunk { fid: Fid(1) }).await;
        self.walk(2, "empty").await;
        self.open(2, true).await;
        self.send(T::Write { fid: Fid(2), offset: 0, data: Payload(b"0123456789") }).await;
        if self.dialect == Dialect::Linux {
            let (flags, start, length, proc_id) = (0, 0, 1, 1);
            let lock = T::Lock { fid: Fid(2), locktype: 1, flags, start, length, proc_id, client_id: b"me" };
            self.send(lock).await;
            self.walk(3, "greeting").await;
            self.send(T::Xattrwalk { fid: Fid(3), newfid: Fid(4), name: b"user.note" }).await;
        }
        if self.dialect != Dialect::Plan9 {
            self.walk(5, "trap").await;
            match self.dialect {
                Dialect::Linux => self.send(T::Readlink { fid: Fid(5) }).await,
                _ => self.stat(5).await,
            }
            self.walk(6, "link").await;
            match self.dialect {
                Dialect::Linux => self.send(T::Readlink { fid: Fid(6) }).await,
                _ => self.stat(6).await,
            }
        }
        self.walk(7, "dir/a").await;
        self.walk(8, "").await;
        self.open(8, false).await;
        self.list(8).await;
    }
}

/// What came, in words: without times that are now, and with the place where a listing goes on.
fn timeless(bytes: &[u8], dialect: Dialect) -> String {
    let shown = || print(bytes, dialect, Data::Whole).to_string();
    let Ok((header, body)) = split_frame(bytes) else { return shown() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let is_now = |sec: u64| sec.abs_diff(now) < 86_400;
    let record = |stat: Stat<'_>| {
        let time = |sec: u32| if is_now(sec.into()) { 0 } else { sec };
        format!("{:?}", Stat { atime: time(stat.atime), mtime: time(stat.mtime), ..stat })
    };
    match R::decode(header.kind, body, dialect) {
        Ok(R::Getattr { mut atime_sec, mut mtime_sec, mut ctime_sec, .. }) => {
            let mut shown = shown();
            for sec in [&mut atime_sec, &mut mtime_sec, &mut ctime_sec].into_iter().filter(|sec| is_now(**sec)) {
                shown = shown.replace(&sec.to_string(), "now");
            }
            // Nanoseconds that are such say nothing.
            let words: Vec<&str> = shown.split(' ').collect();
            let is_nsec = |at: usize| at > 0 && words[at - 1].ends_with("_nsec");
            let small = |word: &str| word.parse().is_ok_and(|nsec: u64| nsec < 1_000_000_000);
            let kept = (0..words.len()).map(|at| if is_nsec(at) && small(words[at]) { "*" } else { words[at] });
            kept.collect::<Vec<_>>().join(" ")
        }
        Ok(R::Stat { stat }) => Stat::decode(stat.0, dialect).map_or_else(|_| shown(), record),
        Ok(R::Readdir { data }) => {
            let last = ninefold_proto::stat::dir_entries(data.0).last().and_then(Result::ok).map(|entry| entry.offset);
            format!("{} cookie {}", shown(), last.unwrap_or(0))
        }
        Ok(R::Read { data }) if dialect != Dialect::Linux => {
            let records: Option<Vec<String>> = stats(data.0, dialect).map(|stat| stat.ok().map(record)).collect();
            format!("{} cookie {}", records.map_or_else(shown, |records| records.join(" ")), data.0.len())
        }
        _ => shown(),
    }
}

/// All that is heard of a server.
async fn heard(misbehaviour: &'static Misbehaviour, dialect: Dialect) -> Vec<String> {
    let server = Hostile::new(misbehaviour).await.unwrap();
    let (client, far) = memory::pair(1 << 20);
    let served = tokio::spawn(async move { server.serve(far).await });
    let mut listener = Listener { stream: client, dialect, heard: Vec::new() };
    listener.use_everything(dialect.as_str().as_bytes()).await;
    served.abort();
    listener.heard
}

#[tokio::test(start_paused = true)]
async fn the_server_behind_a_misbehaviour_is_honest() {
    for dialect in Dialect::ALL {
        let first = heard(&HONEST, dialect).await;
        let refused: Vec<&String> =
            first.iter().filter(|reply| reply.starts_with("Rerror") || reply.starts_with("Rlerror")).collect();
        assert!(refused.is_empty() && !first.iter().any(|reply| reply.starts_with("raw")), "{first:#?}");
        assert_eq!(first, heard(&HONEST, dialect).await);
    }
}

#[tokio::test(start_paused = true)]
async fn each_misbehaviour_can_be_noticed_in_each_of_its_dialects() {
    for dialect in Dialect::ALL {
        let honest = heard(&HONEST, dialect).await;
        for misbehaviour in all().filter(|row| row.dialects().any(|of| of == dialect)) {
            // What one finds in an honest tree.
            if matches!(misbehaviour.hook, Hook::Tree) {
                continue;
            }
            assert_ne!(heard(misbehaviour, dialect).await, honest, "{} in {dialect}", misbehaviour.name);
        }
    }
}

#[tokio::test]
async fn the_tree_is_what_it_is_said_to_be() {
    let numbers = tree::numbers();
    assert_eq!(numbers.len(), tree::NUMBERS_BYTES);
    assert_ne!(numbers[..4096], numbers[4096..8192]);
    assert!(tree::grow(true, &[b"odd"]).await.is_ok());
    // A name twice.
    assert_eq!(tree::grow(false, &[b"dir"]).await.map(drop), Err(Errno::EEXIST.into()));
}
