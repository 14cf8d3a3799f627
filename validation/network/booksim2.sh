#!/usr/bin/env bash
# Latency-load curves of BookSim2's dragonflynew as CSV on standard output.
# Usage: booksim2.sh BOOKSIM P ROUTING NAME PATTERN TRAFFIC LOAD...
# BOOKSIM is the program; P the nodes of a router; ROUTING its routing function (min, ugal) and NAME
# the same in the CSV; PATTERN the name of the pattern in the CSV and TRAFFIC BookSim's.
# First the throughput, for a fixed time: 10 periods of warm-up and 3 measured ones. If nearly all is
# accepted, a second run gives the mean latency; otherwise it stays empty.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1 p=$2 routing=$3 name=$4 pattern=$5 traffic=$6
shift 6
value() { awk -v key="$1" 'index($0, "Overall Traffic") { on = 1 } on && index($0, key) == 1 { sub(/^[^=]*= */, ""); print $1; exit }' "$2"; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for load in "$@"; do
    run() { "$program" "$here/booksim2.cfg" k="$p" routing_function="$routing" traffic="$traffic" injection_rate="$load" seed=1 "$@" > "$out" || true; }
    run sim_type=throughput warmup_periods=10 acc_warmup_thres=-1.0 acc_stopping_thres=-1.0 warmup_thres=-1.0 stopping_thres=-1.0
    accepted=$(value "Accepted flit rate average" "$out")
    latency=
    if awk -v a="$accepted" -v l="$load" 'BEGIN { exit !(a >= 0.97 * l) }'; then
        run sim_type=latency
        grep -q Aborting "$out" || latency=$(value "Packet latency average" "$out")
    fi
    echo "$name,$pattern,$load,$accepted,$latency"
done
