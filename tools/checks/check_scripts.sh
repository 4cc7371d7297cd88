#!/usr/bin/env bash
# Runs shellcheck over every shell script that the repository holds.
#
# usage: tools/checks/check_scripts.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t scripts < <(git grep -lE '^#!.*\b(ba)?sh\b' -- ':!*.md')
[ ${#scripts[@]} -gt 0 ]
shellcheck "${scripts[@]}"
echo "${#scripts[@]} scripts"
