#!/usr/bin/env bash
# Puts Linux's own 9P client to the server: Debian's kernel in a QEMU guest without KVM mounts it over TCP, as 9P2000.L and
# 9P2000.u, with cache=none, loose and mmap, for several users. In each mount: ninefold-mounted, a tree copied there and back,
# fsx; on .L pjdfstest. diod, and QEMU's own 9P for .u, are mounted in the same run, because what the client cannot do (the
# file guest/exclusions) must fail there too, and in the same way.
#
#     NINEFOLD=target/release/ninefold conformance/judges/guest.sh
#     FULL=1           more of fsx, and the large directory in every mode
#     FSX_SEED=N       the seed of an fsx run to repeat; it is printed
#     GUEST_CACHE=DIR  where the kernel and the crates are kept; target/guest when not given
#     GUEST_KEEP=DIR   keep what the guests printed there
#     GUEST_OPTIONAL=1 a guest that cannot be fetched is skipped; else it is a failure
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=conformance/judges/common.bash
. conformance/judges/common.bash
# shellcheck source=conformance/judges/guest/compare.bash
. conformance/judges/guest/compare.bash
PARTS=$PWD/conformance/judges/guest
MEMORY=1024 # MiB a guest: the tree, the programs, and what fsx and the page cache want

lacks() { skip guest "$1"; finish; }
[ "$(uname -m)" = x86_64 ] || lacks "the guest's kernel and programs are those of x86-64"
[ "$(id -u)" = 0 ] || lacks "only root can serve several users"
for program in qemu-system-x86_64 busybox cpio diod dpkg cargo perl unshare; do
  command -v $program >/dev/null || lacks "$program is missing"
done
ldd "$(command -v busybox)" >/dev/null 2>&1 && lacks "busybox is not static: apt-get install busybox-static"
: "${NINEFOLD:?the built command}"
NINEFOLD=$(realpath "$NINEFOLD")
MOUNTED=$(dirname "$NINEFOLD")/ninefold-mounted
[ -x "$MOUNTED" ] || { not_ok guest "$MOUNTED is missing: cargo build --release -p ninefold-conformance --bins"; finish; }

