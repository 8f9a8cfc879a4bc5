//! A file that becomes shorter in a program that has as many mappings as it may. Alone in its program: nothing else can map meanwhile.

use std::fs::OpenOptions;

use ninefold_stream::{Error, Options};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// More mappings than that cost too much memory for a test.
const AFFORDABLE: usize = 1 << 18;

#[test]
fn a_file_that_becomes_shorter_raises_no_signal_where_mappings_have_run_out() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > AFFORDABLE {
        println!("skipped: {limit} mappings are too many to make");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
    let stream = Options::new().read(true).module("mmap").open(&path).unwrap();
    let region = stream.alloc(3 << 20).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(PAGE as u64).unwrap();

    let bytes = 2 * limit * PAGE;
    // SAFETY: a new mapping, at no address that anybody has.
    let filler = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    };
    let filler = filler.unwrap();
    // Every second page becomes a mapping of its own, until there may be no more.
    let refused = (1..2 * limit).step_by(2).any(|page| {
        // SAFETY: a page of the mapping that was just made, and nobody looks at it.
        unsafe { mprotect(filler.wrapping_byte_add(page * PAGE), PAGE, MprotectFlags::READ) }.is_err()
    });
    let seen = region.iter().filter(|&&b| b == b'x').count();
    // SAFETY: nobody has an address in it.
    unsafe { munmap(filler, bytes) }.unwrap();

    assert!(refused, "there was room for more mappings");
    assert_eq!(seen, PAGE);
    assert_eq!(region.free(), Err(Error::Shrunk));
    assert!(stream.alloc_at(std::io::SeekFrom::Start(PAGE as u64), 1).unwrap().is_empty());
}
