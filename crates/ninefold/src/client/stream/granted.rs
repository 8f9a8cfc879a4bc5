//! A stream that was asked for in one round trip with the open of its file, before anybody knew how long that is, or with its making.
//!
//! Dropped before somebody came for its bytes, it tells the server that nobody will.

use std::io;

use ninefold_proto::n1::stream;
use ninefold_proto::types::StreamToken;
use ninefold_proto::{R, T};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::beside::give_up;
use super::track::{PATIENCE, opening};
use crate::client::client::Client;
use crate::client::connection::Reply;
use crate::client::error::{Error, Loss};
use crate::client::node::unexpected;
use crate::client::root::random;
use crate::transport::Stream as Socket;

/// What the server says to a Tstream of `.n1`.
#[derive(Clone, Debug)]
pub(in crate::client) struct Grant {
    pub id: u32,
    pub token: StreamToken,
    pub modrev: u64,
    /// Where its data connection goes if not to where the session's does.
    pub elsewhere: bool,
}

impl Grant {
    pub fn read(reply: Reply) -> Result<Grant, Error> {
        match reply.message()? {
            R::Stream { id, token, modrev, addr, .. } => Ok(Grant { id, token, modrev, elsewhere: !addr.is_empty() }),
            _ => Err(unexpected()),
        }
    }
}

/// Sends a Tstream. Where nobody waits for the reply any more, the stream that it brings is given up: its Tflush may come too late.
pub(super) async fn ask(client: &Client, request: T<'static>) -> Result<Reply, Error> {
    let (client, (tell, told)) = (client.clone(), oneshot::channel());
    tokio::spawn(async move {
        let reply = client.call(request).await;
        if let Err(Ok(reply)) = tell.send(reply)
            && let Ok(R::Stream { id, .. }) = reply.message()
        {
            give_up(&client, id).await;
        }
    });
    // The task ends without a word only with its runtime.
    told.await.unwrap_or(Err(Error::Lost(Loss::Closed)))
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::client) struct Granted {
    pub offset: u64,
    pub length: u64,
    grant: Option<Grant>,
    client: Client,
    saying: Option<Saying>,
}

impl Granted {
    pub fn new(client: &Client, (offset, length): (u64, u64), grant: Grant, saying: Option<Saying>) -> Granted {
        Granted { offset, length, grant: Some(grant), client: client.clone(), saying }
    }

    /// The connection on which its token was said, if it was said before. Dropped before it is done it gives up the stream.
    pub(super) async fn said(&mut self) -> Option<io::Result<Socket>> {
        let (saying, grant) = (self.saying.as_mut()?, self.grant.as_ref()?);
        if saying.token != grant.token {
            return Some(Err(io::Error::other("the server has another token for the stream")));
        }
        Some(saying.said().await)
    }

    /// For who comes for it.
    pub fn take(mut self) -> Option<Grant> {
        self.grant.take()
    }
}

/// A token of our own that is said on a data connection, as soon as there is one, while the Tstream that has it is on its way. Dropped, the
/// connection is closed, unless somebody took it.
#[derive(Debug)]
pub(in crate::client) struct Saying {
    pub token: StreamToken,
    task: AbortOnDropHandle<io::Result<Socket>>,
}

impl Saying {
    pub fn begin(client: &Client) -> Result<Saying, Error> {
        let (token, dialer) = (StreamToken(random()?), client.handle().dialer().clone());
        let said = async move {
            let mut socket = dialer.open().await?;
            let say = async {
                socket.write_all(&opening(stream::PREFACE_OWN, &token)).await?;
                socket.flush().await
            };
            tokio::time::timeout(PATIENCE, say).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            Ok(socket)
        };
        Ok(Saying { token, task: AbortOnDropHandle::new(tokio::spawn(said)) })
    }

    async fn said(&mut self) -> io::Result<Socket> {
        (&mut self.task).await.unwrap_or_else(|e| Err(io::Error::other(e)))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let (Some(grant), Ok(runtime)) = (self.grant.take(), tokio::runtime::Handle::try_current()) {
            let client = self.client.clone();
            runtime.spawn(async move { give_up(&client, grant.id).await });
        }
    }
}
