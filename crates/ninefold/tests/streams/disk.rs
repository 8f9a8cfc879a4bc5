//! A disk that is full.

use std::path::PathBuf;

use ninefold::server::{Limits, StreamLimits};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, noise, soon};

const MIB: usize = 1 << 20;
const ENOSPC: u32 = 28;

pub fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap(); // one write: tests run side by side
    }
}

/// A disk of four megabytes.
struct Mounted(PathBuf);

impl Mounted {
    fn small(at: PathBuf) -> Option<Mounted> {
        std::fs::create_dir(&at).unwrap();
        mount("none", &at, "tmpfs", MountFlags::empty(), Some(c"size=4m")).ok()?;
        Some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_told_at_the_end_of_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("disk");
    let Some(_mounted) = Mounted::small(at.clone()) else {
        return skip("a_disk_that_is_full_is_told_at_the_end_of_a_stream", "cannot mount: not root");
    };
    let bed = Bed::of(&at, dir, Limits::default(), StreamLimits::default());
    let bytes = noise(8 * MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    // Of no known length, and of a known one.
    for (name, length) in [("f", 0), ("g", bytes.len() as u64)] {
        s.create(1, name).await;
        let opened = s.stream(1, false, 0, length).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        // The server resets the connection when it cannot go on.
        let sent = data.write_all(&bytes).await;
        let ended = data.shutdown().await;
        assert_eq!(s.end(opened.id, 0).await, Err(ENOSPC), "{name}: {sent:?} {ended:?}");
        assert!(std::fs::metadata(at.join(name)).unwrap().len() < bytes.len() as u64);
        assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
        std::fs::remove_file(at.join(name)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_bytes_have_not_come_leaves_others_room_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("disk");
    let Some(_mounted) = Mounted::small(at.clone()) else {
        return skip("a_stream_whose_bytes_have_not_come_leaves_others_room_on_the_disk", "cannot mount: not root");
    };
    let bed = Bed::of(&at, dir, Limits::default(), StreamLimits::default());
    let bytes = noise(4 * MIB - MIB / 4);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.create(1, "f").await;
    let opened = s.stream(1, false, 0, bytes.len() as u64).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.write_all(&bytes[..MIB]).await.unwrap();
    soon("the first of them", async {
        while std::fs::metadata(at.join("f")).unwrap().len() < MIB as u64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    std::fs::write(at.join("g"), &bytes[..MIB]).unwrap();
    std::fs::remove_file(at.join("g")).unwrap();
    // And they have room themselves.
    data.write_all(&bytes[MIB..]).await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);
    assert!(std::fs::read(at.join("f")).unwrap() == bytes);
}
