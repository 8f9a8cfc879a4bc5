//! What streams promise, call by call.

use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ninefold_stream::{Calibration, Error, Mode, Options, Stream, copy};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(directory: &tempfile::TempDir, data: &[u8]) -> PathBuf {
    let path = directory.path().join("file");
    std::fs::write(&path, data).unwrap();
    path
}

/// A table by which small files are mapped too, in small windows.
fn small() -> Calibration {
    Calibration { map_from: 1, map_whole: 8192, window: 8192, ..Calibration::default() }
}

fn reading() -> Options {
    Options::new().read(true)
}

fn both() -> Options {
    Options::new().read(true).write(true).create(true)
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[test]
fn regions_freed_in_any_order_are_in_the_file_in_the_order_of_allocation() {
    let directory = directory();
    let path = directory.path().join("log");
    let stream = Options::new().append(true).create(true).open(&path).unwrap();
    assert_eq!(stream.module(), "append");
    let mut regions: Vec<_> = (0..5u8).map(|_| stream.alloc(3).unwrap()).collect();
    for (n, region) in (b'a'..).zip(&mut regions) {
        region.fill(n);
    }
    for n in [4, 2, 3] {
        regions.remove(n.min(regions.len() - 1)).free().unwrap();
    }
    assert_eq!(stream.flush(), Err(Error::Outstanding));
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    regions.remove(0).free().unwrap();
    assert_eq!(stream.flush(), Err(Error::Outstanding));
    assert_eq!(std::fs::read(&path).unwrap(), b"aaa");
    regions.remove(0).free().unwrap();
    stream.flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"aaabbbcccdddeee");
}

#[test]
fn what_one_stream_frees_another_of_the_process_sees_at_once() {
    let directory = directory();
    let path = file(&directory, b"0123456789");
    let writer = Options::new().write(true).open(&path).unwrap();
    let reader = reading().open(&path).unwrap();
    assert_eq!(&*reader.alloc(4).unwrap(), b"0123");
    writer.seek(SeekFrom::Start(8)).unwrap();
    let mut first = writer.alloc(2).unwrap();
    let mut second = writer.alloc(3).unwrap();
    first.copy_from_slice(b"AB");
    second.copy_from_slice(b"CDE");
    second.free().unwrap();
    assert_eq!(reader.length().unwrap(), 13, "the file is longer from the free on");
    assert_eq!(&*reader.alloc(100).unwrap(), b"456789CDE", "and what is not freed is not seen");
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789", "nor is the file out of order");
    first.free().unwrap();
    assert_eq!(&*reader.alloc_at(SeekFrom::Start(7), 100).unwrap(), b"7ABCDE");
}

#[test]
fn a_region_stays_as_it_was_until_it_is_freed() {
    let directory = directory();
    let data = numbers(900_000);
    let path = file(&directory, &data);
    for module in ["mmap", "pread", "pread-random"] {
        let stream = reading().module(module).calibration(small()).open(&path).unwrap();
        let mut regions = Vec::new();
        loop {
            let region = stream.alloc(10_007).unwrap();
            if region.is_empty() {
                break;
            }
            regions.push(region);
        }
        let all: Vec<u8> = regions.iter().flat_map(|r| r.iter().copied()).collect();
        assert!(all == data, "{module}");
    }
}

#[test]
fn writing_to_a_region_that_is_read_changes_nothing() {
    let directory = directory();
    let path = file(&directory, b"abcdef");
    for module in ["mmap", "pread"] {
        let stream = reading().module(module).calibration(small()).open(&path).unwrap();
        let mut region = stream.alloc(6).unwrap();
        region.fill(b'x');
        assert_eq!(&*region, b"xxxxxx");
        region.free().unwrap();
        assert_eq!(&*stream.alloc_at(SeekFrom::Start(0), 6).unwrap(), b"abcdef");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
}

#[test]
fn the_latest_region_becomes_longer_and_shorter_and_no_other_does() {
    let directory = directory();
    let path = directory.path().join("new");
    let stream = Stream::create(&path).unwrap();
    let mut region = stream.alloc(200).unwrap();
    region[..20].copy_from_slice(&numbers(20));
    region.resize(20).unwrap();
    assert_eq!(stream.position(), 20, "§2: the next access is at byte 21");
    region.resize(3_000_000).unwrap();
    assert_eq!(&region[..20], &numbers(20), "it moved, with its bytes");
    region[20..].fill(7);
    let next = stream.alloc(1).unwrap();
    assert_eq!(region.resize(5), Err(Error::NotLatest));
    drop((region, next));
    stream.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 3_000_001);
    assert!(std::fs::read(&path).unwrap()[20..3_000_000].iter().all(|&b| b == 7));

    let stream = Stream::open(&path).unwrap();
    let mut region = stream.alloc(10).unwrap();
    region.resize(2_500_000).unwrap();
    assert_eq!((&region[..20], region[2_499_999]), (&numbers(20)[..], 7));
    region.resize(0).unwrap();
    assert_eq!(stream.position(), 0);
}

