#!/usr/bin/env bash
# Installs missing dependencies on Debian or Ubuntu.
#   scripts/setup.sh build   a C linker, Rust, and FUSE's mount helper
#   scripts/setup.sh bench   the same, and for comparison, if available: GlusterFS, libfuse's example
#                            file system, and programs that run on mounts
#   scripts/setup.sh test    the same as `build`; Chromium, for the tests of reports; and programs
#                            that the tests run on mounts and between hosts, Slurm and MPI among them
#   scripts/setup.sh slurm   the same as `build`, and Slurm
set -euo pipefail

RUST_NEEDED=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")

say() { echo "setup: $*" >&2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "needs root for: $*"
        say "run it as root, or install sudo, and start again"
        exit 1
    fi
}

updated=
apt_install() {
    if ! command -v apt-get >/dev/null; then
        say "$* is missing, and there is no apt-get; install it and start again"
        exit 1
    fi
    if [ -z "$updated" ]; then
        as_root apt-get update -qq </dev/null
        updated=yes
    fi
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

# Whether version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

rust_version() { cargo --version 2>/dev/null | awk '{ print $2 }'; }

rust_is_fine() {
    command -v cargo >/dev/null && at_least "$(rust_version)" "$RUST_NEEDED"
}

need_rust() {
    [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    rust_is_fine && return
    if command -v cargo >/dev/null; then
        say "cargo $(rust_version) is too old; $RUST_NEEDED or later is needed"
    fi
    if command -v rustup >/dev/null; then
        rustup toolchain install stable --profile minimal -c clippy -c rustfmt </dev/null
        rustup default stable
    elif apt_rust_is_fine; then
        apt_install cargo rustc rust-clippy rustfmt
    else
        apt_install ca-certificates curl
        say "installing Rust with rustup into ${CARGO_HOME:-$HOME/.cargo}"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal -c clippy -c rustfmt
        PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    fi
    if ! rust_is_fine; then
        say "cargo $RUST_NEEDED or later is not available; see https://rustup.rs"
        exit 1
    fi
}

apt_rust_is_fine() {
    command -v apt-cache >/dev/null || return 1
    local offered
    offered=$(apt-cache policy cargo 2>/dev/null | awk '/Candidate:/ { print $2 }')
    [ -n "$offered" ] && [ "$offered" != "(none)" ] && at_least "${offered#*:}" "$RUST_NEEDED"
}

need_linker() { command -v cc >/dev/null || apt_install gcc libc6-dev; }

need_checkers() {
    command -v pyflakes3 >/dev/null || apt_install pyflakes3
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    if command -v rustup >/dev/null; then
        rustup component add clippy rustfmt
    else
        apt_install rust-clippy rustfmt
    fi
}

has_chromium() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null
}

# On Ubuntu the package is a snap, which does not run in containers; apt can install Google's
# package of the same browser.
need_chromium() {
    has_chromium && return
    if ! grep -qs '^ID=ubuntu' /etc/os-release; then
        apt_install chromium
    elif [ "$(uname -m)" = x86_64 ]; then
        local package
        package=$(mktemp --suffix=.deb)
        command -v curl >/dev/null || apt_install ca-certificates curl
        say "downloading Chrome from dl.google.com"
        curl --proto '=https' --tlsv1.2 -sSfL -o "$package" \
            https://dl.google.com/linux/direct/google-chrome-stable_current_amd64.deb
        chmod 644 "$package"
        apt_install "$package"
        rm -f "$package"
    fi
    if ! has_chromium; then
        say "neither Chromium nor Chrome is available; install one and start again"
        exit 1
    fi
}

# Programs that run on a mounted buffer, and those that compile and run a job's C program.
need_programs() {
    local missing=() program
    for program in fusermount3:fuse3 rsync:rsync setfacl:acl sqlite3:sqlite3 fio:fio git:git make:make \
        pkg-config:pkg-config setpriv:util-linux flock:util-linux nsenter:util-linux ip:iproute2 \
        munged:munge script:bsdutils mkfs.ext4:e2fsprogs /usr/bin/python3:python3 \
        ssh:openssh-client dropbear:dropbear-bin objdump:binutils \
        /lib/systemd/systemd:systemd; do
        command -v "${program%%:*}" >/dev/null || missing+=("${program#*:}")
    done
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
}

# Slurm's programs. Without them the tests of Slurm are skipped and say so.
want_slurm() {
    command -v slurmctld >/dev/null && command -v slurmd >/dev/null &&
        command -v sbatch >/dev/null && return
    (apt_install slurmctld slurmd slurm-client slurm-wlm-basic-plugins) ||
        say "Slurm is not available; its tests are skipped"
}

# Slurm's accounting. Only the programs of MariaDB are installed, not its service. Without them the
# test of the accounting is skipped and says so.
want_slurm_accounting() {
    # mariadb-install-db calls my_print_defaults, which is in the package of the client.
    command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null &&
        command -v mariadb-install-db >/dev/null && command -v my_print_defaults >/dev/null && return
    (apt_install slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core) ||
        say "slurmdbd or MariaDB is not available; the test of Slurm's accounting is skipped"
}

# Both MPI libraries, with Fortran, and the libraries over MPI-IO that tests run. Without them the
# tests of MPI-IO fail, unless FOREBAY_TESTS_WITHOUT_MPI is set.
want_mpi() {
    command -v mpicc.openmpi >/dev/null && command -v mpicc.mpich >/dev/null &&
        command -v mpif90.openmpi >/dev/null && command -v mpif90.mpich >/dev/null &&
        [ -e /usr/include/pnetcdf.h ] && [ -d /usr/include/hdf5/openmpi ] &&
        /usr/bin/python3 -c 'import mpi4py' 2>/dev/null && return
    (apt_install gfortran libopenmpi-dev openmpi-bin libmpich-dev mpich libpnetcdf-dev \
        libhdf5-openmpi-dev libhdf5-mpich-dev libnetcdf-mpi-dev python3-mpi4py) ||
        say "the MPI libraries are not available; FOREBAY_TESTS_WITHOUT_MPI=1 skips the tests of MPI-IO"
}

# Without it the tests of the Python package skip those of `to_pandas`.
want_pandas() {
    /usr/bin/python3 -c 'import pandas' 2>/dev/null && return
    (apt_install python3-pandas) || say "pandas is not available; its tests are skipped"
}

# Without it the benchmarks skip the comparison.
want_glusterfs() {
    command -v glusterd >/dev/null && command -v ip >/dev/null && return
    (apt_install glusterfs-server glusterfs-client iproute2) ||
        say "GlusterFS is not available; the comparison is skipped"
}

# Programs that run on mounts, and libfuse's example file system. Without one the benchmarks skip it.
want_mount_programs() {
    local missing=() program
    for program in dbench bonnie++ git make pkg-config; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    compgen -G '/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c*' >/dev/null ||
        missing+=(libfuse3-dev)
    [ ${#missing[@]} -eq 0 ] && return
    for program in "${missing[@]}"; do
        (apt_install "$program") || say "$program is not available; its comparison is skipped"
    done
}

case "${1:-}" in
build)
    need_linker
    need_rust
    command -v fusermount3 >/dev/null || apt_install fuse3
    ;;
bench)
    need_linker
    need_rust
    command -v fusermount3 >/dev/null || apt_install fuse3
    want_glusterfs
    want_mount_programs
    want_mpi
    ;;
test)
    need_linker
    need_rust
    need_checkers
    need_chromium
    need_programs
    want_slurm
    want_slurm_accounting
    want_mpi
    want_pandas
    ;;
slurm)
    need_linker
    need_rust
    need_programs
    want_slurm
    ;;
*)
    say "usage: scripts/setup.sh build|bench|slurm|test"
    exit 2
    ;;
esac
