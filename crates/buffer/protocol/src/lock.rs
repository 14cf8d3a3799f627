//! Locks on files, of `fcntl` and of `flock`.

use crate::ids::{HandleId, LockOwner};
use serde::{Deserialize, Serialize};

/// The last byte that a lock may cover, as the kernel has it.
pub const MAX_LOCK_OFFSET: u64 = i64::MAX as u64;

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// Whose it is, within the session. Of `flock`: it covers the whole file.
    pub owner: LockOwner,
    /// First byte.
    pub start: u64,
    /// Last byte; not below `start`.
    pub end: u64,
    /// Nobody else may have a lock there, instead of nobody else an exclusive one.
    pub exclusive: bool,
    /// The process on the client's host, for who asks; 0 if there is none.
    pub pid: u32,
}

impl FileLock {
    /// Can two locks of different owners not be held at the same time?
    pub fn conflicts(&self, other: &FileLock) -> bool {
        self.owner.is_same_family(other.owner)
            && self.start <= other.end
            && other.start <= self.end
            && (self.exclusive || other.exclusive)
    }
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock.
    pub lock: FileLock,
    /// The handle through which it was taken; it goes with it.
    pub handle: HandleId,
}

/// What one owner holds of one file: ranges in order that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldRanges(Vec<HeldLock>);

impl HeldRanges {
    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.0.iter()
    }

    /// Is nothing held?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Take a lock: it replaces what is held of its range.
    pub fn acquire(&mut self, mut new: HeldLock) {
        self.release(new.lock.start, new.lock.end);
        let alike = |a: &HeldLock, b: &HeldLock| {
            a.lock.exclusive == b.lock.exclusive && a.handle == b.handle && a.lock.pid == b.lock.pid
        };
        let mut at = self.0.partition_point(|held| held.lock.end < new.lock.start);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.0.get(before))
            && before.lock.end.checked_add(1) == Some(new.lock.start)
            && alike(before, &new)
        {
            new.lock.start = before.lock.start;
            at -= 1;
            self.0.remove(at);
        }
        if let Some(behind) = self.0.get(at)
            && new.lock.end.checked_add(1) == Some(behind.lock.start)
            && alike(behind, &new)
        {
            new.lock.end = behind.lock.end;
            self.0.remove(at);
        }
        self.0.insert(at, new);
    }

    /// Give up what is held between `start` and `end`, both included. `false`: that is nothing.
    pub fn release(&mut self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|held| held.lock.end < start);
        let mut kept = Vec::new();
        let mut last = first;
        for held in self.0.iter().skip(first).take_while(|held| held.lock.start <= end) {
            last += 1;
            if held.lock.start < start {
                let mut left = *held;
                left.lock.end = start - 1;
                kept.push(left);
            }
            if held.lock.end > end {
                let mut right = *held;
                right.lock.start = end + 1;
                kept.push(right);
            }
        }
        self.0.splice(first..last, kept);
        last > first
    }

    /// Give up what was taken through a handle. `false`: that is nothing.
    pub fn release_handle(&mut self, handle: HandleId) -> bool {
        let before = self.0.len();
        self.0.retain(|held| held.handle != handle);
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    #[derive(Clone, Debug)]
    enum Act {
        Set(u64, u64, bool, u64),
        Clear(u64, u64),
        ClearHandle(u64),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let act = prop_oneof![
            4 => (range.clone(), any::<bool>(), 0u64..3)
                .prop_map(|((start, end), exclusive, handle)| Act::Set(start, end, exclusive, handle)),
            2 => range.prop_map(|(start, end)| Act::Clear(start, end)),
            1 => (0u64..3).prop_map(Act::ClearHandle),
        ];
        prop::collection::vec(act, 0..40)
    }

    proptest! {
        #[test]
        fn ranges_are_what_a_table_of_bytes_says(acts in acts()) {
            let mut ranges = HeldRanges::default();
            let mut bytes: Vec<Option<(bool, u64)>> = vec![None; BYTES as usize];
            for act in acts {
                match act {
                    Act::Set(start, end, exclusive, handle) => {
                        let owner = LockOwner::Fcntl(1);
                        let lock = FileLock { owner, start, end, exclusive, pid: 0 };
                        ranges.acquire(HeldLock { lock, handle: HandleId(handle) });
                        bytes[start as usize..=end as usize].fill(Some((exclusive, handle)));
                    }
                    Act::Clear(start, end) => {
                        let held = &mut bytes[start as usize..=end as usize];
                        prop_assert_eq!(ranges.release(start, end), held.iter().any(Option::is_some));
                        held.fill(None);
                    }
                    Act::ClearHandle(handle) => {
                        let mine = |byte: &Option<(bool, u64)>| byte.is_some_and(|b| b.1 == handle);
                        let any = bytes.iter().any(mine);
                        prop_assert_eq!(ranges.release_handle(HandleId(handle)), any);
                        bytes.iter_mut().filter(|byte| mine(byte)).for_each(|byte| *byte = None);
                    }
                }
                let mut found = vec![None; BYTES as usize];
                let mut last: Option<HeldLock> = None;
                for held in ranges.iter() {
                    prop_assert!(held.lock.start <= held.lock.end);
                    if let Some(last) = last {
                        prop_assert!(last.lock.end < held.lock.start);
                        let joined = last.lock.end + 1 == held.lock.start
                            && last.handle == held.handle
                            && last.lock.exclusive == held.lock.exclusive;
                        prop_assert!(!joined, "neighbours that are alike are one");
                    }
                    last = Some(*held);
                    found[held.lock.start as usize..=held.lock.end as usize]
                        .fill(Some((held.lock.exclusive, held.handle.0)));
                }
                prop_assert_eq!(&found, &bytes);
            }
        }
    }

    #[test]
    fn the_last_byte_of_all_can_be_locked() {
        let lock = FileLock {
            owner: LockOwner::Fcntl(1),
            start: 5,
            end: u64::MAX,
            exclusive: true,
            pid: 0,
        };
        let mut ranges = HeldRanges::default();
        ranges.acquire(HeldLock { lock, handle: HandleId(1) });
        ranges
            .acquire(HeldLock { lock: FileLock { start: 0, end: 4, ..lock }, handle: HandleId(1) });
        assert_eq!(ranges.len(), 1);
        assert!(ranges.release(7, u64::MAX));
        assert_eq!(ranges.iter().next().unwrap().lock.end, 6);
    }
}
