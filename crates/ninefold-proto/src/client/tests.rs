//! The client's end in lines: what is called, what is sent by itself, what a server answers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::dialect::{Dialect, Version};
use crate::error::Errno;
use crate::message::{Payload, R, T};
use crate::print::{Data, parse, print};
use crate::types::{Fid, Tag};
use crate::wire::{DecodeError, READ_OVERHEAD, WRITE_OVERHEAD, split_frame};

mod chains;
mod handshake;
mod misbehaved;
mod probes;

const MSIZE: u32 = 8192;

/// A session, the far end of which is the test.
struct Bench {
    session: Session,
}

/// An answer without its borrows.
#[derive(Clone, PartialEq, Debug)]
enum Told {
    /// The line without its tag, and the fid made.
    Reply(Tag, String, Option<Fid>),
    Failed(Tag, Errno),
    Settled,
}

impl Bench {
    fn new(version: impl Into<Version>, limits: Limits) -> Bench {
        Bench { session: Session::new(version, MSIZE, limits) }
    }

    /// Attached as fid 0.
    fn attached(version: impl Into<Version>) -> Bench {
        Bench::limited(version, Limits::default())
    }

    fn limited(version: impl Into<Version>, limits: Limits) -> Bench {
        let mut b = Bench::new(version, limits);
        let n_uname = if b.session.dialect() == Dialect::Plan9 { "" } else { " n_uname 0" };
        assert_eq!(b.session.new_fid(), Some(Fid(0)));
        let tag = b.call(&format!("Tattach fid 0 afid -1 uname 'u' aname ''{n_uname}"));
        b.reply(tag, "Rattach qid (1 1 d)");
        b
    }

