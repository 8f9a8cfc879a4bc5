//! What modules promise that are pushed on others.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use ninefold_stream::{Error, Mode, Options, Stream, copy};
use rustix::io::Errno;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Modules for plain files that are read.
const LOWER: [&str; 4] = ["mmap", "pread", "pread-random", "pipe"];

/// Compresses as the module decompresses.
type Compress = fn(&[u8]) -> Vec<u8>;

const FORMATS: [(&str, Compress); 2] = [("gzip", gzip), ("zstd", zstd)];

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    compress_to_vec(data, CompressionLevel::Fastest)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(directory: &tempfile::TempDir, data: &[u8]) -> PathBuf {
    let path = directory.path().join("file");
    std::fs::write(&path, data).unwrap();
    path
}

/// A file, read by that module: `pipe` takes it for a thing without places.
fn open(path: &Path, module: &str) -> Stream {
    Options::new().read(true).module(module).open(path).unwrap()
}

fn opened(path: &Path, module: &str, pushed: &str) -> Stream {
    let stream = open(path, module);
    stream.push(pushed).unwrap();
    stream
}

/// Lines, and then bytes that are hard to compress.
fn mixed(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let mut data: Vec<u8> =
        (0..length / 2).map(|n| if n % 40 == 39 { b'\n' } else { b'a' + (n / 97 % 5) as u8 }).collect();
    data.extend(std::iter::repeat_with(|| random.u8(..)).take(length - length / 2));
    data
}

/// All of the stream by regions of `bytes`, and the error that ended it.
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
fn what_was_compressed_is_read_as_it_was_by_every_call() {
    let directory = directory();
    for (format, compress) in FORMATS {
        for length in [0, 1, 100, 4096, 300_000, 2_500_000] {
            let data = mixed(length);
            let path = file(&directory, &compress(&data));
            for lower in LOWER {
                let what = format!("{format} on {lower}, {length}");
                for bytes in [13, 4096, 1 << 20] {
                    if length / bytes > 100_000 {
                        continue;
                    }
                    let stream = opened(&path, lower, format);
                    assert_eq!((stream.module(), stream.position()), (format, 0), "{what}");
                    let (got, error) = drain(&stream, bytes);
                    assert!(got == data && error.is_none(), "{what}: {} by {bytes}, {error:?}", got.len());
                    assert_eq!(stream.position(), length as u64);
                    stream.close().unwrap();
                }
                let mut stream = opened(&path, lower, format);
                let mut lines = Vec::new();
                for _ in 0..length / 100 {
                    lines.extend_from_slice(&stream.alloc_line().unwrap());
                }
                stream.read_to_end(&mut lines).unwrap();
                assert!(lines == data, "{what}: lines, and then read(2)'s way");
                let (stream, to) = (opened(&path, lower, format), Stream::create(directory.path().join("to")).unwrap());
                assert_eq!(copy(&stream, &to, u64::MAX).unwrap(), length as u64);
                to.close().unwrap();
                assert!(std::fs::read(directory.path().join("to")).unwrap() == data, "{what}: a copy");
            }
        }
    }
}

#[test]
fn a_region_of_a_file_that_is_decompressed_is_shorter_only_at_the_end() {
    let directory = directory();
    for (format, compress) in FORMATS {
        let data = mixed(1_000_000);
        let path = file(&directory, &compress(&data));
        for bytes in [999, 300_001] {
            let stream = opened(&path, "pread", format);
            for expected in data.chunks(bytes) {
                assert!(*stream.alloc(bytes).unwrap() == *expected);
            }
            assert!(stream.alloc(bytes).unwrap().is_empty());
        }
    }
}

