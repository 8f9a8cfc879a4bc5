#!/usr/bin/env bash
# Prints the table of docs/bench.md, "distance": what single operations take over a link with a delay, at a server that is remembered,
# at one that is not, and by 9P2000.L. Takes some two minutes.
# NINEFOLD, NINEFOLD_BENCH: the programs, those of target/release when not given. RTT: the link's, in milliseconds; 150. TRIES: of each; 5.
# Needs Debian's package jq, and /dev/net/tun.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${NINEFOLD:=target/release/ninefold}" "${NINEFOLD_BENCH:=target/release/ninefold-bench}" "${RTT:=150}" "${TRIES:=5}"
name=warm-$$
url=9p://10.9.0.2
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
mkdir -p "$out/tree/d"
chmod 777 "$out/tree/d"
head -c 4096 /dev/zero >"$out/tree/d/f"
lab up --rtt "${RTT}ms" >"$out/up"
lab server -- "$NINEFOLD" serve "$out/tree" --listen "$url" --insecure >"$out/server" 2>&1 &
for _ in {1..500}; do
    grep -q 10.9.0.2 "$out/server" && break
    sleep 0.02
done

# once COMMAND...: runs it in the client's end; its round trips and milliseconds.
once() {
    # shellcheck disable=SC2016
    lab client -- bash -c 'begun=$EPOCHREALTIME; "$@" >/dev/null || exit; ended=$EPOCHREALTIME
        echo $(((${ended/./} - ${begun/./}) / 100))' bash "$NINEFOLD" --stats "$out/stats" "$@" >"$out/took"
    echo "$(jq .round_trips "$out/stats") $(cat "$out/took")"
}

# row NAME KIND BEFORE COMMAND...: the median of TRIES, beside what the link alone takes.
row() {
    local operation=$1 kind=$2 before=$3
    shift 3
    local trips
    for _ in $(seq "$TRIES"); do
        eval "$before"
        if [ "$kind" = cold ]; then rm -rf "$XDG_CACHE_HOME"; fi
        if [ "$kind" = warm ]; then "$NINEFOLD_BENCH" lab client --name "$name" -- "$NINEFOLD" stat "$url/" >"$out/null"; fi
        once "$@"
    done | sort -n -k2 >"$out/rows"
    trips=$(cut -d' ' -f1 "$out/rows" | sort -un | paste -sd, -)
    awk -v operation="$operation" -v kind="$kind" -v trips="$trips" -v rtt="$RTT" -v tries="$TRIES" '
        NR == int((tries + 1) / 2) { took = $2 / 10 }
        END {
            link = (1 + trips) * rtt
            printf "| %s | %s | %s | %d | %.1f | %s |\n", operation, kind, trips, link, took, (took <= link * 1.1 + 20 ? "yes" : "no")
        }' "$out/rows"
}

echo "| Operation | Server | Round trips | Connect and these, ms | Took, ms | Within 10 % + 20 ms |"
echo "|---|---|---|---|---|---|"
tree=$out/tree/d
for kind in warm cold .L; do
    query=
    if [ "$kind" = .L ]; then query='?dialect=9P2000.L'; fi
    row "stat" "$kind" : stat "$url/d/f$query"
    row "read of 4 KiB" "$kind" : cat "$url/d/f$query"
    row "remove" "$kind" "touch $tree/g; chmod 666 $tree/g" rm "$url/d/g$query"
    row "rename" "$kind" "rm -f $tree/h; touch $tree/g; chmod 666 $tree/g" mv "$url/d/g$query" "$url/d/h$query"
    row "mkdir" "$kind" "rm -rf $tree/new" mkdir "$url/d/new$query"
done