    fn frame(&self, tag: Tag, line: &str) -> Vec<u8> {
        let line = with_tag(tag, line);
        parse(&line, self.session.version()).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    fn try_call(&mut self, line: &str) -> Result<Tag, Refused> {
        let frame = self.frame(Tag(0), line);
        let (header, body) = split_frame(&frame).unwrap();
        let request = T::decode(header.kind, body, self.session.version()).unwrap();
        self.session.call(&request, &mut Vec::new())
    }

    #[track_caller]
    fn call(&mut self, line: &str) -> Tag {
        self.try_call(line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    fn try_reply(&mut self, tag: Tag, line: &str) -> Result<Told, ServerMisbehaved> {
        let frame = self.frame(tag, line);
        self.take(&frame)
    }

    fn take(&mut self, frame: &[u8]) -> Result<Told, ServerMisbehaved> {
        let version = self.session.version();
        self.session.handle_frame(frame).map(|answer| match answer {
            Answer::Reply { tag, reply, made } => {
                let mut frame = Vec::new();
                reply.encode(tag, version, &mut frame);
                Told::Reply(tag, without_tag(&print(&frame, version, Data::Whole).to_string()).1, made)
            }
            Answer::Failed { tag, error } => Told::Failed(tag, error.errno),
            Answer::Settled => Told::Settled,
        })
    }

    #[track_caller]
    fn reply(&mut self, tag: Tag, line: &str) -> Told {
        self.try_reply(tag, line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// What the session sends by itself now.
    fn sent(&mut self) -> Vec<(Tag, String)> {
        let mut sent = Vec::new();
        let mut frame = Vec::new();
        while self.session.poll_transmit(&mut frame) {
            sent.push(without_tag(&print(&frame, self.session.version(), Data::Whole).to_string()));
            frame.clear();
        }
        sent
    }

    /// The one message that the session sends by itself now.
    #[track_caller]
    fn sent_one(&mut self, line: &str) -> Tag {
        let sent = self.sent();
        assert_eq!(sent.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), [line]);
        sent[0].0
    }

    #[track_caller]
    fn sent_nothing(&mut self) {
        assert_eq!(self.sent(), []);
    }

    /// A fid that the server knows, walked to from fid 0.
    fn walked(&mut self) -> Fid {
        let fid = self.session.new_fid().unwrap();
        let tag = self.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:x"));
        assert_eq!(
            self.reply(tag, "Rwalk nwqid 1 0:(2 1 )"),
            Told::Reply(tag, "Rwalk nwqid 1 0:(2 1 )".into(), Some(fid))
        );
        fid
    }

    /// A call without ado, for loops over all tags.
    fn fsync(&mut self) -> Tag {
        let request = T::Fsync { fid: Fid(0), datasync: Default::default() };
        self.session.call(&request, &mut Vec::new()).unwrap()
    }

    fn fsynced(&mut self, tag: Tag) -> bool {
        let mut frame = Vec::new();
        R::Fsync {}.encode(tag, Dialect::Linux, &mut frame);
        let done = Answer::Reply { tag, reply: R::Fsync {}, made: None };
        self.session.handle_frame(&frame).unwrap() == done
    }

    /// Nothing is left but fid 0.
    #[track_caller]
    fn is_at_rest(&mut self) {
        self.sent_nothing();
        assert!(self.session.is_idle());
        assert_eq!((self.session.calls(), self.session.unattended(), self.session.oldest_unattended()), (0, 0, None));
        assert_eq!(self.session.fids(), 1, "fids are left");
    }
}

fn with_tag(tag: Tag, line: &str) -> String {
    let (name, rest) = line.split_once(' ').map_or((line, String::new()), |(name, rest)| (name, format!(" {rest}")));
    format!("{name} tag {tag}{rest}")
}

fn without_tag(line: &str) -> (Tag, String) {
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    assert_eq!(words[1], "tag", "{line}");
    let line = words.iter().take(1).chain(words.get(3)).copied().collect::<Vec<_>>().join(" ");
    (Tag(words[2].parse().unwrap()), line)
}

// Calls.

#[test]
fn a_call_appends_the_head_and_leaves_the_data_to_its_caller() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let request = T::Write { fid, offset: 9, data: Payload(b"hello") };
    let mut out = b"before".to_vec();
    let tag = b.session.call(&request, &mut out).unwrap();
    let mut whole = b"before".to_vec();
    request.encode(tag, Dialect::Linux, &mut whole);
    assert_eq!([&out[..], b"hello"].concat(), whole);
    assert_eq!(b.reply(tag, "Rwrite count 5"), Told::Reply(tag, "Rwrite count 5".into(), None));
}

#[test]
fn replies_in_any_order_find_their_calls() {
    let mut b = Bench::attached(Dialect::Linux);
    let tags: Vec<Tag> = (0..5).map(|i| b.call(&format!("Tread fid 0 offset {i} count 9"))).collect();
    for i in [3, 0, 4, 1, 2] {
        let line = format!("Rread count 1 '{i}'");
        assert_eq!(b.reply(tags[i], &line), Told::Reply(tags[i], line, None));
    }
    b.is_at_rest();
}

#[test]
fn a_call_that_is_refused_has_no_effect() {
    let mut b = Bench::limited(Dialect::Linux, Limits { calls: 1, clunks: 1 });
    let fid = b.session.new_fid().unwrap();
    let unknown = Fid(77);
    let long = [b'x'; 65_536];
    let longest = [b'x'; 65_535];
    let big = [0; MSIZE as usize - WRITE_OVERHEAD as usize + 1];
    let mut names = Vec::new();
    let names = crate::message::Names::encode([&b"x"[..]; 17], &mut names);
    let write = |data| T::Write { fid: Fid(0), offset: 0, data: Payload(data) };
    let symlink = |symtgt| T::Symlink { dfid: Fid(0), name: b"n", symtgt, gid: 0 };
    let no_names = crate::message::Names::default();
    let cases: &[(T<'_>, Refused)] = &[
        (T::Stat { fid: Fid(0) }, Refused::NotInDialect { message: "Tstat", version: Dialect::Linux.into() }),
        (T::Version { msize: 8192, version: b"9P2000" }, Refused::NotACall("Tversion")),
        (T::Flush { oldtag: Tag(0) }, Refused::NotACall("Tflush")),
        (T::Clunk { fid: unknown }, Refused::UnknownFid(unknown)),
        (T::Clunk { fid: Fid::NONE }, Refused::UnknownFid(Fid::NONE)),
        (T::Link { dfid: Fid(0), fid: unknown, name: b"n" }, Refused::UnknownFid(unknown)),
        // Not established yet, or established already.
        (T::Getattr { fid, request_mask: Default::default() }, Refused::UnknownFid(fid)),
        (T::Walk { fid: Fid(0), newfid: unknown, wnames: no_names }, Refused::UnknownFid(unknown)),
        (T::Walk { fid: Fid(0), newfid: Fid::NONE, wnames: no_names }, Refused::UnknownFid(Fid::NONE)),
        (T::Xattrwalk { fid: Fid(0), newfid: unknown, name: b"" }, Refused::UnknownFid(unknown)),
        (T::Attach { fid: Fid(0), afid: Fid::NONE, uname: b"", aname: b"", n_uname: 0 }, Refused::FidInUse(Fid(0))),
        (T::Attach { fid, afid: unknown, uname: b"", aname: b"", n_uname: 0 }, Refused::UnknownFid(unknown)),
        (T::Walk { fid: Fid(0), newfid: fid, wnames: names }, Refused::TooManyNames(17)),
        (write(&big), Refused::TooLarge { size: MSIZE as usize + 1, msize: MSIZE }),
        (symlink(&longest), Refused::TooLarge { size: 7 + 4 + 2 + 1 + 2 + 65_535 + 4, msize: MSIZE }),
        (symlink(&long), Refused::StringTooLong { message: "Tsymlink" }),
    ];
    for (request, refused) in cases {
        let mut out = b"before".to_vec();
        assert_eq!(b.session.call(request, &mut out), Err(*refused), "{}", request.name());
        assert_eq!(out, b"before", "{}", request.name());
        b.sent_nothing();
        assert!(b.session.is_idle() && b.session.calls() == 0 && b.session.fids() == 2, "{}", request.name());
    }
    let tag = b.call("Tread fid 0 offset 0 count 9");
    assert_eq!(b.try_call("Tread fid 0 offset 0 count 9"), Err(Refused::Full));
    b.reply(tag, "Rread count 0 ''");
    b.session.call(&write(&big[1..]), &mut Vec::new()).expect("a message of exactly the msize");
    // The newfid stayed new.
    b.session.release(fid);
    assert_eq!(b.session.fids(), 1);
}

#[test]
fn a_newfid_belongs_to_one_call() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.session.new_fid().unwrap();
    let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 0"));
    assert_eq!(b.try_call(&format!("Twalk fid 0 newfid {fid} nwname 0")), Err(Refused::FidInUse(fid)));
    assert_eq!(b.try_call(&format!("Tgetattr fid {fid} request_mask 0")), Err(Refused::UnknownFid(fid)));
    b.reply(tag, "Rwalk nwqid 0");
    assert_eq!(b.try_call(&format!("Twalk fid 0 newfid {fid} nwname 0")), Err(Refused::FidInUse(fid)));
    b.call(&format!("Tgetattr fid {fid} request_mask 0"));
}

#[test]
fn a_walk_onto_itself_makes_no_fid() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    for (reply, made) in [("Rwalk nwqid 1 0:(2 1 )", None), ("Rlerror ecode 2", None)] {
        let tag = b.call(&format!("Twalk fid {fid} newfid {fid} nwname 1 0:x"));
        match b.reply(tag, reply) {
            Told::Reply(_, _, told) => assert_eq!(told, made),
            told => assert_eq!(told, Told::Failed(tag, Errno::ENOENT)),
        }
        b.sent_nothing();
    }
    b.call(&format!("Tclunk fid {fid}"));
}

#[test]
fn a_walk_that_ended_early_made_no_fid_and_its_newfid_is_clunked() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.session.new_fid().unwrap();
    let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 2 0:x 1:y"));
    assert!(matches!(b.reply(tag, "Rwalk nwqid 1 0:(2 1 d)"), Told::Reply(_, _, None)));
    assert_eq!(b.try_call(&format!("Tclunk fid {fid}")), Err(Refused::UnknownFid(fid)));
    // diod has made it.
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    assert_eq!(b.reply(clunk, "Rlerror ecode 9"), Told::Settled);
    b.is_at_rest();
}

#[test]
fn errors_come_with_their_number_in_every_dialect() {
    for (dialect, reply, errno) in [
        (Dialect::Linux, "Rlerror ecode 13", Errno::EACCES),
        (Dialect::Unix, "Rerror ename 'whatever' errno 13", Errno::EACCES),
        (Dialect::Unix, "Rerror ename 'permission denied' errno 0", Errno::EACCES),
        (Dialect::Unix, "Rerror ename 'permission denied' errno 4294967295", Errno::EACCES),
        (Dialect::Plan9, "Rerror ename 'permission denied'", Errno::EACCES),
        (Dialect::Plan9, "Rerror ename 'phase of the moon'", Errno::EIO),
        (Dialect::Plan9, "Rerror ename ''", Errno::EIO),
    ] {
        let mut b = Bench::attached(dialect);
        let tag = b.call("Tread fid 0 offset 0 count 9");
        assert_eq!(b.reply(tag, reply), Told::Failed(tag, errno), "{dialect} {reply}");
        b.is_at_rest();
    }
}

#[test]
fn the_text_of_an_error_holds_nothing_that_a_terminal_obeys() {
    let mut b = Bench::attached(Dialect::Plan9);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    let frame = b.frame(tag, r"Rerror ename 'a\x1b[2Jb\x0a\x00\xc2\x9bc\xff'");
    let Ok(Answer::Failed { error, .. }) = b.session.handle_frame(&frame) else { panic!("it is an error") };
    assert_eq!(error.text(), r"a\u{1b}[2Jb\n\u{0}\u{9b}c\xff");
}

#[test]
fn messages_are_counted_by_number() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert!(b.try_reply(Tag(99), "Rflush").is_err());
    b.reply(flush, "Rflush");
    let counted = |b: &Bench, number: u8| b.session.counts()[usize::from(number)];
    let seen = [104, 105, 116, 117, 108, 109].map(|number| counted(&b, number));
    assert_eq!(seen, [1, 1, 1, 0, 1, 1]);
    assert_eq!(b.session.counts().iter().sum::<u64>(), 5);
}

