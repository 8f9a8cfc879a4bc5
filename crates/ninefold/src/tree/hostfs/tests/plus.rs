//! Listings with attributes, and access(2).

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ninefold_proto::attr::{Attr, getattr};
use ninefold_proto::n1::access;
use ninefold_proto::plus::plus_entries;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::server::Listed;

const ALICE: u32 = 54_321;

/// Everything that getattr can be asked for.
const MASK: u64 = getattr::ALL;

fn entries(reply: &Listed) -> Vec<(String, u64, Attr)> {
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    plus_entries(&reply.entries).map(Result::unwrap).map(|e| (name(e.entry.name), e.entry.offset, e.attr)).collect()
}

async fn list(host: &Host, dir: &Fid, max: u32) -> Vec<(String, u64, Attr)> {
    let mut all: Vec<(String, u64, Attr)> = Vec::new();
    loop {
        let cookie = all.last().map_or(0, |entry| entry.1);
        let reply = dir.readdirplus(&host.cx, cookie, max, MASK).wait().await.unwrap();
        assert!(reply.entries.len() <= max as usize);
        let part = entries(&reply);
        assert!(!part.is_empty() || reply.end, "nothing, and not the end");
        all.extend(part);
        if reply.end {
            let reply =
                dir.readdirplus(&host.cx, all.last().map_or(0, |entry| entry.1), max, MASK).wait().await.unwrap();
            assert!(reply.entries.is_empty() && reply.end, "something behind the end");
            return all;
        }
    }
}

fn chmod(host: &Host, name: &str, mode: u32) {
    std::fs::set_permissions(host.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn each_entry_has_what_getattr_tells_of_it_and_no_link_is_followed() {
    let host = Host::new();
    host.mkdir("d/sub");
    host.put("d/plain", b"12345");
    symlink("plain", host.path("d/link")).unwrap();
    let root = host.root().await;
    let dir = host.at(&root, "d").await;
    host.open(&dir, 0).await.unwrap();
    let listed = list(&host, &dir, 8192).await;
    let mut names: Vec<&str> = listed.iter().map(|entry| entry.0.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [".", "..", "link", "plain", "sub"]);
    for (name, _, attr) in &listed {
        let file = host.at(&root, &format!("d/{name}")).await;
        let told = file.getattr(&host.cx, MASK).wait().await.unwrap();
        assert_eq!(*attr, told, "{name}");
        assert_eq!(attr.valid & getattr::BASIC, getattr::BASIC, "{name}");
    }
    let size = |name: &str| listed.iter().find(|entry| entry.0 == name).unwrap().2.size;
    assert_eq!(size("plain"), 5);
    assert_eq!(listed.iter().find(|entry| entry.0 == "link").unwrap().2.mode & 0o170_000, 0o120_000);
}

#[tokio::test]
async fn the_parent_of_the_root_is_the_root() {
    let host = Host::new();
    let root = host.root().await;
    let dir = host.at(&root, "").await;
    host.open(&dir, 0).await.unwrap();
    let listed = list(&host, &dir, 4096).await;
    let ino = host.path("").metadata().unwrap().ino();
    assert!(listed.iter().all(|(_, _, attr)| attr.qid.path == ino), "{listed:?}");
}

#[tokio::test]
async fn replies_of_any_length_tell_each_entry_once() {
    let host = Host::new();
    let long = "n".repeat(255);
    let mut names: Vec<String> = (0..300).map(|n| format!("{n}")).chain([long, ".".into(), "..".into()]).collect();
    for name in &names[..301] {
        host.put(name, name.as_bytes());
    }
    names.sort_unstable();
    let dir = host.root().await;
    host.open(&dir, 0).await.unwrap();
    for max in [420, 1000, 4085, 65_525, 1 << 20] {
        let listed = list(&host, &dir, max).await;
        let mut found: Vec<&str> = listed.iter().map(|entry| entry.0.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, names, "{max} bytes");
        let sizes = listed.iter().filter(|entry| !entry.0.starts_with('.'));
        assert!(sizes.into_iter().all(|(name, _, attr)| attr.size == name.len() as u64));
    }
    assert_eq!(errno(dir.readdirplus(&host.cx, 0, 150, MASK).wait().await), Errno::EINVAL);
}

#[tokio::test]
async fn the_last_entries_of_a_directory_are_told_as_its_last_and_no_others() {
    let host = Host::new();
    for n in 10..50 {
        host.put(&format!("f{n}"), b"");
    }
    let dir = host.root().await;
    host.open(&dir, 0).await.unwrap();
    let whole = dir.readdirplus(&host.cx, 0, 65_525, MASK).wait().await.unwrap();
    assert!(whole.end && entries(&whole).len() == 42);
    // One entry short of all, without its attributes and with them.
    let all: usize = whole.entries.len();
    for max in [1000, 4085, all - 1] {
        let part = dir.readdirplus(&host.cx, 0, max as u32, MASK).wait().await.unwrap();
        assert!(!part.end && entries(&part).len() < 42, "{max} bytes");
    }
    // A directory that is gone has nothing in it.
    host.mkdir("d");
    let gone = host.at(&host.root().await, "d").await;
    host.open(&gone, 0).await.unwrap();
    std::fs::remove_dir(host.path("d")).unwrap();
    let listed = gone.readdirplus(&host.cx, 0, 4096, MASK).wait().await.unwrap();
    assert!(listed.end && listed.entries.is_empty());
}

#[tokio::test]
async fn a_listing_tells_what_was_written_before_it_was_asked_for() {
    let host = Host::new();
    for n in 0..2000 {
        host.put(&format!("f{n}"), b"");
    }
    let dir = host.root().await;
    host.open(&dir, 0).await.unwrap();
    // Entries are read ahead of this reply; attributes are not.
    let first = entries(&dir.readdirplus(&host.cx, 0, 4096, MASK).wait().await.unwrap());
    for n in 0..2000 {
        host.put(&format!("f{n}"), b"new");
    }
    let cookie = first.last().unwrap().1;
    let rest = entries(&dir.readdirplus(&host.cx, cookie, 65_536, MASK).wait().await.unwrap());
    assert!(rest.len() > 100);
    assert!(rest.iter().filter(|entry| entry.0.starts_with('f')).all(|entry| entry.2.size == 3));
}

#[tokio::test]
async fn an_entry_that_has_gone_has_no_attributes() {
    let host = Host::new();
    for n in 0..2000 {
        host.put(&format!("f{n}"), b"");
    }
    let dir = host.root().await;
    host.open(&dir, 0).await.unwrap();
    let first = entries(&dir.readdirplus(&host.cx, 0, 4096, MASK).wait().await.unwrap());
    for n in 0..2000 {
        std::fs::remove_file(host.path(format!("f{n}"))).unwrap();
    }
    // What the kernel had told of the directory by then is told on, without attributes.
    let cookie = first.last().unwrap().1;
    let rest = entries(&dir.readdirplus(&host.cx, cookie, 65_536, MASK).wait().await.unwrap());
    assert!(rest.iter().filter(|entry| entry.0.starts_with('f')).all(|entry| entry.2.valid == 0), "{rest:?}");
    assert!(rest.len() > 100, "{} entries were read ahead", rest.len());
}

#[tokio::test]
async fn a_mask_of_nothing_asks_no_file() {
    let host = Host::new();
    host.put("f", b"");
    let dir = host.root().await;
    host.open(&dir, 0).await.unwrap();
    let listed = entries(&dir.readdirplus(&host.cx, 0, 4096, 0).wait().await.unwrap());
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|(_, _, attr)| attr.valid == 0));
}

