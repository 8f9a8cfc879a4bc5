//! A test: random operations of every interface on one stream, beside a plain model. Regions by their addresses, standard I/O, Unix I/O by two
//! descriptors and Rust's traits and regions come in any order, on a file that is read and written, that is read only or written only, that is
//! appended to, and on a pipe that is read at the end that it is written at.
//!
//! The model: the file's bytes, one offset, what was put back, and the written regions in the order in which they were allocated. A written
//! region is in the file once it is free; of what is appended, or goes by a pipe, once all before it are free too.
//!
//! `NINEFOLD_MIXED_OPERATIONS` is how many altogether, 1,000,000 when not given; `NINEFOLD_MIXED_SEED` is another seed than the one that every
//! run has.

mod watch;

use std::collections::VecDeque;
use std::ffi::{c_int, c_long};
use std::fmt::{Display, Formatter};
use std::io::{Read, Seek, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

use ninefold_stream::{Calibration, Error, Mode, Options, Stream};
use nix::libc;

use crate::asf::Asf;
use crate::asi::*;
use crate::stdio::*;
use crate::stream_io::{NfStream, handed_out, nf_sclose, nf_sfileno};
use crate::unix_io::*;
use watch::Watch;

/// Longest file, and what is in a pipe at a time, in bytes: operations meet each other, and come to the end of a small buffer. A pipe has
/// room for that.
const MOST: usize = 30_000;

/// Regions out at a time: more than a stream has places for without memory of their own.
const OUT: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Both,
    ReadOnly,
    WriteOnly,
    Append,
    Pipe,
}

struct Out {
    at: *mut u8,
    /// What it showed at first, or what is to be written.
    bytes: Vec<u8>,
    /// Where it begins in the stream.
    begin: usize,
    mode: Mode,
    /// Of a written one: which it is among all.
    number: u64,
    /// Some of it was put back.
    is_back: bool,
}

/// A written region, in the order in which it was allocated.
struct Written {
    number: u64,
    begin: usize,
    bytes: Vec<u8>,
    is_free: bool,
}

struct Mixed {
    random: fastrand::Rng,
    kind: Kind,
    stream: *mut NfStream,
    fds: [c_int; 2],
    /// What the file has; of a pipe what was written and not read.
    file: VecDeque<u8>,
    at: usize,
    mode: Mode,
    /// The last one is read next.
    back: Vec<u8>,
    out: Vec<Out>,
    written: VecDeque<Written>,
    /// Where was written since no written region is out: of two in one place the order would count in which they were allocated, and what
    /// was read meanwhile.
    places: Vec<Range<usize>>,
    numbers: u64,
    /// Operations that were done, of each kind: a model that refuses all of one shows nothing.
    done: [u64; OPERATIONS],
    watch: Watch<Operation>,
}

/// One of them, as it begins.
struct Operation {
    which: usize,
    at: usize,
    mode: Mode,
    back: usize,
    file: usize,
    out: usize,
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Operation { which, at, mode, back, file, out } = self;
        write!(f, "operation {which} at {at} of {file} to {mode:?}, {back} put back, {out} regions out")
    }
}

const OPERATIONS: usize = 32;

/// A call as C makes it.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: the stream was not closed, what is a region is out, and the memory is the test's and as long as is said.
        unsafe { $call }
    }};
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

fn errno(result: i64) -> i32 {
    i32::try_from(-result).unwrap()
}

