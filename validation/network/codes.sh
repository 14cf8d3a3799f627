#!/usr/bin/env bash
# Latency-load curves of CODES's dragonfly-dally with 72 nodes as CSV on standard output.
# Usage: codes.sh PROGRAM CONNECTIONS ROUTING NAME PATTERN TRAFFIC LOAD...
# PROGRAM is model-net-synthetic-dragonfly-all; CONNECTIONS the directory of its files dfdally-72-intra
# and dfdally-72-inter; ROUTING its routing (minimal, nonminimal, prog-adaptive) and NAME the same in the
# CSV; PATTERN the name of the pattern in the CSV and TRAFFIC the peer's number (1, 3).
# The accepted load is that of the whole run: all bytes / time of the last arrival.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1 connections=$2 routing=$3 name=$4 pattern=$5 traffic=$6
shift 6
messages=2000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -e "s#INTRA#$connections/dfdally-72-intra#; s#INTER#$connections/dfdally-72-inter#; s#ROUTING#$routing#" \
    "$here/codes.conf" > "$work/run.conf"
cd "$work"
for load in "$@"; do
    "$program" --synch=1 --end=1e10 --extramem=400000 --traffic="$traffic" --num_messages="$messages" \
        --load_per_svr="$load" --payload_sz=4096 -- run.conf > out 2>&1
    awk -v name="$name" -v pattern="$pattern" -v load="$load" -v messages="$messages" '
        /Mean Message Latency/ { sub(/.*Mean Message Latency: /, ""); latency = $1 }
        /Maximum Workload End Time/ { end = $NF }
        END {
            accepted = messages * 4096 / end / (2 * 1.073741824)
            if (accepted < 0.95 * load) latency = ""
            printf "%s,%s,%s,%.5f,%s\n", name, pattern, load, accepted, latency
        }' out
done
