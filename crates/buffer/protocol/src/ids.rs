//! Names of things on the wire: inodes, instances, sessions, handles, times and error numbers.

pub use forebay_policy::layout::NodeIndex;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}

id! {
    /// An inode of one instance. The upper 16 bits name the namespace shard that owns it, the
    /// lower 48 count upwards there and are never used again.
    Ino
}
id! {
    /// An instance: one allocation of flash with one file system in it.
    InstanceId
}
id! {
    /// A client's attachment to one instance. It outlives connections and daemon restarts.
    SessionId
}
id! {
    /// An open file or directory, numbered by the client within its session.
    HandleId
}

/// Who locks files, numbered by the client within its session, and by which calls: those of the one
/// family know nothing of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// A process, or an open file, that locks ranges by `fcntl`.
    Fcntl(u64),
    /// An open file that is locked by `flock`.
    Flock(u64),
}

impl LockOwner {
    /// Nobody in particular: comes before all others.
    pub const MIN: LockOwner = LockOwner::Fcntl(0);
    /// Comes behind all others.
    pub const MAX: LockOwner = LockOwner::Flock(u64::MAX);

    /// Can locks of the two be in each other's way at all?
    pub fn is_same_family(self, other: LockOwner) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl From<Ino> for u64 {
    fn from(ino: Ino) -> u64 {
        ino.0
    }
}

impl Ino {
    /// The root directory of every instance.
    pub const ROOT: Ino = Ino(1);

    /// The `count`-th inode owned by namespace shard `shard`; `count` must be below 2^48.
    pub fn new(shard: NodeIndex, count: u64) -> Ino {
        Ino((u64::from(shard.0) << 48) | (count & ((1 << 48) - 1)))
    }

    /// The namespace shard that owns this inode.
    pub fn metadata_node(self) -> NodeIndex {
        NodeIndex((self.0 >> 48) as u16)
    }
}

/// Seconds and nanoseconds since 1970-01-01 00:00 UTC; `nanos` is below 10^9.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds past `secs`.
    pub nanos: u32,
}

impl Timestamp {
    /// The time `nanos` nanoseconds after 1970.
    pub fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp { secs: (nanos / 1_000_000_000) as i64, nanos: (nanos % 1_000_000_000) as u32 }
    }
}

/// A Linux error number, as `errno(3)` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errno(pub i32);

impl Errno {
    /// Whether it works depends on the groups that the caller is in, which were not told: say the
    /// request again with [`Credentials::groups`](crate::Credentials::groups). Between client and daemon
    /// only; not an error number of Linux, whose largest is 4095.
    pub const EGROUPS: Errno = Errno(5001);
}

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        #[allow(missing_docs, reason = "errno(3) says what each means")]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos!(
    EPERM,
    ENOENT,
    EINTR,
    EIO,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EBUSY,
    EEXIST,
    EXDEV,
    ENODEV,
    ENOTDIR,
    EISDIR,
    EINVAL,
    ENFILE,
    EMFILE,
    ETXTBSY,
    EFBIG,
    ENOSPC,
    ESPIPE,
    EROFS,
    EMLINK,
    ERANGE,
    ENAMETOOLONG,
    ENOSYS,
    ENOTEMPTY,
    ELOOP,
    ENODATA,
    EPROTO,
    EOVERFLOW,
    EOPNOTSUPP,
    ESTALE,
    EDQUOT,
    ETIMEDOUT,
    ENOTCONN,
    ECONNRESET,
    EDEADLK,
    ENOLCK,
    ENXIO,
    EKEYREJECTED,
    ENOKEY,
);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Errno> for rustix::io::Errno {
    fn from(errno: Errno) -> rustix::io::Errno {
        rustix::io::Errno::from_raw_os_error(errno.0)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(errno.0)
    }
}