impl Mixed {
    fn begin(kind: Kind, module: &str, seed: u64, what: String, directory: &tempfile::TempDir) -> Mixed {
        let mut random = fastrand::Rng::with_seed(seed);
        let path = directory.path().join("file");
        let mut file = VecDeque::new();
        let mut open = std::fs::OpenOptions::new();
        match kind {
            Kind::Both => open.read(true).write(true).create(true),
            Kind::WriteOnly => open.write(true).create(true),
            Kind::Append => open.read(true).append(true).create(true),
            Kind::ReadOnly => {
                let bytes = text(&mut random, MOST);
                std::fs::write(&path, &bytes).unwrap();
                file.extend(bytes);
                open.read(true)
            }
            Kind::Pipe => {
                nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
                open.read(true).write(true)
            }
        };
        // Little memory, so that every operation comes to the end of some.
        let calibration =
            Calibration { map_from: 1, first: 4096, read: 8192, write: 8192, direct: 4096, ..Calibration::default() };
        let fd: OwnedFd = open.open(&path).unwrap().into();
        let asf = Asf::take(&Options::new().module(module).calibration(calibration), fd).unwrap();
        let stream = c!(handed_out(NfStream::new(asf), null_mut()));
        let fd = c!(nf_sfileno(stream));
        let fds = [fd, nf_as_dup(fd)];
        assert!(fds[0] > 0 && fds[1] > 0);
        let mode = if kind == Kind::ReadOnly { Mode::Read } else { Mode::Write };
        let (back, out, written, places) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        let (at, numbers, done) = (0, 0, [0; OPERATIONS]);
        Mixed {
            random,
            kind,
            stream,
            fds,
            file,
            at,
            mode,
            back,
            out,
            written,
            places,
            numbers,
            done,
            watch: Watch::begin(what),
        }
    }

    /// The stream for Rust.
    fn rust(&self) -> &Stream {
        c!(lending(self.stream)).unwrap().stream()
    }

    fn fd(&mut self) -> c_int {
        self.fds[self.random.usize(0..2)]
    }

    fn count(&mut self) -> usize {
        if self.random.u8(0..16) == 0 { self.random.usize(1..9000) } else { self.random.usize(1..90) }
    }

    fn has_places(&self) -> bool {
        self.kind != Kind::Pipe
    }

    fn reads(&self) -> bool {
        self.kind != Kind::WriteOnly
    }

    fn writes(&self) -> bool {
        self.kind != Kind::ReadOnly
    }

    /// What is read next, at most so many bytes.
    fn view(&self, most: usize) -> Vec<u8> {
        let from = if self.has_places() { (self.at + self.back.len()).min(self.file.len()) } else { 0 };
        let rest = self.file.range(from..);
        self.back.iter().rev().chain(rest).take(most).copied().collect()
    }

    /// What of so many bytes can be had without waiting for ever.
    fn there(&self, bytes: usize) -> usize {
        if self.has_places() { bytes } else { bytes.min(self.back.len() + self.file.len()) }
    }

    /// So many were read.
    fn read(&mut self, bytes: usize) {
        let back = bytes.min(self.back.len());
        self.back.truncate(self.back.len() - back);
        if !self.has_places() {
            self.file.drain(..bytes - back);
        }
        self.at += bytes;
        self.mode = Mode::Read;
    }

    /// The mode changes to write: what was put back is what the file has again; a pipe has no other.
    fn begin_writing(&mut self) {
        self.mode = Mode::Write;
        self.forget_back();
    }

    fn forget_back(&mut self) {
        if self.has_places() {
            self.back.clear();
        }
    }

    fn moved(&mut self, to: usize) {
        self.at = to;
        self.back.clear();
    }

    /// Is anything freed behind a region that is out?
    fn is_behind(&self) -> bool {
        self.written.iter().any(|written| written.is_free)
    }

    /// What a call must give that flushes.
    fn flushed(&self) -> i64 {
        if self.is_behind() { -i64::from(libc::EBUSY) } else { 0 }
    }

    /// May so many bytes be written at a place, without anybody caring which of two comes later?
    fn may_write(&mut self, begin: usize, bytes: usize) -> bool {
        if self.written.is_empty() {
            self.places.clear();
        }
        match self.kind {
            Kind::ReadOnly => false,
            Kind::Append => true,
            Kind::Pipe => {
                let waiting: usize = self.written.iter().map(|written| written.bytes.len()).sum();
                waiting + self.file.len() + bytes <= MOST
            }
            Kind::Both | Kind::WriteOnly => {
                let place = begin..begin + bytes;
                let is_over = self.places.iter().any(|p| p.start < place.end && place.start < p.end);
                let may = place.end <= MOST && !is_over;
                if may {
                    self.places.push(place);
                }
                may
            }
        }
    }

