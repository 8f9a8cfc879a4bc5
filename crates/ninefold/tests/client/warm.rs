//! The first operation at a server that is remembered: one round trip, and done once whatever sits at the address by now.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, FileType, Follow, Loss, Memory, Mode, Options};
use ninefold::proto::client::ServerMisbehaved;
use ninefold::proto::dialect::Version;
use ninefold::proto::message::{Names, Octal};
use ninefold::proto::wire::{frame_size, split_frame};
use ninefold::proto::{Dialect, Errno, Fid, R, T, Tag};
use ninefold::server::Server;
use ninefold::transport::{Address, Peer, Stream, memory};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{BUFFER, SOON, connect, ram};

/// What a server does with a client that offers `.n1`; any other offer reaches our own server, limited to .L.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Our server, which speaks it.
    N1,
    /// The same with a smaller msize than it had.
    N1Smaller,
    /// The same, which carries out the operation and is gone before any of its replies is sent.
    DoneAndGone,
    /// The same, but for its Rversion.
    AgreedDoneAndGone,
    /// Our server, which cuts the offer to .L.
    Linux,
    /// It knows some fids from before, and does what names one.
    LinuxKnowingFids,
    Unknown,
    Lerror,
    Rerror,
    /// Closes the connection when it has read the Tversion.
    Closes,
    /// Closes it when it has read the operation.
    ClosesLate,
    /// Resets it then.
    Resets,
    Silent,
    /// Answers the operation's tag in place of the Tversion, with an error.
    AnswersEarly,
    /// The same, with a success.
    SucceedsEarly,
    /// Says something behind which nobody knows what it does.
    SaysMore,
}

/// Kinds that have carried out nothing when they say what they are.
const REFUSE: [Kind; 5] = [Kind::Linux, Kind::LinuxKnowingFids, Kind::Unknown, Kind::Lerror, Kind::Rerror];

/// Kinds of which nobody knows what they did.
const DOUBTFUL: [Kind; 7] = [
    Kind::DoneAndGone,
    Kind::Closes,
    Kind::ClosesLate,
    Kind::Resets,
    Kind::AnswersEarly,
    Kind::SucceedsEarly,
    Kind::SaysMore,
];

/// An address at which one server follows another.
struct Site {
    server: Arc<Server>,
    address: Address,
    kind: Arc<Mutex<Kind>>,
    dials: Arc<AtomicUsize>,
    memory: Memory,
    _dir: tempfile::TempDir,
}

impl Site {
    /// With a file `f` in a directory `d`; where our server was met speaking `.n1`.
    async fn remembered(kind: Kind) -> Site {
        let site = Site::new().await;
        let (client, _) = site.first(async |_| Ok(())).await.unwrap();
        assert_eq!((client.version(), client.stats().round_trips), (Version::N1, 2));
        *site.kind.lock().unwrap() = kind;
        site.dials.store(0, Ordering::Relaxed);
        site
    }

