//! What the storage daemons of one instance say to each other.

use crate::credentials::Credentials;
use crate::ids::{Errno, Ino, InstanceId, NodeIndex, Timestamp};
use crate::message::{FileKind, OnExisting};
use crate::placement::ObjectInfo;
use serde::{Deserialize, Serialize};

/// One start of a daemon, as its peers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// How many starts there have been. A power cut may lose the count of the last one.
    pub epoch: u64,
    /// Tells apart two starts of the same count.
    pub nonce: u64,
}

/// A message from one node of an instance to another. It may be lost, repeated or late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The instance.
    pub instance: InstanceId,
    /// The place of the node that sends it.
    pub from: NodeIndex,
    /// The sender's start.
    pub sender: Incarnation,
    /// The receiver's start, as the sender knows it; another one does not act on the message.
    pub receiver: Incarnation,
    /// Counts the sender's messages to this receiver. One that is not higher than the last one
    /// taken is ignored.
    pub sequence: u64,
    /// What is said.
    pub payload: PeerPayload,
}

/// A transaction: a random number that its coordinator chose.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TxId(pub u64);

/// What a transaction needs of one inode or directory entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A new directory; the node chooses its number.
    MakeDir {
        /// The directory it will be in.
        parent: Ino,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// What is renamed gets this name.
    InsertEntry {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
        /// What gets it.
        ino: Ino,
        /// And its kind.
        kind: FileKind,
        /// What becomes of what has the name.
        existing: OnExisting,
    },
    /// A name goes.
    RemoveLink {
        /// The inode that had it.
        ino: Ino,
        /// Whether it must be an empty directory, or must not be a directory.
        dir: bool,
        /// Only its owner may do so.
        owner_only: bool,
    },
    /// A further name of something that is not a directory.
    AddLink {
        /// The inode.
        ino: Ino,
    },
    /// Its name changes.
    ChangeParent {
        /// The inode.
        ino: Ino,
        /// The directory it is in afterwards, if it is itself one and that changes.
        parent: Option<Ino>,
        /// Only its owner may do so.
        owner_only: bool,
    },
    /// Nobody else moves directories meanwhile. For the first node only.
    LockRenames,
}

/// What a node found when it prepared a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepResult {
    /// It is ready, and there is nothing to say.
    Ready,
    /// The number and kind of an inode that was made or gets a name.
    Inode(Ino, FileKind),
    /// What has the name so far, and whether only its owner may take that away.
    Entry(Option<(Ino, FileKind)>, bool),
}

/// What daemons say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerPayload {
    /// Nothing but who one is. Answered by `Known`.
    Probe,
    /// The greeting has arrived.
    ProbeAck,
    /// Home asks for what objects say: tasks, which come back with the answers, and files.
    /// Answered by `Objects`.
    StatObjects(Vec<(u64, Ino)>),
    /// Home cuts or extends a file to this length. Answered by `Object`.
    ResizeObject {
        /// Comes back with the answer. It is done once, however often it is said.
        task: u64,
        /// Lower tasks are over: what still arrives of them is not done any more.
        oldest: u64,
        /// The file.
        ino: Ino,
        /// The file's length, not the object's.
        length: u64,
    },
    /// What objects say, by the tasks of the question.
    ObjectStats(Vec<(u64, Option<ObjectInfo>)>),
    /// What a resized object says, or why it could not be resized.
    ObjectResized {
        /// From the question.
        task: u64,
        /// The answer.
        info: Result<Option<ObjectInfo>, Errno>,
    },
    /// These files are no more: their objects can go. Answered by `Removed`.
    RemoveObjects(Vec<Ino>),
    /// Their objects are gone.
    ObjectsRemoved(Vec<Ino>),
    /// Are these files, of which there are objects here, still there? Answered by `Checked`.
    CheckOrphans(Vec<Ino>),
    /// Which of the files asked about are there, and which are not.
    OrphansChecked {
        /// These are.
        existing: Vec<Ino>,
        /// These are not.
        removed: Vec<Ino>,
    },

    /// Get ready for part of a transaction. Answered by `Vote`.
    Prepare {
        /// Which.
        tx: TxId,
        /// Numbers what one node is asked for one after the other.
        round: u8,
        /// For whom.
        who: Credentials,
        /// The time of the change.
        now: Timestamp,
        /// What to get ready for.
        steps: Vec<Step>,
    },
    /// Ready and durably so, or why not. `EAGAIN`: another transaction is in the way.
    Vote {
        /// Which.
        tx: TxId,
        /// From the question.
        round: u8,
        /// What was found, for each step.
        found: Result<Vec<StepResult>, Errno>,
    },
    /// Which directory is this one in? Answered by `ParentIs`.
    QueryParent {
        /// The transaction that wants to know.
        tx: TxId,
        /// The directory.
        dir: Ino,
    },
    /// In that one; `ESTALE` if it is not there.
    ParentReply {
        /// From the question.
        tx: TxId,
        /// From the question.
        dir: Ino,
        /// The answer.
        parent: Result<Ino, Errno>,
    },
    /// The transaction happens, or not. The former is answered by `Done`.
    Resolve {
        /// Which.
        tx: TxId,
        /// It happens.
        commit: bool,
    },
    /// The transaction has happened here.
    TxDone {
        /// Which.
        tx: TxId,
        /// And a power cut does not change that.
        durable: bool,
    },
    /// What became of the transaction? Answered by `Resolve` once that is known.
    QueryOutcome {
        /// Which.
        tx: TxId,
    },
}
