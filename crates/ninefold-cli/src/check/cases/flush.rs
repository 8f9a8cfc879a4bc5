//! Taking requests back (flush(5)).
//!
//! No request can be relied on to be slow in every server. So requests and their flushes are sent in one piece, many times:
//! whichever comes first, what may follow what is fixed. Where the server has FIFOs or locks that wait, one request is sure
//! to be outstanding.

use ninefold::proto::message::{Octal, T};
use ninefold::proto::stat::dm;
use ninefold::proto::{Dialect, Fid, Tag};

use crate::check::case::{Group, case};
use crate::check::conn::{Conn, Event};
use crate::check::cx::Cx;
use crate::check::talk::{HERE, RDWR, READ, ROOT, gid, pattern};
use crate::check::verdict::{End, Outcome, ensure};

pub const GROUP: Group = Group {
    name: "flush",
    about: "taking requests back: before, while and after they are served",
    cases: &[
        case!(
            unknown_oldtag_is_answered,
            PUL,
            Attach,
            "flush(5): never an error",
            "A Tflush of a tag that is not in use is answered by Rflush."
        ),
        case!(
            after_the_reply_is_answered,
            PUL,
            Attach,
            "flush(5)",
            "A Tflush of a request that was answered is answered by Rflush."
        ),
        case!(
            of_itself_is_answered,
            PUL,
            Attach,
            "flush(5)",
            "A Tflush whose oldtag is its own tag is answered by Rflush."
        ),
        case!(of_notag_is_answered, PUL, Attach, "flush(5)", "A Tflush of NOTAG is answered by Rflush."),
        case!(
            together_with_its_request_is_in_order,
            PUL,
            Write,
            "flush(5)",
            "When reads and their flushes come in one piece each flush is answered, and a read's reply never comes behind its Rflush."
        ),
        case!(
            of_a_flush_is_answered,
            PUL,
            Write,
            "flush(5)",
            "A Tflush of a Tflush is answered, and the reply of the first never comes behind that."
        ),
        case!(
            twice_is_answered_in_order,
            PUL,
            Write,
            "flush(5): answered in order, or the last alone",
            "Of two Tflushes of one request the last is answered, and the first before it or not at all."
        ),
        case!(
            nothing_comes_behind_the_rflush,
            PUL,
            Write,
            "flush(5)",
            "After the Rflush nothing more comes for the request that was flushed."
        ),
        case!(
            tag_is_free_after_the_rflush,
            PUL,
            Write,
            "flush(5)",
            "After the Rflush the tag of the flushed request can be used again, and its reply is the new request's."
        ),
        case!(
            of_a_walk_leaves_newfid_as_told,
            PUL,
            Write,
            "flush(5)",
            "When a walk is flushed newfid exists if the Rwalk came, and does not if only the Rflush came."
        ),
        case!(
            of_a_clunk_leaves_the_fid_as_told,
            PUL,
            Write,
            "flush(5); clunk(5)",
            "When a clunk is flushed and answered all the same the fid is gone."
        ),
        case!(
            of_a_write_is_whole_or_not_at_all,
            PUL,
            Write,
            "flush(5)",
            "When a write of 1,000 bytes is flushed the file has all of them or none."
        ),
        case!(
            of_a_read_that_waits_ends_it,
            UL,
            Write,
            "flush(5)",
            "A read of an empty FIFO that waits is ended by a Tflush, and the FIFO's fid is good still."
        ),
        case!(
            before_the_request_is_harmless,
            PUL,
            Attach,
            "flush(5)",
            "A Tflush of a tag that is used for the first time behind it does not take that request back."
        ),
    ],
};

const F: Fid = Fid(20);
const NOBODY: Tag = Tag(60_000);

async fn flushed(s: &mut Conn, oldtag: Tag) -> Outcome {
    let frame = s.ask(&T::Flush { oldtag }).await?.frame;
    ensure(!frame.is_error(), "Rflush", || frame.text())
}

async fn unknown_oldtag_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    flushed(&mut s, NOBODY).await
}

async fn after_the_reply_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.send(&T::Walk { fid: ROOT, newfid: F, wnames: Default::default() }).await?;
    s.receive().await?;
    flushed(&mut s, tag).await?;
    s.known(F).await.map(drop)
}

async fn of_itself_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.send_as(Tag(9), &T::Flush { oldtag: Tag(9) }).await?;
    let reply = s.receive().await?;
    ensure(!reply.is_error(), "Rflush", || reply.text())?;
    s.known(ROOT).await.map(drop)
}

async fn of_notag_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    flushed(&mut s, Tag::NONE).await?;
    s.known(ROOT).await.map(drop)
}

/// A connection with a file open for reading as `F`.
async fn reading(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", &pattern(60_000)).await?;
    s.opened(b"f", F, READ).await?;
    Ok(s)
}

