//! Random operations by every interface, on two streams of one file at once, beside a plain model: the bytes of the file, changed as
//! each written region is freed. And on one stream of modules that are pushed and popped, beside the data of each layer.
//!
//! `NINEFOLD_STREAM_OPERATIONS` is how many, 20,000 when not given; `NINEFOLD_STREAM_SEED` repeats a run that failed.

use std::io::{BufRead, Read, Seek, SeekFrom, Write};

use ninefold_stream::{Calibration, Error, Mode, Options, Region, Stream};

/// Longest file, in bytes: short enough that operations meet each other, longer than a small buffer.
const MOST: u64 = 40_000;

/// Modules for files that are read, and formats that are decompressed.
const LOWER: [&str; 4] = ["mmap", "pread", "pread-random", "pipe"];
const FORMATS: [&str; 2] = ["gzip", "zstd"];

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// A region that is out, and what is known of it.
struct Out<'s> {
    region: Region<'s>,
    at: u64,
    /// The stream it is of.
    stream: usize,
    /// Reading: what it showed at first. Writing: what the file gets.
    bytes: Vec<u8>,
}

struct Model {
    file: Vec<u8>,
    /// The offset of each stream.
    at: [u64; 2],
}

impl Model {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (at, end) = (at as usize, at as usize + bytes.len());
        if self.file.len() < end {
            self.file.resize(end, 0);
        }
        self.file[at..end].copy_from_slice(bytes);
    }

    fn read(&self, at: u64, most: usize) -> &[u8] {
        let begin = (at as usize).min(self.file.len());
        &self.file[begin..(begin + most).min(self.file.len())]
    }
}

/// Plays `operations` on a file of its own.
fn play(seed: u64, operations: u64, modules: [&'static str; 2]) {
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    // Little memory, so that every operation comes to the end of some.
    let calibration =
        Calibration { map_from: 1, first: 4096, read: 8192, write: 16 << 10, direct: 4096, ..Calibration::default() };
    let open = |module: &'static str| {
        Options::new().read(true).write(true).create(true).module(module).calibration(calibration).open(&path).unwrap()
    };
    let mut streams: [Stream; 2] = modules.map(open);
    let mut model = Model { file: Vec::new(), at: [0, 0] };
    let mut left = operations;
    while left > 0 {
        // A round of regions, which may stay out, and then one by `std::io`, whose BufRead needs the stream for itself.
        let round = left.min(random.u64(1..40));
        left -= round;
        regions(&mut random, &streams, &mut model, round);
        let s = random.usize(0..2);
        by_std(&mut random, &mut streams[s], &mut model, s);
    }
    for stream in streams {
        stream.close().unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == model.file, "the file in the end");
}

