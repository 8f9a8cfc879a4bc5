//! Name spaces of real servers, each on a socket of its own.

use std::path::Path as File;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::{FileType, Follow, Mode, Options};
use ninefold::ns::file::{Source, load};
use ninefold::ns::{Error, Flags, Namespace, Order};
use ninefold::proto::Errno;
use ninefold::proto::attr::SetAttr;
use ninefold::server::{Policy, Server, User};
use ninefold::transport::{Address, Listener, Peer};
use ninefold::tree::ramfs::RamFs;

use crate::support::{CREATE, PLAIN};

pub const REPLACE: (Order, Flags) = (Order::Replace, PLAIN);
pub const AFTER: (Order, Flags) = (Order::After, PLAIN);
pub const BEFORE: (Order, Flags) = (Order::Before, PLAIN);

/// All of them go through groups but the second and the third.
pub const DIALECTS: [&str; 4] = ["9P2000.L.n1", "9P2000.L", "9P2000", "9P2000.ix"];

/// Serves a tree in memory as long as the runtime lives.
async fn serve(policy: Policy, mode: u32) -> Address {
    let tree = RamFs::new();
    tree.set_root(0, 0, mode);
    let server = Server::builder().export("", Arc::new(tree), false).identity(policy).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await;
            tokio::spawn(server.serve(stream, Peer::Stdio));
        }
    });
    address
}

pub async fn ram(dialect: &str) -> Address {
    let address = serve(Policy::AsProcess, 0o777).await;
    format!("{address}?dialect={dialect}").parse().unwrap()
}

/// A file of a server, beside all name spaces.
pub async fn put(address: &Address, path: &str, text: &str) {
    let ns = Namespace::new(Options::default());
    ns.mount(address, "/", REPLACE).await.unwrap();
    for (at, _) in path.match_indices('/').skip(1) {
        match ns.mkdir(&path[..at], 0o755).await {
            Err(e) if e.errno() != Errno::EEXIST => panic!("{e}"),
            _ => {}
        }
    }
    ns.write(path, Bytes::from(text.to_owned()), 0o644).await.unwrap();
}

pub async fn text(ns: &Namespace, name: &str) -> String {
    let bytes = ns.read(name, 4096).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub async fn names(ns: &Namespace, dir: &str) -> Vec<String> {
    let list = ns.list(dir).await.unwrap_or_else(|e| panic!("{dir}: {e}"));
    let mut names: Vec<String> = list.into_iter().map(|(entry, _)| String::from_utf8(entry.name).unwrap()).collect();
    names.sort();
    names
}

fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap(); // one write: tests run side by side
    }
}

pub fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno()
}

#[tokio::test]
async fn several_servers_are_one_tree() {
    for dialect in DIALECTS {
        let (near, far) = (ram(dialect).await, ram(dialect).await);
        put(&near, "/etc/motd", "near").await;
        put(&far, "/etc/motd", "far").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&near, "/", REPLACE).await.unwrap();
        ns.mount(&far, "/n/far", REPLACE).await.unwrap();
        assert_eq!((text(&ns, "/etc/motd").await, text(&ns, "/n/far/etc/motd").await), ("near".into(), "far".into()));
        assert_eq!(names(&ns, "/").await, ["etc", "n"], "{dialect}");
        assert_eq!((names(&ns, "/n").await, names(&ns, "/n/far").await), (vec!["far".into()], vec!["etc".into()]));
        // A name of the table alone is a directory that nobody can change.
        assert_eq!(ns.metadata("/n", Follow::All).await.unwrap().kind, FileType::Dir);
        assert_eq!(errno(ns.create("/n/x", Mode::WRITE, 0o644, true).await), Errno::EROFS);
        assert_eq!(errno(ns.metadata("/n/x", Follow::All).await), Errno::ENOENT);
        ns.mkdir("/n/far/new", 0o755).await.unwrap();
        ns.write("/n/far/new/file", Bytes::from_static(b"hello"), 0o644).await.unwrap();
        let size = ns.metadata("/n/far/new/file", Follow::All).await.unwrap().size;
        let cut = SetAttr { size: Some(2), ..SetAttr::default() };
        ns.set("/n/far/new/file", &cut, Follow::All).await.unwrap();
        assert_eq!((size, text(&ns, "/n/far/new/file").await), (5, "he".into()));
        ns.rename("/n/far/new/file", "/n/far/new/other").await.unwrap();
        ns.remove("/n/far/new/other").await.unwrap();
        ns.unlink("/n/far/new", true).await.unwrap();
        assert_eq!(names(&ns, "/n/far").await, ["etc"]);
    }
}

