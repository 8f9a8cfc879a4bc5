//! Files that are sent under a lease of the kernel (fcntl(2), F_SETLEASE), and who wants to change them meanwhile.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use ninefold::proto::Errno;
use ninefold::server::{Limits, StreamLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::bed::{Bed, Opened, Session, all, opening, soon};

const MORE: u32 = 1;
const COPIED: u32 = 2;
const MIB: u64 = 1 << 20;

/// What a server's socket holds, and a small one of a peer does not.
const SHORT: u64 = 256 << 10;
/// More than both hold.
const LONG: u64 = 64 * MIB;

/// What is not read when a peer of this machine has acknowledged all is behind that: it still changes with the file.
const UNREAD: usize = SHORT as usize - (64 << 10);

/// As long as who must wait is looked at. Who does not wait is done long before.
const A_WHILE: Duration = Duration::from_millis(200);

/// A server that asks for leases, of files in memory, which every machine's kernel leases.
fn bed() -> Bed {
    bed_with(StreamLimits::default())
}

fn bed_with(limits: StreamLimits) -> Bed {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = dir.path().to_owned();
    Bed::of(&root, dir, Limits::default(), StreamLimits { kernel_leases: true, all_ways_copy: true, ..limits })
}

/// One whose socket takes little.
async fn peer(bed: &Bed, opened: &Opened) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    // It has begun.
    soon("the first byte", data.peek(&mut [0; 1])).await.unwrap();
    data
}

/// Opens a file for writing in a thread of its own, and writes all of it anew.
fn overwrites(path: PathBuf, len: u64) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; len as usize], 0).unwrap();
    })
}

