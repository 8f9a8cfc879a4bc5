//! Symbolic links in a name space: what is done behind one is done where it leads.

use bytes::Bytes;
use ninefold::client::{Follow, Mode, Options};
use ninefold::ns::{Namespace, Order};
use ninefold::proto::Errno;
use ninefold::proto::attr::{SetAttr, SetTime, Time};

use crate::servers::{REPLACE, errno, names, put, ram, text};
use crate::support::CREATE;

/// Those that have links; the first goes through groups.
const DIALECTS: [&str; 2] = ["9P2000.L.n1", "9P2000.L"];

#[tokio::test]
async fn what_is_set_behind_a_link_leaves_the_link_as_it_was() {
    for dialect in DIALECTS {
        let one = ram(dialect).await;
        put(&one, "/file", "one").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/", REPLACE).await.unwrap();
        ns.walk("/", Follow::All).await.unwrap().symlink(b"link", b"file").await.unwrap();
        let long_ago = Time { sec: 1000, nsec: 0 };
        let of_the_link = async || {
            let it = ns.metadata("/link", Follow::NotLast).await.unwrap();
            (it.kind, it.mode, it.size, it.uid, it.gid, it.modified, it.changed)
        };
        let before = of_the_link().await;
        let owner = SetAttr { gid: ns.metadata("/file", Follow::All).await.unwrap().gid, ..SetAttr::default() };
        for change in [
            SetAttr { mtime: Some(SetTime::To(long_ago)), ..SetAttr::default() },
            owner,
            SetAttr { mode: Some(0o600), mtime: Some(SetTime::To(long_ago)), ..SetAttr::default() },
            SetAttr { size: Some(1), ..SetAttr::default() },
        ] {
            ns.set("/link", &change, Follow::All).await.unwrap();
            assert_eq!(of_the_link().await, before, "{dialect} {change:?}");
        }
        let file = ns.metadata("/file", Follow::All).await.unwrap();
        assert_eq!((file.mode & 0o777, file.size), (0o600, 1), "{dialect}");
        let touch = SetAttr { mtime: Some(SetTime::To(long_ago)), ..SetAttr::default() };
        ns.set("/link", &touch, Follow::NotLast).await.unwrap();
        assert_eq!(ns.metadata("/link", Follow::NotLast).await.unwrap().modified, long_ago, "{dialect}");
    }
}

#[tokio::test]
async fn a_name_below_dot_means_the_same_before_and_after_cd_through_a_link() {
    for dialect in DIALECTS {
        let (one, two) = (ram(dialect).await, ram(dialect).await);
        for (path, text) in
            [("/real/x", "x"), ("/other/file", "other"), ("/a/b/other/file", "wrong"), ("/real/m/f", "under")]
        {
            put(&one, path, text).await;
        }
        put(&two, "/f", "mounted").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/", REPLACE).await.unwrap();
        for (dir, name, target) in [("/a/b", "link", "/real"), ("/real", "l", "../other")] {
            ns.walk(dir, Follow::All).await.unwrap().symlink(name.as_bytes(), target.as_bytes()).await.unwrap();
        }
        ns.mount(&two, "/real/m", REPLACE).await.unwrap();
        let names = ["/a/b/link/l/file", "/a/b/link/m/f", "/a/b/link/x"];
        let expected = ["other", "mounted", "x"];
        for (name, expected) in names.iter().zip(expected) {
            assert_eq!(text(&ns, name).await, expected, "{dialect} {name}");
        }
        ns.cd("/a/b/link").await.unwrap();
        for (name, expected) in names.iter().zip(expected) {
            assert_eq!(text(&ns, name).await, expected, "{dialect} {name} after cd");
            assert_eq!(
                text(&ns, name.strip_prefix("/a/b/link/").unwrap()).await,
                expected,
                "{dialect} {name} from dot"
            );
        }
    }
}

