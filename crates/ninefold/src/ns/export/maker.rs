//! Where a new name of a directory is made: of a union, in the first member that takes new files, once no member has the name; and
//! between which members a name is moved.

use ninefold_proto::Errno;
use ninefold_proto::server::Rename;

use super::super::Error;
use super::super::mounted::Mounted;
use super::super::mtab::Member;
use super::super::namespace::{Found, Target};
use super::Here;
use crate::client::nameop::Stat;
use crate::client::{Follow, Node};

/// A directory of a server, on a fid of its own.
pub(super) struct Maker {
    pub dir: Node,
    /// The number of its tree.
    pub tree: u32,
    /// It was mounted with -C.
    pub cache: bool,
}

/// The directory of a server in which `name` is made; EEXIST where the table or another member of a union has it. Whether this one has
/// it, its server says.
pub(super) async fn maker(here: &Here, name: &[u8]) -> Result<Maker, Error> {
    if here.is_of_table(name)? {
        return Err(Errno::EEXIST.into());
    }
    if !here.is_named {
        return Ok(Maker { dir: here.again().await?, tree: here.tree, cache: here.cache });
    }
    let (fs, path) = (&here.fs, here.path());
    let found = fs.ns.find_path(&path);
    if found.members.len() < 2 || !found.left.is_empty() {
        let (dir, _, member) = fs.ns.walk_path(path, Follow::All).await?;
        return Ok(Maker { dir, tree: fs.qids.tree(member.file.address()), cache: member.flags.cache });
    }
    is_free(here, name).await?;
    let member = found.creates_in.and_then(|at| found.members.get(at)).ok_or(Error::NoCreate)?;
    let dir = of(member).await?;
    Ok(Maker { dir, tree: fs.qids.tree(member.file.address()), cache: member.flags.cache })
}

/// EEXIST where a name of a union is there, whichever member has it.
async fn is_free(here: &Here, name: &[u8]) -> Result<(), Error> {
    match here.fs.ns.nameop(&Target::Tree(here.below(name)?), &Stat(Follow::NotLast)).await {
        Ok(_) => Err(Errno::EEXIST.into()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

/// A fid for the directory that a member is.
async fn of(member: &Member<Mounted>) -> Result<Node, Error> {
    Ok(member.file.base(member.file.client()).start().await?.walk(&[]).await?)
}

/// A directory that is a mount point, whose members the table has.
fn mounted(here: &Here) -> Option<Found> {
    let found = here.fs.ns.find_path(&here.path());
    (here.is_named && found.left.is_empty() && !found.members.is_empty()).then_some(found)
}

/// The directory of a server that has `name`, of a union the first member that does, and the directory in which that becomes `new` of
/// `there`: of a union the same member. EXDEV where that is another server's, EEXIST where it must be new and is not.
pub(super) async fn movers(
    (here, name): (&Here, &[u8]),
    (there, new): (&Here, &[u8]),
    how: Rename,
) -> Result<(Node, Node), Error> {
    let holder = async |here: &Here, name: &[u8]| {
        if mounted(here).is_none() {
            return Ok((here.again().await?, None));
        }
        let (_, _, member) = here.fs.ns.walk_path(here.below(name)?, Follow::NotLast).await?;
        Ok::<_, Error>((of(&member).await?, Some(member.file)))
    };
    let (dir, member) = holder(here, name).await?;
    let other = match (how, mounted(there)) {
        (Rename::Exchange, _) => holder(there, new).await?.0,
        (Rename::NoReplace, None) => there.again().await?,
        (Rename::NoReplace, Some(others)) => {
            is_free(there, new).await?;
            let same = others.members.iter().find(|other| Some(&other.file) == member.as_ref());
            let at = if others.members.len() == 1 { Some(0) } else { others.creates_in };
            // Within a union the name stays in its member; into another it is as new as any.
            of(same.or_else(|| others.members.get(at?)).ok_or(Error::NoCreate)?).await?
        }
    };
    if dir.client().is_beside(other.client()) { Ok((dir, other)) } else { Err(Error::OtherMount) }
}