#[test]
fn several_that_were_compressed_one_after_another_are_one() {
    let directory = directory();
    for (format, compress) in FORMATS {
        let parts: Vec<Vec<u8>> = [0, 1, 70_000, 0, 300_000, 5].map(mixed).into();
        let compressed: Vec<u8> = parts.iter().flat_map(|part| compress(part)).collect();
        let path = file(&directory, &compressed);
        for lower in LOWER {
            let (got, error) = drain(&opened(&path, lower, format), 5000);
            assert!(got == parts.concat() && error.is_none(), "{format} on {lower}: {error:?}");
        }
        // And thousands of short ones: each costs no more than itself.
        let path = file(&directory, &compress(b"x").repeat(3000));
        assert_eq!(drain(&opened(&path, "pread", format), 7), (vec![b'x'; 3000], None));
    }
}

#[test]
fn every_part_that_a_member_of_gzip_may_have_is_passed_over() {
    let directory = directory();
    let built = |builder: GzBuilder| {
        let mut encoder = builder.write(Vec::new(), Compression::best());
        encoder.write_all(b"data").unwrap();
        encoder.finish().unwrap()
    };
    let mut all = built(GzBuilder::new().filename("name").comment("comment").extra(vec![7; 300]).mtime(5));
    all.extend(built(GzBuilder::new().extra(vec![])));
    // A sum of the head, which the crate does not write.
    let mut summed = built(GzBuilder::new().filename("n"));
    summed[3] |= 2;
    let head = 10 + 2;
    let mut sum = flate2::Crc::new();
    sum.update(&summed[..head]);
    let sum = (sum.sum() as u16).to_le_bytes();
    summed.splice(head..head, sum);
    all.extend(&summed);
    all.extend([0; 700]); // as on tapes
    let path = file(&directory, &all);
    for lower in LOWER {
        assert_eq!(drain(&opened(&path, lower, "gzip"), 3), (b"datadatadata".to_vec(), None), "{lower}");
    }
    summed[head] ^= 1;
    assert_eq!(drain(&opened(&file(&directory, &summed), "pread", "gzip"), 3), (vec![], Some(Error::Corrupt)));
    summed[head] ^= 1;
    summed.extend([0, 0, 1]);
    let (got, error) = drain(&opened(&file(&directory, &summed), "pread", "gzip"), 4);
    assert_eq!((&got[..], error), (&b"data"[..], Some(Error::Corrupt)));
}

#[test]
fn what_ends_too_early_never_looks_whole() {
    let directory = directory();
    for (format, compress) in FORMATS {
        let data = mixed(600);
        let compressed = compress(&data);
        for length in 0..compressed.len() {
            let path = file(&directory, &compressed[..length]);
            for lower in ["mmap", "pread", "pipe"] {
                for bytes in [1, 7, 1000] {
                    let stream = opened(&path, lower, format);
                    let (got, error) = drain(&stream, bytes);
                    let what = format!("{format} on {lower}: {length} of {}, by {bytes}", compressed.len());
                    assert_eq!(error, Some(Error::Truncated), "{what}");
                    assert!(data.starts_with(&got), "{what}");
                    assert_eq!(stream.alloc(bytes).err(), error, "{what}: and again");
                }
                let mut all = Vec::new();
                let failed = opened(&path, lower, format).read_to_end(&mut all).unwrap_err();
                assert!(failed.to_string().contains("ends too early") && data.starts_with(&all));
                assert_eq!(opened(&path, lower, format).alloc_full(1000).err(), Some(Error::Truncated));
            }
        }
    }
}

#[test]
fn what_is_damaged_is_an_error_or_no_different() {
    let directory = directory();
    for (format, compress) in FORMATS {
        let data = mixed(500);
        let compressed = compress(&data);
        for place in 0..compressed.len() {
            for bit in [0, 3, 7] {
                let mut damaged = compressed.clone();
                damaged[place] ^= 1 << bit;
                let path = file(&directory, &damaged);
                let (got, error) = drain(&opened(&path, "pread", format), 90);
                assert!(error.is_some() || got == data, "{format}: bit {bit} of byte {place} of {}", compressed.len());
            }
        }
    }
}

