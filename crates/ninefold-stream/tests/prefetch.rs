//! What the module `prefetch` promises: the stream below, unchanged, and nothing of it lost.

use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use ninefold_stream::{Calibration, Error, Mode, Options, Stream};
use rustix::io::Errno;

const LOWER: [&str; 4] = ["mmap", "pread", "pread-random", "pipe"];

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(directory: &tempfile::TempDir, data: &[u8]) -> PathBuf {
    let path = directory.path().join("file");
    std::fs::write(&path, data).unwrap();
    path
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn opened(path: &Path, module: &str) -> Stream {
    let stream = Options::new().read(true).module(module).open(path).unwrap();
    stream.push("prefetch").unwrap();
    stream
}

/// A pipe that is read ahead, and its other end.
fn piped() -> (Stream, std::io::PipeWriter) {
    let (from, to) = std::io::pipe().unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    stream.push("prefetch").unwrap();
    (stream, to)
}

fn drain(stream: &Stream, bytes: usize) -> (Vec<u8>, Option<Error>) {
    let mut got = Vec::new();
    loop {
        match stream.alloc(bytes) {
            Ok(region) if region.is_empty() => return (got, None),
            Ok(region) => got.extend_from_slice(&region),
            Err(e) => return (got, Some(e)),
        }
    }
}

#[test]
fn what_is_read_ahead_is_the_stream_unchanged() {
    let directory = directory();
    let data = numbers(3_000_000);
    let path = file(&directory, &data);
    for lower in LOWER {
        for bytes in [100, 4096, 300_001, 2_500_000] {
            let stream = opened(&path, lower);
            assert_eq!(stream.module(), "prefetch");
            let (got, error) = drain(&stream, bytes);
            assert!(got == data && error.is_none(), "{lower} by {bytes}: {} {error:?}", got.len());
            assert_eq!(stream.position(), data.len() as u64);
            stream.close().unwrap();
        }
        let mut stream = opened(&path, lower);
        let mut got = Vec::new();
        for _ in 0..1000 {
            got.extend_from_slice(&stream.alloc_line().unwrap());
        }
        stream.read_to_end(&mut got).unwrap();
        assert!(got == data, "{lower}: lines, and then read(2)'s way");
    }
}

#[test]
fn places_stay_places() {
    let directory = directory();
    let data = numbers(1_000_000);
    let path = file(&directory, &data);
    for lower in ["mmap", "pread", "pread-random"] {
        let mut stream = Options::new().read(true).module(lower).open(&path).unwrap();
        stream.seek(SeekFrom::Start(10)).unwrap();
        stream.push("prefetch").unwrap();
        assert_eq!((stream.position(), stream.length()), (10, Ok(1_000_000)));
        for place in [10, 500_000, 3, 999_990, 0, 10_000, 10_100] {
            let region = stream.alloc_at(SeekFrom::Start(place), 200).unwrap();
            let place = place as usize;
            assert!(*region == data[place..data.len().min(place + 200)], "{lower} at {place}");
        }
        let mut all = Vec::new();
        stream.rewind().unwrap();
        stream.read_to_end(&mut all).unwrap();
        assert!(all == data);
        stream.seek(SeekFrom::Start(700)).unwrap();
        assert_eq!(stream.alloc(50).unwrap().len(), 50);
        stream.pop().unwrap();
        assert_eq!((stream.module(), stream.position()), (lower, 750));
        assert!(*stream.alloc(50).unwrap() == data[750..800]);
    }
}

#[test]
fn what_has_no_length_says_so_and_waits_for_nobody() {
    let (stream, mut to) = piped();
    to.write_all(b"some").unwrap();
    assert_eq!(&*stream.alloc(1).unwrap(), b"s");
    assert_eq!(stream.length(), Err(Error::NotSeekable));
    drop(to);
    assert_eq!(&*stream.alloc(9).unwrap(), b"ome");
}

#[test]
fn it_reads_ahead_by_itself_and_within_its_bound() {
    let directory = directory();
    let path = file(&directory, &numbers(8 << 20));
    let opened = std::fs::File::open(&path).unwrap();
    // By read(2), so that the descriptor's own offset tells how far it is.
    let mut watched = opened.try_clone().unwrap();
    let (ahead, piece) = (512 << 10, 256 << 10);
    let calibration = Calibration { ahead, first: piece, read: piece, ..Calibration::default() };
    let stream = Options::new().module("pipe").calibration(calibration).take(OwnedFd::from(opened)).unwrap();
    stream.push("prefetch").unwrap();
    for _ in 0..20 {
        assert!(!stream.alloc(50_000).unwrap().is_empty());
        let begin = Instant::now();
        loop {
            // What is at hand, what is ahead, and what was under way when that was enough.
            let most = stream.position() + (piece + ahead + piece) as u64;
            let at = watched.stream_position().unwrap();
            assert!(at <= most, "{at} of {most}");
            if at >= stream.position() + ahead as u64 {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{at} is not ahead of {}", stream.position());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_thread_that_waits_for_a_pipe_ends_with_the_module() {
    // Popped: what it read and nobody allocated is handed over.
    let (stream, mut to) = piped();
    to.write_all(b"abc").unwrap();
    assert_eq!(&*stream.alloc(1).unwrap(), b"a");
    stream.pop().unwrap();
    to.write_all(b"def").unwrap();
    assert_eq!(&*stream.alloc_full(5).unwrap(), b"bcdef");
    assert_eq!((stream.module(), stream.position()), ("pipe", 6));
    stream.push("prefetch").unwrap();
    to.write_all(b"ghi").unwrap();
    assert_eq!(&*stream.alloc(1).unwrap(), b"g");
    // Closed and dropped: nobody has the descriptor any more.
    stream.close().unwrap();
    assert_eq!(to.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    let (stream, mut to) = piped();
    to.write_all(b"abc").unwrap();
    assert_eq!(&*stream.alloc(1).unwrap(), b"a");
    drop(stream);
    assert_eq!(to.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    // Below another.
    let (stream, mut to) = piped();
    stream.push("gzip").unwrap();
    to.write_all(&gzip(b"data")[..12]).unwrap();
    to.write_all(&gzip(b"data")[12..]).unwrap();
    assert_eq!(&*stream.alloc_full(4).unwrap(), b"data");
    drop(stream);
    assert_eq!(to.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    // Over another.
    let (from, mut to) = std::io::pipe().unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    stream.push("gzip").unwrap();
    stream.push("prefetch").unwrap();
    to.write_all(&gzip(b"data")).unwrap();
    assert_eq!(&*stream.alloc_full(3).unwrap(), b"dat");
    stream.pop().unwrap();
    assert_eq!(&*stream.alloc_full(1).unwrap(), b"a");
    drop(stream);
    assert_eq!(to.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    // Never used.
    drop(piped());
}

#[test]
fn all_that_was_read_ahead_of_a_pipe_is_handed_over() {
    let data = numbers(5_000_000);
    let mut random = fastrand::Rng::with_seed(3);
    let (from, mut to) = std::io::pipe().unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        let data = &data;
        scope.spawn(move || to.write_all(data).unwrap());
        let mut pushed = false;
        loop {
            for _ in 0..random.usize(1..20) {
                got.extend_from_slice(&stream.alloc(random.usize(1..60_000)).unwrap());
            }
            assert_eq!(stream.position(), got.len() as u64);
            if got.len() == data.len() {
                break;
            }
            if pushed {
                stream.pop().unwrap()
            } else {
                stream.push("prefetch").unwrap()
            }
            pushed = !pushed;
        }
    });
    assert!(got == data);
}

#[test]
fn errors_are_told_where_they_belong() {
    let (from, mut to) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&from, rustix::fs::OFlags::NONBLOCK).unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    stream.push("prefetch").unwrap();
    let again = Some(Error::Os(Errno::AGAIN));
    assert_eq!(stream.alloc(10).err(), again);
    for _ in 0..20 {
        to.write_all(b"abcde").unwrap();
        // What was met before the data came may be told once more.
        let region = stream.alloc(3).or_else(|_| stream.alloc(3)).unwrap();
        assert_eq!(&*region, b"abc");
        assert_eq!(stream.alloc_full(3).err(), again);
        assert_eq!(&*stream.alloc(3).unwrap(), b"de");
        assert_eq!(stream.alloc(3).err(), again);
    }

    // A connection that is reset tells it once: it is not lost, however the data before it are asked for.
    let told = Some(Error::Os(Errno::CONNRESET));
    for whole in [false, true] {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (&theirs).write_all(b"abcde").unwrap();
        (&ours).write_all(b"unread").unwrap();
        drop(theirs);
        let stream = Options::new().take(OwnedFd::from(ours)).unwrap();
        stream.set_mode(Mode::Read).unwrap();
        stream.push("prefetch").unwrap();
        if whole {
            assert_eq!(stream.alloc_full(6).err(), told);
            assert_eq!(stream.alloc_line().err(), told);
        }
        assert_eq!(&*stream.alloc(2).unwrap(), b"ab");
        assert_eq!(stream.alloc_full(4).err(), told);
        if whole {
            stream.pop().unwrap();
            assert_eq!(stream.alloc_full(4).err(), told, "handed over");
        }
        assert_eq!(&*stream.alloc(4).unwrap(), b"cde");
        assert_eq!(stream.alloc(1).err(), told);
        assert!(stream.alloc(1).unwrap().is_empty());
    }
}

#[test]
fn what_is_decompressed_below_fails_where_it_would() {
    let directory = directory();
    let compressed = gzip(&numbers(600_000));
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..60 {
        let mut data = compressed.clone();
        data.truncate(random.usize(0..data.len()));
        if random.bool() && !data.is_empty() {
            let place = random.usize(0..data.len());
            data[place] ^= 1 << random.u8(0..8);
        }
        let path = file(&directory, &data);
        for bytes in [777, 100_000] {
            let open = || {
                let stream = Options::new().read(true).module("pread").open(&path).unwrap();
                stream.push("gzip").unwrap();
                stream
            };
            let (plain, ahead) = (open(), open());
            ahead.push("prefetch").unwrap();
            let expected = drain(&plain, bytes);
            let got = drain(&ahead, bytes);
            assert_eq!((got.1, ahead.alloc(bytes).err()), (expected.1, expected.1));
            let rest = |stream: &Stream, first: Vec<u8>| [first, drain(stream, 1).0].concat();
            let (expected, got) = (rest(&plain, expected.0), rest(&ahead, got.0));
            assert!(got.starts_with(&expected) || expected.starts_with(&got));
            // How far damage is seen before it is met depends on how much is asked for; the end does not.
            assert!(plain.alloc(1).err() != Some(Error::Truncated) || got == expected);
        }
    }
}

#[test]
fn what_this_process_writes_is_seen_although_it_was_read_ahead() {
    let directory = directory();
    let path = file(&directory, &[b'.'; 100_000]);
    for lower in ["mmap", "pread"] {
        let reader = opened(&path, lower);
        assert_eq!(&*reader.alloc(10).unwrap(), [b'.'; 10]);
        let writer = Options::new().write(true).open(&path).unwrap();
        let write = |at: u64, byte: u8| {
            writer.seek(SeekFrom::Start(at)).unwrap();
            writer.alloc(10).unwrap().fill(byte);
        };
        let out = writer.alloc_at(SeekFrom::Start(90_000), 1).unwrap();
        write(10, b'a'); // held back
        assert_eq!(&*reader.alloc(10).unwrap(), [b'a'; 10], "{lower}");
        drop(out);
        write(20, b'b');
        assert_eq!(&*reader.alloc(10).unwrap(), [b'b'; 10], "{lower}");
        write(30, b'c');
        writer.close().unwrap();
        assert_eq!(&*reader.alloc(10).unwrap(), [b'c'; 10], "{lower}");
        // Between two fills: in what is ahead of the reader by then.
        let mut left = 99_960;
        while left > 20 {
            left -= reader.alloc(left.min(4000) - 10).unwrap().len();
        }
        let at = reader.position();
        let writer = Options::new().write(true).open(&path).unwrap();
        writer.seek(SeekFrom::Start(at)).unwrap();
        writer.alloc(5).unwrap().fill(b'd');
        writer.close().unwrap();
        assert_eq!(&*reader.alloc(5).unwrap(), [b'd'; 5], "{lower}");
        std::fs::write(&path, [b'.'; 100_000]).unwrap();
    }
}

#[test]
fn what_was_read_ahead_before_a_write_is_not_shown_behind_it() {
    let directory = directory();
    let mut data = vec![b'.'; 12 << 20];
    let path = file(&directory, &data);
    let mut reader = opened(&path, "pread");
    let mut at = 0;
    while at < 10 << 20 {
        // Each buffer to its end: what comes next is what the thread has by then.
        for _ in 0..3 {
            let some = reader.fill_buf().unwrap();
            assert!(*some == data[at..at + some.len()], "at {at}");
            let bytes = some.len();
            reader.consume(bytes);
            at += bytes;
        }
        let writer = Options::new().write(true).open(&path).unwrap();
        writer.alloc_at(SeekFrom::Start(at as u64), 10).unwrap().fill(b'x');
        writer.close().unwrap();
        data[at..at + 10].fill(b'x');
    }
}

#[test]
fn a_file_that_grows_goes_on_behind_its_end() {
    let directory = directory();
    let path = file(&directory, b"first");
    for lower in ["pread", "pipe"] {
        let stream = opened(&path, lower);
        let at = drain(&stream, 100).0.len();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(&*stream.alloc(100).unwrap(), b"more", "{lower}");
        assert!(stream.alloc(100).unwrap().is_empty());
        assert_eq!(stream.position(), at as u64 + 4);
    }
}

#[test]
fn one_thread_for_a_stream_is_enough() {
    let directory = directory();
    let path = file(&directory, &gzip(b"data"));
    let stream = opened(&path, "pread");
    assert_eq!(stream.push("prefetch"), Err(Error::NoModule));
    stream.push("gzip").unwrap();
    assert_eq!(stream.push("prefetch"), Err(Error::NoModule));
    assert_eq!(&*stream.alloc(10).unwrap(), b"data");
    stream.pop().unwrap();
    stream.pop().unwrap();
    stream.push("prefetch").unwrap();
}

#[test]
fn a_stream_that_writes_is_only_read_meanwhile() {
    let directory = directory();
    let path = directory.path().join("new");
    let stream = Options::new().read(true).write(true).create(true).open(&path).unwrap();
    stream.alloc(8).unwrap().copy_from_slice(b"abcdefgh");
    stream.seek(SeekFrom::Start(2)).unwrap();
    stream.push("prefetch").unwrap();
    assert_eq!(&*stream.alloc(2).unwrap(), b"cd");
    assert_eq!(stream.alloc_in(Mode::Write, 1).err(), Some(Error::NotWritable));
    stream.pop().unwrap();
    stream.alloc(2).unwrap().fill(b'-');
    stream.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"abcd--gh");
}

#[test]
fn its_thread_takes_no_signal_of_the_program() {
    let (stream, mut to) = piped();
    to.write_all(b"data").unwrap();
    // It has read, so it has its name.
    assert_eq!(&*stream.alloc(4).unwrap(), b"data");
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // Threads of other tests come and go.
        let task = task.unwrap().path();
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        if !status.starts_with("Name:\tninefold-prefe") {
            continue;
        }
        seen += 1;
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        let is_blocked = |signal: u32| blocked >> (signal - 1) & 1 == 1;
        // SIGINT, SIGUSR1, SIGTERM and SIGCHLD; and SIGBUS, which a thread gets for what it does itself.
        assert!([2, 10, 15, 17].into_iter().all(is_blocked) && !is_blocked(7), "{blocked:x}");
    }
    assert!(seen > 0);
}
