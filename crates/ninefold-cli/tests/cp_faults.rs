//! `ninefold cp` of one long file, both ways, to which something happens at a random instant: the server or the client is killed, the link
//! cut, the disk filled, the source changed, one of several data connections cut. Whatever it is, the copy fails and says of which file
//! and why, or what it made is right; no file under the destination's name is anything but the old one or right; and `--resume`
//! finishes what failed, after any number of interruptions of its own.
//!
//! NINEFOLD_FAULTS says at how many instants of each kind (6); NINEFOLD_SEED repeats a run. With `--nocapture` each kind tells what was
//! said, and how much of what an interrupted copy left was not copied again.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::meddler::Way;
use support::wire::{At, Cut, Wire};
use support::{Running, ninefold, skip, until};

/// Instants of each kind when nothing else is asked.
const INSTANTS: u64 = 6;

/// Bytes of the source: ranges of it are long enough to be parted, and it ends in the middle of everything.
const SIZE: usize = (16 << 20) + 12_345;

/// Of what was there before: another size, or `--resume` would take it for the copy.
const OLD: usize = 3 << 20;

/// What the replies of a session take where a copy is to go by several streams.
const DELAY: Duration = Duration::from_millis(40);

/// Bytes of the file system that is filled: source, part and old file fit, and the filling takes no time.
const DISK: &str = "size=96m";

/// Only a failing test takes so long.
const ENDS: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Server,
    Link,
    Disk,
    Truncated,
    Replaced,
    Rewritten,
    Second,
    Client,
}

