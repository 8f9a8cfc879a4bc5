//! Walking again through directories that no fid stands on any more.

use std::ffi::CStr;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::server::Answer;

impl Host {
    fn is_kept(&self, name: &str) -> bool {
        let tree = &self.fs.export.tree;
        tree.child(&tree.root, name.as_bytes()).is_some()
    }

    /// Descriptors of this process by their paths.
    fn descriptors(&self, name: &str) -> usize {
        let dir = self.dir.path().canonicalize().unwrap();
        let path = dir.join(name).into_os_string().into_string().unwrap();
        let removed = format!("{path} (deleted)");
        let open =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        open.filter(|to| to.as_os_str() == path.as_str() || to.as_os_str() == removed.as_str()).count()
    }
}

#[tokio::test]
async fn directories_stay_for_the_next_walk_and_files_do_not() {
    let host = Host::new();
    host.mkdir("d");
    host.put("d/f", b"f");
    host.put("f", b"f");
    let root = host.root().await;
    for path in ["d/f", "f"] {
        host.contents(&root, path).await.unwrap();
    }
    assert!(host.is_kept("d") && !host.is_kept("f"));
    assert_eq!(host.descriptors("d"), 1);
    assert_eq!((host.descriptors("d/f"), host.descriptors("f")), (0, 0));
}

#[tokio::test]
async fn what_the_host_puts_in_the_place_of_a_kept_directory_is_found_at_once() {
    let host = Host::new();
    host.mkdir("d");
    host.put("d/f", b"old");
    let root = host.root().await;
    let walked = async |path: &str| host.contents(&root, path).await;
    for _ in 0..2 {
        assert_eq!(walked("d/f").await.unwrap(), b"old");
    }
    std::fs::rename(host.path("d"), host.path("away")).unwrap();
    assert_eq!(errno(walked("d/f").await), Errno::ENOENT);
    host.mkdir("d");
    host.put("d/f", b"new");
    assert_eq!(walked("d/f").await.unwrap(), b"new");
    assert_eq!(walked("away/f").await.unwrap(), b"old");
    std::fs::rename(host.path("d"), host.path("other")).unwrap();
    std::os::unix::fs::symlink("other", host.path("d")).unwrap();
    assert!(walked("d/f").await.is_err());
    std::fs::remove_file(host.path("d")).unwrap();
    host.put("d", b"a file");
    assert_eq!(walked("d").await.unwrap(), b"a file");
    assert!(walked("d/f").await.is_err());
    assert_eq!(walked("other/f").await.unwrap(), b"new");
}

#[tokio::test]
async fn who_may_not_search_a_directory_any_more_is_refused() {
    if !have("root", is_root()) {
        return;
    }
    let host = Host::new();
    host.mkdir("closed/in");
    std::fs::set_permissions(host.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let bob = host.attach(Dialect::Linux, somebody(1234)).await;
    host.walk(&bob, "closed/in").await.unwrap();
    std::fs::set_permissions(host.path("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert!(host.is_kept("closed"));
    host.walk(&host.root().await, "closed/in").await.unwrap();
    // At the second name, where a walk tells how far it came.
    let closed = host.at(&bob, "closed").await;
    assert_eq!(errno(host.walk(&closed, "in").await), Errno::EACCES);
}

#[tokio::test]
async fn no_more_directories_stay_than_there_are_places() {
    let host = Host::with_descriptors(1000);
    let root = host.root().await;
    for n in 0..600 {
        host.mkdir(&n.to_string());
        host.walk(&root, &n.to_string()).await.unwrap();
    }
    let kept = (0..600).filter(|n| host.is_kept(&n.to_string())).count();
    assert!((1..=256).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_clunk_soon_behind_the_open_waits_for_nobody_unless_the_file_had_no_name() {
    let host = Host::new();
    host.put("f", b"f");
    host.put("removed", b"f");
    let root = host.root().await;
    let (fresh, removed) = (host.at(&root, "f").await, host.at(&root, "removed").await);
    std::fs::remove_file(host.path("removed")).unwrap();
    for fid in [&fresh, &removed] {
        host.open(fid, 0).await.unwrap();
    }
    assert!(matches!(fresh.clunk(&host.cx), Answer::Now(Ok(()))));
    host.put("f", b"f");
    let soon = host.at(&root, "f").await;
    let before = std::time::Instant::now();
    host.open(&soon, 0).await.unwrap();
    std::fs::remove_file(host.path("f")).unwrap();
    let clunked = soon.clunk(&host.cx);
    // Else the test was held up.
    if before.elapsed() < std::time::Duration::from_secs(1) {
        assert!(matches!(clunked, Answer::Now(Ok(()))));
    }
    let clunked = removed.clunk(&host.cx);
    assert!(!matches!(clunked, Answer::Now(_)), "what frees blocks is closed elsewhere");
    clunked.wait().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_was_removed_or_renamed_is_not_kept_under_its_name() {
    let host = Host::new();
    host.mkdir("d");
    host.mkdir("e");
    let root = host.root().await;
    drop([host.at(&root, "d").await, host.at(&root, "e").await]);
    root.unlink(&host.cx, name_of("d"), true).wait().await.unwrap();
    root.rename_entry(&host.cx, name_of("e"), &*root, name_of("g")).wait().await.unwrap();
    assert!(!host.is_kept("d") && !host.is_kept("e") && host.is_kept("g"));
    assert_eq!((host.descriptors("d"), host.descriptors("g")), (0, 1));
    assert_eq!(errno(host.walk(&root, "d").await), Errno::ENOENT);
    host.walk(&root, "g").await.unwrap();
}

#[tokio::test]
async fn a_kept_directory_that_is_bound_on_itself_is_another_one_from_then_on() {
    let host = Host::new();
    host.mkdir("d/x");
    let root = host.root().await;
    host.walk(&root, "d/x").await.unwrap();
    if !have("permission to mount", rustix::mount::mount_bind(host.path("d"), host.path("d")).is_ok()) {
        return;
    }
    mount("over", host.path("d/x"), "tmpfs", MountFlags::empty(), None::<&CStr>).unwrap();
    host.put("d/x/f", b"mounted");
    let contents = host.contents(&root, "d/x/f").await;
    let unmounted = unmount(host.path("d/x"), UnmountFlags::DETACH).and(unmount(host.path("d"), UnmountFlags::DETACH));
    unmounted.unwrap();
    assert_eq!(contents.unwrap(), b"mounted");
    assert!(host.contents(&root, "d/x/f").await.is_err());
}

#[tokio::test]
async fn what_was_walked_through_below_a_mount_does_not_keep_it_busy() {
    let host = Host::new();
    host.mkdir("m");
    let root = host.root().await;
    host.walk(&root, "m").await.unwrap();
    let mounted = mount("walked", host.path("m"), "tmpfs", MountFlags::empty(), None::<&CStr>).is_ok();
    if !have("permission to mount", mounted) {
        return;
    }
    host.mkdir("m/in");
    for _ in 0..3 {
        host.walk(&root, "m/in").await.unwrap();
    }
    // A program that another test starts has its descriptors too, until it is executed.
    let unmounted = || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        unmount(host.path("m"), UnmountFlags::NOFOLLOW).is_ok()
    };
    let is_free = (0..200).any(|_| unmounted());
    if !is_free {
        unmount(host.path("m"), UnmountFlags::DETACH).unwrap();
    }
    assert!(is_free);
    assert_eq!(errno(host.walk(&root, "m/in").await), Errno::ENOENT);
}
