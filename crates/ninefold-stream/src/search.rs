//! The search for the end of a line. Most lines are short, and for them calling `memchr`, which chooses its way by the processor, costs as much
//! as looking: so the first bytes are looked at here, 64 at a time, and the rest is `memchr`'s.

/// Bytes that are looked at here. Behind them `memchr` with its wider registers is the faster one, call and all.
#[cfg(target_arch = "x86_64")]
const NEAR: usize = 128;

/// Where in the data the byte is first.
#[inline(always)]
pub fn find(data: &[u8], byte: u8) -> Option<usize> {
    let mut begin = 0;
    #[cfg(target_arch = "x86_64")]
    while begin < NEAR
        && let Some(block) = data.get(begin..).and_then(<[u8]>::first_chunk)
    {
        let mask = equal(block, byte);
        if mask != 0 {
            return Some(begin + mask.trailing_zeros() as usize);
        }
        begin += block.len();
    }
    behind(data, byte, begin)
}

#[inline(never)]
fn behind(data: &[u8], byte: u8, begin: usize) -> Option<usize> {
    memchr::memchr(byte, data.get(begin..)?).map(|at| begin + at)
}

/// A bit for each byte that is equal, the first the lowest.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal(block: &[u8; 64], byte: u8) -> u64 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let mut mask = 0;
    for (i, part) in block.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: SSE2 is of every x86-64, and a load of 16 bytes from 16, at any address.
        let equal = unsafe {
            let part = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi8(part, _mm_set1_epi8(byte.cast_signed())))
        };
        mask |= u64::from(equal as u16) << (16 * i);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_is_and_nothing_where_it_is_not() {
        let mut data = vec![b'x'; 700];
        for length in (0..200).chain([255, 256, 257, 319, 320, 321, 700]) {
            for begin in [0, 1, 15] {
                let all = begin.min(length)..length;
                assert_eq!(find(&data[all.clone()], b'\n'), None, "{length} {begin}");
                for at in all.clone() {
                    data[at] = b'\n';
                    let last = length - 1;
                    let was = std::mem::replace(&mut data[last], b'\n');
                    assert_eq!(find(&data[all.clone()], b'\n'), Some(at - begin), "{length} {begin} {at}");
                    data[last] = was;
                    data[at] = b'x';
                }
            }
        }
        assert_eq!(find(&[0x8a; 64], 0x0a), None);
        assert_eq!(find(&[0xff; 64], 0xff), Some(0));
    }
}
