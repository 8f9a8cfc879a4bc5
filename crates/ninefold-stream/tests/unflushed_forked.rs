//! What was freed and not flushed at a fork(2): the parent writes it, and the child what it frees itself. Alone in its program: a child has of
//! the other threads only the locks that they held.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ninefold_stream::{Mode, Options, Raw, Stream};
use nix::libc;
use nix::pty::openpty;
use rustix::io::ioctl_fionbio;

#[path = "support/child.rs"]
mod child;

use child::says_yes;

/// One test at a time: a child of one has the locks that the other holds.
static ALONE: Mutex<()> = Mutex::new(());

/// What a stream writes, as it is read elsewhere.
enum Seen {
    Comes(File),
    Lies(File),
}

impl Seen {
    fn of(fd: OwnedFd) -> Seen {
        ioctl_fionbio(&fd, true).unwrap();
        Seen::Comes(fd.into())
    }

    /// Is all there that ever was?
    fn lies(&self) -> bool {
        matches!(self, Seen::Lies(_))
    }

    /// All that is there by now, of what comes since it was looked at last.
    fn now(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        match self {
            Seen::Comes(file) => {
                // Of a terminal that nobody has open any more it is EIO.
                let ended = file.read_to_end(&mut all).map_err(|e| e.raw_os_error());
                assert!(matches!(ended, Ok(_) | Err(Some(libc::EAGAIN | libc::EIO))), "{ended:?}");
            }
            Seen::Lies(file) => {
                all.resize(file.metadata().unwrap().len() as usize, 0);
                file.read_exact_at(&mut all, 0).unwrap();
            }
        }
        all
    }
}

/// A stream of each kind that writes.
fn streams(directory: &Path) -> Vec<(Stream, Seen)> {
    let (from, to) = std::io::pipe().unwrap();
    let pty = openpty(None, None).unwrap();
    let mut all = vec![
        (Options::new().take(to.into()).unwrap(), Seen::of(from.into())),
        (Options::new().take_only(pty.slave, Mode::Write).unwrap(), Seen::of(pty.master)),
    ];
    let write = || Options::new().write(true).create_new(true);
    for (name, options) in [
        ("append", write().append(true)),
        ("pwrite", write()),
        ("read-write", write().read(true)),
        ("read-write-random", write().read(true).random(true)),
    ] {
        let path = directory.join(name);
        let stream = options.open(&path).unwrap();
        all.push((stream, Seen::Lies(File::open(path).unwrap())));
    }
    let modules: Vec<_> = all.iter().map(|(stream, _)| stream.module()).collect();
    assert_eq!(modules, ["pipe", "terminal", "append", "pwrite", "read-write", "read-write-random"]);
    all
}

fn put(stream: &Stream, bytes: &[u8]) {
    let mut region = stream.alloc(bytes.len()).unwrap();
    region.copy_from_slice(bytes);
    region.free().unwrap();
}

#[test]
fn a_child_writes_what_it_frees_and_nothing_that_its_parent_freed_before() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    for (stream, mut seen) in streams(directory.path()) {
        let module = stream.module();
        put(&stream, b"flushed ");
        stream.flush().unwrap();
        let mut lies = seen.now();
        assert_eq!(lies, b"flushed ", "{module}");
        if !seen.lies() {
            lies.clear();
        }
        put(&stream, b"parent's ");
        put(&stream, b"two ");
        let mut held = Some(stream);
        // One that does nothing with it but end it.
        assert!(says_yes(|| held.take().is_some()), "{module}");
        assert_eq!(seen.now(), lies, "{module}");
        // By short calls, by `std`, and with a child of its own.
        let is_closed = says_yes(|| {
            let Some(stream) = held.take() else { return false };
            put(&stream, b"child's ");
            (&stream).write_all(b"three ").unwrap();
            let mut held = Some(stream);
            says_yes(|| held.take().is_some()) && held.take().is_some_and(|stream| stream.close().is_ok())
        });
        assert!(is_closed, "{module}");
        let childs = seen.now();
        held.take().unwrap().close().unwrap();
        let all = match module {
            "pipe" | "terminal" => [childs, seen.now()].concat(),
            _ => seen.now(),
        };
        let expected: &[u8] = match module {
            "pipe" | "terminal" => b"child's three parent's two ",
            "append" => b"flushed child's three parent's two ",
            // Each has its place.
            _ => b"flushed parent's two child's three ",
        };
        assert_eq!(all, expected, "{module}");
    }
}

#[test]
fn a_region_that_is_out_at_a_fork_is_written_by_each_that_frees_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    for (stream, mut seen) in streams(directory.path()) {
        let module = stream.module();
        let mut out = stream.alloc(4).unwrap();
        put(&stream, b"behind");
        let mut last = stream.alloc(3).unwrap();
        put(&stream, b"END");
        out.copy_from_slice(b"both");
        last.copy_from_slice(b"too");
        let (mut out, mut last) = (Some(out), Some(last));
        let is_flushed = says_yes(|| {
            stream.flush().unwrap(); // of the child's nothing waits for a region
            let freed = [out.take(), last.take()].map(|region| region.is_some_and(|region| region.free().is_ok()));
            freed == [true; 2] && stream.flush().is_ok()
        });
        assert!(is_flushed, "{module}");
        let childs = seen.now();
        let expected: &[u8] = if module.starts_with("pwrite") || module.starts_with("read-write") {
            b"both\0\0\0\0\0\0too"
        } else {
            b"bothtoo"
        };
        assert_eq!(childs, expected, "{module}");
        drop((out, last));
        stream.close().unwrap();
        let parents = seen.now();
        assert!(parents.ends_with(b"bothbehindtooEND"), "{module} {parents:?}");
        assert_eq!(parents.len(), if module == "append" { 7 + 16 } else { 16 }, "{module}");
    }
}

#[test]
fn a_child_has_what_its_thread_has_locked_and_what_another_thread_made() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (from, to) = std::io::pipe().unwrap();
    let mut seen = Seen::of(from.into());
    let make = move || {
        let raw = Raw::new(Options::new().take(to.into()).unwrap());
        put(raw.stream(), b"parent's "); // the first call makes the room
        raw
    };
    let raw = std::thread::spawn(make).join().unwrap();
    raw.stream().use_in_this_thread();
    for is_locked in [false, true] {
        if is_locked {
            raw.lock();
        }
        assert!(raw.quick_write(b"short "));
        let is_flushed = says_yes(|| {
            let wrote = !raw.quick_write(b"child's ") && raw.stream().write_all(b"child's ").is_ok();
            let again = raw.quick_write(b"short ");
            raw.stream().use_in_this_thread();
            let unlocked = raw.unlock().is_ok();
            wrote && again && unlocked == is_locked && raw.stream().flush().is_ok()
        });
        assert!(is_flushed, "{is_locked}");
        assert_eq!(seen.now(), b"child's short ", "{is_locked}");
        if is_locked {
            raw.unlock().unwrap();
        }
    }
    // Of the thread that owns it the child has only what that left.
    let raw = std::thread::spawn(move || {
        raw.stream().use_in_this_thread();
        assert!(raw.quick_write(b"end"));
        raw
    });
    let raw = raw.join().unwrap();
    assert!(says_yes(|| raw.stream().flush().is_ok()));
    assert_eq!(seen.now(), b"");
    assert!(raw.close().is_ok());
    assert_eq!(seen.now(), b"parent's short short end");
}
