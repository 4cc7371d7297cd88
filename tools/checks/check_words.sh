#!/usr/bin/env bash
# The repository speaks of the project alone: no paths of one machine, no hosts of package registries.
# Packages are named, and the system's own clients know where to find them.
#
# usage: tools/checks/check_words.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# Each pattern has a bracket in it, so that this file does not find itself.
words='/wor[k]/|/far[m]/|/hom[e]/[a-z]|/roo[t]/|pypi[.]org|pythonhosted[.]org|(deb|security|ftp)[.]debian[.]org'
words+='|registry[.]npmjs|crates[.]io|rubygems[.]org|proxy[.]golang[.]org'
if git grep -nIE "$words" -- . ':!LICENSE'; then
    echo "These lines name a place outside the project."
    exit 1
fi
echo "no such words"
