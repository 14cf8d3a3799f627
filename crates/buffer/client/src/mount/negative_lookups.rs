//! Directories that were made through this mount while it was alone, all of whose names are known
//! since: who makes a file there is told without a question to the daemon that there is none yet.
//!
//! The kernel asks for a name before it makes it. A mount that is alone has had a hand in every
//! change; once it may have been otherwise for a moment, all is forgotten.

use crate::session::lock;
use forebay_protocol::Ino;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Names to remember, of all directories together.
const MOST_NAMES: usize = 1 << 17;
/// Directories to remember.
const MOST_DIRS: usize = 1 << 13;

#[derive(Debug, Default)]
struct Book {
    /// Until when nobody else can have attached.
    alone: Option<Instant>,
    /// The names' hashes. Two that are alike, and names that are gone, cost a question.
    dirs: HashMap<Ino, HashSet<u64>>,
    names: usize,
}

impl Book {
    fn is_alone(&self, now: Instant) -> bool {
        self.alone.is_some_and(|until| now < until)
    }

    fn clear(&mut self) {
        self.dirs.clear();
        self.names = 0;
    }
}

/// Directories all of whose names are known.
#[derive(Debug, Default)]
pub struct NegativeLookups {
    book: Mutex<Book>,
    hasher: RandomState,
}

impl NegativeLookups {
    /// An answer to something that was asked at `asked` says that this mount was alone, and stays so
    /// for the time that names may be kept.
    pub fn confirm_alone(&self, asked: Instant) {
        let mut book = lock(&self.book);
        if !book.is_alone(Instant::now()) {
            book.clear(); // others may have come and gone
        }
        let until = asked + Duration::from_nanos(CACHE_LIFETIME_NS);
        book.alone = book.alone.max(Some(until));
    }

    /// An empty directory that everybody may search has just been made, and nobody was told of it.
    pub fn add_directory(&self, dir: Ino) {
        let mut book = lock(&self.book);
        if book.dirs.len() >= MOST_DIRS {
            book.clear();
        }
        if book.is_alone(Instant::now()) {
            book.dirs.insert(dir, HashSet::new());
        }
    }

    /// A name is about to come to be in a directory.
    pub fn add_name(&self, dir: Ino, name: &[u8]) {
        let mut book = lock(&self.book);
        let Some(names) = book.dirs.get_mut(&dir) else {
            return;
        };
        if names.insert(self.hasher.hash_one(name)) {
            book.names += 1;
        }
        if book.names > MOST_NAMES {
            book.clear();
        }
    }

    /// Not everybody will be allowed to search the directory.
    pub fn forget_directory(&self, dir: Ino) {
        let mut book = lock(&self.book);
        if let Some(names) = book.dirs.remove(&dir) {
            book.names -= names.len();
        }
    }

    /// Is it certain that a directory has no such name?
    pub fn is_absent(&self, dir: Ino, name: &[u8]) -> bool {
        if matches!(name, b"." | b"..") {
            return false;
        }
        let book = lock(&self.book);
        let Some(names) = book.dirs.get(&dir) else {
            return false;
        };
        !names.contains(&self.hasher.hash_one(name)) && book.is_alone(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);

    fn with_dir() -> NegativeLookups {
        let known = NegativeLookups::default();
        known.confirm_alone(Instant::now());
        known.add_directory(DIR);
        known
    }

    #[test]
    fn what_was_not_made_is_not_there() {
        let known = with_dir();
        assert!(known.is_absent(DIR, b"a"));
        known.add_name(DIR, b"a");
        assert!(!known.is_absent(DIR, b"a"));
        assert!(known.is_absent(DIR, b"b"));
        assert!(!known.is_absent(DIR, b".."));
        assert!(!known.is_absent(Ino(8), b"b"));
        known.forget_directory(DIR);
        assert!(!known.is_absent(DIR, b"b"));
        assert_eq!(lock(&known.book).names, 0);
    }

    #[test]
    fn nothing_is_known_once_others_may_have_come() {
        let known = with_dir();
        let past = Instant::now().checked_sub(Duration::from_nanos(CACHE_LIFETIME_NS));
        lock(&known.book).alone = past;
        assert!(!known.is_absent(DIR, b"a"));
        known.add_directory(Ino(8));
        known.confirm_alone(Instant::now());
        assert!(!known.is_absent(DIR, b"a"));
        assert!(!known.is_absent(Ino(8), b"a"));
        // An answer to what was asked long ago tells nothing of now.
        known.add_directory(DIR);
        assert!(known.is_absent(DIR, b"a"));
        lock(&known.book).alone = None;
        if let Some(past) = past {
            known.confirm_alone(past);
        }
        known.add_directory(DIR);
        assert!(!known.is_absent(DIR, b"a"));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let known = with_dir();
        for number in 0..=MOST_NAMES {
            known.add_name(DIR, &number.to_le_bytes());
        }
        assert!(!known.is_absent(DIR, b"name"));
        assert_eq!(lock(&known.book).names, 0);
    }
}
