//! Streams beside the C library's and beside cmp(1), in one run: each line is how many times as fast a stream is.
//!
//! `taskset -c 0 cargo run --release -p ninefold-stream --example ratios -- DIRECTORY`: the directory is on the file system to be
//! measured, and gets two files of 256 MiB. `--small` takes 16 MiB. Medians of five runs that alternate; figures say something only
//! while nothing else runs.

use std::ffi::CString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ninefold_stream::{Options, Stream, copy};
use nix::libc;

const RUNS: usize = 5;

type Measured<'a> = &'a mut dyn FnMut();

/// The medians of both, run in turns.
fn beside(theirs: Measured<'_>, ours: Measured<'_>) -> (Duration, Duration) {
    let time = |f: &mut dyn FnMut()| {
        let begin = Instant::now();
        f();
        begin.elapsed()
    };
    let (mut a, mut b): (Vec<_>, Vec<_>) = (0..RUNS).map(|_| (time(theirs), time(ours))).unzip();
    a.sort_unstable();
    b.sort_unstable();
    (a[RUNS / 2], b[RUNS / 2])
}

fn print(what: &str, bar: f64, (theirs, ours): (Duration, Duration)) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    let verdict = if ratio >= bar { "" } else { "   below" };
    println!("{what:52} {ratio:6.2}x   bar {bar:4.2}   {theirs:9.2?} : {ours:9.2?}{verdict}");
}

fn stream(path: &Path, module: &'static str) -> Stream {
    Options::new().read(true).module(module).open(path).expect("the file just made")
}

/// libc's FILE.
struct Stdio(*mut libc::FILE);

impl Stdio {
    fn open(path: &Path) -> Stdio {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL");
        // SAFETY: two strings that end.
        let file = unsafe { libc::fopen(path.as_ptr(), c"r".as_ptr()) };
        assert!(!file.is_null(), "fopen");
        Stdio(file)
    }

    fn read(&self, buffer: &mut [u8]) -> usize {
        // SAFETY: an open FILE, and a buffer of that length.
        unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), self.0) }
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        // SAFETY: open, and not used again.
        unsafe { libc::fclose(self.0) };
    }
}

fn fread(path: &Path, bytes: usize) {
    let file = Stdio::open(path);
    let mut buffer = vec![0; bytes];
    let mut sum = 0u64;
    while file.read(&mut buffer) == bytes {
        sum += u64::from(buffer[0]);
    }
    black_box(sum);
}

fn alloc(path: &Path, module: &'static str, bytes: usize) {
    let stream = stream(path, module);
    let mut sum = 0u64;
    loop {
        let region = stream.alloc(bytes).expect("reading");
        if region.len() < bytes {
            break;
        }
        sum += u64::from(region[0]);
        region.free().expect("freeing");
    }
    black_box(sum);
}

fn getline(path: &Path) {
    let file = Stdio::open(path);
    let (mut line, mut room, mut sum) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: getline(3)'s own memory, freed in the end.
    unsafe {
        loop {
            let n = libc::getline(&raw mut line, &raw mut room, file.0);
            if n < 0 {
                break;
            }
            sum += n;
        }
        libc::free(line.cast());
    }
    black_box(sum);
}

fn lines(path: &Path, module: &'static str) {
    let stream = stream(path, module);
    let mut sum = 0;
    loop {
        let line = stream.alloc_line().expect("reading");
        if line.is_empty() {
            break;
        }
        sum += line.len();
    }
    black_box(sum);
}

fn cmp(a: &Path, b: &Path) {
    let status = std::process::Command::new("cmp").arg(a).arg(b).status().expect("cmp(1)");
    assert!(status.success());
}

fn compare(a: &Path, b: &Path, module: &'static str) {
    let (a, b) = (stream(a, module), stream(b, module));
    loop {
        let (x, y) = (a.alloc(64 << 10).expect("reading"), b.alloc(64 << 10).expect("reading"));
        assert!(*x == *y, "the files differ");
        if x.is_empty() {
            break;
        }
    }
}

/// All of a stream, by that many threads, 4 KiB at a time and with work on each byte.
fn share(path: &Path, threads: usize) {
    let stream = stream(path, "pread");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut sum = 0u32;
                loop {
                    let region = stream.alloc(4096).expect("reading");
                    if region.is_empty() {
                        break;
                    }
                    sum = region.iter().fold(sum, |sum, &b| sum.rotate_left(5) ^ u32::from(b));
                }
                black_box(sum);
            });
        }
    });
}

fn native_read(path: &Path) {
    let mut file = std::fs::File::open(path).expect("the file just made");
    read(&mut file);
}

fn read(from: &mut impl std::io::Read) {
    let mut buffer = vec![0; 64 << 10];
    let mut sum = 0u64;
    while from.read(&mut buffer).expect("reading") > 0 {
        sum += u64::from(buffer[0]);
    }
    black_box(sum);
}

fn made(path: PathBuf, bytes: usize) -> PathBuf {
    let mut data = Vec::with_capacity(bytes);
    let mut line = 0u64;
    while data.len() < bytes {
        data.extend_from_slice(format!("{line:074}\n").as_bytes());
        line += 1;
    }
    data.truncate(bytes);
    std::fs::write(&path, data).expect("making the files");
    path
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let small = arguments.iter().any(|a| a == "--small");
    arguments.retain(|a| a != "--small");
    let directory = PathBuf::from(arguments.first().map_or(".", String::as_str));
    let directory = tempfile::tempdir_in(directory).expect("a directory to write to");
    let bytes = if small { 16 << 20 } else { 256 << 20 };
    let a = made(directory.path().join("a"), bytes);
    let b = made(directory.path().join("b"), bytes);
    let target = directory.path().join("copy");

    for (module, small, line, whole) in [("pread", 3.0, 2.0, 3.0), ("mmap", 5.0, 2.8, 4.0)] {
        let by = |what: &str| format!("{what}, {module}");
        print(&by("64 bytes: fread / alloc"), small, beside(&mut || fread(&a, 64), &mut || alloc(&a, module, 64)));
        print(&by("lines: getline / alloc_line"), line, beside(&mut || getline(&a), &mut || lines(&a, module)));
        print(&by("two files: cmp / alloc"), whole, beside(&mut || cmp(&a, &b), &mut || compare(&a, &b, module)));
        let streamed = &mut || read(&mut stream(&a, module));
        print(&by("64 KiB: read(2) / Read::read"), 0.95, beside(&mut || native_read(&a), streamed));
    }
    let native = &mut || {
        std::fs::copy(&a, &target).expect("copying");
    };
    let ours = &mut || {
        let to = Stream::create(&target).expect("a file to write");
        copy(&stream(&a, "pread"), &to, u64::MAX).expect("copying");
        to.close().expect("writing");
    };
    print("whole file: std::fs::copy / copy", 0.95, beside(native, ours));
    // Needs two processors: not under taskset.
    print("4 KiB with work: one thread / two", 1.6, beside(&mut || share(&a, 1), &mut || share(&a, 2)));
}
