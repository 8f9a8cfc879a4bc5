#!/usr/bin/env bash
# A foreign judge of a 9P2000.L server: the client tools of Debian's `diod`
# package (1.0.24), run against `ninefold serve` or against diod itself.
#
#   NINEFOLD=/path/to/ninefold ./diod.sh          judge our server
#   DIOD_JUDGE_TARGET=diod     ./diod.sh          the same cases against diod
#   DIOD_JUDGE_TARGET=127.0.0.1:PORT:DIR[:CTLDIR] a server already running
#       on a tree made before with:  ./diod.sh --make-tree DIR CTLDIR
#
# Prints `ok NAME`, `not ok NAME - why` or `skip NAME - why` for each case, then
# the sum; exit status 0 iff nothing failed.
#
# DIOD_JUDGE_ANAME    aname for diodcat, diodls and mount.diod (default: diod the
#                     exported path, otherwise empty: a 0-length string)
# DIOD_JUDGE_SERVE    further words for `ninefold serve`
# DIOD_JUDGE_NO_CTL=1 skip what needs the aname "ctl" (see below)
# DIOD_JUDGE_KEEP=1   keep the tree and the logs
#
# What the package can judge, from its source:
#   diodcat        walk, lopen O_RDONLY, read to 0, clunk          any aname
#   diodls [-l]    walk (0 names, too), lopen, getattr, readdir    any aname
#   mount.diod -f  version, auth, attach, clunk, no kernel mount   any aname or none
#   diodload       read "zero", WRITE "null" (the only writer)     aname "ctl" only
#   diodload -g    getattr of "null"                               aname "ctl" only
#   dioddate       read "date", parsed                             aname "ctl" only
#   diodshowmount  read "connections", parsed                      aname "ctl" only
# The last four compile in the aname "ctl", diod's synthetic tree, but all they
# ask of it is plain files of those names: with an export called "ctl" holding
# such files they work against any server.
# Left out:
#   dtop           a curses screen; needs a terminal, and diod's own tpools,
#                  meminfo and connections formats; no message the rest lack.
#   dioddate -S    sets this machine's clock.
#   mount.diod     without -f: needs the 9p kernel module and CAP_SYS_ADMIN.
#   create, mkdir, rename, remove, setattr, fsync, statfs, readlink, lock, xattr, flush:
#                  no tool in the package sends them.
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export TZ=UTC

T=${DIOD_JUDGE_TARGET:-ninefold}
# The bound on one tool call, seconds.
BOUND=30
MSIZE=65536

make_tree() { # DIR CTLDIR
  local d=$1 c=$2 i p
  mkdir -p "$d/sub/deeper/deepest" "$d/many" "$d/empty" "$c" || return
  : >"$d/zero-bytes"
  printf x >"$d/one-byte"
  head -c 4096 /dev/urandom >"$d/page"
  head -c $((MSIZE - 24)) /dev/urandom >"$d/one-read"      # exactly one Tread
  head -c $((MSIZE - 23)) /dev/urandom >"$d/one-read+1"
  head -c $((1048576 + 7)) /dev/urandom >"$d/mebi+7"
  head -c $((40 * 1048576)) /dev/urandom >"$d/forty-mebi"
  printf 'spaces\n' >"$d/a name with  spaces"
  printf 'utf-8\n' >"$d/grüße-日本語-🗂"
  printf 'deep\n' >"$d/sub/deeper/deepest/leaf"
  printf 'hidden\n' >"$d/.hidden"
  i=$(printf 'n%.0s' {1..255}); printf 'long\n' >"$d/$i"   # NAME_MAX
  ln -s page "$d/link" && ln -s nowhere "$d/dangling" && mkfifo "$d/fifo" || return
  ln "$d/page" "$d/sub/hard"
  p=$d/chain; for i in {1..40}; do p+=/d$i; done           # > 2 * MAXWELEM (16)
  mkdir -p "$p" && printf 'chained\n' >"$p/leaf" || return
  for i in {1..300}; do printf '%s\n' "$i" >"$d/many/entry-$(printf %03d "$i")"; done
  mkdir "$d/thousands" && (cd "$d/thousands" &&            # > one Rreaddir of 64 KiB
    for i in {1..3000}; do : >"$(printf 'quite-a-long-entry-name-%04d' "$i")"; done) || return
  chmod 0600 "$d/page"; chmod 0755 "$d/one-byte"; chmod 0777 "$d/empty"
  chown 1:1 "$d/one-byte" 2>/dev/null
  touch -d '2001-02-03 04:05:06' "$d/zero-bytes"
  chmod 0644 "$d/page"
  # The plain files that stand in for diod's synthetic ones.
  head -c 262144 /dev/urandom >"$c/zero"
  : >"$c/null"; chmod 666 "$c/null"
  printf '981173106.000000 0.0' >"$c/date"
  printf 'alpha.example 1 0\nbeta.example 2 0\nbeta.example 1 0\n' >"$c/connections"
  printf 'stand-in 1\n' >"$c/version"
}

