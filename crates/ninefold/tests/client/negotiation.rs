//! Agreeing with servers that refuse in every way that real servers do, over TCP.

use std::time::Duration;

use ninefold::client::{Client, Error, Loss, Options};
use ninefold::proto::dialect::Version as Agreed;
use ninefold::proto::wire::{frame_size, split_frame};
use ninefold::proto::{Dialect, R, T, Tag};
use ninefold::transport::{Address, Place};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::fake;

/// What a server says to an offer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Version(u32, &'static str),
    Error,
    /// With .u's number behind the text.
    ErrorWithNumber,
    Lerror,
    Close,
    /// Closes with a reset.
    Reset,
    Silence,
}

use Answer::{Close, ErrorWithNumber, Lerror, Reset, Silence, Version};

const MSIZE: u32 = 65_536;

/// Takes connections and says to each offer what `answer` does; once agreed answers the attach.
async fn serve(answer: fn(&str) -> Answer) -> Address {
    serve_slowly(Duration::ZERO, answer).await
}

/// The same, each answer after `delay`.
async fn serve_slowly(delay: Duration, answer: fn(&str) -> Answer) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, delay, answer));
        }
    });
    let mut address: Address = "9p://127.0.0.1".parse().unwrap();
    address.place = Place::Tcp { host: "127.0.0.1".to_owned(), port };
    address
}

