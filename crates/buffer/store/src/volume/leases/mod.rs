//! Read leases: permission to keep data of a file that a client has read.
//!
//! A file's metadata node grants a lease on it while nobody has the file open for writing. As long as
//! the lease is valid, every request that may lead to a change of the file's data waits: to open it
//! for writing, and to set its length. The holder is asked to give the lease back, and does so when it
//! has discarded what it has read; a holder that does not answer has no lease any more when the time
//! for which it was granted has passed. The client counts that time from its request, the daemon from
//! its reply, both on monotonic clocks.
//!
//! Leases are not durable. A daemon that starts grants none before all sessions from before have opened
//! their files again or are over, since they may write. A log record says whether there may be leases: then
//! it holds back conflicting requests until those have expired.

mod requests;
#[cfg(test)]
mod tests;

use forebay_protocol::message::READ_LEASE_NS;
use forebay_protocol::{HandleId, Ino, LeaseId, SessionId};
use std::collections::BTreeMap;

/// Time from a reply that grants a lease until the daemon takes it to have expired. The margin is for
/// clocks that do not run at the same rate.
pub const LEASE_EXPIRY_NS: u64 = READ_LEASE_NS + READ_LEASE_NS / 10;
/// Time for which a request that waits for leases keeps new ones from being granted. It is retried, and
/// begins the time anew, when the present ones have expired.
const DENIAL_NS: u64 = 2 * LEASE_EXPIRY_NS;

/// An open file of a session.
pub type Holder = (SessionId, HandleId);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: LeaseId,
    expires_ns: u64,
    is_recalled: bool,
}

#[derive(Debug, Default)]
struct LeasedFile {
    holders: BTreeMap<Holder, Lease>,
    /// No lease is granted before, because a conflicting request waits.
    denied_until_ns: u64,
}

/// The leases for whose end a conflicting request waits.
#[derive(Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Time at which all leases on the file have expired.
    pub until_ns: u64,
    /// Leases to be recalled, which were not recalled before.
    pub recalls: Vec<(Holder, LeaseId)>,
}

/// The leases on a volume's files.
#[derive(Debug, Default)]
pub struct ReadLeases {
    files: BTreeMap<Ino, LeasedFile>,
    /// Leases that were granted before this start have expired.
    forgotten_until_ns: u64,
    /// A session from before this start has expired without opening its files again, or could not open
    /// one again for writing. Its client may still write to data objects that it has open, so that
    /// nothing can be leased.
    is_disabled: bool,
}

impl ReadLeases {
    /// The leases of a daemon that starts at `now_ns`, before which clients had leases.
    pub fn forgotten(now_ns: u64) -> ReadLeases {
        let forgotten_until_ns = now_ns.saturating_add(LEASE_EXPIRY_NS);
        ReadLeases { forgotten_until_ns, ..ReadLeases::default() }
    }

    /// Time until which leases from before this start may be valid.
    pub fn forgotten_until_ns(&self) -> u64 {
        self.forgotten_until_ns
    }

    /// A client that is not known to have a file open for writing may write to it.
    pub fn disable(&mut self) {
        self.is_disabled = true;
    }

    /// Whether leases may be granted at all.
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Grant a lease on a file that nobody has open for writing, or extend it. `None`: a conflicting
    /// request waits.
    pub fn grant(
        &mut self,
        ino: Ino,
        holder: Holder,
        now_ns: u64,
        new_id: impl FnOnce() -> LeaseId,
    ) -> Option<LeaseId> {
        let file = self.files.entry(ino).or_default();
        if now_ns < file.denied_until_ns {
            return None;
        }
        let expires_ns = now_ns.saturating_add(LEASE_EXPIRY_NS);
        let is_valid = |lease: &&mut Lease| now_ns < lease.expires_ns;
        if let Some(lease) = file.holders.get_mut(&holder).filter(is_valid) {
            assert!(!lease.is_recalled, "a recalled lease expires before new ones are granted");
            lease.expires_ns = expires_ns;
            return Some(lease.id);
        }
        let id = new_id();
        file.holders.insert(holder, Lease { id, expires_ns, is_recalled: false });
        Some(id)
    }

    /// The conflict of leases on a file with a request that may change its data, which is to be retried
    /// when they are over. `None`: there are none, and the request must be carried out now.
    pub fn recall(&mut self, ino: Ino, now_ns: u64) -> Option<Conflict> {
        let file = self.files.get_mut(&ino)?;
        let valid = file.holders.values().filter(|lease| now_ns < lease.expires_ns);
        let Some(until_ns) = valid.map(|lease| lease.expires_ns).max() else {
            self.files.remove(&ino);
            return None;
        };
        file.denied_until_ns = now_ns.saturating_add(DENIAL_NS);
        let mut recalls = Vec::new();
        for (holder, lease) in &mut file.holders {
            if !std::mem::replace(&mut lease.is_recalled, true) {
                recalls.push((*holder, lease.id));
            }
        }
        Some(Conflict { until_ns, recalls })
    }

    /// A holder gives a lease back, or, without `id`, its handle is closed. Returns whether this was the
    /// last lease on the file.
    pub fn end(&mut self, ino: Ino, holder: Holder, id: Option<LeaseId>) -> bool {
        let Some(file) = self.files.get_mut(&ino) else {
            return false;
        };
        let held = file.holders.get(&holder).map(|lease| lease.id);
        // An earlier lease of the holder may have expired before it was given back.
        if held.is_none() || (id.is_some() && held != id) {
            return false;
        }
        file.holders.remove(&holder);
        let is_last = file.holders.is_empty();
        if is_last && file.denied_until_ns == 0 {
            self.files.remove(&ino);
        }
        is_last
    }

    /// Forget files that have no valid leases and that no request waits for. Returns whether a lease may
    /// be valid.
    pub fn forget_unused(&mut self, now_ns: u64) -> bool {
        let any_valid = |file: &LeasedFile| {
            let mut leases = file.holders.values();
            leases.any(|lease| now_ns < lease.expires_ns)
        };
        self.files.retain(|_, file| now_ns < file.denied_until_ns || any_valid(file));
        now_ns < self.forgotten_until_ns || self.files.values().any(any_valid)
    }

    /// All known leases, valid or not.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, Holder)> {
        let files = self.files.iter();
        files.flat_map(|(ino, file)| file.holders.keys().map(|holder| (*ino, *holder)))
    }
}
