//! What is to be staged, how, and what came of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Problem;
use crate::journal::{JournalHost, Os};
use crate::path::StageLocation;
use crate::progress::PhaseTimes;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A regular file; a symbolic link as source is followed.
    File,
    /// A directory and all below it.
    Directory,
}

/// Something to copy, and the name that its copy gets.
#[derive(Clone, Debug)]
pub struct StageItem {
    /// File or directory.
    pub kind: ItemKind,
    /// From where.
    pub source: StageLocation,
    /// To where: the copy's own path. A directory that exists there already is added to.
    pub target: StageLocation,
}

/// Everything one stage copies.
#[derive(Clone, Debug, Default)]
pub struct StageRequest {
    /// Each with its own target.
    pub items: Vec<StageItem>,
}

/// How contents are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Not at all: the kernel may copy or share blocks without showing them.
    Off,
    /// A checksum of what was read is taken while it is copied, and noted in the journal.
    #[default]
    Checksum,
    /// As `Checksum`; when all copies are on stable storage they are read back from there and
    /// compared. One that differs is told and gets a hidden name.
    ReadBack,
}

/// How to stage.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// Threads that copy; without any, the calling one copies what it finds.
    pub workers: usize,
    /// How contents are checked.
    pub verify: Verify,
    /// File in which to note what is done, so that an interrupted stage can go on.
    pub journal: Option<PathBuf>,
    /// What was copied is put on stable storage at least so often, if there is a journal: what an
    /// interrupted stage had copied since is copied again.
    pub sync_interval: Duration,
    /// Large files are copied in parts of so many bytes, by several threads.
    pub segment_bytes: u64,
    /// Where the journal lies, and the time.
    pub host: Arc<dyn JournalHost>,
}

impl Default for StageOptions {
    fn default() -> StageOptions {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        StageOptions {
            workers: (4 * processors).clamp(4, 16),
            verify: Verify::Checksum,
            journal: None,
            sync_interval: Duration::from_secs(30),
            segment_bytes: 64 << 20,
            host: Arc::new(Os),
        }
    }
}

/// What was staged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageReport {
    /// Regular files, hard links not counted twice.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symbolic_links: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Bytes in the files, holes included.
    pub bytes: u64,
    /// Files that an earlier, interrupted run had copied already.
    pub resumed: u64,
    /// Bytes that were read back and are what was read at the source.
    pub read_back: u64,
    /// How long it took.
    pub time: Duration,
    /// How long its phases took.
    pub times: PhaseTimes,
    /// What could not be kept although everything was copied; at most a thousand.
    pub warnings: Vec<Problem>,
}
