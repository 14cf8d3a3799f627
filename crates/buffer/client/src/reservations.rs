//! Space that daemons have reserved for writes, and what to do when an instance is full.

use crate::backoff::Backoff;
use crate::session::Session;
use crate::sessions::Sessions;
use forebay_protocol::message::FileRequest;
use forebay_protocol::{Errno, HandleId, NodeIndex};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Minimum time between two waits for removals by other clients.
const REMOVALS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for which a request for space waits for delayed writes.
const MAX_WRITES_DELAY: Duration = Duration::from_secs(1);
/// Backoff while removals reach the nodes.
const REMOVALS_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(2), Duration::from_millis(64), Duration::from_millis(100));
/// Minimum number of listed reservations at which those of closed files are dropped.
const MIN_PRUNED: usize = 256;

/// Space that a daemon has reserved for writes to one data object.
#[derive(Debug)]
pub struct Reservation {
    node: NodeIndex,
    handle: HandleId,
    /// Bytes not used yet.
    unused: AtomicU64,
    /// Epoch of the daemon that made the reservation; its restart voids it.
    epoch: Mutex<u64>,
    /// Other files can return it.
    listed: AtomicBool,
}

impl Reservation {
    pub fn new(node: NodeIndex, handle: HandleId) -> Arc<Reservation> {
        Arc::new(Reservation {
            node,
            handle,
            unused: AtomicU64::new(0),
            epoch: Mutex::new(0),
            listed: AtomicBool::new(false),
        })
    }

    /// Bytes not used yet.
    pub fn unused(&self) -> u64 {
        self.unused.load(Ordering::Acquire)
    }

    /// Uses `bytes` for a write, if as many are left.
    pub fn take(&self, bytes: u64) -> bool {
        self.unused
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |unused| unused.checked_sub(bytes))
            .is_ok()
    }

    /// The daemon has forgotten the reservation.
    pub fn void(&self) {
        self.unused.store(0, Ordering::Release);
    }

    /// Returns `returned` bytes, and reserves `wanted` more. Returns the new total.
    fn request(&self, session: &Session, returned: u64, wanted: u64) -> Result<u64, Errno> {
        session.call(FileRequest::ReserveSpace { handle: self.handle, returned, want: wanted })
    }
}

#[derive(Debug, Default)]
struct Listed {
    reservations: Vec<Weak<Reservation>>,
    /// Length at which those of closed files are dropped next.
    prune_at: usize,
}

/// The reservations of all files that a client has open for writing.
#[derive(Debug)]
pub struct Reservations {
    sessions: Arc<Sessions>,
    listed: Mutex<Listed>,
    /// This client removed files since it last waited for removals.
    removed: AtomicBool,
    /// Time at which the client last waited for removals.
    waited: Mutex<Option<Instant>>,
}

impl Reservations {
    pub fn new(sessions: Arc<Sessions>) -> Reservations {
        Reservations {
            sessions,
            listed: Mutex::default(),
            removed: AtomicBool::new(false),
            waited: Mutex::default(),
        }
    }

    /// This client has removed a file.
    pub fn record_removal(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// Lets other files return the reservation when they need space.
    pub fn list(&self, reservation: &Arc<Reservation>) {
        if reservation.listed.load(Ordering::Relaxed)
            || reservation.listed.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let mut listed = self.listed.lock();
        if listed.reservations.len() >= listed.prune_at {
            listed.reservations.retain(|one| one.strong_count() > 0);
            listed.prune_at = (2 * listed.reservations.len()).max(MIN_PRUNED);
        }
        listed.reservations.push(Arc::downgrade(reservation));
        debug_assert!(listed.reservations.len() <= listed.prune_at);
    }

    /// Extends a reservation to at least `bytes`, if there is space, and returns its size.
    pub fn extend(&self, reservation: &Reservation, bytes: u64) -> Result<u64, Errno> {
        let mut epoch = reservation.epoch.lock();
        let session = self.sessions.session(reservation.node)?;
        let now = reservation.unused();
        if now >= bytes && *epoch == session.epoch() {
            return Ok(now); // another thread was faster
        }
        let unused = reservation.unused.swap(0, Ordering::AcqRel);
        let mut returned = if *epoch == session.epoch() { unused } else { 0 };
        let reserve = || {
            let total = reservation.request(session, returned, bytes.saturating_sub(returned))?;
            returned = total;
            Ok(total)
        };
        let is_short = |result: &Result<u64, Errno>| match result {
            Err(errno) => *errno == Errno::ENOSPC,
            Ok(total) => *total < bytes,
        };
        let handle = Some(reservation.handle);
        let total = self.with_space(reservation.node, handle, reserve, is_short)?;
        *epoch = session.epoch();
        reservation.unused.store(total, Ordering::Release);
        Ok(total)
    }

    /// Repeats `attempt` on `node` as long as it is short of space and space may become free: by
    /// returning the reservations of other files than `handle`, and by completing removals.
    pub fn with_space<T>(
        &self,
        node: NodeIndex,
        handle: Option<HandleId>,
        mut attempt: impl FnMut() -> Result<T, Errno>,
        is_short: impl Fn(&Result<T, Errno>) -> bool,
    ) -> Result<T, Errno> {
        let mut result = attempt();
        if is_short(&result) && self.return_unused(node, handle) {
            result = attempt();
        }
        if is_short(&result) && self.is_removal_pending() {
            if self.sessions.layout().nodes() > 1 && self.sessions.sync(None).is_err() {
                return result;
            }
            let mut retries = REMOVALS_BACKOFF.start(self.sessions.system());
            result = attempt();
            while is_short(&result) && retries.wait() {
                result = attempt();
            }
        }
        result
    }

    /// Returns what other files of this client than `except` have reserved on `node` and not used.
    /// Returns `false` if there was nothing to return.
    fn return_unused(&self, node: NodeIndex, except: Option<HandleId>) -> bool {
        // Delayed writes use reservations that count as used already. Their sender may need a
        // reservation that this thread is extending.
        self.sessions.pending_writes.finish_within(MAX_WRITES_DELAY);
        let listed: Vec<Arc<Reservation>> = {
            let listed = self.listed.lock();
            listed.reservations.iter().filter_map(Weak::upgrade).collect()
        };
        let mut any = false;
        let others =
            listed.iter().filter(|other| other.node == node && Some(other.handle) != except);
        for other in others {
            if other.unused.swap(0, Ordering::AcqRel) > 0 {
                any = true;
                if let Ok(session) = self.sessions.session(node) {
                    let _ = other.request(session, 0, 0);
                }
            }
        }
        any
    }

    /// Whether removed files may still take space. On several nodes that is so until the removal is
    /// durable and the other nodes are notified of it. On one node it is so until the last handles
    /// are closed: the kernel reports a close to the mount after the program has continued.
    fn is_removal_pending(&self) -> bool {
        let now = self.sessions.system().now();
        let own = self.removed.swap(false, Ordering::AcqRel);
        if self.sessions.layout().nodes() == 1 {
            return own;
        }
        let mut waited = self.waited.lock();
        let due = own || waited.is_none_or(|waited| now - waited >= REMOVALS_INTERVAL);
        if due {
            *waited = Some(now);
        }
        due
    }
}
