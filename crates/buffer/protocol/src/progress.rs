//! Progress of a stage, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Phase of a stage.
///
/// A stage that is read back passes through all phases in this order, and in the end makes durable
/// what the last phase has changed. Other stages skip to [`Phase::Finishing`] and make everything
/// durable at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Files are found and copied.
    #[default]
    Copying,
    /// Copies are made durable; the progress of this phase is not known.
    Syncing,
    /// Copies are read from stable storage and compared with what was read at the source.
    ReadingBack,
    /// Hard links are created, and directories get their metadata.
    Finishing,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 4] = [
        Phase::Copying,
        Phase::Syncing,
        Phase::ReadingBack,
        Phase::Finishing,
    ];

    /// The phase in words.
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

/// Files and bytes: done, and in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageAmount {
    /// Files that are done.
    pub files: u64,
    /// Files in total.
    pub files_total: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes in total.
    pub bytes_total: u64,
}

impl StageAmount {
    /// The sum of two amounts.
    pub fn plus(&self, other: &StageAmount) -> StageAmount {
        StageAmount {
            files: self.files.saturating_add(other.files),
            files_total: self.files_total.saturating_add(other.files_total),
            bytes: self.bytes.saturating_add(other.bytes),
            bytes_total: self.bytes_total.saturating_add(other.bytes_total),
        }
    }
}

/// Time that a stage has spent in each phase that is over; in microseconds when serialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes {
    /// Finding and copying files.
    #[serde(with = "microseconds")]
    pub copying: Duration,
    /// Making copies durable.
    #[serde(with = "microseconds")]
    pub syncing: Duration,
    /// Reading copies back and comparing them.
    #[serde(with = "microseconds")]
    pub reading_back: Duration,
    /// Hard links and directories.
    #[serde(with = "microseconds")]
    pub finishing: Duration,
}

impl PhaseTimes {
    /// Time in one phase.
    pub fn of(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Copying => self.copying,
            Phase::Syncing => self.syncing,
            Phase::ReadingBack => self.reading_back,
            Phase::Finishing => self.finishing,
        }
    }

    /// Time in all phases.
    pub fn sum(&self) -> Duration {
        Phase::ALL.into_iter().map(|phase| self.of(phase)).sum()
    }

    /// The sums of two stages' times.
    pub fn plus(&self, other: &PhaseTimes) -> PhaseTimes {
        PhaseTimes {
            copying: self.copying.saturating_add(other.copying),
            syncing: self.syncing.saturating_add(other.syncing),
            reading_back: self.reading_back.saturating_add(other.reading_back),
            finishing: self.finishing.saturating_add(other.finishing),
        }
    }

    /// Time until all copies were durable.
    pub fn until_durable(&self) -> Duration {
        self.copying + self.syncing
    }
}

mod microseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_micros(u64::deserialize(deserializer)?))
    }
}

/// Progress of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Files and links that are copied, of those found so far, and their bytes.
    #[serde(flatten)]
    pub copied: StageAmount,
    /// Whether everything was found, so that the totals are final.
    pub all_found: bool,
    /// Current phase; of an ended stage, the last one.
    pub phase: Phase,
    /// Files that were read back, of those copied so far that are to be read back. Zero if none is.
    pub read_back: StageAmount,
    /// Time in each phase that is over.
    pub times: PhaseTimes,
}

impl StageProgress {
    /// Progress of the current phase.
    pub fn present(&self) -> StageAmount {
        match self.phase {
            Phase::ReadingBack => self.read_back,
            Phase::Copying | Phase::Syncing | Phase::Finishing => self.copied,
        }
    }

    /// Files and links that are copied, and read back if they are to be.
    pub fn verified_files(&self) -> u64 {
        let read_back = &self.read_back;
        let unread = read_back.files_total.saturating_sub(read_back.files);
        self.copied.files.saturating_sub(unread)
    }

    /// Progress of two stages together. The phase is the earlier one of the two.
    pub fn plus(&self, other: &StageProgress) -> StageProgress {
        StageProgress {
            copied: self.copied.plus(&other.copied),
            all_found: self.all_found && other.all_found,
            phase: self.phase.min(other.phase),
            read_back: self.read_back.plus(&other.read_back),
            times: self.times.plus(&other.times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_to_be_read_back_are_not_verified_yet() {
        // Two files and a link are copied; one of the files was read back.
        let mut progress = StageProgress {
            copied: StageAmount {
                files: 3,
                files_total: 4,
                ..StageAmount::default()
            },
            phase: Phase::ReadingBack,
            ..StageProgress::default()
        };
        assert_eq!(progress.verified_files(), 3, "nothing is to be read back");
        (progress.read_back.files, progress.read_back.files_total) = (1, 2);
        assert_eq!(progress.verified_files(), 2);
        assert_eq!(progress.present().files_total, 2);
        progress.phase = Phase::Finishing;
        assert_eq!(progress.present().files_total, 4);
    }
}