#[test]
fn a_change_of_mode_sees_what_was_written() {
    let directory = directory();
    let stream = both().open(directory.path().join("new")).unwrap();
    assert_eq!(stream.mode(), Mode::Write);
    stream.alloc(6).unwrap().copy_from_slice(b"hello\n");
    let mut out = stream.alloc(2).unwrap();
    out.copy_from_slice(b"??");
    assert_eq!(&*stream.alloc_at_in(Mode::Read, SeekFrom::Start(0), 20).unwrap(), b"hello\n");
    stream.alloc_at_in(Mode::Write, SeekFrom::Start(1), 1).unwrap()[0] = b'a';
    assert_eq!(&*stream.alloc_at_in(Mode::Read, SeekFrom::Start(0), 20).unwrap(), b"hallo\n");
    out.free().unwrap();
    assert_eq!(&*stream.alloc_at(SeekFrom::Start(0), 20).unwrap(), b"hallo\n??");
}

#[test]
fn what_is_not_allowed_is_told() {
    let directory = directory();
    let path = file(&directory, b"x");
    let reader = Stream::open(&path).unwrap();
    assert_eq!(reader.set_mode(Mode::Write), Err(Error::NotWritable));
    assert_eq!(reader.alloc_in(Mode::Write, 1).err(), Some(Error::NotWritable));
    assert_eq!(reader.seek(SeekFrom::Current(-1)), Err(Error::BadOffset));
    assert_eq!(reader.alloc_aligned(1, 3).err(), Some(Error::BadAlignment));
    let writer = Options::new().write(true).open(&path).unwrap();
    assert_eq!(writer.alloc_line().err(), Some(Error::NotReadable));
    assert_eq!(reading().module("pipe").open(directory.path()).err(), Some(Error::NoModule));
    assert_eq!(reading().module("directory").open(&path).err(), Some(Error::NoModule));
    assert_eq!(Options::new().write(true).module("mmap").open(&path).err(), Some(Error::NoModule));
    assert_eq!(reading().module("nothing").open(&path).err(), Some(Error::NoModule));
    let missing = Stream::open(directory.path().join("missing")).err().unwrap();
    assert_eq!(std::io::Error::from(missing).kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn what_is_put_back_is_read_next_whatever_is_written_or_mapped_meanwhile() {
    let directory = directory();
    let path = file(&directory, &numbers(200_000));
    let stream = both().open(&path).unwrap();
    let mut before = stream.alloc_at_in(Mode::Write, SeekFrom::Start(2), 1).unwrap();
    let mut written = stream.alloc_at_in(Mode::Write, SeekFrom::Start(10), 3).unwrap();
    written.fill(b'w');
    stream.seek(SeekFrom::Start(12)).unwrap();
    stream.unread(b'b').unwrap();
    written.free().unwrap(); // behind one that is out, so it is not in the file yet
    stream.unread(b'a').unwrap();
    assert_eq!(&*stream.alloc(4).unwrap(), &[b'a', b'b', b'w', numbers(14)[13]]);
    // Some of it taken, and more put back in its place; and a byte that is the file's until that is changed.
    stream.seek(SeekFrom::Start(21)).unwrap();
    stream.unread(b'b').unwrap();
    stream.unread(b'-').unwrap();
    assert_eq!(*stream.alloc(1).unwrap(), *b"-");
    stream.unread(b'a').unwrap();
    before.fill(b'w');
    before.free().unwrap();
    assert_eq!(&*stream.alloc(3).unwrap(), &[b'a', b'b', numbers(22)[21]]);
    stream.unread(numbers(22)[21]).unwrap();
    stream.with_descriptor(true, |fd| rustix::io::pwrite(fd, b"w", 21)).unwrap().unwrap();
    assert_eq!(&*stream.alloc(1).unwrap(), &numbers(22)[21..]);
    assert_eq!(&*stream.alloc_at(SeekFrom::Start(9), 2).unwrap(), &[numbers(10)[9], b'w'], "the file has it");

    let stream = reading().module("mmap").open(&path).unwrap();
    stream.seek(SeekFrom::Start(50)).unwrap();
    stream.unread(b'b').unwrap();
    stream.unread(b'a').unwrap();
    assert_eq!(*stream.alloc(1).unwrap(), [b'a']);
    let region = stream.alloc(150_000).unwrap();
    assert_eq!((region.len(), region[0]), (150_000, b'b'));
    assert!(region[1..] == numbers(200_000)[50..150_049]);

    // The same byte as the file's, until that is changed.
    let path = directory.path().join("another");
    std::fs::write(&path, [b'f'; 100_000]).unwrap();
    let stream = reading().module("mmap").open(&path).unwrap();
    assert_eq!(*stream.alloc(1).unwrap(), *b"f");
    stream.unread(b'f').unwrap();
    let writer = Options::new().write(true).open(&path).unwrap();
    writer.alloc(1).unwrap().fill(b'w');
    assert_eq!(*stream.alloc(1).unwrap(), *b"f");
}

#[test]
fn an_aligned_region_begins_where_it_was_asked_to() {
    let directory = directory();
    let path = file(&directory, &numbers(10_000));
    let stream = Stream::open(&path).unwrap();
    assert_eq!(&*stream.alloc(3).unwrap(), &numbers(3));
    let region = stream.alloc_aligned(500, 64).unwrap();
    assert!(region.as_ptr().addr().is_multiple_of(64));
    assert_eq!(&*region, &numbers(503)[3..]);
    let out = Stream::create(directory.path().join("out")).unwrap();
    out.alloc(5).unwrap().fill(1);
    let mut room = out.alloc_aligned(8, 4096).unwrap();
    assert!(room.as_ptr().addr().is_multiple_of(4096));
    room.fill(2);
    drop(room);
    out.close().unwrap();
    assert_eq!(std::fs::read(directory.path().join("out")).unwrap(), [[1; 5].as_slice(), &[2; 8]].concat());
}

#[test]
fn lines_are_whole_however_long_they_are() {
    let directory = directory();
    let lines: Vec<Vec<u8>> = [0, 1, 70, 70_000, 3, 600_000, 2].iter().map(|&n| vec![b'x'; n]).collect();
    let mut text = lines.join(&b'\n');
    text.extend_from_slice(b"\nlast");
    let path = file(&directory, &text);
    for module in ["mmap", "pread", "pread-random"] {
        let stream = reading().module(module).calibration(small()).open(&path).unwrap();
        for line in &lines {
            let region = stream.alloc_line().unwrap();
            assert!(region.len() == line.len() + 1 && region.ends_with(b"\n"), "{module}: {}", region.len());
        }
        assert_eq!(&*stream.alloc_line().unwrap(), b"last");
        assert!(stream.alloc_line().unwrap().is_empty());
        stream.seek(SeekFrom::Start(2)).unwrap();
        assert_eq!(stream.alloc_until(b'\n', 5).unwrap().len(), 1);
        assert_eq!(stream.alloc_until(b'\n', 5).unwrap().len(), 5, "no more than asked");
    }
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_and_an_end_but_no_signal() {
    let directory = directory();
    let path = file(&directory, &vec![b'x'; 4 << 20]);
    let stream = reading().module("mmap").open(&path).unwrap();
    let region = stream.alloc(4 << 20).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    let seen = region.iter().filter(|&&b| b == b'x').count();
    assert_eq!(seen, 10, "zeros are where the file was");
    assert_eq!(region.free(), Err(Error::Shrunk));
    assert!(stream.alloc(1).unwrap().is_empty());
    assert_eq!(&*stream.alloc_at(SeekFrom::Start(4), 100).unwrap(), b"xxxxxx");
}

#[test]
fn a_window_that_is_cut_is_an_error_and_the_windows_behind_it_are_the_end() {
    let directory = directory();
    for cut in [20_000, 20_480, 9_000, 8_192, 1] {
        let path = file(&directory, &vec![b'x'; 100_000]);
        let stream = reading().module("mmap").calibration(small()).open(&path).unwrap();
        assert_eq!(&*stream.alloc(3).unwrap(), b"xxx");
        // It lies in windows of its own, and has the place of the cut in it.
        let region = stream.alloc(30_000).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let seen = region.iter().filter(|&&b| b == b'x').count() as u64;
        assert_eq!(seen, cut.saturating_sub(3), "{cut}");
        assert_eq!(region.free(), Err(Error::Shrunk));
        assert!(stream.alloc(1).unwrap().is_empty(), "{cut}");
        assert_eq!(stream.alloc_at(SeekFrom::Start(0), 100_000).unwrap().len() as u64, cut);
        stream.close().unwrap();
    }
}

#[test]
fn a_file_that_becomes_shorter_ends_there_for_who_reads_it_into_memory() {
    let directory = directory();
    let data = numbers(200_000);
    for (module, options) in [
        ("pread", reading()),
        ("pread-random", reading()),
        ("read-write", both()),
        ("read-write-random", both()),
        ("append", reading().append(true)),
    ] {
        let path = file(&directory, &data);
        let others = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut stream = options.module(module).calibration(small()).open(&path).unwrap();
        let kept = stream.alloc_at_in(Mode::Read, SeekFrom::Start(0), 10_000).unwrap();
        others.set_len(50_001).unwrap();
        assert!(*kept == data[..10_000], "{module}");
        kept.free().unwrap();
        // What was read before is as it was then; nothing is made of what is gone.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        let end = 10_000 + rest.len();
        assert!((50_001..200_000).contains(&end) && rest == data[10_000..end], "{module}: {end}");
        let part = stream.alloc_at(SeekFrom::Start(50_000), 100).unwrap();
        assert!(*part == data[50_000..=50_000], "{module}: {}", part.len());
        drop(part);
        assert!(stream.alloc(1).unwrap().is_empty(), "{module}");
        // A file that grows again is read on.
        std::os::unix::fs::FileExt::write_all_at(&others, b"more", 50_001).unwrap();
        assert_eq!(&*stream.alloc_full(10).unwrap(), b"more", "{module}");
        stream.close().unwrap();
    }
}

#[test]
fn a_pipe_gives_what_is_there_and_all_of_it_to_who_asks_for_all() {
    let (from, to) = std::io::pipe().unwrap();
    let reader = reading().take(OwnedFd::from(from)).unwrap();
    let writer = Options::new().take(OwnedFd::from(to)).unwrap();
    assert_eq!((reader.module(), reader.seek(SeekFrom::Start(0))), ("pipe", Err(Error::NotSeekable)));
    writer.alloc(5).unwrap().copy_from_slice(b"abcde");
    writer.flush().unwrap();
    assert_eq!(&*reader.alloc(100).unwrap(), b"abcde");
    let thread = std::thread::spawn(move || {
        for n in 0..100u8 {
            writer.alloc(1000).unwrap().fill(n);
        }
        writer.close().unwrap();
    });
    let all = reader.alloc_full(99_999).unwrap();
    assert_eq!((all.len(), all[0], all[99_998]), (99_999, 0, 99));
    assert_eq!(&*reader.alloc_full(10).unwrap(), [99]);
    assert!(reader.alloc(1).unwrap().is_empty());
    thread.join().unwrap();
}

#[test]
fn a_descriptor_that_does_not_wait_loses_nothing() {
    let (from, to) = std::io::pipe().unwrap();
    for fd in [OwnedFd::from(from.try_clone().unwrap()), OwnedFd::from(to.try_clone().unwrap())] {
        rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK).unwrap();
    }
    let reader = reading().take(OwnedFd::from(from)).unwrap();
    let other = to.try_clone().unwrap();
    let writer = Options::new().take(OwnedFd::from(to)).unwrap();
    let again = Error::Os(rustix::io::Errno::AGAIN);
    assert_eq!(reader.alloc(1).err(), Some(again));
    // Fewer bytes would look like the end.
    assert_eq!(rustix::io::write(&other, b"some"), Ok(4));
    assert_eq!(reader.alloc_full(10).err(), Some(again));
    assert_eq!(&*reader.alloc_full(4).unwrap(), b"some");
    let data = numbers(300_000);
    let mut got = Vec::new();
    let mut left = &data[..];
    loop {
        if let Ok(mut room) = writer.alloc(left.len().min(1000)) {
            let (now, later) = left.split_at(room.len());
            room.copy_from_slice(now);
            left = later;
            drop(room);
        }
        let flushed = writer.flush();
        assert!(flushed.is_ok() || flushed == Err(again), "{flushed:?}");
        if let Ok(region) = reader.alloc(1 << 20) {
            got.extend_from_slice(&region);
        }
        if left.is_empty() && flushed.is_ok() && got.len() == data.len() {
            break;
        }
    }
    assert!(got == data);
}

#[test]
fn a_pipe_that_nobody_reads_is_an_error_of_the_call_that_meets_it() {
    let (from, to) = std::io::pipe().unwrap();
    let writer = Options::new().take(OwnedFd::from(to)).unwrap();
    drop(from);
    writer.alloc(5).unwrap().free().unwrap();
    let closed = Err(Error::Os(rustix::io::Errno::PIPE));
    assert_eq!(writer.flush(), closed);
    assert_eq!(writer.close(), closed);
}

#[test]
fn a_full_disk_is_told_and_keeps_what_was_not_written() {
    let full = Options::new().write(true).module("pipe").open("/dev/full").unwrap();
    let no_space = Error::Os(rustix::io::Errno::NOSPC);
    full.alloc(5).unwrap().free().unwrap();
    assert_eq!(full.flush(), Err(no_space));
    assert_eq!(full.flush(), Err(no_space), "kept, and tried again");
    let met = (0..100).find_map(|_| full.alloc(16 << 10).err());
    assert_eq!(met, Some(no_space), "memory does not grow for ever");
    assert_eq!(full.close(), Err(no_space));
}

#[test]
fn places_beyond_four_gigabytes_are_places() {
    let directory = directory();
    let path = directory.path().join("sparse");
    let end = 5u64 << 30;
    let stream = both().open(&path).unwrap();
    stream.alloc_at(SeekFrom::Start(end), 4).unwrap().copy_from_slice(b"last");
    stream.close().unwrap();
    for module in ["mmap", "pread"] {
        let stream = reading().module(module).open(&path).unwrap();
        assert_eq!(stream.length().unwrap(), end + 4);
        assert_eq!(&*stream.alloc_at(SeekFrom::End(-6), 100).unwrap(), b"\0\0last");
        assert!(stream.alloc(1).unwrap().is_empty());
        assert_eq!(&*stream.alloc_at(SeekFrom::Start((1 << 32) - 1), 2).unwrap(), b"\0\0");
    }
}

#[test]
fn std_traits_and_regions_are_mixed_freely() {
    let directory = directory();
    let path = directory.path().join("new");
    let mut stream = both().open(&path).unwrap();
    stream.write_all(b"one\ntwo\n").unwrap();
    stream.alloc(4).unwrap().copy_from_slice(b"xyz\n");
    stream.write_all(&numbers(200_000)).unwrap();
    stream.rewind().unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    assert_eq!(&*stream.alloc_line().unwrap(), b"two\n");
    let mut three = [0; 3];
    stream.read_exact(&mut three).unwrap();
    assert_eq!(&three, b"xyz");
    assert_eq!(&*stream.alloc(1).unwrap(), b"\n");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest == numbers(200_000));
}

#[test]
fn a_copy_is_whole_by_the_kernel_and_without_it() {
    let directory = directory();
    let data = numbers(700_001);
    let path = file(&directory, &data);
    let from = Stream::open(&path).unwrap();
    assert_eq!(from.alloc(1).unwrap().len(), 1);
    let to = Stream::create(directory.path().join("to")).unwrap();
    to.alloc(2).unwrap().fill(9);
    assert_eq!(copy(&from, &to, 500_000).unwrap(), 500_000);
    assert_eq!(copy(&from, &to, u64::MAX).unwrap(), 200_000);
    to.alloc(1).unwrap().fill(8);
    to.close().unwrap();
    let expected = [&[9, 9], &data[1..], &[8]].concat();
    assert!(std::fs::read(directory.path().join("to")).unwrap() == expected);
    let (end, pipe) = std::io::pipe().unwrap();
    let pipe = Options::new().take(OwnedFd::from(pipe)).unwrap();
    let thread = std::thread::spawn(move || {
        let mut got = Vec::new();
        std::io::BufReader::new(end).read_to_end(&mut got).unwrap();
        got
    });
    from.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(copy(&from, &pipe, u64::MAX).unwrap(), 700_001);
    pipe.close().unwrap();
    assert!(thread.join().unwrap() == data);
}

#[test]
fn threads_on_one_stream_each_get_bytes_that_nobody_else_gets() {
    let directory = directory();
    let records: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
    let path = file(&directory, &records);
    for module in ["mmap", "pread"] {
        let stream = reading().module(module).calibration(small()).open(&path).unwrap();
        let out = Stream::create(directory.path().join("out")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let record = stream.alloc(4).unwrap();
                        if record.is_empty() {
                            break;
                        }
                        let mut room = out.alloc(4).unwrap();
                        room.copy_from_slice(&record);
                        room.free().unwrap();
                    }
                });
            }
        });
        out.close().unwrap();
        let written = std::fs::read(directory.path().join("out")).unwrap();
        let mut seen: Vec<u32> = written.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        seen.sort_unstable();
        assert!(seen == (0..50_000).collect::<Vec<_>>(), "{module}");
    }
}

