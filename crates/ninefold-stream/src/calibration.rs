//! What is chosen by measurement. One table, so that a machine of another kind needs another table and no other code.

/// Where mapping begins to pay, and how much is moved at a time. All in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration {
    /// Plain files from this length on are mapped, when they are read only. On Linux 6.18 with ext4's large folios mapping ties with
    /// reading at 1 MiB, and at 2 MiB where a second thread makes munmap dearer; below 512 KiB it takes twice as long.
    pub map_from: u64,
    /// A file up to this length is mapped whole, a longer one by windows.
    pub map_whole: u64,
    /// Bytes of such a window.
    pub window: u64,
    /// Bytes of the first read of a stream, and of the first write.
    pub first: usize,
    /// Bytes of each read once it is sequential. 64 KiB to 1 MiB cost the same for a byte; two of 256 KiB lie in a cache.
    pub read: usize,
    /// Bytes of each write once much was written: from 64 KiB to 1 MiB a byte's cost falls by a quarter.
    pub write: usize,
    /// Bytes that `prefetch` has read ahead before it stops: some reads, so that neither side waits for each of the other's.
    pub ahead: usize,
    /// Reads and writes of this many bytes by `std::io`'s traits go past the stream's memory: the system's copy is the only one.
    pub direct: usize,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            map_from: 2 << 20,
            map_whole: 1 << 30,
            window: 64 << 20,
            first: 64 << 10,
            read: 256 << 10,
            write: 1 << 20,
            ahead: 1 << 20,
            direct: 16 << 10,
        }
    }
}
