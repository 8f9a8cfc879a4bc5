//! What a connection takes at once, of a peer whose connections were fast lately.

use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size_force;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::bed::{Bed, Session, opening, soon};
use crate::disk::skip;

const MORE: u32 = 1;

/// More than a connection to this machine takes at first.
const LENGTH: u64 = 7 << 19;

/// How long is waited for what is not to come.
const WHILE: Duration = Duration::from_millis(300);

/// A stream whose peer has little room, and reads nothing: what the server sends of it stays in its own connection. With less room the kernel makes records of it that are as large as it is.
async fn unread(bed: &Bed, s: &mut Session) -> TcpStream {
    let opened = s.stream_as(MORE, 1, 0, LENGTH).await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    data
}

async fn read(bed: &Bed, s: &mut Session, bytes: &[u8]) {
    let opened = s.stream_as(MORE, 1, 0, LENGTH).await.unwrap();
    let (mut data, mut got) = (bed.data(&opened.token).await, vec![0; LENGTH as usize]);
    soon("the data", data.read_exact(&mut got)).await.unwrap();
    assert!(got == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_fast_has_all_of_a_short_stream_in_its_connection_at_once() {
    let plain = TcpSocket::new_v4().unwrap();
    if set_socket_send_buffer_size_force(&plain, 4 << 20).is_err() {
        let name = "a_peer_that_was_fast_has_all_of_a_short_stream_in_its_connection_at_once";
        return skip(name, "needs CAP_NET_ADMIN, to give a connection more room than net.core.wmem_max");
    }
    let bed = Bed::new();
    let bytes = bed.file("f", LENGTH as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    // Nothing is known of it.
    let data = unread(&bed, &mut s).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(bed.server.stream_counts().completed, 0);
    drop(data);
    bed.quiet().await;
    soon("all of it in the connection", async {
        loop {
            read(&bed, &mut s, &bytes).await;
            bed.quiet().await;
            let before = bed.server.stream_counts().completed;
            let data = unread(&bed, &mut s).await;
            // How fast the one before was is known when its end has been heard.
            let is_sent = async {
                while bed.server.stream_counts().completed == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            if timeout(WHILE, is_sent).await.is_ok() {
                break;
            }
            drop(data);
            bed.quiet().await;
        }
    })
    .await;
}
