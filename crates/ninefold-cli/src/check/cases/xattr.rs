//! Extended attributes (Txattrwalk, Txattrcreate of .L).

use ninefold::proto::message::{R, T};
use ninefold::proto::{Errno, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::Cx;
use crate::check::talk::HERE;
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "xattr",
    about: "extended attributes of .L",
    cases: &[
        case!(
            set_is_read_back,
            L,
            Write,
            "diod protocol.md, xattrcreate, xattrwalk",
            "A value that was written and clunked is read back."
        ),
        case!(size_is_told, L, Write, "diod protocol.md, xattrwalk", "Rxattrwalk tells the size of the value."),
        case!(
            list_names_it,
            L,
            Write,
            "diod protocol.md, xattrwalk: empty name",
            "Txattrwalk of the empty name lists the attributes' names, each with a NUL behind it."
        ),
        case!(
            missing_is_enodata,
            L,
            Write,
            "getxattr(2): ENODATA",
            "Txattrwalk of an attribute that does not exist is ENODATA, and makes no fid."
        ),
        case!(
            value_can_be_replaced,
            L,
            Write,
            "setxattr(2)",
            "A second value takes the place of the first, whatever their sizes."
        ),
        case!(
            create_flag_refuses_an_existing_one,
            L,
            Write,
            "setxattr(2): XATTR_CREATE",
            "With XATTR_CREATE an attribute that exists is not set, and the value stays."
        ),
        case!(
            replace_flag_refuses_a_missing_one,
            L,
            Write,
            "setxattr(2): XATTR_REPLACE",
            "With XATTR_REPLACE an attribute that does not exist is not made."
        ),
        case!(
            size_0_removes,
            L,
            Write,
            "v9fs: removal is a set of size 0",
            "A value of size 0 removes the attribute, or makes it empty."
        ),
        case!(
            read_at_an_offset,
            L,
            Write,
            "diod protocol.md, xattrwalk",
            "A value is read in pieces, by their offsets."
        ),
        case!(
            value_short_of_its_size_is_not_set,
            L,
            Write,
            "diod protocol.md, xattrcreate",
            "A value of which fewer bytes were written than announced does not replace the old one."
        ),
        case!(
            newfid_in_use_is_refused,
            L,
            Write,
            "walk(5), by analogy",
            "Txattrwalk to a fid that is in use is an error, and that fid stays what it was."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);
const NAME: &[u8] = b"user.ninefold-check";
/// XATTR_CREATE and XATTR_REPLACE of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// A connection with a file as `F`; skips where the server or its file system has no such attributes.
async fn file(c: &mut Cx) -> Result<Conn, End> {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.reach(HERE, F, &[b"f"]).await?;
    if let Some(why) = set(&mut s, b"first value", 0).await? {
        return Err(End::skip(format!("no such attribute can be set: {why}")));
    }
    Ok(s)
}

/// Sets the attribute to `value`; gives the error that was told, at whichever of the three steps.
async fn set(s: &mut Conn, value: &[u8], flags: u32) -> Result<Option<String>, End> {
    set_part(s, value, value.len(), flags).await
}

/// The same with `size` announced.
async fn set_part(s: &mut Conn, value: &[u8], size: usize, flags: u32) -> Result<Option<String>, End> {
    s.reach(F, G, &[]).await?;
    let request = T::Xattrcreate { fid: G, name: NAME, attr_size: size as u64, flags };
    let created = s.ask(&request).await?;
    let mut refusal = created.frame.refusal();
    if refusal.is_none() && !value.is_empty() {
        refusal = s.write_at(G, 0, value).await?.frame.refusal();
    }
    let clunked = s.clunk(G).await?;
    Ok(refusal.or(clunked.frame.refusal()).map(|refusal| refusal.told()))
}

async fn must_set(s: &mut Conn, value: &[u8], flags: u32) -> Outcome {
    match set(s, value, flags).await? {
        Some(got) => Err(End::fail("the attribute to be set", got)),
        None => Ok(()),
    }
}

/// The value, or `None` when it does not exist.
async fn get(s: &mut Conn, name: &[u8]) -> Result<Option<(u64, Vec<u8>)>, End> {
    let answer = s.ask(&T::Xattrwalk { fid: F, newfid: G, name }).await?;
    if answer.frame.refusal().is_some_and(|r| r.meaning() == Some(Errno::ENODATA)) {
        return Ok(None);
    }
    let frame = answer.ok()?;
    let R::Xattrwalk { size } = frame.message()? else { return Err(End::fail("Rxattrwalk", frame.text())) };
    let value = s.read_all(G, 0).await?;
    s.clunk(G).await?.ok()?;
    Ok(Some((size, value)))
}

async fn is(s: &mut Conn, expected: &[u8]) -> Outcome {
    let found = get(s, NAME).await?;
    let right = found.as_ref().is_some_and(|(_, value)| value == expected);
    ensure(right, format!("'{}'", expected.escape_ascii()), || match found {
        Some((_, value)) => format!("'{}'", value.escape_ascii()),
        None => "no such attribute".to_owned(),
    })
}

async fn set_is_read_back(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    is(&mut s, b"first value").await
}

async fn size_is_told(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let size = get(&mut s, NAME).await?.map(|(size, _)| size);
    ensure(size == Some(11), "size 11", || format!("{size:?}"))
}

async fn list_names_it(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let Some((size, list)) = get(&mut s, b"").await? else { return Err(End::fail("a list", "no such attribute")) };
    let right = list.split_inclusive(|&b| b == 0).any(|name| name.strip_suffix(b"\0") == Some(NAME));
    ensure(right, "the attribute's name and a NUL", || format!("'{}'", list.escape_ascii()))?;
    ensure(size == list.len() as u64, format!("size {}", list.len()), || size.to_string())
}

async fn missing_is_enodata(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.ask(&T::Xattrwalk { fid: F, newfid: G, name: b"user.none" }).await?.refused_as(&[Errno::ENODATA])?;
    s.unknown(G).await
}

async fn value_can_be_replaced(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    for value in [&b"a second, longer value"[..], b"third"] {
        must_set(&mut s, value, 0).await?;
        is(&mut s, value).await?;
    }
    Ok(())
}

async fn create_flag_refuses_an_existing_one(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = set(&mut s, b"second", CREATE).await?;
    ensure(told.is_some(), "an error at one of the steps", || "none".to_owned())?;
    is(&mut s, b"first value").await
}

async fn replace_flag_refuses_a_missing_one(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.file(b"g", b"").await?;
    s.clunk(F).await?.ok()?;
    s.reach(HERE, F, &[b"g"]).await?;
    let told = set(&mut s, b"value", REPLACE).await?;
    ensure(told.is_some(), "an error at one of the steps", || "none".to_owned())?;
    let found = get(&mut s, NAME).await?;
    ensure(found.is_none(), "no such attribute", || "it was made".to_owned())
}

async fn size_0_removes(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    must_set(&mut s, b"", 0).await?;
    match get(&mut s, NAME).await? {
        None => Ok(()),
        Some((_, value)) => {
            ensure(value.is_empty(), "no attribute, or an empty one", || format!("'{}'", value.escape_ascii()))?;
            prefer(false, "no such attribute", || "an empty one".to_owned())
        }
    }
}

async fn read_at_an_offset(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.ask(&T::Xattrwalk { fid: F, newfid: G, name: NAME }).await?.ok()?;
    for (offset, count, expected) in [(6, 5, &b"value"[..]), (0, 5, b"first"), (11, 5, b""), (8, 100, b"lue")] {
        let data = s.read(G, offset, count).await?.ok()?.data();
        ensure(data == expected, format!("'{}'", expected.escape_ascii()), || format!("'{}'", data.escape_ascii()))?;
    }
    Ok(())
}

async fn value_short_of_its_size_is_not_set(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    let told = set_part(&mut s, b"half", 8, 0).await?;
    let value = get(&mut s, NAME).await?.map(|(_, value)| value).unwrap_or_default();
    let shown = format!("'{}'", value.escape_ascii());
    if value == b"first value" {
        return prefer(told.is_some(), "an error at one of the steps", || "none, and the old value".to_owned());
    }
    // Bytes that nobody wrote are the server's memory.
    ensure(value == b"half" || value == b"half\0\0\0\0", "the old value", || shown.clone())?;
    Err(End::differs("the old value", shown))
}

async fn newfid_in_use_is_refused(c: &mut Cx) -> Outcome {
    let mut s = file(c).await?;
    s.ask(&T::Xattrwalk { fid: F, newfid: HERE, name: NAME }).await?.refused()?;
    ensure(s.facts(HERE).await?.is_dir, "the fid to stand for its directory", || "something else".to_owned())
}
