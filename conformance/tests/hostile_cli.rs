//! The command line against the hostile server: each misbehaviour in each of its dialects, real processes over TCP.
//!
//! For every run holds: the command ends in time, or, where a server gives without end what was asked for, Ctrl-C ends it;
//! its exit status is the one listed here; a failure is told on standard error, by lines that name the server; nothing that
//! a terminal would obey comes out; and a claim of 4 GiB cannot be met, because the command has fewer addresses.

#[path = "support/command.rs"]
mod command;
#[path = "hostile_cli/run.rs"]
mod run;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ninefold::client::{Attach, Client, Error, Follow, Mode, Options};
use ninefold::proto::Dialect;
use ninefold::transport::{Address, Listener, memory};
use ninefold_conformance::hostile::{Hostile, Misbehaviour, all, streams, tree};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use run::{Ended, LONG, Ran, SHORT, Stdout};

/// Commands at a time: those that wait for a server in vain leave room for others.
const AT_A_TIME: usize = 8;

/// The misbehaviours in which a server does not answer, so that the command's timeout must end the wait. For all others it is
/// so long that nothing ends by it, however busy the machine is.
const SILENT: [&str; 8] =
    ["version-silent", "attach-silent", "frame-cut-silent", "flush-", "silent", "clunk-silent", "drip", "deaf"];

/// Beside a copy of the tree: where its link `trap` leads.
const OUTSIDE: &str = "outside";

