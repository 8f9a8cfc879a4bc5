//! What may be done with a fid, and when it ends (intro(5), open(5), clunk(5), remove(5)).

use ninefold::proto::message::{Mask, Octal, T};
use ninefold::proto::{Dialect, Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::cx::Cx;
use crate::check::talk::{HERE, RDWR, READ, ROOT, WRITE, gid};
use crate::check::verdict::{Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "fids",
    about: "what may be done with a fid, and when it ends",
    cases: &[
        case!(
            unknown_fid_is_refused_by_every_request,
            PUL,
            Attach,
            "intro(5)",
            "Each request on a fid that was never made is an error, and makes none."
        ),
        case!(clunked_fid_is_unknown, PUL, Attach, "clunk(5)", "After Rclunk the fid is unknown."),
        case!(
            clunk_of_an_unknown_fid_is_refused,
            PUL,
            Attach,
            "clunk(5)",
            "A Tclunk of a fid that was never made is an error."
        ),
        case!(
            clunked_number_can_be_used_again,
            PUL,
            Write,
            "clunk(5)",
            "A fid's number can be used for another file once it was clunked."
        ),
        case!(nofid_is_refused, PUL, Attach, "intro(5): NOFID", "Requests on NOFID are errors."),
        case!(great_numbers_are_fids, PUL, Attach, "intro(5)", "The fids 2^31-1, 2^31 and 2^32-2 can be used."),
        case!(
            thousand_fids_are_kept_apart,
            PUL,
            Attach,
            "intro(5)",
            "1,000 fids can be made, each is known, and each is unknown once it was clunked."
        ),
        case!(open_twice_is_refused, PUL, Write, "open(5)", "A fid that is open cannot be opened again."),
        case!(
            read_of_a_fid_not_open_is_refused,
            PUL,
            Write,
            "read(5)",
            "A read by a fid that is not open is an error."
        ),
        case!(
            write_of_a_fid_not_open_is_refused,
            PUL,
            Write,
            "read(5)",
            "A write by a fid that is not open is an error, and writes nothing."
        ),
        case!(
            write_of_a_fid_open_for_reading_is_refused,
            PUL,
            Write,
            "read(5)",
            "A write by a fid open for reading is an error, and writes nothing."
        ),
        case!(
            read_of_a_fid_open_for_writing_is_refused,
            PUL,
            Write,
            "read(5)",
            "A read by a fid open for writing only is an error."
        ),
        case!(open_for_both_does_both, PUL, Write, "open(5)", "A fid open for reading and writing reads and writes."),
        case!(
            failed_open_leaves_the_fid,
            PUL,
            Write,
            "open(5)",
            "A fid whose open failed stays what it was and can be opened otherwise."
        ),
        case!(directory_for_writing_is_refused, PUL, Write, "open(5)", "A directory cannot be opened for writing."),
        case!(clunk_closes, PUL, Write, "clunk(5)", "A read by a fid that was open and was clunked is an error."),
        case!(
            remove_ends_the_fid,
            PUL,
            Write,
            "remove(5)",
            "After a Tremove that succeeds the fid is unknown, and the file is gone."
        ),
        case!(
            failed_remove_ends_the_fid,
            PUL,
            Write,
            "remove(5): even if the remove fails",
            "After a Tremove that fails the fid is unknown, and the file is there."
        ),
        case!(
            clones_are_fids_of_their_own,
            PUL,
            Write,
            "walk(5)",
            "Of two fids for one file one can be opened and clunked and the other stays what it was."
        ),
        case!(open_tells_the_qid, PUL, Write, "open(5)", "The qid in the reply to an open is that of the file."),
        case!(
            iounit_fits_the_msize,
            PUL,
            Write,
            "open(5)",
            "The iounit in the reply to an open is 0, or leaves room for the header of a message in the msize."
        ),
        case!(
            create_moves_the_fid,
            PUL,
            Write,
            "open(5)",
            "After a create the fid stands for the new file, open, and not for the directory."
        ),
        case!(
            failed_create_leaves_the_fid,
            PUL,
            Write,
            "open(5)",
            "After a create that failed the fid stands for the directory still."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

async fn unknown_fid_is_refused_by_every_request(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let mut requests = vec![
        T::Walk { fid: F, newfid: G, wnames: Default::default() },
        T::Read { fid: F, offset: 0, count: 10 },
        T::Write { fid: F, offset: 0, data: ninefold::proto::message::Payload(b"x") },
        s.opening(F, READ),
        s.creation(F, b"x", WRITE),
        T::Clunk { fid: F },
        T::Remove { fid: F },
    ];
    let mut untouched = Vec::new();
    ninefold::proto::stat::Stat::UNTOUCHED.encode(c.dialect, &mut untouched);
    if c.dialect == Dialect::Linux {
        requests.extend([
            T::Getattr { fid: F, request_mask: Mask(0x7ff) },
            T::Statfs { fid: F },
            T::Readdir { fid: F, offset: 0, count: 1000 },
            T::Readlink { fid: F },
            T::Mkdir { dfid: F, name: b"x", mode: Octal(0o700), gid: gid() },
            T::Symlink { dfid: F, name: b"x", symtgt: b"y", gid: gid() },
            T::Link { dfid: F, fid: ROOT, name: b"x" },
            T::Rename { fid: F, dfid: ROOT, name: b"x" },
            T::Renameat { olddirfid: F, oldname: b"x", newdirfid: F, newname: b"y" },
            T::Unlinkat { dirfid: F, name: b"x", flags: Octal(0) },
            T::Fsync { fid: F, datasync: ninefold::proto::message::Optional(0) },
            T::Xattrwalk { fid: F, newfid: G, name: b"" },
        ]);
    } else {
        let stat = ninefold::proto::message::StatBytes(&untouched);
        requests.extend([T::Stat { fid: F }, T::Wstat { fid: F, stat }]);
    }
    for request in &requests {
        s.ask(request).await?.refused()?;
    }
    s.unknown(F).await?;
    s.unknown(G).await
}

async fn clunked_fid_is_unknown(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.reach(ROOT, F, &[]).await?;
    s.clunk(F).await?.ok()?;
    s.unknown(F).await?;
    s.ask_facts(F).await?.refused().map(drop)
}

async fn clunk_of_an_unknown_fid_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.clunk(F).await?.refused().map(drop)
}

async fn clunked_number_can_be_used_again(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"one").await?;
    s.file(b"g", b"two").await?;
    for (name, expected) in [(b"f", b"one"), (b"g", b"two"), (b"f", b"one")] {
        s.opened(name, F, READ).await?;
        let data = s.read_all(F, 0).await?;
        ensure(data == expected, format!("'{}'", expected.escape_ascii()), || format!("'{}'", data.escape_ascii()))?;
        s.clunk(F).await?.ok()?;
    }
    Ok(())
}

async fn nofid_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.clunk(Fid::NONE).await?.refused()?;
    s.ask_facts(Fid::NONE).await?.refused()?;
    s.read(Fid::NONE, 0, 10).await?.refused().map(drop)
}

async fn great_numbers_are_fids(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    for fid in [0x7fff_ffff, 0x8000_0000, 0xffff_fffe].map(Fid) {
        s.reach(ROOT, fid, &[]).await?;
        s.known(fid).await?;
        s.clunk(fid).await?.ok()?;
    }
    Ok(())
}

async fn thousand_fids_are_kept_apart(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let fids: Vec<Fid> = (1000..2000).map(Fid).collect();
    for part in fids.chunks(50) {
        let walks: Vec<T<'_>> =
            part.iter().map(|&newfid| T::Walk { fid: ROOT, newfid, wnames: Default::default() }).collect();
        for answer in s.ask_all(&walks).await? {
            answer.ok()?;
        }
    }
    s.known(fids[500]).await?;
    s.restart_clock();
    for part in fids.chunks(50) {
        let clunks: Vec<T<'_>> = part.iter().map(|&fid| T::Clunk { fid }).collect();
        for answer in s.ask_all(&clunks).await? {
            answer.ok()?;
        }
    }
    s.unknown(fids[500]).await
}

async fn open_twice_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    s.open(F, READ).await?.refused()?;
    let data = s.read(F, 0, 10).await?.ok()?.data();
    ensure(data == b"x", "the fid to be open still", || format!("'{}'", data.escape_ascii()))
}