// Tags.

#[test]
fn a_tag_is_used_again_only_when_all_others_were() {
    let mut b = Bench::attached(Dialect::Linux);
    let first = b.fsync();
    assert!(b.fsynced(first));
    for _ in 1..Tag::NONE.0 {
        let tag = b.fsync();
        assert!(tag != first && tag != Tag::NONE, "{tag}");
        assert!(b.fsynced(tag));
    }
    assert_eq!(b.fsync(), first);
}

#[test]
fn tags_never_run_out_whatever_is_called_given_up_and_abandoned() {
    // Clunks among the calls are not flushed, so they take one tag each.
    for clunks_called in [0, 6_000] {
        let mut b = Bench::limited(Dialect::Linux, Limits { calls: usize::MAX, clunks: usize::MAX });
        let fids: Vec<Fid> = (0..12_000).map(|_| b.walked()).collect();
        let mut outstanding = Vec::new();
        for fid in &fids[..clunks_called] {
            outstanding.push(b.call(&format!("Tclunk fid {fid}")));
        }
        while let Ok(tag) = b.session.call(&T::Fsync { fid: Fid(0), datasync: Default::default() }, &mut Vec::new()) {
            outstanding.push(tag);
        }
        outstanding.iter().for_each(|&tag| b.session.cancel(tag));
        fids.iter().for_each(|&fid| b.session.abandon(fid, Parting::Clunk));
        outstanding.extend(b.sent().into_iter().map(|(tag, _)| tag));
        assert_eq!(outstanding.len(), 30_000 + (30_000 - clunks_called) + 2_500);
        assert_eq!((b.session.calls(), b.session.unattended()), (30_000, 32_500));
        assert_eq!(b.try_call("Tfsync fid 0 datasync 0"), Err(Refused::Full));
        b.sent_nothing();
        outstanding.sort();
        outstanding.dedup();
        assert_eq!(outstanding.len(), 62_500 - clunks_called, "a tag is used twice");
        assert!(!outstanding.contains(&Tag::NONE));
    }
}

