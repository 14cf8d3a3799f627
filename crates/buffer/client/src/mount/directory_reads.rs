//! Directories that are read as a whole when several of their entries are requested one by one.
//!
//! A program that looks up most entries of a directory (`git status`, `stat` of all files) makes a request
//! for each, because the kernel asks for one name, or for the attributes of one inode. After some of them
//! the mount reads the directory with all attributes, and answers the next ones from the cache.

use super::kernel_cache::Versions;
use super::mounted_fs::MountedFs;
use super::names::DOT_DOT;
use crate::fs::{DirPage, Fs};
use forebay_protocol::message::{CACHE_LIFETIME_NS, MAX_NAME};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of requests for entries after which a directory is read.
const MIN_REQUESTS: usize = 3;
/// A directory is read after requests for this part of its entries.
const REQUESTED_PART: usize = 16;
/// Requests that are further apart are not counted together.
const INTERVAL: Duration = Duration::from_nanos(CACHE_LIFETIME_NS);
/// Time for which a directory is not read again that cannot be cached.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// Size of the parts in which a directory is read, in bytes.
const PAGE_BYTES: u32 = 64 << 10;
/// Maximum number of entries of a directory that is read.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of directories whose requests are counted.
const MAX_DIRECTORIES: usize = 1 << 12;
/// Maximum number of files whose directory is known.
const MAX_FILES: usize = 1 << 16;

#[derive(Debug)]
struct Requests {
    count: usize,
    /// Time of the first one.
    since: Instant,
    /// Number after which the directory is read, and that at the beginning of an interval.
    limit: usize,
    first_limit: usize,
    /// Answers from the listing since the directory was read; `None`: it was not read yet.
    answers: Option<usize>,
    /// The directory is not read before.
    refused_until: Option<Instant>,
}

/// Counts of recent requests for entries.
#[derive(Debug, Default)]
pub struct DirectoryReads {
    requests: Mutex<HashMap<Ino, Requests>>,
    /// A directory in which each file had a name. It may have been renamed since.
    directories: Mutex<HashMap<Ino, Ino>>,
}

impl DirectoryReads {
    /// A file has a name in a directory.
    pub fn note_name(&self, dir: Ino, attr: &Attr) {
        if attr.kind == FileKind::Dir {
            return; // its attributes are cached by themselves
        }
        let mut directories = self.directories.lock();
        if directories.len() >= MAX_FILES {
            directories.clear();
        }
        directories.insert(attr.ino, dir);
    }

    /// The directory in which an inode had a name when it was looked up, if that is known.
    pub fn directory_of(&self, ino: Ino) -> Option<Ino> {
        self.directories.lock().get(&ino).copied()
    }

    /// One entry of a directory, or the attributes of one file in it, were requested, and may be cached.
    fn note_request(&self, dir: Ino, now: Instant) {
        let mut all = self.requests.lock();
        if all.len() >= MAX_DIRECTORIES {
            all.clear();
        }
        let new = Requests {
            count: 0,
            since: now,
            limit: MIN_REQUESTS,
            first_limit: MIN_REQUESTS,
            answers: None,
            refused_until: None,
        };
        let requests = all.entry(dir).or_insert(new);
        if now.saturating_duration_since(requests.since) > INTERVAL {
            (requests.count, requests.since) = (0, now);
            requests.limit = requests.first_limit;
        }
        requests.count += 1;
    }

    /// Whether to read the directory instead of requesting one more of its entries. Then the count begins
    /// anew, so that one thread reads it.
    fn is_due(&self, dir: Ino, now: Instant) -> bool {
        let mut all = self.requests.lock();
        let Some(requests) = all.get_mut(&dir) else {
            return false;
        };
        let is_recent = now.saturating_duration_since(requests.since) <= INTERVAL;
        let is_due = is_recent
            && requests.count >= requests.limit
            && requests.refused_until.is_none_or(|until| now >= until);
        if is_due {
            requests.count = 0;
        }
        is_due
    }

