//! The ways in which a file is moved, and their command lines: the one table of them.
//!
//! A way is chosen by its name; `Way::job` has the command by which one client moves its file, or none where the way does not go in
//! that direction.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::{Case, Direction};
use super::old::IOUNIT;

/// Who answers, and where, in the server's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Server {
    Ninefold,
    /// Another of ours, with a name space of the first's files.
    Exporter,
    Diod,
    Pump,
    Nginx,
    Sshd,
    Rsync,
}

impl Server {
    pub fn name(self) -> &'static str {
        match self {
            Server::Ninefold => "ninefold",
            Server::Exporter => "ninefold, exporting",
            Server::Diod => "diod",
            Server::Pump => "pump",
            Server::Nginx => "nginx",
            Server::Sshd => "sshd",
            Server::Rsync => "rsync",
        }
    }

    pub fn port(self) -> u16 {
        match self {
            Server::Ninefold => 5640,
            Server::Exporter => 5643,
            Server::Diod => 5641,
            Server::Pump => 5642,
            Server::Nginx => 8080,
            Server::Sshd => 2222,
            Server::Rsync => 8730,
        }
    }

    pub fn address(self) -> String {
        format!("{HOST}:{}", self.port())
    }

    /// The server whose files it exports.
    pub fn behind(self) -> Option<Server> {
        if self == Server::Exporter { Some(Server::Ninefold) } else { None }
    }
}

/// The server's end of a lab.
pub const HOST: &str = "10.9.0.2";

/// The name by which ninefold and rsync export the directory that is written to, and its place below nginx's root.
pub const TO: &str = "to";

/// Which of our commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    /// `ninefold cp`.
    Copy,
    /// `ninefold cat > FILE` and `ninefold write < FILE`.
    Pipe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// One file in so many ranges, each by a connection. A PUT is one: nginx refuses ranges of it.
    Http(u32),
    Pump(u32),
    /// One request at a time.
    Old,
    /// The same, to see whether the link is what it ought to be: by a congestion control that does not pace.
    Check,
    Ours(Command, &'static [&'static str]),
    /// `ninefold cp` from and to a server that exports what another has.
    Exported,
    Scp,
    Rsync,
    Diodcat,
}

/// The way that judges the link, which is tried on each with but one small file.
pub const CHECK: &str = "check";

/// The way through a server that exports what another has.
pub const EXPORT: &str = "export";

/// What keeps our commands from using streams.
const IN_BAND: &[&str] = &["--no-stream"];

/// As many connections of data as some of HTTP's ways have.
const ONE: &[&str] = &["--streams", "1"];
const TWO: &[&str] = &["--streams", "2"];
const FOUR: &[&str] = &["--streams", "4"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    pub name: &'static str,
    /// In tables.
    pub says: &'static str,
    kind: Kind,
}

const fn way(name: &'static str, says: &'static str, kind: Kind) -> Way {
    Way { name, says, kind }
}

/// In the order in which they take turns.
pub const ALL: [Way; 21] = [
    way("http1", "HTTP, 1 connection", Kind::Http(1)),
    way("http4", "HTTP, 4 ranges", Kind::Http(4)),
    way("http8", "HTTP, 8 ranges", Kind::Http(8)),
    way("pump1", "bare sockets, 1 connection", Kind::Pump(1)),
    way("pump2", "bare sockets, 2", Kind::Pump(2)),
    way("pump4", "bare sockets, 4", Kind::Pump(4)),
    way("pump8", "bare sockets, 8", Kind::Pump(8)),
    way("pump16", "bare sockets, 16", Kind::Pump(16)),
    way("stream", "ninefold cp", Kind::Ours(Command::Copy, &[])),
    way("stream1", "ninefold cp, 1 stream", Kind::Ours(Command::Copy, ONE)),
    way("stream2", "ninefold cp, 2 streams at most", Kind::Ours(Command::Copy, TWO)),
    way("stream4", "ninefold cp, 4 streams at most", Kind::Ours(Command::Copy, FOUR)),
    way(EXPORT, "ninefold cp, through an exporting server", Kind::Exported),
    way("stream-pipe", "ninefold cat, write", Kind::Ours(Command::Pipe, &[])),
    way("inband", "ninefold cp, in-band", Kind::Ours(Command::Copy, IN_BAND)),
    way("inband-pipe", "ninefold cat, write, in-band", Kind::Ours(Command::Pipe, IN_BAND)),
    way("one", "9P2000, one request at a time", Kind::Old),
    way(CHECK, "9P2000, one request at a time, under reno", Kind::Check),
    way("scp", "scp", Kind::Scp),
    way("rsync", "rsync, daemon", Kind::Rsync),
    way("diodcat", "diodcat, diod", Kind::Diodcat),
];

