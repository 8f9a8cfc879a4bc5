#!/usr/bin/env bash
# Our command line, judged by coreutils: each command of the session in commands.session is run on a local tree by the
# Unix program of its name and on a served tree by ninefold, and what both print, how they end and what they leave
# behind must be the same.
#
#   NINEFOLD=/path/to/ninefold ./commands.sh [RUN...]
#
# The runs, all when none is named:
#   ours-9P2000.L ours-9P2000.u ours-9P2000   ninefold serve over TCP, the dialect pinned by the address
#   ours-best                                 the dialect that client and server agree on
#   ours-unix                                 the same over a Unix socket
#   diod                                      diod of Debian's package (9P2000.L)
#   hosttree                                  9P2000 by the library 9fans.net/go, see hosttree/; it cuts what it is
#                                             offered to 9P2000
#   export9p                                  github.com/knusbaum/go9p/cmd/export9p (9P2000, pinned), as it is
#   export9p-silent                           one command that is not pinned: this server never answers a version that
#                                             it does not know
#   teeth                                     no server, and a client that does nothing and calls it done: every
#                                             command that does something must be found out
#
# COMMANDS_KEEP=1     keep the trees and the logs
# COMMANDS_ONLY=NAME  judge only this command of the session (the others are still run, for what they leave)
# COMMANDS_VERBOSE=1  a line on standard error for each command
#
# A difference is printed to standard error: the command, then diff -u of what was expected and what came.
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export TZ=UTC
export TIME_STYLE=long-iso # the one that `ninefold ls -l` has
PATH=$PATH:/usr/local/go/bin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${NINEFOLD:?set NINEFOLD to the ninefold binary}"
NINEFOLD=$(realpath "$NINEFOLD")

# Bounds, seconds: one command; fetching and building the Go programs.
BOUND=60 BUILD=300
NOBODY=65534 # the uid and gid that -u acts as, when the judge runs as root

begin commands "${COMMANDS_KEEP:-}"
chmod 755 "$work" # nobody must get in

# --- the names that shells, addresses and encodings stumble over -----------------------------------------------------

newline=$'new\nline'
bytes=$'\xff\xfe\x80 bytes'                  # not UTF-8
printf -v long 'ü%.0s' {1..127}; long+=n     # NAME_MAX: 255 bytes

# --- trees ----------------------------------------------------------------------------------------------------------

odd_files() { # DIR
    printf 'spaces\n' >"$1/two words"
    printf 'utf-8\n' >"$1/grüße-日本語"
    printf 'newline\n' >"$1/$newline"
    printf 'bytes\n' >"$1/$bytes"
    printf 'long\n' >"$1/$long"
}

make_trees() { # DIR: DIR/tree is served, DIR/here is where the commands are run
    local t=$1/tree h=$1/here i
    mkdir -p "$t"/{docs/deep/er,dirs/empty,dirs/within/empty,many,odd,private} "$h"/{in/tree/sub/empty,out,open} || return
    printf 'read me\n' >"$t/readme"
    : >"$t/empty"
    printf 'hidden\n' >"$t/.hidden"
    head -c 4096 /dev/urandom >"$t/page"
    head -c 3145735 /dev/urandom >"$t/three-mebi"
    printf '#!/bin/sh\nexit 0\n' >"$t/run.sh"
    for i in a.txt b.txt c.md .dot deep/d.txt deep/er/leaf.txt deep/er/e.md; do
        printf 'this is %s\n' "$i" >"$t/docs/$i"
    done
    for i in {1..100}; do printf '%s\n' "$i" >"$t/many/entry-$i"; done
    odd_files "$t/odd"
    printf 'address\n' >"$t/odd/100%25?x=#y"
    printf 'secret\n' >"$t/secret"
    printf 'old\n' >"$t/old"

    printf 'from here\n' >"$h/in/readme"
    : >"$h/in/empty"
    cp "$t/three-mebi" "$h/in/three-mebi"
    printf '#!/bin/sh\nexit 2\n' >"$h/in/run.sh"
    printf 'old\n' >"$h/in/old"
    odd_files "$h/in"
    printf 'one\n' >"$h/in/tree/one"
    printf 'two\n' >"$h/in/tree/sub/two"
    head -c 70000 /dev/urandom >"$h/in/tree/sub/seventy"
    mkdir "$h/in/links"
    ln -s ../readme "$h/in/links/to-file"; ln -s nowhere "$h/in/links/dangling"
    chmod 755 "$t/run.sh" "$h/in/run.sh" "$h/in/tree/one"
    chmod 600 "$t/secret"; chmod 700 "$t/private"; chmod 640 "$h/in/tree/sub/two"; chmod 777 "$h/open"
    # Older than anything that the session makes, see `picture`. The fraction is for dialects that have nanoseconds.
    find "$1" -exec touch -h -d '2020-01-02 03:04:05.123456789' {} +
    touch -d '2001-02-03 04:05:06.5' "$t/old" "$h/in/old" "$h/in/tree/sub"
}

