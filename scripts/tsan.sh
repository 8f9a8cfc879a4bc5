#!/usr/bin/env bash
# Looks for data races with ThreadSanitizer: in the tests of ninefold-stream, and in the C programs of ninefold-capi, on a library that is
# built with it.
#     scripts/tsan.sh [rust|c [TEST...]]
# Prints `ok NAME` or `not ok NAME - why` for each part, both when none is named; of one, those tests alone whose names have such a part.
# Exit status 1 when anything failed.
#
# Everything is built with it, the standard library too, or what orders two threads there would not be seen. So it takes a nightly compiler
# with the library's source, and llvm-symbolizer (Debian: llvm), by whose names false alarms are known:
#     rustup toolchain install nightly --profile minimal --component rust-src
# System calls go by libc, whose functions ThreadSanitizer knows: what it does not see unmapped is to it still somebody's.
#
# NIGHTLY: another toolchain than `nightly`. False alarms are in scripts/tsan.supp, each with its reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

toolchain=${NIGHTLY:-nightly}
target=x86_64-unknown-linux-gnu
failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

ok() {
    echo "ok $1"
}

not_ok() {
    echo "not ok $1 - $2"
    failed=1
}

if ! sysroot=$(rustc "+$toolchain" --print sysroot) || [ ! -e "$sysroot/lib/rustlib/src/rust/library/Cargo.lock" ]; then
    not_ok tsan "no nightly compiler with the library's source; the beginning of this script has the command that installs it"
    exit 1
fi
if ! command -v llvm-symbolizer >/dev/null; then
    not_ok tsan "llvm-symbolizer is not installed (Debian: llvm)"
    exit 1
fi
runtime=$sysroot/lib/rustlib/$target/lib/librustc-nightly_rt.tsan.a
directory=$(cargo metadata --format-version 1 --no-deps --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')

# A child of fork(2) may begin threads: that this may hang is of what a C program does there, and no race.
# A child that is to be ended by SIGSEGV is.
TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp die_after_fork=0 handle_segv=0 exitcode=66"
export TSAN_OPTIONS
# Nothing is remembered from one test to another, whose servers may have the same port.
export XDG_CACHE_HOME=/dev/null/none

# nightly COMMAND ARGUMENT...: cargo, for that target. In a directory of its own, so that nothing else is built again.
nightly() {
    local command=$1
    shift
    RUSTFLAGS="-Zsanitizer=thread --cfg rustix_use_libc" cargo "+$toolchain" -Zbuild-std "$command" --locked \
        --target "$target" --target-dir "$directory/tsan" "$@"
}

# What is not run, and why:
#   lock_model, ring_model  loom runs the threads of a model as coroutines, of which ThreadSanitizer knows nothing
#   many_mappings           takes all mappings that a process may have, and ThreadSanitizer ends where it has none
#   under_valgrind          is about another tool
rust() {
    local tests=(--lib)
    for file in crates/ninefold-stream/tests/*.rs; do
        case $(basename "$file" .rs) in
        lock_model | ring_model | many_mappings | under_valgrind) ;;
        *) tests+=(--test "$(basename "$file" .rs)") ;;
        esac
    done
    local operations=${NINEFOLD_STREAM_OPERATIONS:-3000}
    if NINEFOLD_STREAM_OPERATIONS=$operations NINEFOLD_RING_OPERATIONS=${NINEFOLD_RING_OPERATIONS:-$operations} \
        nightly test -p ninefold-stream --features ninep --no-fail-fast "${tests[@]}" -- "$@"; then
        ok tsan-rust
    else
        not_ok tsan-rust "see above"
    fi
}

# The header has the short ways for nobody who is built with ThreadSanitizer, for most have a library that is not; here it is.
c() {
    local flags="-fsanitize=thread -U__SANITIZE_THREAD__ -nodefaultlibs -Wl,--export-dynamic -Wl,--no-as-needed \
        -Wl,--whole-archive $runtime -Wl,--no-whole-archive -lstdc++ -lm -lpthread -ldl -lrt -lresolv -lc -lgcc_s -lgcc"
    if ! nightly build -p ninefold-capi --lib; then
        not_ok tsan-c "the library is not built"
        return
    fi
    export NINEFOLD_LIBRARY_DIR=$directory/tsan/$target/debug
    export NINEFOLD_C_FLAGS=$flags
    # Who finds nothing may not have looked.
    ln -s "$NINEFOLD_LIBRARY_DIR/libninefold.so" "$tmp/libninefold.so.0"
    # shellcheck disable=SC2086 # several flags
    cc -pthread -I crates/ninefold-capi/include -o "$tmp/raced" $flags crates/ninefold-capi/tests/c/raced.c \
        "$NINEFOLD_LIBRARY_DIR/libninefold.so"
    local where
    for where in program library; do
        if LD_LIBRARY_PATH=$tmp timeout 60 "$tmp/raced" "$where" "$tmp" 2>"$tmp/told"; then
            not_ok "tsan-looks-at-the-$where" "a race that is planted there is not found"
        elif grep -q 'ThreadSanitizer: data race' "$tmp/told"; then
            ok "tsan-looks-at-the-$where"
        else
            cat "$tmp/told" >&2
            not_ok "tsan-looks-at-the-$where" "it ended for another reason"
        fi
    done
    # It takes the place of pthread_create(3), and so does ThreadSanitizer.
    if cargo test --locked -p ninefold-capi --no-fail-fast --test c_programs --test examples -- \
        --skip no_thread_of_the_library_takes_a_signal_from_its_beginning_on "$@"; then
        ok tsan-c
    else
        not_ok tsan-c "see above"
    fi
}

case ${1:-both} in
rust | c) "$@" ;;
both)
    rust
    c
    ;;
*)
    echo "usage: scripts/tsan.sh [rust|c [TEST...]]" >&2
    exit 2
    ;;
esac
exit "$failed"