/// The way of that name.
pub fn find(name: &str) -> Option<Way> {
    ALL.into_iter().find(|way| way.name == name)
}

/// Those that words choose: each the whole name of one, or a part of the names of some; all where there are no words.
pub fn chosen(words: &[String]) -> Result<Vec<Way>, String> {
    let mut ways: Vec<Way> = Vec::new();
    for word in words {
        let found: Vec<Way> = match find(word) {
            Some(way) => vec![way],
            None => ALL.into_iter().filter(|way| way.name.contains(word.as_str())).collect(),
        };
        if found.is_empty() || word.is_empty() {
            let names = ALL.map(|way| way.name).join(", ");
            return Err(format!("no way has '{word}' in its name; there are {names}"));
        }
        ways.extend(found);
    }
    Ok(ALL.into_iter().filter(|way| words.is_empty() || ways.contains(way)).collect())
}

/// A command, and where it reads and writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    pub words: Vec<OsString>,
    pub stdin: Option<PathBuf>,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

/// Programs, and where files lie.
#[derive(Debug)]
pub struct Places {
    pub ninefold: PathBuf,
    /// This program.
    pub bench: PathBuf,
    /// What is read, at either end: a file is named after its bytes.
    pub served: PathBuf,
    /// What clients write, at either end: files are named after their client.
    pub to: PathBuf,
    /// Logs and counters.
    pub scratch: PathBuf,
    pub ssh_config: PathBuf,
}

impl Places {
    pub fn source(&self, bytes: u64) -> PathBuf {
        self.served.join(bytes.to_string())
    }

    /// The name of what a client makes.
    pub fn made(client: u32) -> String {
        format!("made-{client}")
    }

    /// Where our commands leave what they counted.
    pub fn stats(&self, client: u32) -> PathBuf {
        self.scratch.join(format!("stats-{client}"))
    }

    pub fn stdout(&self, client: u32) -> PathBuf {
        self.scratch.join(format!("stdout-{client}"))
    }

    pub fn stderr(&self, client: u32) -> PathBuf {
        self.scratch.join(format!("stderr-{client}"))
    }
}

/// The first byte and the byte behind the last of one of so many ranges.
pub fn range(bytes: u64, ranges: u32, number: u32) -> (u64, u64) {
    let at = |number: u32| (u128::from(bytes) * u128::from(number) / u128::from(ranges)) as u64;
    (at(number), at(number + 1))
}

fn words<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Vec<OsString> {
    words.into_iter().map(Into::into).collect()
}

impl Way {
    pub fn server(self) -> Server {
        match self.kind {
            Kind::Http(_) => Server::Nginx,
            Kind::Pump(_) => Server::Pump,
            Kind::Old | Kind::Check | Kind::Ours(..) => Server::Ninefold,
            Kind::Exported => Server::Exporter,
            Kind::Scp => Server::Sshd,
            Kind::Rsync => Server::Rsync,
            Kind::Diodcat => Server::Diod,
        }
    }

    /// Whether it counts what it did, as our commands do by --stats.
    pub fn is_ours(self) -> bool {
        matches!(self.kind, Kind::Ours(..) | Kind::Exported)
    }