if [ "${1-}" = --make-tree ]; then make_tree "$2" "$3"; exit; fi

bail() { not_ok start "$1: $(tail -n 5 "$work/server.err" 2>/dev/null)"; finish; }

for t in diodcat diodls diodload dioddate diodshowmount mount.diod; do
  command -v $t >/dev/null || { skip diod "$t is missing: install Debian's package diod"; finish; }
done

begin diod-judge "${DIOD_JUDGE_KEEP:-}"
W=$work D=$work/tree C=$work/ctl
chmod 755 "$work" # a server that squashes root must still get in

CTL_REAL=; ANAME=${DIOD_JUDGE_ANAME-}
case $T in
  ninefold)
    : "${NINEFOLD:?set NINEFOLD to the ninefold binary, or DIOD_JUDGE_TARGET=diod}"
    make_tree "$D" "$C" || bail "making the tree"
    # shellcheck disable=SC2086
    serve "$D" --export "ctl=$C" --listen 9p://127.0.0.1:0 ${DIOD_JUDGE_SERVE:-} ||
      bail "no line with 9p://127.0.0.1:PORT within $START s"
    PORT=${base##*:} ;;
  diod)
    make_tree "$D" "$C" || bail "making the tree"
    CTL_REAL=1 ANAME=${DIOD_JUDGE_ANAME-$D}
    start_diod "$D" -e ctl || bail "diod did not listen"
    PORT=$port ;;
  *:*:*) IFS=: read -r _ PORT D C <<<"$T"
    [ -n "$C" ] || DIOD_JUDGE_NO_CTL=1 ;;
  *) not_ok start "DIOD_JUDGE_TARGET=$T"; finish ;;
esac
S=127.0.0.1:$PORT
echo "# target $T at $S, aname '$ANAME'"

# Every call is bounded from outside. Standard error counts: diodls -l and diodload
# report failures there and still exit 0.
run() { # OUT CMD...: status in RC, standard error in ERR
  local out=$1; shift
  timeout -k 2 "$BOUND" "$@" >"$out" 2>"$W/err"; RC=$?
  ERR=$(cat "$W/err"); [ $RC = 124 ] && ERR="still running after $BOUND s; $ERR"
}
clean() { [ $RC = 0 ] && [ -z "$ERR" ]; }
why() { echo "status $RC: $ERR"; }
cat9() { run "$1" diodcat -s "$S" -a "$ANAME" "${@:2}"; }
ls9() { run "$1" diodls -s "$S" -a "$ANAME" "${@:2}"; }

# --- handshake ------------------------------------------------------------------
# mount.diod insists on root, and on an existing directory to mount on.
if [ "$(id -u)" = 0 ]; then
  run "$W/o" mount.diod -f -n -o "port=$PORT" "127.0.0.1:$ANAME" "$D"
  clean && ok handshake || not_ok handshake "$(why)"
  if [ "$T" = diod ]; then skip handshake-empty-aname "diod refuses an attach without a path (EPERM)"
  else run "$W/o" mount.diod -f -n -o "port=$PORT" 127.0.0.1 "$D"
    clean && ok handshake-empty-aname || not_ok handshake-empty-aname "$(why)"; fi
  for m in 4096 8192 262144; do # the last: diod caps at 65536, the client must live with it
    run "$W/o" mount.diod -f -n -o "port=$PORT,msize=$m" "127.0.0.1:$ANAME" "$D"
    clean && ok handshake-msize-$m || not_ok handshake-msize-$m "$(why)"
  done
