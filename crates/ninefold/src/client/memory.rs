//! What servers agreed on the last time, in a file of the user's cache directory.
//!
//! [`Memory::recall`] before a connection, [`Memory::learn`] when it is made, [`Memory::forget`] when what was recalled did
//! not hold. The file is JSON: of each place a version, an msize, the offer that brought them, how long a round trip took, and a time; nothing
//! else, and no secret. It is replaced whole. One that is broken, that another user owns or that others may write to is as none; a
//! failure to write is none; a disk that hangs is waited for no longer than [`PATIENCE`].

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ninefold_proto::dialect::Version;
use ninefold_proto::wire::MSIZE_MIN;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::transport::{Address, Place};

/// Servers that are remembered; over it the one that was learned first is forgotten.
const SERVERS_MAX: usize = 256;

/// Bytes of a place that is remembered: a host's name has at most 253 (RFC 1035), a socket's path 107 (unix(7)).
const PLACE_MAX: usize = 512;

/// Bytes of a file that is read: all servers, with room for how they are written.
const FILE_MAX: u64 = (SERVERS_MAX * (PLACE_MAX + 256)) as u64;

/// How long a refusal is believed: a server that was replaced by a better one gets the best dialect the day after.
const REFUSAL: Duration = Duration::from_secs(24 * 3600);

/// An entry is written anew no more often than this while it stays the same, so that it does not become the oldest.
const REFRESH: Duration = Duration::from_secs(24 * 3600);

/// What a connection takes on a way that is short, however short.
const NEAR: Duration = Duration::from_millis(4);

/// So many times as much is much more: a way that became longer is believed to be so many times as long each time that it is used, at most.
const MUCH: u32 = 4;

/// The longest wait for the file.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait for somebody else who writes it.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// A file of what servers agreed on; see [`Options::memory`](super::Options::memory).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    file: PathBuf,
}

/// What is remembered of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub version: Version,
    /// Bytes of the largest frame agreed, 4,096 to 8 MiB.
    pub msize: u32,
    /// The offer that was taken: one that is not the best was taken when better ones were refused.
    pub offer: Version,
    /// How long a round trip took: a connection, or the first answer by it where that took longer, as behind a relay. Zero where nobody knows.
    pub trip: Duration,
    /// Seconds since 1970: when it was learned.
    at: u64,
}

impl Entry {
    /// Whether the way to the server has become another.
    fn is_as_far(&self, trip: Duration) -> bool {
        let (one, other) = (self.trip.max(NEAR), trip.max(NEAR));
        one <= 2 * other && other <= 2 * one
    }

    /// How far the server may be by now, if `took`, what a connection took, is little of what a round trip did, as behind a relay. Else it is as far as
    /// that tells.
    pub fn farthest(&self, took: Duration) -> Option<Duration> {
        (took * MUCH < self.trip).then_some(self.trip.max(NEAR) * MUCH)
    }

    /// Whether an early start may be made.
    pub fn is_n1(&self) -> bool {
        self.version.is_n1()
    }

    fn is_refusal(&self) -> bool {
        !self.offer.is_n1()
    }

    /// Whether it says nothing any more: a refusal of long ago, or of a time to come.
    fn is_over(&self, now: u64) -> bool {
        self.is_refusal() && !(self.at..self.at.saturating_add(REFUSAL.as_secs())).contains(&now)
    }
}

/// The file's content; the server that was learned last stands last.
#[derive(Serialize, Deserialize, Default)]
struct Content {
    servers: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// An address without a path.
    place: String,
    version: String,
    msize: u32,
    offer: String,
    /// Milliseconds.
    #[serde(default)]
    trip: u32,
    at: u64,
}

impl Line {
    fn entry(&self) -> Option<Entry> {
        let version = |text: &str| Version::parse(text.as_bytes());
        let (version, offer) = (version(&self.version)?, version(&self.offer)?);
        let (msize, at) = (self.msize, self.at);
        let trip = Duration::from_millis(self.trip.into());
        (MSIZE_MIN..=8 << 20).contains(&msize).then_some(Entry { version, msize, offer, trip, at })
    }
}

