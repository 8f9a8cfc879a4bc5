//! Streams on directories.

use std::collections::BTreeSet;
use std::io::SeekFrom;
use std::os::unix::fs::{DirEntryExt, PermissionsExt};
use std::path::Path;

use ninefold_stream::{Calibration, Entry, Error, Mode, Options, Stream};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// Names of several lengths, more than a read of 4096 bytes brings.
fn directory(files: usize) -> (tempfile::TempDir, BTreeSet<String>) {
    let directory = tempfile::tempdir().unwrap();
    let names: BTreeSet<String> = (0..files).map(|n| format!("{n}{}", "x".repeat(n * 7 % 250))).collect();
    for name in &names {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    (directory, names)
}

fn open(path: &Path) -> Stream {
    // As little memory as may be, so that there are many reads.
    let calibration = Calibration { first: 4096, ..Calibration::default() };
    Options::new().read(true).calibration(calibration).open(path).unwrap()
}

/// The next entry's name, and its place; None at the end.
fn next(stream: &Stream) -> Option<(String, u64)> {
    let region = stream.alloc(4096).unwrap();
    let mut entries = Entry::all(&region);
    let entry = entries.next()?;
    assert_eq!(entries.next(), None, "a record at a time");
    assert!(region.as_ptr().addr().is_multiple_of(8), "where C may look at it");
    Some((String::from_utf8(entry.name.to_vec()).unwrap(), entry.place))
}

fn rest(stream: &Stream) -> Vec<String> {
    std::iter::from_fn(|| next(stream).map(|(name, _)| name)).collect()
}

/// Without `.` and `..`.
fn names(all: &[String]) -> BTreeSet<String> {
    all.iter().filter(|name| *name != "." && *name != "..").cloned().collect()
}

#[test]
fn each_region_is_an_entry_and_all_are_there_once() {
    let (directory, files) = directory(300);
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    let stream = open(directory.path());
    assert_eq!((stream.module(), stream.position()), ("directory", 0));
    let all = rest(&stream);
    assert_eq!(all.len(), files.len() + 3);
    let mut expected = files.clone();
    expected.insert("folder".to_owned());
    assert_eq!(names(&all), expected);
    assert!(stream.alloc(1).unwrap().is_empty(), "the end stays");
    stream.seek(SeekFrom::Start(0)).unwrap();
    let inodes: BTreeSet<(u64, Vec<u8>)> = std::iter::from_fn(|| {
        let region = stream.alloc(4096).unwrap();
        Entry::all(&region).next().map(|entry| (entry.inode, entry.name.to_vec()))
    })
    .collect();
    for entry in std::fs::read_dir(directory.path()).unwrap().flatten() {
        assert!(inodes.contains(&(entry.ino(), entry.file_name().into_encoded_bytes())));
    }
    stream.close().unwrap();
}

#[test]
fn regions_of_a_directory_stay_while_it_is_read_on_and_gone_back_in() {
    let (directory, _) = directory(300);
    let stream = open(directory.path());
    let mut out = Vec::new();
    for round in 0..2 {
        loop {
            let region = stream.alloc(4096).unwrap();
            if region.is_empty() {
                break;
            }
            let bytes = region.to_vec();
            out.push((region, bytes));
        }
        assert_eq!(out.len(), 302 * (round + 1));
        stream.seek(SeekFrom::Start(0)).unwrap();
    }
    while !out.is_empty() {
        let (region, bytes) = out.swap_remove(out.len() / 3);
        assert!(*region == *bytes, "a region changed while it was out");
        region.free().unwrap();
    }
}

#[test]
fn a_place_that_was_told_is_gone_to_in_this_stream_and_in_another() {
    let (directory, _) = directory(200);
    let (stream, other) = (open(directory.path()), open(directory.path()));
    let mut places = vec![0];
    let mut all = Vec::new();
    while let Some((name, place)) = next(&stream) {
        assert_eq!(stream.position(), place, "the stream and the record say the same");
        places.push(place);
        all.push(name);
    }
    for at in (0..all.len()).step_by(13).rev() {
        for stream in [&stream, &other] {
            assert_eq!(stream.seek(SeekFrom::Start(places[at])), Ok(places[at]));
            assert_eq!(stream.position(), places[at]);
            let here = SeekFrom::Current(0);
            assert_eq!(stream.seek(here), Ok(places[at]));
            assert_eq!(rest(stream), all[at..], "from {at} on");
        }
    }
    // In one step, and where only part of a record was taken its place is where it begins.
    let region = stream.alloc_at(SeekFrom::Start(places[3]), 20).unwrap();
    assert_eq!((region.len(), stream.position()), (20, places[3]));
    drop(region);
    stream.seek(SeekFrom::Start(stream.position())).unwrap();
    assert_eq!(next(&stream).unwrap().0, all[3]);
    assert_eq!(stream.seek(SeekFrom::Current(1)), Err(Error::BadOffset));
    assert_eq!(stream.seek(SeekFrom::End(0)), Err(Error::BadOffset));
    assert_eq!(stream.seek(SeekFrom::Start(u64::MAX)), Err(Error::BadOffset));
    assert_eq!(stream.length(), Err(Error::NotSeekable));
    assert_eq!(next(&stream).unwrap().0, all[4], "what is refused moves nothing");
}

#[test]
fn a_directory_that_is_rewound_shows_what_it_has_now() {
    let (directory, mut files) = directory(20);
    let stream = open(directory.path());
    assert_eq!(names(&rest(&stream)), files);
    std::fs::write(directory.path().join("new"), "").unwrap();
    std::fs::remove_file(directory.path().join(files.pop_first().unwrap())).unwrap();
    files.insert("new".to_owned());
    stream.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(names(&rest(&stream)), files);
}

#[test]
fn as_bytes_a_directory_is_the_same_by_any_call() {
    let (directory, files) = directory(100);
    let stream = open(directory.path());
    let mut expected = Vec::new();
    loop {
        let region = stream.alloc(4096).unwrap();
        if region.is_empty() {
            break;
        }
        expected.extend_from_slice(&region);
    }
    stream.seek(SeekFrom::Start(0)).unwrap();
    let all = stream.alloc_full(1 << 30).unwrap();
    assert!(*all == *expected, "all at once");
    assert_eq!(
        names(&Entry::all(&all).map(|e| String::from_utf8(e.name.to_vec()).unwrap()).collect::<Vec<_>>()),
        files
    );
    drop(all);
    stream.seek(SeekFrom::Start(0)).unwrap();
    let mut got = Vec::new();
    for bytes in [1, 7, 23, 24, 1000, 3, 9000].iter().cycle() {
        let region = stream.alloc_full(*bytes).unwrap();
        got.extend_from_slice(&region);
        if region.len() < *bytes {
            break;
        }
        let line = stream.alloc_until(b'x', 500).unwrap();
        got.extend_from_slice(&line);
        if let Some(&byte) = got.last() {
            stream.unread(byte.wrapping_add(1)).unwrap();
            assert_eq!(*stream.alloc(1).unwrap(), [byte.wrapping_add(1)]);
        }
    }
    assert!(got == expected, "in pieces");
    stream.seek(SeekFrom::Start(0)).unwrap();
    // Its places are none of bytes.
    for module in ["prefetch", "gzip", "zstd"] {
        assert_eq!(stream.push(module), Err(Error::NoModule), "{module}");
    }
    assert_eq!(rest(&stream).len(), 102);
}

#[test]
fn a_descriptor_of_a_directory_is_not_moved_and_tells_where_to_begin() {
    let (directory, _) = directory(50);
    let stream = open(directory.path());
    let all = rest(&stream);
    stream.seek(SeekFrom::Start(0)).unwrap();
    let place = (0..10).fold(0, |_, _| next(&stream).unwrap().1);
    let fd = rustix::fs::open(directory.path(), OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(place)).unwrap();
    let stream = Options::new().take(fd.try_clone().unwrap()).unwrap();
    assert_eq!(stream.position(), place);
    assert_eq!(rest(&stream), all[10..]);
    assert_eq!(rustix::fs::tell(&fd), Ok(place));
    stream.sync().unwrap();
    assert_eq!(stream.with_descriptor(false, |fd| rustix::fs::fstat(fd).unwrap().st_mode & 0o170_000), Ok(0o040_000));
}

#[test]
fn what_is_wrong_with_a_directory_is_told() {
    let (directory, _) = directory(3);
    assert_eq!(Options::new().write(true).open(directory.path()).err(), Some(Error::Os(Errno::ISDIR)));
    assert_eq!(open(directory.path()).alloc_in(Mode::Write, 1).err(), Some(Error::NotWritable));
    // One that may be read, and in which nothing may be looked up: by the descriptor that there is.
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("file"), "").unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(rest(&open(&closed)).len(), 3);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    let kind =
        Entry::all(&open(directory.path()).alloc_full(1 << 20).unwrap()).find(|e| e.name == b"closed").unwrap().kind;
    assert!(kind == 4 || kind == 0, "DT_DIR, or nothing: {kind}");
    // Gone while it is read.
    let gone = open(&closed);
    std::fs::remove_dir_all(&closed).unwrap();
    assert_eq!(gone.alloc(4096).err(), Some(Error::Os(Errno::NOENT)));
}

#[test]
fn the_descriptor_that_was_given_is_the_streams_until_it_is_closed() {
    let (directory, _) = directory(10);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = || rustix::fs::open(directory.path(), flags, rustix::fs::Mode::empty()).unwrap();
    let (fd, other) = (open(), open());
    let lock = |fd: &std::os::fd::OwnedFd| rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive);
    lock(&fd).unwrap();
    let stream = Options::new().take(fd).unwrap();
    assert_eq!(lock(&other), Err(Errno::WOULDBLOCK));
    stream.close().unwrap();
    lock(&other).unwrap();
}