else skip handshake "mount.diod must be root"; fi
run "$W/o" diodcat -s "$S" -a "/no such export $$" x
if [ $RC = 1 ] && [[ $ERR == *"error attaching to aname"* ]]; then ok attach-unknown-refused
else not_ok attach-unknown-refused "$(why)"; fi

# --- read -----------------------------------------------------------------------
same() { # NAME PATH [diodcat options]
  cat9 "$W/o" "${@:3}" "$2"
  if ! clean; then not_ok "$1" "$(why)"
  elif ! cmp -s "$W/o" "$D/$2"; then not_ok "$1" "$(cmp "$W/o" "$D/$2" 2>&1)"
  else ok "$1"; fi
}
same read-0 zero-bytes
same read-1 one-byte
same read-4096 page
same read-one-full-message one-read
same read-one-full-message+1 one-read+1
same read-1MiB+7 mebi+7
same read-40MiB forty-mebi
same read-name-with-spaces "a name with  spaces"
same read-name-utf8 "grüße-日本語-🗂"
same read-name-255 "$(printf 'n%.0s' {1..255})"
same read-dotfile .hidden
same read-nested sub/deeper/deepest/leaf
same read-slashes //sub///deeper//deepest/leaf
same read-through-42-names "chain/$(printf 'd%d/' {1..40})leaf"
same read-hard-link sub/hard
same read-msize-4096 mebi+7 -m 4096
same read-msize-8192 mebi+7 -m 8192
same read-msize-131072 mebi+7 -m 131072
same read-msize-1MiB mebi+7 -m 1048576
# 4096 is the least msize that a server must take; ninefold answers less with "unknown", diod takes it.
same read-msize-4097 page -m 4097

cat9 "$W/o" page one-byte zero-bytes mebi+7 sub/deeper/deepest/leaf
(cd "$D" && cat page one-byte zero-bytes mebi+7 sub/deeper/deepest/leaf) >"$W/e"
if clean && cmp -s "$W/o" "$W/e"; then ok read-several-on-one-attach
else not_ok read-several-on-one-attach "$(why)"; fi

pids=(); for i in 1 2 3 4 5 6; do
  timeout -k 2 "$BOUND" diodcat -s "$S" -a "$ANAME" mebi+7 >"$W/p$i" 2>>"$W/perr" & pids+=($!); done
r=0; for p in "${pids[@]}"; do wait "$p" || r=1; done
for i in 1 2 3 4 5 6; do cmp -s "$W/p$i" "$D/mebi+7" || r=1; done
[ $r = 0 ] && ok read-6-connections || not_ok read-6-connections "$(cat "$W/perr")"

fails() { # NAME PATH MESSAGE: refused with exactly this errno
  cat9 "$W/o" "$2"
  if [ $RC = 1 ] && [ ! -s "$W/o" ] && [[ $ERR == *": $3" ]]; then ok "$1"; else not_ok "$1" "wanted '$3', $(why)"; fi
}
fails missing-file nope "No such file or directory"
# A partial walk. The client clunks the newfid it believes to have: a fid that a
# correct server never made. The refusal of that Tclunk must not cost the connection
# nor change the error shown.
fails missing-after-partial-walk sub/deeper/nope/leaf "No such file or directory"
fails missing-last-of-walk sub/deeper/nope "No such file or directory"
fails missing-in-third-walk "chain/$(printf 'd%d/' {1..40})nope" "No such file or directory"
cat9 "$W/o" page/below-a-file
if [ $RC = 1 ] && [[ $ERR == *"Not a directory"* || $ERR == *"No such file"* ]]; then ok walk-below-a-file
else not_ok walk-below-a-file "$(why)"; fi
cat9 "$W/o" sub # a directory opens, but Tread of it is an error (EISDIR)
if [ $RC = 1 ] && [[ $ERR == *"Is a directory" ]]; then ok read-directory-refused; else not_ok read-directory-refused "$(why)"; fi

