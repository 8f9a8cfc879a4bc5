//! A server started at the other end of ssh: `ninefold serve --stdio`, its input and output the connection.
//!
//! [`dial`] starts the system's ssh; what becomes of it is told by a [`Far`], in words that say what to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use ninefold_proto::print::printable;
use tokio::process::Command;

use super::Stream;
use super::process::Process;

/// What runs at the other end: the tree served is the whole file system, so that a path means what it means to scp, and
/// links lead where they lead there. Cargo's and other private directories of programs are often in the PATH of a login
/// only, and a binary just copied lies in the home directory: they are looked at last. `sh` reads it, whatever the
/// login shell is: single quotes mean the same to all of them.
const REMOTE: &str =
    r#"exec sh -c 'PATH="$PATH:$HOME/.cargo/bin:$HOME/.local/bin:$HOME/bin:$HOME" exec ninefold serve --stdio /'"#;

/// Words of a shell to run in place of [`SSH`], as git has GIT_SSH_COMMAND: `ssh -p 2222 -i 'my key'`.
const PROGRAM: &str = "NINEFOLD_SSH";

/// As scp calls it: nothing that a user's configuration adds to a login is wanted here. A network that is dead for 15 s ends
/// it, whatever became of us.
const SSH: &str = "ssh -x -oClearAllForwardings=yes -oForwardAgent=no -oPermitLocalCommand=no -oRemoteCommand=none \
    -oRequestTTY=no -oServerAliveInterval=5 -oServerAliveCountMax=3";

/// What the shell around ssh ends with when there is no such program: EX_UNAVAILABLE (sysexits(3)).
const MISSING: i32 = 69;

/// Starts `ninefold serve --stdio /` on `host`. What ssh has to ask, it asks on the terminal; what it or the other end
/// complains about comes on our standard error.
pub(super) fn dial(user: Option<&str>, host: &str) -> io::Result<Stream> {
    let program = std::env::var_os(PROGRAM).filter(|program| !program.is_empty());
    let host = user.map_or(host.to_owned(), |user| format!("{user}@{host}"));
    let far = Far { host, ours: program.is_none() };
    let command = command(program.as_deref().unwrap_or(SSH.as_ref()), &far.host);
    Process::start(command, far).map(Stream::Process)
}

/// Ctrl-C reaches every process of the terminal's foreground group, but ssh must outlive it by the moment in which a
/// temporary file is removed at the other end: it ignores SIGINT, and ends when we do. In a group of its own it would
/// be spared too, and could ask for no password.
fn command(program: &OsStr, host: &str) -> Command {
    let mut script = OsString::from("trap '' INT; set -- ");
    script.push(program);
    script.push(format!(r#" "$@"; command -v "$1" >/dev/null || exit {MISSING}; exec "$@""#));
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).args(["sh", "-T", "--", host, REMOTE]);
    command
}

/// The other end, to be named in errors.
#[derive(Debug)]
pub(super) struct Far {
    /// As ssh is given it: `[USER@]HOST`.
    pub host: String,
    /// Whether it is reached by [`SSH`], and not by what [`PROGRAM`] says.
    pub ours: bool,
}

impl Far {
    /// ssh ended, or at least its output did, before the server's first message; `seen` was printed in its place.
    pub fn not_started(&self, status: Option<ExitStatus>, seen: &[u8]) -> io::Error {
        let Far { host, .. } = self;
        let end = status.map_or_else(|| "ssh closed its output".to_owned(), end);
        let printed = if seen.is_empty() { String::new() } else { format!(", having printed {}", quoted(seen)) };
        let why = match status.and_then(|status| status.code()) {
            Some(MISSING) if self.ours => return not_connected("ssh is missing here: install OpenSSH's client"),
            Some(MISSING) => {
                return not_connected(format!(
                    "the program that {PROGRAM} names is missing here: correct it, or unset it"
                ));
            }
            Some(127) => format!(
                "{host} has no ninefold where programs are looked for: copy this one there, nothing else is needed: \
                 scp $(command -v ninefold) {host}:"
            ),
            Some(126) => format!("the ninefold of {host} cannot be run: is it built for that machine, and executable?"),
            Some(255) => format!("it did not get through to {host}, and says why above: try ssh {host} true"),
            Some(2) => format!(
                "the ninefold of {host} does not know what it is asked: compare ssh {host} ninefold --version with \
                 ninefold --version"
            ),
            Some(0) => {
                format!("what {host} ran was no 9P server: is another command forced there (sshd(8), command=)?")
            }
            _ => format!("the server did not start on {host}: see what is said above, or try ssh {host} true"),
        };
        not_connected(format!("{end}{printed}: {why}"))
    }

    /// Something came that is no 9P: a login shell that talks.
    pub fn noise(&self, seen: &[u8]) -> io::Error {
        let Far { host, .. } = self;
        not_connected(format!(
            "the login shell of {host} prints {} where the server's first message should be: see what ssh {host} true \
             prints, and take it out of the shell's start-up files (~/.bashrc, ~/.profile), or print it only where \
             standard output is a terminal",
            quoted(seen)
        ))
    }

    /// ssh ended in the middle of a connection.
    pub fn broke(&self, status: ExitStatus) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, end(status))
    }
}

