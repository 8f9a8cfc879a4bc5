//! File systems whose answers come from another program: one that this test serves itself, through FUSE.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ninefold_proto::Errno;
use ninefold_proto::open::lflags;
use ninefold_proto::stat::dir_entries;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::server::{Answer, Cancel, Lock, LockKind, LockStatus, Parking};

/// How long it holds an answer back at most.
const BOUND: Duration = Duration::from_secs(2);

/// A FUSE file system in which every name is one and the same plain file.
struct Slow {
    at: PathBuf,
    /// Opens and closes are answered only when this is false again, or after a while.
    hold: Arc<AtomicBool>,
    /// How often it was asked about a file.
    asked: Arc<AtomicUsize>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

impl Slow {
    fn mount(at: PathBuf) -> Option<Slow> {
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        let mounted = device.ok().filter(|device| {
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
            let options = std::ffi::CString::new(options).unwrap();
            mount("slow", &at, "fuse", MountFlags::empty(), Some(options.as_c_str())).is_ok()
        });
        have("permission to mount FUSE", mounted.is_some());
        let (mut device, hold, asked) = (mounted?, Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (held, count) = (hold.clone(), asked.clone());
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 20];
            while let Ok(n) = device.read(&mut request) {
                answer(&mut device, &request[..n], &held, &count);
            }
        });
        Some(Slow { at, hold, asked })
    }
}

/// Answers one request as <linux/fuse.h> has it.
fn answer(device: &mut std::fs::File, request: &[u8], hold: &AtomicBool, asked: &AtomicUsize) {
    let number = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
    let (opcode, node) = ((number(0) >> 32) as u32, number(16));
    let attr = |node: u64| {
        let mut attr = vec![0; 88];
        attr[..8].copy_from_slice(&node.to_le_bytes());
        let mode = if node == 1 { 0o040_755_u32 } else { 0o100_644 };
        attr[60..64].copy_from_slice(&mode.to_le_bytes());
        attr[64..68].copy_from_slice(&1_u32.to_le_bytes());
        attr
    };
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    const LONG_S: u64 = 1000;
    let (error, body) = match opcode {
        // LOOKUP, GETATTR
        1 => (0, [words(&[2, 0, LONG_S, LONG_S, 0]), attr(2)].concat()),
        3 => {
            asked.fetch_add(1, Ordering::Relaxed);
            (0, [words(&[LONG_S, 0]), attr(node)].concat())
        }
        // OPEN, OPENDIR, and FLUSH: what close(2) tells
        14 | 27 | 25 => {
            let began = Instant::now();
            while hold.load(Ordering::Relaxed) && began.elapsed() < BOUND {
                std::thread::sleep(Duration::from_millis(1));
            }
            if opcode == 25 { (Errno::ENOSPC.0, Vec::new()) } else { (0, words(&[0, 0])) }
        }
        // WRITE: all of it
        16 => (0, words(&[number(56) & 0xffff_ffff])),
        // INIT: version 7.31, writes of 64 KiB
        26 => (0, words(&[7 | 31 << 32, 0, 65536 << 32, 1, 0, 0, 0, 0])),
        // FORGET, BATCH_FORGET
        2 | 42 => return,
        // RELEASE, RELEASEDIR
        18 | 29 => (0, Vec::new()),
        _ => (Errno::ENOSYS.0, Vec::new()),
    };
    let head = (16 + body.len()) as u64 | u64::from(error.wrapping_neg()) << 32;
    let _ = device.write(&[words(&[head, number(8)]), body].concat());
}

#[tokio::test]
async fn what_the_close_of_a_file_elsewhere_fails_with_is_the_answer_to_its_clunk() {
    let host = Host::new();
    host.mkdir("slow");
    let Some(_slow) = Slow::mount(host.path("slow")) else { return };
    let fid = host.at(&host.root().await, "slow/f").await;
    host.open(&fid, lflags::RDWR).await.unwrap();
    fid.write(&host.cx, 0, Bytes::from_static(b"data")).wait().await.unwrap();
    assert_eq!(errno(fid.clunk(&host.cx).wait().await), Errno::ENOSPC);
}

