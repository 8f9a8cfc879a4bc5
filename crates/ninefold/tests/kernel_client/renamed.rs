//! Fids walked before a folder above them was renamed, by whomever: Linux's client has fids of all names that it has
//! cached, and never walks to them again because somebody renamed what is above.

use ninefold::proto::{Dialect, Errno, Fid};

use super::conn::Conn;
use super::files::{Look, RDWR};
use super::scene::{DIALECTS, Scene};

/// Fids of a chain of folders `top/mid/low` and of `top/mid/low/f`, as walked and open.
struct Walked {
    mid: Fid,
    low: Fid,
    f: Fid,
    open: Fid,
    /// What was told of low and f.
    looks: [Look; 2],
}

/// Makes `top/mid/low/f`, which has `data`.
async fn plant(conn: &mut Conn, root: Fid, data: &[u8]) {
    let top = conn.mkdir(root, b"top").await.unwrap();
    let mid = conn.mkdir(top, b"mid").await.unwrap();
    let low = conn.mkdir(mid, b"low").await.unwrap();
    conn.put(low, "f", data).await;
}

async fn walk(conn: &mut Conn, root: Fid) -> Walked {
    let mid = conn.at(root, "top/mid").await.unwrap();
    let low = conn.at(mid, "low").await.unwrap();
    let f = conn.at(low, "f").await.unwrap();
    let open = conn.open(f, RDWR).await.unwrap();
    let looks = [conn.look(low).await.unwrap(), conn.look(f).await.unwrap()];
    Walked { mid, low, f, open, looks }
}

/// Does through the fids all that a mount does; `now` is where they are by now, and whoever walks there sees it.
async fn are_the_same_files(conn: &mut Conn, walked: &Walked, other: &mut Conn, other_root: Fid, now: &str) {
    let Walked { mid, low, f, open, ref looks } = *walked;
    assert_eq!([conn.look(low).await.unwrap(), conn.look(f).await.unwrap()], *looks);
    assert_eq!(conn.contents(f).await.unwrap(), b"old");
    assert_eq!(conn.read(open, 0).await.unwrap(), b"old");
    // Walks go on from where the fids are.
    for (from, path) in [(low, "f"), (mid, "low/f"), (low, "../low/f")] {
        let again = conn.at(from, path).await.unwrap();
        assert_eq!(conn.look(again).await.unwrap(), looks[1]);
    }
    let up = conn.at(low, "..").await.unwrap();
    assert_eq!(conn.look(up).await.unwrap(), conn.look(mid).await.unwrap());
    // Changes land there, too.
    conn.write(open, 3, b"er").await;
    conn.chmod(f, 0o600).await.unwrap();
    conn.put(low, "made", b"made").await;
    conn.mkdir(low, b"dir").await.unwrap();
    let gone = conn.create(low, b"gone").await.unwrap();
    conn.remove(gone).await.unwrap();
    conn.rename(f, low, b"g").await.unwrap();
    let names: [&[u8]; 3] = [b"dir", b"g", b"made"];
    assert_eq!(conn.list(low).await.unwrap(), names);
    let seen = other.at(other_root, now).await.unwrap();
    assert_eq!(other.list(seen).await.unwrap(), names);
    let seen = other.at(seen, "g").await.unwrap();
    assert_eq!(other.contents(seen).await.unwrap(), b"older");
    let look = other.look(seen).await.unwrap();
    assert_eq!((look.path, look.mode & 0o777), (looks[1].path, 0o600));
    conn.remove(f).await.unwrap();
    assert_eq!(other.at(other_root, &format!("{now}/g")).await.err(), Some(Errno::ENOENT));
}

/// What has the old name now was not touched.
async fn is_untouched(conn: &mut Conn, root: Fid) {
    let low = conn.at(root, "top/mid/low").await.unwrap();
    assert_eq!(conn.list(low).await.unwrap(), [b"f"]);
    let f = conn.at(low, "f").await.unwrap();
    assert_eq!(conn.contents(f).await.unwrap(), b"new");
}

