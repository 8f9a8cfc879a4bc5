//! The siege of the fids: more of them than the server may have descriptors. The caller starts the server
//! under a limit (`ulimit -n 20000`); this makes a tree, walks, opens, looks whether a sample of the fids still
//! stands for the right files, lets go, and removes the tree.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ninefold_proto::attr::getattr;
use ninefold_proto::message::{Mask, Names, Octal, Payload, R, T};
use ninefold_proto::open::lflags;
use ninefold_proto::{Dialect, Fid};

use crate::address::Address;
use crate::connection::{Connection, ROOT};
use crate::process::Process;
use crate::random::{Random, fresh_seed};
use crate::report::Report;

/// Fids of each kind that are looked at again.
const SAMPLE: usize = 2_000;

#[derive(Args)]
pub struct Options {
    /// 9p://HOST:PORT[?aname=NAME]
    address: Address,
    /// Fids that are walked and kept.
    #[arg(long, default_value_t = 100_000)]
    walked: usize,
    /// Fids that are opened and kept, each on a file of its own as far as there are files.
    #[arg(long, default_value_t = 15_000)]
    open: usize,
    /// Files in the tree, so many that one descriptor for each would be too many.
    #[arg(long, default_value_t = 25_000)]
    files: usize,
    /// Files in each directory of the tree.
    #[arg(long, default_value_t = 1_000)]
    dir_entries: usize,
    /// The server's process.
    #[arg(long)]
    pid: Option<u32>,
    /// Leave the tree there.
    #[arg(long)]
    keep: bool,
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs all steps; an error means that the server failed one of them.
pub fn run(options: &Options) -> Result<Report> {
    ensure!(options.files > 0 && options.dir_entries > 0, "a tree without files has nothing to walk to");
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let mut report = Report::new("fids");
    let mut steps = Steps { report: &mut report, server: options.pid.map(Process) };
    let mut connection = Connection::attach(&options.address, Dialect::Linux)?;
    let connection = &mut connection;
    steps.note("start")?;

    let tree = steps.timed("make", || Tree::make(connection, options, seed))?;
    let walked = steps.timed("walk", || tree.walk(connection, options.walked, 0))?;
    let open = steps.timed("open", || {
        // From the other end of the tree, so that they are not the files whose fids were walked last.
        let open = tree.walk(connection, options.open, options.files / 2)?;
        let flags = Octal(lflags::LARGEFILE);
        all(connection, open.len(), "Tlopen", |i, r| r.put(&T::Lopen { fid: open[i].fid, flags }))?;
        Ok(open)
    })?;
    let random = &mut Random::new(seed);
    let strangers = steps.timed("getattr", || tree.count_strangers(connection, &walked, random))?;
    let garbled = steps.timed("read", || tree.count_garbled(connection, &open, random))?;
    steps.timed("clunk", || {
        all(connection, walked.len(), "Tclunk", |i, r| r.put(&T::Clunk { fid: walked[i].fid }))?;
        all(connection, open.len(), "Tclunk", |i, r| r.put(&T::Clunk { fid: open[i].fid }))
    })?;
    if !options.keep {
        steps.timed("remove", || tree.remove(connection))?;
    }

    report.figure("seed", seed);
    report.figure("files", options.files);
    let counted = |n, what| format!("{n} of a sample of {SAMPLE} {what}");
    report.verdict(
        format!("{} walked fids stand for their files", options.walked),
        strangers == 0,
        counted(strangers, "do not"),
    );
    report.verdict(
        format!("{} open fids read their files", options.open),
        garbled == 0,
        counted(garbled, "read something else"),
    );
    Ok(report)
}

/// Steps that are timed, with a look at the server after each.
struct Steps<'a> {
    report: &'a mut Report,
    server: Option<Process>,
}

impl Steps<'_> {
    fn timed<V>(&mut self, step: &'static str, run: impl FnOnce() -> Result<V>) -> Result<V> {
        let began = Instant::now();
        let value = run().with_context(|| format!("step {step}"))?;
        self.report.figure(format!("{step}_ms"), began.elapsed().as_millis() as u64);
        self.note(step)?;
        Ok(value)
    }

    fn note(&mut self, step: &'static str) -> Result<()> {
        if let Some(server) = self.server {
            self.report.figure(format!("rss_after_{step}_kib"), server.memory()?.rss);
            self.report.figure(format!("descriptors_after_{step}"), server.descriptors()?);
        }
        Ok(())
    }
}

/// A fid, and the number of the file it was walked to.
struct Held {
    fid: Fid,
    file: usize,
}

/// The tree of this siege: directories full of files whose content is their own name.
struct Tree {
    name: String,
    root: Fid,
    directories: Vec<Fid>,
    dir_entries: usize,
    /// The qid's path of each file, as its creation answered it.
    paths: Vec<u64>,
}

impl Tree {
    fn make(connection: &mut Connection, options: &Options, seed: u64) -> Result<Tree> {
        let name = format!("siege-{seed:016x}");
        let mode = Octal(0o755);
        connection.call(&T::Mkdir { dfid: ROOT, name: name.as_bytes(), mode, gid: gid() })?;
        let root = connection.walk(ROOT, &[name.as_bytes()])?.0;
        let mut tree = Tree {
            name,
            root,
            directories: Vec::new(),
            dir_entries: options.dir_entries,
            paths: vec![0; options.files],
        };
        for d in 0..options.files.div_ceil(options.dir_entries) {
            let name = directory_name(d);
            connection.call(&T::Mkdir { dfid: root, name: name.as_bytes(), mode, gid: gid() })?;
            tree.directories.push(connection.walk(root, &[name.as_bytes()])?.0);
        }
        // In pieces, because a fid is open from its creation to its clunk.
        const PIECE: usize = 1_024;
        let files: Vec<usize> = (0..options.files).collect();
        for piece in files.chunks(PIECE) {
            tree.make_files(connection, piece)?;
        }
        Ok(tree)
    }