impl Memory {
    /// In `$XDG_CACHE_HOME`, or `~/.cache` where that is not set to an absolute path (XDG Base Directory Specification);
    /// `None` where there is neither.
    pub fn of_user() -> Option<Memory> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(Memory { file: cache.join("ninefold").join("servers") })
    }

    /// In another file; its directory is made when something is written.
    pub fn in_file(file: impl Into<PathBuf>) -> Memory {
        Memory { file: file.into() }
    }

    /// What is remembered of the server at an address, if it says anything.
    pub(super) async fn recall(&self, address: &Address) -> Option<Entry> {
        // Who pins a dialect learns nothing from what was refused.
        let place = key(address)?;
        let known = self.clone().patiently(move |memory| memory.content().find(&place)).await.flatten()?;
        let fits = address.dialect.is_none_or(|pinned| pinned.is_n1() && known.is_n1());
        (fits && !known.is_over(now())).then_some(known)
    }

    /// A server agreed on a version and an msize, to an offer, over a way on which a round trip took `trip`; `known` was recalled before.
    pub(super) async fn learn(
        &self,
        address: &Address,
        known: Option<Entry>,
        agreed: (Version, u32),
        (offer, trip): (Version, Duration),
    ) {
        // A pinned offer says nothing of those that were not made.
        let Some(place) = key(address).filter(|_| address.dialect.is_none() || offer.is_n1()) else { return };
        let mut entry = Entry { version: agreed.0, msize: agreed.1, offer, trip, at: now() };
        if let Some(known) = known {
            let is_same = (known.version, known.msize, known.offer) == (entry.version, entry.msize, entry.offer)
                && known.is_as_far(trip);
            let is_fresh = known.at <= entry.at && entry.at - known.at < REFRESH.as_secs();
            if is_same && is_fresh {
                return;
            }
            // The better offers were refused then, and were not made again.
            if entry.is_refusal() && known.offer == entry.offer {
                entry.at = known.at;
            }
        }
        self.clone().patiently(move |memory| memory.put(place, Some(entry))).await;
    }

    /// What was recalled does not hold.
    pub(super) async fn forget(&self, address: &Address) {
        let Some(place) = key(address) else { return };
        self.clone().patiently(move |memory| memory.put(place, None)).await;
    }

    async fn patiently<T: Send + 'static>(self, work: impl FnOnce(Memory) -> T + Send + 'static) -> Option<T> {
        let work = tokio::task::spawn_blocking(move || work(self));
        tokio::time::timeout(PATIENCE, work).await.ok()?.ok()
    }

    /// Nothing, where the file is not to be believed.
    fn content(&self) -> Content {
        read(&self.file).unwrap_or_default()
    }

    fn put(&self, place: String, entry: Option<Entry>) {
        if let Err(e) = self.try_put(place, entry) {
            debug!(file = %self.file.display(), "cannot remember what a server agreed on: {e}");
        }
    }

    fn try_put(&self, place: String, entry: Option<Entry>) -> std::io::Result<()> {
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Two that write at a time would each forget what the other learned: so they do where one hangs.
        let lock = File::open(dir)?;
        let until = Instant::now() + LOCK_PATIENCE;
        // Where it cannot be locked at all nothing is waited for.
        let busy = || flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK);
        while busy() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut content = self.content();
        content.servers.retain(|line| line.place != place);
        if let Some(Entry { version, msize, offer, trip, at }) = entry {
            let trip = u32::try_from(trip.as_millis()).unwrap_or(u32::MAX);
            let (version, offer) = (version.as_str().to_owned(), offer.as_str().to_owned());
            content.servers.push(Line { place, version, msize, offer, trip, at });
        }
        let too_many = content.servers.len().saturating_sub(SERVERS_MAX);
        content.servers.drain(..too_many);
        let mut new = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut new, &content)?;
        new.flush()?;
        new.persist(&self.file)?;
        Ok(())
    }
}

