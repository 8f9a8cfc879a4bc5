//! Making files, directories, links and the rest (open(5); Tlcreate, Tmkdir, Tmknod, Tsymlink, Tlink of .L).

use ninefold::proto::message::{Octal, Perm, R, StatBytes, T};
use ninefold::proto::stat::{Stat, dm};
use ninefold::proto::{Dialect, Errno, Fid, QidType};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, How, RDWR, READ, WRITE, gid};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "create",
    about: "making files, directories, links, and removing at the clunk",
    cases: &[
        case!(
            file_is_there_at_once,
            PUL,
            Write,
            "open(5)",
            "A file that was made is found by a walk at once, and is empty."
        ),
        case!(permissions_are_those_asked_for, PUL, Write, "open(5)", "A file made with permissions 0600 has them."),
        case!(
            existing_name_is_refused,
            PU,
            Write,
            "open(5)",
            "A create of a name that exists is an error, and the file stays as it is."
        ),
        case!(
            existing_file_is_opened,
            L,
            Write,
            "open(2): O_CREAT without O_EXCL",
            "A Tlcreate of a name that exists, without O_EXCL, opens the file and leaves what it holds."
        ),
        case!(
            exclusive_refuses_an_existing_name,
            L,
            Write,
            "open(2): O_EXCL",
            "A Tlcreate of a name that exists, with O_EXCL, is EEXIST, and the file stays as it is."
        ),
        case!(
            exclusive_makes_a_new_file,
            L,
            Write,
            "open(2): O_EXCL",
            "A Tlcreate of a new name with O_EXCL makes the file."
        ),
        case!(
            truncation_empties_an_existing_file,
            L,
            Write,
            "open(2): O_TRUNC",
            "A Tlcreate of a name that exists, with O_TRUNC, empties the file."
        ),
        case!(in_a_file_is_refused, PUL, Write, "open(5)", "A create by a fid that stands for a file is an error."),
        case!(
            names_that_are_no_names_are_refused,
            PUL,
            Write,
            "open(5)",
            "A create of '', '.', '..', 'a/b' or '../x' is an error and makes nothing."
        ),
        case!(names_of_255_bytes_are_kept, PUL, Write, "NAME_MAX of Linux", "A name of 255 bytes is kept whole."),
        case!(
            names_of_256_bytes_are_refused,
            PUL,
            Write,
            "NAME_MAX of Linux",
            "A name of 256 bytes is an error or kept whole, never cut."
        ),
        case!(
            names_are_kept_byte_for_byte,
            PUL,
            Write,
            "intro(5): UTF-8",
            "Names with blanks, quotes, newlines and UTF-8 are kept as they are."
        ),
        case!(
            directory_is_made,
            PUL,
            Write,
            "open(5): DMDIR; diod protocol.md, mkdir",
            "A directory that was made is one, empty, and its qid says so."
        ),
        case!(
            directory_twice_is_refused,
            PUL,
            Write,
            "open(5); mkdir(2)",
            "A directory cannot be made under a name that exists."
        ),
        case!(
            directory_where_a_file_is_is_refused,
            PUL,
            Write,
            "open(5); mkdir(2)",
            "A directory cannot be made under the name of a file, which stays."
        ),
        case!(
            mkdir_tells_the_qid,
            L,
            Write,
            "diod protocol.md, mkdir",
            "The qid of Rmkdir is that of a walk to the new directory."
        ),
        case!(
            remove_on_close_removes,
            PU,
            Write,
            "open(5): ORCLOSE",
            "A file opened to be removed when it is closed is gone after the clunk, and there before."
        ),
        case!(
            symlink_is_made_and_read,
            UL,
            Write,
            "symlink(2); .u: DMSYMLINK",
            "A symbolic link keeps its target byte for byte, and its qid says what it is."
        ),
        case!(
            symlink_to_nowhere_is_made,
            UL,
            Write,
            "symlink(2)",
            "A symbolic link to a name that does not exist can be made and read."
        ),
        case!(
            symlink_is_walked_to_itself,
            UL,
            Write,
            "Linux's client; the paper on .u",
            "A walk to a symbolic link gives the link, not what it leads to."
        ),
        case!(
            symlink_twice_is_refused,
            L,
            Write,
            "symlink(2)",
            "A symbolic link cannot be made under a name that exists."
        ),
        case!(readlink_of_a_file_is_refused, L, Write, "readlink(2)", "Treadlink of a plain file is EINVAL."),
        case!(
            link_is_the_same_file,
            L,
            Write,
            "link(2)",
            "A hard link has the file's qid and holds what is written by the first name; the number of links is 2."
        ),
        case!(link_twice_is_refused, L, Write, "link(2)", "A hard link cannot be made under a name that exists."),
        case!(fifo_is_made, L, Write, "mknod(2)", "Tmknod makes a FIFO, and getattr says that it is one."),
        case!(plain_file_is_made_by_mknod, L, Write, "mknod(2)", "Tmknod of a regular file makes an empty file."),
        case!(
            exclusive_use_file_opens_once,
            PU,
            Write,
            "open(5): DMEXCL",
            "A file for exclusive use that is open cannot be opened by another fid."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

async fn file_is_there_at_once(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", WRITE).await?.ok()?;
    s.reach(HERE, G, &[b"f"]).await?;
    let facts = s.facts(G).await?;
    ensure(facts.size == 0 && !facts.is_dir, "an empty file", || format!("{facts:?}"))
}

async fn permissions_are_those_asked_for(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    let perm = s.facts(F).await?.perm;
    prefer(perm == 0o600, "0600", || format!("0{perm:o}"))
}

async fn existing_name_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"kept").await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", WRITE).await?.refused_as(&[Errno::EEXIST])?;
    s.holds(b"f", b"kept").await
}

