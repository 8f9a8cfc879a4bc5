//! Rings: what two processes hand to each other by memory that they share, and what is left of it where one of them knows no rings, dies,
//! or writes over what both have.
//!
//! The other process is this very program, which plays the part that `NINEFOLD_RING_PART` names, on its standard input.
//! `NINEFOLD_RING_OPERATIONS` is how many random operations there are, 100,000 when not given; `NINEFOLD_RING_SEED` repeats a run.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use ninefold_stream::{Error, Mode, Options, Region, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The byte of the stream that so many are before.
fn byte(at: u64) -> u8 {
    // The last step of MurmurHash3: no two places have the same surroundings.
    let mixed = (at ^ at >> 9).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 56) as u8
}

fn put(bytes: &mut [u8], at: u64) {
    for (at, b) in (at..).zip(bytes) {
        *b = byte(at);
    }
}

#[track_caller]
fn look(bytes: &[u8], at: u64) {
    let wrong = (at..).zip(bytes).find(|&(at, &b)| b != byte(at));
    assert!(wrong.is_none(), "{} bytes at {at}: wrong at {}", bytes.len(), wrong.unwrap().0);
}

/// The mapping that an address is in.
fn mapping(at: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let has = |line: &&str| {
        let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        (begin..end).contains(&at.addr())
    };
    maps.lines().find(has).unwrap_or_default().to_owned()
}

/// Does it lie in the shared memory itself?
#[track_caller]
fn assert_shared(bytes: &[u8]) {
    let line = mapping(bytes.as_ptr());
    assert!(line.contains("ninefold-ring"), "not of a ring: {line}");
}

fn ring(bytes: usize) -> Options {
    Options::new().module("ring").ring_bytes(bytes)
}

fn reader(socket: impl Into<OwnedFd>, bytes: usize) -> Stream {
    ring(bytes).take_only(socket.into(), Mode::Read).unwrap()
}

fn writer(socket: impl Into<OwnedFd>, bytes: usize) -> Stream {
    ring(bytes).take_only(socket.into(), Mode::Write).unwrap()
}

/// Writes so many bytes of the stream, and flushes.
fn write(stream: &Stream, from: u64, bytes: usize) {
    let mut region = stream.alloc(bytes).unwrap();
    put(&mut region, from);
    region.free().unwrap();
    stream.flush().unwrap();
}

/// This program in that part, with the socket for its standard input.
fn start(part: &str, socket: UnixStream) -> Ended {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"]);
    command.env("NINEFOLD_RING_PART", part).stdin(OwnedFd::from(socket)).stdout(Stdio::null());
    Ended(command.spawn().unwrap())
}

/// A child that ends with the test.
struct Ended(Child);

