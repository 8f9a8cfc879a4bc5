//! Where things are copied to: [`Dest`], a directory here or on a server, and [`Sink`], a file of it being written.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use ninefold::client::{Client, Stream};
use ninefold::proto::Errno;
use ninefold::proto::attr::Time;
use rustix::fs::{AtFlags, FileType, statat};

use super::digest::Digest;
use super::facts::Facts;
use super::here_file::{self, Begun};
use super::off::off;
use super::part::{part_name, random_part_name};
use super::reader::Content;
use super::source::Item;
use super::there::{Owners, Subject};
use super::there_file::Up;
use super::trouble::{Cause, Trouble};
use super::turn;
use super::{here, there, there_file};
use crate::files::target::temporary_name;
use crate::files::temporaries::Temporaries;
use crate::place::Place;

/// A directory that things are copied into.
#[derive(Clone, Debug)]
pub enum Dest {
    Here(Arc<here::Dir>),
    There(Arc<there::Dir>),
}

/// Bytes of the shortest run of zeros that is not written to a server: what costs about as much as a message.
pub const LEAST_ZEROS: usize = 64 * 1024;

/// How things are copied.
#[derive(Clone, Debug)]
pub struct How {
    pub preserve: bool,
    pub resume: bool,
    pub checksum: bool,
    /// What new files' permissions are cut down by.
    pub umask: u32,
    pub owners: Arc<Owners>,
    /// Where things are copied to no file gets a name on the condition that nothing has it, as with many file systems of networks
    /// and of programs (renameat2(2)): small files go as all others.
    pub no_puts: Arc<AtomicBool>,
    pub temporaries: Temporaries,
}

impl How {
    /// Permissions of what is new, as cp(1) gives them: without `--preserve` none of the bits above 0o777.
    pub fn mode(&self, source: &Facts) -> u32 {
        source.permissions() & !self.umask
    }

    /// Permissions of a temporary file for what is new on a server: until it has its owner, what is to keep its permissions is nobody else's to read.
    pub fn part_mode(&self, source: &Facts) -> u32 {
        if self.preserve { 0o600 } else { self.mode(source) }
    }
}

pub fn cstring(name: &[u8]) -> Result<CString, Cause> {
    CString::new(name).map_err(|_| Cause::Here(Errno::EINVAL))
}

impl Dest {
    /// Whether this copy made it, so that nothing is in it.
    pub fn is_new(&self) -> bool {
        match self {
            Dest::Here(dir) => dir.is_new,
            Dest::There(dir) => dir.is_new,
        }
    }

    /// The number that a server has given it.
    pub fn qid(&self) -> Option<u64> {
        match self {
            Dest::Here(_) => None,
            Dest::There(dir) => Some(dir.node.qid().path),
        }
    }

    async fn facts(&self) -> Result<Facts, Cause> {
        match self {
            Dest::Here(dir) => {
                let dir = dir.clone();
                off(move || dir.facts()).await
            }
            Dest::There(dir) => Ok(Facts::from(dir.node.metadata().await?)),
        }
    }

    /// Whether a directory of the source may be this one, by another way: looked at between two looks at this one, it has
    /// their times. What is copied into it meanwhile changes them.
    pub async fn looks_like(&self, item: &mut Item) -> Result<bool, Cause> {
        let before = self.facts().await?;
        let seen = item.look_again().await?;
        let after = self.facts().await?;
        let exact = [&before, &seen].into_iter().all(Facts::has_nanoseconds);
        let time = |facts: &Facts| {
            let Time { sec, nsec } = facts.modified;
            (sec, if exact { nsec } else { 0 })
        };
        Ok(seen.mode == after.mode && (time(&before)..=time(&after)).contains(&time(&seen)))
    }

