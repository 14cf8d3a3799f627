//! The memory budget for metadata, which are all in memory.

use forebay_protocol::Errno;

/// Memory for a session with the results of its last calls and batches.
pub const SESSION_BYTES: u64 = 16 << 10;

/// Memory that the metadata of all instances, and all sessions, take, and the budget for it, in bytes.
///
/// The budget limits what is added. A state that exceeds it, because the budget was larger before, is
/// kept, and everything in it can be used and removed.
#[derive(Debug)]
pub struct MetadataMemory {
    budget: u64,
    used: u64,
}

impl MetadataMemory {
    /// A budget of which nothing is used.
    pub fn new(budget: u64) -> MetadataMemory {
        MetadataMemory { budget, used: 0 }
    }

    /// The budget.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// An instance, or session, that took `before` bytes takes `after` now.
    pub fn replace(&mut self, before: u64, after: u64) {
        assert!(before <= self.used, "what is released was accounted for");
        self.used = self.used - before + after;
    }

    /// Bytes that an instance, which has `own`, may add: it may have three quarters of what the other
    /// instances leave, so that none can take everything.
    pub fn available(&self, own: u64) -> u64 {
        let others = self.used.saturating_sub(own);
        let share = self.budget.saturating_sub(others) / 4 * 3;
        share.saturating_sub(own)
    }

    /// `ENFILE` if there is no memory for another handle or session. These may take an eighth of the
    /// budget in addition to it: files must be opened to be emptied.
    pub fn check_handles(&self) -> Result<(), Errno> {
        let limit = self.budget.saturating_add(self.budget / 8);
        if self.used < limit { Ok(()) } else { Err(Errno::ENFILE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instance_takes_the_memory_of_all_others() {
        let mut memory = MetadataMemory::new(1 << 20);
        for _ in 0..5 {
            let bytes = memory.available(0);
            assert!(bytes > 0);
            memory.replace(0, bytes);
            assert_eq!(memory.available(bytes), 0);
            assert!(memory.used() < 1 << 20);
        }
    }
}