impl Ended {
    fn done(mut self) {
        assert!(self.0.wait().unwrap().success(), "the other process failed");
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What this program does as another process: nothing where it is none.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var("NINEFOLD_RING_PART") else {
        return;
    };
    let words: Vec<&str> = part.split(' ').collect();
    let number = |n: usize| words[n].parse::<u64>().unwrap();
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    // The only descriptor of it: else its end would not be seen.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null").unwrap()).unwrap();
    match words[0] {
        "write" => play_writer(&writer(socket, number(1) as usize), number(2), number(3)),
        "write-for-ever" => {
            let stream = writer(socket, 64 << 10);
            let mut random = fastrand::Rng::with_seed(number(1));
            loop {
                let at = stream.position();
                let Ok(mut region) = stream.alloc(random.usize(1..9000)) else { return };
                put(&mut region, at);
                region.free().unwrap();
            }
        }
        "read" => {
            let stream = reader(socket, 0);
            let mut left = number(1);
            while left > 0 {
                let region = stream.alloc(left.min(5000) as usize).unwrap();
                look(&region, number(1) - left);
                left -= region.len() as u64;
            }
            // It waits to be killed, with the stream.
            loop {
                std::thread::park();
            }
        }
        "read-without-descriptors" => play_reader_without_descriptors(socket, number(1)),
        other => panic!("no such part: {other}"),
    }
}

/// Reads five bytes and the ring behind them, with room for so many descriptors.
fn play_reader_without_descriptors(socket: OwnedFd, free: u64) {
    let mut other = UnixStream::from(socket.try_clone().unwrap());
    let stream = reader(socket, 0);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let mut full: Vec<_> = std::iter::from_fn(|| other.as_fd().try_clone_to_owned().ok()).collect();
    full.truncate(full.len() - free as usize);
    other.write_all(b"go on").unwrap();
    look(&stream.alloc_full(5).unwrap(), 0);
    let told = Some(Error::Os(Errno::MFILE));
    assert_eq!(stream.alloc(1).err(), told);
    drop(full);
    assert_eq!(stream.alloc(1).err(), told, "and again");
}

/// Writes by every interface, with several regions out, freed in any order.
fn play_writer(stream: &Stream, seed: u64, operations: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut out: Vec<Region<'_>> = Vec::new();
    for _ in 0..operations {
        let at = stream.position();
        let bytes = match random.u8(0..100) {
            0 => random.usize(1..200_000),
            1..=9 => random.usize(1..9000),
            _ => random.usize(1..200),
        };
        match random.u8(0..20) {
            0..=11 => {
                let mut region = match random.u8(0..20) {
                    0 => stream.alloc_aligned(bytes, 1 << random.u8(0..13)).unwrap(),
                    _ => stream.alloc(bytes).unwrap(),
                };
                put(&mut region, at);
                match random.u8(0..30) {
                    0 => {
                        let bytes = random.usize(1..2 * bytes + 1);
                        region.resize(bytes).unwrap();
                        put(&mut region, at);
                    }
                    1 => {
                        region.resize(0).unwrap();
                        assert_eq!(stream.position(), at);
                    }
                    _ => {}
                }
                out.push(region);
            }
            12..=16 if !out.is_empty() => out.swap_remove(random.usize(0..out.len())).free().unwrap(),
            17 => {
                let mut data = vec![0; bytes];
                put(&mut data, at);
                (&*stream).write_all(&data).unwrap();
            }
            18 => {
                random.shuffle(&mut out);
                out.drain(..).for_each(|region| region.free().unwrap());
                stream.flush().unwrap();
            }
            _ => {
                let flushed = stream.flush();
                assert!(matches!(flushed, Ok(()) | Err(Error::Outstanding)), "{flushed:?}");
            }
        }
        if out.len() > 20 {
            random.shuffle(&mut out);
            out.truncate(5);
        }
    }
    out.clear();
    stream.flush().unwrap();
}

/// Reads by every interface to the end, with several regions out, some for long; tells how much there was.
fn play_reader(stream: &mut Stream, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    loop {
        let rounds = random.u32(1..400);
        {
            let mut out: Vec<(u64, Region<'_>)> = Vec::new();
            for _ in 0..rounds {
                let bytes = match random.u8(0..50) {
                    0 => random.usize(1..300_000),
                    _ => random.usize(1..2000),
                };
                let region = match random.u8(0..10) {
                    0 => stream.alloc_full(bytes).unwrap(),
                    1..=3 => stream.alloc_line().unwrap(),
                    4 => stream.alloc_aligned(bytes, 1 << random.u8(0..13)).unwrap(),
                    5 if at > 0 => {
                        let before = byte(at - 1);
                        stream.unread(before).unwrap();
                        at -= 1;
                        stream.alloc(bytes).unwrap()
                    }
                    _ => stream.alloc(bytes).unwrap(),
                };
                if region.is_empty() {
                    return at;
                }
                look(&region, at);
                let begin = at;
                at += region.len() as u64;
                out.push((begin, region));
                assert_eq!(stream.position(), at);
                while out.len() > 12 || (random.u8(0..3) > 0 && !out.is_empty()) {
                    let (at, region) = out.swap_remove(random.usize(0..out.len()));
                    look(&region, at); // still
                    region.free().unwrap();
                }
            }
        }
        let mut buffer = vec![0; random.usize(1..70_000)];
        let n = stream.read(&mut buffer).unwrap();
        look(&buffer[..n], at);
        at += n as u64;
        let data = stream.fill_buf().unwrap();
        look(data, at);
        let n = random.usize(0..data.len() + 1);
        stream.consume(n);
        at += n as u64;
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

#[test]
fn what_one_process_writes_the_other_reads_by_any_interface_and_in_regions_of_any_size() {
    let operations = setting("NINEFOLD_RING_OPERATIONS").unwrap_or(100_000);
    let seed = setting("NINEFOLD_RING_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("NINEFOLD_RING_SEED={seed}");
    for (n, bytes) in [4096, 16 << 10, 64 << 10, 1 << 20].into_iter().enumerate() {
        let seed = seed + n as u64;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut stream = reader(ours, 0);
        let child = start(&format!("write {bytes} {seed} {}", operations / 4), theirs);
        let read = play_reader(&mut stream, seed);
        child.done();
        assert!(read > operations / 4, "{read} bytes");
    }
}

#[test]
fn regions_lie_in_the_shared_memory_at_both_ends() {
    let (from, to) = Stream::ring().unwrap();
    assert_eq!((from.module(), to.module()), ("ring", "ring"));
    write(&to, 0, 100); // the first goes with the offer
    look(&from.alloc_full(100).unwrap(), 0);
    for n in 1..1000 {
        let mut region = to.alloc(5000).unwrap();
        assert_shared(&region);
        put(&mut region, 100 + (n - 1) * 5000);
        region.free().unwrap();
        to.flush().unwrap();
        let region = from.alloc_full(5000).unwrap();
        look(&region, 100 + (n - 1) * 5000);
        assert_shared(&region);
    }
    to.close().unwrap();
    assert!(from.alloc(1).unwrap().is_empty());
    assert!(from.alloc(1).unwrap().is_empty());
}

#[test]
fn what_was_written_before_the_close_is_read_after_it_and_then_the_end() {
    let (from, to) = Stream::ring().unwrap();
    write(&to, 0, 300_000);
    to.close().unwrap();
    let mut data = Vec::new();
    let mut from = from;
    from.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), 300_000);
    look(&data, 0);
}

#[test]
fn lines_come_whole_across_the_end_of_the_ring() {
    let (from, to) = ring(4096).ring().unwrap();
    let lines: Vec<String> = (0..5000).map(|n| format!("{n} {}\n", "x".repeat(n % 700))).collect();
    let written = lines.clone();
    let thread = std::thread::spawn(move || {
        for line in &written {
            (&to).write_all(line.as_bytes()).unwrap();
        }
        to.close().unwrap();
    });
    for (n, line) in lines.iter().enumerate() {
        assert!(*from.alloc_line().unwrap() == *line.as_bytes(), "line {n}");
    }
    assert!(from.alloc_line().unwrap().is_empty());
    thread.join().unwrap();
}

#[test]
fn a_region_that_is_kept_for_ever_does_not_stop_the_stream() {
    let (from, to) = ring(16 << 10).ring().unwrap();
    let thread = std::thread::spawn(move || {
        for n in 0..200 {
            let mut region = to.alloc(5000).unwrap();
            put(&mut region, n * 5000);
            region.free().unwrap();
        }
        to.close().unwrap();
    });
    let first = from.alloc_full(10).unwrap();
    let mut kept = vec![(0, first)];
    let mut at = 10;
    loop {
        let region = from.alloc(3000).unwrap();
        if region.is_empty() {
            break;
        }
        look(&region, at);
        let begin = at;
        at += region.len() as u64;
        if begin / 100_000 != at / 100_000 {
            kept.push((begin, region));
        }
    }
    assert_eq!(at, 1_000_000);
    kept.iter().for_each(|(at, region)| look(region, *at));
    thread.join().unwrap();
}

#[test]
fn a_program_that_knows_no_rings_reads_the_bytes_and_nothing_else() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut cat = Command::new("cat").stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).spawn().unwrap();
    let stream = writer(ours, 4096);
    let mut output = cat.stdout.take().unwrap();
    let read = std::thread::spawn(move || {
        let mut data = Vec::new();
        output.read_to_end(&mut data).unwrap();
        data
    });
    play_writer(&stream, 7, 2000);
    let all = stream.position();
    stream.close().unwrap();
    let data = read.join().unwrap();
    assert!(cat.wait().unwrap().success());
    assert_eq!(data.len() as u64, all);
    look(&data, 0);
}

#[test]
fn a_program_that_knows_no_rings_is_read() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut stream = reader(ours, 4096);
    let mut command = Command::new("sh");
    command.args(["-c", "echo one; echo two"]).stdout(OwnedFd::from(theirs));
    let mut child = command.spawn().unwrap();
    drop(command); // and its descriptor
    assert_eq!(&*stream.alloc_line().unwrap(), b"one\n");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_ordinary_pipe_is_a_pipe() {
    let (from, to) = std::io::pipe().unwrap();
    let (mut from, to) = (reader(from, 4096), writer(to, 4096));
    write(&to, 0, 5000);
    to.close().unwrap();
    assert_eq!(play_reader(&mut from, 1), 5000);
}

#[test]
fn nobody_who_listens_by_chance_sees_more_than_the_bytes() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (left, mut right) = (ring(4096).take(OwnedFd::from(ours)).unwrap(), theirs.try_clone().unwrap());
    theirs.set_nonblocking(true).unwrap();
    assert_eq!(theirs.read(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    write(&left, 0, 5000);
    let mut data = vec![0; 6000];
    assert_eq!(theirs.read(&mut data).unwrap(), 5000);
    look(&data[..5000], 0);
    right.write_all(b"answer").unwrap();
    assert_eq!(&*left.alloc_in(Mode::Read, 6).unwrap(), b"answer");
    drop(left);
    assert_eq!(theirs.read(&mut data).unwrap(), 0);
}

#[test]
fn a_reader_that_comes_late_gets_the_first_bytes_by_the_sockets_and_then_a_ring() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let to = writer(ours, 4096);
    write(&to, 0, 1000);
    let from = reader(theirs, 0);
    write(&to, 1000, 1000);
    look(&from.alloc_full(1500).unwrap(), 0);
    let region = from.alloc_full(500).unwrap();
    look(&region, 1500);
    write(&to, 2000, 1000);
    let region = from.alloc_full(1000).unwrap();
    look(&region, 2000);
    assert_shared(&region);
}

#[test]
fn writers_may_follow_each_other_with_rings_and_without() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut from = reader(ours, 0);
    let mut at = 0;
    for n in 0..6 {
        let mut socket = theirs.try_clone().unwrap();
        if n % 3 == 1 {
            let mut data = vec![0; 3000];
            put(&mut data, at);
            socket.write_all(&data).unwrap();
        } else {
            let to = writer(socket, 4096);
            write(&to, at, 2000);
            write(&to, at + 2000, 1000);
            to.close().unwrap();
        }
        at += 3000;
    }
    drop(theirs);
    assert_eq!(play_reader(&mut from, 3), at);
}

