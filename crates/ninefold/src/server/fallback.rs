//! What the server does by itself where a file server lacks it: entries with attributes by walks, copies by reads and writes.
//!
//! Nothing here is faster than a client that does the same, but for the round trips that it saves.

use std::any::Any;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, getattr};
use ninefold_proto::plus::{ATTR_SIZE, PlusEntry};
use ninefold_proto::stat::{DirEntry, dir_entries};
use ninefold_proto::types::{NAME_MAX, WalkElem};
use ninefold_proto::{Errno, Error, Name, Qid};

use super::dispatch::{Handle, outlive, survive};
use super::{Cx, DirSink, Listed};

/// Bytes that a Tcopyrange moves before it is answered: about a second of a disk's, so that a Tflush behind it does not wait.
pub(crate) const COPY_MOST: u64 = 64 << 20;

/// Bytes that are read and then written at a time: as many as a client moves, with the msize that ours offers.
const COPY_PIECE: u32 = 1 << 20;

/// Bytes of an entry that Rreaddir tells, without its name.
const ENTRY: usize = Qid::SIZE + 8 + 1 + 2;

/// Bytes of entries without attributes that surely fit `max` bytes with them, whatever their names; but always enough for one.
pub(crate) fn plain_room(max: u32) -> u32 {
    // With a name of one byte the attributes are the greatest part of an entry.
    let surely = u64::from(max) * (ENTRY as u64 + 1) / (ENTRY + 1 + ATTR_SIZE) as u64;
    max.min((surely as u32).max((ENTRY + NAME_MAX) as u32))
}

/// Entries without attributes, one after the other, and a sink for them with. What does not fit is asked for again by the client.
pub(crate) struct Plus {
    entries: Bytes,
    /// Nothing is behind them.
    end: bool,
    at: usize,
    sink: DirSink,
}

impl Plus {
    pub(crate) fn new(Listed { entries, end }: Listed, max: u32) -> Plus {
        Plus { entries, end, at: 0, sink: DirSink::new(max) }
    }

    /// The next entry, unless there is no room for it or there is none.
    pub(crate) fn peek(&self) -> Result<Option<DirEntry<'_>>, Error> {
        let Some(entry) = dir_entries(&self.entries[self.at..]).next() else { return Ok(None) };
        let entry = entry.map_err(|_| Error::with_text(Errno::EIO, "file server listed what is no entry"))?;
        Ok(self.sink.has_room(entry.encoded_len() + ATTR_SIZE).then_some(entry))
    }

    /// Tells the next entry with its attributes, or none if they could not be had. A shortage of the server's own must not pass
    /// for a file that has gone: it ends the reply before the entry, or is the reply.
    pub(crate) fn tell(&mut self, attr: Result<Attr, Error>) -> Result<Told, Error> {
        let entry = dir_entries(&self.entries[self.at..]).next();
        let Some(Ok(entry)) = entry else { return Ok(Told::Stop) };
        match attr {
            Ok(attr) => self.sink.push_plus(&PlusEntry { entry: DirEntry { qid: attr.qid, ..entry }, attr }),
            Err(error) if matches!(error.errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EINTR) => {
                return if self.sink.is_empty() { Err(error) } else { Ok(Told::Stop) };
            }
            Err(_) => self.sink.push_plus(&PlusEntry { entry, attr: Attr { qid: entry.qid, ..Attr::default() } }),
        };
        self.at += entry.encoded_len();
        Ok(Told::More)
    }

    /// The reply. EINVAL when not one entry fits.
    pub(crate) fn finish(self) -> Result<Listed, Error> {
        if self.sink.is_empty() && !self.entries.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        let end = self.end && self.at == self.entries.len();
        Ok(Listed { entries: self.sink.into_bytes(), end })
    }
}

/// Whether [`Plus`] goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    More,
    Stop,
}

/// Entries of a directory, each walked to and asked for its attributes.
pub(super) async fn readdirplus(cx: Cx, dir: Handle, offset: u64, max: u32, mask: u64) -> Result<Listed, Error> {
    let entries = dir.readdir(&cx, offset, plain_room(max)).wait().await?;
    // Otherwise nobody knows without reading on.
    let end = entries.is_empty();
    let mut plus = Plus::new(Listed { entries, end }, max);
    while let Some(entry) = plus.peek()? {
        tokio::task::yield_now().await;
        let attr =
            if cx.is_cancelled() { Err(Errno::EINTR.into()) } else { attributes(&cx, &dir, entry.name, mask).await };
        if plus.tell(attr)? == Told::Stop {
            break;
        }
    }
    plus.finish()
}

