//! Sessions with the FUSE of the Linux kernel.
//!
//! A [`Filesystem`] implements operations. [`mount::mount`] mounts, and a [`Session`] receives the
//! requests of the kernel by a number of threads, each with a FUSE device and a buffer of its own. A
//! request is parsed in that buffer, without an allocation, and carried out by the thread that has
//! received it, unless the file system holds it ([`Incoming::hold`]) for another thread. The reply can be
//! sent by any thread, at any time; one that is dropped sends `EIO`. Requests that a file system does not
//! implement fail with `ENOSYS`, which the kernel remembers for most of them.
//!
//! The kernel needs at least version 7.31 of the protocol (Linux 5.4).

pub mod abi;
mod device;
mod filesystem;
mod incoming;
mod init;
pub mod mount;
mod notify;
mod reply;
mod session;
mod types;

pub use abi::{InitFlags, OpenFlags, ReadFlags, WriteFlags};
pub use device::BackingId;
pub use filesystem::Filesystem;
pub use incoming::{Held, Incoming, Request};
pub use init::KernelConfig;
pub use notify::Notifier;
pub use reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
pub use session::{Session, Threads};
pub use types::{
    CopyRange, FileAttr, FileHandle, FileType, INodeNo, Lock, LockOwner, LockRequest, NewMode,
    RequestId, SetAttr, Statfs, Time, TimeOrNow,
};