# --- list -----------------------------------------------------------------------
sorted() { sort "$1" >"$1.s"; }
names() { # NAME PATH [options]
  ls9 "$W/o" "${@:3}" ${2:+"$2"}
  (cd "$D/$2" && ls -1A) | sort >"$W/e.s"; sorted "$W/o"
  if ! clean; then not_ok "$1" "$(why)"
  elif ! cmp -s "$W/o.s" "$W/e.s"; then not_ok "$1" "$(diff "$W/o.s" "$W/e.s" | head -3)"
  else ok "$1"; fi
}
names list-root ""
names list-empty empty
names list-nested sub/deeper
names list-300 many
names list-3000 thousands
names list-3000-msize-4096 thousands -m 4096
names list-300-msize-4096 many -m 4096
ls9 "$W/o" page; clean && [ "$(cat "$W/o")" = page ] && ok list-a-file || not_ok list-a-file "$(why)"
ls9 "$W/o" empty sub/deeper
if clean && [ "$(cat "$W/o")" = $'empty:\n\nsub/deeper:\ndeepest' ]; then ok list-two; else not_ok list-two "$(why)"; fi
ls9 "$W/o" nope
if [ $RC = 1 ] && [[ $ERR == *"No such file or directory" ]]; then ok list-missing; else not_ok list-missing "$(why)"; fi

# diodls -l: for each entry Twalk 1 name FROM THE OPENED directory fid, Tgetattr,
# Tclunk. It is shown as: type (d or -) and permissions, links, owner, group, size,
# time without its year, name. "." and ".." appear only if Rreaddir has them.
long_of() { # DIR: the same view from here
  (cd "$1" && find . -mindepth 1 -maxdepth 1 -printf '%y\t%M\t%n\t%u\t%g\t%s\t%Tb %Td %TH:%TM\t%f\n') |
    awk -F'\t' '{ split($7, t, " "); printf "%s%s. %4d %s %s %12d %s %2d %s %s\n",
      ($1 == "d" ? "d" : "-"), substr($2, 2, 9), $3, $4, $5, $6, t[1], t[2], t[3], $8 }' | tr S s | tr T t
}
long() { # NAME PATH
  ls9 "$W/o" -l ${2:+"$2"}
  grep -vE ' \.\.?$' "$W/o" | tr S s | tr T t | sort >"$W/o.s"; long_of "$D/$2" | sort >"$W/e.s"
  if ! clean; then not_ok "$1" "$(why)"
  elif ! cmp -s "$W/o.s" "$W/e.s"; then not_ok "$1" "$(diff "$W/o.s" "$W/e.s" | head -4)"
  else ok "$1"; fi
}
long stat-root ""
long stat-nested sub
long stat-300 many
ls9 "$W/o" -l zero-bytes
if clean && [[ $(cat "$W/o") == "-rw-r--r--. "*" 0 Feb  3 04:05 zero-bytes" ]]; then ok stat-a-file
else not_ok stat-a-file "$(why) $(cat "$W/o")"; fi

# A fifo: diodls opens what it is told to list, O_RDONLY, before it looks at it.
# Whether that succeeds is the server's choice; that it answers is not.
BOUND=10; ls9 "$W/o" fifo; BOUND=30
if [ "$T" = diod ]; then skip fifo-open-answers "diod 1.0.24 blocks one worker in open(2) ($(why))"
elif [ $RC = 124 ]; then not_ok fifo-open-answers "$(why)"; else ok fifo-open-answers; fi
# A dangling link: again, an answer, no matter which.
ls9 "$W/o" dangling; [ $RC != 124 ] && ok dangling-link-open-answers || not_ok dangling-link-open-answers "$(why)"
# The server lives on after all of these.
same alive-after-refusals page