async fn read_of_a_fid_not_open_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.read(F, 0, 10).await?.refused().map(drop)
}

async fn write_of_a_fid_not_open_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.write_at(F, 0, b"other").await?.refused()?;
    s.holds(b"f", b"x").await
}

async fn write_of_a_fid_open_for_reading_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    s.write_at(F, 0, b"other").await?.refused()?;
    s.holds(b"f", b"x").await
}

async fn read_of_a_fid_open_for_writing_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, WRITE).await?;
    s.read(F, 0, 10).await?.refused().map(drop)
}

async fn open_for_both_does_both(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"12").await?;
    s.opened(b"f", F, RDWR).await?;
    s.write_all(F, 1, b"x").await?;
    let data = s.read(F, 0, 10).await?.ok()?.data();
    ensure(data == b"1x", "'1x'", || format!("'{}'", data.escape_ascii()))
}

async fn failed_open_leaves_the_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    s.open(F, WRITE).await?.refused()?;
    s.known(F).await?;
    s.open(F, READ).await?.ok().map(drop)
}

async fn directory_for_writing_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    for how in [WRITE, RDWR] {
        s.reach(HERE, F, &[b"d"]).await?;
        s.open(F, how).await?.refused_as(&[Errno::EISDIR, Errno::EACCES, Errno::EPERM])?;
        s.clunk(F).await?.ok()?;
    }
    Ok(())
}

