//! Streams over data connections, with a server that speaks the opening by hand and misbehaves as it is told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::client::{Client, Error, Fault, File, Follow, Mode, Options, Stream};
use ninefold::proto::dialect::Version;
use ninefold::proto::message::{LongStr, Octal};
use ninefold::proto::n1::{stream, streamend};
use ninefold::proto::types::StreamToken;
use ninefold::proto::{Errno, R, T, Tag};
use ninefold::transport::{Address, dial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::fake::{self, Replies, content};
use crate::support::over;

const SIZE: u64 = 3_000_001;
const TOKEN: StreamToken = StreamToken(*b"sixteen-secrets.");
const MODREV: u64 = 7;

/// The bound of waits that ought to end at once; time is real.
const SOON: Duration = Duration::from_secs(30);

/// What the server does with a data connection, or before there is one.
#[derive(Clone, Debug)]
enum Deed {
    /// All as it should be.
    Honest,
    /// Sends or takes so many bytes less or more than it says.
    Counts(i64),
    /// Sends so many bytes and closes, though it says nothing of the end.
    Cuts(usize),
    /// Sends so many and then resets the connection.
    Resets(usize),
    /// Goes on behind the length.
    Overflows,
    /// The file's number at the end is another.
    Changes,
    /// After so many bytes the end is an error, and the connection is closed.
    Fails(usize, Errno),
    /// Takes the connection and says nothing, ever.
    Silent,
    /// Has no streams after all.
    Refuses,
    /// Names an address that is not its own.
    Elsewhere,
    /// Takes no question that waits.
    Crowded,
    /// Says how it ended so long behind its connection's end.
    Late(Duration),
    /// Says how it ended when it is asked for something else behind that, so many times.
    Reminded(usize),
}

/// How the stream ended, and who asked for it.
#[derive(Default)]
struct Ending {
    how: Option<Result<(u64, u64), Errno>>,
    asked: Option<(Replies, Tag)>,
    asked_before: bool,
    /// Of the last Tstream.
    span: (u64, u64, bool),
    aborted: bool,
    /// It is held back until so many requests behind the question have come.
    reminders: usize,
    /// What is answered behind it.
    behind: Vec<R<'static>>,
}

impl Ending {
    fn is_asked_by(&self, tag: Tag) -> bool {
        self.asked.as_ref().is_some_and(|(_, asked)| *asked == tag)
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Ending>>);

impl Shared {
    fn end(&self, how: Result<(u64, u64), Errno>) {
        self.0.lock().unwrap().how = Some(how);
        self.settle();
    }

    fn settle(&self) {
        let mut ending = self.0.lock().unwrap();
        if let (Some(how), true, 0) = (ending.how, ending.asked.is_some(), ending.reminders) {
            let (replies, tag) = ending.asked.take().unwrap();
            match how {
                Ok((count, modrev)) => replies.send(tag, R::Streamend { count, modrev }),
                Err(errno) => replies.error(tag, errno),
            }
            for reply in ending.behind.drain(..) {
                replies.send(tag, reply);
            }
        }
    }
}

struct Scene {
    client: Client,
    address: SocketAddr,
    shared: Shared,
    /// Connections that came with the opening.
    data: Arc<AtomicUsize>,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl Scene {
    async fn of(version: Version, deed: Deed) -> Scene {
        let options = Options { timeout: Some(Duration::from_secs(5)), ..Options::default() };
        Scene::with(version, deed, options).await
    }

    async fn with(version: Version, deed: Deed, options: Options) -> Scene {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shared, data, taken) =
            (Shared::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let server = (deed, shared.clone(), data.clone(), taken.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(connection(socket, server.clone()));
            }
        });
        let client = over(dial(&Address::tcp(address)).await.unwrap(), version, options).await;
        Scene { client, address, shared, data, taken }
    }

    async fn open(&self, mode: Mode) -> File {
        self.client.walk("/f", Follow::All).await.unwrap().open(mode).await.unwrap()
    }

    /// Reads all of it.
    async fn read(&self, offset: u64, length: Option<u64>) -> Result<(Bytes, bool), Error> {
        let stream = self.open(Mode::READ).await.stream_read(offset, length).await?;
        timeout(SOON, read_all(stream)).await.expect("an end in time")
    }

    async fn write(&self, data: Bytes, length: Option<u64>) -> Result<u64, Error> {
        let write = async {
            let mut stream = self.open(Mode::WRITE).await.stream_write(5, length).await?;
            for piece in data.chunks(70_000) {
                stream.write(piece).await?;
            }
            stream.finish().await
        };
        timeout(SOON, write).await.expect("an end in time")
    }
}

/// The bytes, and whether they came in messages.
async fn read_all(mut stream: Stream) -> Result<(Bytes, bool), Error> {
    let mut all = BytesMut::new();
    while let Some(data) = stream.next().await? {
        all.extend_from_slice(&data);
    }
    let in_band = stream.is_in_band();
    assert_eq!(stream.finish().await?, all.len() as u64);
    Ok((all.freeze(), in_band))
}

type Server = (Deed, Shared, Arc<AtomicUsize>, Arc<Mutex<Vec<u8>>>);

async fn connection(mut socket: TcpStream, (deed, shared, data, taken): Server) {
    let mut first = [0; 8];
    while socket.peek(&mut first).await.unwrap_or(0) < 8 {
        let mut none = [0; 1];
        // One that ends before it says anything.
        if socket.peek(&mut none).await.unwrap_or(0) == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    if first == stream::PREFACE {
        let mut opening = [0; stream::OPENING];
        socket.read_exact(&mut opening).await.unwrap();
        assert_eq!(opening[8..], TOKEN.0);
        data.fetch_add(1, Ordering::Relaxed);
        return carry(socket, deed, shared, taken).await;
    }
    let local = socket.local_addr().unwrap();
    fake::serve(socket.into(), SIZE, move |replies, tag, request| match *request {
        T::Stream { .. } if matches!(deed, Deed::Refuses) => false,
        T::Stream { flags, isread, offset, length, .. } => {
            assert!(flags == Octal(0) && isread < 2);
            let mut ending = shared.0.lock().unwrap();
            let reminders = if let Deed::Reminded(times) = deed { times } else { 0 };
            *ending = Ending { span: (offset, length, isread == 1), reminders, ..Ending::default() };
            if !replies.is_n1() {
                port(replies.clone(), tag, local, (deed.clone(), shared.clone(), data.clone(), taken.clone()));
                return true;
            }
            let addr: &[u8] = if matches!(deed, Deed::Elsewhere) { b"tcp!192.0.2.1!80" } else { b"" };
            let (data, id, token, modrev) = (LongStr(b""), 3, TOKEN, MODREV);
            replies.send(tag, R::Stream { data, id, token, modrev, offset, length, addr });
            true
        }
        T::Streamend { id, flags } => {
            assert_eq!(id, 3);
            let mut ending = shared.0.lock().unwrap();
            if flags.0 & streamend::ABORT != 0 {
                ending.aborted = true;
                replies.error(tag, Errno::ECANCELED);
                return true;
            }
            if matches!(deed, Deed::Crowded) && !std::mem::replace(&mut ending.asked_before, true) {
                replies.error(tag, Errno::EAGAIN);
                return true;
            }
            ending.asked = Some((replies.clone(), tag));
            drop(ending);
            shared.settle();
            true
        }
        T::Flush { .. } => {
            let mut ending = shared.0.lock().unwrap();
            if ending.how.is_some() {
                ending.reminders = ending.reminders.saturating_sub(1);
            }
            drop(ending);
            shared.settle();
            false
        }
        T::Guard { .. } => {
            replies.send(tag, R::Guard {});
            true
        }
        // Behind the question, in its group.
        T::Clunk { .. } | T::Renameat { .. } if shared.0.lock().unwrap().is_asked_by(tag) => {
            let reply = if matches!(request, T::Clunk { .. }) { R::Clunk {} } else { R::Renameat {} };
            shared.0.lock().unwrap().behind.push(reply);
            true
        }
        _ => false,
    });
}

/// A port for one stream of `.s`.
fn port(replies: Replies, tag: Tag, mut at: SocketAddr, server: Server) {
    tokio::spawn(async move {
        at.set_port(0);
        let listener = TcpListener::bind(at).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = if matches!(server.0, Deed::Elsewhere) { "127.0.0.2".to_owned() } else { at.ip().to_string() };
        let text = format!("tcp!{host}!{port}");
        let data = LongStr(text.as_bytes());
        let (id, token, modrev, offset, length) = (0, StreamToken([0; 16]), 0, 0, 0);
        replies.send(tag, R::Stream { data, id, token, modrev, offset, length, addr: b"" });
        let (socket, _) = listener.accept().await.unwrap();
        let (deed, shared, data, taken) = server;
        data.fetch_add(1, Ordering::Relaxed);
        carry(socket, deed, shared, taken).await;
    });
}

/// Does with a data connection what it is told.
async fn carry(mut socket: TcpStream, deed: Deed, shared: Shared, taken: Arc<Mutex<Vec<u8>>>) {
    let (offset, length, is_read) = shared.0.lock().unwrap().span;
    let wanted = SIZE.saturating_sub(offset).min(if length == 0 { u64::MAX } else { length });
    let bytes = content(offset, wanted as usize);
    if is_read {
        let (sent, end): (&[u8], _) = match deed {
            Deed::Counts(more) => (&bytes, Some(Ok((wanted.checked_add_signed(more).unwrap(), MODREV)))),
            Deed::Cuts(sent) => (&bytes[..sent], None),
            Deed::Resets(sent) => (&bytes[..sent], None),
            Deed::Fails(sent, errno) => (&bytes[..sent], Some(Err(errno))),
            Deed::Changes => (&bytes, Some(Ok((wanted, MODREV + 1)))),
            Deed::Silent => (&[], None),
            _ => (&bytes, Some(Ok((wanted, MODREV)))),
        };
        // The client may have gone.
        let _ = socket.write_all(sent).await;
        if let Deed::Late(time) = deed {
            drop(socket);
            tokio::time::sleep(time).await;
            return shared.end(Ok((wanted, MODREV)));
        }
        if matches!(deed, Deed::Overflows) {
            let _ = socket.write_all(b"and more").await;
        }
        if let Some(end) = end {
            shared.end(end);
        }
        match deed {
            Deed::Silent => drop(socket.read(&mut [0]).await),
            // What the client sent and nobody read makes a reset of a close.
            Deed::Resets(_) => rustix_reset(socket),
            _ => drop(socket),
        }
        return;
    }
    let mut got = Vec::new();
    let most = match deed {
        Deed::Fails(most, _) | Deed::Resets(most) => most,
        _ => usize::MAX,
    };
    let mut buffer = vec![0; 50_000];
    while got.len() < most {
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => got.extend_from_slice(&buffer[..read]),
        }
    }
    let count = got.len() as u64;
    *taken.lock().unwrap() = got;
    match deed {
        Deed::Counts(more) => shared.end(Ok((count.checked_add_signed(more).unwrap(), MODREV + 1))),
        Deed::Fails(_, errno) => shared.end(Err(errno)),
        Deed::Resets(_) => rustix_reset(socket),
        Deed::Silent => drop(socket.read(&mut [0]).await),
        _ => shared.end(Ok((count, MODREV + 1))),
    }
}

/// Closes with a reset: what was not read of the client's is thrown away.
fn rustix_reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
}