fn regions(random: &mut fastrand::Rng, streams: &[Stream; 2], model: &mut Model, operations: u64) {
    let mut out: Vec<Out<'_>> = Vec::new();
    // Written since no written region was out. Where two overlap, the order of allocation counts and not that in which they are
    // freed, so the model would have to know what is held back.
    let mut written: Vec<(u64, u64)> = Vec::new();
    for _ in 0..operations {
        let s = random.usize(0..2);
        let stream = &streams[s];
        match random.u8(0..10) {
            0..=2 => {
                let bytes = if random.u8(0..8) == 0 { random.usize(1..9000) } else { random.usize(1..90) };
                let write = random.bool();
                let mode = if write { Mode::Write } else { Mode::Read };
                let to = random.bool().then(|| random.u64(0..MOST));
                let at = to.unwrap_or(model.at[s]);
                if !out.iter().any(|o| o.region.mode() == Mode::Write) {
                    written.clear();
                }
                let range = (at, at + bytes as u64);
                let overlaps = written.iter().any(|w| w.0 < range.1 && range.0 < w.1);
                if at > MOST || (write && overlaps) {
                    continue;
                }
                if write {
                    written.push(range);
                }
                let mut region = match to {
                    Some(to) => stream.alloc_at_in(mode, SeekFrom::Start(to), bytes).unwrap(),
                    None => stream.alloc_in(mode, bytes).unwrap(),
                };
                let bytes = if write {
                    assert_eq!(region.len(), bytes);
                    let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
                    region.copy_from_slice(&data);
                    data
                } else {
                    let expected = model.read(at, bytes).to_vec();
                    assert!(*region == *expected, "{bytes} bytes at {at}: {} of {}", region.len(), expected.len());
                    expected
                };
                model.at[s] = at + bytes.len() as u64;
                out.push(Out { region, at, stream: s, bytes });
            }
            3 => {
                // The latest one of the stream that was allocated, if it is out still and nothing happened to the offset.
                let Some(last) = out.iter_mut().rfind(|o| o.stream == s) else { continue };
                let latest = last.at + last.bytes.len() as u64 == model.at[s];
                if last.region.mode() != Mode::Write || !latest || last.bytes.is_empty() {
                    continue;
                }
                let bytes = random.usize(1..200);
                let range = (last.at, last.at + bytes as u64);
                let own = (last.at, model.at[s]);
                if written.iter().any(|w| *w != own && w.0 < range.1 && range.0 < w.1) {
                    continue;
                }
                written.push(range);
                match last.region.resize(bytes) {
                    Ok(()) => {
                        let kept = last.bytes.len().min(bytes);
                        last.bytes.resize(bytes, 0x55);
                        last.region[kept..].fill(0x55);
                        model.at[s] = last.at + bytes as u64;
                    }
                    Err(e) => assert_eq!(e, Error::NotLatest),
                }
            }
            4..=6 if !out.is_empty() => {
                let chosen = random.usize(0..out.len());
                free(out.swap_remove(chosen), model);
            }
            7 => {
                let flushed = stream.flush();
                assert!(flushed.is_ok() || flushed == Err(Error::Outstanding), "{flushed:?}");
            }
            8 => assert_eq!(stream.length().unwrap(), model.file.len() as u64),
            _ => {
                let mode = if random.bool() { Mode::Read } else { Mode::Write };
                stream.set_mode(mode).unwrap();
                assert_eq!(stream.position(), model.at[s]);
            }
        }
    }
    random.shuffle(&mut out);
    for region in out {
        free(region, model);
    }
}

fn free(out: Out<'_>, model: &mut Model) {
    assert!(*out.region == *out.bytes, "a region changed while it was out");
    let mode = out.region.mode();
    out.region.free().unwrap();
    if mode == Mode::Write {
        model.write(out.at, &out.bytes);
    }
}

fn by_std(random: &mut fastrand::Rng, stream: &mut Stream, model: &mut Model, s: usize) {
    let at = model.at[s];
    match random.u8(0..5) {
        0 => {
            let to = random.u64(0..MOST);
            assert_eq!(stream.seek(SeekFrom::Start(to)).unwrap(), to);
            model.at[s] = to;
        }
        1 if at < MOST => {
            let bytes = random.usize(0..20_000);
            let data: Vec<u8> = std::iter::repeat_with(|| random.u8(b'a'..b'f')).take(bytes).collect();
            stream.write_all(&data).unwrap();
            model.write(at, &data[..]);
            model.at[s] += data.len() as u64;
        }
        2 => {
            let mut buffer = vec![0; random.usize(1..20_000)];
            let read = stream.read(&mut buffer).unwrap();
            assert!(buffer[..read] == *model.read(at, buffer.len()), "read");
            model.at[s] += read as u64;
        }
        3 => {
            let delimiter = random.u8(b'a'..b'f');
            let mut got = Vec::new();
            stream.read_until(delimiter, &mut got).unwrap();
            let rest = model.read(at, usize::MAX / 2);
            let expected = rest.iter().position(|&b| b == delimiter).map_or(rest, |n| &rest[..=n]);
            assert!(got == expected, "read_until");
            model.at[s] += got.len() as u64;
        }
        _ => {
            let delimiter = random.u8(b'a'..b'f');
            let region = stream.alloc_until(delimiter, usize::MAX).unwrap();
            let rest = model.read(at, usize::MAX / 2);
            let expected = rest.iter().position(|&b| b == delimiter).map_or(rest, |n| &rest[..=n]);
            assert!(*region == *expected, "alloc_until");
            model.at[s] += expected.len() as u64;
        }
    }
}

