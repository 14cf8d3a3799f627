//! Identifiers, times and error numbers in messages.

pub use forebay_policy::layout::NodeIndex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $format:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

id! {
    /// An inode of one instance. The upper 16 bits are the index of its metadata node, the lower 48
    /// a counter of that node; numbers are not reused.
    Ino, "{:x}"
}
id! {
    /// An instance: an allocation of flash with one file system. Shown with 16 hexadecimal digits, as
    /// its directory on a storage node is named, so that it is not taken for a decimal number.
    InstanceId, "{:016x}"
}
id! {
    /// A client's attachment to an instance. It outlives connections and daemon restarts.
    SessionId, "{:x}"
}
id! {
    /// An open file or directory, numbered by the client within its session.
    HandleId, "{:x}"
}

impl FromStr for InstanceId {
    type Err = String;

    /// The id in the notation in which it is shown, and no other.
    fn from_str(text: &str) -> Result<InstanceId, String> {
        let is_shown = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_shown).map(InstanceId).ok_or_else(|| {
            format!("{text:?} is not the id of an instance: 16 hexadecimal digits, such as 000000000000001b")
        })
    }
}

/// A lease that permits a client to keep data of a file that it has read. Drawn by the daemon; numbers
/// are not reused, not even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub u128);

/// The owner of file locks, numbered by the client within its session. Locks of different families
/// never conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// A process, or an open file, that locks ranges by `fcntl`.
    Fcntl(u64),
    /// An open file that is locked by `flock`.
    Flock(u64),
}

impl LockOwner {
    /// The smallest owner in the order of owners.
    pub const MIN: LockOwner = LockOwner::Fcntl(0);
    /// The largest one.
    pub const MAX: LockOwner = LockOwner::Flock(u64::MAX);

    /// Whether locks of the two can conflict.
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

    /// Inode number `count` of metadata node `node`; `count` must be below 2^48.
    pub fn new(node: NodeIndex, count: u64) -> Ino {
        Ino((u64::from(node.0) << 48) | (count & ((1 << 48) - 1)))
    }

    /// The node that has the inode's metadata.
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

impl From<SystemTime> for Timestamp {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> Timestamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }
}

/// A Linux error number, as listed by `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errno(pub i32);

impl Errno {
    /// The outcome depends on the caller's supplementary groups, which the request does not contain:
    /// repeat it with [`Credentials::groups`](crate::Credentials::groups). Between client and daemon
    /// only; larger than Linux's largest error number, 4095.
    pub const EGROUPS: Errno = Errno(5001);
    /// The reply is too long for a [batch](crate::message::BatchReply): send the request by itself. Between
    /// client and daemon only.
    pub const EUNBATCHED: Errno = Errno(5002);
}

macro_rules! errnos {
    ($($name:ident = $number:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "described in errno(3)")]
        impl Errno {
            $(pub const $name: Errno = Errno($number);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

// Numbers instead of `libc`'s constants: this crate has no dependency on the operating system. A test
// of forebay-net compares them.
errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, EBADF = 9, EAGAIN = 11, ENOMEM = 12,
    EACCES = 13, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21,
    EINVAL = 22, ENFILE = 23, EMFILE = 24, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28, ESPIPE = 29,
    EROFS = 30, EMLINK = 31, ERANGE = 34, EDEADLK = 35, ENAMETOOLONG = 36, ENOLCK = 37, ENOSYS = 38,
    ENOTEMPTY = 39, ELOOP = 40, ENODATA = 61, EPROTO = 71, EOVERFLOW = 75, EOPNOTSUPP = 95,
    ECONNRESET = 104, ENOTCONN = 107, ESHUTDOWN = 108, ETIMEDOUT = 110, ESTALE = 116, EDQUOT = 122, ENOKEY = 126,
    EKEYREVOKED = 128, EKEYREJECTED = 129,
}

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
        error.raw_os_error().map_or(Errno::EIO, Errno)
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

#[cfg(feature = "rustix")]
impl From<Errno> for rustix::io::Errno {
    fn from(errno: Errno) -> rustix::io::Errno {
        rustix::io::Errno::from_raw_os_error(errno.0)
    }
}

#[cfg(feature = "rustix")]
impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}