make_links() { # DIR: where the dialect has them; 9P2000 follows them and cannot tell
    local t=$1/tree
    mkdir "$t/links" || return
    ln -s ../readme "$t/links/to-file"; ln -s ../docs "$t/links/to-directory"; ln -s nowhere "$t/links/dangling"
    touch -h -d '2020-01-02 03:04:05.123456789' "$t"/links/* "$t/links" "$t"
}

# What a tree looks like: type, mode, links, owner, size, time, target, name, and the bytes of each file.
#   - A directory's own size is the file system's affair.
#   - Times of this session are `new`: the same command cannot be run twice at the same moment. Older times must be
#     kept or copied, to the nanosecond in .L and to the second in the dialects that have no more.
picture() { # DIR
    local seconds='s/^((\S+ ){5}[0-9]+)\.[0-9]+ /\1 /'
    can nanoseconds && seconds=
    (
        cd "$1" || exit
        find . -printf '%y %#m %n %U:%G %s %T@ %l %P\0' | sed -z -E \
            -e 's/^(d \S+) \S+ (\S+) \S+ /\1 - \2 - /' \
            -e 's/^((\S+ ){5})(1[7-9][0-9]{8}|[2-9][0-9]{9})\.[0-9]+ /\1new /' \
            -e "$seconds" | tr '\0' '\n' | sort
        find . -type f -print0 | sort -z | xargs -0 -r cksum
    )
}

# --- servers --------------------------------------------------------------------------------------------------------
#
# Each sets `server`, and `base` and `query`: $base/PATH$query is the address of PATH.

start_ours() { # TREE LISTEN
    serve "$1" --listen "$2" || return
    # The socket's path ends at a colon.
    [[ $base != 9p+unix:* ]] || base+=:
}

start_their_diod() { # TREE
    start_diod "$1" || return
    base=9p://127.0.0.1:$port
    query="?aname=$(encoded "$1")"
}

start_hosttree() { # TREE
    start "$work/bin/hosttree" "$1"
    base=$(announced "$ADDRESS")
}

start_export9p() { # TREE
    # Without its permissions, which go by the user's name and not by what the user may do.
    on_a_free_port sh -c 'umask 0; exec "$@"' sh "$work/bin/export9p" -noperm -dir "$1" -address 127.0.0.1:@PORT@ || return
    base=9p://127.0.0.1:$port
}

# Builds both Go programs, once. 0 they are there, 1 said why not.
built=
build_go() {
    [ -z "$built" ] || return "$built"
    built=1
    local why log=$work/build.log
    mkdir -p "$work/bin"
    if ! why=$(go version 2>&1) || ! go_is_new "$why"; then
        why="Go 1.23 or later is missing, install it: https://go.dev/dl"
    elif ! (cd "$here/hosttree" && timeout "$BUILD" go mod download) >"$log" 2>&1; then
        why="its modules could not be fetched: $(tail -n 1 "$log")"
    elif ! (cd "$here/hosttree" && timeout "$BUILD" go build -mod=readonly -buildvcs=false -o "$work/bin/" \
        . github.com/knusbaum/go9p/cmd/export9p) >"$log" 2>&1; then
        cat "$log" >&2
        not_ok hosttree-build "$(tail -n 3 "$log")"
        return 1
    else
        built=0
        return 0
    fi
    skip hosttree "$why"
    skip export9p "$why"
    return 1
}
go_is_new() { # the line that `go version` prints
    [[ $1 =~ go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 23 ]
}

# --- what a server and a dialect can --------------------------------------------------------------------------------

# `cans` is what they can. Of the rest, `mute` is what the server cannot but says it did (or, for users, does for
# everybody): a refusal cannot be asked for there.
can() { [[ " $cans " == *" $1 "* ]]; }

# --- the two forms of a command -------------------------------------------------------------------------------------

encoded() { # BYTES: as they stand in an address
    local out='' i c
    for ((i = 0; i < ${#1}; i++)); do
        c=${1:i:1}
        case $c in
            [A-Za-z0-9/._~-]) out+=$c ;;
            *) printf -v c '%%%02X' "'$c"; out+=$c ;;
        esac
    done
    printf '%s' "$out"
}

# `form` says which it is now; `as` acts as somebody else.
places() { # ARGUMENT...: fills `args`
    local a
    args=()
    for a; do
        case $form:$a in
            local:@*) args+=("../tree/${a#@}") ;;
            remote:@*) args+=("$base/$(encoded "${a#@}")$query") ;;
            *) args+=("$a") ;;
        esac
    done
}
run() { # PROGRAM ARGUMENT...
    local args program=$1
    places "${@:2}"
    if [ "$form" = remote ]; then
        "${as[@]}" timeout -k 5 "$BOUND" "$client" "$program" "${args[@]}"
    elif [ "$program" = write ]; then
        # shellcheck disable=SC2016 # for the inner shell
        "${as[@]}" sh -c 'cat >"$1"' sh "${args[@]}"
    else
        "${as[@]}" env "$program" "${args[@]}"
    fi
}
# In a subshell of its own, because the judge needs mkdir and the others for itself.
namesakes() {
    local program
    for program in ls cat stat du find write rm mv mkdir ln chmod chown truncate cp; do
        eval "$program() { run $program \"\$@\"; }"
    done
}

# Runs the command in one form: TREES/tree and TREES/here are what it works on. Leaves $out.out, $out.err and `status`.
perform() { # FORM TREES OUT COMMAND
    local form=$1 out=$3
    (
        cd "$2/here" || exit 99
        umask 022
        namesakes
        eval "$4"
    ) >"$out.out" 2>"$out.err"
    status=$?
}

# --- what may differ ------------------------------------------------------------------------------------------------

# Where blocks are not told, ninefold guesses them: 4 KiB for a directory, whole blocks of 4 KiB for a file. The guess
# is compared where the file system of this machine has it so; ext4 does.
guessed=false
printf x >"$work/probe"
mkdir "$work/probe.d"
[ "$(stat -c '%b*%B' "$work/probe" "$work/probe.d" | tr '\n' ' ')" != '8*512 8*512 ' ] || guessed=true

# A text as a regular expression that matches it and nothing else.
escaped() { printf '%s' "$1" | sed -E 's/[][\\.*^$|?+(){}]/\\&/g'; }

# Standard output as it is compared: nothing is left out that the dialect and the server tell. What they do not tell is
# put into the local form as ninefold's manual has it, `?` and `-`, so that it is compared too.
plain() { # FORM WORD FILE: WORD is the command's first
    local root changes=()
    # The same file has another name: ../tree/docs here is 9p://HOST:PORT/docs?dialect=... there.
    [ "$1" = local ] && root='../tree/' || root="$base/"
    changes+=(-e "s|$(escaped "$root")|@|g" ${query:+-e "s|$(escaped "$query")||g"})
    case $2 in
        ls)
            local columns='^([-dl][-rwxsStT]{9}) +(\S+) +(\S+) +(\S+) +(\S+) '
            if [ "$1" = local ]; then
                can directory-sizes || changes+=(-e "s/^(d\S+ +\S+ +\S+ +\S+ +)[0-9]+ /\10 /")
                can links-count || changes+=(-e "s/^([-d][-rwxsStT]{9} +)[0-9]+ /\1? /")
                can links-count-of-links || changes+=(-e "s/^(l[-rwxsStT]{9} +)[0-9]+ /\1? /")
            fi
            # A column is as wide as its widest field, which may be one of those that are not told.
            can directory-sizes && can links-count && can links-count-of-links ||
                changes+=(-e "s/$columns/\1 \2 \3 \4 \5 /")
            can blocks || $guessed || changes+=(-e 's/^total [0-9]+$/total -/')
            ;;
        du) can blocks || $guessed || changes+=(-e 's/^[0-9]+/-/') ;;
        stat)
            if [ "$1" = local ]; then
                # No dialect has a device.
                changes+=(-e 's/^(Device: )[0-9]+,[0-9]+/\1-/')
                can directory-sizes || changes+=(-e 's/^(  Size: )[0-9]+ +(.* directory)$/\10         \2/')
                can blocks || changes+=(-e 's/(Blocks: )\S+ +(IO Block: )\S+ +/\1-          \2-      /')
                can links-count || changes+=(-e 's/(Links: )[0-9]+$/\1-/')
                can owner-numbers || changes+=(-e 's/([UG]id: \()[ 0-9]{5}/\1    -/g')
                can nanoseconds || changes+=(-e 's/^((Access|Modify): .*)\.[0-9]{9} /\1.000000000 /'
                    -e 's/^(Change: |  *Birth: ).*/\1-/')
                can birth || changes+=(-e 's/^( Birth: ).*/\1-/')
                # The links come a line after what it is; what is above does not see that line.
                can links-count-of-links ||
                    changes+=(-e '/ symbolic link$/{n;s/^(Device: )[0-9]+,[0-9]+/\1-/;s/(Links: )[0-9]+$/\1-/}')
            fi
            can inode || changes+=(-e 's/(Inode: )[0-9]+ +/\1- /')
            can access-times || changes+=(-e 's/^(Access: )[0-9].*/\1-/')
            ;;
    esac
    sed -E "${changes[@]}" "$3"
}

