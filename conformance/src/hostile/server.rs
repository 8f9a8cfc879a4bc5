//! A server that plays one misbehaviour.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ninefold::server::{Server, ServerBuilder};
use ninefold::transport::{Address, Listener, Peer, Stream, memory};
use ninefold_proto::Dialect;
use ninefold_proto::n1::stream::PREFACE;
use tokio::net::TcpStream;

use super::misbehaviour::{Hook, Misbehaviour};
use super::{carry, relay, tree};

/// Bytes each way between relay and honest server: a frame of 1 MiB, which clients ask for, passes in one piece.
const BUFFER: usize = 1 << 20;

/// Serves the [`tree`] and plays one misbehaviour on every connection. All connections see the same files.
#[derive(Debug)]
pub struct Hostile {
    misbehaviour: &'static Misbehaviour,
    honest: Arc<Server>,
    /// Where the honest server listens, for what is done on TCP.
    port: Option<SocketAddr>,
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
        let honest = honest.build();
        let port = match misbehaviour.hook {
            Hook::Stream(_) => Some(listen(honest.clone()).await?),
            _ => None,
        };
        Ok(Hostile { misbehaviour, honest, port })
    }

    /// Serves one connection to its end. An error says why it ended before the client wanted.
    pub async fn serve(&self, client: Stream) -> io::Result<()> {
        if let (Some(port), Hook::Stream(trick)) = (self.port, &self.misbehaviour.hook) {
            return match client {
                Stream::Tcp(client) if is_data(&client).await? => carry::introduced(client, port, &trick.carried).await,
                client => relay::join(client, TcpStream::connect(port).await?.into(), &self.misbehaviour.hook).await,
            };
        }
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

/// Lets the honest server take connections by itself.
async fn listen(honest: Arc<Server>) -> io::Result<SocketAddr> {
    let listener = Listener::bind(&Address::tcp((Ipv4Addr::LOCALHOST, 0).into())).await?;
    let port = listener.local_address()?;
    let port = port.to_string().trim_start_matches("9p://").trim_end_matches('/').parse().map_err(io::Error::other)?;
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await;
            tokio::spawn(honest.serve(stream, peer));
        }
    });
    Ok(port)
}

/// Whether a connection begins as one of data does, as far as it takes to tell that from a Tversion.
async fn is_data(client: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    // A client says more than one byte at a time.
    let n = client.peek(&mut first).await?;
    Ok(n > 1 && PREFACE.starts_with(&first[..n]))
}
