//! What a client does with a hostile server: one errand on one connection, and what came of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Attach, Client, Error, File, Follow, Lock, LockKind, Mode, Options};
use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold::transport::memory;
use ninefold_conformance::hostile::{Hostile, tree};
use tokio::time::{Instant, timeout};

/// The bound of every wait for a reply. Time is virtual.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Entries of one directory that the client believes. The tree has a handful.
const ENTRIES_MAX: usize = 10_000;

/// Bytes of the largest message to offer: small, so that `numbers` takes many.
const MSIZE: u32 = 128 * 1024;

/// The caller's own bound on the requests of one read or write: a server that gives a byte at a time stays within its
/// rights, and a caller who has enough of it stops.
const REQUESTS: u64 = 1000;

/// Longer than the client waits for an Rflush before it gives the connection up.
const FLUSH_PATIENCE: Duration = Duration::from_secs(61);

/// Bytes each way of the connection in memory.
const BUFFER: usize = 64 * 1024;

/// What a connection on which nothing is done holds: the fid of the root, and no request.
pub const SETTLED: (usize, usize) = (1, 0);

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// Nothing but to connect.
    Connect,
    /// The attributes of a file.
    Metadata,
    /// All names of the root.
    List,
    /// A file of 6 bytes, whole, in reads of 100 bytes.
    Read,
    /// A file of 3 MiB, whole, with several reads on the way.
    ReadLarge,
    /// A new file of 100 bytes, read back.
    Write,
    /// A new file of 1 MiB, with several writes on the way.
    WriteLarge,
    /// A path of more names than one walk holds.
    Deep,
    /// A symbolic link's target, and the file behind it.
    Link,
    /// An extended attribute.
    Xattr,
    /// A lock, and its end.
    Lock,
    /// A read given up, and whether the connection lives on.
    Cancel,
    /// A file read, and one made, each by one chain of requests, which with groups is sent at once.
    Chain,
    /// A read of a chain given up together with what is chained behind it, and whether the connection lives on.
    ChainCancel,
}

impl Errand {
    pub const ALL: [Errand; 14] = [
        Errand::Connect,
        Errand::Metadata,
        Errand::List,
        Errand::Read,
        Errand::ReadLarge,
        Errand::Write,
        Errand::WriteLarge,
        Errand::Deep,
        Errand::Link,
        Errand::Xattr,
        Errand::Lock,
        Errand::Cancel,
        Errand::Chain,
        Errand::ChainCancel,
    ];

    /// Whether the version has what it takes. Without groups a chain is what `Read` and `Write` are.
    pub fn is_of(self, version: Version) -> bool {
        match self {
            Errand::Link => version.dialect != Dialect::Plan9,
            Errand::Xattr | Errand::Lock => version.dialect == Dialect::Linux,
            Errand::Chain | Errand::ChainCancel => version.groups,
            _ => true,
        }
    }

    /// Requests of it that are refused though all goes well: with groups what is to be made is looked for first.
    pub fn refusals(self, version: Version) -> u64 {
        let makes = matches!(self, Errand::Write | Errand::WriteLarge | Errand::Chain);
        u64::from(version.groups && makes)
    }
}

/// What came of an errand.
pub struct Outcome {
    /// `ok`; or `ok:` and what was not as in an honest server's tree; or the error as Rust prints it.
    pub text: String,
    /// The virtual time that it took, without waits of its own.
    pub took: Duration,
    /// The virtual time that the end of the connection took.
    pub close_took: Duration,
    /// Fids that the server still knew afterwards, and requests that it had not answered.
    pub held: (usize, usize),
    /// Requests that the server refused, those that nobody waited for included.
    pub refused: u64,
}

