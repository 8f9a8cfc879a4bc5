//! What the words of the command line mean: cp(1)'s rules for where each source goes.
//!
//! Into DST when it is a directory, under the source's last name; else DST is the new name, and there is one source.
//! A source that ends in `/.` or is a root has no last name: its content goes into DST itself. A link at the end of DST
//! is gone through; one at the end of a source too, unless `-r` copies links as what they are.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ninefold::client::{BeginRead, Client, Error, Follow, Located, Sight, components};
use ninefold::proto::Errno;
use ninefold::transport::Address;

use super::ahead::Ahead;
use super::cx::Cx;
use super::dest::{At, Dest, Slot};
use super::facts::Facts;
use super::off::off;
use super::reader::STREAMED;
use super::source::Item;
use super::trouble::{Cause, Trouble};
use super::turn;
use super::{here, there};
use crate::failure::Usage;
use crate::files::target::Target;
use crate::files::{World, missing};
use crate::place::Place;
use crate::report::Failure;

/// From so many sources on their destination is listed, instead of being asked for each.
const MANY: usize = 16;

/// One source of the command line, and where it goes.
#[derive(Debug)]
pub struct Top {
    pub source: Place,
    pub slot: Slot,
    /// One before it goes to the same name.
    pub comes_second: bool,
    /// Meets what one before it makes, so that both must not run at the same time.
    pub waits_for_all: bool,
    /// There is no other.
    pub is_alone: bool,
}

/// What DST is.
enum Dst {
    Directory(Dest),
    Other(At),
}

/// Finds out where everything goes. What is wrong with one source is complained of, and the others go on.
pub async fn resolve(cx: &Cx<'_>, mut places: Vec<Place>) -> anyhow::Result<Vec<Top>> {
    let Some(dst) = places.pop() else { return Ok(Vec::new()) };
    let local = |place: &&Place| matches!(place, Place::Local(_));
    if let (true, Some(from)) = (local(&&dst), places.iter().find(local)) {
        let odd = if dst.slip().is_some() { &dst } else { from };
        return Err(Usage::error(format!("'{from}' and '{dst}' are both files of this machine: {}", odd.advice("cp"))));
    }
    let many = places.len() >= MANY || places.iter().any(|place| place.name().is_none());
    let ahead = Ahead::of(cx, &places, &dst).await;
    let found = match find(cx, &dst, many, ahead).await {
        Ok(found) => found,
        Err(trouble) => {
            cx.complain(&trouble);
            return Ok(Vec::new());
        }
    };
    if let (Dst::Other(_), true) = (&found, places.len() > 1) {
        cx.complain(&Trouble::new(&dst, "", Cause::words("several files go into a directory, which it is not")));
        return Ok(Vec::new());
    }
    let mut taken = HashSet::new();
    let mut tops = Vec::new();
    let is_alone = places.len() == 1;
    for source in places {
        let slot = match &found {
            Dst::Other(at) => Slot { place: dst.clone(), at: at.clone() },
            Dst::Directory(dest) => match source.name() {
                Some(name) => Slot { place: dst.join(&name), at: At::Entry(dest.clone(), name) },
                None => Slot { place: dst.clone(), at: At::Entry(dest.clone(), Vec::new()) },
            },
        };
        if cx.recursive && lies_within(&slot.place, &source) {
            let words = format!("a directory is not copied into itself, {}", slot.place);
            cx.failed(&source, &slot.place, &Trouble::new(&source, "", Cause::words(words))).await?;
            continue;
        }
        let comes_second = !taken.insert(source.name());
        // What goes into DST itself may meet everything else.
        let waits_for_all = comes_second || taken.contains(&None);
        tops.push(Top { source, slot, comes_second, waits_for_all, is_alone });
    }
    Ok(tops)
}

/// Whether a path is the other or lies below it, as far as their names tell.
fn lies_within(inner: &Place, outer: &Place) -> bool {
    let (Place::Remote(inner), Place::Remote(outer)) = (inner, outer) else { return false };
    if (&inner.place, &inner.aname) != (&outer.place, &outer.aname) {
        return false;
    }
    match (components(&inner.path), components(&outer.path)) {
        (Ok(inner), Ok(outer)) => inner.starts_with(&outer),
        _ => false,
    }
}

async fn find(cx: &Cx<'_>, dst: &Place, many: bool, ahead: Option<Ahead>) -> Result<Dst, Trouble> {
    let failed = |cause: Cause| Trouble::new(dst, "", cause);
    match dst {
        Place::Local(path) => {
            let owned = path.clone();
            let is_dir = dst.says_directory();
            off(move || find_here(&owned, is_dir)).await.map_err(failed)
        }
        Place::Remote(address) => find_there(cx.world, address, dst.says_directory(), many, ahead).await,
    }
}

fn find_here(path: &Path, says_directory: bool) -> Result<Dst, Cause> {
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    let entry = |path: &Path| {
        use std::os::unix::ffi::OsStrExt;
        // Of `new/` the name is `new`: a directory of that name may be made.
        let name = path.file_name().ok_or(Cause::Here(Errno::ENOENT))?.as_bytes().to_vec();
        Ok(Dst::Other(At::Entry(Dest::Here(here::parent(path)?), name)))
    };
    match kind {
        Some(kind) if kind.is_dir() => Ok(Dst::Directory(Dest::Here(Arc::new(here::Dir::named(path)?)))),
        Some(_) if says_directory => Err(Cause::Here(Errno::ENOTDIR)),
        Some(_) => match std::fs::canonicalize(path) {
            Ok(real) => entry(&real),
            // /dev/stdout and its like lead to what has no name.
            Err(_) => Ok(Dst::Other(At::Direct(path.to_owned()))),
        },
        None if std::fs::symlink_metadata(path).is_ok() => Err(Cause::words("it is a link that leads nowhere")),
        None => entry(path),
    }
}

