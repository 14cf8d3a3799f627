//! Stages on which several movers work, each on its node: every mover walks the whole source, and
//! copies what belongs to its share.
//!
//! - A file or symbolic link belongs to one share, by the hash of its path; a file with several
//!   names by its inode, so that all names belong to the same share.
//! - A large file with at least one part for each share belongs to all. Each copies some parts into
//!   one hidden file.
//! - Directories are created by all shares. They get their attributes from share 0.
//!
//! When the copies of a share are on stable storage, and read back if that is requested, it waits at
//! the [`ShareBarrier`] for the others, with a [`ShareTally`] by which it is verified that all have
//! seen the same source and that together they have copied everything. Share 0 then gives files with
//! parts of all shares their names, and directories their attributes; the others end after it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_protocol::progress::{ShareDecision, ShareTally};
use parking_lot::Mutex;

use crate::end::{FileKind, FileStat};
use crate::progress::ProgressCounters;
use crate::split::SplitFile;

/// Maximum number of single files of a request of which each is opened by all shares, because it may
/// be one that all copy.
const MAX_SPLIT_SINGLES: usize = 64;

/// The share of one mover in a stage of several.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its number, from 0.
    pub index: u32,
    /// Number of shares.
    pub count: u32,
    /// A random number that all shares of an attempt have, and nothing else: incomplete copies to
    /// which several movers write are named after it.
    pub key: u64,
    /// Where it waits for the others.
    pub barrier: Arc<dyn ShareBarrier>,
}

/// The point at which a mover waits for the other movers of its stage.
pub trait ShareBarrier: fmt::Debug + Send + Sync {
    /// Reports that the copies of a share are on stable storage, and blocks until it is decided what
    /// the movers do then. `None` if the stage is cancelled through `progress`.
    fn wait(&self, tally: &ShareTally, progress: &ProgressCounters) -> Option<ShareDecision>;
}

/// The mover or movers that copy a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This one.
    Own,
    /// All of them, in parts. `first` is the share that copies the first part.
    Split { first: u64 },
    /// Another one.
    Other,
}

/// A share while its mover runs.
pub(crate) struct RunningShare<'a> {
    pub share: &'a Share,
    seen: AtomicU64,
    entries: AtomicU64,
    own: AtomicU64,
    created: AtomicBool,
    /// Files of all shares of which this one has opened the copy.
    split_files: Mutex<Vec<SplitFile>>,
}

