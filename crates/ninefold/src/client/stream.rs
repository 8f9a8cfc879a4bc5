//! Streams: a file's bytes from one place on, read or written in order, and at the end whether all of it came through
//! (S1, "Streams": stream, sread, swrite, sclose).
//!
//! [`File::stream_read`] and [`File::stream_write`] open one, [`Stream::read`] and [`Stream::write`] move bytes,
//! [`Stream::finish`] tells how many, or what went wrong at either end. A stream has a place of its own in the file, whatever else
//! is read and written there, and goes on when the file is closed.
//!
//! Where the server can, the bytes go over a connection of their own ([`beside`]); with every other they are those of Tread and Twrite,
//! many of which are on the way together ([`inband`]): the compatibility mode of S1. A program does not see which it is, but for
//! [`Stream::is_in_band`].

mod beside;
mod end;
mod gathered;
mod granted;
mod inband;
mod track;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ninefold_proto::Errno;
use ninefold_proto::open::Access;
use tokio::time::Instant;

use super::client::Client;
use super::error::{Error, Fault};
use super::file::File;
use super::owned_stream::OwnedStream;
pub(super) use beside::Late;
use beside::{Ask, Beside, Sharing, give_up};
pub(super) use granted::{Grant, Granted, Grants, Saying};
use inband::{Reading, Writing};
pub(super) use track::Track;

/// Bytes of one read of a data connection that is handed on without a copy: enough that system calls are nothing beside the copying.
const CHUNK: usize = 256 * 1024;

/// A buffer with less room is not worth a system call.
const LEAST: usize = 64 * 1024;

/// See the module. Dropping it gives up what is on the way; of what was written the server may have written any part.
#[derive(Debug)]
pub struct Stream {
    way: Way,
    /// Bytes that the program took or gave so far.
    moved: u64,
    /// Of them there are no more than so many.
    length: Option<u64>,
    /// What the next bytes of a data connection come into.
    buffer: BytesMut,
}

#[derive(Debug)]
enum Way {
    Reading(Box<Reading>),
    Writing(Box<Writing>),
    Beside(Box<Beside>),
}

impl Client {
    /// Whether a stream may get a connection of its own, as far as is known before one is asked for.
    pub fn has_streams(&self) -> bool {
        self.options().streams && self.version().has_streams() && self.handle().dialer().may()
    }

    /// Lets all data go in messages from now on: for who has seen that what goes by streams does not get through.
    pub fn give_up_streams(&self) {
        self.handle().dialer().give_up();
    }

    /// Opens so many connections for streams ahead of need, while other things are done: whoever asks for a stream within the next
    /// seconds waits for none. Nothing where the server has no streams, or only on ports that it makes.
    pub fn prepare_streams(&self, connections: usize) {
        if self.has_streams() && self.version().is_n1() {
            self.handle().dialer().open_ahead(connections);
        }
    }

    /// Opens a connection ahead, whatever is there already.
    pub(super) fn prepare_another_stream(&self) {
        if self.has_streams() {
            self.handle().dialer().open_another();
        }
    }

    /// Whether one is there that was asked for at `asked` or later.
    pub(super) fn has_spare_stream(&self, asked: Instant) -> bool {
        self.handle().dialer().has_idle(asked)
    }
}

impl File {
    /// Reads from `offset` on to the end of the file, or `length` bytes if it has so many. What was written behind is waited for
    /// first. `EBADF` where the file is not open for reading.
    pub async fn stream_read(&self, offset: u64, length: Option<u64>) -> Result<Stream, Error> {
        self.stream_read_as(&self.client, offset, length).await
    }

    /// The same in messages, whatever the server has. Nothing is asked for before the first bytes are.
    pub fn stream_read_in_band(&self, offset: u64, length: Option<u64>) -> Stream {
        Stream::of_reading(self.share(), None, &Ask::alone(true, offset, length))
    }

