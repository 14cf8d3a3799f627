#!/usr/bin/env bash
# Builds libdatawarp and installs library, header and pkg-config file.
#   scripts/install-datawarp.sh PREFIX
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: scripts/install-datawarp.sh PREFIX" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
cargo build --release --manifest-path "$root/Cargo.toml" --package forebay-datawarp
built=${CARGO_TARGET_DIR:-$root/target}/release
bridge=$root/crates/bridges/datawarp
install -d "$1/lib/pkgconfig" "$1/include"
install -m 644 "$built/libdatawarp.so" "$built/libdatawarp.a" "$1/lib"
install -m 644 "$bridge/include/datawarp.h" "$1/include"
install -m 644 "$bridge/pkgconfig/cray-datawarp.pc" "$1/lib/pkgconfig"
