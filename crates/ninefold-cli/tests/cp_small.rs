//! Small files that are copied in one round trip, and what a server, or another program, puts in the way of it.

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use support::meddler::{RGETATTR, RREAD, TREAD, Way, kind, meddle, replace};
use support::share::{Share, feed};
use support::{run, skip};

/// The numbers of some messages.
const RLERROR: u8 = 7;
const TSETATTR: u8 = 26;
const TCLUNK: u8 = 120;
const TRENAME2: u8 = 188;

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Modes and content of what was seen.
type Seen = Arc<Mutex<Vec<(u32, Vec<u8>)>>>;

/// A relay that looks at the share's temporary files at every refusal: when all was written, and before any is removed.
fn watch(share: &Share) -> (String, Seen) {
    let (seen, root) = (Arc::new(Mutex::new(Vec::new())), share.root().to_owned());
    let parts = seen.clone();
    let address = meddle(share.address(), move |way, frame| {
        if way == Way::ToClient && kind(frame) == RLERROR {
            let entries = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
            let hidden = entries.filter(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"."));
            parts.lock().unwrap().extend(hidden.map(|path| (mode(&path), fs::read(&path).unwrap())));
        }
        true
    });
    (format!("9p://{address}"), seen)
}

#[test]
fn what_is_to_be_private_is_nobody_elses_to_read_while_its_name_is_found_to_be_taken() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("private");
    fs::write(&from, "private").unwrap();
    chmod(&from, 0o644);
    for words in [&["write"][..], &["cp"], &["cp", "-p"]] {
        let share = Share::new();
        let (url, seen) = watch(&share);
        let (ended, file) = if words == ["write"] {
            chmod(share.make("private", "old"), 0o600);
            (feed(&["write", &format!("{url}/private")], b"private"), "private")
        } else {
            fs::create_dir(share.path("private")).unwrap();
            chmod(share.path("private"), 0o700);
            let to = format!("{url}/private");
            let (code, _, said) = run(&[words, &[from.to_str().unwrap(), &to]].concat());
            ((code, said), "private/private")
        };
        assert_eq!(ended, (Some(0), String::new()), "{words:?}");
        assert_eq!(share.read(file), b"private");
        assert_eq!(share.names("."), ["private"]);
        let seen = seen.lock().unwrap();
        assert!(seen.iter().any(|(_, content)| content == b"private"), "{words:?}: it was not held under another name");
        assert!(seen.iter().all(|(mode, _)| mode & 0o077 == 0), "{words:?}: {seen:?}");
    }
}

#[test]
fn a_new_file_has_the_permissions_that_any_program_gives_it() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    fs::write(here.path().join("plain"), "x").unwrap();
    fs::create_dir(here.path().join("all")).unwrap();
    let (plain, all) = (mode(here.path().join("plain")), mode(here.path().join("all")) & 0o777);
    assert_eq!(feed(&["write", &format!("{}/written", share.place())], b"x"), (Some(0), String::new()));
    assert_eq!(mode(share.path("written")), plain);
    for source in [0o600, 0o640, 0o751] {
        chmod(here.path().join("plain"), source);
        for (word, expected) in [("-q", source & all), ("-p", source)] {
            let url = format!("{}/copied{source}{word}", share.place());
            let (code, _, said) = run(&["cp", word, here.path().join("plain").to_str().unwrap(), &url]);
            assert_eq!((code, &*said), (Some(0), ""), "{word} {source:o}");
            assert_eq!(mode(share.path(&format!("copied{source}{word}"))), expected, "{word} {source:o}");
        }
    }
}

#[test]
fn where_no_rename_asks_for_a_free_name_a_copy_keeps_owners_and_set_id_bits_and_asks_once() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let tree = here.path().join("t");
    fs::create_dir(&tree).unwrap();
    for i in 0..20 {
        fs::write(tree.join(i.to_string()), "content").unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        fs::read_dir(&tree).unwrap().for_each(|entry| chown(entry.unwrap().path(), Some(7), Some(8)).unwrap());
    }
    // A directory gets its attributes when all in it is copied.
    chmod(&tree, 0o2755);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let relay = meddle(share.address(), move |way, frame| {
        if way == Way::ToServer && kind(frame) == TRENAME2 {
            count.fetch_add(1, Ordering::Relaxed);
            // Flags that the server does not know are EINVAL.
            let flags = frame.len() - 4;
            frame[flags..].copy_from_slice(&0x80_u32.to_le_bytes());
        }
        true
    });
    for jobs in [&[][..], &["-j", "1"]] {
        let _ = fs::remove_dir_all(share.path("t"));
        asked.store(0, Ordering::Relaxed);
        let ended = run(&[&["cp", "-rp"], jobs, &[tree.to_str().unwrap(), &format!("9p://{relay}/")]].concat());
        assert_eq!(ended, (Some(0), String::new(), String::new()));
        assert_eq!(mode(share.path("t")), 0o2755, "{jobs:?}");
        for i in 0..20 {
            let name = format!("t/{i}");
            let owner = |path: &Path| fs::metadata(path).map(|it| (it.uid(), it.gid())).unwrap();
            assert_eq!(share.read(&name), b"content");
            assert_eq!(owner(&share.path(&name)), owner(&tree.join(i.to_string())), "{jobs:?}: {name}");
        }
        assert_eq!(share.names("t").len(), 20);
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked > 0 && (jobs.is_empty() || asked == 1), "{jobs:?}: {asked}");
    }
}

