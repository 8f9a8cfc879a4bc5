//! A process whose standard input and output are a connection: [`Process`].
//!
//! It is told that the connection ended by the end of its input. One that nothing was heard of yet may be asking a
//! person, whom nobody answers any more: it gets SIGTERM at once, which ssh takes as a reason to give the terminal its
//! echo back. A task waits for the process in every case, so that none becomes a zombie.
//!
//! Our own process may end before the other does: on a network that is dead ssh would wait for it as long as TCP does. So
//! whoever gives a connection up calls [`Process::forsake`], by which a process that outlives us sees to the end.
//!
//! One task is to read and to write: only the last one that waits for the exit status is woken.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ninefold_proto::wire::HEADER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};
use tracing::warn;

use super::ssh::Far;
use super::standard;

/// From the end of its output to the end of a process: it has nothing left to do.
const END: Duration = Duration::from_secs(2);

/// From the end of its input to the end of a process: what was written has to arrive over a slow line.
const FAREWELL: Duration = Duration::from_secs(5);

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// From SIGTERM to the end of a process that gives its terminal back; a thread waits, which is not to be felt.
const TERMINAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Sees to the end of the process `$1` that began at `$2`, in ticks of the kernel: its number may be another's by then
/// (proc_pid_stat(5), fields 2 and 22). It has [`FAREWELL`], and [`GRACE`] from SIGTERM to SIGKILL.
const WATCH: &str = r#"same() { read -r stat <"/proc/$1/stat" && set -- "$2" ${stat##*) } && [ "${21}" = "$1" ]; }
for second in 1 2 3 4 5; do sleep 1; same "$@" || exit 0; done
kill -TERM "$1"; sleep 1; same "$@" && kill -KILL "$1""#;

/// Bytes of what is printed in place of the first message that are looked at: a line or two.
const NOISE: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct Process {
    output: ChildStdout,
    /// None once it is shut down.
    input: Option<ChildStdin>,
    phase: Phase,
    end: End,
    far: Far,
    /// Names the process even when it has ended, and never another.
    pidfd: Option<OwnedFd>,
    /// Names it to other processes.
    name: Option<Name>,
    /// Its end lets the task know that nobody uses the process any more.
    _used: oneshot::Sender<()>,
}

#[derive(Debug)]
enum Phase {
    /// The first message has not come; what has come of it.
    Opening(Vec<u8>),
    /// It has; the bytes that nobody has read.
    Talking(Vec<u8>),
}

/// A process's number, and when it began, in ticks since the machine did.
#[derive(Debug)]
struct Name {
    pid: Pid,
    began: String,
}

impl Name {
    /// Of a child that was not waited for.
    fn of(pid: Pid) -> Option<Name> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        // The field before is the program's name, which may hold anything.
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(Name { pid, began: fields.split(' ').nth(22 - 3)?.to_owned() })
    }
}

/// How the process ended.
#[derive(Debug)]
enum End {
    Waiting(oneshot::Receiver<ExitStatus>, Option<Pin<Box<Sleep>>>),
    /// None: it has not, although its output has.
    Known(Option<ExitStatus>),
}

impl Process {
    /// Starts it. Must be called within a tokio runtime.
    pub(super) fn start(mut command: Command, far: Far) -> io::Result<Process> {
        // Of all that is opened on the way the pipes, and what waits for the end, are the runtime's.
        let _held = standard::hold()?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a process was started without its pipes"));
        };
        // Before the task can wait for it, or the number may be another's.
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let ((ended, end), (used, unused)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(keep(child, ended, unused));
        let (phase, end) = (Phase::Opening(Vec::new()), End::Waiting(end, None));
        let name = pid.and_then(Name::of);
        Ok(Process { output, input: Some(input), phase, end, far, pidfd, name, _used: used })
    }

    /// The connection is given up, and perhaps we are about to end: the process may pass on what it was given, but not for
    /// long. Must be called within a tokio runtime.
    pub(super) fn forsake(&mut self) {
        self.input = None;
        let Some(Name { pid, began }) = &self.name else { return };
        let mut watch = Command::new("/bin/sh");
        watch.args(["-c", WATCH, "sh", &pid.as_raw_pid().to_string(), began]);
        // Whoever reads our output, or sends signals to our group, is not kept waiting and does not end it.
        watch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        if let Err(e) = watch.spawn() {
            warn!("nothing sees to the end of ssh, process {}: {e}", pid.as_raw_pid());
        }
    }

