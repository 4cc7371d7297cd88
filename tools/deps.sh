#!/usr/bin/env bash
# The Debian packages that building, running and checking Sluice take, and their installation.
#
#   tools/deps.sh build        what `make build` and `make demo` need
#   tools/deps.sh check        that and what `make check` needs
#   tools/deps.sh list GROUP   print the packages of a group, installed or not
#
# Missing packages are named. On a terminal it asks before it installs them; as root, or where sudo
# asks for no password, it installs them without a terminal too. Otherwise it prints the command to
# run and fails. On a system without dpkg it says what it would look for and leaves the rest to CMake.
set -euo pipefail

# group, package, what for
packages() {
    cat <<'LIST'
build  gcc                    the compiler
build  libc6-dev              headers of the C library
build  cmake                  the build system
build  ninja-build            runs the build
build  pkg-config             finds the libraries
build  liburing-dev           asynchronous reads (io_uring)
build  libxxhash-dev          checksums of the store
build  libedit-dev            line editing in the chat
build  libmicrohttpd-dev      HTTP of the server
check  libcmocka-dev          unit tests
check  clang                  the second compiler, sanitizers and libFuzzer
check  libclang-rt-dev        run-time of the sanitizers and of libFuzzer
check  llvm                   names in the reports of the sanitizers
check  clang-format           layout of the sources
check  clang-tidy             static analysis
check  shellcheck             static analysis of the scripts
check  mandoc                 checks the man page
check  chromium               tests of the page
check  git                    lists the files that belong to the project
check  python3-venv           end-to-end tests and comparisons with other implementations
check  gcc-aarch64-linux-gnu  cross build for arm64
check  libc6-dev-arm64-cross  its C library
check  qemu-user              runs it
LIST
}

names_of() {   # the packages of a group; check includes build
    case $1 in
    build) packages | awk '$1 == "build" { print $2 }' ;;
    check) packages | awk '{ print $2 }' ;;
    *)
        echo "deps: unknown group '$1': build or check" >&2
        exit 2
        ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_missing() {
    local group=$1 as_root=() missing=() name
    if ! command -v dpkg-query >/dev/null; then
        echo "deps: this is not a Debian system; its counterparts of these packages are needed:"
        names_of "$group" | sed 's/^/    /'
        return 0
    fi
    for name in $(names_of "$group"); do
        is_installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    echo "These Debian packages are missing:"
    for name in "${missing[@]}"; do
        packages | awk -v n="$name" '$2 == n { $1 = ""; $2 = ""; sub(/^ +/, ""); printf "    %-22s %s\n", n, $0 }'
    done
    local line="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        line="sudo $line"
        as_root=(sudo)
        if ! command -v sudo >/dev/null || { ! [ -t 0 ] && ! sudo -n true 2>/dev/null; }; then
            printf 'Installing them takes the rights of root. Run this, then try again:\n    %s\n' "$line"
            return 1
        fi
    fi
    if [ -t 0 ] && [ "${CI:-}" != true ]; then
        local answer
        read -r -p "Install them now (${as_root[*]:+with sudo, }apt-get)? [Y/n] " answer
        case $answer in
        '' | [Yy]*) ;;
        *)
            printf 'Not installed. The command is:\n    %s\n' "$line"
            return 1
            ;;
        esac
    fi
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}"
}

case ${1:-} in
build | check) install_missing "$1" ;;
list) names_of "${2:-check}" ;;
*)
    echo "usage: tools/deps.sh build | check | list [GROUP]" >&2
    exit 2
    ;;
esac
