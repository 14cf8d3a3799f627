//! Which seals hold over a power cut.
//!
//! A power cut forgets what was not synced, of each object other things: that its seal was broken,
//! for example, but not what was written after that. A seal that is there afterwards can be believed
//! if what it is about was durable, and if nobody wrote since without first making durable that the
//! seal is no more. So:
//!
//! - Seals are put only on objects that nobody has open to write to, memory maps included, as the
//!   kernel knows. Whoever writes later on has to open the object, which breaks the seal.
//! - Seals have generations. Now and then one is closed ([`Lasting::close`]): new seals are of the
//!   next. Then everything is made durable, and after that it is recorded durably, in [`Marks`], that
//!   seals up to that generation hold.
//! - From its closing on, a seal is broken durably: its attribute is replaced by [`BROKEN`], the
//!   object is synced, and only then is the attribute removed and the object handed out. Who finds
//!   [`BROKEN`], left by one who was killed or is not done, does the same.
//! - Before the closing the attribute is just removed. That happens before everything is made
//!   durable, or the seal is never believed.
//!
//! Generations are counted anew in each start of the host. Those of a start that were not recorded
//! while it lasted never will be.

#[cfg(test)]
mod tests;
mod watermarks;

pub use watermarks::{WATERMARK_FILE, Watermarks};

use crate::objects::block_checksums::{BlockChecksums, ChecksumEpoch};
use forebay_protocol::{Errno, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is in the place of a seal that is being broken durably.
const BROKEN: &[u8] = b"FBbr";
/// The longest seal, in bytes.
pub const MAX_CHECKSUMS_BYTES: usize = 4096;

/// What an object looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written to, or was said to be.
    pub mtime: Timestamp,
    /// When anything about it changed last, which nobody can set.
    pub ctime: Timestamp,
}

/// An open object, as far as its seal is concerned.
pub trait ChecksummedFile {
    /// Read the attribute; `None` if it has none, or the file system keeps none.
    fn read_attribute(&self, into: &mut [u8; MAX_CHECKSUMS_BYTES]) -> Result<Option<usize>, Errno>;
    /// Set the attribute.
    fn set_attribute(&self, bytes: &[u8]) -> Result<(), Errno>;
    /// Remove the attribute, which may be gone already.
    fn remove_attribute(&self) -> Result<(), Errno>;
    /// Make it durable with all that was done to it.
    fn sync_file(&self) -> Result<(), Errno>;
    /// Length and times.
    fn file_state(&self) -> Result<FileState, Errno>;
    /// Does anyone have it open to write to it, this object itself not counted? `None`: the file
    /// system does not tell.
    fn has_writers(&self) -> Result<Option<bool>, Errno>;
}

/// What came of putting a seal on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It is there.
    Stored,
    /// The object is not what the seal is about any more, or another one has to be broken first.
    FileChanged,
    /// Someone may write to the object.
    HasWriters,
}

/// Whether an object may be handed out to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// It may.
    Done,
    /// Not before [`Lasting::finish_breaking`].
    SyncNeeded,
}

/// Knows when seals were made and which can be believed.
#[derive(Debug)]
pub struct ChecksumValidity {
    /// This start of the host; `None` if the kernel does not say. Nothing is sealed then.
    boot: Option<u128>,
    marks: Watermarks,
    /// The last generation that is closed. Held for reading by whoever breaks a seal.
    closed: RwLock<u64>,
    /// Seals of the open generation were put.
    fresh: AtomicBool,
}

impl ChecksumValidity {
    /// With what was recorded. `fresh`: there may be seals of this start that were not.
    pub fn new(boot: Option<u128>, marks: Watermarks, fresh: bool) -> ChecksumValidity {
        let closed = RwLock::new(boot.map_or(0, |boot| marks.last_durable_generation(boot)));
        ChecksumValidity {
            boot,
            marks,
            closed,
            fresh: AtomicBool::new(fresh),
        }
    }

    fn closed(&self) -> RwLockReadGuard<'_, u64> {
        self.closed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// No seal is broken while this is held.
    fn alone(&self) -> RwLockWriteGuard<'_, u64> {
        self.closed.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can it be told when seals are made?
    pub fn can_store(&self) -> bool {
        self.boot.is_some()
    }

    /// Can there be seals at all that have to be broken durably?
    pub fn has_none_durable(&self) -> bool {
        self.marks == Watermarks::default() && *self.closed() == 0
    }

    /// Can a seal of this era be believed now?
    fn is_believed(&self, era: ChecksumEpoch) -> bool {
        self.boot == Some(era.boot)
            || (1..=self.marks.last_durable_generation(era.boot)).contains(&era.generation)
    }

    /// Can what is in an attribute be believed after a power cut, `closed` being the last generation
    /// that is closed?
    fn lasts(&self, closed: u64, attribute: &[u8]) -> bool {
        if attribute == BROKEN {
            return true; // what it replaced can
        }
        let Some(era) = ChecksumEpoch::epoch_of(attribute) else {
            return false;
        };
        let last = match self.boot == Some(era.boot) {
            true => closed,
            false => self.marks.last_durable_generation(era.boot),
        };
        (1..=last).contains(&era.generation)
    }

    /// Would the attribute of an object, if it has one, have to be broken durably?
    pub fn needs_durable_invalidation(&self, attribute: &[u8]) -> bool {
        let closed = *self.closed();
        self.lasts(closed, attribute)
    }

