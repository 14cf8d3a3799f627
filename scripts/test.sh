#!/usr/bin/env bash
# Lints, and all tests of the workspace. Most tests wait for timers more than for a processor, so after a
# build of everything these run at the same time:
#   - tests of whole systems (package `forebay`), which print as they run
#   - all other tests
#   - tests with Slurm
#   - tests of the Python package, with Debian's Python, which has pandas
#   - lints (scripts/lint.sh), with a low priority and a target directory of their own
#
# Without loop devices, as in most containers, some tests fail unless FOREBAY_WITHOUT_LOOP=1 is set.
set -euo pipefail
cd "$(dirname "$0")/.."

slurm_tests=(--test slurm --test slurm_restart)

# `--test NAME` for the integration tests of the package `forebay`, or of the others. If both have one of
# a name, `forebay`'s list has it, which selects both.
integration_tests() {
    cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
names = {True: set(), False: set()}
for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        if target["kind"] == ["test"] and target["test"]:
            names[package["name"] == "forebay"].add(target["name"])
names[False] -= names[True]
print(*("--test " + name for name in sorted(names[sys.argv[1] == "forebay"])))
' "$1"
}
read -ra system_tests < <(integration_tests forebay)
read -ra other_tests < <(integration_tests others)

# With the features of the whole workspace: tests start programs and libraries of other packages.
cargo build --workspace --profile=test --lib --bins --tests --examples
cargo test --workspace "${slurm_tests[@]}" --no-run
export FOREBAY_TEST_PROGRAMS=built

output=$(mktemp -d)
declare -A running
trap 'kill "${running[@]}" 2>/dev/null || true; wait; rm -rf "$output"' EXIT

# Runs a command in the background; its output is shown by `show`.
begin() {
    local name=$1
    shift
    "$@" >"$output/$name" 2>&1 &
    running[$name]=$!
}

status=0
show() {
    wait "${running[$1]}" || status=$?
    unset "running[$1]"
    echo "$1:"
    cat "$output/$1"
}

test_others() {
    cargo test --workspace --no-fail-fast --lib --bins "${other_tests[@]}" &&
        cargo test --workspace --doc
}

test_python() {
    FOREBAY=$(realpath "${CARGO_TARGET_DIR:-target}/debug/forebay") PATH=/usr/bin:$PATH \
        python3 -m unittest discover --start-directory python/tests --top-level-directory python
}

begin "Tests of the Python package" test_python
begin "Tests with Slurm" cargo test --workspace --no-fail-fast "${slurm_tests[@]}" -- --test-threads=6
begin "Other tests" test_others
begin "Lints" env CARGO_TARGET_DIR=target/lint nice -n 19 scripts/lint.sh
cargo test --workspace --no-fail-fast "${system_tests[@]}" || status=$?
show "Tests with Slurm"
show "Other tests"
show "Tests of the Python package"
show "Lints"
exit "$status"
