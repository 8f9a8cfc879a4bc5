#!/usr/bin/env bash
# Prints the table of docs/bench.md, "bulk": 200 MB over one connection down and up, by a bare TCP pump, by iperf3 and by `ninefold cat`
# and `ninefold cp`, interleaved, over a link with a delay and a rate.
# NINEFOLD, NINEFOLD_BENCH: the programs, those of target/release when not given. RTT: 50 (ms). RATE: 1gbit. BYTES: 200000000.
# ROUNDS: 5. BUFFERS: the most bytes of a socket's buffers in the lab, 134217728, so that one connection fills the link; `default`
# leaves the machine's. CC: the congestion control; the machine's when not given. DOWN, UP: empty to leave a half out.
# Needs Debian's packages iperf3 and jq, and /dev/net/tun; root for BUFFERS and CC.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${NINEFOLD:=target/release/ninefold}" "${NINEFOLD_BENCH:=target/release/ninefold-bench}"
: "${RTT:=50}" "${RATE:=1gbit}" "${BYTES:=200000000}" "${ROUNDS:=5}" "${BUFFERS:=134217728}" "${CC:=}" "${DOWN=yes}" "${UP=yes}"
name=bulk-$$
server=10.9.0.2
url=9p://$server
out=$(mktemp -d)
export XDG_CACHE_HOME=$out/cache

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
chmod -R a+rwX "$out/tree"
lab up --rtt "${RTT}ms" --rate "$RATE" >"$out/up"
for end in client server; do
    # The ends run before the machine's other programs: sched(7), autogroup.
    if [ -w /proc/self/autogroup ]; then lab "$end" -- sh -c 'echo -20 >/proc/self/autogroup' || true; fi
    if [ "$BUFFERS" != default ]; then
        lab "$end" -- sysctl -qw net.ipv4.tcp_rmem="4096 131072 $BUFFERS" net.ipv4.tcp_wmem="4096 131072 $BUFFERS"
    fi
    if [ -n "$CC" ]; then lab "$end" -- sysctl -qw net.ipv4.tcp_congestion_control="$CC"; fi
done
lab server -- "$NINEFOLD" serve "$out/tree" --listen "$url" --insecure >"$out/server" 2>&1 &
lab server -- "$NINEFOLD_BENCH" bulk serve "$server:7000" "$out/tree/big" >"$out/pump" 2>&1 &
lab server -- iperf3 -s --forceflush >"$out/iperf3" 2>&1 &
for _ in {1..500}; do
    if grep -q "$server" "$out/server" && grep -q "$server" "$out/pump" && grep -q listening "$out/iperf3"; then break; fi
    sleep 0.02
done

# ours COMMAND...: the milliseconds of the whole command in the client's end, and its round trips.
ours() {
    # shellcheck disable=SC2016
    lab client -- bash -c 'begun=$EPOCHREALTIME; "$@" >/dev/null || exit; ended=$EPOCHREALTIME
        echo $(((${ended/./} - ${begun/./}) / 1000))' bash "$NINEFOLD" --stats "$out/stats" "$@" >"$out/took"
    echo "$(cat "$out/took") $(jq .round_trips "$out/stats")"
}

# iperf OPTIONS...: milliseconds from its first byte to its last, which its handshakes are not among.
iperf() {
    lab client -- iperf3 -c "$server" -n "$BYTES" -J "$@" | jq -r '.end.sum_received | .seconds * 1000 * '"$BYTES"' / .bytes'
}

# row NAME FILE: mean and deviation of the first column, and the mean's share of the pump's.
row() {
    awk -v name="$1" -v pump="$(awk '{ s += $1; n++ } END { print s / n }' "$out/$3")" '
        { s += $1; q += $1 * $1; n++; if (NF > 1) trips = trips (trips ? ", " : "") $2 }
        END { m = s / n; v = n > 1 ? (q - n * m * m) / (n - 1) : 0
            printf "| %s | %.0f | %.0f | %.3f | %s |\n", name, m, sqrt(v > 0 ? v : 0), pump / m, trips }' "$out/$2"
}

for _ in $(seq "$ROUNDS"); do
    if [ -n "$DOWN" ]; then
        lab client -- "$NINEFOLD_BENCH" bulk get "$server:7000" >"$out/one"
        awk '{ print $3 }' "$out/one" >>"$out/get"
        awk '{ print $3 - $2 }' "$out/one" >>"$out/get.data"
        iperf -R >>"$out/iperf.get"
        ours cat --no-stream "$url/big" >>"$out/cat"
    fi
    if [ -n "$UP" ]; then
        lab client -- "$NINEFOLD_BENCH" bulk put "$server:7000" "$out/tree/big" >"$out/one"
        awk '{ print $2 }' "$out/one" >>"$out/put"
        awk -v rtt="$RTT" '{ print $2 - $1 - rtt }' "$out/one" >>"$out/put.data"
        iperf >>"$out/iperf.put"
        ours cp --no-stream "$out/tree/big" "$url/up" >>"$out/cp"
        cmp "$out/tree/big" "$out/tree/up"
        rm -f "$out/tree/up"
    fi
done
lab client -- sysctl net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem net.ipv4.tcp_wmem
echo
echo "| $BYTES bytes, $RTT ms, $RATE | ms, mean of $ROUNDS | deviation | rate, of the pump's | round trips |"
echo "|---|---|---|---|---|"
if [ -n "$DOWN" ]; then
    row 'down: pump, from dialling to the last byte' get get
    row 'down: `ninefold cat`, the whole command' cat get
    row 'down: pump, from the first byte to the last' get.data get.data
    row 'down: iperf3 -R' iperf.get get.data
fi
if [ -n "$UP" ]; then
    row 'up: pump, from dialling to the answer' put put
    row 'up: `ninefold cp`, the whole command' cp put
    row 'up: pump, without connection and one round trip' put.data put.data
    row 'up: iperf3' iperf.put put.data
fi
