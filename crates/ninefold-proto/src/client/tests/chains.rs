//! Chains of calls: with groups sent at once under one tag, without one by one, with the same answers; given up at any
//! point without a fid or a tag left.

use super::*;

impl Bench {
    /// Attached as fid 0, where chains go at once.
    fn grouped(dialect: Dialect) -> Bench {
        Bench::attached(Version { dialect, groups: true, streams: false })
    }

    fn try_behind(&mut self, tag: Tag, line: &str) -> Result<Turn, Refused> {
        let frame = self.frame(Tag(0), line);
        let (header, body) = split_frame(&frame).unwrap();
        let request = T::decode(header.kind, body, self.session.dialect()).unwrap();
        let mut out = Vec::new();
        let turn = self.session.call_behind(tag, &request, &mut out);
        if turn.is_ok() {
            assert_eq!(split_frame(&out).unwrap().0.tag, tag);
        }
        turn
    }

    #[track_caller]
    fn behind(&mut self, tag: Tag, line: &str) -> Turn {
        self.try_behind(tag, line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// Walk to a new fid, stat it, clunk it, in one chain.
    fn look(&mut self, turn: Turn) -> (Tag, Fid) {
        let fid = self.session.new_fid().unwrap();
        let tag = self.call(&format!("Twalk fid 0 newfid {fid} nwname 2 0:a 1:b"));
        assert_eq!(self.behind(tag, &format!("Tstat fid {fid}")), turn);
        assert_eq!(self.behind(tag, &format!("Tclunk fid {fid}")), turn);
        (tag, fid)
    }

    fn nothing_is_left(&mut self) {
        self.sent_nothing();
        assert_eq!(self.session.poll_turn(), None);
        assert_eq!((self.session.fids(), self.session.calls(), self.session.unattended()), (1, 0, 0));
        assert!(self.session.is_idle());
    }
}

const STAT: &str = "Rstat stat 'b' 'u' 'g' 'm' q (2 1 ) m --rw-r--r-- at 1 mt 1 l 0 t 0 d 0";

/// The number of the error.
fn failed(told: &Told) -> Option<Errno> {
    if let Told::Failed(_, errno) = told { Some(*errno) } else { None }
}

#[test]
fn with_groups_a_chain_is_sent_at_once_and_answered_in_its_order() {
    let mut b = Bench::grouped(Dialect::Plan9);
    let (tag, _) = b.look(Turn::Now);
    assert_eq!(b.session.calls(), 3);
    assert!(matches!(b.reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )"), Told::Reply(_, _, None)));
    assert!(matches!(b.reply(tag, STAT), Told::Reply(..)));
    assert_eq!(b.try_reply(tag, STAT), Err(ServerMisbehaved::WrongType { request: "Tclunk", reply: "Rstat" }));
    assert!(matches!(b.reply(tag, "Rclunk"), Told::Reply(..)));
    b.nothing_is_left();
    assert_eq!(b.try_reply(tag, "Rclunk"), Err(ServerMisbehaved::UnknownTag(tag)));
}

#[test]
fn without_groups_each_of_a_chain_is_sent_when_the_one_before_it_is_answered() {
    let mut b = Bench::attached(Dialect::Plan9);
    let (tag, _) = b.look(Turn::Later);
    assert_eq!((b.session.poll_turn(), b.session.requests()), (None, 2));
    b.reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )");
    // It is not asked before it is sent.
    assert_eq!(b.try_reply(tag, STAT), Err(ServerMisbehaved::UnknownTag(tag)));
    assert_eq!((b.session.poll_turn(), b.session.poll_turn()), (Some(Due::Send { tag }), None));
    b.reply(tag, STAT);
    assert_eq!(b.session.poll_turn(), Some(Due::Send { tag }));
    b.reply(tag, "Rclunk");
    b.nothing_is_left();
}

#[test]
fn what_needs_a_fid_that_was_not_made_fails_alike_with_groups_and_without() {
    for walked in ["Rwalk nwqid 1 0:(1 1 d)", "Rerror ename 'file not found'"] {
        let mut b = Bench::grouped(Dialect::Plan9);
        let (tag, _) = b.look(Turn::Now);
        b.reply(tag, walked);
        let told = ["Rerror ename 'who?'", "Rerror ename 'never heard of it'"].map(|line| b.reply(tag, line));
        assert_eq!(told.each_ref().map(failed), [Some(Errno::EBADF); 2], "{walked}");
        b.nothing_is_left();

        // Not even sent: a server that makes a fid by half a walk would do it to the directory.
        let mut b = Bench::attached(Dialect::Plan9);
        let (tag, fid) = b.look(Turn::Later);
        b.reply(tag, walked);
        for _ in 0..2 {
            let due = b.session.poll_turn();
            assert!(
                matches!(&due, Some(Due::Failed { tag: of, error }) if *of == tag && error.errno == Errno::EBADF),
                "{due:?}"
            );
        }
        if walked.starts_with("Rwalk") {
            let tag = b.sent_one(&format!("Tclunk fid {fid}"));
            b.reply(tag, "Rerror ename 'unknown fid'");
        }
        b.nothing_is_left();
    }
}

#[test]
fn a_server_that_does_something_to_a_fid_that_it_cannot_have_made_is_told() {
    let mut b = Bench::grouped(Dialect::Plan9);
    let fid = b.session.new_fid().unwrap();
    let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 2 0:a 1:b"));
    b.behind(tag, &format!("Tremove fid {fid}"));
    b.reply(tag, "Rwalk nwqid 1 0:(1 1 d)");
    assert_eq!(b.try_reply(tag, "Rremove"), Err(ServerMisbehaved::FidNeverMade("Tremove")));
}

#[test]
fn a_fid_is_for_its_own_chain_until_it_is_made_and_for_nobody_behind_its_clunk() {
    for mut b in [Bench::grouped(Dialect::Unix), Bench::attached(Dialect::Unix)] {
        let fid = b.session.new_fid().unwrap();
        let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 0"));
        assert_eq!(b.try_call(&format!("Tstat fid {fid}")), Err(Refused::UnknownFid(fid)));
        let other = b.call("Tstat fid 0");
        assert_eq!(b.try_behind(other, &format!("Tstat fid {fid}")), Err(Refused::UnknownFid(fid)));
        b.behind(tag, &format!("Tclunk fid {fid}"));
        assert_eq!(b.try_behind(tag, &format!("Tstat fid {fid}")), Err(Refused::UnknownFid(fid)));
        assert_eq!(b.try_behind(Tag(777), "Tstat fid 0"), Err(Refused::NoChain(Tag(777))));
    }
}

#[test]
fn a_chain_of_more_than_a_server_must_take_is_refused() {
    let mut b = Bench::grouped(Dialect::Plan9);
    let tag = b.call("Tstat fid 0");
    for _ in 1..64 {
        b.behind(tag, "Tstat fid 0");
    }
    assert_eq!(b.try_behind(tag, "Tstat fid 0"), Err(Refused::ChainFull));
    b.reply(tag, STAT);
    b.behind(tag, "Tstat fid 0");
}

#[test]
fn a_chain_given_up_is_flushed_once_and_leaves_no_fid_wherever_the_flush_finds_it() {
    // How many of walk, stat, clunk the server answers before the Rflush.
    for answered in 0..=3 {
        for given_up_after in 0..=answered.min(2) {
            let mut b = Bench::grouped(Dialect::Plan9);
            let (tag, fid) = b.look(Turn::Now);
            let replies = ["Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )", STAT, "Rclunk"];
            replies[..given_up_after].iter().for_each(|line| drop(b.reply(tag, line)));
            b.session.cancel(tag);
            b.session.cancel(tag);
            assert_eq!(b.try_behind(tag, "Tstat fid 0"), Err(Refused::NoChain(tag)));
            if given_up_after == 2 {
                // Only the clunk is left, which is let go on.
                b.sent_nothing();
                if answered == 2 {
                    b.reply(tag, "Rclunk");
                } else {
                    assert_eq!(b.reply(tag, "Rclunk"), Told::Settled);
                }
                b.nothing_is_left();
                continue;
            }
            let flush = b.sent_one(&format!("Tflush oldtag {}", tag.0));
            assert_eq!(b.session.unattended(), 1);
            for line in &replies[given_up_after..answered] {
                assert_eq!(b.reply(tag, line), Told::Settled);
            }
            assert!(b.session.calls() > 0, "the tag is in use until the Rflush");
            b.reply(flush, "Rflush");
            if answered == 1 || answered == 2 {
                let tag = b.sent_one(&format!("Tclunk fid {fid}"));
                b.reply(tag, "Rclunk");
            }
            b.nothing_is_left();
        }
    }
}

#[test]
fn what_a_chain_given_up_had_not_sent_is_never_sent() {
    let mut b = Bench::attached(Dialect::Plan9);
    let (tag, fid) = b.look(Turn::Later);
    b.session.cancel(tag);
    assert_eq!(b.session.calls(), 1);
    let flush = b.sent_one(&format!("Tflush oldtag {}", tag.0));
    b.reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )");
    b.reply(flush, "Rflush");
    assert_eq!(b.session.poll_turn(), None);
    let tag = b.sent_one(&format!("Tclunk fid {fid}"));
    b.reply(tag, "Rclunk");
    b.nothing_is_left();

    // Between a reply and the next turn nothing is outstanding.
    let (tag, fid) = b.look(Turn::Later);
    b.reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )");
    b.session.cancel(tag);
    let tag = b.sent_one(&format!("Tclunk fid {fid}"));
    b.reply(tag, "Rclunk");
    b.nothing_is_left();
}