    pub fn may_stream(self) -> bool {
        self.is_ours() && !matches!(self.kind, Kind::Ours(_, IN_BAND))
    }

    /// Of HTTP's ways, and of the bare pump's, the connections.
    pub fn http(self) -> Option<u32> {
        if let Kind::Http(connections) = self.kind { Some(connections) } else { None }
    }

    pub fn pump(self) -> Option<u32> {
        if let Kind::Pump(connections) = self.kind { Some(connections) } else { None }
    }

    pub fn is_old(self) -> bool {
        matches!(self.kind, Kind::Old | Kind::Check)
    }

    /// Whether it goes by a congestion control that does not pace, whatever the link's is: bbr sends the parts of a message apart, at the
    /// rate that it has seen, which is little where one message is waited for after the other.
    pub fn is_check(self) -> bool {
        self.kind == Kind::Check
    }

    /// The program that has to be installed, and its package.
    pub fn needs(self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::Http(_) => Some(("curl", "curl")),
            Kind::Scp => Some(("scp", "openssh-client")),
            Kind::Rsync => Some(("rsync", "rsync")),
            Kind::Diodcat => Some(("diodcat", "diod")),
            Kind::Pump(_) | Kind::Old | Kind::Check | Kind::Ours(..) | Kind::Exported => None,
        }
    }

    pub fn does(self, direction: Direction) -> bool {
        match self.kind {
            Kind::Http(ranges) => direction == Direction::Read || ranges == 1,
            Kind::Diodcat | Kind::Check => direction == Direction::Read,
            _ => true,
        }
    }

    /// What waiting for one request after the other takes at least, where it does that.
    pub fn one_by_one(self, case: &Case) -> Option<Duration> {
        let unit = match self.kind {
            Kind::Old | Kind::Check => u64::from(IOUNIT),
            // What diod grants, less the head of a message.
            Kind::Diodcat => (64 << 10) - 24,
            _ => return None,
        };
        let requests = case.bytes.div_ceil(unit);
        Some((case.link.rtt() + case.link.bits(unit)).mul_f64(requests as f64))
    }

    /// The files into which a client of this way puts what it reads, in their order.
    pub fn parts(self, places: &Places, client: u32) -> Vec<PathBuf> {
        let made = Places::made(client);
        match self.kind {
            Kind::Http(ranges) if ranges > 1 => {
                (0..ranges).map(|number| places.to.join(format!("{made}.{number}"))).collect()
            }
            _ => vec![places.to.join(made)],
        }
    }

    /// What one client executes.
    pub fn job(self, places: &Places, direction: Direction, bytes: u64, client: u32) -> Job {
        let mut job =
            Job { words: Vec::new(), stdin: None, stdout: places.stdout(client), stderr: places.stderr(client) };
        let (source, made) = (places.source(bytes), Places::made(client));
        let (address, here) = (self.server().address(), places.to.join(&made));
        let name = bytes.to_string();
        let part = |verb: &str| words([places.bench.as_os_str(), "thesis-part".as_ref(), verb.as_ref()]);
        match self.kind {
            Kind::Http(1) if direction == Direction::Write => {
                // Without the header curl waits a round trip for leave to send.
                job.words = words(["curl", "-sS", "--fail", "-H", "Expect:", "-T"]);
                job.words.push(source.into());
                job.words.push(format!("http://{address}/{TO}/{made}").into());
            }
            Kind::Http(ranges) => {
                job.words = words(["curl", "-sS", "--fail"]);
                if ranges > 1 {
                    job.words.extend(words(["-Z", "--parallel-immediate", "--parallel-max", &ranges.to_string()]));
                }
                for (number, part) in (0..ranges).zip(self.parts(places, client)) {
                    if number > 0 {
                        job.words.extend(words(["--next", "-sS", "--fail"]));
                    }
                    if ranges > 1 {
                        let (from, to) = range(bytes, ranges, number);
                        job.words.extend(words(["-r".to_owned(), format!("{from}-{}", to.saturating_sub(1))]));
                    }
                    job.words.extend(words(["-o".as_ref(), part.as_os_str()]));
                    job.words.push(format!("http://{address}/{name}").into());
                }
            }
            Kind::Pump(connections) => {
                let (verb, name, file) = match direction {
                    Direction::Read => ("pump-get", name, here),
                    Direction::Write => ("pump-put", made, source),
                };
                job.words = part(verb);
                job.words.extend(words([address, name, bytes.to_string(), connections.to_string()]));
                job.words.push(file.into());
            }
            Kind::Old | Kind::Check => {
                let (verb, name, file) = match direction {
                    Direction::Read => ("old-read", name, here),
                    Direction::Write => ("old-write", made, source),
                };
                job.words = part(verb);
                job.words.extend(words([address, name]));
                job.words.push(file.into());
            }
            Kind::Ours(..) | Kind::Exported => {
                let (command, options) = match self.kind {
                    Kind::Ours(command, options) => (command, options),
                    _ => (Command::Copy, &[][..]),
                };
                let verb = match (command, direction) {
                    (Command::Copy, _) => "cp",
                    (Command::Pipe, Direction::Read) => "cat",
                    (Command::Pipe, Direction::Write) => "write",
                };
                job.words = words([places.ninefold.as_os_str(), "--stats".as_ref(), places.stats(client).as_os_str()]);
                job.words.push(verb.into());
                job.words.extend(words(options.iter().copied()));
                let url: OsString = match (direction, self.kind) {
                    (Direction::Read, _) => format!("9p://{address}/{name}").into(),
                    (Direction::Write, Kind::Exported) => format!("9p://{address}/{TO}/{made}").into(),
                    (Direction::Write, _) => format!("9p://{address}/{made}?aname={TO}").into(),
                };
                match (command, direction) {
                    (Command::Copy, Direction::Read) => job.words.extend([url, here.into()]),
                    (Command::Copy, Direction::Write) => job.words.extend([source.into(), url]),
                    (Command::Pipe, Direction::Read) => {
                        job.words.push(url);
                        job.stdout = here;
                    }
                    (Command::Pipe, Direction::Write) => {
                        job.words.push(url);
                        job.stdin = Some(source);
                    }
                }
            }
            Kind::Scp => {
                job.words = words(["scp".as_ref(), "-q".as_ref(), "-F".as_ref(), places.ssh_config.as_os_str()]);
                match direction {
                    Direction::Read => job.words.extend([far(&source), here.into()]),
                    Direction::Write => job.words.extend([source.into(), far(&here)]),
                }
            }
            Kind::Rsync => {
                // Nothing is compared with what is not there.
                job.words = words(["rsync", "--whole-file"]);
                match direction {
                    Direction::Read => {
                        job.words.extend([format!("rsync://{address}/served/{name}").into(), here.into()])
                    }
                    Direction::Write => {
                        job.words.extend([source.into(), format!("rsync://{address}/{TO}/{made}").into()])
                    }
                }
            }
            Kind::Diodcat => {
                job.words = words(["diodcat", "-s", &address, "-a"]);
                job.words.extend([places.served.clone().into(), name.into()]);
                job.stdout = here;
            }
        }
        job
    }
}

