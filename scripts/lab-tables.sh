#!/usr/bin/env bash
# Prints the tables of docs/lab.md: what a lab was asked for, and what ping and iperf3 measure in it.
# With words, only those tables: ping, rate, carried, most, loss. Takes some eight minutes; a quiet machine is what it is for.
# NINEFOLD_BENCH: the program, target/release/ninefold-bench when not given.
# Needs Debian's packages iputils-ping, iperf3, jq and procps, and root for the long windows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${NINEFOLD_BENCH:=target/release/ninefold-bench}"
name=tables-$$
server=10.9.0.2
# The share of a packet of 1500 bytes that TCP's data are: without 20 bytes of IPv4, 20 of TCP and 12 of its timestamps.
goodput=0.96533
out=$(mktemp -d)

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

# bare OPTIONS...: a lab whose ends run before the machine's other programs, so that ping and iperf3 measure the link rather than how
# long they wait for a processor. A lab is a session of its own: sched(7), autogroup.
bare() {
    lab up "$@" >"$out/up"
    if [ -e /proc/self/autogroup ]; then lab server -- sh -c 'echo -20 >/proc/self/autogroup'; fi
}

# up OPTIONS...: such a lab with an iperf3 server in it.
up() {
    bare "$@"
    local buffers='4096 131072 134217728' # so that one connection fills 1 Gbit/s at 150 ms
    for end in client server; do
        lab "$end" -- sysctl -qw net.ipv4.tcp_rmem="$buffers" net.ipv4.tcp_wmem="$buffers"
    done
    lab server -- iperf3 -s >"$out/server" 2>&1 &
}

# iperf OPTIONS...: iperf3 in the client's end. Its server is not there at once, and listens anew after each client.
iperf() {
    local tries status
    for tries in {1..100}; do
        status=0
        lab client -- iperf3 -c "$server" "$@" >"$out/iperf" 2>"$out/iperf.err" || status=$?
        # With --json it tells errors on standard output, and may end with 0.
        if ! grep -qi 'refused' "$out/iperf" "$out/iperf.err"; then
            cat "$out/iperf"
            cat "$out/iperf.err" >&2
            return "$status"
        fi
        sleep 0.1
    done
    echo "no iperf3 server listens" >&2
    return 1
}

# gap: for how many milliseconds the link was not carried on at most, as the machine had other things to do.
gap() {
    lab stats --json | jq '[.to_server, .to_client] | map(.care.unwatched_ns) | max / 1e4 | round / 100'
}

# measured OPTIONS...: Mbit/s that arrive at the client in the last 10 of 15 seconds, the mean of what iperf3 says of each. Its sum
# divides by more than the seconds that it counts.
measured() {
    iperf -R -f m -t 15 -i 1 "$@" |
        awk '/sec / && !/sender|receiver/ { split($3, t, "-"); if (t[1] >= 5 && t[1] < 15) { for (i = 1; i < NF; i++) if ($(i + 1) == "Mbits/sec") { sum += $i; n++ } } }
            END { printf "%.2f", sum / n }'
}

table_ping() {
    echo '| RTT asked, ms | ping, 300 times: least | mean | most | deviation | late by over 0.2 ms |'
    echo '|---|---|---|---|---|---|'
    for rtt in 0 0.5 1 15 50 150; do
        bare --rtt "${rtt}ms"
        figures=$(lab client -- ping -q -i 0.01 -c 300 "$server" | awk -F'[ /]' '/^rtt/ { print $7 " | " $8 " | " $9 " | " $10 }')
        late=$(lab stats --json | jq '.to_server.care.late + .to_client.care.late')
        echo "| $rtt | $figures | $late of 600 |"
        lab down
    done
}

table_rate() {
    echo '| Rate asked, Mbit/s | RTT, ms | of it TCP data | iperf3, from 5 s to 15 s | share | dropped, queue full | not looked at for, ms |'
    echo '|---|---|---|---|---|---|---|'
    for rate in 10 1000 2000; do
        for rtt in 0.5 1 15 50 150; do
            up --rtt "${rtt}ms" --rate "${rate}mbit"
            got=$(measured -C cubic)
            full=$(lab stats | awk '/queue full/ { print $4 + $8 }')
            awk -v rate="$rate" -v rtt="$rtt" -v got="$got" -v goodput="$goodput" -v full="$full" -v gap="$(gap)" 'BEGIN {
                printf "| %s | %s | %.1f | %s | %.3f | %s | %s |\n", rate, rtt, rate * goodput, got, got / (rate * goodput), full, gap }'
            lab down
        done
    done
}

table_carried() {
    echo '| Rate asked, Mbit/s | RTT, ms | offered as datagrams | carried, IP headers included | share |'
    echo '|---|---|---|---|---|'
    for rate in 10 100; do
        for rtt in 0.5 15; do
            up --rtt "${rtt}ms" --rate "${rate}mbit"
            # 1472 bytes of data make packets of 1500.
            got=$(measured -u -b "$((rate * 12 / 10))M" -l 1472)
            awk -v rate="$rate" -v rtt="$rtt" -v got="$got" 'BEGIN {
                got *= 1500 / 1472; printf "| %s | %s | %s | %.2f | %.3f |\n", rate, rtt, rate * 1.2, got, got / rate }'
            lab down
        done
    done
}

table_most() {
    echo '| Rate asked | RTT, ms | iperf3, from 5 s to 15 s, Mbit/s | missed by the link |'
    echo '|---|---|---|---|'
    for rtt in 0 1 15; do
        up --rtt "${rtt}ms"
        got=$(measured)
        missed=$(lab stats | awk '/^missed/ { print $5 + $6 }')
        echo "| none | $rtt | $got | $missed |"
        lab down
    done
}

table_loss() {
    echo '| Asked, % | | datagrams | dropped, by the lab | % | three deviations about what was asked | lost, by iperf3 | of them at its socket | out of order |'
    echo '|---|---|---|---|---|---|---|---|---|'
    for asked in '0 loss' '0.1 loss' '1 loss' '1 reorder'; do
        local share=${asked% *} what=${asked#* }
        up --rtt 1ms --"$what" "0,$share%" --seed 1
        # Slowly, because iperf3's socket loses what it does not read in time. From the server, because only the receiver tells the order.
        iperf -R -u -b 20M -l 1448 -t 25 --json >"$out/udp"
        dropped=$(lab stats --json | jq .to_client.counters.lost.packets)
        # That is what the kernel counts as RcvbufErrors: proc_pid_net(5).
        unread=$(lab client -- cat /proc/self/net/snmp |
            awk '/^Udp:/ { if (n) print $n; else for (i = 2; i <= NF; i++) if ($i == "RcvbufErrors") n = i }')
        read -r lost packets disorder < <(jq -r '.end.streams[0].udp | "\(.lost_packets) \(.packets) \(.out_of_order)"' "$out/udp")
        [ "$what" = loss ] || share=0
        awk -v asked="$asked" -v loss="$share" -v dropped="$dropped" -v lost="$lost" -v n="$packets" -v unread="$unread" -v disorder="$disorder" 'BEGIN {
            split(asked, a, " "); p = loss / 100; d = 3 * sqrt(p * (1 - p) / n) * 100
            printf "| %s | %s | %d | %d | %.3f | %.3f to %.3f | %d | %d | %d |\n",
                a[1], a[2], n, dropped, 100 * dropped / n, loss - d, loss + d, lost, unread, disorder }'
        lab down
    done
}

[ $# -gt 0 ] || set -- ping rate carried most loss
for table; do
    "table_$table"
    echo
done
