//! The ground of the attack: the exported tree, the outside with its secrets, and what the outside was before.
//!
//! This program works in the same swapped tree as everybody else. It must not itself be led outside, so it
//! opens every directory beneath the export without following links, and then works on names in it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::random::Random;

/// Directories at the top of the export.
const TOPS: usize = 6;
/// What each directory has at every depth.
pub const FILES: [&str; 2] = ["file", "secret"];
/// The directories below each top, by depth.
pub const BELOW: [&str; 2] = ["sub", "sub/deep"];
/// Every file and directory outside was modified then, in seconds since 1970. Nobody sets this time inside.
pub const MARKED_TIME: u64 = 1_044_222_111;
/// Directories that a planter moved out of the export lie here, in the outside.
const LIMBO: &str = "limbo";
/// What a moved directory is called there.
const MOVED: &str = "moved-";
/// Bytes of a secret file.
const SECRET: usize = 16 << 10;
/// Between two rounds of repairs.
const TEND: Duration = Duration::from_millis(10);
/// Names that visitors make, few, so that they meet each other's.
pub const MADE: [&str; 4] = ["made-0", "made-1", "made-2", "made-3"];
/// Files of visitors that a directory may have before they are weeded out.
const WEEDS: usize = 2;

/// Both trees.
pub struct Ground {
    export: OwnedFd,
    limbo: OwnedFd,
    export_inode: u64,
    outside: PathBuf,
    marker: String,
    inodes: HashSet<u64>,
    /// From `/` of the export's own path to the outside, without the first slash.
    relative: String,
    depth: usize,
}

impl Ground {
    /// Makes both trees.
    pub fn prepare(export: &Path, outside: &Path, random: &mut Random) -> Result<Ground> {
        let named = |path: &Path| path.display().to_string();
        std::fs::create_dir_all(outside).with_context(|| named(outside))?;
        let export = export.canonicalize().with_context(|| named(export))?;
        let outside = outside.canonicalize().with_context(|| named(outside))?;
        ensure!(
            !outside.starts_with(&export) && !export.starts_with(&outside),
            "one of the directories is in the other"
        );
        ensure!(std::fs::read_dir(&outside)?.next().is_none(), "{} is not empty", named(&outside));
        let marker = format!("OUTSIDE-{:016x}{:016x}", random.next(), random.next());
        std::fs::create_dir(outside.join(LIMBO))?;
        plant_secrets(&outside, &marker)?;

        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&export, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        let limbo = rustix::fs::open(outside.join(LIMBO), flags, Mode::empty())?;
        ensure!(rustix::fs::fstat(&limbo)?.st_dev == stat.st_dev, "the directories are on two file systems");
        let relative = named(&outside).trim_start_matches('/').to_owned();
        let depth = export.components().count() - 1;
        let mut ground = Ground {
            export: directory,
            limbo,
            export_inode: stat.st_ino,
            outside,
            marker,
            inodes: HashSet::new(),
            relative,
            depth,
        };
        ground.inodes = ground.manifest()?.0.values().map(|entry| entry.inode).collect();
        ground.repair();
        Ok(ground)
    }

    /// What every secret's content is made of, and part of every marked name.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// Inodes of everything outside, and of the outside's root.
    pub fn outside_inodes(&self) -> &HashSet<u64> {
        &self.inodes
    }

    /// The inode of the export's root.
    pub fn export_inode(&self) -> u64 {
        self.export_inode
    }

    /// The directory that moved directories are put in.
    pub fn limbo(&self) -> BorrowedFd<'_> {
        self.limbo.as_fd()
    }

    /// The name under which a planter moves directories out.
    pub fn moved_name(planter: usize) -> String {
        format!("{MOVED}{planter}")
    }

    /// The outside directory's own name.
    pub fn outside_name(&self) -> String {
        self.outside.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A directory of the export: where, and its depth below the root.
    pub fn directory(random: &mut Random) -> (String, usize) {
        let top = format!("d{}", random.below(TOPS));
        match random.below(BELOW.len() + 1) {
            0 => (top, 1),
            depth => (format!("{top}/{}", BELOW[depth - 1]), depth + 1),
        }
    }

    /// Where a symbolic link that lies `depth` directories below the export's root can lead, to be out of it.
    /// `below` is appended: a path that exists in the outside.
    pub fn way_out(&self, depth: usize, below: &str, random: &mut Random) -> String {
        let slash = if below.is_empty() { "" } else { "/" };
        match random.below(5) {
            0 => format!("{}{slash}{below}", self.outside.display()),
            1 | 2 => format!("{}{}{slash}{below}", "../".repeat(self.depth + depth), self.relative),
            // More steps up than there are: the root's parent is the root.
            3 => format!("{}{}{slash}{below}", "../".repeat(self.depth + depth + 9), self.relative),
            _ => "../".repeat(depth + 1 + random.below(2)),
        }
    }

    /// Opens a directory beneath the export, through no link.
    pub fn open(&self, path: &str) -> Result<OwnedFd, Errno> {
        if path.is_empty() {
            return self.export.try_clone().map_err(|_| Errno::MFILE);
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.export, path, flags, Mode::empty(), within)
    }

    /// Puts back what the attack and the clients took away, until told to stop.
    pub fn tend(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.repair();
            std::thread::sleep(TEND);
        }
    }

    /// One round of repairs. What is in the way is somebody's swap at work: the next round comes soon.
    fn repair(&self) {
        weed(&self.export);
        for top in 0..TOPS {
            let top = format!("d{top}");
            let _ = rustix::fs::mkdirat(&self.export, &top, Mode::from(0o755));
            self.furnish(&top);
            for below in BELOW {
                let path = format!("{top}/{below}");
                let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
                if let Ok(parent) = self.open(parent) {
                    let _ = rustix::fs::mkdirat(&parent, name, Mode::from(0o755));
                }
                self.furnish(&path);
            }
        }
    }

    fn furnish(&self, path: &str) {
        let Ok(directory) = self.open(path) else { return };
        weed(&directory);
        for name in FILES {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::openat(&directory, name, flags, Mode::from(0o644)) {
                let _ = rustix::io::write(&file, format!("inside {path}/{name}\n").as_bytes());
            }
        }
    }

    /// Brings back what planters left in limbo; what else is there stays, and the manifest will tell.
    pub fn recall_moved(&self) -> Result<()> {
        for (name, _) in entries(&self.limbo) {
            if name.starts_with(MOVED) {
                remove_all(&self.limbo, &name);
            }
        }
        Ok(())
    }

    /// Everything outside, as it is now.
    pub fn manifest(&self) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.outside, flags, Mode::empty())?;
        manifest.add(&root, "")?;
        Ok(manifest)
    }
}

