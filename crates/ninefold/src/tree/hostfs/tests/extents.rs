//! Copies, allocation, holes, and writes at the end.

use std::os::unix::fs::{FileExt, MetadataExt};

use bytes::Bytes;
use ninefold_proto::n1::allocate;

use super::*;
use crate::server::fallback::COPY_MOST;
use crate::server::{Answer, Cancel, Parking, Written};

async fn open(host: &Host, root: &Fid, name: &str, flags: u32) -> Fid {
    let fid = host.at(root, name).await;
    host.open(&fid, flags).await.unwrap();
    fid
}

async fn copy(host: &Host, from: &Fid, at: u64, to: &Fid, to_at: u64, length: u64) -> Result<u64, Errno> {
    from.copyrange(&host.cx, at, &**to, to_at, length).wait().await.map_err(|e| e.errno)
}

#[tokio::test]
async fn a_range_is_copied_and_ends_with_the_source() {
    let host = Host::new();
    host.put("from", b"0123456789");
    host.put("to", b"abcdefghij");
    let root = host.root().await;
    let (from, to) = (open(&host, &root, "from", 0).await, open(&host, &root, "to", lflags::WRONLY).await);
    assert_eq!(copy(&host, &from, 2, &to, 4, 3).await, Ok(3));
    assert_eq!(std::fs::read(host.path("to")).unwrap(), b"abcd234hij");
    assert_eq!(copy(&host, &from, 8, &to, 12, 1 << 40).await, Ok(2));
    assert_eq!(std::fs::read(host.path("to")).unwrap(), b"abcd234hij\0\x0089");
    assert_eq!(copy(&host, &from, 10, &to, 0, 5).await, Ok(0));
    assert_eq!(copy(&host, &from, 0, &to, 0, 0).await, Ok(0));
}

#[tokio::test]
async fn ranges_of_one_file_are_copied_only_where_they_do_not_overlap() {
    let host = Host::new();
    host.put("f", b"0123456789");
    let root = host.root().await;
    let (from, to) = (open(&host, &root, "f", 0).await, open(&host, &root, "f", lflags::RDWR).await);
    assert_eq!(copy(&host, &from, 0, &to, 5, 5).await, Ok(5));
    assert_eq!(copy(&host, &from, 0, &to, 4, 5).await, Err(Errno::EINVAL));
    assert_eq!(copy(&host, &to, 0, &to, 10, 5).await, Ok(5));
    assert_eq!(std::fs::read(host.path("f")).unwrap(), b"012340123401234");
}

#[tokio::test]
async fn a_file_that_the_kernel_will_not_copy_is_read_and_written() {
    let host = Host::new();
    host.put("to", b"");
    // Of another export, too.
    let proc = HostFs::with_descriptors(Path::new("/proc/self"), 64).unwrap();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    let other = proc.attach(&host.cx, &who).wait().await.unwrap().1;
    let from = host.walk(&other, "status").await.unwrap().1;
    host.open(&from, 0).await.unwrap();
    let (path, to) = (host.path("to"), open(&host, &host.root().await, "to", lflags::WRONLY).await);
    let copied = copy(&host, &from, 0, &to, 0, 4096).await.unwrap();
    let text = std::fs::read(&path).unwrap();
    assert!(copied > 100 && text.len() as u64 == copied && text.starts_with(b"Name:"), "{copied} bytes");
}

#[tokio::test]
async fn one_file_is_known_in_two_exports() {
    let host = Host::new();
    host.mkdir("d");
    host.put("d/f", b"0123456789");
    let inner = HostFs::with_descriptors(&host.path("d"), 64).unwrap();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    let root = inner.attach(&host.cx, &who).wait().await.unwrap().1;
    let to = open(&host, &root, "f", lflags::RDWR).await;
    let from = open(&host, &host.root().await, "d/f", 0).await;
    assert_eq!(copy(&host, &from, 0, &to, 1, 5).await, Err(Errno::EINVAL));
    assert_eq!(copy(&host, &from, 0, &to, 5, 5).await, Ok(5));
    assert_eq!(std::fs::read(host.path("d/f")).unwrap(), b"0123401234");
}

#[tokio::test]
async fn a_copy_is_bounded_and_ends_when_it_is_cancelled() {
    let host = Host::new();
    let large = std::fs::File::create(host.path("from")).unwrap();
    large.set_len(2 * COPY_MOST).unwrap();
    host.put("to", b"");
    let root = host.root().await;
    let (from, to) = (open(&host, &root, "from", 0).await, open(&host, &root, "to", lflags::WRONLY).await);
    assert_eq!(copy(&host, &from, 0, &to, 0, 2 * COPY_MOST).await, Ok(COPY_MOST));
    let cancel: Arc<Cancel> = Arc::default();
    cancel.cancel();
    let cx = Cx::new(1, cancel, Parking::new(1, 1, None));
    let cancelled = from.copyrange(&cx, 0, &*to, 0, COPY_MOST).wait().await;
    assert_eq!(errno(cancelled), Errno::EINTR);
}