#[tokio::test]
async fn an_operation_on_any_name_is_one_round_trip() {
    let (near, far) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&near, "/usr/ken/lib/profile", "near").await;
    put(&far, "/ken/lib/profile", "far").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&near, "/", REPLACE).await.unwrap();
    ns.mount(&far, "/n/far/away", REPLACE).await.unwrap();
    let trips = || ns.clients().iter().map(|client| client.stats().round_trips).sum::<u32>();
    let before = trips();
    ns.metadata("/n/far/away/ken/lib/profile", Follow::All).await.unwrap();
    assert_eq!(trips() - before, 1);
    assert_eq!(ns.read("/usr/ken/lib/profile", 100).await.unwrap(), "near");
    assert_eq!(trips() - before, 2);
    ns.mkdir("/n/far/away/ken/new", 0o755).await.unwrap();
    assert_eq!(trips() - before, 3);
    let touch = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    ns.set("/n/far/away/ken/new", &touch, Follow::All).await.unwrap();
    assert_eq!(trips() - before, 4);
    ns.rename("/n/far/away/ken/new", "/n/far/away/moved").await.unwrap();
    assert_eq!(trips() - before, 5);
    ns.remove("/n/far/away/moved").await.unwrap();
    assert_eq!(trips() - before, 6);
    ns.access("/usr/ken", 4).await.unwrap();
    drop(ns.create("/usr/ken/made", Mode::WRITE, 0o644, true).await.unwrap());
    assert_eq!(trips() - before, 8);
    // Made, and replaced by less; the second takes several messages.
    let data = |length: usize| Bytes::from(vec![b'x'; length]);
    for length in [4096, 3 << 20, 1] {
        ns.write("/n/far/away/ken/lib/new", data(length), 0o644).await.unwrap();
    }
    assert_eq!(trips() - before, 11);
    let listed = ns.list("/n/far/away/ken/lib").await.unwrap();
    assert_eq!((listed.len(), trips() - before), (2, 12));
    assert_eq!(ns.read("/n/far/away/ken/lib/new", 4 << 20).await.unwrap(), "x");
    ns.write("/n/far/away/ken/lib/new", data(3 << 20), 0o644).await.unwrap();
    assert_eq!(ns.read("/n/far/away/ken/lib/new", 4 << 20).await.unwrap().len(), 3 << 20);
}

#[tokio::test]
async fn a_directory_of_many_mount_points_is_listed_by_one_round_trip_to_each_server() {
    let ns = Namespace::new(Options::default());
    for at in 0..5 {
        ns.mount(&ram(DIALECTS[0]).await, format!("/n/{at}"), REPLACE).await.unwrap();
    }
    let trips = || ns.clients().iter().map(|client| client.stats().round_trips).sum::<u32>();
    let before = trips();
    let list = ns.list("/n").await.unwrap();
    assert!(list.len() == 5 && list.iter().all(|(entry, metadata)| entry.kind == FileType::Dir && metadata.is_ok()));
    assert_eq!(trips() - before, 5);
}