#[test]
fn limits_of_nothing_allow_one() {
    let mut b = Bench::limited(Dialect::Linux, Limits { calls: 0, clunks: 0 });
    let fid = b.walked();
    assert!(b.session.is_idle());
    b.session.abandon(fid, Parting::Clunk);
    assert!(!b.session.is_idle(), "a Tclunk is left to send");
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    assert!(!b.session.is_idle(), "an Rclunk is outstanding");
    b.reply(clunk, "Rclunk");
    b.is_at_rest();
}

// Calls given up.

#[test]
fn a_call_given_up_is_flushed_and_over_with_the_rflush() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    b.session.cancel(tag);
    assert_eq!((b.session.calls(), b.session.flushes()), (1, (0, 0)));
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    b.sent_nothing();
    assert_eq!((b.session.calls(), b.session.flushes()), (1, (1, 0)));
    assert_eq!(b.reply(flush, "Rflush"), Told::Settled);
    assert_eq!(b.session.flushes(), (1, 1));
    b.is_at_rest();
    assert_eq!(b.try_reply(tag, "Rread count 0 ''"), Err(ServerMisbehaved::UnknownTag(tag)));
}

#[test]
fn a_call_given_up_and_answered_before_its_flush_was_sent_is_not_flushed() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    assert_eq!(b.reply(tag, "Rread count 0 ''"), Told::Settled);
    b.is_at_rest();
}

#[test]
fn a_flush_that_became_needless_does_not_meet_the_next_call_with_that_tag() {
    let mut b = Bench::attached(Dialect::Linux);
    let old = b.fsync();
    b.session.cancel(old);
    assert!(!b.fsynced(old));
    let mut tag = b.fsync();
    while tag != old {
        assert!(b.fsynced(tag));
        tag = b.fsync();
    }
    b.sent_nothing();
    assert!(b.fsynced(tag));
    b.is_at_rest();
}

#[test]
fn a_reply_before_the_rflush_keeps_the_tag_in_use_until_then() {
    let mut b = Bench::limited(Dialect::Linux, Limits { calls: 1, clunks: 1 });
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert_eq!(b.reply(tag, "Rread count 0 ''"), Told::Settled);
    assert_eq!(b.try_call("Tread fid 0 offset 0 count 9"), Err(Refused::Full));
    assert_eq!(b.try_reply(tag, "Rread count 0 ''"), Err(ServerMisbehaved::UnknownTag(tag)), "a second reply");
    assert_eq!(b.reply(flush, "Rflush"), Told::Settled);
    b.is_at_rest();
}

#[test]
fn an_answer_once_given_cannot_be_given_up() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.reply(tag, "Rread count 0 ''");
    b.session.cancel(tag);
    b.session.cancel(Tag(999));
    b.session.cancel(Tag::NONE);
    b.is_at_rest();
}

#[test]
fn what_is_sent_by_itself_cannot_be_given_up() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    b.session.abandon(fid, Parting::Clunk);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    let own = b.sent();
    assert_eq!(own.len(), 2);
    own.iter().for_each(|&(tag, _)| b.session.cancel(tag));
    b.sent_nothing();
    assert_eq!(b.reply(own[0].0, "Rflush"), Told::Settled);
    assert_eq!(b.reply(own[1].0, "Rclunk"), Told::Settled);
    b.is_at_rest();
}

#[test]
fn a_fid_that_a_late_reply_made_for_nobody_is_clunked() {
    for (line, reply) in [
        ("Twalk fid 0 newfid 1 nwname 1 0:x", "Rwalk nwqid 1 0:(2 1 )"),
        ("Twalk fid 0 newfid 1 nwname 0", "Rwalk nwqid 0"),
        ("Twalk fid 0 newfid 1 nwname 2 0:x 1:y", "Rwalk nwqid 1 0:(2 1 d)"),
        ("Txattrwalk fid 0 newfid 1 name ''", "Rxattrwalk size 0"),
        ("Tattach fid 1 afid -1 uname '' aname '' n_uname 0", "Rattach qid (1 1 d)"),
        ("Tauth afid 1 uname '' aname '' n_uname 0", "Rauth aqid (1 1 A)"),
    ] {
        for flush_is_sent in [false, true] {
            let mut b = Bench::attached(Dialect::Linux);
            assert_eq!(b.session.new_fid(), Some(Fid(1)));
            let tag = b.call(line);
            b.session.cancel(tag);
            let flush = flush_is_sent.then(|| b.sent_one(&format!("Tflush oldtag {tag}")));
            assert_eq!(b.reply(tag, reply), Told::Settled);
            let clunk = b.sent_one("Tclunk fid 1");
            flush.map(|flush| b.reply(flush, "Rflush"));
            assert_eq!(b.session.fids(), 2, "{line}");
            b.reply(clunk, "Rclunk");
            b.is_at_rest();
        }
    }
}

