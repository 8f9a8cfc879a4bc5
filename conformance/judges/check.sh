#!/usr/bin/env bash
# `ninefold check` as a judge: our own server must keep every rule in each dialect; what diod does otherwise must be what
# check-diod.txt says, no more and no less.
#
#   NINEFOLD=/path/to/ninefold ./check.sh
#
# CHECK_KEEP=1  keep the trees, documents and logs
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${NINEFOLD:?set NINEFOLD to the ninefold binary}"
NINEFOLD=$(realpath "$NINEFOLD")

# The bound on one run of the suite, seconds.
BOUND=120
# Seconds that the suite waits for a reply: longer than its default, for a machine that does other things beside.
PATIENCE=10

# Starts diod again whenever it ends.
keeper=''
end_diod() {
    [ -z "$keeper" ] || end_process "$keeper"
    keeper=
    if [ -f "$work/diod.pid" ]; then
        kill -9 "$(cat "$work/diod.pid")" 2>/dev/null
        rm -f "$work/diod.pid"
    fi
}
at_the_end() { end_diod; }
begin check "${CHECK_KEEP:-}"

# The cases that did not end `ok`, a line each: verdict, dialect, name. The document is read without help: each case is an
# object whose fields stand in the order of the alphabet.
otherwise() { # DOCUMENT
    grep -oE '"dialect":"[^"]+"|"group":"[a-z]+","name":"[^"]+"|"verdict":"[a-z]+"' "$1" |
        sed -E 's/.*"(dialect|name|verdict)":"([^"]+)"$/\1 \2/' |
        awk '$1 == "dialect" { d = $2 } $1 == "name" { n = $2 } $1 == "verdict" && $2 != "ok" { print $2, d, n }' | sort
}

# --- ours -----------------------------------------------------------------------------------------------------------

for dialect in 9P2000 9P2000.u 9P2000.L; do
    mkdir "$work/tree-$dialect"
    if ! RUST_LOG=off serve "$work/tree-$dialect" --listen 9p://127.0.0.1:0; then
        not_ok "check-ours-$dialect" "the server did not start: $(cat "$work/server.err")"
        end_server
        continue
    fi
    timeout -k 5 "$BOUND" "$NINEFOLD" check --json --timeout "$PATIENCE" --dialect "$dialect" "$base" >"$work/ours-$dialect.json" 2>"$work/check.err"
    status=$?
    otherwise "$work/ours-$dialect.json" >"$work/ours-$dialect.txt"
    cases=$(grep -o '"verdict"' "$work/ours-$dialect.json" | wc -l)
    # A file system without user attributes has none to check.
    bad=$(grep -vE '^skip [^ ]+ xattr/' "$work/ours-$dialect.txt")
    if [ "$status" != 0 ] || [ -n "$bad" ]; then
        not_ok "check-ours-$dialect" "status $status: $bad $(cat "$work/check.err")"
    elif [ "$cases" -lt 120 ]; then
        not_ok "check-ours-$dialect" "only $cases cases"
    elif [ -n "$(ls -A "$work/tree-$dialect")" ]; then
        not_ok "check-ours-$dialect" "left behind: $(ls -A "$work/tree-$dialect")"
    else
        ok "check-ours-$dialect"
    fi
    end_server
done

# --- diod -----------------------------------------------------------------------------------------------------------

# Starts it again whenever it ends: some cases end it. In a directory of its own, for its core files; and nothing that it
# leaves behind may hold this judge's output open.
keep_diod() { # TREE PORT
    cd "$work/cwd" || exit
    exec >>"$work/diod.log" 2>&1
    while :; do
        diod -f -n -c /dev/null -L stderr -l "127.0.0.1:$2" -e "$1" &
        echo $! >"$work/diod.pid"
        wait $!
        rm -f core*
    done
}

if ! command -v diod >/dev/null; then
    skip check-diod "diod is missing: install Debian's package diod"
else
    mkdir "$work/tree-diod"
    free_port
    keep_diod "$work/tree-diod" "$port" &
    keeper=$!
    for ((i = 0; i < START * 20; i++)); do
        listens "$port" && break
        sleep 0.05
    done
    grep -E '^(fail|differs|skip) ' "$here/check-diod.txt" | cut -d' ' -f1-3 | sort >"$work/known.txt"
    sed -nE 's/^sometimes (9P[^ ]+ [^ ]+).*/\1/p' "$here/check-diod.txt" >"$work/sometimes.txt"
    # Its threads race, and where a case ends the process the next may be hit too. So what one run has and the list has
    # not counts when three runs have it, and what the list has counts as gone when none of three has it.
    for run in 1 2 3; do
        timeout -k 5 "$BOUND" "$NINEFOLD" check --json --timeout "$PATIENCE" "9p://127.0.0.1:$port/?aname=$work/tree-diod" \
            >"$work/diod-$run.json" 2>"$work/check.err"
        status=$?
        otherwise "$work/diod-$run.json" | grep -vFf "$work/sometimes.txt" >"$work/diod-$run.txt"
        [ -s "$work/diod-$run.txt" ] || break
        if [ "$run" = 1 ]; then
            cp "$work/diod-1.txt" "$work/always.txt"
            cp "$work/diod-1.txt" "$work/ever.txt"
        else
            comm -12 "$work/always.txt" "$work/diod-$run.txt" >"$work/fewer.txt"
            mv "$work/fewer.txt" "$work/always.txt"
            sort -u -o "$work/ever.txt" "$work/ever.txt" "$work/diod-$run.txt"
        fi
        new=$(comm -13 "$work/known.txt" "$work/always.txt")
        gone=$(comm -23 "$work/known.txt" "$work/ever.txt")
        [ -n "$new$gone" ] || break
    done
    echo "# diod does otherwise:" >&2
    sed 's/^/# /' "$work/diod-$run.txt" >&2
    # What came in the place of what the list says, with the whole exchange.
    comm -13 "$work/known.txt" "$work/diod-$run.txt" | while read -r _ dialect name; do
        grep -oE "\{\"dialect\":\"$dialect\"[^}]*\"name\":\"$name\"[^}]*\}" "$work/diod-$run.json" | head -c 4000 | sed 's/^/# /' >&2
    done
    if ! [ -s "$work/diod-$run.txt" ]; then
        not_ok check-diod "no document, status $status: $(cat "$work/check.err")"
    elif [ -n "$new$gone" ]; then
        not_ok check-diod "not what check-diod.txt says; new: ${new:-nothing}; gone: ${gone:-nothing}"
    else
        ok check-diod
    fi
    # Each line there has its reason.
    unexplained=$(grep -E '^(sometimes |fail |differs |skip )' "$here/check-diod.txt" | grep -vE ' - .{10,}')
    if [ -z "$unexplained" ]; then ok check-diod-explained; else not_ok check-diod-explained "$unexplained"; fi
    end_diod
fi
finish
