//! Attributes of 9P2000 and .u, told and set (stat(5)).

use ninefold::proto::message::{R, StatBytes, T};
use ninefold::proto::stat::{Stat, dm};
use ninefold::proto::types::QidType;
use ninefold::proto::{Errno, Fid, Qid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, ROOT, WRITE};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "stat",
    about: "attributes of 9P2000 and .u, told and set",
    cases: &[
        case!(
            name_is_the_one_walked,
            PU,
            Write,
            "stat(5)",
            "The name in a file's stat record is the last that was walked."
        ),
        case!(
            directory_is_told,
            PU,
            Write,
            "stat(5)",
            "A directory has DMDIR in its mode, the directory bit in its qid, and length 0."
        ),
        case!(file_is_told, PU, Write, "stat(5)", "A file has its length and a mode without DMDIR."),
        case!(root_has_a_record, PU, Attach, "stat(5)", "The root of the tree has a stat record, a directory's."),
        case!(owner_is_told, PU, Write, "stat(5)", "The uid and gid of a file are not empty."),
        case!(
            unix_numbers_are_told,
            U,
            Write,
            "the paper on .u, stat",
            "In .u a file's n_uid is that of whoever made it, and not 'unknown'."
        ),
        case!(
            wstat_that_touches_nothing_changes_nothing,
            PU,
            Write,
            "stat(5): don't touch",
            "A Twstat in which every field says 'don't touch' succeeds and changes nothing."
        ),
        case!(
            wstat_shortens,
            PU,
            Write,
            "stat(5)",
            "A Twstat of a smaller length cuts the file, and leaves its first bytes."
        ),
        case!(
            wstat_lengthens,
            PU,
            Write,
            "stat(5)",
            "A Twstat of a greater length fills the file up with zeros, or is an error."
        ),
        case!(
            wstat_sets_the_mode,
            PU,
            Write,
            "stat(5)",
            "A Twstat of the mode alone sets the permissions, and leaves length and name."
        ),
        case!(wstat_sets_the_mtime, PU, Write, "stat(5)", "A Twstat of the mtime alone sets it to the second."),
        case!(wstat_sets_several_together, PU, Write, "stat(5)", "A Twstat of name, mode and length sets all three."),
        case!(
            wstat_is_all_or_nothing,
            PU,
            Write,
            "stat(5): either all or none",
            "A Twstat of which one part is refused changes nothing of the other."
        ),
        case!(
            wstat_of_what_is_the_servers_is_refused,
            PU,
            Write,
            "stat(5)",
            "A Twstat of type, dev or qid is an error."
        ),
        case!(
            wstat_does_not_make_a_file_a_directory,
            PU,
            Write,
            "stat(5)",
            "A Twstat that sets or clears DMDIR is an error."
        ),
        case!(
            wstat_of_a_directorys_length_is_refused,
            PU,
            Write,
            "stat(5)",
            "A Twstat of a directory's length to anything but 0 is an error."
        ),
        case!(
            malformed_record_is_refused,
            PU,
            Write,
            "stat(5)",
            "A Twstat whose record is cut short is refused or the connection closed."
        ),
        case!(
            wstat_of_an_open_file_works,
            PU,
            Write,
            "stat(5)",
            "A Twstat by a fid that is open sets the length, and the fid stays open."
        ),
    ],
};

const F: Fid = Fid(20);

/// A stat record's fields, kept.
struct Told {
    mode: u32,
    mtime: u32,
    length: u64,
    name: Vec<u8>,
    uid: Vec<u8>,
    gid: Vec<u8>,
    n_uid: u32,
    qid: Qid,
}

async fn stat(s: &mut Conn, fid: Fid) -> Result<Told, End> {
    let frame = s.ask(&T::Stat { fid }).await?.ok()?;
    let R::Stat { stat: StatBytes(bytes) } = frame.message()? else { return Err(End::fail("Rstat", frame.text())) };
    let stat =
        Stat::decode(bytes, s.dialect).map_err(|e| End::fail("a stat record", format!("{}: {e}", frame.text())))?;
    Ok(Told {
        mode: stat.mode,
        mtime: stat.mtime,
        length: stat.length,
        name: stat.name.to_vec(),
        uid: stat.uid.to_vec(),
        gid: stat.gid.to_vec(),
        n_uid: stat.n_uid,
        qid: stat.qid,
    })
}

/// A connection with the file `f`, which holds `0123456789`, as `F`.
async fn file(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", b"0123456789").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    Ok(s)
}

async fn name_is_the_one_walked(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = stat(&mut s, F).await?;
    ensure(told.name == b"f", "'f'", || format!("'{}'", told.name.escape_ascii()))
}

async fn directory_is_told(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    let told = stat(&mut s, F).await?;
    ensure(told.mode & dm::DIR != 0 && told.qid.is_dir(), "a directory", || {
        format!("mode {:#o}, {:?}", told.mode, told.qid)
    })?;
    prefer(told.length == 0, "length 0", || told.length.to_string())
}

async fn file_is_told(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = stat(&mut s, F).await?;
    let right = told.length == 10 && told.mode & dm::DIR == 0 && told.qid.kind == QidType::FILE;
    ensure(right, "a file of 10 bytes", || format!("mode {:#o}, length {}, {:?}", told.mode, told.length, told.qid))
}

async fn root_has_a_record(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let told = stat(&mut s, ROOT).await?;
    ensure(told.mode & dm::DIR != 0, "a directory", || format!("mode {:#o}", told.mode))
}