#[test]
fn a_stream_that_a_late_reply_gave_to_nobody_is_ended_and_so_is_one_that_somebody_parts_with() {
    let limits = Limits { calls: 1, clunks: 1 };
    let asked = "Tstream fid 0 flags 0 isread 1 offset 0 length 9 token 0x00000000000000000000000000000000";
    let reply = "Rstream id 7 token 0x00000000000000000000000000000001 modrev 5 offset 0 length 0 addr ''";
    for flush_is_sent in [false, true] {
        let mut b = Bench::limited(Version::N1, limits);
        let tag = b.call(asked);
        b.session.cancel(tag);
        let flush = flush_is_sent.then(|| b.sent_one(&format!("Tflush oldtag {tag}")));
        assert_eq!(b.reply(tag, reply), Told::Settled);
        let end = b.sent_one("Tstreamend id 7 flags 01");
        flush.map(|flush| b.reply(flush, "Rflush"));
        // No deadline of clunks is its own, and no close waits for it.
        assert_eq!((b.session.unattended(), b.session.is_idle(), b.session.is_done()), (0, true, true));
        b.reply(end, "Rlerror ecode 2 retry_ms 0 text ''");
        b.is_at_rest();
    }
    // One that was given, and one of which somebody else is asked for the end meanwhile: one after another.
    let mut b = Bench::limited(Version::N1, limits);
    let tag = b.call(asked);
    assert!(matches!(b.reply(tag, reply), Told::Reply(..)));
    b.session.end_stream(7);
    b.session.end_stream(8);
    let end = b.sent_one("Tstreamend id 7 flags 01");
    b.sent_nothing();
    b.reply(end, "Rstreamend count 0 modrev 5");
    let end = b.sent_one("Tstreamend id 8 flags 01");
    b.reply(end, "Rlerror ecode 2 retry_ms 0 text ''");
    b.is_at_rest();
    // In .s it has no number.
    let mut b = Bench::attached(Version { dialect: Dialect::Plan9, groups: false, streams: true });
    let tag = b.call("Tstream fid 0 isread 1 offset 0");
    b.session.cancel(tag);
    assert_eq!(b.reply(tag, "Rstream data 'tcp!127.0.0.1!9'"), Told::Settled);
    b.is_at_rest();
}

#[test]
fn a_fid_that_a_call_given_up_did_not_make_is_free_and_not_clunked() {
    for reply in ["Rlerror ecode 2", ""] {
        let mut b = Bench::attached(Dialect::Linux);
        let fid = b.session.new_fid().unwrap();
        let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:x"));
        b.session.cancel(tag);
        let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
        if !reply.is_empty() {
            b.reply(tag, reply);
        }
        b.reply(flush, "Rflush");
        b.is_at_rest();
    }
}

#[test]
fn a_tclunk_or_tremove_given_up_goes_on() {
    for (line, replies) in [("Tclunk", ["Rclunk", "Rlerror ecode 5"]), ("Tremove", ["Rremove", "Rlerror ecode 39"])] {
        for reply in replies {
            let mut b = Bench::limited(Dialect::Linux, Limits { calls: 1, clunks: 1 });
            let fid = b.walked();
            let tag = b.call(&format!("{line} fid {fid}"));
            b.session.cancel(tag);
            b.sent_nothing();
            // It is outstanding still, and the server has no other bound on what we ask of it.
            assert_eq!((b.session.calls(), b.session.unattended()), (1, 1));
            assert_eq!(b.try_call("Tread fid 0 offset 0 count 9"), Err(Refused::Full));
            assert_eq!(b.reply(tag, reply), Told::Settled);
            b.is_at_rest();
        }
    }
}

#[test]
fn a_call_taken_back_before_it_was_sent_leaves_nothing_and_is_not_flushed() {
    for line in [
        "Tread fid 0 offset 0 count 9",
        "Twalk fid 0 newfid 1 nwname 1 0:x",
        "Tattach fid 1 afid -1 uname '' aname '' n_uname 0",
        "Tlcreate fid 0 name 'f' flags 0 mode 0 gid 0",
    ] {
        let mut b = Bench::limited(Dialect::Linux, Limits { calls: 1, clunks: 1 });
        let before = *b.session.counts();
        if line.contains(" 1 ") {
            assert_eq!(b.session.new_fid(), Some(Fid(1)));
        }
        let tag = b.call(line);
        assert_eq!(b.session.ordinal(tag), Some(b.session.requests() - 1));
        assert!(b.session.withdraw(tag), "{line}");
        assert!(!b.session.withdraw(tag), "{line}");
        b.session.cancel(tag);
        assert_eq!((b.session.ordinal(tag), *b.session.counts() == before), (None, true), "{line}");
        b.is_at_rest();
        assert_eq!(b.try_reply(tag, "Rlerror ecode 5"), Err(ServerMisbehaved::UnknownTag(tag)), "{line}");
    }
}

#[test]
fn a_fid_is_named_until_the_last_request_on_it_is_answered_or_flushed() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    assert!(!b.session.is_named(fid) && !b.session.is_named(Fid(999)));
    let tags = [0, 1].map(|_| b.call(&format!("Tread fid {fid} offset 0 count 9")));
    b.session.cancel(tags[0]);
    b.reply(tags[1], "Rread count 0 ''");
    assert!(b.session.is_named(fid));
    let flush = b.sent_one(&format!("Tflush oldtag {}", tags[0]));
    assert!(b.session.is_named(fid));
    b.reply(flush, "Rflush");
    assert!(!b.session.is_named(fid));
    b.session.abandon(fid, Parting::Clunk);
}

