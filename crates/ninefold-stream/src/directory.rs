//! What a stream on a directory lends, as fields.

/// A record of a directory, as getdents64(2) gives it: `struct linux_dirent64`, and C's `struct dirent64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its inode number.
    pub inode: u64,
    /// The place behind it, where a seek goes on with the next one.
    pub place: u64,
    /// `DT_REG`, `DT_DIR` and so on; 0 where the file system does not say.
    pub kind: u8,
    /// Without a NUL, and without a `/`.
    pub name: &'a [u8],
}

/// Bytes before the name: two numbers of eight bytes, one of two, one of one.
pub(crate) const HEAD: usize = 19;

/// The first record in the bytes, and how many of them it has; None where no whole one is.
#[expect(clippy::host_endian_bytes, reason = "the kernel's structures are in the machine's byte order")]
pub(crate) fn first(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    let field = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let length = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
    let name = bytes.get(HEAD..length)?;
    let name = &name[..memchr::memchr(0, name)?];
    Some((Entry { inode: field(0)?, place: field(8)?, kind: *bytes.get(18)?, name }, length))
}

impl<'a> Entry<'a> {
    /// The records in the bytes of a region, as far as they are whole.
    pub fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = Entry<'a>> {
        std::iter::from_fn(move || {
            let (entry, length) = first(bytes)?;
            bytes = &bytes[length..];
            Some(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::host_endian_bytes, reason = "as the kernel makes it")]
    fn record(length: u16, name: &[u8]) -> Vec<u8> {
        let head = [&7u64.to_ne_bytes()[..], &9u64.to_ne_bytes(), &length.to_ne_bytes(), &[4]].concat();
        [&head, name].concat()
    }

    #[test]
    fn only_whole_records_are_entries() {
        let good = record(24, b"name\0");
        assert_eq!(first(&good), Some((Entry { inode: 7, place: 9, kind: 4, name: b"name" }, 24)));
        assert_eq!(Entry::all(&[&good[..], &good, &good[..10]].concat()).count(), 2);
        // Too short for its head, longer than what there is, without an end of the name.
        for bad in [record(0, b"name\0"), record(18, b"name\0"), record(25, b"name\0"), record(23, b"name\0")] {
            assert_eq!(first(&bad), None);
        }
        for end in 0..good.len() {
            assert_eq!(first(&good[..end]), None);
        }
    }
}
