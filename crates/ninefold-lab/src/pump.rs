//! The thread of one direction: takes packets from one device, keeps them in a `Line`, gives them to the other device when they are due.
//!
//! The thread owns all it works with; others ask it by `Handle::ask`, which runs a function there and brings back its value. So
//! there is no lock, and an answer says what holds at one instant between two packets.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::flows::{Flows, Segment, resent};
use crate::line::{Count, Counters, Line};
use crate::shape::Shape;

/// Nanoseconds before a packet is due at which the thread no longer sleeps, but looks at the clock until then: a sleep takes as long.
/// With it ping's round trips are 0.01 to 0.02 ms above what is asked (docs/lab.md). To wait awake for longer takes from the ends
/// the processor that they need: on two busy ones, at 1 Gbit/s and 15 ms, packets were up to 28 ms late with 50 us, and 2.4 ms without.
const SPIN: u64 = 5_000;

/// Nanoseconds that the thread sleeps at least when packets follow each other more closely than `SPIN`: as it runs before all others, it
/// would never leave the processor to the ends from 2.4 Gbit/s of 1500 bytes on.
const LEAST_SLEEP: u64 = SPIN;

/// Nanoseconds that the thread sleeps at most while packets are on the way. One that comes wakes it; when it had to wait for a processor
/// then, that shows by nothing but a sleep that took longer than it was to, so that this much goes unseen. A thousand wakes in a second
/// are no load.
const MOST_SLEEP: u64 = 1_000_000;

/// A direction with so many packets in a [`LOOK`] is dense, and is looked at so often only, at both ends: as network cards do, who wake a machine once
/// for what comes within some tens of microseconds (ethtool(8), rx-usecs). To wake for each packet takes half a processor from the ends at 1 Gbit/s.
const DENSE: u32 = 24;

/// Nanoseconds. 24 packets of 1500 bytes in it are 288 Mbit/s.
const LOOK: u64 = 1_000_000;

/// Nanoseconds that packets of a dense direction wait at most for those behind them.
const BUNCH: u64 = 50_000;

/// Nanoseconds behind its time from which on a packet counts as late: the accuracy that the lab promises.
pub const LATE: u64 = 200_000;

/// Packets taken from a device, or given to one, before the thread looks at the other: 64 packets take about as long as waking does.
const BATCH: usize = 64;

/// How long an answer of a pump may take. It answers within a batch unless the machine is stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How well the thread kept its times, and what it did not carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Care {
    /// Packets handed out more than `LATE` behind their time.
    pub late: u64,
    /// The furthest behind its time that a packet was handed out, in nanoseconds.
    pub latest_ns: u64,
    /// The longest that the thread, awake or due to be, did not look for packets, in nanoseconds. A packet's time begins when the
    /// thread takes it, so that one may have taken so much longer than `late` and `latest_ns` tell; and a millisecond more, for which
    /// the thread may sleep while packets are on the way. For one that comes while none is, it tells nothing.
    pub unwatched_ns: u64,
    /// Packets that are not IPv4, which are dropped without being offered to the line.
    pub foreign: Count,
    /// Packets that the other end's device did not take: it was taken down.
    pub undeliverable: Count,
}

/// One direction at work.
pub struct Pump {
    pub line: Line,
    pub flows: Flows,
    pub care: Care,
    from: Device,
    to: Device,
    start: Instant,
    /// When the device was last looked at, or waited for.
    watched: u64,
    /// Nanoseconds waited awake since the last sleep.
    spun: u64,
    density: Density,
    /// As long as the largest packet.
    buffer: Vec<u8>,
}

/// Whether so many packets pass that they are handed out in bunches: as many as in the last [`LOOK`] that has ended.
#[derive(Debug, Default)]
struct Density {
    since: u64,
    packets: u32,
    was_dense: bool,
}

impl Density {
    fn is_dense(&mut self, now: u64) -> bool {
        if now >= self.since + LOOK {
            let was_dense = u64::from(self.packets) * LOOK >= u64::from(DENSE) * (now - self.since);
            *self = Density { since: now, packets: 0, was_dense };
        }
        self.was_dense
    }
}

/// A TUN device, or what else gives and takes a packet with each read and write and does not wait.
pub type Device = Arc<dyn AsFd + Send + Sync>;

type Job = Box<dyn FnOnce(&mut Pump) + Send>;

/// Asks a pump.
pub struct Handle {
    jobs: Sender<Job>,
    wake: Arc<EventFd>,
}