    /// The same by requests of `client`, which is of the same connection; see [`Client::fork`].
    pub(super) async fn stream_read_as(
        &self,
        client: &Client,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Stream, Error> {
        if self.mode().access == Access::Write {
            return Err(Errno::EBADF.into());
        }
        self.stream_by(client, Ask::alone(true, offset, length)).await
    }

    /// The same of `length` bytes by a connection on which others are to come behind it: that of `behind`, or a new one. The last `copies` of them
    /// are no pages of the file, which may change on the way.
    pub(super) async fn stream_on_track(
        &self,
        client: &Client,
        (offset, length): (u64, u64),
        behind: Option<Arc<Track>>,
        copies: u64,
    ) -> Result<Stream, Error> {
        let sharing = behind.map_or(Sharing::First, Sharing::Behind);
        self.stream_by(client, Ask { read: true, offset, length: Some(length), copies, late: false, sharing }).await
    }

    /// The same that was asked for with the open of the file.
    pub(super) async fn stream_granted(&self, client: &Client, granted: Granted) -> Result<Stream, Error> {
        let ask = Ask {
            read: true,
            offset: granted.offset,
            length: Some(granted.length),
            copies: granted.length,
            late: false,
            sharing: Sharing::First,
        };
        let file = self.share_as(client);
        let opened = Beside::granted(&file, &ask, granted).await?;
        Ok(Stream::of_reading(file, opened, &ask))
    }

    async fn stream_by(&self, client: &Client, ask: Ask) -> Result<Stream, Error> {
        self.behind.settle(self).await;
        let file = self.share_as(client);
        let opened = Beside::open(&file, &ask).await?;
        Ok(Stream::of_reading(file, opened, &ask))
    }

    fn share_as(&self, client: &Client) -> File {
        let mut file = self.share();
        file.client = client.clone();
        file
    }

    /// Writes from `offset` on, to be ended after `length` bytes if that is told: more is `EFBIG`, less an error at the end. An error of
    /// what was written behind is told first. `EBADF` where the file is not open for writing, `EFBIG` for what would lie behind
    /// 2^64 - 1 bytes.
    ///
    /// One that was asked for with the making of the file may have sent its first bytes already ([`Stretch::head`](super::Stretch)): they are what
    /// [`Stream::moved`] says, and only what follows them is to be written.
    pub async fn stream_write(&self, offset: u64, length: Option<u64>) -> Result<Stream, Error> {
        self.stream_to(Ask::alone(false, offset, length)).await
    }

    /// The same of `length` bytes, of whose end the server is asked at the end and not before: by [`Stream::finish`], or together with the file's close and its
    /// new name ([`File::end_and_rename`]). An error of the server is known when the connection fails by it.
    pub async fn stream_write_late(&self, offset: u64, length: u64) -> Result<Stream, Error> {
        self.stream_to(Ask { late: true, ..Ask::alone(false, offset, Some(length)) }).await
    }

    async fn stream_to(&self, ask: Ask) -> Result<Stream, Error> {
        // TLS may keep the last bytes until they are asked to leave: the server would wait for them as long as the end is put off.
        let ask = Ask { late: ask.late && !self.client.handle().dialer().is_sealed(), ..ask };
        let Ask { offset, length, .. } = ask;
        if !matches!(self.mode().access, Access::Write | Access::ReadWrite) {
            return Err(Errno::EBADF.into());
        }
        offset.checked_add(length.unwrap_or_default()).ok_or(Errno::EFBIG)?;
        self.behind.end_in_order(self).await?;
        let opened = match length.and_then(|length| self.take_granted(offset, length)) {
            Some(granted) => Beside::granted(self, &ask, granted).await?,
            None => Beside::open(self, &ask).await?,
        };
        let (way, moved) = match opened {
            Some(beside) => {
                let moved = beside.moved();
                (Way::Beside(Box::new(beside)), moved)
            }
            None => (Way::Writing(Box::new(Writing::new(self.share(), offset))), 0),
        };
        Ok(Stream { way, moved, length, buffer: BytesMut::new() })
    }
}

impl Stream {
    /// In messages where there is no data connection.
    fn of_reading(file: File, beside: Option<Beside>, ask: &Ask) -> Stream {
        let way = match beside {
            Some(beside) => Way::Beside(Box::new(beside)),
            None => Way::Reading(Box::new(Reading::new(file, ask.offset, ask.length))),
        };
        Stream { way, moved: 0, length: ask.length, buffer: BytesMut::new() }
    }

