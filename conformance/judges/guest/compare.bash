# The verdict on an exclusion, for guest.sh: what came of a check here and on a second server is compared.
# shellcheck shell=bash

# What a check saw, without what is another in each run: where the tree lies, and the clock.
observed() { sed -E 's|/mnt/[^/ ]+/([ab])/[^/ ]+/|\1/|g; s/\b1[7-9][0-9]{8}\b/NOW/g; s/\(NOW, [0-9]+\)/NOW/g' <<<"$1"; }

# How a reason says that the second server does otherwise: what it must see there, and why.
OTHERWISE='\((diod|QEMU) otherwise: "([^"]+)"; [^)]+\)$'

OTHERS=() # the exclusions in which the second server does otherwise

# compare RUN NAME HERE THERE SECOND REASON: one that is excluded. It must fail here, and on the second server in the same way: both
# saw the same. Where the second server goes a way of its own, the reason says which, and that is what it must have seen.
compare() {
  local run=$1 name=$2 here=$3 there=$4 second=$5 why=$6 otherwise=''
  [[ $why =~ $OTHERWISE ]] && otherwise=${BASH_REMATCH[2]}
  # What was not tried, or did not end, shows nothing.
  case $here in "still running"* | "making /"* | "skipped: "* | "no result") not_ok "$run-$name" "excluded, but not shown to fail: $here" && return ;; esac
  case $there in "still running"* | "making /"* | "skipped: "* | "no result")
    not_ok "$run-$name" "excluded, but not shown to fail with $second: $there" && return ;;
  esac
  here=$(observed "$here") there=$(observed "$there")
  if [ "$here" = ok ] && [ "$there" = ok ]; then
    not_ok "$run-$name" "excluded, but passes here and with $second: take it out of the exclusions"
  elif [ "$here" = ok ]; then
    ok "$run-$name"
    echo "# $run-$name passes although it is excluded; $second: $there"
  elif [ "$here" = "$there" ] && [ -z "$otherwise" ]; then
    excluded "$run-$name" "$why; here and with $second: $here"
  elif [ "$here" = "$there" ]; then
    not_ok "$run-$name" "$second does as we do, and not otherwise as the exclusion says: $there"
  elif [ "$there" = ok ] && [ "$otherwise" != passes ]; then
    not_ok "$run-$name" "excluded, but $second passes: $here"
  elif [ -z "$otherwise" ] || { [ "$there" != ok ] && [[ $there != *"$otherwise"* ]]; }; then
    not_ok "$run-$name" "excluded, but it fails in another way with $second: $there; here: $here"
  else
    excluded "$run-$name" "$why; here: $here; with $second: $there"
    OTHERS+=("$run-$name: here $here; $second ${there/#ok/passes}")
  fi
}
