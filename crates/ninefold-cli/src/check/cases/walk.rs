//! From fid to fid by names (walk(5)).

use ninefold::proto::{Dialect, Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::talk::{HERE, READ, ROOT};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "walk",
    about: "from fid to fid by names",
    cases: &[
        case!(
            zero_names_clone,
            PUL,
            Attach,
            "walk(5)",
            "A walk of no names makes newfid stand for the same file and is answered without qids."
        ),
        case!(one_name_reaches_a_file, PUL, Write, "walk(5)", "A walk of one name gives one qid, that of the file."),
        case!(
            sixteen_names_are_walked,
            PUL,
            Write,
            "walk(5): MAXWELEM is 16",
            "A walk of 16 names, the most that there may be, gives 16 qids."
        ),
        case!(
            seventeen_names_are_refused,
            PUL,
            Write,
            "walk(5): MAXWELEM is 16",
            "A walk of 17 names is an error, and makes no newfid."
        ),
        case!(
            qids_are_those_of_single_steps,
            PUL,
            Write,
            "walk(5)",
            "The qids of a walk of several names are those that the names walked one by one have."
        ),
        case!(
            partial_walk_tells_how_far,
            PUL,
            Write,
            "walk(5)",
            "When the third of four names does not exist the reply has two qids, and is no error."
        ),
        case!(partial_walk_makes_no_newfid, PUL, Write, "walk(5)", "A walk that ends early leaves newfid unknown."),
        case!(
            newfid_of_a_partial_walk_can_be_used,
            PUL,
            Write,
            "walk(5)",
            "The fid that a walk that ended early did not make can be made by the next walk."
        ),
        case!(
            first_name_missing_is_an_error,
            PUL,
            Write,
            "walk(5)",
            "A walk whose first name does not exist is an error, and leaves newfid unknown."
        ),
        case!(failed_walk_leaves_fid, PUL, Write, "walk(5)", "A walk that fails leaves fid where it was."),
        case!(
            newfid_in_use_is_refused,
            PUL,
            Write,
            "walk(5)",
            "A walk to a newfid that is in use is an error, and both fids stay what they were."
        ),
        case!(newfid_equal_to_fid_moves_it, PUL, Write, "walk(5)", "A walk whose newfid is its fid moves that fid."),
        case!(
            partial_walk_does_not_move_fid,
            PUL,
            Write,
            "walk(5)",
            "A walk whose newfid is its fid and that ends early leaves it where it was."
        ),
        case!(
            zero_names_to_itself_change_nothing,
            PUL,
            Attach,
            "walk(5)",
            "A walk of no names to its own fid succeeds and changes nothing."
        ),
        case!(walk_of_an_open_fid_is_refused, PU, Write, "walk(5)", "A walk from a fid that is open is an error."),
        case!(
            walk_of_an_open_fid_clones,
            L,
            Write,
            "Linux's client",
            "A walk of no names from an open fid gives another that is not open, as Linux's client needs it."
        ),
        case!(unknown_fid_is_refused, PUL, Attach, "walk(5)", "A walk from a fid that is unknown is an error."),
        case!(
            newfid_nofid_is_refused,
            PUL,
            Attach,
            "intro(5): NOFID",
            "A walk to NOFID, which is no fid, is an error."
        ),
        case!(dot_dot_at_the_root_stays, PUL, Attach, "walk(5)", "'..' at the root of the tree is the root."),
        case!(dot_dot_leads_to_the_parent, PUL, Write, "walk(5)", "'..' in a directory is the one above."),
        case!(
            dot_dot_many_times_stays_at_the_root,
            PUL,
            Write,
            "walk(5)",
            "Sixteen times '..' from a directory ends at the root of the tree and not above it."
        ),
        case!(walk_through_a_file_is_refused, PUL, Write, "walk(5)", "A name behind a file ends the walk there."),
        case!(
            walk_from_a_file_is_refused,
            PUL,
            Write,
            "walk(5)",
            "A walk of a name from a fid that stands for a file is an error."
        ),
        case!(
            dot_dot_from_a_file_is_no_file,
            PUL,
            Write,
            "walk(5): each name is looked up in a directory",
            "'..' from a fid that stands for a file is an error."
        ),
        case!(empty_name_is_refused, PUL, Write, "intro(5)", "An empty name in a walk is an error."),
        case!(dot_is_no_name, PUL, Write, "walk(5): the name '.' is not allowed", "'.' in a walk is an error."),
        case!(
            slash_in_a_name_is_refused,
            PUL,
            Write,
            "intro(5): names hold no slash",
            "A name with a slash in a walk is no path: it is an error."
        ),
        case!(
            dot_dot_with_a_slash_leads_nowhere,
            PUL,
            Write,
            "intro(5): names hold no slash",
            "'../..' as one name does not lead up."
        ),
        case!(
            nul_in_a_name_is_refused,
            PUL,
            Write,
            "intro(5)",
            "A name with a NUL is not that of the file whose name is what stands before it."
        ),
        case!(
            name_too_long_is_refused,
            PUL,
            Write,
            "walk(5)",
            "A name of 1,000 bytes, which no file has, is an error."
        ),
        case!(
            case_of_letters_matters,
            PUL,
            Write,
            "intro(5): names are bytes",
            "A name in other letters' case is another name."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

/// `a/b/c` and the file `a/f`.
async fn tree(s: &mut Conn) -> Outcome {
    s.dir(b"a").await?;
    s.reach(HERE, Fid(50), &[b"a"]).await?;
    s.file_in(Fid(50), b"f", b"content").await?;
    s.mkdir(Fid(50), b"b").await?.ok()?;
    s.reach(Fid(50), Fid(50), &[b"b"]).await?;
    s.mkdir(Fid(50), b"c").await?.ok()?;
    s.clunk(Fid(50)).await?.ok().map(drop)
}

async fn zero_names_clone(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let qids = s.reach(ROOT, F, &[]).await?;
    ensure(qids.is_empty(), "no qids", || format!("{qids:?}"))?;
    let (one, other) = (s.facts(ROOT).await?, s.facts(F).await?);
    ensure(one.qid.path == other.qid.path, "the same qid path", || format!("{:?} and {:?}", one.qid, other.qid))
}

async fn one_name_reaches_a_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let qids = s.reach(HERE, F, &[b"a"]).await?;
    let facts = s.facts(F).await?;
    ensure(qids[0].path == facts.qid.path && qids[0].is_dir(), "the qid of the directory", || format!("{qids:?}"))?;
    let qids = s.reach(F, G, &[b"f"]).await?;
    let facts = s.facts(G).await?;
    ensure(qids[0].path == facts.qid.path && !qids[0].is_dir(), "the qid of the file", || format!("{qids:?}"))
}

async fn sixteen_names_are_walked(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    for _ in 0..16 {
        s.mkdir(F, b"d").await?.ok()?;
        s.reach(F, F, &[b"d"]).await?;
    }
    let end = s.facts(F).await?.qid;
    let qids = s.reach(HERE, G, &[&b"d"[..]; 16]).await?;
    ensure(qids[15].path == end.path, "the qid of the last directory", || format!("{:?}", qids[15]))
}

async fn seventeen_names_are_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.reach(HERE, F, &[]).await?;
    for _ in 0..17 {
        s.mkdir(F, b"d").await?.ok()?;
        s.reach(F, F, &[b"d"]).await?;
    }
    let tag = {
        let mut scratch = Vec::new();
        let wnames = ninefold::proto::message::Names::encode([&b"d"[..]; 17], &mut scratch);
        s.send(&ninefold::proto::T::Walk { fid: HERE, newfid: G, wnames }).await?
    };
    if s.rejected(Some(tag)).await? {
        s.unknown(G).await?;
    }
    Ok(())
}

async fn qids_are_those_of_single_steps(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let together = s.reach(HERE, F, &[b"a", b"b", b"c"]).await?;
    s.reach(HERE, G, &[]).await?;
    let mut single = Vec::new();
    for name in [b"a", b"b", b"c"] {
        single.extend(s.reach(G, G, &[name]).await?);
    }
    let paths = |qids: &[ninefold::proto::Qid]| qids.iter().map(|q| (q.kind, q.path)).collect::<Vec<_>>();
    ensure(paths(&together) == paths(&single), format!("{single:?}"), || format!("{together:?}"))
}

async fn partial_walk_tells_how_far(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let frame = s.walk(HERE, F, &[b"a", b"b", b"none", b"c"]).await?.ok()?;
    ensure(frame.wqids().len() == 2, "two qids", || frame.text())
}

async fn partial_walk_makes_no_newfid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.walk(HERE, F, &[b"a", b"none"]).await?.ok()?;
    s.unknown(F).await
}