    /// Waits for the exit status, but not for long.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<ExitStatus>> {
        let status = match &mut self.end {
            End::Known(status) => return Poll::Ready(*status),
            End::Waiting(end, alarm) => match Pin::new(end).poll(cx) {
                Poll::Ready(status) => status.ok(),
                Poll::Pending => {
                    ready!(alarm.get_or_insert_with(|| Box::pin(sleep(END))).as_mut().poll(cx));
                    None
                }
            },
        };
        self.end = End::Known(status);
        Poll::Ready(status)
    }

    /// The output is at its end: the error that says why, nothing for an end in order.
    fn poll_why(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let status = ready!(self.poll_end(cx));
        let in_order = status.is_some_and(|status| status.success());
        Poll::Ready(match (&self.phase, status) {
            // Nothing was asked of it.
            (Phase::Opening(seen), _) if in_order && seen.is_empty() && self.input.is_none() => Ok(()),
            (Phase::Opening(seen), status) => Err(self.far.not_started(status, seen)),
            (Phase::Talking(_), Some(status)) if !status.success() => Err(self.far.broke(status)),
            (Phase::Talking(_), _) => Ok(()),
        })
    }

    /// Reads up to the header of the first message, and judges it.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Phase::Opening(seen) = &mut self.phase {
            let mut bytes = [0; NOISE];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.output).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return self.poll_why(cx);
            }
            seen.extend_from_slice(buf.filled());
            if seen.len() >= HEADER {
                if !begins_9p(seen) {
                    return Poll::Ready(Err(self.far.noise(seen)));
                }
                self.phase = Phase::Talking(std::mem::take(seen));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_input<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(input) = &mut self.input else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        match ready!(poll(Pin::new(input), cx)) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                // Its output may hold what it had to say: then reading tells more than that it is gone.
                ready!(self.poll_open(cx))?;
                ready!(self.poll_why(cx))?;
                Poll::Ready(Err(e))
            }
            other => Poll::Ready(other),
        }
    }
}

/// Whether bytes begin as the answer to a Tversion: an Rversion, Rerror or Rlerror, whose longest text has 65,535
/// bytes. No text does, nor does a message with up to three bytes of text in front of it.
fn begins_9p(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0 | 1, 0, 101 | 107 | 7, ..])
}

/// Waits for the end of the process, and sees to it once nobody uses it any more.
async fn keep(mut child: Child, ended: oneshot::Sender<ExitStatus>, unused: oneshot::Receiver<()>) {
    tokio::select! {
        status = child.wait() => {
            if let Ok(status) = status {
                let _ = ended.send(status);
            }
            return;
        }
        _ = unused => {}
    }
    if timeout(FAREWELL, child.wait()).await.is_ok() {
        return;
    }
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    if timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Phase::Opening(_), Some(pidfd)) = (&self.phase, &self.pidfd) {
            let _ = pidfd_send_signal(pidfd, Signal::TERM);
            // Whoever dropped this may end at once, and a shell would take over a terminal that ssh is just changing.
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&TERMINAL));
        }
    }
}

