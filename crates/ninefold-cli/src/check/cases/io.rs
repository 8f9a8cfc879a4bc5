//! Reading and writing (read(5)).

use ninefold::proto::{Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::cx::Cx;
use crate::check::talk::{HERE, How, RDWR, READ, TRUNC, WRITE, pattern};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "io",
    about: "reading and writing",
    cases: &[
        case!(
            read_at_the_end_is_empty,
            PUL,
            Write,
            "read(5)",
            "A read at the end of a file returns no bytes, and is no error."
        ),
        case!(
            read_past_the_end_is_empty,
            PUL,
            Write,
            "read(5)",
            "A read behind the end of a file returns no bytes, and is no error."
        ),
        case!(read_far_past_the_end_is_empty, PUL, Write, "read(5)", "A read at an offset of 2^62 returns no bytes."),
        case!(
            read_across_the_end_is_short,
            PUL,
            Write,
            "read(5)",
            "A read that begins inside a file and ends behind it returns what there is."
        ),
        case!(read_of_0_bytes_is_empty, PUL, Write, "read(5)", "A read of 0 bytes returns no bytes, and is no error."),
        case!(read_of_an_empty_file_is_empty, PUL, Write, "read(5)", "A read of an empty file returns no bytes."),
        case!(
            read_at_2_63_is_answered,
            PUL,
            Write,
            "read(5)",
            "A read at an offset of 2^63 returns no bytes or is an error."
        ),
        case!(
            read_at_the_greatest_offset_is_answered,
            PUL,
            Write,
            "read(5)",
            "A read at an offset of 2^64-1 returns no bytes or is an error."
        ),
        case!(
            read_gives_the_bytes_of_its_offset,
            PUL,
            Write,
            "read(5)",
            "Reads in any order return the bytes of their offsets: a fid has no position."
        ),
        case!(read_gives_no_more_than_asked, PUL, Write, "read(5)", "A read of 1 byte returns 1 byte."),
        case!(write_is_read_back, PUL, Write, "read(5)", "What was written is read back, by another fid, at once."),
        case!(
            write_in_the_middle_changes_nothing_else,
            PUL,
            Write,
            "read(5)",
            "A write inside a file changes its own bytes and no other, and not the length."
        ),
        case!(
            write_past_the_end_leaves_zeros,
            PUL,
            Write,
            "read(5)",
            "A write behind the end makes the file longer, with zeros between."
        ),
        case!(
            write_of_0_bytes_changes_nothing,
            PUL,
            Write,
            "read(5)",
            "A write of 0 bytes is taken and changes nothing."
        ),
        case!(
            write_grows_the_length,
            PUL,
            Write,
            "stat(5)",
            "The length that is told after a write is that of the file then."
        ),
        case!(write_at_2_63_is_refused, PUL, Write, "read(5)", "A write at an offset of 2^63 is an error."),
        case!(
            write_past_4_gib_is_taken,
            PUL,
            Write,
            "read(5): offsets have 64 bits",
            "A byte written behind 4 GiB is read back from there."
        ),
        case!(write_to_a_directory_is_refused, PUL, Write, "open(5)", "A directory cannot be written."),
        case!(
            read_of_a_directory_is_refused,
            L,
            Write,
            "diod protocol.md: readdir",
            "Tread of a directory is an error in .L, which has Treaddir."
        ),
        case!(
            append_only_writes_at_the_end,
            PU,
            Write,
            "open(5): DMAPPEND",
            "Writes to a file made append-only go to its end, whatever their offset."
        ),
        case!(
            append_flag_writes_at_the_end,
            L,
            Write,
            "open(2): O_APPEND",
            "Writes by a fid opened with O_APPEND go to the end, whatever their offset."
        ),
        case!(
            open_with_truncation_empties,
            PUL,
            Write,
            "open(5): OTRUNC; open(2): O_TRUNC",
            "A file opened with truncation is empty."
        ),
        case!(
            truncation_is_seen_by_open_fids,
            PUL,
            Write,
            "read(5)",
            "A fid that was open before reads the end of a file that another emptied."
        ),
        case!(
            fids_open_the_same_file_apart,
            PUL,
            Write,
            "open(5)",
            "Two fids of one file, one open for reading and one for writing, each do their own."
        ),
        case!(
            large_write_and_read_are_the_same,
            PUL,
            Write,
            "read(5)",
            "A file of 1 MiB, written and read in the largest messages, is the same."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

/// Reads `count` bytes at `offset` of a file with `content`.
async fn read(c: &mut Cx, content: &[u8], offset: u64, count: u32) -> Result<Result<Vec<u8>, String>, End> {
    let mut s = c.here().await?;
    s.file(b"f", content).await?;
    s.opened(b"f", F, READ).await?;
    let answer = s.read(F, offset, count).await?;
    if answer.frame.is_error() {
        return Ok(Err(answer.frame.text()));
    }
    Ok(Ok(answer.frame.data()))
}

async fn reads(c: &mut Cx, content: &[u8], offset: u64, count: u32, expected: &[u8]) -> Outcome {
    let shown = format!("'{}'", expected.escape_ascii());
    match read(c, content, offset, count).await? {
        Ok(data) => ensure(data == expected, shown, || format!("'{}'", data.escape_ascii())),
        Err(got) => Err(End::fail(shown, got)),
    }
}

async fn read_at_the_end_is_empty(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 5, 10, b"").await
}

async fn read_past_the_end_is_empty(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 6, 10, b"").await
}

async fn read_far_past_the_end_is_empty(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 1 << 62, 10, b"").await
}