#[tokio::test]
async fn a_union_is_looked_into_in_order_and_listed_once() {
    for dialect in DIALECTS {
        let (one, two, three) = (ram(dialect).await, ram(dialect).await, ram(dialect).await);
        for (server, files) in [(&one, ["ls", "cat"]), (&two, ["ls", "grep"]), (&three, ["sed", "grep"])] {
            for file in files {
                put(server, &format!("/{file}"), &format!("{server}")).await;
            }
        }
        put(&two, "/sub/x", "two").await;
        put(&three, "/sub/y", "three").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/bin", REPLACE).await.unwrap();
        ns.mount(&two, "/bin", AFTER).await.unwrap();
        ns.mount(&three, "/bin", (Order::After, CREATE)).await.unwrap();
        for (file, server) in [("ls", &one), ("cat", &one), ("grep", &two), ("sed", &three)] {
            assert_eq!(text(&ns, &format!("/bin/{file}")).await, server.to_string(), "{dialect}");
        }
        assert_eq!(names(&ns, "/bin").await, ["cat", "grep", "ls", "sed", "sub"], "{dialect}");
        // The first member that has the directory has all that is in it.
        assert_eq!(text(&ns, "/bin/sub/x").await, "two");
        assert_eq!(errno(ns.read("/bin/sub/y", 100).await), Errno::ENOENT);
        assert_eq!(errno(ns.remove("/bin/sub/y").await), Errno::ENOENT);
        assert_eq!(errno(ns.read("/bin/none", 100).await), Errno::ENOENT);

        // New files are made in the first that allows it, and not where the name is.
        ns.write("/bin/new", Bytes::from_static(b"new"), 0o644).await.unwrap();
        ns.mkdir("/bin/dir", 0o755).await.unwrap();
        assert_eq!(text(&ns, &format!("{}/new?dialect={dialect}", three.place)).await, "new");
        assert_eq!(errno(ns.create("/bin/ls", Mode::WRITE, 0o644, true).await), Errno::EEXIST);
        ns.write("/bin/ls", Bytes::from_static(b"other"), 0o644).await.unwrap();
        assert_eq!(text(&ns, &format!("{}/ls?dialect={dialect}", one.place)).await, "other");
        // What is removed is the first of its name, and the next comes to light.
        ns.unlink("/bin/ls", false).await.unwrap();
        assert_eq!(text(&ns, "/bin/ls").await, two.to_string());
        ns.remove("/bin/new").await.unwrap();
        ns.rename("/bin/sed", "/bin/gsed").await.unwrap();
        assert_eq!(text(&ns, "/bin/gsed").await, three.to_string());
    }
}

#[tokio::test]
async fn a_union_without_a_member_that_allows_it_takes_no_new_file() {
    let ns = Namespace::new(Options::default());
    ns.mount(&ram(DIALECTS[0]).await, "/bin", REPLACE).await.unwrap();
    ns.write("/bin/one", Bytes::new(), 0o644).await.unwrap();
    ns.mount(&ram(DIALECTS[0]).await, "/bin", AFTER).await.unwrap();
    assert!(matches!(ns.write("/bin/two", Bytes::new(), 0o644).await, Err(Error::NoCreate)));
    assert!(matches!(ns.mkdir("/bin/two", 0o755).await, Err(Error::NoCreate)));
}

#[tokio::test]
async fn no_bind_changes_what_an_address_names() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/a/file", "one").await;
    put(&two, "/file", "two").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    ns.mount(&two, "/a", REPLACE).await.unwrap();
    assert_eq!(text(&ns, "/a/file").await, "two");
    let address = format!("{}/a/file", one.place);
    assert_eq!(text(&ns, &address).await, "one");
    // Nor is anything mounted on one, whatever it looks like.
    assert!(matches!(ns.mount(&two, format!("{}/a", one.place), REPLACE).await, Err(Error::OnAddress)));
    assert!(matches!(ns.bind("/a", format!("{}", one.place), REPLACE).await, Err(Error::OnAddress)));
    // It may be bound.
    ns.bind(format!("{}/a", one.place), "/b", REPLACE).await.unwrap();
    assert_eq!(text(&ns, "/b/file").await, "one");
    assert_eq!(errno(ns.remove(&one.place.to_string()).await), Errno::EBUSY);
}