/// There never was a connection: nothing that was asked can have been done.
fn not_connected(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, text.into())
}

fn end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ssh ended with status {code}"),
        (None, Some(signal)) => format!("ssh was killed by signal {signal}"),
        (None, None) => "ssh ended".to_owned(),
    }
}

/// The first line, without anything that a terminal would obey.
fn quoted(seen: &[u8]) -> String {
    /// Characters that tell enough.
    const MOST: usize = 60;
    let line = seen.split(|b| *b == b'\n').find(|line| !line.is_empty()).unwrap_or(seen);
    format!("'{}'", printable(line, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> Vec<&str> {
        command.as_std().get_args().map(|arg| arg.to_str().unwrap()).collect()
    }

    fn status(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn the_other_end_runs_the_server_in_a_shell_of_its_own() {
        let command = command("ssh -p '2 2'".as_ref(), "ken@h");
        let arguments = arguments(&command);
        assert!(arguments[1].contains(r#"set -- ssh -p '2 2' "$@""#), "{arguments:?}");
        assert_eq!(arguments[3..6], ["-T", "--", "ken@h"]);
        assert_eq!(arguments[6], REMOTE);
        assert!(REMOTE.starts_with("exec sh -c '") && REMOTE.ends_with("ninefold serve --stdio /'"));
    }

    #[test]
    fn an_end_before_the_first_message_says_what_to_do() {
        let far = Far { host: "ken@h".to_owned(), ours: true };
        let text = |status, seen: &[u8]| far.not_started(status, seen).to_string();
        for (code, advice) in [
            (127, "scp $(command -v ninefold) ken@h:"),
            (126, "built for that machine"),
            (255, "ssh ken@h true"),
            (2, "--version"),
            (1, "did not start on ken@h"),
            (0, "command="),
        ] {
            let text = text(status(code), b"");
            assert!(text.starts_with(&format!("ssh ended with status {code}: ")) && text.contains(advice), "{text}");
        }
        assert!(text(status(MISSING), b"").contains("install OpenSSH"));
        assert!(text(Some(ExitStatus::from_raw(9)), b"").starts_with("ssh was killed by signal 9"));
        assert!(text(None, b"hi\n").starts_with("ssh closed its output, having printed 'hi': "));
        let other = Far { ours: false, ..far };
        assert!(other.not_started(status(MISSING), b"").to_string().contains("NINEFOLD_SSH"));
    }

    #[test]
    fn what_a_shell_prints_is_quoted_without_what_a_terminal_obeys() {
        assert_eq!(quoted(b"\n\x1b[31mHi\xff\r\nthere"), r"'\u{1b}[31mHi\xff\r'");
        assert_eq!(quoted("é".as_bytes()), "'é'");
        assert_eq!(quoted(&[b'x'; 61]), format!("'{}…'", "x".repeat(60)));
    }
}
