//! What streams promise of files of 9P servers.

use std::io::{BufRead, Read, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use ninefold::blocking::{Client, File};
use ninefold::client::{Follow, Mode};
use ninefold::proto::dialect::Version;
use ninefold::server::{FileServer, Server};
use ninefold::transport::{Address, Listener};
use ninefold::tree::hostfs::HostFs;
use ninefold_stream::{Error, Options, Raw, Region, Stream, Wanted};
use rustix::io::Errno;
use tokio::runtime::Runtime;

/// Dialects in which bytes come in messages, and those in which they have connections of their own.
const IN_BAND: [&str; 3] = ["9P2000", "9P2000.u", "9P2000.L"];
const BESIDE: [&str; 3] = ["9P2000.s", "9P2000.u.s", "9P2000.L.n1"];

/// A region.
const PIECE: usize = 64 << 10;

/// A server of one directory, in threads of its own. Dropped, its connections break.
struct Served {
    runtime: Option<Runtime>,
    server: Arc<Server>,
    address: Address,
    directory: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let directory = tempfile::tempdir().unwrap();
        let tree: Arc<dyn FileServer> = Arc::new(HostFs::open(directory.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = Server::builder().export("", tree, false).build();
        let listener = runtime.block_on(Listener::bind(&"9p://127.0.0.1:0".parse().unwrap())).unwrap();
        let address = listener.local_address().unwrap();
        let serving = server.clone();
        runtime.spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(serving.serve(stream, peer));
            }
        });
        Served { runtime: Some(runtime), server, address, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn client(&self, dialect: &str) -> Client {
        let address = Address { dialect: Version::parse(dialect.as_bytes()), ..self.address.clone() };
        Client::connect(&address, ninefold::client::Options::default()).unwrap()
    }

    fn file(&self, dialect: &str, name: &str, mode: Mode) -> File {
        self.client(dialect).walk(name, Follow::All).unwrap().open(mode).unwrap()
    }

    /// A stream that reads the file `f`, with the data.
    fn of(&self, dialect: &str, data: &[u8]) -> Stream {
        std::fs::write(self.path("f"), data).unwrap();
        Options::new().take_remote(self.file(dialect, "f", Mode::READ)).unwrap()
    }

    /// Breaks its connections: it answers nothing behind this.
    fn kill(mut self) -> tempfile::TempDir {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(60));
        }
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Bytes of which each stretch is unlike the others, with lines.
fn content(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    (0..length).map(|_| random.u8(..)).collect()
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
fn a_remote_file_is_read_as_it_is_by_regions_of_any_length() {
    for dialect in IN_BAND.iter().chain(&BESIDE) {
        for length in [0, 1, 4096, 100_000, 3_000_001] {
            let served = Served::new();
            let data = content(length);
            for bytes in [1000, 4096, PIECE, 100_001, 1 << 20, 8 << 20] {
                let stream = served.of(dialect, &data);
                let (got, error) = drain(&stream, bytes);
                assert_eq!(error, None, "{dialect} {length} {bytes}");
                assert!(got == data, "{dialect} {length} {bytes}");
                // The end is told again.
                assert!(stream.alloc(bytes).unwrap().is_empty());
                assert_eq!(stream.position(), length as u64);
                assert_eq!(stream.length().unwrap(), length as u64);
                stream.close().unwrap();
            }
        }
    }
}

#[test]
fn a_module_is_chosen_by_what_the_server_has_or_by_its_name() {
    let served = Served::new();
    for (dialects, chosen) in [(IN_BAND, "ninep"), (BESIDE, "ninep-stream")] {
        for dialect in dialects {
            let stream = served.of(dialect, &content(3_000_000));
            assert_eq!(stream.module(), chosen, "{dialect}");
            drop(drain(&stream, PIECE));
        }
    }
    let opened = served.server.stream_counts().opened;
    assert!(opened >= 3, "{opened}");
    let data = content(3_000_000);
    for dialect in BESIDE {
        drop(served.of(dialect, &data));
        let named = |name: &str| Options::new().module(name).take_remote(served.file(dialect, "f", Mode::READ));
        let stream = named("ninep").unwrap();
        assert_eq!(stream.module(), "ninep");
        assert!(drain(&stream, PIECE).0 == data);
        assert_eq!(named("pread").err(), Some(Error::NoModule));
    }
    assert_eq!(served.server.stream_counts().opened, opened, "in messages");
    std::fs::create_dir(served.path("d")).unwrap();
    let directory = served.file("9P2000.L", "d", Mode::READ);
    assert_eq!(Options::new().take_remote(directory).err(), Some(Error::Directory));
}

#[test]
fn nothing_is_copied_of_a_data_connection_where_regions_have_one_length() {
    let data = content(20_000_000);
    for dialect in BESIDE {
        let served = Served::new();
        for bytes in [4096, PIECE, 100_000, 256 << 10] {
            let stream = served.of(dialect, &data);
            assert!(drain(&stream, bytes) == (data.clone(), None));
            let counts = stream.remote_counts().unwrap();
            assert_eq!((counts.received, counts.copied), (data.len() as u64, 0), "{dialect} {bytes}");
        }
    }
}

/// Of regions of which each message holds several, all being out, those were copied that lie next to neither neighbour; and no two one after the other: between them is a
/// message. The last message may hold one alone.
#[track_caller]
fn assert_apart(regions: &[Region<'_>], copied: usize) {
    let next: Vec<bool> = regions.windows(2).map(|two| two[0].as_ptr_range().end == two[1].as_ptr()).collect();
    let touches = |n: usize| (n > 0 && next[n - 1]) || next.get(n) == Some(&true);
    let is_apart = |n: usize| !touches(n);
    let last = regions.len() - 1;
    let apart: Vec<usize> = (0..last).filter(|&n| is_apart(n)).collect();
    assert!(apart.windows(2).all(|two| two[0] + 1 < two[1]), "{apart:?}");
    let sum: usize = apart.iter().map(|&n| regions[n].len()).sum();
    assert!(copied == sum || (is_apart(last) && copied == sum + regions[last].len()), "{copied}, {sum} of {apart:?}");
}

#[test]
fn of_messages_only_regions_that_lie_in_two_are_copied_and_what_is_at_hand_never_is() {
    let data = content(20_000_000);
    for dialect in IN_BAND {
        let served = Served::new();
        // In equal pieces none does.
        for bytes in [4096, 60_000, PIECE] {
            let stream = served.of(dialect, &data);
            assert!(drain(&stream, bytes) == (data.clone(), None));
            let counts = stream.remote_counts().unwrap();
            assert_eq!((counts.received, counts.copied), (data.len() as u64, 0), "{dialect} {bytes}");
        }
        // In others some do: at each place where two messages meet one region at most. All messages but the last hold `PIECE` bytes, or more where the
        // path is fast: they end in steps of the first region's length, which here is no step.
        let meet = (data.len() - 1) / PIECE;
        for most in [PIECE / 8, PIECE] {
            let stream = served.of(dialect, &data);
            let mut random = fastrand::Rng::with_seed(1);
            let (mut regions, mut at) = (Vec::new(), 0);
            while at < data.len() {
                let asked = if at == 0 { 1 } else { random.usize(1..most) };
                let region = stream.alloc(asked).unwrap();
                assert!(data[at..].starts_with(&region));
                at += region.len();
                regions.push(region);
            }
            let copied = stream.remote_counts().unwrap().copied as usize;
            let mut lengths: Vec<_> = regions.iter().map(|region| region.len()).collect();
            lengths.sort_unstable();
            let bound: usize = lengths.iter().rev().take(meet).sum();
            assert!(copied > 0 && copied <= bound, "{dialect} {most} {bound} {copied}");
            if most < PIECE {
                assert_apart(&regions, copied);
            }
        }
        // Who takes what there is has it where it arrived.
        let mut stream = served.of(dialect, &data);
        let mut got = Vec::new();
        loop {
            let there = stream.fill_buf().unwrap();
            if there.is_empty() {
                break;
            }
            got.extend_from_slice(there);
            let bytes = there.len();
            stream.consume(bytes);
        }
        assert!(got == data);
        assert_eq!(stream.remote_counts().unwrap().copied, 0, "{dialect}");
    }
}

#[test]
fn lines_bytes_and_reads_are_mixed_with_regions() {
    let text: Vec<u8> = (0..200_000).flat_map(|n| format!("{n} {}\n", "x".repeat(n % 50)).into_bytes()).collect();
    for dialect in ["9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let mut stream = served.of(dialect, &text);
        let mut random = fastrand::Rng::with_seed(1);
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            match random.u8(..5) {
                0 => {
                    let line = stream.alloc_line().unwrap();
                    assert!(line.ends_with(b"\n") && rest.starts_with(&line), "{dialect} {at}");
                    assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
                    at += line.len();
                }
                1 => {
                    let bytes = random.usize(1..300_000);
                    let region = stream.alloc(bytes).unwrap();
                    assert!(region[..] == rest[..bytes.min(rest.len())], "{dialect} {at}");
                    at += region.len();
                }
                2 => {
                    let mut buffer = vec![0; random.usize(1..100_000)];
                    let read = stream.read(&mut buffer).unwrap();
                    assert!(read > 0 && buffer[..read] == rest[..read], "{dialect} {at}");
                    at += read;
                }
                3 => {
                    stream.unread(b'!').ok();
                    if at > 0 {
                        assert_eq!(stream.alloc(1).unwrap()[..], b"!"[..]);
                    }
                }
                _ => {
                    let region = stream.alloc_aligned(random.usize(1..10_000), 4096).unwrap();
                    assert!(rest.starts_with(&region), "{dialect} {at}");
                    assert_eq!(region.as_ptr().addr() % 4096, 0);
                    at += region.len();
                }
            }
            assert_eq!(stream.position(), at as u64);
        }
        assert!(stream.alloc_line().unwrap().is_empty());
    }
}

#[test]
fn places_are_read_in_any_order() {
    let data = content(3_000_000);
    for dialect in ["9P2000", "9P2000.L", "9P2000.s", "9P2000.L.n1"] {
        for random_access in [false, true] {
            let served = Served::new();
            drop(served.of(dialect, &data));
            let file = served.file(dialect, "f", Mode::READ);
            let stream = Options::new().random(random_access).take_remote(file).unwrap();
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..300 {
                let at = random.usize(..data.len() + 1000);
                // Some of them go on where the last one ended.
                let (at, bytes) = match random.u8(..3) {
                    0 => (stream.position() as usize, random.usize(1..PIECE)),
                    1 => (at, random.usize(1..5000)),
                    _ => (at, random.usize(1..500_000)),
                };
                let region = stream.alloc_at(SeekFrom::Start(at as u64), bytes).unwrap();
                let expected = &data[at.min(data.len())..(at + bytes).min(data.len())];
                assert!(region[..] == *expected, "{dialect} {at} {bytes}");
            }
            let region = stream.alloc_at(SeekFrom::End(-10), 100).unwrap();
            assert!(region[..] == data[data.len() - 10..], "{dialect}");
        }
    }
}

#[test]
fn a_region_stays_whatever_is_read_freed_or_ended_besides() {
    let data = content(5_000_000);
    for dialect in ["9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = served.of(dialect, &data);
        let mut regions = Vec::new();
        let mut at = 0;
        loop {
            let region = stream.alloc(70_001).unwrap();
            if region.is_empty() {
                break;
            }
            regions.push((at, region));
            at += 70_001;
        }
        let mut random = fastrand::Rng::with_seed(3);
        random.shuffle(&mut regions);
        let kept = regions.split_off(regions.len() / 2);
        for (_, region) in regions {
            region.free().unwrap();
        }
        // Another stream comes and goes, and so does the server.
        let other = served.of(dialect, &data);
        assert!(drain(&other, PIECE).0 == data);
        other.close().unwrap();
        drop(served.kill());
        for (at, region) in kept {
            assert!(region[..] == data[at..at + region.len()], "{dialect} {at}");
        }
    }
}

#[test]
fn a_region_that_is_written_to_changes_nothing_and_who_goes_back_reads_again() {
    let data = content(2_000_000);
    for dialect in ["9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = served.of(dialect, &data);
        let mut region = stream.alloc(PIECE).unwrap();
        region.fill(0);
        let again = stream.alloc_at(SeekFrom::Start(0), PIECE).unwrap();
        assert!(again[..] == data[..PIECE]);
        drop((region, again));
        drop(stream);
        // By addresses the bytes of a region are its own.
        let raw = Raw::new(served.of(dialect, &data));
        let first = raw.alloc(Wanted::bytes(PIECE)).unwrap();
        let to = Some(SeekFrom::Start(0));
        let again = raw.alloc(Wanted { to, ..Wanted::bytes(PIECE) }).unwrap();
        let third = raw.alloc(Wanted { to: Some(SeekFrom::Start(100)), ..Wanted::bytes(PIECE) }).unwrap();
        let places = [first, again, third].map(|region| region.at.addr());
        for (n, place) in places.iter().enumerate() {
            assert!(places[..n].iter().all(|other| other.abs_diff(*place) >= PIECE), "{dialect} {places:?}");
        }
        for region in [third, first, again] {
            raw.free(region.at).unwrap();
        }
        raw.close().map_err(|(e, _)| e).unwrap();
    }
}

#[test]
fn a_server_that_dies_is_told_and_what_came_before_it_is_had() {
    // More than all that is on the way.
    let data = content(64 << 20);
    for dialect in ["9P2000", "9P2000.L", "9P2000.s", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = served.of(dialect, &data);
        let region = stream.alloc(PIECE).unwrap();
        drop(served.kill());
        let (got, error) = drain(&stream, PIECE);
        assert!(region[..] == data[..PIECE] && data[PIECE..].starts_with(&got), "{dialect}");
        assert!(got.len() < data.len() - PIECE, "{dialect}");
        let error = error.unwrap_or_else(|| panic!("{dialect}: {} bytes look whole", got.len()));
        assert!(matches!(error, Error::Os(_)), "{dialect} {error}");
        // Who asks for less gets what there is, and then the same error for ever.
        let (rest, again) = drain(&stream, 1);
        assert!(rest.len() < PIECE && data[PIECE + got.len()..].starts_with(&rest), "{dialect}");
        assert_eq!(again, Some(error), "{dialect}");
        assert_eq!(stream.alloc(PIECE).err(), Some(error), "{dialect}");
    }
}

#[test]
fn a_file_that_is_cut_or_rewritten_while_it_is_read_never_looks_whole() {
    let data = content(64 << 20);
    for dialect in ["9P2000", "9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = served.of(dialect, &data);
        drop(stream.alloc(PIECE).unwrap());
        std::fs::File::options().write(true).open(served.path("f")).unwrap().set_len(1 << 20).unwrap();
        let (got, error) = drain(&stream, PIECE);
        assert!(error.is_some(), "{dialect}: {} bytes look whole", got.len());
        assert_eq!(stream.alloc(PIECE).err(), error, "{dialect}");
    }
    // That its bytes are others only a server of .n1 tells.
    let served = Served::new();
    let stream = served.of("9P2000.L.n1", &data);
    drop(stream.alloc(PIECE).unwrap());
    std::fs::File::options().write(true).open(served.path("f")).unwrap().write_all_at(b"changed", 1000).unwrap();
    assert_eq!(drain(&stream, PIECE).1, Some(Error::Os(Errno::STALE)));
}

#[test]
fn a_file_that_grows_is_read_on_behind_its_end() {
    for dialect in ["9P2000.L", "9P2000.s", "9P2000.L.n1"] {
        let served = Served::new();
        let data = content(1_000_000);
        let stream = served.of(dialect, &data);
        assert!(drain(&stream, PIECE) == (data.clone(), None));
        let file = std::fs::File::options().write(true).open(served.path("f")).unwrap();
        file.write_all_at(&data[..300_000], data.len() as u64).unwrap();
        assert!(drain(&stream, PIECE) == (data[..300_000].to_vec(), None), "{dialect}");
    }
}

#[test]
fn the_end_is_told_once_without_a_request_of_its_own() {
    let data = content(1_000_000);
    for dialect in ["9P2000", "9P2000.L", "9P2000.s", "9P2000.L.n1"] {
        let served = Served::new();
        std::fs::write(served.path("f"), &data).unwrap();
        let client = served.client(dialect);
        let file = client.walk("f", Follow::All).unwrap().open(Mode::READ).unwrap();
        let stream = Options::new().take_remote(file).unwrap();
        // The last region is a short one.
        let whole = stream.alloc(data.len() + 1).unwrap();
        assert!(whole[..] == data);
        let reads = || client.stats().messages.get("Tread").copied().unwrap_or(0);
        let before = reads();
        assert!(stream.alloc(1).unwrap().is_empty());
        assert_eq!(reads(), before, "{dialect}");
        // Who asks once more asks the server.
        assert!(stream.alloc(1).unwrap().is_empty());
        assert_eq!(reads(), before + 1, "{dialect}");
    }
}

#[test]
fn threads_share_a_remote_stream_and_each_byte_is_one_regions() {
    let data: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    for dialect in ["9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = &served.of(dialect, &data);
        let take = || {
            let mut taken = Vec::new();
            loop {
                let region = stream.alloc(4096).unwrap();
                if region.is_empty() {
                    return taken;
                }
                let first = u32::from_le_bytes(region[..4].try_into().unwrap()) as usize * 4;
                assert!(region[..] == data[first..first + region.len()]);
                taken.push(first);
            }
        };
        let mut all = std::thread::scope(|scope| {
            let other = scope.spawn(take);
            let mut all = take();
            all.extend(other.join().unwrap());
            all
        });
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(n, &first)| first == n * 4096), "{dialect}");
        assert_eq!(all.len(), data.len().div_ceil(4096));
    }
}

