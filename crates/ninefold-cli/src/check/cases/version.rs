//! Agreeing on a dialect, and every way to refuse one (version(5)).

use ninefold::proto::message::T;
use ninefold::proto::{Dialect, Fid, Tag};

use crate::check::case::{Group, case};
use crate::check::conn::{Conn, Event};
use crate::check::cx::{Cx, MSIZE};
use crate::check::talk::{READ, ROOT, pattern};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "version",
    about: "negotiation, and every refusal of it",
    cases: &[
        case!(
            dialect_offered_is_granted,
            PUL,
            Nothing,
            "version(5)",
            "The reply to a dialect that the server speaks is that very string, under the tag of the Tversion."
        ),
        case!(
            msize_is_not_raised,
            PUL,
            Nothing,
            "version(5)",
            "The msize of the reply is not greater than the one offered."
        ),
        case!(
            least_msize_works,
            PUL,
            Attach,
            "version(5); v9fs: 4096 is its least",
            "An msize of 4096 is taken, or a smaller one answered, and an attach works with it."
        ),
        case!(
            greatest_msize_is_taken,
            PUL,
            Attach,
            "version(5)",
            "An msize of 2^32-1 is answered with one that the server can hold, and the session works."
        ),
        case!(
            msize_of_0_is_refused,
            PUL,
            Nothing,
            "version(5)",
            "An msize of 0, in which no message has room, is not agreed to."
        ),
        case!(
            msize_of_23_is_refused,
            PUL,
            Nothing,
            "version(5)",
            "An msize of 23, in which no byte can be written, is not agreed to."
        ),
        case!(
            unknown_version_is_answered_unknown,
            PUL,
            Nothing,
            "version(5)",
            "A string that the server does not understand is answered by Rversion with the string 'unknown', not by an error."
        ),
        case!(
            empty_version_is_answered_unknown,
            PUL,
            Nothing,
            "version(5)",
            "An empty string, which does not begin with '9P', is answered by Rversion with 'unknown'."
        ),
        case!(
            unknown_can_be_followed_by_another_offer,
            PUL,
            Nothing,
            "version(5)",
            "After 'unknown' the client may offer another string on the same connection."
        ),
        case!(
            later_version_is_not_granted,
            PUL,
            Nothing,
            "version(5)",
            "A version later than any is answered with one not later than those that exist, or 'unknown'."
        ),
        case!(
            unknown_suffix_is_cut,
            PUL,
            Nothing,
            "version(5)",
            "A suffix behind a period that the server does not know is left out of its reply."
        ),
        case!(
            reply_is_no_more_than_the_offer,
            PUL,
            Nothing,
            "version(5)",
            "An offer of plain '9P2000' is not answered with a suffix."
        ),
        case!(case_of_letters_matters, PUL, Nothing, "version(5)", "'9p2000' is no version of 9P."),
        case!(
            tag_other_than_notag_is_answered,
            PUL,
            Nothing,
            "version(5): the tag should be NOTAG",
            "A Tversion under an ordinary tag is answered, under that tag."
        ),
        case!(
            request_before_version_is_refused,
            PUL,
            Nothing,
            "version(5): must be the first message",
            "An attach before any Tversion is refused or the connection closed."
        ),
        case!(
            request_after_unknown_is_refused,
            PUL,
            Nothing,
            "version(5)",
            "An attach after 'unknown' is refused or the connection closed: nothing was agreed on."
        ),
        case!(
            second_version_forgets_fids,
            PUL,
            Attach,
            "version(5): all fids are clunked",
            "A Tversion in the middle of a session makes every fid unknown."
        ),
        case!(
            second_version_starts_a_session,
            PUL,
            Attach,
            "version(5): initializes the connection",
            "After a Tversion in the middle of a session an attach to a fid number used before works."
        ),
        case!(
            second_version_aborts_what_is_outstanding,
            PUL,
            Write,
            "version(5): all outstanding I/O is aborted",
            "After the Rversion no reply comes for a request that was sent before the Tversion."
        ),
        case!(
            second_version_can_lower_the_msize,
            PUL,
            Write,
            "version(5)",
            "After a Tversion with a smaller msize no reply exceeds that one."
        ),
        case!(
            second_version_can_change_the_dialect,
            UL,
            Nothing,
            "version(5)",
            "A session can begin anew in plain 9P2000, where the server speaks that."
        ),
    ],
};

