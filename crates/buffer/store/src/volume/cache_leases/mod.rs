//! Leases on names and attributes: permission for clients with a single cache to keep them.
//!
//! A lease covers all names and attributes of an instance on this node. A reply that may be cached
//! grants or extends the lease of its session for [`CACHE_LIFETIME_NS`]. A request of another session
//! that changes a name or an attribute, or that opens a file for writing, waits until the lease is over:
//! it is recalled, and the client returns it when it has dropped what it caches; a client that does not
//! answer, or that does not take part in recalls, has no lease any more when its time has passed. So no
//! client ever uses a stale name or attribute.
//!
//! A session whose lease was recalled gets no new one for [`DENIAL_NS`], so that clients that change the
//! same instance by turns do not recall each other's leases all the time.
//!
//! On several nodes each grants leases for what it keeps itself. A change that concerns several nodes is a
//! transaction: a node that takes part recalls its leases before it is prepared, except that of the client
//! which requested the change, and grants none until the change is made or given up. Nodes of earlier
//! releases do not; if there are any, only a client without others caches. All clients attach to node 0
//! before they use any other node, what another node permits to be cached is valid only as long as node 0
//! has permitted it, too, and a second client has to retry its attachment (`EAGAIN`) until that is over.

mod requests;

pub use requests::changes;

