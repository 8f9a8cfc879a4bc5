#!/usr/bin/env bash
# Files, directories, names and paths at the ends of what there is, listed, copied there and back and removed by our
# command line:
#   sparse   a file of 20 GB with 6 MB of data in it; its copies must allocate under 1 GB
#   many     a directory of 100,000 files
#   names    names of 255 bytes in any encoding, and in none
#   deep     a path 60 levels deep, and one longer than a path may be in one system call (PATH_MAX)
#
#   NINEFOLD=/path/to/ninefold ./extremes.sh [RUN...]
#
# RUN is 9P2000.L, 9P2000.u, 9P2000 (ninefold serve, the dialect pinned) or diod (names and deep only); all when none is
# named. The sparse file has 20 GB in 9P2000.L and 2 GB elsewhere, because its zeros travel: no dialect tells where
# the holes are. FULL=1 makes it 20 GB everywhere. It lies in ${TMPDIR:-/tmp}; the rest in /dev/shm where that has room,
# because 100,000 names made and removed seven times are a matter of minutes for a disk that others use too.
#
# EXTREMES_KEEP=1 keeps the files and the logs. Lines that begin with # are figures; none of them is judged but the
# blocks that the sparse copies allocate.
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export TZ=UTC
: "${NINEFOLD:?set NINEFOLD to the ninefold binary}"
NINEFOLD=$(realpath "$NINEFOLD")

# The bound on one command, seconds.
BOUND=300
GB=1000000000
# What a copy of the sparse file may allocate, in bytes.
ALLOCATED=$GB
ENTRIES=100000
LEVELS=60

memory=''
at_the_end() {
    [ -z "$memory" ] || [ "$memory" = "$work" ] || [ -n "${EXTREMES_KEEP:-}" ] || rm -rf "$memory"
}
begin extremes "${EXTREMES_KEEP:-}"
export XDG_CACHE_HOME=$work/cache
# KiB that three directories of the files need, a page each and as much again for what holds them.
NEEDED=$((3 * ENTRIES * 8))
memory=$work
if [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt "$NEEDED" ]; then
    memory=$(mktemp -d /dev/shm/extremes.XXXXXX) || exit 1
    [ -z "${EXTREMES_KEEP:-}" ] || echo "# kept $memory" >&2
fi
mkdir "$XDG_CACHE_HOME"

figure() { echo "# $*"; }

# --- a case ---------------------------------------------------------------------------------------------------------
#
# A case is a function that calls `nine` and `must`. The first thing that fails is remembered in `why`, and what
# follows is left out.