async fn newfid_of_a_partial_walk_can_be_used(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.walk(HERE, F, &[b"a", b"none"]).await?.ok()?;
    s.reach(HERE, F, &[b"a"]).await.map(drop)
}

async fn first_name_missing_is_an_error(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.walk(HERE, F, &[b"none", b"a"]).await?.refused()?;
    s.unknown(F).await
}

async fn failed_walk_leaves_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.walk(HERE, F, &[b"none"]).await?.refused()?;
    s.walk(HERE, F, &[b"a", b"none"]).await?.ok()?;
    s.reach(HERE, G, &[b"a", b"b"]).await.map(drop)
}

async fn newfid_in_use_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.reach(HERE, F, &[b"a", b"f"]).await?;
    s.walk(HERE, F, &[b"a"]).await?.refused()?;
    ensure(!s.facts(F).await?.is_dir, "newfid to stand for its file still", || "a directory".to_owned())?;
    s.known(HERE).await.map(drop)
}

async fn newfid_equal_to_fid_moves_it(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.reach(HERE, F, &[]).await?;
    let qids = s.reach(F, F, &[b"a", b"f"]).await?;
    let facts = s.facts(F).await?;
    ensure(facts.qid.path == qids[1].path, "the fid to stand for a/f", || format!("{facts:?}"))
}

