//! Nothing outside the export is reached, and no walk waits for itself.

use std::sync::atomic::{AtomicBool, Ordering};

use ninefold_proto::Errno;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swapping_folders_and_links_under_a_walk_shows_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("sub")).unwrap();
    std::fs::write(outside.path().join("sub/secret"), b"outside").unwrap();
    std::fs::write(outside.path().join("secret"), b"outside").unwrap();
    let host = Arc::new(Host::with_descriptors(2));
    host.mkdir("d/sub");
    host.mkdir("deep/er");
    host.put("d/sub/secret", b"inside");
    host.put("d/secret", b"inside");
    std::os::unix::fs::symlink(outside.path(), host.path("link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (host, stop) = (host.clone(), stop.clone());
        std::thread::spawn(move || {
            let swap = |a: &str, b: &str| {
                let _ = renameat_with(CWD, host.path(a), CWD, host.path(b), RenameFlags::EXCHANGE);
            };
            while !stop.load(Ordering::Relaxed) {
                swap("d", "link");
                let _ = std::fs::rename(host.path("d/sub"), host.path("deep/er/sub"));
                let _ = std::fs::rename(host.path("deep/er/sub"), host.path("d/sub"));
                swap("d", "link");
            }
        })
    };
    let mut seen = 0;
    for dialect in [Dialect::Linux, Dialect::Unix, Dialect::Plan9] {
        let root = host.attach(dialect, User::of_process()).await;
        for i in 0..1500 {
            let path = ["d/sub/secret", "d/secret", "link/secret", "d/sub/../secret", "d/sub/../../../secret"][i % 5];
            match host.contents(&root, path).await {
                Ok(data) => {
                    assert_eq!(data, b"inside", "{path}");
                    seen += 1;
                }
                Err(error) => assert!(
                    matches!(
                        error.errno,
                        Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ELOOP | Errno::EISDIR | Errno::EXDEV
                    ),
                    "{path}: {error:?}"
                ),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(seen > 0, "it never came to read a file at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renames_and_walks_at_the_same_time_leave_every_fid_with_its_own_file() {
    let host = Arc::new(Host::with_descriptors(2));
    host.mkdir("one");
    host.mkdir("two");
    host.put("one/f", b"f");
    let root = host.root().await;
    let mover = {
        let (host, root) = (host.clone(), root.clone());
        tokio::spawn(async move {
            let (one, two) = (host.at(&root, "one").await, host.at(&root, "two").await);
            for _ in 0..300 {
                one.rename_entry(&host.cx, name_of("f"), &*two, name_of("g")).wait().await.unwrap();
                two.rename_entry(&host.cx, name_of("g"), &*one, name_of("f")).wait().await.unwrap();
            }
        })
    };
    let mut fids = Vec::new();
    while !mover.is_finished() {
        for path in ["one/f", "two/g"] {
            if let Ok((_, fid)) = host.walk(&root, path).await {
                fids.push(fid);
            }
        }
        // Pushes descriptors out, so that fids must be found by name again.
        host.walk(&root, "one/../two/..").await.unwrap();
        if fids.len() > 1000 {
            fids.drain(..500);
        }
        tokio::task::yield_now().await;
    }
    mover.await.unwrap();
    assert!(!fids.is_empty());
    for fid in fids {
        host.open(&fid, 0).await.unwrap();
        assert_eq!(host.read(&fid).await.unwrap(), b"f");
    }
}

/// A file system mounted below an export, taken away at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn mount_tmpfs(source: &str, at: PathBuf) -> Option<Mounted> {
    let done = mount(source, &at, "tmpfs", MountFlags::empty(), None).is_ok();
    have("permission to mount", done).then(|| Mounted(at))
}

#[tokio::test]
async fn a_mount_of_the_server_itself_is_refused_and_others_are_entered() {
    let host = Host::new();
    host.fs.set_own_addresses(vec!["9p://127.0.0.1:5640".into()]);
    host.mkdir("own");
    host.mkdir("other");
    let Some(_own) = mount_tmpfs("9p://127.0.0.1:5640", host.path("own")) else { return };
    let Some(_other) = mount_tmpfs("9p://127.0.0.1:5641", host.path("other")) else { return };
    host.put("other/f", b"there");
    let root = host.root().await;
    let error = host.walk(&root, "own").await.err().unwrap();
    assert_eq!(error.errno, Errno::ELOOP);
    assert!(error.text().contains("9p://127.0.0.1:5640"));
    assert_eq!(host.contents(&root, "other/f").await.unwrap(), b"there");
    // Numbers of another device are kept apart, in walks and in lists alike.
    let (qids, fid) = host.walk(&root, "other").await.unwrap();
    assert_ne!(qids[0].path >> 63, 0);
    let up = host.walk(&fid, "..").await.unwrap().0[0];
    assert_eq!(up.path, host.walk(&root, ".").await.unwrap().0[0].path);
    let dir = host.at(&root, ".").await;
    host.open(&dir, 0).await.unwrap();
    let list = dir.readdir(&host.cx, 0, 4096).wait().await.unwrap();
    let mut entries = ninefold_proto::stat::dir_entries(&list).map(Result::unwrap);
    assert_eq!(entries.find(|e| e.name == b"other").unwrap().qid.path, qids[0].path);
    assert_eq!(errno(fid.remove(&host.cx).wait().await), Errno::EBUSY);
}

#[tokio::test]
async fn what_is_mounted_on_a_name_that_a_fid_holds_is_checked_and_entered() {
    let host = Host::new();
    host.fs.set_own_addresses(vec!["9p://127.0.0.1:5640".into()]);
    host.mkdir("own");
    host.mkdir("other");
    host.mkdir("bound");
    host.put("bound/f", b"bound");
    let root = host.root().await;
    let _held = [host.at(&root, "own").await, host.at(&root, "other").await];
    let Some(_own) = mount_tmpfs("9p://127.0.0.1:5640", host.path("own")) else { return };
    assert_eq!(host.walk(&root, "own").await.err().unwrap().errno, Errno::ELOOP);
    // Of the same file system, so that its numbers are of the same device.
    rustix::mount::mount_bind(host.path("bound"), host.path("other")).unwrap();
    let bound = Mounted(host.path("other"));
    assert_eq!(host.contents(&root, "other/f").await.unwrap(), b"bound");
    drop(bound);
    assert_eq!(errno(host.walk(&root, "other/f").await), Errno::ENOENT);
}

#[tokio::test]
async fn a_create_opens_a_file_that_is_mounted_on_the_name() {
    let host = Host::new();
    host.put("source", b"there");
    host.put("point", b"");
    let done = rustix::mount::mount_bind(host.path("source"), host.path("point")).is_ok();
    if !have("permission to mount", done) {
        return;
    }
    let _mounted = Mounted(host.path("point"));
    let root = host.root().await;
    let made = root.create(&host.cx, Create { exclusive: false, ..plain("point", 0o644) }).wait().await.unwrap();
    assert_eq!(host.read(&made.file).await.unwrap(), b"there");
    made.file.clunk(&host.cx).wait().await.unwrap();
    assert_eq!(errno(root.create(&host.cx, plain("point", 0o644)).wait().await), Errno::EEXIST);
}