#[test]
fn modules_are_pushed_on_a_remote_file() {
    let data = content(3_000_000);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &data).unwrap();
    let packed = encoder.finish().unwrap();
    for dialect in ["9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        let stream = served.of(dialect, &packed);
        stream.push("gzip").unwrap();
        assert!(drain(&stream, PIECE) == (data.clone(), None), "{dialect}");
        stream.pop().unwrap();
        assert!(stream.alloc(1).unwrap().is_empty());
        let stream = served.of(dialect, &data);
        stream.push("prefetch").unwrap();
        assert!(drain(&stream, PIECE) == (data.clone(), None), "{dialect}");
        let region = stream.alloc_at(SeekFrom::Start(1000), 1000).unwrap();
        assert!(region[..] == data[1000..2000]);
    }
}

/// The dialects that say what they do in tests of writing.
const SOME: [&str; 4] = ["9P2000", "9P2000.L", "9P2000.s", "9P2000.L.n1"];

/// A stream on a file that is made, or emptied.
fn written(served: &Served, dialect: &str, mode: Mode) -> Stream {
    std::fs::write(served.path("w"), b"").unwrap();
    Options::new().take_remote(served.file(dialect, "w", mode)).unwrap()
}

#[test]
fn what_is_freed_is_in_the_file_at_the_server_when_it_is_flushed_in_the_order_of_allocation() {
    let data = content(3_000_000);
    for dialect in SOME {
        let served = Served::new();
        let stream = written(&served, dialect, Mode::WRITE);
        let mut random = fastrand::Rng::with_seed(5);
        let mut at = 0;
        let mut kept = Vec::new();
        while at < data.len() {
            let bytes = random.usize(1..100_000).min(data.len() - at);
            let mut region = stream.alloc(bytes).unwrap();
            region.copy_from_slice(&data[at..at + bytes]);
            at += bytes;
            kept.push(region);
            while kept.len() > 3 || at == data.len() && !kept.is_empty() {
                kept.swap_remove(random.usize(..kept.len())).free().unwrap();
            }
        }
        drop(kept);
        stream.flush().unwrap();
        assert!(std::fs::read(served.path("w")).unwrap() == data, "{dialect}");
        // Elsewhere, and behind the end.
        stream.alloc_at(SeekFrom::Start(10), 4).unwrap().copy_from_slice(b"here");
        stream.alloc_at(SeekFrom::Start(data.len() as u64 + 5), 1).unwrap().copy_from_slice(b"!");
        stream.close().unwrap();
        let now = std::fs::read(served.path("w")).unwrap();
        assert_eq!((&now[10..14], now.len(), now[data.len() + 5]), (&b"here"[..], data.len() + 6, b'!'));
        assert!(now[14..data.len()] == data[14..]);
    }
}