#[test]
fn lines_are_whole_and_each_is_one_threads_where_threads_read_ahead_of_each_other() {
    let directory = directory();
    // Some longer than a buffer, most across the end of none, some across one.
    let line = |n: usize| format!("{n}:{}\n", "x".repeat(if n.is_multiple_of(97) { 20_000 } else { n * 7 % 500 }));
    let path = file(&directory, (0..4000).map(line).collect::<String>().as_bytes());
    let calibration = Calibration { first: 4096, read: 16 << 10, ..Calibration::default() };
    let stream = reading().module("pread").calibration(calibration).open(&path).unwrap();
    let taken = || {
        let mut taken = Vec::new();
        loop {
            let region = stream.alloc_line().unwrap();
            if region.is_empty() {
                return taken;
            }
            let text = std::str::from_utf8(&region).unwrap();
            let n = text.split_once(':').unwrap().0.parse().unwrap();
            assert_eq!(text, line(n));
            taken.push(n);
        }
    };
    let mut all = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(taken));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<usize>>()
    });
    all.sort_unstable();
    assert!(all == (0..4000).collect::<Vec<_>>());
}

#[test]
fn a_locked_stream_is_one_threads_for_several_calls() {
    let directory = directory();
    let path = directory.path().join("pairs");
    let stream = Stream::create(&path).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let stream = &stream;
            scope.spawn(move || {
                for _ in 0..2000 {
                    let locked = stream.lock();
                    locked.alloc(1).unwrap().fill(n);
                    locked.alloc(1).unwrap().fill(n);
                }
            });
        }
    });
    stream.close().unwrap();
    let pairs = std::fs::read(&path).unwrap();
    assert_eq!(pairs.len(), 16_000);
    assert!(pairs.chunks(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn what_is_held_back_far_behind_hides_nothing_of_the_file_before_it() {
    let directory = directory();
    let data = numbers(100_000);
    let path = file(&directory, &data);
    let calibration = Calibration { first: 4096, read: 8192, ..Calibration::default() };
    let stream = both().calibration(calibration).open(&path).unwrap();
    let out = stream.alloc_at(SeekFrom::Start(90_000), 1).unwrap();
    stream.alloc_at(SeekFrom::Start(95_000), 2).unwrap().copy_from_slice(b"??");
    stream.seek(SeekFrom::Start(0)).unwrap();
    let mut expected = data;
    expected[95_000..95_002].copy_from_slice(b"??");
    for piece in expected.chunks(1000) {
        assert!(*stream.alloc_in(Mode::Read, 1000).unwrap() == *piece);
    }
    drop(out);
}

#[test]
fn what_a_socket_could_not_send_is_not_read_from_it() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let stream = Options::new().take(OwnedFd::from(ours)).unwrap();
    let mut full = false;
    while !full {
        full = stream.alloc(60_000).and_then(|room| room.free()).and_then(|()| stream.flush()).is_err();
    }
    (&theirs).write_all(b"answer").unwrap();
    assert_eq!(&*stream.alloc_in(Mode::Read, 100).unwrap(), b"answer");
}

#[test]
fn what_was_freed_out_of_order_is_written_once_and_forgotten() {
    let directory = directory();
    let path = directory.path().join("new");
    let stream = Stream::create(&path).unwrap();
    let mut regions = [(); 3].map(|()| stream.alloc(2).unwrap());
    for (n, region) in (b'a'..).zip(&mut regions) {
        region.fill(n);
    }
    let [first, second, third] = regions;
    second.free().unwrap();
    third.free().unwrap();
    first.free().unwrap();
    let last = stream.alloc(2).unwrap();
    stream.flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"aabbcc");
    let other = both().open(&path).unwrap();
    other.alloc_at(SeekFrom::Start(2), 2).unwrap().fill(b'x');
    assert_eq!(&*Stream::open(&path).unwrap().alloc(100).unwrap(), b"aaxxcc", "the later write is seen");
    last.free().unwrap();
}