#[test]
fn clunks_that_tell_nothing_can_be_held_back_and_64_are_at_most() {
    let mut b = Bench::attached(Dialect::Linux);
    b.session.hold_back_clunks(true);
    let [looked_at, removed, written] = [(); 3].map(|()| b.walked());
    let open = b.call(&format!("Tlopen fid {written} flags 0100001"));
    b.reply(open, "Rlopen qid (2 1 ) iounit 0");
    b.session.abandon(looked_at, Parting::Clunk);
    b.sent_nothing();
    assert!(b.session.is_idle() && b.session.is_done());
    b.session.abandon(removed, Parting::Remove);
    b.session.abandon(written, Parting::Clunk);
    assert!(!b.session.is_idle());
    let sent = b.sent();
    let lines: Vec<_> = sent.iter().map(|(_, line)| line.clone()).collect();
    assert_eq!(lines, [format!("Tremove fid {removed}"), format!("Tclunk fid {written}")]);
    b.reply(sent[0].0, "Rremove");
    b.reply(sent[1].0, "Rclunk");
    for _ in 0..63 {
        let fid = b.walked();
        b.session.abandon(fid, Parting::Clunk);
        b.sent_nothing();
    }
    let last = b.walked();
    b.session.abandon(last, Parting::Clunk);
    let clunk = b.sent_one(&format!("Tclunk fid {looked_at}"));
    b.reply(clunk, "Rclunk");
    b.session.hold_back_clunks(false);
    assert!(!b.session.is_idle());
    let sent = b.sent();
    assert_eq!(sent.len(), 64);
    sent.iter().for_each(|(tag, _)| drop(b.reply(*tag, "Rclunk")));
    b.is_at_rest();
}

#[test]
fn a_fid_that_was_parted_with_is_clunked_when_its_last_call_is_taken_back() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let tag = b.call(&format!("Tread fid {fid} offset 0 count 9"));
    b.session.abandon(fid, Parting::Clunk);
    b.sent_nothing();
    assert!(b.session.withdraw(tag));
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    b.reply(clunk, "Rclunk");
    b.is_at_rest();
}

#[test]
fn a_file_that_was_to_be_made_by_a_call_taken_back_is_not_removed_with_its_directory() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let tag = b.call(&format!("Tlcreate fid {fid} name 'f' flags 0 mode 0 gid 0"));
    assert!(b.session.withdraw(tag));
    b.session.abandon(fid, Parting::Remove);
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    b.reply(clunk, "Rclunk");
    b.is_at_rest();
}

#[test]
fn a_clunk_and_what_was_given_up_or_sent_by_itself_cannot_be_taken_back() {
    let mut b = Bench::attached(Dialect::Linux);
    let (fid, other) = (b.walked(), b.walked());
    let clunk = b.call(&format!("Tclunk fid {fid}"));
    assert!(!b.session.withdraw(clunk));
    b.session.abandon(other, Parting::Clunk);
    let own = b.sent_one(&format!("Tclunk fid {other}"));
    assert!(!b.session.withdraw(own));
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    assert!(!b.session.withdraw(tag) && !b.session.withdraw(Tag(999)));
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert!(!b.session.withdraw(flush));
    for (tag, reply) in [(flush, "Rflush"), (own, "Rclunk"), (clunk, "Rclunk")] {
        b.reply(tag, reply);
    }
    b.is_at_rest();
}

#[test]
fn an_error_in_answer_to_a_tflush_leaves_the_old_tag_in_use_until_its_own_reply() {
    let mut b = Bench::attached(Dialect::Plan9);
    let fid = b.session.new_fid().unwrap();
    let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:x"));
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert_eq!(b.reply(flush, "Rerror ename 'function not implemented'"), Told::Settled);
    assert_eq!((b.session.calls(), b.session.unattended(), b.session.flushes()), (1, 1, (1, 1)));
    b.sent_nothing();
    assert_eq!(b.reply(tag, "Rwalk nwqid 1 0:(2 1 )"), Told::Settled);
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    b.reply(clunk, "Rclunk");
    b.is_at_rest();
}

#[test]
fn an_error_in_answer_to_a_tflush_behind_the_old_reply_is_an_rflush() {
    let mut b = Bench::attached(Dialect::Plan9);
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    b.reply(tag, "Rread count 0 ''");
    b.reply(flush, "Rerror ename 'tag does not exist'");
    b.is_at_rest();
}

#[test]
fn what_a_server_does_not_let_go_of_is_seen_by_the_age_of_the_oldest() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let [lost, other] = [0, 1].map(|i| b.call(&format!("Tread fid 0 offset {i} count 9")));
    assert_eq!(b.session.oldest_unattended(), None);
    b.session.cancel(lost);
    let oldest = b.session.oldest_unattended();
    assert!(oldest.is_some(), "it counts before its Tflush is sent");
    b.session.cancel(other);
    b.session.abandon(fid, Parting::Clunk);
    let own: Vec<Tag> = b.sent().into_iter().map(|(tag, _)| tag).collect();
    assert_eq!((b.session.unattended(), b.session.oldest_unattended()), (3, oldest));
    b.reply(own[1], "Rflush");
    assert_eq!((b.session.unattended(), b.session.oldest_unattended()), (2, oldest));
    b.reply(own[0], "Rflush");
    let younger = b.session.oldest_unattended();
    assert!(younger > oldest, "the clunk's turn has come");
    b.reply(own[2], "Rclunk");
    b.is_at_rest();
}

// Fids.

#[test]
fn a_fid_is_clunked_after_the_last_request_that_uses_it() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let first = b.call(&format!("Tread fid {fid} offset 0 count 9"));
    let both = b.call(&format!("Tlink dfid {fid} fid {fid} name 'n'"));
    b.session.abandon(fid, Parting::Clunk);
    assert_eq!(b.try_call(&format!("Tread fid {fid} offset 0 count 9")), Err(Refused::UnknownFid(fid)));
    b.session.abandon(fid, Parting::Remove);
    b.sent_nothing();
    b.reply(both, "Rlink");
    b.sent_nothing();
    b.session.cancel(first);
    let flush = b.sent_one(&format!("Tflush oldtag {first}"));
    b.reply(flush, "Rflush");
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    b.session.abandon(fid, Parting::Clunk);
    b.sent_nothing();
    b.reply(clunk, "Rlerror ecode 5");
    b.is_at_rest();
}