    /// Something is written at the offset: as a region that is out, whose number this is, or at once.
    fn write(&mut self, bytes: Vec<u8>, is_free: bool) -> u64 {
        self.begin_writing();
        let begin = self.at;
        self.at += bytes.len();
        self.numbers += 1;
        self.written.push_back(Written { number: self.numbers, begin, bytes, is_free: false });
        if is_free {
            self.free_written(self.numbers);
        }
        self.numbers
    }

    fn free_written(&mut self, number: u64) {
        let written = self.written.iter_mut().find(|written| written.number == number).unwrap();
        written.is_free = true;
        if matches!(self.kind, Kind::Both | Kind::WriteOnly) {
            let (begin, bytes) = (written.begin, written.bytes.clone());
            self.put(begin, &bytes);
        }
        while self.written.front().is_some_and(|written| written.is_free) {
            let written = self.written.pop_front().unwrap();
            if matches!(self.kind, Kind::Append | Kind::Pipe) {
                self.file.extend(written.bytes);
            }
        }
    }

    fn put(&mut self, begin: usize, bytes: &[u8]) {
        if self.file.len() < begin + bytes.len() {
            self.file.resize(begin + bytes.len(), 0);
        }
        self.file.range_mut(begin..begin + bytes.len()).zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// Bytes to be written at the offset, if that may be.
    fn data(&mut self, most: usize) -> Option<Vec<u8>> {
        let bytes = self.count().min(most);
        let may = self.may_write(self.at, bytes);
        may.then(|| text(&mut self.random, bytes))
    }

    /// A region was allocated to read: it shows what it must, of as many bytes as it must.
    fn lent_to_read(&mut self, at: *mut u8, length: c_long, asked: usize, is_whole: bool) {
        let expected = self.view(asked);
        let bytes = usize::try_from(length).unwrap_or_else(|_| panic!("{length} of {asked} at {}", self.at));
        let right = if is_whole { bytes == expected.len() } else { (bytes > 0) != expected.is_empty() };
        assert!(right && bytes <= expected.len(), "{bytes} of {} at {}", expected.len(), self.at);
        if bytes == 0 {
            assert!(at.is_null());
            self.mode = Mode::Read;
            return;
        }
        // SAFETY: a region of so many bytes.
        let got = c!(std::slice::from_raw_parts(at, bytes));
        assert!(got == &expected[..bytes], "{bytes} bytes at {}", self.at);
        let (begin, is_back) = (self.at, !self.back.is_empty());
        self.read(bytes);
        self.out.push(Out { at, bytes: got.to_vec(), begin, mode: Mode::Read, number: 0, is_back });
    }

    fn lent_to_write(&mut self, at: *mut u8, length: c_long, bytes: Vec<u8>) {
        assert_eq!(length, bytes.len() as c_long);
        // SAFETY: a region of so many bytes.
        c!(std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()));
        let begin = self.at;
        let number = self.write(bytes.clone(), false);
        self.out.push(Out { at, bytes, begin, mode: Mode::Write, number, is_back: false });
    }

    fn free(&mut self, chosen: usize) {
        let Out { at, bytes, mode, number, .. } = self.out.swap_remove(chosen);
        // SAFETY: a region that is out, and of so many bytes.
        let (same, freed) =
            c!((std::slice::from_raw_parts(at, bytes.len()) == bytes, nf_sfree(self.stream, at.cast())));
        assert!(same, "a region changed while it was out");
        assert_eq!(freed, 0);
        if mode == Mode::Write {
            self.free_written(number);
        }
    }

    /// The next byte that is a delimiter ends it, or the most bytes do; None where that would be waited for.
    fn until(&self, delimiter: u8, most: usize) -> Option<usize> {
        let view = self.view(most);
        let found = view.iter().position(|&byte| byte == delimiter).map(|n| n + 1);
        found.or((self.has_places() || view.len() == most).then_some(view.len()))
    }

