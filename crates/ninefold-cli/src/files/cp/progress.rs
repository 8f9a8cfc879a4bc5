//! The bar on standard error that shows how far a copy is, where a person sees it.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often the bar is drawn while nothing moves.
const TICK: Duration = Duration::from_millis(250);

const KNOWN: &str = "{bytes}/{total_bytes} {bar:30} {bytes_per_sec} ETA {eta} {msg}";
const UNKNOWN: &str = "{bytes} of {total_bytes} or more, {bytes_per_sec}, {elapsed} {msg}";

/// The bar, or nothing.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    total: Cell<u64>,
    files: Cell<u64>,
    /// Whether all files are known, so that the end can be guessed.
    all_known: Cell<bool>,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let bar = ProgressBar::new(0);
            bar.set_style(style(UNKNOWN));
            bar.enable_steady_tick(TICK);
            bar
        });
        Progress { bar, total: Cell::new(0), files: Cell::new(0), all_known: Cell::new(false) }
    }

    /// A file of so many bytes is to be copied.
    pub fn found(&self, bytes: u64) {
        // A server may claim sizes that no number holds together.
        self.total.set(self.total.get().saturating_add(bytes));
        if let Some(bar) = &self.bar {
            bar.set_length(self.total.get());
        }
    }

    /// So many bytes of files that were found need not be moved, or were.
    pub fn moved(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    /// So many of them are to be moved again.
    pub fn back(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.dec(bytes);
        }
    }

    pub fn file_done(&self) {
        self.files.set(self.files.get() + 1);
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} files", self.files.get()));
        }
    }

    /// From now on no more files turn up.
    pub fn all_found(&self) {
        if let Some(bar) = &self.bar
            && !self.all_known.replace(true)
        {
            bar.set_style(style(KNOWN));
        }
    }

    /// Prints something without the bar in between.
    pub fn suspend(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    /// After Ctrl-C too the terminal is left as it was.
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
