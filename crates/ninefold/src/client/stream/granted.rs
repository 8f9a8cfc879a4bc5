//! A stream that was asked for in one round trip with the open of its file, before anybody knew how long that is.
//!
//! Dropped before somebody came for its bytes, it tells the server that nobody will.

use ninefold_proto::types::StreamToken;
use ninefold_proto::{R, T};
use tokio::sync::oneshot;

use super::beside::give_up;
use crate::client::client::Client;
use crate::client::connection::Reply;
use crate::client::error::{Error, Loss};
use crate::client::node::unexpected;

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
}

impl Granted {
    pub fn new(client: &Client, offset: u64, length: u64, grant: Grant) -> Granted {
        Granted { offset, length, grant: Some(grant), client: client.clone() }
    }

    /// For who comes for it.
    pub fn take(mut self) -> Option<Grant> {
        self.grant.take()
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
