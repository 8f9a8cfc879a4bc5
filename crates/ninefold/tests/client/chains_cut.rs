//! Chains that come to no good end: half sent, never answered, too long.

use std::collections::HashSet;
use std::time::Duration;

use ninefold::client::{Client, Error, Follow, Loss, Mode, Options};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Errno, T};
use ninefold::transport::{Peer, Stream, memory};
use tokio::time::{Instant, timeout};

use crate::chains::{versions, write};
use crate::fake::{self, Handled};
use crate::support::{BUFFER, SOON, connect, over, ram, settled};
use crate::wire::{Wire, record};

const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of a Twalk of `d0` and `f`: `size[4] Twalk tag[2] fid[4] newfid[4] nwname[2]` and the names.
const WALK: usize = 24;

const TFLUSH: u8 = 108;
const TCLUNK: u8 = 120;
const TREMOVE: u8 = 122;

fn hasty() -> Options {
    Options { timeout: Some(PATIENCE), ..Options::default() }
}

/// A client of a tree in memory with `d0/f` in it, and its wire.
async fn recorded(version: Version, options: Options) -> (Client, Client, Wire) {
    let server = ram();
    let near = connect(&server, ninefold::proto::Dialect::Linux, Options::default()).await;
    near.mkdir("d0", 0o777).await.unwrap();
    write(&near, b"d0", b"f", b"content").await;
    let (ours, theirs) = memory::pair(BUFFER);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    let (ours, wire) = record(ours);
    (over(ours, version, options).await, near, wire)
}