/// Flags that only .L has.
const fn flags(flags: u32) -> How {
    How { mode: 1, flags }
}

async fn existing_file_is_opened(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"kept").await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", flags(1)).await?.ok()?;
    s.holds(b"f", b"kept").await
}

async fn exclusive_refuses_an_existing_name(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"kept").await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", flags(0o201)).await?.refused_as(&[Errno::EEXIST])?;
    s.holds(b"f", b"kept").await
}

async fn exclusive_makes_a_new_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", flags(0o201)).await?.ok()?;
    s.holds(b"f", b"").await
}

async fn truncation_empties_an_existing_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"old").await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"f", flags(0o1001)).await?.ok()?;
    s.holds(b"f", b"").await
}

async fn in_a_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.create(F, b"g", WRITE).await?.refused_as(&[Errno::ENOTDIR])?;
    s.holds(b"f", b"x").await
}

async fn names_that_are_no_names_are_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"a").await?;
    // A server that takes these for paths stays in the suite's directory with each of them.
    for name in [&b""[..], b".", b"..", b"a/b", b"../x"] {
        s.reach(HERE, F, &[]).await?;
        let answer = s.create(F, name, RDWR).await?;
        ensure(answer.frame.is_error(), format!("an error for '{}'", name.escape_ascii()), || answer.frame.text())?;
        s.clunk(F).await?.ok()?;
        let answer = s.mkdir(HERE, name).await?;
        ensure(answer.frame.is_error(), format!("an error for '{}'", name.escape_ascii()), || answer.frame.text())?;
    }
    let names = s.names(HERE).await?;
    ensure(names == [b"a".to_vec()], "nothing made", || format!("{} names", names.len()))
}

async fn names_of_255_bytes_are_kept(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let name = [b'n'; 255];
    s.file(&name, b"x").await?;
    let names = s.names(HERE).await?;
    ensure(names == [name.to_vec()], "the name", || format!("{names:?}"))
}

async fn names_of_256_bytes_are_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let name = [b'n'; 256];
    s.reach(HERE, F, &[]).await?;
    let answer = s.create(F, &name, WRITE).await?;
    if !answer.frame.is_error() {
        s.clunk(F).await?.ok()?;
        return s.reach(HERE, F, &[&name]).await.map(drop);
    }
    answer.refused_as(&[Errno::ENAMETOOLONG])?;
    let names = s.names(HERE).await?;
    ensure(names.is_empty(), "nothing made", || format!("{} names", names.len()))
}

