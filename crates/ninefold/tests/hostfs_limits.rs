//! Fids by the thousand under a limit of descriptors. A process of its own: the limit is the process's.

use std::sync::Arc;

use ninefold::proto::open::Open;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Errno, Name};
use ninefold::server::{Attach, Cx, File, FileServer, User};
use ninefold::tree::hostfs::HostFs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A tenth of what a busy server has.
const LIMIT: u64 = 2_000;
const WALKED: usize = 10_000;
const OPEN: usize = 1_500;

/// Bytes of memory in use.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

async fn walk(root: &Arc<dyn File>, cx: &Cx, i: usize) -> Arc<dyn File> {
    let name = i.to_string();
    let elem = WalkElem::Name(Name::new(name.as_bytes()).unwrap());
    root.walk(cx, &[elem]).wait().await.unwrap().file.unwrap()
}

#[tokio::test]
async fn ten_thousand_walked_fids_and_fifteen_hundred_open_ones_work_under_two_thousand_descriptors() {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: hard }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for i in 0..WALKED {
        std::fs::write(dir.path().join(i.to_string()), i.to_string()).unwrap();
    }
    let cx = Cx::detached();
    let fs = HostFs::open(dir.path()).unwrap();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    let root = fs.attach(&cx, &who).wait().await.unwrap().1;
    let mut open = Vec::new();
    for i in 0..OPEN {
        let fid = walk(&root, &cx, i).await;
        fid.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
        open.push(fid);
    }
    let before = resident();
    let mut walked = Vec::new();
    for i in 0..WALKED {
        walked.push(walk(&root, &cx, i).await);
    }
    let each = (resident() - before) / WALKED;
    assert!(each < 500, "a walked fid takes {each} bytes");
    // Let descriptors run out altogether: cached ones must make way.
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    assert!(!taken.is_empty());
    for (i, fid) in walked.iter().enumerate() {
        assert_eq!(fid.getattr(&cx, 0).wait().await.unwrap().size, i.to_string().len() as u64);
    }
    for (i, fid) in open.iter().enumerate() {
        assert_eq!(fid.read(&cx, 0, 100).wait().await.unwrap().into_bytes().unwrap(), i.to_string().as_bytes());
    }
    // An open needs one for good.
    for fid in &walked[..20] {
        fid.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
    }
    // With none left at all, a directory read as 9P2000 does is an error, not an empty directory.
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Plan9 };
    let dir = fs.attach(&cx, &who).wait().await.unwrap().1;
    dir.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
    for fid in &walked[20..] {
        if fid.open(&cx, Open::from_lflags(0).unwrap()).wait().await.is_err() {
            break;
        }
    }
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    let error = dir.read_stats(&cx, 0, 8192).wait().await.err().unwrap();
    assert_eq!(error.errno, Errno::EMFILE);
}