#[test]
fn a_fid_parted_with_in_any_way_during_its_tclunk_is_not_clunked_again() {
    for line in ["Tclunk", "Tremove"] {
        for give_up in [false, true] {
            let mut b = Bench::attached(Dialect::Linux);
            let fid = b.walked();
            let tag = b.call(&format!("{line} fid {fid}"));
            if give_up {
                b.session.cancel(tag);
            }
            b.session.abandon(fid, Parting::Clunk);
            b.session.release(fid);
            assert_eq!(b.try_call(&format!("Tclunk fid {fid}")), Err(Refused::UnknownFid(fid)));
            b.sent_nothing();
            b.reply(tag, "Rlerror ecode 5");
            b.is_at_rest();
            b.session.abandon(fid, Parting::Clunk);
            b.is_at_rest();
        }
    }
}

#[test]
fn a_fid_parted_with_while_it_is_made_is_clunked_when_it_was_made() {
    for cancelled in [false, true] {
        for (reply, clunked) in [("Rwalk nwqid 1 0:(2 1 )", true), ("Rlerror ecode 2", false)] {
            let mut b = Bench::attached(Dialect::Linux);
            let fid = b.session.new_fid().unwrap();
            let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:x"));
            b.session.abandon(fid, Parting::Clunk);
            b.session.release(fid);
            b.sent_nothing();
            assert_eq!(b.session.fids(), 2);
            if cancelled {
                b.session.cancel(tag);
            }
            b.reply(tag, reply);
            if clunked {
                let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
                b.reply(clunk, "Rclunk");
            }
            b.is_at_rest();
        }
    }
}

#[test]
fn a_fid_that_no_call_named_is_free_when_parted_with() {
    let mut b = Bench::attached(Dialect::Linux);
    let [first, second] = [0; 2].map(|_| b.session.new_fid().unwrap());
    b.session.release(first);
    b.session.abandon(second, Parting::Remove);
    b.is_at_rest();
    b.session.release(Fid(0));
    assert_eq!(b.session.fids(), 1, "an established fid is not released");
    b.call("Tread fid 0 offset 0 count 9");
}

#[test]
fn the_fid_free_for_the_longest_is_taken_first() {
    let mut b = Bench::attached(Dialect::Linux);
    let fids: Vec<Fid> = (0..3).map(|_| b.session.new_fid().unwrap()).collect();
    fids.iter().rev().for_each(|&fid| b.session.release(fid));
    assert_eq!([0; 3].map(|_| b.session.new_fid().unwrap()), [fids[2], fids[1], fids[0]]);
}

#[test]
fn a_fid_clunked_beside_another_request_is_free_only_after_it() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let read = b.call(&format!("Tread fid {fid} offset 0 count 9"));
    let clunk = b.call(&format!("Tclunk fid {fid}"));
    b.reply(clunk, "Rclunk");
    let other = b.session.new_fid().unwrap();
    assert_ne!(other, fid, "the server may not have looked at the Tread yet");
    b.session.release(other);
    assert_eq!(b.session.fids(), 2);
    assert!(matches!(b.reply(read, "Rread count 0 ''"), Told::Reply(..)));
    b.is_at_rest();
}

#[test]
fn a_fid_parted_with_by_removal_is_sent_in_a_tremove() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    let write = b.call(&format!("Twrite fid {fid} offset 0 count 1 'x'"));
    b.session.abandon(fid, Parting::Remove);
    b.session.cancel(write);
    let flush = b.sent_one(&format!("Tflush oldtag {write}"));
    b.reply(flush, "Rflush");
    let remove = b.sent_one(&format!("Tremove fid {fid}"));
    b.reply(remove, "Rremove");
    b.is_at_rest();
}

#[test]
fn a_fid_whose_create_made_nothing_names_the_directory_and_is_never_removed() {
    let creates = [
        (Dialect::Linux, "Tlcreate fid 1 name 'n' flags 0 mode 0 gid 0", "Rlcreate qid (2 1 ) iounit 0"),
        (Dialect::Plan9, "Tcreate fid 1 name 'n' perm 0 mode 1", "Rcreate qid (2 1 ) iounit 0"),
    ];
    for (dialect, line, success) in creates {
        let failure = if dialect == Dialect::Linux { "Rlerror ecode 17" } else { "Rerror ename 'file already exists'" };
        for (reply, parting) in [(success, "Tremove fid 1"), (failure, "Tclunk fid 1"), ("", "Tclunk fid 1")] {
            for parted_first in [false, true] {
                let mut b = Bench::attached(dialect);
                assert_eq!(b.walked(), Fid(1));
                let tag = b.call(line);
                if parted_first {
                    b.session.abandon(Fid(1), Parting::Remove);
                }
                b.session.cancel(tag);
                let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
                if !reply.is_empty() {
                    b.reply(tag, reply);
                }
                b.reply(flush, "Rflush");
                if !parted_first {
                    b.session.abandon(Fid(1), Parting::Remove);
                }
                b.sent_one(parting);
            }
        }
    }
}

#[test]
fn a_create_that_fails_before_one_that_does_not_is_forgotten() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.walked();
    for reply in ["Rlerror ecode 17", "Rlcreate qid (2 1 ) iounit 0"] {
        let tag = b.call(&format!("Tlcreate fid {fid} name 'n' flags 0 mode 0 gid 0"));
        b.reply(tag, reply);
    }
    b.session.abandon(fid, Parting::Remove);
    b.sent_one(&format!("Tremove fid {fid}"));
}