#[test]
fn a_remove_at_the_end_of_a_chain_given_up_removes_nothing_later() {
    for mut b in [Bench::grouped(Dialect::Plan9), Bench::attached(Dialect::Plan9)] {
        let fid = b.session.new_fid().unwrap();
        let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:a"));
        b.behind(tag, &format!("Tremove fid {fid}"));
        b.session.cancel(tag);
        let flush = b.sent_one(&format!("Tflush oldtag {}", tag.0));
        b.reply(tag, "Rwalk nwqid 1 0:(1 1 )");
        b.reply(flush, "Rflush");
        let tag = b.sent_one(&format!("Tclunk fid {fid}"));
        b.reply(tag, "Rclunk");
        b.nothing_is_left();
    }
}

#[test]
fn a_flush_of_a_chain_that_is_answered_with_an_error_leaves_every_reply_to_come() {
    let mut b = Bench::grouped(Dialect::Plan9);
    let (tag, _) = b.look(Turn::Now);
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {}", tag.0));
    b.reply(flush, "Rerror ename 'no flush'");
    for line in ["Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )", STAT, "Rclunk"] {
        assert_eq!(b.session.unattended(), 1);
        assert_eq!(b.reply(tag, line), Told::Settled);
    }
    b.nothing_is_left();
}

#[test]
fn a_fid_that_is_kept_is_nobody_elses_until_it_is_let_go_of() {
    for mut b in [Bench::grouped(Dialect::Plan9), Bench::attached(Dialect::Plan9)] {
        let (tag, fid) = b.look(if b.session.version().groups { Turn::Now } else { Turn::Later });
        b.session.keep(fid, true);
        b.reply(tag, "Rerror ename 'file not found'");
        if b.session.version().groups {
            b.reply(tag, "Rerror ename 'unknown fid'");
            b.reply(tag, "Rerror ename 'unknown fid'");
        } else {
            assert!(b.session.poll_turn().is_some() && b.session.poll_turn().is_some());
        }
        assert_eq!(b.session.fids(), 2);
        assert_eq!(b.try_call(&format!("Tstat fid {fid}")), Err(Refused::UnknownFid(fid)));
        b.session.abandon(fid, Parting::Clunk);
        b.nothing_is_left();
    }
}

