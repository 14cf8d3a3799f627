#!/bin/sh
# A job whose program stages its checkpoints to the parallel file system while it computes on, with
# libdatawarp (staging.c). Needs no room for more than three of them in the buffer.
#
#     scripts/install-datawarp.sh ~/.local
#     export PKG_CONFIG_PATH=~/.local/lib/pkgconfig LD_LIBRARY_PATH=~/.local/lib
#     cc -o staging examples/staging.c $(pkg-config --cflags --libs cray-datawarp)
#     forebay run examples/staging.sh [STEPS]
#
# Run it where the program `staging` is; checkpoints and a log appear there.
#
#DW jobdw capacity=16MiB type=scratch access_mode=striped
exec ./staging "${1:-5}"