#[test]
fn a_copy_goes_to_the_file_after_the_regions_that_were_allocated_before_it() {
    let directory = directory();
    let from = Stream::open(file(&directory, &[b'x'; 50])).unwrap();
    let path = directory.path().join("to");
    let to = Stream::create(&path).unwrap();
    let mut out = to.alloc(100).unwrap();
    out.fill(b'.');
    to.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(copy(&from, &to, 50).unwrap(), 50);
    out.free().unwrap();
    to.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [[b'x'; 50], [b'.'; 50]].concat());
}

/// A stream of a mapped file of 3 MiB of which 3 bytes are passed, and what makes the file shorter.
fn shrinking(directory: &tempfile::TempDir) -> (Stream, impl Fn()) {
    let path = file(directory, &vec![b'x'; 3 << 20]);
    let stream = reading().module("mmap").open(&path).unwrap();
    stream.alloc(3).unwrap().free().unwrap();
    (stream, move || std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap())
}

#[test]
fn zeros_in_the_place_of_data_are_told_to_who_asks_next_if_nobody_was_told() {
    let directory = directory();
    let zeros = |data: &[u8]| assert!(data.iter().all(|&b| b == 0));

    let (stream, shrink) = shrinking(&directory);
    let region = stream.alloc(5000).unwrap();
    shrink();
    zeros(&region);
    drop(region);
    assert_eq!(stream.alloc(1).err(), Some(Error::Shrunk), "the region was dropped");
    assert!(stream.alloc(1).unwrap().is_empty(), "it is told once");

    let (mut stream, shrink) = shrinking(&directory);
    let some = stream.fill_buf().unwrap().len();
    shrink();
    zeros(stream.fill_buf().unwrap());
    stream.consume(some);
    let told = stream.fill_buf().unwrap_err();
    assert!(told.get_ref().unwrap().to_string().contains("shorter"));
    assert_eq!(stream.fill_buf().unwrap(), b"");

    let (stream, shrink) = shrinking(&directory);
    shrink();
    assert_eq!(stream.alloc_aligned(5000, 64).err(), Some(Error::Shrunk), "a copy of what is gone");
    assert!(stream.alloc_aligned(5000, 64).unwrap().is_empty());

    let (stream, shrink) = shrinking(&directory);
    let region = stream.alloc(5000).unwrap();
    shrink();
    zeros(&region);
    drop(region);
    assert_eq!((&stream).read(&mut [0; 1 << 16]).unwrap_err().to_string(), told.to_string(), "past the buffers too");
    assert_eq!((&stream).read(&mut [0; 1 << 16]).unwrap(), 0);

    let (stream, shrink) = shrinking(&directory);
    let region = stream.alloc(5000).unwrap();
    shrink();
    zeros(&region);
    drop(region);
    assert_eq!(stream.close(), Err(Error::Shrunk));
}

