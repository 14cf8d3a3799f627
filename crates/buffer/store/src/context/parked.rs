//! Calls that wait for a transaction, a lock on appends, read leases or the end of a backoff.
//!
//! Transactions never wait for each other: one that meets a conflict is aborted and retried after a
//! backoff. Requests of a single node hold no locks, so they can simply wait.

use crate::driver::ConnId;
use forebay_protocol::{Call, InstanceId};

/// Longest backoff before a transaction is retried.
const MAX_BACKOFF_NS: u64 = 100_000_000;
/// First backoff.
const MIN_BACKOFF_NS: u64 = 1_000_000;

/// Number of attempts of a call, and time of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Times it was aborted because of a conflict.
    aborted: u32,
    since_ns: u64,
}

impl Attempts {
    /// A call that has just arrived.
    pub fn first(now_ns: u64) -> Attempts {
        Attempts { aborted: 0, since_ns: now_ns }
    }

    /// Whether a timeout has passed since the first attempt.
    pub fn has_timed_out(self, now_ns: u64, timeout_ns: u64) -> bool {
        self.end_ns(timeout_ns) < now_ns
    }

    /// Time at which a timeout since the first attempt ends.
    pub fn end_ns(self, timeout_ns: u64) -> u64 {
        self.since_ns.saturating_add(timeout_ns)
    }
}

/// A call that waits.
#[derive(Debug)]
pub struct Parked {
    /// The volume whose locks it waits for.
    pub instance: InstanceId,
    pub conn: ConnId,
    pub call: Call,
    pub attempts: Attempts,
    /// It is retried when something is unlocked in its volume.
    waits_for_unlock: bool,
    /// It is retried at this time: the end of its backoff, or the expiry of leases.
    retry_at_ns: Option<u64>,
}

/// Volumes in which something was unlocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlocked {
    #[default]
    Nowhere,
    In(InstanceId),
    InSeveral,
}

impl Unlocked {
    /// Whether something was unlocked in this volume.
    pub fn includes(self, instance: InstanceId) -> bool {
        match self {
            Unlocked::Nowhere => false,
            Unlocked::In(id) => id == instance,
            Unlocked::InSeveral => true,
        }
    }
}

/// All calls that wait. A connection has one call or batch in flight, so their number is limited by that of
/// connections.
#[derive(Debug, Default)]
pub struct ParkedCalls {
    calls: Vec<Parked>,
    /// Since [`ParkedCalls::take_unlocked`].
    unlocked: Unlocked,
}

impl ParkedCalls {
    /// Park a call until something is unlocked in its volume.
    pub fn park(&mut self, instance: InstanceId, conn: ConnId, call: Call, attempts: Attempts) {
        let (waits_for_unlock, retry_at_ns) = (true, None);
        self.calls.push(Parked { instance, conn, call, attempts, waits_for_unlock, retry_at_ns });
    }

    /// Park a call until something is unlocked in its volume, but not longer than until a time.
    pub fn park_until(
        &mut self,
        instance: InstanceId,
        (conn, call): (ConnId, Call),
        attempts: Attempts,
        at_ns: u64,
    ) {
        let (waits_for_unlock, retry_at_ns) = (true, Some(at_ns));
        self.calls.push(Parked { instance, conn, call, attempts, waits_for_unlock, retry_at_ns });
    }

    /// Park a call for a backoff that doubles with every conflict, up to [`MAX_BACKOFF_NS`], and of
    /// which the second half is random.
    pub fn back_off(
        &mut self,
        instance: InstanceId,
        (conn, call): (ConnId, Call),
        attempts: Attempts,
        (now_ns, random): (u64, u64),
    ) {
        let longest = (MIN_BACKOFF_NS << attempts.aborted.min(10)).min(MAX_BACKOFF_NS);
        let backoff = longest / 2 + random % (longest / 2);
        assert!((MIN_BACKOFF_NS / 2..MAX_BACKOFF_NS).contains(&backoff), "a backoff is bounded");
        self.calls.push(Parked {
            instance,
            conn,
            call,
            waits_for_unlock: false,
            retry_at_ns: Some(now_ns.saturating_add(backoff)),
            attempts: Attempts { aborted: attempts.aborted + 1, ..attempts },
        });
    }

    /// Note that something was unlocked in a volume.
    pub fn note_unlocked(&mut self, instance: InstanceId) {
        self.unlocked = match self.unlocked {
            Unlocked::Nowhere => Unlocked::In(instance),
            Unlocked::In(id) if id == instance => Unlocked::In(id),
            Unlocked::In(_) | Unlocked::InSeveral => Unlocked::InSeveral,
        };
    }

    /// Volumes in which something was unlocked since the last call of this function.
    pub fn take_unlocked(&mut self) -> Unlocked {
        std::mem::take(&mut self.unlocked)
    }

    /// Calls to retry: their time has come, or something was unlocked in their volume.
    pub fn take_ready(&mut self, now_ns: u64, unlocked: Unlocked) -> Vec<Parked> {
        self.take_if(|parked| {
            (parked.waits_for_unlock && unlocked.includes(parked.instance))
                || parked.retry_at_ns.is_some_and(|at_ns| at_ns <= now_ns)
        })
    }

    /// Remove the calls that a predicate selects.
    pub fn take_if(&mut self, select: impl FnMut(&mut Parked) -> bool) -> Vec<Parked> {
        self.calls.extract_if(.., select).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Time at which the first call is to be retried.
    pub fn next_retry_ns(&self) -> Option<u64> {
        self.calls.iter().filter_map(|call| call.retry_at_ns).min()
    }
}
