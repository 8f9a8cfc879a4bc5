//! Sixteen operations beside each other, one of which is given up; what becomes of it is seen on the wire.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ninefold::client::{Client, Error, Follow, Lock, LockKind, Mode, Options};
use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold::server::{Limits, Server};
use ninefold::transport::Peer;
use ninefold::tree::ramfs::RamFs;

use crate::chains::{IX, UNIX_IX, versions, write};
use crate::support::{connect, link, over, ram, random, settled};
use crate::wire::{Wire, record};

/// At a time.
const OPERATIONS: usize = 16;

/// Kinds of operations.
const KINDS: u64 = 6;

/// Fids that the server grants on a connection: what it still holds can be counted by taking the rest.
const FIDS: usize = 64;

/// One way. Timers are exact to a millisecond, of which an operation takes thousands.
const DELAY: Duration = Duration::from_millis(300);

/// An operation of a program, in a directory of its own, where there is a file `f`.
async fn operation(client: &Client, n: usize, kind: u64) -> Result<(), Error> {
    let dir = format!("d{n}");
    let (file, other) = (format!("{dir}/f"), format!("{dir}/g"));
    match kind % KINDS {
        0 => client.metadata(&file, Follow::All).await.map(drop),
        1 => client.read(&file, 100).await.map(drop),
        2 => {
            client.rename(&file, b"g").await?;
            client.rename(&other, b"f").await
        }
        3 => {
            client.mkdir(&other, 0o755).await?;
            client.remove(&other).await
        }
        4 if client.dialect() == Dialect::Linux => {
            let file = client.walk(&file, Follow::All).await?.open(Mode::READ_WRITE).await?;
            let kind = LockKind::Exclusive;
            let lock = Lock { kind, start: n as u64, length: 1, process: n as u32, client: b"test".to_vec() };
            assert!(file.try_lock(&lock).await?);
            file.unlock(&lock).await
        }
        _ => {
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[dir.as_bytes(), b"f"]).await?;
            let opened = chain.open(&spot, Mode::WRITE).await?;
            let written = chain.write(&spot, 0, Bytes::from_static(b"again")).await?;
            let clunked = chain.clunk(spot).await?;
            walked.take().await?;
            opened.take().await?;
            written.take().await?;
            clunked.take().await
        }
    }
}

async fn directories(client: &Client) {
    for n in 0..OPERATIONS {
        client.mkdir(format!("d{n}"), 0o777).await.unwrap();
        write(client, format!("d{n}").as_bytes(), b"f", b"content").await;
    }
}

/// When an operation was given up.
#[derive(Clone, Copy)]
struct GivenUp {
    at: u64,
    /// Requests of it that were taken back then.
    taken_back: u64,
}

