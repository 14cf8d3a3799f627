//! Write leases: permission to report writes to a program as carried out before they are.
//!
//! A storage node grants a write lease to a handle of a data object while no other session has the object
//! open: for the objects of striped files each node by itself. A request of another session that shows the
//! object's length or times, that opens it, or that makes its data durable, waits, and so do messages of
//! the file's metadata node with the same effects: the lease is recalled, and the holder gives it back when
//! all its writes to this node are acknowledged. A holder whose writes take long extends the time for that
//! by requesting the lease again.
//!
//! When a holder is silent for [`WRITE_LEASE_RECALL_NS`] after the recall, the request is carried out. If it
//! opens the object or sets its length, the holder's handle is fenced: no later write through it is carried
//! out. If it only shows attributes, it is not, so that a program which was stopped for a while loses
//! nothing.
//!
//! Write leases are durable, like the results of calls, under [slot numbers](FIRST_WRITE_LEASE_SLOT) of
//! their own. After a restart a holder claims its lease before it sends a write that it has delayed. If
//! another session has opened or truncated the file since, before the restart or after it, there is no lease
//! to claim, and the writes are not sent. (After a power failure, which may undo that a lease ended, no
//! client claims one.)

mod requests;
#[cfg(test)]
mod tests;
mod waiting_messages;

pub use waiting_messages::{Awaited, WaitingMessages};

use super::leases::Holder;
use forebay_protocol::message::{FIRST_WRITE_LEASE_SLOT, MAX_WRITE_LEASES, WRITE_LEASE_RECALL_NS};
use forebay_protocol::{Ino, LeaseId, SessionId};
use std::collections::BTreeMap;

#[derive(Debug)]
struct WriteLease {
    holder: Holder,
    id: LeaseId,
    /// The slot of the session on which it is noted.
    slot: u32,
    /// End of the wait for the holder, if the lease is recalled.
    recalled_until_ns: Option<u64>,
    /// It is from before this start, and its holder has not claimed it.
    is_unclaimed: bool,
}

/// The conflict of a write lease with a request of another session.
#[derive(Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The holder has this time to give the lease back.
    Waits { until_ns: u64, holder: Holder, id: LeaseId, is_first: bool },
    /// The holder did not give it back in time.
    Overdue,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub holder: Holder,
    /// The slot of the session on which it is noted.
    pub slot: u32,
    /// Its holder had not claimed it.
    pub is_unclaimed: bool,
}

/// A lease that was granted, or confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub id: LeaseId,
    /// The slot on which it is to be noted; `None`: it is noted.
    pub new_slot: Option<u32>,
}

/// The write leases on a volume's data objects.
#[derive(Debug, Default)]
pub struct WriteLeases {
    files: BTreeMap<Ino, WriteLease>,
    /// The leases by the slots on which they are noted.
    slots: BTreeMap<(SessionId, u32), Ino>,
    /// Leases that have ended and are noted, because the log had no space.
    ended: Vec<Ended>,
    is_disabled: bool,
}

impl WriteLeases {
    /// Whether no object is leased.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether an object is leased.
    pub fn contains(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }

    /// A client that is not known to have an object open may read it.
    pub fn disable(&mut self) {
        self.is_disabled = true;
    }

    /// Whether no new lease may be granted.
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// A lease from before this start, which its holder may claim.
    pub fn restore(&mut self, ino: Ino, holder: Holder, slot: u32) {
        // No number that was drawn is equal.
        let id = LeaseId(u128::from(holder.0.0) << 64 | u128::from(holder.1.0));
        let (recalled_until_ns, is_unclaimed) = (None, true);
        let lease = WriteLease { holder, id, slot, recalled_until_ns, is_unclaimed };
        let replaced = self.files.insert(ino, lease);
        debug_assert!(replaced.is_none(), "an object has one lease");
        self.slots.insert((holder.0, slot), ino);
    }

    /// The holder of a lease from before this start claims it, also if it is recalled: then it has more time
    /// to give it back. `None`: it has ended.
    pub fn claim(
        &mut self,
        ino: Ino,
        holder: Holder,
        now_ns: u64,
        new_id: impl FnOnce() -> LeaseId,
    ) -> Option<LeaseId> {
        let lease = self.files.get_mut(&ino).filter(|lease| lease.holder == holder)?;
        extend(&mut lease.recalled_until_ns, now_ns);
        if std::mem::replace(&mut lease.is_unclaimed, false) && lease.recalled_until_ns.is_none() {
            lease.id = new_id();
        }
        Some(lease.id)
    }

    /// The object on which a handle has the lease, whether or not it has been opened again since a restart.
    pub fn object_of(&self, holder: Holder) -> Option<Ino> {
        let of_session = self.slots.range((holder.0, 0)..=(holder.0, u32::MAX));
        let mut inos = of_session.map(|(_, ino)| *ino);
        inos.find(|ino| self.files.get(ino).is_some_and(|lease| lease.holder == holder))
    }

