//! Attributes of .L, told and set (Tgetattr, Tsetattr), file systems and syncing (Tstatfs, Tfsync).

use ninefold::proto::attr::{getattr, setattr};
use ninefold::proto::message::{Mask, Octal, Optional, R, T};
use ninefold::proto::{Errno, Fid, Qid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::frame::Answer;
use crate::check::talk::{HERE, READ, ROOT, WRITE};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "attr",
    about: "attributes of .L, told and set; statfs and fsync",
    cases: &[
        case!(
            basic_attributes_are_told,
            L,
            Write,
            "diod protocol.md, getattr",
            "A request for the basic attributes is answered with all of them valid."
        ),
        case!(
            mask_of_one_is_answered,
            L,
            Write,
            "diod protocol.md, getattr",
            "A request for the mode alone is answered with the mode valid and right."
        ),
        case!(
            mask_of_all_is_answered,
            L,
            Write,
            "diod protocol.md, getattr",
            "A request for every attribute is answered; valid says which of them are told."
        ),
        case!(
            qid_is_that_of_the_walk,
            L,
            Write,
            "diod protocol.md, getattr",
            "The qid in Rgetattr is the one that the walk gave."
        ),
        case!(type_is_in_the_mode, L, Write, "stat(2)", "The mode in Rgetattr has the file's type: S_IFREG, S_IFDIR."),
        case!(
            set_nothing_changes_nothing,
            L,
            Write,
            "diod protocol.md, setattr",
            "A Tsetattr with no valid bit succeeds and changes neither mode, size nor mtime."
        ),
        case!(
            set_the_mode_alone,
            L,
            Write,
            "chmod(2)",
            "A Tsetattr of the mode sets it, and leaves the size, whatever the size field says."
        ),
        case!(
            set_the_size_alone,
            L,
            Write,
            "truncate(2)",
            "A Tsetattr of the size cuts or extends the file, and leaves the mode, whatever the mode field says."
        ),
        case!(
            set_the_times,
            L,
            Write,
            "utimensat(2)",
            "A Tsetattr of atime and mtime with their SET bits sets them as given."
        ),
        case!(nanoseconds_are_kept, L, Write, "utimensat(2)", "The nanoseconds of a time that was set are told again."),
        case!(
            set_the_time_to_now,
            L,
            Write,
            "utimensat(2): UTIME_NOW",
            "A Tsetattr of mtime without its SET bit sets it to the server's time, not to the value in the message."
        ),
        case!(
            set_several_together,
            L,
            Write,
            "diod protocol.md, setattr",
            "A Tsetattr of mode, size and mtime sets all three."
        ),
        case!(owner_can_be_set_to_itself, L, Write, "chown(2)", "A Tsetattr of uid and gid to what they are succeeds."),
        case!(
            size_of_a_directory_is_refused,
            L,
            Write,
            "truncate(2): EISDIR",
            "A Tsetattr of a directory's size is an error."
        ),
        case!(
            size_of_an_open_file_is_set,
            L,
            Write,
            "ftruncate(2)",
            "A Tsetattr of the size by an open fid works, and the fid stays open."
        ),
        case!(
            statfs_is_answered,
            L,
            Attach,
            "statfs(2)",
            "Tstatfs is answered with a block size and a length of names that can be true."
        ),
        case!(fsync_is_answered, L, Write, "fsync(2)", "Tfsync of a file that was written succeeds."),
        case!(
            fsync_without_datasync_is_answered,
            L,
            Write,
            "Linux before 3.1; diod's client",
            "Tfsync without its datasync field, as old clients send it, is answered."
        ),
        case!(
            fsync_of_a_fid_not_open_is_answered,
            L,
            Write,
            "Linux's client syncs open files only",
            "Tfsync of a fid that is not open succeeds or is an error, and is answered."
        ),
    ],
};

const F: Fid = Fid(20);

/// The attributes that can be both told and set.
#[derive(Clone, Copy)]
struct Fields {
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Seconds and nanoseconds.
    atime: (u64, u64),
    mtime: (u64, u64),
}

/// What a Tsetattr says where its valid bits do not: values that would be noticed.
const NOISE: Fields = Fields { mode: 0o111, uid: 77_777, gid: 77_777, size: 3, atime: (5, 6), mtime: (7, 8) };

/// A Tsetattr of the bits in `valid`, changed from [`NOISE`] by `change`.
async fn set(s: &mut Conn, valid: u32, change: impl FnOnce(&mut Fields)) -> Result<Answer, End> {
    let mut f = NOISE;
    change(&mut f);
    let request = T::Setattr {
        fid: F,
        valid: Octal(valid),
        mode: Octal(f.mode),
        uid: f.uid,
        gid: f.gid,
        size: f.size,
        atime_sec: f.atime.0,
        atime_nsec: f.atime.1,
        mtime_sec: f.mtime.0,
        mtime_nsec: f.mtime.1,
    };
    s.ask(&request).await
}