#[tokio::test]
async fn a_directory_that_a_link_leads_to_is_the_union_that_it_is_by_its_own_name() {
    for dialect in DIALECTS {
        let (root, one, two) = (ram(dialect).await, ram(dialect).await, ram(dialect).await);
        put(&root, "/dir/under", "root").await;
        put(&one, "/ls", "one").await;
        for file in ["/grep", "/sed", "/awk"] {
            put(&two, file, "two").await;
        }
        let ns = Namespace::new(Options::default());
        ns.mount(&root, "/", REPLACE).await.unwrap();
        ns.mount(&one, "/bin", REPLACE).await.unwrap();
        ns.mount(&two, "/bin", (Order::After, CREATE)).await.unwrap();
        ns.walk("/", Follow::All).await.unwrap().symlink(b"link", b"bin").await.unwrap();
        ns.walk("/dir", Follow::All).await.unwrap().symlink(b"again", b"../link").await.unwrap();

        for link in ["/link", "/dir/again"] {
            assert_eq!(names(&ns, link).await, ["awk", "grep", "ls", "sed"], "{dialect} {link}");
            let below = |name: &str| format!("{link}/{name}");
            ns.mkdir(below("dir"), 0o755).await.unwrap();
            ns.write(below("new"), Bytes::from_static(b"new"), 0o644).await.unwrap();
            drop(ns.create(below("made"), Mode::WRITE, 0o644, true).await.unwrap());
            assert_eq!(errno(ns.mkdir(below("ls"), 0o755).await), Errno::EEXIST, "{dialect} {link}");
            // In the member that takes new files.
            let second = format!("{}/?dialect={dialect}", two.place);
            assert_eq!(names(&ns, &second).await, ["awk", "dir", "grep", "made", "new", "sed"], "{dialect} {link}");
            ns.rename(below("new"), below("newer")).await.unwrap();
            assert_eq!(text(&ns, "/bin/newer").await, "new", "{dialect} {link}");
            assert_eq!(errno(ns.rename(below("newer"), "/dir/newer").await), Errno::EXDEV);
            ns.unlink(below("newer"), false).await.unwrap();
            ns.unlink(below("dir"), true).await.unwrap();
            ns.remove(below("made")).await.unwrap();
        }
        ns.unlink("/link/sed", false).await.unwrap();
        ns.rename("/dir/again/awk", "/link/gawk").await.unwrap();
        assert_eq!(names(&ns, "/bin").await, ["gawk", "grep", "ls"], "{dialect}");
    }
}

#[tokio::test]
async fn what_is_mounted_where_a_link_leads_is_seen_and_stays() {
    for dialect in DIALECTS {
        let (root, far) = (ram(dialect).await, ram(dialect).await);
        put(&root, "/real/file", "root").await;
        put(&far, "/sub/file", "far").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&root, "/", REPLACE).await.unwrap();
        ns.mount(&far, "/n/far", REPLACE).await.unwrap();
        ns.bind("/n/far/sub", "/real/m", REPLACE).await.unwrap();
        let top = ns.walk("/", Follow::All).await.unwrap();
        for (name, target) in [("made-up", "/n"), ("link", "real"), ("loop", "loop")] {
            top.symlink(name.as_bytes(), target.as_bytes()).await.unwrap();
        }
        assert_eq!(names(&ns, "/made-up").await, ["far"], "{dialect}");
        assert_eq!(names(&ns, "/link").await, ["file", "m"], "{dialect}");
        assert_eq!(errno(ns.mkdir("/made-up/x", 0o755).await), Errno::EROFS, "{dialect}");
        for name in ["/link/m", "/made-up/far"] {
            assert_eq!(errno(ns.remove(name).await), Errno::EBUSY, "{dialect} {name}");
            assert_eq!(errno(ns.unlink(name, true).await), Errno::EBUSY, "{dialect} {name}");
            assert_eq!(errno(ns.rename(name, "/link/other").await), Errno::EBUSY, "{dialect} {name}");
            assert_eq!(errno(ns.rename("/link/file", name).await), Errno::EBUSY, "{dialect} {name}");
            assert_eq!(errno(ns.mkdir(name, 0o755).await), Errno::EEXIST, "{dialect} {name}");
        }
        for errno in [errno(ns.mkdir("/loop/x", 0o755).await), errno(ns.list("/loop").await)] {
            assert_eq!(errno, Errno::ELOOP, "{dialect}");
        }
        assert_eq!((text(&ns, "/link/m/file").await, text(&ns, "/link/file").await), ("far".into(), "root".into()));
        ns.cd("/made-up").await.unwrap();
        assert_eq!(text(&ns, "far/sub/file").await, "far", "{dialect}");
    }
}
