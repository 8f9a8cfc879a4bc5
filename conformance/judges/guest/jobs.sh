# What a guest can be told to do. A run has a tree under a name of its own, mounted twice; what it prints begins with `part`.
# Nothing is unmounted: in cache=loose Linux 6.1 hits an assertion of fscache then, and the guest is about to end anyway.

# both RUN SOURCE-A SOURCE-B OPTIONS: mounts the tree twice, as two clients, and makes the run's directory in it. Without a
# mount nothing is judged, and the host sees the fault.
both() {
  A=/mnt/$1/a B=/mnt/$1/b
  mkdir -p $A $B
  if timeout -s KILL 90 mount -t 9p -o "$4" "$2" $A && timeout -s KILL 90 mount -t 9p -o "$4" "$3" $B; then
    mkdir $A/$1 && A=$A/$1 B=$B/$1
  else
    echo "fault mount -o $4"
    return 1
  fi
}

# tcp RUN PORT ANAME VERSION CACHE [MSIZE]: over TCP.
tcp() {
  both $1 10.0.2.2 10.0.2.2 "trans=tcp,port=$2,aname=$3,version=$4,cache=$5,access=user,msize=${6:-262144}"
}

# virtio RUN CACHE: QEMU's own server, as 9P2000.u. A channel of its has one mount.
virtio() {
  both $1 $2-a $2-b "trans=virtio,version=9p2000.u,cache=$2,access=user"
}

# here RUN: a directory of the guest's memory instead.
here() {
  A=/tmp/$1 B=/tmp/$1
  mkdir $A
}

# part KIND RUN: what comes next is of that, and when it began.
part() {
  echo "part $1 $2"
  echo "# $2 $1, begun $(cut -d' ' -f1 /proc/uptime) s after the guest"
}

# checks RUN SECONDS OPTIONS...: the checks of a mounted directory.
checks() {
  part checks $1
  bound=$2
  shift 2
  timeout -s KILL $bound /bin/ninefold-mounted $A --second $B "$@"
}

# fsx NAME CONFIGURATION SEED OPERATIONS
fsx() {
  part fsx $1
  # The program's name with its path, or it would be this function.
  if timeout -s KILL 400 /bin/fsx -q -S "$3" -N "$4" -P /tmp -f "/$2.toml" $A/fsx-file >/tmp/fsx.log 2>&1; then
    # What the server has, by the other client.
    if [ ! -e $A/fsx-file ] || { sync && cmp $A/fsx-file $B/fsx-file >/tmp/fsx.log 2>&1; }; then
      echo "ok fsx"
    else
      echo "not ok fsx - by the other client: $(tail -n 1 /tmp/fsx.log)"
    fi
  else
    echo "not ok fsx - status $?: $(grep -v backtrace /tmp/fsx.log | tail -n 2 | tr '\n' ' ')"
  fi
  rm -f $A/fsx-file
}

# attributes DIRECTORY: of all that is in it, one line each. The times of links are left as they come by busybox's cp.
attributes() {
  (
    cd "$1" || exit
    find . -print0 | sort -z | xargs -0 stat -c '%n %A %u %g'
    find . ! -type l -print0 | sort -z | xargs -0 stat -c '%n %Y'
    find . -type f -print0 | sort -z | xargs -0 stat -c '%n %s'
    find . -type l -print0 | sort -z | xargs -0 -n 1 readlink
  )
}

# tree RUN: a tree copied in, compared, copied out, compared, removed.
tree() {
  part tree $1
  into=$A/tree
  if ! cp -a /tree $into 2>/tmp/tree.log; then
    echo "not ok tree - cp: $(tail -n 1 /tmp/tree.log)"
    return
  fi
  attributes /tree >/tmp/tree.want
  attributes $into >/tmp/tree.got
  if ! diff -r /tree $into >/tmp/tree.log 2>&1; then
    echo "not ok tree - diff: $(head -n 1 /tmp/tree.log)"
  elif ! sync || ! diff -r /tree $B/tree >/tmp/tree.log 2>&1; then
    # The other client has nothing of it cached: what it reads the server has.
    echo "not ok tree - diff by the other client: $(head -n 1 /tmp/tree.log)"
  elif ! cmp -s /tmp/tree.want /tmp/tree.got; then
    echo "not ok tree - attributes: $(diff /tmp/tree.want /tmp/tree.got | sed -n 4,6p | tr '\n' ' ')"
  elif ! cp -a $into /tmp/back || ! diff -r /tree /tmp/back >/tmp/tree.log 2>&1; then
    echo "not ok tree - copied out: $(head -n 1 /tmp/tree.log)"
  elif ! rm -r $into || [ -e $into ]; then
    echo "not ok tree - removing"
  else
    echo "ok tree"
  fi
  rm -rf /tmp/back
}

# pjdfstest RUN
pjdfstest() {
  part pjdfstest $1
  timeout -s KILL 700 /bin/pjdfstest -c /pjdfstest.toml -p $A -s /dev/shm 2>&1 | cat # without a terminal it prints no colours
}
