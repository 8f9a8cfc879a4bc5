//! Sockets and FIFOs: all that is done to their names and attributes is done without opening them, and an open of one
//! that would wait for another program holds up nobody.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use ninefold::proto::message::{Octal, Perm};
use ninefold::proto::open::lflags;
use ninefold::proto::stat::dm;
use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Dialect, Errno, Fid, R, T};
use ninefold::server::{Limits, Policy};

use super::conn::Conn;
use super::files::{Look, RDWR, READ, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, WRITE};
use super::scene::{DIALECTS, Scene};

/// Opens and closes both ends of FIFOs when a thread seems to be blocked for one: while it is, virtual time stands still,
/// and so no timeout would end the test.
struct Rescue {
    done: Sender<()>,
    came: JoinHandle<bool>,
}

impl Rescue {
    /// In real time; no open takes as long.
    const AFTER: Duration = Duration::from_secs(30);

    fn of(scene: &Scene, fifos: &[&str]) -> Rescue {
        let paths = scene.dir().map(|dir| fifos.iter().map(|fifo| dir.join(fifo)).collect());
        let fifos: Vec<PathBuf> = paths.unwrap_or_default();
        let (done, ended) = channel::<()>();
        let came = spawn(move || {
            let waits = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            let late = waits(Rescue::AFTER);
            // Again and again: closing them ends a read that blocks, and the next open would block anew.
            while late && waits(Duration::from_millis(50)) {
                for fifo in &fifos {
                    let _ = File::options().read(true).write(true).open(fifo);
                }
            }
            late
        });
        Rescue { done, came }
    }

    fn was_not_needed(self) {
        drop(self.done);
        assert!(!self.came.join().unwrap(), "a thread waited for the other end of a FIFO");
    }
}

/// What 9P2000 does not tell apart from a plain file.
fn told(dialect: Dialect, kind: u32) -> u32 {
    if dialect == Dialect::Plan9 { S_IFREG } else { kind }
}

/// Makes a FIFO or a socket, in the words of `.u` or `.L`.
async fn make(conn: &mut Conn, dir: Fid, name: &[u8], kind: u32, perm: u32) {
    if conn.dialect == Dialect::Linux {
        let (major, minor, gid) = (0, 0, NONUNAME);
        conn.ask(&T::Mknod { dfid: dir, name, mode: Octal(kind | perm), major, minor, gid }).await.unwrap();
        return;
    }
    let fid = conn.walk(dir, &[]).await.unwrap();
    let bit = if kind == S_IFIFO { dm::NAMEDPIPE } else { dm::SOCKET };
    conn.ask(&T::Create { fid, name, perm: Perm(bit | perm), mode: READ, extension: b"" }).await.unwrap();
    conn.clunk(fid).await;
}

/// Makes one in the root for a test that speaks `scene.dialect`: 9P2000 itself has no word for it.
async fn plant(scene: &mut Scene, name: &[u8], kind: u32, perm: u32) {
    let dialect = scene.dialect;
    if dialect == Dialect::Plan9 {
        scene.speak(Dialect::Linux);
    }
    let (mut conn, root) = scene.connect().await;
    make(&mut conn, root, name, kind, perm).await;
    scene.speak(dialect);
}

/// What Linux's client asks of every file, whatever it is: for df, and for access control lists.
async fn asked_by_linux(conn: &mut Conn, fid: Fid) {
    conn.ask(&T::Statfs { fid }).await.unwrap();
    let list = conn.new_fid();
    conn.ask(&T::Xattrwalk { fid, newfid: list, name: b"" }).await.unwrap();
    conn.clunk(list).await;
    let newfid = conn.new_fid();
    let none = conn.ask(&T::Xattrwalk { fid, newfid, name: b"system.posix_acl_access" }).await.unwrap_err();
    assert!(matches!(none, Errno::ENODATA | Errno::EOPNOTSUPP), "{none:?}");
}

#[tokio::test(start_paused = true)]
async fn sockets_and_fifos_that_nobody_may_open_are_looked_at_changed_renamed_linked_listed_and_removed() {
    for mut scene in Scene::unprivileged(DIALECTS) {
        for (name, kind) in [("fifo", S_IFIFO), ("socket", S_IFSOCK)] {
            plant(&mut scene, name.as_bytes(), kind, 0).await;
            let (mut conn, root) = scene.connect().await;
            let fid = conn.at(root, name).await.unwrap();
            let look = conn.look(fid).await.unwrap();
            assert_eq!(look.mode, told(scene.dialect, kind));
            if kind == S_IFIFO {
                for mode in [READ, WRITE, RDWR] {
                    let refused = conn.open(fid, mode).await.unwrap_err();
                    assert!(matches!(refused, Errno::EACCES | Errno::ENXIO), "{refused:?}");
                }
            }
            conn.chmod(fid, 0o200).await.unwrap();
            conn.chmod(fid, 0).await.unwrap();
            conn.rename(fid, root, b"renamed").await.unwrap();
            assert_eq!(conn.list(root).await.unwrap(), [b"renamed"]);
            if scene.dialect != Dialect::Plan9 {
                conn.link(root, fid, b"other").await.unwrap();
                let link = conn.at(root, "other").await.unwrap();
                assert_eq!(conn.look(link).await.unwrap().path, look.path);
                conn.remove(link).await.unwrap();
            }
            if scene.dialect == Dialect::Linux {
                asked_by_linux(&mut conn, fid).await;
            }
            conn.touch(fid, 1_000_000_000).await.unwrap();
            let look = Look { mtime: 1_000_000_000, ..look };
            assert_eq!(conn.look(fid).await.unwrap(), look);
            conn.remove(fid).await.unwrap();
            assert_eq!(conn.list(root).await.unwrap(), [b""; 0]);
        }
    }
}