# --- judging a pair -------------------------------------------------------------------------------------------------

reads() { pair reads "$@"; }
changes() { pair changes "$@"; }

pair() { # reads|changes [-s] [-e] [-t] [-n WORD] [-r WORD] [-u] NAME COMMAND
    local kind=$1 sorted='' speaks='' beside='' needs='' refuse='' as=() OPTIND=1 option
    shift
    while getopts setn:r:u option; do
        case $option in
            s) sorted=1 ;;
            e) speaks=1 ;;
            t) beside=1 ;;
            n) needs=$OPTARG ;;
            r) needs=$OPTARG refuse=1 ;;
            u) needs=users; [ "$(id -u)" -ne 0 ] || as=(setpriv --reuid "$NOBODY" --regid "$NOBODY" --clear-groups --) ;;
            *) exit 2 ;;
        esac
    done
    shift $((OPTIND - 1))
    if [ "$#" -ne 2 ]; then
        # An option that took the name for its word, most likely.
        not_ok "$run" "a line of the session is not NAME COMMAND: $*"
        return 0
    fi
    local name=$1 command=$2 status want=$trees/want got=$trees/got
    if [ -n "$needs" ] && ! can "$needs"; then
        if [ -z "$refuse" ] || [[ " $mute " == *" $needs "* ]]; then
            left_out=$((left_out + 1))
        else
            refused "$name" "$command"
        fi
        return 0
    fi
    [ "$kind" = changes ] || want=$got
    faults=
    perform local "$want" "$trees/w" "$command"
    local wanted=$status
    perform remote "$got" "$trees/g" "$command"

    # A status beyond 0 and 1 is a wrong usage, a panic, a signal or the bound.
    local expected=0
    [ "$wanted" -eq 0 ] || expected=1
    [ "$status" -eq "$expected" ] || fault "status $status instead of $expected"
    if grep -aq panicked "$trees/g.err"; then
        fault "it panicked"
    elif [ "$expected" -eq 1 ] && [ ! -s "$trees/g.err" ]; then
        fault "it failed without a word"
    elif [ "$expected" -eq 0 ] && [ -z "$speaks" ] && [ -s "$trees/g.err" ]; then
        fault "it succeeded, and said on standard error"
    fi
    # Two empty files are equal, too.
    plain local "${command%% *}" "$trees/w.out" >"$trees/w.plain" || fault "the judge cannot read what was expected"
    plain remote "${command%% *}" "$trees/g.out" >"$trees/g.plain" || fault "the judge cannot read what came"
    if [ -n "$sorted" ]; then
        sort -o "$trees/w.plain" "$trees/w.plain"
        sort -o "$trees/g.plain" "$trees/g.plain"
    fi
    cmp -s "$trees/w.plain" "$trees/g.plain" || fault "standard output" "$trees/w.plain" "$trees/g.plain"
    if [ "$kind" = changes ]; then
        [ -z "$beside" ] || allow_names_that_came_and_went "$want" "$got"
        picture "$want" >"$trees/w.picture"
        picture "$got" >"$trees/g.picture"
        if ! cmp -s "$trees/w.picture" "$trees/g.picture"; then
            fault "what is left behind" "$trees/w.picture" "$trees/g.picture"
            # So that one difference is told once.
            mirror "$want" "$got"
        fi
    fi
    verdict "$name" "$command"
}

