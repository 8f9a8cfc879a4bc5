//! Writes whose data lie in a pipe.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno as Os, ReadWriteFlags, pwritev2};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::*;
use crate::server::Data;
use crate::transport::{PIPES_ALONE, PipeShare};

/// So many bytes in a pipe, and what they are.
fn piped(length: usize) -> (Data, Vec<u8>) {
    let bytes: Vec<u8> = (0..length).map(|n| (n * 7 / 3) as u8).collect();
    let mut pipe = PipeShare::default().take().unwrap();
    assert_eq!(pipe.push(&bytes), Ok(length));
    (Data::piped(pipe, length, Bytes::new()), bytes)
}

/// Whether a write to a file there may be told not to wait.
fn writes_nowait(host: &Host) -> bool {
    let file = std::fs::File::create(host.path("asked")).unwrap();
    let wrote = pwritev2(&file, &[std::io::IoSlice::new(b"x")], 0, ReadWriteFlags::NOWAIT);
    !matches!(wrote, Err(Os::OPNOTSUPP | Os::NOSYS | Os::INVAL))
}

/// Another descriptor of what this process has open to be written under this name.
fn descriptor(host: &Host, name: &str) -> OwnedFd {
    let path = host.path(name);
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    let of_it = fds.filter(|fd| std::fs::read_link(fd).is_ok_and(|link| link == path));
    let numbers = of_it.map(|fd| fd.file_name().unwrap().to_str().unwrap().parse().unwrap());
    let mut others = numbers.map(|number: i32| pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).unwrap());
    others.find(|fd| !fcntl_getfl(fd).unwrap().contains(OFlags::PATH)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_a_pipe_is_written_where_it_belongs_and_of_the_rest_of_the_file_nothing_changes() {
    let _alone = PIPES_ALONE.lock().await;
    let host = Host::new();
    let root = host.root().await;
    let fid = host.create(&root, "f", 0o644).await.unwrap();
    assert!(!fid.takes_pipes(), "nobody knows yet whether its writes wait");
    fid.write(&host.cx, 0, Bytes::from(vec![b'.'; 500_000])).wait().await.unwrap();
    assert_eq!(fid.takes_pipes(), !writes_nowait(&host));
    let next = host.create(&root, "g", 0o644).await.unwrap();
    assert_eq!(next.takes_pipes(), !writes_nowait(&host), "what was found out holds for the next one");
    let (data, bytes) = piped(200_001);
    assert_eq!(fid.write_data(&host.cx, 1001, data).wait().await.unwrap(), 200_001);
    let mut wanted = vec![b'.'; 500_000];
    wanted[1001..201_002].copy_from_slice(&bytes);
    assert!(std::fs::read(host.path("f")).unwrap() == wanted);
    // Behind its end, and with what a pipe holds beside memory.
    let (data, bytes) = piped(3000);
    assert_eq!(fid.write_data(&host.cx, 600_000, data).wait().await.unwrap(), 3000);
    assert_eq!(fid.write_data(&host.cx, 603_000, b"in memory"[..].into()).wait().await.unwrap(), 9);
    wanted.resize(600_000, 0);
    wanted.extend(bytes);
    wanted.extend(b"in memory");
    assert!(std::fs::read(host.path("f")).unwrap() == wanted);
    let (data, _) = piped(10);
    assert_eq!(errno(fid.write_data(&host.cx, 1 << 62, data).wait().await), Errno::EFBIG);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_file_takes_from_no_pipe_goes_through_memory() {
    let _alone = PIPES_ALONE.lock().await;
    let host = Host::new();
    let root = host.root().await;
    for (name, flags) in [("a", lflags::APPEND), ("d", lflags::DIRECT), ("s", lflags::SYNC)] {
        host.put(name, b"before");
        let fid = host.at(&root, name).await;
        host.open(&fid, lflags::RDWR | flags).await.unwrap();
        fid.write(&host.cx, 6, Bytes::from_static(b"|")).wait().await.unwrap();
        if name != "d" {
            assert!(!fid.takes_pipes(), "{name}");
        }
        let (data, bytes) = piped(10_000);
        assert_eq!(fid.write_data(&host.cx, 7, data).wait().await.unwrap(), 10_000);
        assert!(std::fs::read(host.path(name)).unwrap() == [b"before|", &bytes[..]].concat(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_kernel_empties_no_pipe_into_a_file_its_next_writes_come_otherwise() {
    let _alone = PIPES_ALONE.lock().await;
    let host = Host::new();
    let root = host.root().await;
    let fid = host.create(&root, "f", 0o644).await.unwrap();
    fid.write(&host.cx, 0, Bytes::from_static(b"before")).wait().await.unwrap();
    let took = fid.takes_pipes();
    // splice(2) refuses to append. It is the same open file.
    let fd = descriptor(&host, "f");
    fcntl_setfl(&fd, fcntl_getfl(&fd).unwrap() | OFlags::APPEND).unwrap();
    let (data, bytes) = piped(10_000);
    assert_eq!(fid.write_data(&host.cx, 0, data).wait().await.unwrap(), 10_000);
    assert!(std::fs::read(host.path("f")).unwrap() == [b"before", &bytes[..]].concat());
    assert_eq!((took, fid.takes_pipes()), (!writes_nowait(&host), false));
}
