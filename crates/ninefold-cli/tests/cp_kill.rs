//! `ninefold cp -r` killed at random instants: no file under its own name is anything but old or new, and `--resume`
//! finishes the copy.
//!
//! NINEFOLD_KILLS says how often (20); NINEFOLD_SEED repeats a run.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;
use support::share::Share;
use support::{ninefold, run};

/// Kills when nothing else is asked: each direction and dialect, over old files and over none.
const KILLS: u64 = 20;

/// Files that are copied at a time when nothing else is asked.
const JOBS: usize = 8;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Files by their path.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn write(tree: &Tree, dir: &Path) {
    for (path, content) in tree {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// What is in a directory.
#[derive(Default)]
struct Found {
    /// But for what interrupted copies leave.
    tree: Tree,
    /// How many temporary files they left.
    left: usize,
    /// The old files that 9P2000 has moved aside, by the name that they had.
    aside: Tree,
}

fn read(dir: &Path) -> Found {
    let mut found = Found::default();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        // A directory that is not made yet holds nothing.
        for entry in fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                dirs.push(path);
            } else if name.ends_with(".ninefold-part") {
                found.left += 1;
            } else if let Ok(content) = fs::read(&path) {
                let own = name.strip_prefix('.').and_then(|name| name.rsplit_once(".ninefold-"));
                let path = path.strip_prefix(dir).unwrap();
                match own {
                    Some((own, _)) => found.aside.insert(path.with_file_name(own), content),
                    None => found.tree.insert(path.to_owned(), content),
                };
            }
        }
    }
    found
}

#[test]
fn at_whatever_instant_a_copy_is_killed_no_file_looks_whole_that_is_not_and_resume_finishes_it() {
    let kills = number("NINEFOLD_KILLS").unwrap_or(KILLS);
    let seed = number("NINEFOLD_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut noise = |size: usize| {
        let mut bytes = vec![0; size];
        rng.fill(&mut bytes);
        bytes
    };
    let (mut source, mut old) = (Tree::new(), Tree::new());
    for i in 0..40 {
        let path = PathBuf::from(format!("t/d{}/{i}", i % 4));
        source.insert(path.clone(), noise(100 + i * 700));
        // Of another size: without times to go by, a file of the same size that is younger is taken for done.
        old.insert(path, noise(50 + i * 300));
    }
    source.insert("t/large".into(), noise(8 << 20));
    old.insert("t/large".into(), noise(3 << 20));
    let share = Share::new();
    let idle = share.server.sockets();
    let here = tempfile::tempdir().unwrap();

    let mut took = BTreeMap::<bool, Duration>::new();
    let (mut killed, mut mixed, mut parts) = (0, 0, 0);
    let mut round = 0;
    while killed < kills {
        assert!(round < 10 * kills + 10, "seed {seed}: {killed} killed in {round} rounds");
        let dialect = Dialect::ALL[(round % 3) as usize];
        let (up, over_old) = (round / 3 % 2 == 0, round / 6 % 2 == 0);
        let name = format!("round-{round}");
        let (from_dir, to_dir) = match up {
            true => (here.path().join(&name), share.path(&name)),
            false => (share.path(&name), here.path().join(&name)),
        };
        write(&source, &from_dir);
        fs::create_dir(&to_dir).unwrap();
        if over_old {
            write(&old, &to_dir);
        }
        let (near, far) = (here.path().join(&name), |path: &str| share.url(&format!("{name}{path}"), dialect));
        let near_tree = near.join("t");
        let (near, near_tree) = (near.to_str().unwrap(), near_tree.to_str().unwrap());
        let (from, to) = if up { (near_tree.to_owned(), far("")) } else { (far("/t"), near.to_owned()) };
        let context = format!("seed {seed}, round {round}: {dialect} {}", if up { "up" } else { "down" });

        let check = |what: &str| {
            let Found { tree, left, aside } = read(&to_dir);
            for (path, content) in &tree {
                let is_new = source.get(path) == Some(content);
                let is_old = over_old && old.get(path) == Some(content);
                assert!(is_new || is_old, "{context}: {what}: {} has {} bytes", path.display(), content.len());
            }
            for (path, content) in old.iter().filter(|_| over_old) {
                // Only where no rename replaces is there a moment without a file of that name, or that for ever.
                let is_aside = up && dialect == Dialect::Plan9 && aside.get(path) == Some(content);
                assert!(tree.contains_key(path) || is_aside, "{context}: {what}: {} is gone", path.display());
            }
            let new = tree.iter().filter(|(path, content)| source.get(*path) == Some(content)).count();
            (new, left)
        };
        // A copy to a server that is begun without it leaves files that nobody goes on with.
        let plain = round % 2 == 1;
        let first: &[&str] = if plain { &["cp", "-r"] } else { &["cp", "-r", "--resume"] };
        // Killed once, and while it goes on once more.
        for words in [first, &["cp", "-r", "--resume"]] {
            let began = Instant::now();
            let mut command = ninefold(&[words, &[&from, &to]].concat());
            let mut copy = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let all = took.get(&up).copied().unwrap_or(Duration::from_millis(300));
            let instant = all.mul_f64(rng.f64());
            while began.elapsed() < instant && copy.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_micros(200));
            }
            let ended = copy.try_wait().unwrap().is_some();
            copy.kill().unwrap();
            copy.wait().unwrap();
            // What it had asked for is still being done.
            share.server.quiet(idle);
            killed += u64::from(!ended);
            let (new, left) = check("killed");
            mixed += usize::from(!ended && new > 0 && new < source.len());
            parts += usize::from(left > 0);
        }
        let began = Instant::now();
        let (code, _, said) = run(&["cp", "-r", "--resume", &from, &to]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{context}");
        took.insert(up, began.elapsed());
        let (new, left) = check("finished");
        assert_eq!(new, source.len(), "{context}");
        assert!(left <= if plain && up { JOBS } else { 0 }, "{context}: {left} temporary files are left");
        // Nothing is left to do, by content.
        let (code, said, _) = run(&["cp", "-r", "--resume", "--checksum", "--json", &from, &to]);
        let sum: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!((code, &sum["files"], &sum["skipped"]), (Some(0), &0.into(), &source.len().into()), "{context}");
        fs::remove_dir_all(from_dir).unwrap();
        fs::remove_dir_all(to_dir).unwrap();
        round += 1;
    }
    println!(
        "{round} rounds, {killed} copies killed before their end, {mixed} of them with some files copied and some not, \
         {parts} with a temporary file left"
    );
    // Else the instants were none.
    assert!(mixed > 0, "seed {seed}: {mixed} of {killed} killed in the middle");
}