/// Runs an errand on a connection of its own.
pub async fn run(server: Arc<Hostile>, version: Option<Version>, errand: Errand) -> Outcome {
    let (ours, theirs) = memory::pair(BUFFER);
    let served = tokio::spawn(async move { server.serve(theirs).await });
    let options = Options { timeout: Some(TIMEOUT), msize: MSIZE, dir_entries_max: ENTRIES_MAX, ..Options::default() };
    let began = Instant::now();
    let attach = Attach { dialect: version, ..Attach::default() };
    let mut rested = Duration::ZERO;
    let (result, client) = match Client::over(ours, &attach, options).await {
        Ok(client) => (go(&client, errand, &mut rested).await, Some(client)),
        Err(e) => (Err(e), None),
    };
    let took = began.elapsed() - rested;
    let (mut held, mut refused) = (SETTLED, 0);
    if let Some(client) = &client {
        let settled = async {
            while client.held() != SETTLED {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(TIMEOUT, settled).await;
        held = client.held();
        let messages = client.stats().messages;
        refused = ["Rerror", "Rlerror"].iter().filter_map(|name| messages.get(name)).sum();
    }
    let closing = Instant::now();
    if let Some(client) = client {
        // The connection may be lost already: what matters is that this ends.
        let _ = client.close(TIMEOUT).await;
    }
    let close_took = closing.elapsed();
    served.abort();
    let text = match result {
        Ok(None) => "ok".to_owned(),
        Ok(Some(odd)) => format!("ok: {odd}"),
        Err(e) => format!("{e:?}"),
    };
    Outcome { text, took, close_took, held, refused }
}

/// Does the errand; says what was odd about what came of it.
async fn go(client: &Client, errand: Errand, rested: &mut Duration) -> Result<Option<String>, Error> {
    match errand {
        Errand::Connect => Ok(None),
        Errand::Metadata => {
            let meta = client.walk("/greeting", Follow::NotLast).await?.metadata().await?;
            Ok(odd(meta.size == tree::GREETING.len() as u64, || format!("{} bytes", meta.size)))
        }
        Errand::List => list(client).await,
        Errand::Read => read(client).await,
        Errand::ReadLarge => stoppable(client, read_large(client)).await,
        Errand::Write => write(client).await,
        Errand::WriteLarge => stoppable(client, write_large(client)).await,
        Errand::Deep => {
            let meta = client.walk(tree::deep_path(), Follow::All).await?.metadata().await?;
            Ok(odd(meta.size == 5, || format!("{} bytes", meta.size)))
        }
        Errand::Link => {
            let target = client.walk("/link", Follow::NotLast).await?.read_link().await?;
            let meta = client.walk("/link", Follow::All).await?.metadata().await?;
            let expected = target == b"greeting" && meta.size == tree::GREETING.len() as u64;
            Ok(odd(expected, || format!("'{}', {} bytes", target.escape_ascii(), meta.size)))
        }
        Errand::Xattr => {
            let value = client.walk("/greeting", Follow::All).await?.get_xattr(b"user.note").await?;
            Ok(odd(value == b"remark", || value.escape_ascii().to_string()))
        }
        Errand::Lock => {
            let file = client.walk("/greeting", Follow::All).await?.open(Mode::READ_WRITE).await?;
            let lock = Lock { kind: LockKind::Exclusive, start: 0, length: 1, process: 1, client: b"me".to_vec() };
            let taken = file.try_lock(&lock).await?;
            file.unlock(&lock).await?;
            Ok(odd(taken, || "not taken".to_owned()))
        }
        Errand::Cancel => {
            let file = client.walk("/greeting", Follow::All).await?.open(Mode::READ).await?;
            // Dropped before the timeout of its own.
            let _ = timeout(TIMEOUT / 2, file.read_at(0, 100)).await;
            lives_on(client, rested).await
        }
        Errand::Chain => chain(client).await,
        Errand::ChainCancel => {
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"greeting"]).await?;
            let opened = chain.open(&spot, Mode::READ).await?;
            walked.take().await?;
            opened.take().await?;
            let read = chain.read(&spot, 0, 100).await?;
            let _stat = chain.stat(&spot).await?;
            let _clunked = chain.clunk(spot).await?;
            let _ = timeout(TIMEOUT / 2, read.take()).await;
            drop(chain);
            lives_on(client, rested).await
        }
    }
}

/// Whether the connection is of use, at once and when the server has had its time to answer a Tflush.
async fn lives_on(client: &Client, rested: &mut Duration) -> Result<Option<String>, Error> {
    client.root().await?.metadata().await?;
    let rest = Instant::now();
    tokio::time::sleep(FLUSH_PATIENCE).await;
    *rested = rest.elapsed();
    client.root().await?.metadata().await.map(|_| None)
}

