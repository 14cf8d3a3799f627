//! The thread that writes checkpoints, which free log segments, and keeps the reserve with which a
//! full disk can be emptied.

use super::counters::StoreCounters;
use super::mailbox::Mailbox;
use super::worker::Worker;
use crate::log::RecoveryError;
use crate::recovery;
use crate::storage::DiskStorage;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between attempts to restore the reserve, which are cheap.
const RESERVE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Retry delay after a failed checkpoint (first, maximum). A failed attempt costs as much I/O as a
/// successful one.
const MIN_CHECKPOINT_BACKOFF: Duration = Duration::from_secs(2);
const MAX_CHECKPOINT_BACKOFF: Duration = Duration::from_secs(60);

/// Start the thread. A job is the first sequence number of the current log segment.
pub fn start_checkpointer(
    storage: DiskStorage,
    segment_size: u64,
    counters: Arc<StoreCounters>,
    mailbox: &Arc<Mailbox>,
) -> io::Result<Worker<u64>> {
    let checkpointer = Checkpointer {
        storage,
        counters,
        segment_size,
        segment_start: 0,
        failed_at: None,
        backoff: MIN_CHECKPOINT_BACKOFF,
        lacks_reserve: false,
    };
    Worker::start("forebay-checkpoint", mailbox, 1, |starts| checkpointer.run(&starts))
}

/// Return memory that the allocator keeps to the system.
fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointer, may be called by any thread at any time, and leaves
    // allocated memory as it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

struct Checkpointer {
    storage: DiskStorage,
    counters: Arc<StoreCounters>,
    segment_size: u64,
    /// First record of the current log segment.
    segment_start: u64,
    /// Time at which the last checkpoint failed, if it did.
    failed_at: Option<Instant>,
    /// Delay from then until it is retried.
    backoff: Duration,
    /// The reserve is incomplete.
    lacks_reserve: bool,
}

impl Checkpointer {
    fn run(mut self, starts: &Receiver<u64>) {
        loop {
            let received = if self.lacks_reserve || self.failed_at.is_some() {
                starts.recv_timeout(RESERVE_RETRY_INTERVAL)
            } else {
                starts.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            let is_due = match received {
                Ok(start) => {
                    assert!(start >= self.segment_start, "segments advance");
                    self.segment_start = start;
                    true
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.failed_at.is_some_and(|at| at.elapsed() >= self.backoff)
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // A checkpoint frees segments, and with them space for the reserve.
            if is_due {
                self.write_checkpoint();
            }
            self.ensure_reserve();
        }
    }

    fn write_checkpoint(&mut self) {
        let started = Instant::now();
        let written = recovery::write_checkpoint(&self.storage, self.segment_start);
        // The state that the checkpoint was made from is freed, and perhaps much of the daemon's own.
        return_free_memory();
        let Err(error) = written else {
            self.counters.checkpoints.record_duration(started.elapsed());
            (self.failed_at, self.backoff) = (None, MIN_CHECKPOINT_BACKOFF);
            return;
        };
        self.backoff = match self.failed_at {
            Some(_) => (self.backoff * 2).min(MAX_CHECKPOINT_BACKOFF),
            None => MIN_CHECKPOINT_BACKOFF,
        };
        self.failed_at = Some(Instant::now());
        self.counters.failed_checkpoints.increment();
        match error {
            RecoveryError::Io(error) => tracing::warn!(%error, retry_after = ?self.backoff,
                "checkpoint failed: the log keeps growing"),
            RecoveryError::DamagedRecord { .. }
            | RecoveryError::MissingRecord { .. }
            | RecoveryError::InconsistentRecord { .. }
            | RecoveryError::DamagedCheckpoint(_)
            | RecoveryError::LostInstances(_)
            | RecoveryError::UnknownFormat(_) => {
                tracing::error!(%error, "checkpoint failed: the log keeps growing")
            }
        }
    }

    fn ensure_reserve(&mut self) {
        match recovery::ensure_spares(&self.storage, self.segment_size) {
            Ok(()) => self.lacks_reserve = false,
            Err(error) => {
                if !std::mem::replace(&mut self.lacks_reserve, true) {
                    tracing::warn!(%error, "cannot reserve space for the log");
                }
            }
        }
    }
}