    /// One operation; false where it would wait for ever, or is not for this.
    fn operation(&mut self, which: usize) -> bool {
        let s = self.stream;
        let count = self.count();
        let there = self.there(count);
        let reads = self.reads() && there > 0;
        match which {
            // Regions.
            0 | 1 if reads && self.out.len() < OUT => {
                let mut length = there as c_long;
                if which == 0 && self.mode == Mode::Read {
                    let at = c!(nf_salloc(s, &raw mut length));
                    self.lent_to_read(at.cast(), length, there, self.has_places());
                } else {
                    let at = c!(nf_Salloc(s, 0, &raw mut length));
                    self.lent_to_read(at.cast(), length, there, self.has_places());
                }
            }
            2 | 3 if self.writes() && self.out.len() < OUT => {
                let Some(bytes) = self.data(usize::MAX) else { return false };
                let mut length = bytes.len() as c_long;
                let at = match (which, self.mode) {
                    (2, Mode::Write) => c!(nf_salloc(s, &raw mut length)),
                    _ => c!(nf_Salloc(s, 1, &raw mut length)),
                };
                self.lent_to_write(at.cast(), length, bytes);
            }
            4 if self.has_places() && self.reads() && self.out.len() < OUT => {
                let (to, mut length) = (self.random.usize(0..MOST), count as c_long);
                self.moved(to);
                let at = match self.mode {
                    Mode::Read => c!(nf_sallocAt(s, &raw mut length, to as i64, libc::SEEK_SET)),
                    Mode::Write => c!(nf_SallocAt(s, 0, &raw mut length, to as i64, libc::SEEK_SET)),
                };
                self.lent_to_read(at.cast(), length, count, true);
            }
            5 if self.has_places() && self.writes() && self.out.len() < OUT => {
                let (to, mut length) = (self.random.usize(0..MOST), count as c_long);
                if !self.may_write(to, count) {
                    return false;
                }
                self.moved(to);
                let at = c!(nf_SallocAt(s, 1, &raw mut length, to as i64, libc::SEEK_SET));
                let bytes = text(&mut self.random, count);
                self.lent_to_write(at.cast(), length, bytes);
            }
            6 | 7 if reads && self.out.len() < OUT => {
                let most = if which == 6 { usize::MAX / 2 } else { count };
                let delimiter = if which == 6 { b'\n' } else { b'a' };
                let Some(bytes) = self.until(delimiter, most) else { return false };
                let mut length = most as c_long;
                let at = match which {
                    6 => c!(nf_salloc_line(s, &raw mut length)),
                    _ => c!(nf_salloc_until(s, &raw mut length, delimiter.into())),
                };
                self.lent_to_read(at.cast(), length, bytes, true);
            }
            8 if reads && self.mode == Mode::Read && self.out.len() < OUT => {
                let mut length = there as c_long;
                let align = 1 << self.random.u8(0..13);
                let is_full = self.random.bool();
                let at = match is_full {
                    true => c!(nf_salloc_full(s, &raw mut length)),
                    false => c!(nf_salloc_aligned(s, &raw mut length, align)),
                };
                assert!(is_full || at.addr().is_multiple_of(align as usize));
                self.lent_to_read(at.cast(), length, there, is_full || self.has_places());
            }
            9..=12 if !self.out.is_empty() => {
                let chosen = self.random.usize(0..self.out.len());
                self.free(chosen);
            }
            13 => return self.resize(count),
            14 => {
                let flushed = match self.random.bool() {
                    true => c!(nf_sflush(s)),
                    false => c!(nf_sfflush(s)),
                };
                assert_eq!(i64::from(flushed), self.flushed());
            }
            15 => {
                let to = self.random.bool();
                let changed = c!(nf_set_stream_mode(s, c_int::from(to)));
                if (to && !self.writes()) || (!to && !self.reads()) {
                    assert_eq!(changed, -libc::EBADF);
                } else {
                    assert_eq!(changed, 0);
                    match to {
                        true => self.begin_writing(),
                        false => self.mode = Mode::Read,
                    }
                }
            }
            // Standard I/O.
            16 if reads => {
                let expected = self.view(1).first().copied();
                assert_eq!(c!(nf_sgetc(s)), expected.map_or(libc::EOF, c_int::from));
                self.read(expected.map_or(0, |_| 1));
            }
            17 if self.writes() => {
                let Some(bytes) = self.data(1) else { return false };
                assert_eq!(c!(nf_sputc(bytes[0].into(), s)), c_int::from(bytes[0]));
                self.write(bytes, true);
            }
            18 if reads => {
                let (size, mut room) = (self.random.usize(1..8), vec![0u8; there]);
                let items = c!(nf_sfread(room.as_mut_ptr().cast(), size, there / size, s));
                let expected = self.view(there / size * size);
                assert_eq!(items, (expected.len() / size) as c_long);
                let wrong = room.iter().zip(&expected).position(|(got, right)| got != right);
                assert!(wrong.is_none(), "sfread of {} at {}: {wrong:?}", expected.len(), self.at);
                self.read(expected.len());
                if expected.is_empty() && there / size == 0 {
                    self.mode = self.rust().mode(); // nothing was asked
                }
            }
            19 if self.writes() => {
                let Some(bytes) = self.data(usize::MAX) else { return false };
                let items = c!(nf_sfwrite(bytes.as_ptr().cast(), 1, bytes.len(), s));
                assert_eq!(items, bytes.len() as c_long);
                self.write(bytes, true);
            }
            20 if reads => {
                let Some(bytes) = self.until(b'\n', count) else { return false };
                let expected = self.view(bytes);
                let mut room = vec![1u8; count + 1];
                let got = c!(nf_sgets(room.as_mut_ptr().cast(), (count + 1) as c_int, s));
                assert_eq!(got.is_null(), expected.is_empty());
                if !expected.is_empty() {
                    assert!(room[..bytes] == expected && room[bytes] == 0, "sgets at {}", self.at);
                }
                self.read(bytes);
            }
            21 if self.reads() => {
                let before = self.at.checked_sub(1).and_then(|before| self.file.get(before)).copied();
                let same = before.filter(|_| self.has_places() && self.random.u8(0..3) == 0);
                let byte = same.unwrap_or_else(|| self.random.u8(b'A'..b'F'));
                let put = match self.random.bool() {
                    true => c!(nf_sungetc(byte.into(), s)),
                    false => self.rust().unread(byte).map_or(-libc::EINVAL, |()| c_int::from(byte)),
                };
                self.mode = Mode::Read;
                if self.at == 0 {
                    assert_eq!(put, -libc::EINVAL);
                    return true;
                }
                assert_eq!(put, c_int::from(byte));
                self.at -= 1;
                self.back.push(byte);
            }
            22 | 23 => return self.seek(which == 22),
            // Unix I/O.
            24 if reads => {
                let (fd, mut room) = (self.fd(), vec![0u8; there]);
                let read = c!(nf_as_read(fd, room.as_mut_ptr().cast(), there));
                self.some_read(read as i64, &room);
            }
            25 if self.writes() => {
                let Some(bytes) = self.data(usize::MAX) else { return false };
                let fd = self.fd();
                assert_eq!(c!(nf_as_write(fd, bytes.as_ptr().cast(), bytes.len())), bytes.len() as isize);
                if self.kind == Kind::Append && self.out.is_empty() {
                    self.back.clear(); // its offset goes there
                }
                self.write(bytes, true);
            }
            26 | 27 => return self.by_place(which == 26, count),
            28 => return self.of_the_file(),
            // Rust's.
            29 if reads => {
                let mut room = vec![0u8; there];
                let read = self.rust().read(&mut room).unwrap();
                self.some_read(read as i64, &room);
            }
            30 if self.writes() => {
                let Some(bytes) = self.data(usize::MAX) else { return false };
                let mut stream = self.rust();
                assert_eq!(stream.write(&bytes).unwrap(), bytes.len());
                self.write(bytes, true);
            }
            31 if reads => {
                let stream = c!(lending(s)).unwrap().stream();
                let region = stream.alloc_in(Mode::Read, there).unwrap();
                self.some_read(region.len() as i64, &region);
                region.free().unwrap();
            }
            _ => return false,
        }
        true
    }

