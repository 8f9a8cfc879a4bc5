//! From paths to files: walks of any length, symbolic links, and why a walk fails.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ninefold::client::{Client, Error, FileType, Follow, Mode, Options};
use ninefold::proto::message::Qids;
use ninefold::proto::{Dialect, Errno, Qid, R, T};
use ninefold::server::Server;
use ninefold::transport::memory;
use ninefold::tree::hostfs::HostFs;

use crate::fake;
use crate::support::{BUFFER, connect, over, ram, settled};

fn small() -> Options {
    Options { msize: 4096, ..Options::default() }
}

/// A client of a directory of this machine.
async fn host(dir: &Path, dialect: Dialect) -> Client {
    let server = Server::builder().export("", Arc::new(HostFs::open(dir).unwrap()), false).build();
    connect(&server, dialect, small()).await
}

#[tokio::test(start_paused = true)]
async fn a_path_may_have_any_number_of_names_and_names_of_255_bytes() {
    for dialect in Dialect::ALL {
        // With 4,096 bytes a message not even 16 of the names fit one walk.
        let client = connect(&ram(), dialect, small()).await;
        let mut dir = client.root().await.unwrap();
        let names: Vec<Vec<u8>> = (0..60_u8).map(|n| vec![b'a' + n % 26; 255]).collect();
        let mut qids = vec![dir.qid().path];
        for name in &names {
            dir.mkdir(name, 0o755).await.unwrap();
            dir = dir.walk(&[name]).await.unwrap();
            qids.push(dir.qid().path);
        }
        for count in [0, 1, 15, 16, 17, 32, 33, 40, 60] {
            let path = names[..count].join(&b'/');
            assert_eq!(client.walk(&path, Follow::All).await.unwrap().qid().path, qids[count], "{dialect} {count}");
            let names: Vec<&[u8]> = names[..count].iter().map(Vec::as_slice).collect();
            let node = client.root().await.unwrap().walk(&names).await.unwrap();
            assert_eq!(node.qid().path, qids[count], "{dialect} {count}");
            let mut missing = names.clone();
            missing.push(b"none");
            assert!(client.walk(missing.join(&b'/'), Follow::All).await.unwrap_err().is_not_found());
            assert!(client.root().await.unwrap().walk(&missing).await.unwrap_err().is_not_found());
        }
        drop(dir);
        settled(&client, 1).await;
    }
}

#[tokio::test]
async fn symbolic_links_are_followed_as_linux_does() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    std::fs::create_dir_all(at.join("a/b/c")).unwrap();
    std::fs::create_dir_all(at.join("x/y")).unwrap();
    for file in ["f", "a/f", "a/b/f", "x/y/f"] {
        std::fs::write(at.join(file), file).unwrap();
    }
    let links = [
        ("relative", "a/b/f"),
        ("up", "a/b/c/../../f"),
        ("x/y/out", "../../a"),
        ("x/y/through", "out/b/../f"),
        ("many", "./x//y/./f/"),
        ("beyond", "../../../../f"),
        ("chain", "relative"),
        ("one", "two"),
        ("two", "one"),
        ("self", "self/self"),
        ("dangling", "a/none"),
        ("through_file", "f/../f"),
        ("root", ".."),
        ("dot", "."),
    ];
    for (name, target) in links {
        symlink(target, at.join(name)).unwrap();
    }
    // Absolute targets start at the root of the tree.
    symlink("/a/b", at.join("absolute")).unwrap();
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let client = host(at, dialect).await;
        let text = async |path: &str| -> Result<String, Errno> {
            let node = client.walk(path, Follow::All).await.map_err(|e| e.errno())?;
            let file = node.open(Mode::READ).await.map_err(|e| e.errno())?;
            let data = file.read_at(0, 100).await.map_err(|e| e.errno())?;
            Ok(String::from_utf8(data.to_vec()).unwrap())
        };
        let files = [
            ("relative", "a/b/f"),
            ("up", "a/f"),
            ("x/y/out/f", "a/f"),
            ("x/y/out/b/f", "a/b/f"),
            ("x/y/through", "a/f"),
            ("absolute/f", "a/b/f"),
            ("many", "x/y/f"),
            ("beyond", "f"),
            ("chain", "a/b/f"),
            ("root/root/root/f", "f"),
            ("dot/x/y/f", "x/y/f"),
            // Of a path itself, not of a target, `..` takes the name before it.
            ("x/y/out/../f", "x/y/f"),
        ];
        for (path, wanted) in files {
            assert_eq!(text(path).await.as_deref(), Ok(wanted), "{dialect} {path}");
        }
        for (path, errno) in [
            ("dangling", Errno::ENOENT),
            ("one", Errno::ELOOP),
            ("self", Errno::ELOOP),
            ("one/f", Errno::ELOOP),
            ("f/f", Errno::ENOTDIR),
            ("relative/f", Errno::ENOTDIR),
            ("through_file", Errno::ENOTDIR),
            ("absolute/none/f", Errno::ENOENT),
        ] {
            assert_eq!(text(path).await.unwrap_err(), errno, "{dialect} {path}");
        }
        assert!(matches!(client.walk("one", Follow::All).await, Err(Error::TooManyLinks)));
        for (path, target) in [("relative", "a/b/f"), ("x/y/through", "out/b/../f"), ("dangling", "a/none")] {
            let link = client.walk(path, Follow::NotLast).await.unwrap();
            assert_eq!(link.metadata().await.unwrap().kind, FileType::Symlink);
            assert_eq!(link.read_link().await.unwrap(), target.as_bytes(), "{dialect} {path}");
        }
        // In the middle they are followed all the same.
        assert_eq!(client.walk("x/y/out/f", Follow::NotLast).await.unwrap().metadata().await.unwrap().size, 3);
        assert_eq!(client.walk("f", Follow::All).await.unwrap().read_link().await.unwrap_err().errno(), Errno::EINVAL);
        settled(&client, 1).await;
    }
}