async fn names_are_kept_byte_for_byte(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    for name in [&b"two words"[..], b"it's", b"new\nline", "grüße-日本語".as_bytes(), b"-n", b"a\\b", b"..."] {
        s.file(name, name).await?;
        s.holds(name, name).await?;
        let names = s.names(HERE).await?;
        ensure(names == [name.to_vec()], format!("'{}'", name.escape_ascii()), || format!("{names:?}"))?;
        s.reach(HERE, F, &[name]).await?;
        s.remove(F).await?.ok()?;
    }
    Ok(())
}

async fn directory_is_made(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let frame = s.mkdir(HERE, b"d").await?.ok()?;
    ensure(frame.qid().is_dir(), "a directory's qid", || frame.text())?;
    s.reach(HERE, F, &[b"d"]).await?;
    ensure(s.facts(F).await?.is_dir, "a directory", || "something else".to_owned())?;
    let names = s.names(F).await?;
    ensure(names.is_empty(), "no names in it", || format!("{names:?}"))
}

async fn directory_twice_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.mkdir(HERE, b"d").await?.refused_as(&[Errno::EEXIST])
}

async fn directory_where_a_file_is_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"kept").await?;
    s.mkdir(HERE, b"f").await?.refused_as(&[Errno::EEXIST])?;
    s.holds(b"f", b"kept").await
}

async fn mkdir_tells_the_qid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let made = s.mkdir(HERE, b"d").await?.ok()?.qid();
    let walked = s.reach(HERE, F, &[b"d"]).await?[0];
    ensure(made.path == walked.path, format!("{walked:?}"), || format!("{made:?}"))
}

async fn remove_on_close_removes(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    let answer = s.open(F, How { mode: 0x40, flags: 0 }).await?;
    prefer(!answer.frame.is_error(), "Ropen", || answer.frame.text())?;
    ensure(s.exists(HERE, b"f").await?, "the file to be there while it is open", || "it is gone".to_owned())?;
    s.clunk(F).await?.ok()?;
    let there = s.exists(HERE, b"f").await?;
    ensure(!there, "the file to be gone after the clunk", || "it is there".to_owned())
}

async fn symlink(s: &mut Conn, name: &[u8], target: &[u8]) -> Outcome {
    let answer = match s.dialect {
        Dialect::Linux => s.ask(&T::Symlink { dfid: HERE, name, symtgt: target, gid: gid() }).await?,
        _ => s.special(HERE, name, dm::SYMLINK | 0o777, target).await?,
    };
    answer.ok_or_skip().map(drop)
}

async fn target(s: &mut Conn, fid: Fid) -> Result<Vec<u8>, End> {
    if s.dialect == Dialect::Linux {
        let frame = s.ask(&T::Readlink { fid }).await?.ok()?;
        let R::Readlink { target } = frame.message()? else { return Err(End::fail("Rreadlink", frame.text())) };
        return Ok(target.to_vec());
    }
    let frame = s.ask(&T::Stat { fid }).await?.ok()?;
    let R::Stat { stat: StatBytes(bytes) } = frame.message()? else { return Err(End::fail("Rstat", frame.text())) };
    let stat = Stat::decode(bytes, s.dialect).map_err(|e| End::fail("a stat record", e.to_string()))?;
    Ok(stat.extension.to_vec())
}

async fn link_keeps(c: &mut Cx, content: &[u8]) -> Outcome {
    let mut s = c.here().await?;
    symlink(&mut s, b"l", content).await?;
    let qid = s.reach(HERE, F, &[b"l"]).await?[0];
    ensure(qid.kind.has(QidType::SYMLINK), "a symbolic link's qid", || format!("{qid:?}"))?;
    let read = target(&mut s, F).await?;
    ensure(read == content, format!("'{}'", content.escape_ascii()), || format!("'{}'", read.escape_ascii()))
}

async fn symlink_is_made_and_read(c: &mut Cx) -> Outcome {
    link_keeps(c, b"some/../where else/").await
}

async fn symlink_to_nowhere_is_made(c: &mut Cx) -> Outcome {
    link_keeps(c, b"no such file").await
}

async fn symlink_is_walked_to_itself(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    symlink(&mut s, b"l", b"d").await?;
    let qid = s.reach(HERE, F, &[b"l"]).await?[0];
    ensure(qid.kind.has(QidType::SYMLINK) && !qid.is_dir(), "the link's qid", || format!("{qid:?}"))
}

