//! Names that the kernel may keep for a while, by directory.
//!
//! The kernel leads everybody to a name that it keeps, without asking. So names are given to be kept
//! only in directories that everybody may search, and when a directory ceases to be one, whoever
//! makes it so waits until the kernel keeps none of its names any more.

use crate::session::lock;
use forebay_protocol::Ino;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For a kernel that is slow to note the time at which it was told a name.
const MARGIN: Duration = Duration::from_millis(200);
/// Directories to remember before those whose time is over are dropped.
const MANY: usize = 4096;

#[derive(Debug)]
struct Given {
    /// Answers under way.
    asked: u32,
    /// Until when the kernel may keep one.
    until: Instant,
}

/// Directories some of whose names the kernel may keep.
#[derive(Debug, Default)]
pub struct CachedEntries(Mutex<HashMap<Ino, Given>>);

impl CachedEntries {
    /// Ask for a name in `dir` by `ask`, which says for how long it may be kept.
    pub fn track_lookup<T>(
        &self,
        dir: Ino,
        ask: impl FnOnce() -> T,
        kept: impl Fn(&T) -> Duration,
    ) -> T {
        {
            let mut given = lock(&self.0);
            if given.len() >= MANY {
                let now = Instant::now();
                given.retain(|_, given| given.asked > 0 || given.until > now);
            }
            let until = Instant::now();
            given.entry(dir).or_insert(Given { asked: 0, until }).asked += 1;
        }
        let answer = ask();
        let kept = kept(&answer);
        let mut given = lock(&self.0);
        if let Some(found) = given.get_mut(&dir) {
            found.asked -= 1;
            if !kept.is_zero() {
                found.until = found.until.max(Instant::now() + kept + MARGIN);
            } else if found.asked == 0 && found.until <= Instant::now() {
                given.remove(&dir);
            }
        }
        answer
    }

    /// How long it takes until no name in `dir` is kept that was given so far.
    pub fn time_left(&self, dir: Ino) -> Duration {
        let given = lock(&self.0);
        match given.get(&dir) {
            None => Duration::ZERO,
            Some(given) if given.asked > 0 => Duration::from_nanos(CACHE_LIFETIME_NS) + MARGIN,
            Some(given) => given.until.saturating_duration_since(Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_waited_for_as_long_as_its_names_are_kept() {
        let entries = CachedEntries::default();
        assert_eq!(entries.time_left(Ino(1)), Duration::ZERO);
        entries.track_lookup(Ino(1), || (), |()| Duration::ZERO);
        assert_eq!(entries.time_left(Ino(1)), Duration::ZERO);
        entries.track_lookup(Ino(1), || (), |()| Duration::from_secs(100));
        entries.track_lookup(Ino(1), || (), |()| Duration::from_secs(10));
        assert!(entries.time_left(Ino(1)) > Duration::from_secs(90));
        assert_eq!(entries.time_left(Ino(2)), Duration::ZERO);
        let left = || entries.time_left(Ino(2));
        let during = entries.track_lookup(Ino(2), left, |_| Duration::ZERO);
        assert!(during > Duration::from_nanos(CACHE_LIFETIME_NS));
    }
}