async fn owner_is_told(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = stat(&mut s, F).await?;
    prefer(!told.uid.is_empty() && !told.gid.is_empty(), "names", || "an empty uid or gid".to_owned())
}

async fn unix_numbers_are_told(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = stat(&mut s, F).await?;
    ensure(told.n_uid != u32::MAX, "a number", || "'unknown'".to_owned())?;
    // A server may act as another user than the one that attaches.
    prefer(told.n_uid == c.target.uid, c.target.uid.to_string(), || told.n_uid.to_string())
}

async fn wstat_that_touches_nothing_changes_nothing(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let before = stat(&mut s, F).await?;
    s.wstat(F, &Stat::UNTOUCHED).await?.ok()?;
    let after = stat(&mut s, F).await?;
    let same = (before.mode, before.mtime, before.length, &before.name)
        == (after.mode, after.mtime, after.length, &after.name);
    ensure(same, "the attributes from before", || format!("mode {:#o}, length {}", after.mode, after.length))?;
    s.holds(b"f", b"0123456789").await
}

async fn wstat_shortens(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.wstat(F, &Stat { length: 4, ..Stat::UNTOUCHED }).await?.ok()?;
    s.holds(b"f", b"0123").await
}

async fn wstat_lengthens(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let answer = s.wstat(F, &Stat { length: 12, ..Stat::UNTOUCHED }).await?;
    prefer(!answer.frame.is_error(), "Rwstat", || answer.frame.text())?;
    s.holds(b"f", b"0123456789\0\0").await
}

async fn wstat_sets_the_mode(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.wstat(F, &Stat { mode: 0o640, ..Stat::UNTOUCHED }).await?.ok()?;
    let told = stat(&mut s, F).await?;
    let right = told.mode & 0o777 == 0o640 && told.length == 10 && told.name == b"f";
    ensure(right, "permissions 0640, the rest as it was", || format!("mode {:#o}, length {}", told.mode, told.length))
}

async fn wstat_sets_the_mtime(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.wstat(F, &Stat { mtime: 1_000_000_000, ..Stat::UNTOUCHED }).await?.ok()?;
    let told = stat(&mut s, F).await?;
    ensure(told.mtime == 1_000_000_000, "1000000000", || told.mtime.to_string())
}

async fn wstat_sets_several_together(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let answer = s.wstat(F, &Stat { name: b"g", mode: 0o640, length: 3, ..Stat::UNTOUCHED }).await?;
    prefer(!answer.frame.is_error(), "Rwstat", || answer.frame.text())?;
    s.holds(b"g", b"012").await?;
    ensure(!s.exists(HERE, b"f").await?, "the old name to be gone", || "it is there".to_owned())?;
    let told = stat(&mut s, F).await?;
    ensure(told.mode & 0o777 == 0o640, "permissions 0640", || format!("mode {:#o}", told.mode))
}

async fn wstat_is_all_or_nothing(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let mode = stat(&mut s, F).await?.mode;
    // A name that is none beside a mode and a length that could be set.
    s.wstat(F, &Stat { name: b"a/b", mode: 0o640, length: 3, ..Stat::UNTOUCHED }).await?.refused()?;
    let told = stat(&mut s, F).await?;
    let same = (told.mode, told.length, &*told.name) == (mode, 10, &b"f"[..]);
    ensure(same, "nothing changed", || format!("mode {:#o}, length {}", told.mode, told.length))?;
    s.holds(b"f", b"0123456789").await
}

async fn wstat_of_what_is_the_servers_is_refused(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = stat(&mut s, F).await?;
    let qid = Qid { path: told.qid.path.wrapping_add(1), ..told.qid };
    for bad in
        [Stat { kind: 77, ..Stat::UNTOUCHED }, Stat { dev: 77, ..Stat::UNTOUCHED }, Stat { qid, ..Stat::UNTOUCHED }]
    {
        let answer = s.wstat(F, &bad).await?;
        prefer(answer.frame.is_error(), "an error", || answer.frame.text())?;
    }
    Ok(())
}

async fn wstat_does_not_make_a_file_a_directory(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let answer = s.wstat(F, &Stat { mode: dm::DIR | 0o700, ..Stat::UNTOUCHED }).await?;
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())?;
    let told = stat(&mut s, F).await?;
    ensure(told.mode & dm::DIR == 0, "a file still", || format!("mode {:#o}", told.mode))
}

async fn wstat_of_a_directorys_length_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    let answer = s.wstat(F, &Stat { length: 5, ..Stat::UNTOUCHED }).await?;
    answer.refused_as(&[Errno::EISDIR, Errno::EINVAL, Errno::EPERM, Errno::EACCES])
}

async fn malformed_record_is_refused(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let mut bytes = Vec::new();
    Stat { length: 3, ..Stat::UNTOUCHED }.encode(c.dialect, &mut bytes);
    let tag = s.send(&T::Wstat { fid: F, stat: StatBytes(&bytes[..bytes.len() - 5]) }).await?;
    s.rejected(Some(tag)).await?;
    let mut s = c.here().await?;
    s.holds(b"f", b"0123456789").await
}

async fn wstat_of_an_open_file_works(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.open(F, WRITE).await?.ok()?;
    s.wstat(F, &Stat { length: 2, ..Stat::UNTOUCHED }).await?.ok()?;
    s.write_all(F, 2, b"x").await?;
    s.holds(b"f", b"01x").await
}