    /// Some of so many bytes as there is room were read: none at the end alone.
    fn some_read(&mut self, read: i64, room: &[u8]) {
        let expected = self.view(room.len().max(1));
        let read = usize::try_from(read).unwrap();
        assert!(read <= expected.len() && (read > 0) != expected.is_empty(), "{read} of {}", expected.len());
        assert!(room[..read] == expected[..read], "{read} bytes at {}", self.at);
        self.read(read);
    }

    /// The latest region is made longer or shorter, if it is out and nothing happened to the offset.
    fn resize(&mut self, count: usize) -> bool {
        let Some(last) = self.out.last() else { return false };
        let (begin, old, mode, was) = (last.begin, last.bytes.len(), last.mode, last.at);
        let is_latest = begin + old == self.at && mode == self.mode && !last.is_back && self.back.is_empty();
        if !is_latest || self.numbers != last.number.max(self.numbers * u64::from(mode == Mode::Read)) {
            return false;
        }
        if mode == Mode::Read && !self.has_places() {
            return false; // what it gives back goes before what the pipe has
        }
        if mode == Mode::Write && count > old && !self.may_write(begin + old, count - old) {
            return false;
        }
        let mut length = count as c_long;
        // SAFETY: a region that is out.
        let at: *mut u8 = c!(nf_sresize(self.stream, was.cast(), &raw mut length)).cast();
        if at.is_null() {
            // Another was allocated since, which the model does not count; or the file has become shorter.
            assert!([libc::EINVAL, libc::ENODATA].contains(&errno(length)), "{length}");
            return false;
        }
        let now = usize::try_from(length).unwrap();
        let kept = old.min(now);
        let more = text(&mut self.random, now - kept);
        // SAFETY: a region of so many bytes; only of one that is written is anything written.
        let bytes = unsafe {
            if mode == Mode::Write {
                std::ptr::copy_nonoverlapping(more.as_ptr(), at.wrapping_add(kept), more.len());
            }
            std::slice::from_raw_parts(at, now).to_vec()
        };
        let last = self.out.last_mut().unwrap();
        // One that is read may have been read again, where it moved.
        let now_there = |range: Range<usize>| -> Vec<u8> {
            self.file.iter().skip(range.start).take(range.len()).copied().collect()
        };
        let is_same = bytes[..kept] == last.bytes[..kept];
        assert!(is_same || (mode == Mode::Read && bytes[..kept] == now_there(begin..begin + kept)), "what it had");
        assert!(mode == Mode::Write || bytes[kept..] == now_there(begin + kept..begin + now), "what it has more");
        (last.at, last.bytes) = (at, bytes.clone());
        let number = last.number;
        self.at = begin + now;
        if mode == Mode::Write {
            assert_eq!(now, count);
            self.written.iter_mut().find(|written| written.number == number).unwrap().bytes = bytes;
        } else {
            assert!(now <= count && (now <= old || begin + now <= self.file.len()));
        }
        true
    }