    /// The listing of a directory has answered a request.
    fn note_answer(&self, dir: Ino) {
        if let Some(requests) = self.requests.lock().get_mut(&dir) {
            requests.answers = requests.answers.map(|answers| answers + 1);
        }
    }

    /// A directory was read. `entries`: their number; `None`: it cannot be cached. If the last read saved
    /// fewer requests than it waited for, as in a directory that changes all the time, the next one
    /// within the interval waits for twice as many.
    fn note_read(&self, dir: Ino, now: Instant, entries: Option<usize>) {
        let mut all = self.requests.lock();
        let Some(requests) = all.get_mut(&dir) else {
            return;
        };
        match entries {
            Some(entries) => {
                let was_useless = requests.answers.replace(0).is_some_and(|n| n < requests.limit);
                requests.first_limit = MIN_REQUESTS.max(entries / REQUESTED_PART);
                let next = if was_useless { 2 * requests.limit } else { 0 };
                requests.limit = next.max(requests.first_limit).min(MAX_ENTRIES);
            }
            None => requests.refused_until = Some(now + REFUSAL_TIME),
        }
    }
}

impl MountedFs {
    /// An entry of a directory, or `None` if it has none of that name, with the time to live of either.
    pub(super) fn find_entry(
        &self,
        fs: &Fs,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let cache = &self.kernel_cache.attributes;
        let known = || cache.entry(parent, name, Instant::now());
        // A kernel looks these up only for handles; and a name that is too long has an error of its own.
        let is_plain = !matches!(name, b"." | b"..") && name.len() <= MAX_NAME;
        if is_plain && let Some(known) = self.find_in_listing(fs, parent, known) {
            return Ok(known);
        }
        let (read_at, sent_at) = (cache.moment(), Instant::now());
        let found = self.track_name(parent, || fs.lookup_with_ttl(parent, name));
        if let Ok((attr, ttl)) = &found
            && !ttl.is_zero()
        {
            self.directory_reads.note_request(parent, Instant::now());
            // No recall begins before they are known, which it would end.
            let permit = self.kernel_cache.permit(*ttl, Versions::Compared);
            if let Some(attr) = attr
                && !permit.ttl().is_zero()
            {
                cache.remember_attributes(attr, read_at, sent_at + permit.ttl());
            }
        }
        found
    }

    /// The attributes of a file with their time to live, if they are known from its directory.
    pub(super) fn listed_attributes(&self, fs: &Fs, ino: Ino) -> Option<(Attr, Duration)> {
        let cache = &self.kernel_cache.attributes;
        if cache.is_changing(ino) {
            return None; // it is open
        }
        let dir = self.directory_reads.directory_of(ino)?;
        self.find_in_listing(fs, dir, || cache.listed_attributes(dir, ino, Instant::now()))
    }

    /// The attributes of a file were requested, and may be cached.
    pub(super) fn note_attribute_request(&self, ino: Ino) {
        if let Some(dir) = self.directory_reads.directory_of(ino) {
            self.directory_reads.note_request(dir, Instant::now());
        }
    }

    /// The result of `known`, which looks at the cached listing of a directory. The directory is read
    /// before, if that is due.
    fn find_in_listing<T>(&self, fs: &Fs, dir: Ino, known: impl Fn() -> Option<T>) -> Option<T> {
        // With names that the kernel shows to all users it must be known which it has.
        if self.trusted && !self.kernel_permissions {
            return None;
        }
        if let Some(known) = known() {
            self.directory_reads.note_answer(dir);
            return Some(known);
        }
        if !self.directory_reads.is_due(dir, Instant::now()) {
            return None;
        }
        let entries = self.read_directory(fs, dir);
        self.directory_reads.note_read(dir, Instant::now(), entries);
        known()
    }