/// A file in layers: some of it plain, and then the next layer, compressed.
struct Layers {
    /// The bytes of each, the file's first, and the module that the next needs.
    layers: Vec<(Vec<u8>, &'static str)>,
    /// Where in each the next one begins.
    begins: Vec<usize>,
}

fn compressed(format: &str, data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    match format {
        "gzip" => encoder.write_all(data).and_then(|()| encoder.finish()).unwrap(),
        "zstd" => ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest),
        other => panic!("no format {other}"),
    }
}

fn layers(random: &mut fastrand::Rng) -> Layers {
    let plain = |random: &mut fastrand::Rng| -> Vec<u8> {
        let most = if random.bool() { 300 } else { 60_000 };
        let bytes = random.usize(0..most);
        std::iter::repeat_with(|| random.choice(*b"aaaaaabcdef\n").unwrap()).take(bytes).collect()
    };
    let (mut all, mut begins) = (vec![(plain(random), "")], Vec::new());
    for _ in 0..random.usize(1..4) {
        let format = random.choice(FORMATS).unwrap();
        let mut outer = plain(random);
        begins.push(outer.len());
        let inner = &all.last().unwrap().0;
        if random.bool() {
            // In two members.
            let cut = random.usize(0..=inner.len());
            outer.extend(compressed(format, &inner[..cut]));
            outer.extend(compressed(format, &inner[cut..]));
        } else {
            outer.extend(compressed(format, inner));
        }
        all.push((outer, format));
    }
    all.reverse();
    begins.reverse();
    Layers { layers: all, begins }
}

