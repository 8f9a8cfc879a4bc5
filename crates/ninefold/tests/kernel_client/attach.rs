//! Who a mount attaches as. Without options Linux's client says the name `nobody` (`V9FS_DEFUSER` in fs/9p/v9fs.h), with
//! no number for the mount itself and then, in .u and .L, each user's own. The number counts, not the name.

use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Dialect, Errno, Fid, T};
use ninefold::server::{Limits, Policy, User};
use ninefold::transport::Peer;
use rustix::process::geteuid;

use super::conn::Conn;
use super::scene::{DIALECTS, STRANGER, Scene};

/// What Linux's client says when no mount option names a user.
const DEFAULT_NAME: &str = "nobody";

const WITH_NUMBERS: [Dialect; 2] = [Dialect::Unix, Dialect::Linux];

fn process_of(uid: u32) -> Peer {
    Peer::Unix { uid, gid: uid, pid: 1 }
}

/// The owner of what `n_uname` makes.
async fn owner_of_what_is_made(conn: &mut Conn, uname: &str, n_uname: u32, file: &str) -> Result<u32, Errno> {
    let root = conn.attach(uname, n_uname).await?;
    let fid = conn.create(root, file.as_bytes()).await?;
    Ok(conn.look(fid).await?.uid)
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_names_nobody_attaches_in_every_dialect_under_every_policy() {
    let me = geteuid().as_raw();
    for policy in [Policy::AsProcess, Policy::ByPeer, Policy::TrustUids, Policy::Squash(User::of_process())] {
        for scene in Scene::with(DIALECTS, None, policy.clone(), Limits::default()) {
            eprintln!("{policy:?}");
            let mut conn = scene.connect_as(process_of(me)).await;
            for n_uname in [NONUNAME, me] {
                let root = conn.attach(DEFAULT_NAME, n_uname).await.unwrap();
                conn.look(root).await.unwrap();
                conn.list(root).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_says_nobody_and_his_own_number_acts_as_himself() {
    let me = geteuid().as_raw();
    for policy in [Policy::AsProcess, Policy::ByPeer, Policy::TrustUids, Policy::Squash(User::of_process())] {
        for scene in Scene::with(WITH_NUMBERS, None, policy.clone(), Limits::default()) {
            eprintln!("{policy:?}");
            let mut conn = scene.connect_as(process_of(me)).await;
            for (uname, file) in [(DEFAULT_NAME, "f"), ("", "g")] {
                assert_eq!(owner_of_what_is_made(&mut conn, uname, me, file).await, Ok(me), "{uname:?}");
            }
        }
    }
}

/// A tree of somebody else; of the host only for root, who alone can act as another there.
fn of_a_stranger(test: &str) -> impl Iterator<Item = Scene> {
    if !geteuid().is_root() {
        skip(test, "only root can act as another user in a directory of the host; tried in memory");
    }
    [Policy::ByPeer, Policy::TrustUids].into_iter().flat_map(|policy| {
        eprintln!("{policy:?}");
        Scene::with(WITH_NUMBERS, Some(STRANGER), policy, Limits::default())
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_of_root_that_says_nobody_and_a_users_number_acts_as_that_user() {
    const TEST: &str = "a_client_of_root_that_says_nobody_and_a_users_number_acts_as_that_user";
    for scene in of_a_stranger(TEST) {
        let mut conn = scene.connect_as(process_of(0)).await;
        // The mount itself, which may look but not write.
        let mounted = owner_of_what_is_made(&mut conn, DEFAULT_NAME, NONUNAME, "e").await;
        assert_eq!(mounted, Err(Errno::EACCES));
        for (uname, file) in [(DEFAULT_NAME, "f"), ("", "g")] {
            assert_eq!(owner_of_what_is_made(&mut conn, uname, STRANGER, file).await, Ok(STRANGER), "{uname:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_user_that_says_nobody_acts_as_that_user_by_his_number_and_as_no_other() {
    const TEST: &str = "a_client_of_a_user_that_says_nobody_acts_as_that_user_by_his_number_and_as_no_other";
    for scene in of_a_stranger(TEST) {
        let mut own = scene.connect_as(process_of(STRANGER)).await;
        assert_eq!(owner_of_what_is_made(&mut own, DEFAULT_NAME, STRANGER, "f").await, Ok(STRANGER));
        for n_uname in [0, STRANGER + 1] {
            let claimed = owner_of_what_is_made(&mut own, DEFAULT_NAME, n_uname, "g").await;
            assert_eq!(claimed, Err(Errno::EACCES), "{n_uname}");
        }
        let mut another = scene.connect_as(process_of(STRANGER + 1)).await;
        let claimed = owner_of_what_is_made(&mut another, DEFAULT_NAME, STRANGER, "g").await;
        assert_eq!(claimed, Err(Errno::EACCES));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_of_one_user_refuses_the_others_and_unknown_anames_in_words_that_clients_know() {
    for scene in Scene::each(DIALECTS) {
        let mut other = scene.connect_as(process_of(STRANGER)).await;
        assert_eq!(other.attach(DEFAULT_NAME, STRANGER).await, Err(Errno::EACCES));
        let mut own = scene.connect_as(process_of(geteuid().as_raw())).await;
        let fid = own.new_fid();
        let (afid, uname, n_uname) = (Fid::NONE, DEFAULT_NAME.as_bytes(), NONUNAME);
        let attach = T::Attach { fid, afid, uname, aname: b"nowhere", n_uname };
        assert_eq!(own.ask(&attach).await.unwrap_err(), Errno::ENOENT);
        own.attach(DEFAULT_NAME, NONUNAME).await.unwrap();
    }
}

fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
}
