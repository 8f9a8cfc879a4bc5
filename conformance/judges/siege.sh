#!/usr/bin/env bash
# Lays siege to `ninefold serve` with our own tool, ninefold-siege, which takes any 9P server by its address:
# connections that send rubbish, connections that do nothing, more fids than descriptors, and somebody who
# swaps exported directories with symbolic links.
#
#   NINEFOLD=/path/to/ninefold ./siege.sh          short, without a timed assertion
#   NINEFOLD=/path/to/ninefold ./siege.sh --full   full length: about ten minutes, latency is judged
#
# SIEGE        a built ninefold-siege; built here when it is not given
# SIEGE_KEEP=1 keep the files and the logs
#
# Figures go to standard error.
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${NINEFOLD:?set NINEFOLD to the ninefold binary}"
NINEFOLD=$(realpath "$NINEFOLD")

full=
[ "${1-}" = --full ] && full=1
# The descriptors that a server may have, as the bound on fids says.
DESCRIPTORS=20000

begin siege "${SIEGE_KEEP:-}"

if [ -z "${SIEGE:-}" ]; then
    cargo build --quiet --locked --release --manifest-path "$here/Cargo.toml" -p ninefold-conformance \
        --bin ninefold-siege || { not_ok build "ninefold-siege does not build"; finish; }
    target=$(cargo metadata --manifest-path "$here/Cargo.toml" --format-version 1 --no-deps --locked |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    SIEGE=$target/release/ninefold-siege
fi

hard=$(ulimit -Hn)
limit=$DESCRIPTORS
[ "$hard" = unlimited ] || [ "$hard" -ge "$limit" ] || limit=$hard

# Only root's server can act as others, and without it clients of root's would be nobody.
trust=()
[ "$(id -u)" -ne 0 ] || trust=(--trust-uids)

# Both limits: a server that raises the soft one to the hard one stays under the bound.
limited() { ulimit -n "$limit" && exec "$NINEFOLD" "$@"; }
serve_limited() {
    start limited serve "$@"
    base=$(announced "$ADDRESS")
}

# siege NAME SUBCOMMAND WORDS...: a fresh server under the limit of descriptors, then the siege.
# @PID@ and @EXPORT@ and @OUTSIDE@ in WORDS are replaced.
siege() {
    local name=$1 what=$2 status=0
    shift 2
    local export=$work/$name/export
    mkdir -p "$export"
    chmod 755 "$work" "$work/$name" "$export"
    if ! serve_limited "$export" --listen 9p://127.0.0.1:0 "${trust[@]}"; then
        not_ok "$name" "the server printed no address within $START s: $(tail -n 3 "$work/server.err")"
        end_server
        return
    fi
    local words=("${@//@PID@/$server}")
    words=("${words[@]//@EXPORT@/$export}")
    words=("${words[@]//@OUTSIDE@/$work/$name/outside}")
    timeout -k 5 "$BOUND" "$SIEGE" "$what" "$base" "${words[@]}" \
        >"$work/$name/figures" 2>"$work/$name/siege.err" || status=$?
    { echo "== $name"; cat "$work/$name/figures" "$work/$name/siege.err"; } >&2
    if [ "$status" -ne 0 ]; then
        not_ok "$name" "status $status: $(grep -h BROKEN "$work/$name/figures") $(tail -n 3 "$work/$name/siege.err")"
    elif ! kill -0 "$server" 2>/dev/null; then
        not_ok "$name" "the server is gone: $(tail -n 3 "$work/server.err")"
    elif grep -aq panicked "$work/server.err"; then
        not_ok "$name" "$(grep -a -A1 -m1 panicked "$work/server.err")"
    else
        ok "$name"
    fi
    end_server
}

# By name: one that the server suddenly does not speak is a failure, and not left out.
dialects=(--dialect 9P2000 --dialect 9P2000.u --dialect 9P2000.L)
if [ -n "$full" ]; then
    BOUND=240
    siege garbage garbage --pid @PID@ --seconds 30 --check
    siege idle idle --pid @PID@ --connections 10000
    siege fids fids --pid @PID@
    BOUND=400
    siege attack attack --export @EXPORT@ --outside @OUTSIDE@ "${dialects[@]}" --seconds 300
else
    BOUND=100
    siege garbage garbage --pid @PID@ --seconds 4
    siege idle idle --pid @PID@ --connections 2000
    siege fids fids --pid @PID@
    siege attack attack --export @EXPORT@ --outside @OUTSIDE@ "${dialects[@]}" --seconds 10
fi
finish
