//! Groups of requests over files of the host, on one connection.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ninefold::proto::Dialect;
use ninefold::proto::print::{Data, parse, print};
use ninefold::server::Server;
use ninefold::transport::{Peer, Stream};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The bound of a wait that ought to end soon.
const SOON: Duration = Duration::from_secs(60);

/// Bytes that may be under way each way: all that a test sends.
const UNDER_WAY: usize = 1 << 20;

async fn send(stream: &mut DuplexStream, line: &str) {
    let frame = parse(line, Dialect::Plan9).unwrap();
    tokio::time::timeout(SOON, stream.write_all(&frame)).await.unwrap().unwrap();
}

async fn receive(stream: &mut DuplexStream) -> String {
    let mut frame = vec![0; 4];
    tokio::time::timeout(SOON, stream.read_exact(&mut frame)).await.expect("no reply").unwrap();
    frame.resize(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, 0);
    tokio::time::timeout(SOON, stream.read_exact(&mut frame[4..])).await.expect("half a reply").unwrap();
    print(&frame, Dialect::Plan9, Data::Elided).to_string()
}

async fn ask(stream: &mut DuplexStream, line: &str) -> String {
    send(stream, line).await;
    receive(stream).await
}

#[tokio::test]
async fn a_read_of_an_empty_pipe_costs_no_other_group_its_members() {
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let server = Server::builder().export("", Arc::new(HostFs::open(dir.path()).unwrap()), false).build();
    let (mut c, far) = tokio::io::duplex(UNDER_WAY);
    let served = tokio::spawn(server.serve(Stream::other(far), Peer::Stdio));
    ask(&mut c, "Tversion tag -1 msize 65536 version '9P2000.ix'").await;
    ask(&mut c, "Tattach tag 1 fid 0 afid -1 uname '' aname ''").await;
    ask(&mut c, "Twalk tag 1 fid 0 newfid 1 nwname 1 0:pipe").await;
    assert!(ask(&mut c, "Topen tag 1 fid 1 mode 2").await.starts_with("Ropen"));
    send(&mut c, "Tread tag 3 fid 1 offset 0 count 5").await;
    assert!(ask(&mut c, "Tstat tag 4 fid 0").await.starts_with("Rstat tag 4"));

    for n in 0..100 {
        send(&mut c, "Twalk tag 6 fid 0 newfid 2 nwname 0").await;
        send(&mut c, &format!("Tcreate tag 6 fid 2 name 'f{n}' perm 420 mode 1")).await;
        send(&mut c, "Twrite tag 6 fid 2 offset 0 count 5 'bytes'").await;
        send(&mut c, "Tclunk tag 6 fid 2").await;
    }
    for n in 0..100 {
        for kind in ["Rwalk", "Rcreate", "Rwrite", "Rclunk"] {
            let reply = receive(&mut c).await;
            assert!(reply.starts_with(&format!("{kind} tag 6")), "{n}: {reply} for {kind}");
        }
        assert_eq!(fs::read(dir.path().join(format!("f{n}"))).unwrap(), b"bytes");
    }
    assert_eq!(ask(&mut c, "Tflush tag 5 oldtag 3").await, "Rflush tag 5", "the read still waited");
    drop(c);
    tokio::time::timeout(SOON, served).await.unwrap().unwrap();
}