    /// Reads a directory into the cache. Returns the number of its entries; `None`: it is not cached.
    fn read_directory(&self, fs: &Fs, dir: Ino) -> Option<usize> {
        let cache = &self.kernel_cache.attributes;
        let read_at = cache.moment();
        let (page, until) = read_all(fs, dir)?;
        // No recall begins before the entries are known, which it would end.
        let ttl = until.saturating_duration_since(Instant::now());
        let permit = self.kernel_cache.permit(ttl, Versions::Compared);
        if permit.ttl().is_zero() {
            return None;
        }
        let entries = page.entries.len();
        cache.remember_listing(dir, &Arc::new(page), read_at, until).then_some(entries)
    }
}

/// All entries of a directory with attributes, and the end of the lease under which they were read. `None`:
/// there are too many, or an error.
fn read_all(fs: &Fs, dir: Ino) -> Option<(DirPage, Instant)> {
    let mut sent_at = Instant::now();
    let mut all = fs.read_dir(dir, DOT_DOT, PAGE_BYTES, true).ok()?;
    let mut until = sent_at + all.ttl;
    while !all.end && !all.ttl.is_zero() && all.entries.len() < MAX_ENTRIES {
        sent_at = Instant::now();
        let last = all.entries.last()?.cookie;
        let page = fs.read_dir(dir, last, PAGE_BYTES, true).ok()?;
        // What was read first is valid only if the lease has not ended since.
        until = until.min(sent_at + page.ttl);
        all.ttl = all.ttl.min(page.ttl);
        all.end = page.end;
        all.entries.extend(page.entries);
    }
    all.end.then_some((all, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);

    fn request(reads: &DirectoryReads, count: usize, now: Instant) -> bool {
        (0..count).for_each(|_| reads.note_request(DIR, now));
        reads.is_due(DIR, now)
    }

    #[test]
    fn directories_are_read_after_several_requests_within_the_interval() {
        let (reads, start) = (DirectoryReads::default(), Instant::now());
        assert!(!reads.is_due(DIR, start));
        assert!(!request(&reads, MIN_REQUESTS - 1, start));
        assert!(!request(&reads, 1, start + INTERVAL * 2), "the others are too old");
        assert!(request(&reads, MIN_REQUESTS - 1, start + INTERVAL * 2));
        assert!(!reads.is_due(DIR, start + INTERVAL * 2), "it is read once");
        assert!(request(&reads, MIN_REQUESTS, start + INTERVAL * 2));
        assert!(!reads.is_due(Ino(8), start));
    }

    #[test]
    fn large_directories_are_read_after_more_requests_and_others_not_again_at_once() {
        let (reads, start) = (DirectoryReads::default(), Instant::now());
        assert!(request(&reads, MIN_REQUESTS, start));
        reads.note_read(DIR, start, Some(10 * REQUESTED_PART));
        assert!(!request(&reads, 9, start));
        assert!(request(&reads, 1, start));
        reads.note_read(DIR, start, Some(10 * REQUESTED_PART));
        assert!(!request(&reads, 19, start), "the last read was of no use");
        assert!(request(&reads, 1, start));
        (0..20).for_each(|_| reads.note_answer(DIR));
        reads.note_read(DIR, start, Some(10 * REQUESTED_PART));
        assert!(!request(&reads, 9, start) && request(&reads, 1, start));
        reads.note_read(DIR, start, None);
        assert!(!request(&reads, 10, start + INTERVAL / 2));
        assert!(request(&reads, 10, start + REFUSAL_TIME));
    }

    #[test]
    fn memory_is_limited() {
        let (reads, now) = (DirectoryReads::default(), Instant::now());
        let file = |number| Attr { ino: Ino(number), kind: FileKind::File, ..Attr::default() };
        for number in 0..2 * MAX_FILES as u64 {
            reads.note_name(DIR, &file(number));
            reads.note_request(Ino(number), now);
        }
        assert!(reads.directories.lock().len() <= MAX_FILES);
        assert!(reads.requests.lock().len() <= MAX_DIRECTORIES);
        assert_eq!(reads.directory_of(Ino(2 * MAX_FILES as u64 - 1)), Some(DIR));
    }
}
