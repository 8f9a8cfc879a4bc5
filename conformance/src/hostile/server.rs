//! A server that plays one misbehaviour.

use std::io;
use std::sync::Arc;

use ninefold::server::{Server, ServerBuilder};
use ninefold::transport::{Peer, Stream, memory};
use ninefold_proto::Dialect;

use super::misbehaviour::{Hook, Misbehaviour};
use super::{relay, tree};

/// Bytes each way between relay and honest server: a frame of 1 MiB, which clients ask for, passes in one piece.
const BUFFER: usize = 1 << 20;

/// Serves the [`tree`] and plays one misbehaviour on every connection. All connections see the same files.
#[derive(Debug)]
pub struct Hostile {
    misbehaviour: &'static Misbehaviour,
    honest: Arc<Server>,
}

impl Hostile {
    /// A server that has nobody connected yet.
    pub async fn new(misbehaviour: &'static Misbehaviour) -> io::Result<Hostile> {
        let extra: &[&[u8]] = match misbehaviour.hook {
            Hook::Names(names) => names,
            _ => &[],
        };
        let mut honest: ServerBuilder = Server::builder();
        for dialect in [Dialect::Plan9, Dialect::Linux] {
            let tree = tree::grow(dialect != Dialect::Plan9, extra).await.map_err(io::Error::other)?;
            honest = honest.export(tree::name_for(dialect), Arc::new(tree), false);
        }
        Ok(Hostile { misbehaviour, honest: honest.build() })
    }

    /// Serves one connection to its end. An error says why it ended before the client wanted.
    pub async fn serve(&self, client: Stream) -> io::Result<()> {
        let (near, far) = memory::pair(BUFFER);
        let ((), ended) =
            tokio::join!(self.honest.serve(far, Peer::Memory), relay::join(client, near, &self.misbehaviour.hook));
        ended
    }

    /// Serves one connection without misbehaving: for looking at what a client did to the files.
    pub async fn serve_honestly(&self, client: Stream) {
        // The same relay, because it knows which tree a dialect has.
        let (near, far) = memory::pair(BUFFER);
        let ((), _) = tokio::join!(self.honest.serve(far, Peer::Memory), relay::join(client, near, &Hook::Tree));
    }
}