#[tokio::test(start_paused = true)]
async fn fids_below_a_folder_that_another_client_renamed_and_made_anew_are_of_the_files_that_were_walked_to() {
    for scene in Scene::each(DIALECTS) {
        let (mut a, root) = scene.connect().await;
        plant(&mut a, root, b"old").await;
        let walked = walk(&mut a, root).await;
        let (mut b, b_root) = scene.connect().await;
        let top = b.at(b_root, "top").await.unwrap();
        b.rename(top, b_root, b"away").await.unwrap();
        plant(&mut b, b_root, b"new").await;
        are_the_same_files(&mut a, &walked, &mut b, b_root, "away/mid/low").await;
        is_untouched(&mut a, root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fids_below_a_folder_stay_good_when_another_folder_is_renamed_to_its_old_name() {
    for scene in Scene::each(DIALECTS) {
        let (mut a, root) = scene.connect().await;
        plant(&mut a, root, b"new").await;
        let top = a.at(root, "top").await.unwrap();
        a.rename(top, root, b"next").await.unwrap();
        plant(&mut a, root, b"old").await;
        let walked = walk(&mut a, root).await;
        let (mut b, b_root) = scene.connect().await;
        for (from, to) in [("top", "away"), ("next", "top")] {
            let top = b.at(b_root, from).await.unwrap();
            b.rename(top, b_root, to.as_bytes()).await.unwrap();
        }
        are_the_same_files(&mut a, &walked, &mut b, b_root, "away/mid/low").await;
        is_untouched(&mut a, root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fids_below_stay_good_when_folders_of_several_levels_are_renamed_again_and_again() {
    for scene in Scene::each(DIALECTS) {
        let (mut a, root) = scene.connect().await;
        plant(&mut a, root, b"old").await;
        let walked = walk(&mut a, root).await;
        let (mut b, b_root) = scene.connect().await;
        let (mut top, mut mid, mut low) = ("top".to_owned(), "mid".to_owned(), "low".to_owned());
        for round in 0..8 {
            // From above, from below and both ways.
            for level in [[0, 1, 2], [2, 1, 0]][round % 2] {
                let (path, dir, name) = match level {
                    0 => (top.clone(), String::new(), &mut top),
                    1 => (format!("{top}/{mid}"), top.clone(), &mut mid),
                    _ => (format!("{top}/{mid}/{low}"), format!("{top}/{mid}"), &mut low),
                };
                let fid = b.at(b_root, &path).await.unwrap();
                let dir = b.at(b_root, &dir).await.unwrap();
                *name = format!("{round}.{level}");
                b.rename(fid, dir, name.as_bytes()).await.unwrap();
                assert_eq!(a.look(walked.f).await.unwrap(), walked.looks[1]);
                assert_eq!(a.contents(walked.f).await.unwrap(), b"old");
            }
        }
        b.rename_back(b_root, [&top, &mid, &low]).await;
        are_the_same_files(&mut a, &walked, &mut b, b_root, "top/mid/low").await;
    }
}

impl Conn {
    /// Gives the folders of a chain the names `top`, `mid` and `low`.
    async fn rename_back(&mut self, root: Fid, names: [&str; 3]) {
        let mut dir = root;
        for (now, name) in names.into_iter().zip(["top", "mid", "low"]) {
            let fid = self.at(dir, now).await.unwrap();
            self.rename(fid, dir, name.as_bytes()).await.unwrap();
            dir = fid;
        }
    }
}

/// How .L's clients say a rename.
#[derive(Debug, Clone, Copy)]
enum How {
    Rename,
    Renameat,
}

#[tokio::test(start_paused = true)]
async fn fids_below_a_folder_stay_good_when_another_client_moves_it_into_another_folder() {
    for how in [How::Rename, How::Renameat] {
        for scene in Scene::each([Dialect::Linux]) {
            eprintln!("{how:?}");
            let (mut a, root) = scene.connect().await;
            plant(&mut a, root, b"old").await;
            let walked = walk(&mut a, root).await;
            let (mut b, b_root) = scene.connect().await;
            let over = b.mkdir(b_root, b"over").await.unwrap();
            let there = b.mkdir(over, b"there").await.unwrap();
            // An empty folder has the name already.
            b.mkdir(there, b"moved").await.unwrap();
            let top = b.at(b_root, "top").await.unwrap();
            match how {
                How::Rename => {
                    let mid = b.at(top, "mid").await.unwrap();
                    b.rename(mid, there, b"moved").await.unwrap();
                }
                How::Renameat => b.renameat(top, b"mid", there, b"moved").await.unwrap(),
            }
            // Two levels up from the file, and one further.
            b.renameat(over, b"there", b_root, b"here").await.unwrap();
            let mid = b.mkdir(top, b"mid").await.unwrap();
            let low = b.mkdir(mid, b"low").await.unwrap();
            b.put(low, "f", b"new").await;
            are_the_same_files(&mut a, &walked, &mut b, b_root, "here/moved/low").await;
            is_untouched(&mut a, root).await;
        }
    }
}
