#!/usr/bin/env bash
# The repository speaks of the project alone: no paths of one person's machine, and no address on the net to
# fetch from. Packages are named, and the system's own clients know where to find them.
#
# usage: tools/checks/check_words.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# Each pattern has a bracket in it, so that this file does not find itself.
paths='(^|[^A-Za-z0-9_.])/(hom[e]/[a-z]|roo[t]/|User[s]/)'
# The licence's own address, the line that a Git LFS pointer begins with, and the name of SVG in XML.
allowed='apache\.org/licenses|git-lfs|www\.w3\.org/2000/svg'
# Nobody fetches from this machine, from a name that is reserved for examples, or from a place that a
# program fills in.
nowhere='http[s]?://(127\.0\.0\.1|0\.0\.0\.0|\[::1\]|localhost|([a-z]+\.)?example\.org|NAME|%s)'
found=$(git grep -nIE "$paths|http[s]?://" -- . ':!LICENSE' ':!models' ':!tests/data' | grep -vE "$allowed" |
    sed -E "s#$nowhere##g" | grep -E "$paths|http[s]?://" || true)
if [ -n "$found" ]; then
    printf '%s\nThese lines name a place outside the project.\n' "$found"
    exit 1
fi
echo "no such words"