/// Whether an open for writing would have to wait.
fn is_leased(bed: &Bed, name: &str) -> bool {
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(bed.path(name));
    opened.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_a_file_that_was_sent_waits_until_the_peer_has_it() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    for (fid, flags) in [(1, COPIED), (2, 0), (3, MORE | COPIED)] {
        let name = fid.to_string();
        let bytes = bed.file(&name, SHORT as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(flags, fid, 0, SHORT).await.unwrap();
        let mut data = peer(&bed, &opened).await;
        // Its end waits for nobody.
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)), "{flags}");
        let writes = overwrites(bed.path(&name), SHORT);
        tokio::time::sleep(A_WHILE).await;
        assert!(!writes.is_finished(), "{flags}: it was not leased, or not for long enough");
        let mut got = vec![0; SHORT as usize];
        soon("the data", data.read_exact(&mut got)).await.unwrap();
        assert!(got[..UNREAD] == bytes[..UNREAD], "{flags}: it was changed on its way");
        // Whether the peer ends its connection or not.
        soon("who writes", writes).await.unwrap();
        if flags & MORE == 0 {
            assert!(all(&mut data).await.expect("an end, and no reset").is_empty());
        } else {
            // The next one is sent as ever.
            let opened = s.stream_as(flags, fid, 0, SHORT).await.unwrap();
            data.write_all(&opening(&opened.token)).await.unwrap();
            soon("the data", data.read_exact(&mut got)).await.unwrap();
            assert!(got.iter().all(|&byte| byte == 0));
        }
        drop(data);
        bed.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_with_what_was_sent_and_with_its_connection() {
    let bed = bed();
    bed.file("f", SHORT as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    // One is taken and its connection stays, one is taken and ends, one is not and is reset by its peer.
    for (flags, is_taken, stays) in [(MORE | COPIED, true, true), (COPIED, true, false), (COPIED, false, false)] {
        // By another name and inode each time: who has been asked for is not leased again.
        let name = format!("{flags}{is_taken}");
        bed.file(&name, SHORT as usize);
        s.open_file(2, &name, 0).await;
        let opened = s.stream_as(flags, 2, 0, SHORT).await.unwrap();
        let mut data = peer(&bed, &opened).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
        assert!(has_lease(&bed, &name), "{name}");
        if is_taken {
            soon("the data", data.read_exact(&mut vec![0; SHORT as usize])).await.unwrap();
        }
        let data = Some(data).filter(|_| stays);
        is_free(&bed, &name).await;
        assert!(!is_leased(&bed, &name));
        drop(data);
        assert!(s.ask("Tclunk tag 1 fid 2").await.starts_with("Rclunk"));
    }
}

/// Whether somebody has a lease on it, as /proc/locks (proc(5)) tells: to try would ask for it.
fn has_lease(bed: &Bed, name: &str) -> bool {
    let file = std::fs::metadata(bed.path(name)).unwrap();
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let number = format!(" {major:02x}:{minor:02x}:{} ", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains(" LEASE ") && line.contains(&number))
}

async fn is_free(bed: &Bed, name: &str) {
    let free = async {
        while has_lease(bed, name) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the lease's end", free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_pauses_gets_all_where_nobody_wants_the_file() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let mut waits = Vec::new();
    for (fid, flags) in [(1, COPIED), (2, 0), (3, MORE | COPIED)] {
        let name = fid.to_string();
        let bytes = bed.file(&name, SHORT as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(flags, fid, 0, SHORT).await.unwrap();
        let mut data = peer(&bed, &opened).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
        data.shutdown().await.unwrap();
        waits.push((bytes, data));
    }
    // Longer than one that takes nothing is waited for where somebody does.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (bytes, mut data) in waits {
        assert!(all(&mut data).await.expect("an end, and no reset") == bytes);
    }
    bed.quiet().await;
    for name in ["1", "2", "3"] {
        is_free(&bed, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_waits_a_while_for_those_who_have_not_taken_all() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let mut waits = Vec::new();
    for (fid, flags) in [(1, COPIED), (2, MORE | COPIED), (3, COPIED)] {
        let name = fid.to_string();
        let bytes = bed.file(&name, SHORT as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(flags, fid, 0, SHORT).await.unwrap();
        let data = peer(&bed, &opened).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
        waits.push((bytes, data));
    }
    let (_, mut takes_nothing) = waits.pop().unwrap();
    let server = bed.server.clone();
    let drains = tokio::spawn(async move { server.drain().await });
    // Longer than it waits for those that need not take anything.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (bytes, mut data) in waits {
        assert!(all(&mut data).await.expect("an end, and no reset") == bytes);
    }
    soon("its end", drains).await.unwrap();
    assert!(!has_lease(&bed, "1") && !has_lease(&bed, "2") && !has_lease(&bed, "3"));
    let error = all(&mut takes_nothing).await.expect_err("it is not to be taken for whole");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_makes_way_before_it_has_taken_all_is_reset() {
    let bed = bed_with(StreamLimits { silent: 1, ..StreamLimits::default() });
    bed.file("f", SHORT as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(MORE | COPIED, 1, 0, SHORT).await.unwrap();
    let mut data = peer(&bed, &opened).await;
    assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
    assert!(has_lease(&bed, "f"));
    // Any may come before it is counted among those that say nothing, and make way itself.
    let mut others = Vec::new();
    let makes_way = async {
        while has_lease(&bed, "f") {
            others.push(TcpStream::connect(bed.address).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the lease's end", makes_way).await;
    let error = all(&mut data).await.expect_err("it is not to be taken for whole");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_file_that_is_read_to_its_end_is_not_leased() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    for (fid, len, is_leased) in [(1, 100, false), (2, SHORT, true)] {
        let name = fid.to_string();
        bed.file(&name, len as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(COPIED, fid, 0, 0).await.unwrap();
        let _data = peer(&bed, &opened).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)));
        assert_eq!(has_lease(&bed, &name), is_leased, "{len}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_behind_what_was_read_waits_until_that_is_taken() {
    let bed = bed();
    let bytes = bed.file("f", SHORT as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    s.create(2, "g").await;
    let read = s.stream_as(MORE | COPIED, 1, 0, SHORT).await.unwrap();
    let mut data = peer(&bed, &read).await;
    let write = s.stream(2, false, 0, 0).await.unwrap();
    data.write_all(&[&opening(&write.token)[..], b"written"].concat()).await.unwrap();
    assert_eq!(soon("its end", s.end(read.id, 0)).await, Ok((SHORT, read.modrev)));
    assert!(has_lease(&bed, "f"));
    // Nobody wants it: the peer may take its time.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut got = vec![0; SHORT as usize];
    soon("the data", data.read_exact(&mut got)).await.unwrap();
    assert!(got == bytes);
    bed.has("what was written", "g", b"written").await;
    // The connection goes on, and nobody waits for the file any more.
    assert!(!has_lease(&bed, "f"));
    soon("who writes", overwrites(bed.path("f"), SHORT)).await.unwrap();
    data.shutdown().await.unwrap();
    assert_eq!(s.end(write.id, 0).await.unwrap().0, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_a_file_while_it_is_sent_waits_for_what_was_sent_and_its_end_tells_of_it() {
    let bed = bed();
    let bytes = bed.file("f", LONG as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(COPIED, 1, 0, LONG).await.unwrap();
    let mut data = peer(&bed, &opened).await;
    let writes = overwrites(bed.path("f"), LONG);
    tokio::time::sleep(A_WHILE).await;
    assert!(!writes.is_finished());
    // So slowly that the stream has not come to its end when he has written.
    let mut got = Vec::new();
    while !writes.is_finished() {
        let mut piece = vec![0; 256 << 10];
        let n = soon("the data", data.read(&mut piece)).await.unwrap();
        got.extend(&piece[..n]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    writes.await.unwrap();
    assert!((got.len() as u64) < LONG, "who waits for the end of a stream waits for too long");
    got.append(&mut all(&mut data).await.unwrap());
    assert_eq!(got.len() as u64, LONG);
    assert!(got[..16384] == bytes[..16384], "what had left was changed");
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert!(count == LONG && modrev != opened.modrev);
    // He would not wait again.
    let opened = s.stream_as(COPIED, 1, 0, LONG).await.unwrap();
    let mut data = peer(&bed, &opened).await;
    assert!(!is_leased(&bed, "f"));
    soon("who writes", overwrites(bed.path("f"), 0)).await.unwrap();
    assert_eq!(all(&mut data).await.unwrap().len() as u64, LONG, "and nobody lost his connection by that");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_takes_nothing_of_a_file_that_is_wanted_loses_its_connection() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let mut waits = Vec::new();
    // While it is sent, and behind that, whether another stream may follow or not.
    for (fid, flags, len) in [(1, COPIED, LONG), (2, COPIED, SHORT), (3, MORE | COPIED, SHORT)] {
        let name = fid.to_string();
        bed.file(&name, len as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(flags, fid, 0, len).await.unwrap();
        let data = peer(&bed, &opened).await;
        if len == SHORT {
            assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)));
        }
        waits.push((opened, data, overwrites(bed.path(&name), len), len));
    }
    for (opened, mut data, writes, len) in waits {
        soon("who writes", writes).await.unwrap();
        let error = all(&mut data).await.expect_err("a part of a file, and an end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        if len == LONG {
            assert_eq!(s.end(opened.id, 0).await, Err(Errno::ETIMEDOUT.0));
        }
    }
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_has_open_for_writing_is_copied() {
    let bed = bed();
    let bytes = bed.file("f", SHORT as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let file = OpenOptions::new().write(true).open(bed.path("f")).unwrap();
    let opened = s.stream_as(COPIED, 1, 0, SHORT).await.unwrap();
    let mut data = peer(&bed, &opened).await;
    assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
    file.write_all_at(&vec![0; SHORT as usize], 0).unwrap();
    assert!(all(&mut data).await.unwrap() == bytes, "it was changed on its way");
}

/// What changes a file that a fid of number 1 has not opened.
async fn changes(s: &mut Session, how: &str) -> String {
    match how {
        "create" => s.ask("Tlcreate tag 7 fid 1 name 'create' flags 02 mode 0644 gid -1").await,
        "open" => s.ask("Tlopen tag 7 fid 1 flags 1").await,
        _ => s.ask("Tsetattr tag 7 fid 1 valid 8 mode 0 uid -1 gid -1 size 0 atime_sec 0 atime_nsec 0 mtime_sec 0 mtime_nsec 0").await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_server_wait_like_programs_and_the_server_goes_on() {
    let bed = bed();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let mut waits = Vec::new();
    for (fid, how) in [(1, "create"), (2, "open"), (3, "cut")] {
        let bytes = bed.file(how, SHORT as usize);
        s.open_file(fid, how, 0).await;
        let opened = s.stream_as(COPIED, fid, 0, SHORT).await.unwrap();
        let data = peer(&bed, &opened).await;
        let mut other = bed.session("9P2000.L.n1", "host").await;
        let names = if how == "create" { "0".to_owned() } else { format!("1 0:{how}") };
        let told = other.ask(&format!("Twalk tag 1 fid 0 newfid 1 nwname {names}")).await;
        assert!(told.starts_with("Rwalk"), "{told}");
        waits.push((how, bytes, data, other));
    }
    let waits = waits.into_iter().map(|(how, bytes, data, mut other)| {
        (how, bytes, data, tokio::spawn(async move { changes(&mut other, how).await }))
    });
    let waits: Vec<_> = waits.collect();
    tokio::time::sleep(A_WHILE).await;
    for (how, bytes, mut data, told) in waits {
        assert!(!told.is_finished(), "{how}");
        // Nobody is held up meanwhile.
        assert!(s.ask("Tgetattr tag 1 fid 0 request_mask 0x7ff").await.starts_with("Rgetattr"));
        assert!(all(&mut data).await.unwrap()[..UNREAD] == bytes[..UNREAD], "{how}");
        let told = soon("the change", told).await.unwrap();
        assert!(!told.starts_with("Rlerror"), "{how}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_on_this_machine_gets_copies_unless_it_is_said_otherwise() {
    for kernel_leases in [false, true] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = dir.path().to_owned();
        let streams = StreamLimits { kernel_leases, ..StreamLimits::default() };
        let bed = Bed::of(&root, dir, Limits::default(), streams);
        let bytes = bed.file("f", SHORT as usize);
        let mut s = bed.session("9P2000.L.n1", "host").await;
        s.open_file(1, "f", 0).await;
        let opened = s.stream_as(COPIED, 1, 0, SHORT).await.unwrap();
        let mut data = peer(&bed, &opened).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((SHORT, opened.modrev)));
        assert!(!is_leased(&bed, "f"), "{kernel_leases}");
        soon("who writes", overwrites(bed.path("f"), SHORT)).await.unwrap();
        assert!(all(&mut data).await.unwrap() == bytes, "{kernel_leases}: it was changed on its way");
    }
}
