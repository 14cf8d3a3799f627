//! Who takes how much of an instance's capacity.

use forebay_protocol::Ino;
use std::collections::BTreeMap;

/// The space that objects take, and what has been promised to writers on top.
#[derive(Debug, Default)]
pub struct Space {
    objects: BTreeMap<Ino, u64>,
    charged: u64,
    granted: u64,
}

impl Space {
    /// Bytes in use or promised.
    pub fn used(&self) -> u64 {
        self.charged.saturating_add(self.granted)
    }

    /// Does the file have an object?
    pub fn has_object(&self, ino: Ino) -> bool {
        self.objects.contains_key(&ino)
    }

    /// The files that have objects.
    pub fn objects(&self) -> impl Iterator<Item = Ino> {
        self.objects.keys().copied()
    }

    /// An object exists and takes `space` bytes.
    pub fn charge(&mut self, ino: Ino, space: u64) {
        let before = self.objects.insert(ino, space).unwrap_or(0);
        self.charged = self.charged - before + space;
    }

    /// An object is gone.
    pub fn discharge(&mut self, ino: Ino) {
        self.charged -= self.objects.remove(&ino).unwrap_or(0);
    }

    /// A promise changes from `before` to `after` bytes.
    pub fn regrant(&mut self, before: u64, after: u64) {
        self.granted = self.granted - before + after;
    }

    /// How much may be promised to a writer who needs `want` bytes now and would like `ahead`: all
    /// that is wanted if there is as much, and ahead of that no more than an eighth of what is left.
    pub fn available(&self, capacity: u64, want: u64, ahead: u64) -> u64 {
        let free = capacity.saturating_sub(self.used());
        want.max(ahead.min(free / 8)).min(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_shrink_as_the_instance_fills_and_never_exceed_it() {
        let mut space = Space::default();
        let capacity = 1 << 20;
        let mut total = 0;
        loop {
            let grant = space.available(capacity, 4096, 1 << 30);
            if grant == 0 {
                break;
            }
            space.regrant(0, grant);
            total += grant;
            assert!(space.used() <= capacity);
        }
        assert_eq!(total, capacity);
    }
}
