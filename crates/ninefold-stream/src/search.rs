//! The search for the end of a line. Most lines are short, and for them calling `memchr`, which chooses its way by the processor, costs as much
//! as looking: so the first bytes are looked at here, 64 and then 32 at a time, and the rest is `memchr`'s.

#[cfg(target_arch = "x86_64")]
use std::arch::{
    asm,
    x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_or_si128, _mm_set1_epi8},
};

/// Bytes that are looked at here. Behind them `memchr` with its wider registers is the faster one, call and all.
#[cfg(target_arch = "x86_64")]
const NEAR: usize = 128;

/// Where in the data the byte is first.
#[inline(always)]
pub fn find(data: &[u8], byte: u8) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let begin = {
        let Some(block) = data.first_chunk() else { return behind(data, byte, 0) };
        if let Some(at) = in_first(block, byte) {
            return Some(at);
        }
        for begin in [NEAR - 64, NEAR - 32] {
            let Some(block) = data.get(begin..).and_then(<[u8]>::first_chunk) else { return behind(data, byte, begin) };
            if let Some(at) = in_next(block, byte) {
                return Some(begin + at);
            }
        }
        NEAR
    };
    #[cfg(not(target_arch = "x86_64"))]
    let begin = 0;
    behind(data, byte, begin)
}

#[inline(never)]
fn behind(data: &[u8], byte: u8, begin: usize) -> Option<usize> {
    memchr::memchr(byte, data.get(begin..)?).map(|at| begin + at)
}

/// Sixteen bytes: those that are this one have all their bits.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal(part: &[u8; 16], byte: u8) -> __m128i {
    // SAFETY: SSE2 is of every x86-64, and what is loaded are the 16 bytes, at any address.
    unsafe { _mm_cmpeq_epi8(_mm_loadu_si128(part.as_ptr().cast()), _mm_set1_epi8(byte.cast_signed())) }
}

/// A bit for each byte, the first the lowest.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits(equal: __m128i) -> u32 {
    let bits: u32;
    // SAFETY: a function of one register, of SSE2. The compiler's own way, where it has joined `equal` with others before, has an
    // instruction more for each.
    unsafe {
        asm!("pmovmskb {bits:e}, {equal}", bits = out(reg) bits, equal = in(xmm_reg) equal,
            options(pure, nomem, nostack, preserves_flags));
    }
    bits
}

/// Where in the block the byte is first. Most blocks of long lines have none, so that is asked first, by one question.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_first(block: &[u8; 64], byte: u8) -> Option<usize> {
    let (parts, _) = block.as_chunks();
    let parts = [0, 1, 2, 3].map(|i| equal(&parts[i], byte));
    // SAFETY: SSE2 is of every x86-64.
    let any = unsafe { _mm_or_si128(_mm_or_si128(parts[0], parts[1]), _mm_or_si128(parts[2], parts[3])) };
    if bits(any) == 0 {
        return None;
    }
    let [a, b, c, d] = parts.map(|part| u64::from(bits(part)));
    Some(((a | b << 16) | (c | d << 16) << 32).trailing_zeros() as usize)
}

/// The same of a block behind it: half as long, because a line that did not end yet often does soon.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_next(block: &[u8; 32], byte: u8) -> Option<usize> {
    let (parts, _) = block.as_chunks();
    let bits = bits(equal(&parts[0], byte)) | bits(equal(&parts[1], byte)) << 16;
    (bits != 0).then(|| bits.trailing_zeros() as usize)
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
