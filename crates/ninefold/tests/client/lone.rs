//! One stream alone that is asked for with the open of its file: of servers that know none such, and of a file that is changed while it comes.

use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ninefold::client::{BeginRead, Client, Options};
use ninefold::proto::n1::stream;
use ninefold::transport::Address;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::dialled::{remember, until};
use crate::fake::content;
use crate::ranges::{LONG, SIZE, SOON, Scene, Slow, TSTREAM, Way, asked, asked_of, begin_by, gather};
use crate::road::Joined;
use crate::support::{carry, change};

/// The server behind what changes the requests of its sessions.
async fn behind(server: SocketAddr, frame_by: fn(&mut [u8])) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(join(near, server, frame_by));
        }
    });
    address
}

async fn join(near: TcpStream, server: SocketAddr, frame_by: fn(&mut [u8])) {
    let Some(Joined { is_data, asks, told, far }) = Joined::new(near, server).await else { return };
    let back = carry(far.0, told, Duration::ZERO);
    if is_data {
        tokio::join!(carry(asks, far.1, Duration::ZERO), back);
    } else {
        let (_, ()) = tokio::join!(change(asks, far.1, frame_by), back);
    }
}

/// The flags of a Tstream: size[4] type[1] tag[2] fid[4] flags[4].
fn flags(frame: &[u8]) -> Option<u32> {
    (frame[4] == TSTREAM).then(|| u32::from_le_bytes(frame[11..15].try_into().unwrap()))
}

/// As of one that shares a file among two streams or more: it gets a number that it really refuses.
fn knows_no_share_of_one(frame: &mut [u8]) {
    if flags(frame).is_some_and(|flags| flags & stream::SHARED != 0 && flags >> stream::LAST_BIT == 1) {
        frame[12..15].fill(0);
    }
}

/// It gets one that it really does not know.
fn knows_no_flags(frame: &mut [u8]) {
    if flags(frame).is_some_and(|flags| flags != 0) {
        frame[11] |= 0x80;
    }
}

/// Neither from the file nor to it.
fn has_no_streams(frame: &mut [u8]) {
    if flags(frame).is_some() {
        frame[15] = 7;
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_share_of_one_is_asked_for_another_stream_or_for_messages() {
    type Older = fn(&mut [u8]);
    // With how many questions, of which one brings the file; 0: none does, but messages.
    let servers: [(&str, Older, u64, u64); 3] = [
        ("no share of one", knows_no_share_of_one, 2, 1),
        ("no flags", knows_no_flags, 3, 1),
        ("no streams", has_no_streams, 3, 0),
    ];
    for (what, older, questions, streams) in servers {
        for size in [SIZE, LONG] {
            let scene = Scene::of(size).await;
            let address = Address::tcp(behind(scene.address, older).await);
            let (client, begun) = begin_by(1, &address, Options::default()).await;
            assert_eq!((begun.file.granted(), begun.data.is_none(), asked_of(&scene)), (0, true, (0, 0)), "{what}");
            assert_eq!(begun.metadata.map(|metadata| metadata.size), Some(size as u64), "{what}");
            let mut ranges = begun.file.ranges(0, size as u64, 1);
            gather(&mut ranges, 0, size).await.unwrap();
            assert_eq!((asked(&client), asked_of(&scene)), (questions, (streams, 0)), "{what}");
            assert_eq!(ranges.is_watched(), streams > 0, "{what}");
            assert!(!ranges.is_changed() && ranges.take_look().is_none(), "{what}");
            // Nobody says of pages that they stayed as they were before all of them are here.
            assert!(!ranges.is_settled() || ranges.is_unchanged(), "{what}");
        }
    }
}

#[tokio::test]
async fn where_a_share_of_one_is_refused_the_token_that_was_said_for_it_is_given_up() {
    let scene = Scene::new().await;
    let older = behind(scene.address, knows_no_share_of_one).await;
    // So near that one stream is wanted, whose connection is dialled with the session's.
    let (_dir, options) = remember(scene.address, older, 0).await;
    let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
    let begin = async |client: &Client| client.begin_read_as("/f", how).await;
    let address = Address::tcp(older);
    let (client, begun) = timeout(SOON, Client::first(&address, options, begin)).await.expect("a session").unwrap();
    let begun = begun.unwrap();
    assert_eq!((asked(&client), begun.file.granted(), asked_of(&scene)), (1, 0, (0, 0)));
    let mut ranges = begun.file.ranges(0, SIZE as u64, 1);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(ranges.is_watched() && !ranges.is_changed());
    assert_eq!((asked(&client), asked_of(&scene)), (2, (1, 0)));
    until("no token that waits", || scene.server.stream_counts().early == 0).await;
    // Its client gave it up: one that nobody asks for is refused in the end.
    assert_eq!(scene.server.stream_counts().refused, 0);
}

#[tokio::test]
async fn a_file_that_is_changed_while_its_lone_stream_comes_is_never_taken_for_whole() {
    // The stream brings all of it, or its beginning: the rest comes behind that by its connection.
    for size in [SIZE, LONG] {
        for what in ["rewritten", "cut", "made anew"] {
            let scene = Scene::of(size).await;
            let path = scene.dir.path().join("f");
            let (go_on, gate) = tokio::sync::watch::channel(false);
            // What sockets hold besides is less than a short file has.
            let mut slow = Slow::held(gate);
            slow.holds_at = 300_000;
            let way = Way { delay: Duration::ZERO, slow: Some(slow), one: None, most: u64::MAX };
            let address = Address::tcp(scene.by(way).await);
            let (_client, begun) = begin_by(1, &address, Options::default()).await;
            assert_eq!((begun.file.granted(), begun.data.is_none()), (1, true), "{what}");
            let mut ranges = begun.file.ranges(0, size as u64, 1);
            let (mut all, mut came, mut before, mut failed) = (vec![0; size], 0, 0, false);
            loop {
                match timeout(SOON, ranges.next()).await.expect("a piece in time") {
                    Ok(Some((offset, data))) => {
                        all[offset as usize..][..data.len()].copy_from_slice(&data);
                        came += data.len();
                    }
                    Ok(None) => break,
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
                if before == 0 {
                    before = came;
                    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    match what {
                        "rewritten" => file.write_all_at(&vec![0xff; size], 0).unwrap(),
                        "cut" => file.set_len(1000).unwrap(),
                        _ => std::fs::write(&path, content(0, size)).unwrap(),
                    }
                    go_on.send(true).unwrap();
                }
            }
            let told = (failed, ranges.is_changed());
            match what {
                // All of it comes, and is told to be of two states.
                "rewritten" => {
                    assert_eq!((told, came), ((false, true), size), "{what} {size}");
                    assert!(all[..before] == content(0, before) && all[size - 1000..] == [0xff; 1000], "{what} {size}");
                }
                // What it has no more cannot come.
                "cut" => assert!(failed && came < size, "{what} {size}: {came}"),
                // Whoever sent meanwhile may have met its end.
                _ => assert!(failed || ranges.is_changed() && came == size, "{what} {size}: {told:?} {came}"),
            }
            assert!(!ranges.is_settled() && !ranges.is_unchanged(), "{what} {size}");
            // Nor is anything told behind an error, of which no piece is under way any more.
            assert!(!failed || !ranges.is_watched() && !ranges.is_settling(), "{what} {size}");
        }
    }
}