# --- aname "ctl": load, WRITE, date, connections ----------------------------------
if [ -n "${DIOD_JUDGE_NO_CTL:-}" ]; then
  skip ctl "no export named ctl"
else
  run "$W/o" diodcat -s "$S" version # aname "ctl" and file "version" are its defaults
  if ! clean; then not_ok ctl-read "$(why)"
  elif [ -z "$CTL_REAL" ] && ! cmp -s "$W/o" "$C/version"; then not_ok ctl-read "other bytes"
  elif [ ! -s "$W/o" ]; then not_ok ctl-read "empty"; else ok ctl-read; fi

  run "$W/o" dioddate -s "$S"
  if ! clean; then not_ok ctl-date "$(why)"
  elif [ -z "$CTL_REAL" ] && [ "$(cat "$W/o")" != "Sat Feb  3 04:05:06 2001" ]; then not_ok ctl-date "$(cat "$W/o")"
  elif ! date -d "$(cat "$W/o")" >/dev/null 2>&1; then not_ok ctl-date "$(cat "$W/o")"; else ok ctl-date; fi

  run "$W/o" diodshowmount -l -s "$S"
  if ! clean; then not_ok ctl-connections "$(why)"
  elif [ -z "$CTL_REAL" ] && [ "$(sort "$W/o")" != $'alpha.example\nbeta.example' ]; then not_ok ctl-connections "$(cat "$W/o")"
  elif [ ! -s "$W/o" ]; then not_ok ctl-connections empty; else ok ctl-connections; fi

  # diodload: per thread one connection; reads msize-24 bytes of "zero" at 0, writes
  # them to "null" at 0, O_WRONLY, at least 100 times, until the time is over.
  load() { # NAME EXPECTED-SIZE [options]
    [ -z "$CTL_REAL" ] && : >"$C/null"
    run "$W/o" diodload -s "$S" -r 1 "${@:3}"
    if [ $RC != 0 ] || ! [[ $ERR =~ ^diodload:\ ([0-9]+)\ ops/s ]] || [ "${BASH_REMATCH[1]}" = 0 ] ||
      [ "$(wc -l <"$W/err")" != 1 ]; then not_ok "$1" "$(why)"
    elif [ -z "$CTL_REAL" ] && [ "$2" != - ] && ! cmp -s "$C/null" <(head -c "$2" "$C/zero"); then
      not_ok "$1" "null holds $(stat -c %s "$C/null") bytes, or other ones than the first $2 of zero"
    else ok "$1"; echo "# $1: ${ERR#diodload: }"; fi
  }
  load write-1-connection $((MSIZE - 24)) -n 1
  load write-4-connections $((MSIZE - 24)) -n 4
  load write-msize-8192 $((8192 - 24)) -n 1 -m 8192
  load getattr-load - -n 2 -g
fi

