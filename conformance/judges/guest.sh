#!/usr/bin/env bash
# Puts Linux's own 9P client to the server: Debian's kernel in a QEMU guest without KVM mounts it over TCP, as 9P2000.L and
# 9P2000.u, with cache=none, loose and mmap, for several users. In each mount: ninefold-mounted, a tree copied there and back,
# fsx; on .L pjdfstest. diod, and QEMU's own 9P for .u, are mounted in the same run, because what the client cannot do (the
# file guest/exclusions) must fail there too.
#
#     NINEFOLD=target/release/ninefold conformance/judges/guest.sh
#     FULL=1           more of fsx, and the large directory in every mode
#     FSX_SEED=N       the seed of an fsx run to repeat; it is printed
#     GUEST_CACHE=DIR  where the kernel and the crates are kept; target/guest when not given
#     GUEST_KEEP=DIR   keep what the guests printed there
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
PATH=$PATH:/usr/sbin:/sbin
PARTS=$PWD/conformance/judges/guest
MEMORY=1024 # MiB a guest: the tree, the programs, and what fsx and the page cache want

skip() { echo "skip guest - $1"; exit 0; }
[ "$(uname -m)" = x86_64 ] || skip "the guest's kernel and programs are those of x86-64"
[ "$(id -u)" = 0 ] || skip "only root can serve several users"
for program in qemu-system-x86_64 busybox cpio diod dpkg cargo; do
  command -v $program >/dev/null || skip "$program is missing"
