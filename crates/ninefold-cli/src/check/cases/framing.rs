//! Bytes that are frames, in pieces and in heaps; and bytes that are none (intro(5)).

use ninefold::proto::message::{Payload, T};
use ninefold::proto::{Dialect, Fid, Tag};

use crate::check::case::{Group, case};
use crate::check::conn::Event;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, ROOT, WRITE};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "framing",
    about: "frames in pieces and in heaps, and bytes that are no frames",
    cases: &[
        case!(byte_by_byte, PUL, Attach, "intro(5)", "A request that comes byte by byte is one request."),
        case!(
            cut_in_the_size,
            PUL,
            Attach,
            "intro(5)",
            "A request whose size field comes in two pieces is one request."
        ),
        case!(several_in_one_piece, PUL, Attach, "intro(5)", "Eight requests that come in one piece are all answered."),
        case!(
            one_and_a_half_in_one_piece,
            PUL,
            Attach,
            "intro(5)",
            "A request and the first half of another are a request and, once the rest has come, another."
        ),
        case!(
            unknown_type_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A message of a type that does not exist is answered by an error, and the connection goes on."
        ),
        case!(
            message_of_another_dialect_is_refused,
            PUL,
            Attach,
            "the documents of .u and .L",
            "A message that only another dialect has is answered by an error, and the connection goes on."
        ),
        case!(
            terror_is_refused,
            PU,
            Attach,
            "error(5): there is no Terror",
            "A message of type 106, Terror, is refused or the connection closed."
        ),
        case!(
            tlerror_is_refused,
            L,
            Attach,
            "diod protocol.md: Tlerror is not used",
            "A message of type 6, Tlerror, is refused or the connection closed."
        ),
        case!(
            reply_from_a_client_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A reply that a client sends is refused or the connection closed."
        ),
        case!(size_of_0_is_refused, PUL, Attach, "intro(5)", "A frame of size 0 is refused or the connection closed."),
        case!(
            size_of_4_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A frame of size 4, which ends before its type, is refused or the connection closed."
        ),
        case!(
            size_of_6_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A frame of size 6, which ends inside its tag, is refused or the connection closed."
        ),
        case!(
            message_without_its_fields_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A message that ends before its first field is refused or the connection closed."
        ),
        case!(
            message_that_ends_in_a_field_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A message that ends inside a number is refused or the connection closed."
        ),
        case!(
            bytes_behind_the_message_are_refused,
            PUL,
            Attach,
            "intro(5)",
            "A frame with bytes behind the message's last field is refused or the connection closed."
        ),
        case!(
            string_beyond_the_frame_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A string that says it is longer than the frame is refused or the connection closed."
        ),
        case!(
            names_beyond_the_frame_are_refused,
            PUL,
            Attach,
            "walk(5)",
            "A walk that says it has more names than the frame holds is refused or the connection closed."
        ),
        case!(
            data_beyond_the_frame_is_refused,
            PUL,
            Write,
            "read(5)",
            "A write that says it has more data than the frame holds is refused or the connection closed, and writes nothing."
        ),
        case!(
            data_short_of_the_frame_is_refused,
            PUL,
            Write,
            "read(5)",
            "A write with more bytes in its frame than its count says is refused or the connection closed."
        ),
        case!(
            other_protocol_is_refused,
            PUL,
            Attach,
            "intro(5)",
            "A client that speaks HTTP is refused, and the next client is served."
        ),
        case!(
            connection_closed_in_a_frame_hurts_nobody,
            PUL,
            Attach,
            "intro(5)",
            "A connection that is closed in the middle of a frame leaves the server alive for the next."
        ),
        case!(
            connection_closed_with_open_files_hurts_nobody,
            PUL,
            Write,
            "intro(5)",
            "A connection that is closed with files open leaves them as they are, and the server alive."
        ),
    ],
};

const F: Fid = Fid(20);

/// A request that is answered whatever else happened: the connection lives.
async fn lives(s: &mut crate::check::conn::Conn) -> Outcome {
    s.walk(ROOT, Fid(77), &[]).await?.ok()?;
    s.clunk(Fid(77)).await?.ok().map(drop)
}

