//! The command line against the hostile server: each misbehaviour in each of its dialects, real processes over TCP.
//!
//! For every run holds: the command ends in time, or, where a server gives without end what was asked for, Ctrl-C ends it;
//! its exit status is the one listed here; a failure is told on standard error, by lines that name the server; nothing that
//! a terminal would obey comes out; and a claim of 4 GiB cannot be met, because the command has fewer addresses.

#[path = "support/command.rs"]
mod command;
#[path = "hostile_cli/run.rs"]
mod run;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ninefold::proto::Dialect;
use ninefold::transport::{Address, Listener};
use ninefold_conformance::hostile::{Hostile, Misbehaviour, all, tree};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use run::{Ended, LONG, Ran, SHORT, Stdout};

/// Commands at a time: those that wait for a server in vain leave room for others.
const AT_A_TIME: usize = 8;

/// The misbehaviours in which a server does not answer, so that the command's timeout must end the wait. For all others it is
/// so long that nothing ends by it, however busy the machine is.
const SILENT: [&str; 8] =
    ["version-silent", "attach-silent", "frame-cut-silent", "flush-", "silent", "clunk-silent", "drip", "deaf"];

/// What a command is to come to, for each misbehaviour: a name, or the beginning of names, which ends in a hyphen.
/// What is in neither list makes it fail.
struct Expected {
    /// It does what it is to do, with exit status 0. Behind a blank, the dialects in which that is so, if not in all.
    done: &'static [&'static str],
    /// It goes on for ever, until Ctrl-C.
    endless: &'static [&'static str],
}

impl Expected {
    fn of(&self, misbehaviour: &Misbehaviour, dialect: Dialect) -> Ended {
        let named = |rows: &[&str]| {
            rows.iter().any(|row| {
                let (name, dialects) = row.split_once(' ').unwrap_or((row, ""));
                is_named(misbehaviour, name)
                    && (dialects.is_empty() || dialects.split(' ').any(|of| of == dialect.as_str()))
            })
        };
        match (named(self.endless), named(self.done)) {
            (true, _) => Ended::Interrupted,
            (false, true) => Ended::Status(0),
            (false, false) => Ended::Status(1),
        }
    }
}