/// A path as scp names it at the other end.
fn far(path: &Path) -> OsString {
    let mut word = OsString::from(format!("{HOST}:"));
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::case;
    use super::*;

    fn places() -> Places {
        Places {
            ninefold: "/n/ninefold".into(),
            bench: "/n/bench".into(),
            served: "/served".into(),
            to: "/to".into(),
            scratch: "/scratch".into(),
            ssh_config: "/ssh".into(),
        }
    }

    fn line(name: &str, direction: Direction) -> String {
        let job = find(name).unwrap().job(&places(), direction, 1000, 3);
        let words: Vec<String> = job.words.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn names_are_told_apart_and_words_choose_by_the_whole_or_a_part() {
        let names = |words: &[&str]| -> Vec<&str> {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&words).unwrap().iter().map(|way| way.name).collect()
        };
        assert_eq!(names(&[]).len(), ALL.len());
        assert_eq!(names(&["pump1"]), ["pump1"]);
        assert_eq!(names(&["pump"]), ["pump1", "pump2", "pump4", "pump8", "pump16"]);
        assert_eq!(names(&["stream", "http1", "http4"]), ["http1", "http4", "stream"]);
        assert!(chosen(&["ftp".to_owned()]).unwrap_err().contains("no way has 'ftp' in its name; there are http1,"));
        chosen(&[String::new()]).unwrap_err();
    }

    #[test]
    fn a_file_is_cut_into_ranges_without_a_gap() {
        for (bytes, ranges) in [(10_000_000, 4), (7, 3), (200_000_000, 16)] {
            let cut: Vec<(u64, u64)> = (0..ranges).map(|number| range(bytes, ranges, number)).collect();
            assert_eq!((cut[0].0, cut[cut.len() - 1].1), (0, bytes));
            assert!(cut.windows(2).all(|pair| pair[0].1 == pair[1].0), "{cut:?}");
        }
    }

    #[test]
    fn command_lines_are_those_of_the_peers() {
        assert_eq!(line("http1", Direction::Read), "curl -sS --fail -o /to/made-3 http://10.9.0.2:8080/1000");
        let ranges = line("http4", Direction::Read);
        assert!(ranges.starts_with("curl -sS --fail -Z --parallel-immediate --parallel-max 4 -r 0-249 "), "{ranges}");
        assert!(ranges.ends_with("--next -sS --fail -r 750-999 -o /to/made-3.3 http://10.9.0.2:8080/1000"), "{ranges}");
        assert!(!find("http4").unwrap().does(Direction::Write) && !find("diodcat").unwrap().does(Direction::Write));
        assert_eq!(
            line("inband", Direction::Write),
            "/n/ninefold --stats /scratch/stats-3 cp --no-stream /served/1000 9p://10.9.0.2:5640/made-3?aname=to"
        );
        assert_eq!(
            line("stream4", Direction::Read),
            "/n/ninefold --stats /scratch/stats-3 cp --streams 4 9p://10.9.0.2:5640/1000 /to/made-3"
        );
        assert_eq!(
            line("export", Direction::Read),
            "/n/ninefold --stats /scratch/stats-3 cp 9p://10.9.0.2:5643/1000 /to/made-3"
        );
        assert_eq!(
            line("export", Direction::Write),
            "/n/ninefold --stats /scratch/stats-3 cp /served/1000 9p://10.9.0.2:5643/to/made-3"
        );
        assert_eq!(
            line("stream-pipe", Direction::Read),
            "/n/ninefold --stats /scratch/stats-3 cat 9p://10.9.0.2:5640/1000"
        );
        assert_eq!(line("scp", Direction::Write), "scp -q -F /ssh /served/1000 10.9.0.2:/to/made-3");
    }

    #[test]
    fn all_of_ours_may_stream_but_those_that_are_told_not_to() {
        let those: Vec<&str> = ALL.into_iter().filter(|way| way.may_stream()).map(|way| way.name).collect();
        assert_eq!(those, ["stream", "stream1", "stream2", "stream4", "export", "stream-pipe"]);
        let told: Vec<&str> =
            ALL.into_iter().filter(|way| way.is_ours() && !way.may_stream()).map(|way| way.name).collect();
        assert_eq!(told, ["inband", "inband-pipe"]);
    }

    #[test]
    fn what_asks_one_by_one_takes_a_round_trip_for_each_request() {
        let case = case(50_000, 8192 * 100);
        let least = find("one").unwrap().one_by_one(&case).unwrap();
        assert!((least.as_secs_f64() - 100.0 * (0.05 + 8192.0 * 8.0 / 1e9)).abs() < 1e-6, "{least:?}");
        assert_eq!(find("http1").unwrap().one_by_one(&case), None);
    }
}
