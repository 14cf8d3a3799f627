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

mod marks;
#[cfg(test)]
mod tests;

pub use marks::{FILE, Marks};

use crate::objects::block_checksums::{Era, Seal};
use forebay_protocol::{Errno, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is in the place of a seal that is being broken durably.
const BROKEN: &[u8] = b"FBbr";
/// The longest seal, in bytes.
pub const LONGEST: usize = 4096;

/// What an object looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written to, or was said to be.
    pub mtime: Timestamp,
    /// When anything about it changed last, which nobody can set.
    pub ctime: Timestamp,
}

/// An open object, as far as its seal is concerned.
pub trait Sealable {
    /// Read the attribute; `None` if it has none, or the file system keeps none.
    fn attribute(&self, into: &mut [u8; LONGEST]) -> Result<Option<usize>, Errno>;
    /// Set the attribute.
    fn set_attribute(&self, bytes: &[u8]) -> Result<(), Errno>;
    /// Remove the attribute, which may be gone already.
    fn remove_attribute(&self) -> Result<(), Errno>;
    /// Make it durable with all that was done to it.
    fn sync(&self) -> Result<(), Errno>;
    /// Length and times.
    fn state(&self) -> Result<State, Errno>;
    /// Does anyone have it open to write to it, this object itself not counted? `None`: the file
    /// system does not tell.
    fn has_writers(&self) -> Result<Option<bool>, Errno>;
}

/// What came of putting a seal on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Done,
    /// The object is not what the seal is about any more, or another one has to be broken first.
    Changed,
    /// Someone may write to the object.
    Open,
}

/// Whether an object may be handed out to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaking {
    /// It may.
    Done,
    /// Not before [`Lasting::finish_breaking`].
    Begun,
}

/// Knows when seals were made and which can be believed.
#[derive(Debug)]
pub struct Lasting {
    /// This start of the host; `None` if the kernel does not say. Nothing is sealed then.
    boot: Option<u128>,
    marks: Marks,
    /// The last generation that is closed. Held for reading by whoever breaks a seal.
    closed: RwLock<u64>,
    /// Seals of the open generation were put.
    fresh: AtomicBool,
}

