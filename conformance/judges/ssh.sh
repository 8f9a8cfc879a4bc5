#!/usr/bin/env bash
# OpenSSH judges the way over ssh: a private sshd on loopback, the system's ssh and scp, and the commands that the README
# gives a first-time reader.
#
#   NINEFOLD=/path/to/ninefold ./ssh.sh
#
# SSH_JUDGE_MIB=N   size of the big file, 256 when not given; copies of it are stopped in the middle, so not much less
# SSH_JUDGE_KEEP=1  keep the files and the logs
#
# Installs Debian's openssh-server and openssh-client when it is root and they are missing. Nothing of the user's is
# touched: the sshd has keys, configuration and a home directory of its own, and everything is in a temporary directory.
# Figures go to standard error.
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${NINEFOLD:?set NINEFOLD to the ninefold binary}"
NINEFOLD=$(realpath "$NINEFOLD")
: "${SSH_JUDGE_MIB:=256}"
# Bounds, seconds: a command; an event that is near.
BOUND=60 SOON=10

if ! command -v sshd >/dev/null || ! command -v ssh >/dev/null || ! command -v scp >/dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive timeout 300 sh -c 'apt-get update -q &&
            apt-get install -q -y --no-install-recommends openssh-server openssh-client' >&2 </dev/null
    fi
    if ! command -v sshd >/dev/null || ! command -v ssh >/dev/null || ! command -v scp >/dev/null; then
        skip ssh "sshd, ssh or scp is missing: install Debian's openssh-server and openssh-client"
        finish
    fi
fi

# Every process that runs the other end's copy of ninefold, which is a file of its own.
servers() {
    # In one process: what is looked for may be short.
    find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$work/home/ninefold" 2>/dev/null | cut -d/ -f3
}
at_the_end() {
    end_server # or it would start more of them
    # shellcheck disable=SC2046 # numbers, one a word
    [ -z "$(servers)" ] || kill -9 $(servers) 2>/dev/null
}
begin ssh-judge "${SSH_JUDGE_KEEP:-}"
mkdir "$work"/{bin,home,etc,out,tree,here} || exit 1

# soon WORDS...: waits for the command to succeed, with a bound.
soon() {
    local i
    for ((i = 0; i < SOON * 50; i++)); do
        "$@" && return
        sleep 0.02
    done
    return 1
}
no_servers() { [ -z "$(servers)" ]; }

# --- the other end ----------------------------------------------------------------
for key in host user loud; do
    ssh-keygen -q -t ed25519 -N '' -f "$work/etc/$key" >&2 || { not_ok start "ssh-keygen"; finish; }
done
{
    cat "$work/etc/user.pub"
    # The login shell of a user whose start-up files print something.
    printf 'command="echo Welcome to the other end; eval \\"$SSH_ORIGINAL_COMMAND\\"" '
    cat "$work/etc/loud.pub"
} >"$work/etc/authorized_keys"
cat >"$work/etc/sshd_config" <<END
ListenAddress 127.0.0.1
HostKey $work/etc/host
PidFile none
AuthorizedKeysFile $work/etc/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv HOME=$work/home
Subsystem sftp internal-sftp -d $work/home
LogLevel ERROR
END
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
on_a_free_port "$(command -v sshd)" -D -e -p @PORT@ -f "$work/etc/sshd_config" ||
    { not_ok start "sshd does not listen: $(tail -n 3 "$work/server.err")"; finish; }

# The README's HOST is a host of that name. LOUD is the one with the talkative shell, NOBODY a port that is closed.
cat >"$work/etc/ssh_config" <<END
Host HOST
    IdentityFile $work/etc/user
Host LOUD
    IdentityFile $work/etc/loud
Host NOBODY
    Port 1
Host HOST LOUD NOBODY
    HostName 127.0.0.1
    User $(id -un)
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile $work/etc/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    LogLevel ERROR
Host *
    Port $port
END
# The first value counts: a port of NOBODY's own stays.
echo "[127.0.0.1]:$port $(cat "$work/etc/host.pub")" >"$work/etc/known_hosts"
for program in ssh scp; do
    printf '#!/bin/sh\nexec %s -F %s/etc/ssh_config "$@"\n' "$(command -v $program)" "$work" >"$work/bin/$program"
    chmod 755 "$work/bin/$program"