    /// Moves the offset, by one of the ways.
    fn seek(&mut self, absolute: bool) -> bool {
        let whence = if absolute { libc::SEEK_SET } else { [libc::SEEK_CUR, libc::SEEK_END][self.random.usize(0..2)] };
        let to = self.random.usize(0..MOST);
        let by = match whence {
            libc::SEEK_SET => to as i64,
            libc::SEEK_CUR => to as i64 - self.at as i64,
            _ => to as i64 - self.file.len() as i64,
        };
        let fd = self.fd();
        let which = self.random.u8(0..3);
        let told = match which {
            0 => c!(i64::from(nf_sfseek(self.stream, by, whence))),
            1 => nf_as_lseek(fd, by, whence),
            _ => {
                let place = crate::asf::place(by, whence).unwrap();
                let mut stream = self.rust();
                Seek::seek(&mut stream, place).map_or_else(|e| -i64::from(e.raw_os_error().unwrap_or(29)), |n| n as i64)
            }
        };
        if self.has_places() {
            assert_eq!(told, if which == 0 { 0 } else { to as i64 });
            self.moved(to);
        } else {
            assert_eq!(told, -i64::from(libc::ESPIPE));
        }
        true
    }

    /// pread(2) and pwrite(2).
    fn by_place(&mut self, reads: bool, count: usize) -> bool {
        let (fd, to) = (self.fd(), self.random.usize(0..MOST));
        let flushed = self.flushed();
        if reads && self.reads() {
            let mut room = vec![0u8; count];
            let read = c!(nf_as_pread(fd, room.as_mut_ptr().cast(), count, to as i64));
            if flushed < 0 || !self.has_places() {
                let expected = if flushed < 0 { libc::EBUSY } else { libc::ESPIPE };
                assert_eq!(errno(read as i64), expected);
                return true;
            }
            let begin = to.min(self.file.len());
            let expected: Vec<u8> = self.file.range(begin..).take(count).copied().collect();
            assert_eq!(read, expected.len() as isize);
            assert!(room[..expected.len()] == expected, "as_pread at {to}");
            return true;
        }
        if reads || !self.writes() || !self.has_places() || flushed < 0 || !self.may_write(to, count) {
            return false;
        }
        let bytes = text(&mut self.random, count);
        assert_eq!(c!(nf_as_pwrite(fd, bytes.as_ptr().cast(), count, to as i64)), count as isize);
        if self.kind == Kind::Append {
            self.file.extend(bytes); // as Linux has it, whatever the place
        } else {
            self.put(to, &bytes);
        }
        true
    }