#[tokio::test]
async fn a_mount_point_is_neither_removed_nor_renamed() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/file", "one").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    ns.mount(&two, "/n/two", REPLACE).await.unwrap();
    for name in ["/", "/n", "/n/two", "/n/../n/two/."] {
        assert_eq!(errno(ns.remove(name).await), Errno::EBUSY, "{name}");
        assert_eq!(errno(ns.unlink(name, true).await), Errno::EBUSY, "{name}");
        assert_eq!(errno(ns.rename(name, "/other").await), Errno::EBUSY, "{name}");
        assert_eq!(errno(ns.rename("/file", name).await), Errno::EBUSY, "{name}");
        assert_eq!(errno(ns.mkdir(name, 0o755).await), Errno::EEXIST, "{name}");
    }
    assert_eq!(errno(ns.rename("/file", "/n/two/file").await), Errno::EXDEV);
    assert_eq!(text(&ns, "/file").await, "one");
}

#[tokio::test]
async fn a_link_is_followed_in_the_name_space() {
    for dialect in ["9P2000.L.n1", "9P2000.L"] {
        let (one, two) = (ram(dialect).await, ram(dialect).await);
        put(&one, "/dir/real", "one").await;
        put(&two, "/file", "two").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/", REPLACE).await.unwrap();
        ns.mount(&two, "/n/two", REPLACE).await.unwrap();
        let dir = ns.walk("/dir", Follow::All).await.unwrap();
        for (name, target) in [("abs", "/n/two/file"), ("up", "../n/two"), ("near", "real"), ("loop", "loop")] {
            dir.symlink(name.as_bytes(), target.as_bytes()).await.unwrap();
        }
        assert_eq!(text(&ns, "/dir/abs").await, "two", "{dialect}");
        assert_eq!(text(&ns, "/dir/up/file").await, "two");
        assert_eq!(text(&ns, "/dir/near").await, "one");
        assert_eq!(ns.read_link("/dir/abs").await.unwrap(), b"/n/two/file");
        let kind = |follow| ns.metadata("/dir/up", follow);
        assert_eq!(kind(Follow::NotLast).await.unwrap().kind, FileType::Symlink);
        assert_eq!(kind(Follow::All).await.unwrap().kind, FileType::Dir);
        assert_eq!(errno(ns.read("/dir/loop", 100).await), Errno::ELOOP);
        ns.write("/dir/abs", Bytes::from_static(b"through"), 0o644).await.unwrap();
        assert_eq!(
            (text(&ns, "/n/two/file").await, ns.read_link("/dir/abs").await.unwrap().len()),
            ("through".into(), 11)
        );
        assert!(names(&ns, "/dir/up").await.contains(&"file".to_owned()));
    }
}

#[tokio::test]
async fn a_mount_point_is_made_only_where_the_user_may_walk() {
    if !rustix::process::geteuid().is_root() {
        skip("a_mount_point_is_made_only_where_the_user_may_walk", "needs root, to serve as somebody else");
        return;
    }
    let closed = serve(Policy::Squash(User::from_uid(65_534)), 0o700).await;
    let open = ram(DIALECTS[0]).await;
    let ns = Namespace::new(Options::default());
    ns.mount(&closed, "/", REPLACE).await.unwrap();
    for how in [REPLACE, AFTER] {
        assert_eq!(errno(ns.mount(&open, "/dir", how).await), Errno::EACCES);
        assert_eq!(errno(ns.bind(&open.to_string(), "/dir/sub", how).await), Errno::EACCES);
    }
    assert_eq!(ns.table().len(), 1);
}

