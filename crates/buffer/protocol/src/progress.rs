//! Progress of a stage, as the mover counts it, the storage node reports it and the controller
//! stores it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The phase of a stage.
///
/// A stage that reads its copies back passes through all phases in this order, and syncs the
/// changes of the last phase at its end. Any other stage copies, finishes and then syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StagePhase {
    /// Files are found and copied.
    #[default]
    Copying,
    /// Copies are written to stable storage. This phase has no measurable progress.
    Syncing,
    /// Copies are read from stable storage and compared with the checksums of the source.
    ReadingBack,
    /// Hard links are created, and directories get their attributes.
    Finishing,
}

impl StagePhase {
    /// All phases, in order.
    pub const ALL: [StagePhase; 4] =
        [StagePhase::Copying, StagePhase::Syncing, StagePhase::ReadingBack, StagePhase::Finishing];

    /// The phase in words.
    pub fn words(self) -> &'static str {
        match self {
            StagePhase::Copying => "copying",
            StagePhase::Syncing => "syncing",
            StagePhase::ReadingBack => "reading back",
            StagePhase::Finishing => "finishing",
        }
    }
}

/// Files and bytes, done and in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageAmount {
    /// Files done.
    pub files: u64,
    /// Files in total.
    pub files_total: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes in total.
    pub bytes_total: u64,
}

impl StageAmount {
    /// The sum with `other`.
    fn plus(self, other: StageAmount) -> StageAmount {
        StageAmount {
            files: self.files + other.files,
            files_total: self.files_total + other.files_total,
            bytes: self.bytes + other.bytes,
            bytes_total: self.bytes_total + other.bytes_total,
        }
    }
}

/// Sums over the source and the copies of one of several movers of a stage, when its copies are on
/// stable storage. They are sums of hashes, which do not depend on an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareTally {
    /// The directories of the source with their modification times, and the files that all movers
    /// copy parts of: equal for all movers that have seen the same source.
    pub seen: u64,
    /// The files and links of the source.
    pub entries: u64,
    /// The files and links that are this mover's.
    pub own: u64,
    /// Whether this mover has created the target directory.
    pub created: bool,
    /// Number of files that it could not copy.
    pub problems: u64,
}

impl ShareTally {
    /// Whether movers with these tallies have seen the same source, and each of its files belongs to
    /// one of them.
    pub fn agree(tallies: &[ShareTally]) -> bool {
        let Some(first) = tallies.first() else {
            return false;
        };
        let same = |tally: &ShareTally| (tally.seen, tally.entries) == (first.seen, first.entries);
        let own = tallies.iter().fold(0u64, |sum, tally| sum.wrapping_add(tally.own));
        tallies.iter().all(same) && own == first.entries
    }

    /// What movers with these tallies are to do, when all have one.
    pub fn decide(tallies: &[ShareTally]) -> ShareDecision {
        let no_problems = tallies.iter().all(|tally| tally.problems == 0);
        ShareDecision {
            complete: no_problems && ShareTally::agree(tallies),
            created: tallies.iter().any(|tally| tally.created),
        }
    }
}

/// What the movers of a stage do when all have copied what is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareDecision {
    /// Whether the stage is completed. Otherwise it fails, because some files could not be copied;
    /// the others are kept, and directories get their attributes.
    pub complete: bool,
    /// Whether one of the movers has created the target directory.
    pub created: bool,
}

/// Time spent in each completed phase; in microseconds when serialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes {
    /// Finding and copying.
    #[serde(with = "micros")]
    pub copying: Duration,
    /// Writing the copies to stable storage.
    #[serde(with = "micros")]
    pub syncing: Duration,
    /// Reading back and comparing.
    #[serde(with = "micros")]
    pub reading_back: Duration,
    /// Hard links and directory attributes.
    #[serde(with = "micros")]
    pub finishing: Duration,
}

impl PhaseTimes {
    /// Time spent in `phase`.
    pub fn of(&self, phase: StagePhase) -> Duration {
        match phase {
            StagePhase::Copying => self.copying,
            StagePhase::Syncing => self.syncing,
            StagePhase::ReadingBack => self.reading_back,
            StagePhase::Finishing => self.finishing,
        }
    }

    /// Time spent in all phases.
    pub fn sum(&self) -> Duration {
        StagePhase::ALL.into_iter().map(|phase| self.of(phase)).sum()
    }

    /// Time until all copies were on stable storage.
    pub fn until_durable(&self) -> Duration {
        self.copying + self.syncing
    }

    /// The longer time of both, phase by phase.
    pub fn max(&self, other: &PhaseTimes) -> PhaseTimes {
        PhaseTimes {
            copying: self.copying.max(other.copying),
            syncing: self.syncing.max(other.syncing),
            reading_back: self.reading_back.max(other.reading_back),
            finishing: self.finishing.max(other.finishing),
        }
    }

    /// The sum with `other`, phase by phase.
    pub fn plus(&self, other: &PhaseTimes) -> PhaseTimes {
        PhaseTimes {
            copying: self.copying.saturating_add(other.copying),
            syncing: self.syncing.saturating_add(other.syncing),
            reading_back: self.reading_back.saturating_add(other.reading_back),
            finishing: self.finishing.saturating_add(other.finishing),
        }
    }
}

/// A `Duration` as a whole number of microseconds.
mod micros {
    use super::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// Progress of a stage. Fields that later versions have added are absent in earlier records and
/// take their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Files and links copied.
    pub files: u64,
    /// Files and links found so far.
    pub files_total: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes found so far.
    pub bytes_total: u64,
    /// Whether everything is found, so that the totals are final.
    pub all_found: bool,
    /// The current phase; of an ended stage, the last one.
    #[serde(default)]
    pub phase: StagePhase,
    /// Copies to read back, and those read back so far. All zero if none are to be read back.
    #[serde(default)]
    pub read_back: StageAmount,
    /// Time spent in the completed phases.
    #[serde(default)]
    pub times: PhaseTimes,
}

impl StageProgress {
    /// Copying: done and in total.
    pub fn copied(&self) -> StageAmount {
        StageAmount {
            files: self.files,
            files_total: self.files_total,
            bytes: self.bytes,
            bytes_total: self.bytes_total,
        }
    }

    /// The current phase: done and in total.
    pub fn present(&self) -> StageAmount {
        match self.phase {
            StagePhase::ReadingBack => self.read_back,
            StagePhase::Copying | StagePhase::Syncing | StagePhase::Finishing => self.copied(),
        }
    }

    /// Files and links that only need finishing: copied, and read back if they are to be.
    pub fn good_files(&self) -> u64 {
        let unread = self.read_back.files_total.saturating_sub(self.read_back.files);
        self.files.saturating_sub(unread)
    }

    /// The sum of two stages. The phase is the earlier of the two.
    pub fn plus(&self, other: &StageProgress) -> StageProgress {
        let copied = self.copied().plus(other.copied());
        StageProgress {
            files: copied.files,
            files_total: copied.files_total,
            bytes: copied.bytes,
            bytes_total: copied.bytes_total,
            all_found: self.all_found && other.all_found,
            phase: self.phase.min(other.phase),
            read_back: self.read_back.plus(other.read_back),
            times: self.times.plus(&other.times),
        }
    }
    /// The progress of two movers that work on one stage at the same time: amounts add up, times do
    /// not.
    pub fn beside(&self, other: &StageProgress) -> StageProgress {
        StageProgress { times: self.times.max(&other.times), ..self.plus(other) }
    }
}
