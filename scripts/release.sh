#!/usr/bin/env bash
# Builds `forebay` and `forebayd` of the newest release in packaging/releases, from the history of this
# repository, and prints the directory with the programs. They are built once.
#
#   scripts/release.sh target/releases
set -euo pipefail
cd "$(dirname "$0")/.."
directory=${1:?usage: scripts/release.sh DIRECTORY}
read -r version commit < <(grep -v '^#' packaging/releases | tail -n 1)
programs=$directory/$version
if [ ! -x "$programs/forebayd" ]; then
    if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
        echo "release.sh: the history of this repository lacks the commit $commit of release $version:" \
            "fetch the whole history (git fetch --unshallow)" >&2
        exit 1
    fi
    sources=$directory/sources
    rm -rf "$sources"
    mkdir -p "$sources"
    git archive "$commit" | tar -x -C "$sources"
    (cd "$sources" && CARGO_TARGET_DIR="$PWD/../build" cargo build --profile test \
        --package forebay --package forebayd --bins >&2)
    mkdir -p "$programs"
    install "$directory/build/debug/forebay" "$directory/build/debug/forebayd" "$programs/"
    rm -rf "$sources" "$directory/build"
fi
realpath "$programs"
