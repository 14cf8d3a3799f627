//! Negative lookup cache. While this mount is the only client, it knows every name in the
//! directories that it created, so a lookup that precedes a create can be answered `ENOENT` without
//! a round trip.
//!
//! As soon as another client may have existed for a moment, the cache is cleared.

use forebay_protocol::Ino;
use forebay_protocol::message::{CACHE_LIFETIME_NS, MAX_NAME};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Maximum number of names, of all directories together.
const MAX_NAMES: usize = 1 << 17;
/// Maximum number of directories.
const MAX_DIRECTORIES: usize = 1 << 13;

#[derive(Debug, Default)]
struct State {
    /// No other client exists until then.
    alone_until: Option<Instant>,
    /// Hashes of all names that may exist. Equal hashes, and removed names, cost a round trip.
    directories: HashMap<Ino, HashSet<u64>>,
    names: usize,
}

impl State {
    fn is_alone(&self, now: Instant) -> bool {
        self.alone_until.is_some_and(|until| now < until)
    }

    fn clear(&mut self) {
        self.directories.clear();
        self.names = 0;
    }
}

/// Directories whose names are all known.
#[derive(Debug, Default)]
pub struct NegativeLookups {
    state: Mutex<State>,
    hasher: RandomState,
}

impl NegativeLookups {
    /// Another client is about to change names.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.clear();
        state.alone_until = None;
    }

    /// A reply to a request that was sent at `sent_at` says that this mount was the only client; it
    /// remains the only one for the lifetime of cached entries.
    pub fn confirm_alone(&self, sent_at: Instant) {
        let mut state = self.state.lock();
        if !state.is_alone(Instant::now()) {
            state.clear(); // other clients may have existed
        }
        let until = sent_at + Duration::from_nanos(CACHE_LIFETIME_NS);
        state.alone_until = state.alone_until.max(Some(until));
    }

    /// This mount has created a directory that everybody may search, and not yet replied to that
    /// request.
    pub fn add_directory(&self, dir: Ino) {
        let mut state = self.state.lock();
        if state.directories.len() >= MAX_DIRECTORIES {
            state.clear();
        }
        if state.is_alone(Instant::now()) {
            let previous = state.directories.insert(dir, HashSet::new());
            state.names -= previous.map_or(0, |names| names.len());
        }
    }

    /// A name is about to be created.
    pub fn add_name(&self, dir: Ino, name: &[u8]) {
        let mut state = self.state.lock();
        let Some(names) = state.directories.get_mut(&dir) else {
            return;
        };
        if names.insert(self.hasher.hash_one(name)) {
            state.names += 1;
        }
        if state.names > MAX_NAMES {
            state.clear();
        }
    }

    /// The directory loses the right of everybody to search it.
    pub fn forget_directory(&self, dir: Ino) {
        let mut state = self.state.lock();
        if let Some(names) = state.directories.remove(&dir) {
            assert!(names.len() <= state.names);
            state.names -= names.len();
        }
    }

    /// Whether a directory certainly has no such name.
    pub fn is_absent(&self, dir: Ino, name: &[u8]) -> bool {
        // A name that is too long has an error of its own.
        if matches!(name, b"." | b"..") || name.len() > MAX_NAME {
            return false;
        }
        let state = self.state.lock();
        let Some(names) = state.directories.get(&dir) else {
            return false;
        };
        !names.contains(&self.hasher.hash_one(name)) && state.is_alone(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);

    fn with_dir() -> NegativeLookups {
        let lookups = NegativeLookups::default();
        lookups.confirm_alone(Instant::now());
        lookups.add_directory(DIR);
        lookups
    }

    #[test]
    fn names_that_were_not_created_are_absent() {
        let lookups = with_dir();
        assert!(lookups.is_absent(DIR, b"a"));
        lookups.add_name(DIR, b"a");
        assert!(!lookups.is_absent(DIR, b"a"));
        assert!(lookups.is_absent(DIR, b"b"));
        assert!(!lookups.is_absent(DIR, b".."));
        assert!(!lookups.is_absent(Ino(8), b"b"));
        lookups.forget_directory(DIR);
        assert!(!lookups.is_absent(DIR, b"b"));
        assert_eq!(lookups.state.lock().names, 0);
    }

    #[test]
    fn cache_is_cleared_once_another_client_may_have_existed() {
        let lookups = with_dir();
        let past = Instant::now().checked_sub(Duration::from_nanos(CACHE_LIFETIME_NS));
        lookups.state.lock().alone_until = past;
        assert!(!lookups.is_absent(DIR, b"a"));
        lookups.add_directory(Ino(8));
        lookups.confirm_alone(Instant::now());
        assert!(!lookups.is_absent(DIR, b"a"));
        assert!(!lookups.is_absent(Ino(8), b"a"));
        // The reply to an old request says nothing about the present.
        lookups.add_directory(DIR);
        assert!(lookups.is_absent(DIR, b"a"));
        lookups.state.lock().alone_until = None;
        if let Some(past) = past {
            lookups.confirm_alone(past);
        }
        lookups.add_directory(DIR);
        assert!(!lookups.is_absent(DIR, b"a"));
    }

    #[test]
    fn cache_is_cleared_at_the_limit() {
        let lookups = with_dir();
        for number in 0..=MAX_NAMES {
            lookups.add_name(DIR, &number.to_le_bytes());
        }
        assert!(!lookups.is_absent(DIR, b"name"));
        assert_eq!(lookups.state.lock().names, 0);
    }
}