/// Tlcreate opens what is there: the FIFO `made`, which nobody has open.
async fn opened_by_create(conn: &mut Conn, dir: Fid, flows: bool) {
    for mode in [WRITE, READ] {
        let fid = conn.walk(dir, &[]).await.unwrap();
        let flags = Octal(lflags::CREAT | u32::from(mode));
        let created = conn.ask(&T::Lcreate { fid, name: b"made", flags, mode: Octal(0o600), gid: NONUNAME }).await;
        if mode == READ && flows {
            created.unwrap();
        } else {
            assert_eq!(created.unwrap_err(), Errno::ENXIO);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_of_a_fifo_is_answered_at_once_and_the_connection_goes_on() {
    for mut scene in Scene::each(DIALECTS) {
        for name in [b"fifo", b"made"] {
            plant(&mut scene, name, S_IFIFO, 0o600).await;
        }
        let (mut conn, root) = scene.connect().await;
        let fifo = conn.at(root, "fifo").await.unwrap();
        let rescue = Rescue::of(&scene, &["fifo", "made"]);
        if scene.dir().is_none() {
            // Nothing flows through the FIFOs of a tree in memory.
            for mode in [READ, WRITE, RDWR] {
                assert_eq!(conn.open(fifo, mode).await, Err(Errno::ENXIO));
            }
        } else {
            // fifo(7): without a reader.
            assert_eq!(conn.open(fifo, WRITE).await, Err(Errno::ENXIO));
            let reader = conn.open(fifo, READ).await.unwrap();
            let reading = conn.send(&T::Read { fid: reader, offset: 0, count: 100 }).await;
            conn.is_silent().await;
            let writer = conn.open(fifo, WRITE).await.unwrap();
            conn.write(writer, 0, b"through").await;
            assert_eq!(conn.reply(reading).await.message().payload(), b"through");
            let reading = conn.send(&T::Read { fid: reader, offset: 0, count: 100 }).await;
            conn.is_silent().await;
            assert_eq!(conn.ask(&T::Flush { oldtag: reading }).await.unwrap().message(), R::Flush {});
        }
        if scene.dialect == Dialect::Linux {
            opened_by_create(&mut conn, root, scene.dir().is_some()).await;
        }
        assert_eq!(conn.look(fifo).await.unwrap().mode & S_IFMT, told(scene.dialect, S_IFIFO));
        conn.put(root, "f", b"goes on").await;
        let f = conn.at(root, "f").await.unwrap();
        assert_eq!(conn.contents(f).await.unwrap(), b"goes on");
        rescue.was_not_needed();
    }
}

#[tokio::test(start_paused = true)]
async fn six_hundred_reads_of_a_silent_fifo_hold_up_no_other_request() {
    // tokio has 512 threads for what may block.
    const READS: usize = 600;
    for mut scene in Scene::each(DIALECTS).filter(|scene| scene.dir().is_some()) {
        plant(&mut scene, b"fifo", S_IFIFO, 0o600).await;
        let (mut conn, root) = scene.connect().await;
        let fifo = conn.at(root, "fifo").await.unwrap();
        let rescue = Rescue::of(&scene, &["fifo"]);
        for _ in 0..READS {
            let fid = conn.open(fifo, READ).await.unwrap();
            conn.send(&T::Read { fid, offset: 0, count: 1 }).await;
        }
        conn.put(root, "f", b"goes on").await;
        let f = conn.at(root, "f").await.unwrap();
        assert_eq!(conn.contents(f).await.unwrap(), b"goes on");
        conn.is_silent().await;
        drop(conn);
        scene.ended().await;
        rescue.was_not_needed();
    }
}

#[tokio::test(start_paused = true)]
async fn more_reads_that_wait_than_a_connection_may_have_are_told_to_try_again() {
    let limits = Limits { parked: 3, ..Limits::default() };
    for mut scene in Scene::with(DIALECTS, None, Policy::AsProcess, limits).filter(|scene| scene.dir().is_some()) {
        plant(&mut scene, b"fifo", S_IFIFO, 0o600).await;
        let (mut conn, root) = scene.connect().await;
        let fifo = conn.at(root, "fifo").await.unwrap();
        let rescue = Rescue::of(&scene, &["fifo"]);
        let reader = conn.open(fifo, READ).await.unwrap();
        for _ in 0..3 {
            conn.send(&T::Read { fid: reader, offset: 0, count: 1 }).await;
        }
        assert_eq!(conn.read(reader, 0).await, Err(Errno::EAGAIN));
        conn.is_silent().await;
        rescue.was_not_needed();
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_a_program_listens_on_is_served_as_a_name_and_never_opened() {
    for scene in Scene::each(DIALECTS) {
        let Some(dir) = scene.dir() else { continue };
        let listener = UnixListener::bind(dir.join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut conn, root) = scene.connect().await;
        let fid = conn.at(root, "socket").await.unwrap();
        assert_eq!(conn.look(fid).await.unwrap().mode & S_IFMT, told(scene.dialect, S_IFSOCK));
        for mode in [READ, WRITE, RDWR] {
            assert_eq!(conn.open(fid, mode).await, Err(Errno::ENXIO));
        }
        conn.chmod(fid, 0o700).await.unwrap();
        conn.rename(fid, root, b"renamed").await.unwrap();
        // Nobody came by it but this one.
        let mut through = UnixStream::connect(dir.join("renamed")).unwrap();
        through.set_nonblocking(true).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(through.read(&mut [0]).unwrap(), 0);
        assert!(listener.accept().is_err());
        conn.remove(fid).await.unwrap();
        assert!(!dir.join("renamed").exists());
    }
}
