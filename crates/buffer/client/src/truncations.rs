//! Truncated files, and whether a storage node may have undone the truncation.
//!
//! After a power failure a node has a file as of its last sync, with the part that was cut off since,
//! and a later sync would keep that. So a client records the boot ids of the hosts of the nodes that
//! may hold a part of a file when it truncates it. A sync of the file fails with `EIO`, once, if one
//! of them that holds a part has another boot id by then.

use forebay_protocol::{Ino, NodeIndex};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum number of files that are remembered; beyond it those with the lowest inode numbers are
/// forgotten.
const MAX_FILES: usize = 65_536;

/// The boot ids of nodes' hosts; `None` if unknown.
pub type BootIds = BTreeMap<NodeIndex, Option<u64>>;

/// Files that were truncated and not synced since: the nodes that may have held a part of a file at a
/// truncation, with the boot ids at the first such one.
#[derive(Debug, Default)]
pub struct Truncations(Mutex<BTreeMap<Ino, BootIds>>);

impl Truncations {
    /// A file is truncated, of which only these nodes may hold parts.
    pub fn record(&self, ino: Ino, boot_ids: BootIds) {
        let mut files = self.0.lock();
        let known = files.entry(ino).or_default();
        for (node, boot_id) in boot_ids {
            known.entry(node).or_insert(boot_id);
        }
        if files.len() > MAX_FILES {
            files.pop_first();
        }
        assert!(files.len() <= MAX_FILES);
    }

    /// A sync starts, which may not cover later truncations.
    pub fn take(&self, ino: Ino) -> Option<BootIds> {
        self.0.lock().remove(&ino)
    }

    /// The sync failed.
    pub fn put_back(&self, ino: Ino, boot_ids: BootIds) {
        // They are older than those that were recorded meanwhile.
        self.0.lock().entry(ino).or_default().extend(boot_ids);
    }
}

/// Whether `node`, whose host has this boot id now, may have undone a truncation.
pub fn may_be_undone(boot_ids: &BootIds, node: NodeIndex, boot_id: u64) -> bool {
    boot_ids.get(&node).is_some_and(|then| *then != Some(boot_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot_ids<const N: usize>(nodes: [(u16, u64); N]) -> BootIds {
        nodes.into_iter().map(|(node, boot_id)| (NodeIndex(node), Some(boot_id))).collect()
    }

    #[test]
    fn first_truncation_counts_until_a_sync_succeeds() {
        let truncations = Truncations::default();
        let (file, other) = (Ino(4), Ino(5));
        assert_eq!(truncations.take(file), None);
        truncations.record(file, boot_ids([(0, 1), (1, 7)]));
        truncations.record(file, boot_ids([(0, 2), (1, 7)]));
        let taken = truncations.take(file).unwrap();
        assert!(may_be_undone(&taken, NodeIndex(0), 2));
        assert!(!may_be_undone(&taken, NodeIndex(1), 7));
        truncations.record(file, boot_ids([(0, 2), (1, 7)]));
        truncations.put_back(file, taken);
        assert_eq!(truncations.take(other), None);
        assert_eq!(truncations.take(file), Some(boot_ids([(0, 1), (1, 7)])));
        assert_eq!(truncations.take(file), None);
    }

    #[test]
    fn nodes_count_from_the_first_truncation_at_which_they_held_a_part() {
        let truncations = Truncations::default();
        let file = Ino(4);
        truncations.record(file, boot_ids([(0, 1)]));
        truncations.record(file, boot_ids([(0, 2), (3, 5)]));
        let taken = truncations.take(file).unwrap();
        assert_eq!(taken, boot_ids([(0, 1), (3, 5)]));
        assert!(!may_be_undone(&taken, NodeIndex(3), 5));
        assert!(may_be_undone(&taken, NodeIndex(3), 6));
        assert!(!may_be_undone(&taken, NodeIndex(2), 6), "it had nothing to cut off");
        assert!(may_be_undone(&[(NodeIndex(2), None)].into(), NodeIndex(2), 6));
    }

    #[test]
    fn lowest_inode_numbers_are_forgotten_at_the_limit() {
        let truncations = Truncations::default();
        for number in 0..=MAX_FILES as u64 {
            truncations.record(Ino(number), boot_ids([(0, 1)]));
        }
        assert_eq!(truncations.take(Ino(0)), None);
        assert!(truncations.take(Ino(1)).is_some());
        assert!(truncations.take(Ino(MAX_FILES as u64)).is_some());
    }
}
