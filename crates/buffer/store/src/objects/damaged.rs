//! Objects whose data do not match their checksums, as reads and scrubs find them.

use super::ObjectId;
use forebay_protocol::{Errno, InstanceId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Damaged objects that are remembered; further ones are in the log only.
const MAX_DAMAGED: usize = 1000;

/// The damaged objects that are known since the start, with the offset of the damage.
#[derive(Debug, Default)]
pub struct DamagedObjects {
    offsets: Mutex<BTreeMap<ObjectId, u64>>,
    /// Their number, so that the usual case takes no lock.
    count: AtomicUsize,
}

impl DamagedObjects {
    /// Data do not match a checksum: log and remember it.
    pub fn note_mismatch(&self, object: ObjectId, offset: u64) {
        let ObjectId { instance, ino } = object;
        tracing::error!(%instance, %ino, offset, "checksum mismatch: data at rest are damaged");
        self.remember(object, offset);
    }

    /// An object cannot be read: log and remember it.
    pub fn note_unreadable(&self, object: ObjectId, error: Errno) {
        let ObjectId { instance, ino } = object;
        tracing::error!(%error, %instance, %ino, "cannot read data at rest");
        self.remember(object, 0);
    }

    fn remember(&self, object: ObjectId, offset: u64) {
        let mut offsets = self.offsets.lock();
        if offsets.len() < MAX_DAMAGED || offsets.contains_key(&object) {
            offsets.insert(object, offset);
        }
        self.count.store(offsets.len(), Ordering::Release);
    }

    /// An object is intact, removed, or written again.
    pub fn clear(&self, object: ObjectId) {
        self.retain(|other| other != object);
    }

    /// An instance is removed.
    pub fn clear_instance(&self, instance: InstanceId) {
        self.retain(|object| object.instance != instance);
    }

    fn retain(&self, is_damaged: impl Fn(ObjectId) -> bool) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut offsets = self.offsets.lock();
            offsets.retain(|object, _| is_damaged(*object));
            self.count.store(offsets.len(), Ordering::Release);
        }
    }

    /// All of them.
    pub fn list(&self) -> Vec<(ObjectId, u64)> {
        let offsets = self.offsets.lock();
        assert!(offsets.len() <= MAX_DAMAGED);
        offsets.iter().map(|(object, offset)| (*object, *offset)).collect()
    }
}
