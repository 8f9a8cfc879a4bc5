//! Asking memory for what is about to be looked at, without waiting for it.

/// Bytes that a cache keeps together, on most processors.
const LINE: usize = 64;

/// Asks for all of what lies there. It need not be valid, nor exist. Where the processor has no instruction for it that may be given, nothing is done.
pub(super) fn prefetch<T>(at: *const T) {
    let first = at.cast::<i8>();
    for line in (0..size_of::<T>()).step_by(LINE) {
        prefetch_line(first.wrapping_add(line));
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch_line(at: *const i8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing and faults nowhere, whatever the address; every processor of this architecture has it (SSE).
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch_line(_at: *const i8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_need_not_exist() {
        prefetch(std::ptr::null::<[u64; 100]>());
        prefetch(std::ptr::without_provenance::<[u64; 100]>(usize::MAX));
    }
}