/// What the user's own files hold, `mine` many times over.
const MINE: &[u8] = b"this is mine and nobody else's\n";

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
            "stat-name-slash",
            "stat-owner-escape",
            "link-",
            "xattr-",
            "lock-",
            "clunk-",
        ],
        endless: &["open-iounit-one", "read-one-byte", "read-endless"],
    };
    against_all(&["cat", "@/numbers"], Stdout::Pipe, &expected, |Seen { misbehaviour, ran, .. }| {
        let content: &[u8] = if *misbehaviour == "read-nothing" { b"" } else { tree::numbers() };
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
            // What it asks about in 9P2000 and .u it finds in the listings.
            "stat-",
            "link-loop",
            "link-chain",
            // .u lists targets beside the names; they are shown, and nothing more.
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
    against_all(&["ls", "-lR", "@/"], Stdout::Terminal, &expected, |Seen { ran, .. }| {
        let shown = String::from_utf8_lossy(&ran.stdout);
        let missing = tree::ROOT_NAMES.into_iter().find(|name| !shown.contains(name));
        missing.filter(|_| ran.ended == Ended::Status(0)).map(|name| format!("{name} is missing"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cp_brings_whole_files_or_none_whatever_the_server_does() {
    let expected = Expected {
        done: &[
            "walk-partial",
            "walk-alike",
            "walk-through-file",
            "open-other-file",
            "open-iounit-greatest",
            "write-",
            "dir-dots-again",
            "dir-names-odd",
            "attr-sec",
            "attr-numbers-greatest",
            "stat-name-slash",
            "stat-owner-escape",
            "link-loop",
            "link-chain",
            "link-target-escape",
            "xattr-",
            "lock-",
            "clunk-",
        ],
        // Two million files that are not there take their time. What is said to be empty is read to its end.
        endless: &["read-one-byte", "read-endless", "dir-endless"],
    };
    against_all(&["cp", "-r", "@/", "copy"], Stdout::Pipe, &expected, |seen| copied(seen).err()).await;
}

/// Whether every file that a copy of the tree left has its content, no other is left, and nothing lies beside the copy.
fn copied(Seen { dir, misbehaviour, ran, .. }: &Seen<'_>) -> Result<(), String> {
    let outside = dir.join(OUTSIDE);
    let untouched =
        if outside.is_dir() { names(&outside).is_empty() } else { fs::read(&outside).is_ok_and(|now| now == MINE) };
    if !untouched || names(dir).iter().any(|name| ![OUTSIDE, "mine", "copy"].iter().any(|own| name == own)) {
        return Err("it wrote beside the copy".to_owned());
    }
    let mut left = vec![dir.join("copy")];
    while let Some(path) = left.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if found.is_dir() {
            left.extend(names(&path).iter().map(|name| path.join(name)));
        } else if found.is_file() {
            let content = fs::read(&path).map_err(|e| e.to_string())?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let expected: &[u8] = match name.as_str() {
                "greeting" => tree::GREETING,
                "numbers" => tree::numbers(),
                "empty" => b"",
                "a" => b"a\n",
                "b" => b"b\n",
                "c" => b"c\n",
                "leaf" => b"leaf\n",
                "planted" => b"planted\n",
                _ if *misbehaviour == "dir-names-odd" => b"odd\n",
                _ => return Err(format!("{} is left", path.display())),
            };
            if content != expected {
                return Err(format!("{} has {} bytes that are not those of {name}", path.display(), content.len()));
            }
        }
    }
    let whole = dir.join("copy").join("numbers").exists();
    if ran.ended == Ended::Status(0) && !whole { Err("not all was copied".to_owned()) } else { Ok(()) }
}

fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cp_leaves_whole_files_or_none_with_a_server_whatever_that_does() {
    let expected = Expected {
        done: &[
            "attach-file",
            "walk-partial",
            "walk-through-file",
            "open-iounit-greatest",
            "read-",
            "dir-",
            "attr-",
            "stat-",
            "link-",
            "xattr-",
            "error-",
            "flush-",
        ],
        endless: &["open-iounit-one", "write-one-byte"],
    };
    // With --resume it looks for what an interrupted copy left too, and so meets more.
    against_all(&["cp", "--resume", "mine", "@/mine"], Stdout::Pipe, &expected, |Seen { dir, ran, sent, .. }| {
        let mine = fs::read(dir.join("mine")).expect("it is there");
        match sent {
            Ok(content) if *content == mine => None,
            Ok(content) => Some(format!("{} of {} bytes look whole there", content.len(), mine.len())),
            Err(e) if !e.is_not_found() => Some(e.to_string()),
            Err(_) => (ran.ended == Ended::Status(0)).then(|| "it is not there".to_owned()),
        }
    })
    .await;
}

/// What there is to look at when a command has run.
struct Seen<'r> {
    /// Where it ran.
    dir: &'r Path,
    misbehaviour: &'r str,
    ran: &'r Ran,
    /// The content of the server's file `mine`, as the server has it.
    sent: &'r Result<Vec<u8>, Error>,
}

/// Runs a command against every misbehaviour and collects what is wrong. A word that begins with `@` is a path there.
/// `look` looks at what came of it, and says what is wrong with that. In the directory that the command runs in lie `mine`,
/// a file of the user's, and [`OUTSIDE`], where a link of the tree leads that leads out of a copy of it.
async fn against_all(
    words: &'static [&'static str],
    stdout: Stdout,
    expected: &Expected,
    look: fn(&Seen<'_>) -> Option<String>,
) {
    let slots = Arc::new(Semaphore::new(AT_A_TIME));
    let mut runs = JoinSet::new();
    for misbehaviour in all() {
        for dialect in misbehaviour.dialects() {
            let (slots, ends) = (slots.clone(), expected.of(misbehaviour, dialect));
            let patience = if SILENT.iter().any(|name| is_named(misbehaviour, name)) { SHORT } else { LONG };
            runs.spawn(async move {
                let _slot = slots.acquire().await.expect("it is never closed");
                let (server, place) = serve(misbehaviour).await;
                let word = |word: &&str| match word.strip_prefix('@') {
                    Some(path) => format!("{place}{path}?dialect={dialect}"),
                    None => (*word).to_owned(),
                };
                let words: Vec<String> = words.iter().map(word).collect();
                let dir = tempfile::tempdir().expect("a directory");
                let outside = dir.path().join(OUTSIDE);
                // What would be written through the link: files in a directory, or a file.
                let made = if misbehaviour.name == "dir-twin-file" {
                    fs::write(outside, MINE)
                } else {
                    fs::create_dir(outside)
                };
                made.and_then(|()| fs::write(dir.path().join("mine"), MINE.repeat(100_000))).expect("a place for it");
                let ran = Box::pin(run::ninefold(&words, stdout, ends, patience, dir.path())).await;
                let waited = ran.stderr.contains("no reply within") && patience == LONG;
                let waited = waited.then(|| "it waited for a server that answers".to_owned());
                let sent = Box::pin(sent(&server, dialect)).await;
                let looked = look(&Seen { dir: dir.path(), misbehaviour: misbehaviour.name, ran: &ran, sent: &sent });
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
async fn serve(misbehaviour: &'static Misbehaviour) -> (Arc<Hostile>, Address) {
    let any = "9p://127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&any).await.expect("a free port");
    let place = listener.local_address().expect("its address");
    let server = Arc::new(Hostile::new(misbehaviour).await.expect("a tree in memory"));
    let hostile = server.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await;
            let hostile = hostile.clone();
            // How a connection ends is the command's to tell.
            tokio::spawn(async move { drop(hostile.serve(stream).await) });
        }
    });
    (server, place)
}

/// The content of the file `mine` that a server of ours has.
async fn sent(server: &Arc<Hostile>, dialect: Dialect) -> Result<Vec<u8>, Error> {
    let (ours, theirs) = memory::pair(1 << 16);
    let server = server.clone();
    tokio::spawn(async move { server.serve_honestly(theirs).await });
    let attach = Attach { dialect: Some(dialect.into()), ..Attach::default() };
    let client = Client::over(ours, &attach, Options::default()).await?;
    let file = client.walk("/mine", Follow::All).await?.open(Mode::READ).await?;
    let mut reader = file.reader(0, None);
    let mut content = Vec::new();
    while let Some(data) = reader.next().await? {
        content.extend_from_slice(&data);
    }
    Ok(content)
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
    assert_eq!(names, all().chain(streams()).map(|misbehaviour| misbehaviour.name).collect::<Vec<_>>());
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, place) = run::hostile("dir-names-odd").await;
    let words = ["cat".to_owned(), format!("{place}/greeting")];
    let ran = run::ninefold(&words, Stdout::Pipe, Ended::Status(0), LONG, dir.path()).await;
    assert_eq!((ran.ended, ran.stdout.as_slice()), (Ended::Status(0), tree::GREETING), "{}", ran.stderr);
    assert!(fs::read_dir(dir.path()).expect("it is there").next().is_none());
}
