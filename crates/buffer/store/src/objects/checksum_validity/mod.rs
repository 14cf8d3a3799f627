//! Validity of checksums across power failures.
//!
//! A power failure loses unsynced changes independently of each other: for example, the
//! invalidation of checksums may be lost while a later write persists. Checksums found after a
//! power failure are valid only if the data they describe were durable and no write followed
//! without first making the invalidation durable. So:
//!
//! - Checksums are stored only on objects that are not open for writing, memory maps included,
//!   according to the kernel. Every later writer has to open the object, which invalidates them.
//! - Checksums carry a generation. From time to time the current generation is closed
//!   ([`ChecksumValidity::close_generation`]), and new checksums belong to the next one. Then all
//!   data are synced, and after that the closed generation is recorded durably in [`Watermarks`].
//! - From the moment a generation is closed, its checksums are invalidated durably: the attribute
//!   is replaced by [`BROKEN`], the object is synced, and only then the attribute is removed and
//!   the object opened. A process that finds [`BROKEN`] (left by a crash, or by a concurrent
//!   invalidation) repeats these steps.
//! - Before its generation is closed, an attribute is simply removed: the removal becomes durable
//!   with the sync of all data, without which the generation is never recorded.
//!
//! Generations are counted from 1 in each boot of the host. Generations of an earlier boot that
//! were not recorded then are never valid.

#[cfg(test)]
mod tests;
mod watermarks;

pub use watermarks::{WATERMARK_FILE, Watermarks};

use super::ChecksumOutcome;
use super::block_checksums::{BlockChecksums, ChecksumEpoch, MAX_ENCODED_BYTES};
use forebay_protocol::{Errno, Timestamp};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replaces checksums while they are invalidated durably.
const BROKEN: &[u8] = b"FBbr";
/// Longest encoded checksums.
pub const MAX_CHECKSUMS_BYTES: usize = MAX_ENCODED_BYTES;

/// Length and times of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Length in bytes.
    pub size: u64,
    /// Modification time, which can be set.
    pub mtime: Timestamp,
    /// Change time, which cannot be set.
    pub ctime: Timestamp,
}

/// An open object with the attribute that holds its checksums.
pub trait ChecksummedFile {
    /// Read the attribute and return its length; `None` if it is missing or not supported.
    fn read_attribute(&self, into: &mut [u8; MAX_CHECKSUMS_BYTES]) -> Result<Option<usize>, Errno>;
    /// Set the attribute.
    fn set_attribute(&self, bytes: &[u8]) -> Result<(), Errno>;
    /// Remove the attribute, which may be missing.
    fn remove_attribute(&self) -> Result<(), Errno>;
    /// Make data and attribute durable.
    fn sync_file(&self) -> Result<(), Errno>;
    /// Length and times.
    fn file_state(&self) -> Result<FileState, Errno>;
    /// Whether any other descriptor or memory map can write; `None` if the file system cannot tell.
    fn has_writers(&self) -> Result<Option<bool>, Errno>;
}

/// Decides which stored checksums are valid.
#[derive(Debug)]
pub struct ChecksumValidity {
    /// The current boot; `None` if the kernel has no boot id. Nothing is stored then.
    boot: Option<u128>,
    watermarks: Watermarks,
    /// The last closed generation of this boot. Read-locked during invalidations.
    closed: RwLock<u64>,
    /// Checksums of the open generation were stored.
    has_unrecorded: AtomicBool,
}

impl ChecksumValidity {
    /// With the recorded watermarks. `has_unrecorded`: checksums of this boot may exist whose
    /// generation is not recorded.
    pub fn new(
        boot: Option<u128>,
        watermarks: Watermarks,
        has_unrecorded: bool,
    ) -> ChecksumValidity {
        let closed = boot.map_or(0, |boot| watermarks.last_durable_generation(boot));
        ChecksumValidity {
            boot,
            watermarks,
            closed: RwLock::new(closed),
            has_unrecorded: AtomicBool::new(has_unrecorded),
        }
    }

    /// Whether checksums can be stored at all.
    pub fn can_store(&self) -> bool {
        self.boot.is_some()
    }

    /// Whether no checksums exist that would have to be invalidated durably.
    pub fn has_none_durable(&self) -> bool {
        self.watermarks == Watermarks::default() && *self.closed.read() == 0
    }

    fn is_valid_epoch(&self, epoch: ChecksumEpoch) -> bool {
        let last = self.watermarks.last_durable_generation(epoch.boot);
        self.boot == Some(epoch.boot) || (1..=last).contains(&epoch.generation)
    }

    /// Whether the attribute may be valid after a power failure, if `closed` is the last closed
    /// generation.
    fn may_outlive_boot(&self, closed: u64, attribute: &[u8]) -> bool {
        if attribute == BROKEN {
            return true; // the replaced attribute may
        }
        let Some(epoch) = ChecksumEpoch::epoch_of(attribute) else {
            return false;
        };
        let last = if self.boot == Some(epoch.boot) {
            closed
        } else {
            self.watermarks.last_durable_generation(epoch.boot)
        };
        (1..=last).contains(&epoch.generation)
    }

    /// Whether invalidating this attribute takes a sync.
    pub fn needs_durable_invalidation(&self, attribute: &[u8]) -> bool {
        let closed = *self.closed.read();
        self.may_outlive_boot(closed, attribute)
    }

