//! Messages between the storage daemons of an instance.

use crate::credentials::Credentials;
use crate::ids::{Errno, HandleId, Ino, InstanceId, NodeIndex, SessionId, Timestamp};
use crate::message::TrailingField;
use crate::message::file::{FileKind, OnExisting};
use crate::placement::ObjectInfo;
use serde::{Deserialize, Serialize};

/// One start of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Number of starts. A power failure may undo the last increment.
    pub epoch: u64,
    /// Distinguishes two starts of the same number.
    pub nonce: u64,
}

/// A message from one node of an instance to another. It may be lost, repeated or late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The instance.
    pub instance: InstanceId,
    /// The sending node.
    pub from: NodeIndex,
    /// The sender's incarnation.
    pub sender: Incarnation,
    /// The receiver's incarnation as known to the sender. A receiver of another incarnation ignores
    /// the message.
    pub receiver: Incarnation,
    /// Counts the sender's messages to this receiver, which ignores a message unless its number is
    /// higher than that of the last accepted one.
    pub sequence: u64,
    /// Contents.
    pub payload: PeerPayload,
    /// The sender recalls leases on names and attributes before it takes part in a change.
    pub recalls_caches: TrailingField<bool>,
}

/// A transaction: a random number drawn by its coordinator.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TxId(pub u64);

/// One change of a transaction, to one inode or directory entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Create a directory; the node assigns its number.
    MakeDir {
        /// Its parent directory.
        parent: Ino,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Insert the new name of a renamed inode.
    InsertEntry {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
        /// The renamed inode.
        ino: Ino,
        /// Its kind.
        kind: FileKind,
        /// Treatment of an existing entry with this name.
        existing: OnExisting,
    },
    /// Remove a link to an inode.
    RemoveLink {
        /// The inode.
        ino: Ino,
        /// It must be an empty directory; otherwise, it must not be a directory.
        dir: bool,
        /// Only its owner may do so.
        owner_only: bool,
    },
    /// Add a link to an inode that is not a directory.
    AddLink {
        /// The inode.
        ino: Ino,
    },
    /// Rename an inode.
    ChangeParent {
        /// The inode.
        ino: Ino,
        /// For a directory, its new parent directory if that changes.
        parent: Option<Ino>,
        /// Only its owner may do so.
        owner_only: bool,
    },
    /// Exclude other renames of directories. For node 0 only.
    LockRenames,
    /// As [`Step::MakeDir`], with access control lists that the directory inherits.
    MakeDirWithAcls {
        /// Its parent directory.
        parent: Ino,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// The lists, by the names of the extended attributes.
        acls: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// Result of preparing a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepResult {
    /// Prepared.
    Ready,
    /// Prepared: number and kind of the created or linked inode.
    Inode(Ino, FileKind),
    /// Prepared: the existing entry with this name, and whether only its owner may remove it.
    Entry(Option<(Ino, FileKind)>, bool),
}

/// Contents of a [`PeerMessage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerPayload {
    /// Announces the sender's incarnation. Answered by `ProbeAck`.
    Probe,
    /// Reply to `Probe`.
    ProbeAck,
    /// The metadata node queries data objects, by task and file. Answered by `ObjectStats`.
    StatObjects(Vec<(u64, Ino)>),
    /// The metadata node truncates or extends a file. Answered by `ObjectResized`.
    ResizeObject {
        /// Identifies the reply; repetitions of a task are carried out once.
        task: u64,
        /// Lower tasks have ended; late messages about them are ignored.
        oldest: u64,
        /// The file.
        ino: Ino,
        /// The length of the file, not of the data object.
        length: u64,
    },
    /// States of data objects, by the tasks of the query.
    ObjectStats(Vec<(u64, Option<ObjectInfo>)>),
    /// State of a resized data object.
    ObjectResized {
        /// As in the request.
        task: u64,
        /// The state, or why the data object could not be resized.
        info: Result<Option<ObjectInfo>, Errno>,
    },
    /// Remove the data objects of these removed files. Answered by `ObjectsRemoved`.
    RemoveObjects(Vec<Ino>),
    /// The data objects of these files are removed.
    ObjectsRemoved(Vec<Ino>),
    /// Query which of these files, of which the sender has data objects, exist. Answered by
    /// `OrphansChecked`.
    CheckOrphans(Vec<Ino>),
    /// Reply to `CheckOrphans`.
    OrphansChecked {
        /// Files that exist.
        existing: Vec<Ino>,
        /// Files that do not exist.
        removed: Vec<Ino>,
    },

    /// Prepare a participant's part of a transaction. Answered by `Vote`.
    Prepare {
        /// The transaction.
        tx: TxId,
        /// Numbers the successive requests of a transaction to one node.
        round: u8,
        /// The user who requested the change.
        who: Credentials,
        /// Time of the change.
        now: Timestamp,
        /// The changes to prepare.
        steps: Vec<Step>,
        /// The [number](crate::message::Attach::client_number) of the client that requested them.
        client: TrailingField<u64>,
    },
    /// Durably prepared, or the reason for a refusal. `EAGAIN`: conflict with another transaction.
    Vote {
        /// The transaction.
        tx: TxId,
        /// As in the request.
        round: u8,
        /// The result of each step.
        found: Result<Vec<StepResult>, Errno>,
    },
    /// Query the parent of a directory. Answered by `ParentReply`.
    QueryParent {
        /// The transaction that needs it.
        tx: TxId,
        /// The directory.
        dir: Ino,
    },
    /// Reply to `QueryParent`.
    ParentReply {
        /// As in the query.
        tx: TxId,
        /// As in the query.
        dir: Ino,
        /// The parent; `ESTALE` if the directory does not exist.
        parent: Result<Ino, Errno>,
    },
    /// The coordinator's decision. A commit is answered by `TxDone`.
    Resolve {
        /// The transaction.
        tx: TxId,
        /// Commit; otherwise abort.
        commit: bool,
    },
    /// The sender has applied the transaction.
    TxDone {
        /// The transaction.
        tx: TxId,
        /// Durably.
        durable: bool,
    },
    /// Query the decision. Answered by `Resolve` once it is made.
    QueryOutcome {
        /// The transaction.
        tx: TxId,
    },
    /// A file is to replace another one: make the receiver's data object durable. Answered by
    /// `ObjectSynced`, at once and when the object is durable.
    SyncObject {
        /// Identifies the reply.
        sync: u64,
        /// The file.
        ino: Ino,
    },
    /// State of the sync of a data object.
    ObjectSynced {
        /// As in the request.
        sync: u64,
        /// The result; `None` while the sync is in progress.
        result: Option<Result<(), Errno>>,
    },
    /// Query which of these handles, by whose capabilities data objects are open at the sender, are open at
    /// the receiver. Answered by `HandlesConfirmed`.
    ConfirmHandles(Vec<(SessionId, HandleId)>),
    /// Reply to `ConfirmHandles`. Handles of clients that may still return after a restart are in neither
    /// list.
    HandlesConfirmed {
        /// Handles that are open.
        open: Vec<(SessionId, HandleId)>,
        /// Handles that are closed.
        closed: Vec<(SessionId, HandleId)>,
    },
}