/// Fills the outside: the names of the export, and marked ones, all full of the marker.
fn plant_secrets(outside: &Path, marker: &str) -> Result<()> {
    let mut directories = vec![outside.to_owned(), outside.join(LIMBO)];
    for below in BELOW {
        directories.push(outside.join(below));
        directories.push(outside.join(LIMBO).join(below));
    }
    let mut content = marker.repeat(SECRET / marker.len() + 1);
    content.truncate(SECRET);
    let mark = Timespec { tv_sec: MARKED_TIME as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: mark, last_modification: mark };
    for directory in &directories {
        std::fs::create_dir_all(directory)?;
    }
    for directory in directories.iter().rev() {
        for name in FILES.map(str::to_owned).into_iter().chain([format!("{marker}-name")]) {
            let path = directory.join(name);
            std::fs::write(&path, &content)?;
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
        }
    }
    for directory in &directories {
        rustix::fs::utimensat(rustix::fs::CWD, directory, &times, AtFlags::empty())?;
    }
    Ok(())
}

/// What the outside holds, by path.
#[derive(Default)]
pub struct Manifest(BTreeMap<String, Entry>);

#[derive(PartialEq, Eq)]
struct Entry {
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// mtime and ctime, the latter because nobody can set it back. None for limbo, where planters come and go.
    times: Option<[(i64, i64); 2]>,
    content: Vec<u8>,
}

impl Manifest {
    fn add(&mut self, directory: &OwnedFd, path: &str) -> Result<()> {
        let stat = rustix::fs::fstat(directory)?;
        self.0.insert(format!("{path}/"), Entry::new(&stat, path.ends_with(LIMBO), Vec::new()));
        for (name, kind) in entries(directory) {
            let path = format!("{path}/{name}");
            let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            if kind == FileType::Directory {
                self.add(&rustix::fs::openat(directory, &name, flags | OFlags::DIRECTORY, Mode::empty())?, &path)?;
                continue;
            }
            let stat = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            let mut content = Vec::new();
            if kind == FileType::RegularFile {
                let file = rustix::fs::openat(directory, &name, flags, Mode::empty())?;
                std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut content)?;
            }
            self.0.insert(path, Entry::new(&stat, false, content));
        }
        Ok(())
    }

    /// What is different in `after`, in words.
    pub fn changes(&self, after: &Manifest) -> Vec<String> {
        let gone = self.0.keys().filter(|path| !after.0.contains_key(*path)).map(|path| format!("{path} is gone"));
        let here = after.0.iter().filter_map(|(path, entry)| match self.0.get(path) {
            None => Some(format!("{path} appeared")),
            Some(before) if before != entry => Some(format!("{path} changed: {before:?} became {entry:?}")),
            Some(_) => None,
        });
        gone.chain(here).collect()
    }
}

impl Entry {
    fn new(stat: &rustix::fs::Stat, restless: bool, content: Vec<u8>) -> Entry {
        let times = [(stat.st_mtime, stat.st_mtime_nsec as i64), (stat.st_ctime, stat.st_ctime_nsec as i64)];
        Entry {
            inode: stat.st_ino,
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            links: stat.st_nlink,
            times: (!restless).then_some(times),
            content,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { inode, mode, owner: (uid, gid), links, times, content } = self;
        write!(f, "inode {inode} mode {mode:o} owner {uid}:{gid} links {links} times {times:?} bytes {}", content.len())
    }
}

/// Names and types of a directory's entries, without `.` and `..`; as many as can be read.
fn entries(directory: &impl AsFd) -> Vec<(String, FileType)> {
    let Ok(dir) = Dir::read_from(directory) else { return Vec::new() };
    let names = dir.flatten().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.file_type()));
    names.filter(|(name, _)| name != "." && name != "..").collect()
}

/// Removes what visitors made in a directory, when it has become much: else there would be nothing left to make.
fn weed(directory: &OwnedFd) {
    let made: Vec<String> =
        entries(directory).into_iter().map(|(name, _)| name).filter(|name| MADE.contains(&name.as_str())).collect();
    if made.len() > WEEDS {
        made.iter().for_each(|name| remove_all(directory, name));
    }
}

/// Removes a name and what is below it, through no link. What cannot be removed stays.
pub fn remove_all(directory: &impl AsFd, name: &str) {
    if rustix::fs::unlinkat(directory, name, AtFlags::empty()) == Err(Errno::ISDIR) {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if let Ok(below) = rustix::fs::openat(directory, name, flags, Mode::empty()) {
            entries(&below).iter().for_each(|(name, _)| remove_all(&below, name));
        }
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
    }
}