# A file is replaced by a new one, which was written under another name beside it: so its directory is new, too.
allow_names_that_came_and_went() { # WANT GOT
    (cd "$2" && find . -type d -newermt @1700000000 -print0) | (cd "$1" && xargs -0 -r touch -c)
}

# The dialect cannot: status 1, a line that says so, and nothing changed.
refused() { # NAME COMMAND
    local status
    faults=
    picture "$trees/got" >"$trees/w.picture"
    perform remote "$trees/got" "$trees/g" "$2"
    picture "$trees/got" >"$trees/g.picture"
    [ "$status" -eq 1 ] || fault "status $status instead of 1: it cannot be done here"
    grep -qE ': 9P2000(\.[uL])? cannot ' "$trees/g.err" || fault "it does not say that the dialect cannot"
    if ! cmp -s "$trees/w.picture" "$trees/g.picture"; then
        fault "it changed something, although it cannot be done here" "$trees/w.picture" "$trees/g.picture"
        mirror "$trees/want" "$trees/got"
    fi
    verdict "$1" "$2"
    refusals=$((refusals + 1))
}

# Makes the second like the first again, beneath the directory that is served.
mirror() { # FROM TO
    local part
    for part in tree here; do
        find "$2/$part" -mindepth 1 -delete
        cp -a "$1/$part/." "$2/$part/"
    done
}