    /// The seal of an object, if it can be believed and is about it.
    pub fn valid_checksums(
        &self,
        object: &impl ChecksummedFile,
    ) -> Result<Option<BlockChecksums>, Errno> {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let Some(length) = object.read_attribute(&mut bytes)? else {
            return Ok(None);
        };
        let seal = BlockChecksums::decode(bytes.get(..length).unwrap_or_default());
        let Some(seal) = seal.filter(|seal| self.is_believed(seal.epoch())) else {
            return Ok(None);
        };
        let state = object.file_state()?;
        Ok(Some(seal).filter(|seal| seal.matches_object(state.size, state.mtime)))
    }

    /// Someone will write to the object, and has opened it: break its seal, or begin to.
    pub fn begin_invalidation(&self, object: &impl ChecksummedFile) -> Result<Invalidation, Errno> {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let closed = self.closed();
        let Some(length) = object.read_attribute(&mut bytes)? else {
            return Ok(Invalidation::Done);
        };
        let attribute = bytes.get(..length).unwrap_or_default();
        if !self.lasts(*closed, attribute) {
            object.remove_attribute()?;
            return Ok(Invalidation::Done);
        }
        if attribute != BROKEN {
            object.set_attribute(BROKEN)?;
        }
        Ok(Invalidation::SyncNeeded)
    }

    /// The durable part of breaking a seal, which takes as long as the device needs.
    pub fn finish_invalidation(&self, object: &impl ChecksummedFile) -> Result<(), Errno> {
        object.sync_file()?;
        object.remove_attribute()
    }

    /// Both parts.
    pub fn invalidate(&self, object: &impl ChecksummedFile) -> Result<(), Errno> {
        match self.begin_invalidation(object)? {
            Invalidation::Done => Ok(()),
            Invalidation::SyncNeeded => self.finish_invalidation(object),
        }
    }

    /// The era of a seal that is put now.
    fn era(&self, closed: u64, generation: bool) -> ChecksumEpoch {
        ChecksumEpoch {
            boot: self.boot.unwrap_or_default(),
            generation: if generation { closed + 1 } else { 0 },
        }
    }

    /// Put a seal on an object whose former one is broken, and that looked so, and was not open to be
    /// written to, before it was read. Where the file system does not tell who might write to it, the
    /// seal will hold for this start of the host only.
    pub fn store_checksums(
        &self,
        object: &impl ChecksummedFile,
        mut seal: BlockChecksums,
        before: FileState,
    ) -> Result<StoreOutcome, Errno> {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        // Nobody breaks seals meanwhile: who has opened the object already is seen, and who opens it
        // later finds this seal.
        let closed = self.alone();
        if let Some(length) = object.read_attribute(&mut bytes)?
            && self.lasts(*closed, bytes.get(..length).unwrap_or_default())
        {
            return Ok(StoreOutcome::FileChanged);
        }
        let writers = object.has_writers()?;
        if writers == Some(true) {
            return Ok(StoreOutcome::HasWriters);
        }
        if object.file_state()? != before {
            return Ok(StoreOutcome::FileChanged);
        }
        seal.set_epoch(self.era(*closed, writers.is_some()));
        object.set_attribute(&seal.encode())?;
        self.fresh.store(true, Ordering::Release);
        Ok(StoreOutcome::Stored)
    }

    /// Put a seal on an object that was just made and that nobody else can have open.
    pub fn store_checksums_of_new_object(
        &self,
        object: &impl ChecksummedFile,
        mut seal: BlockChecksums,
    ) -> Result<(), Errno> {
        let closed = self.closed();
        seal.set_epoch(self.era(*closed, true));
        object.set_attribute(&seal.encode())?;
        self.fresh.store(true, Ordering::Release);
        Ok(())
    }

    /// An object gets another time of last change, which `set` sets. The bytes stay what they are,
    /// and so does a seal that holds. One that does not must not come to hold again because someone
    /// gives the object the time it had.
    pub fn set_mtime(
        &self,
        object: &impl ChecksummedFile,
        mtime: Timestamp,
        set: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if object
            .read_attribute(&mut [0; MAX_CHECKSUMS_BYTES])?
            .is_none()
        {
            return set();
        }
        // Nobody breaks the seal between reading and writing it.
        let alone = self.alone();
        if let Some(mut seal) = self.valid_checksums(object)? {
            set()?;
            seal.set_mtime(mtime);
            return object.set_attribute(&seal.encode());
        }
        drop(alone);
        self.invalidate(object)?;
        set()
    }

    /// Are there seals that are not recorded to hold?
    pub fn has_unrecorded(&self) -> bool {
        self.boot.is_some() && self.fresh.load(Ordering::Acquire)
    }

    /// Close the open generation. What is returned may be recorded durably once everything that was
    /// done before is durable.
    pub fn close_generation(&self) -> Option<Watermarks> {
        let boot = self.boot?;
        self.fresh.store(false, Ordering::Release);
        let mut closed = self.alone();
        *closed += 1;
        let mut marks = self.marks.clone();
        marks.set_last_durable_generation(boot, *closed);
        Some(marks)
    }

    /// What was closed could not be recorded: to be tried again.
    pub fn mark_unrecorded(&self) {
        self.fresh.store(true, Ordering::Release);
    }
}
