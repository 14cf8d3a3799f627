//! Delayed writes of all files of a client, and those that failed.

use crate::file::DelayedWrites;
use forebay_protocol::{Errno, Ino};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of files whose writes are delayed at the same time. Each takes a thread and two
/// queues.
const MAX_SENDERS: u32 = 64;
/// Maximum number of files whose failures are known one by one.
const MAX_FAILED: usize = 1024;

thread_local! {
    /// This thread sends delayed writes, and does not wait for them.
    static IS_SENDER: Cell<bool> = const { Cell::new(false) };
}

/// The files with delayed writes that are not acknowledged, and the failures of such writes.
#[derive(Debug, Default)]
pub struct PendingWrites {
    files: Mutex<Vec<Arc<DelayedWrites>>>,
    /// The number of these files.
    count: AtomicUsize,
    senders: AtomicU32,
    failures: Mutex<Failures>,
    /// Failures so far.
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Failures {
    /// The last failure of each file: its number, and the error.
    files: BTreeMap<Ino, (u64, Errno)>,
    /// The greatest number of a failure of which the file is forgotten. It may have been any.
    forgotten: u64,
}

impl Failures {
    /// The last failure of a write to a file, if its number is above `known`.
    fn check(&self, ino: Ino, known: u64) -> Result<(), Errno> {
        match self.files.get(&ino) {
            Some((number, errno)) if *number > known => Err(*errno),
            _ if self.forgotten > known => Err(Errno::EIO),
            _ => Ok(()),
        }
    }
}

impl PendingWrites {
    /// A file gets its first delayed write.
    pub fn add(&self, writes: &Arc<DelayedWrites>) {
        let mut files = self.files.lock();
        files.push(writes.clone());
        self.count.store(files.len(), Ordering::SeqCst);
    }

    /// The last delayed write of a file is over.
    pub fn remove(&self, writes: &Arc<DelayedWrites>) {
        let mut files = self.files.lock();
        files.retain(|other| !Arc::ptr_eq(other, writes));
        self.count.store(files.len(), Ordering::SeqCst);
    }

    /// Takes the right to start a thread that sends writes.
    pub fn add_sender(&self) -> bool {
        let more = |count| (count < MAX_SENDERS).then_some(count + 1);
        self.senders.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// This thread sends writes.
    pub fn begin_sender() {
        IS_SENDER.set(true);
    }

    /// Such a thread ends.
    pub fn remove_sender(&self) {
        let before = self.senders.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a thread that ends was counted");
    }

    /// Waits until the requests of all writes that are delayed now are over: before a request of this
    /// client that they may affect.
    pub fn finish(&self) {
        for file in self.files() {
            file.finish();
        }
    }

    /// As [`finish`](PendingWrites::finish), of the writes to one file.
    pub fn finish_file(&self, ino: Ino) {
        if self.is_empty() {
            return;
        }
        let of_file = |writes: &&Arc<DelayedWrites>| writes.ino() == ino;
        let files: Vec<_> = self.files.lock().iter().filter(of_file).cloned().collect();
        for file in files {
            file.finish();
        }
    }

    /// As [`finish`](PendingWrites::finish), but not longer than `timeout`.
    pub fn finish_within(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        for file in self.files() {
            file.finish_within(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Whether no file has delayed writes that this thread waits for: one that sends them waits for none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0 || IS_SENDER.get()
    }

    /// The files with delayed writes; none for the threads that send them.
    pub fn files(&self) -> Vec<Arc<DelayedWrites>> {
        if self.is_empty() { Vec::new() } else { self.files.lock().clone() }
    }

    /// A delayed write to a file failed.
    pub fn record_failure(&self, ino: Ino, errno: Errno) {
        let mut failures = self.failures.lock();
        let number = self.failed.fetch_add(1, Ordering::AcqRel) + 1;
        failures.files.insert(ino, (number, errno));
        if failures.files.len() > MAX_FAILED {
            let oldest = failures.files.iter().min_by_key(|(_, (number, _))| *number);
            if let Some((ino, number)) = oldest.map(|(ino, (number, _))| (*ino, *number)) {
                failures.files.remove(&ino);
                failures.forgotten = failures.forgotten.max(number);
            }
        }
    }

    /// The number of failures so far.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }

    /// Reports a failure of a write to a file to an open file that knows of the first `known` failures.
    /// It knows all of them after this.
    pub fn report_failure(&self, ino: Ino, known: &AtomicU64) -> Result<(), Errno> {
        if known.load(Ordering::Acquire) == self.failures() {
            return Ok(());
        }
        let failures = self.failures.lock();
        let before = known.swap(self.failures(), Ordering::AcqRel);
        failures.check(ino, before)
    }

    /// As [`report_failure`](PendingWrites::report_failure), but the open file does not know of it after this.
    pub fn check_failure(&self, ino: Ino, known: &AtomicU64) -> Result<(), Errno> {
        let known = known.load(Ordering::Acquire);
        if known == self.failures() { Ok(()) } else { self.failures.lock().check(ino, known) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_reported_once_to_each_open_file_of_the_inode() {
        let pending = PendingWrites::default();
        let (one, two, other) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        pending.record_failure(Ino(2), Errno::ENOSPC);
        let later = AtomicU64::new(pending.failures());
        for known in [&one, &two] {
            assert_eq!(pending.check_failure(Ino(2), known), Err(Errno::ENOSPC));
            assert_eq!(pending.report_failure(Ino(2), known), Err(Errno::ENOSPC));
            assert_eq!(pending.check_failure(Ino(2), known), Ok(()));
            assert_eq!(pending.report_failure(Ino(2), known), Ok(()));
        }
        assert_eq!(pending.report_failure(Ino(3), &other), Ok(()));
        assert_eq!(pending.report_failure(Ino(2), &later), Ok(()));
    }

    #[test]
    fn failure_of_a_forgotten_file_is_reported_to_all_that_were_open() {
        let pending = PendingWrites::default();
        let (known, later) = (AtomicU64::new(0), AtomicU64::new(1));
        for ino in 0..=MAX_FAILED as u64 {
            pending.record_failure(Ino(2 + ino), Errno::ENOSPC);
        }
        assert_eq!(pending.report_failure(Ino(2), &known), Err(Errno::EIO));
        assert_eq!(pending.report_failure(Ino(2), &later), Ok(()), "opened after it");
    }
}
