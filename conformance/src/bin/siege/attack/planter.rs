//! The one who swaps: renames directories, exchanges directories and files with symbolic links that lead out,
//! moves directories out of the export and back. Everything is put back at once, and done again.

use std::hint::spin_loop;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{RenameFlags, renameat, renameat_with};
use rustix::io::Errno;

use super::ground::{BELOW, FILES, Ground, remove_all};
use crate::random::Random;
use crate::report::Report;

/// Kinds of swaps.
const KINDS: [&str; 5] = ["directory_for_link", "file_for_link", "rename", "move_out", "move_within"];

/// Swaps that succeeded, by kind.
#[derive(Default)]
pub struct Swaps([u64; KINDS.len()]);

impl AddAssign for Swaps {
    fn add_assign(&mut self, other: Swaps) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, n)| *sum += n);
    }
}

impl Swaps {
    /// Adds the figures.
    pub fn report(&self, elapsed: Duration, report: &mut Report) {
        for (kind, n) in KINDS.iter().zip(self.0) {
            report.figure(format!("swaps_{kind}"), n);
        }
        let sum: u64 = self.0.iter().sum();
        report.figure("swaps_each_second", (sum as f64 / elapsed.as_secs_f64()).round());
    }
}

/// One thread's worth of swapping.
pub struct Planter<'a> {
    ground: &'a Ground,
    number: usize,
    random: Random,
    /// A name of its own in whatever directory it works.
    spare: String,
}

impl<'a> Planter<'a> {
    pub fn new(ground: &'a Ground, number: usize, seed: u64) -> Planter<'a> {
        Planter { ground, number, random: Random::new(seed), spare: format!("spare-{number}") }
    }

    /// Swaps until told to stop.
    pub fn run(mut self, stop: &AtomicBool) -> Swaps {
        let mut swaps = Swaps::default();
        while !stop.load(Ordering::Relaxed) {
            // Links are what leads out; the other kinds move the ground under names that were walked.
            let kind = self.random.pick(&[0, 0, 0, 1, 1, 2, 3, 3, 4]);
            let (path, depth) = Ground::directory(&mut self.random);
            // A failure means that somebody else was quicker.
            let done = match kind {
                0 => self.directory_for_link(&path, depth),
                1 => self.file_for_link(&path, depth),
                2 => self.rename(&path),
                3 => self.move_out(&path),
                _ => self.move_within(&path),
            };
            swaps.0[kind] += u64::from(done.is_ok());
        }
        swaps
    }

    fn parent(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.ground.open(path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }

    fn directory_for_link(&mut self, path: &str, depth: usize) -> Result<(), Errno> {
        // Half of the links lead to where the same names are found as in the directory.
        let below = if self.random.below(2) == 0 { "" } else { self.random.pick(&BELOW) };
        let target = self.ground.way_out(depth - 1, below, &mut self.random);
        let parent = self.parent(path)?;
        self.exchange(&parent, last(path), &target)
    }

    fn file_for_link(&mut self, path: &str, depth: usize) -> Result<(), Errno> {
        let target = self.ground.way_out(depth, self.random.pick(&FILES), &mut self.random);
        let directory = self.ground.open(path)?;
        let name = self.random.pick(&FILES);
        self.exchange(&directory, name, &target)
    }

    /// Puts a link in the place of `name`, waits, and takes it away again.
    fn exchange(&mut self, directory: &OwnedFd, name: &str, target: &str) -> Result<(), Errno> {
        remove_all(directory, &self.spare);
        rustix::fs::symlinkat(target, directory, &self.spare)?;
        let swap = || renameat_with(directory, name, directory, &self.spare, RenameFlags::EXCHANGE);
        let swapped = swap();
        if swapped.is_ok() {
            dwell(&mut self.random);
            swap()?;
        }
        rustix::fs::unlinkat(directory, &self.spare, rustix::fs::AtFlags::empty())?;
        swapped
    }

    fn rename(&mut self, path: &str) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        renameat(&parent, last(path), &parent, &self.spare)?;
        dwell(&mut self.random);
        renameat(&parent, &self.spare, &parent, last(path))
    }

    fn move_out(&mut self, path: &str) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        let name = Ground::moved_name(self.number);
        renameat(&parent, last(path), self.ground.limbo(), &name)?;
        dwell(&mut self.random);
        let back = renameat(self.ground.limbo(), &name, &parent, last(path));
        if back.is_err() {
            // Its place was taken, or its parent is gone: the next directory needs the name.
            remove_all(&self.ground.limbo(), &name);
        }
        back
    }

    /// To another depth, where `..` leads elsewhere than before.
    fn move_within(&mut self, path: &str) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        let (other, _) = Ground::directory(&mut self.random);
        let other = self.ground.open(&other)?;
        renameat(&parent, last(path), &other, &self.spare)?;
        dwell(&mut self.random);
        renameat(&other, &self.spare, &parent, last(path))
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Lets others see the swap: not at all, as long as a system call takes, or as long as a request does.
fn dwell(random: &mut Random) {
    match random.below(4) {
        0 => {}
        1 => std::thread::yield_now(),
        2 => {
            let end = Instant::now() + Duration::from_micros(random.below(100) as u64);
            while Instant::now() < end {
                spin_loop();
            }
        }
        _ => std::thread::sleep(Duration::from_micros(random.below(1_000) as u64)),
    }
}
