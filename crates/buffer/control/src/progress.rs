//! How far a stage is, as its node reports it and its controller keeps it.

use std::time::Duration;

use forebay_protocol::progress::{Phase, StageAmount, StageProgress, Times};
use serde::{Deserialize, Serialize};

/// How far a stage is. What later versions have added is absent in earlier records: then nothing is
/// known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Files and links copied.
    pub files: u64,
    /// Of so many found so far.
    pub files_total: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Of so many found so far.
    pub bytes_total: u64,
    /// Whether everything is found, so that the totals are final.
    pub all_found: bool,
    /// What is being done; of an ended stage, what was done last.
    #[serde(default)]
    pub phase: Phase,
    /// Of the files copied so far that are to be read back from stable storage and compared, those
    /// that were. All zero if nothing is to be.
    #[serde(default)]
    pub read_back: StageAmount,
    /// How long the phases took that are over.
    #[serde(default)]
    pub times: PhaseTimes,
}

/// How long a stage was in each phase, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes {
    /// Finding and copying.
    pub copying: u64,
    /// Putting what was copied on stable storage.
    pub syncing: u64,
    /// Reading it back and comparing.
    pub reading_back: u64,
    /// Further names and directories.
    pub finishing: u64,
}

impl PhaseTimes {
    /// One of them.
    pub fn of(&self, phase: Phase) -> Duration {
        Duration::from_micros(match phase {
            Phase::Copying => self.copying,
            Phase::Syncing => self.syncing,
            Phase::ReadingBack => self.reading_back,
            Phase::Finishing => self.finishing,
        })
    }

    /// All of them.
    pub fn sum(&self) -> Duration {
        Phase::ALL.into_iter().map(|phase| self.of(phase)).sum()
    }

    /// These and others.
    pub fn plus(&self, other: &PhaseTimes) -> PhaseTimes {
        PhaseTimes {
            copying: self.copying.saturating_add(other.copying),
            syncing: self.syncing.saturating_add(other.syncing),
            reading_back: self.reading_back.saturating_add(other.reading_back),
            finishing: self.finishing.saturating_add(other.finishing),
        }
    }
}

impl From<Times> for PhaseTimes {
    fn from(times: Times) -> PhaseTimes {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        PhaseTimes {
            copying: micros(times.copying),
            syncing: micros(times.syncing),
            reading_back: micros(times.reading_back),
            finishing: micros(times.finishing),
        }
    }
}

impl From<StageProgress> for Progress {
    fn from(now: StageProgress) -> Progress {
        Progress {
            files: now.copied.files,
            files_total: now.copied.files_total,
            bytes: now.copied.bytes,
            bytes_total: now.copied.bytes_total,
            all_found: now.all_found,
            phase: now.phase,
            read_back: now.read_back,
            times: now.times.into(),
        }
    }
}

impl From<Progress> for StageProgress {
    fn from(progress: Progress) -> StageProgress {
        let time = |phase| progress.times.of(phase);
        StageProgress {
            copied: progress.copied(),
            all_found: progress.all_found,
            phase: progress.phase,
            read_back: progress.read_back,
            times: Times {
                copying: time(Phase::Copying),
                syncing: time(Phase::Syncing),
                reading_back: time(Phase::ReadingBack),
                finishing: time(Phase::Finishing),
            },
        }
    }
}

impl Progress {
    /// What is copied and to be copied.
    pub fn copied(&self) -> StageAmount {
        StageAmount {
            files: self.files,
            files_total: self.files_total,
            bytes: self.bytes,
            bytes_total: self.bytes_total,
        }
    }

    /// What the present phase has done and has to do.
    pub fn present(&self) -> StageAmount {
        StageProgress::from(*self).present()
    }

    /// Files and links that need nothing more but to be finished: copied, and read back if they
    /// are to be.
    pub fn good_files(&self) -> u64 {
        let unread = self
            .read_back
            .files_total
            .saturating_sub(self.read_back.files);
        self.files.saturating_sub(unread)
    }

    /// What two stages have done together. The phase is that of the one that is less far.
    pub fn plus(&self, other: &Progress) -> Progress {
        let (one, two) = (&self.read_back, &other.read_back);
        Progress {
            files: self.files + other.files,
            files_total: self.files_total + other.files_total,
            bytes: self.bytes + other.bytes,
            bytes_total: self.bytes_total + other.bytes_total,
            all_found: self.all_found && other.all_found,
            phase: self.phase.min(other.phase),
            read_back: StageAmount {
                files: one.files + two.files,
                files_total: one.files_total + two.files_total,
                bytes: one.bytes + two.bytes,
                bytes_total: one.bytes_total + two.bytes_total,
            },
            times: self.times.plus(&other.times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_earlier_versions_are_read() {
        let old = r#"{"files":1,"files_total":2,"bytes":3,"bytes_total":4,"all_found":true}"#;
        let progress: Progress = serde_json::from_str(old).unwrap();
        assert_eq!((progress.files, progress.bytes_total), (1, 4));
        assert_eq!(progress.read_back, StageAmount::default());
        let text = serde_json::to_string(&progress).unwrap();
        assert!(text.contains(r#""phase":"copying""#), "{text}");
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap(), progress);
    }

    #[test]
    fn what_is_still_to_be_read_back_is_not_good_yet() {
        // Two files and a link are copied; one of the files was read back.
        let mut progress = Progress {
            files: 3,
            files_total: 4,
            phase: Phase::ReadingBack,
            ..Progress::default()
        };
        assert_eq!(progress.good_files(), 3, "nothing is to be read back");
        (progress.read_back.files, progress.read_back.files_total) = (1, 2);
        assert_eq!(progress.good_files(), 2);
        assert_eq!(progress.present().files_total, 2);
        progress.phase = Phase::Finishing;
        assert_eq!(progress.present().files_total, 4);
        let snapshot = StageProgress::from(progress);
        assert_eq!(Progress::from(snapshot), progress);
    }
}
