#!/usr/bin/env bash
# Fetches what the guest is made of into the directory given, once: Debian's kernel and its 9P modules (apt, by the name that
# linux-image-amd64 depends on now), and the crates fsx and pjdfstest (cargo install, pinned). Exit status 1 and a reason on
# standard error when something cannot be had; what was had is kept. Whatever else it says is worth a reader's look: an older
# kernel judges when a newer one cannot be had.
#
#     GUEST_KERNEL   another kernel package, or one that depends on it: linux-image-6.12-amd64
#     GUEST_CRATE_SECONDS   how long a crate may take, 480 when not given: longer where it has a processor only now and then
set -uo pipefail

CACHE=$1
FSX=0.3.2 PJDFSTEST=0.2.2
STATUS=0
CRATE_SECONDS=${GUEST_CRATE_SECONDS:-480} # for one crate
fault() { echo "$1" >&2; STATUS=1; }

# What a package of that name is today: a meta-package names the kernel that it depends on.
kernel_package() {
  local name=${GUEST_KERNEL:-linux-image-amd64} real
  real=$(apt-cache depends "$name" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -1)
  echo "${real:-$name}"
}

# The version that apt would install.
candidate() {
  local version
  version=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [ "$version" = "(none)" ] || echo "$version"
}

# No new kernel, for this reason: the one from before, if there is one.
kept() {
  if [ -s "$CACHE/kernel/vmlinuz" ]; then echo "$1; the kernel is the one kept from before, $(cat "$CACHE/kernel/version")"; else fault "$1"; fi
}

kernel() {
  local package version told='' dir=$CACHE/kernel deb module
  command -v apt-get >/dev/null || { fault "no apt-get to fetch a kernel with"; return; }
  package=$(kernel_package)
  version=$(candidate "$package")
  if [ -z "$version" ] && [ "$(id -u)" = 0 ]; then
    # A machine whose packages came with it may never have asked for the list of them.
    timeout --foreground 240 apt-get -q update >"$CACHE/kernel.log" 2>&1 || told=$(tail -n 1 "$CACHE/kernel.log")
    package=$(kernel_package)
    version=$(candidate "$package")
  fi
  if [ -z "$version" ]; then
    kept "apt knows no kernel $package: apt-get update${told:+ says $told}"
    return
  fi
  [ "$(cat "$dir/version" 2>/dev/null)" = "$package $version" ] && return
  rm -rf "$CACHE/new"
  mkdir -p "$CACHE/new/modules"
  if ! (cd "$CACHE/new" && timeout --foreground 240 apt-get -q -o APT::Sandbox::User=root download "$package") >"$CACHE/kernel.log" 2>&1; then
    kept "apt-get download $package: $(tail -n 1 "$CACHE/kernel.log")"
    return
  fi
  deb=$(echo "$CACHE"/new/*.deb)
  dpkg -x "$deb" "$CACHE/new/all" || { fault "unpacking $deb"; return; }
  cp "$CACHE"/new/all/boot/vmlinuz-* "$CACHE/new/vmlinuz" || { fault "$package has no kernel in /boot"; return; }
  for module in failover net_failover virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
    virtio_net netfs fscache 9pnet 9pnet_fd 9pnet_virtio 9p; do
    # What is not there is built in, or is not needed by this kernel; whether it has 9p shows in the guest.
    find "$CACHE/new/all" \( -name "$module.ko" -o -name "$module.ko.xz" \) -exec cp {} "$CACHE/new/modules/" \;
  done
  if compgen -G "$CACHE/new/modules/*.xz" >/dev/null; then unxz "$CACHE"/new/modules/*.xz; fi
  rm -rf "$CACHE/new/all" "$deb" "$dir"
  echo "$package $version" >"$CACHE/new/version"
  mv "$CACHE/new" "$dir"
}

# crate NAME VERSION: its program, built.
crate() {
  local stamp=$CACHE/crates/$1-$2
  [ -x "$CACHE/crates/bin/$1" ] && [ -e "$stamp" ] && return
  # A target directory of its own: another target's flags must not reach it.
  if ! CARGO_TARGET_DIR=$CACHE/build timeout --foreground "$CRATE_SECONDS" cargo install -q --locked --force --version "$2" --root "$CACHE/crates" "$1" \
    >"$CACHE/$1.log" 2>&1; then
    fault "cargo install $1: $(grep -m1 ^error "$CACHE/$1.log" || tail -n 1 "$CACHE/$1.log")"
    return
  fi
  : >"$stamp"
}

mkdir -p "$CACHE/crates"
kernel
crate fsx $FSX
crate pjdfstest $PJDFSTEST
rm -rf "$CACHE/build"
exit $STATUS
