//! What a connection takes at once, of a peer whose connections were fast lately.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size_force;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::bed::{Bed, Session, opening, soon};
use crate::disk::skip;

const MORE: u32 = 1;

/// The longest stream that the server makes room for, less the kernel's own records.
const LONGEST: u64 = 14 << 20;

/// Bytes of a stream: more than Linux gives a connection by itself, whatever it remembers of its peer (tcp(7), tcp_wmem). At its beginning it gives one less, but as much where it
/// remembers that packets to that address were out of order.
fn length() -> u64 {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let most: u64 = told.split_whitespace().last().unwrap().parse().unwrap();
    (most + (1 << 20)).min(LONGEST)
}

/// How long is waited for what is not to come.
const WHILE: Duration = Duration::from_millis(300);

/// A peer that has little room: what is sent to it stays in its own connection as long as it reads nothing. With less room the kernel makes records of it that are as large as it is.
async fn peer(of: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(of).await.unwrap()
}

/// What a connection takes to such a peer that nobody has given room.
async fn plain_takes() -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _reads_nothing = peer(listener.local_addr().unwrap()).await;
    let (mut tcp, bytes) = (listener.accept().await.unwrap().0, vec![1; 64 << 10]);
    let mut all = 0;
    while let Ok(Ok(n)) = timeout(WHILE, tcp.write(&bytes)).await {
        all += n as u64;
    }
    all
}

/// A stream that is not read.
async fn unread(bed: &Bed, s: &mut Session, length: u64) -> TcpStream {
    let opened = s.stream_as(MORE, 1, 0, length).await.unwrap();
    let mut data = peer(bed.address).await;
    data.write_all(&opening(&opened.token)).await.unwrap();
    data
}

async fn read(bed: &Bed, s: &mut Session, bytes: &[u8]) {
    let opened = s.stream_as(MORE, 1, 0, bytes.len() as u64).await.unwrap();
    let (mut data, mut got) = (bed.data(&opened.token).await, vec![0; bytes.len()]);
    soon("the data", data.read_exact(&mut got)).await.unwrap();
    assert!(got == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_fast_has_all_of_a_short_stream_in_its_connection_at_once() {
    let name = "a_peer_that_was_fast_has_all_of_a_short_stream_in_its_connection_at_once";
    let (plain, length) = (TcpSocket::new_v4().unwrap(), length());
    if set_socket_send_buffer_size_force(&plain, 4 << 20).is_err() {
        return skip(name, "needs CAP_NET_ADMIN, to give a connection more room than net.core.wmem_max");
    }
    if plain_takes().await >= length {
        return skip(name, "needs a connection that does not take as much by itself (net.ipv4.tcp_wmem)");
    }
    let bed = Bed::new();
    let bytes = bed.file("f", length as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    // Nothing is known of it.
    let data = unread(&bed, &mut s, length).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(bed.server.stream_counts().completed, 0);
    drop(data);
    bed.quiet().await;
    let mut data = soon("all of it in the connection", async {
        loop {
            read(&bed, &mut s, &bytes).await;
            bed.quiet().await;
            let before = bed.server.stream_counts().completed;
            let data = unread(&bed, &mut s, length).await;
            // How fast the one before was is known when its end has been heard.
            let is_sent = async {
                while bed.server.stream_counts().completed == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            if timeout(WHILE, is_sent).await.is_ok() {
                break data;
            }
            drop(data);
            bed.quiet().await;
        }
    })
    .await;
    // Another one behind it, of as much as fits beside.
    let (before, rest) = (bed.server.stream_counts().completed, (LONGEST - length).min(length));
    if rest == 0 {
        return skip(name, "needs a connection that takes much less by itself than a server gives (net.ipv4.tcp_wmem)");
    }
    let opened = s.stream_as(MORE, 1, 0, rest).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    soon("all of the other, too", async {
        while bed.server.stream_counts().completed == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