use forebay_protocol::message::{CACHE_LIFETIME_NS, DELEGATION_RECALL_NS};
use forebay_protocol::{LeaseId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Allowance for a kernel that is slow to note the time of a reply.
const MARGIN_NS: u64 = 200_000_000;
/// Time after a recall for which the session gets no lease.
const DENIAL_NS: u64 = 1_000_000_000;
/// Time for which no lease is granted, for a newcomer that retries its attachment.
const RETRY_TIMEOUT_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CacheLease {
    /// Time at which all that the client may be caching has expired.
    until_ns: u64,
    denied_until_ns: u64,
    /// The recall that the client has not answered.
    recall: Option<LeaseId>,
    /// The session has a [delegation](forebay_protocol::message::Delegated) that it has not returned.
    is_delegated: bool,
}

/// The leases for whose end a request waits.
#[derive(Debug, PartialEq, Eq)]
pub struct CacheConflict {
    /// Time at which all of them are over.
    pub until_ns: u64,
    /// Sessions whose leases are to be recalled, and were not before.
    pub recalls: Vec<(SessionId, LeaseId)>,
}

/// The leases on names and attributes of a volume.
#[derive(Debug, Default)]
pub struct CacheLeases {
    sessions: BTreeMap<SessionId, CacheLease>,
    /// No lease is granted before, because a client wants to attach.
    denied_until_ns: u64,
    /// No lease is granted before, because a request waits for those that are recalled.
    waits_until_ns: u64,
}

impl CacheLeases {
    /// Whether a session may get a lease, or have it extended.
    pub fn is_available(&self, session: SessionId, now_ns: u64) -> bool {
        let known = self.sessions.get(&session);
        let is_recalled = |lease: &CacheLease| lease.recall.is_some() && now_ns < lease.until_ns;
        now_ns >= self.denied_until_ns.max(self.waits_until_ns)
            && known.is_none_or(|lease| !is_recalled(lease) && now_ns >= lease.denied_until_ns)
    }

    /// A reply permits a session to cache, or may have permitted it before this start.
    pub fn extend(&mut self, session: SessionId, now_ns: u64) {
        let lease = self.sessions.entry(session).or_default();
        // A recall that the client has not answered before the end of its lease concerns that only.
        lease.recall = None;
        lease.until_ns = lease.until_ns.max(now_ns.saturating_add(CACHE_LIFETIME_NS + MARGIN_NS));
        assert!(lease.until_ns > now_ns, "a lease lasts for some time");
    }

    /// The sessions that may have a lease.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    /// A session caches nothing. Returns whether it may have cached something.
    pub fn forget(&mut self, session: SessionId) -> bool {
        self.sessions.remove(&session).is_some()
    }

    /// Forget the leases whose time has passed, also those of sessions that are over.
    pub fn forget_expired(&mut self, now_ns: u64) {
        self.sessions.retain(|_, lease| {
            lease.is_delegated || now_ns < lease.until_ns.max(lease.denied_until_ns)
        });
    }

    /// The leases of other sessions than those `exempt`, which are to be recalled.
    pub fn recall(
        &mut self,
        exempt: &BTreeSet<SessionId>,
        now_ns: u64,
        mut new_id: impl FnMut() -> LeaseId,
    ) -> Option<CacheConflict> {
        self.forget_expired(now_ns);
        let mut conflict = CacheConflict { until_ns: 0, recalls: Vec::new() };
        let others = self.sessions.iter_mut().filter(|(session, _)| !exempt.contains(session));
        for (session, lease) in others.filter(|(_, lease)| now_ns < lease.until_ns) {
            conflict.until_ns = conflict.until_ns.max(lease.until_ns);
            lease.denied_until_ns = now_ns.saturating_add(DENIAL_NS);
            if lease.recall.is_none() {
                let id = new_id();
                lease.recall = Some(id);
                conflict.recalls.push((*session, id));
            }
        }
        self.hold_until(conflict.until_ns);
        (conflict.until_ns > 0).then_some(conflict)
    }

    /// A request that conflicts with leases waits until a time, if nothing changes before: none is granted
    /// until then.
    pub fn hold_until(&mut self, until_ns: u64) {
        self.waits_until_ns = self.waits_until_ns.max(until_ns);
    }

    /// A session gets a delegation with its lease, or may have got it before this start.
    pub fn delegate(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default().is_delegated = true;
    }

    /// Recalls all delegations, with the leases. `None`: all were returned, or not in time.
    pub fn recall_delegations(
        &mut self,
        now_ns: u64,
        mut new_id: impl FnMut() -> LeaseId,
    ) -> Option<CacheConflict> {
        let mut conflict = CacheConflict { until_ns: 0, recalls: Vec::new() };
        for (session, lease) in self.sessions.iter_mut().filter(|(_, lease)| lease.is_delegated) {
            if lease.recall.is_none() {
                let id = new_id();
                lease.recall = Some(id);
                lease.denied_until_ns = now_ns.saturating_add(DENIAL_NS);
                lease.until_ns = lease.until_ns.max(now_ns.saturating_add(DELEGATION_RECALL_NS));
                conflict.recalls.push((*session, id));
            }
            if now_ns < lease.until_ns {
                conflict.until_ns = conflict.until_ns.max(lease.until_ns);
            }
        }
        (conflict.until_ns > 0).then_some(conflict)
    }

    /// The sessions that have not returned their delegations, which end.
    pub fn take_delegations(&mut self) -> Vec<SessionId> {
        let delegated = self.sessions.iter_mut().filter(|(_, lease)| lease.is_delegated);
        let take = |(session, lease): (&SessionId, &mut CacheLease)| {
            lease.is_delegated = false;
            *session
        };
        delegated.map(take).collect()
    }

    /// A session is over, and with it its delegation.
    pub fn end_delegation(&mut self, session: SessionId) {
        if let Some(lease) = self.sessions.get_mut(&session) {
            lease.is_delegated = false;
        }
    }

    /// A client wants to attach although another one has a lease: none is granted while it retries.
    pub fn deny_all(&mut self, now_ns: u64) {
        self.denied_until_ns = now_ns.saturating_add(RETRY_TIMEOUT_NS);
    }

    /// A client has attached.
    pub fn end_denial(&mut self) {
        self.denied_until_ns = 0;
    }

    /// A session has dropped what it cached when this recall arrived. `false`: it has been answered.
    pub fn returned(&mut self, session: SessionId, id: LeaseId) -> bool {
        let Some(lease) = self.sessions.get_mut(&session) else {
            return false;
        };
        let is_pending = lease.recall == Some(id);
        if is_pending {
            (lease.until_ns, lease.recall, lease.is_delegated) = (0, None, false);
            if self.sessions.values().all(|lease| lease.recall.is_none()) {
                self.waits_until_ns = 0;
            }
        }
        is_pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);
    const THIRD: SessionId = SessionId(3);
    const LEASE_NS: u64 = CACHE_LIFETIME_NS + MARGIN_NS;

    fn recall(
        leases: &mut CacheLeases,
        changer: SessionId,
        now_ns: u64,
        id: u128,
    ) -> CacheConflict {
        let conflict = leases.recall(&BTreeSet::from([changer]), now_ns, || LeaseId(id));
        conflict.unwrap_or(CacheConflict { until_ns: 0, recalls: Vec::new() })
    }

    #[test]
    fn changes_wait_for_the_leases_of_others_only() {
        let mut leases = CacheLeases::default();
        leases.extend(ONE, 10);
        assert_eq!(leases.recall(&BTreeSet::from([ONE]), 20, || LeaseId(1)), None);
        leases.extend(OTHER, 20);
        let conflict = recall(&mut leases, ONE, 30, 2);
        let recalls = vec![(OTHER, LeaseId(2))];
        assert_eq!(conflict, CacheConflict { until_ns: 20 + LEASE_NS, recalls });
        // It is recalled once, also for another request.
        assert!(recall(&mut leases, THIRD, 40, 3).recalls == vec![(ONE, LeaseId(3))]);
        assert!(!leases.is_available(OTHER, 50) && !leases.is_available(THIRD, 50));
        assert!(!leases.returned(OTHER, LeaseId(3)));
        assert!(leases.returned(OTHER, LeaseId(2)));
        assert!(!leases.returned(OTHER, LeaseId(2)));
        assert!(!leases.is_available(THIRD, 50));
        assert!(leases.returned(ONE, LeaseId(3)));
        assert!(leases.is_available(THIRD, 50));
        assert_eq!(leases.recall(&BTreeSet::from([ONE]), 60, || LeaseId(4)), None);
        assert!(!leases.is_available(OTHER, 40 + DENIAL_NS - 1));
        assert!(leases.is_available(OTHER, 40 + DENIAL_NS));
    }

    #[test]
    fn lease_of_a_dead_client_expires() {
        let mut leases = CacheLeases::default();
        leases.extend(ONE, 10);
        assert_eq!(recall(&mut leases, OTHER, 20, 1).until_ns, 10 + LEASE_NS);
        assert_eq!(recall(&mut leases, OTHER, 9 + LEASE_NS, 2).recalls, []);
        assert!(!leases.is_available(ONE, 9 + LEASE_NS));
        assert_eq!(leases.recall(&BTreeSet::from([OTHER]), 10 + LEASE_NS, || LeaseId(3)), None);
        // An answer that comes after the end of the lease does not end the next one.
        leases.extend(ONE, 10 + 2 * LEASE_NS);
        assert!(!leases.returned(ONE, LeaseId(1)));
        assert!(
            leases.recall(&BTreeSet::from([OTHER]), 20 + 2 * LEASE_NS, || LeaseId(4)).is_some()
        );
    }

    #[test]
    fn expired_leases_take_no_memory() {
        let mut leases = CacheLeases::default();
        leases.extend(ONE, 10);
        leases.extend(OTHER, 20);
        leases.forget_expired(10 + LEASE_NS);
        assert_eq!(leases.sessions.keys().collect::<Vec<_>>(), [&OTHER]);
        assert!(leases.is_available(ONE, 10 + LEASE_NS));
        // A session that gets no lease for now is remembered.
        recall(&mut leases, ONE, 19 + LEASE_NS, 1);
        leases.forget_expired(20 + LEASE_NS);
        assert!(!leases.is_available(OTHER, 20 + LEASE_NS));
        leases.forget_expired(19 + LEASE_NS + DENIAL_NS);
        assert!(leases.sessions.is_empty());
    }

    #[test]
    fn no_lease_is_granted_while_a_client_retries_its_attachment() {
        let mut leases = CacheLeases::default();
        leases.extend(ONE, 10);
        let conflict = leases.recall(&BTreeSet::new(), 20, || LeaseId(1));
        assert!(conflict.is_some_and(|conflict| conflict.recalls == [(ONE, LeaseId(1))]));
        leases.deny_all(20);
        assert!(leases.returned(ONE, LeaseId(1)));
        assert_eq!(leases.recall(&BTreeSet::new(), 30, || LeaseId(2)), None);
        assert!(!leases.is_available(OTHER, 20 + RETRY_TIMEOUT_NS - 1));
        assert!(leases.is_available(OTHER, 20 + RETRY_TIMEOUT_NS));
        leases.deny_all(30);
        leases.end_denial();
        assert!(leases.is_available(OTHER, 40));
    }
}
