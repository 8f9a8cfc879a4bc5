//! Which reply belongs to which request (intro(5)), and many requests at a time.

use ninefold::proto::message::T;
use ninefold::proto::{Fid, Tag};

use crate::check::case::{Group, case};
use crate::check::conn::Event;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, READ, ROOT, pattern};
use crate::check::verdict::{End, Outcome, ensure};

pub const GROUP: Group = Group {
    name: "tags",
    about: "which reply belongs to which request, and many requests at a time",
    cases: &[
        case!(
            tag_is_free_after_its_reply,
            PUL,
            Attach,
            "intro(5)",
            "A tag can be used again once its request was answered."
        ),
        case!(
            every_tag_will_do,
            PUL,
            Attach,
            "intro(5)",
            "The tags 0, 1, 255, 256, 32,767, 32,768 and 65,534 are answered under the same tag."
        ),
        case!(
            request_under_notag_is_answered,
            PUL,
            Attach,
            "version(5): NOTAG is for Tversion",
            "A request under NOTAG is answered or refused, not lost."
        ),
        case!(
            duplicate_tag_is_not_lost,
            PUL,
            Write,
            "intro(5)",
            "When a tag is used twice at a time both requests are answered, or the connection is closed; no request is lost in silence."
        ),
        case!(
            thirty_two_in_flight_are_each_answered_once,
            PUL,
            Write,
            "intro(5)",
            "32 reads sent in one piece are each answered once, with the bytes of their own offset."
        ),
        case!(
            five_hundred_in_flight_are_each_answered_once,
            PUL,
            Write,
            "intro(5)",
            "500 requests sent in one piece are each answered once."
        ),
        case!(
            writes_in_flight_all_arrive,
            PUL,
            Write,
            "intro(5); read(5)",
            "32 writes of different places, sent in one piece, all arrive."
        ),
        case!(
            different_requests_in_flight_are_answered,
            PUL,
            Write,
            "intro(5)",
            "Walks, attribute requests, reads and refused requests, sent in one piece, each get their own kind of reply."
        ),
        case!(
            two_connections_at_a_time_are_answered,
            PUL,
            Write,
            "intro(5)",
            "Two connections that use the same tags and fids at the same time get their own replies."
        ),
    ],
};

const F: Fid = Fid(20);

async fn tag_is_free_after_its_reply(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    for _ in 0..20 {
        s.send_as(Tag(9), &T::Walk { fid: ROOT, newfid: F, wnames: Default::default() }).await?;
        let reply = s.receive().await?;
        ensure(!reply.is_error(), "Rwalk", || reply.text())?;
        s.send_as(Tag(9), &T::Clunk { fid: F }).await?;
        let reply = s.receive().await?;
        ensure(!reply.is_error(), "Rclunk", || reply.text())?;
    }
    Ok(())
}

async fn every_tag_will_do(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    for tag in [0, 1, 255, 256, 32_767, 32_768, 65_534].map(Tag) {
        s.send_as(tag, &T::Walk { fid: ROOT, newfid: ROOT, wnames: Default::default() }).await?;
        let reply = s.receive().await?;
        ensure(!reply.is_error(), format!("Rwalk tag {tag}"), || reply.text())?;
    }
    Ok(())
}

async fn request_under_notag_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.send_as(Tag::NONE, &T::Walk { fid: ROOT, newfid: ROOT, wnames: Default::default() }).await?;
    match s.event().await? {
        Event::Silence => Err(End::fail("an answer, an error, or a closed connection", s.silence())),
        _ => Ok(()),
    }
}

async fn duplicate_tag_is_not_lost(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", &pattern(60_000)).await?;
    s.opened(b"f", F, READ).await?;
    let mut bytes = Vec::new();
    for _ in 0..8 {
        T::Read { fid: F, offset: 0, count: 32_000 }.encode(Tag(9), c.dialect, &mut bytes);
    }
    s.raw(&bytes).await?;
    // How many were outstanding at the same time is the server's affair: answered, or told to be a duplicate.
    for _ in 0..8 {
        match s.event().await? {
            Event::Frame(_) => {}
            Event::Closed(_) => return Ok(()),
            Event::Silence => return Err(End::fail("a reply for each, or a closed connection", s.silence())),
        }
    }
    s.fence().await
}

async fn thirty_two_in_flight_are_each_answered_once(c: &mut Cx) -> Outcome {
    in_flight(c, 32).await
}

async fn five_hundred_in_flight_are_each_answered_once(c: &mut Cx) -> Outcome {
    in_flight(c, 500).await
}

async fn in_flight(c: &mut Cx, n: u64) -> Outcome {
    let mut s = c.here().await?;
    let content = pattern(60_000);
    s.file(b"f", &content).await?;
    s.opened(b"f", F, READ).await?;
    let place = |i: u64| (i * 113) % 59_000;
    let reads: Vec<T<'_>> = (0..n).map(|i| T::Read { fid: F, offset: place(i), count: 100 }).collect();
    let answers = s.ask_all(&reads).await?;
    for (i, answer) in answers.into_iter().enumerate() {
        let at = place(i as u64) as usize;
        let frame = answer.ok()?;
        let data = frame.data();
        let right = !data.is_empty() && data.len() <= 100 && content[at..].starts_with(&data);
        ensure(right, format!("bytes from offset {at}"), || frame.text())?;
    }
    s.fence().await
}

async fn writes_in_flight_all_arrive(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, crate::check::talk::RDWR).await?;
    let content = pattern(32 * 1000);
    let parts: Vec<&[u8]> = content.chunks(1000).collect();
    let writes: Vec<T<'_>> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| T::Write { fid: F, offset: i as u64 * 1000, data: ninefold::proto::message::Payload(part) })
        .collect();
    for answer in s.ask_all(&writes).await? {
        let frame = answer.ok()?;
        ensure(frame.count() == 1000, "1000 bytes taken", || frame.text())?;
    }
    s.holds(b"f", &content).await
}

async fn different_requests_in_flight_are_answered(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", &pattern(1000)).await?;
    s.opened(b"f", F, READ).await?;
    let mut requests = Vec::new();
    for i in 0..8 {
        requests.push(T::Walk { fid: HERE, newfid: Fid(100 + i), wnames: Default::default() });
        requests.push(T::Read { fid: F, offset: 0, count: 100 });
        requests.push(T::Clunk { fid: Fid(7777) });
        requests.push(T::Flush { oldtag: Tag(60_000) });
    }
    for answer in s.ask_all(&requests).await? {
        let expected_error = answer.asked == 120;
        ensure(answer.frame.is_error() == expected_error, "errors for the unknown fid alone", || answer.frame.text())?;
    }
    Ok(())
}

async fn two_connections_at_a_time_are_answered(c: &mut Cx) -> Outcome {
    let mut one = c.here().await?;
    one.file(b"one", b"first").await?;
    one.file(b"two", b"second").await?;
    let mut two = c.here().await?;
    one.opened(b"one", F, READ).await?;
    two.opened(b"two", F, READ).await?;
    for tag in (100..116).map(Tag) {
        one.send_as(tag, &T::Read { fid: F, offset: 0, count: 10 }).await?;
        two.send_as(tag, &T::Read { fid: F, offset: 0, count: 10 }).await?;
    }
    for (s, expected) in [(&mut one, &b"first"[..]), (&mut two, b"second")] {
        for _ in 0..16 {
            let reply = s.receive().await?;
            ensure(reply.data() == expected, format!("'{}'", expected.escape_ascii()), || reply.text())?;
        }
        s.fence().await?;
    }
    Ok(())
}