#[tokio::test]
async fn a_copy_to_a_file_open_for_appending_is_refused() {
    let host = Host::new();
    host.put("from", b"0123456789");
    host.put("to", b"abc");
    let root = host.root().await;
    let to = open(&host, &root, "to", lflags::WRONLY | lflags::APPEND).await;
    let from = open(&host, &root, "from", 0).await;
    assert_eq!(copy(&host, &from, 0, &to, 0, 3).await, Err(Errno::EBADF));
    assert_eq!(std::fs::read(host.path("to")).unwrap(), b"abc");
}

#[tokio::test]
async fn a_pipe_has_no_ranges() {
    let host = Host::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, host.path("pipe"), mode).unwrap();
    host.put("to", b"");
    let root = host.root().await;
    let pipe = open(&host, &root, "pipe", lflags::RDWR).await;
    let to = open(&host, &root, "to", lflags::WRONLY).await;
    assert_eq!(copy(&host, &pipe, 0, &to, 0, 3).await, Err(Errno::EINVAL));
    assert_eq!(errno(pipe.seek(&host.cx, 0, false).wait().await), Errno::ESPIPE);
    let end = pipe.writex(&host.cx, 0, Bytes::from_static(b"x"), true, false).wait().await;
    assert_eq!(errno(end), Errno::ESPIPE);
    let stable = pipe.writex(&host.cx, 0, Bytes::from_static(b"xy"), false, true).wait().await.unwrap();
    assert_eq!(stable.count, 2);
}

#[tokio::test]
async fn data_and_holes_are_found_and_the_end_is_a_hole() {
    const MIB: u64 = 1 << 20;
    let host = Host::new();
    let sparse = std::fs::File::create(host.path("f")).unwrap();
    sparse.write_all_at(b"data", 2 * MIB).unwrap();
    sparse.set_len(4 * MIB).unwrap();
    if !have("a file system with holes", sparse.metadata().unwrap().blocks() * 512 < MIB) {
        return;
    }
    let root = host.root().await;
    let fid = open(&host, &root, "f", lflags::RDWR).await;
    let seek = async |at, hole| fid.seek(&host.cx, at, hole).wait().await.map_err(|e| e.errno);
    assert_eq!(seek(0, false).await, Ok(2 * MIB));
    assert_eq!(seek(0, true).await, Ok(0));
    let hole = seek(2 * MIB, true).await.unwrap();
    assert!((2 * MIB + 4..=3 * MIB).contains(&hole), "{hole}");
    assert_eq!(seek(3 * MIB, false).await, Err(Errno::ENXIO));
    assert_eq!(seek(4 * MIB, true).await, Err(Errno::ENXIO));
    // Neither moved where anything is read.
    assert_eq!(fid.read(&host.cx, 2 * MIB, 4).wait().await.unwrap().into_bytes().unwrap(), &b"data"[..]);
}

/// Where lseek(2) finds the next data, by a descriptor that nobody else has.
fn truth(host: &Host, name: &str, offset: u64) -> Result<u64, Errno> {
    let file = std::fs::File::open(host.path(name)).unwrap();
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset)).map_err(|e| Errno(e.raw_os_error().cast_unsigned()))
}

/// Whether what lies in memory of this file is read without waiting.
fn is_read_at_once(file: &std::fs::File) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut byte = [0];
    preadv2(file, &mut [std::io::IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) == Ok(1)
}

