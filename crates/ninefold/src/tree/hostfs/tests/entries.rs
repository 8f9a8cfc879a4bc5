//! Names: reading directories, renaming, removing, and fids that stay good through it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use ninefold_proto::attr::getattr;
use ninefold_proto::stat::dir_entries;
use ninefold_proto::{Errno, QidType};

use super::*;
use crate::tree::hostfs::lately::DEEPEST;
use crate::tree::hostfs::node::Node;

async fn list(host: &Host, dir: &Fid, max: u32) -> Vec<(String, Qid, u64)> {
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let part = dir.readdir(&host.cx, at, max).wait().await.unwrap();
        if part.is_empty() {
            return all;
        }
        for entry in dir_entries(&part) {
            let entry = entry.unwrap();
            at = entry.offset;
            all.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.qid, entry.offset));
        }
    }
}

#[tokio::test]
async fn a_directory_lists_each_entry_once_with_its_qid_whatever_the_piece() {
    let host = Host::new();
    host.mkdir("d/sub");
    std::os::unix::fs::symlink("x", host.path("d/link")).unwrap();
    for i in 0..1500 {
        host.put(&format!("d/a file with a rather long name {i}"), b"");
    }
    let root = host.root().await;
    for max in [300, 4096, 1 << 20] {
        let dir = host.at(&root, "d").await;
        host.open(&dir, 0).await.unwrap();
        let all = list(&host, &dir, max).await;
        assert_eq!(all.len(), 1504);
        assert_eq!(all.iter().map(|e| &e.0).collect::<BTreeSet<_>>().len(), 1504);
        for (name, qid, _) in &all {
            let expect = match name.as_str() {
                "." => host.path("d"),
                ".." => host.path(""),
                name => host.path("d").join(name),
            };
            let meta = expect.symlink_metadata().unwrap();
            assert_eq!(qid.path, meta.ino(), "{name}");
            assert_eq!(qid.kind == QidType::DIR, meta.is_dir());
            assert_eq!(qid.kind == QidType::SYMLINK, meta.is_symlink());
        }
        // Back to the middle, and to the start.
        let again = dir.readdir(&host.cx, all[700].2, 300).wait().await.unwrap();
        assert_eq!(dir_entries(&again).next().unwrap().unwrap().name, all[701].0.as_bytes());
        assert_eq!(list(&host, &dir, max).await.len(), 1504);
    }
    let dir = host.at(&root, ".").await;
    host.open(&dir, 0).await.unwrap();
    let all = list(&host, &dir, 4096).await;
    let ino = host.path("").metadata().unwrap().ino();
    assert!(all.iter().filter(|e| e.0.starts_with('.')).all(|e| e.1.path == ino));
}

#[tokio::test]
async fn a_cookie_never_told_harms_nothing() {
    let host = Host::new();
    host.put("f", b"");
    let root = host.root().await;
    let dir = host.at(&root, ".").await;
    host.open(&dir, 0).await.unwrap();
    for cookie in [u64::MAX, 1 << 63, 12345, i64::MAX as u64] {
        let _ = dir.readdir(&host.cx, cookie, 4096).wait().await;
    }
    assert_eq!(list(&host, &dir, 4096).await.len(), 3);
    assert_eq!(errno(dir.readdir(&host.cx, 0, 10).wait().await), Errno::EINVAL);
}

#[tokio::test]
async fn a_cookie_that_is_refused_does_not_cost_the_entries_behind_the_last_one() {
    let host = Host::new();
    for i in 0..100 {
        host.put(&format!("{i}"), b"");
    }
    let root = host.root().await;
    let dir = host.at(&root, ".").await;
    host.open(&dir, 0).await.unwrap();
    let mut seen = 0;
    let mut at = 0;
    loop {
        let part = dir.readdir(&host.cx, at, 200).wait().await.unwrap();
        let Some(last) = dir_entries(&part).map(Result::unwrap).inspect(|_| seen += 1).last() else { break };
        at = last.offset;
        assert_eq!(errno(dir.readdir(&host.cx, 1 << 63, 200).wait().await), Errno::EINVAL);
    }
    assert_eq!(seen, 102);
}