async fn chain(client: &Client) -> Result<Option<String>, Error> {
    let mut chain = client.chain();
    let (spot, walked) = chain.walk_root(&[b"greeting"]).await?;
    let opened = chain.open(&spot, Mode::READ).await?;
    let read = chain.read(&spot, 0, 100).await?;
    let metadata = chain.stat(&spot).await?;
    let clunked = chain.clunk(spot).await?;
    let walked = walked.take().await?;
    opened.take().await?;
    let (got, size) = (read.take().await?, metadata.take().await?.size);
    clunked.take().await?;
    if walked.len() != 1 || got != tree::GREETING || size != got.len() as u64 {
        return Ok(Some(format!("{} names, {} bytes of {size}", walked.len(), got.len())));
    }
    let (new, walked) = chain.walk_root(&[]).await?;
    let made = chain.create(&new, b"chained", Mode::WRITE, 0o644).await?;
    let written = chain.write(&new, 0, Bytes::from_static(&[b'w'; 100])).await?;
    let clunked = chain.clunk(new).await?;
    walked.take().await?;
    made.take().await?;
    let written = written.take().await?;
    clunked.take().await?;
    Ok(odd(written == 100, || format!("{written} bytes were written")))
}

fn odd(expected: bool, what: impl FnOnce() -> String) -> Option<String> {
    (!expected).then(what)
}

async fn list(client: &Client) -> Result<Option<String>, Error> {
    let entries = client.root().await?.read_dir().await?.all().await?;
    let mut names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    names.sort_unstable();
    let links: &[&str] = if client.dialect() == Dialect::Plan9 { &[] } else { &tree::LINK_NAMES };
    let mut expected: Vec<&[u8]> = tree::ROOT_NAMES.iter().chain(links).map(|name| name.as_bytes()).collect();
    expected.sort_unstable();
    let more = || {
        let more =
            names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name) || !expected.contains(name));
        more.map(|(_, name)| name.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    };
    Ok(odd(names == expected, more))
}

/// Drives work until it is done, or has taken as many requests as the caller is patient for.
async fn stoppable(
    client: &Client,
    work: impl Future<Output = Result<Option<String>, Error>>,
) -> Result<Option<String>, Error> {
    let mut work = std::pin::pin!(work);
    poll_fn(|cx| {
        let messages = client.stats().messages;
        let requests: u64 = ["Tread", "Twrite"].iter().filter_map(|name| messages.get(name)).sum();
        if requests > REQUESTS {
            Poll::Ready(Ok(Some("the caller stopped".to_owned())))
        } else {
            work.as_mut().poll(cx)
        }
    })
    .await
}

async fn read(client: &Client) -> Result<Option<String>, Error> {
    let file = client.walk("/greeting", Follow::All).await?.open(Mode::READ).await?;
    let got = read_back(&file, 100, tree::GREETING.len()).await?;
    file.close().await?;
    Ok(odd(got == tree::GREETING, || format!("{} bytes", got.len())))
}

/// Reads until the end, or, from a server that has none, until more than `most` bytes came.
async fn read_back(file: &File, count: u32, most: usize) -> Result<Vec<u8>, Error> {
    let mut got = Vec::new();
    while got.len() <= most {
        let data = file.read_at(got.len() as u64, count).await?;
        if data.is_empty() {
            break;
        }
        got.extend_from_slice(&data);
    }
    Ok(got)
}

async fn read_large(client: &Client) -> Result<Option<String>, Error> {
    let node = client.walk("/numbers", Follow::All).await?;
    let metadata = node.metadata().await?;
    let file = node.open(Mode::READ).await?;
    let mut reader = file.reader(0, Some(&metadata));
    let mut got = Vec::new();
    while let Some(data) = reader.next().await? {
        got.extend_from_slice(&data);
    }
    let missing = reader.missing();
    drop(reader);
    file.close().await?;
    Ok(odd(got == tree::numbers(), || format!("{} bytes, {missing} are missing", got.len())))
}

async fn write(client: &Client) -> Result<Option<String>, Error> {
    let content = Bytes::from_static(&[b'w'; 100]);
    let file = client.root().await?.create(b"written", Mode::WRITE, 0o644).await?;
    let mut writer = file.writer(0, None);
    writer.write(content.clone()).await?;
    writer.finish().await?;
    drop(writer);
    file.close().await?;
    let file = client.walk("/written", Follow::All).await?.open(Mode::READ).await?;
    let got = read_back(&file, 200, content.len()).await?;
    Ok(odd(got == content, || format!("{} bytes came back", got.len())))
}

async fn write_large(client: &Client) -> Result<Option<String>, Error> {
    let content = Bytes::from(vec![b'w'; 1 << 20]);
    let file = client.root().await?.create(b"written-large", Mode::WRITE, 0o644).await?;
    let mut writer = file.writer(0, None);
    writer.write(content.clone()).await?;
    let written = writer.finish().await?;
    drop(writer);
    file.close().await?;
    Ok(odd(written == content.len() as u64, || format!("{written} bytes were written")))
}