done
export PATH=$work/bin:$PATH
unset NINEFOLD_SSH SSH_AUTH_SOCK DISPLAY
if ! timeout $BOUND ssh HOST true </dev/null 2>"$work/out/ssh"; then
    skip ssh "$(id -un) cannot log in here: $(tail -n 2 "$work/out/ssh" "$work/server.err" | tr '\n' ' ')"
    finish
fi

# --- what there is to copy ----------------------------------------------------------
tree=$work/tree
make_tree() {
    mkdir -p "$tree/plain/deeper/deepest" "$tree/it's \"quoted\"" "$tree/target" || return
    printf 'leaf\n' >"$tree/plain/deeper/deepest/leaf"
    : >"$tree/empty"
    printf 'one line\n' >"$tree/file"
    printf 'spaces\n' >"$tree/a b  c"
    printf 'quotes\n' >"$tree/it's \"quoted\"/\$HOME \`id\` ; * ? \\ #"
    printf 'newline\n' >"$tree/two
lines"
    printf 'bytes\n' >"$tree/$(printf 'caf\351-\377')"
    printf 'percent\n' >"$tree/100%41"
    printf 'dash\n' >"$tree/-r"
    printf 'beyond\n' >"$tree/target/beyond"
    ln -s target "$tree/link-to-dir"
    ln -s "$tree/target/beyond" "$tree/absolute link"
    ln -s nowhere "$tree/dangling"
    chmod 640 "$tree/file"
    head -c 3000000 /dev/urandom >"$tree/plain/three-megabytes"
}
make_tree || { not_ok start "the tree could not be made"; finish; }

# manifest DIR: kind, content and target of everything below, in order.
manifest() {
    (
        cd "$1" || exit
        find . -mindepth 1 \( -type l -printf '%P\0l %l\0' \) -o \( -type d -printf '%P\0d\0' \) -o -printf '%P\0f\0' |
            tr '\n\0' '\001\n' | sort
        find . -type f -print0 | sort -z | xargs -0 -r sha256sum --zero | tr '\n\0' '\001\n'
    )
}
# same NAME DIR DIR
same() {
    if manifest "$2" >"$work/out/a" && manifest "$3" >"$work/out/b" && [ -s "$work/out/a" ] &&
        cmp -s "$work/out/a" "$work/out/b"; then ok "$1"
    else not_ok "$1" "$(diff "$work/out/a" "$work/out/b" | head -6)"; fi
}

# run WORDS...: output in $work/out/out, standard error in $err, status in $status.
run() {
    timeout -k 5 $BOUND "$@" >"$work/out/out" 2>"$work/out/err" </dev/null
    status=$?
    err=$(cat "$work/out/err")
}
why() { echo "status $status: $err"; }
# prints NAME EXPECTED-FILE WORDS...: the command succeeds, complains of nothing and prints what is in the file.
prints() {
    local name=$1 expected=$2
    shift 2
    run "$@"
    if [ "$status" -ne 0 ] || [ -n "$err" ]; then not_ok "$name" "$(why)"
    elif ! cmp -s "$expected" "$work/out/out"; then not_ok "$name" "$(diff "$expected" "$work/out/out" | head -4)"
    else ok "$name"; fi
}
# succeeds NAME WORDS...
succeeds() {
    local name=$1
    shift
    run "$@"
    [ "$status" -eq 0 ] || { not_ok "$name" "$(why)"; return 1; }
}
# fails NAME TEXT WORDS...: exit status 1, nothing on standard output, the text in the message.
fails() {
    local name=$1 text=$2
    shift 2
    run "$@"
    if [ "$status" -ne 1 ] || [ -s "$work/out/out" ] || [[ $err != *"$text"* ]]; then
        not_ok "$name" "wanted '$text', $(why)"
    else ok "$name"; fi
}

# --- the first-time reader ----------------------------------------------------------
# The commands are taken from the README: the first block of its chapter on ssh. Only the directory is named, and where
# cargo installs.
chapter=$(awk '/^## / { on = /^## A working copy over ssh/ } on && /^```/ { n++; next } on && n == 1 && NF' \
    "$here/README.md" | sed 's/  *# .*//')
