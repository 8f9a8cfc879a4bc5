//! Messages as large as they may be, and larger.

use ninefold::proto::message::{Payload, T};
use ninefold::proto::wire::{READ_OVERHEAD, WRITE_OVERHEAD};
use ninefold::proto::{Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Event;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, READ, ROOT, WRITE, pattern};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "msize",
    about: "messages as large as they may be, and larger",
    cases: &[
        case!(
            reply_never_exceeds_it,
            PUL,
            Write,
            "version(5)",
            "A read of 2^32-1 bytes is clipped to the msize, or refused; no reply is longer than the msize."
        ),
        case!(
            read_of_a_full_message_is_clipped,
            PUL,
            Write,
            "read(5)",
            "A read of exactly msize bytes is answered by no more than msize less the header of 11 bytes."
        ),
        case!(
            read_of_msize_less_24_is_taken,
            PUL,
            Write,
            "fcall(3): IOHDRSZ; Linux's client",
            "A read of msize less 24 bytes, the largest that clients ask for, returns data."
        ),
        case!(
            write_of_msize_less_24_is_taken,
            PUL,
            Write,
            "fcall(3): IOHDRSZ; Linux's client",
            "A write of msize less 24 bytes, the largest that clients send, is taken and read back."
        ),
        case!(
            write_of_a_full_message_is_taken,
            PUL,
            Write,
            "version(5)",
            "A Twrite whose frame is exactly msize long is taken."
        ),
        case!(
            frame_over_it_is_refused,
            PUL,
            Write,
            "version(5)",
            "A frame one byte longer than the msize is refused or the connection closed, and nothing is written."
        ),
        case!(
            frame_of_2_gib_is_refused,
            PUL,
            Attach,
            "version(5)",
            "A frame that says it is 2 GiB long is refused before it has come."
        ),
        case!(
            frame_of_4_gib_is_refused,
            PUL,
            Attach,
            "version(5)",
            "A frame that says it is 2^32-1 bytes long is refused before it has come."
        ),
        case!(
            walk_of_long_names_fits,
            PUL,
            Write,
            "walk(5)",
            "A walk of 15 names of 250 bytes, which fits an msize of 4096, is answered."
        ),
        case!(
            large_file_passes_in_small_messages,
            PUL,
            Write,
            "read(5)",
            "100,000 bytes written and read with an msize of 4096 are the same."
        ),
        case!(error_fits, PUL, Attach, "error(5)", "An error about a name of 3,000 bytes fits an msize of 4096."),
        case!(
            directory_read_is_clipped,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A directory read with a count of 2^32-1 is clipped to the msize, or refused."
        ),
    ],
};

const F: Fid = Fid(20);

async fn reply_never_exceeds_it(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(4096).await?;
    s.file(b"f", &pattern(20_000)).await?;
    s.opened(b"f", F, READ).await?;
    let answer = s.read(F, 0, u32::MAX).await?;
    prefer(!answer.frame.is_error(), "as much as fits", || answer.frame.text())?;
    let data = answer.ok()?.data();
    ensure(!data.is_empty() && pattern(20_000).starts_with(&data), "the file's first bytes", || {
        format!("{} bytes", data.len())
    })
}

async fn read_of_a_full_message_is_clipped(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(4096).await?;
    s.file(b"f", &pattern(20_000)).await?;
    s.opened(b"f", F, READ).await?;
    let msize = s.msize.unwrap_or_default();
    for count in [msize, msize - READ_OVERHEAD, msize - READ_OVERHEAD + 1] {
        let answer = s.read(F, 100, count).await?;
        prefer(!answer.frame.is_error(), format!("as much as fits for a count of {count}"), || answer.frame.text())?;
        let data = answer.ok()?.data();
        let right = !data.is_empty() && pattern(20_000)[100..].starts_with(&data);
        ensure(right, "the file's bytes from 100", || format!("{} other bytes", data.len()))?;
    }
    Ok(())
}

