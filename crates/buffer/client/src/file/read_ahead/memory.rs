//! Limits of what all files of a client have read ahead: memory, and requests for data that are not needed yet.
//!
//! A file that is not read for a while makes room for others: a mount serves many programs, and some keep files
//! open that they do not read any more.

use super::{MAX_WINDOW, ReadAhead};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Files of a client that may have requested a window before it is needed. Each uses a connection to
/// every node that has some of its window.
const MAX_PENDING: u32 = 8;

/// Memory for data read ahead of all files of a client, in units of `MAX_WINDOW` bytes.
#[derive(Debug)]
pub struct ReadAheadMemory {
    max_units: usize,
    /// The holder of each unit that is taken.
    holders: Mutex<Vec<Weak<ReadAhead>>>,
    /// Windows that are requested and not received.
    pending: AtomicU32,
}

impl ReadAheadMemory {
    /// Memory of at most `bytes`.
    pub fn new(bytes: u64) -> ReadAheadMemory {
        let max_units = usize::try_from(bytes / MAX_WINDOW as u64).unwrap_or(usize::MAX);
        ReadAheadMemory { max_units, holders: Mutex::default(), pending: AtomicU32::new(0) }
    }

    /// Whether there is any.
    pub fn is_enabled(&self) -> bool {
        self.max_units > 0
    }

    /// A unit for `file`, which is locked. If all are taken, that of a file which is idle at `now` or, if this
    /// `is_first` one of `file`, of a file that has several. `false`: there is none.
    pub(super) fn take(&self, file: &Arc<ReadAhead>, is_first: bool, now: Instant) -> bool {
        let mut holders = self.holders.lock();
        if holders.len() >= self.max_units
            && !self.make_room(&mut holders, |holder| holder.discard_idle(self, now))
            && !(is_first && self.make_room(&mut holders, ReadAhead::give_up_one))
        {
            return false;
        }
        holders.push(Arc::downgrade(file));
        assert!(holders.len() <= self.max_units, "memory is limited");
        true
    }

    /// Asks one holder after the other to `give_up` units, until one does. Returns whether one did.
    fn make_room(
        &self,
        holders: &mut Vec<Weak<ReadAhead>>,
        give_up: impl Fn(&ReadAhead) -> usize,
    ) -> bool {
        for index in 0..holders.len() {
            let holder = holders[index].upgrade();
            let units = holder.as_ref().map_or(0, |holder| give_up(holder));
            if let Some(holder) = holder.filter(|_| units > 0) {
                remove(holders, &holder, units);
                return true;
            }
        }
        false
    }

    /// `file`, which is locked, does not need some of its units any more.
    pub(super) fn give_back(&self, file: &ReadAhead, units: usize) {
        if units > 0 {
            remove(&mut self.holders.lock(), file, units);
        }
    }

    /// Whether one more window may be requested before it is needed, possibly in place of that of a file
    /// which is idle at `now`. It must be [finished](ReadAheadMemory::finish_pending).
    pub(super) fn begin_pending(&self, now: Instant) -> bool {
        if self.add_pending() {
            return true;
        }
        for holder in self.holders.lock().iter().filter_map(Weak::upgrade) {
            holder.abandon_idle_request(self, now);
        }
        self.add_pending()
    }

    fn add_pending(&self) -> bool {
        let more = |pending| (pending < MAX_PENDING).then_some(pending + 1);
        self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn finish_pending(&self) {
        let before = self.pending.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a request is finished once");
    }
}

/// Removes some units of a holder.
fn remove(holders: &mut Vec<Weak<ReadAhead>>, holder: &ReadAhead, units: usize) {
    let mut left = units;
    holders.retain(|other| {
        let is_removed = left > 0 && std::ptr::eq(other.as_ptr(), holder);
        left -= usize::from(is_removed);
        !is_removed
    });
    assert_eq!(left, 0, "memory that is given back was taken");
}
