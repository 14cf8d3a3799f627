//! Large files: copied in parts, by whichever threads are free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::copy::{CopyRange, Pieces, copy};
use crate::error::Failure;
use crate::file::{OpenFile, fatal};
use crate::mover::StageContext;
use crate::request::Verify;

/// Large files of which parts are still to be copied.
pub(crate) type Queue = Mutex<VecDeque<Arc<LargeFile>>>;

/// A large file, of which threads take one part after the other.
pub(crate) struct LargeFile {
    file: OpenFile,
    parts: u64,
    next: AtomicU64,
    left: AtomicU64,
    failed: AtomicBool,
    digests: Mutex<Vec<(u64, String, Pieces)>>,
    /// Whether the copy is that of an earlier run, so that the parts in the journal are there.
    resumed: bool,
}

impl StageContext<'_> {
    pub fn open_large(&self, file: OpenFile, size: u64) -> Result<(), Failure> {
        let making = |e| Failure::target("making its copy", e);
        let was = file.hidden.opened_stat().map_err(making)?;
        let resumable = was.size == size;
        if !resumable {
            // Before it has its length, by which it is known to be resumable.
            if let Some(journal) = &self.journal {
                journal.begin_anew(&file.key).map_err(fatal)?;
            }
            file.hidden.truncate(0).map_err(making)?;
            file.hidden.truncate(size).map_err(making)?;
        }
        let parts = size.div_ceil(self.options.segment_bytes.max(1));
        let large = LargeFile {
            file,
            parts,
            next: AtomicU64::new(0),
            left: AtomicU64::new(parts),
            failed: AtomicBool::new(false),
            digests: Mutex::new(Vec::new()),
            resumed: resumable,
        };
        let mut queue = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(Arc::new(large));
        Ok(())
    }

    /// The next part of a large file that nobody copies yet.
    pub fn claim(&self) -> Option<(Arc<LargeFile>, u64)> {
        let mut queue = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(large) = queue.front() {
            let part = large.next.fetch_add(1, Ordering::Relaxed);
            if part < large.parts {
                return Some((large.clone(), part));
            }
            queue.pop_front();
        }
        None
    }

    pub fn part(&self, large: &LargeFile, part: u64, buffer: &mut [u8]) {
        if !large.failed.load(Ordering::Relaxed) {
            let outcome = if self.is_stopped() {
                Err(Failure::Cancelled)
            } else {
                self.copy_part(large, part, buffer)
            };
            if let Err(failure) = outcome
                && !large.failed.swap(true, Ordering::Relaxed)
            {
                self.note(&large.file.shown, Err(failure));
            }
        }
        if large.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let failed = large.failed.load(Ordering::Relaxed);
        let outcome = if failed {
            Err(Failure::Cancelled)
        } else {
            self.whole_large(large)
        };
        // Parts that a journal knows of are kept for the next run, unless the file is at fault.
        let keep = self.journal.is_some() && failed && self.is_stopped();
        if outcome.is_err() && !keep {
            let _ = large.file.parent.unlink(&large.file.hidden_name);
        }
        if !failed {
            self.note(&large.file.shown, outcome);
        }
    }

    fn copy_part(&self, large: &LargeFile, part: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        let file = &large.file;
        let size = file.state.size;
        let from = part.saturating_mul(self.options.segment_bytes);
        let to = from.saturating_add(self.options.segment_bytes).min(size);
        let known = self
            .journal
            .as_ref()
            .and_then(|journal| journal.known(&file.key, Some(part)));
        // Of a part with holes that an earlier run has copied nobody knows what to read back.
        let readable = self.options.verify != Verify::ReadBack || !file.state.is_sparse();
        let known = known.filter(|known| {
            large.resumed && readable && known.digest != "-" && known.is_of(&file.state)
        });
        let (digest, pieces) = if let Some(known) = known {
            self.progress.staged_bytes(to - from);
            (known.digest.clone(), Pieces::All(from, to))
        } else {
            let range = CopyRange {
                source: &*file.source,
                target: &*file.hidden,
                from,
                to,
                sparse: file.state.is_sparse(),
            };
            let sum = copy(&range, self.options.verify, self.progress, buffer)?;
            // The journal knows when this host was started anew, but not those of the storage nodes.
            if file.hidden.needs_fdatasync() && self.journal.is_some() {
                let flushed = file.hidden.fdatasync();
                flushed.map_err(|e| Failure::target("putting it on stable storage", e))?;
            }
            self.record(&file.key, Some(part), &file.state, sum.digest.clone())?;
            self.sync_sometimes(to - from)?;
            (sum.digest, sum.pieces)
        };
        large
            .digests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((part, digest, pieces));
        Ok(())
    }

    fn whole_large(&self, large: &LargeFile) -> Result<(), Failure> {
        let mut digests =
            std::mem::take(&mut *large.digests.lock().unwrap_or_else(PoisonError::into_inner));
        digests.sort_by_key(|(part, ..)| *part);
        let mut hasher = blake3::Hasher::new();
        for (_, digest, _) in &digests {
            hasher.update(digest.as_bytes());
        }
        self.whole(&large.file, hasher.finalize().to_hex().to_string())?;
        let parts = digests.into_iter();
        let parts = parts.map(|(_, digest, pieces)| (pieces, digest));
        self.to_read_back(&large.file.at, parts);
        Ok(())
    }
}