fault() { # WHAT [EXPECTED FOUND]: two files
    faults+="$1; "
    [ "$#" -eq 3 ] || return 0
    if grep -aqP '\x00' "$2" "$3"; then
        cmp "$2" "$3"
    else
        diff -au --label expected --label found "$2" "$3" | cat -v | cut -c1-300 | head -n 60
    fi >>"$trees/details" 2>&1
}

verdict() { # NAME COMMAND
    count=$((count + 1))
    judged+=" $1 "
    [ -z "${COMMANDS_VERBOSE:-}" ] || echo "# $run/$1: ${faults:-same}" >&2
    if [ -n "$faults" ] && [ "${COMMANDS_ONLY:-$1}" = "$1" ]; then
        wrong+=" $1"
        if [ "$run" != teeth ]; then
            not_ok "$run/$1" "$2: ${faults%; }"
            {
                echo "-- $run/$1: $2"
                cat "$trees/details"
                echo "-- standard error, expected:"; head -n 5 "$trees/w.err"
                echo "-- standard error, found:"; head -n 5 "$trees/g.err"
            } >&2
        fi
    fi
    : >"$trees/details"
}

# --- the session against one server ---------------------------------------------------------------------------------

# Fresh trees, a server, the session. PIN is the dialect that the addresses ask for, if any; CANS and MUTE: see above.
session() { # RUN PIN CANS MUTE START-FUNCTION [ARGUMENT...]
    run=$1 pin=$2 cans=$3 mute=$4
    trees=$work/$run base='' query='' count=0 refusals=0 left_out=0 wrong='' judged='' faults=''
    mkdir -p "$trees/want"
    # So that nothing is known of a server that had the same port before.
    export XDG_CACHE_HOME=$trees/cache
    mkdir -m 1777 "$XDG_CACHE_HOME"
    make_trees "$trees/want" || { not_ok "$run" "making the trees"; return; }
    if can symlinks; then make_links "$trees/want"; fi
    cp -a "$trees/want" "$trees/got"
    if ! "$5" "$trees/got/tree" "${@:6}"; then
        not_ok "$run" "no server within $START s: $(tail -n 3 "$work/server.out" "$work/server.err" 2>/dev/null)"
        end_server
        return
    fi
    [ -z "$pin" ] || query="${query:-?}${query:+&}dialect=$pin"
    # shellcheck source=/dev/null
    . "$script"
    if [ "$run" != teeth ]; then
        [ -z "$server" ] || kill -0 "$server" 2>/dev/null || not_ok "$run" "the server is gone"
        [ -n "$wrong" ] || ok "$run: $count commands, $refusals of them refused as they must be, $left_out left out"
    fi
    end_server
    [ -n "${COMMANDS_KEEP:-}" ] || rm -rf "$trees"
}

