//! A stream that was asked for in one round trip with the open of its file, before anybody knew how long that is, or with its making.
//!
//! Dropped before somebody came for its bytes, it tells the server that nobody will.

use std::io;

use bytes::Bytes;
use ninefold_proto::R;
use ninefold_proto::n1::stream;
use ninefold_proto::stream::StreamAddress;
use ninefold_proto::types::StreamToken;
use tokio::io::AsyncWriteExt;
use tokio_util::task::AbortOnDropHandle;

use super::track::{PATIENCE, opening};
use crate::client::client::Client;
use crate::client::connection::Reply;
use crate::client::error::{Error, Suspicion};
use crate::client::metadata::Metadata;
use crate::client::node::unexpected;
use crate::client::owned_stream::OwnedStream;
use crate::client::root::random;
use crate::transport::Stream as Socket;

/// What the server says to a Tstream of `.n1`. Dropped, it gives the stream up.
#[derive(Debug)]
pub(in crate::client) struct Grant {
    pub stream: OwnedStream,
    pub token: StreamToken,
    pub modrev: u64,
    /// From where on in the file, and how many bytes; 0: up to its end.
    pub part: (u64, u64),
    /// Host and port of its data connection, if that does not go to where the session's does.
    pub elsewhere: Option<(String, u16)>,
}

impl Grant {
    pub fn read(mut reply: Reply) -> Result<Grant, Error> {
        let stream = reply.stream.take().ok_or_else(unexpected)?;
        match reply.message()? {
            R::Stream { token, modrev, offset, length, addr, .. } => {
                let elsewhere = StreamAddress::parse(addr).map(|address| (address.host.to_owned(), address.port));
                Ok(Grant { stream, token, modrev, part: (offset, length), elsewhere })
            }
            _ => Err(unexpected()),
        }
    }

    /// It is of the part that was asked for, as every one is but a share.
    pub fn of(self, part: (u64, u64)) -> Result<Grant, Error> {
        let (offset, length) = self.part;
        match self.part == part {
            true => Ok(self),
            false => Err(Suspicion::StreamPart { offset, length }.into()),
        }
    }

    /// The same of one that may be a share of a short file instead.
    pub fn of_or_share(self, part: (u64, u64)) -> Result<Grant, Error> {
        let (offset, length) = self.part;
        let is_share = length > 0 && offset.checked_add(length).is_some_and(|end| end <= stream::LONG);
        if is_share { Ok(self) } else { self.of(part) }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::client) struct Granted {
    pub offset: u64,
    pub length: u64,
    /// What comes are pages of the file, not copies.
    pub is_lent: bool,
    pub grant: Grant,
    saying: Option<Saying>,
}

impl Granted {
    /// Of the part that the server told, which has a length.
    pub fn new(grant: Grant, saying: Option<Saying>) -> Granted {
        let (offset, length) = grant.part;
        Granted { offset, length, is_lent: false, grant, saying }
    }

    /// The connection on which its token was said, if it was said before, and how many bytes behind that.
    pub(super) async fn said(&mut self) -> Option<io::Result<(Socket, u64)>> {
        let saying = self.saying.as_mut()?;
        if saying.token != self.grant.token {
            return Some(Err(io::Error::other("the server has another token for the stream")));
        }
        Some(saying.said().await)
    }
}

/// Those of one file.
#[derive(Debug, Default)]
pub(in crate::client) struct Grants {
    pub streams: Vec<Granted>,
    /// The file as it was when all of them had begun, where that was looked at. Boxed, as every file has room for it.
    pub looked: Option<Box<Metadata>>,
}

/// A token of our own that is said on a data connection, as soon as there is one, while the Tstream that has it is on its way; and behind it the first
/// bytes of what is written, as many as one step of a socket takes (64 KiB at most). Dropped, the connection is closed, unless somebody took it.
#[derive(Debug)]
pub(in crate::client) struct Saying {
    pub token: StreamToken,
    task: AbortOnDropHandle<io::Result<(Socket, u64)>>,
}

impl Saying {
    /// `head`: the first bytes of a stream that writes; none of one that reads.
    pub fn begin(client: &Client, head: Bytes) -> Result<Saying, Error> {
        let (token, dialer) = (StreamToken(random()?), client.handle().dialer().clone());
        let said = async move {
            let mut socket = dialer.open().await?;
            let say = async {
                socket.write_all(&opening(stream::PREFACE_OWN, &token)).await?;
                if head.is_empty() {
                    return socket.flush().await.map(|()| 0);
                }
                // Where nobody comes for it, the server learns that at once although bytes lie behind the token.
                socket.reset_on_close();
                let sent = socket.write_in_step(&head).await?;
                socket.flush().await.map(|()| sent as u64)
            };
            let said = tokio::time::timeout(PATIENCE, say).await;
            let sent = said.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            Ok((socket, sent))
        };
        Ok(Saying { token, task: AbortOnDropHandle::new(tokio::spawn(said)) })
    }

    async fn said(&mut self) -> io::Result<(Socket, u64)> {
        let said = (&mut self.task).await.unwrap_or_else(|e| Err(io::Error::other(e)));
        said.inspect(|(socket, _)| socket.end_on_close())
    }
}
