//! An open file of a server with a place in it: what Unix calls an open file description.
//!
//! Calls that use the place take turns, as in Linux (read(2), BUGS); those that give an offset do not. Each read asks the server, so
//! it sees what anybody wrote before; each write is waited for unless the file was opened with OBEHIND.

use std::sync::Arc;

use bytes::Bytes;
use nine::client::{Client, Error, Extent, File, FileType, Metadata};
use nine::proto::attr::SetAttr;
use nine::proto::{Dialect, Errno};
use ninefold_stream::ninep::Remote;
use nix::libc;
use tokio::sync::Mutex;

use crate::fence::{EBADF, EINVAL, EISDIR, ENXIO, EOVERFLOW, ESPIPE, Room};
use crate::flags::Flags;
use crate::process::Process;
use crate::stat;

/// Bytes that are asked for or sent at a time, so that a call of gigabytes has no second copy of them.
const PART: usize = 16 << 20;

pub struct Descriptor {
    file: File,
    kind: FileType,
    flags: Flags,
    /// The number of its server.
    server: u32,
    place: Mutex<Place>,
}

#[derive(Clone, Copy)]
enum Place {
    At(u64),
    /// Behind what was appended last, where the server did not tell where that is: its end of file, found when somebody asks.
    Appended,
}

impl Descriptor {
    pub fn new(file: File, kind: FileType, flags: Flags, server: u32) -> Descriptor {
        Descriptor { file, kind, flags, server, place: Mutex::new(Place::At(0)) }
    }

