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
        if let Some(at) = first(block, byte) {
            return Some(begin + at);
        }
        begin += block.len();
    }
    behind(data, byte, begin)
}

#[inline(never)]
fn behind(data: &[u8], byte: u8, begin: usize) -> Option<usize> {
    memchr::memchr(byte, data.get(begin..)?).map(|at| begin + at)
}

/// Where in the block the byte is first. Most blocks of long lines have none, so that is asked first, by one question.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first(block: &[u8; 64], byte: u8) -> Option<usize> {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8};
    // SAFETY: SSE2 is of every x86-64, and what is loaded are the 64 bytes, 16 by 16, at any address.
    unsafe {
        let byte = _mm_set1_epi8(byte.cast_signed());
        let equal = |i: usize| _mm_cmpeq_epi8(_mm_loadu_si128(block[16 * i..].as_ptr().cast::<__m128i>()), byte);
        let parts = [equal(0), equal(1), equal(2), equal(3)];
        let any = _mm_or_si128(_mm_or_si128(parts[0], parts[1]), _mm_or_si128(parts[2], parts[3]));
        if _mm_movemask_epi8(any) == 0 {
            return None;
        }
        // A bit for each byte, the first the lowest.
        let bits = |i: usize| u64::from(_mm_movemask_epi8(parts[i]) as u16) << (16 * i);
        Some((bits(0) | bits(1) | bits(2) | bits(3)).trailing_zeros() as usize)
    }
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