#[test]
fn bytes_without_sense_cause_no_harm() {
    let rounds = std::env::var("NINEFOLD_STREAM_ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    let directory = directory();
    let mut random = fastrand::Rng::with_seed(7);
    let data = mixed(20_000);
    let mut cases: Vec<_> = FORMATS.iter().map(|&(format, compress)| (format, compress(&data))).collect();
    // The programs use more of a format than the crates do.
    for (format, level) in [("gzip", "-9"), ("zstd", "-19"), ("zstd", "-1")] {
        cases.extend(by_program(format, &[level], &data).map(|compressed| (format, compressed)));
    }
    for (format, compressed) in cases {
        for _ in 0..rounds {
            let mut damaged = compressed.clone();
            for _ in 0..random.usize(1..8) {
                let (place, bytes) = (random.usize(0..damaged.len()), random.usize(1..9));
                let end = damaged.len().min(place + bytes);
                damaged[place..end].fill_with(|| random.u8(..));
            }
            let (got, error) = drain(&opened(&file(&directory, &damaged), "pread", format), 4000);
            assert!(error.is_some() || got == data, "{format}");
        }
    }
}

#[test]
fn what_is_behind_the_damage_is_an_error_of_who_asks_for_it_and_what_is_before_it_is_had() {
    let directory = directory();
    for (format, compress) in FORMATS {
        let path = file(&directory, &[compress(b"whole"), b"no such thing".to_vec()].concat());
        let stream = opened(&path, "pread", format);
        assert_eq!(stream.alloc(6).err(), Some(Error::Corrupt));
        assert_eq!((stream.alloc_line().err(), stream.position()), (Some(Error::Corrupt), 0));
        assert_eq!(&*stream.alloc(4).unwrap(), b"whol");
        assert_eq!(&*stream.alloc(1).unwrap(), b"e");
        assert_eq!(stream.alloc(1).err(), Some(Error::Corrupt));
        assert_eq!(stream.alloc(1).err(), Some(Error::Corrupt));
    }
}

#[test]
fn the_stream_below_goes_on_behind_what_was_decompressed() {
    let directory = directory();
    for ((format, compress), tail) in FORMATS.into_iter().flat_map(|format| [(format, &b"tail\n"[..]), (format, b"t")])
    {
        let data = mixed(200_000);
        let all = [&b"head\n"[..], &compress(&data), tail].concat();
        let path = file(&directory, &all);
        for lower in LOWER {
            let stream = open(&path, lower);
            assert_eq!(&*stream.alloc_line().unwrap(), b"head\n");
            let before = stream.alloc(1).unwrap();
            drop(before);
            assert_eq!(stream.push(format), Ok(()), "in the middle of it");
            assert_eq!(stream.alloc(1).err(), Some(Error::Corrupt), "{format} on {lower}");
            let stream = open(&path, lower);
            assert_eq!(&*stream.alloc_line().unwrap(), b"head\n");
            stream.push(format).unwrap();
            assert_eq!(stream.seek(SeekFrom::Start(0)), Err(Error::NotSeekable));
            assert_eq!(stream.length(), Err(Error::NotSeekable));
            let mut got = Vec::new();
            while got.len() < data.len() {
                got.extend_from_slice(&stream.alloc((data.len() - got.len()).min(999)).unwrap());
            }
            assert!(got == data, "{format} on {lower}");
            assert_eq!(stream.alloc(1).err(), Some(Error::Corrupt), "what follows is not compressed");
            stream.pop().unwrap();
            assert_eq!((stream.module(), stream.position()), (lower, (all.len() - tail.len()) as u64), "{format}");
            assert_eq!(&*stream.alloc_full(100).unwrap(), tail, "{format} on {lower}");
            assert!(stream.alloc(1).unwrap().is_empty());
        }
    }
}

#[test]
fn regions_stay_while_modules_are_pushed_and_popped() {
    let directory = directory();
    let data = mixed(400_000);
    let path = file(&directory, &[b"plain".to_vec(), gzip(&data)].concat());
    for lower in LOWER {
        let stream = open(&path, lower);
        let plain = stream.alloc(5).unwrap();
        stream.push("gzip").unwrap();
        let first = stream.alloc(100).unwrap();
        let rest = stream.alloc_full(300_000).unwrap();
        stream.pop().unwrap();
        let below = stream.alloc(1).unwrap();
        stream.push("gzip").unwrap();
        assert!(stream.alloc(1).is_err());
        let (a, b) = (first.len(), first.len() + rest.len());
        assert!(*plain == *b"plain" && *first == data[..a] && *rest == data[a..b], "{lower}");
        for region in [rest, below, plain, first] {
            region.free().unwrap();
        }
        stream.close().unwrap();
    }
}

#[test]
fn what_is_compressed_twice_is_decompressed_twice() {
    let directory = directory();
    let data = mixed(700_000);
    for (format, compress) in FORMATS {
        let path = file(&directory, &gzip(&compress(&data)));
        for lower in LOWER {
            let stream = opened(&path, lower, "gzip");
            stream.push(format).unwrap();
            let (got, error) = drain(&stream, 10_000);
            assert!(got == data && error.is_none(), "{format} on {lower}: {error:?}");
            stream.pop().unwrap();
            assert_eq!(stream.module(), "gzip");
            assert!(stream.alloc(1).unwrap().is_empty());
            stream.pop().unwrap();
            assert_eq!(stream.pop(), Err(Error::NoModule));
            assert!(stream.alloc(1).unwrap().is_empty());
        }
        let cut = compress(&data);
        let path = file(&directory, &gzip(&cut[..cut.len() - 1]));
        let stream = opened(&path, "pread", "gzip");
        stream.push(format).unwrap();
        assert_eq!(drain(&stream, 10_000).1, Some(Error::Truncated));
        let twice = gzip(&cut);
        let path = file(&directory, &twice[..twice.len() - 1]);
        let stream = opened(&path, "pread", "gzip");
        stream.push(format).unwrap();
        assert_eq!(drain(&stream, 10_000).1, Some(Error::Truncated), "of the one below");
    }
}

#[test]
fn names_of_no_module_and_of_no_such_module_are_told_apart_from_others() {
    let directory = directory();
    let path = file(&directory, &gzip(b"data"));
    let stream = open(&path, "pread");
    for name in ["", "pread", "mmap", "Gzip", "gzip "] {
        assert_eq!(stream.push(name), Err(Error::NoModule), "{name}");
    }
    assert_eq!(stream.pop(), Err(Error::NoModule));
    for name in ["gzip", "", "none"] {
        let opened = Options::new().read(true).module(name).open(&path);
        assert_eq!(opened.err(), Some(Error::NoModule), "it is of a descriptor: {name}");
    }
    let name = String::from("gzip");
    stream.push(&name).unwrap();
    assert_eq!(&*stream.alloc(10).unwrap(), b"data");
}

#[test]
fn a_stream_that_writes_is_flushed_before_and_writes_again_after() {
    let directory = directory();
    let path = directory.path().join("new");
    let stream = Options::new().read(true).write(true).create(true).open(&path).unwrap();
    let compressed = gzip(b"decompressed");
    let mut room = stream.alloc(compressed.len()).unwrap();
    assert_eq!(stream.push("gzip"), Err(Error::Outstanding));
    assert_eq!((stream.module(), stream.mode()), ("read-write", Mode::Write));
    room.copy_from_slice(&compressed);
    room.free().unwrap();
    stream.seek(SeekFrom::Start(0)).unwrap();
    stream.push("gzip").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), compressed);
    assert_eq!(stream.mode(), Mode::Read);
    assert_eq!(stream.alloc_in(Mode::Write, 1).err(), Some(Error::NotWritable));
    assert!((&stream).write(b"x").is_err());
    assert_eq!(&*stream.alloc(100).unwrap(), b"decompressed");
    stream.pop().unwrap();
    assert_eq!((stream.mode(), stream.position()), (Mode::Write, compressed.len() as u64));
    stream.alloc(4).unwrap().copy_from_slice(b"more");
    stream.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [&compressed[..], b"more"].concat());

    let writer = Stream::create(&path).unwrap();
    assert_eq!(writer.push("gzip"), Err(Error::NotReadable));
    let full = Options::new().read(true).write(true).module("pipe").open("/dev/full").unwrap();
    full.alloc(3).unwrap().free().unwrap();
    assert_eq!(full.push("gzip"), Err(Error::Os(Errno::NOSPC)));
    assert_eq!((full.module(), full.mode()), ("pipe", Mode::Write));
    assert_eq!(full.close(), Err(Error::Os(Errno::NOSPC)), "what was not written is kept");
}

