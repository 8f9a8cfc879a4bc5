//! What is no directory and has no bytes, links and special files: made in the directory that is copied into.
//!
//! One that takes another's place is made under a random temporary name and renamed. That is seen through to its end, or
//! undone, whatever ends the copy.

use std::sync::Arc;

use ninefold::client::{Error, Node};

use super::dest::{Dest, How, cstring};
use super::facts::Facts;
use super::here;
use super::off::off;
use super::there::{self, Subject};
use super::trouble::Cause;
use crate::files::target::temporary_name;
use crate::files::temporaries::Temporaries;
use crate::place::Place;

/// What is made.
#[derive(Clone, Debug)]
pub enum Thing {
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// A device, fifo or socket like the source.
    Special,
}

/// How it is made.
#[derive(Clone, Debug)]
struct Plan {
    what: Thing,
    source: Facts,
    mode: u32,
    /// Something has the name.
    replaces: bool,
    temporaries: Temporaries,
}

impl Dest {
    /// Makes it, at `place` as the user knows it; what has the name is replaced at once. Gives what could not be preserved.
    pub async fn put(
        &self,
        place: &Place,
        name: &[u8],
        what: &Thing,
        source: &Facts,
        how: &How,
    ) -> Result<Option<Cause>, Cause> {
        let old = self.look(name).await?;
        if old.as_ref().is_some_and(Facts::is_dir) {
            return Err(Cause::words("a directory is not overwritten by what is none"));
        }
        if let (Some(_), Thing::Link(target)) = (&old, what)
            && self.read_link(name).await.is_ok_and(|there| there == *target)
        {
            return Ok(None);
        }
        let mut mode = if how.preserve { source.mode } else { how.mode(source) };
        if source.device.is_some() && !how.preserve {
            // A device that a server told of must not open this machine's disks to everybody.
            mode &= 0o700;
        }
        let (what, temporaries) = (what.clone(), how.temporaries.clone());
        let plan = Plan { what, source: source.clone(), mode, replaces: old.is_some(), temporaries };
        match self {
            Dest::Here(dir) => make_here(dir.clone(), place, name, plan).await?,
            Dest::There(dir) => make_there(dir, name, plan).await?,
        }
        if !how.preserve {
            return Ok(None);
        }
        let preserved = match self {
            Dest::Here(dir) => {
                let (dir, name, source) = (dir.clone(), cstring(name)?, source.clone());
                off(move || dir.preserve_entry(&name, &source)).await
            }
            Dest::There(dir) => match dir.walk(name).await {
                Ok(node) => Subject::Node(&node).preserve(source, &how.owners).await,
                Err(e) => Err(e.into()),
            },
        };
        Ok(preserved.err())
    }

    async fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Cause> {
        match self {
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(name)?);
                off(move || dir.read_link(&name)).await
            }
            Dest::There(dir) => Ok(dir.walk(name).await?.read_link().await?),
        }
    }
}

async fn make_here(dir: Arc<here::Dir>, place: &Place, name: &[u8], plan: Plan) -> Result<(), Cause> {
    let temporary = temporary_name(name);
    let entry = plan.replaces.then(|| plan.temporaries.file(place.beside(&temporary)));
    let (name, temporary) = (cstring(name)?, cstring(&temporary)?);
    // Once begun it comes to its end, which the end of the command waits for.
    off(move || {
        let first = if plan.replaces { &temporary } else { &name };
        match &plan.what {
            Thing::Link(target) => dir.link(first, target),
            Thing::Special => dir.node(first, &plan.source, plan.mode),
        }?;
        let Some(entry) = entry else { return Ok(()) };
        let renamed = dir.rename(&temporary, &name);
        if renamed.is_ok() || dir.remove(&temporary).is_ok() {
            entry.gone();
        }
        renamed
    })
    .await
}

async fn make_there(dir: &there::Dir, name: &[u8], plan: Plan) -> Result<(), Cause> {
    let at = dir.target(name);
    let Plan { what, source, mode, replaces, temporaries } = plan;
    if !replaces {
        return Ok(make(&at.dir, name, &what, &source, mode).await?);
    }
    let (temporary, shown) = at.temporary();
    let warning = format!("{shown}: this temporary file may be left: remove it");
    let (client, within) = (at.dir.client().clone(), temporaries.clone());
    let undo = {
        let (dir, temporary) = (at.dir.clone(), temporary.clone());
        async move { dir.unlink(&temporary, false).await }
    };
    let work = async move {
        make(&at.dir, &temporary, &what, &source, mode).await?;
        let taken = at.take(&within, &at.dir, &temporary).await;
        if taken.is_err() {
            at.dir.unlink(&temporary, false).await?;
        }
        taken
    };
    Ok(temporaries.see_through(warning, &client, work, undo).await?)
}

async fn make(dir: &Node, name: &[u8], what: &Thing, source: &Facts, mode: u32) -> Result<(), Error> {
    match what {
        Thing::Link(target) => dir.symlink(name, target).await,
        Thing::Special => dir.mknod(name, source.kind, mode, source.device.unwrap_or_default()).await,
    }
}
