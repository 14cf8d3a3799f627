//! Data objects: the bytes of regular files, one object per file and storage node.
//!
//! An object is created when its file is first opened for data. The object itself keeps length,
//! times and allocated space, so a client that was handed a descriptor writes without telling the
//! daemon.

pub mod block_checksums;
mod checksum;
mod checksum_validity;
mod damaged;
mod disk;
mod freeing;
mod io_throttle;
mod overwrite;
mod removal;
mod scan;

pub use block_checksums::BlockChecksums;
pub use checksum::{ScrubVerdict, boot_hash};
pub use damaged::DamagedObjects;
pub use disk::{DiskObjects, FOLDERS, RecordChecksumsError, list_instances};
pub use freeing::FreeingQueue;
pub use io_throttle::{IoThrottle, MIN_RATE};
pub use overwrite::require_blocks;
pub use removal::{RemovalProgress, RemovalQueue};

use forebay_protocol::message::{Allocate, FoundExtent, OpenMode};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};
use std::ops::Range;

/// Identity of a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The instance it belongs to.
    pub instance: InstanceId,
    /// The file it belongs to.
    pub ino: Ino,
}

/// Outcome of an attempt to store an object's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumOutcome {
    /// The object has valid checksums, or is empty.
    Stored,
    /// The object was written during the attempt or shortly before.
    RecentlyWritten,
    /// The object may be open for writing.
    HasWriters,
    /// Others use the device, and the caller yields.
    DeviceBusy,
    /// The file system has no extended attributes, or the kernel no boot id.
    Unsupported,
}

/// A consistent snapshot of a whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedObject {
    /// Attributes; `None` if the file has no object.
    pub stat: Option<ObjectInfo>,
    /// All bytes.
    pub data: Vec<u8>,
}

/// Times of the last read and the last write.
pub type Times = (Timestamp, Timestamp);

/// A store of data objects.
pub trait Objects {
    /// Descriptor with which a client accesses an object.
    type Descriptor;

    /// Prepare the store for objects of an instance; idempotent.
    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno>;
    /// Remove an instance with all its objects; idempotent. Its id can be reused at once; its space
    /// may be freed later.
    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno>;
    /// All instances, sorted.
    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno>;
    /// All objects of an instance, with their allocated space in bytes.
    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno>;
    /// Create an empty object with these times; an existing object is left as it is.
    fn create(&mut self, id: ObjectId, times: Times) -> Result<(), Errno>;
    /// [`create`](Objects::create) and [`open`](Objects::open) an object.
    fn create_open(
        &mut self,
        id: ObjectId,
        times: Times,
        mode: OpenMode,
    ) -> Result<Self::Descriptor, Errno> {
        self.create(id, times)?;
        self.open(id, mode)
    }
    /// Create an object with these bytes and times, replacing an existing one. After an error there
    /// is no object.
    fn put_object(&mut self, id: ObjectId, data: &[u8], times: Times) -> Result<ObjectInfo, Errno>;
    /// Attributes of an existing object.
    fn stat(&self, id: ObjectId) -> Result<ObjectInfo, Errno>;
    /// Set the length.
    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno>;
    /// Set times; `None` keeps a time.
    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno>;
    /// The bytes of a range that have blocks of the object, so that allocating them takes no more
    /// space; fewer where the file system does not tell.
    fn bytes_with_blocks(&self, id: ObjectId, range: Range<u64>) -> Result<u64, Errno>;
    /// Allocate, free or zero a range.
    fn allocate(&mut self, id: ObjectId, range: Range<u64>, what: Allocate) -> Result<(), Errno>;
    /// The next byte at or after `offset` that is in a hole, or that is data.
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<FoundExtent, Errno>;
    /// Remove an object that takes about so many `bytes`; idempotent. Nobody finds it any more; its space may
    /// be freed later.
    fn remove(&mut self, id: ObjectId, bytes: u64) -> Result<(), Errno>;
    /// Whether opening the object for writing, or truncating it, first takes a sync, because its
    /// checksums would become valid again after a power failure.
    /// [`invalidate_checksums`](DiskObjects::invalidate_checksums) does that beforehand.
    fn has_durable_checksums(&self, id: ObjectId) -> bool;
    /// A descriptor for reading, writing or both.
    fn open(&self, id: ObjectId, mode: OpenMode) -> Result<Self::Descriptor, Errno>;
}