#[tokio::test]
async fn removing_what_is_listed_while_listing_misses_nothing() {
    let host = Host::new();
    host.mkdir("d");
    for i in 0..2000 {
        host.put(&format!("d/{i}"), b"");
    }
    let root = host.root().await;
    let (dir, parent) = (host.at(&root, "d").await, host.at(&root, "d").await);
    host.open(&dir, 0).await.unwrap();
    let mut at = 0;
    loop {
        let part = dir.readdir(&host.cx, at, 1000).wait().await.unwrap();
        if part.is_empty() {
            break;
        }
        for entry in dir_entries(&part) {
            let entry = entry.unwrap();
            at = entry.offset;
            if !entry.name.starts_with(b".") {
                parent.unlink(&host.cx, Name::new(entry.name).unwrap(), false).wait().await.unwrap();
            }
        }
    }
    root.unlink(&host.cx, name_of("d"), true).wait().await.unwrap();
    assert!(dir.readdir(&host.cx, 0, 1000).wait().await.unwrap().is_empty());
    assert_eq!(parent.getattr(&host.cx, getattr::ALL).wait().await.unwrap().qid.kind, QidType::DIR);
}

#[tokio::test]
async fn fids_at_and_below_a_renamed_folder_stay_good_with_few_descriptors() {
    let host = Host::with_descriptors(2);
    host.mkdir("a/b/c");
    host.mkdir("z");
    host.put("a/b/c/f", b"deep");
    let root = host.root().await;
    let (b, c, f) = (host.at(&root, "a/b").await, host.at(&root, "a/b/c").await, host.at(&root, "a/b/c/f").await);
    let z = host.at(&root, "z").await;
    b.rename(&host.cx, &*z, name_of("moved")).wait().await.unwrap();
    // Nothing of it has a descriptor any more.
    for _ in 0..4 {
        host.at(&root, "a").await;
        host.at(&root, "z").await;
    }
    host.open(&f, 0).await.unwrap();
    assert_eq!(host.read(&f).await.unwrap(), b"deep");
    let (qids, _) = host.walk(&c, "../..").await.unwrap();
    assert_eq!(qids[1].path, host.path("z").metadata().unwrap().ino());
    root.rename_entry(&host.cx, name_of("z"), &*root, name_of("y")).wait().await.unwrap();
    for _ in 0..4 {
        host.at(&root, "a").await;
        host.at(&root, "y").await;
    }
    assert_eq!(host.contents(&c, "f").await.unwrap(), b"deep");
    let inside = host.at(&root, "y/moved").await;
    let error = errno(b.rename(&host.cx, &*host.at(&inside, "c").await, name_of("loop")).wait().await);
    assert_eq!(error, Errno::EINVAL);
}

#[tokio::test]
async fn a_replaced_file_is_still_served_through_its_fids() {
    let host = Host::with_descriptors(1);
    host.put("new", b"new");
    host.put("old", b"old");
    let root = host.root().await;
    let (old, new) = (host.at(&root, "old").await, host.at(&root, "new").await);
    new.rename(&host.cx, &*root, name_of("old")).wait().await.unwrap();
    for _ in 0..4 {
        host.at(&root, "old").await;
    }
    host.open(&old, 0).await.unwrap();
    host.open(&new, 0).await.unwrap();
    assert_eq!(host.read(&old).await.unwrap(), b"old");
    assert_eq!(host.read(&new).await.unwrap(), b"new");
    assert_eq!(errno(old.remove(&host.cx).wait().await), Errno::ENOENT);
    new.remove(&host.cx).wait().await.unwrap();
    assert!(!host.path("old").exists());
}

#[tokio::test]
async fn renaming_one_name_of_a_file_over_another_keeps_both() {
    let host = Host::new();
    host.put("a", b"x");
    std::fs::hard_link(host.path("a"), host.path("b")).unwrap();
    let root = host.root().await;
    let (a, b) = (host.at(&root, "a").await, host.at(&root, "b").await);
    a.rename(&host.cx, &*root, name_of("b")).wait().await.unwrap();
    a.remove(&host.cx).wait().await.unwrap();
    b.remove(&host.cx).wait().await.unwrap();
    assert_eq!(std::fs::read_dir(host.path("")).unwrap().count(), 0);
}

