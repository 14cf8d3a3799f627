//! Replies of a storage daemon.

#[cfg(doc)]
use super::NameRequest;
use super::{
    Attr, BatchReply, DirEntry, FileKind, InstanceUsage, PathRest, ScrubReport, SessionInfo,
    SessionToken, StatFs, TrailingField,
};
use crate::ids::{Errno, Ino, LeaseId};
use crate::inode_tag::InodeTag;
use crate::lock::FileLock;
use crate::placement::{Capability, ObjectInfo, Placement};
use serde::{Deserialize, Serialize};

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The request failed.
    Failed(Errno),
    /// The request succeeded without a result.
    Done,
    /// The connection is attached.
    Attached {
        /// Authorizes further connections of the session.
        token: SessionToken,
        /// Identifies the boot of the daemon's host; 0 if unknown. After another boot, data that were
        /// not synced may be lost.
        boot: u64,
        /// Identifies the start of the daemon. After a restart, handles must be reopened.
        epoch: u64,
        /// Capacity of the instance on this node, in bytes.
        capacity: u64,
        /// The placement of the instance, without its secret.
        placement: Placement,
        /// The daemon takes [batches](super::Request::Batch).
        takes_batches: TrailingField<bool>,
        /// The daemon [remembers](super::LockRequest::WriteLease) write leases when it is restarted, and
        /// grants them for data objects of all nodes.
        keeps_write_leases: TrailingField<bool>,
    },
    /// All instances.
    Instances(Vec<InstanceUsage>),
    /// Result of comparing data with their checksums.
    ScrubReport(ScrubReport),
    /// Attributes.
    Attr(Attr),
    /// Attributes of the requested inodes that exist.
    Attrs(Vec<Attr>),
    /// An opened file.
    Opened {
        /// Attributes.
        attr: Attr,
        /// The file was created by this [`NameRequest::Create`].
        created: bool,
        /// Opens the file's data objects on other nodes; `None` on a single node.
        capability: Option<Capability>,
    },
    /// A file's attributes and contents.
    FileContents {
        /// Attributes.
        attr: Attr,
        /// Contents.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// The entry refers to an inode of another metadata node: send `GetAttr` to that node after a
    /// lookup, or `Open` instead of a create that is not exclusive. If the reply is `ESTALE`, the
    /// entry has been removed since: repeat the lookup.
    Referral {
        /// The inode; its metadata node is [`Ino::metadata_node`].
        ino: Ino,
        /// Its kind.
        kind: FileKind,
    },
    /// The path continues on another node: send the request with this rest to the metadata node of
    /// [`from`](PathRest::from).
    PathContinues {
        /// The rest.
        path: PathRest,
        /// A symbolic link that the rest begins with. Its target is read by
        /// [`NameRequest::ReadLink`], and precedes the rest.
        link: Option<Ino>,
    },
    /// A data object; `None` if the node has none of the file.
    Object(Option<ObjectInfo>),
    /// The data object of each requested file, in the order of the request.
    Objects(Vec<Option<ObjectInfo>>),
    /// A capability for a file's data objects on other nodes.
    Capability(Capability),
    /// Target of a symbolic link, or value of an extended attribute.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Vec<u8>>),
    /// Directory entries.
    Entries {
        /// In the order of their cookies.
        entries: Vec<DirEntry>,
        /// These are the last entries.
        end: bool,
        /// Cookie of the next entry that is added to the directory. A reader that ends its listing
        /// here finishes, however many entries are added or renamed meanwhile.
        next_cookie: u64,
        /// Attributes were requested, and the caller may search the directory. Otherwise the
        /// entries have none.
        searchable: bool,
    },
    /// A hole of a data object, or data.
    Extent(FoundExtent),
    /// Reserved space in bytes.
    SpaceGranted(u64),
    /// Capacity and usage of the instance on this node.
    StatFs(StatFs),
    /// The lock is queued.
    LockPending,
    /// A conflicting lock. Its `owner` is not meaningful, and its `pid` only within the session.
    LockConflict(FileLock),
    /// Tickets of queued locks that have been granted.
    LocksGranted(Vec<u64>),
    /// Events of a session.
    Events {
        /// Tickets of queued locks that have been granted.
        granted: Vec<u64>,
        /// Read leases to give back.
        recalled: Vec<LeaseId>,
        /// A recall of the lease on cached names and attributes.
        recalled_cache: Option<LeaseId>,
    },
    /// The read lease of each requested handle, in the order of the request; `None` where none is
    /// granted, as for files that are open for writing. A renewed lease keeps its number; under
    /// another one the file may have changed.
    Leases(Vec<Option<LeaseId>>),
    /// The data are the frame's payload.
    Data,
    /// Data were written.
    Written {
        /// Number of bytes.
        count: u32,
        /// Their offset, which an append determines.
        offset: u64,
    },
    /// Sessions of clients.
    Sessions(Vec<SessionInfo>),
    /// A reply to a client that is not trusted, with the tags of inodes that it has reached.
    Tagged {
        /// The reply.
        reply: Box<Reply>,
        /// The tags.
        tags: Vec<(Ino, InodeTag)>,
    },
    /// A reply to a change of an entry that may be cached, with the attributes of the changed directory
    /// after it.
    WithDirectory {
        /// The reply.
        reply: Box<Reply>,
        /// The attributes.
        directory: Attr,
    },
    /// A reply with which the session gets or keeps its [delegation](super::Delegated), for as long as
    /// the reply may be cached.
    Delegating {
        /// The reply.
        reply: Box<Reply>,
        /// The number of the delegation.
        number: u64,
    },
    /// The reply to each request of a batch, in their order.
    Batch(Vec<BatchReply>),
}

