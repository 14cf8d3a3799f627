//! Putting copies on stable storage now and then, so that an interrupted stage goes on from there.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::end::DirHandle;
use crate::error::{Failure, Problem, describe};
use crate::file::fatal;
use crate::mover::StageContext;

/// Bytes after which what was copied is put on stable storage.
const SYNC_EVERY: u64 = 8 << 30;

/// What would be copied once more if the stage were interrupted now.
pub(crate) struct UnsyncedCopies {
    bytes: u64,
    since: Instant,
}

impl UnsyncedCopies {
    pub fn none(now: Instant) -> UnsyncedCopies {
        UnsyncedCopies {
            bytes: 0,
            since: now,
        }
    }
}

impl StageContext<'_> {
    /// Keeps a directory that gets copies open until its file system is put on stable storage: only
    /// who has something open there since before is told that some of it was lost.
    pub fn remember(&self, target: &Arc<dyn DirHandle>, shown: PathBuf) -> Result<(), Problem> {
        let device = target
            .device()
            .map_err(|errno| Problem::new(&shown, describe(errno), errno))?;
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets
            .entry(device)
            .or_insert_with(|| (shown, target.clone()));
        Ok(())
    }

    /// `bytes` more were copied, and noted: are these to be put on stable storage?
    pub fn sync_sometimes(&self, bytes: u64) -> Result<(), Failure> {
        if self.journal.is_none() {
            return Ok(());
        }
        let now = self.options.host.now();
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        unsynced.bytes = unsynced.bytes.saturating_add(bytes);
        let time = now.saturating_duration_since(unsynced.since);
        if unsynced.bytes < SYNC_EVERY && time < self.options.sync_interval {
            return Ok(());
        }
        *unsynced = UnsyncedCopies::none(now);
        drop(unsynced);
        self.sync().map_err(fatal)?;
        // It may have taken longer than what comes between two of them.
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        unsynced.since = self.options.host.now();
        Ok(())
    }

    /// Puts everything that was copied on stable storage, and notes that.
    pub fn sync(&self) -> Result<(), Problem> {
        let targets = {
            let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            targets.values().cloned().collect::<Vec<_>>()
        };
        let flush = || {
            targets.iter().try_for_each(|(shown, target)| {
                target.syncfs().map_err(|errno| {
                    let reason = describe(errno);
                    let reason = format!("its copy cannot be put on stable storage: {reason}");
                    Problem::new(shown, reason, errno)
                })
            })
        };
        match &self.journal {
            None => flush(),
            Some(journal) => {
                self.settle()?;
                journal.synced(flush)
            }
        }
    }
}
