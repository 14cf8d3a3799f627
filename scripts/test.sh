#!/usr/bin/env bash
# All tests of the workspace. Those with Slurm mostly wait for its timers: they run beside the others.
set -euo pipefail
cd "$(dirname "$0")/.."

slurm_tests=(--test slurm --test slurm_restart)

# Programs and libraries that tests of other packages start, with the features of the whole workspace.
cargo build --workspace --profile=test --lib --bins --tests
cargo test --workspace "${slurm_tests[@]}" --no-run
export FOREBAY_TEST_PROGRAMS=built

output=$(mktemp)
cargo test --workspace --no-fail-fast "${slurm_tests[@]}" -- --test-threads=6 >"$output" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || true; wait "$beside" || true; rm -f "$output"' EXIT

status=0
cargo test --workspace || status=$?
echo "Tests with Slurm:"
wait "$beside" || status=$?
cat "$output"
exit "$status"
