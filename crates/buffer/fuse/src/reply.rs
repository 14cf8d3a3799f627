//! Replies to requests. Each is sent once, by any thread; one that is dropped sends `EIO`.

mod listing;

pub use listing::{ReplyDirectory, ReplyDirectoryPlus};

use crate::abi::{self, OpenFlags};
use crate::device::{BackingId, Device};
use crate::types::{FileAttr, FileHandle, Lock, Statfs, entry_out};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// The reply to a request of any kind.
#[derive(Debug)]
pub struct Reply {
    /// The number of the request.
    unique: u64,
    /// `None`: it has been sent.
    device: Option<Arc<Device>>,
}

impl Reply {
    pub fn new(unique: u64, device: Arc<Device>) -> Reply {
        Reply { unique, device: Some(device) }
    }

    fn send(&mut self, error: i32, parts: [&[u8]; 2]) {
        let device = self.device.take();
        assert!(device.is_some(), "a request has one reply");
        if let Some(device) = device {
            device.reply(self.unique, error, parts);
        }
    }

    /// Success without data.
    pub fn ok(mut self) {
        self.send(0, [&[], &[]]);
    }

    /// An error of the system.
    pub fn error(mut self, errno: i32) {
        // 0 would be a success without the data that the kernel expects.
        self.send(if errno == 0 { libc::EIO } else { errno }, [&[], &[]]);
    }

    fn data(mut self, data: &[u8]) {
        self.send(0, [data, &[]]);
    }

    fn value(self, value: &(impl IntoBytes + Immutable)) {
        self.data(value.as_bytes());
    }

    /// The reply to a request for a listing of at most `size` bytes.
    pub fn listing(self, size: u32) -> ReplyDirectory {
        ReplyDirectory::new(self, size)
    }

    /// The reply to a request for a listing with attributes, of at most `size` bytes.
    pub fn listing_plus(self, size: u32) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus::new(self, size)
    }

    /// Registers a file for passthrough.
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        match &self.device {
            Some(device) => device.register(file),
            None => unreachable!("a reply that has been sent is consumed"),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.device.is_some() {
            tracing::warn!("a request of the kernel had no reply");
            self.send(libc::EIO, [&[], &[]]);
        }
    }
}

/// Declares replies to certain kinds of requests.
macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[derive(Debug)]
        pub struct $name(Reply);

        impl From<Reply> for $name {
            fn from(reply: Reply) -> $name {
                $name(reply)
            }
        }

        impl $name {
            /// The request fails with an error number of the system; `EIO` for one that the kernel
            /// does not accept.
            pub fn error(self, errno: i32) {
                self.0.error(errno);
            }
        })*
    };
}

replies! {
    /// Reply without data.
    ReplyEmpty;
    /// Reply with data.
    ReplyData;
    /// Reply with an inode under a name.
    ReplyEntry;
    /// Reply with attributes.
    ReplyAttr;
    /// Reply with an open file or directory.
    ReplyOpen;
    /// Reply with a new file, which is open.
    ReplyCreate;
    /// Reply with a number of written bytes.
    ReplyWrite;
    /// Reply with a lock.
    ReplyLock;
    /// Reply with the state of the file system.
    ReplyStatfs;
    /// Reply with an extended attribute or its length.
    ReplyXattr;
    /// Reply with an offset.
    ReplyLseek;
}

impl ReplyEmpty {
    /// Success.
    pub fn ok(self) {
        self.0.ok();
    }
}

impl ReplyData {
    /// The data.
    pub fn data(self, data: &[u8]) {
        self.0.data(data);
    }
}

impl ReplyEntry {
    /// The inode. The kernel may use the name and the attributes for `ttl`.
    pub fn entry(self, ttl: Duration, attr: &FileAttr) {
        self.0.value(&entry_out(attr, ttl));
    }

    /// There is no such name, which the kernel may remember for `ttl`.
    pub fn absent(self, ttl: Duration) {
        let entry = abi::EntryOut {
            entry_valid: ttl.as_secs(),
            entry_valid_nsec: ttl.subsec_nanos(),
            ..abi::EntryOut::default()
        };
        self.0.value(&entry);
    }
}

impl ReplyAttr {
    /// The attributes, which the kernel may use for `ttl`.
    pub fn attr(self, ttl: Duration, attr: &FileAttr) {
        self.0.value(&abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            _dummy: 0,
            attr: attr.into(),
        });
    }
}

/// An open file. `backing`: the kernel accesses this registered file directly.
fn open_out(handle: FileHandle, mut flags: OpenFlags, backing: Option<&BackingId>) -> abi::OpenOut {
    flags.set(OpenFlags::PASSTHROUGH, backing.is_some());
    let backing_id = backing.map_or(0, BackingId::number);
    abi::OpenOut { fh: handle.0, open_flags: flags.bits(), backing_id }
}

impl ReplyOpen {
    /// The file or directory is open.
    pub fn opened(self, handle: FileHandle, flags: OpenFlags, backing: Option<&BackingId>) {
        self.0.value(&open_out(handle, flags, backing));
    }

    /// Registers a file for passthrough. All opens of an inode must have the same registration.
    pub fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.0.register(file)
    }
}

impl ReplyCreate {
    /// The file is created and open. The kernel may use the name and the attributes for `ttl`.
    pub fn created(
        self,
        (ttl, attr): (Duration, &FileAttr),
        handle: FileHandle,
        flags: OpenFlags,
        backing: Option<&BackingId>,
    ) {
        let open = open_out(handle, flags, backing);
        self.0.value(&abi::CreateOut { entry: entry_out(attr, ttl), open });
    }

    /// Registers a file for passthrough. All opens of an inode must have the same registration.
    pub fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.0.register(file)
    }
}

impl ReplyWrite {
    /// So many bytes are written.
    pub fn written(self, size: u32) {
        self.0.value(&abi::WriteOut { size, _padding: 0 });
    }
}

impl ReplyLock {
    /// The lock that conflicts; of the kind `F_UNLCK` if there is none.
    pub fn locked(self, lock: Lock) {
        let Lock { start, end, kind, pid } = lock;
        self.0.value(&abi::FileLock { start, end, kind: kind as u32, pid });
    }
}

impl ReplyStatfs {
    /// The state.
    pub fn statfs(self, state: &Statfs) {
        self.0.value(&abi::StatfsOut {
            blocks: state.blocks,
            bfree: state.free,
            bavail: state.available,
            files: state.inodes,
            ffree: state.inodes_free,
            bsize: state.block_size,
            namelen: state.name_length,
            frsize: state.block_size,
            ..abi::StatfsOut::default()
        });
    }
}

impl ReplyXattr {
    /// The length, for a request of size 0.
    pub fn size(self, size: u32) {
        self.0.value(&abi::GetxattrOut { size, _padding: 0 });
    }

    /// The value.
    pub fn data(self, data: &[u8]) {
        self.0.data(data);
    }
}

impl ReplyLseek {
    /// The offset.
    pub fn offset(self, offset: i64) {
        self.0.value(&abi::LseekOut { offset: offset as u64 });
    }
}
