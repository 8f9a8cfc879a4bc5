//! A second process: locks, working directories and the other ends of pipes and sockets belong to processes. It takes one order a
//! line on standard input and answers each with a line, `ok TEXT` or `errno NUMBER`; it ends with its input.
//!
//! [`Actor::order`] waits for the answer; [`Actor::begin`] does not, and [`Actor::answer_within`] looks for it later.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, c_int, c_short};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long an answer may take that does not wait for anybody.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an order came to.
pub type Answer = std::result::Result<String, Errno>;

pub struct Actor {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

impl Actor {
    pub fn start() -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut child = Command::new(program)
            .arg("--actor")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a second process")?;
        let output = child.stdout.take().context("the second process's output")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(io::Result::ok) {
                let answer = match line.split_once(' ') {
                    Some(("errno", number)) => Err(Errno::from_raw_os_error(number.parse().unwrap_or(libc::EPROTO))),
                    _ => Ok(line.strip_prefix("ok ").unwrap_or_default().to_owned()),
                };
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        Ok(Self { orders: child.stdin.take(), child, answers })
    }

    /// Sends an order; the answer comes later.
    pub fn begin(&mut self, words: &[&dyn AsRef<OsStr>]) -> Result<()> {
        let words: Vec<String> = words.iter().map(|word| hex(word.as_ref().as_bytes())).collect();
        let orders = self.orders.as_mut().context("the second process has ended")?;
        writeln!(orders, "{}", words.join(" ")).context("ordering the second process")
    }

    /// The answer to an order begun, or `None` when it takes longer.
    pub fn answer_within(&mut self, patience: Duration) -> Result<Option<Answer>> {
        match self.answers.recv_timeout(patience) {
            Ok(answer) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the second process ended"),
        }
    }

    /// The answer to an order.
    pub fn order(&mut self, words: &[&dyn AsRef<OsStr>]) -> Result<Answer> {
        self.begin(words)?;
        self.answer_within(PATIENCE)?.with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))
    }

    /// The answer to an order that must succeed.
    pub fn does(&mut self, words: &[&dyn AsRef<OsStr>]) -> Result<String> {
        let answer = self.order(words)?;
        let what = || words.iter().map(|w| w.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        answer.map_err(|e| anyhow::anyhow!("second process, {}: {}", what(), io::Error::from(e)))
    }

    /// Ends the process as SIGKILL does, which gives it no chance to tidy up.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the second process")?;
        self.child.wait().context("waiting for the second process")?;
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.orders = None;
        // One that waits for a lock would not see the end of its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(word: &str) -> Result<Vec<u8>> {
    let pairs = word.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// The second process itself.
pub fn obey() -> Result<()> {
    let mut files = HashMap::new();
    for line in io::stdin().lock().lines() {
        let words = line?.split(' ').map(unhex).collect::<Result<Vec<_>>>()?;
        let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
        match act(&mut files, &words) {
            Ok(text) => println!("ok {text}"),
            Err(e) => println!("errno {}", e.raw_os_error().unwrap_or(libc::EPROTO)),
        }
    }
    Ok(())
}

/// One order. Files are known by names that the order gives them.
fn act(files: &mut HashMap<String, File>, words: &[&OsStr]) -> io::Result<String> {
    let text = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    let path = |at: usize| Path::new(words.get(at).copied().unwrap_or_default());
    let bytes = words.get(2).map_or(&b""[..], |word| word.as_bytes());
    let nothing = |()| String::new();
    match text(0) {
        "open" => {
            let mut how = OpenOptions::new();
            how.read(true).write(text(3) != "read");
            files.insert(text(1).to_owned(), how.open(path(2))?);
            Ok(String::new())
        }
        "close" => Ok(files.remove(text(1)).map_or_else(String::new, |_| "closed".to_owned())),
        "write" => held(files, text(1))?.write_all(bytes).map(nothing),
        "lock" => lock(held(files, text(1))?, text(2), text(3)),
        "flock" => Ok(flock(held(files, text(1))?, flock_operation(text(2))?).map(nothing)?),
        "chdir" => std::env::set_current_dir(path(1)).map(nothing),
        "cwd" => Ok(std::env::current_dir()?.to_string_lossy().into_owned()),
        "read" => fs::read_to_string(path(1)),
        "make" => fs::write(path(1), bytes).map(nothing),
        // Blocks until the other end is there, as programs do.
        "pipe-write" => {
            OpenOptions::new().write(true).open(path(1))?.write_all(bytes)?;
            Ok(String::new())
        }
        "socket-ask" => {
            let mut stream = UnixStream::connect(path(1))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(bytes)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        }
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

fn held<'f>(files: &'f mut HashMap<String, File>, name: &str) -> io::Result<&'f mut File> {
    files.get_mut(name).ok_or_else(|| Errno::BADF.into())
}

/// `read`, `write` and `free` are F_SETLK; with `wait-` before it F_SETLKW; `who-` before it is F_GETLK.
/// The range is `START+LENGTH`, where a length of 0 means to the end of all files.
fn lock(file: &File, how: &str, range: &str) -> io::Result<String> {
    let (start, length) = range.split_once('+').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<i64>().map_err(|_| io::Error::from(Errno::INVAL));
    let (way, kind) = how.split_once('-').unwrap_or(("", how));
    let kind = match kind {
        "read" => libc::F_RDLCK,
        "write" => libc::F_WRLCK,
        "free" => libc::F_UNLCK,
        _ => return Err(Errno::INVAL.into()),
    };
    let short = |number: c_int| c_short::try_from(number).map_err(|_| io::Error::from(Errno::INVAL));
    let mut range = libc::flock {
        l_type: short(kind)?,
        l_whence: short(libc::SEEK_SET)?,
        l_start: number(start)?,
        l_len: number(length)?,
        l_pid: 0,
    };
    let result = match way {
        "who" => fcntl(file, FcntlArg::F_GETLK(&mut range)),
        "wait" => fcntl(file, FcntlArg::F_SETLKW(&range)),
        _ => fcntl(file, FcntlArg::F_SETLK(&range)),
    };
    result.map_err(io::Error::from)?;
    Ok(match (way, c_int::from(range.l_type)) {
        ("who", libc::F_UNLCK) => "free".to_owned(),
        ("who", kind) => {
            let kind = if kind == libc::F_RDLCK { "read" } else { "write" };
            format!("{kind} {}+{}", range.l_start, range.l_len)
        }
        _ => String::new(),
    })
}

fn flock_operation(how: &str) -> io::Result<FlockOperation> {
    Ok(match how {
        "shared" => FlockOperation::NonBlockingLockShared,
        "exclusive" => FlockOperation::NonBlockingLockExclusive,
        "wait-exclusive" => FlockOperation::LockExclusive,
        "free" => FlockOperation::Unlock,
        _ => return Err(Errno::INVAL.into()),
    })
}
