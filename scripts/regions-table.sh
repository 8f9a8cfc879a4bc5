#!/usr/bin/env bash
# Prints the table of docs/bench.md, "regions": 200 MB of a server's file over plain TCP, read by regions (salloc) and by the client's stream,
# over data connections and in messages, interleaved, over a link with a delay and a rate; medians.
# NINEFOLD, NINEFOLD_BENCH: the programs, those of target/release when not given. RTT: 50 (ms). RATE: 1gbit. BYTES: 200000000.
# PIECE: 65536, bytes of a region. ROUNDS: 7. BUFFERS: the most bytes of a socket's buffers in the lab; the machine's when not given.
# CC: the congestion control; the machine's when not given. CHECK: yes to compare what comes with the file, in one more round before.
# PROFILE: yes to print by perf(1) what the reading program's own time goes to, by loopback.
# Needs /dev/net/tun; root for BUFFERS and CC.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${NINEFOLD:=target/release/ninefold}" "${NINEFOLD_BENCH:=target/release/ninefold-bench}"
: "${RTT:=50}" "${RATE:=1gbit}" "${BYTES:=200000000}" "${PIECE:=65536}" "${ROUNDS:=7}" "${BUFFERS:=default}" "${CC:=}"
: "${CHECK:=yes}" "${PROFILE:=}"
name=regions-$$
server=10.9.0.2
url=9p://$server/big
out=$(mktemp -d)
export XDG_CACHE_HOME=$out/cache
ways=("salloc" "stream" "salloc --in-band" "stream --in-band")

lab() {
    local verb=$1
    shift
    "$NINEFOLD_BENCH" lab "$verb" --name "$name" "$@"
}

down() {
    lab down 2>/dev/null || true
    rm -rf "$out"
}
trap down EXIT

# Beyond loopback root is nobody there.
chmod 755 "$out"
mkdir "$out/tree"
head -c "$BYTES" /dev/urandom >"$out/tree/big"
chmod -R a+rX "$out/tree"
lab up --rtt "${RTT}ms" --rate "$RATE" >"$out/up"
for end in client server; do
    # The ends run before the machine's other programs: sched(7), autogroup.
    if [ -w /proc/self/autogroup ]; then lab "$end" -- sh -c 'echo -20 >/proc/self/autogroup' || true; fi
    if [ "$BUFFERS" != default ]; then
        lab "$end" -- sysctl -qw net.ipv4.tcp_rmem="4096 131072 $BUFFERS" net.ipv4.tcp_wmem="4096 131072 $BUFFERS"
    fi
    if [ -n "$CC" ]; then lab "$end" -- sysctl -qw net.ipv4.tcp_congestion_control="$CC"; fi
done
lab server -- "$NINEFOLD" serve "$out/tree" --listen "9p://$server" --insecure >"$out/server" 2>&1 &
for _ in {1..500}; do
    if grep -q "$server" "$out/server"; then break; fi
    sleep 0.02
done

# read WAY OPTIONS...: one line, as ninefold-bench regions prints it.
read_by() {
    local way=$1
    shift
    # shellcheck disable=SC2086
    lab client -- "$NINEFOLD_BENCH" regions "$url" --piece "$PIECE" --by $way "$@"
}

cat_all() {
    # shellcheck disable=SC2016
    lab client -- bash -c 'begun=$EPOCHREALTIME; "$@" >/dev/null || exit; ended=$EPOCHREALTIME
        echo $(((${ended/./} - ${begun/./}) / 1000))' bash "$NINEFOLD" cat "$url"
}

if [ "$CHECK" = yes ]; then
    for way in "${ways[@]}"; do read_by "$way" --check "$out/tree/big" >/dev/null; done
fi
for _ in $(seq "$ROUNDS"); do
    for way in "${ways[@]}"; do read_by "$way" >>"$out/${way// /}"; done
    cat_all >>"$out/cat"
done

# median FILE COLUMN
median() {
    awk -v c="$2" '{ print $c }' "$out/$1" | sort -g | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'
}

# row SAYS FILE BESIDE
row() {
    awk -v says="$1" -v ms="$(median "$2" 1)" -v beside="$(median "$3" 1)" -v received="$(median "$2" 2)" -v copied="$(median "$2" 3)" \
        -v own="$(median "$2" 4)" -v kernel="$(median "$2" 5)" \
        'BEGIN { printf "| %s | %.0f | %.3f | %d | %d | %d | %d |\n", says, ms, beside / ms, received, copied, own, kernel }'
}

lab client -- sysctl net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem net.ipv4.tcp_wmem
echo
echo "| $BYTES bytes, $RTT ms, $RATE, regions of $PIECE | ms, median of $ROUNDS | rate, of the stream's | bytes received | copied | ms of processor, user | system |"
echo "|---|---|---|---|---|---|---|"
row 'data connection: salloc' salloc stream
row 'data connection: stream' stream stream
row 'messages: salloc' salloc--in-band stream--in-band
row 'messages: stream' stream--in-band stream--in-band
echo "| \`ninefold cat\`, the whole command, as many connections as it takes | $(median cat 1) | | | | | |"
if [ "$PROFILE" = yes ]; then
    # Outside the lab: in its process namespace perf finds no processes. Copies are the same by loopback.
    "$NINEFOLD" serve "$out/tree" --listen 9p://127.0.0.1:0 --insecure >"$out/loop" 2>&1 &
    serving=$!
    for _ in {1..500}; do
        if grep -q '9p://127.0.0.1:' "$out/loop"; then break; fi
        sleep 0.02
    done
    loop=$(grep -o '9p://127.0.0.1:[0-9]*' "$out/loop" | head -n 1)/big
    for way in "salloc" "salloc --in-band"; do
        echo
        echo "user time of $way, by perf:"
        # shellcheck disable=SC2086
        perf record -q -e cpu-clock:u -o "$out/perf" -- "$NINEFOLD_BENCH" regions "$loop" --piece "$PIECE" --by $way
        perf report -i "$out/perf" --stdio --no-inline --percent-limit 1 --sort dso,symbol 2>/dev/null | grep -v '^#' | grep -v '^$' | head -n 12 || true
    done
    kill "$serving"
fi