#[test]
fn the_newfid_of_a_walk_that_ended_early_is_never_removed() {
    let mut b = Bench::attached(Dialect::Linux);
    let fid = b.session.new_fid().unwrap();
    let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 2 0:x 1:y"));
    b.session.abandon(fid, Parting::Remove);
    b.reply(tag, "Rwalk nwqid 1 0:(2 1 d)");
    b.sent_one(&format!("Tclunk fid {fid}"));
}

#[test]
fn the_fid_in_the_extension_of_a_link_is_in_use() {
    let mut b = Bench::attached(Dialect::Unix);
    let [dir, target] = [0; 2].map(|_| b.walked());
    let line = |extension: &str| format!("Tcreate fid {dir} name 'n' perm 0x01000000 mode 0 extension '{extension}'");
    assert_eq!(b.try_call(&line("77")), Err(Refused::UnknownFid(Fid(77))));
    let tag = b.call(&line(&format!(r"{target}\x0a")));
    b.session.abandon(target, Parting::Clunk);
    b.sent_nothing();
    b.reply(tag, "Rcreate qid (2 1 ) iounit 0");
    b.sent_one(&format!("Tclunk fid {target}"));
    // 9P2000 does not send it.
    let mut b = Bench::attached(Dialect::Plan9);
    let (perm, extension) = (crate::message::Perm(crate::stat::dm::LINK), &b"77"[..]);
    let create = T::Create { fid: Fid(0), name: b"n", perm, mode: 0, extension };
    assert!(b.session.call(&create, &mut Vec::new()).is_ok());
}

#[test]
fn an_afid_is_in_use_by_the_attach_that_names_it() {
    let mut b = Bench::attached(Dialect::Linux);
    let [afid, fid] = [0; 2].map(|_| b.session.new_fid().unwrap());
    let tag = b.call(&format!("Tauth afid {afid} uname 'u' aname '' n_uname 0"));
    assert!(matches!(b.reply(tag, "Rauth aqid (9 1 A)"), Told::Reply(_, _, made) if made == Some(afid)));
    let tag = b.call(&format!("Tattach fid {fid} afid {afid} uname 'u' aname '' n_uname 0"));
    b.session.abandon(afid, Parting::Clunk);
    b.sent_nothing();
    b.reply(tag, "Rlerror ecode 13");
    let clunk = b.sent_one(&format!("Tclunk fid {afid}"));
    b.reply(clunk, "Rclunk");
    b.is_at_rest();
}

#[test]
fn clunks_are_sent_so_many_at_a_time_and_flushes_before_them() {
    let mut b = Bench::limited(Dialect::Linux, Limits { calls: 8, clunks: 2 });
    let fids: Vec<Fid> = (0..5).map(|_| b.walked()).collect();
    fids.iter().for_each(|&fid| b.session.abandon(fid, Parting::Clunk));
    let tag = b.call("Tread fid 0 offset 0 count 9");
    b.session.cancel(tag);
    let sent = b.sent();
    let lines: Vec<&str> = sent.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, [&format!("Tflush oldtag {tag}"), "Tclunk fid 1", "Tclunk fid 2"]);
    assert!(!b.session.is_idle());
    b.reply(sent[0].0, "Rflush");
    let mut clunk = sent[2].0;
    for fid in &fids[2..] {
        b.reply(clunk, "Rclunk");
        clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    }
    b.reply(clunk, "Rclunk");
    b.reply(sent[1].0, "Rclunk");
    b.is_at_rest();
}

#[test]
fn a_session_is_done_when_only_clunks_are_owed_that_tell_nothing() {
    for (open, tells) in [
        ("Tlopen fid 1 flags 0100000", false),
        ("Tlopen fid 1 flags 0100001", true),
        ("Tlopen fid 1 flags 01000", true),
        ("Tlcreate fid 1 name 'f' flags 0 mode 0644 gid 0", true),
    ] {
        let mut b = Bench::attached(Dialect::Linux);
        assert!(b.session.is_done());
        assert_eq!(b.session.new_fid(), Some(Fid(1)));
        let walk = b.call("Twalk fid 0 newfid 1 nwname 1 0:x");
        assert!(!b.session.is_done());
        b.reply(walk, "Rwalk nwqid 1 0:(2 1 )");
        let tag = b.call(open);
        b.reply(tag, &format!("R{} qid (2 1 ) iounit 0", open[1..].split(' ').next().unwrap()));
        b.session.abandon(Fid(1), Parting::Clunk);
        b.session.abandon(Fid(0), Parting::Clunk);
        assert!(!b.session.is_done(), "they are not sent");
        while b.session.poll_transmit(&mut Vec::new()) {}
        assert_eq!((b.session.is_done(), b.session.is_idle()), (!tells, false), "{open}");
    }
}

#[test]
fn a_tremove_and_a_flush_are_waited_for_at_the_end() {
    let mut b = Bench::attached(Dialect::Linux);
    b.session.abandon(Fid(0), Parting::Remove);
    while b.session.poll_transmit(&mut Vec::new()) {}
    assert!(!b.session.is_done());

    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tgetattr fid 0 request_mask 0x1");
    b.session.cancel(tag);
    assert!(!b.session.is_done());
    while b.session.poll_transmit(&mut Vec::new()) {}
    assert!(!b.session.is_done());
}