async fn partial_walk_does_not_move_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.reach(HERE, F, &[]).await?;
    let before = s.facts(F).await?.qid;
    s.walk(F, F, &[b"a", b"none"]).await?.ok()?;
    let after = s.facts(F).await?.qid;
    ensure(before.path == after.path, "the fid to stay", || format!("{after:?}, which was {before:?}"))
}

async fn zero_names_to_itself_change_nothing(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.reach(ROOT, ROOT, &[]).await?;
    s.known(ROOT).await.map(drop)
}

async fn walk_of_an_open_fid_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    let answer = s.walk(F, G, &[]).await?;
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

async fn walk_of_an_open_fid_clones(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    let answer = s.walk(F, G, &[]).await?;
    prefer(!answer.frame.is_error(), "Rwalk", || answer.frame.text())?;
    s.read(G, 0, 10).await?.refused()?;
    s.open(G, READ).await?.ok()?;
    s.clunk(G).await?.ok()?;
    let data = s.read_all(F, 0).await?;
    ensure(data == b"x", "the first fid to be open still", || format!("'{}'", data.escape_ascii()))
}

async fn unknown_fid_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.walk(F, G, &[]).await?.refused()?;
    s.unknown(G).await
}

async fn newfid_nofid_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let answer = s.walk(ROOT, Fid::NONE, &[]).await?;
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

async fn dot_dot_at_the_root_stays(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let qids = s.reach(ROOT, F, &[b".."]).await?;
    let root = s.facts(ROOT).await?.qid;
    ensure(qids[0].path == root.path, "the root's qid", || format!("{:?}", qids[0]))
}