#[tokio::test]
async fn who_may_not_search_a_directory_sees_names_without_attributes() {
    if !have("root, to act as other users", is_root()) {
        return;
    }
    let host = Host::new();
    host.mkdir("d");
    host.put("d/f", b"secret");
    chmod(&host, "", 0o755);
    chmod(&host, "d", 0o744);
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let dir = host.at(&alice, "d").await;
    host.open(&dir, 0).await.unwrap();
    let listed = list(&host, &dir, 4096).await;
    let found = |name: &str| listed.iter().find(|entry| entry.0 == name).unwrap().2;
    assert_eq!((found("f").valid, found("f").size, found("..").valid), (0, 0, 0));
    assert_ne!(found(".").valid, 0, "what the fid itself may be asked");
    chmod(&host, "d", 0o755);
    assert_eq!(list(&host, &dir, 4096).await.iter().find(|entry| entry.0 == "f").unwrap().2.size, 6);
}

#[tokio::test]
async fn a_mount_is_told_as_what_is_mounted() {
    let host = Host::new();
    host.mkdir("d/mnt");
    let at = host.path("d/mnt");
    let mounted = mount("none", &at, "tmpfs", MountFlags::empty(), Some(c"mode=0711")).is_ok();
    if !have("permission to mount", mounted) {
        return;
    }
    let root = host.root().await;
    let dir = host.at(&root, "d").await;
    host.open(&dir, 0).await.unwrap();
    let listed = list(&host, &dir, 4096).await;
    let attr = listed.iter().find(|entry| entry.0 == "mnt").unwrap().2;
    let told = host.at(&root, "d/mnt").await.getattr(&host.cx, MASK).wait().await.unwrap();
    assert_eq!((attr, attr.mode), (told, 0o040_711));
    unmount(&at, UnmountFlags::DETACH).unwrap();
}

#[tokio::test]
async fn access_is_that_of_the_attached_user() {
    if !have("root, to act as other users", is_root()) {
        return;
    }
    let host = Host::new();
    chmod(&host, "", 0o755);
    host.put("f", b"");
    symlink("nowhere", host.path("link")).unwrap();
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let (hers, roots) = (host.at(&alice, "f").await, host.at(&host.root().await, "f").await);
    let ask = async |fid: &Fid, mode| fid.access(&host.cx, mode).wait().await.unwrap();
    for (mode, allowed) in [(0o644, 4), (0o606, 6), (0o640, 0), (0o647, 7), (0o611, 1)] {
        chmod(&host, "f", mode);
        assert_eq!(ask(&hers, access::ALL).await, allowed, "{mode:o}");
        assert_eq!(ask(&hers, access::WRITE).await, allowed & 2, "{mode:o}");
        assert_eq!(ask(&hers, 0).await, 0, "{mode:o}");
    }
    chmod(&host, "f", 0o600);
    assert_eq!(ask(&roots, access::ALL).await, access::READ | access::WRITE, "what nobody may execute is no program");
    assert_eq!(ask(&host.at(&alice, "link").await, access::ALL).await, access::ALL, "a link itself has no permissions");
    host.open(&roots, 0).await.unwrap();
    std::fs::remove_file(host.path("f")).unwrap();
    assert_eq!(ask(&roots, access::READ).await, access::READ, "also of a file without a name");
}
