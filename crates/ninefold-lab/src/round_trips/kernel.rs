//! What the kernel of the paper's section "The kernel" asks a server, one message after another: `namec` walks to the name, then each
//! system call asks what it has to (Ballesteros 2012). pwd, ls and create are the paper's own traces, with 10, 15 and 6 messages. The
//! programs whose traces it does not have are asked for as Plan 9's do it: cp(1) looks at the file and whether the new one is the same
//! before it opens and creates; mkdir(1) with -p looks at each level before it makes it; rm(1) with -r tries to remove before it reads.
//! Of these only the system calls on the files are there, and nothing of finding and executing the program: it is less than they took.
//!
//! `Kernel::attach`, then `Kernel::run` once.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ninefold::proto::message::{Payload, Perm, R, T};
use ninefold::proto::stat::{dm, omode, stats};
use ninefold::proto::{Dialect, Fid};

use super::operation::Operation;
use super::trees;
use super::wire::{IOUNIT, Reply, Wire};

/// Fids that a kernel has before a program is started: the root, the working directory and the rest of what /bin is a union of.
const ROOT: Fid = Fid(0);
const UNION: [Fid; 3] = [Fid(275), Fid(170), Fid(166)];
const BIN: Fid = Fid(90);

/// Fids of one system call: the parent that `namec` has walked to, and the file.
const PARENT: Fid = Fid(273);
const FILE: Fid = Fid(274);

#[derive(Debug)]
pub struct Kernel {
    pub wire: Wire,
}