fn s() -> [Version; 2] {
    [Version::parse(b"9P2000.s").unwrap(), Version::parse(b"9P2000.u.s").unwrap()]
}

#[tokio::test]
async fn a_stream_brings_any_part_of_a_file_over_a_connection_of_its_own() {
    for version in [Version::N1, s()[0], s()[1]] {
        let scene = Scene::of(version, Deed::Honest).await;
        for (offset, length) in [(0, None), (1_000_000, None), (17, Some(500_000)), (SIZE - 3, Some(100)), (SIZE, None)]
        {
            let wanted = SIZE.saturating_sub(offset).min(length.unwrap_or(u64::MAX));
            let (bytes, in_band) = scene.read(offset, length).await.unwrap();
            assert!(bytes == content(offset, wanted as usize), "{version:?} {offset} {length:?}");
            assert!(!in_band);
        }
        assert_eq!(scene.data.load(Ordering::Relaxed), 5);
    }
}

#[tokio::test]
async fn what_a_stream_is_given_comes_there_whole_and_its_end_is_the_servers_word() {
    for length in [None, Some(2_000_000)] {
        let scene = Scene::of(Version::N1, Deed::Honest).await;
        assert_eq!(scene.write(content(9, 2_000_000), length).await.unwrap(), 2_000_000);
        assert!(*scene.taken.lock().unwrap() == content(9, 2_000_000));
        assert_eq!(scene.shared.0.lock().unwrap().span, (5, length.unwrap_or(0), false));
    }
    // Of .s nothing is told but the size of the file, which is that of the fake's.
    let scene = Scene::of(s()[0], Deed::Honest).await;
    assert_eq!(scene.write(content(9, 2_000_000), None).await.unwrap(), 2_000_000);
    assert!(*scene.taken.lock().unwrap() == content(9, 2_000_000));
}

