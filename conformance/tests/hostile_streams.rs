//! The client library against a server whose streams misbehave: each misbehaviour in each of its versions, over TCP, to the exact
//! error. Whatever a server does, what a stream brought does not look whole when it is not; an errand ends within the client's
//! timeouts; and nothing is dialled but the server itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Attach, Client, Error, Follow, Mode, Options};
use ninefold::proto::dialect::Version;
use ninefold_conformance::hostile::{Hostile, find, streams, tree};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use Errand::{Read, ReadPart, ReadSmall, Write};

/// The client's bound where the server is silent: it ends the wait.
const SHORT: Duration = Duration::from_secs(12);

/// And where it is not: no wait ends by it, however busy the machine is.
const LONG: Duration = Duration::from_secs(120);

/// A bound against hanging: a few of the short waits, on a busy machine.
const HANGS: Duration = Duration::from_secs(240);

/// Bytes that are written.
const WRITTEN: usize = 1 << 20;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Errand {
    /// A file of 3 MiB, to its end.
    Read,
    /// A part of it, of known length.
    ReadPart,
    /// A file of 6 bytes.
    ReadSmall,
    /// A new file of 1 MiB.
    Write,
}

const ALL: [Errand; 4] = [Read, ReadPart, ReadSmall, Write];
const READS: [Errand; 3] = [Read, ReadPart, ReadSmall];

const S: &[&str] = &["9P2000.s", "9P2000.u.s"];
const N1: &[&str] = &["9P2000.L.n1"];
const ANY: &[&str] = &["9P2000.s", "9P2000.u.s", "9P2000.L.n1"];

/// What comes of some errands in some versions, `*` standing for anything and `|` between what may be. What nobody lists goes well, by
/// a stream; `in messages`: it goes well without one.
struct Expected(&'static [&'static str], &'static [Errand], &'static str);

