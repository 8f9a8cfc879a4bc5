//! New names for files: Twstat, Trename, Trenameat.

use ninefold::proto::message::T;
use ninefold::proto::stat::Stat;
use ninefold::proto::{Dialect, Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::frame::Answer;
use crate::check::talk::{HERE, RDWR, READ};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "rename",
    about: "new names for files",
    cases: &[
        case!(
            file_gets_its_new_name,
            PUL,
            Write,
            "stat(5); rename(2)",
            "A renamed file is found by its new name, with what it holds, and not by the old one."
        ),
        case!(
            fid_follows_the_file,
            PUL,
            Write,
            "stat(5); Linux's client",
            "The fid by which a file was renamed stands for it still."
        ),
        case!(
            open_file_stays_readable_and_writable,
            PUL,
            Write,
            "rename(2)",
            "A file that is open while it is renamed is read and written by that fid as before."
        ),
        case!(
            other_fids_follow_the_file,
            PUL,
            Write,
            "rename(2); intro(5): a fid stands for a file",
            "Another fid of a renamed file stands for it still."
        ),
        case!(missing_file_is_refused, L, Write, "renameat(2)", "Trenameat of a name that does not exist is ENOENT."),
        case!(
            taken_name_is_refused,
            PU,
            Write,
            "stat(5): it is an error to rename to an existing name",
            "A Twstat to the name of another file is an error, and both files stay."
        ),
        case!(taken_name_is_replaced, L, Write, "rename(2)", "A rename to the name of another file replaces that one."),
        case!(
            replaced_open_file_stays_readable,
            L,
            Write,
            "rename(2)",
            "A file that is open while another takes its name is read by that fid as before."
        ),
        case!(to_another_directory, L, Write, "rename(2)", "Trename moves a file to another directory."),
        case!(renameat_to_another_directory, L, Write, "renameat(2)", "Trenameat moves a file to another directory."),
        case!(
            directory_moves_with_what_it_holds,
            PUL,
            Write,
            "rename(2)",
            "A renamed directory holds what it held, and fids below it stay good."
        ),
        case!(
            to_its_own_name_changes_nothing,
            PUL,
            Write,
            "rename(2)",
            "A rename of a file to the name that it has succeeds and changes nothing."
        ),
        case!(
            directory_into_itself_is_refused,
            L,
            Write,
            "rename(2): EINVAL",
            "A directory cannot be moved into itself."
        ),
        case!(
            directory_over_a_full_one_is_refused,
            L,
            Write,
            "rename(2): ENOTEMPTY",
            "A directory cannot take the name of one that is not empty."
        ),
        case!(
            directory_over_a_file_is_refused,
            L,
            Write,
            "rename(2): ENOTDIR",
            "A directory cannot take the name of a file."
        ),
        case!(
            file_over_a_directory_is_refused,
            L,
            Write,
            "rename(2): EISDIR",
            "A file cannot take the name of a directory."
        ),
        case!(
            names_that_are_no_names_are_refused,
            PUL,
            Write,
            "stat(5); rename(2)",
            "A rename to '.', '..' or a name with a slash is an error, and the file stays."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);
const D: Fid = Fid(22);

/// Renames what `fid` stands for, in its directory, by the dialect's own message.
async fn rename(s: &mut Conn, fid: Fid, dfid: Fid, name: &[u8]) -> Result<Answer, End> {
    if s.dialect == Dialect::Linux {
        return s.ask(&T::Rename { fid, dfid, name }).await;
    }
    s.wstat(fid, &Stat { name, ..Stat::UNTOUCHED }).await
}

/// A connection with the file `f` as `F`.
async fn file(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", b"content").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    Ok(s)
}

async fn gone(s: &mut Conn, name: &[u8]) -> Outcome {
    let there = s.exists(HERE, name).await?;
    ensure(!there, format!("'{}' to be gone", name.escape_ascii()), || "it is there".to_owned())
}

async fn file_gets_its_new_name(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    s.holds(b"g", b"content").await?;
    gone(&mut s, b"f").await
}

async fn fid_follows_the_file(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let before = s.facts(F).await?.qid;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    let after = s.facts(F).await?.qid;
    ensure(before.path == after.path, format!("{before:?}"), || format!("{after:?}"))?;
    s.open(F, READ).await?.ok()?;
    let data = s.read_all(F, 0).await?;
    ensure(data == b"content", "'content'", || format!("'{}'", data.escape_ascii()))
}

async fn open_file_stays_readable_and_writable(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.opened(b"f", G, RDWR).await?;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    s.write_all(G, 0, b"C").await?;
    let data = s.read_all(G, 0).await?;
    ensure(data == b"Content", "'Content'", || format!("'{}'", data.escape_ascii()))?;
    s.clunk(G).await?.ok()?;
    s.holds(b"g", b"Content").await
}

async fn other_fids_follow_the_file(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.reach(HERE, G, &[b"f"]).await?;
    let before = s.facts(G).await?.qid;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    let answer = s.ask_facts(G).await?;
    // Servers that keep paths lose it.
    prefer(!answer.frame.is_error(), "the file's attributes", || answer.frame.text())?;
    let after = s.facts(G).await?.qid;
    ensure(before.path == after.path, format!("{before:?}"), || format!("{after:?}"))
}

async fn renameat(s: &mut Conn, old: (Fid, &[u8]), new: (Fid, &[u8])) -> Result<Answer, End> {
    let (olddirfid, oldname) = old;
    let (newdirfid, newname) = new;
    let answer = s.ask(&T::Renameat { olddirfid, oldname, newdirfid, newname }).await?;
    match answer.frame.refusal() {
        // Linux's client then sends Trename.
        Some(refusal) if refusal.is_unsupported() => {
            Err(End::differs("Rrenameat, which clients need not do without", answer.frame.text()))
        }
        _ => Ok(answer),
    }
}

async fn missing_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    renameat(&mut s, (HERE, b"none"), (HERE, b"g")).await?.refused_as(&[Errno::ENOENT])
}

async fn taken_name_is_refused(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.file(b"g", b"other").await?;
    let answer = rename(&mut s, F, HERE, b"g").await?;
    // In .u Linux's client says rename(2) so, and its servers replace.
    if c.dialect == Dialect::Unix && !answer.frame.is_error() {
        s.holds(b"g", b"content").await?;
        return gone(&mut s, b"f").await;
    }
    answer.refused_as(&[Errno::EEXIST])?;
    s.holds(b"g", b"other").await?;
    s.holds(b"f", b"content").await
}

async fn taken_name_is_replaced(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.file(b"g", b"other").await?;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    s.holds(b"g", b"content").await?;
    gone(&mut s, b"f").await
}

async fn replaced_open_file_stays_readable(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.file(b"g", b"other").await?;
    s.opened(b"g", G, READ).await?;
    rename(&mut s, F, HERE, b"g").await?.ok()?;
    let data = s.read_all(G, 0).await?;
    ensure(data == b"other", "'other'", || format!("'{}'", data.escape_ascii()))
}

async fn to_another_directory(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.dir(b"d").await?;
    s.reach(HERE, D, &[b"d"]).await?;
    rename(&mut s, F, D, b"g").await?.ok()?;
    gone(&mut s, b"f").await?;
    s.reach(D, G, &[b"g"]).await.map(drop)
}

async fn renameat_to_another_directory(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.dir(b"d").await?;
    s.reach(HERE, D, &[b"d"]).await?;
    renameat(&mut s, (HERE, b"f"), (D, b"g")).await?.ok()?;
    gone(&mut s, b"f").await?;
    s.reach(D, G, &[b"g"]).await?;
    let answer = s.ask_facts(F).await?;
    prefer(!answer.frame.is_error(), "the fid that was there to follow", || answer.frame.text())
}

async fn directory_moves_with_what_it_holds(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, D, &[b"d"]).await?;
    s.file_in(D, b"f", b"content").await?;
    s.reach(D, G, &[b"f"]).await?;
    s.open(G, READ).await?.ok()?;
    rename(&mut s, D, HERE, b"e").await?.ok()?;
    s.reach(HERE, F, &[b"e", b"f"]).await?;
    let data = s.read_all(G, 0).await?;
    ensure(data == b"content", "'content'", || format!("'{}'", data.escape_ascii()))?;
    gone(&mut s, b"d").await
}