async fn byte_by_byte(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.fresh_tag();
    let frame = s.frame(tag, &T::Walk { fid: ROOT, newfid: F, wnames: Default::default() });
    s.expect_replies(&frame);
    for byte in &frame {
        s.write(&[*byte]).await?;
        tokio::task::yield_now().await;
    }
    let reply = s.receive().await?;
    ensure(!reply.is_error(), "Rwalk", || reply.text())
}

async fn cut_in_the_size(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.fresh_tag();
    let frame = s.frame(tag, &T::Walk { fid: ROOT, newfid: F, wnames: Default::default() });
    s.expect_replies(&frame);
    s.write(&frame[..2]).await?;
    // Another connection in between: the server has seen the two bytes by the time that it answers there.
    let mut other = c.attached().await?;
    lives(&mut other).await?;
    s.write(&frame[2..]).await?;
    let reply = s.receive().await?;
    ensure(!reply.is_error(), "Rwalk", || reply.text())
}

async fn several_in_one_piece(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let walks: Vec<T<'_>> =
        (0..8).map(|i| T::Walk { fid: ROOT, newfid: Fid(30 + i), wnames: Default::default() }).collect();
    for answer in s.ask_all(&walks).await? {
        answer.ok()?;
    }
    Ok(())
}

async fn one_and_a_half_in_one_piece(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let (first, second) = (s.fresh_tag(), s.fresh_tag());
    let mut bytes = s.frame(first, &T::Walk { fid: ROOT, newfid: F, wnames: Default::default() });
    let half = bytes.len() + 9;
    bytes.extend(s.frame(second, &T::Walk { fid: ROOT, newfid: Fid(21), wnames: Default::default() }));
    s.expect_replies(&bytes);
    s.write(&bytes[..half]).await?;
    let reply = s.receive().await?;
    ensure(reply.tag() == first && !reply.is_error(), "Rwalk to the first", || reply.text())?;
    s.write(&bytes[half..]).await?;
    let reply = s.receive().await?;
    ensure(!reply.is_error(), "Rwalk to the second", || reply.text())
}

/// A frame of any type and body.
fn crude(kind: u8, tag: Tag, body: &[u8]) -> Vec<u8> {
    let mut frame = ((7 + body.len()) as u32).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend(tag.0.to_le_bytes());
    frame.extend(body);
    frame
}

/// What is no message of the dialect, but a whole frame: an error, and the connection goes on. That it is closed is the
/// server's choice.
async fn refused_and_lives(c: &mut Cx, kind: u8, body: &[u8]) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.fresh_tag();
    s.raw(&crude(kind, tag, body)).await?;
    let open = s.rejected(Some(tag)).await?;
    prefer(open, "an error, and the connection goes on", || "closed the connection".to_owned())?;
    lives(&mut s).await
}

async fn unknown_type_is_refused(c: &mut Cx) -> Outcome {
    refused_and_lives(c, 254, b"").await
}

async fn message_of_another_dialect_is_refused(c: &mut Cx) -> Outcome {
    // Topen of ROOT for reading in .L; Tgetattr of ROOT elsewhere.
    match c.dialect {
        Dialect::Linux => refused_and_lives(c, 112, &[0, 0, 0, 0, 0]).await,
        _ => refused_and_lives(c, 24, &[0, 0, 0, 0, 0xff, 7, 0, 0, 0, 0, 0, 0]).await,
    }
}

async fn rejected(c: &mut Cx, kind: u8, body: &[u8]) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.fresh_tag();
    s.raw(&crude(kind, tag, body)).await?;
    if s.rejected(Some(tag)).await? {
        lives(&mut s).await?;
    }
    Ok(())
}

async fn terror_is_refused(c: &mut Cx) -> Outcome {
    rejected(c, 106, &[1, 0, b'x']).await
}

async fn tlerror_is_refused(c: &mut Cx) -> Outcome {
    rejected(c, 6, &[2, 0, 0, 0]).await
}

async fn reply_from_a_client_is_refused(c: &mut Cx) -> Outcome {
    rejected(c, 121, b"").await // Rclunk
}

