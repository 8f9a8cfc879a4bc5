//! Fids for the roots of trees (attach(5)).

use ninefold::proto::message::T;
use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Errno, Fid, QidType, R};

use crate::check::case::{Group, case};
use crate::check::cx::Cx;
use crate::check::talk::ROOT;
use crate::check::verdict::{Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "attach",
    about: "fids for the roots of trees",
    cases: &[
        case!(
            root_is_a_directory,
            PUL,
            Attach,
            "attach(5)",
            "The qid of the root that an attach gives has the directory bit, and so have its attributes."
        ),
        case!(
            fid_in_use_is_refused,
            PUL,
            Attach,
            "attach(5)",
            "An attach to a fid that is in use is an error, and the fid stays what it was."
        ),
        case!(
            unknown_aname_is_refused,
            PUL,
            Attach,
            "attach(5)",
            "An attach to a tree that does not exist is an error."
        ),
        case!(
            refused_attach_makes_no_fid,
            PUL,
            Attach,
            "attach(5)",
            "An attach that is refused leaves its fid unknown."
        ),
        case!(
            afid_that_was_never_made_is_refused,
            PUL,
            Attach,
            "attach(5)",
            "An attach with an afid that no Tauth has made is an error."
        ),
        case!(
            auth_gives_an_auth_file_or_an_error,
            PUL,
            Nothing,
            "attach(5)",
            "A Tauth is answered by a qid with the authentication bit, or by an error."
        ),
        case!(
            two_attaches_give_one_root,
            PUL,
            Attach,
            "attach(5)",
            "Two attaches to one tree give the same root, under two fids."
        ),
        case!(
            clunk_of_one_root_leaves_the_other,
            PUL,
            Attach,
            "clunk(5)",
            "When one of two root fids is clunked the other stays good."
        ),
        case!(
            fids_outlive_the_root_fid,
            PUL,
            Attach,
            "clunk(5)",
            "A fid walked from the root stays good when the root's fid is clunked."
        ),
        case!(
            connections_have_fids_of_their_own,
            PUL,
            Attach,
            "intro(5)",
            "A fid of one connection is unknown on another."
        ),
    ],
};

const F: Fid = Fid(20);

async fn root_is_a_directory(c: &mut Cx) -> Outcome {
    let mut s = c.agreed(crate::check::cx::MSIZE).await?;
    let target = c.target.clone();
    let frame = s.ask(&target.attach(ROOT)).await?.ok()?;
    ensure(frame.qid().is_dir(), "a directory's qid", || frame.text())?;
    let facts = s.facts(ROOT).await?;
    ensure(facts.is_dir && facts.qid.is_dir(), "a directory's attributes", || format!("{facts:?}"))?;
    ensure(facts.qid.path == frame.qid().path, "the qid of the attach", || format!("{:?}", facts.qid))
}

async fn fid_in_use_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    s.ask(&target.attach(ROOT)).await?.refused()?;
    s.known(ROOT).await.map(drop)
}

/// A name that no server has.
const NO_TREE: &[u8] = b"/no/such/tree/ninefold-check";

async fn unknown_aname_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    let answer = s.ask(&target.attach_to(F, NO_TREE)).await?;
    // Servers with one tree give it to everybody.
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

async fn refused_attach_makes_no_fid(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    if !s.ask(&target.attach_to(F, NO_TREE)).await?.frame.is_error() {
        return Err(crate::check::verdict::End::skip("the server attaches whatever the aname"));
    }
    s.unknown(F).await
}

async fn afid_that_was_never_made_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    let (uname, aname) = (&*target.uname, target.aname());
    let answer = s.ask(&T::Attach { fid: F, afid: Fid(33), uname, aname, n_uname: target.uid }).await?;
    // Servers that know no authentication overlook it.
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

async fn auth_gives_an_auth_file_or_an_error(c: &mut Cx) -> Outcome {
    let mut s = c.agreed(crate::check::cx::MSIZE).await?;
    let target = c.target.clone();
    let (uname, aname) = (&*target.uname, target.aname());
    let answer = s.ask(&T::Auth { afid: F, uname, aname, n_uname: NONUNAME }).await?;
    match answer.frame.message() {
        Ok(R::Auth { aqid }) => {
            ensure(aqid.kind.has(QidType::AUTH), "a qid with the authentication bit", || answer.frame.text())
        }
        _ => answer.refused().map(drop),
    }
}

async fn two_attaches_give_one_root(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    s.ask(&target.attach(F)).await?.ok()?;
    let (one, other) = (s.facts(ROOT).await?.qid, s.facts(F).await?.qid);
    ensure(one.path == other.path, "one qid path", || format!("{one:?} and {other:?}"))
}

async fn clunk_of_one_root_leaves_the_other(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    let target = c.target.clone();
    s.ask(&target.attach(F)).await?.ok()?;
    s.clunk(ROOT).await?.ok()?;
    s.known(F).await?;
    s.unknown(ROOT).await
}

async fn fids_outlive_the_root_fid(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    s.reach(ROOT, F, &[]).await?;
    s.clunk(ROOT).await?.ok()?;
    s.known(F).await.map(drop)
}

async fn connections_have_fids_of_their_own(c: &mut Cx) -> Outcome {
    let mut one = c.attached().await?;
    one.reach(ROOT, F, &[]).await?;
    let mut other = c.attached().await?;
    other.walk(F, Fid(21), &[]).await?.refused_as(&[Errno::EBADF, Errno::EIO, Errno::EINVAL])?;
    one.known(F).await.map(drop)
}