# nine SUBCOMMAND ARGUMENT...: runs ninefold; its output is in $work/out. `seconds` is how long it took.
nine() {
    [ -z "$why" ] || return 1
    local before=$EPOCHREALTIME status=0
    timeout -k 5 "$BOUND" "$NINEFOLD" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    seconds=$(awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    [ "$status" -eq 0 ] || why="ninefold $*: status $status: $(tail -n 2 "$work/err")"
    [ "$status" -eq 0 ]
}

# must WHAT COMMAND...: what is expected, and a command that tells whether it is so.
must() {
    [ -z "$why" ] || return 1
    "${@:2}" >"$work/must" 2>&1 || why="$1: $(tail -n 3 "$work/must")"
    [ -z "$why" ]
}

judge() { # NAME FUNCTION
    why='' figures=''
    mkdir -p "$export" "$here"
    "$2"
    if [ -n "$why" ]; then not_ok "$1" "$why"; else ok "$1"; fi
    [ -z "$figures" ] || figure "$1: $figures"
    # What a case that failed left must not stand in the way of the next.
    rm -rf "${export:?}"/* "$here"
}
note() { figures+="${figures:+, }$*"; }

missing() { [ ! -e "$1" ] && [ ! -L "$1" ]; }
allocated() { echo $(($(stat -c '%b * %B' "$1"))); }
equal() { [ "$1" = "$2" ] || { echo "$1 instead of $2"; false; }; }

# What a file holds, without a look into its holes: every 4 KiB that are not all zero, with where they stand. 20 GB of
# zeros are not read, and two files of the same bytes are the same wherever their holes are.
# Perl because no Unix program tells where data is (SEEK_DATA is 3, SEEK_HOLE 4: lseek(2)); Debian has it always.
data_of() { # FILE
    perl -MErrno -e '
        open my $f, "<:raw", $ARGV[0] or die "$ARGV[0]: $!";
        my $end = -s $f;
        my ($at, $zeros) = (0, "\0" x 4096);
        print "$end\n";
        while ($at < $end) {
            my $data = sysseek($f, $at, 3);
            defined $data or $!{ENXIO} ? last : die "SEEK_DATA: $!";
            my $hole = sysseek($f, $data, 4) or die "SEEK_HOLE: $!";
            $at = int($data / 4096) * 4096;
            sysseek($f, $at, 0);
            while ($at < $hole) {
                my $n = sysread($f, my $block, 4096) // die "read: $!";
                $n or last;
                print "$at ", $block, "\n" if $block ne substr($zeros, 0, $n);
                $at += $n;
            }
        }' "$1" | cksum
}

below() { [ "$1" -lt "$2" ] || { echo "$1, which is not below $2"; false; }; }

at() { printf '%s' "$base/$1$query"; } # the address of PATH

# Names, types, modes and sizes of all in a directory, and the bytes of its files in the order of their names.
contents() { # DIR
    (cd "$1" && find . -mindepth 1 -printf '%y %m %s %P\0' | sed -z -E 's/^(d \S+) \S+/\1/' | sort -z | cksum)
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r cat | cksum)
}
same_contents() { diff <(contents "$1") <(contents "$2"); }

# --- the cases ------------------------------------------------------------------------------------------------------

sparse() {
    local size=$((2 * GB)) f=$export/sparse sum offset
    [ "$run" != 9P2000.L ] && [ -z "${FULL:-}" ] || size=$((20 * GB))
    truncate -s "$size" "$f"
    # At the front, in the middle across no boundary of anything, and at the end.
    for offset in 0 $((size / 2 + 12345)) $((size - 2000000)); do
        head -c 2000000 /dev/urandom | dd of="$f" bs=1M seek="$offset" oflag=seek_bytes conv=notrunc status=none
    done
    sum=$(data_of "$f")
    note "$size bytes, $(allocated "$f") of them allocated"

    nine ls -l "$(at sparse)"
    must "the length listed" equal "$(awk '{ print $5 }' "$work/out")" "$size"

    nine cp "$(at sparse)" "$here/down" && note "from the server in $seconds s, $(allocated "$here/down") allocated"
    must "bytes copied from the server" equal "$(data_of "$here/down")" "$sum"
    must "allocated here" below "$(allocated "$here/down")" "$ALLOCATED"

    nine cp "$here/down" "$(at up)" && note "to it in $seconds s, $(allocated "$export/up") allocated"
    must "bytes copied to the server" equal "$(data_of "$export/up")" "$sum"
    must "allocated there" below "$(allocated "$export/up")" "$ALLOCATED"

    nine rm "$(at sparse)" "$(at up)"
    must "the file is removed" missing "$f"
    must "its copy is removed" missing "$export/up"
}

many() {
    mkdir "$export/many"
    # Each file holds its number.
    (cd "$export/many" && seq "$ENTRIES" | split -l 1 -a 6 -d - entry-)
    must "the files are there" equal "$(find "$export/many" -type f | wc -l)" "$ENTRIES"

    nine ls "$(at many)" && note "listed in $seconds s"
    must "the names listed" cmp "$work/out" <(ls "$export/many")
    nine ls -l "$(at many)" && note "with their attributes in $seconds s"
    must "files listed with their attributes" equal "$(grep -c '^-' "$work/out")" "$ENTRIES"
    nine find "$(at many)" -type f && note "found in $seconds s"
    must "files found" equal "$(wc -l <"$work/out")" "$ENTRIES"

    nine cp -r "$(at many)" "$here/many" && note "copied from the server in $seconds s"
    must "what was copied from the server" same_contents "$export/many" "$here/many"
    nine cp -r "$here/many" "$(at up)" && note "to it in $seconds s"
    must "what was copied to the server" same_contents "$here/many" "$export/up"

    nine rm -r "$(at many)" "$(at up)" && note "both removed in $seconds s"
    must "the directory is removed" missing "$export/many"
    must "its copy is removed" missing "$export/up"
}

names() {
    local d=$export/names all='' i n
    local -a long
    mkdir "$d"
    # long[INDEX] is TEXT, COUNT times, and END. Not by command substitution, which drops newlines.
    repeated() { # INDEX TEXT COUNT END
        printf -v "long[$1]" -- "$2%.0s" $(seq "$3")
        long[$1]+=$4
    }
    repeated 0 n 255 ''
    repeated 1 é 127 x
    repeated 2 日 85 ''
    repeated 3 🗂 63 abc
    repeated 4 '\xe9' 255 '' # Latin-1
    repeated 5 '\xff' 127 "$(printf '\x80%.0s' {1..128})"
    repeated 6 - 255 ''
    repeated 7 ' ' 255 ''
    repeated 8 '\n' 255 ''
    repeated 9 . 255 ''
    for i in {1..255}; do # every byte but NUL and /
        [ "$i" -eq 47 ] || printf -v all '%s%b' "$all" "$(printf '\\x%02x' "$i")"
    done
    long[10]=${all}z
    for n in "${long[@]}"; do
        must "a name of 255 bytes" equal "${#n}" 255
        printf '%s' "$n" >"$d/$n"
    done
    n=${long[4]:1}d
    mkdir "$d/$n" && printf x >"$d/$n/${long[8]}" # as a directory, too
    nine ls -a "$(at names)"
    must "the names listed" cmp "$work/out" <(ls -a "$d")
    nine ls -la "$(at names)"
    must "the names listed with their attributes" equal "$(tail -n +2 "$work/out" | grep -ac '^[-d][rwx-]\{9\} ')" \
        $(($(find "$d" -maxdepth 1 -printf x | wc -c) + 1)) # find has . itself, ls has .. too
    nine cp -r "$(at names)" "$here/names"
    must "what was copied from the server" same_contents "$d" "$here/names"
    nine cp -r "$here/names" "$(at up)"
    must "what was copied to the server" same_contents "$d" "$export/up"
    nine rm -r "$(at names)" "$(at up)"
    must "the directory is removed" missing "$d"
    must "its copy is removed" missing "$export/up"
}

# A chain of directories with a file at its end.
chain() { # DIR NAME-OF-A-LEVEL: makes DIR and LEVELS below it
    (
        mkdir "$1" && cd "$1" || exit
        for ((i = 1; i <= LEVELS; i++)); do mkdir "$2$i" && cd "$2$i" || exit; done
        printf 'the end\n' >leaf
    )
}
# What find says of it, which goes down step by step and so is not bound by PATH_MAX.
shape() { (cd "$1" && find . -printf '%y %m %s %d %f\n' | sed -E 's/^(d \S+) \S+/\1/' | sort); }
same_shape() { diff <(shape "$1") <(shape "$2"); }

deep() {
    local path='' i
    chain "$export/deep" level- || why="making the path"
    for ((i = 1; i <= LEVELS; i++)); do path+=/level-$i; done
    nine cat "$(at "deep$path/leaf")"
    must "what the file at the end holds" equal "$(cat "$work/out")" 'the end'
    nine ls -R "$(at deep)"
    must "directories listed" equal "$(grep -c ':$' "$work/out")" $((LEVELS + 1))
    nine cp -r "$(at deep)" "$here/deep"
    must "what was copied from the server" same_contents "$export/deep" "$here/deep"
    nine cp -r "$here/deep" "$(at up)"
    must "what was copied to the server" same_contents "$export/deep" "$export/up"
    nine rm -r "$(at deep)" "$(at up)"
    must "the path is removed" missing "$export/deep"
    must "its copy is removed" missing "$export/up"
}

deeper() {
    # 60 times 200 bytes and more: three times PATH_MAX.
    chain "$export/deeper" "$(printf 'l%.0s' {1..200})-" || why="making the path"
    nine find "$(at deeper)" -type f
    must "the file at the end is found" equal "$(grep -cF "/leaf$query" "$work/out")" 1
    nine cp -r "$(at deeper)" "$here/deeper"
    must "what was copied from the server" same_shape "$export/deeper" "$here/deeper"
    nine cp -r "$here/deeper" "$(at up)"
    must "what was copied to the server" same_shape "$export/deeper" "$export/up"
    nine rm -r "$(at deeper)" "$(at up)"
    must "the path is removed" missing "$export/deeper"
    must "its copy is removed" missing "$export/up"
}

# --- servers --------------------------------------------------------------------------------------------------------

start_ours() { serve "$export" --listen 9p://127.0.0.1:0; }

start_their_diod() {
    start_diod "$export" || return
    base=9p://127.0.0.1:$port
}

# --- the runs -------------------------------------------------------------------------------------------------------

session() { # RUN PLACE START-FUNCTION CASE...: PLACE is where everything lies
    local case
    run=$1 query=''
    export=$2/$run here=$2/local
    mkdir -p "$export"
    if ! "$3"; then
        not_ok "extremes-$run" "no server within $START s: $(tail -n 3 "$work/server.err")"
        end_server
        return
    fi
    if [ "$run" = diod ]; then
        # It attaches what it exports by its path only, of which no byte needs to be encoded.
        query="?aname=$export"
    else
        query="?dialect=$run"
    fi
    for case in "${@:4}"; do judge "$run/$case" "$case"; done
    kill -0 "$server" 2>/dev/null || not_ok "extremes-$run" "the server is gone: $(tail -n 3 "$work/server.err")"
    end_server
    rm -rf "$export"
}

[ "$#" -gt 0 ] || set -- 9P2000.L 9P2000.u 9P2000 diod
for run; do
    case $run in
        9P2000*)
            session "$run" "$work" start_ours sparse
            session "$run" "$memory" start_ours many names deep deeper
            ;;
        diod)
            if command -v diod >/dev/null; then
                session diod "$memory" start_their_diod names deep
            else
                skip diod "diod is missing: install Debian's package diod"
            fi
            ;;
        *) not_ok "$run" "no such run" ;;
    esac
done
finish
