//! A server that exports a composed name space streams files that are another server's.

use std::sync::Arc;

use ninefold::client::Options;
use ninefold::ns::export::NsFs;
use ninefold::ns::{Flags, Namespace, Order};
use ninefold::server::Server;
use ninefold::transport::Listener;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bed::{Bed, Session, all, noise, opening};

#[tokio::test(flavor = "multi_thread")]
async fn a_name_space_streams_the_files_of_its_servers() {
    let far = Bed::new();
    let bytes = far.file("f", 5_000_011);
    let ns = Namespace::new(Options::default());
    let address = format!("9p://{}?aname=host", far.address).parse().unwrap();
    ns.mount(&address, "/", (Order::Replace, Flags { create: true, ..Flags::default() })).await.unwrap();
    let server = Server::builder().export("", Arc::new(NsFs::new(ns)), false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let near = listener.local_address().unwrap().to_string();
    let near: std::net::SocketAddr = near.trim_start_matches("9p://").trim_end_matches('/').parse().unwrap();
    let serving = server.clone();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await;
            tokio::spawn(serving.serve(stream, peer));
        }
    });

    let mut s = Session::open(TcpStream::connect(near).await.unwrap(), "9P2000.L.n1", "").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 11, 0).await.unwrap();
    let mut data = TcpStream::connect(near).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    assert!(all(&mut data).await.unwrap() == bytes[11..]);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64 - 11);

    let new = noise(3_000_001);
    s.create(2, "g").await;
    let opened = s.stream(2, false, 0, new.len() as u64).await.unwrap();
    let mut data = TcpStream::connect(near).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    data.write_all(&new).await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, new.len() as u64);
    assert_eq!(s.ask("Tclunk tag 1 fid 2").await, "Rclunk tag 1");
    assert!(std::fs::read(far.path("g")).unwrap() == new);
}