    fn make_files(&mut self, connection: &mut Connection, files: &[usize]) -> Result<()> {
        let fids: Vec<Fid> = files.iter().map(|_| connection.new_fid()).collect();
        let directory = |i: usize| self.directories[files[i] / self.dir_entries];
        let n = files.len();
        all(connection, n, "Twalk", |i, r| {
            r.put(&T::Walk { fid: directory(i), newfid: fids[i], wnames: Names::default() });
        })?;
        let mut paths = Vec::new();
        connection.many(
            n,
            |i, r| {
                let name = file_name(files[i]);
                let flags = Octal(lflags::WRONLY | lflags::EXCL | lflags::LARGEFILE);
                r.put(&T::Lcreate { fid: fids[i], name: name.as_bytes(), flags, mode: Octal(0o644), gid: gid() });
            },
            |i, reply| {
                if let R::Lcreate { qid, .. } = reply {
                    paths.push((files[i], qid.path));
                }
            },
        )?;
        ensure!(paths.len() == n, "{} of {n} files could not be made", n - paths.len());
        for (file, path) in paths {
            self.paths[file] = path;
        }
        all(connection, n, "Twrite", |i, r| {
            r.put(&T::Write { fid: fids[i], offset: 0, data: Payload(self.content(files[i]).as_bytes()) });
        })?;
        all(connection, n, "Tclunk", |i, r| r.put(&T::Clunk { fid: fids[i] }))
    }

    fn content(&self, file: usize) -> String {
        format!("{} {}\n", self.name, file_name(file))
    }

    /// Walks `n` new fids from the tree's root to the files from number `first` on, round and round.
    fn walk(&self, connection: &mut Connection, n: usize, first: usize) -> Result<Vec<Held>> {
        let held: Vec<Held> =
            (first..first + n).map(|i| Held { fid: connection.new_fid(), file: i % self.paths.len() }).collect();
        let mut wrong = 0;
        connection.many(
            n,
            |i, r| {
                let Held { fid, file } = held[i];
                let (directory, name) = (directory_name(file / self.dir_entries), file_name(file));
                let mut scratch = Vec::new();
                let wnames = Names::encode([directory.as_bytes(), name.as_bytes()], &mut scratch);
                r.put(&T::Walk { fid: self.root, newfid: fid, wnames });
            },
            |i, reply| {
                let right = matches!(reply, R::Walk { wqids } if wqids.len() == 2
                    && wqids.iter().last().is_some_and(|qid| qid.path == self.paths[held[i].file]));
                wrong += usize::from(!right);
            },
        )?;
        ensure!(wrong == 0, "{wrong} of {n} walks did not reach their file");
        Ok(held)
    }

    /// How many of a sample of fids have another qid than their file.
    fn count_strangers(&self, connection: &mut Connection, held: &[Held], random: &mut Random) -> Result<usize> {
        let sample = sample(held, random);
        let mut strangers = 0;
        connection.many(
            sample.len(),
            |i, r| r.put(&T::Getattr { fid: sample[i].fid, request_mask: Mask(getattr::BASIC) }),
            |i, reply| {
                let Held { file, .. } = *sample[i];
                let right = matches!(reply, R::Getattr { qid, size, .. }
                    if qid.path == self.paths[file] && size == self.content(file).len() as u64);
                strangers += usize::from(!right);
            },
        )?;
        Ok(strangers)
    }

    /// How many of a sample of open fids read something else than their file's content.
    fn count_garbled(&self, connection: &mut Connection, held: &[Held], random: &mut Random) -> Result<usize> {
        let sample = sample(held, random);
        let mut garbled = 0;
        connection.many(
            sample.len(),
            |i, r| r.put(&T::Read { fid: sample[i].fid, offset: 0, count: 4_096 }),
            |i, reply| {
                let right = matches!(reply, R::Read { data } if data.0 == self.content(sample[i].file).as_bytes());
                garbled += usize::from(!right);
            },
        )?;
        Ok(garbled)
    }

    /// By Tremove, which every server has: diod 1.0.24 has no Tunlinkat.
    fn remove(&self, connection: &mut Connection) -> Result<()> {
        let files = self.walk(connection, self.paths.len(), 0)?;
        all(connection, files.len(), "Tremove", |i, r| r.put(&T::Remove { fid: files[i].fid }))?;
        for &fid in self.directories.iter().chain([&self.root]) {
            connection.call(&T::Remove { fid })?;
        }
        Ok(())
    }
}

/// Sends `n` requests that must all succeed.
fn all(
    connection: &mut Connection,
    n: usize,
    name: &str,
    make: impl FnMut(usize, crate::connection::Requests<'_>),
) -> Result<()> {
    let mut refused = 0;
    let mut first = None;
    connection.many(n, make, |_, reply| {
        if let R::Lerror { ecode, .. } = reply {
            refused += 1;
            first.get_or_insert(ecode);
        }
    })?;
    match first {
        None => Ok(()),
        Some(ecode) => bail!("{refused} of {n} {name} refused, the first with {:?}", ninefold_proto::Errno(ecode)),
    }
}

fn sample<'a>(held: &'a [Held], random: &mut Random) -> Vec<&'a Held> {
    (0..SAMPLE.min(held.len())).map(|_| &held[random.below(held.len())]).collect()
}

fn directory_name(d: usize) -> String {
    format!("d{d:04}")
}

fn file_name(file: usize) -> String {
    format!("file-{file:06}")
}

fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}
