#!/usr/bin/env bash
# What `make install` installs, judged by those who use it: the C compiler by pkg-config, the loader, and man.
#
#   NINEFOLD=/path/to/ninefold ./install.sh     the C library is taken from the same directory
# shellcheck source=conformance/judges/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

release=$(dirname "$NINEFOLD")
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
capi=$repository/crates/ninefold-capi

for program in make cc pkg-config readelf; do
    if ! command -v "$program" >/dev/null; then
        skip install "$program is not installed"
        finish
    fi
done
begin install

# installs NAME WORDS...: $work/NAME.log has what it says.
installs() {
    make -s -C "$repository" install RELEASE="$release" "${@:2}" >"$work/$1.log" 2>&1
}

root=$work/root
if installs install PREFIX="$root"; then
    ok install
else
    not_ok install "$(cat "$work/install.log")"
    finish
fi

# The same files under a DESTDIR, and none outside of it.
if installs destdir DESTDIR="$work/package" PREFIX=/none/of/this &&
    diff <(cd "$root" && find . | sort) <(cd "$work/package/none/of/this" && find . | sort) >"$work/diff" 2>&1 &&
    [ ! -e /none ] && [ "$(ls "$work/package")" = none ]; then
    ok install-destdir
else
    not_ok install-destdir "$(cat "$work/destdir.log" "$work/diff")"
fi

export PKG_CONFIG_PATH=$root/lib/pkgconfig
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$repository/Cargo.toml" | head -n 1)
if [ "$(pkg-config --modversion ninefold)" = "$version" ]; then
    ok install-version
else
    not_ok install-version "$(pkg-config --modversion ninefold 2>&1) is not $version"
fi

# Three ways to build the thesis's copy program.
read -ra flags <<<"$(pkg-config --cflags --libs ninefold)"
read -ra private <<<"$(pkg-config --static --libs-only-other --libs-only-l ninefold)"
private=("${private[@]/-lninefold/-l:libninefold.a}")
builds() { # NAME SOURCE WORDS...
    if cc -Wall -Wextra -Werror -o "$work/$1" "$capi/examples/$2" "${@:3}" 2>"$work/$1.err"; then
        ok "install-builds-$1"
    else
        not_ok "install-builds-$1" "$(cat "$work/$1.err")"
    fi
}
builds before cp_before.c "${flags[@]}"
builds after cp_after.c "${flags[@]}"
builds static cp_after.c -I"$root/include" -L"$root/lib" "${private[@]}"

needed() { readelf -d "$work/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
if needed after | grep -qx libninefold.so.0 && ! needed static | grep -q ninefold; then
    ok install-soname
else
    not_ok install-soname "$(needed after) / $(needed static)"
fi

export LD_LIBRARY_PATH=$root/lib
mkdir "$work/served"
head -c 3000000 /dev/urandom >"$work/from"
if "$root/bin/ninefold" --version >/dev/null && serve "$work/served" --listen 9p://127.0.0.1:0; then
    for program in before after static; do
        rm -f "$work/served/there" "$work/back"
        if "$work/$program" "$work/from" "$base/there" 2>"$work/err" && cmp -s "$work/from" "$work/served/there" &&
            "$work/$program" "$base/there" "$work/back" 2>"$work/err" && cmp -s "$work/from" "$work/back"; then
            ok "install-copies-$program"
        else
            not_ok "install-copies-$program" "$(cat "$work/err")"
        fi
    done
else
    not_ok install-serves "$(cat "$work/server.err")"
fi

if command -v man >/dev/null; then
    for page in "$root"/share/man/man*/*; do
        name=install-man-$(basename "$page")
        said=$(cd "$root/share/man" && MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >"$work/page")
        if [ -z "$said" ] && [ -s "$work/page" ]; then ok "$name"; else not_ok "$name" "${said:-it is empty}"; fi
    done
else
    skip install-man 'man is not installed'
fi
finish
