//! Where the bytes of large frames are read to: each by itself, its data at the beginning of a line of the cache.
//!
//! Read with what follows it, a large frame would leave a part of the next behind, which is moved to the buffer's beginning before the
//! rest of it fits in. And the kernel takes a fifth longer to copy data to a file that do not begin with a line of the cache.

use bytes::{Buf, BytesMut};
use ninefold_proto::server::WRITE_HEAD;

/// Bytes of a frame up to which it is read with others.
const LARGE: usize = 128 << 10;

/// Bytes of a line of the cache.
const CACHE_LINE: usize = 64;

/// What one read asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Bytes that there must be room for.
    pub room: usize,
    /// Bytes to read at most.
    pub most: usize,
}

impl Wanted {
    /// As many as there are, and room for `room`.
    pub fn all(room: usize) -> Wanted {
        Wanted { room, most: usize::MAX }
    }
}

/// The large frames of a connection.
#[derive(Debug, Default)]
pub(super) struct Large {
    /// The size of the last one, while another like it is expected.
    last: Option<usize>,
}

impl Large {
    /// What to ask for when `here` bytes of a frame have come and `missing` have not, if it is a large one.
    pub fn rest(&self, here: usize, missing: usize) -> Option<Wanted> {
        Large::is_one(here + missing).then_some(Wanted { room: missing, most: missing })
    }

    /// A frame of so many bytes has come. Another like it is expected.
    pub fn came(&mut self, size: usize) {
        self.last = Some(size).filter(|&size| Large::is_one(size));
    }

    /// None is expected.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Whether a frame of `size` bytes is one.
    pub fn is_one(size: usize) -> bool {
        size > LARGE
    }

    /// Makes the room in `buffer`; answers how many bytes to read at most. Where nothing is in it, and large frames come, it is room for
    /// another one of the last one's size: nothing behind that is read with it. `head_first`: only what is before its data, and room for that.
    pub fn make_room(&self, buffer: &mut BytesMut, wanted: Wanted, head_first: bool) -> usize {
        match self.last.filter(|_| buffer.is_empty()) {
            Some(_) if head_first => {
                reserve(buffer, WRITE_HEAD);
                WRITE_HEAD
            }
            Some(size) => {
                reserve(buffer, size + CACHE_LINE);
                let padding = (buffer.as_ptr().addr() + WRITE_HEAD).wrapping_neg() % CACHE_LINE;
                buffer.resize(padding, 0);
                buffer.advance(padding);
                size
            }
            None => {
                reserve(buffer, wanted.room);
                wanted.most
            }
        }
    }
}

/// Room for `bytes`, in the memory that there is if nobody else holds any of it.
fn reserve(buffer: &mut BytesMut, bytes: usize) {
    if !buffer.try_reclaim(bytes) {
        buffer.reserve(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read at a time.
    const READ: usize = 64 << 10;

    #[test]
    fn of_a_large_frame_nothing_but_its_rest_is_asked_for() {
        let large = Large::default();
        assert_eq!(large.rest(10, LARGE - 10), None, "others are read with it");
        assert_eq!(large.rest(11, LARGE - 10), Some(Wanted { room: LARGE - 10, most: LARGE - 10 }));
        let mut begun = BytesMut::from(&b"begun"[..]);
        let most = large.make_room(&mut begun, Wanted { room: LARGE, most: LARGE }, true);
        assert_eq!((most, &begun[..]), (LARGE, &b"begun"[..]), "what came of it stays");
        assert!(begun.capacity() >= LARGE + 5);
    }

    #[test]
    fn the_data_of_the_next_one_begin_with_a_line_of_the_cache() {
        let mut large = Large::default();
        let size = (1 << 20) + WRITE_HEAD;
        large.came(size);
        // At whatever place the buffer's free memory begins.
        for taken in 0..2 * CACHE_LINE {
            let mut buffer = BytesMut::zeroed(taken + 1);
            buffer.advance(taken + 1);
            assert_eq!(large.make_room(&mut buffer, Wanted::all(1), false), size, "and no byte behind it");
            assert!(buffer.is_empty() && buffer.capacity() >= size, "{taken}");
            let memory = buffer.as_ptr().addr();
            assert_eq!((memory + WRITE_HEAD) % CACHE_LINE, 0, "{taken}");
            buffer.resize(size, 0);
            assert_eq!(buffer.as_ptr().addr(), memory, "it is not moved while it comes");
        }
    }

    #[test]
    fn of_one_whose_data_come_elsewhere_the_head_is_read() {
        let mut large = Large::default();
        large.came(1 << 20);
        let mut buffer = BytesMut::new();
        assert_eq!(large.make_room(&mut buffer, Wanted::all(READ), true), WRITE_HEAD);
        assert!((WRITE_HEAD..READ).contains(&buffer.capacity()), "there is room for no more");
        large.came(LARGE);
        assert_eq!(large.make_room(&mut buffer, Wanted::all(READ), true), usize::MAX);
        assert!(buffer.capacity() >= READ);
    }

    #[test]
    fn frames_behind_a_large_one_are_read_with_others_once_a_small_one_or_nothing_came() {
        let mut large = Large::default();
        for ends in [|large: &mut Large| large.came(LARGE), Large::forget] {
            large.came(LARGE + 1);
            assert_eq!(large.make_room(&mut BytesMut::new(), Wanted::all(7), false), LARGE + 1);
            ends(&mut large);
            assert_eq!(large.make_room(&mut BytesMut::new(), Wanted::all(7), false), usize::MAX);
        }
    }
}
