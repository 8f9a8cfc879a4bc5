//! Streams on terminals, each a pseudo-terminal of which the test has the other end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ninefold_stream::{Error, Mode, Options, Stream};
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A terminal that is read by lines, and changes nothing of what is written and shows nothing of what is typed; and who sits there.
fn terminal() -> (File, OwnedFd) {
    let pty = openpty(None, None).unwrap();
    let mut modes = tcgetattr(&pty.slave).unwrap();
    modes.local_flags.remove(LocalFlags::ECHO);
    modes.output_flags.remove(OutputFlags::OPOST);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &modes).unwrap();
    (File::from(pty.master), pty.slave)
}

fn stream(fd: &OwnedFd) -> Stream {
    Options::new().take(fd.try_clone().unwrap()).unwrap()
}

/// Waits for so many bytes to be seen.
fn seen(screen: &mut File, bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let mut have = 0;
    while have < bytes {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&screen.as_fd(), PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ready, 1, "nothing more is seen behind {:?}", String::from_utf8_lossy(&all[..have]));
        have += screen.read(&mut all[have..]).unwrap();
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_terminal_is_known_and_gives_a_line_at_a_time() {
    let (mut keys, fd) = terminal();
    let stream = stream(&fd);
    assert_eq!((stream.module(), stream.mode()), ("terminal", Mode::Write));
    keys.write_all(b"one\ntwo\nthree and more\n").unwrap();
    assert_eq!(&*stream.alloc_in(Mode::Read, 100).unwrap(), b"one\n");
    assert_eq!(&*stream.alloc_line().unwrap(), b"two\n");
    assert_eq!(&*stream.alloc(5).unwrap(), b"three");
    assert_eq!(&*stream.alloc(100).unwrap(), b" and more\n", "what is at hand");
    assert_eq!(stream.seek(std::io::SeekFrom::Start(0)), Err(Error::NotSeekable));
    assert_eq!(stream.position(), 23);
    let null = Options::new().read(true).open("/dev/null").unwrap();
    assert_eq!(null.module(), "pipe", "no terminal");
    assert_eq!(Options::new().read(true).module("terminal").open("/dev/null").err(), Some(Error::NoModule));
}

#[test]
fn an_end_that_is_typed_is_told_once_behind_what_came_before_it() {
    let (mut keys, fd) = terminal();
    let stream = Options::new().take_only(fd, Mode::Read).unwrap();
    // Control-D behind part of a line gives that part, and alone the end.
    keys.write_all(b"ab\n\x04next\nla\x04\x04more\n").unwrap();
    assert_eq!(&*stream.alloc_full(10).unwrap(), b"ab\n", "all there is to the end");
    assert!(stream.alloc(10).unwrap().is_empty(), "that end");
    assert_eq!(&*stream.alloc(10).unwrap(), b"next\n", "and behind it the stream goes on");
    assert_eq!(&*stream.alloc_line().unwrap(), b"la", "a line without its end");
    assert!(stream.alloc_line().unwrap().is_empty());
    assert_eq!(&*stream.alloc_line().unwrap(), b"more\n");
    // What was not taken comes before the end.
    keys.write_all(b"abc\n\x04x\n").unwrap();
    let mut region = stream.alloc_full(10).unwrap();
    region.resize(1).unwrap();
    region.free().unwrap();
    assert_eq!(&*stream.alloc_full(10).unwrap(), b"bc\n");
    assert!(stream.alloc_full(10).unwrap().is_empty());
    assert_eq!(&*stream.alloc(10).unwrap(), b"x\n");
}

#[test]
fn a_line_is_written_at_its_end_and_what_is_no_line_is_not() {
    let (mut screen, fd) = terminal();
    let out = Options::new().take_only(fd.try_clone().unwrap(), Mode::Write).unwrap();
    out.alloc(4).unwrap().copy_from_slice(b"one\n");
    assert_eq!(seen(&mut screen, 4), "one\n");
    out.alloc(2).unwrap().copy_from_slice(b"tw");
    rustix::io::write(&fd, b"by another;").unwrap();
    out.alloc(2).unwrap().copy_from_slice(b"o\n");
    assert_eq!(seen(&mut screen, 15), "by another;two\n");
    // Several regions, freed in another order: a line goes when all of it may.
    let (mut first, mut second) = (out.alloc(3).unwrap(), out.alloc(3).unwrap());
    first.copy_from_slice(b"ab ");
    second.copy_from_slice(b"cd\n");
    second.free().unwrap();
    rustix::io::write(&fd, b"between;").unwrap();
    first.free().unwrap();
    assert_eq!(seen(&mut screen, 14), "between;ab cd\n");
    (&out).write_all(b"by std\n").unwrap();
    assert_eq!(seen(&mut screen, 7), "by std\n");
    out.alloc(3).unwrap().copy_from_slice(b"end");
    rustix::io::write(&fd, b"then ").unwrap();
    out.close().unwrap();
    assert_eq!(seen(&mut screen, 8), "then end");
}

#[test]
fn who_is_asked_has_seen_the_question_on_whichever_stream_it_is() {
    let (mut person, fd) = terminal();
    let (mut other, other_fd) = terminal();
    let both = stream(&fd);
    let input = Options::new().take_only(fd.try_clone().unwrap(), Mode::Read).unwrap();
    let output = Options::new().take_only(fd, Mode::Write).unwrap();
    let elsewhere = stream(&other_fd);
    let answers = std::thread::spawn(move || {
        for question in ["name? ", "really? ", "age? "] {
            assert_eq!(seen(&mut person, question.len()), question);
            person.write_all(question.replace("? ", "!\n").as_bytes()).unwrap();
        }
        person
    });
    output.alloc(6).unwrap().copy_from_slice(b"name? ");
    elsewhere.alloc(6).unwrap().copy_from_slice(b"other ");
    assert_eq!(&*input.alloc_line().unwrap(), b"name!\n", "another stream of the process");
    assert_eq!(seen(&mut other, 6), "other ");
    both.alloc(8).unwrap().copy_from_slice(b"really? ");
    assert_eq!(&*both.alloc_in(Mode::Read, 100).unwrap(), b"really!\n", "the same stream");
    // A thread that waits for another terminal has its stream, and nobody waits for it.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| elsewhere.alloc_in(Mode::Read, 10).unwrap().to_vec());
        output.alloc(5).unwrap().copy_from_slice(b"age? ");
        assert_eq!(&*input.alloc_line().unwrap(), b"age!\n");
        other.write_all(b"go on\n").unwrap();
        assert_eq!(waiting.join().unwrap(), b"go on\n");
    });
    drop(answers.join().unwrap());
}