async fn clunk_closes(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    s.clunk(F).await?.ok()?;
    s.read(F, 0, 10).await?.refused().map(drop)
}

async fn remove_ends_the_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.remove(F).await?.ok()?;
    s.unknown(F).await?;
    let found = s.exists(HERE, b"f").await?;
    ensure(!found, "the file to be gone", || "it is there".to_owned())
}

async fn failed_remove_ends_the_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[b"d"]).await?;
    s.file_in(F, b"f", b"x").await?;
    s.remove(F).await?.refused()?;
    let found = s.exists(HERE, b"d").await?;
    ensure(found, "the directory, which is not empty, to be there", || "it is gone".to_owned())?;
    s.unknown(F).await
}

async fn clones_are_fids_of_their_own(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    s.reach(F, G, &[]).await?;
    s.open(F, READ).await?.ok()?;
    s.read(G, 0, 10).await?.refused()?;
    s.clunk(F).await?.ok()?;
    s.open(G, READ).await?.ok()?;
    let data = s.read(G, 0, 10).await?.ok()?.data();
    ensure(data == b"x", "'x'", || format!("'{}'", data.escape_ascii()))
}

async fn open_tells_the_qid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    let walked = s.reach(HERE, F, &[b"f"]).await?;
    let frame = s.open(F, READ).await?.ok()?;
    ensure(frame.qid().path == walked[0].path, "the qid of the walk", || frame.text())
}

async fn iounit_fits_the_msize(c: &mut Cx) -> Outcome {
    use ninefold::proto::R;
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    let frame = s.open(F, READ).await?.ok()?;
    let iounit = match frame.message()? {
        R::Open { iounit, .. } | R::Lopen { iounit, .. } => iounit,
        _ => 0,
    };
    // Rread's header has 11 bytes, Twrite's 23; a unit between the two is clipped by clients.
    let most = s.msize.unwrap_or_default();
    ensure(iounit <= most - 11, format!("at most {}", most - 11), || frame.text())?;
    prefer(iounit <= most - 23, format!("at most {}", most - 23), || frame.text())
}

async fn create_moves_the_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    let frame = s.create(F, b"f", RDWR).await?.ok()?;
    let created = frame.qid();
    let facts = s.facts(F).await?;
    ensure(!facts.is_dir && facts.qid.path == created.path, "the fid to stand for the new file", || {
        format!("{facts:?}")
    })?;
    s.write_all(F, 0, b"x").await?;
    let data = s.read(F, 0, 10).await?.ok()?.data();
    ensure(data == b"x", "'x'", || format!("'{}'", data.escape_ascii()))
}

async fn failed_create_leaves_the_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    s.reach(HERE, F, &[]).await?;
    s.create(F, b"d", WRITE).await?.refused()?;
    ensure(s.facts(F).await?.is_dir, "the fid to stand for the directory", || "something else".to_owned())?;
    s.create(F, b"f", WRITE).await?.ok().map(drop)
}
