//! What a session does when the file server behind it does not keep its side: nothing of it reaches the wire but an error.

use ninefold_proto::message::{Payload, R, T};
use ninefold_proto::server::{Done, Event, Limits, Outbox, RecordEnd, RequestId, Session};
use ninefold_proto::types::{Qid, QidType};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Errno, Error, Fid, Tag};

const DIR: Qid = Qid { kind: QidType::DIR, version: 1, path: 1 };
const MSIZE: u32 = 8192;

/// A session with fid 0 on file 0, a directory. A file is a number.
struct Bench {
    session: Session<u32, Vec<u8>>,
    out: Outbox<Vec<u8>>,
    dialect: Dialect,
}

impl Bench {
    fn attached(dialect: Dialect) -> Bench {
        let mut b = Bench { session: Session::new(Limits::default()), out: Outbox::default(), dialect };
        b.send(T::Version { msize: MSIZE, version: dialect.as_str().as_bytes() }, Tag::NONE);
        let attach = T::Attach { fid: Fid(0), afid: Fid::NONE, uname: b"u", aname: b"", n_uname: 0 };
        b.answer(attach, Ok(Done::Attached { qid: DIR, file: 0, read_only: false }));
        b
    }

    /// The request that is to be carried out, if any.
    fn send(&mut self, message: T<'_>, tag: Tag) -> Option<RequestId> {
        let mut frame = Vec::new();
        message.encode(tag, self.dialect, &mut frame);
        match self.session.handle_frame(&frame, &|_| false, &mut self.out).unwrap() {
            Event::Execute(request) => Some(request.id),
            _ => None,
        }
    }

    /// Sends a request and brings its result; the replies.
    fn answer(&mut self, message: T<'_>, result: Result<Done<u32, Vec<u8>>, Error>) -> Vec<u8> {
        self.sent();
        let id = self.send(message, Tag(1)).expect("the request is carried out");
        self.session.complete(id, result, &mut self.out);
        self.sent()
    }

    fn sent(&mut self) -> Vec<u8> {
        let sent: Vec<u8> = self.out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().collect();
        self.out.advance(sent.len());
        sent
    }

    /// Asserts that `frame` is one error with this number, within the msize.
    #[track_caller]
    fn is_error(&self, frame: &[u8], errno: Errno) {
        assert!(frame.len() <= MSIZE as usize, "{} bytes", frame.len());
        let (header, body) = split_frame(frame).unwrap();
        match R::decode(header.kind, body, self.dialect) {
            Ok(R::Lerror { ecode, .. }) => assert_eq!(Errno(ecode), errno),
            Ok(R::Error { errno: number, .. }) => assert!(self.dialect == Dialect::Plan9 || Errno(number) == errno),
            other => panic!("{other:?} is no error"),
        }
    }
}

#[test]
fn a_file_that_comes_with_the_wrong_answer_is_taken_leave_of() {
    let mut b = Bench::attached(Dialect::Linux);
    let open = T::Lopen { fid: Fid(0), flags: Default::default() };
    let reply = b.answer(open, Ok(Done::Created { qid: DIR, file: 7, opened: true }));
    b.is_error(&reply, Errno::EIO);
    let farewell = b.session.poll_farewell().expect("a farewell to file 7");
    assert_eq!((farewell.file, farewell.remove), (7, false));
    assert!(b.session.poll_farewell().is_none());
}

#[test]
fn an_answer_without_its_value_is_an_error_of_the_dialect() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let mut b = Bench::attached(dialect);
        let reply = b.answer(T::Stat { fid: Fid(0) }, Ok(Done::Unit));
        b.is_error(&reply, Errno::EIO);
    }
    let mut b = Bench::attached(Dialect::Linux);
    let mkdir = T::Mkdir { dfid: Fid(0), name: b"d", mode: Default::default(), gid: 0 };
    let reply = b.answer(mkdir, Ok(Done::Unit));
    b.is_error(&reply, Errno::EIO);
    b.answer(T::Lopen { fid: Fid(0), flags: Default::default() }, Ok(Done::Opened { qid: DIR }));
    let reply = b.answer(T::Fsync { fid: Fid(0), datasync: Default::default() }, Ok(Done::Qid(DIR)));
    b.is_error(&reply, Errno::EIO);
}

#[test]
fn more_bytes_of_a_directory_than_were_asked_for_are_not_sent() {
    let mut b = Bench::attached(Dialect::Plan9);
    b.answer(T::Open { fid: Fid(0), mode: 0 }, Ok(Done::Opened { qid: DIR }));
    let read = T::Read { fid: Fid(0), offset: 0, count: 100 };
    let reply = b.answer(read, Ok(Done::Stats(vec![0; 101], vec![RecordEnd { end: 101, cookie: 1 }])));
    b.is_error(&reply, Errno::EIO);
    // Nor those of which it is not told rightly where they end.
    for ends in [&[][..], &[99], &[60, 60, 100], &[100, 60]] {
        let ends = ends.iter().map(|&end| RecordEnd { end, cookie: 1 }).collect();
        let reply = b.answer(read, Ok(Done::Stats(vec![0; 100], ends)));
        b.is_error(&reply, Errno::EIO);
    }
    let whole = b.answer(read, Ok(Done::Stats(vec![0; 100], vec![RecordEnd { end: 100, cookie: 1 }])));
    let mut expected = Vec::new();
    R::Read { data: Payload(&[0; 100]) }.encode(Tag(1), Dialect::Plan9, &mut expected);
    assert_eq!(whole, expected);
}

#[test]
fn an_error_text_of_any_length_fits_the_msize_and_ends_between_characters() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        for text in ["x".repeat(100_000), "ä".repeat(40_000), format!("x{}", "ä".repeat(40_000))] {
            let mut b = Bench::attached(dialect);
            let reply = b.answer(T::Stat { fid: Fid(0) }, Err(Error::with_text(Errno::EIO, text.clone())));
            b.is_error(&reply, Errno::EIO);
            let (header, body) = split_frame(&reply).unwrap();
            let Ok(R::Error { ename, .. }) = R::decode(header.kind, body, dialect) else { unreachable!() };
            let ename = std::str::from_utf8(ename).unwrap();
            assert!(text.starts_with(ename) && ename.len() > MSIZE as usize - 20, "{} bytes", ename.len());
        }
    }
}

#[test]
fn a_flushed_tclunk_is_answered_even_when_it_was_interrupted() {
    let mut b = Bench::attached(Dialect::Linux);
    b.sent();
    assert!(b.send(T::Clunk { fid: Fid(0) }, Tag(5)).is_none());
    b.send(T::Flush { oldtag: Tag(5) }, Tag(6));
    let farewell = b.session.poll_farewell().unwrap();
    b.session.farewell_done(farewell.id, Err(Errno::EINTR.into()), &mut b.out);
    let mut expected = Vec::new();
    R::Lerror { ecode: Errno::EINTR.0, retry_ms: 0, text: b"" }.encode(Tag(5), Dialect::Linux, &mut expected);
    R::Flush {}.encode(Tag(6), Dialect::Linux, &mut expected);
    assert_eq!(b.sent(), expected);
}
