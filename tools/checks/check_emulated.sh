#!/usr/bin/env bash
# One answer on every processor: the logits of the demo model over 16 tokens, from this machine, from
# emulated x86-64 processors without AVX-512, AVX2 and FMA, and from an emulated arm64 one, are the same
# bytes. This is also where run-time dispatch meets a processor that lacks what it looks for.
#
# usage: tools/checks/check_emulated.sh BUILD AARCH64_BUILD
set -euo pipefail
build=$(cd "$1" && pwd) aarch64=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
work=$build/emulated
rm -rf "$work"
mkdir "$work"
"$build/sluice" convert models/demo "$work/store"
echo 1 17 300 4000 8191 5 5 99 1234 2345 3456 4567 5678 6789 7890 42 >"$work/tokens"

logits() {   # name, how to start the program; arguments=(more options)
    local name=$1
    shift
    "$@" logits "$work/store" --tokens "$work/tokens" --out "$work/$name" --mem 256M "${arguments[@]}"
    cmp "$work/here" "$work/$name"
    echo "$name: $(sha256sum <"$work/$name" | cut -c1-16), $(stat -c %s "$work/$name") bytes"
}

arguments=()
logits here "$build/sluice"
arguments=(--cpu ref)
logits ref "$build/sluice"
arguments=(--buffered)   # the emulator does not pass on what the kernel says of direct reads
logits x86-64-nehalem qemu-x86_64 -cpu Nehalem "$build/sluice"
# What is switched off means nothing to a program, and the emulator says for each that it lacks it.
logits x86-64-haswell qemu-x86_64 \
    -cpu Haswell-noTSX,pcid=off,x2apic=off,tsc-deadline=off,invpcid=off "$build/sluice"
logits arm64 qemu-aarch64 -L /usr/aarch64-linux-gnu "$aarch64/sluice"