async fn attributes(cx: &Cx, dir: &Handle, name: &[u8], mask: u64) -> Result<Attr, Error> {
    let elem = match name {
        b"." => return dir.getattr(cx, mask).wait().await,
        b".." => WalkElem::Parent,
        name => WalkElem::Name(Name::new(name).map_err(|_| Errno::EIO)?),
    };
    let file = dir.walk(cx, &[elem]).wait().await?.file.ok_or(Errno::ENOENT)?;
    // The file gets its farewell even from a file server that panics.
    let attr = outlive(survive(|| file.getattr(cx, mask)).wait()).await;
    file.clunk(cx).wait().await?;
    attr
}

/// The kind in a mode, and that of a plain file: inode(7).
const S_IFMT: u32 = 0o170000;
const S_IFREG: u32 = 0o100000;

/// Copies by reading and writing, up to [`COPY_MOST`] bytes. EINVAL when the ranges lie in one file and overlap.
pub(super) async fn copyrange(
    cx: Cx,
    from: Handle,
    offset: u64,
    to: Handle,
    to_offset: u64,
    length: u64,
) -> Result<u64, Error> {
    if length == 0 {
        return Ok(0);
    }
    for file in [&from, &to] {
        // A pipe would be waited for, with a piece in hand that counts nowhere.
        if file.getattr(&cx, getattr::MODE).wait().await?.mode & S_IFMT != S_IFREG {
            return Err(Error::with_text(Errno::EINVAL, "only plain files have ranges that can be copied"));
        }
    }
    if offset.abs_diff(to_offset) < length && may_be_one(&cx, &from, &to).await? {
        return Err(Error::with_text(Errno::EINVAL, "ranges of one file overlap"));
    }
    let length = length.min(COPY_MOST);
    let mut done = 0;
    while done < length && !cx.is_cancelled() {
        // Where every answer is there at once a Tflush would not be read before the end.
        tokio::task::yield_now().await;
        match copy_piece(&cx, &from, offset + done, &to, to_offset + done, length - done).await {
            Ok(0) => return Ok(done),
            Ok(n) => done += n,
            // What was copied is told; the client meets the error when it goes on.
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
    if done == 0 { Err(Errno::EINTR.into()) } else { Ok(done) }
}

/// Whether two files may be one and the same, for all that they tell. Numbers are unique in a tree only; two files of one number
/// in two trees of a kind, which do not tell when they were born, are taken for one: a copy is refused, and no file is spoilt.
async fn may_be_one(cx: &Cx, one: &Handle, other: &Handle) -> Result<bool, Error> {
    let kind = |file: &Handle| (&**file as &dyn Any).type_id();
    if kind(one) != kind(other) {
        return Ok(false);
    }
    let mask = getattr::INO | getattr::BTIME;
    let (one, other) = (one.getattr(cx, mask).wait().await?, other.getattr(cx, mask).wait().await?);
    let born = one.valid & other.valid & getattr::BTIME != 0;
    Ok(one.qid.path == other.qid.path && (!born || one.btime == other.btime))
}

async fn copy_piece(cx: &Cx, from: &Handle, offset: u64, to: &Handle, to_offset: u64, most: u64) -> Result<u64, Error> {
    let count = most.min(COPY_PIECE.into()) as u32;
    let data = from.read(cx, offset, count).wait().await?.into_bytes()?;
    if data.len() > count as usize {
        return Err(Error::with_text(Errno::EIO, "file server read more than was asked for"));
    }
    let mut rest = data.clone();
    while !rest.is_empty() {
        let at = to_offset + (data.len() - rest.len()) as u64;
        match to.write(cx, at, rest.clone()).wait().await {
            Ok(n) if n > 0 && n as usize <= rest.len() => rest = rest.slice(n as usize..),
            Ok(_) => return Err(Error::with_text(Errno::EIO, "file server wrote out of contract")),
            Err(error) if rest.len() == data.len() => return Err(error),
            Err(_) => break,
        }
    }
    Ok((data.len() - rest.len()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_fit_without_attributes_fit_with_them() {
        for max in [4085_u32, 65_525, 1_048_565] {
            let room = plain_room(max) as usize;
            for name in [1, 2, 10, 100, NAME_MAX] {
                let entries = room / (ENTRY + name);
                assert!(entries * (ENTRY + name + ATTR_SIZE) <= max as usize, "names of {name} bytes in {max}");
            }
        }
    }

    #[test]
    fn a_small_count_leaves_room_for_the_longest_name() {
        assert_eq!(plain_room(500) as usize, ENTRY + NAME_MAX);
        assert_eq!(plain_room(100), 100);
    }
}