done
ldd "$(command -v busybox)" >/dev/null 2>&1 && skip "busybox is not static: apt-get install busybox-static"
: "${NINEFOLD:?the built command}"
MOUNTED=$(dirname "$NINEFOLD")/ninefold-mounted
[ -x "$MOUNTED" ] || { echo "not ok guest - $MOUNTED is missing: cargo build --release -p ninefold-conformance --bins"; exit 1; }
TARGET=$(cargo metadata --format-version 1 --no-deps --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
CACHE=${GUEST_CACHE:-$TARGET/guest}
mkdir -p "$CACHE"
WHY=$("$PARTS/fetch.sh" "$CACHE" 2>&1) || skip "$WHY"

W=$(mktemp -d) || exit 1
PIDS=() LANES=()
clean() {
  trap - EXIT INT TERM
  # The lanes first, or they start another guest.
  for pid in "${LANES[@]}" "${PIDS[@]}"; do kill "$pid" 2>/dev/null; done
  # The guests are children of the lanes' shells.
  for pid in $(cat "$W"/*.pid 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  if [ -n "${GUEST_KEEP:-}" ]; then
    mkdir -p "$GUEST_KEEP"
    cp "$W"/*.out "$W"/*.console "$W"/*.log "$W"/*.part "$GUEST_KEEP/" 2>/dev/null
  fi
  rm -rf "$W"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$W" # the exports are below, and several users go there

# --- what the guest starts with --------------------------------------------------------------------------------------
# add PROGRAM: with the libraries that it wants.
add() {
  local library
  strip -o "$R/bin/$(basename "$1")" "$1" 2>/dev/null || cp "$1" "$R/bin/"
  ldd "$1" | grep -oE '/[^ ]+' | while read -r library; do
    mkdir -p "$R$(dirname "$library")"
    cp -L "$library" "$R$library"
  done
}
R=$W/root
mkdir -p "$R"/{bin,dev,proc,sys,mnt,tmp,etc,modules,tree}
cp "$(command -v busybox)" "$R/bin/busybox"
ln -s busybox "$R/bin/sh"
cp "$CACHE"/kernel/modules/*.ko "$R/modules/"
add "$MOUNTED"
add "$CACHE/crates/bin/fsx"
add "$CACHE/crates/bin/pjdfstest"
cp "$PARTS"/{jobs.sh,fsx.toml,fsx-mapped.toml,pjdfstest.toml} "$R/"
install -m 755 "$PARTS/init" "$R/init"
printf '%s:x:%s:%s::/:/bin/sh\n' root 0 0 daemon 1 1 bin 2 2 nobody 65534 65534 >"$R/etc/passwd"
printf '%s:x:%s:\n' root 0 daemon 1 bin 2 nobody 65534 >"$R/etc/group"
# The tree to be copied: some three hundred files, and one of each other kind.
cp -r conformance/transcripts crates/ninefold-proto "$R/tree/"
(
  cd "$R/tree" || exit 1
  head -c 3000001 /dev/urandom >large
  ln -s ../large transcripts/link
  ln -s nowhere dangling
  mkfifo pipe
  mkdir -m 700 empty
  : >'odd name
of two lines'
  chmod 4711 large
  chown -h daemon:bin large dangling empty
  touch -d '2001-02-03 04:05:06' large transcripts
)
(cd "$R" && find . -print0 | cpio -0 -o -H newc 2>/dev/null) >"$W/base.cpio" || exit 1

# --- the servers -----------------------------------------------------------------------------------------------------
mkdir "$W/ours" "$W/diod" "$W/virtio"
"$NINEFOLD" serve "$W/ours" --listen 9p://127.0.0.1:0 >"$W/ours.log" 2>&1 &
PIDS+=($!)
OURS=
for _ in {1..200}; do
  OURS=$(grep -oE '9p://127\.0\.0\.1:[0-9]+' "$W/ours.log" | head -1 | grep -oE '[0-9]+$') && break
  sleep 0.05
done
[ -n "$OURS" ] || { echo "not ok guest - the server printed no address: $(head -1 "$W/ours.log")"; exit 1; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
DIOD=
for _ in {1..20}; do
  port=$((20000 + RANDOM % 12000))
  listens $port && continue
  # In a directory of its own: what it leaves when it crashes goes with it.
  (cd "$W" && exec diod -f -n -c /dev/null -L stderr -l 127.0.0.1:$port -e "$W/diod" -e ctl) >"$W/diod.log" 2>&1 &
  pid=$!
  for _ in {1..100}; do
    listens $port && { DIOD=$port PIDS+=($pid); break 2; }
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  kill $pid 2>/dev/null
done
[ -n "$DIOD" ] || { echo "not ok guest - diod did not listen"; exit 1; }

# --- the guests ------------------------------------------------------------------------------------------------------
# QEMU's own 9P, two channels for each mode.
QEMUS=()
for tag in {none,loose,mmap}-{a,b}; do
  QEMUS+=(-fsdev "local,id=$tag,path=$W/virtio,security_model=passthrough,multidevs=remap" -device "virtio-9p-pci,fsdev=$tag,mount_tag=$tag")
done

# guest NAME SECONDS: runs the job on standard input in a guest of its own; NAME.out is what it printed.
guest() {
  local name=$1 bound=$2 status=0 devices=()
  case $name in qemu-*) devices=("${QEMUS[@]}") ;; esac
  mkdir "$W/$name.job" && cat >"$W/$name.job/job"
  { cat "$W/base.cpio"; (cd "$W/$name.job" && echo job | cpio -o -H newc 2>/dev/null); } >"$W/$name.cpio"
  : >"$W/$name.out"
  timeout -k 5 "$bound" qemu-system-x86_64 -accel tcg -m $MEMORY -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$CACHE/kernel/vmlinuz" -initrd "$W/$name.cpio" -append "console=ttyS0 loglevel=2 panic=-1 nokaslr nopti mitigations=off" \
    -serial "file:$W/$name.console" -serial "file:$W/$name.out" \
    -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= \
    "${devices[@]}" \
    -pidfile "$W/$name.pid" </dev/null >"$W/$name.log" 2>&1 || status=$?
  rm -f "$W/$name.pid"
  # One that has said all may still hang in its end.
  [ $status = 124 ] && ! grep -q "^the end" "$W/$name.out" && echo "fault the guest $name was ended after $bound s" >>"$W/$name.out"
  rm -f "$W/$name.cpio"
}

# The file of exclusions: a pattern of runs, a check, the reason. The checks of one run; the reason of one check.
excluded_names() {
  local runs name _
  # shellcheck disable=SC2254 # the first word is a pattern
  while read -r runs name _; do case $1 in $runs) echo "$name" ;; esac; done < <(grep -vE '^(#|$)' "$PARTS/exclusions")
}
excluded() {
  local runs name reason
  # shellcheck disable=SC2254 # the first word is a pattern
  while read -r runs name reason; do
    case $1 in $runs) [ "$name" = "$2" ] && echo "$reason" && return ;; esac
  done < <(grep -vE '^(#|$)' "$PARTS/exclusions")
  return 1
}

SEED=${FSX_SEED:-$((RANDOM + 1))}
OPERATIONS=2000 ENTRIES=500
[ -n "${FULL:-}" ] && OPERATIONS=10000 ENTRIES=5000
CACHES=(none loose mmap)
RUNS=(L-none L-loose L-mmap u-none u-loose u-mmap)

# ours DIALECT VERSION: everything in each mode.
ours() {
  local cache entries config msize
  for cache in "${CACHES[@]}"; do
    entries=$ENTRIES config=fsx-mapped
    [ "$1-$cache" = L-none ] && entries=5000
    # Small messages cut listings and data into more pieces.
    case $cache in none) msize=262144 ;; loose) msize=65536 ;; *) msize=16384 ;; esac
    [ "$cache" = none ] && config=fsx
    echo "if tcp $1-$cache $OURS / $2 $cache $msize; then"
    echo "checks $1-$cache 700 --deadline 180 --entries $entries; tree $1-$cache; fsx $1-$cache $config $SEED $OPERATIONS; fi"
  done
}

# others: the same directory elsewhere but QEMU's. diod has all checks once, else what is excluded.
others() {
  local only=() cache
  for cache in "${CACHES[@]}"; do
    mapfile -t only < <(excluded_names "L-$cache" | sed 's/^/--only /')
    [ "$cache" = none ] || [ -n "${FULL:-}" ] && only=()
    echo "if tcp diod-L-$cache $DIOD '$W/diod' 9p2000.L $cache; then"
    echo "checks diod-L-$cache 700 --deadline 20 --entries 200 ${only[*]}; fi"
  done
  echo "if tcp pjd-diod $DIOD '$W/diod' 9p2000.L none; then pjdfstest diod; fi"
  # The guest's memory: the local file system that all of it must pass on. Older kernels have neither user attributes nor O_DIRECT there.
  echo "here local && checks local 400 --without xattr --without direct; here pjd-local && pjdfstest local"
}

# qemu CACHE: the same in QEMU's own server, what is excluded.
qemu() {
  local only
  mapfile -t only < <(excluded_names "u-$1" | sed 's/^/--only /')
  echo "if virtio qemu-u-$1 $1; then"
  echo "checks qemu-u-$1 200 --deadline 15 ${only[*]}; fi"
}

# QEMU's server now and then leaves a request without an answer, and Linux's client then waits for it beyond any signal: a guest for
# each mode, and another one when that happened.
qemus() {
  local cache try name
  for cache in "${CACHES[@]}"; do
    for try in 1 2 3 4; do
      # What hangs is left in time for all verdicts.
      [ $SECONDS -gt $QEMU_UNTIL ] && echo "fault no time is left for QEMU's server in mode $cache" >"$W/qemu-$cache-late.out" && break
      name=qemu-$cache-$try
      rm -rf "${W:?}/virtio" && mkdir "$W/virtio"
      qemu "$cache" | guest "$name" $QEMU_BOUND
      grep -q "^the end" "$W/$name.out" && break
      [ $try = 4 ] && break
      mv "$W/$name.out" "$W/$name.stuck"
      echo "# QEMU's server in mode $cache did not answer; the last it passed: $(grep '^ok' "$W/$name.stuck" | tail -n 1)"
    done
  done
}

# All at once: two processors are busy, and the bound is that of the judge. In the background, so that a signal to this script is
# heard at once.
BOUND=1500 QEMU_BOUND=300 QEMU_UNTIL=1100
ours L 9p2000.L | guest L $BOUND &
LANES+=($!)
{ ours u 9p2000.u; echo "if tcp pjd-ours $OURS / 9p2000.L none; then pjdfstest ours; fi"; } | guest u $BOUND &
LANES+=($!)
others | guest others $BOUND &
LANES+=($!)
qemus &
LANES+=($!)
wait "${LANES[@]}"

# --- what came of it -------------------------------------------------------------------------------------------------
BAD=0
ok() { echo "ok $1"; }
no() { echo "not ok $1 - $2"; BAD=1; }

echo "# $(cat "$CACHE/kernel/version"); $(grep -h ^kernel "$W/L.out" | head -1); fsx seed $SEED"
awk '/^part / { part = $2 "-" $3 ".part" } part { print > (dir "/" part) }' dir="$W" "$W"/*.out
while read -r line; do no guest "${line#fault }"; done < <(grep -h ^fault "$W"/*.out)
for name in L u others $(cd "$W" && ls qemu-*.out | sed 's/\.out$//'); do
  grep -q "^the end" "$W/$name.out" ||
    no "guest-$name" "it did not come to its end; the last it said: $(tail -n 1 "$W/$name.out") $(tail -n 1 "$W/$name.console")"
  echo "# guest $name: $(grep -h '^the end' "$W/$name.out")"
done

# outcomes PART: what came of each check, into the array OUTCOME: ok, or the reason.
declare -A OUTCOME
outcomes() {
  local line name
  OUTCOME=()
  [ -e "$W/checks-$1.part" ] || return
  while read -r line; do
    case $line in
      "ok "*) OUTCOME[${line#ok }]=ok ;;
      "not ok "*) name=${line#not ok } OUTCOME[${name%% - *}]=${name#* - } ;;
      "skip "*) name=${line#skip } OUTCOME[${name%% - *}]="skipped: ${name#* - }" ;;
    esac
  done <"$W/checks-$1.part"
}

mapfile -t NAMES < <("$MOUNTED" --list)
[ ${#NAMES[@]} -ge 200 ] || no guest-list "$MOUNTED --list names ${#NAMES[@]} checks"
for pid in "${PIDS[@]}"; do kill -0 "$pid" 2>/dev/null || no guest-servers "a server has ended: $(tail -n 1 "$W/ours.log") $(tail -n 1 "$W/diod.log")"; done
for run in "${RUNS[@]}"; do
  case $run in L-*) second=diod ;; *) second=qemu ;; esac
  outcomes "$second-$run"
  declare -A elsewhere=()
  for name in "${!OUTCOME[@]}"; do elsewhere[$name]=${OUTCOME[$name]}; done
  outcomes "$run"
  for name in "${NAMES[@]}"; do
    got=${OUTCOME[$name]:-no result} there=${elsewhere[$name]:-no result}
    # What was not tried, or did not end, shows nothing.
    case $there in "still running"* | "making /"* | "skipped: "*) there="no result" ;; esac
    if ! reason=$(excluded "$run" "$name"); then
      if [ "$got" = ok ]; then ok "$run-$name"; else no "$run-$name" "$got"; fi
    elif [ "$there" = ok ] && [ "$got" != ok ] && [ "$got" != "no result" ] && [[ $run == u-* && $reason == *"(QEMU "* ]]; then
      ok "$run-$name - excluded: $reason"
    elif [ "$there" = ok ] && [ "$got" != ok ]; then
      no "$run-$name" "excluded, but $second passes: $got"
    elif [ "$there" = ok ]; then
      no "$run-$name" "excluded, but passes here and with $second: take it out of the exclusions"
    elif [ "$got" = ok ]; then
      ok "$run-$name - although excluded: $second fails, $there"
    elif [ "$got" = "no result" ] || [ "$there" = "no result" ]; then
      no "$run-$name" "excluded, but not shown to fail: $got here, $there with $second"
    else
      ok "$run-$name - excluded: $reason ($second fails too)"
    fi
  done
  for part in tree fsx; do
    line=$(grep -hE '^(not )?ok ' "$W/$part-$run.part" 2>/dev/null | head -1)
    case $line in
      "ok "*) ok "$run-$part" ;;
      "not ok "*) no "$run-$part" "${line#* - }" ;;
      *) no "$run-$part" "no result" ;;
    esac
  done
done

outcomes local
for name in "${NAMES[@]}"; do
  case ${OUTCOME[$name]:-no result} in
    ok | "skipped: --without "*) ;;
    *) no "local-$name" "${OUTCOME[$name]:-no result}" ;;
  esac
done
passes() { grep -c '^ok ' "$W/checks-$1.part"; }
# What diod did not come to counts for it.
outcomes diod-L-none
DIODS=$(($(passes diod-L-none) + ${#NAMES[@]} - ${#OUTCOME[@]}))
if [ "$(passes L-none)" -gt $DIODS ]; then ok "L-none-more-than-diod"; else no "L-none-more-than-diod" "$(passes L-none), diod $DIODS"; fi
echo "# of the $((${#NAMES[@]} - ${#OUTCOME[@]})) checks that diod did not come to: $(for name in "${NAMES[@]}"; do [ -n "${OUTCOME[$name]:-}" ] || echo -n "$name "; done)"
echo "# of ${#NAMES[@]} checks passed: $(for run in "${RUNS[@]}" diod-L-none local; do echo -n "$run $(passes "$run"), "; done)"

# failed RUN: pjdfstest's cases that failed; passed RUN: how many passed.
failed() { sed -nE 's/^([a-z_:0-9]+) +FAILED$/\1/p' "$W/pjdfstest-$1.part" | sort; }
passed() { sed -nE 's/^Summary: .* ([0-9]+) passed.*/\1/p' "$W/pjdfstest-$1.part"; }
LEAST=360 # of 398: what diod passes on a kernel of this age
count=$(passed ours) diods=$(passed diod)
for run in ours diod; do
  told=$(sed -nE 's/^Summary: .* ([0-9]+) failed.*/\1/p; s/^Summary: ([0-9]+) failed.*/\1/p' "$W/pjdfstest-$run.part" | head -1)
  [ "${told:-none}" = "$(failed $run | wc -l)" ] || no "pjdfstest-$run-summary" "${told:-none} failed by the summary, $(failed $run | wc -l) by name"
done
echo "# pjdfstest: ${count:-none} passed, with diod ${diods:-none}, in memory $(passed local)"
if [ "${count:-0}" -ge $LEAST ] && [ "$count" -ge "${diods:-$LEAST}" ]; then ok pjdfstest-count; else no pjdfstest-count "${count:-none} of at least $LEAST and diod's ${diods:-?}"; fi
mapfile -t LONG < <(failed diod | grep enametoolong_path)
for name in "${LONG[@]}"; do
  if grep -qE "^$name +ok$" "$W/pjdfstest-ours.part"; then ok "pjdfstest-$name"; else no "pjdfstest-$name" "a long path fails"; fi
done
[ ${#LONG[@]} = 14 ] || no pjdfstest-long-paths "${#LONG[@]} cases of long paths fail with diod instead of 14"
for name in $(failed ours); do
  if reason=$(excluded pjdfstest "$name") && failed diod | grep -qxF "$name"; then
    ok "pjdfstest-$name - excluded: $reason (diod fails too)"
  else
    no "pjdfstest-$name" "$(grep -A1 "^$name " "$W/pjdfstest-ours.part" | tail -n 1)"
  fi
done
[ $BAD = 0 ]
