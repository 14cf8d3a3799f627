//! Data objects: the bytes of regular files, one object per file on this node.
//!
//! An object exists from the first time its file is opened for its data. Its length, its times
//! and the space it takes are the file's, so that a client which was handed a descriptor writes
//! to it without telling anyone.

pub mod block_checksums;
mod checksum;
mod checksum_validity;
mod disk;
mod io_throttle;
mod memory;
mod removal;

pub use checksum::{ChecksumOutcome, ScrubVerdict, boot_hash};
pub use disk::{DiskObjects, RecordChecksumsError};
pub use memory::MemoryObjects;
pub use removal::{RemovalProgress, RemovalQueue};

use forebay_protocol::message::{Allocate, OpenMode};
use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};

/// A data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The instance it belongs to.
    pub instance: InstanceId,
    /// The file.
    pub ino: Ino,
}

/// What an object adds to its file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStat {
    /// Length in bytes.
    pub size: u64,
    /// Space it takes, in bytes.
    pub space: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last write.
    pub mtime: Timestamp,
}

/// A whole object as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedObject {
    /// What it adds to its file's attributes; `None`: the file has no object.
    pub stat: Option<ObjectStat>,
    /// All its bytes.
    pub data: Vec<u8>,
}

/// Where data objects are kept.
pub trait Objects {
    /// What passing an object to a client takes.
    type Descriptor;

    /// Make room for an instance; it may be there already.
    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno>;
    /// Remove an instance with all its objects; it may be gone already. Its number can be used again
    /// at once; the space it takes may come free later.
    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno>;
    /// Instances that there is room for.
    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno>;
    /// All objects of an instance and the space they take.
    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno>;
    /// Make an empty object with these times; it may be there already, and then stays as it is.
    fn create(&mut self, id: ObjectId, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno>;
    /// [`create`](Objects::create) an object, and [`open`](Objects::open) it.
    fn create_open(
        &mut self,
        id: ObjectId,
        (atime, mtime): (Timestamp, Timestamp),
        mode: OpenMode,
    ) -> Result<Self::Descriptor, Errno> {
        self.create(id, atime, mtime)?;
        self.open(id, mode)
    }
    /// Make an object with these bytes and times; what is there of that name goes. Either the whole
    /// object is there afterwards or none.
    fn put_object(
        &mut self,
        id: ObjectId,
        data: &[u8],
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<ObjectStat, Errno>;
    /// An existing object.
    fn stat(&self, id: ObjectId) -> Result<ObjectStat, Errno>;
    /// Set the length.
    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno>;
    /// Set times; `None` leaves as is.
    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno>;
    /// Reserve, free or clear a range.
    fn allocate(
        &mut self,
        id: ObjectId,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<(), Errno>;
    /// Remove; it may be gone already.
    fn remove(&mut self, id: ObjectId) -> Result<(), Errno>;
    /// Does opening it to write, or cutting it, first take a sync, because it has checksums that would
    /// come back in a power cut? [`unseal`](DiskObjects::unseal) does that beforehand.
    fn has_durable_checksums(&self, id: ObjectId) -> bool;
    /// A descriptor for a client, for reading, writing or both.
    fn open(&self, id: ObjectId, mode: OpenMode) -> Result<Self::Descriptor, Errno>;
}