impl Handle {
    /// Runs a function in the pump's thread.
    pub fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut Pump) -> T + Send + 'static) -> Result<T> {
        let (answer, answers) = channel();
        let job = Box::new(move |pump: &mut Pump| {
            // Nobody takes the answer when it came too late.
            let _ = answer.send(job(pump));
        });
        self.jobs.send(job).map_err(|_| anyhow!("a direction of the link has ended"))?;
        self.wake.write(1).context("eventfd")?;
        answers.recv_timeout(ANSWER_WITHIN).context("a direction of the link does not answer")
    }
}

impl Pump {
    /// Starts a direction.
    pub fn start(name: &str, shape: Shape, seed: u64, from: Device, to: Device, mtu: u16) -> Result<Handle> {
        let (jobs, receiver) = channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags).context("eventfd")?);
        let woken = wake.clone();
        let line = Line::new(shape, seed);
        let (flows, care) = (Flows::default(), Care::default());
        let (start, buffer) = (Instant::now(), vec![0; usize::from(mtu)]);
        let pump =
            Pump { line, flows, care, from, to, start, watched: 0, spun: 0, density: Density::default(), buffer };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || pump.run(&receiver, &woken))
            .context("thread")?;
        Ok(Handle { jobs, wake })
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(mut self, jobs: &Receiver<Job>, woken: &EventFd) {
        // By default the kernel may sleep 50 us longer to wake several at once: prctl(2), PR_SET_TIMERSLACK.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        first();
        loop {
            // All of them: however many they are, they wake the thread once.
            loop {
                match jobs.try_recv() {
                    Ok(job) => job(&mut self),
                    Err(TryRecvError::Empty) => break,
                    // The lab has been dropped.
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let took = self.take_in();
            let gave = self.give_out();
            if took || gave {
                continue;
            }
            let now = self.now();
            let wake = self.line.wake();
            if wake.is_some() && self.density.is_dense(now) {
                self.spun = 0;
                std::thread::sleep(Duration::from_nanos(BUNCH));
                self.watched = self.now().min(now + BUNCH);
                continue;
            }
            if wake.is_some_and(|wake| wake <= now + SPIN) && self.spun < SPIN {
                while self.line.wake().is_some_and(|wake| wake > self.now()) && self.now() < now + SPIN {
                    std::hint::spin_loop();
                }
                self.spun += (self.now() - now).max(1);
                continue;
            }
            // What is due sooner follows too closely for waiting awake: it is handed out at one go.
            self.sleep(woken, wake.map(|wake| wake.saturating_sub(now + SPIN).clamp(LEAST_SLEEP, MOST_SLEEP)));
            self.spun = 0;
        }
    }

    /// Sleeps until a packet comes, somebody asks, or so many nanoseconds are over.
    fn sleep(&mut self, woken: &EventFd, nanoseconds: Option<u64>) {
        let begin = self.now();
        let timeout = nanoseconds.map(Duration::from_nanos);
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        let mut fds = [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        // EINTR is as good as any other end of the sleep.
        if poll(&mut fds, timeout.as_ref()).is_ok() && fds[1].revents().contains(PollFlags::IN) {
            let _ = woken.read();
        }
        let device = fds[0].revents();
        if device.intersects(PollFlags::ERR | PollFlags::HUP) && !device.contains(PollFlags::IN) {
            // poll(2) would not sleep while the device is down; it is looked at again soon enough.
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = self.now();
        self.watched = nanoseconds.map_or(now, |nanoseconds| now.min(begin.saturating_add(nanoseconds)));
    }

    /// Takes packets that the one end sends. True when there may be more.
    fn take_in(&mut self) -> bool {
        let now = self.now();
        self.care.unwatched_ns = self.care.unwatched_ns.max(now.saturating_sub(self.watched));
        for _ in 0..BATCH {
            // A packet is kept with its own length: it may be held for long, and a small one in the room of the largest would count
            // for a part of what it takes.
            let read = rustix::io::read(self.from.as_fd(), &mut self.buffer[..]);
            self.watched = self.now();
            match read {
                Ok(length) => self.take(self.buffer[..length].to_vec()),
                Err(_) => return false,
            }
        }
        true
    }

    fn take(&mut self, packet: Vec<u8>) {
        // The version is the upper half of the first byte: RFC 791, section 3.1.
        if packet.first().is_none_or(|first| first >> 4 != 4) {
            self.care.foreign.add(packet.len());
            return;
        }
        if let Some(segment) = Segment::of(&packet)
            && !self.flows.sent(&segment)
        {
            self.line.refuse(packet.len());
            self.inject_back(&resent(&segment));
            return;
        }
        self.line.offer(self.watched, packet);
    }

    /// Gives the other end what is due. True when there may be more.
    fn give_out(&mut self) -> bool {
        for _ in 0..BATCH {
            let now = self.now();
            let Some((due, packet)) = self.line.take(now) else { return false };
            if Segment::of(&packet).is_none_or(|segment| self.flows.handed(&segment)) {
                if send(&self.to, &packet).is_err() {
                    self.care.undeliverable.add(packet.len());
                }
                self.density.packets = self.density.packets.saturating_add(1);
                self.care.latest_ns = self.care.latest_ns.max(now - due);
                self.care.late += u64::from(now - due > LATE);
            } else {
                self.line.refused(packet.len());
            }
        }
        true
    }

    /// Gives the end from which packets come one that nobody sent.
    pub fn inject_back(&self, packet: &[u8]) {
        // When its device is down, it needs no reset.
        let _ = send(&self.from, packet);
    }

    pub fn counters(&self) -> Counters {
        self.line.counters()
    }
}

/// A TUN device takes a packet whole or not at all.
fn send(device: &Device, packet: &[u8]) -> rustix::io::Result<()> {
    loop {
        match rustix::io::write(device.as_fd(), packet) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}

/// Asks that the thread runs as soon as it has something to do, whatever else the machine does: sched(7), SCHED_FIFO. That is root's, or
/// who has a limit for it (RLIMIT_RTPRIO); others have the times that the machine gives them, and see in `Care` how good they were.
/// It takes no more of the machine than the packets need, because it never waits awake for long.
fn first() {
    use thread_priority::unix::{
        RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
    };
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ = set_thread_priority_and_policy(thread_native_id(), thread_priority::ThreadPriority::Min, policy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    /// Both ends of something that gives and takes packets.
    fn device() -> (OwnedFd, Device) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, pumps) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (ours, Arc::new(pumps))
    }

    #[test]
    fn an_idle_direction_answers_everybody_who_asks_at_the_same_time() {
        let ((_client, from), (_server, to)) = (device(), device());
        let handle = Pump::start("test", Shape::default(), 0, from, to, 1500).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                // Many ask while the thread takes the wake-up of another.
                scope.spawn(|| (0..2_000).for_each(|number| assert_eq!(handle.ask(move |_| number).unwrap(), number)));
            }
        });
    }

    #[test]
    fn a_packet_is_kept_in_no_more_room_than_it_needs() {
        let ((client, from), (_server, to)) = (device(), device());
        let shape = Shape { delay: Duration::from_secs(60), ..Shape::default() };
        let handle = Pump::start("test", shape, 0, from, to, u16::MAX).unwrap();
        let mut packet = [0; 60];
        packet[0] = 0x45;
        for _ in 0..10 {
            rustix::io::write(&client, &packet).unwrap();
        }
        let begin = Instant::now();
        while handle.ask(|pump| pump.counters().on_the_way.packets).unwrap() < 10 {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        let room = handle
            .ask(|pump| {
                let far = pump.now() + Duration::from_secs(100).as_nanos() as u64;
                std::iter::from_fn(|| pump.line.take(far)).map(|(_, packet)| packet.capacity()).collect::<Vec<_>>()
            })
            .unwrap();
        assert_eq!(room, [60; 10]);
    }

    #[test]
    fn a_direction_is_dense_by_the_packets_of_the_last_look() {
        let mut density = Density::default();
        let mut pass = |packets, now| {
            density.packets += packets;
            density.is_dense(now)
        };
        assert!(!pass(DENSE, LOOK - 1));
        assert!(pass(0, LOOK) && pass(DENSE - 1, 2 * LOOK - 1));
        assert!(!pass(0, 2 * LOOK));
        // As many in a longer time are few.
        assert!(!pass(DENSE, 4 * LOOK));
    }

    #[test]
    fn a_thread_that_did_not_look_at_its_device_says_for_how_long() {
        let ((_client, from), (_server, to)) = (device(), device());
        let handle = Pump::start("test", Shape::default(), 0, from, to, 1500).unwrap();
        let busy = Duration::from_millis(20);
        handle.ask(move |_| std::thread::sleep(busy)).unwrap();
        // It tells so when it looks next.
        let begin = Instant::now();
        while handle.ask(|pump| pump.care.unwatched_ns).unwrap() < busy.as_nanos() as u64 {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
    }
}