    /// What is asked of the file, or done to it.
    fn of_the_file(&mut self) -> bool {
        let (fd, flushed) = (self.fd(), self.flushed());
        let length = self.file.len();
        // SAFETY: a record of integers, for which zeros are good; and the stream was not closed.
        unsafe {
            match self.random.u8(0..6) {
                0 => assert_eq!(nf_sftell(self.stream), self.at as i64),
                1 => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    let told = nf_as_fstat(fd, &raw mut stat);
                    match self.has_places() {
                        _ if flushed < 0 => assert_eq!(i64::from(told), flushed),
                        true => assert_eq!((told, stat.st_size), (0, length as i64)),
                        false => assert_eq!(told, -libc::ESPIPE),
                    }
                }
                // Not often: it is a disk that is asked.
                2 if self.random.u8(0..8) == 0 => {
                    let expected = if self.has_places() { 0 } else { -i64::from(libc::ESPIPE) };
                    assert_eq!(i64::from(nf_as_fsync(fd)), if flushed < 0 { flushed } else { expected });
                }
                3 if self.writes() && self.has_places() && flushed == 0 => {
                    // Of what is out behind the new end the file gets a hole before it.
                    let to = self.random.usize(0..MOST);
                    assert_eq!(nf_as_ftruncate(fd, to as i64), 0);
                    self.file.resize(to, 0);
                }
                4 => match self.rust().length() {
                    Ok(told) => assert_eq!(told, length as u64),
                    Err(e) => assert!(e == Error::NotSeekable && !self.has_places()),
                },
                5 => {
                    let flushed = if flushed < 0 { Err(Error::Outstanding) } else { Ok(()) };
                    assert_eq!(self.rust().flush(), flushed);
                    assert_eq!(self.rust().position(), self.at as u64);
                    assert_eq!(self.rust().mode(), self.mode);
                }
                _ => return false,
            }
        }
        true
    }

    /// For who looks why it failed.
    fn begins(&self, which: usize) {
        let (back, file, out) = (self.back.len(), self.file.len(), self.out.len());
        self.watch.next(Operation { which, at: self.at, mode: self.mode, back, file, out });
    }

    fn play(&mut self, operations: u64) {
        let mut left = operations;
        while left > 0 {
            let which = self.random.usize(0..OPERATIONS);
            // Now and then this thread has the lock meanwhile.
            let is_locked = self.random.u8(0..16) == 0;
            if is_locked {
                assert_eq!(c!(nf_LockAsfStream(self.stream)), 0);
            }
            self.begins(which);
            if self.operation(which) {
                self.done[which] += 1;
                left -= 1;
            }
            if is_locked {
                assert_eq!(c!(nf_UnlockAsfStream(self.stream)), 0);
            }
            // What is only appended to would become long, and its offset with it.
            if self.kind == Kind::Append && self.flushed() == 0 && self.file.len() > 2 * MOST {
                assert_eq!(nf_as_ftruncate(self.fds[0], 0), 0);
                self.file.clear();
            }
        }
    }

    fn end(mut self, path: &std::path::Path) {
        self.begins(OPERATIONS);
        if !self.out.is_empty() {
            assert_eq!(c!(nf_sclose(self.stream)), -libc::EBUSY);
        }
        while !self.out.is_empty() {
            let chosen = self.random.usize(0..self.out.len());
            self.free(chosen);
        }
        if self.kind == Kind::Pipe {
            while !self.file.is_empty() {
                self.begins(31);
                self.operation(31);
            }
        }
        self.begins(OPERATIONS);
        assert_eq!(c!(nf_sclose(self.stream)), 0);
        for fd in self.fds {
            assert_eq!(c!(nf_as_close(fd)), -libc::EBADF, "they ended with the stream");
        }
        if self.has_places() {
            assert!(self.file == std::fs::read(path).unwrap(), "the file in the end");
        }
        let done: Vec<usize> = (0..OPERATIONS).filter(|&which| self.done[which] > 0).collect();
        eprintln!("{:?}: {:?}", self.kind, self.done);
        let least = match self.kind {
            Kind::Both | Kind::Append => OPERATIONS,
            Kind::Pipe => OPERATIONS - 3,
            Kind::ReadOnly | Kind::WriteOnly => OPERATIONS / 2,
        };
        assert!(done.len() >= least || self.done.iter().sum::<u64>() < 4_000, "{:?}: only {done:?}", self.kind);
    }
}

