//! Lengths of striped files: the metadata node knows them, or queries the data objects.
//!
//! While a file is open for writing, its objects determine its length, and clients query them. When
//! the last write handle is closed, the metadata node queries the objects and records the length. It
//! also resizes the file on all nodes.

mod settle;

use crate::namespace::PieceNodes;
use forebay_protocol::{Ino, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Files whose lengths are settled at a time.
const MAX_SETTLING: usize = 8192;

/// Last read and write of a piece until it is written to: creating it is not a write.
pub const NEVER: Timestamp = Timestamp { secs: 0, nanos: 0 };

/// Striped files that are not open for writing and whose lengths are not settled.
#[derive(Debug, Default)]
pub struct Lengths {
    unsettled: BTreeSet<Ino>,
    /// Files that are being extended to more nodes: those before, and the number of the record.
    extensions: BTreeMap<Ino, (PieceNodes, u64)>,
}

impl Lengths {
    /// A file's length is to be settled.
    pub fn add_unsettled(&mut self, ino: Ino) {
        self.unsettled.insert(ino);
    }

    /// A file's length is settled, or need not be.
    pub fn remove_unsettled(&mut self, ino: Ino) {
        self.unsettled.remove(&ino);
    }

    /// Whether a file's length is to be settled.
    pub fn is_unsettled(&self, ino: Ino) -> bool {
        self.unsettled.contains(&ino)
    }

    /// Whether any length is to be settled.
    pub fn any_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// A file is extended to more nodes by this log record.
    fn note_extension(&mut self, ino: Ino, before: PieceNodes, record: u64) {
        let (_, last) = self.extensions.entry(ino).or_insert((before, record));
        assert!(*last <= record, "records are numbered in order");
        *last = record;
    }

    /// The nodes before an extension of a file, and its record.
    pub fn extension(&self, ino: Ino) -> Option<(PieceNodes, u64)> {
        self.extensions.get(&ino).copied()
    }

    /// The records up to this one are durable.
    pub fn forget_extension(&mut self, ino: Ino, durable: u64) {
        if self.extension(ino).is_some_and(|(_, record)| record <= durable) {
            self.extensions.remove(&ino);
        }
    }

    /// The files to settle next, without those that are `busy`.
    fn next_batch(&self, busy: &BTreeSet<Ino>) -> Vec<Ino> {
        let idle = self.unsettled.iter().filter(|ino| !busy.contains(ino));
        let free = MAX_SETTLING.saturating_sub(busy.len());
        idle.copied().take(free).collect()
    }

    /// The files whose lengths are to be settled.
    pub fn unsettled(&self) -> impl Iterator<Item = Ino> {
        self.unsettled.iter().copied()
    }
}