/// Waits until what is asked can leave no further; false: all of it was answered.
async fn stalls(client: &Client, wire: &Wire) -> bool {
    while !wire.is_stalled() {
        if client.held().1 == 0 {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

#[tokio::test(start_paused = true)]
async fn of_a_chain_given_up_at_any_byte_the_frame_that_has_begun_is_finished_and_no_other_follows_it() {
    for version in versions() {
        let (client, near, wire) = recorded(version, Options::default()).await;
        let (mut half, mut kept, mut removed) = (0, 0, 0);
        for bytes in 0.. {
            let from = wire.count();
            wire.stall_after(bytes);
            let mut chain = client.chain();
            let (spot, _walked) = chain.walk_root(&[b"d0", b"f"]).await.unwrap();
            let _stat = chain.stat(&spot).await.unwrap();
            let gone = chain.remove(spot).await.unwrap();
            let stalled = stalls(&client, &wire).await;
            let (begun, at) = (wire.has_begun(), wire.now());
            chain.abort();
            wire.flow();
            settled(&client, 1).await;
            if !stalled {
                gone.take().await.unwrap();
                break;
            }
            assert_eq!(gone.take().await.unwrap_err().errno(), Errno::ECANCELED);
            let requests = wire.requests(from);
            assert!(requests.iter().all(|request| request.is_settled()), "{version}: {requests:?}");
            let later: Vec<u8> =
                requests.iter().filter(|request| request.begun > at).map(|request| request.kind).collect();
            assert!(later.iter().all(|kind| [TFLUSH, TCLUNK].contains(kind)), "{version}, {bytes} bytes: {later:?}");
            let open = requests.iter().filter(|request| request.was_open(at)).count();
            // What goes on by itself is not flushed.
            let goes_on = requests.iter().filter(|request| request.was_open(at)).all(|request| request.kind == TREMOVE);
            assert_eq!(later.contains(&TFLUSH), open > 0 && !goes_on, "{version}, {bytes} bytes: {requests:?}");
            half += u32::from(begun);
            let asked = requests.iter().any(|request| request.kind == TREMOVE);
            match near.metadata("d0/f", Follow::All).await {
                Ok(_) => kept += 1,
                Err(e) => {
                    assert!(asked && e.errno() == Errno::ENOENT, "{version}, {bytes} bytes: {e}");
                    removed += 1;
                    write(&near, b"d0", b"f", b"content").await;
                }
            }
        }
        assert!(half > 25 && kept > 25 && removed > 0, "{version}: {half}, {kept}, {removed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_stalls_half_sent_times_out_and_takes_the_connection_with_it_when_it_stays_so() {
    for version in versions() {
        // In the first frame and in the second, which without groups is sent later.
        for bytes in [10, WALK + 5] {
            let (client, _near, wire) = recorded(version, hasty()).await;
            let began = Instant::now();
            wire.stall_after(bytes);
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"d0", b"f"]).await.unwrap();
            let stat = chain.stat(&spot).await.unwrap();
            let opened = chain.open(&spot, Mode::READ).await.unwrap();
            let read = chain.read(&spot, 0, 100).await.unwrap();
            let last = read.take().await.unwrap_err();
            assert!(stalls(&client, &wire).await && wire.has_begun(), "{version}, {bytes} bytes");
            let whole = walked.take().await;
            let others = [stat.take().await.map(drop), opened.take().await.map(drop)];
            for error in [last].into_iter().chain(others.into_iter().map(Result::unwrap_err)) {
                assert!(matches!(error, Error::TimedOut(PATIENCE)), "{version}, {bytes} bytes: {error}");
            }
            assert_eq!(whole.is_ok(), bytes > WALK, "{version}: {whole:?}");
            assert_eq!(began.elapsed(), PATIENCE);
            drop((chain, spot));
            over_at_last(&client).await;
            let error = client.root().await.unwrap_err();
            assert!(matches!(error, Error::Lost(Loss::Unanswered)), "{version}, {bytes} bytes: {error}");
        }
    }
}

/// Waits until the connection is over.
async fn over_at_last(client: &Client) {
    let over = async {
        while !matches!(client.root().await, Err(Error::Lost(_))) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON, over).await.expect("it ends");
}

/// A fake that is silent to every Tstat or Tgetattr, and to what comes behind one under its tag, until a Tflush: that it answers if
/// it `flushes`.
fn silent_to_stat(stream: Stream, flushes: bool) {
    let mut silent = HashSet::new();
    fake::serve(stream, 7, move |_, tag, request| -> Handled {
        match *request {
            T::Flush { oldtag } => {
                silent.remove(&oldtag);
                !flushes
            }
            T::Stat { .. } | T::Getattr { .. } => {
                silent.insert(tag);
                true
            }
            _ => silent.contains(&tag),
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_to_the_second_of_a_chain_keeps_it_and_those_behind_it_no_longer_than_the_timeout() {
    for (version, flushes) in versions().into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let (ours, theirs) = memory::pair(BUFFER);
        silent_to_stat(theirs, flushes);
        let client = over(ours, version, hasty()).await;
        let began = Instant::now();
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let stat = chain.stat(&spot).await.unwrap();
        let opened = chain.open(&spot, Mode::READ).await.unwrap();
        let clunked = chain.clunk(spot).await.unwrap();
        assert_eq!(walked.take().await.unwrap().len(), 2);
        assert!(began.elapsed() < PATIENCE);
        let errors = [
            stat.take().await.map(drop).unwrap_err(),
            opened.take().await.map(drop).unwrap_err(),
            clunked.take().await.unwrap_err(),
        ];
        assert!(errors.iter().all(|error| matches!(error, Error::TimedOut(PATIENCE))), "{version}: {errors:?}");
        assert_eq!(began.elapsed(), PATIENCE, "{version}");
        drop(chain);
        if flushes {
            // The connection goes on, and nothing is left of the chain.
            settled(&client, 1).await;
            assert_eq!(client.stats().messages["Tflush"], 1, "{version}");
            client.walk("d/g", Follow::All).await.unwrap();
            settled(&client, 1).await;
        } else {
            over_at_last(&client).await;
            assert!(began.elapsed() <= 2 * PATIENCE + Duration::from_secs(1), "{:?}", began.elapsed());
            let error = client.root().await.unwrap_err();
            assert!(matches!(error, Error::Lost(Loss::Unanswered)), "{version}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_sixty_fifth_unanswered_request_of_a_chain_is_refused_and_costs_nothing() {
    for version in versions() {
        let (client, _near, wire) = recorded(version, Options::default()).await;
        wire.stall_after(0);
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[b"d0", b"f"]).await.unwrap();
        let mut stats = Vec::new();
        for _ in 1..64 {
            stats.push(chain.stat(&spot).await.unwrap());
        }
        let held = client.held();
        for _ in 0..3 {
            let refused = chain.stat(&spot).await.map(drop);
            assert!(matches!(refused, Err(Error::TooLarge("the chain", _))), "{version}: {refused:?}");
            let walk = chain.walk_root(&[b"d0"]).await.map(drop);
            assert!(matches!(walk, Err(Error::TooLarge("the chain", _))), "{version}: {walk:?}");
        }
        assert_eq!(client.held(), held);
        wire.flow();
        assert_eq!(walked.take().await.unwrap().len(), 2);
        stats.push(chain.stat(&spot).await.unwrap());
        assert_eq!(stats.len(), 64);
        for stat in stats {
            assert_eq!(stat.take().await.unwrap().size, 7);
        }
        chain.clunk(spot).await.unwrap().take().await.unwrap();
        drop(chain);
        settled(&client, 1).await;
    }
}
