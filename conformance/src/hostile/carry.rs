//! The data connections of streams, between a client and the honest server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ninefold_proto::n1::stream::OPENING;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How long something is there for a client that does not come, or holds out that does not go: longer than any waits.
const LONG: Duration = Duration::from_secs(3600);

/// What becomes of the bytes.
#[derive(Debug)]
pub(super) enum Carried {
    /// They pass.
    Honestly,
    /// None passes.
    Silent,
    /// A reset behind so many in either direction, and in the place of an end.
    Reset(u64),
    /// An end behind so many from the server; the others go nowhere.
    Short(u64),
    /// These follow those of the server.
    More(&'static [u8]),
    /// These come before those of the server.
    Before(&'static [u8]),
    /// All pass, and no end.
    Unended,
    /// One from the server in each so long.
    Drip(Duration),
    /// Those of the client go nowhere, and its end is answered by one.
    Swallow,
}

/// A port for one data connection of `.s`, which leads to the honest server's.
pub(super) fn listen(honest: u16, carried: &'static Carried) -> io::Result<u16> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        let (client, _) = timeout(LONG, listener.accept()).await??;
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, honest)).await?;
        carry(client, server, carried).await
    });
    Ok(port)
}

/// A data connection of `.n1`.
pub(super) async fn introduced(mut client: TcpStream, honest: SocketAddr, carried: &Carried) -> io::Result<()> {
    let mut opening = [0; OPENING];
    client.read_exact(&mut opening).await?;
    let mut server = TcpStream::connect(honest).await?;
    server.write_all(&opening).await?;
    carry(client, server, carried).await
}

async fn carry(client: TcpStream, server: TcpStream, carried: &Carried) -> io::Result<()> {
    let is_lost = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionReset;
    if let Carried::Silent = carried {
        let _held = (client, server);
        tokio::time::sleep(LONG).await;
        return Ok(());
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let passed = match *carried {
        Carried::Reset(bytes) => {
            tokio::select! {
                _ = pass(&mut from_server, &mut to_client, bytes) => {}
                _ = pass(&mut from_client, &mut to_server, bytes) => {}
            }
            reset(to_client)?;
            return reset(to_server);
        }
        Carried::Swallow => {
            copy(&mut from_client, &mut sink()).await?;
            // The honest one is to have nothing.
            reset(to_server)?;
            return to_client.shutdown().await;
        }
        _ => {
            let down = async {
                match *carried {
                    Carried::Short(bytes) => {
                        pass(&mut from_server, &mut to_client, bytes).await?;
                        to_client.shutdown().await?;
                        copy(&mut from_server, &mut sink()).await?;
                        return Ok(());
                    }
                    Carried::Before(said) => to_client.write_all(said).await?,
                    Carried::Drip(pause) => {
                        while let Ok(byte) = from_server.read_u8().await {
                            to_client.write_u8(byte).await?;
                            tokio::time::sleep(pause).await;
                        }
                    }
                    _ => {}
                }
                copy(&mut from_server, &mut to_client).await?;
                if let Carried::More(said) = *carried {
                    to_client.write_all(said).await?;
                }
                if let Carried::Unended = carried {
                    tokio::time::sleep(LONG).await;
                }
                to_client.shutdown().await
            };
            let up = async {
                copy(&mut from_client, &mut to_server).await?;
                to_server.shutdown().await
            };
            tokio::try_join!(down, up)
        }
    };
    match passed {
        Err(e) if !is_lost(&e) => Err(e),
        Err(_) => {
            reset(to_client)?;
            reset(to_server)
        }
        Ok(_) => Ok(()),
    }
}

/// Lets a connection end in a reset when its other half is gone.
fn reset(half: OwnedWriteHalf) -> io::Result<()> {
    let lingers = half.as_ref().set_zero_linger();
    // Dropped, it would say an end first.
    half.forget();
    lingers
}

/// Passes so many bytes, or as many as come.
async fn pass(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, bytes: u64) -> io::Result<u64> {
    copy(&mut from.take(bytes), to).await
}