impl Lasting {
    /// With what was recorded. `fresh`: there may be seals of this start that were not.
    pub fn new(boot: Option<u128>, marks: Marks, fresh: bool) -> Lasting {
        let closed = RwLock::new(boot.map_or(0, |boot| marks.of(boot)));
        Lasting {
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
    pub fn can_seal(&self) -> bool {
        self.boot.is_some()
    }

    /// Can there be seals at all that have to be broken durably?
    pub fn is_plain(&self) -> bool {
        self.marks == Marks::default() && *self.closed() == 0
    }

    /// Can a seal of this era be believed now?
    fn is_believed(&self, era: Era) -> bool {
        self.boot == Some(era.boot) || (1..=self.marks.of(era.boot)).contains(&era.generation)
    }

    /// Can what is in an attribute be believed after a power cut, `closed` being the last generation
    /// that is closed?
    fn lasts(&self, closed: u64, attribute: &[u8]) -> bool {
        if attribute == BROKEN {
            return true; // what it replaced can
        }
        let Some(era) = Era::of(attribute) else {
            return false;
        };
        let last = match self.boot == Some(era.boot) {
            true => closed,
            false => self.marks.of(era.boot),
        };
        (1..=last).contains(&era.generation)
    }

    /// Would the attribute of an object, if it has one, have to be broken durably?
    pub fn is_lasting(&self, attribute: &[u8]) -> bool {
        let closed = *self.closed();
        self.lasts(closed, attribute)
    }

    /// The seal of an object, if it can be believed and is about it.
    pub fn seal_of(&self, object: &impl Sealable) -> Result<Option<Seal>, Errno> {
        let mut bytes = [0; LONGEST];
        let Some(length) = object.attribute(&mut bytes)? else {
            return Ok(None);
        };
        let seal = Seal::decode(bytes.get(..length).unwrap_or_default());
        let Some(seal) = seal.filter(|seal| self.is_believed(seal.era())) else {
            return Ok(None);
        };
        let state = object.state()?;
        Ok(Some(seal).filter(|seal| seal.is_about(state.size, state.mtime)))
    }

    /// Someone will write to the object, and has opened it: break its seal, or begin to.
    pub fn begin_breaking(&self, object: &impl Sealable) -> Result<Breaking, Errno> {
        let mut bytes = [0; LONGEST];
        let closed = self.closed();
        let Some(length) = object.attribute(&mut bytes)? else {
            return Ok(Breaking::Done);
        };
        let attribute = bytes.get(..length).unwrap_or_default();
        if !self.lasts(*closed, attribute) {
            object.remove_attribute()?;
            return Ok(Breaking::Done);
        }
        if attribute != BROKEN {
            object.set_attribute(BROKEN)?;
        }
        Ok(Breaking::Begun)
    }

    /// The durable part of breaking a seal, which takes as long as the device needs.
    pub fn finish_breaking(&self, object: &impl Sealable) -> Result<(), Errno> {
        object.sync()?;
        object.remove_attribute()
    }

    /// Both parts.
    pub fn break_seal(&self, object: &impl Sealable) -> Result<(), Errno> {
        match self.begin_breaking(object)? {
            Breaking::Done => Ok(()),
            Breaking::Begun => self.finish_breaking(object),
        }
    }

    /// The era of a seal that is put now.
    fn era(&self, closed: u64, generation: bool) -> Era {
        Era {
            boot: self.boot.unwrap_or_default(),
            generation: if generation { closed + 1 } else { 0 },
        }
    }

    /// Put a seal on an object whose former one is broken, and that looked so, and was not open to be
    /// written to, before it was read. Where the file system does not tell who might write to it, the
    /// seal will hold for this start of the host only.
    pub fn put(&self, object: &impl Sealable, mut seal: Seal, before: State) -> Result<Put, Errno> {
        let mut bytes = [0; LONGEST];
        // Nobody breaks seals meanwhile: who has opened the object already is seen, and who opens it
        // later finds this seal.
        let closed = self.alone();
        if let Some(length) = object.attribute(&mut bytes)?
            && self.lasts(*closed, bytes.get(..length).unwrap_or_default())
        {
            return Ok(Put::Changed);
        }
        let writers = object.has_writers()?;
        if writers == Some(true) {
            return Ok(Put::Open);
        }
        if object.state()? != before {
            return Ok(Put::Changed);
        }
        seal.set_era(self.era(*closed, writers.is_some()));
        object.set_attribute(&seal.encode())?;
        self.fresh.store(true, Ordering::Release);
        Ok(Put::Done)
    }

    /// Put a seal on an object that was just made and that nobody else can have open.
    pub fn put_on_new(&self, object: &impl Sealable, mut seal: Seal) -> Result<(), Errno> {
        let closed = self.closed();
        seal.set_era(self.era(*closed, true));
        object.set_attribute(&seal.encode())?;
        self.fresh.store(true, Ordering::Release);
        Ok(())
    }

    /// An object gets another time of last change, which `set` sets. The bytes stay what they are,
    /// and so does a seal that holds. One that does not must not come to hold again because someone
    /// gives the object the time it had.
    pub fn set_mtime(
        &self,
        object: &impl Sealable,
        mtime: Timestamp,
        set: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if object.attribute(&mut [0; LONGEST])?.is_none() {
            return set();
        }
        // Nobody breaks the seal between reading and writing it.
        let alone = self.alone();
        if let Some(mut seal) = self.seal_of(object)? {
            set()?;
            seal.set_mtime(mtime);
            return object.set_attribute(&seal.encode());
        }
        drop(alone);
        self.break_seal(object)?;
        set()
    }

    /// Are there seals that are not recorded to hold?
    pub fn has_fresh(&self) -> bool {
        self.boot.is_some() && self.fresh.load(Ordering::Acquire)
    }

    /// Close the open generation. What is returned may be recorded durably once everything that was
    /// done before is durable.
    pub fn close(&self) -> Option<Marks> {
        let boot = self.boot?;
        self.fresh.store(false, Ordering::Release);
        let mut closed = self.alone();
        *closed += 1;
        let mut marks = self.marks.clone();
        marks.set(boot, *closed);
        Some(marks)
    }

    /// What was closed could not be recorded: to be tried again.
    pub fn reopen(&self) {
        self.fresh.store(true, Ordering::Release);
    }
}
