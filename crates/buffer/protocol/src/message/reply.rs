//! What a daemon answers.

#[cfg(doc)]
use super::NameRequest;
#[cfg(doc)]
use super::Request;
use super::{Attr, DirEntry, FileKind, InstanceUsage, ScrubReport, SessionToken, StatFs};
use crate::ids::{Errno, Ino};
use crate::lock::FileLock;
use crate::placement::{Capability, ObjectInfo, Placement};
use serde::{Deserialize, Serialize};

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It did not work.
    Failed(Errno),
    /// It worked and there is nothing to say.
    Done,
    /// The session is open.
    Attached {
        /// Shown by further connections of the session.
        token: SessionToken,
        /// The start of the daemon's host; 0 if it is not known. Differs after a power cut, when
        /// what was not synced may be gone.
        boot: u64,
        /// The daemon's start: differs after a restart, when handles must be opened anew.
        epoch: u64,
        /// Bytes the instance may hold on this node.
        capacity: u64,
        /// The placement of the instance, without its secret.
        placement: Placement,
    },
    /// All instances.
    Instances(Vec<InstanceUsage>),
    /// What comparing data with their checksums found.
    ScrubReport(ScrubReport),
    /// Attributes.
    Attr(Attr),
    /// Attributes of those inodes that were asked about and are there.
    Attrs(Vec<Attr>),
    /// An opened file, its attributes, and whether this request made it.
    Opened {
        /// Attributes.
        attr: Attr,
        /// [`NameRequest::Create`] made it.
        created: bool,
        /// Opens the file's data objects on other nodes, if there may be any.
        capability: Option<Capability>,
    },
    /// A file's attributes and contents.
    FileContents {
        /// Attributes.
        attr: Attr,
        /// All its bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// The name leads to an inode that another node is the home of: ask that one, with `GetAttr`
    /// after a lookup and with `Open` instead of a create that was not exclusive. `ESTALE` there
    /// means that the name has gone meanwhile: look it up again.
    Referral {
        /// The inode; its metadata node is [`Ino::metadata_node`].
        ino: Ino,
        /// What it is.
        kind: FileKind,
    },
    /// A data object; `None` while the node holds nothing of the file.
    Object(Option<ObjectInfo>),
    /// One data object for each file that was asked about, in that order.
    Objects(Vec<Option<ObjectInfo>>),
    /// Opens a file's data objects on other nodes.
    Capability(Capability),
    /// A symbolic link's target, or an extended attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Vec<u8>>),
    /// Directory entries, and whether these are the last.
    Entries {
        /// In the order of their cookies.
        entries: Vec<DirEntry>,
        /// Nothing follows.
        end: bool,
    },
    /// Space promised, in bytes.
    SpaceGranted(u64),
    /// Capacity and use of the instance on this node.
    StatFs(StatFs),
    /// The lock will be held later.
    LockPending,
    /// A lock that is in the way. Its `owner` means nothing, and its `pid` something only if it is
    /// the same session's.
    LockConflict(FileLock),
    /// Locks that were waited for and are held now, by their tickets.
    LocksGranted(Vec<u64>),
    /// Bytes follow as the frame's payload.
    Data,
    /// Bytes taken, and the offset they were written at.
    Written {
        /// Bytes.
        count: u32,
        /// Where, for an append.
        offset: u64,
    },
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
    Vec<u8>: Reply::Bytes(bytes) => bytes;
    Vec<Vec<u8>>: Reply::Names(names) => names;
    (Vec<DirEntry>, bool): Reply::Entries { entries, end } => (entries, end);
    u64: Reply::SpaceGranted(bytes) => bytes;
    StatFs: Reply::StatFs(stat) => stat;
    // Whether the lock is held already.
    bool: Reply::Done => true, Reply::LockPending => false;
    // The conflicting lock.
    Option<FileLock>: Reply::Done => None, Reply::LockConflict(lock) => Some(lock);
    Vec<u64>: Reply::LocksGranted(tickets) => tickets;
    // The bytes written; `None` if data were read.
    Option<u32>: Reply::Data => None, Reply::Written { count, .. } => Some(count);
}