    /// Grants a lease on an object that no other session has open, or confirms it. `None`: another handle
    /// has it, the session has too many, or it is recalled. Then its holder has more time to give it back.
    pub fn grant(
        &mut self,
        ino: Ino,
        holder: Holder,
        now_ns: u64,
        new_id: impl FnOnce() -> LeaseId,
    ) -> Option<Granted> {
        if let Some(lease) = self.files.get_mut(&ino) {
            if lease.holder != holder || lease.is_unclaimed {
                return None;
            }
            extend(&mut lease.recalled_until_ns, now_ns);
            let is_recalled = lease.recalled_until_ns.is_some();
            return (!is_recalled).then_some(Granted { id: lease.id, new_slot: None });
        }
        let slots = FIRST_WRITE_LEASE_SLOT..FIRST_WRITE_LEASE_SLOT + MAX_WRITE_LEASES;
        let is_free = |slot: &u32| !self.slots.contains_key(&(holder.0, *slot));
        let slot = slots.into_iter().find(is_free)?;
        let (id, recalled_until_ns, is_unclaimed) = (new_id(), None, false);
        self.files.insert(ino, WriteLease { holder, id, slot, recalled_until_ns, is_unclaimed });
        self.slots.insert((holder.0, slot), ino);
        Some(Granted { id, new_slot: Some(slot) })
    }

    /// The conflict of a lease with a request of `session`, or of another node, which recalls it.
    pub fn recall(
        &mut self,
        ino: Ino,
        session: Option<SessionId>,
        now_ns: u64,
    ) -> Option<Conflict> {
        let lease = self.files.get_mut(&ino).filter(|lease| Some(lease.holder.0) != session)?;
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

    /// Whether another session than `session` has the lease on an object, and has not given it back in time.
    pub fn is_overdue(&self, ino: Ino, session: Option<SessionId>, now_ns: u64) -> bool {
        self.files.get(&ino).is_some_and(|lease| {
            let is_over = lease.recalled_until_ns.is_some_and(|until_ns| until_ns <= now_ns);
            is_over && Some(lease.holder.0) != session
        })
    }

    /// The lease on an object that is overdue ends.
    pub fn end_overdue(&mut self, ino: Ino) -> Option<Ended> {
        self.end_if(ino, |lease| lease.recalled_until_ns.is_some())
    }

    /// The lease on an object of another session than `session` ends that was not claimed.
    pub fn end_unclaimed_of_others(&mut self, ino: Ino, session: SessionId) -> Option<Ended> {
        self.end_if(ino, |lease| lease.is_unclaimed && lease.holder.0 != session)
    }

    /// A holder gives a lease back, or, without `id`, its handle is closed. `None`: there was none.
    pub fn end(&mut self, ino: Ino, holder: Holder, id: Option<LeaseId>) -> Option<Ended> {
        self.end_if(ino, |lease| lease.holder == holder && id.is_none_or(|id| id == lease.id))
    }

    /// A session uses its handles again, or is over, without having claimed its leases. Returns the objects.
    pub fn end_unclaimed(&mut self, session: SessionId) -> Vec<(Ino, Ended)> {
        let of_session = self.slots.range((session, 0)..=(session, u32::MAX));
        let inos: Vec<Ino> = of_session.map(|(_, ino)| *ino).collect();
        let end = |ino| Some((ino, self.end_if(ino, |lease| lease.is_unclaimed)?));
        inos.into_iter().filter_map(end).collect()
    }

    fn end_if(&mut self, ino: Ino, ends: impl FnOnce(&WriteLease) -> bool) -> Option<Ended> {
        if !self.files.get(&ino).is_some_and(ends) {
            return None;
        }
        let WriteLease { holder, slot, is_unclaimed, .. } = self.files.remove(&ino)?;
        let noted = self.slots.remove(&(holder.0, slot));
        assert_eq!(noted, Some(ino), "each lease has a slot");
        Some(Ended { holder, slot, is_unclaimed })
    }

    /// The end of a lease could not be noted.
    fn note_later(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// Leases whose end is to be noted.
    fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// All leases of clients that use them.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, Holder)> {
        let claimed = self.files.iter().filter(|(_, lease)| !lease.is_unclaimed);
        claimed.map(|(ino, lease)| (*ino, lease.holder))
    }
}

/// The holder of a lease that is recalled has more time to give it back.
fn extend(recalled_until_ns: &mut Option<u64>, now_ns: u64) {
    if let Some(until_ns) = recalled_until_ns {
        *until_ns = (*until_ns).max(now_ns.saturating_add(WRITE_LEASE_RECALL_NS));
    }
}