#[test]
fn a_socket_that_was_read_and_written_hands_over_what_it_has_read() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    (&theirs).write_all(&[b"plain", &gzip(b"decompressed")[..]].concat()).unwrap();
    let stream = Options::new().take(OwnedFd::from(ours)).unwrap();
    stream.alloc(4).unwrap().copy_from_slice(b"send");
    assert_eq!(&*stream.alloc_in(Mode::Read, 5).unwrap(), b"plain");
    stream.push("gzip").unwrap();
    assert_eq!(&*stream.alloc_full(12).unwrap(), b"decompressed");
    let mut sent = [0; 4];
    (&theirs).read_exact(&mut sent).unwrap();
    assert_eq!(&sent, b"send");
    (&theirs).write_all(&gzip(b"again")).unwrap();
    assert_eq!(&*stream.alloc_full(5).unwrap(), b"again");
    drop(theirs);
    assert!(stream.alloc(1).unwrap().is_empty());
}

#[test]
fn an_error_below_is_told_by_the_call_that_met_it_and_takes_nothing_away() {
    let (from, to) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&from, rustix::fs::OFlags::NONBLOCK).unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    stream.push("gzip").unwrap();
    let again = Some(Error::Os(Errno::AGAIN));
    let data = mixed(3000);
    let mut got = Vec::new();
    for byte in gzip(&data) {
        assert_eq!(stream.alloc(1).err(), again);
        assert_eq!(stream.alloc_full(4000).err(), again);
        (&to).write_all(&[byte]).unwrap();
        if let Ok(region) = stream.alloc(5000) {
            got.extend_from_slice(&region);
        }
    }
    drop(to);
    let (rest, error) = drain(&stream, 1000);
    got.extend(rest);
    assert!(got == data && error.is_none());
}

