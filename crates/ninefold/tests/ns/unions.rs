//! Unions of real servers: who is asked, who answers, and where a file is put.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ninefold::client::{Client, Follow, Mode, Options};
use ninefold::ns::{Namespace, Order};
use ninefold::proto::Errno;
use ninefold::transport::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::servers::{AFTER, DIALECTS, REPLACE, errno, put, ram, text};
use crate::support::CACHE;

/// Bound on waits: a test that needs it has failed.
const LONG: Duration = Duration::from_secs(30);

/// A server reached by a road that can be closed: what is sent from then on arrives nowhere, and nobody is told.
struct Road {
    address: Address,
    closed: Arc<AtomicBool>,
}

impl Road {
    async fn to(server: &Address) -> Road {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = server.to_string();
        let (host, dialect) = text.trim_start_matches("9p://").split_once('?').unwrap();
        let address = format!("9p://{}?{dialect}", listener.local_addr().unwrap()).parse().unwrap();
        let closed = Arc::new(AtomicBool::new(false));
        let (host, flag) = (host.to_owned(), closed.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&host).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(near_in, far_out, flag.clone()));
                tokio::spawn(carry(far_in, near_out, flag.clone()));
            }
        });
        Road { address, closed }
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    closed: Arc<AtomicBool>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if !closed.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn union_of(members: &[&Address]) -> Namespace {
    let ns = Namespace::new(Options::default());
    for (at, address) in members.iter().enumerate() {
        ns.mount(address, "/u", if at == 0 { REPLACE } else { AFTER }).await.unwrap();
    }
    ns
}

#[tokio::test]
async fn looking_into_a_union_of_three_is_one_round_trip_and_opening_a_file_of_the_first() {
    let ns = Namespace::new(Options::default());
    for at in 0..3 {
        let address = ram(DIALECTS[0]).await;
        put(&address, &format!("/only{at}"), "it").await;
        ns.mount(&address, "/bin", if at == 0 { REPLACE } else { AFTER }).await.unwrap();
    }
    let trips = || -> Vec<u32> { ns.clients().iter().map(|client| client.stats().round_trips).collect() };
    let grown = |before: &[u32]| trips().iter().zip(before).map(|(after, before)| after - before).max();
    let before = trips();
    ns.metadata("/bin/only2", Follow::All).await.unwrap();
    assert_eq!(grown(&before), Some(1));
    // Which of the others has it is known first.
    let before = trips();
    assert_eq!(text(&ns, "/bin/only2").await, "it");
    assert_eq!(grown(&before), Some(2));
    let before = trips();
    assert_eq!(text(&ns, "/bin/only0").await, "it");
    assert_eq!(grown(&before), Some(1));
}

#[tokio::test]
async fn a_member_that_is_silent_holds_up_nothing_that_one_before_it_has() {
    for dialect in DIALECTS {
        let (near, far) = (ram(dialect).await, ram(dialect).await);
        put(&near, "/ls", "near").await;
        let road = Road::to(&far).await;
        let ns = union_of(&[&near, &road.address]).await;
        road.closed.store(true, Ordering::SeqCst);
        let looked = async {
            ns.metadata("/u/ls", Follow::All).await.unwrap();
            ns.look("/u/ls", Follow::All).await.unwrap();
            assert_eq!(text(&ns, "/u/ls").await, "near");
            drop(ns.open("/u/ls", Mode::READ).await.unwrap());
        };
        tokio::time::timeout(LONG, looked).await.unwrap_or_else(|_| panic!("{dialect}: waited for the silent one"));
    }
}

