//! Streams whose program takes longer over their bytes than the server waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::client::{Client, Error, Fault, Follow, Mode, Options, Stream};
use ninefold::proto::dialect::Version;
use ninefold::server::{Server, StreamLimits};
use ninefold::transport::{Listener, dial};
use ninefold::tree::hostfs::HostFs;
use tokio::time::timeout;

use crate::fake::content;
use crate::support::over;

/// More than all sockets on the way hold.
const SIZE: usize = 64 << 20;

/// The bound of waits that ought to end soon; time is real.
const SOON: Duration = Duration::from_secs(60);

/// A directory with the file `f`, and a server that does not wait long for who reads it.
struct Scene {
    dir: tempfile::TempDir,
    server: Arc<Server>,
    client: Client,
}

impl Scene {
    async fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), content(0, SIZE)).unwrap();
        let limits = StreamLimits { idle: Duration::from_millis(200), ..StreamLimits::default() };
        let export = Arc::new(HostFs::open(dir.path()).unwrap());
        let server = Server::builder().export("", export, false).streams(limits).build();
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(serving.serve(stream, peer));
            }
        });
        let client = over(dial(&address).await.unwrap(), Version::N1, Options::default()).await;
        Scene { dir, server, client }
    }

    /// A stream from `offset` on whose first bytes were taken, and which the server has ended by now.
    async fn left(&self, offset: u64, length: Option<u64>) -> (Stream, Bytes) {
        let file = self.client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
        let mut stream = file.stream_read(offset, length).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        let ended = async {
            while self.server.stream_counts().failed == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, ended).await.expect("its end in time");
        (stream, first)
    }
}

async fn rest(stream: &mut Stream, first: Bytes) -> Result<Bytes, Error> {
    let mut all = BytesMut::from(first);
    while let Some(data) = timeout(SOON, stream.next()).await.expect("bytes in time")? {
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

#[tokio::test]
async fn a_stream_that_the_server_has_ended_for_want_of_a_reader_goes_on_by_another() {
    for (offset, length) in [(0, None), (17, Some(SIZE as u64 - 100))] {
        let scene = Scene::new().await;
        let (mut stream, first) = scene.left(offset, length).await;
        let all = rest(&mut stream, first).await.unwrap();
        assert!(all == content(offset, length.map_or(SIZE, |length| length as usize)));
        assert!(!stream.is_in_band());
        assert_eq!(stream.finish().await.unwrap(), all.len() as u64);
        assert!(scene.client.stats().messages["Tstream"] >= 2);
    }
}

#[tokio::test]
async fn it_does_not_go_on_in_a_file_that_was_changed_meanwhile() {
    let scene = Scene::new().await;
    let (mut stream, first) = scene.left(0, None).await;
    let file = std::fs::File::options().write(true).open(scene.dir.path().join("f")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"another", SIZE as u64 - 10).unwrap();
    let error = rest(&mut stream, first).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Changed)), "{error}");
}