async fn read_across_the_end_is_short(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 3, 10, b"45").await
}

async fn read_of_0_bytes_is_empty(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 0, 0, b"").await
}

async fn read_of_an_empty_file_is_empty(c: &mut Cx) -> Outcome {
    reads(c, b"", 0, 10, b"").await
}

async fn empty_or_error(c: &mut Cx, offset: u64) -> Outcome {
    match read(c, b"12345", offset, 10).await? {
        Ok(data) => ensure(data.is_empty(), "no bytes, or an error", || format!("'{}'", data.escape_ascii())),
        Err(_) => Ok(()),
    }
}

async fn read_at_2_63_is_answered(c: &mut Cx) -> Outcome {
    empty_or_error(c, 1 << 63).await
}

async fn read_at_the_greatest_offset_is_answered(c: &mut Cx) -> Outcome {
    empty_or_error(c, u64::MAX).await
}

async fn read_gives_the_bytes_of_its_offset(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"0123456789").await?;
    s.opened(b"f", F, READ).await?;
    for (offset, expected) in [(7, b"78"), (0, b"01"), (4, b"45"), (4, b"45")] {
        let frame = s.read(F, offset, 2).await?.ok()?;
        ensure(frame.data() == expected, format!("'{}'", expected.escape_ascii()), || frame.text())?;
    }
    Ok(())
}

async fn read_gives_no_more_than_asked(c: &mut Cx) -> Outcome {
    reads(c, b"12345", 1, 1, b"2").await
}

async fn write_is_read_back(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, WRITE).await?;
    s.write_all(F, 0, b"written").await?;
    // F is open still.
    s.holds(b"f", b"written").await
}

async fn write_in_the_middle_changes_nothing_else(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"0123456789").await?;
    s.opened(b"f", F, WRITE).await?;
    s.write_all(F, 3, b"xyz").await?;
    s.holds(b"f", b"012xyz6789").await
}

async fn write_past_the_end_leaves_zeros(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12").await?;
    s.opened(b"f", F, WRITE).await?;
    s.write_all(F, 5, b"x").await?;
    s.holds(b"f", b"12\0\0\0x").await
}

async fn write_of_0_bytes_changes_nothing(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12").await?;
    s.opened(b"f", F, WRITE).await?;
    let frame = s.write_at(F, 100, b"").await?.ok()?;
    ensure(frame.count() == 0, "0 bytes taken", || frame.text())?;
    s.holds(b"f", b"12").await
}

async fn write_grows_the_length(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12").await?;
    s.opened(b"f", F, WRITE).await?;
    for (offset, expected) in [(2, 5), (0, 5), (5, 8)] {
        s.write_all(F, offset, b"xyz").await?;
        let size = s.facts(F).await?.size;
        ensure(size == expected, format!("a length of {expected}"), || size.to_string())?;
    }
    Ok(())
}