mapfile -t lines <<<"$chapter"
if [ "${#lines[@]}" -ne 3 ] || [[ ${lines[0]} != "cargo install"* ]]; then
    not_ok readme "the README's chapter has no three commands that begin with cargo install: $chapter"
fi
mkdir "$work/reader" "$work/cargo" "$work/cargo/bin"
cd "$work/reader" || exit 1
if command -v cargo >/dev/null; then
    # In the directory of the repository, as the README says; a build that exists already is used.
    command=${lines[0]}
    (cd "$here" && CARGO_INSTALL_ROOT=$work/cargo timeout -k 5 400 bash -c "$command") >"$work/out/cargo" 2>&1 </dev/null ||
        not_ok readme-1 "$command: $(tail -n 3 "$work/out/cargo")"
else
    skip readme-1 "cargo is missing"
fi
if [ -x "$work/cargo/bin/ninefold" ]; then ok readme-1; else cp "$NINEFOLD" "$work/cargo/bin/ninefold"; fi
export PATH=$work/cargo/bin:$PATH
if succeeds readme-2 bash -c "${lines[1]}"; then
    [ -x "$work/home/ninefold" ] && ok readme-2 || not_ok readme-2 "no program came: $(ls "$work/home")"
fi
if succeeds readme-3 bash -c "${lines[2]//\/DIR/$tree}"; then
    [ -z "$err" ] && ok readme-3 || not_ok readme-3 "$(why)"
    same readme-the-copy-is-the-same "$tree" "$work/reader/tree"
fi
cd "$work/here" || exit 1
# From here on it is the binary to be judged, at both ends.
cp "$NINEFOLD" "$work/home/ninefold.new" && mv "$work/home/ninefold.new" "$work/home/ninefold"
soon no_servers && ok the-server-ends-with-its-connection || not_ok the-server-ends-with-its-connection "$(servers)"

# --- both forms, and names ------------------------------------------------------------
(cd "$tree/plain" && ls -1) >"$work/out/names"
prints ls-short-form "$work/out/names" "$NINEFOLD" ls "HOST:$tree/plain"
prints ls-long-form "$work/out/names" "$NINEFOLD" ls "9p+ssh://HOST$tree/plain"
prints ls-as-a-user "$work/out/names" "$NINEFOLD" ls "9p+ssh://$(id -un)@HOST$tree/plain"
for dialect in 9P2000 9P2000.u 9P2000.L; do
    prints "cat-$dialect" "$tree/plain/three-megabytes" \
        "$NINEFOLD" cat "9p+ssh://HOST$tree/plain/three-megabytes?dialect=$dialect"
done
prints cat-short-form "$tree/file" "$NINEFOLD" cat "HOST:$tree/file"
prints cat-spaces "$tree/a b  c" "$NINEFOLD" cat "HOST:$tree/a b  c"
prints cat-quotes "$tree/it's \"quoted\"/\$HOME \`id\` ; * ? \\ #" \
    "$NINEFOLD" cat "HOST:$tree/it's \"quoted\"/\$HOME \`id\` ; * ? \\ #"
prints cat-newline "$tree/two
lines" "$NINEFOLD" cat "HOST:$tree/two
lines"
prints cat-percent-short "$tree/100%41" "$NINEFOLD" cat "HOST:$tree/100%41"
prints cat-percent-long "$tree/100%41" "$NINEFOLD" cat "9p+ssh://HOST$tree/100%2541"
prints cat-other-bytes "$tree/$(printf 'caf\351-\377')" "$NINEFOLD" cat "9p+ssh://HOST$tree/caf%E9-%FF"
(cd "$tree/link-to-dir/" && ls -1) >"$work/out/names"
prints ls-linked-directory "$work/out/names" "$NINEFOLD" ls "HOST:$tree/link-to-dir/"
prints cat-through-a-link "$tree/target/beyond" "$NINEFOLD" cat "HOST:$tree/link-to-dir/beyond"
prints cat-through-an-absolute-link "$tree/target/beyond" "$NINEFOLD" cat "HOST:$tree/absolute link"