#[tokio::test]
async fn a_file_is_mounted_over_a_file_and_a_directory_over_a_directory() {
    let one = ram(DIALECTS[0]).await;
    put(&one, "/dir/file", "one").await;
    put(&one, "/other", "other").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    assert!(matches!(ns.bind("/other", "/dir", REPLACE).await, Err(Error::OtherKind)));
    assert!(matches!(ns.bind("/dir", "/other", REPLACE).await, Err(Error::OtherKind)));
    assert!(matches!(ns.bind("/other", "/dir/file", AFTER).await, Err(Error::NotUnion)));
    assert_eq!(errno(ns.bind("/none", "/dir", REPLACE).await), Errno::ENOENT);
    ns.bind("/other", "/dir/file", REPLACE).await.unwrap();
    assert_eq!(text(&ns, "/dir/file").await, "other");
    ns.unmount(Some(b"/other"), "/dir/file").await.unwrap();
    assert_eq!(text(&ns, "/dir/file").await, "one");
}

#[tokio::test]
async fn a_directory_that_is_bound_before_itself_keeps_what_it_had() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/bin/ls", "one").await;
    put(&one, "/bin/cat", "one").await;
    put(&two, "/ls", "two").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    ns.mount(&two, "/bin", BEFORE).await.unwrap();
    assert_eq!((text(&ns, "/bin/ls").await, text(&ns, "/bin/cat").await), ("two".into(), "one".into()));
    ns.unmount(Some(two.to_string().as_bytes()), "/bin").await.unwrap();
    assert_eq!(text(&ns, "/bin/ls").await, "one");
    ns.unmount(None, "/bin").await.unwrap();
    assert_eq!((text(&ns, "/bin/ls").await, ns.table().len()), ("one".into(), 1));
}

#[tokio::test]
async fn dot_is_resolved_again_when_something_is_mounted_over_it() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/usr/ken/file", "one").await;
    put(&two, "/ken/file", "two").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    ns.cd("/usr/ken").await.unwrap();
    assert_eq!((text(&ns, "file").await, text(&ns, "../ken/./file").await), ("one".into(), "one".into()));
    ns.mount(&two, "/usr", REPLACE).await.unwrap();
    assert_eq!((text(&ns, "file").await, ns.dot().to_string()), ("two".into(), "/usr/ken".into()));
    assert_eq!(errno(ns.cd("file").await), Errno::ENOTDIR);
}

#[tokio::test]
async fn a_file_is_renamed_out_of_dot_and_into_it() {
    for dialect in ["9P2000.L.n1", "9P2000.L"] {
        let one = ram(dialect).await;
        put(&one, "/usr/ken/file", "one").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/", REPLACE).await.unwrap();
        ns.cd("/usr/ken").await.unwrap();
        ns.rename("file", "../moved").await.unwrap_or_else(|e| panic!("{dialect}: {e}"));
        assert_eq!(text(&ns, "/usr/moved").await, "one", "{dialect}");
        ns.rename("/usr/moved", "back").await.unwrap();
        assert_eq!(text(&ns, "back").await, "one", "{dialect}");
    }
}

#[tokio::test]
async fn a_private_copy_has_mounts_of_its_own_and_the_same_connections() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&two, "/file", "two").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    let copy = ns.private();
    copy.mount(&two, "/two", REPLACE).await.unwrap();
    assert_eq!(text(&copy, "/two/file").await, "two");
    assert_eq!(errno(ns.read("/two/file", 10).await), Errno::ENOENT);
    ns.mount(&two, "/other", REPLACE).await.unwrap();
    assert_eq!(ns.clients().len(), 2);
}

/// One file, and no variable.
struct Text(String);

