#!/usr/bin/env bash
# Runs everything that CI runs and prints, as its last line,
#     make test: P passed, F failed, S skipped
# Exit status 1 when anything failed.
#
# What is counted:
#   cargo test             each `test result:` line; an ignored test counts as skipped
#   $NINEFOLD_SKIPS        a test that cannot run here appends `skip NAME - why` to this file and returns;
#                          cargo calls that passed, so it is moved from passed to skipped
#   conformance/judges/*.sh, fuzz/run.sh
#                          each line `ok NAME`, `not ok NAME - why` or `skip NAME - why` on standard output.
#                          `excluded NAME - why` is what cannot pass, whoever serves: it is counted apart, in a line before the
#                          last, and is neither passed, failed nor skipped. A judge ends with its own sum of these lines,
#                          so that a line that got lost, or an end that never came, is a failure
#   a stage that fails without a failure of this kind counts as one failed
# What failed is said again, in the lines before the last, since of a long output often only the end is kept.
#
# FUZZ_SECONDS: seconds of fuzzing for each target, 20 when not given.
# GUEST_OPTIONAL=1: a guest that cannot be fetched skips its judge; else that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A make above us must not hand its job server to cargo.
unset MAKEFLAGS MFLAGS MAKELEVEL

# Bounds on a stage that hangs, in seconds. Wide, because the first build of everything is part of a stage.
CARGO_BOUND=3600
JUDGE_BOUND=600
# Emulated machines: 10 to 18 minutes where two processors are idle, and their own bound is 2400.
GUEST_BOUND=2500

passed=0
failed=0
skipped=0
excluded=0
finished=no
began=$(date +%s)
group= # the process group that runs now
shown= # what prints its output
beside= # the process group that runs beside
tmp=$(mktemp -d)
: "${FUZZ_SECONDS:=20}"

