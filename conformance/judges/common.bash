# What the judges share: how they speak, where they put their files, how they start and end servers. Each sources it at its
# top; it is no judge itself, and so its name does not end in .sh.
#
#   begin NAME [KEEP]   first: $work is a directory that goes with the judge, unless KEEP says something; whatever runs as $server is
#                       ended with it, and before that the function at_the_end is called, when there is one
#   ok, not_ok, skip, excluded   a verdict: one line, counted
#   finish              last: prints the sum, which scripts/test.sh compares with the lines that came, and exits
# shellcheck shell=bash disable=SC2034 # some of what is set here is for those who source it
set -u -o pipefail
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin

# Seconds that a server may take to start, and to end before it is killed.
START=10 END=10

passed=0 failed=0 skipped=0 excluded=0
work='' server='' base='' port=''
says=server # what a server says is in $work/$says.out and $work/$says.err

# The reason on one line, without what a terminal would obey.
reason() { printf %s "$1" | tr '\n\t' '  ' | tr -d '\000-\037\177' | cut -c1-600; }

ok() { # NAME
    passed=$((passed + 1))
    echo "ok $1"
}
not_ok() { # NAME WHY
    failed=$((failed + 1))
    echo "not ok $1 - $(reason "$2")"
}
skip() { # NAME WHY
    skipped=$((skipped + 1))
    echo "skip $1 - $(reason "$2")"
}
# What cannot pass, whoever serves: neither passed nor failed.
excluded() { # NAME WHY
    excluded=$((excluded + 1))
    echo "excluded $1 - $(reason "$2")"
}

finish() {
    echo "# judged: $passed passed, $failed failed, $skipped skipped, $excluded excluded"
    [ "$failed" -eq 0 ]
    exit
}

begin() { # NAME [KEEP]
    work=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX") || exit 1
    keep=${2:-}
    mkdir "$work/cwd"
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}
clean_up() {
    trap - EXIT INT TERM
    if declare -F at_the_end >/dev/null; then at_the_end; fi
    end_server
    if [ -n "$keep" ]; then echo "# kept $work" >&2; else rm -rf "$work"; fi
}

# Ends children of this shell, and waits until they have ended.
end_process() { # PID...
    local pid i
    for pid; do
        kill "$pid" 2>/dev/null
        for ((i = 0; i < END * 10; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
}
end_server() {
    [ -z "$server" ] || end_process "$server"
    server=
}

# Starts a server; `server` is its process.
start() { # COMMAND...
    # Here, and not by the child: until that runs, the file would still be that of the server before.
    : >"$work/$says.out"
    "$@" >"$work/$says.out" 2>"$work/$says.err" &
    server=$!
}

# Waits for what a server prints, and prints it.
announced() { # PATTERN
    local i found
    for ((i = 0; i < START * 20; i++)); do
        found=$(grep -aoE "$1" "$work/$says.out" 2>/dev/null | head -1)
        if [ -n "$found" ]; then
            printf '%s\n' "$found"
            return 0
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    return 1
}

# ADDRESS is what our server prints: on loopback, with the port that it got, or a Unix socket.
ADDRESS='9p(://127\.0\.0\.1:[0-9]+|\+unix:[^ ]+)'

# Starts our server; `base` is its address.
serve() { # WORDS...
    start "$NINEFOLD" serve "$@"
    base=$(announced "$ADDRESS")
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; } # PORT

# Sets `port` to one on which nobody listens.
free_port() {
    for _ in {1..100}; do
        port=$((20000 + RANDOM % 12000))
        listens "$port" || return 0
    done
    return 1
}

# For servers that must be told their port: starts COMMAND, in which @PORT@ stands for one that is free. In a directory
# of its own: what somebody else's program leaves when it crashes must not land in ours.
on_a_free_port() { # COMMAND...
    local i
    for _ in {1..20}; do
        free_port || return 1
        start env -C "$work/cwd" -- "${@//@PORT@/$port}"
        for ((i = 0; i < START * 20; i++)); do
            listens "$port" && kill -0 "$server" 2>/dev/null && return 0
            kill -0 "$server" 2>/dev/null || break
            sleep 0.05
        done
        end_server
    done
    return 1
}

# diod on a directory, which it attaches by its path only; the rest is for diod.
start_diod() { # DIR [WORDS...]
    on_a_free_port diod -f -n -c /dev/null -L stderr -l 127.0.0.1:@PORT@ -e "$@"
}
