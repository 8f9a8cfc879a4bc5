//! The besiegers: connections that send rubbish, and one that sends a byte a second. One thread drives them
//! all; a connection that is closed is opened again at once. The pace is one for all of them together.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::rubbish;
use crate::address::Address;
use crate::random::Random;

/// How often frames are let go.
const TICK: Duration = Duration::from_millis(2);
/// Before a connection that could not be made is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Until all connections of the horde have been made once.
const MUSTER: Duration = Duration::from_secs(30);
/// Between the bytes of the slow connection.
const SLOW: Duration = Duration::from_secs(1);
/// Source addresses on loopback to spread over: each has its own ports, and the kernel keeps a port of a
/// closed connection for a minute.
const SOURCES: usize = 200;

/// What the besiegers did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Frames sent, each Tversion and Tattach counted together as one.
    pub frames: u64,
    pub connects: u64,
    /// Connections that could not be made.
    pub failed: u64,
    pub closed: u64,
    /// Bytes that the server answered.
    pub answered: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.frames += other.frames;
        self.connects += other.connects;
        self.failed += other.failed;
        self.closed += other.closed;
        self.answered += other.answered;
    }
}

#[derive(Default)]
struct Tally {
    frames: AtomicU64,
    connects: AtomicU64,
    failed: AtomicU64,
    closed: AtomicU64,
    answered: AtomicU64,
}

/// Besiegers at work.
pub struct Horde {
    end: CancellationToken,
    tally: Arc<Tally>,
    thread: std::thread::JoinHandle<()>,
}

impl Horde {
    /// Starts; returns when all connections have been made.
    pub fn start(address: Address, connections: usize, rate: u32, seed: u64) -> Result<Horde> {
        let end = CancellationToken::new();
        let tally = Arc::new(Tally::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended, counted) = (end.clone(), tally.clone());
        let (mustered, muster) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let pace = Arc::new(Semaphore::new(0));
                let ready = Arc::new(Semaphore::new(0));
                for number in 0..connections {
                    let besieger = Besieger {
                        address: address.clone(),
                        random: Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
                        source: source(address.socket, number),
                        pace: pace.clone(),
                        ready: ready.clone(),
                        tally: counted.clone(),
                    };
                    tokio::spawn(besieger.run());
                }
                tokio::spawn(dribble(address.socket));
                tokio::select! {
                    () = ended.cancelled() => return,
                    _ = ready.acquire_many(connections as u32) => {}
                }
                // The receiver is gone when it gave up.
                let _ = mustered.send(());
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = release(&pace, rate) => {}
                }
            });
            // Dropping the runtime drops the connections.
        });
        let horde = Horde { end, tally, thread };
        match muster.recv_timeout(MUSTER) {
            Ok(()) => Ok(horde),
            Err(_) => {
                let counts = horde.stop();
                Err(anyhow!("the server took {} of {connections} connections in {MUSTER:?}", counts.connects))
            }
        }
    }

    /// Closes all connections.
    pub fn stop(self) -> Counts {
        self.end.cancel();
        // A panic there was printed by its own thread.
        let _ = self.thread.join();
        let take = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Tally { frames, connects, failed, closed, answered } = &*self.tally;
        Counts {
            frames: take(frames),
            connects: take(connects),
            failed: take(failed),
            closed: take(closed),
            answered: take(answered),
        }
    }
}

/// Adds permits at the rate. What a late tick missed is made up for, but not more than one second's.
async fn release(pace: &Semaphore, rate: u32) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    let mut owed = 0.0;
    loop {
        let now = ticks.tick().await.max(last);
        owed = (owed + (now - last).as_secs_f64() * f64::from(rate)).min(f64::from(rate));
        last = now;
        pace.add_permits(owed as usize);
        owed -= owed.floor();
    }
}

struct Besieger {
    address: Address,
    random: Random,
    source: Option<SocketAddr>,
    pace: Arc<Semaphore>,
    ready: Arc<Semaphore>,
    tally: Arc<Tally>,
}

impl Besieger {
    async fn run(mut self) {
        let mut first = true;
        loop {
            match self.connect().await {
                Ok(stream) => {
                    self.tally.connects.fetch_add(1, Ordering::Relaxed);
                    if std::mem::take(&mut first) {
                        self.ready.add_permits(1);
                    }
                    self.pester(stream).await;
                    self.tally.closed.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    self.tally.failed.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = if self.address.socket.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = self.source {
            socket.bind(source)?;
        }
        socket.connect(self.address.socket).await
    }

    /// Sends rubbish until the server closes.
    async fn pester(&mut self, mut stream: TcpStream) {
        let (mut from, to) = stream.split();
        let mut frame = Vec::new();
        // One in two says hello before it misbehaves.
        let mut greeting = self.random.below(2) == 0;
        let mut sink = [0; 1_024];
        loop {
            tokio::select! {
                biased;
                got = from.read(&mut sink) => match got {
                    Ok(0) | Err(_) => return,
                    Ok(n) => _ = self.tally.answered.fetch_add(n as u64, Ordering::Relaxed),
                },
                permit = self.pace.acquire() => {
                    let Ok(permit) = permit else { return };
                    permit.forget();
                    frame.clear();
                    if std::mem::take(&mut greeting) {
                        match self.random.below(8) {
                            0 => rubbish::guess(&mut self.random, &mut frame),
                            _ => rubbish::greet(&mut self.random, &mut frame, &self.address.aname),
                        }
                    } else {
                        rubbish::throw(&mut self.random, &mut frame);
                    }
                    // A server that reads no more must not stop us from seeing that it closes.
                    match to.try_write(&frame) {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                        _ => _ = self.tally.frames.fetch_add(1, Ordering::Relaxed),
                    }
                }
            }
        }
    }
}

/// One connection that sends a byte a second of a Tversion, again and again.
async fn dribble(server: SocketAddr) {
    let mut greeting = Vec::new();
    rubbish::greet(&mut Random::new(0), &mut greeting, b"");
    loop {
        if let Ok(mut stream) = TcpStream::connect(server).await {
            for byte in greeting.iter().cycle() {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(SLOW).await;
            }
        }
        tokio::time::sleep(SLOW).await;
    }
}

/// Where besieger `number` calls from; None where the kernel is to choose.
fn source(server: SocketAddr, number: usize) -> Option<SocketAddr> {
    let octet = (number % SOURCES) as u8 + 2;
    match server.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Some((Ipv4Addr::new(127, 0, 9, octet), 0).into()),
        _ => None,
    }
}