/// Whether `name` is that of the misbehaviour, or, if it ends in a hyphen, how it begins.
fn is_named(misbehaviour: &Misbehaviour, name: &str) -> bool {
    misbehaviour.name == name || name.ends_with('-') && misbehaviour.name.starts_with(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_ends_in_words_whatever_the_server_does() {
    let expected = Expected {
        done: &[
            "attach-file",
            "walk-partial",
            "walk-alike",
            "walk-through-file",
            "open-other-file",
            "open-iounit-greatest",
            "read-nothing",
            "write-",
            "dir-",
            "attr-",
            "stat-",
            "link-",
            "xattr-",
            "lock-",
            "clunk-",
        ],
        endless: &["open-iounit-one", "read-one-byte", "read-endless"],
    };
    against_all(&["cat", "@/numbers"], Stdout::Pipe, &expected, |_, misbehaviour, ran| {
        let content: &[u8] = if misbehaviour == "read-nothing" { b"" } else { tree::numbers() };
        (ran.ended == Ended::Status(0) && ran.stdout != content).then(|| format!("{} bytes came", ran.stdout.len()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_ends_in_words_whatever_the_server_does() {
    let expected = Expected {
        done: &[
            "walk-partial",
            "walk-alike",
            "walk-through-file",
            "open-other-file",
            "open-iounit-greatest",
            "read-",
            "write-",
            "dir-dots-again",
            "dir-names-odd",
            // Who comes second there is what the link has become.
            "dir-twin-dir 9P2000.L",
            "dir-twin-file",
            "attr-size-large",
            "attr-sec",
            "attr-numbers-greatest",
            "stat-name-slash",
            "stat-owner-escape",
            "link-loop",
            "link-chain",
            // .u lists targets beside the names; they are shown, and nothing more.
            "link-target- 9P2000.u",
            "link-target-escape",
            "xattr-",
            "lock-",
            "clunk-",
            "flush-",
            // In 9P2000.L directories are not read by Tread.
            "closed-midway 9P2000.L",
        ],
        endless: &[],
    };
    against_all(&["ls", "-lR", "@/"], Stdout::Terminal, &expected, |_, _, ran| {
        let shown = String::from_utf8_lossy(&ran.stdout);
        let missing = tree::ROOT_NAMES.into_iter().find(|name| !shown.contains(name));
        missing.filter(|_| ran.ended == Ended::Status(0)).map(|name| format!("{name} is missing"))
    })
    .await;
}

/// Runs a command against every misbehaviour and collects what is wrong. A word that begins with `@` is a path there.
/// `look` has the directory that the command ran in, the misbehaviour's name, and what came, and says what is wrong with it.
async fn against_all(
    words: &'static [&'static str],
    stdout: Stdout,
    expected: &Expected,
    look: fn(&Path, &str, &Ran) -> Option<String>,
) {
    let slots = Arc::new(Semaphore::new(AT_A_TIME));
    let mut runs = JoinSet::new();
    for misbehaviour in all() {
        let place = serve(misbehaviour).await;
        for dialect in misbehaviour.dialects() {
            let (slots, place, ends) = (slots.clone(), place.clone(), expected.of(misbehaviour, dialect));
            let patience = if SILENT.iter().any(|name| is_named(misbehaviour, name)) { SHORT } else { LONG };
            let word = |word: &&str| match word.strip_prefix('@') {
                Some(path) => format!("{place}{path}?dialect={dialect}"),
                None => (*word).to_owned(),
            };
            let words: Vec<String> = words.iter().map(word).collect();
            runs.spawn(async move {
                let _slot = slots.acquire().await.expect("it is never closed");
                let dir = tempfile::tempdir().expect("a directory");
                let ran = Box::pin(run::ninefold(&words, stdout, ends, patience, dir.path())).await;
                let waited = ran.stderr.contains("no reply within") && patience == LONG;
                let waited = waited.then(|| "it waited for a server that answers".to_owned());
                let looked = look(dir.path(), misbehaviour.name, &ran);
                let whose = |fault| format!("{} in {dialect}: {fault}\n{}", misbehaviour.name, ran.stderr);
                faults(&ran, ends, &place).chain(waited).chain(looked).map(whose).collect::<Vec<_>>()
            });
        }
    }
    let mut faults = Vec::new();
    while let Some(found) = runs.join_next().await {
        faults.extend(found.expect("no panic"));
    }
    faults.sort();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Serves on a free port for as long as the test runs.
async fn serve(misbehaviour: &'static Misbehaviour) -> Address {
    let any = "9p://127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&any).await.expect("a free port");
    let place = listener.local_address().expect("its address");
    let hostile = Arc::new(Hostile::new(misbehaviour).await.expect("a tree in memory"));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await;
            let hostile = hostile.clone();
            // How a connection ends is the command's to tell.
            tokio::spawn(async move { drop(hostile.serve(stream).await) });
        }
    });
    place
}

/// What is wrong with a run whatever the command was to do.
fn faults(ran: &Ran, expected: Ended, place: &Address) -> impl Iterator<Item = String> {
    let status =
        (ran.ended != expected).then(|| format!("{:?} after {:?} instead of {expected:?}", ran.ended, ran.took));
    let place = place.to_string();
    let told = ran.stderr.lines().all(|line| line.starts_with("ninefold: ") && line.contains(&place));
    let told = told && (ran.ended != Ended::Status(1) || !ran.stderr.is_empty());
    let wordless = (!told).then(|| "a line on standard error does not name the server, or there is none".to_owned());
    let obeyed = |text: &str| text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    let shown = ran.terminal && obeyed(&String::from_utf8_lossy(&ran.stdout));
    let unsafe_text = (shown || obeyed(&ran.stderr)).then(|| "a terminal would obey what came out".to_owned());
    [status, wordless, unsafe_text].into_iter().flatten()
}

#[tokio::test]
async fn the_server_says_where_it_listens_and_what_it_can_play() {
    let list = tokio::process::Command::new(env!("CARGO_BIN_EXE_ninefold-hostile")).arg("--list").output();
    let list = list.await.expect("it runs");
    let lines = String::from_utf8(list.stdout).expect("UTF-8");
    let names: Vec<&str> = lines.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(names, all().map(|misbehaviour| misbehaviour.name).collect::<Vec<_>>());
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, place) = run::hostile("dir-names-odd").await;
    let words = ["cat".to_owned(), format!("{place}/greeting")];
    let ran = run::ninefold(&words, Stdout::Pipe, Ended::Status(0), LONG, dir.path()).await;
    assert_eq!((ran.ended, ran.stdout.as_slice()), (Ended::Status(0), tree::GREETING), "{}", ran.stderr);
    assert!(fs::read_dir(dir.path()).expect("it is there").next().is_none());
}