# --- optional: create, write, mkdir, chmod, remove over diod's own client library ---
# DIOD_JUDGE_NPCLI: a program linked to diod's libnpclient, which the package does not
# ship; usage  PORT ANAME MSIZE put|patch|mkdir|rm|rmopen|chmod|stat ARGS
# (put PATH MODE and patch PATH OFFSET take the data on standard input).
if [ -n "${DIOD_JUDGE_NPCLI:-}" ]; then
  np() { # stdin-file NAME-of-command ARGS
    timeout -k 2 "$BOUND" "$DIOD_JUDGE_NPCLI" "$PORT" "$ANAME" "${M:-$MSIZE}" "${@:2}" <"$1" >"$W/o" 2>"$W/err"
    RC=$?; ERR=$(cat "$W/err")
  }
  X=$D/work; mkdir -m 777 "$X"; chmod 777 "$X"
  put() { # NAME SIZE MSIZE
    head -c "$2" /dev/urandom >"$W/in"; M=$3 np "$W/in" put "work/$1" 640
    if clean && cmp -s "$W/in" "$X/$1"; then ok "create-$1"; else not_ok "create-$1" "$(why)"; fi
  }
  put w0 0 $MSIZE; put w1 1 $MSIZE; put w65512 65512 $MSIZE; put w65513 65513 $MSIZE
  put w3MiB+5 $((3 * 1048576 + 5)) $MSIZE; put w1MiB-by-4096 1048576 4096; put "w ü name" 9 $MSIZE
  [ "$(stat -c %a "$X/w1")" = 640 ] && ok create-mode || not_ok create-mode "$(stat -c %a "$X/w1" 2>&1)"
  cp "$X/w3MiB+5" "$X/again" 2>/dev/null; put again 10 $MSIZE # Tlcreate with O_TRUNC of a longer existing file
  printf ABC >"$W/in"; cp "$X/w65513" "$W/e" 2>/dev/null; np "$W/in" patch work/w65513 1000
  dd if="$W/in" of="$W/e" bs=1 seek=1000 conv=notrunc status=none
  clean && cmp -s "$W/e" "$X/w65513" && ok write-in-the-middle || not_ok write-in-the-middle "$(why)"
  np "$W/in" patch work/w1 5000000000 # a hole, beyond 4 GiB
  clean && [ "$(stat -c %s "$X/w1" 2>&1)" = 5000000003 ] && ok write-beyond-4GiB || not_ok write-beyond-4GiB "$(why)"
  np /dev/null mkdir work/dir 750
  clean && [ "$(stat -c %F-%a "$X/dir")" = directory-750 ] && ok mkdir || not_ok mkdir "$(why)"
  np /dev/null mkdir work/dir 750
  [ $RC = 1 ] && [[ $ERR == *"File exists" ]] && ok mkdir-exists || not_ok mkdir-exists "$(why)"
  np /dev/null chmod work/w0 4711
  clean && [ "$(stat -c %a "$X/w0")" = 4711 ] && ok chmod || not_ok chmod "$(why)"
  np /dev/null stat work/w65512
  clean && [[ $(cat "$W/o") == "100640 $(stat -c '%u %g' "$X/w65512") 1 65512 $(stat -c %Y "$X/w65512")" ]] && ok stat ||
    not_ok stat "$(why) $(cat "$W/o")"
  touch "$X/dir/x" 2>/dev/null; np /dev/null rm work/dir
  [ $RC = 1 ] && [[ $ERR == *"Directory not empty" ]] && [ -d "$X/dir" ] && ok remove-full-dir-refused || not_ok remove-full-dir-refused "$(why)"
  np /dev/null rm work/dir/x; clean && [ ! -e "$X/dir/x" ] && ok remove-file || not_ok remove-file "$(why)"
  np /dev/null rm work/dir; clean && [ ! -e "$X/dir" ] && ok remove-dir || not_ok remove-dir "$(why)"
  np /dev/null rmopen work/w65512; clean && [ ! -e "$X/w65512" ] && ok remove-open || not_ok remove-open "$(why)"
  np /dev/null rm work/nope
  [ $RC = 1 ] && [[ $ERR == *"No such file or directory" ]] && ok remove-missing || not_ok remove-missing "$(why)"
  ln -s ../page "$X/ln"; np /dev/null rm work/ln
  clean && [ ! -L "$X/ln" ] && [ -e "$D/page" ] && ok remove-link-not-target || not_ok remove-link-not-target "$(why)"
fi

# --- the server's end -------------------------------------------------------------
if [ -n "$server" ]; then
  if ! kill -0 "$server" 2>/dev/null; then not_ok server-alive "it ended"
  elif [ "$T" = diod ]; then ok server-alive
  else
    ok server-alive
    kill -TERM "$server"; for _ in {1..100}; do kill -0 "$server" 2>/dev/null || break; sleep 0.1; done
    if kill -0 "$server" 2>/dev/null; then not_ok server-ends-on-TERM "still there after 10 s"
    else wait "$server"; r=$?; server=; [ $r = 0 ] && ok server-ends-on-TERM || not_ok server-ends-on-TERM "status $r"; fi
  fi
fi
finish