/// The names in a path without dots.
fn names(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

impl Kernel {
    /// A kernel that has mounted the server and found its directories; gives up when `within` is over.
    pub fn attach(address: SocketAddr, within: Duration) -> Result<Kernel> {
        let mut wire = Wire::attach(address, ROOT, b"", within)?;
        for (fid, path) in UNION.iter().zip(trees::UNION).chain([(&BIN, trees::BIN)]) {
            ensure!(wire.walk(ROOT, *fid, &names(path))?, "{path} is missing in what is served");
        }
        wire.restart();
        Ok(Kernel { wire })
    }

    /// Does it as the old kernel did.
    pub fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Pwd => self.pwd(),
            Operation::Ls | Operation::LsLong => self.ls("few", trees::FEW),
            Operation::LsMany => self.ls("many", trees::MANY),
            Operation::Stat => self.stat("d/small"),
            Operation::Create => self.write("made/x", 0),
            Operation::WriteSmall => self.write("made/x", trees::SMALL),
            Operation::WriteLarger => self.write("made/x", trees::LARGER),
            Operation::ReadSmall => self.read("d/small", trees::SMALL),
            Operation::ReadLarger => self.read("d/larger", trees::LARGER),
            Operation::CopyDown => self.copy_down("d/middle", trees::MIDDLE),
            Operation::CopyUp => self.copy_up("made/x", trees::MIDDLE),
            Operation::CopyLarge => self.copy_down("d/large", trees::LARGE),
            Operation::CopyParallel => (0..trees::PARTS)
                .try_for_each(|n| self.copy_down(&format!("parts/{}", trees::part(n)), trees::LARGE / trees::PARTS)),
            Operation::Remove => self.remove("made/x").and_then(|removed| ensured(removed, "made/x")),
            Operation::Mkdir => self.mkdir_all(&format!("made/{}", trees::DEEP)),
            Operation::LsTree => self.list_tree("tree"),
            Operation::CopyTreeDown => self.copy_tree_down("tree"),
            Operation::CopyTreeUp => self.copy_tree_up("made/tree"),
            Operation::RemoveTree => self.remove_all("made/tree"),
        }
    }

    /// Executes a program: it is looked for in the working directory and in what /bin is a union of, opened, and its header is read;
    /// the rest is in the cache. 7 messages.
    fn exec(&mut self, program: &str) -> Result<()> {
        for fid in UNION {
            ensure!(!self.wire.walk(fid, PARENT, &[program])?, "{program} is where it is not to be");
        }
        ensure!(self.wire.walk(BIN, PARENT, &[program])?, "{program} is missing in {}", trees::BIN);
        self.open(PARENT, omode::EXEC)?;
        // A program's header: 32 bytes in the trace.
        self.wire.ask(&T::Read { fid: PARENT, offset: 0, count: 32 })?;
        self.clunk(PARENT)
    }

    fn pwd(&mut self) -> Result<()> {
        self.exec("pwd")?;
        self.wire.walk(UNION[0], PARENT, &[])?;
        self.open(PARENT, omode::READ)?;
        self.clunk(PARENT)
    }

    fn ls(&mut self, dir: &str, entries: usize) -> Result<()> {
        self.exec("ls")?;
        self.stat(dir)?;
        let listed = self.read_dir(dir)?;
        ensure!(listed.len() == entries, "{dir} has {} entries and not {entries}", listed.len());
        Ok(())
    }

    /// 3 messages.
    fn stat(&mut self, path: &str) -> Result<()> {
        self.walk(path)?;
        self.wire.ask(&T::Stat { fid: FILE })?;
        self.clunk(FILE)
    }

    fn walk(&mut self, path: &str) -> Result<()> {
        ensured(self.wire.walk(ROOT, FILE, &names(path))?, path)
    }

    fn open(&mut self, fid: Fid, mode: u8) -> Result<()> {
        self.wire.ask(&T::Open { fid, mode }).map(|_| ())
    }

    fn clunk(&mut self, fid: Fid) -> Result<()> {
        self.wire.ask(&T::Clunk { fid }).map(|_| ())
    }

    /// To the end, which a read of nothing tells.
    fn read(&mut self, path: &str, bytes: u64) -> Result<()> {
        self.walk(path)?;
        self.open(FILE, omode::READ)?;
        let mut offset = 0;
        loop {
            let R::Read { data } = self.wire.ask(&T::Read { fid: FILE, offset, count: IOUNIT })? else {
                bail!("no Rread for a Tread");
            };
            match data.0.len() as u64 {
                0 => break,
                length => offset += length,
            }
        }
        ensure!(offset == bytes, "{path} has {offset} bytes and not {bytes}");
        self.clunk(FILE)
    }

    /// Names, and whether each is a directory.
    fn read_dir(&mut self, path: &str) -> Result<Vec<(String, bool)>> {
        self.walk(path)?;
        self.open(FILE, omode::READ)?;
        let (mut offset, mut entries) = (0, Vec::new());
        loop {
            let R::Read { data } = self.wire.ask(&T::Read { fid: FILE, offset, count: IOUNIT })? else {
                bail!("no Rread for a Tread");
            };
            if data.0.is_empty() {
                break;
            }
            offset += data.0.len() as u64;
            for stat in stats(data.0, Dialect::Plan9) {
                let stat = stat.with_context(|| format!("what {path} lists"))?;
                entries.push((String::from_utf8_lossy(stat.name).into_owned(), stat.qid.is_dir()));
            }
        }
        self.clunk(FILE)?;
        Ok(entries)
    }

    /// The dance of the paper's trace, but for the last clunk, which is that of close(2): 5 messages.
    fn create(&mut self, path: &str, perm: u32, mode: u8) -> Result<()> {
        let (parent, name) = path.rsplit_once('/').context("a path without a directory")?;
        ensured(self.wire.walk(ROOT, PARENT, &names(parent))?, parent)?;
        ensure!(!self.wire.walk(PARENT, FILE, &[name])?, "{path} is there already");
        self.wire.walk(PARENT, FILE, &[])?;
        self.wire.ask(&T::Create { fid: FILE, name: name.as_bytes(), perm: Perm(perm), mode, extension: b"" })?;
        self.clunk(PARENT)
    }

    fn write(&mut self, path: &str, bytes: u64) -> Result<()> {
        self.create(path, 0o666, omode::WRITE)?;
        let mut offset = 0;
        for piece in trees::content(bytes).chunks(IOUNIT as usize) {
            match self.wire.ask(&T::Write { fid: FILE, offset, data: Payload(piece) })? {
                R::Write { count } if count as usize == piece.len() => offset += u64::from(count),
                other => bail!("{path}: {other:?} to {} bytes", piece.len()),
            }
        }
        self.clunk(FILE)
    }

    fn copy_down(&mut self, path: &str, bytes: u64) -> Result<()> {
        self.stat(path)?;
        self.read(path, bytes)
    }

    fn copy_up(&mut self, path: &str, bytes: u64) -> Result<()> {
        ensure!(!self.wire.walk(ROOT, FILE, &names(path))?, "{path} is there already");
        self.write(path, bytes)
    }

    /// Whether it could be: a directory that is not empty cannot. The fid is gone either way (remove(5)). 2 messages.
    fn remove(&mut self, path: &str) -> Result<bool> {
        self.walk(path)?;
        Ok(matches!(self.wire.try_ask(&T::Remove { fid: FILE })?, Reply::Ok(R::Remove {})))
    }

    fn mkdir(&mut self, path: &str) -> Result<()> {
        ensure!(!self.wire.walk(ROOT, FILE, &names(path))?, "{path} is there already");
        self.create(path, dm::DIR | 0o777, omode::READ)?;
        self.clunk(FILE)
    }

    /// Of a path in the directory where things are made, which is there.
    fn mkdir_all(&mut self, path: &str) -> Result<()> {
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).collect();
        // The first end is that of the directory that is there.
        ends[1..].iter().try_for_each(|&end| self.mkdir(&path[..end]))
    }

    fn list_tree(&mut self, top: &str) -> Result<()> {
        self.stat(top)?;
        for (name, is_dir) in self.read_dir(top)? {
            ensure!(is_dir, "{name} is no directory");
            let listed = self.read_dir(&format!("{top}/{name}"))?;
            ensure!(listed.len() == trees::FILES, "{name} has {} entries", listed.len());
        }
        Ok(())
    }

    fn copy_tree_down(&mut self, top: &str) -> Result<()> {
        for (dir, _) in self.read_dir(top)? {
            for (name, _) in self.read_dir(&format!("{top}/{dir}"))? {
                self.copy_down(&format!("{top}/{dir}/{name}"), trees::SMALL)?;
            }
        }
        Ok(())
    }

    fn copy_tree_up(&mut self, top: &str) -> Result<()> {
        self.mkdir(top)?;
        for dir in trees::tree_dirs() {
            self.mkdir(&format!("{top}/{dir}"))?;
        }
        trees::tree_files().try_for_each(|path| self.copy_up(&format!("{top}/{path}"), trees::SMALL))
    }

    fn remove_all(&mut self, path: &str) -> Result<()> {
        if self.remove(path)? {
            return Ok(());
        }
        self.stat(path)?;
        self.remove_dir(path)
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        for (name, is_dir) in self.read_dir(path)? {
            let path = format!("{path}/{name}");
            if is_dir {
                self.remove_dir(&path)?;
            } else {
                let removed = self.remove(&path)?;
                ensured(removed, &path)?;
            }
        }
        let removed = self.remove(path)?;
        ensured(removed, path)
    }
}

