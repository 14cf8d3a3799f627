//! Counters of a mount.

use forebay_metrics::{Counter, Latency, LatencySnapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

macro_rules! operations {
    ($($op:ident $name:literal)*) => {
        /// An operation of the kernel.
        #[derive(Clone, Copy, Debug)]
        pub enum Op {
            $($op,)*
        }

        /// The names of the operations.
        const NAMES: [&str; [$(Op::$op),*].len()] = [$($name),*];
    };
}

operations! {
    Lookup "lookup"
    Getattr "getattr"
    Setattr "setattr"
    Readlink "readlink"
    Mknod "mknod"
    Mkdir "mkdir"
    Unlink "unlink"
    Rmdir "rmdir"
    Symlink "symlink"
    Rename "rename"
    Link "link"
    Open "open"
    Read "read"
    Write "write"
    Flush "flush"
    Release "release"
    Fsync "fsync"
    Opendir "opendir"
    Readdir "readdir"
    Readdirplus "readdirplus"
    Releasedir "releasedir"
    Fsyncdir "fsyncdir"
    Statfs "statfs"
    Setxattr "setxattr"
    Getxattr "getxattr"
    Listxattr "listxattr"
    Removexattr "removexattr"
    Access "access"
    Create "create"
    Getlk "getlk"
    Setlk "setlk"
    Bmap "bmap"
    Ioctl "ioctl"
    Poll "poll"
    Fallocate "fallocate"
    Lseek "lseek"
    CopyFileRange "copy_file_range"
}

/// Counters that the threads of a mount advance with relaxed atomics.
#[derive(Debug)]
pub struct Counters {
    operations: [Latency; NAMES.len()],
    pub read_requested: Counter,
    pub written: Counter,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            operations: std::array::from_fn(|_| Latency::default()),
            read_requested: Counter::default(),
            written: Counter::default(),
        }
    }
}

impl Counters {
    pub fn record(&self, op: Op, took: Duration) {
        if let Some(latency) = self.operations.get(op as usize) {
            latency.record_duration(took);
        }
    }

    pub fn report(&self) -> MountReport {
        let of_op = |(name, latency): (&&str, &Latency)| ((*name).to_owned(), latency.snapshot());
        MountReport {
            operations: NAMES.iter().zip(&self.operations).map(of_op).collect(),
            read_requested: self.read_requested.get(),
            written: self.written.get(),
        }
    }
}

/// The operations of a mount since it was created. Operations that the kernel serves from its cache,
/// and reads by passthrough, are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// Operations by name, including those that never occurred.
    pub operations: BTreeMap<String, LatencySnapshot>,
    /// Bytes requested by reads.
    pub read_requested: u64,
    /// Bytes of writes.
    pub written: u64,
}

impl MountReport {
    /// The sum over all operations.
    pub fn all_operations(&self) -> LatencySnapshot {
        let mut all = LatencySnapshot::default();
        for latency in self.operations.values() {
            all.merge(latency);
        }
        all
    }
}
