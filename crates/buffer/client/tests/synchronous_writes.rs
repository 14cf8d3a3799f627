//! Writes with `O_SYNC`, `O_DSYNC` and `RWF_DSYNC` through mounts are durable when they return.

use crate::support;
use rustix::io::{ReadWriteFlags, pwritev2};
use std::fs::OpenOptions;
use std::io::IoSlice;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use support::network_pool::NetworkPool;
use support::{Mounted, Temporary, await_count, mount_at};

const PIECE: usize = 4 << 10;
/// More than those after which small sequential writes are delayed.
const WRITES: u64 = 50;

/// Writes with these flags of the open file, and of the call.
const SYNCHRONOUS: [(&str, i32, ReadWriteFlags); 3] = [
    ("O_DSYNC", libc::O_DSYNC, ReadWriteFlags::empty()),
    ("O_SYNC", libc::O_SYNC, ReadWriteFlags::empty()),
    ("RWF_DSYNC", 0, ReadWriteFlags::DSYNC),
];

fn write_synchronously(path: &Path, (name, flag, of_call): (&str, i32, ReadWriteFlags)) {
    let file = OpenOptions::new().write(true).create(true).custom_flags(flag).open(path).unwrap();
    for index in 0..WRITES {
        let offset = index * PIECE as u64;
        let data = vec![index as u8; PIECE];
        let written = pwritev2(&file, &[IoSlice::new(&data)], offset, of_call);
        assert_eq!(written, Ok(PIECE), "{name}");
    }
}

#[test]
fn synchronous_writes_from_another_host_are_durable_when_they_return() {
    let (pool, temporary) = (NetworkPool::new(1), Temporary::new());
    let path = temporary.dir("mnt");
    let mount = mount_at(pool.client(), &path);
    for (round, case) in (1..).zip(SYNCHRONOUS) {
        write_synchronously(&path.join(case.0), case);
        await_count(|| pool.count("write"), round * WRITES, case.0);
        await_count(|| pool.count("sync"), round * WRITES, case.0);
    }
    assert_eq!(pool.count("write_lease"), 0, "they are not delayed");
    support::unmount(mount);
}

#[test]
fn synchronous_writes_are_durable_on_the_host_of_the_storage_node() {
    let mounted = Mounted::new(1, 64 << 20);
    let syncs = || {
        let requests = mounted.pool.daemons[0].stats().collect_report(Duration::ZERO).requests;
        requests.get("sync_metadata").map_or(0, |of_kind| of_kind.latency.count())
    };
    for (round, case) in (1..).zip(SYNCHRONOUS) {
        write_synchronously(&mounted.path.join(case.0), case);
        await_count(syncs, round * WRITES, case.0);
    }
}