async fn symlink_twice_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    symlink(&mut s, b"l", b"a").await?;
    let again = T::Symlink { dfid: HERE, name: b"l", symtgt: b"b", gid: gid() };
    s.ask(&again).await?.refused_as(&[Errno::EEXIST])?;
    s.reach(HERE, F, &[b"l"]).await?;
    let read = target(&mut s, F).await?;
    ensure(read == b"a", "'a'", || format!("'{}'", read.escape_ascii()))
}

async fn readlink_of_a_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.ask(&T::Readlink { fid: F }).await?.refused_as(&[Errno::EINVAL])
}

async fn nlink(s: &mut Conn, fid: Fid) -> Result<u64, End> {
    let frame = s.ask_facts(fid).await?.ok()?;
    match frame.message()? {
        R::Getattr { nlink, .. } => Ok(nlink),
        _ => Err(End::fail("Rgetattr", frame.text())),
    }
}

async fn link_is_the_same_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    let first = s.reach(HERE, F, &[b"f"]).await?[0];
    s.ask(&T::Link { dfid: HERE, fid: F, name: b"g" }).await?.ok_or_skip()?;
    let second = s.reach(HERE, G, &[b"g"]).await?[0];
    ensure(first.path == second.path, "one qid path", || format!("{first:?} and {second:?}"))?;
    let links = nlink(&mut s, G).await?;
    ensure(links == 2, "2 links", || links.to_string())?;
    s.open(F, WRITE).await?.ok()?;
    s.write_all(F, 0, b"written").await?;
    s.holds(b"g", b"written").await
}

async fn link_twice_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.file(b"g", b"kept").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    let answer = s.ask(&T::Link { dfid: HERE, fid: F, name: b"g" }).await?;
    if answer.frame.refusal().is_some_and(|refusal| refusal.is_unsupported()) {
        return answer.ok_or_skip().map(drop);
    }
    answer.refused_as(&[Errno::EEXIST])?;
    s.holds(b"g", b"kept").await
}

async fn mknod(c: &mut Cx, mode: u32) -> Result<(Conn, u32), End> {
    let mut s = c.here().await?;
    let request = T::Mknod { dfid: HERE, name: b"n", mode: Octal(mode), major: 0, minor: 0, gid: gid() };
    s.ask(&request).await?.ok_or_skip()?;
    s.reach(HERE, F, &[b"n"]).await?;
    let frame = s.ask_facts(F).await?.ok()?;
    let R::Getattr { mode, .. } = frame.message()? else { return Err(End::fail("Rgetattr", frame.text())) };
    Ok((s, mode.0))
}

async fn fifo_is_made(c: &mut Cx) -> Outcome {
    let (_, mode) = mknod(c, 0o010_600).await?;
    ensure(mode == 0o010_600, "010600", || format!("0{mode:o}"))
}

async fn plain_file_is_made_by_mknod(c: &mut Cx) -> Outcome {
    let (mut s, mode) = mknod(c, 0o100_600).await?;
    ensure(mode == 0o100_600, "0100600", || format!("0{mode:o}"))?;
    s.holds(b"n", b"").await
}

async fn exclusive_use_file_opens_once(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    let request = T::Create { fid: F, name: b"f", perm: Perm(dm::EXCL | 0o600), mode: 2, extension: b"" };
    let answer = s.ask(&request).await?;
    if let Some(refusal) = answer.frame.refusal() {
        return Err(End::skip(format!("the server makes no file for exclusive use: {}", refusal.told())));
    }
    let kept = s.facts(F).await?.qid.kind.has(QidType::EXCL);
    s.reach(HERE, G, &[b"f"]).await?;
    let answer = s.open(G, READ).await?;
    if !kept {
        return prefer(answer.frame.is_error(), "an error", || {
            format!("{}, and no such bit in the qid", answer.frame.text())
        });
    }
    ensure(answer.frame.is_error(), "an error", || answer.frame.text())?;
    s.clunk(F).await?.ok()?;
    s.open(G, READ).await?.ok().map(drop)
}