# A client that does nothing and calls it done. It may pass only where there is nothing to do or to print.
teeth() {
    local unseen harmless='cat-empty find-name-of-nothing ls-empty-directory mkdir-p-existing' name before
    client=$(command -v true)
    session teeth '' "$in_L" '' no_server
    client=$NINEFOLD
    unseen=$judged
    for name in $wrong; do unseen=${unseen/" $name "/ }; done
    before=$(printf '%s\n' $unseen | sort | tr '\n' ' ')
    if [ "${before% }" = "$harmless" ]; then
        ok "teeth: $((count - 4)) of $count commands that do nothing are found out"
    else
        not_ok teeth "a client that does nothing passed: $before"
    fi
}
no_server() { base=9p://127.0.0.1:1; }

# --- the runs -------------------------------------------------------------------------------------------------------

owners='' # only root may give files away
[ "$(id -u)" -ne 0 ] || owners='chown'
tells_2000='inode access-times'
tells_u="$tells_2000 links-count owner-numbers"
tells_L="$tells_u links-count-of-links directory-sizes blocks nanoseconds"
in_2000="times users $tells_2000"
in_u="symlinks hardlinks special-modes times users $owners $tells_u"
in_L="symlinks hardlinks special-modes times users $owners $tells_L"

script=$here/commands.session
client=$NINEFOLD
# Whoever -u acts as must be able to run it.
if [ "$(id -u)" -eq 0 ] && ! setpriv --reuid "$NOBODY" --regid "$NOBODY" --clear-groups -- test -x "$NINEFOLD"; then
    cp "$NINEFOLD" "$work/ninefold" && chmod 755 "$work/ninefold" && client=$work/ninefold
fi
NINEFOLD=$client

tcp=9p://127.0.0.1:0
[ "$#" -gt 0 ] || set -- teeth ours-9P2000.L ours-9P2000.u ours-9P2000 ours-best ours-unix diod hosttree export9p export9p-silent
for name; do
    case $name in
        teeth) teeth ;;
        ours-9P2000.L) session "$name" 9P2000.L "$in_L birth" '' start_ours "$tcp" ;;
        ours-9P2000.u) session "$name" 9P2000.u "$in_u" '' start_ours "$tcp" ;;
        ours-9P2000) session "$name" 9P2000 "$in_2000" '' start_ours "$tcp" ;;
        ours-best) session "$name" '' "$in_L birth" '' start_ours "$tcp" ;;
        ours-unix) session "$name" '' "$in_L birth" '' start_ours "9p+unix:$work/socket" ;;
        diod)
            if command -v diod >/dev/null; then
                session "$name" '' "$in_L" '' start_their_diod
            else
                skip diod "diod is missing: install Debian's package diod"
            fi
            ;;
        # It has no permissions of its own, and follows links.
        hosttree) ! build_go || session "$name" '' "times $tells_2000" users start_hosttree ;;
        # So does this one; and it takes a wstat of times and leaves them, and numbers files by their path.
        export9p) ! build_go || session "$name" 9P2000 directory-sizes 'users times' start_export9p ;;
        export9p-silent)
            # One command is enough: the wait for what never comes is 15 s. ninefold tells how to save it.
            if build_go; then
                printf '%s\n' "reads -e cat-one 'cat @readme'" >"$work/one.session"
                script=$work/one.session
                session "$name" '' directory-sizes 'users times' start_export9p
                script=$here/commands.session
            fi
            ;;
        *) not_ok "$name" "no such run" ;;
    esac
done
finish
