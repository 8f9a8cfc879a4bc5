//! Paths as long as Linux lets a program say, and longer. The client walks them sixteen names at a time, and so does not
//! care what the whole is; a server that put it together again would, at PATH_MAX.

use ninefold::proto::message::{Perm, StatBytes};
use ninefold::proto::stat::{Stat, dm};
use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Dialect, Errno, Fid, R, T};

use super::conn::Conn;
use super::files::{RDWR, READ};
use super::scene::{DIALECTS, Scene};

/// Bytes of the longest path that a system call takes: PATH_MAX (linux/limits.h) without the NUL.
const LONGEST: usize = 4095;

/// Bytes; NAME_MAX (linux/limits.h).
const LONGEST_NAME: usize = 255;

/// Names of `length` bytes that make a path of `total`, the last one a file's.
fn names(length: usize, total: usize) -> Vec<Vec<u8>> {
    let count = (total + 1) / (length + 1);
    let names: Vec<Vec<u8>> = (0..count).map(|i| format!("{i:0length$}").into_bytes()).collect();
    assert_eq!(names.join(&b'/').len(), total);
    names
}

/// Makes, uses and removes the file at the end of `path`, whose other names are folders, from the root; the top folder
/// is renamed meanwhile.
async fn a_life(scene: &Scene, path: &[Vec<u8>]) {
    let path: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
    let (&file, folders) = path.split_last().unwrap();
    let (mut maker, root) = scene.connect().await;
    let mut at = root;
    for &name in folders {
        let next = maker.mkdir(at, name).await.unwrap();
        if at != root {
            maker.clunk(at).await;
        }
        at = next;
    }
    let open = maker.create(at, file).await.unwrap();
    maker.write(open, 0, b"deep").await;

    // Somebody else, from the top and all the way each time.
    let (mut conn, root) = scene.connect().await;
    let walked = conn.walk(root, &path).await.unwrap();
    let dir = conn.walk(root, folders).await.unwrap();
    assert_eq!(conn.look(walked).await.unwrap().size, 4);
    let other = conn.open(walked, RDWR).await.unwrap();
    assert_eq!(conn.read(other, 0).await.unwrap(), b"deep");
    conn.write(other, 4, b"er").await;
    conn.truncate(walked, 5).await.unwrap();
    conn.chmod(walked, 0o600).await.unwrap();
    assert_eq!(maker.read(open, 0).await.unwrap(), b"deepe");
    assert_eq!(conn.list(dir).await.unwrap(), [file]);
    let name = vec![b'y'; file.len()];
    conn.rename(walked, dir, &name).await.unwrap();
    assert_eq!(conn.list(dir).await.unwrap(), [name.as_slice()]);
    assert_eq!(conn.walk(root, &path).await.err(), Some(Errno::ENOENT));
    if scene.dialect == Dialect::Linux {
        by_name(&mut conn, root, dir, &name).await;
    }
    let top = conn.walk(root, &path[..1]).await.unwrap();
    conn.rename(top, root, b"top").await.unwrap();
    assert_eq!(conn.contents(walked).await.unwrap(), b"deepe");
    let renamed = [&[b"top".as_slice()], &path[1..path.len() - 1], &[&name]].concat();
    let again = conn.walk(root, &renamed).await.unwrap();
    assert_eq!(conn.contents(again).await.unwrap(), b"deepe");
    conn.remove(again).await.unwrap();
    assert_eq!(maker.read(open, 0).await.unwrap(), b"deepe");

    // Up again, each folder removed from where it is.
    let mut at = dir;
    for _ in folders {
        let up = conn.walk(at, &[b".."]).await.unwrap();
        conn.remove(at).await.unwrap();
        at = up;
    }
    assert_eq!(conn.list(root).await.unwrap(), [b""; 0]);
}