async fn converse(mut stream: TcpStream, delay: Duration, answer: fn(&str) -> Answer) {
    let mut agreed = None;
    let mut buffer = Vec::new();
    loop {
        let size = loop {
            match frame_size(&buffer, u32::MAX).unwrap() {
                Some(size) if size <= buffer.len() => break size,
                _ => {}
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let frame: Vec<u8> = buffer.drain(..size).collect();
        tokio::time::sleep(delay).await;
        let (header, body) = split_frame(&frame).unwrap();
        let mut out = Vec::new();
        match T::decode(header.kind, body, agreed.unwrap_or(Dialect::Plan9)).unwrap() {
            T::Version { version, .. } => match answer(std::str::from_utf8(version).unwrap()) {
                Version(msize, version) => {
                    agreed = Agreed::parse(version.as_bytes()).map(|version| version.dialect).or(agreed);
                    R::Version { msize, version: version.as_bytes() }.encode(header.tag, Dialect::Plan9, &mut out);
                }
                Answer::Error => R::Error { ename: b"no", errno: 0 }.encode(header.tag, Dialect::Plan9, &mut out),
                ErrorWithNumber => R::Error { ename: b"no", errno: 5 }.encode(Tag(0), Dialect::Unix, &mut out),
                Lerror => R::Lerror { ecode: 5, retry_ms: 0, text: b"" }.encode(Tag::NONE, Dialect::Linux, &mut out),
                Close => return,
                Reset => {
                    // Data that was not read makes a close a reset; so does this.
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Silence => {}
            },
            T::Attach { .. } => {
                R::Attach { qid: fake::qid(b"") }.encode(header.tag, agreed.unwrap(), &mut out);
            }
            other => panic!("{}", other.name()),
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn hasty() -> Options {
    Options { timeout: Some(Duration::from_secs(20)), ..Options::default() }
}

#[tokio::test]
async fn every_style_of_refusal_ends_in_the_best_dialect_in_common() {
    /// A server's name, what it says, and what comes of it.
    type Case = (&'static str, fn(&str) -> Answer, Dialect);
    let cases: [Case; 11] = [
        ("cuts what it does not know", |_| Version(MSIZE, "9P2000.L"), Dialect::Linux),
        (
            "unknown but to .L",
            |v| if v == "9P2000.L" { Version(MSIZE, v_l()) } else { Version(MSIZE, "unknown") },
            Dialect::Linux,
        ),
        (
            "unknown with an msize of 0",
            |v| if v == "9P2000.u" { Version(MSIZE, "9P2000.u") } else { Version(0, "unknown") },
            Dialect::Unix,
        ),
        ("Rlerror, as diod", |v| if v == "9P2000.L" { Version(MSIZE, v_l()) } else { Lerror }, Dialect::Linux),
        (
            "Rerror but to .u",
            |v| if v == "9P2000.u" { Version(MSIZE, "9P2000.u") } else { Answer::Error },
            Dialect::Unix,
        ),
        (
            "Rerror with a number, to all with a dot",
            |v| if v == "9P2000" { Version(MSIZE, "9P2000") } else { ErrorWithNumber },
            Dialect::Plan9,
        ),
        ("always the plain version", |_| Version(MSIZE, "9P2000"), Dialect::Plan9),
        (
            ".u only to exactly .u",
            |v| Version(MSIZE, if v == "9P2000.u" { "9P2000.u" } else { "9P2000" }),
            Dialect::Unix,
        ),
        (
            "closes on all but the plain version",
            |v| if v == "9P2000" { Version(MSIZE, "9P2000") } else { Close },
            Dialect::Plan9,
        ),
        ("resets", |v| if v == "9P2000" { Version(MSIZE, "9P2000") } else { Reset }, Dialect::Plan9),
        (
            "closes on .L and refuses .u",
            |v| match v {
                "9P2000.L.n1" | "9P2000.L" => Close,
                "9P2000.u" => Version(MSIZE, "unknown"),
                _ => Version(MSIZE, "9P2000"),
            },
            Dialect::Plan9,
        ),
    ];
    for (name, answer, dialect) in cases {
        let address = serve(answer).await;
        let client = Client::connect(&address, hasty()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((client.dialect(), client.msize()), (dialect, MSIZE), "{name}");
    }
}

fn v_l() -> &'static str {
    "9P2000.L"
}

#[tokio::test]
async fn a_server_that_cannot_be_agreed_with_is_told_apart_from_one_that_is_not_there() {
    let refusals: [fn(&str) -> Answer; 4] =
        [|_| Version(MSIZE, "unknown"), |_| Answer::Error, |_| Lerror, |_| Version(MSIZE, "9P3000")];
    for answer in refusals {
        let e = Client::connect(&serve(answer).await, hasty()).await.unwrap_err();
        assert!(matches!(e, Error::NoDialect(_)), "{e}");
    }
    for answer in [(|_| Close) as fn(&str) -> Answer, |_| Reset] {
        let e = Client::connect(&serve(answer).await, hasty()).await.unwrap_err();
        assert!(matches!(e, Error::Lost(Loss::Wordless)), "{e}");
    }
    let patience = Duration::from_millis(200);
    let options = Options { timeout: Some(patience), ..Options::default() };
    let address = serve(|_| Silence).await;
    let silent = timeout(Duration::from_secs(20), Client::connect(&address, options));
    let e = silent.await.unwrap().unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    let mut nobody = serve(|_| Silence).await;
    nobody.place = Place::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
    assert!(matches!(Client::connect(&nobody, hasty()).await, Err(Error::Dial(_))));
}

#[tokio::test]
async fn a_connection_is_made_within_the_timeout_however_many_tries_it_takes() {
    // Each answer comes soon enough, and all of them do not.
    let limit = Duration::from_millis(400);
    let options = Options { timeout: Some(limit), ..Options::default() };
    let answers: [fn(&str) -> Answer; 3] =
        [|_| Version(MSIZE, "unknown"), |_| Close, |v| if v == "9P2000" { Version(MSIZE, "9P2000") } else { Lerror }];
    for answer in answers {
        let address = serve_slowly(Duration::from_millis(250), answer).await;
        let connected = timeout(Duration::from_secs(20), Client::connect(&address, options.clone()));
        let e = connected.await.unwrap().unwrap_err();
        assert!(matches!(e, Error::TimedOut(told) if told == limit), "{e}");
    }
}

#[tokio::test]
async fn a_dialect_that_is_pinned_is_taken_or_nothing() {
    let mut address = serve(|_| Version(MSIZE, "9P2000")).await;
    for (dialect, taken) in [(Dialect::Linux, false), (Dialect::Unix, false), (Dialect::Plan9, true)] {
        address.dialect = Some(dialect.into());
        match Client::connect(&address, hasty()).await {
            Ok(client) => assert!(taken && client.dialect() == dialect),
            Err(e) => assert!(!taken && matches!(e, Error::NoDialect(_)), "{dialect}: {e}"),
        }
    }
}

#[tokio::test]
async fn groups_are_asked_for_by_who_pins_them_and_by_nobody_else() {
    let plain: Agreed = Dialect::Plan9.into();
    let groups = Agreed { groups: true, ..plain };
    // It would speak them if it were asked.
    let mut address = serve(|v| Answer::Version(MSIZE, if v == "9P2000.ix" { "9P2000.ix" } else { "9P2000" })).await;
    for (pinned, agreed) in [(None, plain), (Some(plain), plain), (Some(groups), groups)] {
        address.dialect = pinned;
        assert_eq!(Client::connect(&address, hasty()).await.unwrap().version(), agreed);
    }
    for answer in [(|_| Answer::Version(MSIZE, "9P2000")) as fn(&str) -> Answer, |_| Answer::Error] {
        let address = Address { dialect: Some(groups), ..serve(answer).await };
        assert!(matches!(Client::connect(&address, hasty()).await, Err(Error::NoDialect(_))));
    }
}