impl Reply {
    /// The reply, with which the session has the delegation of this number.
    pub fn delegating(self, number: u64) -> Reply {
        Reply::Delegating { reply: Box::new(self), number }
    }

    /// The reply with these tags, if there are any.
    pub fn with_tags(self, tags: Vec<(Ino, InodeTag)>) -> Reply {
        if tags.is_empty() { self } else { Reply::Tagged { reply: Box::new(self), tags } }
    }

    /// The reply with the attributes of the directory that the request has changed.
    pub fn with_directory(self, directory: Attr) -> Reply {
        Reply::WithDirectory { reply: Box::new(self), directory }
    }
}

/// The next hole or data of a data object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundExtent {
    /// Its offset; `None` if there is no such byte before the end of the object.
    pub at: Option<u64>,
    /// Length of the object in bytes.
    pub length: u64,
}

/// The result of a request that names an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameResult<T> {
    /// The entry's inode is on this node.
    Found(T),
    /// The inode has another metadata node: [`Reply::Referral`].
    Referral(Ino),
}

/// Converts a reply into the result of the request. `EPROTO` if it is not a reply to such a request.
macro_rules! results {
    ($($result:ty: $($reply:pat => $value:expr),+;)*) => {$(
        impl TryFrom<Reply> for $result {
            type Error = Errno;

            fn try_from(reply: Reply) -> Result<$result, Errno> {
                $(if let $reply = reply {
                    return Ok($value);
                })+
                if let Reply::Failed(errno) = reply { Err(errno) } else { Err(Errno::EPROTO) }
            }
        }
    )*};
}

results! {
    (): Reply::Done => ();
    Vec<InstanceUsage>: Reply::Instances(all) => all;
    ScrubReport: Reply::ScrubReport(report) => report;
    Vec<SessionInfo>: Reply::Sessions(sessions) => sessions;
    Attr: Reply::Attr(attr) => attr;
    NameResult<Attr>: Reply::Attr(attr) => NameResult::Found(attr),
        Reply::Referral { ino, .. } => NameResult::Referral(ino);
    Vec<Attr>: Reply::Attrs(attrs) => attrs;
    NameResult<(Attr, bool, Option<Capability>)>:
        Reply::Opened { attr, created, capability } => {
            NameResult::Found((attr, created, capability))
        },
        Reply::Referral { ino, .. } => NameResult::Referral(ino);
    (Attr, Vec<u8>): Reply::FileContents { attr, data } => (attr, data);
    Option<ObjectInfo>: Reply::Object(object) => object;
    Vec<Option<ObjectInfo>>: Reply::Objects(objects) => objects;
    Capability: Reply::Capability(capability) => capability;
    FoundExtent: Reply::Extent(found) => found;
    Vec<u8>: Reply::Bytes(bytes) => bytes;
    Vec<Vec<u8>>: Reply::Names(names) => names;
    // Whether these are the last entries; the cookie of the next new one.
    // Whether the entries may have attributes.
    (Vec<DirEntry>, bool, u64, bool): Reply::Entries { entries, end, next_cookie, searchable } => {
        (entries, end, next_cookie, searchable)
    };
    u64: Reply::SpaceGranted(bytes) => bytes;
    StatFs: Reply::StatFs(stat) => stat;
    // Whether the lock is held already.
    bool: Reply::Done => true, Reply::LockPending => false;
    // The conflicting lock.
    Option<FileLock>: Reply::Done => None, Reply::LockConflict(lock) => Some(lock);
    Vec<u64>: Reply::LocksGranted(tickets) => tickets;
    // Tickets of granted locks, recalled read leases, and the recall of the lease of a cache.
    (Vec<u64>, Vec<LeaseId>, Option<LeaseId>): Reply::Events {
        granted, recalled, recalled_cache
    } => (granted, recalled, recalled_cache);
    Vec<Option<LeaseId>>: Reply::Leases(leases) => leases;
    Vec<BatchReply>: Reply::Batch(replies) => replies;
    // The bytes written; `None` if data were read.
    Option<u32>: Reply::Data => None, Reply::Written { count, .. } => Some(count);
}
