//! A signal while a pipe or a socket is waited for: told by the call that waits, and nothing is lost. Alone in its program: what a signal
//! does is the same for all of one.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;

use ninefold_stream::{Error, Options, Stream};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::io::Errno;

#[path = "support/interrupted.rs"]
mod interrupted;

use interrupted::interrupted;

extern "C" fn heard(_: libc::c_int) {}

fn handle(flags: SaFlags) {
    let action = SigAction::new(SigHandler::Handler(heard), flags, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
}

const INTERRUPTED: Error = Error::Os(Errno::INTR);

/// Two ends, the first of which is read: a pipe's, and a socket's.
fn ends() -> [(OwnedFd, OwnedFd); 2] {
    let (from, to) = std::io::pipe().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    [(from.into(), to.into()), (ours.into(), theirs.into())]
}

/// Waits in vain, and has the stream back.
fn in_vain(stream: Stream, call: fn(&Stream) -> Option<Error>) -> Stream {
    interrupted(move || {
        assert_eq!(call(&stream), Some(INTERRUPTED));
        stream
    })
}

fn reads(from: OwnedFd, to: &OwnedFd) {
    let put = |data: &[u8]| assert_eq!(rustix::io::write(to, data), Ok(data.len()));
    let stream = Options::new().take_only(from, ninefold_stream::Mode::Read).unwrap();
    let stream = in_vain(stream, |s| s.alloc(1).err());
    let stream = in_vain(stream, |s| s.alloc_line().err());
    let stream = interrupted(move || {
        assert_eq!((&stream).read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::Interrupted);
        stream
    });
    // What has come is no shorter region of who wants all, which would look like the end; it is had by who wants no more.
    put(b"one");
    let stream = in_vain(stream, |s| s.alloc_full(10).err());
    let stream = in_vain(stream, |s| s.alloc_full(10).err());
    assert_eq!((&*stream.alloc(10).unwrap(), stream.position()), (&b"one"[..], 3));
    put(b"two");
    let stream = in_vain(stream, |s| s.alloc_line().err());
    put(b"three");
    let stream = in_vain(stream, |s| s.alloc_full(9).err());
    let stream = in_vain(stream, |s| s.alloc_line().err());
    put(b"\n");
    assert_eq!(&*stream.alloc_full(9).unwrap(), b"twothree\n");
    // Through what was pushed on it too.
    stream.push("gzip").unwrap();
    let stream = in_vain(stream, |s| s.alloc(1).err());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"compressed").unwrap();
    let gzip = gzip.finish().unwrap();
    put(&gzip[..12]);
    let stream = in_vain(stream, |s| s.alloc_full(10).err());
    put(&gzip[12..]);
    assert_eq!(&*stream.alloc_full(10).unwrap(), b"compressed");
}

fn writes(from: OwnedFd, to: OwnedFd) {
    const RECORD: usize = 1000;
    let stream = Options::new().take_only(to, ninefold_stream::Mode::Write).unwrap();
    // Until the pipe is full and the stream's own memory too; what the flush could not write is kept.
    let (stream, records) = interrupted(move || {
        let mut records = 0;
        let error = loop {
            match stream.alloc(RECORD) {
                Ok(mut region) => region.fill(records as u8),
                Err(e) => break e,
            }
            records += 1;
        };
        assert_eq!(error, INTERRUPTED);
        (stream, records)
    });
    let stream = in_vain(stream, |s| s.flush().err());
    // In one piece, past the stream's memory: signals come all the while, and no byte goes twice.
    let large: Vec<u8> = (0..4u32 << 20).map(|n| (n >> 8) as u8).collect();
    let all = records * RECORD + large.len();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::with_capacity(all);
        std::fs::File::from(from).read_to_end(&mut got).unwrap();
        got
    });
    let sent = large.clone();
    interrupted(move || {
        (&stream).write_all(&sent).unwrap();
        while let Err(e) = stream.flush() {
            assert_eq!(e, INTERRUPTED);
        }
    });
    let got = reader.join().unwrap();
    assert_eq!(got.len(), all);
    let (first, rest) = got.split_at(records * RECORD);
    assert!(first.chunks(RECORD).enumerate().all(|(n, record)| record.iter().all(|&b| b == n as u8)));
    assert!(rest == large);
}

/// A program that has its calls begun again by the kernel hears of no signal.
fn begun_again(from: OwnedFd, to: OwnedFd) {
    let stream = Options::new().take_only(from, ninefold_stream::Mode::Read).unwrap();
    let full = std::thread::spawn(move || stream.alloc_full(6).map(|region| region.to_vec()));
    rustix::io::write(&to, b"abc").unwrap();
    for _ in 0..100 {
        // SAFETY: a thread that was not joined.
        unsafe { libc::pthread_kill(full.as_pthread_t(), libc::SIGUSR1) };
        std::thread::yield_now();
    }
    rustix::io::write(&to, b"def").unwrap();
    assert_eq!(full.join().unwrap().unwrap(), b"abcdef");
}

/// Files are not interrupted, whatever comes.
fn files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    interrupted(move || {
        let stream = Options::new().read(true).write(true).create(true).open(&path).unwrap();
        for n in 0..2000u32 {
            stream.alloc(4096).unwrap().fill(n as u8);
        }
        stream.flush().unwrap();
        for module in ["mmap", "pread", "pread-random"] {
            let stream = Options::new().read(true).module(module).open(&path).unwrap();
            for n in 0..2000u32 {
                assert_eq!(&*stream.alloc_full(4096).unwrap(), [n as u8; 4096]);
            }
        }
        stream.close().unwrap();
    });
}

#[test]
fn a_signal_is_told_by_the_call_that_waits_and_nothing_is_lost() {
    handle(SaFlags::empty());
    for (from, to) in ends() {
        reads(from, &to);
    }
    for (from, to) in ends() {
        writes(from, to);
    }
    files();
    handle(SaFlags::SA_RESTART);
    for (from, to) in ends() {
        begun_again(from, to);
    }
}
