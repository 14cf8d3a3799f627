//! Items, options and report of a stage.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_protocol::progress::PhaseTimes;

use crate::error::Problem;
use crate::journal::{JournalHost, Os};
use crate::location::StageLocation;
use crate::share::Share;

/// The type of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A regular file; a symbolic link as source is followed.
    File,
    /// A directory and everything below it.
    Directory,
}

/// A file or directory to copy.
#[derive(Clone, Debug)]
pub struct StageItem {
    /// File or directory.
    pub kind: ItemKind,
    /// The source.
    pub source: StageLocation,
    /// The path of the copy itself. Entries are added to an existing directory.
    pub target: StageLocation,
}

/// Everything that one stage copies.
#[derive(Clone, Debug, Default)]
pub struct StageRequest {
    /// The items, each with its own target.
    pub items: Vec<StageItem>,
}

/// Verification of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// None: the kernel may copy or share blocks.
    Off,
    /// Data that is read is hashed while it is copied; the digest is recorded in the journal.
    #[default]
    Checksum,
    /// As `Checksum`; when all copies are on stable storage they are read back and compared. A copy
    /// that differs is reported and renamed.
    ReadBack,
}

/// Options of a stage.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// Number of copying threads; if 0, the calling thread copies.
    pub workers: usize,
    /// Verification of contents.
    pub verify: Verify,
    /// Path of the journal, with which an interrupted stage can continue.
    pub journal: Option<PathBuf>,
    /// Whether a stage that was suspended or stopped keeps the parts of large files that are in its
    /// journal, for the next run, unless the target is full. Without it their hidden files are
    /// removed.
    pub keep_parts: bool,
    /// Maximum time between two syncs of a journaled stage. An interrupted stage copies again what
    /// it copied after the last sync.
    pub sync_interval: Duration,
    /// Bytes of a part of a large file. Parts are copied by several threads.
    pub segment_bytes: u64,
    /// The host of the journal, and the clock.
    pub host: Arc<dyn JournalHost>,
    /// The part of the stage that this mover does, if several movers share it.
    pub share: Option<Share>,
}

impl Default for StageOptions {
    fn default() -> StageOptions {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        StageOptions {
            workers: (4 * processors).clamp(4, 16),
            verify: Verify::Checksum,
            journal: None,
            keep_parts: true,
            sync_interval: Duration::from_secs(30),
            segment_bytes: 64 << 20,
            host: Arc::new(Os),
            share: None,
        }
    }
}

/// The result of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageReport {
    /// Regular files; hard links count once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symbolic_links: u64,
    /// Further hard links of files.
    pub hard_links: u64,
    /// Bytes in the files, including holes.
    pub bytes: u64,
    /// Files that an earlier, interrupted run had copied.
    pub resumed: u64,
    /// Bytes that were read back and verified.
    pub read_back: u64,
    /// Total time.
    pub time: Duration,
    /// Time of the phases.
    pub times: PhaseTimes,
    /// Warnings of what could not be preserved although everything was copied; at most a thousand.
    pub warnings: Vec<Problem>,
}