#[tokio::test]
async fn remove_leaves_a_file_alone_that_came_under_the_name_since() {
    let host = Host::new();
    host.put("f", b"mine");
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    host.put("g", b"other");
    std::fs::rename(host.path("g"), host.path("f")).unwrap();
    assert_eq!(errno(fid.remove(&host.cx).wait().await), Errno::ESTALE);
    assert_eq!(errno(fid.rename(&host.cx, &*root, name_of("h")).wait().await), Errno::ESTALE);
    assert_eq!(std::fs::read(host.path("f")).unwrap(), b"other");
}

#[tokio::test]
async fn a_name_that_fids_hold_is_what_others_have_made_of_it() {
    let host = Host::new();
    host.put("f", b"mine");
    let root = host.root().await;
    let (first, _held) = host.walk(&root, "f").await.unwrap();
    assert_eq!(host.walk(&root, "f").await.unwrap().0, first);
    host.put("g", b"others");
    std::fs::rename(host.path("g"), host.path("f")).unwrap();
    let (second, _held) = host.walk(&root, "f").await.unwrap();
    assert_ne!(second[0].path, first[0].path);
    assert_eq!(host.contents(&root, "f").await.unwrap(), b"others");
    std::fs::remove_file(host.path("f")).unwrap();
    assert_eq!(errno(host.walk(&root, "f").await), Errno::ENOENT);
    std::os::unix::fs::symlink("/", host.path("f")).unwrap();
    let (link, _held) = host.walk(&root, "f").await.unwrap();
    assert_eq!(link[0].kind, ninefold_proto::QidType::SYMLINK);
    std::fs::remove_file(host.path("f")).unwrap();
    host.mkdir("f/below");
    assert_eq!(host.walk(&root, "f/below").await.unwrap().0.len(), 2);
}

#[tokio::test]
async fn an_evicted_fid_is_never_another_file() {
    let host = Host::with_descriptors(1);
    host.put("f", b"mine");
    host.put("x", b"");
    let root = host.root().await;
    let (same, gone) = (host.at(&root, "f").await, host.at(&root, "f").await);
    for _ in 0..4 {
        host.at(&root, "x").await;
    }
    assert_eq!(same.getattr(&host.cx, 0).wait().await.unwrap().size, 4);
    for _ in 0..4 {
        host.at(&root, "x").await;
    }
    std::fs::remove_file(host.path("f")).unwrap();
    host.put("f", b"another");
    let error = errno(gone.getattr(&host.cx, 0).wait().await);
    assert!(matches!(error, Errno::ESTALE | Errno::ENOENT), "{error:?}");
    std::fs::remove_file(host.path("f")).unwrap();
    assert_eq!(errno(gone.getattr(&host.cx, 0).wait().await), Errno::ENOENT);
}

#[tokio::test]
async fn thousands_of_fids_hold_no_more_descriptors_than_allowed() {
    let host = Host::with_descriptors(16);
    for i in 0..3000 {
        host.put(&format!("{i}"), i.to_string().as_bytes());
    }
    let root = host.root().await;
    let mut fids = Vec::new();
    for i in 0..3000 {
        fids.push(host.at(&root, &i.to_string()).await);
    }
    assert!(host.fs.export.tree.held() <= 16);
    for (i, fid) in fids.iter().enumerate() {
        assert_eq!(fid.getattr(&host.cx, 0).wait().await.unwrap().size, i.to_string().len() as u64);
    }
    assert!(host.fs.export.tree.held() <= 16);
}

#[tokio::test]
async fn a_tree_two_thousand_levels_deep_is_made_walked_and_removed() {
    let host = Host::with_descriptors(100);
    let root = host.root().await;
    let name = "a folder name that makes a path of more than four thousand and ninety-five bytes";
    let mut at = root.clone();
    let mut fids = Vec::new();
    for _ in 0..2000 {
        at.mkdir(&host.cx, name_of(name), 0o755, None).wait().await.unwrap();
        at = host.at(&at, name).await;
        fids.push(at.clone());
    }
    host.create(&at, "leaf", 0o644).await.unwrap();
    // From the top again, with nothing cached on the way.
    let top = fids[0].clone();
    for _ in 0..20 {
        host.walk(&top, "..").await.unwrap();
    }
    assert_eq!(host.contents(&at, "leaf").await.unwrap(), b"");
    root.rename_entry(&host.cx, name_of(name), &*root, name_of("top")).wait().await.unwrap();
    host.at(&at, "leaf").await.remove(&host.cx).wait().await.unwrap();
    drop(at);
    while let Some(dir) = fids.pop() {
        dir.remove(&host.cx).wait().await.unwrap();
    }
    assert_eq!(std::fs::read_dir(host.path("")).unwrap().count(), 0);
}

