//! The parents of listed directories. A listing contains the inode number of the parent, which would
//! take a request each time.

use forebay_protocol::Ino;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of directories.
const MAX_DIRECTORIES: usize = 1 << 12;

#[derive(Debug, Default)]
struct State {
    /// The parents, and until when they are known.
    known: HashMap<Ino, (Ino, Instant)>,
    /// Times at which any directory may have got another parent.
    changes: u64,
}

/// Parents that were looked up, under the lease on names.
#[derive(Debug, Default)]
pub struct Parents(Mutex<State>);

impl Parents {
    /// The parent of a directory, if it is known.
    pub fn get(&self, dir: Ino, now: Instant) -> Option<Ino> {
        let state = self.0.lock();
        state.known.get(&dir).filter(|(_, until)| now < *until).map(|(parent, _)| *parent)
    }

    /// A number that any change of a parent increases.
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// `parent` was looked up when there had been so many `changes`, and is valid for `ttl`.
    pub fn remember(&self, (dir, parent): (Ino, Ino), changes: u64, now: Instant, ttl: Duration) {
        let mut state = self.0.lock();
        if state.changes != changes || ttl.is_zero() {
            return;
        }
        if state.known.len() >= MAX_DIRECTORIES {
            state.known.clear();
        }
        state.known.insert(dir, (parent, now + ttl));
    }

    /// Any directory may get another parent, or has got one.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        state.known.clear();
        state.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_known_until_they_expire_or_may_change() {
        let (parents, now, ttl) = (Parents::default(), Instant::now(), Duration::from_secs(1));
        let changes = parents.changes();
        parents.remember((Ino(3), Ino(2)), changes, now, ttl);
        parents.remember((Ino(4), Ino(2)), changes, now, Duration::ZERO);
        assert_eq!(parents.get(Ino(3), now), Some(Ino(2)));
        assert_eq!(parents.get(Ino(3), now + ttl), None);
        assert_eq!(parents.get(Ino(4), now), None);
        parents.clear();
        assert_eq!(parents.get(Ino(3), now), None);
        // It was looked up before the change.
        parents.remember((Ino(3), Ino(2)), changes, now, ttl);
        assert_eq!(parents.get(Ino(3), now), None);
        for number in 0..=MAX_DIRECTORIES as u64 {
            parents.remember((Ino(number), Ino(1)), parents.changes(), now, ttl);
        }
        assert_eq!(parents.0.lock().known.len(), 1);
    }
}