#[tokio::test]
async fn a_stream_that_is_opened_ahead_and_asked_its_end_early_takes_two_round_trips() {
    let scene = Scene::of(Version::N1, Deed::Honest).await;
    let file = scene.open(Mode::READ).await;
    scene.client.prepare_streams(1);
    let before = scene.client.stats().round_trips;
    let (bytes, _) = read_all(file.stream_read(0, None).await.unwrap()).await.unwrap();
    assert_eq!(bytes.len() as u64, SIZE);
    // Tstream, and the token with the question about the end.
    assert_eq!(scene.client.stats().round_trips, before + 2);
    assert_eq!(scene.client.stats().messages["Tstreamend"], 1);
}

#[tokio::test]
async fn a_stream_that_is_cut_short_never_looks_whole() {
    for sent in [1, 1_000_000, SIZE as usize - 1] {
        for version in [Version::N1, s()[0]] {
            for deed in [Deed::Cuts(sent), Deed::Resets(sent), Deed::Counts(1), Deed::Counts(-1)] {
                if !version.is_n1() && matches!(deed, Deed::Counts(_)) {
                    continue;
                }
                let options = Options { timeout: Some(Duration::from_secs(3)), ..Options::default() };
                let scene = Scene::with(version, deed.clone(), options).await;
                let error = scene.read(0, None).await.expect_err("it is not whole");
                let is_told = matches!(error, Error::Stream(Fault::Short { .. } | Fault::Cut(_)));
                assert!(is_told, "{version:?} {deed:?}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn the_word_on_a_file_that_ends_early_is_waited_for_while_the_server_says_other_things() {
    for is_busy in [true, false] {
        let scene = Scene::with(Version::N1, Deed::Late(Duration::from_secs(5)), Options::default()).await;
        let read = scene.read(0, Some(SIZE + 1));
        let says_other_things = async {
            for _ in 0..SOON.as_millis() / 200 {
                if is_busy {
                    scene.client.walk("/f", Follow::All).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let read = tokio::select! {
            read = read => read,
            () = says_other_things => panic!("nothing is said in time"),
        };
        match read {
            Ok((bytes, in_band)) => assert!(is_busy && !in_band && bytes == content(0, SIZE as usize)),
            Err(error) => assert!(!is_busy && matches!(error, Error::Stream(Fault::Cut(_))), "{is_busy}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_connection_of_which_the_server_says_that_it_broke_is_told_as_one_that_is_cut() {
    for errno in [Errno::ECONNRESET, Errno::EPIPE] {
        let scene = Scene::of(Version::N1, Deed::Fails(700_000, errno)).await;
        let error = scene.read(0, None).await.unwrap_err();
        assert!(matches!(error, Error::Stream(Fault::Cut(_))), "{errno:?}: {error}");
        let scene = Scene::of(Version::N1, Deed::Fails(700_000, errno)).await;
        let error = scene.write(content(0, 700_000), None).await.unwrap_err();
        assert!(matches!(error, Error::Stream(Fault::Cut(_))), "{errno:?}: {error}");
    }
}

#[tokio::test]
async fn more_than_was_asked_for_is_an_error() {
    let scene = Scene::of(Version::N1, Deed::Overflows).await;
    let error = scene.read(0, Some(1000)).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Beyond { asked: 1000 })), "{error}");
}

#[tokio::test]
async fn a_file_that_is_rewritten_while_a_stream_reads_it_is_told() {
    let scene = Scene::of(Version::N1, Deed::Changes).await;
    let error = scene.read(0, None).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Changed)), "{error}");
    assert_eq!(error.errno(), Errno::ESTALE);
}

#[tokio::test]
async fn an_error_of_the_servers_file_is_the_error_of_the_stream() {
    let scene = Scene::of(Version::N1, Deed::Fails(700_000, Errno::EIO)).await;
    assert_eq!(scene.read(0, None).await.unwrap_err().errno(), Errno::EIO);
    let scene = Scene::of(Version::N1, Deed::Fails(700_000, Errno::ENOSPC)).await;
    assert_eq!(scene.write(content(0, 20 << 20), None).await.unwrap_err().errno(), Errno::ENOSPC);
    let scene = Scene::of(Version::N1, Deed::Fails(700_000, Errno::ENOSPC)).await;
    assert_eq!(scene.write(content(0, 700_000), None).await.unwrap_err().errno(), Errno::ENOSPC);
}

#[tokio::test]
async fn what_a_server_says_it_did_not_write_is_an_error_of_the_end() {
    let scene = Scene::of(Version::N1, Deed::Counts(-1)).await;
    let error = scene.write(content(0, 100_000), None).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Unwritten { sent: 100_000, written: 99_999 })), "{error}");
    let scene = Scene::of(Version::N1, Deed::Honest).await;
    assert_eq!(scene.write(content(0, 100_000), Some(100_001)).await.unwrap_err().errno(), Errno::EPIPE);
    // A file that is too small for what was written.
    let scene = Scene::of(s()[0], Deed::Honest).await;
    let error = scene.write(content(0, SIZE as usize + 1), None).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Unwritten { .. })), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_while_it_is_written_is_told() {
    for version in [Version::N1, s()[0]] {
        let scene = Scene::of(version, Deed::Resets(100_000)).await;
        let error = scene.write(content(0, 20 << 20), None).await.unwrap_err();
        assert!(matches!(error, Error::Stream(Fault::Cut(_))), "{version:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_streams_or_ways_to_them_is_read_and_written_by_messages() {
    for (version, deed) in [
        (Version::N1, Deed::Refuses),
        (Version::N1, Deed::Elsewhere),
        (Version::N1, Deed::Silent),
        (Version::N1, Deed::Cuts(0)),
        (s()[0], Deed::Refuses),
        (s()[0], Deed::Elsewhere),
    ] {
        let options = Options { timeout: Some(Duration::from_millis(500)), ..Options::default() };
        let scene = Scene::with(version, deed.clone(), options).await;
        let (bytes, in_band) = scene.read(3, Some(100_000)).await.unwrap();
        assert!(in_band && bytes == content(3, 100_000), "{version:?} {deed:?}");
        if matches!(deed, Deed::Elsewhere) {
            assert_eq!(scene.data.load(Ordering::Relaxed), 0);
            assert_eq!(scene.shared.0.lock().unwrap().aborted, version.is_n1());
        }
        if matches!(deed, Deed::Refuses | Deed::Elsewhere) {
            assert_eq!(scene.write(content(0, 50_000), None).await.unwrap(), 50_000);
        }
    }
}

#[tokio::test]
async fn where_no_connection_can_be_made_the_next_stream_does_not_try() {
    let scene = Scene::of(Version::N1, Deed::Elsewhere).await;
    for _ in 0..2 {
        assert!(scene.read(0, None).await.unwrap().1);
    }
    assert_eq!(scene.client.stats().messages["Tstream"], 1);
}

#[tokio::test]
async fn a_server_that_takes_no_question_that_waits_is_asked_at_the_end() {
    let scene = Scene::of(Version::N1, Deed::Crowded).await;
    assert_eq!(scene.read(0, None).await.unwrap().0.len() as u64, SIZE);
    assert_eq!(scene.client.stats().messages["Tstreamend"], 2);
    let scene = Scene::of(Version::N1, Deed::Crowded).await;
    assert_eq!(scene.write(content(0, 100_000), None).await.unwrap(), 100_000);
}

#[tokio::test]
async fn behind_an_end_of_which_nothing_is_heard_something_small_is_asked_for() {
    // Were the answer lost, that would show it to TCP. Here it does not come without.
    for times in [1, 2] {
        let scene = Scene::of(Version::N1, Deed::Reminded(times)).await;
        assert_eq!(scene.read(0, Some(100_000)).await.unwrap().0.len(), 100_000);
        let scene = Scene::of(Version::N1, Deed::Reminded(times)).await;
        assert_eq!(scene.write(content(0, 100_000), None).await.unwrap(), 100_000);
        let scene = Scene::of(Version::N1, Deed::Reminded(times)).await;
        let file = scene.open(Mode::WRITE).await;
        let mut stream = file.stream_write_late(0, 100_000).await.unwrap();
        stream.write(&content(0, 100_000)).await.unwrap();
        let dir = scene.client.walk("/", Follow::All).await.unwrap();
        let ended = timeout(SOON, file.end_and_rename(vec![stream], &dir, b"f", b"g")).await.expect("an end in time");
        ended.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_is_asked_for_behind_an_end_is_little_and_has_an_end() {
    let options = Options { timeout: Some(Duration::from_millis(700)), ..Options::default() };
    let scene = Scene::with(Version::N1, Deed::Reminded(usize::MAX), options).await;
    let stream = scene.open(Mode::READ).await.stream_read(0, Some(1000)).await.unwrap();
    let before = scene.client.stats().messages;
    assert!(matches!(timeout(SOON, read_all(stream)).await.unwrap(), Err(Error::Stream(Fault::Cut(_)))));
    let asked = scene.client.stats().messages["Tflush"];
    // And one of the Tstreamend, which is given up.
    assert!((1..=9).contains(&asked), "{asked}");
    // Those that are not answered are nobody's.
    assert_eq!(scene.client.stats().messages.get("Tgetattr"), before.get("Tgetattr"));
}

#[tokio::test]
async fn a_stream_that_is_dropped_leaves_nothing_at_the_client_and_the_session_goes_on() {
    let scene = Scene::of(Version::N1, Deed::Honest).await;
    let file = scene.open(Mode::READ).await;
    let held = scene.client.held().0;
    let mut stream = file.stream_read(0, None).await.unwrap();
    assert!(stream.read(&mut [0; 10]).await.unwrap() > 0);
    drop(stream);
    crate::support::settled(&scene.client, held).await;
    assert!(scene.client.metadata("/f", Follow::All).await.is_ok());
    assert!(scene.address.port() > 0);
}

#[tokio::test]
async fn a_session_that_ends_ends_its_streams() {
    let scene = Scene::of(Version::N1, Deed::Silent).await;
    let mut stream = scene.open(Mode::READ).await.stream_read(0, None).await.unwrap();
    let client = scene.client.clone();
    let mut buffer = [0; 10];
    let (read, ()) = tokio::join!(timeout(SOON, stream.read(&mut buffer)), async {
        drop(client.close(Duration::from_millis(1)).await);
    });
    assert!(read.expect("an end in time").is_err());
}
