//! Paths as long as Linux lets a program say, and longer. The client walks them sixteen names at a time, and so does not
//! care what the whole is; a server that put it together again would, at PATH_MAX.

use ninefold::proto::{Dialect, Errno, Fid};

use super::conn::Conn;
use super::files::RDWR;
use super::scene::{DIALECTS, Scene};

/// Bytes of the longest path that a system call takes: PATH_MAX (linux/limits.h) without the NUL.
const LONGEST: usize = 4095;

/// Bytes; NAME_MAX (linux/limits.h).
const LONGEST_NAME: usize = 255;

/// Names of `length` bytes that make a path of `total`, the last one a file's.
fn names(length: usize, total: usize) -> Vec<Vec<u8>> {
    let count = (total + 1) / (length + 1);
    let names: Vec<Vec<u8>> = (0..count)
        .map(|i| {
            let digits = i.to_string().into_bytes();
            if length < digits.len() {
                vec![b'x'; length]
            } else {
                [vec![b'x'; length - digits.len()], digits].concat()
            }
        })
        .collect();
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
async fn a_path_of_4095_bytes_in_names_of_one_byte_is_used_from_its_making_to_its_end() {
    for scene in Scene::each(DIALECTS) {
        a_life(&scene, &names(1, LONGEST)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_three_times_as_long_as_a_system_call_takes_is_used_from_its_making_to_its_end() {
    for scene in Scene::each(DIALECTS) {
        // A byte for each `/` between the three.
        a_life(&scene, &names(LONGEST_NAME, 3 * LONGEST + 2)).await;
    }
}