#[test]
fn both_ways_at_once() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let [left, right] = [ours, theirs].map(|socket| ring(4096).take(OwnedFd::from(socket)).unwrap());
    // Each reads before it writes on, and nobody flushes: who waits has shown what it wrote.
    let thread = std::thread::spawn(move || {
        for n in 0..2000 {
            let question = right.alloc_in(Mode::Read, 100).unwrap();
            look(&question, n * 100);
            right.alloc_in(Mode::Write, 100).unwrap().copy_from_slice(&question);
        }
        right.close().unwrap();
    });
    for n in 0..2000 {
        put(&mut left.alloc_in(Mode::Write, 100).unwrap(), n * 100);
        let mut answer = left.alloc_in(Mode::Read, 100).unwrap().to_vec();
        while answer.len() < 100 {
            answer.extend_from_slice(&left.alloc_in(Mode::Read, 100 - answer.len()).unwrap());
        }
        look(&answer, n * 100);
    }
    thread.join().unwrap();
    assert!(left.alloc_in(Mode::Read, 1).unwrap().is_empty());
}

#[test]
fn threads_share_an_end() {
    let (from, to) = ring(16 << 10).ring().unwrap();
    const EACH: u64 = 20_000;
    let sums = std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let to = &to;
            scope.spawn(move || {
                for n in 0..EACH {
                    to.alloc(8).unwrap().copy_from_slice(&(thread << 32 | n).to_le_bytes());
                }
                // The other's may be out; whoever is last has none before it.
                let flushed = to.flush();
                assert!(matches!(flushed, Ok(()) | Err(Error::Outstanding)), "{flushed:?}");
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let from = &from;
                scope.spawn(move || {
                    let (mut sum, mut last) = (0, [0; 2]);
                    for _ in 0..EACH {
                        let region = from.alloc_full(8).unwrap();
                        let value = u64::from_le_bytes((&*region).try_into().unwrap());
                        let (thread, n) = ((value >> 32) as usize, value as u32 as u64);
                        assert!(n + 1 > last[thread], "{n} of {thread} behind {}", last[thread]);
                        last[thread] = n + 1;
                        sum += n;
                    }
                    sum
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert_eq!(sums, EACH * (EACH - 1));
}

#[test]
fn a_writer_that_was_killed_is_an_error_behind_what_it_gave_and_never_the_end() {
    for round in 0..40 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let from = reader(ours, 0);
        let mut child = start(&format!("write-for-ever {round}"), theirs);
        let mut random = fastrand::Rng::with_seed(round);
        let (mut at, kill_at) = (0, random.u64(1..3_000_000));
        let mut killed = false;
        let told = loop {
            match from.alloc(random.usize(1..20_000)) {
                Ok(region) => {
                    assert!(!region.is_empty(), "the end, at {at}");
                    look(&region, at);
                    at += region.len() as u64;
                }
                Err(e) => break e,
            }
            if at >= kill_at && !killed {
                child.kill();
                killed = true;
            }
        };
        assert!(killed, "{told:?}");
        assert_eq!(told, Error::Os(Errno::CONNRESET));
        assert_eq!(from.alloc(1).err(), Some(told), "and again");
    }
}

#[test]
fn a_writer_that_waits_is_told_that_its_reader_was_killed() {
    for round in 0..20u64 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // One that has said that it knows rings: with the first byte there is one.
        let to = writer(ours, 64 << 10);
        let many = 1 + round * 10_007;
        let mut child = start(&format!("read {many}"), theirs);
        let mut at = 0;
        let mut killer = None;
        let told = loop {
            match to.alloc(3001).and_then(|mut region| {
                put(&mut region, at);
                region.free()
            }) {
                Ok(()) => at += 3001,
                Err(e) => break e,
            }
            // It reads no further, so that sooner or later this end waits.
            if at > many && killer.is_none() {
                to.flush().unwrap();
                let process = rustix::process::Pid::from_child(&child.0);
                killer = Some(std::thread::spawn(move || {
                    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
                }));
            }
            assert!(at < 64 << 20, "written to nobody");
        };
        // Sockets say the second where bytes were not read.
        assert!(matches!(told, Error::Os(Errno::PIPE | Errno::CONNRESET)), "{told:?}");
        assert!(to.flush().is_err());
        killer.unwrap().join().unwrap();
        child.0.wait().unwrap();
    }
}

#[test]
fn a_reader_that_closes_is_told_to_the_writer_without_a_signal() {
    let (from, to) = Stream::ring().unwrap();
    write(&to, 0, 100);
    look(&from.alloc_full(100).unwrap(), 0);
    drop(from);
    to.alloc(5).unwrap().free().unwrap();
    assert_eq!(to.flush(), Err(Error::Os(Errno::PIPE)));
    assert_eq!(to.close(), Err(Error::Os(Errno::PIPE)));
}

#[test]
fn a_stream_that_is_dropped_with_a_hole_in_it_has_no_end_for_the_reader() {
    let (from, to) = Stream::ring().unwrap();
    write(&to, 0, 100);
    std::mem::forget(to.alloc(10).unwrap());
    put(&mut to.alloc(10).unwrap(), 110);
    assert_eq!(to.flush(), Err(Error::Outstanding));
    drop(to);
    look(&from.alloc_full(100).unwrap(), 0);
    assert_eq!(from.alloc(1).err(), Some(Error::Os(Errno::CONNRESET)));
}

#[test]
fn descriptors_that_do_not_wait_are_not_waited_for_at_either_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let same = ours.try_clone().unwrap();
    let (from, to) = (reader(ours, 0), writer(theirs, 4096));
    let again = Some(Error::Os(Errno::AGAIN));
    assert_eq!(from.alloc(1).err(), again);
    let (mut wrote, mut read) = (0, 0);
    for _ in 0..200 {
        loop {
            match to.alloc(300) {
                Ok(mut region) => {
                    put(&mut region, wrote);
                    wrote += 300;
                }
                Err(e) => {
                    assert_eq!(Some(e), again);
                    break;
                }
            }
        }
        loop {
            match from.alloc(1000) {
                Ok(region) => {
                    look(&region, read);
                    read += region.len() as u64;
                }
                Err(e) => {
                    assert_eq!(Some(e), again);
                    break;
                }
            }
        }
    }
    assert!(read > 200 * 2000, "{read}");
    to.flush().unwrap();
    to.close().unwrap();
    while read < wrote {
        let region = from.alloc(1000).unwrap();
        look(&region, read);
        read += region.len() as u64;
    }
    // A child that another test is about to start may have the other end for a moment: then it is not closed yet.
    same.set_nonblocking(false).unwrap();
    assert!(from.alloc(1).unwrap().is_empty());
}

#[test]
fn modules_are_pushed_on_a_ring_and_taken_off() {
    let (from, to) = ring(16 << 10).ring().unwrap();
    write(&to, 0, 1000);
    look(&from.alloc_full(500).unwrap(), 0);
    from.push("prefetch").unwrap();
    let thread = std::thread::spawn(move || {
        for n in 0..100 {
            write(&to, 1000 + n * 3000, 3000);
        }
        to
    });
    let mut at = 500;
    while at < 200_000 {
        let region = from.alloc(5000).unwrap();
        look(&region, at);
        at += region.len() as u64;
    }
    let to = thread.join().unwrap();
    from.pop().unwrap();
    while at < 301_000 {
        let region = from.alloc(5000).unwrap();
        look(&region, at);
        at += region.len() as u64;
    }
    // One that waits is ended.
    from.push("prefetch").unwrap();
    from.pop().unwrap();
    write(&to, at, 10);
    look(&from.alloc_full(10).unwrap(), at);
}

#[test]
fn the_bytes_before_a_ring_are_buffered_as_those_of_a_pipe() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let from = reader(ours, 0);
    let mut to = writer(theirs, 4096);
    writeln!(to, "one").unwrap();
    writeln!(to, "two").unwrap();
    Write::flush(&mut to).unwrap();
    let mut lines = BufReader::new(from).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    drop(to);
    assert!(lines.next().is_none());
}

