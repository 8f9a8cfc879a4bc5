//! The relay between two ends in memory.

use std::sync::Arc;

use ninefold_proto::print::Data;
use ninefold_proto::types::{Fid, Tag};
use ninefold_proto::{Dialect, R, T};

use super::*;
use crate::transport::{Stream, memory};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Lines {
    fn message(&self, seen: &Seen<'_>) {
        self.0.lock().unwrap().push(format!("{} {}", seen.direction.arrow(), seen.text(Data::Elided)));
    }
}

/// A client's and a server's end with a relay between them.
fn relayed(buffer: usize) -> (Stream, Stream, Lines, tokio::task::JoinHandle<io::Result<()>>) {
    let (client, from_client) = memory::pair(buffer);
    let (to_server, server) = memory::pair(buffer);
    let lines = Lines::default();
    let observer = lines.clone();
    let relay = tokio::spawn(async move { pass(from_client, to_server, &observer).await });
    (client, server, lines, relay)
}

async fn send(stream: &mut Stream, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(&mut frame);
    stream.write_all(&frame).await.unwrap();
    frame
}

async fn receive(stream: &mut Stream, frame: &[u8]) {
    let mut got = vec![0; frame.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(got, frame);
}

#[tokio::test]
async fn messages_pass_unchanged_and_the_dialect_follows_rversion() {
    let (mut client, mut server, lines, relay) = relayed(4096);
    let version = T::Version { msize: 8192, version: b"9P2000.L" };
    let sent = send(&mut client, |out| version.encode(Tag::NONE, Dialect::Plan9, out)).await;
    receive(&mut server, &sent).await;
    let version = R::Version { msize: 8192, version: b"9P2000.L" };
    let sent = send(&mut server, |out| version.encode(Tag::NONE, Dialect::Plan9, out)).await;
    receive(&mut client, &sent).await;
    // Tgetattr is .L's only, and Tattach has its number there.
    let attach = T::Attach { fid: Fid(1), afid: Fid::NONE, uname: b"ken", aname: b"", n_uname: 7 };
    let sent = send(&mut client, |out| attach.encode(Tag(0), Dialect::Linux, out)).await;
    receive(&mut server, &sent).await;
    let sent =
        send(&mut server, |out| R::Lerror { ecode: 13, retry_ms: 0, text: b"" }.encode(Tag(0), Dialect::Linux, out))
            .await;
    receive(&mut client, &sent).await;
    drop((client, server));
    relay.await.unwrap().unwrap();
    assert_eq!(
        lines.take(),
        [
            "→ Tversion tag -1 msize 8192 version '9P2000.L'",
            "← Rversion tag -1 msize 8192 version '9P2000.L'",
            "→ Tattach tag 0 fid 1 afid -1 uname 'ken' aname '' n_uname 7",
            "← Rlerror tag 0 ecode 13",
        ]
    );
}

#[tokio::test]
async fn garbage_passes_and_is_shown_raw() {
    let (mut client, mut server, lines, _relay) = relayed(4096);
    client.write_all(&[3, 0, 0, 0, 1, 2]).await.unwrap();
    receive(&mut server, &[3, 0, 0, 0, 1, 2]).await;
    assert_eq!(lines.take(), ["→ raw 0x030000000102... (6 bytes)"]);
}

#[tokio::test]
async fn the_end_of_one_way_is_passed_on_and_the_other_way_goes_on() {
    let (mut client, mut server, _lines, relay) = relayed(4096);
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
    let sent = send(&mut server, |out| R::Clunk {}.encode(Tag(1), Dialect::Linux, out)).await;
    receive(&mut client, &sent).await;
    assert!(!relay.is_finished());
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    relay.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_reader_that_stops_makes_the_writer_wait() {
    const BUFFER: usize = 4096;
    let (mut client, mut server, _lines, _relay) = relayed(BUFFER);
    let chunk = [0xff; BUFFER];
    let mut accepted = 0;
    // Nobody reads: what two buffers and the relay's own hold is taken, then no more.
    let stuck = async {
        loop {
            accepted += client.write(&chunk).await.unwrap();
            assert!(accepted <= 2 * BUFFER + CHUNK, "the relay holds more than its buffer");
        }
    };
    // The bound is what is asserted; the timer only ends the wait of a writer that rightly waits.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), stuck).await.is_err());
    let mut got = vec![0; accepted];
    server.read_exact(&mut got).await.unwrap();
    assert!(got.iter().all(|&b| b == 0xff));
}

#[tokio::test]
async fn every_client_gets_a_connection_of_its_own() {
    let listen = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let serve = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listen.local_address().unwrap();
    let server = serve.local_address().unwrap();
    let numbers = Mutex::new(Vec::new());
    let relay = async {
        run(&listen, server, |number, _| {
            numbers.lock().unwrap().push(number);
            Lines::default()
        })
        .await
    };
    let talk = async {
        for byte in [1, 2] {
            let mut client = transport::dial(&address).await.unwrap();
            let (mut server, _) = serve.accept().await;
            client.write_all(&[byte]).await.unwrap();
            receive(&mut server, &[byte]).await;
        }
    };
    tokio::select! { _ = relay => unreachable!(), _ = talk => {} }
    assert_eq!(numbers.into_inner().unwrap(), [1, 2]);
}