async fn read_of_msize_less_24_is_taken(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(8192).await?;
    s.file(b"f", &pattern(20_000)).await?;
    s.opened(b"f", F, READ).await?;
    let count = s.io_size();
    let data = s.read(F, 0, count).await?.ok()?.data();
    let right = !data.is_empty() && data.len() <= count as usize && pattern(20_000).starts_with(&data);
    ensure(right, format!("1 to {count} bytes of the file"), || format!("{} bytes", data.len()))
}

async fn write_of_msize_less_24_is_taken(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(8192).await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, WRITE).await?;
    let data = pattern(s.io_size() as usize);
    let frame = s.write_at(F, 0, &data).await?.ok()?;
    let count = frame.count() as usize;
    ensure((1..=data.len()).contains(&count), format!("1 to {} bytes taken", data.len()), || frame.text())?;
    s.holds(b"f", &data[..count]).await
}

async fn write_of_a_full_message_is_taken(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(8192).await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, WRITE).await?;
    let data = pattern((s.msize.unwrap_or_default() - WRITE_OVERHEAD) as usize);
    let answer = s.write_at(F, 0, &data).await?;
    prefer(!answer.frame.is_error(), "Rwrite", || answer.frame.text())?;
    let count = answer.ok()?.count() as usize;
    ensure((1..=data.len()).contains(&count), format!("1 to {} bytes taken", data.len()), || format!("{count}"))?;
    s.holds(b"f", &data[..count]).await
}

async fn frame_over_it_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(8192).await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, WRITE).await?;
    let data = pattern((s.msize.unwrap_or_default() - WRITE_OVERHEAD + 1) as usize);
    let tag = s.send(&T::Write { fid: F, offset: 0, data: Payload(&data) }).await?;
    s.rejected(Some(tag)).await?;
    let mut s = c.here().await?;
    s.holds(b"f", b"").await
}

async fn frame_of_2_gib_is_refused(c: &mut Cx) -> Outcome {
    huge(c, 1 << 31).await
}

async fn frame_of_4_gib_is_refused(c: &mut Cx) -> Outcome {
    huge(c, u32::MAX).await
}

async fn huge(c: &mut Cx, size: u32) -> Outcome {
    let mut s = c.attached().await?;
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend([118, 1, 0]); // Twrite tag 1
    s.expect_error(ninefold::proto::Tag(1), 118);
    s.raw(&bytes).await?;
    match s.event().await? {
        Event::Closed(_) => {}
        Event::Frame(frame) if frame.is_error() => {}
        Event::Frame(frame) => return Err(End::fail("an error, or a closed connection", frame.text())),
        Event::Silence => return Err(End::differs("an error, or a closed connection", "waits for the rest of it")),
    }
    let mut s = c.attached().await?;
    s.known(ROOT).await.map(drop)
}

async fn walk_of_long_names_fits(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(4096).await?;
    let name = [b'n'; 250];
    let answer = s.walk(HERE, F, &[&name[..]; 15]).await?;
    answer.refused_as(&[Errno::ENOENT])
}

async fn large_file_passes_in_small_messages(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(4096).await?;
    let data = pattern(100_000);
    s.file(b"f", &data).await?;
    s.holds(b"f", &data).await
}

async fn error_fits(c: &mut Cx) -> Outcome {
    let mut s = c.attached_with(4096).await?;
    let name = [b'n'; 3000];
    s.walk(ROOT, F, &[&name]).await?.refused().map(drop)
}

async fn directory_read_is_clipped(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(4096).await?;
    s.reach(HERE, F, &[]).await?;
    s.open(F, READ).await?.ok()?;
    match s.entries(F, 0, u32::MAX).await {
        Ok(entries) => ensure(!entries.is_empty(), "entries", || "none".to_owned()),
        Err(End::Fail { got, .. }) if got.starts_with("Rlerror") || got.starts_with("Rerror") => {
            Err(End::differs("as many entries as fit", got))
        }
        Err(end) => Err(end),
    }
}