/// What an Rgetattr says.
struct Told {
    valid: u64,
    qid: Qid,
    has: Fields,
}

async fn get(s: &mut Conn, fid: Fid, mask: u64) -> Result<Told, End> {
    let frame = s.ask(&T::Getattr { fid, request_mask: Mask(mask) }).await?.ok()?;
    match frame.message()? {
        R::Getattr { valid, qid, mode, uid, gid, size, atime_sec, atime_nsec, mtime_sec, mtime_nsec, .. } => {
            let (atime, mtime) = ((atime_sec, atime_nsec), (mtime_sec, mtime_nsec));
            Ok(Told { valid: valid.0, qid, has: Fields { mode: mode.0, uid, gid, size, atime, mtime } })
        }
        _ => Err(End::fail("Rgetattr", frame.text())),
    }
}

/// A connection with the file `f`, which holds `0123456789`, as `F`.
async fn file(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", b"0123456789").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    Ok(s)
}

async fn basic_attributes_are_told(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let missing = getattr::BASIC & !told.valid;
    ensure(missing == 0, "all basic bits in valid", || format!("valid {:#x}", told.valid))?;
    ensure(told.has.size == 10, "size 10", || told.has.size.to_string())?;
    let whole = told.has.atime.1 < 1_000_000_000 && told.has.mtime.1 < 1_000_000_000;
    ensure(whole, "less than a second of nanoseconds", || format!("{} and {}", told.has.atime.1, told.has.mtime.1))
}

async fn mask_of_one_is_answered(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = get(&mut s, F, getattr::MODE).await?;
    let right = told.valid & getattr::MODE != 0 && told.has.mode & 0o170_777 == 0o100_600;
    ensure(right, "mode 0100600, valid", || format!("mode 0{:o}, valid {:#x}", told.has.mode, told.valid))
}

async fn mask_of_all_is_answered(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = get(&mut s, F, getattr::ALL).await?;
    ensure(told.valid & getattr::BASIC == getattr::BASIC, "all basic bits in valid", || format!("{:#x}", told.valid))?;
    // Unknown bits must not be an error: clients to come will ask for more.
    get(&mut s, F, u64::MAX).await.map(drop)
}

async fn qid_is_that_of_the_walk(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"").await?;
    let walked = s.reach(HERE, F, &[b"f"]).await?[0];
    let told = get(&mut s, F, getattr::BASIC).await?.qid;
    ensure(told.path == walked.path && told.kind == walked.kind, format!("{walked:?}"), || format!("{told:?}"))
}

async fn type_is_in_the_mode(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    ensure(told.has.mode & 0o170_000 == 0o100_000, "S_IFREG", || format!("mode 0{:o}", told.has.mode))?;
    let told = get(&mut s, HERE, getattr::BASIC).await?;
    ensure(told.has.mode & 0o170_000 == 0o040_000, "S_IFDIR", || format!("mode 0{:o}", told.has.mode))
}

async fn set_nothing_changes_nothing(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let before = get(&mut s, F, getattr::BASIC).await?;
    set(&mut s, 0, |_| {}).await?.ok()?;
    let after = get(&mut s, F, getattr::BASIC).await?;
    let same =
        (before.has.mode, before.has.size, before.has.mtime) == (after.has.mode, after.has.size, after.has.mtime);
    ensure(same, "the attributes from before", || format!("mode 0{:o}, size {}", after.has.mode, after.has.size))
}

async fn set_the_mode_alone(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    set(&mut s, setattr::MODE, |f| f.mode = 0o640).await?.ok()?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let right = told.has.mode & 0o7777 == 0o640 && told.has.size == 10;
    ensure(right, "permissions 0640, size 10", || format!("mode 0{:o}, size {}", told.has.mode, told.has.size))
}

async fn set_the_size_alone(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    for (size, expected) in [(4, &b"0123"[..]), (6, b"0123\0\0")] {
        set(&mut s, setattr::SIZE, |f| f.size = size).await?.ok()?;
        s.holds(b"f", expected).await?;
    }
    let told = get(&mut s, F, getattr::BASIC).await?;
    ensure(told.has.mode & 0o7777 == 0o600, "permissions 0600", || format!("mode 0{:o}", told.has.mode))
}

const TIMES: u32 = setattr::ATIME | setattr::ATIME_SET | setattr::MTIME | setattr::MTIME_SET;

