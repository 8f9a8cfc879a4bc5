//! Streams of exported files, passed on by streams of the servers that have them: [`Incoming`] is read, [`Outgoing`] is written.
//!
//! Where a server has no streams, or has none left, there is no conduit (EOPNOTSUPP), and messages have the bytes; so it is with a
//! file that [is ordered](client::File::is_ordered), whose bytes may be long in coming and come once.

use std::sync::Arc;

use bytes::Bytes;
use ninefold_proto::{Errno, Error};

use super::super::Error as NsError;
use super::told;
use crate::client::{self, Fault, Stream};
use crate::server::{Conveyed, Seen, Sink, Source};

pub(super) struct Incoming {
    stream: Stream,
    /// All of it came, and the server said that the file was changed meanwhile.
    is_changed: bool,
}

impl Incoming {
    pub async fn open(file: &client::File, offset: u64, length: Option<u64>) -> Result<Incoming, NsError> {
        if !file.client().has_streams() || file.is_ordered() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let stream = file.stream_read(offset, length).await?;
        if stream.is_in_band() { Err(Errno::EOPNOTSUPP.into()) } else { Ok(Incoming { stream, is_changed: false }) }
    }
}

impl Source for Incoming {
    fn next(&mut self) -> Conveyed<'_, Option<Bytes>> {
        Box::pin(async {
            match self.stream.next().await {
                Err(client::Error::Stream(Fault::Changed)) => {
                    self.is_changed = true;
                    Ok(None)
                }
                next => next.map_err(failed),
            }
        })
    }

    fn finish(self: Box<Self>) -> Conveyed<'static, Seen> {
        Box::pin(async move {
            let Incoming { stream, is_changed } = *self;
            let could_tell = stream.modrev() != 0;
            let seen = if could_tell && !stream.is_vouched_for() { Seen::Unknown } else { Seen::Unchanged };
            match stream.finish().await {
                Err(client::Error::Stream(Fault::Changed)) => Ok(Seen::Changed),
                Err(e) => Err(failed(e)),
                Ok(_) if is_changed => Ok(Seen::Changed),
                Ok(_) => Ok(seen),
            }
        })
    }
}

pub(super) struct Outgoing {
    /// `None`: it was finished.
    stream: Option<Stream>,
    /// What is written is to be on disk before it is told.
    synced: Option<Arc<client::File>>,
}

impl Outgoing {
    pub async fn open(
        file: Arc<client::File>,
        synced: bool,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Outgoing, NsError> {
        // A server of .s does not tell how a write ended. Where the server chooses the place, piece goes behind piece.
        let tells = file.client().has_streams() && file.client().version().is_n1();
        if !tells || file.appends() || file.is_ordered() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let stream = file.stream_write(offset, length).await?;
        if stream.is_in_band() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        Ok(Outgoing { stream: Some(stream), synced: synced.then_some(file) })
    }
}

impl Sink for Outgoing {
    fn write(&mut self, bytes: Bytes) -> Conveyed<'_, ()> {
        Box::pin(async move {
            let stream = self.stream.as_mut().ok_or(Errno::EBADF)?;
            stream.write_bytes(bytes).await.map_err(failed)
        })
    }

    fn finish(mut self: Box<Self>) -> Conveyed<'static, u64> {
        Box::pin(async move {
            let stream = self.stream.take().ok_or(Errno::EBADF)?;
            let written = stream.finish().await.map_err(failed)?;
            if let Some(file) = &self.synced {
                file.sync().await.map_err(failed)?;
            }
            Ok(written)
        })
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.abandon();
        }
    }
}

/// What went wrong on the way to the server that has the file: to whoever asked for the stream that is the file's, and no fault of his own connection,
/// which he would try in another way, or as often as its silence ended it, nor a word of his own server, which would have him ask again.
fn failed(error: client::Error) -> Error {
    match error.errno() {
        Errno::ECONNRESET
        | Errno::EPIPE
        | Errno::ETIMEDOUT
        | Errno::EINTR
        | Errno::EAGAIN
        | Errno::ETRYLATER
        | Errno::ECANCELED => Error::with_text(Errno::EIO, format!("the server that has the file: {error}")),
        _ => told(error),
    }
}
