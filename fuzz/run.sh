#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS, 20 when not given:
#     fuzz/run.sh [SECONDS] [TARGET...]
# Prints, for each target, `ok fuzz TARGET - N executions, coverage C` or `not ok fuzz TARGET - why`; `skip` when this
# toolchain cannot instrument. Exit status 1 when anything failed.
#
# Works on stable Rust: the flags are those of cargo-fuzz, without a sanitizer, which only nightly has. There is no
# unsafe code to watch; what is looked for are panics, assertions, overflows, hangs and allocations that follow a count.
#
# fuzz/seeds/TARGET is read; what is found is kept in fuzz/corpus/TARGET, and what fails in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds=${1:-20}
shift || true
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    for file in fuzz_targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi

# The most memory in MB that a target may use, and that one allocation may ask for: frames are small.
RSS_MB=2048
MALLOC_MB=64
# One input that takes longer hangs. In seconds.
UNIT_SECONDS=10

host=$(rustc -vV | sed -n 's/^host: //p')
# A --target, even this machine's own, keeps the flags away from build scripts and macros.
build=("$host" "${CARGO_TARGET_DIR:-target}")
[ -z "${CARGO_TARGET_DIR:-}" ] || build[1]=$CARGO_TARGET_DIR/fuzz
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Ccodegen-units=1
    --cfg fuzzing
)
tmp=$(mktemp -d)
finish() {
    local pid
    for pid in $(jobs -rp); do
        kill "$pid" 2>/dev/null || true
    done
    rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Can this toolchain instrument at all? A target that does not build must not look like that.
if ! echo 'pub fn f(x: u32) -> bool { x == 9 }' |
    rustc "${flags[@]}" --crate-type lib --crate-name probe --out-dir "$tmp" - 2>"$tmp/probe"; then
    cat "$tmp/probe" >&2
    for target in "${targets[@]}"; do
        echo "skip fuzz $target - this rustc does not know the flags for coverage"
    done
    exit 0
fi
if ! command -v c++ >/dev/null; then
    for target in "${targets[@]}"; do
        echo "skip fuzz $target - no C++ compiler for libFuzzer (Debian: build-essential)"
    done
    exit 0
fi

if ! RUSTFLAGS="${flags[*]}" cargo build --locked --release --target "${build[0]}" --target-dir "${build[1]}" \
    >"$tmp/build" 2>&1; then
    cat "$tmp/build" >&2
    echo "not ok fuzz build - the targets do not build"
    exit 1
fi

# begin TARGET: runs it. In the foreground, so that what ends this script's process group ends it too.
begin() {
    # The bound is for a target that does not end by itself: some seeds before, one slow input at the end.
    timeout --foreground --kill-after=10 $((seconds + 120)) "${build[1]}/${build[0]}/release/$1" \
        -max_total_time="$seconds" -timeout="$UNIT_SECONDS" -rss_limit_mb="$RSS_MB" -malloc_limit_mb="$MALLOC_MB" \
        -print_final_stats=1 -artifact_prefix="$PWD/artifacts/$1/" \
        "corpus/$1" "seeds/$1" >"$tmp/$1.log" 2>&1 &
    pids+=($!)
}

# verdict TARGET PID: waits for it and prints what came of it.
verdict() {
    local target=$1 log=$tmp/$1.log executions coverage input why
    if wait "$2"; then
        executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        coverage=$(sed -n 's/^.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        echo "ok fuzz $target - ${executions:-0} executions, coverage ${coverage:-0}"
    else
        tail -n 60 "$log" >&2
        input=$(sed -n 's/^.*Test unit written to //p' "$log" | tail -n 1)
        # A panic's message stands on the line behind its place.
        why=$(sed -n '/panicked at/{s/^.*panicked at //;N;s/\n/ /p;q;}' "$log")
        echo "not ok fuzz $target - ${why:-it stopped}; run it again with ${input:-the log above}"
        status=1
    fi
}

# A target has one thread: as many run at a time as there are processors. They take about as long, so each is waited for in turn.
status=0
pids=()
processors=$(nproc)
for ((i = 0; i < ${#targets[@]}; i++)); do
    mkdir -p "corpus/${targets[i]}" "artifacts/${targets[i]}"
    if [ "$i" -ge "$processors" ]; then
        verdict "${targets[i - processors]}" "${pids[i - processors]}"
    fi
    begin "${targets[i]}"
done
for ((i = i > processors ? i - processors : 0; i < ${#targets[@]}; i++)); do
    verdict "${targets[i]}" "${pids[i]}"
done
exit $status