#[tokio::test]
async fn a_file_is_opened_in_the_one_member_that_is_meant() {
    // What was opened, replies tell: behind a walk that fails an open is refused.
    for dialect in DIALECTS {
        let (one, two, three) = (ram(dialect).await, ram(dialect).await, ram(dialect).await);
        for (server, file) in [(&one, "/a"), (&two, "/b"), (&three, "/a"), (&three, "/b")] {
            put(server, file, "it").await;
        }
        let ns = union_of(&[&one, &two, &three]).await;
        let opens = || -> u64 {
            let opens = |client: &Client| {
                let messages = client.stats().messages;
                ["Ropen", "Rlopen"].iter().filter_map(|name| messages.get(name)).sum::<u64>()
            };
            ns.clients().iter().map(opens).sum()
        };
        let before = opens();
        for (at, name) in (1..).zip(["/u/a", "/u/b"]) {
            assert_eq!(text(&ns, name).await, "it");
            drop(ns.open(name, Mode::READ).await.unwrap());
            assert_eq!(opens() - before, 2 * at, "{dialect} {name}");
        }
    }
}

/// A union of two, of which the second has all that is `in_second`.
async fn two(dialect: &str, in_first: &[&str], in_second: &[&str]) -> Namespace {
    let (one, two) = (ram(dialect).await, ram(dialect).await);
    for (server, files, text) in [(&one, in_first, "first"), (&two, in_second, "second")] {
        for file in files {
            put(server, file, text).await;
        }
    }
    union_of(&[&one, &two]).await
}

#[tokio::test]
async fn below_a_union_a_file_is_renamed_in_the_member_that_has_its_directory() {
    for dialect in DIALECTS {
        let ns = two(dialect, &["/other"], &["/d1/x", "/d2/file"]).await;
        ns.rename("/u/d1/x", "/u/d1/y").await.unwrap_or_else(|e| panic!("{dialect}: {e}"));
        assert_eq!(text(&ns, "/u/d1/y").await, "second", "{dialect}");
        assert_eq!(errno(ns.rename("/u/none/x", "/u/d1/x").await), Errno::ENOENT, "{dialect}");
        assert_eq!(errno(ns.rename("/u/d1/none", "/u/d1/x").await), Errno::ENOENT, "{dialect}");
        // 9P2000 has no rename from directory to directory.
        if dialect.starts_with("9P2000.L") {
            ns.rename("/u/d1/y", "/u/d2/x").await.unwrap_or_else(|e| panic!("{dialect}: {e}"));
            assert_eq!(text(&ns, "/u/d2/x").await, "second", "{dialect}");
        }
    }
}

#[tokio::test]
async fn no_rename_in_a_union_loses_a_file_from_view() {
    for dialect in DIALECTS {
        let ns = two(dialect, &["/sub/file", "/taken"], &["/sub/file", "/x", "/y"]).await;
        // The directory that is seen is the first member's.
        assert_eq!(errno(ns.rename("/u/x", "/u/sub/x").await), Errno::EXDEV, "{dialect}");
        // The new name would go on being the first member's.
        assert_eq!(errno(ns.rename("/u/x", "/u/taken").await), Errno::EXDEV, "{dialect}");
        assert_eq!((text(&ns, "/u/x").await, text(&ns, "/u/taken").await), ("second".into(), "first".into()));
        ns.rename("/u/x", "/u/z").await.unwrap();
        assert_eq!(text(&ns, "/u/z").await, "second", "{dialect}");
        // What a later member has of that name is out of sight before and after.
        ns.rename("/u/taken", "/u/y").await.unwrap();
        assert_eq!(text(&ns, "/u/y").await, "first", "{dialect}");
    }
}

#[tokio::test]
async fn whether_a_file_may_be_cached_the_member_says_that_has_it() {
    let (one, two) = (ram(DIALECTS[0]).await, ram(DIALECTS[0]).await);
    put(&one, "/device", "one").await;
    put(&two, "/plain", "two").await;
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/u", REPLACE).await.unwrap();
    ns.mount(&two, "/u", (Order::After, CACHE)).await.unwrap();
    assert!(!ns.may_cache("/u/device").await.unwrap());
    assert!(ns.may_cache("/u/plain").await.unwrap());
    assert_eq!(errno(ns.may_cache("/u/none").await), Errno::ENOENT);
}