fn hash(kind: u8, parts: &[&[u8]]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let (first, _) = digest.as_bytes().split_at(8);
    first.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn add(sum: &AtomicU64, hash: u64) {
    // It wraps around.
    sum.fetch_add(hash, Relaxed);
}

impl<'a> RunningShare<'a> {
    pub fn new(share: &'a Share) -> RunningShare<'a> {
        assert!(share.index < share.count, "shares are numbered from 0");
        RunningShare {
            share,
            seen: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            own: AtomicU64::new(0),
            created: AtomicBool::new(false),
            split_files: Mutex::default(),
        }
    }

    /// Whether it does what is to be done once.
    pub fn is_first(&self) -> bool {
        self.share.index == 0
    }

    fn count(&self) -> u64 {
        u64::from(self.share.count)
    }

    fn is_mine(&self, hash: u64) -> bool {
        hash % self.count() == u64::from(self.share.index)
    }

    /// A directory was found. Its entries are those at its modification time.
    pub fn see_dir(&self, tree: usize, path: &Path, stat: &FileStat) {
        let time = (stat.modified.secs.to_le_bytes(), stat.modified.nanos.to_le_bytes());
        let tree = (tree as u64).to_le_bytes();
        add(&self.seen, hash(b'd', &[&tree, bytes_of(path), &time.0, &time.1]));
    }

    /// This mover has created the target directory.
    pub fn note_created(&self) {
        self.created.store(true, Relaxed);
    }

    /// A file or link with this journal key was found; `None`: its attributes cannot be read.
    pub fn claim(&self, key: &Path, seen: Option<&FileStat>, segment_bytes: u64) -> Claim {
        let entry = hash(b'e', &[bytes_of(key)]);
        add(&self.entries, entry);
        let file = seen.filter(|stat| stat.kind == FileKind::File);
        if let Some(stat) = file.filter(|stat| stat.nlink > 1) {
            let owner = hash(b'i', &[&stat.inode.1.to_le_bytes()]);
            return self.claim_whole(entry, owner);
        }
        match file {
            Some(stat) if self.is_split(stat.size, segment_bytes) => self.claim_split(entry),
            _ => self.claim_whole(entry, entry),
        }
    }

    /// A file that is an item of the request, of `items` items, is to be opened: whether it may be
    /// this mover's, or all movers'. `ends` are its source and target.
    pub fn opens_single(&self, ends: [&Path; 2], items: usize) -> bool {
        if items <= MAX_SPLIT_SINGLES {
            return true;
        }
        let entry = hash(b'f', &ends.map(bytes_of));
        let is_mine = self.is_mine(entry);
        if !is_mine {
            add(&self.entries, entry);
        }
        is_mine
    }

    /// A file of `size` bytes that is an item of the request, of `items` items, was opened.
    pub fn claim_single(
        &self,
        ends: [&Path; 2],
        items: usize,
        size: u64,
        segment_bytes: u64,
    ) -> Claim {
        let entry = hash(b'f', &ends.map(bytes_of));
        add(&self.entries, entry);
        match items <= MAX_SPLIT_SINGLES && self.is_split(size, segment_bytes) {
            true => self.claim_split(entry),
            false => self.claim_whole(entry, entry),
        }
    }

    /// Whether a file is copied by all shares: it has a part for each.
    fn is_split(&self, size: u64, segment_bytes: u64) -> bool {
        self.count() > 1 && size.div_ceil(segment_bytes) >= self.count() && size > segment_bytes
    }

    fn claim_whole(&self, entry: u64, owner: u64) -> Claim {
        if !self.is_mine(owner) {
            return Claim::Other;
        }
        add(&self.own, entry);
        Claim::Own
    }

    fn claim_split(&self, entry: u64) -> Claim {
        if self.is_first() {
            add(&self.own, entry);
        }
        Claim::Split { first: entry % self.count() }
    }

    /// The parts of a file of all shares that this one copies: the first, and the number of them.
    pub fn own_parts(&self, first: u64, parts: u64) -> (u64, u64) {
        let count = self.count();
        let own = (u64::from(self.share.index) + count - first % count) % count;
        (own, parts.saturating_sub(own).div_ceil(count))
    }

    /// Bytes of a file of `size` bytes that this share copies.
    pub fn own_bytes(&self, first: u64, size: u64, segment_bytes: u64) -> u64 {
        let parts = size.div_ceil(segment_bytes);
        let (own, number) = self.own_parts(first, parts);
        let has_last = number > 0 && own + (number - 1) * self.count() == parts - 1;
        let missing = if has_last { parts * segment_bytes - size } else { 0 };
        number * segment_bytes - missing
    }

    /// This mover has opened the copy of a file of all shares, an inode of this number.
    pub fn see_split(&self, file: SplitFile, copy: u64) {
        let stat = &file.stat;
        let times = [stat.modified, stat.changed].map(|time| {
            let [secs, nanos] = [time.secs.unsigned_abs(), time.nanos.into()];
            (secs.to_le_bytes(), nanos.to_le_bytes())
        });
        let numbers = [stat.size.to_le_bytes(), copy.to_le_bytes()];
        add(
            &self.seen,
            hash(
                b's',
                &[
                    bytes_of(&file.journal_key),
                    &numbers[0],
                    &numbers[1],
                    &times[0].0,
                    &times[0].1,
                    &times[1].0,
                    &times[1].1,
                ],
            ),
        );
        self.split_files.lock().push(file);
    }

    /// The files of all shares, in the order of their paths.
    pub fn split_files(&self) -> Vec<SplitFile> {
        let mut files = self.split_files.lock().clone();
        files.sort_by(|a, b| a.journal_key.cmp(&b.journal_key));
        files
    }

    /// What it has seen and copied, but for `problems` files.
    pub fn tally(&self, problems: u64) -> ShareTally {
        ShareTally {
            seen: self.seen.load(Relaxed),
            entries: self.entries.load(Relaxed),
            own: self.own.load(Relaxed),
            created: self.created.load(Relaxed),
            problems,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl ShareBarrier for Nowhere {
        fn wait(&self, _: &ShareTally, _: &ProgressCounters) -> Option<ShareDecision> {
            None
        }
    }

    fn share(index: u32, count: u32) -> Share {
        Share { index, count, key: 7, barrier: Arc::new(Nowhere) }
    }

    proptest::proptest! {
        #[test]
        fn each_part_belongs_to_one_share(count in 1u32..9, first: u64, parts in 1u64..200) {
            let mut copied = Vec::new();
            for index in 0..count {
                let share = share(index, count);
                let (own, number) = RunningShare::new(&share).own_parts(first, parts);
                copied.extend((0..number).map(|n| own + n * u64::from(count)));
            }
            copied.sort_unstable();
            proptest::prop_assert!(copied.into_iter().eq(0..parts));
        }

        #[test]
        fn each_path_belongs_to_one_share(count in 1u32..9, paths: Vec<String>) {
            let shares: Vec<Share> = (0..count).map(|index| share(index, count)).collect();
            let running: Vec<_> = shares.iter().map(RunningShare::new).collect();
            for path in &paths {
                let claims = running.iter().map(|share| share.claim(Path::new(path), None, 1));
                let own = claims.filter(|claim| *claim == Claim::Own).count();
                proptest::prop_assert_eq!(own, 1);
            }
            let tallies: Vec<ShareTally> = running.iter().map(|share| share.tally(0)).collect();
            proptest::prop_assert!(ShareTally::agree(&tallies));
        }
    }

    #[test]
    fn shares_that_have_seen_different_sources_do_not_agree() {
        let (one, other) = (share(0, 2), share(1, 2));
        let (one, other) = (RunningShare::new(&one), RunningShare::new(&other));
        one.claim(Path::new("0/a"), None, 1);
        let tallies = [one.tally(0), other.tally(0)];
        assert!(!ShareTally::agree(&tallies));
        assert!(!ShareTally::decide(&tallies).complete);
        other.claim(Path::new("0/a"), None, 1);
        one.note_created();
        let tallies = [one.tally(0), other.tally(0)];
        let decision = ShareDecision { complete: true, created: true };
        assert_eq!(ShareTally::decide(&tallies), decision);
        let tallies = [one.tally(0), other.tally(1)];
        assert!(!ShareTally::decide(&tallies).complete);
    }
}
