//! Truncated files, and whether a storage node may have undone the truncation.
//!
//! After a power failure a node has a file as of its last sync, with the part that was cut off since,
//! and a later sync would keep that. So a client records the boot ids of the nodes' hosts when it
//! truncates a file. A sync of the file fails with `EIO`, once, if a node that holds a part of it
//! has another boot id by then.

use forebay_protocol::{Ino, NodeIndex};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum number of files that are remembered; beyond it those with the lowest inode numbers are
/// forgotten.
const MAX_FILES: usize = 65_536;

/// Boot ids of the nodes' hosts, in the order of the nodes; 0 if unknown.
pub type BootIds = Box<[u64]>;

/// Files that were truncated and not synced since, with the boot ids at the first truncation.
#[derive(Debug, Default)]
pub struct Truncations(Mutex<BTreeMap<Ino, BootIds>>);

impl Truncations {
    /// A file is truncated while the hosts have these boot ids.
    pub fn record(&self, ino: Ino, boot_ids: BootIds) {
        let mut files = self.0.lock();
        files.entry(ino).or_insert(boot_ids);
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
        self.0.lock().insert(ino, boot_ids);
    }
}

/// Whether `node`, whose host has this boot id now, may have undone a truncation.
pub fn may_be_undone(boot_ids: &BootIds, node: NodeIndex, boot_id: u64) -> bool {
    boot_ids.get(usize::from(node.0)).is_none_or(|then| *then != boot_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_truncation_counts_until_a_sync_succeeds() {
        let truncations = Truncations::default();
        let (file, other) = (Ino(4), Ino(5));
        assert_eq!(truncations.take(file), None);
        truncations.record(file, [1, 7].into());
        truncations.record(file, [2, 7].into());
        let taken = truncations.take(file).unwrap();
        assert!(may_be_undone(&taken, NodeIndex(0), 2));
        assert!(!may_be_undone(&taken, NodeIndex(1), 7));
        truncations.record(file, [2, 7].into());
        truncations.put_back(file, taken);
        assert_eq!(truncations.take(other), None);
        assert_eq!(truncations.take(file).as_deref(), Some(&[1, 7][..]));
        assert_eq!(truncations.take(file), None);
    }

    #[test]
    fn lowest_inode_numbers_are_forgotten_at_the_limit() {
        let truncations = Truncations::default();
        for number in 0..=MAX_FILES as u64 {
            truncations.record(Ino(number), [1].into());
        }
        assert_eq!(truncations.take(Ino(0)), None);
        assert!(truncations.take(Ino(1)).is_some());
        assert!(truncations.take(Ino(MAX_FILES as u64)).is_some());
    }
}