#[test]
fn a_connection_that_was_reset_is_told_behind_what_came_before() {
    // With something that the other end did not read: who reads when nothing is left is told, once.
    let reset = || {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (&theirs).write_all(b"abcde").unwrap();
        (&ours).write_all(b"unread").unwrap();
        drop(theirs);
        let stream = Options::new().take(OwnedFd::from(ours)).unwrap();
        stream.set_mode(Mode::Read).unwrap();
        stream
    };
    let told = Some(Error::Os(Errno::CONNRESET));
    let stream = reset();
    assert_eq!(&*stream.alloc_full(10).unwrap(), b"abcde");
    assert_eq!(stream.alloc_full(10).err(), told);
    let stream = reset();
    assert_eq!(&*stream.alloc(2).unwrap(), b"ab");
    assert_eq!(stream.alloc_line().err(), told, "not the last line");
    assert_eq!(&*stream.alloc(10).unwrap(), b"cde");
    assert_eq!(stream.alloc(1).err(), told);
}

#[test]
fn a_file_that_becomes_shorter_below_is_an_error_and_no_signal() {
    let directory = directory();
    let mut data = vec![0; 4 << 20];
    fastrand::Rng::with_seed(1).fill(&mut data);
    let path = file(&directory, &gzip(&data));
    let stream = opened(&path, "mmap", "gzip");
    // Far enough that what comes next does not lie in the page that stays.
    assert_eq!(stream.alloc(100_000).unwrap().len(), 100_000);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let (_, error) = drain(&stream, 100_000);
    assert_eq!(error, Some(Error::Shrunk));
    assert_eq!(drain(&stream, 100_000).1, Some(Error::Shrunk));
}