async fn wrong_size(c: &mut Cx, size: u32) -> Outcome {
    let mut s = c.attached().await?;
    // What follows is a Tclunk, if the size is overlooked.
    let mut bytes = crude(120, Tag(5), &[0, 0, 0, 0]);
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    s.expect_error(Tag(5), 120);
    s.raw(&bytes).await?;
    match s.event().await? {
        Event::Closed(_) => Ok(()),
        Event::Frame(frame) if frame.is_error() => Ok(()),
        Event::Frame(frame) => Err(End::fail("an error, or a closed connection", frame.text())),
        Event::Silence => Err(End::fail("an error, or a closed connection", s.silence())),
    }
}

async fn size_of_0_is_refused(c: &mut Cx) -> Outcome {
    wrong_size(c, 0).await
}

async fn size_of_4_is_refused(c: &mut Cx) -> Outcome {
    wrong_size(c, 4).await
}

async fn size_of_6_is_refused(c: &mut Cx) -> Outcome {
    wrong_size(c, 6).await
}

async fn message_without_its_fields_is_refused(c: &mut Cx) -> Outcome {
    rejected(c, 110, b"").await // Twalk
}

async fn message_that_ends_in_a_field_is_refused(c: &mut Cx) -> Outcome {
    rejected(c, 110, &[0, 0, 0, 0, 20, 0]).await
}

async fn bytes_behind_the_message_are_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let tag = s.fresh_tag();
    s.raw(&crude(108, tag, &[0xf0, 0xff, 1, 2, 3])).await?; // Tflush of a tag not in use
    match s.event().await? {
        Event::Closed(_) => Ok(()),
        Event::Frame(frame) if frame.is_error() => lives(&mut s).await,
        // Some peers are known to be sloppy, and some servers put up with it.
        Event::Frame(frame) => Err(End::differs("an error, or a closed connection", frame.text())),
        Event::Silence => Err(End::fail("an error, or a closed connection", s.silence())),
    }
}

async fn string_beyond_the_frame_is_refused(c: &mut Cx) -> Outcome {
    // Twalk of one name, which says that it has 65,535 bytes.
    rejected(c, 110, &[0, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0xff, 0xff, b'a']).await
}

async fn names_beyond_the_frame_are_refused(c: &mut Cx) -> Outcome {
    rejected(c, 110, &[0, 0, 0, 0, 20, 0, 0, 0, 16, 0, 1, 0, b'a']).await
}

async fn wrong_count(c: &mut Cx, count: u32) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, WRITE).await?;
    let tag = s.fresh_tag();
    let mut frame = s.frame(tag, &T::Write { fid: F, offset: 0, data: Payload(b"12345678") });
    frame[19..23].copy_from_slice(&count.to_le_bytes());
    s.raw(&frame).await?;
    if s.rejected(Some(tag)).await? {
        lives(&mut s).await?;
    }
    let mut s = c.here().await?;
    s.holds(b"f", b"").await
}

async fn data_beyond_the_frame_is_refused(c: &mut Cx) -> Outcome {
    wrong_count(c, 4000).await
}

async fn data_short_of_the_frame_is_refused(c: &mut Cx) -> Outcome {
    match wrong_count(c, 3).await {
        Err(End::Fail { expected, got }) if got.starts_with("Rwrite") => Err(End::differs(expected, got)),
        other => other,
    }
}

async fn other_protocol_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    s.expect_error(Tag(u16::from_le_bytes(*b"/ ")), b'/');
    s.raw(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").await?;
    // The first four bytes are a size of 542,393,671, which a server may wait for.
    let waits = match s.event().await {
        Ok(Event::Silence) => true,
        Ok(_) | Err(End::Fail { .. }) => false,
        Err(end) => return Err(end),
    };
    s.restart_clock();
    let mut next = c.attached().await?;
    lives(&mut next).await?;
    prefer(!waits, "an error, or a closed connection", || "waits for the rest of it".to_owned())
}

async fn connection_closed_in_a_frame_hurts_nobody(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let frame = s.frame(Tag(5), &T::Walk { fid: ROOT, newfid: F, wnames: Default::default() });
    s.raw(&frame[..frame.len() - 3]).await?;
    drop(s);
    let mut next = c.attached().await?;
    lives(&mut next).await
}

async fn connection_closed_with_open_files_hurts_nobody(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"kept").await?;
    for i in 0..20 {
        s.opened(b"f", Fid(30 + i), WRITE).await?;
    }
    s.reach(HERE, F, &[]).await?;
    drop(s);
    let mut next = c.here().await?;
    next.holds(b"f", b"kept").await
}
