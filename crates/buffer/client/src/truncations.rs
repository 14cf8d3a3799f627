//! Files that were cut shorter, and whether a storage node can have undone that.
//!
//! A node that loses its power has again what it had when the file was synced last, also of a part
//! that was cut off since, and a sync would keep that. So a client notes under which starts of the
//! nodes' hosts it cut a file, and its sync fails with `EIO`, once, if a node that holds a part of the
//! file was started anew since.

use crate::session::lock;
use forebay_protocol::{Ino, NodeIndex};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Files that are kept in mind; of more, the ones with the lowest numbers are forgotten.
const MOST: usize = 65_536;

/// Starts of the nodes' hosts, in the order of the nodes; 0: not known.
pub type BootIds = Box<[u64]>;

/// Files that were cut and not synced since, and the starts under which they were cut first.
#[derive(Debug, Default)]
pub struct Truncations(Mutex<BTreeMap<Ino, BootIds>>);

impl Truncations {
    /// A file is cut under these starts.
    pub fn record(&self, ino: Ino, boots: BootIds) {
        let mut files = lock(&self.0);
        files.entry(ino).or_insert(boots);
        if files.len() > MOST {
            files.pop_first();
        }
    }

    /// A sync begins: what is cut from now on may not be part of it.
    pub fn take(&self, ino: Ino) -> Option<BootIds> {
        lock(&self.0).remove(&ino)
    }

    /// The sync has failed.
    pub fn put_back(&self, ino: Ino, boots: BootIds) {
        // They are older than what has been noted meanwhile.
        lock(&self.0).insert(ino, boots);
    }
}

/// Can a node have undone a cut under `boots`, now that `boot` is its host's start?
pub fn may_be_undone(boots: &BootIds, node: NodeIndex, boot: u64) -> bool {
    boots
        .get(usize::from(node.0))
        .is_none_or(|then| *then != boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cut_counts_until_a_sync_succeeds() {
        let cuts = Truncations::default();
        let (file, other) = (Ino(4), Ino(5));
        assert_eq!(cuts.take(file), None);
        cuts.record(file, [1, 7].into());
        cuts.record(file, [2, 7].into());
        let taken = cuts.take(file).unwrap();
        assert!(may_be_undone(&taken, NodeIndex(0), 2) && !may_be_undone(&taken, NodeIndex(1), 7));
        cuts.record(file, [2, 7].into());
        cuts.put_back(file, taken);
        assert_eq!(cuts.take(other), None);
        assert_eq!(cuts.take(file).as_deref(), Some(&[1, 7][..]));
        assert_eq!(cuts.take(file), None);
    }

    #[test]
    fn not_more_than_so_many_files_are_kept_in_mind() {
        let cuts = Truncations::default();
        for number in 0..=MOST as u64 {
            cuts.record(Ino(number), [1].into());
        }
        assert_eq!(cuts.take(Ino(0)), None);
        assert!(cuts.take(Ino(1)).is_some() && cuts.take(Ino(MOST as u64)).is_some());
    }
}