    async fn new() -> Site {
        let server = ram();
        let near = connect(&server, Dialect::Linux, Options::default()).await;
        near.mkdir("d", 0o777).await.unwrap();
        let file = near.walk("d", Follow::All).await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
        file.write_at(0, Bytes::from(vec![7; 4096])).await.unwrap();
        file.close().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::tcp(listener.local_addr().unwrap());
        let (kind, dials) = (Arc::new(Mutex::new(Kind::N1)), Arc::new(AtomicUsize::new(0)));
        let (its_kind, its_dials, its_server) = (kind.clone(), dials.clone(), server.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let before = its_dials.fetch_add(1, Ordering::Relaxed);
                let kind = match *its_kind.lock().unwrap() {
                    // What is done to an early start is done once.
                    kind if before > 0 && (kind == Kind::LinuxKnowingFids || DOUBTFUL.contains(&kind)) => Kind::Linux,
                    kind => kind,
                };
                tokio::spawn(serve(stream, kind, its_server.clone()));
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::in_file(dir.path().join("servers"));
        Site { server, address, kind, dials, memory, _dir: dir }
    }

    async fn first<T>(
        &self,
        op: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<(Client, Result<T, Error>), Error> {
        let options = Options { memory: Some(self.memory.clone()), ..Options::default() };
        Client::first(&self.address, options, op).await
    }

    /// The names in `d`, as somebody else sees them.
    async fn names(&self) -> Vec<String> {
        let near = connect(&self.server, Dialect::Linux, Options::default()).await;
        let entries = near.walk("d", Follow::All).await.unwrap().read_dir().await.unwrap().all().await.unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        names.sort();
        names
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }
}

async fn frame(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        match frame_size(buffer, u32::MAX).unwrap() {
            Some(size) if size <= buffer.len() => return Some(buffer.drain(..size).collect()),
            _ => {}
        }
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Reads the operation to its end: all that these tests do end in a Tclunk or a Tremove. Gives its tag.
async fn group(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(Tag, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let frame = frame(stream, buffer).await?;
        let header = split_frame(&frame).unwrap().0;
        all.extend_from_slice(&frame);
        if [T::Clunk { fid: Fid(0) }.number(), T::Remove { fid: Fid(0) }.number()].contains(&header.kind) {
            return Some((header.tag, all));
        }
    }
}

fn encoded(tag: Tag, reply: R<'_>, version: impl Into<Version>) -> Vec<u8> {
    let mut frame = Vec::new();
    reply.encode(tag, version, &mut frame);
    frame
}

async fn serve(mut stream: TcpStream, kind: Kind, server: Arc<Server>) {
    let mut buffer = Vec::new();
    while let Some(mut offer) = frame(&mut stream, &mut buffer).await {
        let is_n1 = offer.ends_with(b"9P2000.L.n1");
        let passes = !is_n1 || matches!(kind, Kind::N1 | Kind::N1Smaller | Kind::Linux);
        if passes || kind == Kind::LinuxKnowingFids {
            if is_n1 && kind != Kind::N1 && kind != Kind::N1Smaller {
                // As if our server knew no more than .L: it cuts what it does not know.
                let end = offer.len();
                offer[end - 2..].copy_from_slice(b"zz");
            }
            if kind == Kind::N1Smaller {
                // `size[4] Tversion tag[2] msize[4]`.
                offer[7..11].copy_from_slice(&8192_u32.to_le_bytes());
            }
            let (mut ours, theirs) = memory::pair(BUFFER);
            tokio::spawn(server.serve(theirs, Peer::Stdio));
            if is_n1 && kind == Kind::LinuxKnowingFids {
                know_fids(&mut ours).await;
                let version = R::Version { msize: 65_536, version: b"9P2000.L" };
                let _ = stream.write_all(&encoded(Tag::NONE, version, Dialect::Linux)).await;
            } else {
                ours.write_all(&offer).await.unwrap();
            }
            ours.write_all(&buffer).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut ours).await;
            return;
        }
        let refusal = match kind {
            Kind::Unknown => encoded(Tag::NONE, R::Version { msize: 65_536, version: b"unknown" }, Dialect::Linux),
            Kind::Lerror => encoded(Tag::NONE, R::Lerror { ecode: 5, retry_ms: 0, text: b"" }, Dialect::Linux),
            Kind::Rerror => encoded(Tag::NONE, R::Error { ename: b"no", errno: 0 }, Dialect::Plan9),
            Kind::SaysMore => {
                encoded(Tag::NONE, R::Version { msize: 65_536, version: b"9P2000.L.n1.x" }, Dialect::Linux)
            }
            Kind::Silent => {
                let _ = stream.read_to_end(&mut buffer).await;
                return;
            }
            Kind::Closes => return,
            Kind::ClosesLate | Kind::Resets => {
                group(&mut stream, &mut buffer).await;
                if kind == Kind::Resets {
                    stream.set_zero_linger().unwrap();
                }
                return;
            }
            Kind::DoneAndGone => {
                let Some((_, requests)) = group(&mut stream, &mut buffer).await else { return };
                do_all(&server, &offer, &requests).await;
                return;
            }
            Kind::AgreedDoneAndGone => {
                let Some((_, requests)) = group(&mut stream, &mut buffer).await else { return };
                do_all(&server, &offer, &requests).await;
                let agreed = encoded(Tag::NONE, R::Version { msize: 65_536, version: b"9P2000.L.n1" }, Dialect::Plan9);
                // Whether or not the client is still there.
                let _ = stream.write_all(&agreed).await;
                return;
            }
            Kind::AnswersEarly | Kind::SucceedsEarly => {
                let Some((tag, _)) = group(&mut stream, &mut buffer).await else { return };
                let refused = R::Lerror { ecode: 2, retry_ms: 0, text: b"" };
                let reply = if kind == Kind::AnswersEarly { refused } else { R::Clunk {} };
                encoded(tag, reply, Version::N1)
            }
            _ => unreachable!("{kind:?}"),
        };
        if stream.write_all(&refusal).await.is_err() {
            return;
        }
    }
}

/// A connection to our server by .L on which the fids from 0 on are the root.
async fn know_fids(server: &mut Stream) {
    let mut out = Vec::new();
    T::Version { msize: 65_536, version: b"9P2000.L" }.encode(Tag::NONE, Dialect::Linux, &mut out);
    T::Attach { fid: Fid(0), afid: Fid::NONE, uname: b"u", aname: b"", n_uname: 0 }.encode(
        Tag(0),
        Dialect::Linux,
        &mut out,
    );
    server.write_all(&out).await.unwrap();
    replies(server, 2).await;
    out.clear();
    let mut scratch = Vec::new();
    let wnames = Names::encode([b"d".as_slice()], &mut scratch);
    for n in 1..=40 {
        T::Walk { fid: Fid(0), newfid: Fid(n), wnames }.encode(Tag(n as u16), Dialect::Linux, &mut out);
    }
    server.write_all(&out).await.unwrap();
    replies(server, 40).await;
    // It does what names one.
    out.clear();
    T::Mkdir { dfid: Fid(7), name: b"by a fid", mode: Octal(0o755), gid: 0 }.encode(Tag(0), Dialect::Linux, &mut out);
    T::Unlinkat { dirfid: Fid(8), name: b"by a fid", flags: Octal(0x200) }.encode(Tag(1), Dialect::Linux, &mut out);
    server.write_all(&out).await.unwrap();
    replies(server, 2).await;
}

/// Takes `count` replies, none of them an error.
async fn replies(server: &mut Stream, count: usize) {
    for _ in 0..count {
        let mut frame = vec![0; 4];
        server.read_exact(&mut frame).await.unwrap();
        frame.resize(u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize, 0);
        server.read_exact(&mut frame[4..]).await.unwrap();
        assert_ne!(frame[4], 7, "an Rlerror");
    }
}

/// Our server carries out all of it.
async fn do_all(server: &Arc<Server>, offer: &[u8], requests: &[u8]) {
    let (mut ours, theirs) = memory::pair(BUFFER);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    ours.write_all(offer).await.unwrap();
    replies(&mut ours, 1).await;
    ours.write_all(requests).await.unwrap();
    let mut count = 0;
    let mut rest = requests;
    while let Some(size) = frame_size(rest, u32::MAX).unwrap() {
        (count, rest) = (count + 1, &rest[size..]);
    }
    replies(&mut ours, count).await;
}

/// What changes the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Remove,
    Unlink,
    Rename,
    Move,
    Mkdir,
    Create,
    /// A file that is made, with content.
    Write,
}

const CHANGES: [Change; 7] =
    [Change::Remove, Change::Unlink, Change::Rename, Change::Move, Change::Mkdir, Change::Create, Change::Write];

impl Change {
    async fn make(self, client: &Client) -> Result<(), Error> {
        match self {
            Change::Remove => client.remove("d/f").await,
            Change::Unlink => client.unlink("d/f", false).await,
            Change::Rename => client.rename("d/f", b"g").await,
            Change::Move => client.rename_to("d/f", "d/g").await,
            Change::Mkdir => client.mkdir("d/g", 0o755).await,
            Change::Create | Change::Write => {
                let mut chain = client.chain();
                let (spot, walked) = chain.walk_root(&[b"d"]).await?;
                let made = chain.create(&spot, b"g", Mode::WRITE, 0o644).await?;
                let written = match self {
                    Change::Write => Some(chain.write(&spot, 0, Bytes::from_static(b"content")).await?),
                    _ => None,
                };
                let clunked = chain.clunk(spot).await?;
                walked.take().await?;
                made.take().await?;
                if let Some(written) = written {
                    assert_eq!(written.take().await?, 7);
                }
                clunked.take().await
            }
        }
    }

