//! Where mapping begins to pay: files of several lengths, opened, looked at and closed, by `mmap` and by `pread`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use ninefold_stream::{Calibration, Options};

use super::sizes::summed;
use crate::size::made;
use crate::turns::{Case, Took, pin};

/// Bytes of the files.
pub const LENGTHS: [u64; 9] =
    [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 64 << 20];

/// Bytes that one measurement comes to, by as many files.
const ALL: u64 = 16 << 20;

/// Bytes of a region.
const REGION: usize = 64 << 10;

/// The way's name, with what of the table it depends on: rows of another are others.
pub fn pread(table: Calibration) -> String {
    format!("pread {} {}", table.first, table.read)
}

pub fn mmap(table: Calibration) -> String {
    format!("mmap {}", table.window)
}

fn taken(path: &Path, module: &str, times: u64, table: Calibration) -> Result<Took> {
    Took::of(|| {
        let mut bytes = 0;
        for _ in 0..times {
            let stream = Options::new().read(true).module(module).calibration(table).open(path)?;
            bytes += summed(&stream, REGION)?;
            stream.close()?;
        }
        Ok(bytes)
    })
}

pub fn cases<'a>(scratch: &Path, size: u64, table: Calibration) -> Result<Vec<Case<'a>>> {
    let mut cases = Vec::new();
    for bytes in LENGTHS.into_iter().filter(|&bytes| bytes <= size) {
        let path = scratch.join(format!("length-{bytes}"));
        made(&path, bytes)?;
        let times = (ALL.min(size) / bytes).max(1);
        for (module, way) in [("pread", pread(table)), ("mmap", mmap(table))] {
            let path = path.clone();
            cases.push(Case::new(format!("file of {bytes}"), way, move || taken(&path, module, times, table)));
        }
    }
    Ok(cases)
}

/// A second thread, busy on another processor until this is dropped: what is unmapped must be forgotten there too, which makes mapping
/// dearer for a program that has more than one thread.
#[derive(Debug)]
pub struct Beside {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    /// None is started where there is no other processor.
    pub fn start(core: Option<usize>) -> Beside {
        let end = Arc::new(AtomicBool::new(false));
        let thread = core.map(|core| {
            let end = end.clone();
            std::thread::spawn(move || {
                // Unpinned it would still be somewhere else most of the time.
                let _ = pin(core);
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        Beside { end, thread }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