async fn dot_dot_leads_to_the_parent(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let qids = s.reach(HERE, F, &[b"a", b"b", b"..", b"b", b"c", b".."]).await?;
    let same = qids[0].path == qids[2].path && qids[1].path == qids[3].path && qids[3].path == qids[5].path;
    ensure(same, "the qids of the directories above", || format!("{qids:?}"))
}

async fn dot_dot_many_times_stays_at_the_root(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let names = [&b".."[..]; 16];
    s.reach(HERE, F, &names).await?;
    let qids = s.reach(F, F, &names).await?;
    let root = s.facts(ROOT).await?.qid;
    ensure(qids[15].path == root.path, "the root's qid", || format!("{:?}", qids[15]))
}

async fn walk_through_a_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let frame = s.walk(HERE, F, &[b"a", b"f", b"x"]).await?.ok()?;
    ensure(frame.wqids().len() == 2, "two qids", || frame.text())?;
    s.unknown(F).await
}

async fn walk_from_a_file_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.reach(HERE, F, &[b"a", b"f"]).await?;
    s.walk(F, G, &[b"x"]).await?.refused()?;
    s.unknown(G).await
}

async fn dot_dot_from_a_file_is_no_file(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.reach(HERE, F, &[b"a", b"f"]).await?;
    let answer = s.walk(F, G, &[b".."]).await?;
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

/// A name that is none: refused as the first of a walk.
async fn no_name(c: &mut Cx, name: &[u8]) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    s.walk(HERE, F, &[name]).await?.refused_as(&[Errno::EINVAL, Errno::ENOENT, Errno::EACCES, Errno::EPERM])
}

async fn empty_name_is_refused(c: &mut Cx) -> Outcome {
    harmless(no_name(c, b"").await)
}

/// Servers that resolve names as paths take these for the directory itself: sloppy, but it leads nowhere.
fn harmless(outcome: Outcome) -> Outcome {
    match outcome {
        Err(End::Fail { expected, got }) if got.starts_with("Rwalk") => Err(End::differs(expected, got)),
        other => other,
    }
}

async fn dot_is_no_name(c: &mut Cx) -> Outcome {
    // diod's client walks what readdir lists, so servers of .L may take it, and those of .u that list it.
    if c.dialect != Dialect::Plan9 {
        let mut s = c.here().await?;
        let here = s.facts(HERE).await?.qid;
        let answer = s.walk(HERE, F, &[b"."]).await?;
        let qids = answer.frame.wqids();
        let right = answer.frame.is_error() || qids.first().is_some_and(|qid| qid.path == here.path);
        return ensure(right, "an error, or the directory itself", || answer.frame.text());
    }
    harmless(no_name(c, b".").await)
}

async fn slash_in_a_name_is_refused(c: &mut Cx) -> Outcome {
    no_name(c, b"a/b").await?;
    let mut s = c.here().await?;
    // Behind a name that is one: the walk ends there, or is an error as a whole.
    let answer = s.walk(HERE, F, &[b"a", b"b/c"]).await?;
    let short = answer.frame.is_error() || answer.frame.wqids().len() == 1;
    ensure(short, "one qid, or an error", || answer.frame.text())?;
    s.unknown(F).await
}

async fn dot_dot_with_a_slash_leads_nowhere(c: &mut Cx) -> Outcome {
    for name in [&b"../.."[..], b"../", b"/"] {
        let mut s = c.here().await?;
        s.walk(HERE, F, &[name]).await?.refused()?;
    }
    Ok(())
}

async fn nul_in_a_name_is_refused(c: &mut Cx) -> Outcome {
    no_name(c, b"a\0b").await
}

async fn name_too_long_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.walk(HERE, F, &[&[b'n'; 1000]]).await?.refused_as(&[Errno::ENAMETOOLONG, Errno::ENOENT])
}

async fn case_of_letters_matters(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    tree(&mut s).await?;
    let found = s.exists(HERE, b"A").await?;
    prefer(!found, "no file 'A' where there is 'a'", || "a file".to_owned())
}
