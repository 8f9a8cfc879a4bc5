//! Files that have no name any more: Unix keeps a file until its last user closes it, and the user of a mount is the
//! server's fid.

use ninefold::proto::attr::getattr;
use ninefold::proto::message::{Mask, Octal, Optional};
use ninefold::proto::{Dialect, Errno, Fid, R, T};

use super::conn::Conn;
use super::files::{RDWR, READ};
use super::lock_waits::{BLOCKED, GRANTED, WHOLE, WRITE_LOCK, lock};
use super::scene::{DIALECTS, Scene};

/// How a file comes to lose its name `f` in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Tremove.
    Removed,
    /// .L: Tunlinkat.
    Unlinked,
    /// .L: Trename; .u: a wstat that only renames, which replaces.
    RenamedOver,
    /// .L: Trenameat.
    RenamedOverByName,
}

impl Loss {
    fn every(dialect: Dialect) -> &'static [Loss] {
        match dialect {
            Dialect::Plan9 => &[Loss::Removed],
            Dialect::Unix => &[Loss::Removed, Loss::RenamedOver],
            Dialect::Linux => &[Loss::Removed, Loss::Unlinked, Loss::RenamedOver, Loss::RenamedOverByName],
        }
    }

    async fn happens(self, conn: &mut Conn, root: Fid) {
        match self {
            Loss::Removed => {
                let fid = conn.at(root, "f").await.unwrap();
                conn.remove(fid).await.unwrap();
            }
            Loss::Unlinked => {
                conn.ask(&T::Unlinkat { dirfid: root, name: b"f", flags: Octal(0) }).await.unwrap();
            }
            Loss::RenamedOver => {
                conn.put(root, "other", b"other").await;
                let other = conn.at(root, "other").await.unwrap();
                conn.rename(other, root, b"f").await.unwrap();
            }
            Loss::RenamedOverByName => {
                conn.put(root, "other", b"other").await;
                conn.renameat(root, b"other", root, b"f").await.unwrap();
            }
        }
    }
}