impl AsyncRead for Process {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let process = self.get_mut();
        ready!(process.poll_open(cx))?;
        if let Phase::Talking(unread) = &mut process.phase
            && !unread.is_empty()
        {
            let n = unread.len().min(buf.remaining());
            buf.put_slice(&unread[..n]);
            unread.drain(..n);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut process.output).poll_read(cx, buf))?;
        if buf.filled().len() == before && buf.remaining() > 0 { process.poll_why(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Process {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_input(cx, |input, cx| input.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_input(cx, |input, cx| input.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.input.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A pipe ends for its reader when its writer is closed.
        self.get_mut().input = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// The header of an Rversion of 19 bytes, for printf(1).
    const HELLO: &str = r"\023\000\000\000\145\377\377";

    /// Bound of every wait.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::start(command, Far { host: "h".to_owned(), ours: true }).unwrap()
    }

    async fn read(process: &mut Process) -> io::Result<Vec<u8>> {
        let mut got = Vec::new();
        timeout(PATIENCE, process.read_to_end(&mut got)).await.expect("an end in time").map(|_| got)
    }

    /// Waits until there is, or is not, such a file.
    async fn until(path: &Path, there: bool) {
        let began = Instant::now();
        while path.exists() != there {
            assert!(began.elapsed() < PATIENCE, "{} for too long", path.display());
            sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn a_process_reads_to_our_shutdown_and_we_to_its_end() {
        let mut process = shell("cat");
        let hello = [19, 0, 0, 0, 101, 255, 255, b'x'];
        process.write_all(&hello).await.unwrap();
        process.shutdown().await.unwrap();
        assert_eq!(read(&mut process).await.unwrap(), hello);
    }

    #[tokio::test]
    async fn one_that_is_asked_nothing_ends_in_order() {
        let mut process = shell("cat");
        process.shutdown().await.unwrap();
        assert_eq!(read(&mut process).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn text_in_place_of_the_first_message_is_an_error_that_quotes_it() {
        // In front of a message that is right, and of any length.
        for noise in ["Hi", "Last login: today\n", "1234", "x", "abc", "......."] {
            let e = read(&mut shell(&format!("printf '{noise}{HELLO}'"))).await.unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::NotConnected);
            let first = noise.lines().next().unwrap();
            assert!(e.to_string().contains(&format!("the login shell of h prints '{first}")), "{e}");
        }
    }

    #[tokio::test]
    async fn the_exit_status_is_told_whether_it_is_reading_or_writing_that_finds_the_end() {
        let e = read(&mut shell("exit 127")).await.unwrap_err();
        assert!(e.to_string().starts_with("ssh ended with status 127: h has no ninefold"), "{e}");
        let mut process = shell("exit 255");
        // More than any pipe holds.
        let e = process.write_all(&[0; 1 << 21]).await.unwrap_err();
        assert!(e.to_string().starts_with("ssh ended with status 255: it did not get through"), "{e}");
        let e = read(&mut shell("printf hi; exit 1")).await.unwrap_err();
        assert!(e.to_string().starts_with("ssh ended with status 1, having printed 'hi': "), "{e}");
    }

    #[tokio::test]
    async fn an_end_in_the_middle_is_told_with_its_status_behind_the_last_bytes() {
        let mut process = shell(&format!("printf '{HELLO}x'; kill -9 $$"));
        let mut got = [0; 8];
        process.read_exact(&mut got).await.unwrap();
        let e = read(&mut process).await.unwrap_err();
        assert_eq!(
            (e.kind(), e.to_string().as_str()),
            (io::ErrorKind::ConnectionAborted, "ssh was killed by signal 9")
        );
        let mut process = shell(&format!("printf '{HELLO}x'"));
        assert_eq!(read(&mut process).await.unwrap().len(), 8);
    }

    #[tokio::test]
    async fn output_that_ends_before_the_process_is_waited_for_with_a_bound() {
        let mut process = shell("exec >&-; exec sleep 60");
        let e = read(&mut process).await.unwrap_err();
        assert!(e.to_string().starts_with("ssh closed its output: "), "{e}");
    }

    #[tokio::test]
    async fn a_process_that_may_be_asking_somebody_is_told_to_end_and_leaves_no_zombie() {
        let dir = tempfile::tempdir().unwrap();
        let (started, told) = (dir.path().join("started"), dir.path().join("told"));
        let process = shell(&format!(
            "trap 'kill $!; : >{told}; exit' TERM; sleep 60 & echo $$ >{started}.new; mv {started}.new {started}; wait",
            told = told.display(),
            started = started.display()
        ));
        until(&started, true).await;
        // Ours to wait for: as a zombie it would still be there.
        let pid = format!("/proc/{}", std::fs::read_to_string(&started).unwrap().trim());
        drop(process);
        until(&told, true).await;
        until(pid.as_ref(), false).await;
    }

    #[test]
    fn a_process_that_was_forsaken_ends_even_when_nobody_is_left_to_wait_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // It takes notice of nothing, and closes what it was given.
            let script = format!("trap '' TERM; echo $$ >{}; printf '{HELLO}'; exec sleep 60 >&-", pid.display());
            let mut process = shell(&script);
            process.read_exact(&mut [0; 7]).await.unwrap();
            process.forsake();
            std::mem::forget(process);
        });
        runtime.shutdown_background();
        let number = std::fs::read_to_string(&pid).unwrap();
        let began = Instant::now();
        // Nobody takes notice of its end: it stays a zombie.
        while !std::fs::read_to_string(format!("/proc/{}/stat", number.trim()))
            .map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
        {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[tokio::test]
    async fn who_sees_to_the_end_of_a_process_leaves_another_of_its_number_alone() {
        let mut other = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = Pid::from_raw(other.id().unwrap().cast_signed()).unwrap();
        let Name { began, .. } = Name::of(pid).unwrap();
        let watch = |began: String| {
            Command::new("/bin/sh").args(["-c", WATCH, "sh"]).arg(pid.as_raw_pid().to_string()).arg(began).status()
        };
        let watched = timeout(PATIENCE, watch(format!("{began}0"))).await.unwrap().unwrap();
        assert!(watched.success() && other.try_wait().unwrap().is_none());
        timeout(PATIENCE, watch(began)).await.unwrap().unwrap();
        assert!(timeout(PATIENCE, other.wait()).await.unwrap().unwrap().code().is_none());
    }

    #[tokio::test]
    async fn a_process_that_talked_ends_by_the_end_of_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let ended = dir.path().join("ended");
        let mut process = shell(&format!("printf '{HELLO}'; cat; : >{}", ended.display()));
        let mut got = [0; 7];
        process.read_exact(&mut got).await.unwrap();
        drop(process);
        until(&ended, true).await;
    }
}