#[tokio::test]
async fn the_last_fid_of_a_deep_tree_takes_all_nodes_with_it() {
    let host = Host::with_descriptors(64);
    let root = host.root().await;
    let mut at = root.clone();
    for _ in 0..1500 {
        at.mkdir(&host.cx, name_of("d"), 0o755, None).wait().await.unwrap();
        at = host.at(&at, "d").await;
    }
    // A small stack would not survive a recursive drop.
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(at)).unwrap().join().unwrap();
    // Those that are not too deep stay for the next walk.
    let tree = &host.fs.export.tree;
    let below = |node: &Arc<Node>| tree.child(node, b"d");
    let kept = std::iter::successors(below(&tree.root), below).count();
    assert!((1..=DEEPEST as usize).contains(&kept), "{kept}");
    tree.lately.forget_all();
    assert!(below(&tree.root).is_none(), "and nothing else does");
    // Deeper than remove_dir_all's paths go: by the same way back.
    let mut dirs = vec![root.clone()];
    while let Ok((_, next)) = host.walk(dirs.last().unwrap(), "d").await {
        dirs.push(next);
    }
    for dir in dirs.drain(1..).rev() {
        dir.remove(&host.cx).wait().await.unwrap();
    }
}

#[tokio::test]
async fn entries_of_another_tree_are_another_device() {
    let (one, two) = (Host::new(), Host::new());
    one.put("f", b"");
    let (root, other) = (one.root().await, two.root().await);
    let fid = one.at(&root, "f").await;
    assert_eq!(errno(fid.rename(&one.cx, &*other, name_of("g")).wait().await), Errno::EXDEV);
    assert_eq!(errno(other.link(&one.cx, &*fid, name_of("g")).wait().await), Errno::EXDEV);
    assert_eq!(errno(root.remove(&one.cx).wait().await), Errno::EBUSY);
}

#[tokio::test]
async fn symbolic_links_are_made_and_not_followed() {
    let host = Host::new();
    let root = host.root().await;
    let qid = root.symlink(&host.cx, name_of("l"), b"/etc", None).wait().await.unwrap();
    assert_eq!(qid.kind, QidType::SYMLINK);
    assert_eq!(host.walk(&root, "l").await.unwrap().0[0].kind, QidType::SYMLINK);
    assert_eq!(host.walk(&root, "l/passwd").await.err().unwrap().text(), "walked 1");
    let fid = host.at(&root, "l").await;
    root.link(&host.cx, &*fid, name_of("m")).wait().await.unwrap();
    assert_eq!(std::fs::read_link(host.path("m")).unwrap().to_str(), Some("/etc"));
}

#[tokio::test]
async fn folders_that_the_host_turned_upside_down_are_still_served() {
    let host = Host::with_descriptors(8);
    host.mkdir("a/b");
    host.put("a/f", b"f");
    for i in 0..64 {
        host.put(&format!("{i}"), b"");
    }
    let root = host.root().await;
    let (a, b, f) = (host.at(&root, "a").await, host.at(&root, "a/b").await, host.at(&root, "a/f").await);
    std::fs::rename(host.path("a/b"), host.path("b")).unwrap();
    // The server has b below a still; now a goes below b.
    root.rename_entry(&host.cx, name_of("a"), &*b, name_of("a")).wait().await.unwrap();
    for i in 0..64 {
        host.at(&root, &format!("{i}")).await;
    }
    // With b's descriptor gone nobody knows where it is. What was renamed is known, as is what is below.
    let _ = b.getattr(&host.cx, 0).wait().await;
    a.getattr(&host.cx, 0).wait().await.unwrap();
    host.open(&f, 0).await.unwrap();
    assert_eq!(host.read(&f).await.unwrap(), b"f");
    assert_eq!(host.contents(&root, "b/a/f").await.unwrap(), b"f");
}