    /// The checksums of an object, if they are valid and match its length and modification time.
    pub fn valid_checksums(
        &self,
        object: &impl ChecksummedFile,
    ) -> Result<Option<BlockChecksums>, Errno> {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let Some(length) = object.read_attribute(&mut bytes)? else {
            return Ok(None);
        };
        let decoded = BlockChecksums::decode(bytes.get(..length).unwrap_or_default());
        let Some(checksums) = decoded.filter(|sums| self.is_valid_epoch(sums.epoch())) else {
            return Ok(None);
        };
        let state = object.file_state()?;
        Ok(Some(checksums).filter(|sums| sums.matches_object(state.size, state.mtime)))
    }

    /// Invalidate the checksums of an object that was opened for writing, durably if necessary, which
    /// blocks for a sync of the object. Returns whether it was necessary.
    pub fn invalidate(&self, object: &impl ChecksummedFile) -> Result<bool, Errno> {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let closed = self.closed.read();
        let Some(length) = object.read_attribute(&mut bytes)? else {
            return Ok(false);
        };
        let attribute = bytes.get(..length).unwrap_or_default();
        if !self.may_outlive_boot(*closed, attribute) {
            object.remove_attribute()?;
            return Ok(false);
        }
        if attribute != BROKEN {
            object.set_attribute(BROKEN)?;
        }
        drop(closed);
        object.sync_file()?;
        object.remove_attribute()?;
        Ok(true)
    }

    fn current_epoch(&self, closed: u64, has_generation: bool) -> ChecksumEpoch {
        ChecksumEpoch {
            boot: self.boot.unwrap_or_default(),
            generation: if has_generation { closed + 1 } else { 0 },
        }
    }

    /// Store the checksums of an object whose former ones are invalidated, and that had the state
    /// `before` and no writers before it was read. If the file system cannot tell whether there
    /// are writers, the checksums are valid in this boot only.
    pub fn store_checksums(
        &self,
        object: &impl ChecksummedFile,
        mut checksums: BlockChecksums,
        before: FileState,
    ) -> Result<ChecksumOutcome, Errno> {
        assert!(self.can_store(), "checksums need a boot id");
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        // Excludes invalidations: a writer that opened the object before is seen below, and one
        // that opens it later finds these checksums.
        let closed = self.closed.write();
        if let Some(length) = object.read_attribute(&mut bytes)?
            && self.may_outlive_boot(*closed, bytes.get(..length).unwrap_or_default())
        {
            return Ok(ChecksumOutcome::RecentlyWritten);
        }
        let writers = object.has_writers()?;
        if writers == Some(true) {
            return Ok(ChecksumOutcome::HasWriters);
        }
        let is_current = checksums.matches_object(before.size, before.mtime);
        if object.file_state()? != before || !is_current {
            return Ok(ChecksumOutcome::RecentlyWritten);
        }
        checksums.set_epoch(self.current_epoch(*closed, writers.is_some()));
        object.set_attribute(&checksums.encode())?;
        self.has_unrecorded.store(true, Ordering::Release);
        Ok(ChecksumOutcome::Stored)
    }

    /// Store the checksums of an object that was just created and cannot be open elsewhere.
    pub fn store_checksums_of_new_object(
        &self,
        object: &impl ChecksummedFile,
        mut checksums: BlockChecksums,
    ) -> Result<(), Errno> {
        assert!(self.can_store(), "checksums need a boot id");
        let closed = self.closed.read();
        checksums.set_epoch(self.current_epoch(*closed, true));
        object.set_attribute(&checksums.encode())?;
        self.has_unrecorded.store(true, Ordering::Release);
        Ok(())
    }

    /// Set the modification time of an object, which `set` does. The bytes do not change, so valid
    /// checksums are kept. Invalid ones are removed, since they could match the new time.
    pub fn set_mtime(
        &self,
        object: &impl ChecksummedFile,
        mtime: Timestamp,
        set: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if object.read_attribute(&mut [0; MAX_CHECKSUMS_BYTES])?.is_none() {
            return set();
        }
        // Excludes invalidations between reading and writing the attribute.
        let exclusive = self.closed.write();
        if let Some(mut checksums) = self.valid_checksums(object)? {
            set()?;
            checksums.set_mtime(mtime);
            return object.set_attribute(&checksums.encode());
        }
        drop(exclusive);
        self.invalidate(object)?;
        set()
    }

    /// Whether checksums exist whose generation is not recorded.
    pub fn has_unrecorded(&self) -> bool {
        self.boot.is_some() && self.has_unrecorded.load(Ordering::Acquire)
    }

    /// Close the current generation. The returned watermarks may be recorded once everything that
    /// was done before is durable.
    pub fn close_generation(&self) -> Option<Watermarks> {
        let boot = self.boot?;
        self.has_unrecorded.store(false, Ordering::Release);
        let mut closed = self.closed.write();
        assert!(*closed >= self.watermarks.last_durable_generation(boot));
        *closed += 1;
        let mut watermarks = self.watermarks.clone();
        watermarks.set_last_durable_generation(boot, *closed);
        Some(watermarks)
    }

    /// Recording a closed generation failed; it will be tried again.
    pub fn mark_unrecorded(&self) {
        self.has_unrecorded.store(true, Ordering::Release);
    }
}