async fn find_there(
    world: &World,
    address: &Address,
    says_directory: bool,
    many: bool,
    ahead: Option<Ahead>,
) -> Result<Dst, Trouble> {
    let failed = |e: Error| Trouble::new(address, "", e);
    let directory =
        |node| Ok(Dst::Directory(Dest::There(Arc::new(there::Dir::new(node, address.clone(), false, many)))));
    let located = match ahead {
        Some(ahead) => ahead.locate(world, address).await?,
        None => {
            let locate = async |client: &Client| client.locate(&address.path).await;
            world.servers.first(address, locate).await?.1.map(|located| (located, None))
        }
    };
    let (located, started) = match located {
        Ok((mut located, started)) => match located.found.take() {
            Some(node) if node.qid().is_dir() => return directory(node),
            Some(_) if says_directory => return Err(failed(Errno::ENOTDIR.into())),
            found => (Located { found, ..located }, started),
        },
        // It has no name: a root, or where a link's target ends in `..`.
        Err(e) if e.errno() == Errno::EISDIR => {
            let client = world.servers.client(address).await?;
            return directory(client.walk(&address.path, Follow::All).await.map_err(failed)?);
        }
        Err(e) if e.is_not_found() => return Err(missing(world, address, e).await),
        Err(e) => return Err(failed(e)),
    };
    let is_free = located.found.is_none();
    let Target { dir, name, address } = Target::located(located, address);
    let dir = there::Dir::at(dir, address, is_free.then(|| name.clone()), started);
    Ok(Dst::Other(At::Entry(Dest::There(Arc::new(dir)), name)))
}

/// A failure of a file that the user named; where something on its way is missing, says what.
async fn missing(world: &World, address: &Address, e: Error) -> Trouble {
    let advice = if e.is_not_found() { missing::advice(&world.servers, address).await } else { None };
    Failure { advice, ..Failure::new(address, "", e) }.into()
}

impl Top {
    /// The source itself, and where it goes.
    pub async fn item(self, cx: &Cx<'_>) -> Result<(Item, Slot), Trouble> {
        let Top { source, slot, comes_second, is_alone, .. } = self;
        let follow = !cx.recursive || source.says_directory();
        let failed = |cause: Cause| Trouble::new(&source, "", cause);
        let mut item = match &source {
            Place::Local(path) => Item::here(path, follow).map_err(failed)?,
            Place::Remote(address) => {
                // What is not to be gone into is opened, and begun to be read, in the same round trip: whatever else it is, is found below.
                let is_read = !cx.recursive && !cx.dry_run && !cx.how.resume && !source.says_directory();
                if is_read {
                    // What comes here comes by several streams, unless it is digested on its way. Several files share them, and most are
                    // short.
                    let streams =
                        if is_alone && !cx.how.checksum && slot.gets_a_file_here().await { cx.streams } else { 0 };
                    let how = BeginRead { most: STREAMED, plain: true, streams, ..BeginRead::default() };
                    let begin = async |client: &Client| turn::fork(client).begin_read_as(&address.path, how).await;
                    if let Ok(begun) = cx.world.servers.first_by_streams(address, streams, begin).await?.1
                        && let Some(item) = Item::begun(source.clone(), begun)
                    {
                        return Top::check(item, &source, slot, comes_second).await;
                    }
                }
                let follow = if follow { Follow::All } else { Follow::NotLast };
                let sight = Sight { attributes: true, alone: true };
                let visit = async |client: &Client| turn::fork(client).visit(&address.path, follow, sight).await;
                match cx.world.servers.first(address, visit).await?.1 {
                    Ok(visited) => Item::visited(source.clone(), visited).map_err(failed)?,
                    Err(e) => return Err(missing(cx.world, address, e).await),
                }
            }
        };
        item.facts().await.map_err(failed)?;
        Top::check(item, &source, slot, comes_second).await
    }

    /// Whether it can go there.
    async fn check(mut item: Item, source: &Place, slot: Slot, comes_second: bool) -> Result<(Item, Slot), Trouble> {
        let (failed, none) = (|cause: Cause| Trouble::new(source, "", cause), || Cause::Here(Errno::ENOTDIR));
        let facts: Facts = item.facts().await.map_err(failed)?;
        if source.says_directory() && !facts.is_dir() {
            return Err(failed(none()));
        }
        if comes_second && !facts.is_dir() {
            return Err(failed(Cause::words(format!("another file was just copied to {}", slot.place))));
        }
        if slot.place.says_directory()
            && !facts.is_dir()
            && matches!(&slot.at, At::Entry(_, name) if slot.place.name().as_ref() == Some(name))
        {
            // `new/` is a directory's name, and there is none.
            return Err(Trouble::new(&slot.place, "", none()));
        }
        Ok((item, slot))
    }
}
