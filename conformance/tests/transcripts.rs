//! Every transcript against ninefold's own server, one test each: against a directory of the host, and, where
//! nothing of the host is asked for, against a tree in memory.

#[path = "support/command.rs"]
mod command;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ninefold::transport::{Address, Place};
use ninefold_conformance::transcript::{Outcome, READ_ONLY, Script, Target, run};
use ninefold_proto::Dialect;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{MessageInfo, R, T};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags, fallocate, makedev, mknodat, setxattr};
use rustix::process::geteuid;

use command::NINEFOLD;

include!(concat!(env!("OUT_DIR"), "/transcripts.rs"));

#[test]
fn every_message_of_each_dialect_is_in_a_transcript() {
    // Of `.n1` the messages of its own: the others are those of .L.
    let old = |dialect: Dialect| (Version::from(dialect), None);
    for (directory, (version, beyond)) in [
        ("9p2000", old(Dialect::Plan9)),
        ("9p2000u", old(Dialect::Unix)),
        ("9p2000l", old(Dialect::Linux)),
        ("9p2000ln1", (Version::N1, Some(Dialect::Linux))),
    ] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts").join(directory);
        let texts = fs::read_dir(&directory).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let seen: BTreeSet<String> =
            texts.flat_map(|text| text.lines().filter_map(message).map(str::to_owned).collect::<Vec<_>>()).collect();
        // Tauth is always refused.
        let has = |row: &MessageInfo| {
            row.dialects.has(version) && beyond.is_none_or(|dialect| !row.dialects.has(dialect)) && row.name != "Rauth"
        };
        let rows = T::TABLE.iter().chain(R::TABLE).filter(|row| has(row));
        let unseen: Vec<&str> = rows.map(|row| row.name).filter(|name| !seen.contains(*name)).collect();
        assert_eq!(unseen, [""; 0], "{version}");
    }
}

/// The message that a line sends or expects, behind the name of its connection.
fn message(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| !word.ends_with(':'))
}

/// A server that has not said where it listens by then will not.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// What is served.
enum Tree<'d> {
    Host(&'d Path),
    Memory,
}

/// A server process; dropping it ends it.
struct Server {
    child: Child,
    address: Address,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server of `tree` on a port that the system chooses; `read_only`: nobody may change the tree through it.
fn start(tree: &Tree<'_>, read_only: bool) -> Server {
    let mut command = Command::new(&*NINEFOLD);
    command.arg("serve");
    match tree {
        Tree::Host(dir) => command.arg(dir),
        Tree::Memory => command.arg("--ram"),
    };
    command.args(["--listen", "9p://127.0.0.1:0"]);
    if read_only {
        command.arg("--read-only");
    }
    if geteuid().is_root() {
        // Nobody else's server can act as another user; what needs one is skipped.
        command.arg("--trust-uids");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", NINEFOLD.display()));
    let output = child.stdout.take().expect("piped");
    let (tell, told) = mpsc::channel();
    // Reads to the end, so that the server never waits for its output to be read.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(address) = line.split_whitespace().find_map(listening) {
                let _ = tell.send(address);
            }
        }
    });
    match told.recv_timeout(START_DEADLINE) {
        Ok(address) => Server { child, address },
        Err(_) => {
            let _ = child.kill();
            panic!("the server did not say where it listens; it ended with {:?}", child.wait());
        }
    }
}

fn listening(word: &str) -> Option<Address> {
    let address: Address = word.trim_matches(['\'', '"', ',', '.']).parse().ok()?;
    matches!(address.place, Place::Tcp { port, .. } if port != 0).then_some(address)
}

fn hostfs(transcript: &str) {
    // Beside the build, which lies on a disk: extended attributes are not kept everywhere in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let facts = facts(dir.path());
    // Other users walk through it, and create(5) masks permissions by those of the directory.
    let export = dir.path().join("export");
    fs::create_dir(&export).unwrap();
    for dir in [dir.path(), &export] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let script = load(transcript);
    let read_only = script.needs().iter().any(|word| word == READ_ONLY);
    let server = start(&Tree::Host(&export), read_only);
    let mut target = Target::new(server.address.clone());
    target.dir = Some(export);
    target.lacks.extend(facts);
    target.read_only = read_only;
    replay("hostfs", transcript, &script, &target);
}

fn ramfs(transcript: &str) {
    let server = start(&Tree::Memory, false);
    replay("ramfs", transcript, &load(transcript), &Target::new(server.address.clone()));
}

fn load(transcript: &str) -> Script {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(transcript);
    Script::load(&path).unwrap_or_else(|e| panic!("{e:#}"))
}

fn replay(tree: &str, transcript: &str, script: &Script, target: &Target) {
    match run(script, target) {
        Ok(Outcome::Passed) => {}
        Ok(Outcome::Skipped(why)) => skip(&format!("{tree} {transcript}"), &why),
        Err(failure) => panic!("{failure}"),
    }
}

/// Words that the place of the tests lacks, found by trying.
fn facts(dir: &Path) -> Vec<(String, String)> {
    let mut lacks = Vec::new();
    let mut lack = |word: &str, why: String| lacks.push((word.to_owned(), why));
    let file = dir.join("probe");
    fs::write(&file, b"").unwrap();
    if let Err(e) = setxattr(&file, "user.probe", b"x", XattrFlags::empty()) {
        for word in ["xattr", "append", "exclusive"] {
            lack(word, format!("no extended attributes in {}: {e}", dir.display()));
        }
    }
    let opened = fs::File::options().write(true).open(&file).unwrap();
    if let Err(e) = fallocate(&opened, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096) {
        lack("allocate", format!("no holes in {}: {e}", dir.display()));
    }
    let device = dir.join("device");
    if let Err(e) = mknodat(CWD, &device, FileType::CharacterDevice, Mode::from_raw_mode(0o600), makedev(1, 3)) {
        lack("mknod", format!("no devices can be made: {e}"));
    }
    lacks
}

fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = env::var_os("NINEFOLD_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}
