//! Space that daemons have reserved for writes, and what to do when an instance is full.

use crate::backoff::Backoff;
use crate::close_batch::CloseBatch;
use crate::session::{PendingCall, Session};
use crate::sessions::Sessions;
use forebay_protocol::message::{FileRequest, InodeRequest, Share, StatFs, TrailingField};
use forebay_protocol::space::BLOCK_BYTES;
use forebay_protocol::{Errno, HandleId, NodeIndex, Request};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Minimum time between two waits for removals by other clients.
const REMOVALS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for which a request for space waits for delayed writes, and for closes.
const MAX_WRITES_DELAY: Duration = Duration::from_secs(1);
/// Backoff while removals reach the nodes.
const REMOVALS_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(2), Duration::from_millis(64), Duration::from_millis(100));
/// Bytes of their shares of the capacity that other nodes are asked for at least, if a write needs fewer.
const LOAN_BYTES: u64 = 256 << 10;
/// Time for which no other node is asked for a part of its share, after none had anything left and unless this
/// client removed files meanwhile.
const LOANS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of requests for space that were sent behind creates and whose replies were not received.
/// Each occupies a connection: they may have this part of them.
const MAX_EARLY: u32 = 4;
const EARLY_PART: u32 = 4;
/// Maximum number of files with space that was requested before they were created, and to which nothing was
/// written.
const MAX_PREPARED: u32 = 12;
/// Minimum number of listed reservations at which those of closed files are dropped.
const MIN_PRUNED: usize = 256;

/// How a request for space continues if the node is short of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfShort {
    /// It waits for space that becomes free soon.
    Wait,
    /// It ends.
    Fail,
}

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
    /// Its file is new, and nothing was written to it.
    is_untouched: AtomicBool,
    /// The first request, if it was sent behind the one that created the file.
    early: Mutex<Option<PendingReservation>>,
    /// Its space was requested before the file was created, and nothing was written to it.
    prepared: Mutex<Option<EarlyCount>>,
}

/// A request for space that is about to be sent behind the one that creates a file, or prepares it.
#[derive(Debug)]
pub struct SpaceRequest {
    handle: HandleId,
    count: EarlyCount,
}

/// A request for space that was sent behind the one that created a file. Its reply must be received.
#[derive(Debug)]
pub struct PendingReservation {
    node: NodeIndex,
    call: PendingCall,
    /// Epoch of the daemon before.
    epoch: u64,
    count: EarlyCount,
}

/// Counts a request for space that is sent behind a create, until its reply was received, or a file that has
/// space before it is created.
#[derive(Debug)]
struct EarlyCount(Arc<AtomicU32>);

impl Drop for EarlyCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl EarlyCount {
    /// Counts one more, unless there are `max`.
    fn below(counter: &Arc<AtomicU32>, max: u32) -> Option<EarlyCount> {
        let count = EarlyCount(counter.clone());
        let is_many = counter.fetch_add(1, Ordering::AcqRel) >= max;
        (!is_many).then_some(count)
    }
}

impl SpaceRequest {
    /// The request.
    pub fn request(&self) -> Request {
        // The daemon grants some space ahead of need.
        let want = BLOCK_BYTES;
        let lent = TrailingField(0);
        FileRequest::ReserveSpace { handle: self.handle, returned: 0, want, lent }.into()
    }

    /// It was sent, to a daemon of this epoch or a later one.
    pub fn sent(self, node: NodeIndex, call: PendingCall, epoch: u64) -> PendingReservation {
        PendingReservation { node, call, epoch, count: self.count }
    }
}

impl Reservation {
    pub fn new(node: NodeIndex, handle: HandleId) -> Arc<Reservation> {
        Arc::new(Reservation {
            node,
            handle,
            unused: AtomicU64::new(0),
            epoch: Mutex::new(0),
            listed: AtomicBool::new(false),
            is_untouched: AtomicBool::new(false),
            early: Mutex::default(),
            prepared: Mutex::default(),
        })
    }