#[test]
fn one_stream_reads_and_writes_a_remote_file() {
    for dialect in SOME {
        let served = Served::new();
        let data = content(500_000);
        std::fs::write(served.path("w"), &data).unwrap();
        let stream = Options::new().take_remote(served.file(dialect, "w", Mode::READ_WRITE)).unwrap();
        let mut model = data;
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let at = random.usize(..model.len());
            let bytes = random.usize(1..20_000).min(model.len() - at);
            let to = SeekFrom::Start(at as u64);
            if random.bool() {
                let mut region = stream.alloc_at_in(ninefold_stream::Mode::Write, to, bytes).unwrap();
                region.iter_mut().for_each(|byte| *byte = random.u8(..));
                model[at..at + bytes].copy_from_slice(&region);
                region.free().unwrap();
            } else {
                let region = stream.alloc_at_in(ninefold_stream::Mode::Read, to, bytes).unwrap();
                assert!(region[..] == model[at..at + bytes], "{dialect} {at} {bytes}");
            }
        }
        stream.close().unwrap();
        assert!(std::fs::read(served.path("w")).unwrap() == model, "{dialect}");
    }
}

#[test]
fn what_one_stream_freed_another_of_this_process_sees_where_qids_tell_files_apart() {
    let served = Served::new();
    std::fs::write(served.path("w"), b"before").unwrap();
    let client = served.client("9P2000.L.n1");
    let open = |mode| Options::new().take_remote(client.walk("w", Follow::All).unwrap().open(mode).unwrap()).unwrap();
    let (reader, writer) = (open(Mode::READ), open(Mode::WRITE));
    assert_eq!(reader.alloc(2).unwrap()[..], b"be"[..]);
    let first = writer.alloc(1).unwrap();
    let mut region = writer.alloc_at(SeekFrom::Start(3), 5).unwrap();
    region.copy_from_slice(b"HIND!");
    region.free().unwrap();
    // Behind one that is out it is not at the server, and is seen all the same.
    assert_eq!(std::fs::read(served.path("w")).unwrap(), b"before");
    assert_eq!(reader.alloc(100).unwrap()[..], b"fHIND!"[..]);
    assert_eq!(reader.length().unwrap(), 8);
    assert_eq!(writer.flush(), Err(Error::Outstanding));
    drop(first);
    writer.flush().unwrap();
    assert_eq!(std::fs::read(served.path("w")).unwrap()[1..], b"efHIND!"[..]);
}