/// A fid of a case's own.
const OPEN: Fid = Fid(20);

async fn dialect_offered_is_granted(c: &mut Cx) -> Outcome {
    c.agreed(MSIZE).await.map(drop)
}

async fn msize_is_not_raised(c: &mut Cx) -> Outcome {
    for msize in [4096, 4097, 8192, 8216, 20_000] {
        let mut s = c.dial().await?;
        let wanted = c.dialect.as_str();
        match s.version(msize, wanted).await? {
            Ok((agreed, _)) => {
                ensure(agreed <= msize, format!("an msize of at most {msize}"), || agreed.to_string())?;
            }
            Err(got) => return Err(End::fail(format!("Rversion for an msize of {msize}"), got)),
        }
    }
    Ok(())
}

async fn least_msize_works(c: &mut Cx) -> Outcome {
    c.attached_with(4096).await.map(drop)
}

async fn greatest_msize_is_taken(c: &mut Cx) -> Outcome {
    let mut s = c.attached_with(u32::MAX).await?;
    s.known(ROOT).await?;
    let msize = s.msize.unwrap_or_default();
    prefer(msize < 1 << 30, "an msize that a server can hold for each connection", || format!("{msize} bytes"))
}

async fn msize_of_0_is_refused(c: &mut Cx) -> Outcome {
    tiny_msize(c, 0).await
}

async fn msize_of_23_is_refused(c: &mut Cx) -> Outcome {
    tiny_msize(c, 23).await
}

async fn tiny_msize(c: &mut Cx, offered: u32) -> Outcome {
    let mut s = c.dial().await?;
    let wanted = c.dialect.as_str();
    match s.version(offered, wanted).await? {
        Ok((_, version)) if version == "unknown" => Ok(()),
        Ok((msize, version)) => {
            let got = format!("'{version}' with an msize of {msize}");
            Err(if msize > offered {
                End::fail(format!("no msize over {offered}"), got)
            } else {
                End::differs("'unknown'", got)
            })
        }
        Err(got) if got == s.silence() => Err(End::fail("'unknown', an error, or a closed connection", got)),
        Err(_) => Ok(()),
    }
}

/// Offers a string and fails unless it is answered by an Rversion; gives its string.
async fn answered(s: &mut Conn, offered: &str) -> Result<String, End> {
    match s.version(MSIZE, offered).await? {
        Ok((_, version)) => Ok(version),
        Err(got) => Err(End::fail(format!("Rversion for '{offered}'"), got)),
    }
}

async fn unknown_version_is_answered_unknown(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let version = answered(&mut s, "XYZZY").await?;
    ensure(version == "unknown", "'unknown'", || format!("'{version}'"))
}

async fn empty_version_is_answered_unknown(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let version = answered(&mut s, "").await?;
    ensure(version == "unknown", "'unknown'", || format!("'{version}'"))
}

async fn unknown_can_be_followed_by_another_offer(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    // How the first is refused is another case's affair.
    let _ = s.version(MSIZE, "XYZZY").await?;
    s.restart_clock();
    let wanted = c.dialect.as_str();
    let version = answered(&mut s, wanted).await?;
    ensure(version == wanted, format!("'{wanted}'"), || format!("'{version}'"))
}

async fn later_version_is_not_granted(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let version = answered(&mut s, "9P9999").await?;
    ensure(version == "unknown" || version == "9P2000", "'9P2000' or 'unknown'", || format!("'{version}'"))
}

async fn unknown_suffix_is_cut(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let offered = format!("{}.zzy", c.dialect);
    let version = answered(&mut s, &offered).await?;
    ensure(version != offered, "a reply without the suffix", || format!("'{version}'"))?;
    let is_prefix = version == "9P2000" || version == c.dialect.as_str();
    // Servers of .L compare the whole string.
    prefer(is_prefix, format!("'{}' or '9P2000'", c.dialect), || format!("'{version}'"))
}

async fn reply_is_no_more_than_the_offer(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let version = answered(&mut s, "9P2000").await?;
    ensure(matches!(&*version, "9P2000" | "unknown"), "'9P2000', or 'unknown'", || format!("'{version}'"))
}

async fn case_of_letters_matters(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    let offered = c.dialect.as_str().to_lowercase();
    match s.version(MSIZE, &offered).await? {
        Ok((_, version)) => prefer(version == "unknown", "'unknown'", || format!("'{version}'")),
        Err(got) if got == s.silence() => Err(End::fail("Rversion with 'unknown'", got)),
        Err(got) => Err(End::differs("Rversion with 'unknown'", got)),
    }
}