#[test]
fn a_group_that_may_not_be_given_keeps_no_file_from_getting_another() {
    if !rustix::process::geteuid().is_root() {
        return skip(
            "a_group_that_may_not_be_given_keeps_no_file_from_getting_another",
            "only root has files of others",
        );
    }
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let tree = here.path().join("t");
    fs::create_dir(&tree).unwrap();
    for (name, gid) in [("a", 8), ("b", 9), ("c", 8), ("d", 9)] {
        fs::write(tree.join(name), "content").unwrap();
        chown(tree.join(name), Some(7), Some(gid)).unwrap();
    }
    // As a server of a user of group 9 has it: to nobody else a file is given, and to group 8 none either.
    let relay = meddle(share.address(), move |way, frame| {
        // size[4] Tsetattr tag[2] fid[4] valid[4] mode[4] uid[4] gid[4]
        if way == Way::ToServer && kind(frame) == TSETATTR {
            let field = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
            let (valid, gid) = (field(11), field(23));
            if valid & 2 != 0 || valid & 4 != 0 && gid == 8 {
                // No number of an owner, which is EINVAL.
                frame[11..15].copy_from_slice(&(valid | 2).to_le_bytes());
                frame[19..23].copy_from_slice(&u32::MAX.to_le_bytes());
            }
        }
        true
    });
    for jobs in [&[][..], &["-j", "1"]] {
        let _ = fs::remove_dir_all(share.path("t"));
        let ended = run(&[&["cp", "-rp"], jobs, &[tree.to_str().unwrap(), &format!("9p://{relay}/")]].concat());
        assert_eq!(ended, (Some(0), String::new(), String::new()));
        for (name, gid) in [("a", 0), ("b", 9), ("c", 0), ("d", 9)] {
            let metadata = fs::metadata(share.path(&format!("t/{name}"))).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (0, gid), "{jobs:?}: {name}");
        }
    }
}

#[test]
fn a_file_that_is_rewritten_between_the_reading_and_the_looking_is_read_again() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let new = share.make("t/f", "content: new");
    let time = |secs| fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs));
    let (old_time, new_time) = (0x1122_3344_u64, 0x1122_3399_u64);
    fs::File::options().write(true).open(&new).unwrap().set_times(time(new_time)).unwrap();
    // Up to the first reading the server has the file as it was: what it tells then is put back.
    let mut is_read = false;
    let relay = meddle(share.address(), move |way, frame| {
        if way == Way::ToClient && !is_read && matches!(kind(frame), RREAD | RGETATTR) {
            replace(frame, b"content: new", b"content: old");
            replace(frame, &new_time.to_le_bytes(), &old_time.to_le_bytes());
            is_read = kind(frame) == RREAD;
        }
        true
    });
    let ended = run(&["cp", "-rp", &format!("9p://{relay}/t"), here.path().to_str().unwrap()]);
    assert_eq!(ended, (Some(0), String::new(), String::new()));
    let copy = here.path().join("t/f");
    assert_eq!(fs::read(&copy).unwrap(), b"content: new");
    assert_eq!(fs::metadata(&copy).unwrap().mtime(), new_time as i64);
}

#[test]
fn a_tree_that_is_compared_byte_for_byte_is_read_eight_files_at_a_time() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let tree = here.path().join("t");
    fs::create_dir(&tree).unwrap();
    for i in 0..100 {
        fs::write(tree.join(i.to_string()), [i; 5000]).unwrap();
        share.make(&format!("t/{i}"), [i; 5000]);
    }
    let most = Arc::new(AtomicUsize::new(0));
    let (seen, mut open) = (most.clone(), HashSet::new());
    let relay = meddle(share.address(), move |way, frame| {
        if way == Way::ToServer && matches!(kind(frame), TREAD | TCLUNK) {
            // size[4] type[1] tag[2] fid[4]
            let fid: [u8; 4] = frame[7..11].try_into().unwrap();
            if kind(frame) == TREAD {
                open.insert(fid)
            } else {
                open.remove(&fid)
            };
            seen.fetch_max(open.len(), Ordering::Relaxed);
        }
        true
    });
    for words in [&[][..], &["--dry-run"]] {
        most.store(0, Ordering::Relaxed);
        let args = [&["cp", "-r", "--resume", "--checksum"], words].concat();
        let (code, _, said) = run(&[&args[..], &[tree.to_str().unwrap(), &format!("9p://{relay}/")]].concat());
        assert_eq!((code, &*said), (Some(0), ""));
        // A file that was read is let go of while the next is begun.
        let most = most.load(Ordering::Relaxed);
        assert!((1..=32).contains(&most), "{words:?}: {most}");
    }
}
