//! A lab with one link, the servers in its one end, and clients in the other. What is started in it ends with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ninefold_lab::{Change, End, Lab, Shape};

use super::case::{Case, Direction, Link};
use super::files::Files;
use super::rows::How;
use super::way::{HOST, Places, Server, Way};
use super::{cpu, servers, trip};
use crate::awake::Awake;
use crate::debian::Lacking;
use crate::interrupted::Interrupted;
use crate::round_trips::timed::Timed;

/// The longest wait for a server to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much longer than a command itself may take its start and its end in the lab do.
const BESIDE: Duration = Duration::from_secs(60);

/// How often it is looked whether a server listens, or has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Where what a round trip takes is measured: the port of the echo protocol, RFC 862.
const ECHO_PORT: u16 = 7;

/// The most that is taken off a link's round trip, unless a quarter of that is less: several times what two kernels and two processes take.
const OWN: Duration = Duration::from_micros(300);

/// The network of a lab.
const NETWORK: &str = "10.9.0.0/24";

/// A congestion control that every kernel has, and that sends what it may at once.
const UNPACED: &str = "reno";

/// Writes its process number, as /proc has it here, and becomes the command.
const NUMBERED: &str = "read -r pid rest </proc/self/stat && echo \"$pid\" >\"$0\" && exec \"$@\"";

/// Why a run has no figure.
#[derive(Debug)]
pub enum Failed {
    /// It was killed when the time for it was over.
    Stopped(Duration),
    /// The program does not know an option that its command line has.
    Refused(String),
    /// It ended with an error, and said this; or what arrived is not what was sent.
    Wrong(String),
}

/// What a run was.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Of each client, in seconds.
    pub took: Vec<f64>,
    /// Of the server's CPU time, in seconds.
    pub cpu: f64,
    /// Packets that the kernel dropped because the link was late.
    pub missed: u64,
    /// TCP connections that the clients opened.
    pub connections: u64,
}

struct Serving {
    child: Child,
    /// As /proc has it.
    number: i32,
}

pub struct Bed<'f> {
    files: &'f Files,
    pub places: Places,
    serving: BTreeMap<Server, Result<Serving, (How, String)>>,
    interrupted: &'f Interrupted,
    lab: Lab,
    loss: bool,
    /// What a round trip took beyond what the lab was asked for, before that was taken off.
    pub own: Duration,
}