    /// What is in `d` then. Made twice, each of them fails.
    fn leaves(self) -> &'static [&'static str] {
        match self {
            Change::Remove | Change::Unlink => &[],
            Change::Rename | Change::Move => &["g"],
            Change::Mkdir | Change::Create | Change::Write => &["f", "g"],
        }
    }

    /// What it says when it was made before.
    fn says_again(self) -> Errno {
        match self {
            Change::Mkdir | Change::Create | Change::Write => Errno::EEXIST,
            _ => Errno::ENOENT,
        }
    }
}

#[tokio::test]
async fn directories_inside_one_another_are_made_behind_the_attach_however_many_they_are() {
    for levels in [29, 30, 31, 32, 61] {
        let site = Site::remembered(Kind::N1).await;
        let path = (0..levels).map(|level| format!("l{level}")).collect::<Vec<_>>().join("/");
        let (client, made) = site.first(async |client| client.mkdir_all(&path, 0o777, 0o777).await).await.unwrap();
        assert!(made.unwrap().is_some_and(|dir| dir.made), "{levels}");
        assert!(client.metadata(&path, Follow::All).await.unwrap().qid.is_dir(), "{levels}");
    }
}

#[tokio::test]
async fn at_a_server_that_is_remembered_the_first_operation_is_one_round_trip_and_else_two() {
    for warm in [true, false] {
        let trips = if warm { 1 } else { 2 };
        let site = async || if warm { Site::remembered(Kind::N1).await } else { Site::new().await };
        for change in CHANGES {
            let site = site().await;
            let (client, done) = site.first(async |client| change.make(client).await).await.unwrap();
            done.unwrap();
            assert_eq!((client.version(), client.stats().round_trips), (Version::N1, trips), "{change:?}");
            assert_eq!(site.names().await, change.leaves(), "{change:?}");
            assert_eq!(site.dials(), 1);
            // And it goes on like any other.
            assert_eq!(change.make(&client).await.unwrap_err().errno(), change.says_again(), "{change:?}");
            assert_eq!(client.session().unwrap().limits.group, 64);
        }
        let site = site().await;
        let (client, metadata) = site.first(async |client| client.metadata("d/f", Follow::All).await).await.unwrap();
        assert_eq!((client.stats().round_trips, metadata.unwrap().size), (trips, 4096));
        let site = if warm { site } else { Site::new().await };
        let (client, data) = site.first(async |client| client.read("d/f", 4096).await).await.unwrap();
        assert_eq!((client.stats().round_trips, data.unwrap()), (trips, Bytes::from(vec![7; 4096])));
        // What was agreed is known, not what was presumed.
        assert_eq!(client.msize(), Options::default().msize);
    }
}

