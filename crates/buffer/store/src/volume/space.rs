//! Space accounting of a volume: what its data objects take, and what writers have been granted.

use crate::shared_space::SharedSpace;
use forebay_protocol::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// The data objects of a volume, the space they take, and the space granted to writers in addition.
#[derive(Debug, Default)]
pub struct Space {
    /// Bytes that each object takes.
    objects: BTreeMap<Ino, u64>,
    /// Objects whose existence is not durable.
    fresh: BTreeSet<Ino>,
    /// Bytes that all objects take.
    charged: u64,
    /// Bytes granted to writers.
    granted: u64,
    /// Bytes charged for metadata.
    metadata: u64,
    /// Capacity that nodes of the instance share.
    shared: Option<SharedSpace>,
}

impl Space {
    /// From now on other nodes share the capacity.
    pub fn share(&mut self, shared: SharedSpace) {
        self.shared = Some(shared);
    }

    /// The capacity that is shared with other nodes.
    pub fn shared(&self) -> Option<&SharedSpace> {
        self.shared.as_ref()
    }

    /// Let other nodes know of the present use.
    pub fn publish(&self, capacity: u64) {
        if let Some(shared) = &self.shared {
            shared.publish(capacity, self.used());
        }
    }

    /// The bytes that may be used of a capacity, of which other nodes may have taken a part, or left one.
    pub fn limit(&self, capacity: u64) -> u64 {
        self.shared.as_ref().map_or(capacity, |shared| shared.limit(capacity))
    }

    /// Bytes in use or granted.
    pub fn used(&self) -> u64 {
        self.charged.saturating_add(self.granted).saturating_add(self.metadata)
    }

    /// Set the bytes charged for metadata.
    pub fn charge_metadata(&mut self, bytes: u64) {
        self.metadata = bytes;
    }

    /// Bytes charged for metadata.
    pub fn metadata(&self) -> u64 {
        self.metadata
    }

    /// The number of objects.
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Bytes granted to writers.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Whether a file has an object.
    pub fn has_object(&self, ino: Ino) -> bool {
        self.objects.contains_key(&ino)
    }

    /// The files that have objects.
    pub fn objects(&self) -> impl Iterator<Item = Ino> {
        self.objects.keys().copied()
    }

    /// Account for an object that was just created and takes `bytes`.
    pub fn add_object(&mut self, ino: Ino, bytes: u64) {
        self.charge(ino, bytes);
        self.fresh.insert(ino);
    }

    /// Account for an object that takes `bytes` now.
    pub fn charge(&mut self, ino: Ino, bytes: u64) {
        let before = self.objects.insert(ino, bytes).unwrap_or(0);
        assert!(before <= self.charged, "an object was charged");
        self.charged = self.charged - before + bytes;
    }

    /// Remove an object. Returns the bytes that it takes; `None`: there is none.
    pub fn remove_object(&mut self, ino: Ino) -> Option<u64> {
        self.fresh.remove(&ino);
        let bytes = self.objects.remove(&ino)?;
        assert!(bytes <= self.charged, "an object was charged");
        self.charged -= bytes;
        Some(bytes)
    }

    /// Whether the existence of an object may not be durable.
    pub fn is_fresh(&self, ino: Ino) -> bool {
        self.fresh.contains(&ino)
    }

    /// The existence of an object is durable.
    pub fn remove_fresh(&mut self, ino: Ino) {
        self.fresh.remove(&ino);
    }

    /// Give up `bytes` of a grant.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.granted, "no more is released than granted");
        self.granted -= bytes;
    }

    /// Grant space to a writer that needs `want` bytes now and would like `ahead`: all of `want` if
    /// it is free, and beyond that at most an eighth of the free space. Returns the bytes granted.
    pub fn grant(&mut self, capacity: u64, want: u64, ahead: u64) -> u64 {
        let shared = self.shared.clone();
        let _granting = shared.as_ref().map(SharedSpace::begin_grant);
        let limit = self.limit(capacity);
        let bytes = self.available_within(limit, want, ahead);
        self.granted += bytes;
        assert!(bytes == 0 || self.used() <= limit, "granted space never exceeds the capacity");
        self.publish(capacity);
        bytes
    }

    /// The bytes that [`grant`](Space::grant) would grant.
    pub fn available(&self, capacity: u64, want: u64, ahead: u64) -> u64 {
        self.available_within(self.limit(capacity), want, ahead)
    }

    fn available_within(&self, limit: u64, want: u64, ahead: u64) -> u64 {
        let free = limit.saturating_sub(self.used());
        want.max(ahead.min(free / 8)).min(free)
    }

    /// Check that the sums are right, for debug builds.
    pub fn check(&self) {
        assert_eq!(self.charged, self.objects.values().sum::<u64>());
        assert!(self.fresh.iter().all(|ino| self.has_object(*ino)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_shrink_as_the_volume_fills_and_never_exceed_its_capacity() {
        let mut space = Space::default();
        let capacity = 1 << 20;
        let mut total = 0;
        loop {
            let bytes = space.grant(capacity, 4096, 1 << 30);
            if bytes == 0 {
                break;
            }
            total += bytes;
            assert!(space.used() <= capacity);
        }
        assert_eq!(total, capacity);
    }
}