    /// Who reads takes so many bytes at a time: before the first are asked for. Where they come in messages, each is asked to end where such a
    /// piece does, so that [`Stream::next`] has none of them in two.
    pub fn read_in_steps(&mut self, bytes: u32) {
        if let Way::Reading(reading) = &mut self.way {
            reading.in_steps(bytes);
        }
    }

    /// Whether the bytes go in messages of 9P: the server has no streams, or this one could not be had.
    pub fn is_in_band(&self) -> bool {
        !matches!(self.way, Way::Beside(_))
    }

    /// The number that the file had when the stream began, which changes whenever the file does; 0 where the server cannot tell.
    pub(crate) fn modrev(&self) -> u64 {
        if let Way::Beside(beside) = &self.way { beside.modrev() } else { 0 }
    }

    /// The connection, where others may come behind it.
    pub(super) fn track(&self) -> Option<Arc<Track>> {
        if let Way::Beside(beside) = &self.way { beside.track().cloned() } else { None }
    }

    /// Whether what its end said of changes of the file was said by who knows.
    pub(crate) fn is_vouched_for(&self) -> bool {
        matches!(&self.way, Way::Beside(beside) if beside.is_vouched_for())
    }

    /// Bytes read or given to write so far.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The next bytes, at least one unless `buf` is empty; 0 at the end, if that is the end of all that was asked for. After an
    /// error it gives that error for ever. Dropped before it is done it has lost nothing. However long it is before the next call: where
    /// a server of .n1 that can tell whether the file was changed did not wait so long, another stream goes on. `EBADF` where the stream writes.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let read = loop {
            match &mut self.way {
                Way::Reading(reading) => break reading.read(buf).await?,
                Way::Writing(_) => return Err(Errno::EBADF.into()),
                Way::Beside(beside) if !beside.reads() => return Err(Errno::EBADF.into()),
                Way::Beside(beside) => match beside.read(buf).await {
                    Ok(read) => break read,
                    Err(e) => self.go_on(e).await?,
                },
            }
        };
        self.moved += read as u64;
        Ok(read)
    }

    /// The same without a copy: the bytes where they arrived; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let data = loop {
            match &mut self.way {
                Way::Reading(reading) => break reading.next().await?,
                Way::Writing(_) => return Err(Errno::EBADF.into()),
                Way::Beside(beside) if !beside.reads() => return Err(Errno::EBADF.into()),
                Way::Beside(beside) => {
                    if self.buffer.capacity() < LEAST {
                        // The bytes of a buffer that nobody has any more are used again.
                        self.buffer.reserve(CHUNK);
                    }
                    match beside.read_buf(&mut self.buffer).await {
                        Ok(0) => break None,
                        Ok(_) => break Some(self.buffer.split().freeze()),
                        Err(e) => self.go_on(e).await?,
                    }
                }
            }
        };
        self.moved += data.as_ref().map_or(0, Bytes::len) as u64;
        Ok(data)
    }

    /// Finds another way for the bytes that did not come, where there may be one.
    async fn go_on(&mut self, e: Error) -> Result<(), Error> {
        // The first of a connection by which nothing comes at all may have no way.
        let has_no_way = |beside: &Beside| !beside.is_behind() && matches!(e, Error::TimedOut(_));
        let was_asked_ahead =
            matches!(&self.way, Way::Beside(beside) if beside.was_asked_ahead() && !has_no_way(beside));
        match self.moved {
            0 if was_asked_ahead => self.begin_alone(e).await,
            0 => self.fall_back(e),
            _ => self.begin_again(e).await,
        }
    }

    /// What was before it on its connection may be what failed: it gets one of its own.
    async fn begin_alone(&mut self, e: Error) -> Result<(), Error> {
        let Way::Beside(beside) = &mut self.way else { return Err(e) };
        if !is_of_the_way(&e) {
            return Err(e);
        }
        tracing::debug!("a stream gets a connection of its own: {e}");
        let (file, modrev) = (beside.file().share(), beside.modrev());
        let unended = beside.take_unended();
        if let Some(id) = beside.id() {
            match unended {
                // Its turn has not come: the server may have much to send before it hears that.
                Some(stream) if beside.is_behind() => drop(stream),
                // What a server takes at a time may be this one.
                unended => {
                    unended.into_iter().for_each(OwnedStream::let_go);
                    give_up(&file.client, id).await;
                }
            }
        }
        let Way::Beside(beside) = &self.way else { return Err(e) };
        let ask = Ask::alone(true, beside.offset(), self.length);
        match Box::pin(Beside::open(&file, &ask)).await? {
            Some(mut next) => {
                if modrev != 0 && next.modrev() != modrev {
                    next.goes_on_behind(true);
                }
                self.way = Way::Beside(Box::new(next));
                Ok(())
            }
            // Why there is none is known, or the dialler knows: that this one failed says nothing of the way.
            None => {
                self.by_messages();
                Ok(())
            }
        }
    }

    /// A server ends a stream on which nothing moves (docs/protocol.md, "Streams"), and who takes its bytes may have taken his time: another
    /// one goes on where it ended, and tells at its end if the file is not the same. One that brought nothing is not followed by another, so that there is
    /// an end of them.
    async fn begin_again(&mut self, e: Error) -> Result<(), Error> {
        let Way::Beside(beside) = &self.way else { return Err(e) };
        let is_idle = matches!(&e, Error::Refused(said) if said.errno == Errno::ETIMEDOUT);
        if !is_idle || beside.moved() == 0 || beside.modrev() == 0 {
            return Err(e);
        }
        let (file, modrev, was_changed) = (beside.file().share(), beside.modrev(), beside.is_of_another_state());
        let offset = beside.offset().saturating_add(beside.moved());
        let left = self.length.map(|length| length.saturating_sub(self.moved));
        let ask = Ask::alone(true, offset, left);
        let Some(mut next) = Box::pin(Beside::open(&file, &ask)).await? else { return Err(e) };
        next.goes_on_behind(was_changed || next.modrev() != modrev);
        tracing::debug!("a stream goes on behind {} bytes: {e}", self.moved);
        self.way = Way::Beside(Box::new(next));
        Ok(())
    }

    /// Where nothing came of a data connection, it may be that none gets through: the same bytes in messages, whose errors are the
    /// file's own.
    fn fall_back(&mut self, e: Error) -> Result<(), Error> {
        let Way::Beside(beside) = &self.way else { return Err(e) };
        if self.moved > 0 || !is_of_the_way(&e) {
            return Err(e);
        }
        tracing::debug!("nothing came by a data connection: {e}");
        if !matches!(e, Error::Refused(_)) {
            beside.file().client.handle().dialer().give_up();
        }
        self.by_messages();
        Ok(())
    }

    /// From its beginning, of which nothing came.
    fn by_messages(&mut self) {
        if let Way::Beside(beside) = &self.way {
            let file = beside.file().share();
            self.way = Way::Reading(Box::new(Reading::new(file, beside.offset(), self.length)));
        }
    }

    /// Writes all of `data`: waits until it is on the way, not until it is written. The error may be that of an earlier write; after
    /// one nothing more is sent, and every call gives it. `EBADF` where the stream reads, `EFBIG` beyond its length: then nothing of
    /// it was sent. Dropped before it is done it may have sent a part. A server may end a stream that nothing is written to for minutes
    /// (`ETIMEDOUT`): who has nothing to write for so long ends it, and writes by another what comes later.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        self.check_length(data.len())?;
        match &mut self.way {
            Way::Reading(_) => return Err(Errno::EBADF.into()),
            Way::Writing(writing) => writing.write(Bytes::copy_from_slice(data)).await?,
            Way::Beside(beside) if beside.reads() => return Err(Errno::EBADF.into()),
            Way::Beside(beside) => beside.write(data).await?,
        }
        self.moved += data.len() as u64;
        Ok(())
    }

    /// The same without a copy.
    pub async fn write_bytes(&mut self, data: Bytes) -> Result<(), Error> {
        let Way::Writing(writing) = &mut self.way else { return self.write(&data).await };
        let bytes = data.len();
        check_length(self.moved, self.length, bytes)?;
        writing.write(data).await?;
        self.moved += bytes as u64;
        Ok(())
    }

    /// Ends it before its time. A server that writes what comes until the connection ends is not to take this for the end.
    pub(crate) fn abandon(self) {
        if let Way::Beside(beside) = self.way {
            beside.reset();
        }
    }

    /// Ends one that is read before its time: the server is told by the session, as it may not see for minutes that a connection has gone.
    pub(super) fn give_up(self) {
        if let Way::Beside(beside) = self.way {
            beside.give_up();
        }
    }

    /// Whether the server is still to be asked for its end; see [`File::stream_write_late`].
    pub fn is_late(&self) -> bool {
        matches!(&self.way, Way::Beside(beside) if beside.is_late())
    }

    /// One that was written whole and is [late](File::stream_write_late), for its end; any other is finished, and there is none.
    pub(super) async fn into_late(self) -> Result<Option<Late>, Error> {
        match self.way {
            Way::Beside(beside) if !beside.reads() => beside.into_late().await,
            way => Stream { way, ..self }.finish().await.map(|_| None),
        }
    }

    fn check_length(&self, bytes: usize) -> Result<(), Error> {
        check_length(self.moved, self.length, bytes)
    }

    /// Ends the stream, and tells how many bytes it moved; or what went wrong, here or there (sclose). Of a stream that writes all is in
    /// the file then, on the server's disk or not: [`File::sync`]. One that reads may be ended before its end.
    ///
    /// That the file was changed while it was read is [`Fault::Changed`](super::Fault::Changed), as far as the server can tell that; in
    /// messages only that it was cut is noticed.
    pub async fn finish(self) -> Result<u64, Error> {
        let moved = self.moved;
        let is_short = self.length.is_some_and(|length| moved < length);
        let written = match self.way {
            Way::Reading(reading) => return reading.finish().map(|()| moved),
            Way::Beside(beside) if beside.reads() => return beside.finish_reading().map(|()| moved),
            Way::Writing(writing) => writing.finish().await?,
            Way::Beside(beside) => beside.finish_writing().await?,
        };
        // As a server of .n1 says it.
        if is_short { Err(Errno::EPIPE.into()) } else { Ok(written) }
    }
}

/// Whether it may be that nothing gets through by a data connection.
fn is_of_the_way(e: &Error) -> bool {
    matches!(e, Error::Refused(_) | Error::TimedOut(_) | Error::Stream(Fault::Cut(_) | Fault::Short { got: 0, .. }))
}

fn check_length(moved: u64, length: Option<u64>, bytes: usize) -> Result<(), Error> {
    let end = moved.checked_add(bytes as u64).ok_or(Errno::EFBIG)?;
    if length.is_some_and(|length| end > length) { Err(Errno::EFBIG.into()) } else { Ok(()) }
}