#[test]
fn what_is_appended_goes_behind_what_others_append() {
    for dialect in ["9P2000.u", "9P2000.L", "9P2000.L.n1"] {
        let served = Served::new();
        std::fs::write(served.path("w"), b"0").unwrap();
        let stream = Options::new().take_remote(served.file(dialect, "w", Mode::APPEND)).unwrap();
        for (ours, theirs) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
            stream.alloc(1).unwrap().copy_from_slice(ours);
            stream.flush().unwrap();
            let mut file = std::fs::File::options().append(true).open(served.path("w")).unwrap();
            std::io::Write::write_all(&mut file, theirs).unwrap();
        }
        stream.close().unwrap();
        assert_eq!(std::fs::read(served.path("w")).unwrap(), b"0a1b2c3", "{dialect}");
    }
}

#[test]
fn what_a_dead_server_did_not_take_is_told_by_flush_again_and_by_close() {
    for dialect in SOME {
        let served = Served::new();
        let stream = written(&served, dialect, Mode::WRITE);
        let put = || stream.alloc(PIECE).and_then(ninefold_stream::Region::free);
        for _ in 0..100 {
            put().unwrap();
        }
        stream.flush().unwrap();
        for _ in 0..100 {
            put().unwrap();
        }
        let before = served.path("w");
        assert!(std::fs::metadata(&before).unwrap().len() >= 100 * PIECE as u64);
        drop(served.kill());
        let mut told = None;
        for _ in 0..1000 {
            told = put().err();
            if told.is_some() {
                break;
            }
        }
        let told = told.or(stream.flush().err());
        assert!(matches!(told, Some(Error::Os(_))), "{dialect}: nothing was told");
        assert!(matches!(stream.flush(), Err(Error::Os(_))), "{dialect}");
        assert!(matches!(stream.close(), Err(Error::Os(_))), "{dialect}");
    }
}