#[test]
fn a_tremove_is_not_called_behind_a_tcreate_that_may_have_made_nothing() {
    for mut b in [Bench::grouped(Dialect::Plan9), Bench::attached(Dialect::Plan9)] {
        let fid = b.session.new_fid().unwrap();
        let remove = format!("Tremove fid {fid}");
        let tag = b.call(&format!("Twalk fid 0 newfid {fid} nwname 1 0:d"));
        let turn = b.behind(tag, &format!("Tcreate fid {fid} name n perm --rw-r--r-- mode 1"));
        assert_eq!(b.try_behind(tag, &remove), Err(Refused::Uncreated(fid)));
        b.reply(tag, "Rwalk nwqid 1 0:(1 1 d)");
        b.behind(tag, "Tstat fid 0");
        assert_eq!(b.session.poll_turn().is_some(), turn == Turn::Later);
        b.reply(tag, "Rerror ename 'file exists'");
        assert_eq!(b.try_behind(tag, &remove), Err(Refused::Uncreated(fid)));
        b.behind(tag, &format!("Tcreate fid {fid} name m perm --rw-r--r-- mode 1"));
        assert_eq!(b.session.poll_turn().is_some(), turn == Turn::Later);
        b.reply(tag, STAT);
        b.behind(tag, "Tstat fid 0");
        assert_eq!(b.session.poll_turn().is_some(), turn == Turn::Later);
        b.reply(tag, "Rcreate qid (3 1 ) iounit 0");
        b.behind(tag, &remove);
    }
}

#[test]
fn a_chain_that_has_not_begun_to_leave_is_taken_back_from_its_end_on() {
    for (mut b, turn) in [(Bench::grouped(Dialect::Plan9), Turn::Now), (Bench::attached(Dialect::Plan9), Turn::Later)] {
        let counts = *b.session.counts();
        let (tag, _) = b.look(turn);
        for left in [2, 1, 0] {
            assert!(b.session.withdraw_last(tag));
            assert_eq!(b.session.calls(), left);
        }
        assert!(!b.session.withdraw_last(tag));
        assert_eq!(*b.session.counts(), counts);
        b.nothing_is_left();

        // Of one whose first has left the rest is taken back, and that one flushed.
        let (tag, fid) = b.look(turn);
        assert!(b.session.withdraw_last(tag) && b.session.withdraw_last(tag));
        b.session.cancel(tag);
        let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
        b.reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )");
        b.reply(flush, "Rflush");
        let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
        b.reply(clunk, "Rclunk");
        b.nothing_is_left();
        assert!(!b.session.withdraw_last(tag));
    }
}
