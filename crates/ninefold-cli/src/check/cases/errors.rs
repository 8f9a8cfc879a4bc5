//! How errors are told in each dialect (error(5); .u's errno; .L's Rlerror).

use ninefold::proto::message::T;
use ninefold::proto::{Dialect, Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::frame::Answer;
use crate::check::talk::{HERE, RDWR, READ, ROOT, WRITE};
use crate::check::verdict::{End, Outcome, ensure};

pub const GROUP: Group = Group {
    name: "errors",
    about: "how errors are told in each dialect",
    cases: &[
        case!(text_says_something, PU, Attach, "error(5)", "The text of an Rerror is not empty and is UTF-8."),
        case!(
            number_is_beside_the_text,
            U,
            Attach,
            "the paper on .u: errno",
            "An Rerror of .u has the number of the error, which is not 0, behind the text."
        ),
        case!(
            number_is_an_errno,
            L,
            Attach,
            "diod protocol.md: Rlerror",
            "The number in an Rlerror is one of Linux's: 1 to 133."
        ),
        case!(
            enoent_for_a_missing_file,
            UL,
            Write,
            "walk(5); errno(3)",
            "A walk to a name that does not exist is ENOENT (2)."
        ),
        case!(
            enotdir_for_a_walk_through_a_file,
            UL,
            Write,
            "walk(5); errno(3)",
            "A walk from a file is ENOTDIR (20) or ENOENT (2)."
        ),
        case!(
            eexist_for_a_name_taken,
            UL,
            Write,
            "open(5); errno(3)",
            "A directory under a name that exists is EEXIST (17)."
        ),
        case!(
            eisdir_for_a_directory_to_write,
            UL,
            Write,
            "open(2); errno(3)",
            "A directory opened for writing is EISDIR (21)."
        ),
        case!(
            enotempty_for_a_full_directory,
            UL,
            Write,
            "rmdir(2); errno(3)",
            "The removal of a directory that is not empty is ENOTEMPTY (39)."
        ),
        case!(
            ebadf_for_an_unknown_fid,
            UL,
            Attach,
            "Linux's client; errno(3)",
            "A request on an unknown fid is EBADF (9)."
        ),
        case!(
            enotdir_for_a_create_in_a_file,
            UL,
            Write,
            "open(2); errno(3)",
            "A create by a file's fid is ENOTDIR (20)."
        ),
        case!(
            enametoolong_for_a_long_name,
            UL,
            Write,
            "open(2); errno(3)",
            "A create of a name of 300 bytes is ENAMETOOLONG (36)."
        ),
        case!(
            errors_leave_the_session,
            PUL,
            Write,
            "error(5)",
            "After a hundred refused requests of ten kinds the session works as before."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

async fn any_error(c: &mut Cx) -> Result<crate::check::verdict::Refusal, End> {
    let mut s = c.attached().await?;
    s.walk(ROOT, F, &[b"no such file, ninefold-check"]).await?.refused()
}

async fn text_says_something(c: &mut Cx) -> Outcome {
    let text = any_error(c).await?.text.unwrap_or_default();
    let sound = !text.is_empty() && std::str::from_utf8(&text).is_ok();
    ensure(sound, "some words", || format!("'{}'", text.escape_ascii()))
}

async fn number_is_beside_the_text(c: &mut Cx) -> Outcome {
    let refusal = any_error(c).await?;
    ensure(refusal.errno.is_some_and(|n| n != 0), "a number that is not 0", || refusal.told())
}

async fn number_is_an_errno(c: &mut Cx) -> Outcome {
    let refusal = any_error(c).await?;
    // EHWPOISON, 133, is the last (include/uapi/asm-generic/errno.h).
    ensure(refusal.errno.is_some_and(|n| (1..=133).contains(&n)), "1 to 133", || refusal.told())
}

/// Here the number is the matter: another one is a failure.
fn exactly(answer: Answer, errnos: &[Errno]) -> Outcome {
    match answer.refused_as(errnos) {
        Err(End::Differs { expected, got }) => Err(End::fail(expected, got)),
        other => other,
    }
}

async fn enoent_for_a_missing_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    exactly(s.walk(HERE, F, &[b"none"]).await?, &[Errno::ENOENT])
}

async fn enotdir_for_a_walk_through_a_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    exactly(s.walk(F, G, &[b"x"]).await?, &[Errno::ENOTDIR, Errno::ENOENT])
}

async fn eexist_for_a_name_taken(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    exactly(s.mkdir(HERE, b"d").await?, &[Errno::EEXIST])
}

async fn eisdir_for_a_directory_to_write(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    exactly(s.open(F, WRITE).await?, &[Errno::EISDIR])
}

async fn enotempty_for_a_full_directory(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    s.file_in(F, b"f", b"").await?;
    // POSIX allows EEXIST in its place; Linux says ENOTEMPTY.
    exactly(s.remove(F).await?, &[Errno::ENOTEMPTY, Errno::EEXIST])
}

async fn ebadf_for_an_unknown_fid(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let answer = s.ask_facts(F).await?;
    // The manual names no number for it, and no client looks at this one.
    answer.refused_as(&[Errno::EBADF])
}

async fn enotdir_for_a_create_in_a_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    exactly(s.create(F, b"x", WRITE).await?, &[Errno::ENOTDIR])
}

async fn enametoolong_for_a_long_name(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    exactly(s.create(F, &[b'n'; 300], WRITE).await?, &[Errno::ENAMETOOLONG])
}

async fn errors_leave_the_session(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"content").await?;
    s.opened(b"f", F, READ).await?;
    for _ in 0..10 {
        ten_refusals(&mut s).await?;
    }
    let data = s.read_all(F, 0).await?;
    ensure(data == b"content", "'content'", || format!("'{}'", data.escape_ascii()))
}

async fn ten_refusals(s: &mut Conn) -> Outcome {
    let unknown = Fid(555);
    let mut answers = vec![
        s.walk(HERE, G, &[b"none"]).await?,
        s.walk(unknown, G, &[]).await?,
        s.walk(unknown, unknown, &[b"f"]).await?,
        s.clunk(unknown).await?,
        s.remove(unknown).await?,
        s.read(HERE, 0, 10).await?,
        s.write_at(F, 0, b"x").await?,
        s.open(F, RDWR).await?,
        s.create(F, b"x", WRITE).await?,
    ];
    answers.push(match s.dialect {
        Dialect::Linux => s.ask(&T::Readlink { fid: HERE }).await?,
        _ => s.ask(&T::Stat { fid: unknown }).await?,
    });
    for answer in answers {
        answer.refused()?;
    }
    Ok(())
}