impl Content {
    fn find(&self, place: &str) -> Option<Entry> {
        self.servers.iter().rev().find(|line| line.place == place)?.entry()
    }
}

/// Where an address leads, if that is remembered. Over ssh a server is started anew each time, and each try may ask for a
/// password.
fn key(address: &Address) -> Option<String> {
    match address.place {
        Place::Ssh { .. } => None,
        _ => Some(address.place.to_string()).filter(|place| place.len() <= PLACE_MAX),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn read(file: &Path) -> Option<Content> {
    // A fifo must not be waited for, nor a link be followed to what somebody else chose.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(file).ok()?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !metadata.is_file() || !is_own || metadata.len() > FILE_MAX {
        return None;
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text).ok()?;
    let mut content: Content = serde_json::from_slice(&text).ok()?;
    content.servers.truncate(SERVERS_MAX);
    Some(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ninefold_proto::Dialect;

    use super::*;

    fn memory() -> (tempfile::TempDir, Memory) {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::in_file(dir.path().join("cache").join("servers"));
        (dir, memory)
    }

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    async fn learn_n1(memory: &Memory, place: &str) {
        memory.learn(&address(place), None, (Version::N1, 65_536), (Version::N1, Duration::ZERO)).await;
    }

    /// As if an entry had been learned so many seconds ago.
    fn age(memory: &Memory, seconds: i64) {
        let mut content = memory.content();
        for line in &mut content.servers {
            line.at = line.at.checked_add_signed(-seconds).unwrap();
        }
        std::fs::write(&memory.file, serde_json::to_vec(&content).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn what_a_server_agreed_on_is_remembered_by_its_place() {
        let (_dir, memory) = memory();
        assert_eq!(memory.recall(&address("9p://h/x")).await, None);
        learn_n1(&memory, "9p://h/some/path?aname=secret").await;
        learn_n1(&memory, "9p+unix:/run/s").await;
        learn_n1(&memory, "h:/x").await;
        for place in ["9p://h", "9p://h:5640/other", "9p+unix:/run/s:/x", "9p://h?dialect=9P2000.L.n1"] {
            let known = memory.recall(&address(place)).await.unwrap();
            assert_eq!((known.version, known.msize, known.is_n1()), (Version::N1, 65_536, true), "{place}");
        }
        for place in ["9p://other", "9p://h:1", "h:/x", "9p+ssh://h/x", "9p://h?dialect=9P2000.L"] {
            assert_eq!(memory.recall(&address(place)).await, None, "{place}");
        }
        let text = std::fs::read_to_string(&memory.file).unwrap();
        assert!(!text.contains("secret") && !text.contains("path"), "{text}");
        assert_eq!(std::fs::metadata(&memory.file).unwrap().permissions().mode() & 0o777, 0o600);
        memory.forget(&address("9p://h")).await;
        assert_eq!(memory.recall(&address("9p://h")).await, None);
        assert!(memory.recall(&address("9p+unix:/run/s")).await.is_some());
    }

    #[tokio::test]
    async fn a_refusal_is_believed_for_a_day_and_no_longer_however_often_it_is_met() {
        let (_dir, memory) = memory();
        let (h, unix) = (address("9p://h"), Version::from(Dialect::Unix));
        memory.learn(&h, None, (unix, 8192), (unix, Duration::ZERO)).await;
        age(&memory, 23 * 3600);
        let known = memory.recall(&h).await.unwrap();
        assert_eq!(known.offer, unix);
        // Met again, with another msize.
        memory.learn(&h, Some(known), (unix, 4096), (unix, Duration::ZERO)).await;
        assert_eq!(memory.recall(&h).await.unwrap().msize, 4096);
        age(&memory, 3600);
        assert_eq!(memory.recall(&h).await, None);
        // A clock that was set back.
        age(&memory, -48 * 3600);
        assert_eq!(memory.recall(&h).await, None);
    }

    #[tokio::test]
    async fn what_was_cut_or_taken_does_not_age() {
        let (_dir, memory) = memory();
        let (h, linux) = (address("9p://h"), Version::from(Dialect::Linux));
        memory.learn(&h, None, (linux, 8192), (Version::N1, Duration::ZERO)).await;
        age(&memory, 1000 * 24 * 3600);
        let known = memory.recall(&h).await.unwrap();
        assert_eq!((known.version, known.offer), (linux, Version::N1));
    }

    #[tokio::test]
    async fn the_oldest_server_is_forgotten_when_there_are_too_many() {
        let (_dir, memory) = memory();
        for i in 0..=SERVERS_MAX {
            learn_n1(&memory, &format!("9p://h{i}")).await;
        }
        assert_eq!(memory.recall(&address("9p://h0")).await, None);
        assert!(memory.recall(&address("9p://h1")).await.is_some());
        assert_eq!(memory.content().servers.len(), SERVERS_MAX);
    }

    #[tokio::test]
    async fn a_file_that_is_not_to_be_believed_is_as_none() {
        let h = address("9p://h");
        let text = |version: &str, msize: u32| {
            format!(
                r#"{{"servers":[{{"place":"9p://h:5640","version":"{version}","msize":{msize},"offer":"9P2000.L.n1","at":1}}]}}"#
            )
        };
        let good = text("9P2000.L.n1", 8192);
        let cases = [
            (good.as_str(), 0o600, true),
            (&good, 0o644, true),
            (&good, 0o620, false),
            (&good, 0o602, false),
            (&good[..good.len() - 1], 0o600, false),
            ("", 0o600, false),
            ("\0\u{1}", 0o600, false),
            (&text("9P2000.L.n9", 8192), 0o600, false),
            (&text("9P2000.L.n1", 4095), 0o600, false),
            (&text("9P2000.L.n1", u32::MAX), 0o600, false),
            (
                &good.replace("\"servers\":", &format!("\"x\":\"{}\",\"servers\":", "y".repeat(FILE_MAX as usize))),
                0o600,
                false,
            ),
        ];
        for (text, mode, believed) in cases {
            let (_dir, memory) = memory();
            std::fs::create_dir(memory.file.parent().unwrap()).unwrap();
            std::fs::write(&memory.file, text).unwrap();
            std::fs::set_permissions(&memory.file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(memory.recall(&h).await.is_some(), believed, "{mode:o} {}", &text[..text.len().min(200)]);
            // It is replaced by a good one.
            learn_n1(&memory, "9p://h").await;
            assert!(memory.recall(&h).await.is_some());
        }
        // A link is not followed.
        let (dir, memory) = memory();
        std::fs::create_dir(memory.file.parent().unwrap()).unwrap();
        std::fs::write(dir.path().join("elsewhere"), &good).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &memory.file).unwrap();
        assert_eq!(memory.recall(&h).await, None);
    }

    #[tokio::test]
    async fn a_file_of_another_user_is_as_none() {
        let (_dir, memory) = memory();
        learn_n1(&memory, "9p://h").await;
        if std::os::unix::fs::chown(&memory.file, Some(4711), None).is_err() {
            // Only root may give a file away: the rule is the same for a file of mode 0o602, which is tested above.
            return;
        }
        assert_eq!(memory.recall(&address("9p://h")).await, None);
    }

    #[tokio::test]
    async fn where_nothing_can_be_written_nothing_is_remembered_and_nothing_fails() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let memory = Memory::in_file(file.join("cache").join("servers"));
        learn_n1(&memory, "9p://h").await;
        memory.forget(&address("9p://h")).await;
        assert_eq!(memory.recall(&address("9p://h")).await, None);
    }
}