impl Fault {
    /// Of which what is said of it has one, beside the name of a file.
    fn words(self) -> &'static [&'static str] {
        match self {
            Fault::Server | Fault::Link | Fault::Second => {
                &["connection", "no reply", "timed out", "bytes that the server sent"]
            }
            Fault::Disk => &["No space left", "file system full"],
            Fault::Truncated | Fault::Replaced | Fault::Rewritten => &["changed", "it ended after"],
            Fault::Client => &[],
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// A server of the directory `there`, and a directory `here` beside it.
struct Ground {
    dir: tempfile::TempDir,
    server: Running,
    address: std::net::SocketAddr,
    idle: usize,
    is_mounted: bool,
}

impl Ground {
    fn new(is_mounted: bool) -> Ground {
        let dir = tempfile::tempdir().unwrap();
        if is_mounted {
            let options = std::ffi::CString::new(DISK).unwrap();
            let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
            rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, options.as_c_str()).unwrap();
        }
        for name in ["here", "there"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let (server, address, idle) = Ground::serve(dir.path());
        Ground { dir, server, address, idle, is_mounted }
    }

    fn serve(dir: &Path) -> (Running, std::net::SocketAddr, usize) {
        let there = dir.join("there");
        let mut command = ninefold(&["serve", there.to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
        let server = Running::spawn(command.stderr(Stdio::null()));
        let address = server.tcp();
        let idle = server.sockets();
        (server, address, idle)
    }

    fn restart(&mut self) {
        let (server, address, idle) = Ground::serve(self.dir.path());
        (self.server, self.address, self.idle) = (server, address, idle);
    }

    fn path(&self, is_there: bool, name: &str) -> PathBuf {
        self.dir.path().join(if is_there { "there" } else { "here" }).join(name)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = rustix::mount::unmount(self.dir.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Takes all that is left of a file system.
fn fill(disk: &Path) -> fs::File {
    let filler = fs::File::create(disk.join("filler")).unwrap();
    let mut size = 0;
    loop {
        let free = rustix::fs::statvfs(disk).unwrap();
        let free = free.f_bfree * free.f_frsize;
        if free == 0 {
            return filler;
        }
        // The copy takes some of it meanwhile: then less is asked for.
        let step = if free > 1 << 20 { free - (1 << 20) } else { 4096 };
        // By now somebody else may have what was free.
        match rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), size, step) {
            Ok(()) => size += step,
            Err(_) if free <= 4096 => return filler,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// The names that interrupted copies left.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().ends_with(".ninefold-part")).collect()
}

/// The blocks of a part that its record counts as there, and that are not those of `content`.
fn wrong_blocks(part: &Path, content: &[u8]) -> Vec<usize> {
    let found = fs::read(part).unwrap();
    let Some((found, record)) = found.split_at_checked(content.len()) else { return Vec::new() };
    let Some(numbers) = record.strip_prefix(b"ninefold blocks\n") else { return Vec::new() };
    let numbers = numbers.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number));
    let blocks = numbers.zip(found.chunks(1 << 20).zip(content.chunks(1 << 20))).enumerate();
    let is_wrong = |(number, (found, content)): (u64, (&[u8], &[u8]))| {
        number != 0 && number == twox_hash::XxHash3_64::oneshot(found) && found != content
    };
    blocks.filter(|&(_, block)| is_wrong(block)).map(|(at, _)| at).collect()
}

/// Whether the record at the end of a part of a file of `size` bytes (`src/files/cp/blocks.rs`) says that a block is there.
fn has_blocks(part: &Path, size: u64) -> bool {
    let content = fs::read(part).unwrap();
    let record = content.get(size as usize..).unwrap_or_default();
    record.strip_prefix(b"ninefold blocks\n").is_some_and(|numbers| numbers.iter().any(|&byte| byte != 0))
}

fn end(mut child: Child, context: &str) -> (Option<i32>, String) {
    let mut stderr = child.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).map(|_| said)
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > ENDS {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{context}: the copy has no end: {}", said.join().unwrap().unwrap());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    (status.code(), said.join().unwrap().unwrap())
}

/// What came of all instants of a kind.
#[derive(Default)]
struct Sum {
    happened: u64,
    failed: u64,
    again: u64,
    left: u64,
    resumed: u64,
    saved: u64,
    said: BTreeMap<String, u64>,
}

/// What a copy is, and what happens to it.
#[derive(Clone, Copy)]
struct How {
    resumes: bool,
    /// A copy before may have left a part that this one does not find.
    can_be_left: bool,
    /// Where the link is what it happens to.
    cut: Cut,
    /// What the source has then, where it becomes shorter.
    length: u64,
}

impl How {
    fn random(rng: &mut fastrand::Rng, resumes: bool) -> How {
        let cut = rng.choice([Cut::All, Cut::Reset, Cut::Silence]).unwrap();
        How { resumes, can_be_left: false, cut, length: rng.u64(..SIZE as u64) }
    }
}

/// One copy to which something happens, and the resumptions to which something happens, too.
struct Round<'a> {
    ground: &'a mut Ground,
    wire: Wire,
    context: String,
    /// Paths of the two files.
    from: PathBuf,
    to: PathBuf,
    /// As the command is told them.
    source: String,
    destination: String,
    /// What was under the destination's name before.
    old: Option<&'a [u8]>,
    /// What the source becomes where it changes.
    other: &'a [u8],
}

impl Round<'_> {
    fn to_dir(&self) -> &Path {
        self.to.parent().unwrap()
    }

    /// What is done at the instant, to `client` or another.
    fn deed(
        &self,
        fault: Fault,
        client: Arc<OnceLock<Pid>>,
        How { cut, length, .. }: How,
    ) -> impl FnOnce() -> Option<Cut> + Send + 'static {
        let (from, disk, server) = (self.from.clone(), self.ground.dir.path().to_owned(), self.ground.server.pid());
        let (new, rewritten) = (from.with_file_name("new"), self.other.to_vec());
        if fault == Fault::Replaced {
            fs::write(&new, &rewritten).unwrap();
        }
        move || {
            match fault {
                Fault::Server => kill_process(server, Signal::KILL).unwrap(),
                Fault::Client => {
                    let client = until("the client", || client.get().copied());
                    kill_process(client, Signal::KILL).unwrap();
                }
                Fault::Disk => drop(fill(&disk)),
                Fault::Truncated => fs::File::options().write(true).open(&from).unwrap().set_len(length).unwrap(),
                Fault::Replaced => fs::rename(&new, &from).unwrap(),
                Fault::Rewritten => {
                    let file = fs::File::options().write(true).open(&from).unwrap();
                    file.write_all_at(&rewritten, 0).unwrap();
                }
                Fault::Link => return Some(cut),
                Fault::Second => return Some(Cut::Second),
            }
            None
        }
    }

    /// A copy to which `fault` happens at an instant: whether it did, and what the command said if it failed. Under the destination's name is what
    /// was there before, or what is right.
    fn copy(&mut self, fault: Fault, at: At, how: How) -> (bool, Option<String>) {
        let How { resumes, can_be_left, cut, .. } = how;
        let context = format!("{}, {fault:?}, {at:?}, {cut:?}, --resume {resumes}", self.context);
        let before = fs::read(&self.from).unwrap();
        let client = Arc::new(OnceLock::<Pid>::new());
        self.wire.at(at, self.deed(fault, client.clone(), how));
        let is_silent = fault == Fault::Link && cut == Cut::Silence;
        // As long as a busy machine may take for a connection.
        let mut words = if is_silent { vec!["--timeout", "3"] } else { vec![] };
        words.extend(["cp", &self.source, &self.destination]);
        words.extend(resumes.then_some("--resume"));
        let mut command = ninefold(&words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        client.set(Pid::from_child(&child)).unwrap();
        let (code, said) = end(child, &context);
        let happened = self.wire.has_happened();

        // What is there, at once and when the server has done all that it had been asked.
        let judge = |when: &str| {
            let now = fs::read(&self.from).unwrap();
            match fs::read(&self.to) {
                Err(e) => {
                    assert!(self.old.is_none() && code != Some(0), "{context}: {when}: no file: {e}: {code:?} {said}");
                }
                Ok(found) => {
                    let is_new = found == before || found == now;
                    let is_old = self.old.is_some_and(|old| found == old);
                    assert!(is_new || is_old, "{context}: {when}: {} wrong bytes: {code:?} {said}", found.len());
                    assert!(is_new || code != Some(0), "{context}: {when}: it is the old file: {said}");
                }
            }
        };
        judge("at its end");
        assert!(happened || code == Some(0), "{context}: nothing happened: {code:?} {said}");
        if fault == Fault::Server {
            self.ground.restart();
        }
        self.wire.heal(self.ground.address);
        self.ground.server.quiet(self.ground.idle);
        judge("when the server was done");
        if fault == Fault::Disk {
            let _ = fs::remove_file(self.ground.dir.path().join("filler"));
        }
        let now = fs::read(&self.from).unwrap();
        for part in parts(self.to_dir()) {
            let [wrong, wrong_now] = [&before, &now].map(|content| wrong_blocks(&part, content));
            let is_right = wrong.is_empty() || wrong_now.is_empty();
            assert!(is_right, "{context}: blocks {wrong:?} count as there, and are not: {said}");
        }
        if !happened || code == Some(0) {
            let left = parts(self.to_dir());
            assert!(can_be_left || left.is_empty(), "{context}: {left:?} is left");
            return (happened, None);
        }
        if fault != Fault::Client {
            assert_eq!(code, Some(1), "{context}: {said}");
            // Of a server that cannot be reached the address is told.
            let server = format!("9p://{}: ", self.wire.address());
            let names = [&self.source, &self.destination, &server].iter().any(|name| said.contains(name.as_str()));
            let tells = fault.words().iter().any(|words| said.contains(words));
            assert!(names && tells, "{context}: {said}");
            // What nobody could remove, and nobody goes on with, is named.
            for part in parts(self.to_dir()).iter().filter(|_| !resumes) {
                let name = part.file_name().unwrap().to_str().unwrap();
                assert!(said.contains(name), "{context}: {name} is left: {said}");
            }
        }
        (happened, Some(said))
    }

    /// The copy goes on, and nothing happens: the file is whole. Bytes that were not copied again.
    fn finish(&self, said: &str, can_be_left: bool) -> u64 {
        let Round { context, source, destination, .. } = self;
        let left = parts(self.to_dir());
        let size = fs::metadata(&self.from).unwrap().len();
        let can_go_on = left.iter().any(|part| has_blocks(part, size)) && !can_be_left;
        let resumed =
            ninefold(&["cp", "--resume", "--json", source, destination]).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8(resumed.stdout).unwrap();
        let complained = String::from_utf8(resumed.stderr).unwrap();
        assert_eq!((resumed.status.code(), complained.as_str()), (Some(0), ""), "{context}: --resume after {said}");
        assert!(fs::read(&self.to).unwrap() == fs::read(&self.from).unwrap(), "{context}: --resume after {said}");
        let record: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        let saved = record["resumed_at"].as_u64().unwrap_or(0);
        assert!(saved > 0 || !can_go_on, "{context}: {left:?} was not gone on with");
        assert!(parts(self.to_dir()).is_empty() || can_be_left, "{context}: {:?} is left", parts(self.to_dir()));
        saved
    }

    /// What was said, without what differs from one round to another.
    fn shortened(&self, said: &str) -> String {
        let mut short = said.trim().to_owned();
        let address = self.wire.address().to_string();
        for (name, word) in [(&self.source, "SOURCE"), (&self.destination, "COPY"), (&address, "ADDRESS")] {
            short = short.replace(name.as_str(), word);
        }
        short.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()
    }
}

fn at_random_instants(fault: Fault) {
    let instants = number("NINEFOLD_FAULTS").unwrap_or(INSTANTS);
    let seed = number("NINEFOLD_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed ^ fault as u64);
    let mut ground = Ground::new(fault == Fault::Disk);
    let (content, other, old) = (noise(SIZE, 1), noise(SIZE, 2), noise(OLD, 3));
    let (mut sum, mut rounds) = (Sum::default(), 0);
    let mut pieces = BTreeMap::new();
    while sum.happened < instants {
        assert!(rounds < 4 * instants + 10, "seed {seed}: {} instants in {rounds} rounds", sum.happened);
        let up = rounds % 2 == 0;
        let several = fault == Fault::Second || rng.bool();
        let (resumable, over_old) = (rng.bool(), rng.bool());
        let context = format!("seed {seed}, round {rounds}: up {up}, several {several}");
        rounds += 1;

        // The names are the same each time: a name that was free before has nothing of an earlier round.
        let (from_dir, to_dir) = (ground.path(!up, "from"), ground.path(up, "to"));
        for dir in [&from_dir, &to_dir] {
            let _ = fs::remove_dir_all(dir);
            fs::create_dir(dir).unwrap();
        }
        let (from, to) = (from_dir.join("source"), to_dir.join("copy"));
        fs::write(&from, &content).unwrap();
        let way = if up { Way::ToServer } else { Way::ToClient };
        let wire = Wire::new(ground.address, way, if several { DELAY } else { Duration::ZERO });
        let near = if up { &from } else { &to }.to_str().unwrap().to_owned();
        let far = format!("9p://{}/{}", wire.address(), if up { "to/copy" } else { "from/source" });
        let (source, destination) = if up { (near, far) } else { (far, near) };

        // Most instants are among the bytes; some at the beginning or the end, when the session says something.
        let at = match rng.u8(..4) {
            0 if fault != Fault::Second => {
                let pieces = *pieces.entry((up, several)).or_insert_with(|| {
                    let copied = ninefold(&["cp", &source, &destination]).status().unwrap();
                    assert!(copied.success(), "{context}");
                    let (_, pieces) = wire.passed();
                    fs::remove_file(&to).unwrap();
                    wire.heal(ground.address);
                    pieces
                });
                At::Pieces(rng.u64(..pieces))
            }
            _ if fault == Fault::Second => At::OfTheSecond(rng.u64(..SIZE as u64)),
            _ => At::Bytes(rng.u64(..SIZE as u64)),
        };
        if over_old {
            fs::write(&to, &old).unwrap();
        }
        let old = over_old.then_some(&old[..]);
        let ground = &mut ground;
        let mut round = Round { ground, wire, context, from, to, source, destination, old, other: &other };
        let (happened, said) = round.copy(fault, at, How::random(&mut rng, resumable));
        sum.happened += u64::from(happened);
        let Some(mut said) = said else { continue };
        sum.failed += 1;
        if fault != Fault::Client {
            *sum.said.entry(round.shortened(&said)).or_default() += 1;
        }
        sum.left += u64::from(!parts(round.to_dir()).is_empty());

        // Of a copy to a server that was begun without --resume nobody finds the part again.
        let can_be_left = up && !resumable;
        // What goes on is interrupted, too, and by as many streams as there were or others: some files are whole before it is.
        let mut is_over = false;
        while !is_over && rng.bool() {
            round.wire.delay(if rng.bool() { DELAY } else { Duration::ZERO });
            // Most has come by now, or little.
            let most = SIZE as u64 >> rng.u32(..4);
            let at = rng.u64(..most);
            let (at, fault) = match fault {
                Fault::Second => (At::OfTheSecond(at), fault),
                // By now it is another file, which stays as it is.
                Fault::Truncated | Fault::Replaced | Fault::Rewritten => (At::Bytes(at), Fault::Link),
                _ => (At::Bytes(at), fault),
            };
            let (happened, failed) = round.copy(fault, at, How { can_be_left, ..How::random(&mut rng, true) });
            sum.again += u64::from(happened);
            match failed {
                Some(failed) => said = format!("{said}, and then {failed}"),
                None => is_over = true,
            }
        }
        if is_over {
            assert!(fs::read(&round.to).unwrap() == fs::read(&round.from).unwrap(), "{}", round.context);
            continue;
        }
        let saved = round.finish(&said, can_be_left);
        sum.saved += saved;
        sum.resumed += u64::from(saved > 0);
    }
    let Sum { happened, failed, again, left, resumed, saved, said } = sum;
    println!(
        "{fault:?}: {happened} instants in {rounds} rounds, and {again} of resumed copies: {failed} copies failed, {left} left a part, {resumed} were gone on with, {saved} bytes were not copied again"
    );
    for (words, times) in said {
        println!("{times:6} x {words}");
    }
}

#[test]
fn when_the_server_is_killed_the_copy_says_so_and_resume_finishes_it() {
    at_random_instants(Fault::Server);
}

#[test]
fn when_the_link_is_cut_the_copy_says_so_and_resume_finishes_it() {
    at_random_instants(Fault::Link);
}

#[test]
fn when_the_disk_is_full_the_copy_says_so_and_resume_finishes_it() {
    if !rustix::process::geteuid().is_root() {
        skip("when_the_disk_is_full_the_copy_says_so_and_resume_finishes_it", "only root mounts a file system to fill");
        return;
    }
    at_random_instants(Fault::Disk);
}

#[test]
fn a_source_that_is_truncated_is_copied_as_one_of_its_versions_or_not_at_all() {
    at_random_instants(Fault::Truncated);
}

#[test]
fn a_source_that_is_replaced_is_copied_as_one_of_its_versions_or_not_at_all() {
    at_random_instants(Fault::Replaced);
}

#[test]
fn a_source_that_is_rewritten_at_equal_length_is_copied_as_one_of_its_versions_or_not_at_all() {
    at_random_instants(Fault::Rewritten);
}

#[test]
fn when_the_second_of_several_data_connections_is_cut_the_copy_says_so_and_resume_finishes_it() {
    at_random_instants(Fault::Second);
}

#[test]
fn when_the_client_is_killed_nothing_looks_whole_that_is_not_and_resume_finishes_it() {
    at_random_instants(Fault::Client);
}

/// One stream leaves a part that ends within a block and has no record; several go on with it, and make one.
#[test]
fn a_part_that_ends_within_a_block_is_gone_on_with_wherever_that_is_interrupted() {
    let content = noise(SIZE, 1);
    let mut ground = Ground::new(false);
    let (from_dir, to_dir) = (ground.path(true, "from"), ground.path(false, "to"));
    for dir in [&from_dir, &to_dir] {
        fs::create_dir(dir).unwrap();
    }
    let (from, to) = (from_dir.join("source"), to_dir.join("copy"));
    fs::write(&from, &content).unwrap();
    let (mut without, mut with) = (0, 0);
    // About when the first of them has brought some of its block, and not all.
    for quarter in 6..18 {
        let _ = fs::remove_file(&to);
        let wire = Wire::new(ground.address, Way::ToClient, Duration::ZERO);
        let (context, source) = (format!("quarter {quarter}"), format!("9p://{}/from/source", wire.address()));
        let (from, to, destination) = (from.clone(), to.clone(), to.to_str().unwrap().to_owned());
        let ground = &mut ground;
        let mut round = Round { ground, wire, context, from, to, source, destination, old: None, other: &[] };
        let how = How { resumes: true, can_be_left: false, cut: Cut::All, length: 0 };
        let Some(said) = round.copy(Fault::Link, At::Bytes(10 << 18), how).1 else { continue };
        let [part] = &parts(&to_dir)[..] else { panic!("{}: no part: {said}", round.context) };
        without += u32::from(fs::metadata(part).unwrap().len() % (1 << 20) != 0);
        round.wire.delay(DELAY);
        let Some(said) = round.copy(Fault::Link, At::Bytes((quarter << 18) + 1), how).1 else { continue };
        with += u32::from(parts(&to_dir).iter().any(|part| has_blocks(part, SIZE as u64)));
        round.finish(&said, false);
    }
    println!("{without} parts ended within a block, {with} had a record then");
    assert!(without > 6 && with > 6, "{without} parts ended within a block, {with} had a record then");
}
