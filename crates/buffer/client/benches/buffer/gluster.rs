//! A GlusterFS volume of one brick, created by its own tools in its own network name space.

use crate::Outcome;
use crate::process::Process;
use std::path::Path;
use std::process::Command;

/// A mounted volume, which is removed on drop.
pub struct Gluster(
    #[expect(dead_code, reason = "the volume exists as long as its process")] Process,
);

/// Arguments: a work directory and a mount point. Prints `ready`, waits for the end of its input, and
/// removes the volume. Daemons listen to addresses of this network name space only.
const SCRIPT: &str = r#"
set -eu
work=$1; address=10.213.77.1
ip link set lo up
ip addr add $address/32 dev lo
mkdir -p $work/etc $work/brick $work/log $work/run
cat >$work/etc/glusterd.vol <<END
volume management
    type mgmt/glusterd
    option working-directory $work/etc
    option run-directory $work/run
    option glusterd-sockfile $work/run/glusterd.socket
    option transport-type socket
    option transport.address-family inet
    option transport.socket.bind-address $address
end-volume
END
glusterd -N -f $work/etc/glusterd.vol -p $work/run/glusterd.pid -l $work/log/glusterd.log &
daemon=$!
cli="gluster --mode=script --log-file=$work/log/cli.log --glusterd-sock=$work/run/glusterd.socket"
finish() {
    trap '' EXIT
    umount -l $2 2>/dev/null || true
    $cli volume stop bench force >/dev/null 2>&1 || true
    for file in $(find $work/run /var/run/gluster/vols/bench -name '*.pid' 2>/dev/null); do
        kill $(cat $file) 2>/dev/null || true
    done
    kill $daemon 2>/dev/null || true
    wait $daemon 2>/dev/null || true
}
trap 'finish x $2' EXIT
for i in $(seq 100); do
    [ -S $work/run/glusterd.socket ] && $cli volume list >/dev/null 2>&1 && break
    sleep 0.1
done
$cli volume create bench $address:$work/brick force >/dev/null
$cli volume start bench >/dev/null
# As the mount of Forebay: no data in the client host's page cache.
glusterfs --direct-io-mode=enable --volfile-server=$address --volfile-id=bench --log-file=$work/log/mount.log $2
for i in $(seq 100); do
    mountpoint -q $2 && break
    sleep 0.1
done
mountpoint -q $2
stat $2 >/dev/null
echo ready
cat >/dev/null
"#;

impl Gluster {
    pub fn start(dir: &Path) -> Outcome<Gluster> {
        for program in ["glusterd", "gluster", "glusterfs", "unshare", "ip"] {
            let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output()?;
            if !found.status.success() {
                let hint = "is not installed; scripts/setup.sh bench installs it";
                return Err(format!("{program} {hint}").into());
            }
        }
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", SCRIPT, "sh"])
            .arg(dir.join("gluster-work"))
            .arg(dir.join("gluster"));
        let mut process = Process::start(command)?;
        let ready = process.read_line();
        if ready.is_err() {
            return Err("the daemon or the mount did not start; see its log".into());
        }
        Ok(Gluster(process))
    }
}