async fn to_its_own_name_changes_nothing(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let answer = rename(&mut s, F, HERE, b"f").await?;
    let dialect = c.dialect;
    if dialect == Dialect::Linux {
        answer.ok()?;
    } else {
        prefer(!answer.frame.is_error(), "Rwstat", || answer.frame.text())?;
    }
    s.holds(b"f", b"content").await
}

async fn directory_into_itself_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, D, &[b"d"]).await?;
    s.mkdir(D, b"e").await?.ok()?;
    s.reach(D, G, &[b"e"]).await?;
    rename(&mut s, D, G, b"x").await?.refused_as(&[Errno::EINVAL])?;
    s.reach(HERE, F, &[b"d", b"e"]).await.map(drop)
}

/// `d`, and `e`, which holds a file.
async fn two_directories(c: &mut Cx) -> Result<Conn, End> {
    let mut s = file(c).await?;
    s.dir(b"d").await?;
    s.reach(HERE, D, &[b"d"]).await?;
    s.dir(b"e").await?;
    s.reach(HERE, G, &[b"e"]).await?;
    s.file_in(G, b"x", b"").await?;
    Ok(s)
}

async fn directory_over_a_full_one_is_refused(c: &mut Cx) -> Outcome {
    let mut s = two_directories(c).await?;
    rename(&mut s, D, HERE, b"e").await?.refused_as(&[Errno::ENOTEMPTY, Errno::EEXIST])?;
    s.reach(HERE, Fid(30), &[b"e", b"x"]).await.map(drop)
}

async fn directory_over_a_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = two_directories(c).await?;
    rename(&mut s, D, HERE, b"f").await?.refused_as(&[Errno::ENOTDIR])?;
    s.holds(b"f", b"content").await
}

async fn file_over_a_directory_is_refused(c: &mut Cx) -> Outcome {
    let mut s = two_directories(c).await?;
    rename(&mut s, F, HERE, b"d").await?.refused_as(&[Errno::EISDIR])?;
    s.holds(b"f", b"content").await
}

async fn names_that_are_no_names_are_refused(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.dir(b"d").await?;
    for name in [&b"."[..], b"..", b"d/g", b"../g"] {
        let answer = rename(&mut s, F, HERE, name).await?;
        ensure(answer.frame.is_error(), format!("an error for '{}'", name.escape_ascii()), || answer.frame.text())?;
    }
    s.holds(b"f", b"content").await
}