/// Random reading, pushing and popping.
fn play_pushed(random: &mut fastrand::Rng, operations: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let Layers { layers, begins } = layers(random);
    std::fs::write(&path, &layers[0].0).unwrap();
    let calibration = Calibration { map_from: 1, first: 4096, read: 8192, direct: 4096, ..Calibration::default() };
    let lower = random.choice(LOWER).unwrap();
    let mut stream = Options::new().read(true).module(lower).calibration(calibration).open(&path).unwrap();
    let (mut depth, mut at) = (0, 0);
    // What was pushed: true is `prefetch`, which begins no layer.
    let mut pushed: Vec<bool> = Vec::new();
    let mut left = operations;
    while left > 0 {
        let mut out: Vec<(Region<'_>, Vec<u8>)> = Vec::new();
        let round = left.min(random.u64(1..30));
        left -= round;
        for _ in 0..round {
            let data = &layers[depth].0;
            let rest = &data[at..];
            let wanted = if random.u8(0..6) == 0 { random.usize(1..70_000) } else { random.usize(1..300) };
            let operation = random.u8(0..12);
            let region = match operation {
                0 if begins.get(depth) == Some(&at) => {
                    stream.push(layers[depth].1).unwrap();
                    (depth, at) = (depth + 1, 0);
                    pushed.push(false);
                    continue;
                }
                0 if random.bool() => {
                    let again = pushed.contains(&true);
                    assert_eq!(stream.push("prefetch"), if again { Err(Error::NoModule) } else { Ok(()) });
                    if !again {
                        pushed.push(true);
                    }
                    continue;
                }
                0 | 1 => {
                    if pushed.is_empty() {
                        assert_eq!(stream.pop(), Err(Error::NoModule));
                    } else if random.u8(0..3) > 0 {
                    } else if pushed.pop() == Some(true) {
                        stream.pop().unwrap();
                        assert_eq!(stream.position(), at as u64);
                    } else {
                        stream.pop().unwrap();
                        depth -= 1;
                        at = stream.position() as usize;
                        assert!(at >= begins[depth] && at <= layers[depth].0.len(), "{at} is not where it read");
                    }
                    continue;
                }
                2 => {
                    // To where something can be pushed.
                    let Some(to) = begins.get(depth).and_then(|begin| begin.checked_sub(at)).filter(|&n| n > 0) else {
                        continue;
                    };
                    stream.alloc_full(to).unwrap()
                }
                3 => stream.alloc_line().unwrap(),
                4 => stream.alloc_until(b'a', wanted).unwrap(),
                5 => stream.alloc_full(wanted).unwrap(),
                6 => stream.alloc_aligned(wanted, 64).unwrap(),
                7 if depth == 0 && lower != "pipe" => {
                    at = random.usize(0..=data.len());
                    let region = stream.alloc_at(SeekFrom::Start(at as u64), wanted).unwrap();
                    let expected = &data[at..data.len().min(at + wanted)];
                    assert!(*region == *expected, "at {at}");
                    at += region.len();
                    continue;
                }
                8 => {
                    let mut buffer = vec![0; wanted];
                    let read = (&stream).read(&mut buffer).unwrap();
                    assert!(rest.starts_with(&buffer[..read]) && (read > 0 || rest.is_empty()), "read");
                    at += read;
                    continue;
                }
                9 if !out.is_empty() => {
                    let (region, bytes) = out.swap_remove(random.usize(0..out.len()));
                    assert!(*region == *bytes, "a region changed while it was out");
                    region.free().unwrap();
                    continue;
                }
                _ => stream.alloc(wanted).unwrap(),
            };
            assert!(rest.starts_with(&region), "{} bytes at {at} of layer {depth}", region.len());
            assert!(!region.is_empty() || rest.is_empty(), "the end at {at} of {} in layer {depth}", data.len());
            let until = |delimiter: u8| rest.iter().position(|&b| b == delimiter).map_or(rest.len(), |n| n + 1);
            let expected = match operation {
                2 => region.len().max(1),
                3 => until(b'\n'),
                4 => until(b'a').min(wanted),
                5 => rest.len().min(wanted),
                _ if lower != "pipe" => rest.len().min(wanted),
                _ => region.len(),
            };
            assert_eq!(region.len(), expected, "operation {operation} at {at} of layer {depth}");
            at += region.len();
            assert_eq!(stream.position(), at as u64);
            let bytes = region.to_vec();
            out.push((region, bytes));
        }
        for (region, bytes) in out.drain(..) {
            assert!(*region == *bytes, "a region changed while it was out");
        }
        drop(out);
        let data = stream.fill_buf().unwrap();
        let some = data.len().min(random.usize(0..500));
        assert!(layers[depth].0[at..].starts_with(data), "what is at hand");
        stream.consume(some);
        at += some;
    }
    stream.close().unwrap();
}

#[test]
fn random_reading_through_modules_that_come_and_go_agrees_with_the_layers() {
    let operations = setting("NINEFOLD_STREAM_OPERATIONS").unwrap_or(20_000);
    let seed = setting("NINEFOLD_STREAM_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("NINEFOLD_STREAM_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..operations.div_ceil(100) {
        play_pushed(&mut random, 100);
    }
}

#[test]
fn random_operations_by_every_interface_agree_with_a_plain_model() {
    let operations = setting("NINEFOLD_STREAM_OPERATIONS").unwrap_or(20_000);
    let seed = setting("NINEFOLD_STREAM_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("NINEFOLD_STREAM_SEED={seed}");
    for modules in [["read-write"; 2], ["read-write", "read-write-random"]] {
        play(seed, operations / 2, modules);
    }
}
