//! Read leases: permission of the daemon to keep what was read of a file.
//!
//! A lease is valid for a time from the moment when the request for it was sent, unless the daemon
//! recalls it before. The daemon carries out no change of the file until the recall is confirmed, which
//! happens after the lease was removed here, or until that time has passed.

use super::Session;
use forebay_protocol::message::{LockRequest, MAX_LEASED_HANDLES, READ_LEASE_NS};
use forebay_protocol::{HandleId, LeaseId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Validity of a lease.
const LIFETIME: Duration = Duration::from_nanos(READ_LEASE_NS);
/// Time left at which a lease in use is renewed.
const RENEWAL: Duration = Duration::from_nanos(READ_LEASE_NS / 2);

/// The lease of an open file, while it has one.
#[derive(Debug)]
pub struct FileLease {
    handle: HandleId,
    /// The lease, and the time at which it expires.
    held: Mutex<Option<(LeaseId, Instant)>>,
    /// Used since the last renewal.
    is_used: AtomicBool,
}

impl FileLease {
    /// The lease of a file that has none yet.
    pub fn new(handle: HandleId) -> Arc<FileLease> {
        Arc::new(FileLease { handle, held: Mutex::new(None), is_used: AtomicBool::new(false) })
    }

    /// The lease, if it is valid at `now`, and the time left.
    pub fn valid(&self, now: Instant) -> Option<(LeaseId, Duration)> {
        let (id, expires) = (*self.held.lock())?;
        let left = expires.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some((id, left))
    }
}

/// The leases of a session.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<LeaseId, Arc<FileLease>>,
    /// Requests for leases without a reply, and leases that were recalled meanwhile: a reply that
    /// grants one of them is late.
    in_flight: u32,
    recalled: BTreeSet<LeaseId>,
}

impl Leases {
    /// A lease was granted, or not, by the reply to a request that was sent at `sent_at`.
    fn replied(&mut self, lease: &Arc<FileLease>, id: Option<LeaseId>, sent_at: Instant) {
        let mut held = lease.held.lock();
        let expires = sent_at + LIFETIME;
        match (id.filter(|id| !self.recalled.contains(id)), *held) {
            (Some(id), Some((old, until))) if old == id => *held = Some((id, until.max(expires))),
            (granted, old) => {
                *held = granted.map(|id| (id, expires));
                if let Some((old, _)) = old {
                    self.held.remove(&old);
                }
                if let Some(id) = granted {
                    self.held.insert(id, lease.clone());
                }
            }
        }
    }

    /// A lease must not be used any more.
    fn remove(&mut self, id: LeaseId) {
        if self.in_flight > 0 {
            self.recalled.insert(id);
        }
        if let Some(lease) = self.held.remove(&id) {
            lease.held.lock().take_if(|(held, _)| *held == id);
        }
    }
}

impl Session {
    /// The lease of a file that is about to be used, requested or renewed if necessary. `None`: the
    /// daemon does not grant one.
    pub fn use_lease(&self, lease: &Arc<FileLease>) -> Option<LeaseId> {
        let now = self.options.system.now();
        lease.is_used.store(true, Ordering::Relaxed);
        if let Some((id, left)) = lease.valid(now)
            && left > RENEWAL
        {
            return Some(id);
        }
        self.request_leases(lease);
        Some(lease.valid(self.options.system.now())?.0)
    }

    /// Requests a lease for a file, and renews in the same request the others that were used since they
    /// were renewed.
    fn request_leases(&self, lease: &Arc<FileLease>) {
        let sent_at = self.options.system.now();
        let mut wanted = vec![lease.clone()];
        {
            let mut leases = self.leases.lock();
            leases.in_flight += 1;
            let others = leases.held.values().filter(|other| {
                let is_due = other.valid(sent_at).is_none_or(|(_, left)| left <= RENEWAL);
                is_due && !Arc::ptr_eq(other, lease) && other.is_used.load(Ordering::Relaxed)
            });
            wanted.extend(others.take(MAX_LEASED_HANDLES - 1).cloned());
        }
        for lease in &wanted {
            lease.is_used.store(false, Ordering::Relaxed);
        }
        let handles = wanted.iter().map(|lease| lease.handle).collect();
        // A read does not wait for a node that has none of the data and does not answer.
        let reply = self.call_best_effort(LockRequest::Lease { handles });
        let granted: Option<Vec<Option<LeaseId>>> =
            reply.and_then(|reply| reply.reply.try_into().ok());
        let granted = granted.unwrap_or_default();
        let mut leases = self.leases.lock();
        for (index, lease) in wanted.iter().enumerate() {
            leases.replied(lease, granted.get(index).copied().flatten(), sent_at);
        }
        leases.in_flight -= 1;
        if leases.in_flight == 0 {
            leases.recalled.clear();
        }
    }

    /// Leases were recalled: they are not used after this returns.
    pub fn return_leases(&self, recalled: &[LeaseId]) {
        if !recalled.is_empty() {
            let mut leases = self.leases.lock();
            recalled.iter().for_each(|id| leases.remove(*id));
        }
    }

    /// A file is being closed.
    pub fn forget_lease(&self, lease: &FileLease) {
        let mut leases = self.leases.lock();
        let held = *lease.held.lock();
        if let Some((id, _)) = held {
            leases.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Option<LeaseId> {
        Some(LeaseId(number))
    }

    #[test]
    fn lease_lasts_from_its_request_and_not_from_the_reply() {
        let (mut leases, lease) = (Leases::default(), FileLease::new(HandleId(1)));
        let sent_at = Instant::now();
        leases.replied(&lease, id(1), sent_at);
        let last = sent_at + LIFETIME - Duration::from_nanos(1);
        assert_eq!(lease.valid(last), Some((LeaseId(1), Duration::from_nanos(1))));
        assert_eq!(lease.valid(sent_at + LIFETIME), None);
    }

    #[test]
    fn late_reply_does_not_shorten_a_lease_or_restore_a_recalled_one() {
        let (mut leases, lease) = (Leases::default(), FileLease::new(HandleId(1)));
        let sent_at = Instant::now();
        let later = sent_at + Duration::from_millis(500);
        leases.in_flight = 2;
        leases.replied(&lease, id(1), later);
        leases.replied(&lease, id(1), sent_at);
        assert_eq!(lease.valid(later), Some((LeaseId(1), LIFETIME)));
        leases.remove(LeaseId(1));
        assert_eq!(lease.valid(later), None);
        leases.replied(&lease, id(1), later);
        assert_eq!(lease.valid(later), None, "it was recalled while the reply was on its way");
        leases.replied(&lease, id(2), later);
        assert_eq!(lease.valid(later), Some((LeaseId(2), LIFETIME)));
        leases.replied(&lease, None, later);
        assert_eq!(lease.valid(later), None);
        assert!(leases.held.is_empty());
    }
}
