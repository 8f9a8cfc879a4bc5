//! Files whose file system is another program, which keeps what is written until a close, and others that the kernel does not move.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ninefold::server::{Limits, StreamLimits};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, all, is_reset, noise};
use crate::disk::skip;
use crate::old::{dial, port, stream};

const ENOSPC: u32 = 28;
const ENOSYS: u32 = 38;

/// A FUSE file system in which every name is one and the same plain file, whose close fails.
struct Closing(PathBuf);

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

impl Closing {
    fn mount(at: &Path) -> Option<Closing> {
        let mut device = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        mount("closing", at, "fuse", MountFlags::empty(), Some(options.as_c_str())).ok()?;
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 20];
            while let Ok(n) = device.read(&mut request) {
                answer(&mut device, &request[..n]);
            }
        });
        Some(Closing(at.to_owned()))
    }
}

/// Answers one request as <linux/fuse.h> has it.
fn answer(device: &mut std::fs::File, request: &[u8]) {
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
        3 => (0, [words(&[LONG_S, 0]), attr(node)].concat()),
        // OPEN, OPENDIR
        14 | 27 => (0, words(&[0, 0])),
        // FLUSH: what close(2) tells
        25 => (ENOSPC, Vec::new()),
        // WRITE: all of it
        16 => (0, words(&[number(56) & 0xffff_ffff])),
        // INIT: version 7.31, writes of 64 KiB
        26 => (0, words(&[7 | 31 << 32, 0, 65536 << 32, 1, 0, 0, 0, 0])),
        // FORGET, BATCH_FORGET
        2 | 42 => return,
        // RELEASE, RELEASEDIR
        18 | 29 => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    };
    let head = (16 + body.len()) as u64 | u64::from(error.wrapping_neg()) << 32;
    let _ = device.write(&[words(&[head, number(8)]), body].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_close_of_a_file_elsewhere_fails_with_is_the_end_of_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("closing");
    std::fs::create_dir(&at).unwrap();
    let Some(_mounted) = Closing::mount(&at) else {
        return skip(
            "what_the_close_of_a_file_elsewhere_fails_with_is_the_end_of_its_stream",
            "no permission to mount FUSE",
        );
    };
    let bed = Bed::of(&at, dir, Limits::default(), StreamLimits::default());
    let bytes = noise(100_000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 2).await;
    let opened = s.stream(1, false, 0, 0).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.write_all(&bytes).await.unwrap();
    data.shutdown().await.unwrap();
    assert_eq!(s.end(opened.id, 0).await, Err(ENOSPC));
    is_reset(&mut data).await;

    let mut s = bed.session("9P2000.s", "host").await;
    s.open_file(1, "f", 2).await;
    let mut data = dial(port(&stream(&mut s, 1, 0, 0).await)).await;
    data.write_all(&bytes).await.unwrap();
    data.shutdown().await.unwrap();
    is_reset(&mut data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_kernel_does_not_move_goes_through_memory() {
    let dir = tempfile::tempdir().unwrap();
    // It has neither a size nor a way into a pipe.
    let process = PathBuf::from(format!("/proc/{}", std::process::id()));
    let bed = Bed::of(&process, dir, Limits::default(), StreamLimits::default());
    let bytes = std::fs::read(process.join("environ")).unwrap();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "environ", 0).await;
    for offset in [0, 3] {
        let opened = s.stream(1, true, offset, 0).await.unwrap();
        let got = all(&mut bed.data(&opened.token).await).await.unwrap();
        assert!(got == bytes[offset as usize..]);
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, got.len() as u64);
    }
}