const READING: T<'static> = T::Read { fid: F, offset: 0, count: 32_000 };

/// Sends requests in one piece and takes what comes up to the reply of the last of them; the tags of the replies. That
/// nothing comes twice, and no reply behind the Rflush that ended its request, is seen to by the connection.
async fn exchange(s: &mut Conn, requests: &[(Tag, T<'_>)]) -> Result<Vec<Tag>, End> {
    let mut bytes = Vec::new();
    for (tag, message) in requests {
        message.encode(*tag, s.dialect, &mut bytes);
    }
    s.raw(&bytes).await?;
    let mut came = Vec::new();
    let last = requests.last().map(|(tag, _)| *tag);
    while came.last().copied() != last {
        let reply = s.receive().await?;
        let is_flush = requests.iter().any(|(tag, t)| *tag == reply.tag() && matches!(t, T::Flush { .. }));
        ensure(!is_flush || !reply.is_error(), "Rflush", || reply.text())?;
        came.push(reply.tag());
    }
    Ok(came)
}

async fn together_with_its_request_is_in_order(c: &mut Cx) -> Outcome {
    let mut s = reading(c).await?;
    for _ in 0..20 {
        let (old, tag) = (s.fresh_tag(), s.fresh_tag());
        exchange(&mut s, &[(old, READING), (tag, T::Flush { oldtag: old })]).await?;
    }
    let mut bytes = Vec::new();
    for i in 0..32 {
        READING.encode(Tag(1000 + i), c.dialect, &mut bytes);
        T::Flush { oldtag: Tag(1000 + i) }.encode(Tag(2000 + i), c.dialect, &mut bytes);
    }
    s.raw(&bytes).await?;
    let mut rflushes = 0;
    while rflushes < 32 {
        let reply = s.receive().await?;
        if reply.tag().0 >= 2000 {
            ensure(!reply.is_error(), "Rflush", || reply.text())?;
            rflushes += 1;
        }
    }
    s.fence().await
}

/// Fails when a reply comes to the flush `one`, which that of `two` has made superfluous. The read may be answered still: the
/// second flush may have taken the first back.
async fn not_late(s: &mut Conn, one: Tag, two: Tag) -> Outcome {
    let fence = s.send(&T::Flush { oldtag: NOBODY }).await?;
    loop {
        let reply = s.receive().await?;
        ensure(reply.tag() != one, format!("Rflush tag {one} before Rflush tag {two}"), || reply.text())?;
        if reply.tag() == fence {
            return Ok(());
        }
    }
}

async fn of_a_flush_is_answered(c: &mut Cx) -> Outcome {
    let mut s = reading(c).await?;
    for _ in 0..20 {
        let (old, one, two) = (s.fresh_tag(), s.fresh_tag(), s.fresh_tag());
        let flush = T::Flush { oldtag: old };
        exchange(&mut s, &[(old, READING), (one, flush), (two, T::Flush { oldtag: one })]).await?;
        not_late(&mut s, one, two).await?;
    }
    Ok(())
}

async fn twice_is_answered_in_order(c: &mut Cx) -> Outcome {
    let mut s = reading(c).await?;
    for _ in 0..20 {
        let (old, one, two) = (s.fresh_tag(), s.fresh_tag(), s.fresh_tag());
        let flush = T::Flush { oldtag: old };
        exchange(&mut s, &[(old, READING), (one, flush), (two, flush)]).await?;
        not_late(&mut s, one, two).await?;
    }
    Ok(())
}

async fn nothing_comes_behind_the_rflush(c: &mut Cx) -> Outcome {
    let mut s = reading(c).await?;
    for _ in 0..20 {
        let (old, tag) = (s.fresh_tag(), s.fresh_tag());
        exchange(&mut s, &[(old, READING), (tag, T::Flush { oldtag: old })]).await?;
        s.fence().await?;
    }
    Ok(())
}

async fn tag_is_free_after_the_rflush(c: &mut Cx) -> Outcome {
    let mut s = reading(c).await?;
    for _ in 0..20 {
        exchange(&mut s, &[(Tag(7), READING), (Tag(8), T::Flush { oldtag: Tag(7) })]).await?;
        s.send_as(Tag(7), &T::Walk { fid: HERE, newfid: HERE, wnames: Default::default() }).await?;
        let reply = s.receive().await?;
        ensure(reply.kind() == 111, "Rwalk tag 7", || reply.text())?;
    }
    Ok(())
}

async fn of_a_walk_leaves_newfid_as_told(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    for i in 0..20 {
        let (old, tag, newfid) = (s.fresh_tag(), s.fresh_tag(), Fid(100 + i));
        let walk = T::Walk { fid: HERE, newfid, wnames: Default::default() };
        let came = exchange(&mut s, &[(old, walk), (tag, T::Flush { oldtag: old })]).await?;
        if came.contains(&old) {
            s.known(newfid).await?;
        } else {
            s.unknown(newfid).await?;
        }
    }
    Ok(())
}

async fn of_a_clunk_leaves_the_fid_as_told(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    for i in 0..20 {
        let (old, tag, fid) = (s.fresh_tag(), s.fresh_tag(), Fid(100 + i));
        s.reach(HERE, fid, &[]).await?;
        let came = exchange(&mut s, &[(old, T::Clunk { fid }), (tag, T::Flush { oldtag: old })]).await?;
        if came.contains(&old) {
            s.unknown(fid).await?;
        }
    }
    Ok(())
}

async fn of_a_write_is_whole_or_not_at_all(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    let data = pattern(1000);
    for _ in 0..10 {
        s.opened(b"f", F, crate::check::talk::TRUNC).await?;
        let (old, tag) = (s.fresh_tag(), s.fresh_tag());
        let write = T::Write { fid: F, offset: 0, data: ninefold::proto::message::Payload(&data) };
        let mut bytes = s.frame(old, &write);
        bytes.extend(s.frame(tag, &T::Flush { oldtag: old }));
        s.raw(&bytes).await?;
        let mut reply = s.receive().await?;
        let answered = reply.tag() == old;
        if answered {
            ensure(reply.count() == 1000, "1000 bytes taken", || reply.text())?;
            reply = s.receive().await?;
        }
        ensure(reply.tag() == tag && !reply.is_error(), format!("Rflush tag {tag}"), || reply.text())?;
        s.clunk(F).await?.ok()?;
        let content = s.content(b"f").await?;
        let right = content == data || content.is_empty() && !answered;
        ensure(right, "all of it where it was answered, else all or nothing", || format!("{} bytes", content.len()))?;
    }
    Ok(())
}

/// A FIFO in the case's directory, opened at both ends, so that opening does not wait and reading does.
async fn waiting_fifo(c: &mut Cx, s: &mut Conn) -> Outcome {
    let answer = if c.dialect == Dialect::Linux {
        let mode = Octal(0o010_600);
        s.ask(&T::Mknod { dfid: HERE, name: b"fifo", mode, major: 0, minor: 0, gid: gid() }).await?
    } else {
        s.special(HERE, b"fifo", dm::NAMEDPIPE | 0o600, b"").await?
    };
    if let Some(refusal) = answer.frame.refusal() {
        return Err(End::skip(format!("the server makes no FIFO: {}", refusal.told())));
    }
    s.reach(HERE, F, &[b"fifo"]).await?;
    let answer = s.open(F, RDWR).await?;
    match answer.frame.refusal() {
        Some(refusal) => Err(End::skip(format!("the server does not open a FIFO: {}", refusal.told()))),
        None => Ok(()),
    }
}

async fn of_a_read_that_waits_ends_it(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    waiting_fifo(c, &mut s).await?;
    let old = s.send(&T::Read { fid: F, offset: 0, count: 100 }).await?;
    // Another request is answered meanwhile.
    s.send(&T::Walk { fid: HERE, newfid: HERE, wnames: Default::default() }).await?;
    let reply = s.receive().await?;
    if reply.tag() == old {
        return Err(End::skip(format!("a read of an empty FIFO does not wait: {}", reply.text())));
    }
    let tag = s.send(&T::Flush { oldtag: old }).await?;
    match s.event().await? {
        Event::Frame(frame) if frame.tag() == tag && !frame.is_error() => {}
        // An error such as EINTR may come before it.
        Event::Frame(frame) if frame.tag() == old && frame.is_error() => {
            let reply = s.receive().await?;
            ensure(reply.tag() == tag && !reply.is_error(), "Rflush", || reply.text())?;
        }
        Event::Frame(frame) => return Err(End::fail("Rflush", frame.text())),
        Event::Closed(why) => return Err(End::fail("Rflush", why)),
        Event::Silence => return Err(End::fail("Rflush", s.silence())),
    }
    s.fence().await?;
    s.clunk(F).await?.ok().map(drop)
}

async fn before_the_request_is_harmless(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    for i in 0..20 {
        let walk = T::Walk { fid: ROOT, newfid: Fid(100 + i), wnames: Default::default() };
        let mut bytes = s.frame(Tag(8), &T::Flush { oldtag: Tag(7) });
        bytes.extend(s.frame(Tag(7), &walk));
        s.raw(&bytes).await?;
        let (one, two) = (s.receive().await?, s.receive().await?);
        let walked = if one.tag() == Tag(7) { one } else { two };
        ensure(walked.kind() == 111, "Rwalk", || walked.text())?;
    }
    Ok(())
}