/// Lines, most of them short.
fn text(random: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    let mut text = vec![0; bytes];
    random.fill(&mut text);
    for byte in &mut text {
        *byte = b"abcdefghijklmnopqrstuvwxyzabcde\n"[usize::from(*byte & 31)];
    }
    text
}

/// A share of all operations, in parts each on a stream of its own.
fn play(kind: Kind, module: &str, parts_of_a_hundred: u64) {
    const PARTS: u64 = 10;
    let operations = number("NINEFOLD_MIXED_OPERATIONS").unwrap_or(1_000_000) * parts_of_a_hundred / 100;
    let seed = number("NINEFOLD_MIXED_SEED").unwrap_or(1);
    for part in 0..PARTS {
        let what = format!("{kind:?} by {module}, NINEFOLD_MIXED_SEED={seed}, part {part}");
        println!("{what}");
        let directory = tempfile::tempdir().unwrap();
        let mut mixed = Mixed::begin(kind, module, seed * 1_000 + part, what, &directory);
        mixed.play(operations / PARTS);
        mixed.end(&directory.path().join("file"));
    }
}

#[test]
fn a_file_that_is_read_and_written_by_every_interface_agrees_with_a_plain_model() {
    play(Kind::Both, "read-write", 25);
}

#[test]
fn a_file_that_is_read_and_written_here_and_there_agrees_with_a_plain_model() {
    play(Kind::Both, "read-write-random", 10);
}

#[test]
fn a_file_that_is_appended_to_by_every_interface_agrees_with_a_plain_model() {
    play(Kind::Append, "append", 25);
}

#[test]
fn a_pipe_by_every_interface_agrees_with_a_plain_model() {
    play(Kind::Pipe, "pipe", 20);
}

#[test]
fn a_file_that_is_only_read_or_only_written_agrees_with_a_plain_model() {
    play(Kind::ReadOnly, "mmap", 5);
    play(Kind::ReadOnly, "pread", 5);
    play(Kind::WriteOnly, "pwrite", 10);
}