    /// Whether the server itself finds the end of the file for each write; 9P2000 has no word for it.
    pub fn server_appends(client: &Client) -> bool {
        client.dialect() != Dialect::Plan9
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// A stream on it, to be made: by a handle of its own, from that place on.
    pub fn remote(&self, process: &'static Process, at: u64) -> Remote {
        let remote = Remote::new(self.file.share(), process.waiter()).at(at);
        remote.places(self.check_places().is_ok()).appends(self.flags.append)
    }

    /// The place, for who begins there and does not move it; 0 of what has none.
    pub async fn place(&self) -> Result<u64, Error> {
        match self.check_places() {
            Ok(()) => self.settle(&mut *self.place.lock().await).await,
            Err(_) => Ok(0),
        }
    }

    /// That it may be read, or written.
    pub fn check(&self, writing: bool) -> Result<(), Errno> {
        let may = if writing { self.flags.writes() } else { self.flags.reads() };
        match () {
            () if !may => Err(EBADF),
            () if self.file.qid().is_dir() => Err(EISDIR),
            () => Ok(()),
        }
    }

    /// read(2).
    pub async fn read(&self, room: &mut Room<'_>) -> Result<(), Error> {
        self.check(false)?;
        let mut place = self.place.lock().await;
        let offset = self.settle(&mut place).await?;
        let result = self.fill(room, offset).await;
        *place = Place::At(offset + room.filled() as u64);
        result
    }

    /// pread(2).
    pub async fn pread(&self, room: &mut Room<'_>, offset: i64) -> Result<(), Error> {
        // As in Linux the offset is judged first.
        let offset = checked(offset)?;
        self.check(false)?;
        self.check_places()?;
        self.fill(room, offset).await
    }

    /// What fits, or up to the end of the file, or as much as the server gives at a time. An error is told where nothing was read.
    async fn fill(&self, room: &mut Room<'_>, offset: u64) -> Result<(), Error> {
        check_end(offset, room.left())?;
        while room.left() > 0 {
            let at = offset + room.filled() as u64;
            let count = room.left().min(PART);
            let bytes = match self.file.read_at(at, count as u32).await {
                Err(_) if room.filled() > 0 => break,
                bytes => bytes?,
            };
            // A server cannot give more than it was asked for: the client sees to that.
            room.put(&bytes);
            if bytes.len() < count {
                break;
            }
        }
        Ok(())
    }

    /// write(2): how many bytes were taken.
    pub async fn write(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.check(true)?;
        let mut place = self.place.lock().await;
        if !self.flags.append {
            let offset = self.settle(&mut place).await?;
            let taken = self.put(bytes, offset).await?;
            *place = Place::At(offset + taken as u64);
            return Ok(taken);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        self.append(bytes, &mut place).await
    }

    /// pwrite(2). To a file that was opened to append it appends, as Linux has it (pwrite(2), BUGS).
    pub async fn pwrite(&self, bytes: &[u8], offset: i64) -> Result<usize, Error> {
        let offset = checked(offset)?;
        self.check(true)?;
        self.check_places()?;
        if self.flags.append && !bytes.is_empty() {
            // The place is where it was, which is asked for while that can be known.
            let mut place = self.place.lock().await;
            let at = self.settle(&mut place).await?;
            return self.append(bytes, &mut Place::At(at)).await;
        }
        self.put(bytes, offset).await
    }

    async fn put(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        check_end(offset, bytes.len())?;
        let mut taken = 0;
        for part in bytes.chunks(PART) {
            let result = self.file.write_at(offset + taken as u64, Bytes::copy_from_slice(part)).await;
            let count = match result {
                Err(_) if taken > 0 && self.is_met_again() => break,
                result => result? as usize,
            };
            taken += count;
            if count < part.len() {
                break;
            }
        }
        self.sync_if_asked().await?;
        Ok(taken)
    }

    /// Whether a call may end with what was taken before an error, and leave that to the next, which meets it again. What is written
    /// behind tells an error once, be it of this call or of another: it goes to the caller. Where the file is ordered nothing is.
    fn is_met_again(&self) -> bool {
        !self.file.mode().behind || self.file.is_ordered()
    }

    /// Writes at the end: how many bytes were taken; the place is behind them, whatever becomes of the others. In .n1 and .L and .u
    /// each message is appended as one, whoever else appends. In 9P2000 the end is asked for, and who appends
    /// elsewhere at that moment overwrites.
    async fn append(&self, bytes: &[u8], place: &mut Place) -> Result<usize, Error> {
        let client = self.file.client();
        let mut taken = 0;
        while taken < bytes.len() {
            let message = if client.version().is_n1() { self.file.append_max() } else { self.file.write_max() };
            let part = Bytes::copy_from_slice(&bytes[taken..][..(message as usize).min(bytes.len() - taken)]);
            let length = part.len();
            let result = if client.version().is_n1() {
                self.file.append(part, self.flags.sync).await.map(|(at, count)| (Some(at), count))
            } else if Descriptor::server_appends(client) {
                self.file.write_at(0, part).await.map(|count| (None, count))
            } else {
                match self.file.metadata().await {
                    Ok(Metadata { size, .. }) => self.file.write_at(size, part).await.map(|count| (Some(size), count)),
                    Err(e) => Err(e),
                }
            };
            let (at, count) = match result {
                Ok(told) => told,
                Err(_) if taken > 0 && self.is_met_again() => break,
                Err(e) => {
                    // Some of what was sent may have been appended.
                    if !self.is_met_again() {
                        *place = Place::Appended;
                    }
                    return Err(e);
                }
            };
            taken += count as usize;
            if count > 0 {
                *place = at.and_then(|at| end_of(at, count)).map_or(Place::Appended, Place::At);
            }
            if (count as usize) < length {
                break;
            }
        }
        self.sync_if_asked().await?;
        Ok(taken)
    }

    /// Where a stream that writes from `offset` on begins. Opened to append it begins at the end: the kernel, and most servers, see to that
    /// whatever the offset is, and in 9P2000 the end is asked for.
    pub async fn start(&self, offset: u64) -> Result<u64, Error> {
        let finds_end = self.flags.append && !Descriptor::server_appends(self.file.client());
        if finds_end { Ok(self.metadata().await?.size) } else { Ok(offset) }
    }

    async fn sync_if_asked(&self) -> Result<(), Error> {
        if self.flags.sync { self.file.sync().await } else { Ok(()) }
    }

    /// lseek(2).
    pub async fn seek(&self, offset: i64, whence: i32) -> Result<i64, Error> {
        if !matches!(whence, libc::SEEK_SET | libc::SEEK_CUR | libc::SEEK_END | libc::SEEK_DATA | libc::SEEK_HOLE) {
            return Err(EINVAL.into());
        }
        self.check_places()?;
        let mut place = self.place.lock().await;
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.settle(&mut place).await?.cast_signed(),
            libc::SEEK_END => self.metadata().await?.size.cast_signed(),
            _ => {
                let at = self.extent(offset, whence).await?;
                *place = Place::At(at.cast_unsigned());
                return Ok(at);
            }
        };
        let at = from.checked_add(offset).ok_or(EOVERFLOW)?;
        *place = Place::At(u64::try_from(at).map_err(|_| EINVAL)?);
        Ok(at)
    }

    /// That it has places: what comes out of a fifo or a socket has none.
    fn check_places(&self) -> Result<(), Errno> {
        match self.kind {
            FileType::Fifo | FileType::Socket => Err(ESPIPE),
            _ => Ok(()),
        }
    }

    /// The next data or hole. Where the server cannot tell all of the file is data and a hole is at its end, which lseek(2) allows.
    async fn extent(&self, offset: i64, whence: i32) -> Result<i64, Error> {
        let size = self.metadata().await?.size;
        let offset = u64::try_from(offset).ok().filter(|&offset| offset < size).ok_or(ENXIO)?;
        let told = if self.file.client().version().is_n1() {
            let extent = if whence == libc::SEEK_DATA { Extent::Data } else { Extent::Hole };
            self.file.seek(extent, offset).await?.ok_or(ENXIO)?
        } else if whence == libc::SEEK_DATA {
            offset
        } else {
            size
        };
        i64::try_from(told).map_err(|_| EOVERFLOW.into())
    }

    async fn settle(&self, place: &mut Place) -> Result<u64, Error> {
        let at = match *place {
            Place::At(at) => at,
            Place::Appended => self.metadata().await?.size,
        };
        *place = Place::At(at);
        Ok(at)
    }

    pub async fn metadata(&self) -> Result<Metadata, Error> {
        self.file.metadata().await
    }

    /// fstat(2).
    pub async fn stat(&self) -> Result<libc::stat, Error> {
        Ok(stat::of(&self.metadata().await?, self.server))
    }

    /// ftruncate(2).
    pub async fn truncate(&self, length: i64) -> Result<(), Error> {
        if !self.flags.writes() || self.file.qid().is_dir() {
            return Err(EINVAL.into());
        }
        let size = checked(length)?;
        // As for a write at an offset: what was appended is found while it is the end.
        self.settle(&mut *self.place.lock().await).await?;
        self.file.set(&SetAttr { size: Some(size), ..SetAttr::default() }).await
    }

    /// fsync(2).
    pub async fn sync(&self) -> Result<(), Error> {
        self.file.sync().await
    }

    /// fdflush (S5, "Write behind").
    pub async fn flush(&self) -> Result<(), Error> {
        self.file.flush().await
    }

    /// close(2): tells what was not told of what was written behind, and what the server says to the end. Who has it still when
    /// another closes it, a call or a stream, is the one who ends it by [`Descriptor::let_go`]; what was written behind by then is
    /// told now.
    pub async fn close(self: Arc<Self>) -> Result<(), Error> {
        match Arc::try_unwrap(self) {
            Ok(last) => last.file.close().await,
            Err(shared) => {
                let flushed = shared.flush().await;
                Descriptor::let_go(shared, flushed).await
            }
        }
    }

    /// What a call gives that has done with it. Where it is the last that had it, because another thread closed it meanwhile, that close
    /// could not know what was written behind since: it is ended here, and what goes wrong then is this call's error, before one of its
    /// own: nobody else is told of it.
    pub async fn let_go<T>(self: Arc<Self>, result: Result<T, Error>) -> Result<T, Error> {
        let Some(last) = Arc::into_inner(self) else { return result };
        let ended = last.file.close().await;
        ended.and(result)
    }
}

/// That `count` bytes from `offset` on end where offsets do: EINVAL, as Linux has it of reads too.
fn check_end(offset: u64, count: usize) -> Result<(), Errno> {
    let end = offset.checked_add(count as u64);
    end.filter(|&end| end <= i64::MAX as u64).map(drop).ok_or(EINVAL)
}

/// The place behind what was appended at `at`; none where the server tells one that no file has, and so it is asked for.
fn end_of(at: u64, count: u32) -> Option<u64> {
    at.checked_add(count.into()).filter(|&end| end <= i64::MAX as u64)
}

/// An offset, or a length.
fn checked(offset: i64) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_is_one_that_a_program_would_take_for_an_error() {
        const MOST: u64 = i64::MAX as u64;
        assert_eq!(end_of(10, 5), Some(15));
        assert_eq!(end_of(MOST - 5, 5), Some(MOST));
        for at in [MOST - 4, 1 << 63, u64::MAX] {
            assert_eq!(end_of(at, 5), None, "{at}");
        }
    }
}
