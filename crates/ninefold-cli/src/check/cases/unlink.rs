//! Removing files, open ones too (remove(5); Tunlinkat of .L).

use ninefold::proto::attr::setattr;
use ninefold::proto::message::{Octal, T};
use ninefold::proto::stat::Stat;
use ninefold::proto::{Dialect, Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, RDWR, READ};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "unlink",
    about: "removing files, open ones too",
    cases: &[
        case!(removed_file_is_gone, PUL, Write, "remove(5)", "A removed file is not found by a walk and not listed."),
        case!(
            removed_name_can_be_used_again,
            PUL,
            Write,
            "remove(5)",
            "A new file can be made under the name of a removed one, and is another file."
        ),
        case!(empty_directory_is_removed, PUL, Write, "remove(5)", "A directory that is empty can be removed."),
        case!(
            full_directory_is_refused,
            PUL,
            Write,
            "remove(5)",
            "A directory that is not empty cannot be removed, and holds what it held."
        ),
        case!(
            open_file_stays_readable,
            PUL,
            Write,
            "unlink(2); remove(5) leaves it open",
            "A file that is open and is removed by another fid is read as before."
        ),
        case!(
            open_file_stays_writable,
            PUL,
            Write,
            "unlink(2); remove(5) leaves it open",
            "A file that is open and is removed by another fid can be written and read back."
        ),
        case!(
            open_file_tells_its_attributes,
            PUL,
            Write,
            "unlink(2); fstat(2)",
            "A file that is open and is removed by another fid tells its length."
        ),
        case!(
            open_file_can_be_truncated,
            PUL,
            Write,
            "unlink(2); ftruncate(2)",
            "A file that is open and is removed by another fid can be cut."
        ),
        case!(remove_of_an_open_fid, PUL, Write, "remove(5)", "A file can be removed by a fid that is open."),
        case!(unlinkat_removes_a_file, L, Write, "unlinkat(2)", "Tunlinkat removes the file of that name."),
        case!(
            unlinkat_removes_a_directory_with_the_flag,
            L,
            Write,
            "unlinkat(2): AT_REMOVEDIR",
            "Tunlinkat with AT_REMOVEDIR removes an empty directory."
        ),
        case!(
            unlinkat_of_a_directory_without_the_flag_is_refused,
            L,
            Write,
            "unlinkat(2): EISDIR",
            "Tunlinkat without AT_REMOVEDIR of a directory is EISDIR."
        ),
        case!(
            unlinkat_of_a_file_with_the_flag_is_refused,
            L,
            Write,
            "unlinkat(2): ENOTDIR",
            "Tunlinkat with AT_REMOVEDIR of a file is ENOTDIR."
        ),
        case!(
            unlinkat_of_nothing_is_refused,
            L,
            Write,
            "unlinkat(2): ENOENT",
            "Tunlinkat of a name that does not exist is ENOENT."
        ),
        case!(
            unlinkat_in_an_open_directory,
            L,
            Write,
            "rm -r through Linux's client",
            "Tunlinkat works by a directory's fid that is open for reading."
        ),
        case!(unlinkat_of_dots_is_refused, L, Write, "unlinkat(2)", "Tunlinkat of '.' and '..' is an error."),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

async fn gone(s: &mut Conn, name: &[u8]) -> Outcome {
    let there = s.exists(HERE, name).await?;
    ensure(!there, format!("'{}' to be gone", name.escape_ascii()), || "it is there".to_owned())
}

async fn remove(s: &mut Conn, name: &[u8]) -> Outcome {
    s.reach(HERE, G, &[name]).await?;
    s.remove(G).await?.ok().map(drop)
}

async fn removed_file_is_gone(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.file(b"g", b"x").await?;
    remove(&mut s, b"f").await?;
    gone(&mut s, b"f").await?;
    let names = s.names(HERE).await?;
    ensure(names == [b"g".to_vec()], "'g' alone", || format!("{} names", names.len()))
}

async fn removed_name_can_be_used_again(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"old").await?;
    remove(&mut s, b"f").await?;
    s.file(b"f", b"new").await?;
    s.holds(b"f", b"new").await
}

async fn empty_directory_is_removed(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    remove(&mut s, b"d").await?;
    gone(&mut s, b"d").await
}

async fn full_directory_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    s.file_in(F, b"f", b"x").await?;
    s.reach(HERE, G, &[b"d"]).await?;
    s.remove(G).await?.refused_as(&[Errno::ENOTEMPTY, Errno::EEXIST])?;
    s.reach(HERE, Fid(30), &[b"d", b"f"]).await.map(drop)
}

/// A connection on which `F` is open for reading and writing and its file, `content`, was removed by another fid.
async fn removed_while_open(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", b"content").await?;
    s.opened(b"f", F, RDWR).await?;
    remove(&mut s, b"f").await?;
    gone(&mut s, b"f").await?;
    Ok(s)
}