#[test]
fn what_another_stream_freed_is_decompressed_before_it_is_in_the_file() {
    let directory = directory();
    let data = mixed(5000);
    let compressed = gzip(&data);
    let path = file(&directory, &vec![0; compressed.len()]);
    for lower in ["mmap", "pread"] {
        let writer = Options::new().write(true).open(&path).unwrap();
        let out = writer.alloc_at(SeekFrom::Start(1 << 20), 1).unwrap();
        writer.seek(SeekFrom::Start(0)).unwrap();
        writer.alloc(compressed.len()).unwrap().copy_from_slice(&compressed);
        let stream = opened(&path, lower, "gzip");
        assert!(std::fs::read(&path).unwrap().iter().all(|&b| b == 0), "a region before it is out");
        assert!(*stream.alloc(5000).unwrap() == *data, "{lower}");
        drop(out);
        drop((writer, stream));
        std::fs::write(&path, vec![0; compressed.len()]).unwrap();
    }
}

#[test]
fn a_pushed_module_is_shared_by_threads() {
    let directory = directory();
    let records: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).collect();
    let path = file(&directory, &gzip(&records));
    let stream = opened(&path, "pread", "gzip");
    let seen = std::thread::scope(|scope| {
        let read = || {
            let mut seen = Vec::new();
            loop {
                let record = stream.alloc(4).unwrap();
                if record.is_empty() {
                    return seen;
                }
                seen.push(u32::from_le_bytes(record[..].try_into().unwrap()));
            }
        };
        [(); 4].map(|()| scope.spawn(read)).map(|thread| thread.join().unwrap())
    });
    let mut seen = seen.concat();
    seen.sort_unstable();
    assert!(seen == (0..40_000).collect::<Vec<_>>());
}

/// What the program makes of the data, or None where it is not here.
fn by_program(program: &str, arguments: &[&str], data: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut to = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(data));
        let made = child.wait_with_output().unwrap();
        assert!(made.status.success());
        Some(made.stdout)
    })
}

#[test]
fn what_the_programs_made_is_read() {
    let directory = directory();
    let data = mixed(3_000_000);
    let cases: [(&str, &[&str]); 6] = [
        ("gzip", &["-1"]),
        ("gzip", &["-9"]),
        ("zstd", &["-1"]),
        ("zstd", &["-19", "--no-check"]),
        ("zstd", &["-3", "--long=27", "--stream-size=3000000"]),
        ("zstd", &["-B100000", "-T2"]),
    ];
    for (program, arguments) in cases {
        let Some(compressed) = by_program(program, arguments, &data) else {
            println!("skipped: no {program}(1) here");
            continue;
        };
        let path = file(&directory, &compressed);
        for lower in LOWER {
            let (got, error) = drain(&opened(&path, lower, program), 100_000);
            assert!(got == data && error.is_none(), "{program} {arguments:?} on {lower}: {error:?}");
        }
        let cut = file(&directory, &compressed[..compressed.len() / 2]);
        assert_eq!(drain(&opened(&cut, "pread", program), 100_000).1, Some(Error::Truncated));
    }
}

#[test]
fn a_stream_with_places_is_read_again_after_a_pop() {
    let directory = directory();
    let path = file(&directory, &gzip(b"data"));
    let mut stream = opened(&path, "pread", "gzip");
    for _ in 0..3 {
        assert_eq!(&*stream.alloc(2).unwrap(), b"da");
        stream.pop().unwrap();
        stream.rewind().unwrap();
        stream.push("gzip").unwrap();
    }
    assert_eq!(drain(&stream, 3), (b"data".to_vec(), None));
}