impl<'f> Bed<'f> {
    /// Makes a lab with the link. The inner error: this kernel cannot be set so.
    pub fn make(
        files: &'f Files,
        places: Places,
        interrupted: &'f Interrupted,
        link: &Link,
    ) -> Result<Result<Bed<'f>, String>> {
        let rate = Some(link.rate).filter(|rate| *rate > 0);
        let shape = Shape { delay: link.rtt() / 2, rate, ..Shape::default() };
        let lab = Lab::start(&ninefold_lab::Options::both(shape))?;
        let (serving, loss, own) = (BTreeMap::new(), link.loss_ppm > 0, Duration::ZERO);
        let mut bed = Bed { files, places, serving, interrupted, lab, loss, own };
        // The ends run before the machine's other programs: sched(7), autogroup. Not every kernel has that.
        let _ = bed.shell(End::Server, "echo -20 >/proc/self/autogroup");
        for end in [End::Client, End::Server] {
            // What one connection learned of the path is nothing to the next one, which may be another program's: tcp(7).
            if let Err(e) = bed.shell(end, "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save") {
                return Ok(Err(format!("tcp_no_metrics_save: {e:#}")));
            }
            if link.buffers > 0 {
                for (name, middle) in [("rmem", 131_072), ("wmem", 16_384)] {
                    let script = format!("echo '4096 {middle} {}' >/proc/sys/net/ipv4/tcp_{name}", link.buffers);
                    if let Err(e) = bed.shell(end, &script) {
                        return Ok(Err(format!("buffers of {} bytes: {e:#}", link.buffers)));
                    }
                }
            }
        }
        bed.control(UNPACED)?;
        bed.level(link)?;
        let control = &link.control;
        if let Err(e) = bed.control(control) {
            return Ok(Err(format!("this kernel has no {control} (modprobe tcp_{control}): {e:#}")));
        }
        // Whatever agreed with a server of another link is another server's.
        match fs::remove_dir_all(bed.places.scratch.join("cache")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context("cannot empty the cache"),
            _ => Ok(Ok(bed)),
        }
    }

    /// Takes off the delay what two kernels, two processes and the lab between them take beside it, so that an exchange of bare sockets takes the round trip that was asked
    /// for, and the time of its bits; then the link loses what it is to lose.
    fn level(&mut self, link: &Link) -> Result<()> {
        let log = self.places.scratch.join("echo.log");
        let mut command = self.lab.command(End::Server, &self.places.bench);
        let address = format!("{HOST}:{ECHO_PORT}");
        command.args(["thesis-part", "echo", &address]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut echo = command.stderr(File::create(&log)?).spawn().context("cannot start what answers bytes")?;
        let told = self.listens(&address, &mut echo).and_then(|is_listening| {
            ensure!(is_listening, "nobody answers: {}", String::from_utf8_lossy(&fs::read(&log)?).trim());
            let awake = Awake::new();
            let told = self.part::<trip::Told>(&["trip".into(), address.into()], PATIENCE);
            drop(awake);
            told
        });
        // It may have ended.
        let _ = echo.kill();
        let _ = echo.wait();
        let took = Duration::from_nanos(told.context("what a round trip takes")?.nanoseconds);
        self.own = own(took, link);
        let delay = Some((link.rtt() - self.own) / 2);
        let loss = Some(f64::from(link.loss_ppm) / 1e6);
        self.lab.set_both(Change { delay, loss, ..Change::default() })
    }

    /// Of connections from now on.
    ///
    /// The first network of a machine may have any by default, and others only what everybody may choose; a route may name any: tcp(7),
    /// ip-route(8), congctl. The route's goes before the default.
    fn control(&self, name: &str) -> Result<()> {
        let by_default = format!("echo {name} >/proc/sys/net/ipv4/tcp_congestion_control");
        // Without what an earlier call has named.
        let by_route = format!(
            "PATH=$PATH:/usr/sbin:/sbin; route=$(ip -4 route show {NETWORK}) && ip route replace ${{route%% congctl*}} congctl {name}"
        );
        for end in [End::Client, End::Server] {
            let by_default = self.shell(end, &by_default);
            if let (Err(_), Err(e)) = (by_default, self.shell(end, &by_route)) {
                return Err(e);
            }
        }
        Ok(())
    }

    fn shell(&self, end: End, script: &str) -> Result<()> {
        let output = self.lab.command(end, "sh").args(["-c", script]).stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", told.trim());
        Ok(())
    }

    /// Sees to it that a server runs; the error says why it does not, and is remembered.
    pub fn serve(&mut self, server: Server) -> Result<(), (How, String)> {
        if let Some(behind) = server.behind() {
            self.serve(behind)?;
        }
        if !self.serving.contains_key(&server) {
            let begun = self.begin(server).map_err(|e| {
                let how = if e.is::<Lacking>() { How::Missing } else { How::Failed };
                (how, format!("{e:#}"))
            });
            self.serving.insert(server, begun);
        }
        match self.serving.get(&server) {
            Some(Err(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, server: Server) -> Result<Serving> {
        let words = servers::prepare(server, &mut self.places)?;
        let numbered = self.places.scratch.join(format!("{}.pid", server.name()));
        let log = self.places.scratch.join(format!("{}.log", server.name()));
        let output = File::create(&log)?;
        let mut command = self.lab.command(End::Server, "sh");
        command.args(["-c", NUMBERED]).arg(&numbered).args(words).stdin(Stdio::null());
        // Where diod leaves a core file, should it come to that.
        command.current_dir(&self.places.scratch).stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn().context("cannot start a server in the lab")?;
        let is_listening = self.listens(&server.address(), &mut child);
        if is_listening.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let is_listening = is_listening?;
        let told = || fs::read(&log).map(|told| String::from_utf8_lossy(&told).trim().to_owned()).unwrap_or_default();
        let ended = child.try_wait()?;
        let number = fs::read_to_string(&numbered).ok().and_then(|text| text.trim().parse().ok());
        match number {
            Some(number) if is_listening && ended.is_none() => Ok(Serving { child, number }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(anyhow!("{} does not serve: {}", server.name(), told()))
            }
        }
    }

    /// Waits until somebody listens there, or who was to do so has ended.
    fn listens(&self, address: &str, child: &mut Child) -> Result<bool> {
        let within = PATIENCE.as_millis().to_string();
        let mut asking = self.lab.command(End::Server, &self.places.bench);
        asking.args(["thesis-part", "listens", address, &within]);
        asking.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut asking = asking.spawn().context("cannot look for a server in the lab")?;
        let began = Instant::now();
        loop {
            if let Some(status) = asking.try_wait()? {
                return Ok(status.success());
            }
            // Whoever has ended will not listen.
            let is_in_vain = child.try_wait()?.is_some() || began.elapsed() > PATIENCE + BESIDE;
            let is_interrupted = self.interrupted.check();
            if is_in_vain || is_interrupted.is_err() {
                let _ = asking.kill();
                let _ = asking.wait();
                return is_interrupted.map(|()| false);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The CPU time of a server until now, with that of the one behind it.
    fn cpu(&self, server: Server) -> Result<Duration> {
        let own = match self.serving.get(&server) {
            Some(Ok(serving)) => cpu::used(serving.number).with_context(|| server.name())?,
            _ => return Err(anyhow!("{} does not serve", server.name())),
        };
        Ok(own + server.behind().map_or(Ok(Duration::ZERO), |behind| self.cpu(behind))?)
    }

    /// Moves files, and looks at what arrived. Chance is the same for each way of a run.
    pub fn run(&self, way: Way, case: &Case, run: u32, within: Duration) -> Result<Result<Ran, Failed>> {
        self.files.clear()?;
        if self.loss {
            self.lab.reseed(u64::from(run))?;
        }
        let (cpu, missed, opened) = (self.cpu(way.server())?, self.missed()?, self.opened()?);
        let jobs: Vec<_> =
            (0..case.clients).map(|client| way.job(&self.places, case.direction, case.bytes, client)).collect();
        for client in 0..case.clients {
            // What an earlier command counted.
            let _ = fs::remove_file(self.places.stats(client));
        }
        let list = self.places.scratch.join("jobs");
        fs::write(&list, serde_json::to_vec(&jobs)?)?;
        if way.is_check() {
            self.control(UNPACED)?;
        }
        let awake = way.one_by_one(case).map(|_| Awake::new());
        let words = ["clients".into(), list.into(), within.as_millis().to_string().into()];
        let timed = self.part::<Vec<Timed>>(&words, within);
        drop(awake);
        if way.is_check() {
            self.control(&case.link.control)?;
        }
        let timed = timed?;
        if timed.iter().any(|timed| timed.is_stopped) {
            return Ok(Err(Failed::Stopped(within)));
        }
        for (timed, job) in timed.iter().zip(&jobs) {
            if timed.status == Some(0) {
                continue;
            }
            let told = String::from_utf8_lossy(&fs::read(&job.stderr)?).trim().to_owned();
            // What clap ends with, and says, where it does not know an option.
            let is_refused = way.is_ours() && timed.status == Some(2) && told.contains("unexpected argument");
            let status = timed.status.map_or("killed".to_owned(), |status| format!("status {status}"));
            return Ok(Err(if is_refused {
                // What follows says how it is used.
                Failed::Refused(told.lines().next().unwrap_or_default().to_owned())
            } else {
                Failed::Wrong(format!("{status}: {told}"))
            }));
        }
        for client in 0..case.clients {
            let parts = match case.direction {
                Direction::Read => way.parts(&self.places, client),
                Direction::Write => vec![self.places.to.join(Places::made(client))],
            };
            if let Err(e) = self.files.check(case.bytes, &parts) {
                return Ok(Err(Failed::Wrong(format!("client {client}: {e:#}"))));
            }
        }
        Ok(Ok(Ran {
            took: timed.iter().map(|timed| timed.nanoseconds as f64 / 1e9).collect(),
            cpu: self.cpu(way.server())?.saturating_sub(cpu).as_secs_f64(),
            missed: self.missed()?.saturating_sub(missed),
            connections: self.opened()?.saturating_sub(opened),
        }))
    }

    /// TCP connections that were opened from the client's end until now.
    fn opened(&self) -> Result<u64> {
        let output = self.lab.command(End::Client, "cat").arg("/proc/net/snmp").stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        active_opens(&told).with_context(|| format!("/proc/net/snmp has no ActiveOpens: {told}"))
    }

    fn missed(&self) -> Result<u64> {
        let stats = self.lab.stats()?;
        Ok(stats.to_server.missed + stats.to_client.missed)
    }

    /// Makes our client remember a server of ours, as it is remembered from the second time on.
    pub fn remember(&self, server: Server) -> Result<()> {
        let mut command = self.lab.command(End::Client, &self.places.ninefold);
        command.args(["stat", &format!("9p://{}/", server.address())]).stdin(Stdio::null());
        let output = self.with_cache(&mut command).output()?;
        ensure!(output.status.success(), "ninefold stat: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    fn with_cache<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("XDG_CACHE_HOME", self.places.scratch.join("cache"))
    }

    /// What a part of this program tells in the client's end.
    fn part<T: serde::de::DeserializeOwned>(&self, words: &[OsString], within: Duration) -> Result<T> {
        let [told, erred]: [PathBuf; 2] = ["part", "part-error"].map(|name| self.places.scratch.join(name));
        let mut command = self.lab.command(End::Client, &self.places.bench);
        command
            .arg("thesis-part")
            .args(words)
            .stdin(Stdio::null())
            .stdout(File::create(&told)?)
            .stderr(File::create(&erred)?);
        let mut child = self.with_cache(&mut command).spawn().context("cannot start a command in the lab")?;
        let status = self.interrupted.wait(&mut child, within + BESIDE)?;
        let error = String::from_utf8_lossy(&fs::read(&erred)?).trim().to_owned();
        ensure!(status.success(), "{status}: {error}");
        serde_json::from_slice(&fs::read(&told)?).context("what a part of this program told")
    }
}

/// What an exchange took beyond what was asked for. More than that is no matter of kernels and processes: it stays, for the check to see.
fn own(took: Duration, link: &Link) -> Duration {
    took.saturating_sub(link.rtt() + link.bits(trip::PACKETS)).min(OWN).min(link.rtt() / 4)
}

/// Of what proc_pid_net(5) has of TCP: a line of names, and one of figures.
fn active_opens(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, figures) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "ActiveOpens")?;
    figures.split_whitespace().nth(at)?.parse().ok()
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        for serving in self.serving.values_mut().flatten() {
            // It may have ended; what it runs in the lab ends with it, and at the latest with the lab.
            let _ = serving.child.kill();
            let _ = serving.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_exchange_takes_beyond_the_link_is_taken_off_it_within_bounds() {
        let link = |rtt_us, rate| Link { rtt_us, rate, loss_ppm: 0, control: String::new(), buffers: 0 };
        // 53 bytes there, and six packets with 8 KiB back: 68.5 us.
        assert_eq!(trip::PACKETS, 53 + 6 * 52 + 8192);
        let micros = Duration::from_micros;
        assert_eq!(own(micros(628), &link(500, 1_000_000_000)).as_micros(), 59);
        assert_eq!(own(micros(500 + 6_846 + 70), &link(500, 10_000_000)).as_micros(), 70);
        assert_eq!(own(micros(15_080), &link(15_000, 0)), micros(80));
        // Faster than it can be, and late.
        assert_eq!(own(micros(499), &link(500, 0)), Duration::ZERO);
        assert_eq!(own(micros(90_000), &link(50_000, 0)), OWN);
        assert_eq!(own(micros(900), &link(500, 0)), micros(125));
        assert_eq!(own(micros(90), &link(0, 0)), Duration::ZERO);
    }

    #[test]
    fn connections_are_told_by_their_name() {
        let snmp = "Ip: Forwarding ActiveOpens\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 29 7\n";
        assert_eq!(active_opens(snmp), Some(29));
        assert_eq!(active_opens("Tcp: RtoAlgorithm PassiveOpens\nTcp: 1 7\n"), None);
        assert_eq!(active_opens("Tcp: RtoAlgorithm ActiveOpens\n"), None);
    }
}