/// A memfd as a ring's writer makes it, but with these seals and this length; the words are written with pwrite(2).
fn memory(bytes: usize, seals: SealFlags, words: &[(u64, u64)]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("ninefold-ring-of-a-test", flags).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    for &(at, word) in words {
        pwrite(&file, &word.to_le_bytes(), at).unwrap();
    }
    file
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
const KIND: (u64, u64) = (0, u64::from_le_bytes(*b"9fring1\0"));
/// Where the words are.
const CLOSED: u64 = 8;
const WRITER: u64 = 128;
const READER: u64 = 256;
const SLEEP: u64 = 16;

/// Offers it, as if by a writer, whose end of the life line this is.
fn offer(socket: &UnixStream, memory: &OwnedFd) -> OwnedFd {
    let (line, far) = UnixStream::pair().unwrap();
    let both = [memory.as_fd(), far.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&both)));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
    line.into()
}

/// A reader that is offered this; the life line stays.
fn offered(memory: &OwnedFd) -> (Stream, UnixStream, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let from = reader(ours, 0);
    let line = offer(&theirs, memory);
    (from, theirs, line)
}

#[test]
fn words_that_cannot_be_are_an_error_for_the_reader() {
    for words in [
        &[(WRITER, 4097)][..],
        &[(WRITER, u64::MAX)],
        &[(WRITER, 1 << 63)],
        &[(CLOSED, 5), (WRITER, 3)],
        &[(CLOSED, 1), (WRITER, 3)],
        &[(CLOSED, u64::MAX)],
    ] {
        let file = memory(8192, SEALS, &[&[KIND], words].concat());
        let (from, _socket, _line) = offered(&file);
        assert_eq!(from.alloc(1).err(), Some(Error::BadRing), "{words:?}");
        assert_eq!(from.alloc(1).err(), Some(Error::BadRing), "and again");
    }
    // What was right is had, and then not less than that.
    let file = memory(8192, SEALS, &[KIND, (WRITER, 1000)]);
    let (from, _socket, _line) = offered(&file);
    assert_eq!(&*from.alloc_full(1000).unwrap(), [0; 1000]);
    pwrite(&file, &999u64.to_le_bytes(), WRITER).unwrap();
    assert_eq!(from.alloc(1).err(), Some(Error::BadRing));
    // Nor less than what had come when more was asked for, and lies there.
    let file = memory(8192, SEALS, &[KIND, (WRITER, 1)]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let from = reader(ours, 0);
    let _line = offer(&theirs, &file);
    assert_eq!(&*from.alloc(1).unwrap(), [0]); // the first goes with the offer
    pwrite(&file, &6u64.to_le_bytes(), WRITER).unwrap();
    assert_eq!(from.alloc_full(100).err(), Some(Error::Os(Errno::AGAIN)));
    let out = from.alloc(100).unwrap();
    assert_eq!(&*out, [0; 5]);
    assert_shared(&out);
    pwrite(&file, &3u64.to_le_bytes(), WRITER).unwrap();
    assert_eq!(from.alloc(1).err(), Some(Error::BadRing));
    pwrite(&file, &10u64.to_le_bytes(), WRITER).unwrap();
    assert_eq!(from.alloc(1).err(), Some(Error::BadRing), "and again");
}

#[test]
fn memory_that_could_be_taken_away_or_is_no_ring_is_not_looked_at() {
    for file in [
        memory(8192, SealFlags::GROW | SealFlags::SEAL, &[KIND]),
        memory(8192, SealFlags::empty(), &[KIND]),
        memory(8191, SEALS, &[KIND]),
        memory(4096, SEALS, &[KIND]),
        memory(4096 + 2048, SEALS, &[KIND]),
        memory(4096 + (128 << 20), SEALS, &[KIND]),
        memory(8192, SEALS, &[]),
    ] {
        let (from, _socket, _line) = offered(&file);
        assert_eq!(from.alloc(1).err(), Some(Error::BadRing));
    }
    // Two descriptors that somebody passes for another reason are none of ours, and the byte is the stream's.
    let (from, ..) = offered(&std::fs::File::open("/dev/null").unwrap().into());
    assert_eq!(&*from.alloc(1).unwrap(), [0]);
}

#[test]
fn a_ring_for_which_the_reader_has_no_descriptors_is_an_error_behind_what_came_before_and_for_the_writer() {
    for free in [0, 1] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = start(&format!("read-without-descriptors {free}"), theirs);
        (&ours).read_exact(&mut [0; 5]).unwrap();
        let mut data = [0; 5];
        put(&mut data, 0);
        (&ours).write_all(&data).unwrap();
        let to = writer(ours, 4096);
        let told = loop {
            if let Err(e) = to.alloc(100).and_then(Region::free).and_then(|()| to.flush()) {
                break e;
            }
        };
        assert_eq!(told, Error::Os(Errno::PIPE));
        child.done();
    }
}

