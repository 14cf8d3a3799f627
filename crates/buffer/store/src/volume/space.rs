//! Space accounting of a volume: what its data objects take, and what writers have been granted.

use crate::shared_space::SharedSpace;
use forebay_protocol::Ino;
use forebay_protocol::message::Share;
use forebay_protocol::placement::Placement;
use forebay_protocol::space::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// The part of the capacity on each of several nodes that is for writes beyond its share, while others have
/// as much left of theirs: so many stripes, which is more than two nodes differ by after a large file was
/// written, and not more than this part of the capacity.
const SPARE_STRIPES: u64 = 2;
const SPARE_DIVISOR: u64 = 64;

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
    /// The largest part of the capacity that is for writes beyond the node's share. 0: the share is all of it.
    max_spare: u64,
    /// Bytes of their shares that others have lent this node, less those that it has lent. A restart ends
    /// both: then the nodes may use as much more than their shares, but never more than the capacity.
    borrowed: i64,
}

impl Space {
    /// The space of a volume without objects.
    pub fn new(placement: &Placement) -> Space {
        let max_spare = match placement.is_distributed() {
            true => placement.layout().stripe_bytes().saturating_mul(SPARE_STRIPES),
            false => 0,
        };
        Space { max_spare, ..Space::default() }
    }

    /// The part of the capacity that is for writes beyond the node's share.
    fn spare(&self, capacity: u64) -> u64 {
        let most = self.max_spare.min(capacity / SPARE_DIVISOR);
        most - most % BLOCK_BYTES
    }

    /// Whether the node lends parts of its share and borrows from others.
    fn lends(&self) -> bool {
        self.shared.is_none() && self.max_spare > 0
    }

    /// The unused part of the node's share; `None` if all of the capacity is its own.
    pub fn share_of(&self, capacity: u64) -> Option<Share> {
        let free = self.limit(capacity).saturating_sub(self.used());
        let spare = self.spare(capacity);
        let lends = spare.saturating_add_signed(self.borrowed).min(free);
        let borrows = spare.saturating_add_signed(self.borrowed.saturating_neg());
        self.lends().then_some(Share { free, lends, borrows })
    }

    /// Give up at most `want` bytes of the share for another node. Returns the bytes given up.
    pub fn lend(&mut self, capacity: u64, want: u64) -> u64 {
        let bytes = self.share_of(capacity).map_or(0, |share| share.lends.min(want));
        self.borrowed = self.borrowed.saturating_sub_unsigned(bytes);
        bytes
    }

    /// Other nodes have given up `bytes` of their shares for this one.
    pub fn borrow(&mut self, capacity: u64, bytes: u64) {
        if self.lends() {
            let most = i64::try_from(self.spare(capacity)).unwrap_or(i64::MAX);
            self.borrowed = self.borrowed.saturating_add_unsigned(bytes).min(most);
        }
    }

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
        match &self.shared {
            Some(shared) => shared.limit(capacity),
            None => {
                let share = capacity - self.spare(capacity);
                share.saturating_add_signed(self.borrowed).min(capacity)
            }
        }
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

    fn distributed() -> Space {
        let peers = ["a", "b", "c"].map(String::from);
        Space::new(&Placement::distributed(1 << 20, &peers, [0; 32])[0])
    }

    #[test]
    fn shares_are_lent_within_the_capacity_and_given_back() {
        let capacity = 640 << 20;
        let (mut lender, mut borrower) = (distributed(), distributed());
        let spare = 2 << 20;
        let share = capacity - spare;
        for space in [&mut lender, &mut borrower] {
            assert_eq!(space.grant(capacity, u64::MAX, 0), share);
            assert_eq!(space.lend(capacity, 4096), 0, "all of it is in use");
        }
        lender.release(3 << 20);
        assert_eq!(
            lender.share_of(capacity).unwrap(),
            Share { free: 3 << 20, lends: spare, borrows: spare }
        );
        let lent = lender.lend(capacity, 1 << 20);
        borrower.borrow(capacity, lent);
        assert_eq!(
            (borrower.grant(capacity, u64::MAX, 0), borrower.used()),
            (1 << 20, share + (1 << 20))
        );
        assert_eq!(lender.grant(capacity, u64::MAX, 0), 2 << 20);
        // Not beyond the capacity, whatever clients say.
        borrower.borrow(capacity, u64::MAX);
        assert_eq!(borrower.grant(capacity, u64::MAX, 0), 1 << 20);
        assert_eq!(borrower.used(), capacity);
        borrower.release(10 << 20);
        let lent = borrower.lend(capacity, u64::MAX);
        assert_eq!(lent, 2 * spare);
        lender.borrow(capacity, lent);
        assert_eq!(lender.share_of(capacity).unwrap().borrows, 0);
        assert_eq!(lender.grant(capacity, u64::MAX, 0), 3 << 20);
        assert_eq!(lender.used(), capacity);
    }

    #[test]
    fn single_node_has_all_of_the_capacity() {
        let mut space = Space::new(&Placement::single_node());
        assert_eq!((space.share_of(640 << 20), space.lend(640 << 20, 1)), (None, 0));
        assert_eq!(space.limit(640 << 20), 640 << 20);
    }
}
