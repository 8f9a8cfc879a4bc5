//! The same servers under our own client library.
//!
//! Each measurement waits for what it has asked for and takes leave before its connection is closed: diod aborts when it
//! loses one in the middle of something.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use ninefold::client::{Client, Follow, Mode, Options};
use ninefold::transport::Address;

use super::generator::{Outcome, WARM_UP};
use super::peer::Peer;
use super::tree;

/// Operations at a time.
pub const DEPTH: usize = 32;

/// Takes a server, an msize and how long to measure.
type Measure = fn(&Peer, u32, Duration) -> Result<Outcome>;

/// Under the names that they are reported by.
pub const ALL: [(&str, Measure); 5] = [
    ("client: stat", |peer, msize, time| with_client(peer, msize, async |client| stat(client, peer, time).await)),
    ("client: open+read+close 4 KiB", |peer, msize, time| {
        with_client(peer, msize, async |client| small(client, peer, time).await)
    }),
    ("client: sequential read", |peer, msize, time| {
        with_client(peer, msize, async |client| read(client, peer, time).await)
    }),
    ("client: sequential write", |peer, msize, time| {
        with_client(peer, msize, async |client| write(client, peer, time).await)
    }),
    ("client: list of 10,000", |peer, msize, time| {
        with_client(peer, msize, async |client| list(client, peer, time).await)
    }),
];

/// The longest wait for the server to take leave.
const PATIENCE: Duration = Duration::from_secs(20);

fn with_client(peer: &Peer, msize: u32, measure: impl AsyncFnOnce(&Client) -> Result<Outcome>) -> Result<Outcome> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let client = connect(peer, msize).await?;
        let outcome = measure(&client).await?;
        client.close(PATIENCE).await.with_context(|| format!("{} does not take leave", peer.name))?;
        Ok(outcome)
    })
}

async fn connect(peer: &Peer, msize: u32) -> Result<Client> {
    let mut address: Address = format!("9p://{}/", peer.address).parse().context("the address")?;
    address.aname = Some(peer.aname.clone()).filter(|aname| !aname.is_empty());
    let client = Client::connect(&address, Options { msize, ..Options::default() }).await.context(peer.name)?;
    anyhow::ensure!(client.msize() == msize, "{} agrees on msize {}", peer.name, client.msize());
    Ok(client)
}

/// Counts what happens between the end of the warming up and the end.
struct Meter<'p> {
    peer: &'p Peer,
    warm: Instant,
    time: Duration,
    counted: Option<(Instant, Duration)>,
    outcome: Outcome,
}

impl Meter<'_> {
    fn new(peer: &Peer, time: Duration) -> Meter<'_> {
        let warm = Instant::now() + time.mul_f64(WARM_UP);
        Meter { peer, warm, time, counted: None, outcome: Outcome::default() }
    }

    /// Takes one operation that began at `began`, or a part of one; `true` when the time is over.
    fn took(&mut self, began: Option<Instant>, bytes: u64) -> Result<bool> {
        let now = Instant::now();
        match self.counted {
            None if now >= self.warm => {
                self.counted = Some((now, self.peer.cpu()?));
                self.outcome = Outcome::default();
            }
            Some((from, cpu)) if now >= from + self.time => {
                self.outcome.elapsed = now - from;
                self.outcome.cpu = self.peer.cpu()?.saturating_sub(cpu);
                self.outcome.latencies.sort_unstable();
                return Ok(true);
            }
            _ => {
                self.outcome.bytes += bytes;
                if let Some(began) = began {
                    self.outcome.operations += 1;
                    self.outcome.latencies.push((now - began).as_nanos() as u64);
                }
            }
        }
        Ok(false)
    }
}

async fn stat(client: &Client, peer: &Peer, time: Duration) -> Result<Outcome> {
    let mut nodes = Vec::new();
    for n in 0..DEPTH {
        nodes.push(client.walk(format!("/small/{}", tree::small(n)), Follow::All).await?);
    }
    let mut meter = Meter::new(peer, time);
    let nodes = &nodes;
    let ask = |n: usize| async move { (n, Instant::now(), nodes[n].metadata().await) };
    let mut asked: FuturesUnordered<_> = (0..DEPTH).map(ask).collect();
    let mut over = false;
    while let Some((n, began, metadata)) = asked.next().await {
        metadata?;
        over = over || meter.took(Some(began), 0)?;
        if !over {
            asked.push(ask(n));
        }
    }
    Ok(meter.outcome)
}

async fn small(client: &Client, peer: &Peer, time: Duration) -> Result<Outcome> {
    let dir = client.walk("/small", Follow::All).await?;
    let mut meter = Meter::new(peer, time);
    let mut rng = fastrand::Rng::with_seed(1);
    let dir = &dir;
    let ask = |n: usize| async move {
        let began = Instant::now();
        let file = dir.walk(&[tree::small(n).as_bytes()]).await?.open(Mode::READ).await?;
        let bytes = file.read_at(0, tree::SMALL).await?;
        file.close().await?;
        Result::<_>::Ok((began, bytes))
    };
    let mut asked: FuturesUnordered<_> = (0..DEPTH).map(|_| ask(rng.usize(..tree::FILES))).collect();
    let mut over = false;
    while let Some(done) = asked.next().await {
        let (began, bytes) = done?;
        over = over || meter.took(Some(began), bytes.len() as u64)?;
        if !over {
            asked.push(ask(rng.usize(..tree::FILES)));
        }
    }
    Ok(meter.outcome)
}

async fn read(client: &Client, peer: &Peer, time: Duration) -> Result<Outcome> {
    let node = client.walk("/big", Follow::All).await?;
    let metadata = node.metadata().await?;
    let file = node.open(Mode::READ).await?;
    let mut meter = Meter::new(peer, time);
    let mut over = false;
    while !over {
        let (began, mut reader) = (Instant::now(), file.reader(0, Some(&metadata)));
        // To the end of the file: nothing is left that was asked for.
        while let Some(bytes) = reader.next().await? {
            over = over || meter.took(None, bytes.len() as u64)?;
        }
        over = over || meter.took(Some(began), 0)?;
    }
    Ok(meter.outcome)
}

async fn write(client: &Client, peer: &Peer, time: Duration) -> Result<Outcome> {
    let node = client.walk("/written", Follow::All).await?;
    let metadata = node.metadata().await?;
    let file = node.open(Mode::WRITE).await?;
    let data = Bytes::from(vec![0x5a; file.write_max() as usize]);
    let mut meter = Meter::new(peer, time);
    let mut over = false;
    while !over {
        let (began, mut writer) = (Instant::now(), file.writer(0, Some(&metadata)));
        while !over && writer.position() + data.len() as u64 <= tree::BIG {
            writer.write(data.clone()).await?;
            over = meter.took(None, data.len() as u64)?;
        }
        writer.finish().await?;
        over = over || meter.took(Some(began), 0)?;
    }
    Ok(meter.outcome)
}

async fn list(client: &Client, peer: &Peer, time: Duration) -> Result<Outcome> {
    let dir = client.walk("/entries", Follow::All).await?;
    let mut meter = Meter::new(peer, time);
    loop {
        let began = Instant::now();
        let entries = dir.read_dir().await?.all().await?;
        anyhow::ensure!(entries.len() == tree::ENTRIES, "{} lists {} entries", peer.name, entries.len());
        if meter.took(Some(began), 0)? {
            return Ok(meter.outcome);
        }
    }
}
