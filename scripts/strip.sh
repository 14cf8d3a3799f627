#!/usr/bin/env bash
# Copies programs without debug symbols, and their symbols into PROGRAM.debug in the same directory.
# gdb and Rust's backtraces find that file by the name and checksum in the program.
#   scripts/strip.sh FROM TO PROGRAM...
set -euo pipefail

from=$1 to=$2
shift 2
mkdir -p "$to"
for program in "$@"; do
    objcopy --only-keep-debug "$from/$program" "$to/$program.debug"
    objcopy --strip-all --add-gnu-debuglink="$to/$program.debug" "$from/$program" "$to/$program"
done