async fn tag_other_than_notag_is_answered(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    match s.version_as(Tag(7), MSIZE, c.dialect.as_str()).await? {
        Ok(_) => Ok(()),
        Err(got) if got == s.silence() => Err(End::fail("Rversion tag 7, or an error", got)),
        Err(got) => Err(End::differs("Rversion tag 7", got)),
    }
}

async fn attach_is_refused(c: &mut Cx, mut s: Conn) -> Outcome {
    let target = c.target.clone();
    let tag = s.send(&target.attach(ROOT)).await?;
    match s.event().await? {
        Event::Closed(_) => Ok(()),
        Event::Frame(frame) if frame.is_error() && frame.tag() == tag => Ok(()),
        Event::Frame(frame) => Err(End::differs("an error, or a closed connection", frame.text())),
        Event::Silence => Err(End::fail("an error, or a closed connection", s.silence())),
    }
}

async fn request_before_version_is_refused(c: &mut Cx) -> Outcome {
    let s = c.dial().await?;
    attach_is_refused(c, s).await
}

async fn request_after_unknown_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.dial().await?;
    match s.version(MSIZE, "XYZZY").await? {
        Ok((_, version)) if version != "unknown" => {
            return Err(End::skip(format!("the server answers '{version}' to a string that it cannot know")));
        }
        _ => {}
    }
    s.restart_clock();
    attach_is_refused(c, s).await
}

/// Begins a new session on a connection.
async fn again(s: &mut Conn, msize: u32, dialect: Dialect) -> Outcome {
    match s.version(msize, dialect.as_str()).await? {
        Ok((agreed, version)) if version == dialect.as_str() && agreed <= msize => {
            s.msize = Some(agreed);
            s.dialect = dialect;
            Ok(())
        }
        Ok((agreed, version)) => {
            let expected = format!("'{dialect}' and an msize of at most {msize}");
            Err(End::fail(expected, format!("'{version}' and {agreed}")))
        }
        Err(got) => Err(End::fail("Rversion in the middle of a session", got)),
    }
}

async fn second_version_forgets_fids(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    again(&mut s, MSIZE, c.dialect).await?;
    let answer = s.ask_facts(ROOT).await?;
    ensure(answer.frame.is_error(), "an error: the fid is gone", || answer.frame.text())
}

async fn second_version_starts_a_session(c: &mut Cx) -> Outcome {
    let mut s = c.attached().await?;
    again(&mut s, MSIZE, c.dialect).await?;
    let target = c.target.clone();
    s.ask(&target.attach(ROOT)).await?.ok()?;
    s.known(ROOT).await.map(drop)
}

async fn second_version_aborts_what_is_outstanding(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", &pattern(40_000)).await?;
    s.opened(b"f", OPEN, READ).await?;
    let reads: Vec<T<'_>> = (0..16).map(|i| T::Read { fid: OPEN, offset: i * 1000, count: 8000 }).collect();
    s.burst(&reads).await?;
    // Replies may come before the Rversion; a reply after it belongs to nothing, and fails the case by itself.
    again(&mut s, MSIZE, c.dialect).await?;
    let target = c.target.clone();
    s.ask(&target.attach(ROOT)).await?.ok()?;
    s.fence().await
}

async fn second_version_can_lower_the_msize(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", &pattern(8000)).await?;
    again(&mut s, 4096, c.dialect).await?;
    c.enter(&mut s).await?;
    s.opened(b"f", OPEN, READ).await?;
    // A reply over 4096 bytes fails the case by itself.
    let answer = s.read(OPEN, 0, 8000).await?;
    prefer(!answer.frame.is_error(), "as much as fits", || answer.frame.text())
}

async fn second_version_can_change_the_dialect(c: &mut Cx) -> Outcome {
    let mut plain = c.dial().await?;
    match plain.version(MSIZE, "9P2000").await? {
        Ok((_, version)) if version == "9P2000" => {}
        _ => return Err(End::skip("the server does not speak 9P2000")),
    }
    let mut s = c.attached().await?;
    again(&mut s, MSIZE, Dialect::Plan9).await?;
    let target = c.target.clone();
    s.ask(&target.attach(ROOT)).await?.ok()?;
    s.known(ROOT).await.map(drop)
}
