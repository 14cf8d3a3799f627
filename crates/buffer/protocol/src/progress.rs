//! How far a stage is, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a stage is doing.
///
/// With reading back it goes through all of them in this order, and
/// in the end puts on stable storage what finishing has changed; without, it is on stable storage
/// when all is finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Files are found and copied.
    #[default]
    Copying,
    /// Copies are put on stable storage. How far that is nobody knows.
    Syncing,
    /// Copies are read from stable storage and compared with what was read at the source.
    ReadingBack,
    /// Files get their further names, and directories what belongs to them.
    Finishing,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 4] = [
        Phase::Copying,
        Phase::Syncing,
        Phase::ReadingBack,
        Phase::Finishing,
    ];

    /// What the stage is doing, in words.
    pub fn words(self) -> &'static str {
        match self {
            Phase::Copying => "copying",
            Phase::Syncing => "syncing",
            Phase::ReadingBack => "reading back",
            Phase::Finishing => "finishing",
        }
    }

    /// The phase with this index in [`Phase::ALL`].
    pub fn from_index(index: u8) -> Phase {
        let phase = Phase::ALL.get(usize::from(index));
        phase.copied().unwrap_or(Phase::Finishing)
    }
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageAmount {
    /// Files that are done.
    pub files: u64,
    /// Of so many.
    pub files_total: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Of so many.
    pub bytes_total: u64,
}

/// How long a stage was in each phase. The phase that it is in counts when it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Finding and copying.
    pub copying: Duration,
    /// Putting on stable storage what was copied.
    pub syncing: Duration,
    /// Reading back and comparing.
    pub reading_back: Duration,
    /// Further names and directories.
    pub finishing: Duration,
}

impl Times {
    /// Until all copies were on stable storage.
    pub fn until_durable(&self) -> Duration {
        self.copying + self.syncing
    }
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageProgress {
    /// Of the files and links found so far, those copied, and their bytes.
    pub copied: StageAmount,
    /// Whether everything was found: the totals are final.
    pub all_found: bool,
    /// What the stage is doing.
    pub phase: Phase,
    /// Of the files copied so far that are to be read back, those that were. Nothing, if nothing
    /// is to be.
    pub read_back: StageAmount,
    /// How long the phases took that are over.
    pub times: Times,
}

impl StageProgress {
    /// What the present phase has done and has to do.
    pub fn present(&self) -> StageAmount {
        match self.phase {
            Phase::ReadingBack => self.read_back,
            Phase::Copying | Phase::Syncing | Phase::Finishing => self.copied,
        }
    }
}
