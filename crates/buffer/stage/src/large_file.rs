//! Large files, whose parts are copied by several threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::copy_range::Pieces;
use crate::open_copy::OpenCopy;

/// A large file that is being copied in parts.
pub(crate) struct LargeFile {
    pub copy: OpenCopy,
    /// Parts that this mover copies.
    parts: u64,
    /// Index of the first of them.
    first: u64,
    /// Difference between the indices of one and the next: 1, or the number of shares that copy the
    /// file.
    step: u64,
    /// The next part to be claimed.
    next: AtomicU64,
    /// Parts that are not finished.
    unfinished: AtomicU64,
    failed: AtomicBool,
    copied: Mutex<Vec<CopiedPart>>,
    /// Whether the copy is that of an earlier run, so that the parts in the journal count.
    pub resumed: bool,
}

/// A part that was copied.
pub(crate) struct CopiedPart {
    pub index: u64,
    pub digest: String,
    pub pieces: Pieces,
}

impl LargeFile {
    pub fn new(copy: OpenCopy, parts: u64, resumed: bool) -> LargeFile {
        assert!(parts > 0, "a large file has parts");
        LargeFile {
            copy,
            parts,
            first: 0,
            step: 1,
            next: AtomicU64::new(0),
            unfinished: AtomicU64::new(parts),
            failed: AtomicBool::new(false),
            copied: Mutex::default(),
            resumed,
        }
    }

    /// A file of which this share of `count` copies `parts` parts from part `first` on. Parts that are
    /// in the journal are in its copy.
    pub fn of_share(copy: OpenCopy, (first, parts): (u64, u64), count: u64) -> LargeFile {
        assert!(first < count, "each share has one of the first parts");
        LargeFile { first, step: count, ..LargeFile::new(copy, parts, true) }
    }

    /// Whether other shares copy parts of it, too.
    pub fn is_shared(&self) -> bool {
        self.step > 1
    }

    /// The index of a claimed part in the file.
    fn index_of(&self, claimed: u64) -> u64 {
        self.first + claimed * self.step
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Marks the file as failed; returns whether this is the first failure.
    pub fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }

    pub fn add_copied_part(&self, part: CopiedPart) {
        assert!(part.index <= self.index_of(self.parts - 1));
        self.copied.lock().push(part);
    }

    /// A claimed part is finished, successfully or not. Returns whether it was the last one.
    pub fn finish_part(&self) -> bool {
        let unfinished = self.unfinished.fetch_sub(1, Ordering::AcqRel);
        assert!(unfinished > 0, "each part is finished once");
        unfinished == 1
    }

    /// All parts that this mover was to copy, and has copied, in order.
    pub fn take_copied_parts(&self) -> Vec<CopiedPart> {
        let mut copied = std::mem::take(&mut *self.copied.lock());
        copied.sort_by_key(|part| part.index);
        let own = (0..self.parts).map(|claimed| self.index_of(claimed));
        let covered = own.eq(copied.iter().map(|part| part.index));
        assert!(covered, "each part is copied exactly once");
        copied
    }
}

/// Large files with parts that no thread has claimed.
#[derive(Default)]
pub(crate) struct LargeFileQueue(Mutex<VecDeque<Arc<LargeFile>>>);

impl LargeFileQueue {
    pub fn push(&self, large: LargeFile) {
        self.0.lock().push_back(Arc::new(large));
    }

    /// Claims the next part of the oldest file.
    pub fn claim_part(&self) -> Option<(Arc<LargeFile>, u64)> {
        let mut queue = self.0.lock();
        while let Some(large) = queue.front() {
            let part = large.next.fetch_add(1, Ordering::Relaxed);
            if part < large.parts {
                return Some((large.clone(), large.index_of(part)));
            }
            queue.pop_front();
        }
        None
    }
}