/// A reader that is the test itself: takes the offer, and has the ring's memory.
fn taken(socket: &UnixStream) -> (OwnedFd, OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let line = fds.pop().unwrap();
    (fds.pop().unwrap(), line)
}

#[test]
fn a_ring_has_all_its_memory_when_it_is_offered() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(reader(theirs.try_clone().unwrap(), 0)); // the name stays
    let to = writer(ours, 1 << 20);
    let region = to.alloc(10).unwrap();
    let (file, _line) = taken(&theirs);
    let stat = fstat(&file).unwrap();
    assert_eq!(stat.st_size, 4096 + (1 << 20));
    assert!(stat.st_blocks * 512 >= stat.st_size, "{} blocks of {} bytes", stat.st_blocks, stat.st_size);
    drop(region);
}

#[test]
fn words_that_cannot_be_are_an_error_for_the_writer() {
    for word in [5000, u64::MAX, 1 << 63] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(reader(theirs.try_clone().unwrap(), 0)); // the name stays
        let to = writer(ours, 4096);
        write(&to, 0, 10);
        let (file, _line) = taken(&theirs);
        assert!(ftruncate(&file, 0).is_err(), "it is sealed");
        pwrite(&file, &word.to_le_bytes(), READER).unwrap();
        // A value of `sleep` that is none wakes nobody, and does no harm.
        pwrite(&file, &77u32.to_le_bytes(), READER + SLEEP).unwrap();
        let told = loop {
            if let Err(e) = to.alloc(100).and_then(Region::free) {
                break e;
            }
        };
        assert_eq!(told, Error::BadRing, "{word}");
    }
}