#[tokio::test]
async fn a_lock_on_a_file_elsewhere_does_not_stall_the_reactor() {
    let host = Host::new();
    host.mkdir("slow");
    let Some(slow) = Slow::mount(host.path("slow")) else { return };
    let fid = host.at(&host.root().await, "slow/f").await;
    host.open(&fid, lflags::RDWR).await.unwrap();
    // The host's programs see the lock through a descriptor that has to be opened for it.
    slow.hold.store(true, Ordering::Relaxed);
    let lock = Lock { kind: LockKind::Write, start: 0, length: 0, proc_id: 1, client_id: b"c".to_vec() };
    let answer = fid.lock(&host.cx, lock.clone(), false);
    assert!(matches!(answer, Answer::Later(_)));
    slow.hold.store(false, Ordering::Relaxed);
    assert_eq!(answer.wait().await, Ok(LockStatus::Granted));
    assert_eq!(fid.getlock(&host.cx, lock).wait().await, Ok(None));
    let _ = fid.clunk(&host.cx).wait().await;
}

#[tokio::test]
async fn a_wait_for_a_lock_on_a_file_elsewhere_is_given_up_without_stalling_the_reactor() {
    let host = Host::new();
    host.mkdir("slow");
    let Some(slow) = Slow::mount(host.path("slow")) else { return };
    let fid = host.at(&host.root().await, "slow/f").await;
    host.open(&fid, lflags::RDWR).await.unwrap();
    let program = std::fs::File::options().write(true).open(host.path("slow/f")).unwrap();
    nix::fcntl::fcntl(&program, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole_file())).unwrap();
    let cancel = Arc::new(Cancel::default());
    let cx = Cx::new(1, cancel.clone(), Parking::new(1, u64::MAX, None));
    let lock = Lock { kind: LockKind::Write, start: 0, length: 0, proc_id: 1, client_id: b"c".to_vec() };
    let mut waiting = Box::pin(fid.lock(&cx, lock, true).wait());
    // Long enough for it to queue, and to ask the host again.
    let granted = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(granted.is_err(), "the program holds it");
    // Given up, the server closes the descriptor through which the host would see the lock.
    slow.hold.store(true, Ordering::Relaxed);
    cancel.cancel();
    let began = Instant::now();
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "the close is held");
    assert!(began.elapsed() < BOUND / 2);
    slow.hold.store(false, Ordering::Relaxed);
    assert_eq!(waiting.await.err().map(|error| error.errno), Some(Errno::EINTR));
    let _ = fid.clunk(&host.cx).wait().await;
}

#[tokio::test]
async fn a_mount_in_a_directory_is_asked_about_only_for_who_waits_for_its_entry() {
    const FILES: usize = 3000;
    let host = Host::new();
    host.mkdir("d/mount");
    for i in 0..FILES {
        std::fs::File::create(host.path(format!("d/file-{i:05}"))).unwrap();
    }
    let root = host.root().await;
    // As it comes, so that whoever reads ahead is before its reader; and in one piece.
    for max in [3400, 1 << 20] {
        // Another mount each time: the kernel keeps the answers of one.
        let Some(slow) = Slow::mount(host.path("d/mount")) else { return };
        let mounted = || slow.asked.load(Ordering::Relaxed);
        let dir = host.at(&root, "d").await;
        host.open(&dir, 0).await.unwrap();
        let (mut cookie, mut names, mut seen) = (0, 0, None);
        loop {
            let reply = dir.readdir(&host.cx, cookie, max).wait().await.unwrap();
            let began = Instant::now();
            while host.fs.export.ahead.threads() > 0 {
                assert!(began.elapsed() < Duration::from_secs(20), "it is read ahead without end");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for entry in dir_entries(&reply).map(Result::unwrap) {
                (cookie, names) = (entry.offset, names + 1);
                if entry.name == b"mount" {
                    seen = Some(entry.qid);
                }
            }
            assert_eq!(mounted() > 0, seen.is_some() || max > 3400, "behind entry {names}");
            if reply.is_empty() {
                break;
            }
        }
        assert_eq!(names, FILES + 3);
        // The mount's own root, not the directory that it covers.
        assert_eq!(seen.unwrap().path, host.walk(&root, "d/mount").await.unwrap().0[1].path);
    }
}

fn whole_file() -> nix::libc::flock {
    let (l_type, l_whence) = (nix::libc::F_WRLCK as nix::libc::c_short, nix::libc::SEEK_SET as nix::libc::c_short);
    nix::libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}