#[tokio::test]
async fn what_refuses_the_version_is_asked_again_and_every_change_is_made_once() {
    for kind in REFUSE {
        for change in CHANGES {
            let site = Site::remembered(kind).await;
            let (client, done) = site.first(async |client| change.make(client).await).await.unwrap();
            assert!(done.is_ok(), "{change:?} at {kind:?}: {done:?}");
            assert_eq!(site.names().await, change.leaves(), "{change:?} at {kind:?}");
            assert_eq!((client.dialect(), client.version().groups), (Dialect::Linux, false), "{kind:?}");
            // The memory is right again: the next one dials once.
            let before = site.dials();
            let (_, done) = site.first(async |client| change.make(client).await).await.unwrap();
            assert_eq!(done.unwrap_err().errno(), change.says_again(), "{change:?} at {kind:?}");
            assert_eq!(site.dials(), before + 1, "{change:?} at {kind:?}");
        }
    }
}

#[tokio::test]
async fn a_change_of_which_nobody_knows_is_not_made_again_and_the_next_one_begins_cold() {
    for kind in DOUBTFUL.into_iter().chain([Kind::AgreedDoneAndGone]) {
        for change in CHANGES {
            let site = Site::remembered(kind).await;
            let error = site.first(async |client| change.make(client).await).await.unwrap_err();
            let Error::InDoubt(why) = &error else { panic!("{change:?} at {kind:?}: {error}") };
            match kind {
                Kind::AnswersEarly | Kind::SucceedsEarly => {
                    assert!(matches!(**why, Error::Misbehaved(ServerMisbehaved::BeforeVersion(_))), "{why}");
                }
                Kind::SaysMore => assert!(matches!(**why, Error::Lost(Loss::OtherVersion)), "{why}"),
                _ => assert!(matches!(**why, Error::Lost(_)), "{kind:?}: {why}"),
            }
            assert!(error.to_string().contains("it may or may not have been done") && error.is_fatal());
            let was_made = matches!(kind, Kind::DoneAndGone | Kind::AgreedDoneAndGone);
            let left: &[&str] = if was_made { change.leaves() } else { &["f"] };
            assert_eq!(site.names().await, left, "{change:?} at {kind:?}");
            assert_eq!(site.dials(), 1, "{change:?} at {kind:?}");

            // Nothing is presumed any more.
            *site.kind.lock().unwrap() = Kind::N1;
            let (client, done) = site.first(async |client| change.make(client).await).await.unwrap();
            assert_eq!(done.map_err(|e| e.errno()), if was_made { Err(change.says_again()) } else { Ok(()) });
            // What is not there is looked for step by step.
            assert!(was_made || client.stats().round_trips == 2, "{:?}", client.stats());
            assert_eq!(site.names().await, change.leaves(), "{change:?} at {kind:?}");
        }
    }
}