    /// The file was created, and nothing was written to it.
    pub fn note_new(&self) {
        self.is_untouched.store(true, Ordering::Relaxed);
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

    /// Returns `returned` bytes, and reserves `want` more, of which other nodes have lent this one `lent`.
    /// Returns the new total.
    fn request(
        &self,
        session: &Session,
        (returned, want, lent): (u64, u64, u64),
    ) -> Result<u64, Errno> {
        let (handle, lent) = (self.handle, TrailingField(lent));
        session.call(FileRequest::ReserveSpace { handle, returned, want, lent })
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
    /// Closes that wait to be sent: the handles may have reservations. Dropped before the sessions.
    close_batch: Option<Arc<CloseBatch>>,
    sessions: Arc<Sessions>,
    listed: Mutex<Listed>,
    /// The last new file that was written to or closed was written to.
    writes_new_files: AtomicBool,
    /// Requests for space behind creates whose replies were not received.
    early: Arc<AtomicU32>,
    /// Files that have space before they are created, and to which nothing was written.
    prepared: Arc<AtomicU32>,
    /// This client removed files since it last waited for removals.
    removed: AtomicBool,
    /// Time at which the client last waited for removals.
    waited: Mutex<Option<Instant>>,
    /// Time at which no node had anything left that it could lend another one.
    no_loan: Mutex<Option<Instant>>,
}

impl Reservations {
    pub fn new(sessions: Arc<Sessions>, close_batch: Option<Arc<CloseBatch>>) -> Reservations {
        Reservations {
            close_batch,
            sessions,
            listed: Mutex::default(),
            writes_new_files: AtomicBool::new(false),
            early: Arc::default(),
            prepared: Arc::default(),
            removed: AtomicBool::new(false),
            waited: Mutex::default(),
            no_loan: Mutex::default(),
        }
    }

    /// This client has removed a file.
    pub fn record_removal(&self) {
        self.removed.store(true, Ordering::Release);
        *self.no_loan.lock() = None;
    }

    /// The request for the space of a file that is about to be created with this handle. `None`: it is not
    /// likely that something is written to it, or there are too many of these requests. Only for
    /// instances of one node, whose daemon carries out both requests.
    pub fn space_of_new_file(&self, handle: HandleId) -> Option<SpaceRequest> {
        if self.sessions.layout().nodes() > 1
            || !self.sessions.has_single_cache()
            || !self.writes_new_files.load(Ordering::Relaxed)
        {
            return None;
        }
        let max = (self.sessions.options().connections / EARLY_PART).min(MAX_EARLY);
        let count = EarlyCount::below(&self.early, max)?;
        Some(SpaceRequest { handle, count })
    }

    /// The request for the space of a file that is prepared with this handle. `None`: it is not likely that
    /// something is written to it, or too many files have space that is not used.
    pub fn space_of_prepared_file(&self, handle: HandleId) -> Option<SpaceRequest> {
        let is_likely = self.writes_new_files.load(Ordering::Relaxed);
        let count = is_likely.then(|| EarlyCount::below(&self.prepared, MAX_PREPARED)).flatten()?;
        Some(SpaceRequest { handle, count })
    }

    /// Waits for the space of a file that was prepared.
    pub fn take_prepared(&self, reservation: &Arc<Reservation>, early: PendingReservation) {
        let mut epoch = reservation.epoch.lock();
        let granted_in = early.epoch;
        if let Some((granted, count)) = self.receive(early) {
            *epoch = granted_in;
            reservation.unused.store(granted, Ordering::Release);
            *reservation.prepared.lock() = Some(count);
        }
        drop(epoch);
        self.list(reservation);
    }

    /// The space of a file was requested with its creation.
    pub fn expect_space(&self, reservation: &Arc<Reservation>, early: PendingReservation) {
        let previous = reservation.early.lock().replace(early);
        assert!(previous.is_none(), "a file is created once");
        self.list(reservation);
    }

    /// The file is about to be written to.
    pub fn note_write(&self, reservation: &Reservation) {
        if reservation.is_untouched.load(Ordering::Relaxed)
            && reservation.is_untouched.swap(false, Ordering::Relaxed)
        {
            self.writes_new_files.store(true, Ordering::Relaxed);
            *reservation.prepared.lock() = None;
        }
    }

    /// The file is about to be closed, which returns its reservation.
    pub fn end(&self, reservation: &Reservation) {
        if reservation.is_untouched.load(Ordering::Relaxed) {
            self.writes_new_files.store(false, Ordering::Relaxed);
        }
        self.take_early(reservation);
    }

    /// The file of this request was not created.
    pub fn abandon(&self, early: PendingReservation) {
        if let Ok(session) = self.sessions.session(early.node) {
            // It may have failed as well.
            let _ = session.receive_or_retransmit(early.call);
        }
    }

    /// The bytes that the request behind the create has reserved, and the epoch of the daemon.
    fn take_early(&self, reservation: &Reservation) -> Option<(u64, u64)> {
        let early = reservation.early.lock().take()?;
        let epoch = early.epoch;
        self.receive(early).map(|(granted, _)| (granted, epoch))
    }

    /// The bytes that a request has reserved, if the daemon has not restarted since.
    fn receive(&self, early: PendingReservation) -> Option<(u64, EarlyCount)> {
        let PendingReservation { node, call, epoch, count } = early;
        let session = self.sessions.session(node).ok()?;
        let reply = session.receive_or_retransmit(call).ok()?;
        let granted = u64::try_from(reply.reply).ok()?;
        (epoch == session.epoch()).then_some((granted, count))
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

    /// Extends a reservation to at least `bytes`, if there is space, and returns its size, which is less if
    /// there is too little. `ENOSPC`: there is none.
    pub fn extend(
        &self,
        reservation: &Reservation,
        bytes: u64,
        if_short: IfShort,
    ) -> Result<u64, Errno> {
        let mut epoch = reservation.epoch.lock();
        let session = self.sessions.session(reservation.node)?;
        if let Some((granted, granted_in)) = self.take_early(reservation) {
            *epoch = granted_in;
            reservation.unused.store(granted, Ordering::Release);
        }
        let now = reservation.unused();
        if now >= bytes && *epoch == session.epoch() {
            return Ok(now); // another thread was faster
        }
        let unused = reservation.unused.swap(0, Ordering::AcqRel);
        let mut returned = if *epoch == session.epoch() { unused } else { 0 };
        let mut reserve = |lent| {
            let want = bytes.saturating_sub(returned);
            let total = reservation.request(session, (returned, want, lent))?;
            returned = total;
            Ok(total)
        };
        let total = match if_short {
            IfShort::Fail => reserve(0)?,
            IfShort::Wait => {
                let is_short = |result: &Result<u64, Errno>| match result {
                    Err(errno) => *errno == Errno::ENOSPC,
                    Ok(total) => *total < bytes,
                };
                let (node, handle) = (reservation.node, Some(reservation.handle));
                let result = self.with_space(node, handle, || reserve(0), is_short);
                let missing = bytes.saturating_sub(*result.as_ref().unwrap_or(&0));
                match is_short(&result).then(|| self.borrow_shares(node, missing)) {
                    Some(lent) if lent > 0 => reserve(lent)?,
                    Some(_) | None => result?,
                }
            }
        };
        *epoch = session.epoch();
        reservation.unused.store(total, Ordering::Release);
        Ok(total)
    }

    /// Repeats `attempt` on `node` as long as it is short of space and space may become free: by removals
    /// that programs take to be made, by closing the files whose closes wait, by returning the
    /// reservations of other files than `handle`, and by completing removals.
    pub fn with_space<T>(
        &self,
        node: NodeIndex,
        handle: Option<HandleId>,
        mut attempt: impl FnMut() -> Result<T, Errno>,
        is_short: impl Fn(&Result<T, Errno>) -> bool,
    ) -> Result<T, Errno> {
        let mut result = attempt();
        if is_short(&result) && self.sessions.delegation.finish() {
            result = attempt();
        }
        if is_short(&result)
            && let Some(closes) = &self.close_batch
            && closes.finish_within(MAX_WRITES_DELAY)
        {
            result = attempt();
        }
        if is_short(&result) && self.return_unused(node, handle) {
            result = attempt();
        }
        if is_short(&result) && self.is_removal_pending() {
            if self.sessions.layout().nodes() > 1 && self.sessions.sync_removals(None).is_err() {
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

    /// Extends the share of a file's node by parts of others' shares, of `wanted` bytes if they have as many
    /// left. Returns `false` if it was not extended.
    pub fn extend_share(&self, reservation: &Reservation, wanted: u64) -> bool {
        let mut epoch = reservation.epoch.lock();
        let lent = self.borrow_shares(reservation.node, wanted);
        let Ok(session) = self.sessions.session(reservation.node) else { return false };
        if lent == 0 {
            return false;
        }
        let unused = reservation.unused.swap(0, Ordering::AcqRel);
        let returned = if *epoch == session.epoch() { unused } else { 0 };
        let total = reservation.request(session, (returned, 0, lent));
        *epoch = session.epoch();
        reservation.unused.store(*total.as_ref().unwrap_or(&0), Ordering::Release);
        total.is_ok()
    }

    /// Asks other nodes to give up parts of their shares of the capacity, so that `node` can use `wanted` bytes
    /// more than its own. Returns the bytes that they have given up.
    fn borrow_shares(&self, node: NodeIndex, wanted: u64) -> u64 {
        let now = self.sessions.system().now();
        let is_early = |failed: Instant| now.saturating_duration_since(failed) < LOANS_INTERVAL;
        if self.sessions.layout().nodes() == 1 || self.no_loan.lock().is_some_and(is_early) {
            return 0;
        }
        let mut shares = Vec::new();
        let add = |stat: StatFs| shares.push(stat.share.0.unwrap_or_default());
        if self.sessions.call_all_nodes(None, InodeRequest::StatFs, add).is_err() {
            return 0;
        }
        let lent = self.borrow_from(node, wanted, &shares);
        *self.no_loan.lock() = (lent == 0).then_some(now);
        lent
    }

    /// As [`borrow_shares`](Reservations::borrow_shares), with the shares of all nodes.
    fn borrow_from(&self, node: NodeIndex, wanted: u64, shares: &[Share]) -> u64 {
        let borrows = shares.get(usize::from(node.0)).map_or(0, |share| share.borrows);
        let wanted = wanted.max(LOAN_BYTES).min(borrows);
        let lenders = self.sessions.nodes().zip(shares);
        let mut lenders: Vec<(NodeIndex, u64)> = lenders
            .filter(|(lender, share)| *lender != node && share.lends > 0)
            .map(|(lender, share)| (lender, share.lends))
            .collect();
        lenders.sort_by_key(|(_, lends)| std::cmp::Reverse(*lends));
        let mut lent = 0_u64;
        for (lender, _) in lenders {
            if lent >= wanted {
                break;
            }
            let request = InodeRequest::LendSpace { want: wanted - lent };
            // A node that does not reply lends nothing.
            let bytes = self.sessions.session(lender).and_then(|session| session.call(request));
            lent += bytes.unwrap_or(0);
        }
        lent
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
            any |= self.request_nothing(other);
        }
        any
    }

    /// Returns what is reserved and not used to the node, for others.
    pub fn give_back(&self, reservation: &Reservation) {
        // Not while another thread extends it.
        let _epoch = reservation.epoch.lock();
        self.request_nothing(reservation);
    }

    /// Returns what is reserved and not used to the node. Returns `false` if that is nothing.
    fn request_nothing(&self, reservation: &Reservation) -> bool {
        let early = self.take_early(reservation).map_or(0, |(granted, _)| granted);
        let unused = reservation.unused.swap(0, Ordering::AcqRel) + early;
        if unused > 0
            && let Ok(session) = self.sessions.session(reservation.node)
        {
            let _ = reservation.request(session, (0, 0, 0));
        }
        unused > 0
    }

    /// This client removed files since it last asked or waited for that.
    pub fn take_removals(&self) -> bool {
        self.removed.swap(false, Ordering::AcqRel)
    }

    /// Whether removed files may still take space. On several nodes that is so until the removal is
    /// durable and the other nodes are notified of it. On one node it is so until the last handles
    /// are closed: the kernel reports a close to the mount after the program has continued.
    fn is_removal_pending(&self) -> bool {
        let now = self.sessions.system().now();
        let own = self.take_removals();
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