# --- copies ---------------------------------------------------------------------------
if succeeds cp-from "$NINEFOLD" cp "HOST:$tree/plain/three-megabytes" one; then
    cmp -s "$tree/plain/three-megabytes" one && ok cp-from || not_ok cp-from "other bytes"
fi
if succeeds cp-to "$NINEFOLD" cp one "HOST:$work/home/one"; then
    cmp -s one "$work/home/one" && ok cp-to || not_ok cp-to "other bytes"
fi
succeeds cp-r-from "$NINEFOLD" cp -r "HOST:$tree" back && same cp-r-from "$tree" back
succeeds cp-r-to "$NINEFOLD" cp -r --checksum back "9p+ssh://HOST$work/home/there" && same cp-r-to "$tree" "$work/home/there"
if succeeds cp-p "$NINEFOLD" cp -p "HOST:$tree/file" kept; then
    [ "$(stat -c '%a %Y' kept)" = "$(stat -c '%a %Y' "$tree/file")" ] && ok cp-p || not_ok cp-p "$(stat -c '%a %y' kept)"
fi

# --- what goes wrong --------------------------------------------------------------------
fails missing-file "does not exist" "$NINEFOLD" cat "HOST:$tree/no such file"
fails unreachable-host "ssh ended with status 255: it did not get through to NOBODY" "$NINEFOLD" ls NOBODY:/
fails unknown-host "ssh ended with status 255" "$NINEFOLD" ls no-such-host.invalid:/
fails talkative-shell "prints 'Welcome to the other end'" "$NINEFOLD" ls LOUD:/
mv "$work/home/ninefold" "$work/ninefold"
if ssh HOST 'command -v ninefold' >/dev/null 2>&1 </dev/null; then skip missing-binary "ninefold is installed for everybody here"
else fails missing-binary 'ssh ended with status 127: HOST has no ninefold' "$NINEFOLD" ls HOST:/; fi
cp /etc/passwd "$work/home/ninefold" && chmod 644 "$work/home/ninefold"
run "$NINEFOLD" ls HOST:/
[ "$status" -eq 1 ] && [[ $err == *"ssh ended with status 12"[67]* ]] && ok binary-that-is-none || not_ok binary-that-is-none "$(why)"
printf '#!/bin/sh\necho "error: unexpected argument" >&2\nexit 2\n' >"$work/home/ninefold" && chmod 755 "$work/home/ninefold"
fails older-binary "ssh ended with status 2: the ninefold of HOST does not know" "$NINEFOLD" ls HOST:/
mv "$work/ninefold" "$work/home/ninefold"
NINEFOLD_SSH="no-such-program -v" fails missing-ssh "the program that NINEFOLD_SSH names" "$NINEFOLD" ls HOST:/
NINEFOLD_SSH="ssh -o 'ConnectTimeout 5'" prints own-ssh-with-quoted-words "$tree/file" "$NINEFOLD" cat "HOST:$tree/file"

# --- what ends in the middle ------------------------------------------------------------
big=$tree-big/big
mkdir "$tree-big"
head -c $((SSH_JUDGE_MIB << 20)) /dev/urandom >"$big"