    /// Whether a directory of the source is this one: what is made here is there too.
    pub async fn is(&self, item: &mut Item, place: &Place, how: &How) -> Result<bool, Cause> {
        let name = temporary_name(b"cp");
        let entry = how.temporaries.file(place.join(&name));
        match self {
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(&name)?);
                off(move || dir.make(&name, 0o700).map(drop)).await?;
            }
            Dest::There(dir) => dir.node.mkdir(&name, 0o700).await.map(drop)?,
        }
        let is_there = item.has(&name).await;
        match self {
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(&name)?);
                off(move || dir.remove_dir(&name)).await?;
            }
            Dest::There(dir) => dir.node.unlink(&name, true).await?,
        }
        entry.gone();
        is_there
    }

    /// What has the name in it.
    pub async fn look(&self, name: &[u8]) -> Result<Option<Facts>, Cause> {
        match self {
            Dest::Here(dir) if dir.is_new => Ok(None),
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(name)?);
                off(move || dir.look(&name)).await
            }
            Dest::There(dir) => dir.look(name).await,
        }
    }

    /// Makes a directory in it that this user may fill, or takes the one that is there.
    pub async fn make_dir(&self, name: &[u8], source: &Facts, how: &How) -> Result<Dest, Cause> {
        // Until it is filled, what is to keep its permissions is nobody else's.
        let mode = if how.preserve { 0o700 } else { how.mode(source) | 0o700 };
        match self {
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(name)?);
                Ok(Dest::Here(Arc::new(off(move || dir.make(&name, mode)).await?)))
            }
            Dest::There(dir) => Ok(Dest::There(Arc::new(dir.make(name, mode).await?))),
        }
    }

    /// The directory of that name, if there is one.
    pub async fn open_dir(&self, name: &[u8]) -> Result<Option<Dest>, Cause> {
        match self {
            Dest::Here(dir) => {
                let (dir, name) = (dir.clone(), cstring(name)?);
                let is_dir = move || match dir.look(&name)? {
                    Some(facts) if facts.is_dir() => Ok(Some(Dest::Here(Arc::new(dir.enter(&name)?)))),
                    _ => Ok(None),
                };
                off(is_dir).await
            }
            Dest::There(dir) => Ok(dir.open(name).await?.map(|dir| Dest::There(Arc::new(dir)))),
        }
    }

    /// Gives the directory its own attributes, when everything in it is done.
    pub async fn finish_dir(&self, source: &Facts, how: &How) -> Result<(), Cause> {
        let mode = how.mode(source);
        if !how.preserve && (!self.is_new() || mode & 0o700 == 0o700) {
            return Ok(());
        }
        let (preserve, source) = (how.preserve, source.clone());
        match self {
            Dest::Here(dir) => {
                let dir = dir.clone();
                off(move || if preserve { dir.preserve(&source) } else { dir.set_mode(mode) }).await
            }
            Dest::There(dir) if preserve => Subject::Node(&dir.node).preserve(&source, &how.owners).await,
            Dest::There(dir) => {
                let change = ninefold::proto::attr::SetAttr { mode: Some(mode), ..Default::default() };
                Ok(dir.node.set(&change).await?)
            }
        }
    }
}

/// Where one file goes.
#[derive(Clone, Debug)]
pub struct Slot {
    /// As the user knows it.
    pub place: Place,
    pub at: At,
}

#[derive(Clone, Debug)]
pub enum At {
    Entry(Dest, Vec<u8>),
    /// A device or pipe that the user named, by a path that leads through more than links.
    Direct(PathBuf),
    /// In a directory that a dry run does not make.
    Nowhere,
}

