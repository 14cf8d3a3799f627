# Boots systemd in the root file system $1: process 1 of new namespaces, without a network.
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
for node in null zero full random urandom tty fuse; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
ip link set lo up
hostname box
# Not chroot alone: services have mount namespaces of their own, which need a root that is a mount.
mkdir "$root/old"
cd "$root"
pivot_root . old
exec env -i container=test PATH=/usr/sbin:/usr/bin chroot . sh -c 'umount --lazy /old; rmdir /old
    exec /lib/systemd/systemd "$@"' sh --unit=multi-user.target --log-target=null --show-status=0