#[test]
fn a_terminal_that_does_not_wait_loses_nothing_and_has_nothing_twice() {
    let (mut person, fd) = terminal();
    rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK).unwrap();
    let again = Error::Os(Errno::AGAIN);
    let stream = stream(&fd);
    assert_eq!(stream.alloc_in(Mode::Read, 1).err(), Some(again));
    person.write_all(b"here\n").unwrap();
    let line = loop {
        match stream.alloc_line() {
            Err(e) => assert_eq!(e, again),
            Ok(line) => break line.to_vec(),
        }
    };
    assert_eq!(line, b"here\n");
    // Nobody reads: the terminal is full at some line, and says so; that line is kept, and so are those behind it.
    let mut wrote = String::new();
    let mut told = false;
    for number in 0..5000 {
        let line = format!("line {number}\n");
        if number % 2 == 0 {
            let mut region = stream.alloc_in(Mode::Write, line.len()).unwrap();
            region.copy_from_slice(line.as_bytes());
            if let Err(e) = region.free() {
                assert_eq!(e, again);
                told = true;
            }
        } else {
            (&stream).write_all(line.as_bytes()).unwrap();
        }
        wrote.push_str(&line);
    }
    assert!(told && stream.flush() == Err(again));
    let all = wrote.len();
    let reader = std::thread::spawn(move || seen(&mut person, all));
    let flushed = loop {
        match stream.flush() {
            Err(e) if e == again => std::thread::yield_now(),
            flushed => break flushed,
        }
    };
    assert_eq!(flushed, Ok(()));
    assert!(reader.join().unwrap() == wrote);
}

#[test]
fn a_terminal_that_is_hung_up_is_told_by_who_writes() {
    let (person, fd) = terminal();
    let stream = stream(&fd);
    drop(person);
    let mut line = stream.alloc(3).unwrap();
    line.copy_from_slice(b"no\n");
    let hung_up = Err(Error::Os(Errno::IO));
    assert_eq!(line.free(), hung_up);
    assert_eq!(stream.flush(), hung_up);
    assert_eq!(stream.close(), hung_up);
}