/// A frame of zstd with that head behind the magic number, and then blocks: last or not, kind, what is said of its length, body.
fn frame(head: &[u8], blocks: &[(bool, u32, u32, &[u8])]) -> Vec<u8> {
    let mut frame = [&0xfd2f_b528_u32.to_le_bytes(), head].concat();
    for &(last, kind, bytes, body) in blocks {
        frame.extend(&(u32::from(last) | kind << 1 | bytes << 3).to_le_bytes()[..3]);
        frame.extend(body);
    }
    frame
}

#[test]
fn frames_of_zstd_are_held_to_what_they_say_of_themselves() {
    let directory = directory();
    let read = |data: &[u8]| drain(&opened(&file(&directory, data), "pread", "zstd"), 1);
    let corrupt = |data: &[u8], what: &str| assert_eq!(read(data).1, Some(Error::Corrupt), "{what}");
    let raw: (bool, u32, u32, &[u8]) = (true, 0, 3, b"abc");
    // A window of 1 KiB, no length, no sum.
    let (plain, single) = ([0, 0], [0x20, 3]);
    assert_eq!(read(&frame(&plain, &[raw])), (b"abc".to_vec(), None));
    assert_eq!(read(&frame(&plain, &[(false, 0, 3, b"abc"), (true, 0, 0, b"")])), (b"abc".to_vec(), None));
    assert_eq!(read(&frame(&single, &[raw])), (b"abc".to_vec(), None));
    assert_eq!(read(&frame(&[0, 0], &[(true, 1, 4, b"z")])), (b"zzzz".to_vec(), None), "one byte, repeated");
    corrupt(&frame(&[0x20, 4], &[raw]), "fewer bytes than it says");
    corrupt(&frame(&[0x20, 2], &[raw]), "more");
    corrupt(&frame(&plain, &[(true, 3, 3, b"abc")]), "a kind of block that is none");
    corrupt(&frame(&plain, &[(true, 0, (128 << 10) + 1, &[0; (128 << 10) + 1])]), "a block that is too long");
    corrupt(&frame(&[8, 0], &[raw]), "a reserved bit");
    corrupt(&frame(&[1, 0, 7], &[raw]), "a dictionary that nobody has");
    corrupt(&[frame(&[4, 0], &[raw]), vec![0; 4]].concat(), "a wrong sum");
    // Frames to be skipped: between, at the end, of no length, and alone.
    let skipped =
        |bytes: u32| [&0x184d_2a5f_u32.to_le_bytes()[..], &bytes.to_le_bytes(), &vec![9; bytes as usize]].concat();
    let all = [skipped(0), frame(&plain, &[raw]), skipped(70_000), frame(&plain, &[raw]), skipped(3)].concat();
    assert_eq!(read(&all), (b"abcabc".to_vec(), None));
    assert_eq!(read(&skipped(5)), (vec![], None));
    assert_eq!(read(&all[..all.len() - 1]), (b"abcabc".to_vec(), Some(Error::Truncated)));
    assert_eq!(read(&skipped(u32::MAX >> 12)[..100]).1, Some(Error::Truncated));
}

#[test]
fn a_window_is_believed_up_to_a_bound_and_memory_only_as_data_come() {
    let directory = directory();
    let raw: (bool, u32, u32, &[u8]) = (true, 0, 3, b"abc");
    let read = |head: &[u8]| drain(&opened(&file(&directory, &frame(head, &[raw])), "pread", "zstd"), 1);
    // 2^(10 + n): RFC 8878, 3.1.1.1.2.
    assert_eq!(read(&[0, 17 << 3]), (b"abc".to_vec(), None), "128 MiB");
    for head in [&[0, 17 << 3 | 1][..], &[0, 18 << 3], &[0, 31 << 3 | 7]] {
        assert_eq!(read(head), (vec![], Some(Error::WindowTooLong)), "{head:?}");
    }
    let long = [&[0xe0][..], &u64::MAX.to_le_bytes()].concat();
    assert_eq!(read(&long).1, Some(Error::WindowTooLong), "all of 2^64 bytes at once");
    // Much of little, through little memory.
    let bomb = frame(&[0, 0], &vec![(false, 1, 1024, &b"z"[..]); 100_000]);
    let stream = opened(&file(&directory, &bomb), "pread", "zstd");
    for _ in 0..1000 {
        assert!(*stream.alloc(100_000).unwrap() == [b'z'; 100_000]);
    }
}