/// One test for each misbehaviour, named after it.
macro_rules! survived {
    ($($name:ident { $($versions:ident $errands:expr => $text:literal;)* })*) => {
        mod a_client_survives {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    play(stringify!($name), &[$(Expected($versions, &$errands, $text)),*]).await;
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

survived! {
    // Nobody is dialled there: the wait would show, or the bytes.
    stream_address_elsewhere { ANY ALL => "in messages"; }
    stream_address_port_0 { ANY ALL => "Misbehaved(StreamAddress)"; }
    stream_address_garbage { ANY ALL => "Misbehaved(StreamAddress)"; }
    stream_address_long { ANY ALL => "in messages"; }
    stream_port_closed { ANY ALL => "in messages"; }
    stream_reply_short {
        S ALL => r#"Misbehaved(Body { name: "Rstream", error: Short("data") })"#;
        N1 ALL => r#"Misbehaved(Body { name: "Rstream", error: Short("addr") })"#;
    }
    stream_reply_silent { ANY ALL => "TimedOut(12s)"; }
    stream_session_closed {
        // Of a part whose length is known a server of .s is asked nothing at its end: it is whole when all of it was there before.
        S [ReadPart] => "ok|Lost(Closed)|Stream(Cut(*))";
        // The server behind it resets its streams with the session: whichever is seen first.
        ANY ALL => "Lost(Closed)|Stream(Cut(*))";
    }
    stream_silent {
        ANY READS => "in messages";
        ANY [Write] => "TimedOut(*)";
    }
    stream_reset {
        // Where the reset is there before the client has looked, no connection was had, and there is another way.
        ANY READS => "Stream(Cut(*))|in messages";
        ANY [Write] => "Stream(Cut(*))";
    }
    stream_less {
        ANY [Read] => "Stream(Short { got: 300001, sent: 3145729 })";
        ANY [ReadPart] => "Stream(Short { got: 300001, sent: 1048576 })";
    }
    stream_more {
        // In .s nobody says how much there is, but the file's size.
        S [Read, ReadSmall] => "Stream(Changed)";
        S [Write] => "Stream(Beyond { asked: 0 })";
        N1 [Read] => "Stream(Short { got: 3145737, sent: 3145729 })";
        N1 [ReadPart] => "Stream(Beyond { asked: 1048576 })";
        N1 [ReadSmall] => "Stream(Short { got: 14, sent: 6 })";
    }
    stream_greets {
        N1 [Read] => "Stream(Short { got: 3145737, sent: 3145729 })";
        N1 [ReadPart] => "Stream(Beyond { asked: 1048576 })";
        N1 [ReadSmall] => "Stream(Short { got: 14, sent: 6 })";
    }
    stream_unended {
        N1 READS => "TimedOut(12s)";
        S [Read, ReadSmall] => "TimedOut(12s)";
        S [Write] => "TimedOut(*)";
    }
    stream_drip {}
    stream_swallows {
        ANY READS => "in messages";
        ANY [Write] => "Stream(Unwritten { sent: 1048576, written: 0 })|Stream(Cut(*))";
    }
    stream_token_wrong {
        N1 READS => "in messages";
        N1 [Write] => "TimedOut(*)|Stream(Cut(*))";
    }
    stream_part_elsewhere { N1 ALL => "Suspect(StreamPart { * })"; }
    stream_part_longer { N1 ALL => "Suspect(StreamPart { * })"; }
    stream_part_beyond { N1 ALL => "Misbehaved(StreamPart { offset: 18446744073709551615, length: 18446744073709551615 })"; }
    stream_end_count_more {
        N1 [Read] => "Stream(Short { got: 3145729, sent: 3145730 })";
        N1 [ReadPart] => "Stream(Short { got: 1048576, sent: 1048577 })";
        N1 [ReadSmall] => "Stream(Short { got: 6, sent: 7 })";
        N1 [Write] => "Stream(Unwritten { sent: 1048576, written: 1048577 })";
    }
    stream_end_count_less {
        N1 [Read] => "Stream(Short { got: 3145729, sent: 3145728 })";
        N1 [ReadPart] => "Stream(Short { got: 1048576, sent: 1048575 })";
        N1 [ReadSmall] => "Stream(Short { got: 6, sent: 5 })";
        N1 [Write] => "Stream(Unwritten { sent: 1048576, written: 1048575 })";
    }
    stream_end_modrev { N1 READS => "Stream(Changed)"; }
    stream_end_error {
        // An error that is told before the first byte is taken is one of the stream, perhaps, and not of the file.
        N1 READS => "Refused(Error { errno: EIO, text: None })|in messages";
        N1 [Write] => "Refused(Error { errno: EIO, text: None })";
    }
    stream_end_silent {
        N1 READS => "Stream(Cut(Kind(UnexpectedEof)))";
        N1 [Write] => "TimedOut(*)";
    }
}

/// Those in which the client's timeout ends a wait.
const SILENT: [&str; 5] =
    ["stream-reply-silent", "stream-silent", "stream-unended", "stream-end-silent", "stream-token-wrong"];

#[test]
fn every_misbehaviour_of_streams_is_in_the_list() {
    let table: BTreeSet<String> = streams().map(|row| row.name.replace('-', "_")).collect();
    assert_eq!(table, NAMES.iter().map(|&name| name.to_owned()).collect());
}

async fn play(name: &str, expected: &[Expected]) {
    let name = name.replace('_', "-");
    let misbehaviour = find(&name).unwrap();
    let is_silent = SILENT.contains(&misbehaviour.name);
    let mut runs = JoinSet::new();
    let mut wrong = Vec::new();
    for version in misbehaviour.versions() {
        for errand in ALL {
            // A drip of megabytes is nothing to wait for.
            if name == "stream-drip" && matches!(errand, Read | ReadPart) {
                continue;
            }
            let hostile = Arc::new(Hostile::new(misbehaviour).await.unwrap());
            let ran = run(hostile, version, errand, if is_silent { SHORT } else { LONG });
            runs.spawn(async move { (version, errand, timeout(HANGS, ran).await) });
            // Those that wait do so together.
            while !is_silent && let Some(ran) = runs.join_next().await {
                wrong.extend(judge(ran.unwrap(), expected));
            }
        }
    }
    while let Some(ran) = runs.join_next().await {
        wrong.extend(judge(ran.unwrap(), expected));
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// What is wrong with what came of an errand.
fn judge((version, errand, told): (Version, Errand, Result<String, Elapsed>), expected: &[Expected]) -> Option<String> {
    let told = told.unwrap_or_else(|_| "it hangs".to_owned());
    let row = expected.iter().find(|row| row.0.contains(&version.as_str()) && row.1.contains(&errand));
    let wanted = row.map_or("ok", |row| row.2);
    let is_wanted = wanted.split('|').any(|wanted| is_like(&told, wanted));
    (!is_wanted).then(|| format!("{version} {errand:?}: wanted {wanted}, got {told}"))
}

/// `*` stands for anything.
fn is_like(told: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        Some((begin, end)) => told.len() >= begin.len() + end.len() && told.starts_with(begin) && told.ends_with(end),
        None => told == wanted,
    }
}

async fn run(hostile: Arc<Hostile>, version: Version, errand: Errand, patience: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let hostile = hostile.clone();
            tokio::spawn(async move { hostile.serve(client.into()).await });
        }
    });
    let options = Options { timeout: Some(patience), ..Options::default() };
    let attach = Attach { dialect: Some(version), ..Attach::default() };
    let client = Client::over(TcpStream::connect(address).await.unwrap().into(), &attach, options).await.unwrap();
    let told = match go(&client, errand).await {
        Ok(Ok(true)) => "in messages".to_owned(),
        Ok(Ok(false)) => "ok".to_owned(),
        Ok(Err(odd)) => odd,
        Err(e) => format!("{e:?}"),
    };
    let _ = client.close(SHORT).await;
    serving.abort();
    told
}

/// Does the errand: whether it went by messages, or what was odd.
async fn go(client: &Client, errand: Errand) -> Result<Result<bool, String>, Error> {
    let (name, offset, length) = match errand {
        Read => ("/numbers", 0, None),
        ReadPart => ("/numbers", 1 << 20, Some(1 << 20)),
        ReadSmall => ("/greeting", 0, None),
        Write => return write(client).await,
    };
    let whole = if errand == ReadSmall { tree::GREETING } else { tree::numbers() };
    let wanted = &whole[offset as usize..length.map_or(whole.len(), |length: u64| (offset + length) as usize)];
    let file = client.walk(name, Follow::All).await?.open(Mode::READ).await?;
    let mut stream = file.stream_read(offset, length).await?;
    let mut got = Vec::new();
    while let Some(data) = stream.next().await? {
        got.extend_from_slice(&data);
    }
    let is_in_band = stream.is_in_band();
    stream.finish().await?;
    Ok(if got == wanted { Ok(is_in_band) } else { Err(format!("{} of {} bytes", got.len(), wanted.len())) })
}

async fn write(client: &Client) -> Result<Result<bool, String>, Error> {
    let content = Bytes::from(vec![b'w'; WRITTEN]);
    let file = client.root().await?.create(b"written", Mode::WRITE, 0o644).await?;
    let mut stream = file.stream_write(0, None).await?;
    for at in (0..WRITTEN).step_by(64 << 10) {
        stream.write(&content[at..at + (64 << 10)]).await?;
    }
    let is_in_band = stream.is_in_band();
    let written = stream.finish().await?;
    file.close().await?;
    let size = client.metadata("/written", Follow::All).await?.size;
    let is_there = (written, size) == (WRITTEN as u64, WRITTEN as u64);
    Ok(if is_there { Ok(is_in_band) } else { Err(format!("{written} bytes were written, {size} are there")) })
}