#[test]
fn zeros_in_the_place_of_data_are_not_copied() {
    let directory = directory();
    let (stream, shrink) = shrinking(&directory);
    shrink();
    let (mut from, to) = std::io::pipe().unwrap();
    let to = Options::new().take(OwnedFd::from(to)).unwrap();
    assert_eq!(copy(&stream, &to, 5000), Err(Error::Shrunk));
    to.close().unwrap();
    let mut got = Vec::new();
    from.read_to_end(&mut got).unwrap();
    assert!(got.is_empty(), "{}", got.len());
}

#[test]
fn what_is_gone_is_not_carried_over_into_the_next_buffer() {
    let directory = directory();
    let (stream, shrink) = shrinking(&directory);
    shrink();
    assert!(stream.alloc(4 << 20).unwrap().is_empty());
}

#[test]
fn what_was_appended_can_be_asked_for_of_the_disk() {
    let directory = directory();
    let path = directory.path().join("log");
    let stream = Options::new().append(true).create(true).open(&path).unwrap();
    stream.alloc(3).unwrap().fill(b'a');
    stream.sync().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"aaa");
    let (_from, to) = std::io::pipe().unwrap();
    assert_eq!(Options::new().take(OwnedFd::from(to)).unwrap().sync(), Err(Error::NotSeekable));
}