fn ensured(done: bool, path: &str) -> Result<()> {
    ensure!(done, "{path} is missing in what is served, or stays there");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ninefold::server::Server;
    use ninefold::transport::{Address, Listener, Place};
    use ninefold::tree::hostfs::HostFs;

    use super::super::trees::Trees;
    use super::*;

    /// Longer than any of it takes.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Our server on loopback, in a thread of its own that ends with the test's process.
    fn serve(trees: &Trees) -> SocketAddr {
        let (sender, receiver) = std::sync::mpsc::channel();
        let tree = HostFs::open(trees.served()).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::builder().export("", Arc::new(tree), false).build();
                let listener = Listener::bind(&Address::tcp(([127, 0, 0, 1], 0).into())).await.unwrap();
                let Place::Tcp { host, port } = listener.local_address().unwrap().place else { panic!("TCP") };
                sender.send(format!("{host}:{port}").parse().unwrap()).unwrap();
                loop {
                    let (stream, peer) = listener.accept().await;
                    tokio::spawn(server.serve(stream, peer));
                }
            });
        });
        receiver.recv_timeout(PATIENCE).unwrap()
    }

    #[test]
    fn each_operation_takes_as_many_messages_as_its_trace_has() {
        let trees = Trees::make(&std::env::temp_dir()).unwrap();
        let address = serve(&trees);
        let output = trees.root().join("output");
        let count = |operation: Operation| {
            operation.prepare(&trees).unwrap();
            let mut kernel = Kernel::attach(address, PATIENCE).unwrap();
            kernel.run(operation).unwrap_or_else(|e| panic!("{}: {e:#}", operation.name()));
            // What it makes is there; what it fetches it keeps to itself.
            let makes =
                [Operation::Create, Operation::WriteSmall, Operation::CopyUp, Operation::Remove, Operation::Mkdir];
            if makes.contains(&operation) || [Operation::CopyTreeUp, Operation::RemoveTree].contains(&operation) {
                operation.check(&trees, &output).unwrap();
            }
            kernel.wire.messages
        };
        // The paper's.
        assert_eq!([Operation::Pwd, Operation::Ls, Operation::Create].map(count), [10, 15, 6]);
        assert_eq!(count(Operation::LsLong), 15);
        // Walk, stat, clunk; and walk, remove.
        assert_eq!([Operation::Stat, Operation::Remove].map(count), [3, 2]);
        // Walk, open, a read for each 8 KiB, one that tells the end, clunk.
        assert_eq!([Operation::ReadSmall, Operation::ReadLarger].map(count), [5, 132]);
        // Create, and a write for each 8 KiB.
        assert_eq!([Operation::WriteSmall, Operation::WriteLarger].map(count), [7, 134]);
        // Stat and read; a walk that fails, and create and write.
        assert_eq!([Operation::CopyDown, Operation::CopyUp].map(count), [3 + 14, 1 + 16]);
        // Each level: a walk that fails, and create.
        assert_eq!(count(Operation::Mkdir), 8 * 7);
        // A directory is walked to, opened, read twice and clunked.
        assert_eq!(count(Operation::LsTree), 3 + 51 * 5);
        assert_eq!(count(Operation::CopyTreeDown), 51 * 5 + 1000 * (3 + 5));
        assert_eq!(count(Operation::CopyTreeUp), 51 * 7 + 1000 * (1 + 7));
        // What is not empty is not removed at first.
        assert_eq!(count(Operation::RemoveTree), 2 + 3 + 51 * (5 + 2) + 1000 * 2);
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let trees = Trees::make(&std::env::temp_dir()).unwrap();
        let mut wire = Wire::attach(serve(&trees), ROOT, b"", Duration::from_secs(1)).unwrap();
        let began = std::time::Instant::now();
        let over = loop {
            if let Err(e) = wire.walk(ROOT, FILE, &[]).and_then(|_| wire.ask(&T::Clunk { fid: FILE }).map(|_| ())) {
                break e;
            }
            assert!(began.elapsed() < PATIENCE);
        };
        assert!(format!("{over:#}").contains("time for it is over"), "{over:#}");
    }
}
