#!/usr/bin/env bash
# Builds a package for Debian and Ubuntu, of programs and libraries that are built.
#   scripts/deb.sh BUILT OUT
# BUILT holds the files of `make build` (target/dist) and libdatawarp; the package is written to the
# directory OUT, and its name printed.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: scripts/deb.sh BUILT OUT" >&2
    exit 2
fi
built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
multiarch=$(cc -print-multiarch)
lib=usr/lib/$multiarch
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

programs_of_users="forebay dw_wlm_cli dwstat"
programs_of_root="forebayd nornsctl forebay-workflow"
libraries="libnorns.so libnornsctl.so libdatawarp.so libforebay_preload.so libforebay_mpiio.so"

copy() { install -D -m "$1" "$2" "$root/$3"; }

for program in $programs_of_users $programs_of_root; do
    copy 755 "$built/$program" "usr/bin/$program"
    strip --strip-all "$root/usr/bin/$program"
done
# Under the names by which mount(8) looks for it.
copy 755 "$built/mount-forebay" usr/sbin/mount.forebay
strip --strip-all "$root/usr/sbin/mount.forebay"
ln -s mount.forebay "$root/usr/sbin/mount.fuse.forebay"
for library in $libraries; do
    copy 644 "$built/$library" "$lib/$library"
    strip --strip-unneeded "$root/$lib/$library"
done
copy 644 "$built/libdatawarp.a" "$lib/libdatawarp.a"
strip --strip-debug "$root/$lib/libdatawarp.a"
copy 644 "$built/libforebay_spank.so" usr/lib/forebay/libforebay_spank.so
strip --strip-unneeded "$root/usr/lib/forebay/libforebay_spank.so"

copy 644 crates/bridges/datawarp/include/datawarp.h usr/include/datawarp.h
sed "s|^prefix=.*|prefix=/usr|; s|^libdir=.*|libdir=/$lib|" \
    crates/bridges/datawarp/pkgconfig/cray-datawarp.pc >"$root/cray-datawarp.pc"
copy 644 "$root/cray-datawarp.pc" "$lib/pkgconfig/cray-datawarp.pc"
rm "$root/cray-datawarp.pc"
(cd crates/bridges/norns/include && find . -name '*.h') | while read -r header; do
    copy 644 "crates/bridges/norns/include/$header" "usr/include/${header#./}"
done

copy 644 crates/bridges/datawarp/burst_buffer.lua usr/share/forebay/slurm/burst_buffer.lua
copy 644 crates/bridges/workflow/lua/forebay_workflow.lua \
    usr/share/forebay/slurm/forebay_workflow.lua
copy 644 packaging/one-host.toml usr/share/forebay/one-host.toml
copy 644 packaging/forebay.default etc/default/forebay
copy 644 packaging/logrotate etc/logrotate.d/forebay
for unit in examples/pool/*.service examples/pool/*.target examples/norns/*.service; do
    copy 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"
done
# For hosts with several storage nodes: each instance is the storage node of its name.
sed -e 's|^Description=.*|& %i|' -e 's|forebayd storage|& --name %i|' \
    -e 's|^EnvironmentFile=.*|&\nEnvironmentFile=-/etc/default/forebay-storage-%i|' \
    examples/pool/forebay-storage.service >"$root/usr/lib/systemd/system/forebay-storage@.service"

for file in python/forebay/*.py python/forebay/py.typed; do
    copy 644 "$file" "usr/lib/python3/dist-packages/forebay/$(basename "$file")"
done

doc=usr/share/doc/forebay
for page in docs/*.md; do copy 644 "$page" "$doc/$(basename "$page")"; done
for example in examples/pool/pool.toml examples/norns/norns.conf examples/*.sh examples/*.py; do
    copy 644 "$example" "$doc/examples/$(basename "$example")"
done
cat LICENSE-MIT LICENSE-APACHE >"$root/copyright"
copy 644 "$root/copyright" "$doc/copyright"
rm "$root/copyright"

# Pages and completions, which the programs make of the definitions of their command lines.
generated=$(mktemp -d)
trap 'rm -rf "$root" "$generated"' EXIT
for program in $programs_of_users $programs_of_root; do
    "$built/$program" --generate-manual "$generated"
    copy 644 "$generated/bash/$program.bash" "usr/share/bash-completion/completions/$program"
    copy 644 "$generated/zsh/_$program" "usr/share/zsh/vendor-completions/_$program"
    copy 644 "$generated/fish/$program.fish" "usr/share/fish/vendor_completions.d/$program.fish"
done
for page in "$generated"/man/*; do
    gzip -9 -n "$page"
    copy 644 "$page.gz" "usr/share/man/man${page##*.}/$(basename "$page").gz"
done

# The newest version of the C library that a symbol needs.
libc=$(find "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" -type f \( -perm -100 -o -name '*.so' \) \
    -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: forebay
Version: $version
Architecture: $architecture
Maintainer: Forebay <forebay@localhost>
Installed-Size: $(du -sk "$root" | cut -f 1)
Depends: libc6 (>= $libc), libgcc-s1, fuse3, procps
Recommends: munge
Suggests: slurm-wlm, python3 (>= 3.9), python3-pandas
Section: admin
Priority: optional
Description: burst buffer for HPC clusters, and its digital twin
 Forebay pools the flash of a cluster's nodes, gives each job a file system of its own, and moves the
 job's files between that file system and the parallel file system. The twin simulates a machine with
 burst buffers.
 .
 On one host, \`systemctl start forebay.target\` starts a pool.
CONTROL
echo /etc/default/forebay >"$root/DEBIAN/conffiles"
echo /etc/logrotate.d/forebay >>"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do copy 755 "packaging/debian/$script" "DEBIAN/$script"; done

package=$out/forebay_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z"${DEB_COMPRESSION:-6}" --build "$root" "$package" >/dev/null
echo "$package"