#[test]
fn a_search_looks_at_no_more_than_it_may_take() {
    let directory = directory();
    let path = file(&directory, &vec![b'x'; 3 << 20]);
    let stream = reading().module("mmap").open(&path).unwrap();
    stream.alloc(1).unwrap().free().unwrap();
    // What is behind the first page is gone, and who looks there is told.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    for most in [5, 100, 0, 1] {
        let region = stream.alloc_until(b'\n', most).unwrap();
        assert_eq!(&*region, vec![b'x'; most]);
        region.free().unwrap();
    }
    stream.close().unwrap();
}

#[test]
fn a_byte_that_is_put_back_is_read_next_by_every_call_and_never_in_the_file() {
    let directory = directory();
    let path = file(&directory, &numbers(100_000));
    for module in ["mmap", "pread", "pread-random"] {
        let mut stream = reading().calibration(small()).module(module).open(&path).unwrap();
        assert_eq!(stream.unread(b'x'), Err(Error::BadOffset));
        let region = stream.alloc(5000).unwrap();
        stream.unread(b'!').unwrap();
        stream.unread(b'?').unwrap();
        assert_eq!((stream.position(), &*region), (4998, &numbers(5000)[..]));
        drop(region);
        // More than was at hand, and past it, and by a way that needs no buffer.
        let mut all = vec![0; 90_000];
        let expected = [b"?!", &numbers(100_000)[5000..94_998]].concat();
        assert_eq!(&*stream.alloc(90_000).unwrap(), expected, "{module}");
        stream.seek(SeekFrom::Start(5000)).unwrap();
        stream.alloc(1).unwrap().free().unwrap();
        stream.unread(b'!').unwrap();
        stream.read_exact(&mut all).unwrap();
        assert_eq!(all[0], b'!', "{module}");
        assert!(all[1..] == numbers(100_000)[5001..95_000], "{module}");
        // Several at once, in their order, before one that was put back; as many as there were, and no more.
        stream.unread(b'!').unwrap();
        stream.unread_all(b"one and ").unwrap();
        assert_eq!(&*stream.alloc(11).unwrap(), [b"one and !", &numbers(100_000)[95_000..95_002]].concat(), "{module}");
        stream.seek(SeekFrom::Start(2)).unwrap();
        assert_eq!(stream.unread_all(b"abc"), Err(Error::BadOffset));
        stream.unread_all(b"ab").unwrap();
        assert_eq!(&*stream.alloc(3).unwrap(), [b'a', b'b', numbers(3)[2]], "{module}");
        stream.seek(SeekFrom::Start(95_000)).unwrap();
        // Who moves gets what the file has.
        stream.unread(b'!').unwrap();
        stream.seek(SeekFrom::Start(94_999)).unwrap();
        assert_eq!(&*stream.alloc(2).unwrap(), &numbers(100_000)[94_999..95_001], "{module}");
    }
    let to = directory.path().join("to");
    let (from, out) = (reading().open(&path).unwrap(), Stream::create(&to).unwrap());
    from.alloc(10).unwrap().free().unwrap();
    from.unread(b'!').unwrap();
    copy(&from, &out, u64::MAX).unwrap();
    out.close().unwrap();
    assert!(std::fs::read(&to).unwrap() == [b"!", &numbers(100_000)[10..]].concat());
}
