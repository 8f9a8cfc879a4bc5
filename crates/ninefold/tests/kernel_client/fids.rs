//! Linux's client keeps a fid for every name that it has cached, and clunks it when the name is forgotten: fids come by
//! the thousand on one connection.

use ninefold::proto::message::Names;
use ninefold::proto::{Dialect, Errno, Fid, T};
use ninefold::server::{Limits, Policy};

use super::conn::Conn;
use super::scene::{DIALECTS, Scene};

const WALKED: usize = 10_000;

const DIRECTORIES: usize = 10;

/// Every how many-th file is looked at: a prime, so that every directory has some of them.
const STEP: usize = 97;

/// Directory and name of a file.
fn place(i: usize) -> (usize, String) {
    (i % DIRECTORIES, i.to_string())
}

/// Files whose content is their name.
async fn plant(scene: &Scene) {
    if let Some(dir) = scene.dir() {
        for d in 0..DIRECTORIES {
            std::fs::create_dir(dir.join(format!("d{d}"))).unwrap();
        }
        for i in 0..WALKED {
            let (d, name) = place(i);
            std::fs::write(dir.join(format!("d{d}/{name}")), &name).unwrap();
        }
        return;
    }
    let (mut conn, root) = scene.connect().await;
    let mut dirs = Vec::new();
    for d in 0..DIRECTORIES {
        dirs.push(conn.mkdir(root, format!("d{d}").as_bytes()).await.unwrap());
    }
    for i in 0..WALKED {
        let (d, name) = place(i);
        conn.put(dirs[d], &name, name.as_bytes()).await;
    }
}

async fn clone(conn: &mut Conn, fid: Fid, newfid: Fid) -> Result<(), Errno> {
    conn.ask(&T::Walk { fid, newfid, wnames: Names::default() }).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_names_walked_and_never_clunked_stay_good_and_one_too_many_is_emfile() {
    // The root, the directories, and one for opening.
    let limits = Limits { fids: WALKED + DIRECTORIES + 2, ..Limits::default() };
    for mut scene in Scene::with([Dialect::Linux], None, Policy::AsProcess, limits) {
        plant(&scene).await;
        for dialect in DIALECTS {
            scene.speak(dialect);
            let (mut conn, root) = scene.connect().await;
            let mut dirs = Vec::new();
            for d in 0..DIRECTORIES {
                dirs.push(conn.at(root, &format!("d{d}")).await.unwrap());
            }
            let mut fids = Vec::new();
            for i in 0..WALKED {
                let (d, name) = place(i);
                fids.push(conn.at(dirs[d], &name).await.unwrap());
            }
            for i in (0..WALKED).step_by(STEP) {
                let name = place(i).1;
                assert_eq!(conn.look(fids[i]).await.unwrap().size, name.len() as u64);
                assert_eq!(conn.contents(fids[i]).await.unwrap(), name.as_bytes());
            }
            let (last, over) = (conn.new_fid(), conn.new_fid());
            clone(&mut conn, root, last).await.unwrap();
            for _ in 0..3 {
                assert_eq!(clone(&mut conn, root, over).await, Err(Errno::EMFILE));
            }
            // What is there stays, and one that goes makes room for one.
            assert_eq!(conn.look(fids[WALKED - 1]).await.unwrap().size, 4);
            conn.clunk(fids[0]).await;
            clone(&mut conn, root, over).await.unwrap();
        }
    }
}