#[tokio::test]
async fn in_9p2000_it_is_the_server_that_follows_links() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/f"), "text").unwrap();
    symlink("d", dir.path().join("l")).unwrap();
    let client = host(dir.path(), Dialect::Plan9).await;
    for follow in [Follow::All, Follow::NotLast] {
        assert_eq!(client.walk("l/f", follow).await.unwrap().metadata().await.unwrap().size, 4);
        assert_eq!(client.walk("l", follow).await.unwrap().metadata().await.unwrap().kind, FileType::Dir);
    }
    let e = client.root().await.unwrap().symlink(b"m", b"d").await.unwrap_err();
    assert!(matches!(e, Error::Unsupported { .. }), "{e}");
}

#[tokio::test(start_paused = true)]
async fn forty_links_are_followed_and_not_one_more() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    let root = client.root().await.unwrap();
    root.mkdir(b"0", 0o755).await.unwrap();
    for n in 1..=41_u32 {
        root.symlink(n.to_string().as_bytes(), (n - 1).to_string().as_bytes()).await.unwrap();
    }
    assert!(client.walk("40", Follow::All).await.unwrap().qid().is_dir());
    assert!(matches!(client.walk("41", Follow::All).await, Err(Error::TooManyLinks)));
}

/// A walk ends early where the server says, and why comes only when the next name is asked for alone.
#[tokio::test(start_paused = true)]
async fn a_walk_that_ends_early_is_asked_for_the_reason() {
    for (errno, dialect) in [Errno::EACCES, Errno::ENOENT, Errno::ENOTDIR, Errno::EIO]
        .into_iter()
        .flat_map(|errno| [(errno, Dialect::Unix), (errno, Dialect::Linux)])
    {
        let walks = Arc::new(AtomicUsize::new(0));
        let seen = walks.clone();
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 1, move |replies, tag, request| {
            let T::Walk { wnames, .. } = *request else { return false };
            seen.fetch_add(1, Ordering::Relaxed);
            let Some(stop) = wnames.iter().position(|name| name == b"dstop") else { return false };
            if stop == 0 {
                replies.error(tag, errno);
            } else {
                let qids: Vec<Qid> = wnames.iter().take(stop).map(fake::qid).collect();
                replies.send(tag, R::Walk { wqids: Qids::encode(&qids, &mut Vec::new()) });
            }
            true
        });
        let client = over(ours, dialect, Options::default()).await;
        for path in ["dstop", "dstop/f", "d1/dstop", "d1/d2/dstop/f", "d1/d2/d3/dstop"] {
            assert_eq!(client.walk(path, Follow::All).await.unwrap_err().errno(), errno, "{dialect} {path}");
            let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            let root = client.root().await.unwrap();
            assert_eq!(root.walk(&names).await.unwrap_err().errno(), errno, "{dialect} {path}");
        }
        settled(&client, 1).await;
        // One that goes through is one request, however long.
        let before = walks.load(Ordering::Relaxed);
        client.walk("d1/d2/d3/d4/d5/d6/d7/d8/d9/f", Follow::All).await.unwrap();
        assert_eq!(walks.load(Ordering::Relaxed), before + 1);
    }
}
