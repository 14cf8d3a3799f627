//! Pieces: data objects of striped files on nodes other than the files' metadata nodes.
//!
//! A client shows the metadata node's capability to open a piece. The metadata node has pieces
//! measured, resized and removed. A piece may outlive its file, because it was created late or
//! because a power cut took the file back; every piece that is new, or that existed when this node
//! or the metadata node started, is therefore checked with the metadata node.

mod requests;

use super::space::Space;
use forebay_protocol::{Ino, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Removed files remembered for a node that does not answer. It finds the others when it starts.
const MAX_REMOVALS: usize = 1 << 20;
/// Files in one message.
const MAX_BATCH: usize = 4096;

/// Pieces to be removed on other nodes, and pieces here to be checked with their metadata nodes.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Dropped files of which other nodes may have pieces.
    removals: BTreeMap<NodeIndex, BTreeSet<Ino>>,
    /// Pieces here, by metadata node, whose files may not exist.
    unchecked: BTreeMap<NodeIndex, BTreeSet<Ino>>,
}

impl Pieces {
    /// A piece is here whose file may not exist.
    pub fn check_later(&mut self, ino: Ino) {
        self.unchecked.entry(ino.metadata_node()).or_default().insert(ino);
    }

    /// A metadata node has started again: it may have lost files.
    pub fn check_again(&mut self, metadata_node: NodeIndex, space: &Space) {
        let pieces = space.objects();
        let pieces = pieces.filter(|ino| ino.metadata_node() == metadata_node);
        self.unchecked.entry(metadata_node).or_default().extend(pieces);
    }

    /// A piece is confirmed or removed.
    fn checked(&mut self, ino: Ino) {
        if let Some(inos) = self.unchecked.get_mut(&ino.metadata_node()) {
            inos.remove(&ino);
        }
    }

    /// Another node is to remove its piece of a file.
    fn remove_later(&mut self, node: NodeIndex, ino: Ino) {
        let inos = self.removals.entry(node).or_default();
        if inos.len() < MAX_REMOVALS {
            inos.insert(ino);
        }
    }

    /// Another node has removed its pieces of these files.
    pub fn note_removed(&mut self, node: NodeIndex, removed: &[Ino]) {
        if let Some(inos) = self.removals.get_mut(&node) {
            for ino in removed {
                inos.remove(ino);
            }
        }
    }

    /// Whether anything is to be removed or checked.
    pub fn any_pending(&self) -> bool {
        let mut pending = self.removals.values().chain(self.unchecked.values());
        pending.any(|inos| !inos.is_empty())
    }

    /// Whether other nodes are still to remove pieces.
    pub fn any_removals(&self) -> bool {
        self.removals.values().any(|inos| !inos.is_empty())
    }

    /// Files whose pieces a node is to remove, and files to check with it: at most [`MAX_BATCH`] of
    /// each.
    fn pending_with(&self, node: NodeIndex) -> (Vec<Ino>, Vec<Ino>) {
        let batch = |inos: Option<&BTreeSet<Ino>>| {
            inos.into_iter().flatten().copied().take(MAX_BATCH).collect()
        };
        (batch(self.removals.get(&node)), batch(self.unchecked.get(&node)))
    }
}