impl Source for Text {
    fn read(&self, _: &File) -> std::io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn variable(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
}

async fn run(text: &str) -> Result<Namespace, Error> {
    let ns = Namespace::new(Options::default());
    ns.run(&load(File::new("ns"), &Text(text.to_owned()))?).await?;
    Ok(ns)
}

#[tokio::test]
async fn what_is_shown_makes_the_same_name_space_again() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/bin/ls", "one").await;
    put(&two, "/386/bin/it's", "two").await;
    let ns = run(&format!("mount -C {one} /\nmount {two} /n/two\nbind -ac /n/two/386/bin /bin\ncd /bin\nbind . /b"))
        .await
        .unwrap();
    let again = run(&String::from_utf8(ns.show()).unwrap()).await.unwrap();
    assert_eq!(again.show(), ns.show());
    for ns in [&ns, &again] {
        assert_eq!(names(ns, "/b").await, ["it's", "ls"]);
        assert_eq!(text(ns, "/b/it's").await, "two");
        assert!(ns.may_cache("/bin/ls").await.unwrap());
    }
}

#[tokio::test]
async fn an_error_of_a_file_tells_the_line_and_what_the_server_says() {
    let one = ram(DIALECTS[0]).await;
    let error = run(&format!("mount {one} /\n\nbind /none /b")).await.unwrap_err();
    assert!(error.to_string().starts_with("ns:3: "), "{error}");
    assert_eq!(error.errno(), Errno::ENOENT);
    let error = run("mount 9p://127.0.0.1:1 /").await.unwrap_err().to_string();
    assert!(error.starts_with("ns:1: 9p://127.0.0.1:1: cannot connect"), "{error}");
}

#[tokio::test]
async fn two_trees_of_one_server_share_a_connection() {
    let (home, tmp) = (RamFs::new(), RamFs::new());
    let server = Server::builder().export("home", Arc::new(home), false).export("tmp", Arc::new(tmp), false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await;
            tokio::spawn(server.serve(stream, Peer::Stdio));
        }
    });
    for dialect in DIALECTS {
        let ns = run(&format!("mount {address}?dialect={dialect} /a home\nmount {address}?dialect={dialect} /b tmp"))
            .await
            .unwrap();
        ns.write("/a/file", Bytes::from_static(b"x"), 0o644).await.unwrap();
        assert_eq!(ns.clients().len(), 1);
        assert_eq!((names(&ns, "/a").await.len(), names(&ns, "/b").await.len()), (1, 0), "{dialect}");
        ns.remove("/a/file").await.unwrap();
        // Their roots are no one file, though their qids may be.
        assert_eq!(errno(ns.unmount(Some(b"/a"), "/b").await), Errno::EINVAL);
    }
}

#[tokio::test]
async fn a_member_that_cannot_be_asked_is_an_error_and_is_not_passed_over() {
    let (gone, there) = (RamFs::new(), ram(DIALECTS[0]).await);
    put(&there, "/ls", "there").await;
    let server = Server::builder().export("", Arc::new(gone), false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    let mut one = tokio::task::JoinSet::new();
    one.spawn(async move {
        let (stream, _) = listener.accept().await;
        server.serve(stream, Peer::Stdio).await;
    });
    let ns = Namespace::new(Options::default());
    ns.mount(&address, "/bin", REPLACE).await.unwrap();
    ns.mount(&there, "/bin", AFTER).await.unwrap();
    assert_eq!(text(&ns, "/bin/ls").await, "there");
    one.shutdown().await;
    // Whether it has the file nobody knows.
    let lost = ns.read("/bin/ls", 100).await.unwrap_err();
    assert_eq!(lost.errno(), Errno::ECONNRESET, "{lost}");
    assert_eq!(errno(ns.list("/bin").await), Errno::ECONNRESET);
    // By its address, whatever stands there now, and by a name of its own.
    for name in [address.to_string(), "/copy".to_owned()] {
        let copy = ns.private();
        copy.bind("/bin", "/copy", REPLACE).await.unwrap();
        copy.unmount(Some(there.to_string().as_bytes()), "/copy").await.unwrap();
        copy.unmount(Some(name.as_bytes()), "/bin").await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(text(&copy, "/bin/ls").await, "there", "{name}");
    }
    ns.unmount(Some(b"/bin"), "/bin").await.unwrap();
    ns.mount(&there, "/bin", REPLACE).await.unwrap();
    assert_eq!(text(&ns, "/bin/ls").await, "there");
}