/// What .L does with two directories and names in them: from the depth to the root and back.
async fn by_name(conn: &mut Conn, root: Fid, dir: Fid, name: &[u8]) {
    conn.renameat(dir, name, root, b"up").await.unwrap();
    conn.renameat(root, b"up", dir, name).await.unwrap();
    let fid = conn.walk(dir, &[name]).await.unwrap();
    conn.link(dir, fid, b"z").await.unwrap();
    let z = conn.walk(dir, &[b"z"]).await.unwrap();
    assert_eq!(conn.contents(z).await.unwrap(), b"deepe");
    conn.remove(z).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_path_of_4095_bytes_in_names_of_255_is_used_from_its_making_to_its_end() {
    for scene in Scene::each(DIALECTS) {
        a_life(&scene, &names(LONGEST_NAME, LONGEST)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_of_4095_bytes_through_511_folders_is_used_from_its_making_to_its_end() {
    for scene in Scene::each(DIALECTS) {
        a_life(&scene, &names(7, LONGEST)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_three_times_as_long_as_a_system_call_takes_is_used_from_its_making_to_its_end() {
    for scene in Scene::each(DIALECTS) {
        // A byte for each `/` between the three.
        a_life(&scene, &names(LONGEST_NAME, 3 * LONGEST + 2)).await;
    }
}

/// Makes a symbolic link, in the words of .u or .L.
async fn symlink(conn: &mut Conn, dir: Fid, name: &[u8], target: &[u8]) {
    if conn.dialect == Dialect::Linux {
        conn.ask(&T::Symlink { dfid: dir, name, symtgt: target, gid: NONUNAME }).await.unwrap();
        return;
    }
    let fid = conn.walk(dir, &[]).await.unwrap();
    let perm = Perm(dm::SYMLINK | 0o777);
    conn.ask(&T::Create { fid, name, perm, mode: READ, extension: target }).await.unwrap();
    conn.clunk(fid).await;
}

#[tokio::test(start_paused = true)]
async fn a_symbolic_link_to_a_path_of_4095_bytes_is_made_and_told_and_in_9p2000_followed() {
    for mut scene in Scene::each([Dialect::Unix, Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let path = names(LONGEST_NAME, LONGEST);
        let (file, folders) = path.split_last().unwrap();
        let mut dir = root;
        for name in folders {
            dir = conn.mkdir(dir, name).await.unwrap();
        }
        conn.put(dir, std::str::from_utf8(file).unwrap(), b"deep").await;
        let target = path.join(&b'/');
        symlink(&mut conn, root, b"link", &target).await;
        let link = conn.at(root, "link").await.unwrap();
        let told = if scene.dialect == Dialect::Linux {
            let reply = conn.ask(&T::Readlink { fid: link }).await.unwrap();
            let R::Readlink { target } = reply.message() else { panic!("{reply:?}") };
            target.to_vec()
        } else {
            let reply = conn.ask(&T::Stat { fid: link }).await.unwrap();
            let R::Stat { stat: StatBytes(stat) } = reply.message() else { panic!("{reply:?}") };
            Stat::decode(stat, Dialect::Unix).unwrap().extension.to_vec()
        };
        assert_eq!(told, target);
        if scene.dir().is_none() {
            continue; // a tree in memory follows no links
        }
        scene.speak(Dialect::Plan9);
        let (mut conn, root) = scene.connect().await;
        let led_to = conn.at(root, "link").await.unwrap();
        assert_eq!(conn.contents(led_to).await.unwrap(), b"deep");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_of_256_bytes_is_refused_as_too_long_wherever_it_is_said() {
    for scene in Scene::each(DIALECTS) {
        let (mut conn, root) = scene.connect().await;
        conn.put(root, "f", b"").await;
        let f = conn.at(root, "f").await.unwrap();
        let long = vec![b'x'; LONGEST_NAME + 1];
        assert_eq!(conn.walk(root, &[&long]).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(conn.create(root, &long).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(conn.mkdir(root, &long).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(conn.rename(f, root, &long).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(conn.list(root).await.unwrap(), [b"f"]);
    }
}
