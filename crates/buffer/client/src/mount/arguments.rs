//! Arguments of the kernel's requests, which can be moved to another thread.

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, INodeNo, IoctlFlags, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, TimeOrNow, WriteFlags,
};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The process that made a request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl From<&fuser::Request> for Request {
    fn from(request: &fuser::Request) -> Request {
        Request { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }
}

impl Request {
    /// The user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The thread.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// An argument of an operation. What it refers to is copied when it moves to another thread.
pub trait Argument<'a> {
    /// The argument with all that it refers to.
    type Held: Send + 'static;

    /// Copies what the argument refers to.
    fn hold(self) -> Self::Held;

    /// The argument again. The value behind `held` is used once.
    fn lend(held: &'a mut Option<Self::Held>) -> Self;
}

const USED_ONCE: &str = "an argument is used once";

/// Implements [`Argument`] for types that refer to nothing.
macro_rules! values {
    ($($type:ty),* $(,)?) => {
        $(impl Argument<'_> for $type {
            type Held = $type;

            fn hold(self) -> $type {
                self
            }

            fn lend(held: &mut Option<$type>) -> $type {
                held.take().unwrap_or_else(|| unreachable!("{USED_ONCE}"))
            }
        })*
    };
}

/// Implements [`Argument`] for references.
macro_rules! references {
    ($($type:ty => $held:ty),* $(,)?) => {
        $(impl<'a> Argument<'a> for &'a $type {
            type Held = $held;

            fn hold(self) -> $held {
                self.to_owned()
            }

            fn lend(held: &'a mut Option<$held>) -> &'a $type {
                held.as_ref().unwrap_or_else(|| unreachable!("{USED_ONCE}"))
            }
        })*
    };
}

values!(
    AccessFlags,
    CopyFileRangeFlags,
    FileHandle,
    INodeNo,
    IoctlFlags,
    LockOwner,
    OpenFlags,
    Option<BsdFileFlags>,
    Option<FileHandle>,
    Option<LockOwner>,
    Option<SystemTime>,
    Option<TimeOrNow>,
    Option<u32>,
    Option<u64>,
    RenameFlags,
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyIoctl,
    ReplyLock,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr,
    WriteFlags,
    bool,
    i32,
    i64,
    u32,
    u64,
);

references!(OsStr => OsString, Path => PathBuf, [u8] => Vec<u8>);