impl Slot {
    /// Whether a plain file is made there, on this machine, as far as a look tells: nothing has the name, or one that would be replaced.
    pub async fn gets_a_file_here(&self) -> bool {
        let At::Entry(Dest::Here(dir), name) = &self.at else { return false };
        let (dir, name) = (dir.clone(), name.clone());
        let look = move || Ok(statat(dir.as_fd(), name.as_slice(), AtFlags::empty()).ok());
        let there = off(look).await.ok().flatten();
        there.is_none_or(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Whether it is a server's.
    pub fn is_there(&self) -> bool {
        matches!(self.at, At::Entry(Dest::There(_), _))
    }

    /// What is there.
    pub async fn look(&self) -> Result<Option<Facts>, Trouble> {
        match &self.at {
            At::Entry(dest, name) => dest.look(name).await.map_err(Trouble::of(&self.place, "cannot look at it")),
            At::Direct(_) | At::Nowhere => Ok(None),
        }
    }

    /// What is there, open for reading.
    pub async fn open(&self) -> Result<Option<(Facts, Content)>, Cause> {
        let At::Entry(_, name) = &self.at else { return Ok(None) };
        self.open_beside(name).await
    }

    /// Another file in the same directory, open for reading.
    pub async fn open_beside(&self, name: &[u8]) -> Result<Option<(Facts, Content)>, Cause> {
        let At::Entry(dest, _) = &self.at else { return Ok(None) };
        let item = match dest {
            Dest::Here(dir) => Item::beneath(self.place.clone(), dir, name)?,
            Dest::There(dir) => Item::there(self.place.clone(), dir.walk(name).await?),
        };
        let (facts, content) = item.open().await?;
        Ok(content.map(|content| (facts, content)))
    }
}

/// A file that is being written: [`Sink::writing`] takes its bytes, then comes [`Sink::finish`] or [`Sink::abandon`].
#[derive(Debug)]
pub enum Sink {
    Here(Box<here_file::Sink>),
    There(Box<there_file::Sink>),
}

/// The bytes of a [`Sink`], from [`Begun::offset`] on. [`Writing::finish`] comes last.
#[derive(Debug)]
pub enum Writing<'s> {
    Here(&'s mut here_file::Sink),
    There(Box<there_file::Writing<'s>>),
}

impl Writing<'_> {
    /// The shortest run of zeros that is worth not being written: here a block of the file system, there what costs
    /// about as much as a message.
    pub fn least_zeros(&self) -> usize {
        match self {
            Writing::Here(_) => 4096,
            Writing::There(_) => LEAST_ZEROS,
        }
    }

    pub async fn data(&mut self, data: Bytes) -> Result<(), Cause> {
        match self {
            Writing::Here(sink) => sink.data(data).await,
            Writing::There(writing) => writing.data(data).await,
        }
    }

    /// What comes next goes there; only here.
    pub async fn seek(&mut self, offset: u64) -> Result<(), Cause> {
        match self {
            Writing::Here(sink) => sink.seek(offset).await,
            Writing::There(_) => Err(Cause::Here(Errno::ESPIPE)),
        }
    }

    /// See [`here_file::Sink::mark`]; only here.
    pub async fn mark(&mut self, from: u64) -> Result<(), Cause> {
        match self {
            Writing::Here(sink) => sink.mark(from).await,
            Writing::There(_) => Err(Cause::Here(Errno::ESPIPE)),
        }
    }

    /// Nothing comes for a while.
    pub async fn pause(&mut self) -> Result<(), Cause> {
        match self {
            Writing::Here(_) => Ok(()),
            Writing::There(writing) => writing.pause().await,
        }
    }

    /// Zeros that need not be written; only where [`Begun::skips`].
    pub async fn skip(&mut self, zeros: u64) -> Result<(), Cause> {
        match self {
            Writing::Here(sink) => sink.skip(zeros).await,
            Writing::There(writing) => writing.skip(zeros).await,
        }
    }

    /// Waits until a server has taken all of it; here that is part of [`Sink::finish`].
    pub async fn finish(self) -> Result<(), Cause> {
        match self {
            Writing::Here(_) => Ok(()),
            Writing::There(writing) => writing.finish().await,
        }
    }
}

/// What came of a copy beside the file.
#[derive(Debug, Default)]
pub struct Finished {
    pub not_preserved: Option<Cause>,
    pub in_place: Option<String>,
}

impl Sink {
    /// Opens a file to write what is like `source`, at `place`, to, where `old` is now; with `resume` behind what an
    /// interrupted copy left. `up`: how it is written if it is a new one there.
    pub async fn begin(
        slot: &Slot,
        place: &Place,
        source: &Facts,
        old: Option<Facts>,
        how: &How,
        (resume, up): (bool, Option<Up>),
    ) -> Result<Sink, Cause> {
        let (source, mode) = (source.clone(), how.mode(source));
        let &How { preserve, checksum, resume: keep, .. } = how;
        let to = match &slot.at {
            At::Nowhere => return Err(Cause::Here(Errno::ENOENT)),
            At::Direct(path) => here_file::To::Direct(path.clone()),
            At::Entry(Dest::Here(dir), name) => {
                let part = cstring(&part_name(name, place, &source))?;
                here_file::To::Entry { dir: dir.clone(), name: cstring(name)?, part }
            }
            At::Entry(Dest::There(dir), name) => {
                let perm = how.part_mode(&source);
                let is_new = !keep && old.is_none();
                let started = if is_new { dir.take_started().and_then(|it| it.take(&source, perm)) } else { None };
                let (part, started) = match started {
                    Some((name, part)) => (name, Some(part)),
                    // A server has no lock that keeps others from it in every dialect.
                    None if keep => (part_name(name, place, &source), None),
                    None => (random_part_name(name), None),
                };
                let (dir, name) = (dir.clone(), name.clone());
                // What gives the file its name is asked of the directory.
                turn::follow(dir.node.client());
                let (owners, temporaries) = (how.owners.clone(), how.temporaries.clone());
                let plan = there_file::Plan {
                    dir,
                    name,
                    part,
                    source,
                    old,
                    mode,
                    perm,
                    preserve,
                    resume,
                    keep,
                    owners,
                    temporaries,
                    up,
                };
                return Ok(Sink::There(Box::new(there_file::Sink::begin(plan, started).await?)));
            }
        };
        let (place, temporaries) = (slot.place.clone(), how.temporaries.clone());
        let plan = here_file::Plan { to, source, old, mode, preserve, resume, keep, checksum, place, temporaries };
        Ok(Sink::Here(Box::new(here_file::Sink::begin(plan).await?)))
    }

    /// By which a file of a server is written.
    pub fn client(&self) -> Option<Client> {
        match self {
            Sink::Here(_) => None,
            Sink::There(sink) => Some(sink.file().client().clone()),
        }
    }

    pub fn begun(&self) -> &Begun {
        match self {
            Sink::Here(sink) => &sink.begun,
            Sink::There(sink) => &sink.begun,
        }
    }

    /// All from `offset` on is written anew, in order.
    pub async fn unmark(&mut self, offset: u64) -> Result<(), Cause> {
        match self {
            Sink::Here(sink) => sink.unmark(offset).await,
            Sink::There(sink) => sink.unmark(offset).await,
        }
    }

    /// What takes the bytes, in order.
    pub fn writing(&mut self) -> Writing<'_> {
        match self {
            Sink::Here(sink) => Writing::Here(sink),
            Sink::There(sink) => Writing::There(Box::new(sink.writing())),
        }
    }

    /// The file is whole when `streams` have come to their ends: it gets its attributes and its name, if its content comes to `digest`.
    pub async fn finish(self, digest: Option<Digest>, streams: Vec<Stream>) -> Result<Finished, Cause> {
        match self {
            Sink::Here(sink) => Ok(Finished { not_preserved: sink.finish(digest).await?, in_place: None }),
            Sink::There(sink) => {
                let (not_preserved, in_place) = sink.finish(digest, streams).await?;
                Ok(Finished { not_preserved, in_place: in_place.map(|why| why.to_string()) })
            }
        }
    }

    /// Gives it up because of `cause`.
    pub async fn abandon(self, cause: &Cause) {
        match self {
            Sink::Here(sink) if !cause.leaves_what_can_be_gone_on_with() => sink.discard(),
            Sink::Here(_) => {}
            Sink::There(sink) => sink.abandon(cause).await,
        }
    }
}