#[tokio::test]
async fn next_data_are_where_the_kernel_finds_them_and_what_is_no_zero_in_memory_is_known_at_once() {
    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 2 * MIB + 5;
    let host = Host::new();
    let make = |name: &str, data: &[(u64, u64)], size: u64| {
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(host.path(name)).unwrap();
        for &(from, to) in data {
            file.write_all_at(&vec![1; (to - from) as usize], from).unwrap();
        }
        file.set_len(size).unwrap();
        file
    };
    let dense = make("dense", &[(0, SIZE)], SIZE);
    let holes: [(&str, &[(u64, u64)]); 4] = [
        ("in front", &[(MIB, SIZE)]),
        ("in the middle", &[(0, MIB / 2), (SIZE - MIB / 2, SIZE)]),
        ("behind", &[(0, MIB)]),
        ("all of it", &[]),
    ];
    for (name, data) in holes {
        make(name, data, SIZE);
    }
    make("empty", &[], 0);
    // Reserved blocks are holes, and zeros that were written are data.
    let reserved = make("reserved", &[(MIB, MIB + 4096)], SIZE);
    let is_reserved = rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::empty(), 0, SIZE).is_ok();
    make("zeros", &[], 0).write_all_at(&vec![0; SIZE as usize], 0).unwrap();
    have("a file system with fallocate(2)", is_reserved);
    let is_at_once = have("a file system that is read without waiting", is_read_at_once(&dense));
    let root = host.root().await;
    let places = [0, 1, MIB / 2, MIB - 1, MIB, MIB + 1, SIZE - 1, SIZE, SIZE + 1, i64::MAX as u64];
    for name in ["dense", "empty", "reserved", "zeros"].into_iter().chain(holes.map(|(name, _)| name)) {
        let fid = open(&host, &root, name, 0).await;
        for at in places {
            let answer = fid.seek(&host.cx, at, false);
            let is_known = matches!(answer, Answer::Now(_));
            let found = answer.wait().await.map_err(|e| e.errno);
            assert_eq!(found, truth(&host, name, at), "{name} from {at}");
            if name == "dense" && at < SIZE {
                assert_eq!(found, Ok(at), "{name} from {at}");
                assert!(is_known || !is_at_once, "{name} from {at}");
            }
            // Whoever goes from data to hole to data comes to an end.
            if let Ok(data) = found {
                assert!(fid.seek(&host.cx, data, true).wait().await.unwrap() > data, "{name} from {at}");
            }
        }
        // Behind all that a file can have is nothing; and where the descriptor stands nobody asked.
        for at in [i64::MAX as u64 + 1, u64::MAX] {
            assert!(fid.seek(&host.cx, at, false).wait().await.is_err(), "{name} from {at}");
        }
    }
    // What it is by now, not what it was when it was opened: a file that gets a hole, or an end, is looked at anew.
    let fid = open(&host, &root, "dense", lflags::RDWR).await;
    let seek = async |at| fid.seek(&host.cx, at, false).wait().await.map_err(|e| e.errno);
    assert_eq!(seek(0).await, Ok(0));
    dense.set_len(4 * SIZE).unwrap();
    for at in [0, SIZE - 1, SIZE + MIB] {
        assert_eq!(seek(at).await, truth(&host, "dense", at), "from {at}");
    }
    dense.set_len(3).unwrap();
    assert_eq!((seek(2).await, seek(3).await), (Ok(2), Err(Errno::ENXIO)));
}

#[tokio::test]
async fn allocation_grows_punches_and_clears() {
    let host = Host::new();
    host.put("f", &[7; 32 << 10]);
    let root = host.root().await;
    let fid = open(&host, &root, "f", lflags::RDWR).await;
    let run =
        async |mode, offset, length| fid.allocate(&host.cx, mode, offset, length).wait().await.map_err(|e| e.errno);
    if !have("a file system with fallocate(2)", run(0, 0, 1).await != Err(Errno::EOPNOTSUPP)) {
        return;
    }
    run(0, 32 << 10, 8 << 10).await.unwrap();
    assert_eq!(host.path("f").metadata().unwrap().len(), 40 << 10);
    run(allocate::KEEP_SIZE, 40 << 10, 1 << 20).await.unwrap();
    let meta = host.path("f").metadata().unwrap();
    assert_eq!(meta.len(), 40 << 10);
    assert!(meta.blocks() * 512 >= 1 << 20, "{} blocks", meta.blocks());
    run(allocate::PUNCH_HOLE | allocate::KEEP_SIZE, 4096, 4096).await.unwrap();
    let data = std::fs::read(host.path("f")).unwrap();
    assert_eq!((data[4095], data[4096], data[8191], data[8192]), (7, 0, 0, 7));
    match run(allocate::ZERO_RANGE, 16 << 10, 100).await {
        // tmpfs has none.
        Err(Errno::EOPNOTSUPP) => {}
        cleared => {
            cleared.unwrap();
            let data = std::fs::read(host.path("f")).unwrap();
            assert_eq!(
                (data[(16 << 10) - 1], data[16 << 10], data[(16 << 10) + 99], data[(16 << 10) + 100]),
                (7, 0, 0, 7)
            );
        }
    }
    let reader = open(&host, &root, "f", 0).await;
    assert_eq!(errno(reader.allocate(&host.cx, 0, 0, 1).wait().await), Errno::EBADF);
}