async fn write_at_2_63_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12").await?;
    s.opened(b"f", F, WRITE).await?;
    s.write_at(F, 1 << 63, b"x").await?.refused_as(&[Errno::EINVAL, Errno::EFBIG])?;
    s.holds(b"f", b"12").await
}

async fn write_past_4_gib_is_taken(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.opened(b"f", F, RDWR).await?;
    let at = (1 << 32) + 5;
    let answer = s.write_at(F, at, b"x").await?;
    // A file system, or a limit on files' lengths, may stand in the way.
    prefer(!answer.frame.is_error(), "Rwrite", || answer.frame.text())?;
    let data = s.read(F, at, 10).await?.ok()?.data();
    ensure(data == b"x", "the byte at that offset", || format!("'{}'", data.escape_ascii()))?;
    let low = s.read(F, 5, 1).await?.ok()?.data();
    ensure(low == b"\0", "a zero 4 GiB before it", || format!("'{}'", low.escape_ascii()))
}

async fn write_to_a_directory_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.opened(b"d", F, READ).await?;
    s.write_at(F, 0, b"x").await?.refused().map(drop)
}

async fn read_of_a_directory_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.opened(b"d", F, READ).await?;
    s.read(F, 0, 100).await?.refused_as(&[Errno::EISDIR, Errno::EINVAL])
}

async fn append_only_writes_at_the_end(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let perm = ninefold::proto::stat::dm::APPEND | 0o600;
    let answer = s.special(HERE, b"f", perm, b"").await?;
    if let Some(refusal) = answer.frame.refusal() {
        return Err(End::skip(format!("the server makes no append-only file: {}", refusal.told())));
    }
    s.opened(b"f", F, WRITE).await?;
    for part in [b"one", b"two"] {
        s.write_at(F, 0, part).await?.ok()?;
    }
    match s.holds(b"f", b"onetwo").await {
        // A server on Unix may not keep the bit; then it must not say that it did.
        Err(End::Fail { expected, got }) if !s.facts(F).await?.qid.kind.has(ninefold::proto::QidType::APPEND) => {
            Err(End::differs(expected, format!("{got}, and no append-only bit in the qid")))
        }
        other => other,
    }
}

async fn append_flag_writes_at_the_end(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"zero").await?;
    s.opened(b"f", F, How { mode: 0, flags: 0o2001 }).await?;
    for part in [b"one", b"two"] {
        s.write_at(F, 0, part).await?.ok()?;
    }
    s.holds(b"f", b"zeroonetwo").await
}

async fn open_with_truncation_empties(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12345").await?;
    s.opened(b"f", F, TRUNC).await?;
    let size = s.facts(F).await?.size;
    ensure(size == 0, "a length of 0", || size.to_string())?;
    s.holds(b"f", b"").await
}

async fn truncation_is_seen_by_open_fids(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12345").await?;
    s.opened(b"f", F, READ).await?;
    s.read(F, 0, 2).await?.ok()?;
    s.opened(b"f", G, TRUNC).await?;
    let data = s.read(F, 0, 10).await?.ok()?.data();
    ensure(data.is_empty(), "no bytes", || format!("'{}'", data.escape_ascii()))
}

async fn fids_open_the_same_file_apart(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12345").await?;
    s.opened(b"f", F, READ).await?;
    s.opened(b"f", G, WRITE).await?;
    s.write_all(G, 0, b"x").await?;
    let data = s.read(F, 0, 10).await?.ok()?.data();
    ensure(data == b"x2345", "'x2345'", || format!("'{}'", data.escape_ascii()))?;
    s.clunk(G).await?.ok()?;
    let data = s.read(F, 1, 10).await?.ok()?.data();
    ensure(data == b"2345", "the other fid to be open still", || format!("'{}'", data.escape_ascii()))
}

async fn large_write_and_read_are_the_same(c: &mut Cx) -> Outcome {
    let mut s = c.here_with(1 << 20).await?;
    let data = pattern(1 << 20);
    s.file(b"f", &data).await?;
    s.holds(b"f", &data).await?;
    s.reach(HERE, F, &[b"f"]).await?;
    let size = s.facts(F).await?.size;
    ensure(size == 1 << 20, "a length of 1,048,576", || size.to_string())
}