/// What .n1 alone can do, and what cannot be told from a second time by its names.
#[tokio::test]
async fn a_rename_that_replaces_nothing_and_a_file_that_is_cut_are_in_doubt_too_and_never_asked_again() {
    for kind in [Kind::DoneAndGone, Kind::AgreedDoneAndGone] {
        let site = Site::remembered(kind).await;
        let error = site.first(async |client| client.rename_new("d/f", "d/g").await).await.unwrap_err();
        assert!(matches!(error, Error::InDoubt(_)), "{kind:?}: {error}");
        assert_eq!((site.dials(), site.names().await), (1, vec!["g".to_owned()]), "{kind:?}");

        let site = Site::remembered(kind).await;
        let cut = site.first(async |client| {
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"d", b"f"]).await?;
            let opened = chain.open(&spot, Mode::REPLACE).await?;
            let clunked = chain.clunk(spot).await?;
            walked.take().await?;
            opened.take().await?;
            clunked.take().await
        });
        let error = cut.await.unwrap_err();
        assert!(matches!(error, Error::InDoubt(_)), "{kind:?}: {error}");
        let near = connect(&site.server, Dialect::Linux, Options::default()).await;
        assert_eq!((site.dials(), near.metadata("d/f", Follow::All).await.unwrap().size), (1, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn what_only_looks_is_asked_again_whatever_the_server_did() {
    for kind in REFUSE.into_iter().chain(DOUBTFUL) {
        let site = Site::remembered(kind).await;
        let tries = AtomicUsize::new(0);
        let looked = site
            .first(async |client| {
                tries.fetch_add(1, Ordering::Relaxed);
                client.metadata("d/f", Follow::All).await
            })
            .await;
        let (client, metadata) = looked.unwrap();
        assert_eq!((metadata.unwrap().size, tries.load(Ordering::Relaxed)), (4096, 2), "{kind:?}");
        assert_eq!((client.version(), site.dials()), (Dialect::Linux.into(), 2), "{kind:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_is_given_up_before_the_time_is_over() {
    let options = |site: &Site, seconds| Options {
        memory: Some(site.memory.clone()),
        timeout: Some(Duration::from_secs(seconds)),
        ..Options::default()
    };
    // Under a short timeout there is no time for a second try.
    let site = Site::remembered(Kind::Silent).await;
    let error =
        Client::first(&site.address, options(&site, 1), async |c| c.mkdir("d/g", 0o755).await).await.unwrap_err();
    assert!(matches!(&error, Error::InDoubt(why) if matches!(**why, Error::TimedOut(_))), "{error}");
    assert_eq!((site.dials(), site.names().await), (1, vec!["f".to_owned()]));

    let site = Site::remembered(Kind::Silent).await;
    let back = async {
        // The early start has been dialled: what comes next finds our server again.
        while site.dials() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        *site.kind.lock().unwrap() = Kind::Linux;
    };
    let look = Client::first(&site.address, options(&site, 40), async |c| c.metadata("d/f", Follow::All).await);
    let ((), looked) = tokio::join!(back, look);
    assert_eq!(looked.unwrap().1.unwrap().size, 4096);
    assert_eq!(site.dials(), 2);
}

#[tokio::test]
async fn a_smaller_msize_is_taken_where_what_was_sent_fits_it() {
    let site = Site::remembered(Kind::N1Smaller).await;
    let (client, done) = site.first(async |client| client.unlink("d/f", false).await).await.unwrap();
    done.unwrap();
    assert_eq!((client.msize(), client.stats().round_trips, site.dials()), (8192, 1, 1));
    assert!(site.names().await.is_empty());
}

#[tokio::test]
async fn an_attach_that_is_refused_is_the_error_and_nothing_behind_it_is_done() {
    for warm in [true, false] {
        let site = if warm { Site::remembered(Kind::N1).await } else { Site::new().await };
        let address = Address { aname: Some(b"none".to_vec()), ..site.address.clone() };
        let options = Options { memory: Some(site.memory.clone()), ..Options::default() };
        let error = Client::first(&address, options, async |c| c.unlink("d/f", false).await).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(e) if e.errno == Errno::ENOENT), "{error}");
        assert_eq!((site.dials(), site.names().await), (1, vec!["f".to_owned()]));
    }
}

#[tokio::test]
async fn what_waits_for_no_chain_waits_for_the_attach() {
    let site = Site::remembered(Kind::N1).await;
    // Two chains, and what is none, at a time: one of them goes with the attach.
    let (client, done) = site
        .first(async |client| {
            let (one, two, root) =
                tokio::join!(client.metadata("d/f", Follow::All), client.metadata("d", Follow::All), client.root());
            Ok((one?.size, two?.kind, root?.qid().is_dir()))
        })
        .await
        .unwrap();
    assert_eq!(done.unwrap(), (4096, FileType::Dir, true));
    assert_eq!(client.stats().round_trips, 2);
    // What fails before anything is asked is an error of the operation.
    let (_, done) = site.first(async |client| client.metadata([b'x'; 300], Follow::All).await).await.unwrap();
    assert!(matches!(done, Err(Error::Name(_))));
    // An early start without an operation is the attach alone.
    let (client, _) = site.first(async |_| Ok(())).await.unwrap();
    assert_eq!(client.stats().round_trips, 1);
}

/// An operation may do something of its own before it asks: what it asks then follows from nothing that came meanwhile.
#[tokio::test]
async fn an_attach_that_nobody_waits_for_is_no_cause_of_what_is_asked_after_it() {
    let is_there = async |c: &Client| {
        while c.session().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let late = async |c: &Client| {
        is_there(c).await;
        c.metadata("d/f", Follow::All).await
    };
    for (site, trips) in [(Site::remembered(Kind::N1).await, 1), (Site::new().await, 2)] {
        let (client, metadata) = timeout(SOON, site.first(late)).await.expect("an answer").unwrap();
        assert_eq!((client.stats().round_trips, metadata.unwrap().size), (trips, 4096));
        // What comes behind the operation follows from it.
        client.metadata("d/f", Follow::All).await.unwrap();
        assert_eq!(client.stats().round_trips, trips + 1);
    }
    // One operation goes behind the attach. Another one, beside it, could not have been asked before that was answered.
    let second = async |c: &Client| {
        let other = c.fork();
        c.metadata("d/f", Follow::All).await?;
        is_there(c).await;
        other.metadata("d", Follow::All).await
    };
    for (site, trips) in [(Site::remembered(Kind::N1).await, 2), (Site::new().await, 3)] {
        let (client, metadata) = timeout(SOON, site.first(second)).await.expect("an answer").unwrap();
        assert_eq!(metadata.unwrap().kind, FileType::Dir);
        assert_eq!(client.stats().round_trips, trips);
    }
    // The attach is awaited where the operation asks for nothing.
    for (site, trips) in [(Site::remembered(Kind::N1).await, 2), (Site::new().await, 3)] {
        let (client, _) = timeout(SOON, site.first(async |_| Ok(()))).await.expect("an answer").unwrap();
        client.metadata("d/f", Follow::All).await.unwrap();
        assert_eq!(client.stats().round_trips, trips);
        // Another attach follows from the first one, and from what was asked before.
        let other = timeout(SOON, client.attach(b"")).await.expect("an answer").unwrap();
        assert_eq!(client.stats().round_trips, trips + 1);
        other.metadata("d/f", Follow::All).await.unwrap();
        assert_eq!(client.stats().round_trips, trips + 2);
    }
}