/// What 9P2000 leaves open and Unix programs rely on.
fn expected_of_unix(dialect: Dialect, outcome: Outcome) -> Outcome {
    match outcome {
        Err(End::Fail { expected, got }) if dialect == Dialect::Plan9 => Err(End::differs(expected, got)),
        other => other,
    }
}

async fn open_file_stays_readable(c: &mut Cx) -> Outcome {
    let mut s = removed_while_open(c).await?;
    let outcome = match s.read_all(F, 0).await {
        Ok(data) => ensure(data == b"content", "'content'", || format!("'{}'", data.escape_ascii())),
        Err(end) => Err(end),
    };
    expected_of_unix(c.dialect, outcome)
}

async fn open_file_stays_writable(c: &mut Cx) -> Outcome {
    let mut s = removed_while_open(c).await?;
    let outcome = s.write_all(F, 0, b"C").await;
    expected_of_unix(c.dialect, outcome)?;
    let data = s.read_all(F, 0).await?;
    ensure(data == b"Content", "'Content'", || format!("'{}'", data.escape_ascii()))
}

async fn open_file_tells_its_attributes(c: &mut Cx) -> Outcome {
    let mut s = removed_while_open(c).await?;
    let outcome = match s.facts(F).await {
        Ok(facts) => ensure(facts.size == 7, "a length of 7", || facts.size.to_string()),
        Err(end) => Err(end),
    };
    expected_of_unix(c.dialect, outcome)
}

async fn open_file_can_be_truncated(c: &mut Cx) -> Outcome {
    let mut s = removed_while_open(c).await?;
    let answer = if c.dialect == Dialect::Linux {
        let request = T::Setattr {
            fid: F,
            valid: Octal(setattr::SIZE),
            mode: Octal(0),
            uid: 0,
            gid: 0,
            size: 3,
            atime_sec: 0,
            atime_nsec: 0,
            mtime_sec: 0,
            mtime_nsec: 0,
        };
        s.ask(&request).await?
    } else {
        s.wstat(F, &Stat { length: 3, ..Stat::UNTOUCHED }).await?
    };
    expected_of_unix(c.dialect, answer.ok().map(drop))?;
    let data = s.read_all(F, 0).await?;
    ensure(data == b"con", "'con'", || format!("'{}'", data.escape_ascii()))
}

async fn remove_of_an_open_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    s.remove(F).await?.ok()?;
    gone(&mut s, b"f").await?;
    s.unknown(F).await
}

/// Tunlinkat by `dirfid`; AT_REMOVEDIR is 0x200.
async fn unlinkat(s: &mut Conn, name: &[u8], flags: u32) -> Result<crate::check::frame::Answer, End> {
    let answer = s.ask(&T::Unlinkat { dirfid: HERE, name, flags: Octal(flags) }).await?;
    match answer.frame.refusal() {
        // Linux's client then sends Tremove.
        Some(refusal) if refusal.is_unsupported() => {
            Err(End::differs("Runlinkat, which clients need not do without", answer.frame.text()))
        }
        _ => Ok(answer),
    }
}

const REMOVEDIR: u32 = 0x200;

async fn unlinkat_removes_a_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    unlinkat(&mut s, b"f", 0).await?.ok()?;
    gone(&mut s, b"f").await
}

async fn unlinkat_removes_a_directory_with_the_flag(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    unlinkat(&mut s, b"d", REMOVEDIR).await?.ok()?;
    gone(&mut s, b"d").await
}

async fn unlinkat_of_a_directory_without_the_flag_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    unlinkat(&mut s, b"d", 0).await?.refused_as(&[Errno::EISDIR])?;
    let there = s.exists(HERE, b"d").await?;
    ensure(there, "the directory to be there", || "it is gone".to_owned())
}

async fn unlinkat_of_a_file_with_the_flag_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    unlinkat(&mut s, b"f", REMOVEDIR).await?.refused_as(&[Errno::ENOTDIR])?;
    s.holds(b"f", b"x").await
}

async fn unlinkat_of_nothing_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    unlinkat(&mut s, b"none", 0).await?.refused_as(&[Errno::ENOENT])
}

async fn unlinkat_in_an_open_directory(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[]).await?;
    s.open(F, READ).await?.ok()?;
    let answer = s.ask(&T::Unlinkat { dirfid: F, name: b"f", flags: Octal(0) }).await?;
    prefer(!answer.frame.is_error(), "Runlinkat", || answer.frame.text())?;
    gone(&mut s, b"f").await
}

async fn unlinkat_of_dots_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    for name in [&b"."[..], b".."] {
        for flags in [0, REMOVEDIR] {
            unlinkat(&mut s, name, flags).await?.refused()?;
        }
    }
    s.known(HERE).await.map(drop)
}
