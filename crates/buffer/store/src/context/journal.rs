//! Log records on their way to storage, and actions that wait until a record is durable.

use super::Origin;
use crate::namespace::PieceNodes;
use crate::objects::ObjectId;
use crate::state::Record;
use forebay_protocol::peer::TxId;
use forebay_protocol::{HandleId, Ino, InstanceId, NodeIndex};
use std::collections::VecDeque;

/// An action that must not happen before a log record is durable.
#[derive(Debug)]
pub enum AfterDurable {
    /// Remove the data object of a dropped inode, which takes so many bytes.
    RemoveObject(ObjectId, u64),
    /// Remove all objects of a removed instance.
    RemoveInstance(InstanceId),
    /// Continue in a volume.
    Volume(InstanceId, VolumeAction),
}

/// An action of one volume that must not happen before a log record is durable.
#[derive(Debug)]
pub enum VolumeAction {
    /// Have other nodes remove their objects of a dropped file.
    RemovePieces(Ino, PieceNodes),
    /// Reply to a client that has asked for a capability with more nodes for the file of a handle.
    ReplyCapability(Origin, HandleId),
    /// Send the vote on a round of a transaction.
    Vote(TxId, u8),
    /// Announce a committed transaction to its participants.
    Announce(TxId),
    /// Report to a node that files do not exist any more.
    ReportRemoved(NodeIndex, Vec<Ino>),
    /// Report to the coordinator that a transaction has been applied durably.
    ReportDone(TxId, NodeIndex),
}

/// Records that the driver has not taken yet, and what waits for records to become durable.
#[derive(Debug)]
pub struct Journal {
    records: Vec<Vec<u8>>,
    /// Sequence number of the last record.
    last: u64,
    /// Sequence number of the last record known to be durable.
    durable: u64,
    /// In the order of the records' sequence numbers.
    waiting: VecDeque<(u64, AfterDurable)>,
}

impl Journal {
    /// A journal whose last record, `last`, is durable.
    pub fn new(last: u64) -> Journal {
        Journal { records: Vec::new(), last, durable: last, waiting: VecDeque::new() }
    }

    /// Append a record. Returns its sequence number.
    pub fn append(&mut self, record: &Record) -> u64 {
        match postcard::to_stdvec(record) {
            Ok(bytes) => self.records.push(bytes),
            Err(error) => unreachable!("cannot encode a log record: {error}"),
        }
        self.last += 1;
        self.last
    }

    /// Sequence number of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the record with this sequence number is durable.
    pub fn is_durable(&self, record: u64) -> bool {
        record <= self.durable
    }

    /// Sequence number of the last record known to be durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Queue an action until the record with this sequence number is durable.
    pub fn when_durable(&mut self, record: u64, action: AfterDurable) {
        assert!(
            self.waiting.back().is_none_or(|(last, _)| *last <= record),
            "actions are queued in the order of the log"
        );
        self.waiting.push_back((record, action));
    }

    /// The log is durable up to this sequence number.
    pub fn mark_durable(&mut self, record: u64) {
        assert!(record <= self.last, "a durable record was appended");
        self.durable = self.durable.max(record);
    }

    /// The next action whose record is durable.
    pub fn pop_durable(&mut self) -> Option<AfterDurable> {
        let (record, _) = self.waiting.front()?;
        if !self.is_durable(*record) {
            return None;
        }
        self.waiting.pop_front().map(|(_, action)| action)
    }

    /// Whether any action waits for a record.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the objects of an instance of this number are still to be removed.
    pub fn is_removing(&self, instance: InstanceId) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(
            |(_, action)| matches!(action, AfterDurable::RemoveInstance(id) if *id == instance),
        )
    }

    /// Records for the driver to append to the log, in order.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.records)
    }

    /// Whether there are records to append.
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Bytes of records to append.
    pub fn pending_bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }
}