# parent PID
parent() { sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$1/stat"; }
there_is_a_server() { [ -n "$(servers)" ]; }
any() { [ -n "$(find "$1" -mindepth 1 -size +1024k -print -quit 2>/dev/null)" ]; }

# stalled WORDS...: starts a command with its output held up; $command is its number.
stalled() {
    rm -f "$work/pipe" && mkfifo "$work/pipe"
    "$@" >"$work/pipe" 2>"$work/out/err" </dev/null &
    command=$!
    exec 9<"$work/pipe"
    head -c 100000 <&9 >/dev/null
}
ended() {
    timeout $SOON cat <&9 >/dev/null
    exec 9<&-
    wait "$command"
    status=$?
    err=$(cat "$work/out/err")
}

stalled "$NINEFOLD" cat "HOST:$big"
kill -9 "$(parent "$(servers)")"
ended
if [ "$status" -eq 1 ] && [[ $err == *"the connection is lost: ssh ended with status 255"* ]]; then ok sshd-killed-in-a-cat
else not_ok sshd-killed-in-a-cat "$(why)"; fi
soon no_servers && ok sshd-killed-ends-the-server || not_ok sshd-killed-ends-the-server "$(servers)"

stalled "$NINEFOLD" cat "HOST:$big"
kill -9 "$command"
ended
soon no_servers && ok client-killed-ends-the-server || not_ok client-killed-ends-the-server "$(servers)"

# halted NAME DIR WORDS...: starts a copy into DIR, and stops its connection when part of it is there; $session is the
# sshd. The copy goes in small steps until then, so that it is not done before anybody looked.
halted() {
    local name=$1 dir=$2 i
    shift 2
    rm -rf "$dir" && mkdir "$dir"
    setsid "$@" >"$work/out/out" 2>"$work/out/err" </dev/null &
    command=$!
    soon there_is_a_server || { not_ok "$name" "no server: $(cat "$work/out/err")"; return 1; }
    session=$(parent "$(servers)")
    for ((i = 0; i < SOON * 50; i++)); do
        kill -STOP "$session" || break
        if any "$dir"; then
            [ -e "$dir/whole" ] || return 0
            break
        fi
        kill -CONT "$session"
        sleep 0.01
    done
    kill -CONT "$session" 2>/dev/null
    wait "$command"
    not_ok "$name" "it could not be stopped in the middle: $(ls -lA "$dir") $(cat "$work/out/err")"
    return 1
}
for way in from to; do
    dir=$work/cut-$way
    if [ $way = from ]; then words=(cp "HOST:$big" "$dir/whole"); else words=(cp "$big" "HOST:$dir/whole"); fi
    name=sshd-killed-in-a-copy-$way
    if halted $name "$dir" "$NINEFOLD" "${words[@]}"; then
        kill -9 "$session"
        wait $command
        status=$?
        err=$(cat "$work/out/err")
        if [ $status -ne 1 ] || [[ $err != *"ssh ended with status 255"* ]]; then not_ok $name "$(why)"
        elif [ -e "$dir/whole" ]; then not_ok $name "the copy looks whole"
        else ok $name; fi
    fi
    name=interrupt-in-a-copy-$way
    soon no_servers
    if halted $name "$dir" "$NINEFOLD" "${words[@]}"; then
        # As Ctrl-C does it: to all of the group, ssh too.
        kill -INT -- "-$command"
        kill -CONT "$session"
        wait $command
        status=$?
        err=$(cat "$work/out/err")
        if [ $status -ne 130 ]; then not_ok $name "$(why)"
        elif ! soon no_servers; then not_ok $name "the server goes on"
        elif [ -n "$(ls -A "$dir")" ]; then not_ok $name "left behind: $(ls -A "$dir")"
        else ok $name; fi
    fi
done

# --- a big file, and how fast ---------------------------------------------------------
# copies NAME COPY WORDS...: the command makes the copy; its rate is kept as a figure.
copies() {
    local name=$1 copy=$2 from took
    shift 2
    from=$(date +%s%N)
    succeeds "$name" "$@" || return
    took=$(($(date +%s%N) - from))
    if cmp -s "$big" "$copy"; then ok "$name"; else not_ok "$name" "$(cmp "$big" "$copy" 2>&1)"; fi
    figures+=("$name $((SSH_JUDGE_MIB * 1000000000 / took)) MiB/s")
    rm -f "$copy"
}
figures=()
copies scp-from big.scp scp -q "HOST:$big" big.scp
copies cp-big-from big.9p "$NINEFOLD" cp "HOST:$big" big.9p
copies cp-big-from-checked big.9p "$NINEFOLD" cp --checksum "HOST:$big" big.9p
copies scp-to "$work/home/big.scp" scp -q "$big" HOST:big.scp
copies cp-big-to "$work/home/big.9p" "$NINEFOLD" cp "$big" "HOST:$work/home/big.9p"
copies cp-big-to-checked "$work/home/big.9p" "$NINEFOLD" cp --checksum "$big" "HOST:$work/home/big.9p"
{
    echo "== $SSH_JUDGE_MIB MiB over ssh on loopback, in this run"
    printf '%s\n' "${figures[@]}"
} >&2

soon no_servers && ok nothing-is-left-running || not_ok nothing-is-left-running "$(servers)"
finish