/// Runs an operation until some instant: after `patience` and then so many turns of the other tasks, for much happens within
/// one instant of the clock. `None`: it was done before.
async fn until(
    client: &Client,
    wire: &Wire,
    operation: impl Future<Output = Result<(), Error>>,
    (patience, turns): (Duration, u64),
) -> Option<GivenUp> {
    let mut operation = Box::pin(operation);
    {
        let patience = pin!(async {
            // Even the shortest sleep is longer than all that happens at once.
            if !patience.is_zero() {
                tokio::time::sleep(patience).await;
            }
            let mut left = turns;
            std::future::poll_fn(|cx| match left.checked_sub(1) {
                Some(fewer) => {
                    left = fewer;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
            .await;
        });
        tokio::select! {
            biased;
            result = &mut operation => {
                result.unwrap();
                return None;
            }
            () = patience => {}
        }
    }
    let (before, at) = (asked(client), wire.now());
    drop(operation);
    Some(GivenUp { at, taken_back: before - asked(client) })
}

/// Requests that the client has asked, those that have not left yet included.
fn asked(client: &Client) -> u64 {
    client.stats().messages.iter().filter(|(name, _)| name.starts_with('T')).map(|(_, n)| n).sum()
}

/// What was seen of operations that were given up.
#[derive(Debug, Default)]
struct Seen {
    /// A Tflush, and the Rflush or the reply.
    flushed: u64,
    /// The reply to what goes on, a Tclunk or Tremove.
    answered: u64,
    /// The reply was there already, and the operation had not looked at it.
    answered_before: u64,
    /// No byte of its request had left, and none ever did.
    taken_back: u64,
}

impl Seen {
    /// Judges what became of operation `n`, of which nothing is outstanding any more, by what left from the `from`th request on.
    fn judge(&mut self, wire: &Wire, from: usize, n: usize, given_up: GivenUp) {
        let own: Vec<_> = wire.requests(from).into_iter().filter(|request| request.owner == Some(n)).collect();
        let open: Vec<_> = own.iter().filter(|request| request.was_open(given_up.at)).collect();
        for request in &open {
            let (tag, kind) = (request.tag, request.kind);
            assert!(
                request.is_settled(),
                "given up, neither flushed nor answered: tag {tag}, message {kind} of operation {n}"
            );
        }
        if open.iter().any(|request| request.flushed.is_some_and(|then| then > given_up.at)) {
            self.flushed += 1;
        } else if given_up.taken_back > 0 {
            self.taken_back += 1;
        } else if open.is_empty() {
            assert!(
                own.iter().any(|request| request.begun < given_up.at),
                "nothing is seen of operation {n}, given up"
            );
            self.answered_before += 1;
        } else {
            self.answered += 1;
        }
    }

    fn all(&self) -> u64 {
        self.flushed + self.answered + self.answered_before + self.taken_back
    }
}

/// Sixteen operations at a time, one of which is given up, until `times` were.
async fn one_of_sixteen(version: Version, times: u64) {
    let limits = Limits { fids: FIDS, ..Limits::default() };
    let server = Server::builder().export("", Arc::new(RamFs::new()), false).limits(limits).build();
    let other = connect(&server, Dialect::Linux, Options::default()).await;
    directories(&other).await;
    let (ours, theirs) = link(DELAY);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    let (ours, wire) = record(ours);
    let client = over(ours, version, Options::default()).await;
    let (mut seed, mut seen, mut rounds) = (9, Seen::default(), 0);
    while seen.all() < times {
        rounds += 1;
        assert!(rounds < 3 * times, "{version}: too few are given up before they are done: {seen:?}");
        let from = wire.count();
        let unlucky = random(&mut seed) as usize % OPERATIONS;
        // Some before anything of them left.
        let patience = match random(&mut seed) % 16 {
            0 => Duration::ZERO,
            _ => Duration::from_millis(random(&mut seed) % 2000),
        };
        let instant = (patience, random(&mut seed) % 64);
        let operations = (0..OPERATIONS).map(|n| {
            let (client, wire, kind) = (client.fork(), wire.clone(), random(&mut seed) % KINDS);
            tokio::spawn(async move {
                let operation = operation(&client, n, kind);
                if n == unlucky {
                    return until(&client, &wire, operation, instant).await;
                }
                operation.await.unwrap_or_else(|e| panic!("{version}: operation {n}, kind {kind}: {e}"));
                None
            })
        });
        let given_up = join_all(operations).await.into_iter().find_map(|joined| joined.unwrap());
        settled(&client, 1).await;
        assert_eq!(wire.open(), 0, "{version}: requests of which neither a reply nor an Rflush was seen");
        assert_eq!(
            wire.count() as u64,
            asked(&client),
            "{version}: what was taken back left, or what was asked did not"
        );
        if let Some(given_up) = given_up {
            seen.judge(&wire, from, unlucky, given_up);
        }
        let dir = other.walk(format!("d{unlucky}"), Follow::All).await.unwrap();
        // What was half done is put right, so that the next round finds what it expects.
        if dir.metadata_of(b"f").await.is_err() {
            dir.rename(b"g", &dir, b"f").await.unwrap();
        } else if dir.metadata_of(b"g").await.is_ok() {
            dir.unlink(b"g", true).await.unwrap();
        }
        let file = dir.walk(&[b"f"]).await.unwrap().open(Mode::READ_WRITE).await.unwrap();
        let all = Lock { kind: LockKind::Exclusive, start: 0, length: 0, process: 1, client: b"other".to_vec() };
        assert_eq!(
            file.conflicting_lock(&all).await.unwrap(),
            None,
            "{version}: a lock of operation {unlucky} is left"
        );
    }
    let Seen { flushed, answered, answered_before, taken_back } = seen;
    let told = format!(
        "{version}: of {times} operations given up a Tflush was seen for {flushed}, the reply for {answered} and, before it \
         was looked at, for {answered_before}; {taken_back} were taken back before any byte of them left, and none of them did"
    );
    println!("{told}");
    assert_eq!(flushed + answered + answered_before + taken_back, times, "{told}");
    // Most are given up on the way; of many, some before they have left.
    assert!(flushed * 2 > times && taken_back < times / 5 && (times < 500 || taken_back > 0), "{told}");
    // The server has exactly one fid, the root's.
    let mut taken = Vec::new();
    for _ in 1..FIDS {
        taken.push(client.root().await.unwrap_or_else(|e| panic!("{version}: after {} fids: {e}", taken.len())));
    }
    assert!(client.root().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_operation_of_sixteen_given_up_leaves_fids_tags_and_locks_as_they_were() {
    one_of_sixteen(IX, 500).await;
    one_of_sixteen(Version::N1, 500).await;
    one_of_sixteen(Dialect::Linux.into(), 500).await;
    for version in [UNIX_IX, Dialect::Plan9.into(), Dialect::Unix.into()] {
        one_of_sixteen(version, 50).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_tag_is_shared_on_the_wire_where_there_are_no_groups() {
    for version in versions() {
        let server = ram();
        directories(&connect(&server, Dialect::Linux, Options::default()).await).await;
        let (ours, theirs) = link(DELAY);
        tokio::spawn(server.serve(theirs, Peer::Stdio));
        let (ours, wire) = record(ours);
        let client = over(ours, version, Options::default()).await;
        for kind in 0..12 {
            let operations = (0..OPERATIONS).map(|n| {
                let client = client.fork();
                async move { operation(&client, n, kind + n as u64).await }
            });
            for result in join_all(operations).await {
                result.unwrap();
            }
            // And of those given up.
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"d0"]).await.unwrap();
            let _stat = chain.stat(&spot).await.unwrap();
            let _again = chain.stat(&spot).await.unwrap();
            if kind % 2 == 0 {
                walked.take().await.unwrap();
            }
        }
        settled(&client, 1).await;
        assert_eq!(wire.shared() > 0, version.groups, "{version}: {}", wire.shared());
        assert_eq!(wire.open(), 0, "{version}");
    }
}
