//! Open files by the numbers of their descriptors.

use crate::file::OpenFile;
use parking_lot::RwLock;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbers from here on are never those of files of an instance.
const SLOTS: usize = 65_536;

type Slot = RwLock<Option<Arc<OpenFile>>>;

static TABLE: [Slot; SLOTS] = [const { RwLock::new(None) }; SLOTS];
/// Occupied slots.
static OCCUPIED: AtomicUsize = AtomicUsize::new(0);
/// One more than the greatest number that was ever in use.
static END: AtomicUsize = AtomicUsize::new(0);

fn slot(fd: RawFd) -> Option<&'static Slot> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The file with this descriptor.
pub fn get(fd: RawFd) -> Option<Arc<OpenFile>> {
    if is_empty() {
        return None;
    }
    slot(fd)?.read().clone()
}

/// Whether no file of an instance is open.
pub fn is_empty() -> bool {
    OCCUPIED.load(Ordering::Acquire) == 0
}

/// Gives `fd` to a file. Returns the file that had it before. `false` in the second place: the number
/// is too great.
pub fn insert(fd: RawFd, file: Arc<OpenFile>) -> bool {
    let Some(slot) = slot(fd) else {
        return false;
    };
    END.fetch_max(fd as usize + 1, Ordering::AcqRel);
    OCCUPIED.fetch_add(1, Ordering::AcqRel);
    let previous = slot.write().replace(file);
    if previous.is_some() {
        OCCUPIED.fetch_sub(1, Ordering::AcqRel);
    }
    true
}

/// Takes `fd` from its file.
pub fn remove(fd: RawFd) -> Option<Arc<OpenFile>> {
    if is_empty() {
        return None;
    }
    let removed = slot(fd)?.write().take();
    if removed.is_some() {
        let occupied = OCCUPIED.fetch_sub(1, Ordering::AcqRel);
        assert!(occupied > 0, "an occupied slot was counted");
    }
    removed
}

/// All descriptors with their files.
pub fn all() -> Vec<(RawFd, Arc<OpenFile>)> {
    if is_empty() {
        return Vec::new();
    }
    let slots = TABLE.iter().take(END.load(Ordering::Acquire)).enumerate();
    slots.filter_map(|(fd, slot)| Some((fd as RawFd, slot.read().clone()?))).collect()
}

/// Calls `each` for the files of all descriptors that no thread changes now. Allocates no memory, as
/// handlers of signals require.
pub fn for_each(mut each: impl FnMut(&OpenFile)) {
    for slot in TABLE.iter().take(END.load(Ordering::Acquire)) {
        if let Some(file) = slot.try_read().and_then(|file| file.clone()) {
            each(&file);
        }
    }
}

/// Forgets all files without closing them: they are the parent's of this process, which has one
/// thread.
pub fn forget() {
    for slot in TABLE.iter().take(END.load(Ordering::Relaxed)) {
        // A thread of the parent may have held the lock.
        // SAFETY: no other thread exists in this process, and this one uses no slot now.
        unsafe { std::ptr::from_ref(slot).cast_mut().write(RwLock::new(None)) };
    }
    OCCUPIED.store(0, Ordering::Release);
}