#[test]
fn a_remote_stream_does_only_what_its_file_was_opened_for() {
    let served = Served::new();
    let stream = served.of("9P2000.L", b"content");
    assert_eq!(stream.alloc_in(ninefold_stream::Mode::Write, 1).err(), Some(Error::NotWritable));
    let stream = written(&served, "9P2000.L", Mode::WRITE);
    assert_eq!(stream.alloc_in(ninefold_stream::Mode::Read, 1).err(), Some(Error::NotReadable));
    stream.alloc(1).unwrap().free().unwrap();
    stream.sync().unwrap();
    assert_eq!(std::fs::metadata(served.path("w")).unwrap().len(), 1);
    stream.close().unwrap();
}

#[test]
fn within_a_runtime_a_call_fails_and_does_nothing() {
    let served = Served::new();
    let stream = served.of("9P2000.L", b"content");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let within = runtime.block_on(async { stream.alloc(1).map(|region| region.len()) });
    assert_eq!(within, Err(Error::Os(Errno::DEADLK)));
    drop(runtime);
    assert_eq!(stream.alloc(7).unwrap()[..], b"content"[..]);
}

#[test]
fn within_a_runtime_nothing_of_what_is_written_is_lost_or_taken_for_written() {
    let served = Served::new();
    for mode in [Mode::WRITE, Mode::APPEND] {
        let stream = written(&served, "9P2000.L.n1", mode);
        let mut region = stream.alloc_in(ninefold_stream::Mode::Write, 3).unwrap();
        region.copy_from_slice(b"one");
        region.free().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { stream.flush() }), Err(Error::Os(Errno::DEADLK)));
        drop(runtime);
        stream.close().unwrap();
        assert_eq!(std::fs::read(served.path("w")).unwrap(), b"one", "{mode:?}");
        std::fs::remove_file(served.path("w")).unwrap();
    }
}

#[test]
fn what_was_written_to_a_region_and_given_back_is_read_again() {
    let served = Served::new();
    let content: Vec<u8> = (0..200).collect();
    let raw = Raw::new(served.of("9P2000.L", &content));
    let region = raw.alloc(Wanted::bytes(100)).unwrap();
    // SAFETY: the region is lent, and nobody else looks at it.
    unsafe { std::ptr::write_bytes(region.at.add(50), b'X', 50) };
    let region = raw.resize(region.at, 50, None, true).unwrap();
    raw.free(region.at).unwrap();
    let next = raw.alloc(Wanted::bytes(50)).unwrap();
    // SAFETY: as many bytes are lent.
    assert_eq!(unsafe { std::slice::from_raw_parts(next.at, next.bytes) }, &content[50..50 + next.bytes]);
    raw.free(next.at).unwrap();
}