#[test]
fn a_reader_that_lies_of_waiting_costs_rings_and_nothing_of_the_data() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(reader(theirs.try_clone().unwrap(), 0));
    let to = writer(ours, 4096);
    write(&to, 0, 10);
    let (file, _line) = taken(&theirs);
    let (seen, sleep) = (READER + 8, READER + SLEEP);
    // It will be full, and the reader says that it has seen all then, and waits for more.
    write(&to, 10, 1000);
    write(&to, 1010, 3000);
    pwrite(&file, &4096u64.to_le_bytes(), seen).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Again whenever it was woken.
            while !stop.load(Ordering::Relaxed) {
                pwrite(&file, &2u32.to_le_bytes(), sleep).unwrap();
                std::thread::yield_now();
            }
        });
        write(&to, 4010, 1000);
        stop.store(true, Ordering::Relaxed);
    });
    let mut data = vec![0; 4096];
    pread(&file, &mut data, 4096).unwrap();
    look(&data, 0);
    let mut closed = [0; 8];
    pread(&file, &mut closed, CLOSED).unwrap();
    assert_eq!(u64::from_le_bytes(closed), 4097, "it was left, whole");
    let (next, _line) = taken(&theirs);
    pread(&next, &mut data[..914], 4096).unwrap();
    look(&data[..914], 4096);
}