#[test]
fn what_this_process_freed_is_seen_through_a_module_whose_bytes_are_others_than_the_files() {
    for (module, compress) in FORMATS {
        let directory = directory();
        let (first, second) = (compress(&[b'a'; 1_000_000]), compress(b"another"));
        let path = file(&directory, &first);
        let writer = Options::new().read(true).write(true).open(&path).unwrap();
        let reader = Stream::open(&path).unwrap();
        reader.push(module).unwrap();
        assert_eq!(reader.alloc_full(1_000_000).unwrap().len(), 1_000_000);
        // Behind one that is out, so it is not in the file yet.
        let mut before = writer.alloc_at_in(Mode::Write, SeekFrom::Start(0), 1).unwrap();
        before.copy_from_slice(&first[..1]);
        let mut freed = writer.alloc_at_in(Mode::Write, SeekFrom::Start(first.len() as u64), second.len()).unwrap();
        freed.copy_from_slice(&second);
        freed.free().unwrap();
        assert_eq!(&*reader.alloc_full(100).unwrap(), b"another", "{module}");
    }
}

#[test]
fn what_is_put_back_is_forgotten_by_push_and_pop_and_keeps_nobody_from_what_the_file_has_then() {
    for (module, compress) in FORMATS {
        let directory = directory();
        let path = file(&directory, &[&compress(&[b'a'; 1_000_000])[..], &[b'p'; 5000]].concat());
        let stream = Options::new().read(true).write(true).open(&path).unwrap();
        stream.set_mode(Mode::Read).unwrap();
        stream.push(module).unwrap();
        assert_eq!(stream.alloc_full(999_999).unwrap().len(), 999_999);
        stream.unread(b'a').unwrap();
        assert_eq!(stream.alloc_full(2).unwrap().len(), 2);
        stream.pop().unwrap();
        assert_eq!(&*stream.alloc(1).unwrap(), b"p", "{module}");
        let other = Options::new().write(true).open(&path).unwrap();
        let mut written = other.alloc_at_in(Mode::Write, SeekFrom::Start(stream.position()), 10).unwrap();
        written.fill(b'w');
        written.free().unwrap();
        other.flush().unwrap();
        assert_eq!(&*stream.alloc(10).unwrap(), b"wwwwwwwwww", "{module}");
    }
}

#[test]
fn a_push_that_fails_keeps_what_was_put_back() {
    let (module, compress) = FORMATS[0];
    let directory = directory();
    let path = file(&directory, &compress(b"text"));
    let stream = Options::new().read(true).write(true).open(&path).unwrap();
    let region = stream.alloc_at_in(Mode::Write, SeekFrom::Start(100), 1).unwrap();
    stream.seek(SeekFrom::Start(2)).unwrap();
    stream.set_mode(Mode::Read).unwrap();
    stream.unread(b'!').unwrap();
    stream.unread(b'?').unwrap();
    assert_eq!(stream.push(module), Err(Error::Outstanding));
    assert_eq!((stream.position(), stream.mode(), stream.module()), (0, Mode::Read, "read-write"));
    assert_eq!(&*stream.alloc(3).unwrap(), [b'?', b'!', compress(b"text")[2]]);
    drop(region);
    // One that does not fail forgets it, and writes what was freed.
    stream.seek(SeekFrom::Start(1)).unwrap();
    stream.unread(b'!').unwrap();
    stream.push(module).unwrap();
    assert_eq!(&*stream.alloc(4).unwrap(), b"text");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 101);
}
