//! What a mount counts.

use forebay_metrics::{Counter, Latency, LatencySnapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// An operation that the kernel asks for.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Lookup,
    Getattr,
    Setattr,
    Readlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Symlink,
    Rename,
    Link,
    Open,
    Read,
    Write,
    Flush,
    Release,
    Fsync,
    Opendir,
    Readdir,
    Readdirplus,
    Releasedir,
    Fsyncdir,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Access,
    Create,
    Getlk,
    Setlk,
    Bmap,
    Ioctl,
    Poll,
    Fallocate,
    Lseek,
    CopyFileRange,
}

const NAMES: [&str; 37] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "symlink",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "flush",
    "release",
    "fsync",
    "opendir",
    "readdir",
    "readdirplus",
    "releasedir",
    "fsyncdir",
    "statfs",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "access",
    "create",
    "getlk",
    "setlk",
    "bmap",
    "ioctl",
    "poll",
    "fallocate",
    "lseek",
    "copy_file_range",
];

/// The counts, advanced by the mount's threads with relaxed atomics.
#[derive(Debug)]
pub struct Counters {
    operations: [Latency; NAMES.len()],
    pub asked: Counter,
    pub written: Counter,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            operations: std::array::from_fn(|_| Latency::default()),
            asked: Counter::default(),
            written: Counter::default(),
        }
    }
}

impl Counters {
    pub fn done(&self, op: Op, took: Duration) {
        if let Some(latency) = self.operations.get(op as usize) {
            latency.record(took);
        }
    }

    pub fn report(&self) -> MountReport {
        let of_op = |(name, latency): (&&str, &Latency)| ((*name).to_owned(), latency.snapshot());
        MountReport {
            operations: NAMES.iter().zip(&self.operations).map(of_op).collect(),
            read_requested: self.asked.get(),
            written: self.written.get(),
        }
    }
}

/// What a mount has done since it was made. What the kernel answers from its cache, or reads by
/// passthrough, does not come here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// Operations of the kernel by kind, those without any included.
    pub operations: BTreeMap<String, LatencySnapshot>,
    /// Bytes that reads asked for.
    pub read_requested: u64,
    /// Bytes that writes brought.
    pub written: u64,
}

impl MountReport {
    /// All operations together.
    pub fn all_operations(&self) -> LatencySnapshot {
        let mut all = LatencySnapshot::default();
        for latency in self.operations.values() {
            all.add(latency);
        }
        all
    }
}
