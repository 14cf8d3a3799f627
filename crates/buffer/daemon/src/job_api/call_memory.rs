//! Memory for the bodies of long calls.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Longest body that counts for nothing, in bytes: some hundred paths. The number of calls in progress
/// is limited.
const SHORT_BYTES: usize = 64 << 10;
/// Memory for the longer bodies of one user, in bytes.
pub(super) const MAX_USER_BYTES: usize = 64 << 20;
/// Memory for those of all users, in bytes.
const MAX_BYTES: usize = 256 << 20;

#[derive(Debug, Default)]
struct Taken {
    by_user: HashMap<u32, usize>,
    all: usize,
}

/// The memory that calls in progress take.
#[derive(Clone, Debug, Default)]
pub(super) struct CallMemory(Arc<Mutex<Taken>>);

/// Memory for one call, until it is dropped.
#[derive(Debug)]
pub(super) struct CallPermit {
    memory: CallMemory,
    uid: u32,
    bytes: usize,
}

impl CallMemory {
    /// Takes memory for the body of a user's call; `None`: others have to end first.
    pub fn take(&self, uid: u32, bytes: usize) -> Option<CallPermit> {
        let bytes = if bytes <= SHORT_BYTES { 0 } else { bytes };
        if bytes > 0 {
            let mut taken = self.0.lock();
            let own = taken.by_user.get(&uid).copied().unwrap_or(0);
            if own + bytes > MAX_USER_BYTES || taken.all + bytes > MAX_BYTES {
                return None;
            }
            taken.by_user.insert(uid, own + bytes);
            taken.all += bytes;
        }
        Some(CallPermit { memory: self.clone(), uid, bytes })
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.memory.0.lock();
        taken.all -= self.bytes;
        if let Some(own) = taken.by_user.get_mut(&self.uid) {
            *own -= self.bytes;
            if *own == 0 {
                taken.by_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_all_have_a_limit_and_short_bodies_none() {
        let memory = CallMemory::default();
        let quarter = MAX_USER_BYTES / 4;
        let of_all: Vec<CallPermit> =
            (0..16).map(|n| memory.take(n / 4, quarter).unwrap()).collect();
        assert!(memory.take(9, SHORT_BYTES + 1).is_none());
        assert!(memory.take(9, SHORT_BYTES).is_some());
        drop(of_all);
        let of_one: Vec<CallPermit> = (0..4).map(|_| memory.take(1, quarter).unwrap()).collect();
        assert!(memory.take(1, SHORT_BYTES + 1).is_none());
        assert!(memory.take(2, MAX_USER_BYTES).is_some());
        drop(of_one);
        assert!(memory.0.lock().by_user.is_empty());
    }
}