/// Each way to lose a name in each dialect and tree.
fn losses() -> impl Iterator<Item = (Loss, Scene)> {
    let each = |dialect| Loss::every(dialect).iter().map(move |&loss| (loss, dialect));
    DIALECTS
        .into_iter()
        .flat_map(each)
        .flat_map(|(loss, dialect)| Scene::each([dialect]).map(move |scene| (loss, scene)))
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_name_is_looked_at_changed_read_and_written_through_fids_that_have_it() {
    for (loss, scene) in losses() {
        eprintln!("{loss:?}");
        let (mut a, root) = scene.connect().await;
        a.put(root, "f", b"before").await;
        let walked = a.at(root, "f").await.unwrap();
        let open = a.open(walked, RDWR).await.unwrap();
        let look = a.look(walked).await.unwrap();
        let (mut b, b_root) = scene.connect().await;
        loss.happens(&mut b, b_root).await;
        // Whatever has the name now is another file.
        let next = match loss {
            Loss::Removed | Loss::Unlinked => {
                assert_eq!(a.at(root, "f").await.err(), Some(Errno::ENOENT));
                b.put(b_root, "f", b"other").await;
                b.at(b_root, "f").await.unwrap()
            }
            Loss::RenamedOver | Loss::RenamedOverByName => b.at(b_root, "f").await.unwrap(),
        };
        for i in 0..20 {
            b.put(b_root, &format!("more{i}"), b"").await;
        }
        for fid in [walked, open] {
            assert_eq!(a.look(fid).await.unwrap(), look);
        }
        a.truncate(walked, 3).await.unwrap();
        assert_eq!(a.read(open, 0).await.unwrap(), b"bef");
        a.write(open, 3, b"all").await;
        a.truncate(open, 5).await.unwrap();
        a.chmod(walked, 0o600).await.unwrap();
        let now = a.look(open).await.unwrap();
        assert_eq!((now.path, now.mode & 0o777, now.size), (look.path, 0o600, 5));
        // As Linux's client opens a name that it has cached: a clone of the fid.
        let late = a.open(walked, RDWR).await.unwrap();
        assert_eq!(a.read(late, 0).await.unwrap(), b"befal");
        a.write(late, 5, b"len").await;
        a.clunk(open).await;
        assert_eq!(a.contents(walked).await.unwrap(), b"befallen");
        assert_eq!(b.contents(next).await.unwrap(), b"other");
        assert_ne!(b.look(next).await.unwrap().path, look.path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_name_is_kept_as_long_as_one_fid_was_walked_to_it() {
    for (loss, scene) in losses() {
        eprintln!("{loss:?}");
        let (mut a, root) = scene.connect().await;
        a.put(root, "f", b"before").await;
        let walked = a.at(root, "f").await.unwrap();
        loss.happens(&mut a, root).await;
        // Others need the descriptors.
        for i in 0..20 {
            let name = format!("more{i}");
            a.put(root, &name, b"").await;
            a.at(root, &name).await.unwrap();
        }
        // Clones of clones, each the only one.
        let mut last = walked;
        for _ in 0..20 {
            let clone = a.walk(last, &[]).await.unwrap();
            a.clunk(last).await;
            last = clone;
        }
        assert_eq!(a.look(last).await.unwrap().size, 6);
        a.open_itself(last, READ).await.unwrap();
        assert_eq!(a.read(last, 0).await.unwrap(), b"before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_name_is_not_removed_or_renamed_and_what_has_the_name_is_left_alone() {
    for (loss, scene) in losses() {
        eprintln!("{loss:?}");
        let (mut a, root) = scene.connect().await;
        a.put(root, "f", b"before").await;
        let (one, two) = (a.at(root, "f").await.unwrap(), a.at(root, "f").await.unwrap());
        loss.happens(&mut a, root).await;
        if matches!(loss, Loss::Removed | Loss::Unlinked) {
            a.put(root, "f", b"other").await;
        }
        assert_eq!(a.rename(one, root, b"g").await, Err(Errno::ENOENT));
        assert_eq!(a.remove(two).await, Err(Errno::ENOENT));
        let f = a.at(root, "f").await.unwrap();
        assert_eq!(a.contents(f).await.unwrap(), b"other");
        assert_eq!(a.list(root).await.unwrap(), [b"f"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_name_has_no_links_is_synced_locked_and_asked_for_attributes() {
    for scene in Scene::each([Dialect::Linux]) {
        for &loss in Loss::every(Dialect::Linux) {
            eprintln!("{loss:?}");
            let (mut conn, root) = scene.connect().await;
            conn.put(root, "f", b"before").await;
            let walked = conn.at(root, "f").await.unwrap();
            let open = conn.open(walked, RDWR).await.unwrap();
            assert_eq!(lock(&mut conn, open, WRITE_LOCK, WHOLE, 1).await, GRANTED);
            loss.happens(&mut conn, root).await;
            let reply = conn.ask(&T::Getattr { fid: walked, request_mask: Mask(getattr::BASIC) }).await.unwrap();
            assert!(matches!(reply.message(), R::Getattr { nlink: 0, .. }), "{:?}", reply.message());
            conn.ask(&T::Fsync { fid: open, datasync: Optional(0) }).await.unwrap();
            conn.ask(&T::Statfs { fid: walked }).await.unwrap();
            // Asked before each write.
            let newfid = conn.new_fid();
            let capability = T::Xattrwalk { fid: walked, newfid, name: b"security.capability" };
            let none = conn.ask(&capability).await.unwrap_err();
            assert!(matches!(none, Errno::ENODATA | Errno::EOPNOTSUPP), "{none:?}");
            // The lock is on the file, whatever has the name.
            let late = conn.open(walked, RDWR).await.unwrap();
            assert_eq!(lock(&mut conn, late, WRITE_LOCK, WHOLE, 2).await, BLOCKED);
            if matches!(loss, Loss::Removed | Loss::Unlinked) {
                conn.put(root, "f", b"other").await;
            }
            let next = conn.at(root, "f").await.unwrap();
            let next_open = conn.open(next, RDWR).await.unwrap();
            assert_eq!(lock(&mut conn, next_open, WRITE_LOCK, WHOLE, 2).await, GRANTED);
            conn.clunk(open).await;
            assert_eq!(lock(&mut conn, late, WRITE_LOCK, WHOLE, 2).await, GRANTED);
            conn.remove(next).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_was_removed_is_looked_at_and_listed_through_fids_that_have_it() {
    for scene in Scene::each(DIALECTS) {
        let (mut a, root) = scene.connect().await;
        let dir = a.mkdir(root, b"d").await.unwrap();
        let look = a.look(dir).await.unwrap();
        let (mut b, b_root) = scene.connect().await;
        let same = b.at(b_root, "d").await.unwrap();
        b.remove(same).await.unwrap();
        b.mkdir(b_root, b"d").await.unwrap();
        assert_eq!(a.look(dir).await.unwrap(), look);
        assert_eq!(a.list(dir).await.unwrap(), [b""; 0]);
        assert_eq!(a.create(dir, b"f").await, Err(Errno::ENOENT));
        assert_eq!(a.at(dir, "f").await, Err(Errno::ENOENT));
        let next = b.at(b_root, "d").await.unwrap();
        assert_eq!(b.list(next).await.unwrap(), [b""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_whose_folder_was_removed_after_it_is_read_and_written_through_fids_that_have_it() {
    for scene in Scene::each(DIALECTS) {
        let (mut a, root) = scene.connect().await;
        let dir = a.mkdir(root, b"d").await.unwrap();
        a.put(dir, "f", b"before").await;
        let walked = a.at(dir, "f").await.unwrap();
        let (mut b, b_root) = scene.connect().await;
        for path in ["d/f", "d"] {
            let fid = b.at(b_root, path).await.unwrap();
            b.remove(fid).await.unwrap();
        }
        let again = b.mkdir(b_root, b"d").await.unwrap();
        b.put(again, "f", b"other").await;
        let open = a.open(walked, RDWR).await.unwrap();
        a.write(open, 6, b"hand").await;
        assert_eq!(a.contents(walked).await.unwrap(), b"beforehand");
        let other = b.at(again, "f").await.unwrap();
        assert_eq!(b.contents(other).await.unwrap(), b"other");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_lost_one_of_two_names_is_the_same_by_the_other() {
    for scene in Scene::each([Dialect::Unix, Dialect::Linux]) {
        let (mut a, root) = scene.connect().await;
        a.put(root, "f", b"before").await;
        let walked = a.at(root, "f").await.unwrap();
        a.link(root, walked, b"g").await.unwrap();
        let (mut b, b_root) = scene.connect().await;
        let f = b.at(b_root, "f").await.unwrap();
        b.remove(f).await.unwrap();
        b.put(b_root, "f", b"other").await;
        let open = a.open(walked, RDWR).await.unwrap();
        a.write(open, 6, b"hand").await;
        let g = b.at(b_root, "g").await.unwrap();
        assert_eq!(b.contents(g).await.unwrap(), b"beforehand");
        assert_eq!(a.look(walked).await.unwrap(), b.look(g).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_files_removed_while_open_are_served_through_the_fids_that_were_walked_to_them() {
    const FILES: usize = 100;
    for scene in Scene::each(DIALECTS) {
        let (mut conn, root) = scene.connect().await;
        let mut files = Vec::new();
        for i in 0..FILES {
            let name = i.to_string();
            conn.put(root, &name, name.as_bytes()).await;
            let walked = conn.at(root, &name).await.unwrap();
            // One of two opens ends, the other goes on.
            let opens = [conn.open(walked, RDWR).await.unwrap(), conn.open(walked, READ).await.unwrap()];
            conn.clunk(opens[i % 2]).await;
            let removed = conn.at(root, &name).await.unwrap();
            conn.remove(removed).await.unwrap();
            files.push((walked, name));
        }
        for (walked, name) in files {
            assert_eq!(conn.look(walked).await.unwrap().size, name.len() as u64);
            conn.chmod(walked, 0o600).await.unwrap();
            assert_eq!(conn.contents(walked).await.unwrap(), name.as_bytes());
            conn.truncate(walked, 0).await.unwrap();
            assert_eq!(conn.contents(walked).await.unwrap(), b"");
        }
    }
}