async fn set_the_times(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    set(&mut s, TIMES, |f| (f.atime, f.mtime) = ((1_000_000_000, 0), (1_100_000_000, 0))).await?.ok()?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let right = told.has.atime.0 == 1_000_000_000 && told.has.mtime.0 == 1_100_000_000;
    ensure(right, "1000000000 and 1100000000", || format!("{} and {}", told.has.atime.0, told.has.mtime.0))
}

async fn nanoseconds_are_kept(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    set(&mut s, TIMES, |f| (f.atime, f.mtime) = ((5, 987_654_321), (6, 123_456_789))).await?.ok()?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let right = told.has.atime == (5, 987_654_321) && told.has.mtime == (6, 123_456_789);
    prefer(right, "(5, 987654321) and (6, 123456789)", || format!("{:?} and {:?}", told.has.atime, told.has.mtime))
}

async fn set_the_time_to_now(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    set(&mut s, TIMES, |f| f.mtime = (1_000_000_000, 0)).await?.ok()?;
    set(&mut s, setattr::MTIME, |f| f.mtime = (7, 8)).await?.ok()?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    // 2020: a clock that is later than this suite's first version, whatever else it is.
    ensure(told.has.mtime.0 > 1_577_836_800, "a time of these years", || format!("{:?}", told.has.mtime))
}

async fn set_several_together(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let bits = setattr::MODE | setattr::SIZE | setattr::MTIME | setattr::MTIME_SET;
    set(&mut s, bits, |f| (f.mode, f.size, f.mtime) = (0o640, 4, (1_000_000_000, 0))).await?.ok()?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let right = (told.has.mode & 0o7777, told.has.size, told.has.mtime.0) == (0o640, 4, 1_000_000_000);
    ensure(right, "mode 0640, size 4, mtime 1000000000", || {
        format!("mode 0{:o}, size {}, mtime {}", told.has.mode, told.has.size, told.has.mtime.0)
    })
}

async fn owner_can_be_set_to_itself(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = get(&mut s, F, getattr::BASIC).await?;
    let answer = set(&mut s, setattr::UID | setattr::GID, |f| (f.uid, f.gid) = (told.has.uid, told.has.gid)).await?;
    answer.ok()?;
    let after = get(&mut s, F, getattr::BASIC).await?;
    ensure((after.has.uid, after.has.gid) == (told.has.uid, told.has.gid), "the owner from before", || {
        format!("{}:{}", after.has.uid, after.has.gid)
    })
}

async fn size_of_a_directory_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    set(&mut s, setattr::SIZE, |f| f.size = 0).await?.refused_as(&[Errno::EISDIR, Errno::EINVAL, Errno::EPERM])
}

async fn size_of_an_open_file_is_set(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.open(F, WRITE).await?.ok()?;
    set(&mut s, setattr::SIZE, |f| f.size = 2).await?.ok()?;
    s.write_all(F, 2, b"x").await?;
    s.holds(b"f", b"01x").await
}

async fn statfs_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let frame = s.ask(&T::Statfs { fid: ROOT }).await?.ok_or_skip()?;
    match frame.message()? {
        R::Statfs { bsize, blocks, bfree, bavail, namelen, .. } => {
            let sane = bsize > 0 && namelen > 0 && bfree <= blocks && bavail <= blocks;
            ensure(sane, "a block size, a length of names, and no more free than there is", || frame.text())
        }
        _ => Err(End::fail("Rstatfs", frame.text())),
    }
}

async fn fsync_is_answered(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.open(F, WRITE).await?.ok()?;
    s.write_all(F, 0, b"x").await?;
    for datasync in [0, 1] {
        s.ask(&T::Fsync { fid: F, datasync: Optional(datasync) }).await?.ok()?;
    }
    Ok(())
}

async fn fsync_without_datasync_is_answered(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.open(F, WRITE).await?.ok()?;
    let tag = s.fresh_tag();
    let mut frame = s.frame(tag, &T::Fsync { fid: F, datasync: Optional(0) });
    frame.truncate(11);
    frame[0] = 11;
    s.raw(&frame).await?;
    match s.event().await? {
        crate::check::conn::Event::Frame(frame) if !frame.is_error() => Ok(()),
        crate::check::conn::Event::Frame(frame) => Err(End::differs("Rfsync", frame.text())),
        crate::check::conn::Event::Closed(why) => Err(End::differs("Rfsync", why)),
        crate::check::conn::Event::Silence => Err(End::fail("Rfsync, or an error", s.silence())),
    }
}

async fn fsync_of_a_fid_not_open_is_answered(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.fsync(F).await?;
    s.open(F, READ).await?.ok().map(drop)
}
