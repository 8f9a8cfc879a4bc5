//! Renames that replace nothing, and exchanges.

use bytes::Bytes;
use ninefold_proto::server::Rename;

use super::*;

async fn rename(host: &Host, from: &Fid, old: &str, to: &Fid, new: &str, how: Rename) -> Result<(), Errno> {
    from.rename_with(&host.cx, name_of(old), &**to, name_of(new), how).wait().await.map_err(|e| e.errno)
}

#[tokio::test]
async fn a_name_that_is_taken_is_not_replaced() {
    let host = Host::new();
    host.put("a", b"a");
    host.put("b", b"b");
    let root = host.root().await;
    let fid = host.at(&root, "a").await;
    assert_eq!(rename(&host, &root, "a", &root, "b", Rename::NoReplace).await, Err(Errno::EEXIST));
    assert_eq!(rename(&host, &root, "none", &root, "c", Rename::NoReplace).await, Err(Errno::ENOENT));
    assert_eq!(rename(&host, &root, "a", &root, "c", Rename::NoReplace).await, Ok(()));
    assert_eq!(std::fs::read(host.path("b")).unwrap(), b"b");
    assert_eq!(host.contents(&root, "c").await.unwrap(), b"a");
    host.open(&fid, 0).await.unwrap();
    assert_eq!(host.read(&fid).await.unwrap(), b"a");
}

#[tokio::test]
async fn exchanged_files_keep_their_fids() {
    // Too few descriptors to keep any: the fids are found again by their names.
    let host = Host::with_descriptors(1);
    host.mkdir("d/sub");
    host.put("d/sub/below", b"below");
    host.put("f", b"plain");
    let root = host.root().await;
    let (dir, file, below) =
        (host.at(&root, "d").await, host.at(&root, "f").await, host.at(&root, "d/sub/below").await);
    let sub = host.at(&root, "d/sub").await;
    assert_eq!(rename(&host, &root, "f", &dir, "sub", Rename::Exchange).await, Ok(()));
    for n in 0..20 {
        host.put(&format!("other{n}"), b"");
        host.at(&root, &format!("other{n}")).await;
    }
    assert_eq!(std::fs::read(host.path("d/sub")).unwrap(), b"plain");
    assert_eq!(std::fs::read(host.path("f/below")).unwrap(), b"below");
    host.open(&file, lflags::RDWR).await.unwrap();
    assert_eq!(host.read(&file).await.unwrap(), b"plain");
    host.open(&below, 0).await.unwrap();
    assert_eq!(host.read(&below).await.unwrap(), b"below");
    // Names looked up from now on lead to the files that have them, and to no second node.
    let walked = host.at(&root, "d/sub").await;
    host.open(&walked, lflags::WRONLY).await.unwrap();
    walked.write(&host.cx, 0, Bytes::from_static(b"PL")).wait().await.unwrap();
    assert_eq!(host.read(&file).await.unwrap(), b"PLain");
    // The directory of the moved one is its parent now.
    let parent = host.at(&sub, "..").await;
    assert_eq!(
        parent.getattr(&host.cx, 0).wait().await.unwrap().qid,
        root.getattr(&host.cx, 0).wait().await.unwrap().qid
    );
    assert_eq!(rename(&host, &root, "f", &root, "f", Rename::Exchange).await, Ok(()));
    sub.remove(&host.cx).wait().await.unwrap_err();
    below.remove(&host.cx).wait().await.unwrap();
    sub.remove(&host.cx).wait().await.unwrap();
    assert!(!host.path("f").exists() && host.path("d/sub").exists());
}

#[tokio::test]
async fn two_names_of_one_file_are_exchanged_without_effect() {
    let host = Host::new();
    host.put("a", b"a");
    std::fs::hard_link(host.path("a"), host.path("b")).unwrap();
    let root = host.root().await;
    let (one, other) = (host.at(&root, "a").await, host.at(&root, "b").await);
    assert_eq!(rename(&host, &root, "a", &root, "b", Rename::Exchange).await, Ok(()));
    one.remove(&host.cx).wait().await.unwrap();
    assert!(!host.path("a").exists() && host.path("b").exists());
    other.remove(&host.cx).wait().await.unwrap();
    assert!(!host.path("b").exists());
}

#[tokio::test]
async fn a_directory_is_not_exchanged_with_what_lies_in_it() {
    let host = Host::new();
    host.mkdir("d/sub");
    let root = host.root().await;
    let dir = host.at(&root, "d").await;
    assert_eq!(rename(&host, &root, "d", &dir, "sub", Rename::Exchange).await, Err(Errno::EINVAL));
    assert_eq!(rename(&host, &dir, "sub", &root, "d", Rename::Exchange).await, Err(Errno::EINVAL));
    assert_eq!(rename(&host, &root, "d", &dir, "none", Rename::Exchange).await, Err(Errno::ENOENT));
    assert!(host.path("d/sub").is_dir());
    host.at(&root, "d/sub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walks_beside_exchanges_never_tie_a_name_to_a_file_that_never_had_it() {
    let host = Arc::new(Host::with_descriptors(4));
    for name in ["a", "b"] {
        host.mkdir(name);
        host.put(&format!("{name}/who"), name.as_bytes());
    }
    let root = host.root().await;
    let (mine, from) = (host.clone(), root.clone());
    let exchanges = tokio::spawn(async move {
        for _ in 0..500 {
            rename(&mine, &from, "a", &from, "b", Rename::Exchange).await.unwrap();
        }
    });
    let fid = host.at(&root, "a/who").await;
    host.open(&fid, 0).await.unwrap();
    let known = host.read(&fid).await.unwrap();
    while !exchanges.is_finished() {
        for name in ["a/who", "b/who"] {
            let who = host.contents(&root, name).await.unwrap();
            assert!(who == b"a" || who == b"b");
        }
    }
    exchanges.await.unwrap();
    // 500 of them: every name is where it began.
    assert_eq!(
        (host.contents(&root, "a/who").await.unwrap(), host.contents(&root, "b/who").await.unwrap()),
        (b"a".to_vec(), b"b".to_vec())
    );
    assert_eq!(host.read(&fid).await.unwrap(), known);
}