# The servers believe whoever reaches them, and serve root: not even this machine's users may. So they and the guests have a
# network of their own, which ends with them. What is fetched is fetched before.
if [ -z "${GUEST_OUTSIDE:-}" ]; then
  TARGET=$(cargo metadata --format-version 1 --no-deps --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
  export GUEST_CACHE=${GUEST_CACHE:-$TARGET/guest}
  mkdir -p "$GUEST_CACHE"
  if ! told=$("$PARTS/fetch.sh" "$GUEST_CACHE" 2>&1); then
    if [ -n "${GUEST_OPTIONAL:-}" ]; then
      echo "# LINUX'S OWN CLIENT JUDGES NOTHING IN THIS RUN: $(reason "$told")"
      lacks "it cannot be fetched, and GUEST_OPTIONAL allows that: $told"
    fi
    not_ok guest "it cannot be fetched: $told; GUEST_OPTIONAL=1 goes on without"
    finish
  fi
  [ -z "$told" ] || echo "# $(reason "$told")"
  unshare --net true 2>/dev/null || lacks "no network of its own can be had: unshare --net needs CAP_SYS_ADMIN"
  GUEST_OUTSIDE=$(readlink /proc/self/ns/net) NINEFOLD=$NINEFOLD exec unshare --net -- "$PWD/conformance/judges/guest.sh" "$@"
fi
[ "$(readlink /proc/self/ns/net)" != "$GUEST_OUTSIDE" ] || { not_ok guest "it has no network of its own"; finish; }
busybox ip link set lo up || { not_ok guest "loopback"; finish; }
CACHE=$GUEST_CACHE

PIDS=() LANES=()
at_the_end() {
  # The lanes first, or they start another guest.
  for pid in "${LANES[@]}" "${PIDS[@]}"; do kill "$pid" 2>/dev/null; done
  # The guests are children of the lanes' shells.
  for pid in $(cat "$W"/*.pid 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  if [ -n "${GUEST_KEEP:-}" ]; then
    mkdir -p "$GUEST_KEEP"
    cp "$W"/*.out "$W"/*.stuck "$W"/*.console "$W"/*.log "$W"/*.err "$W"/*.part "$GUEST_KEEP/" 2>/dev/null
  fi
}
begin guest
W=$work
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
# The tree to be copied: some four hundred files, and one of each other kind.
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
mkdir "$W/ours" "$W/diod"
says=ours
serve "$W/ours" --listen 9p://127.0.0.1:0 || { not_ok guest "the server printed no address: $(tail -n 3 "$W/ours.err")"; finish; }
PIDS+=("$server")
OURS=${base##*:} server=''
says=diod
start_diod "$W/diod" -e ctl || { not_ok guest "diod did not listen: $(tail -n 3 "$W/diod.err")"; finish; }
PIDS+=("$server")
DIOD=$port server=''

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

# The file of exclusions: a pattern of runs, a check, the reason. The checks of one run; the reason for one check.
excluded_names() {
  local runs name _
  # shellcheck disable=SC2254 # the first word is a pattern
  while read -r runs name _; do case $1 in $runs) echo "$name" ;; esac; done < <(grep -vE '^(#|$)' "$PARTS/exclusions")
}
reason_for() {
  local runs name why
  # shellcheck disable=SC2254 # the first word is a pattern
  while read -r runs name why; do
    case $1 in $runs) [ "$name" = "$2" ] && echo "$why" && return ;; esac
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
    # An inode number that comes again brings this client's memory of another file with it, where a server's qid.version is 0.
    if [ "$cache" = none ] || [ -n "${FULL:-}" ]; then only=(); else only+=(--keep); fi
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
  echo "checks qemu-u-$1 200 --deadline 15 --keep --nodes /mnt/qemu-u-$1/a/nodes ${only[*]}; fi"
}

# QEMU's server makes no special files, but serves those that are there.
virtio() {
  rm -rf "${W:?}/virtio" && mkdir -p "$W/virtio/nodes" && mkfifo "$W/virtio/nodes/pipe" && mknod "$W/virtio/nodes/null" c 1 3 &&
    perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die $!' "$W/virtio/nodes/socket"
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
      virtio || { echo "fault special files for QEMU's server: none" >"$W/qemu-$cache-late.out" && break; }
      qemu "$cache" | guest "$name" $QEMU_BOUND
      grep -q "^the end" "$W/$name.out" && break
      [ $try = 4 ] && break
      mv "$W/$name.out" "$W/$name.stuck"
      echo "# QEMU's server in mode $cache did not answer; the last it passed: $(grep '^ok' "$W/$name.stuck" | tail -n 1)"
    done
  done
}

# All at once: two processors are busy for ten to eighteen minutes, and the bound is for what hangs: where others work beside, it takes
# twice as long. In the background, so that a signal to this script is heard at once.
BOUND=2400 QEMU_BOUND=300 QEMU_UNTIL=1800
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
echo "# $(cat "$CACHE/kernel/version"); $(grep -h ^kernel "$W/L.out" | head -1); fsx seed $SEED"
awk '/^part / { part = $2 "-" $3 ".part" } part { print > (dir "/" part) }' dir="$W" "$W"/*.out
while read -r line; do not_ok guest "${line#fault }"; done < <(grep -h ^fault "$W"/*.out)
for name in L u others $(cd "$W" && ls qemu-*.out | sed 's/\.out$//'); do
  grep -q "^the end" "$W/$name.out" ||
    not_ok "guest-$name" "it did not come to its end; the last it said: $(tail -n 1 "$W/$name.out") $(tail -n 1 "$W/$name.console")"
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
[ ${#NAMES[@]} -ge 200 ] || not_ok guest-list "$MOUNTED --list names ${#NAMES[@]} checks"
for pid in "${PIDS[@]}"; do kill -0 "$pid" 2>/dev/null || not_ok guest-servers "a server has ended: $(tail -n 1 "$W/ours.err") $(tail -n 1 "$W/diod.err")"; done
SUMS=()
for run in "${RUNS[@]}"; do
  case $run in L-*) second=diod title=diod ;; *) second=qemu title=QEMU ;; esac
  outcomes "$second-$run"
  declare -A elsewhere=()
  for name in "${!OUTCOME[@]}"; do elsewhere[$name]=${OUTCOME[$name]}; done
  outcomes "$run"
  before=("$passed" "$failed" "$excluded")
  for name in "${NAMES[@]}"; do
    got=${OUTCOME[$name]:-no result}
    if why=$(reason_for "$run" "$name"); then
      compare "$run" "$name" "$got" "${elsewhere[$name]:-no result}" $title "$why"
    elif [ "$got" = ok ]; then
      ok "$run-$name"
    else
      not_ok "$run-$name" "$got"
    fi
  done
  for part in tree fsx; do
    line=$(grep -hE '^(not )?ok ' "$W/$part-$run.part" 2>/dev/null | head -1)
    case $line in
      "ok "*) ok "$run-$part" ;;
      "not ok "*) not_ok "$run-$part" "${line#* - }" ;;
      *) not_ok "$run-$part" "no result" ;;
    esac
  done
  SUMS+=("$run: $((passed - before[0])) passed, $((excluded - before[2])) excluded, $((failed - before[1])) failed")
done

outcomes local
for name in "${NAMES[@]}"; do
  case ${OUTCOME[$name]:-no result} in
    ok | "skipped: --without "*) ;;
    *) not_ok "local-$name" "${OUTCOME[$name]:-no result}" ;;
  esac
done
count() { grep -c "^$1 " "$W/checks-$2.part"; } # VERDICT RUN
# What diod did not come to counts for it.
outcomes diod-L-none
UNTRIED=()
for name in "${NAMES[@]}"; do [ -n "${OUTCOME[$name]:-}" ] || UNTRIED+=("$name"); done
DIODS=$(($(count ok diod-L-none) + ${#UNTRIED[@]}))
if [ "$(count ok L-none)" -gt $DIODS ]; then ok "L-none-more-than-diod"; else not_ok "L-none-more-than-diod" "$(count ok L-none), diod $DIODS"; fi
echo "# each with its tree and fsx:"
printf '# %s\n' "${SUMS[@]}"
for run in {diod-L,qemu-u}-{none,loose,mmap} local; do
  [ ! -e "$W/checks-$run.part" ] || echo "# $run: of the checks tried $(count ok "$run") passed, $(count 'not ok' "$run") failed, $(count skip "$run") skipped"
done
echo "# diod did not come to ${#UNTRIED[@]} checks: ${UNTRIED[*]}"

# What pjdfstest says of a run: its cases that failed; how many passed; and why one failed.
cases_failed() { sed -nE 's/^([a-z_:0-9]+) +FAILED$/\1/p' "$W/pjdfstest-$1.part" | sort; }
cases_passed() { sed -nE 's/^Summary: .* ([0-9]+) passed.*/\1/p' "$W/pjdfstest-$1.part"; }
case_failed() { grep -A1 "^$2 " "$W/pjdfstest-$1.part" | tail -n 1 | sed -E 's/\b1[7-9][0-9]{8}\b/NOW/g'; }
LEAST=360 # of 398: what diod passes on a kernel of this age
count=$(cases_passed ours) diods=$(cases_passed diod)
for run in ours diod; do
  told=$(sed -nE 's/^Summary: .* ([0-9]+) failed.*/\1/p; s/^Summary: ([0-9]+) failed.*/\1/p' "$W/pjdfstest-$run.part" | head -1)
  [ "${told:-none}" = "$(cases_failed $run | wc -l)" ] || not_ok "pjdfstest-$run-summary" "${told:-none} failed by the summary, $(cases_failed $run | wc -l) by name"
done
echo "# pjdfstest: ${count:-none} passed, with diod ${diods:-none}, in memory $(cases_passed local)"
if [ "${count:-0}" -ge $LEAST ] && [ "$count" -ge "${diods:-$LEAST}" ]; then ok pjdfstest-count; else not_ok pjdfstest-count "${count:-none} of at least $LEAST and diod's ${diods:-?}"; fi
mapfile -t LONG < <(cases_failed diod | grep enametoolong_path)
for name in "${LONG[@]}"; do
  if grep -qE "^$name +ok$" "$W/pjdfstest-ours.part"; then ok "pjdfstest-$name"; else not_ok "pjdfstest-$name" "a long path fails"; fi
done
[ ${#LONG[@]} = 14 ] || not_ok pjdfstest-long-paths "${#LONG[@]} cases of long paths fail with diod instead of 14"
for name in $(cases_failed ours); do
  if why=$(reason_for pjdfstest "$name"); then
    there=ok
    ! cases_failed diod | grep -qxF "$name" || there=$(case_failed diod "$name")
    compare pjdfstest "$name" "$(case_failed ours "$name")" "$there" diod "$why"
  else
    not_ok "pjdfstest-$name" "$(case_failed ours "$name")"
  fi
done
echo "# ${#OTHERS[@]} exclusions in which the second server does otherwise:"
[ ${#OTHERS[@]} = 0 ] || printf '#   %s\n' "${OTHERS[@]}"
finish
