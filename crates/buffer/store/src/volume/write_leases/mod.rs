//! Write leases: permission to report writes to a program as carried out before they are.
//!
//! A file's metadata node grants a write lease to a handle while no other session has the file open. A
//! request of another session that shows the file's length or times, that opens it, or that makes its
//! data durable, waits: the lease is recalled, and the holder gives it back when all its writes are
//! acknowledged. A holder whose writes take long extends the time for that by requesting the lease
//! again.
//!
//! When a holder is silent for [`WRITE_LEASE_RECALL_NS`] after the recall, the request is carried out. If it
//! opens the file or sets its length, the holder's handle is fenced: no later write through it is carried
//! out. If it only shows attributes, it is not, so that a program which was stopped for a while loses
//! nothing.
//!
//! Write leases are not durable. After a start, requests for attributes of files, and opens, wait until
//! clients have noticed it: as long as for read leases from before.

mod requests;
#[cfg(test)]
mod tests;

use super::leases::Holder;
use forebay_protocol::message::WRITE_LEASE_RECALL_NS;
use forebay_protocol::{Ino, LeaseId, SessionId};
use std::collections::BTreeMap;

#[derive(Debug)]
struct WriteLease {
    holder: Holder,
    id: LeaseId,
    /// End of the wait for the holder, if the lease is recalled.
    recalled_until_ns: Option<u64>,
}

/// The conflict of a write lease with a request of another session.
#[derive(Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The holder has this time to give the lease back.
    Waits { until_ns: u64, holder: Holder, id: LeaseId, is_first: bool },
    /// The holder did not give it back in time.
    Overdue,
}

/// The write leases on a volume's files.
#[derive(Debug, Default)]
pub struct WriteLeases {
    files: BTreeMap<Ino, WriteLease>,
}

impl WriteLeases {
    /// Whether no file is leased.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether a file is leased.
    pub fn contains(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }

    /// Grants a lease on a file that no other session has open, or confirms it. `None`: another handle
    /// has it, or it is recalled. Then its holder has more time to give it back.
    pub fn grant(
        &mut self,
        ino: Ino,
        holder: Holder,
        now_ns: u64,
        new_id: impl FnOnce() -> LeaseId,
    ) -> Option<LeaseId> {
        let new = || WriteLease { holder, id: new_id(), recalled_until_ns: None };
        let lease = self.files.entry(ino).or_insert_with(new);
        if lease.holder != holder {
            return None;
        }
        if let Some(until_ns) = &mut lease.recalled_until_ns {
            *until_ns = (*until_ns).max(now_ns.saturating_add(WRITE_LEASE_RECALL_NS));
            return None;
        }
        Some(lease.id)
    }

    /// The handle that has the lease on a file.
    pub fn holder(&self, ino: Ino) -> Option<Holder> {
        self.files.get(&ino).map(|lease| lease.holder)
    }

    /// The conflict of a lease with a request of `session`, which recalls it.
    pub fn recall(&mut self, ino: Ino, session: SessionId, now_ns: u64) -> Option<Conflict> {
        let lease = self.files.get_mut(&ino).filter(|lease| lease.holder.0 != session)?;
        let is_first = lease.recalled_until_ns.is_none();
        let until_ns =
            *lease.recalled_until_ns.get_or_insert(now_ns.saturating_add(WRITE_LEASE_RECALL_NS));
        let (holder, id) = (lease.holder, lease.id);
        Some(if now_ns < until_ns {
            Conflict::Waits { until_ns, holder, id, is_first }
        } else {
            Conflict::Overdue
        })
    }

    /// A holder gives a lease back, or, without `id`, its handle is closed or fenced. Returns whether
    /// there was one.
    pub fn end(&mut self, ino: Ino, holder: Holder, id: Option<LeaseId>) -> bool {
        let is_held =
            |lease: &WriteLease| lease.holder == holder && id.is_none_or(|id| id == lease.id);
        if !self.files.get(&ino).is_some_and(is_held) {
            return false;
        }
        self.files.remove(&ino).is_some()
    }

    /// All leases.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, Holder)> {
        self.files.iter().map(|(ino, lease)| (*ino, lease.holder))
    }
}
