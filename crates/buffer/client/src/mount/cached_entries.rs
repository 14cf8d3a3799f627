//! Entries that the kernel may cache, by directory.
//!
//! The kernel lets every process follow an entry that it caches, without a request. So entries are
//! given a time to live only in directories that everybody may search, and a request that takes that
//! right away has the kernel drop them, or waits until they have expired if it cannot (before Linux
//! 6.16).

use forebay_protocol::Ino;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For a kernel that is slow to note when it received an entry.
const MARGIN: Duration = Duration::from_millis(200);
/// Number of directories at which expired ones are dropped.
const MAX_DIRECTORIES: usize = 4096;

#[derive(Debug)]
struct Directory {
    /// Lookups in flight.
    in_flight: u32,
    /// Time until which the kernel may cache an entry.
    until: Instant,
}

/// Directories whose entries the kernel may cache.
#[derive(Debug, Default)]
pub struct CachedEntries(Mutex<HashMap<Ino, Directory>>);

impl CachedEntries {
    /// Runs `lookup` for an entry of `dir`. `ttl` is the time to live of its result.
    pub fn track_lookup<T>(
        &self,
        dir: Ino,
        lookup: impl FnOnce() -> T,
        ttl: impl Fn(&T) -> Duration,
    ) -> T {
        {
            let mut directories = self.0.lock();
            if directories.len() >= MAX_DIRECTORIES {
                let now = Instant::now();
                directories.retain(|_, dir| dir.in_flight > 0 || dir.until > now);
            }
            let new = Directory { in_flight: 0, until: Instant::now() };
            directories.entry(dir).or_insert(new).in_flight += 1;
        }
        let result = lookup();
        let ttl = ttl(&result);
        let mut directories = self.0.lock();
        let found = directories.get_mut(&dir);
        debug_assert!(found.is_some(), "a directory in use is not dropped");
        if let Some(found) = found {
            assert!(found.in_flight > 0);
            found.in_flight -= 1;
            if !ttl.is_zero() {
                found.until = found.until.max(Instant::now() + ttl + MARGIN);
            } else if found.in_flight == 0 && found.until <= Instant::now() {
                directories.remove(&dir);
            }
        }
        result
    }

    /// Time until the kernel has dropped all entries of `dir` that it received so far.
    pub fn time_left(&self, dir: Ino) -> Duration {
        let directories = self.0.lock();
        match directories.get(&dir) {
            None => Duration::ZERO,
            Some(dir) if dir.in_flight > 0 => Duration::from_nanos(CACHE_LIFETIME_NS) + MARGIN,
            Some(dir) => dir.until.saturating_duration_since(Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_that_of_the_longest_lived_entry() {
        let entries = CachedEntries::default();
        assert_eq!(entries.time_left(Ino(1)), Duration::ZERO);
        entries.track_lookup(Ino(1), || (), |()| Duration::ZERO);
        assert_eq!(entries.time_left(Ino(1)), Duration::ZERO);
        entries.track_lookup(Ino(1), || (), |()| Duration::from_secs(100));
        entries.track_lookup(Ino(1), || (), |()| Duration::from_secs(10));
        assert!(entries.time_left(Ino(1)) > Duration::from_secs(90));
        assert_eq!(entries.time_left(Ino(2)), Duration::ZERO);
        let time_left = || entries.time_left(Ino(2));
        let during = entries.track_lookup(Ino(2), time_left, |_| Duration::ZERO);
        assert!(during > Duration::from_nanos(CACHE_LIFETIME_NS));
    }
}