# However the script ends, its last line is the sum.
finish() {
    trap - EXIT INT TERM
    set +e
    if [ -n "$group" ]; then
        kill -- "-$group" 2>/dev/null
        kill "$shown" 2>/dev/null # or it could print behind the last line
        wait "$shown" 2>/dev/null
    fi
    if [ -n "$beside" ] && jobs -rp | grep -qx "$beside"; then
        kill -- "-$beside" 2>/dev/null
        wait "$beside" 2>/dev/null # or it could write behind the end
    fi
    if [ "$finished" = no ]; then
        fault "test-script - it stopped before the end"
    fi
    if [ -s "$tmp/failures" ]; then
        echo "what failed:"
        sed 's/^/    /' "$tmp/failures"
    fi
    rm -rf "$tmp"
    [ "$excluded" -eq 0 ] || echo "besides, $excluded that cannot pass with any server, each excluded with its reason above"
    echo "make test: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit $?
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# bounded SECONDS OUT ERR COMMAND...: runs the command in a process group of its own, shows OUT as it grows, and
# ends what the command left running. ERR may be OUT. The status is the command's, or 124 when the time ran out.
bounded() {
    local bound=$1 out=$2 err=$3 status=0
    shift 3
    : >"$out"
    set -m # a group of its own, so that a server left behind can be ended with it
    if [ "$err" = "$out" ]; then
        timeout --kill-after=10 "$bound" "$@" >"$out" 2>&1 </dev/null &
    else
        timeout --kill-after=10 "$bound" "$@" >"$out" 2>"$err" </dev/null &
    fi
    group=$!
    set +m
    # Not `| tee`: a process that outlives the command would hold the pipe open for ever.
    tail -n +1 -f -s 0.2 --pid="$group" "$out" &
    shown=$!
    wait "$group" || status=$?
    wait "$shown" || true
    kill -- "-$group" 2>/dev/null || true
    group=
    shown=
    if [ "$status" -eq 124 ]; then
        echo "stopped after $bound s: $*"
    fi
    return "$status"
}

# lines PATTERN FILE: how many lines match.
lines() {
    grep -cE -- "$1" "$2" || true
}

# fault WHAT: counts one failure, which is said now and again at the end.
fault() {
    echo "not ok $1"
    echo "not ok $1" >>"$tmp/failures"
    failed=$((failed + 1))
}

# heading NAME: what begins, and how many seconds after the script.
heading() {
    echo "== $1 ($(($(date +%s) - began)) s)"
}

# stage NAME COMMAND...: one that has no counts of its own.
stage() {
    local name=$1
    shift
    heading "$name"
    if ! bounded "$CARGO_BOUND" "$tmp/stage.log" "$tmp/stage.log" "$@"; then
        fault "$name"
    fi
}

# beside_start COMMAND...: runs the command while something else goes on, without a verdict, in time left over.
beside_start() {
    set -m
    timeout --kill-after=10 "$CARGO_BOUND" chrt --idle 0 "$@" >"$tmp/beside.log" 2>&1 </dev/null &
    beside=$!
    set +m
}

# beside_end: waits until it has ended, and shows meanwhile what it does.
beside_end() {
    local status=0
    heading "what is made beside the tests, its end"
    tail -n 1 -f -s 0.2 --pid="$beside" "$tmp/beside.log" &
    shown=$!
    wait "$beside" || status=$?
    beside=
    wait "$shown" || true
    shown=
    if [ "$status" -ne 0 ]; then
        echo "it failed, and is done again"
    fi
}

# judge NAME BOUND COMMAND...: one that prints ok, not ok, skip and excluded lines.
judge() {
    local name=$1 bound=$2 status=0 before=$failed good bad skips apart sum told
    heading "$name"
    bounded "$bound" "$tmp/judge.out" "$tmp/judge.err" "${@:3}" || status=$?
    good=$(lines '^ok( |$)' "$tmp/judge.out")
    bad=$(lines '^not ok( |$)' "$tmp/judge.out")
    skips=$(lines '^skip ' "$tmp/judge.out")
    apart=$(lines '^excluded ' "$tmp/judge.out")
    grep -E '^not ok( |$)' "$tmp/judge.out" | sed "s/^not ok/& $name:/" >>"$tmp/failures" || true
    failed=$((failed + bad))
    sum="# judged: $good passed, $bad failed, $skips skipped, $apart excluded"
    if [[ $3 == conformance/judges/* ]]; then
        told=$(grep '^# judged: ' "$tmp/judge.out" | tail -n 1) || true
        if [ "$told" != "$sum" ]; then
            fault "$name - its end is ${told:-missing}, and what came is $sum"
        fi
    fi
    if [ "$failed" -eq "$before" ]; then
        if [ "$status" -ne 0 ]; then
            fault "$name - exit status $status"
        elif [ $((good + bad + skips)) -eq 0 ]; then
            fault "$name - it judged nothing"
        fi
    fi
    if [ "$failed" -ne "$before" ] && [ -s "$tmp/judge.err" ]; then
        echo "-- standard error of $name, its end:"
        tail -n 50 "$tmp/judge.err"
    fi
    passed=$((passed + good))
    skipped=$((skipped + skips))
    excluded=$((excluded + apart))
}

# failures_of_cargo LOG: each test that failed, with the first lines of what it printed.
failures_of_cargo() {
    awk '
        /^ +(Running|Doc-tests) / { program = $0; sub(/^ +/, "", program); next }
        /^test .* \.\.\. FAILED$/ { sub(/^test /, ""); sub(/ \.\.\. FAILED$/, ""); print "not ok " $0 " - " program; next }
        /^---- .* ----$/ { said = 0; told = 1 }
        /^failures:$/ { told = 0 }
        told && NF && said++ < 20 { print "    " $0 }
    ' "$1"
}

# install COMMAND PACKAGE: notes the Debian package when the command is missing.
wanted=()
install() {
    command -v "$1" >/dev/null || wanted+=("$2")
}

PATH=$PATH:/usr/sbin:/sbin # diod lives there
install cc build-essential
install c++ build-essential # libFuzzer, ninefold.hpp
install pkg-config pkgconf # how C programs find the C library
install valgrind valgrind # which judges its C programs
install diod diod
install qemu-system-x86_64 qemu-system-x86 # the guest whose kernel judges the server
install busybox busybox-static
install cpio cpio
install sshd openssh-server
install ssh openssh-client
install nginx nginx-light # with curl, rsync and diod, what the thesis bench puts beside
install curl curl
install rsync rsync
install man man-db
install zsh zsh # the completions
install fish fish
if [ "${#wanted[@]}" -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "== install ${wanted[*]}"
        if ! bounded 600 "$tmp/apt.log" "$tmp/apt.log" env DEBIAN_FRONTEND=noninteractive sh -c \
            'apt-get update -q && apt-get install -q -y --no-install-recommends "$@"' sh "${wanted[@]}"; then
            echo "could not install ${wanted[*]}: what needs them will be skipped"
        fi
    else
        echo "not installed: ${wanted[*]} (on Debian: sudo apt-get install ${wanted[*]}); what needs them will be skipped"
    fi
fi
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust 1.89 or later, https://rustup.rs"
    exit 1
fi
for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
        rustup component add "$component" || echo "install the Rust component $component"
    fi
done

stage check-fmt make -s check-fmt
stage check-clippy make -s check-clippy
stage check-doc make -s check-doc

# Cargo builds no library for C in order to test; with all targets everything is built as the tests have it.
stage build-all cargo build --locked --workspace --all-targets
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
# What was just built is what the tests run; by themselves they would build it again, each package with the features that it has alone.
export NINEFOLD_LIBRARY_DIR=$target/debug NINEFOLD=$target/debug/ninefold

# What the judges need is made beside the tests, which wait for something a third of their time: by the policy SCHED_IDLE, so that
# it gets a processor only where no test wants one. Whether it came about is seen below, where the same is done again.
release=(cargo build --locked --release -p ninefold-cli -p ninefold-conformance -p ninefold-capi --lib --bins)
beside_start env GUEST_CRATE_SECONDS=$CARGO_BOUND bash -c '"${@:2}" && conformance/judges/guest/fetch.sh "$1"' bash "$target/guest" "${release[@]}"

heading "cargo test"
export NINEFOLD_SKIPS=$tmp/skips
# Nothing is remembered from one test to another, whose servers may have the same port.
export XDG_CACHE_HOME=/dev/null/none
: >"$NINEFOLD_SKIPS"
status=0
bounded "$CARGO_BOUND" "$tmp/test.log" "$tmp/test.log" \
    cargo test --locked --workspace --no-fail-fast || status=$?
# shellcheck disable=SC2046 # three numbers, to be split
set -- $(awk '/^test result: / { for (i = 2; i <= NF; i++) {
        if ($i == "passed;") p += $(i - 1); if ($i == "failed;") f += $(i - 1); if ($i == "ignored;") s += $(i - 1) } }
    END { print p + 0, f + 0, s + 0 }' "$tmp/test.log")
failed=$((failed + $2))
if [ "$2" -ne 0 ]; then
    failures_of_cargo "$tmp/test.log" >>"$tmp/failures"
elif [ "$status" -ne 0 ]; then
    fault "cargo-test - exit status $status"
fi
sort -u "$NINEFOLD_SKIPS" >"$tmp/skips.sorted"
skips=$(lines '^skip ' "$tmp/skips.sorted")
grep -vE '^skip ' "$tmp/skips.sorted" | sed 's/^/not a skip line: /' || true
grep -E '^skip ' "$tmp/skips.sorted" || true
unset NINEFOLD_SKIPS
passed=$((passed + $1 - skips))
skipped=$((skipped + $3 + skips))

beside_end
judges=()
for script in conformance/judges/*.sh; do
    if [ -x "$script" ]; then
        judges+=("$script")
    else
        # One that lost its mode would else never be missed.
        fault "$(basename "$script" .sh) - $script is not executable"
    fi
done
if [ "${#judges[@]}" -gt 0 ]; then
    stage build-release "${release[@]}"
    export NINEFOLD=$target/release/ninefold SIEGE=$target/release/ninefold-siege
    # The guest's kernel and crates are fetched and built once, out of the judge's time. What cannot be had fails it, unless
    # GUEST_OPTIONAL is set.
    bounded "$CARGO_BOUND" "$tmp/fetch.log" "$tmp/fetch.log" conformance/judges/guest/fetch.sh "$target/guest" || {
        echo "THE GUEST THAT JUDGES BY LINUX'S OWN CLIENT CANNOT BE FETCHED."
        echo "Without it the judge fails; GUEST_OPTIONAL=1 skips it instead."
    }
    for script in "${judges[@]}"; do
        bound=$JUDGE_BOUND
        [ "$(basename "$script")" = guest.sh ] && bound=$GUEST_BOUND
        judge "$(basename "$script" .sh)" "$bound" "$script"
    done
fi

if [ ! -x fuzz/run.sh ]; then
    fault "fuzz - fuzz/run.sh is not executable"
else
    judge fuzz $((CARGO_BOUND + 20 * FUZZ_SECONDS)) fuzz/run.sh "$FUZZ_SECONDS"
fi

finished=yes