#[tokio::test]
async fn an_appending_write_tells_where_it_landed() {
    let host = Host::new();
    host.put("f", b"12345");
    let root = host.root().await;
    let fid = open(&host, &root, "f", lflags::WRONLY).await;
    let write = async |fid: &Fid, at, data: &'static [u8], append, stable| {
        fid.writex(&host.cx, at, Bytes::from_static(data), append, stable).wait().await.unwrap()
    };
    assert_eq!(write(&fid, 0, b"678", true, false).await, Written { offset: 5, count: 3 });
    assert_eq!(write(&fid, 0, b"", true, false).await, Written { offset: 8, count: 0 });
    assert_eq!(write(&fid, 1, b"x", false, true).await, Written { offset: 1, count: 1 });
    assert_eq!(write(&fid, 0, b"9", true, true).await, Written { offset: 8, count: 1 });
    let appending = open(&host, &root, "f", lflags::WRONLY | lflags::APPEND).await;
    assert_eq!(write(&appending, 0, b"10", false, false).await, Written { offset: 9, count: 2 });
    assert_eq!(std::fs::read(host.path("f")).unwrap(), b"1x345678910");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_several_fids_and_of_a_program_of_the_host_never_overwrite_each_other() {
    const EACH: usize = 300;
    let host = Arc::new(Host::new());
    host.put("log", b"");
    let root = host.root().await;
    let path = host.path("log");
    let program = std::thread::spawn(move || {
        use std::io::Write;
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        (0..EACH).for_each(|_| file.write_all(b"[program]").unwrap());
    });
    let mut tasks = Vec::new();
    for (fids, name) in [(1, *b"{0}"), (2, *b"{1}"), (2, *b"{2}")] {
        let mut own = Vec::new();
        for _ in 0..fids {
            own.push(open(&host, &root, "log", lflags::WRONLY).await);
        }
        let host = host.clone();
        tasks.push(tokio::spawn(async move {
            let mut landed = Vec::new();
            for n in 0..EACH {
                let data = Bytes::copy_from_slice(&name);
                let written = own[n % own.len()].writex(&host.cx, 0, data, true, false).wait().await.unwrap();
                assert_eq!(written.count, 3);
                landed.push((written.offset as usize, name));
            }
            landed
        }));
    }
    let mut landed = Vec::new();
    for task in tasks {
        landed.extend(task.await.unwrap());
    }
    program.join().unwrap();
    let log = std::fs::read(host.path("log")).unwrap();
    assert_eq!(log.len(), EACH * (9 + 3 * 3));
    for (at, name) in landed {
        assert_eq!(&log[at..at + 3], name, "told to be at {at}");
    }
}

#[tokio::test]
async fn appends_through_one_fid_are_told_apart() {
    const EACH: usize = 5000;
    let host = Host::new();
    host.put("log", b"");
    let fid = open(&host, &host.root().await, "log", lflags::RDWR).await;
    let (cx, fid) = (&host.cx, &*fid);
    // On threads without a runtime every answer is there at once.
    let now = |answer: Answer<Written>| match answer {
        Answer::Now(written) => written.unwrap(),
        Answer::Later(_) => panic!("an answer that is not there"),
    };
    let landed: Vec<(Written, u8)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (b'a'..=b'd')
            .map(|byte| {
                scope.spawn(move || {
                    let append = |n| now(fid.writex(cx, 0, Bytes::from(vec![byte; 1 + n % 7]), true, false));
                    (0..EACH).map(|n| (append(n), byte)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let log = std::fs::read(host.path("log")).unwrap();
    assert_eq!(landed.len(), 4 * EACH);
    for (Written { offset, count }, byte) in landed {
        let part = &log[offset as usize..][..count as usize];
        assert!(part.iter().all(|b| *b == byte), "{count} bytes at {offset}");
    }
}

#[tokio::test]
async fn a_program_that_somebody_changes_loses_the_rights_that_it_lends() {
    if !have("root, to act as other users", is_root()) {
        return;
    }
    let host = Host::new();
    host.put("from", &[1; 8192]);
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(host.path(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    chmod("", 0o755);
    let alice = host.attach(Dialect::Linux, somebody(54_321)).await;
    for way in ["append", "copy", "allocate"] {
        host.put("tool", &[2; 8192]);
        chmod("tool", 0o4777);
        let (from, tool) = (open(&host, &alice, "from", 0).await, open(&host, &alice, "tool", lflags::WRONLY).await);
        match way {
            "append" => drop(tool.writex(&host.cx, 0, Bytes::from_static(b"x"), true, false).wait().await.unwrap()),
            "copy" => assert_eq!(copy(&host, &from, 0, &tool, 0, 4096).await, Ok(4096)),
            _ => match tool.allocate(&host.cx, 0, 0, 10_000).wait().await {
                Err(error) if error.errno == Errno::EOPNOTSUPP => continue,
                done => done.unwrap(),
            },
        }
        assert_eq!(host.path("tool").metadata().unwrap().mode() & 0o7777, 0o777, "{way}");
    }
}
