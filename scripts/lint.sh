#!/usr/bin/env bash
# Lints, and the documentation of the code. Warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --keep-going --test slurm --test slurm_restart -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
pyflakes3 python scripts examples machines
