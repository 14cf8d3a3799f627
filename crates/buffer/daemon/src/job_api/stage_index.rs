//! Which stages a job's processes have asked for, by path: a view of what the controller keeps, so
//! that all processes on all of the job's hosts are told the same.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_job_script::{Direction, StageKind, StagePath};
use forebay_protocol::staging::{PathKind, StageCounts};

use super::service::InstanceRoot;
use forebay_control::controller::{RequestedStage, StageState};
use forebay_control::messages::StageId;

/// A path in one of the job's instances; without `/` at either end, empty for the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InstancePath {
    /// Which of the job's roots.
    pub root: usize,
    pub path: String,
}

impl InstancePath {
    /// Whether it is `other` or below it.
    pub fn is_within(&self, other: &InstancePath) -> bool {
        self.root == other.root && Path::new(&self.path).starts_with(&other.path)
    }
}

/// The last stage of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: PathKind,
    /// Whether it goes out of the instance.
    pub out: bool,
    /// The other end.
    pub pfs: String,
    pub stage: StageId,
}

/// A stage that says something about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageMatch {
    /// All of it.
    Whole(StageId),
    /// It stages a directory, of which the path is one entry.
    Within(StageId),
}

impl StageMatch {
    pub fn stage(self) -> StageId {
        match self {
            StageMatch::Whole(stage) | StageMatch::Within(stage) => stage,
        }
    }
}

/// Paths and their last stages.
#[derive(Debug, Default)]
pub(super) struct StageIndex {
    entries: BTreeMap<InstancePath, Entry>,
}

impl StageIndex {
    /// The last stage of each path. Those that were stopped for good are as if they had never been
    /// asked for.
    pub fn from_stages(stages: &[RequestedStage], roots: &[InstanceRoot]) -> StageIndex {
        let mut ledger = StageIndex::default();
        for stage in stages {
            let out = stage.directive.direction == Direction::Out;
            let (inside, outside) = match out {
                true => (&stage.directive.source, &stage.directive.destination),
                false => (&stage.directive.destination, &stage.directive.source),
            };
            let (StagePath::Buffer(inside), StagePath::Pfs(outside)) = (inside, outside) else {
                continue;
            };
            let root = roots.iter().position(|root| root.space == inside.instance);
            let (Some(root), true) = (root, stage.state != StageState::Cancelled) else {
                continue;
            };
            let spot = InstancePath {
                root,
                path: inside.path.clone(),
            };
            let entry = Entry {
                kind: match stage.directive.kind {
                    StageKind::Directory => PathKind::Directory,
                    _ => PathKind::File,
                },
                out,
                pfs: outside.clone(),
                stage: stage.id,
            };
            ledger.entries.insert(spot, entry);
        }
        ledger
    }

    pub fn get(&self, spot: &InstancePath) -> Option<&Entry> {
        self.entries.get(spot)
    }

    /// The stages of a file, or of a directory and all below it.
    pub fn stages_at(&self, kind: PathKind, spot: &InstancePath) -> Vec<StageId> {
        match kind {
            PathKind::File => {
                let own = self.get(spot).filter(|entry| entry.kind == PathKind::File);
                own.map(|entry| entry.stage).into_iter().collect()
            }
            PathKind::Directory => self.within(spot).map(|(_, entry)| entry.stage).collect(),
        }
    }

    /// All stages that say something about a path: its own, or if there are none the one of a
    /// directory above it.
    pub fn stages_covering(&self, kind: PathKind, spot: &InstancePath) -> Vec<StageMatch> {
        let own: Vec<StageMatch> = self
            .stages_at(kind, spot)
            .into_iter()
            .map(StageMatch::Whole)
            .collect();
        if !own.is_empty() {
            return own;
        }
        let above = self
            .above(spot)
            .map(|(_, entry)| StageMatch::Within(entry.stage));
        above.into_iter().collect()
    }

    /// The entries at a path and below it.
    pub fn within(&self, spot: &InstancePath) -> impl Iterator<Item = (&InstancePath, &Entry)> {
        // What is below sorts behind it, but not at once: `a-b` comes between `a` and `a/b`.
        let (root, start) = (spot.root, spot.path.clone());
        self.entries
            .range(spot.clone()..)
            .take_while(move |(other, _)| other.root == root && other.path.starts_with(&start))
            .filter(|(other, _)| other.is_within(spot))
    }

    /// The nearest directory above a path that has a stage.
    pub fn above(&self, spot: &InstancePath) -> Option<(&InstancePath, &Entry)> {
        let mut path = Path::new(&spot.path);
        while let Some(parent) = path.parent() {
            let spot = InstancePath {
                root: spot.root,
                path: parent.to_str()?.to_owned(),
            };
            let found = self.entries.get_key_value(&spot);
            if let Some(found) = found.filter(|(_, entry)| entry.kind == PathKind::Directory) {
                return Some(found);
            }
            path = parent;
        }
        None
    }
}

/// Whether a stage is under way.
pub(super) fn is_active(state: &StageState) -> bool {
    matches!(
        state,
        StageState::Queued | StageState::Running | StageState::Cancelling
    )
}

/// Stages by their numbers.
pub(super) fn by_stage(reports: &[RequestedStage]) -> BTreeMap<StageId, &RequestedStage> {
    let keyed = reports.iter().map(|report| (report.id, report));
    keyed.collect()
}

/// How many files are in which state. A directory's stage counts its files as far as they are
/// found; where that is not known, as one.
pub(super) fn count_files(
    kind: PathKind,
    parts: &[StageMatch],
    reports: &[RequestedStage],
) -> StageCounts {
    let mut counts = StageCounts::default();
    let reports = by_stage(reports);
    for part in parts {
        let Some(report) = reports.get(&part.stage()) else {
            continue;
        };
        let progress = &report.progress;
        let whole = kind == PathKind::Directory && matches!(part, StageMatch::Whole(_));
        // Until it was read back a copy may turn out to be bad.
        let files = if whole { progress.verified_files() } else { 0 };
        match &report.state {
            StageState::Waiting => counts.deferred += 1,
            StageState::Done => counts.complete += files.max(1),
            StageState::Cancelled => {}
            StageState::Failed(_) => {
                let failed = if whole { report.failed_files.len() } else { 1 };
                counts.failed += u64::try_from(failed).unwrap_or(1).max(1);
                counts.complete += files;
            }
            state if is_active(state) => {
                let left = progress.copied.files_total.saturating_sub(files);
                counts.pending += if whole { left.max(1) } else { 1 };
                counts.complete += files;
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::messages::StageProgress;
    use forebay_protocol::progress::StageAmount;
    use forebay_stage::Phase;

    fn spot(path: &str) -> InstancePath {
        let path = path.to_owned();
        InstancePath { root: 0, path }
    }

    fn ledger(entries: &[(&str, PathKind, u64)]) -> StageIndex {
        let mut ledger = StageIndex::default();
        for (path, kind, stage) in entries {
            let entry = Entry {
                kind: *kind,
                out: true,
                pfs: String::new(),
                stage: StageId(*stage),
            };
            ledger.entries.insert(spot(path), entry);
        }
        ledger
    }

    #[test]
    fn a_directory_has_what_is_below_it_and_nothing_beside_it() {
        let ledger = ledger(&[
            ("a", PathKind::Directory, 1),
            ("a-b", PathKind::File, 2),
            ("a/b", PathKind::File, 3),
            ("a/c/d", PathKind::File, 4),
            ("ab", PathKind::File, 5),
        ]);
        let own = |kind, path: &str| ledger.stages_at(kind, &spot(path));
        let ids = |ids: &[u64]| ids.iter().map(|id| StageId(*id)).collect::<Vec<_>>();
        assert_eq!(own(PathKind::Directory, "a"), ids(&[1, 3, 4]));
        assert_eq!(own(PathKind::Directory, "a/c"), ids(&[4]));
        assert_eq!(own(PathKind::Directory, ""), ids(&[1, 2, 3, 4, 5]));
        assert_eq!(own(PathKind::File, "a"), ids(&[]));
        assert_eq!(own(PathKind::File, "a/b"), ids(&[3]));
        let about = |path: &str| ledger.stages_covering(PathKind::File, &spot(path));
        assert_eq!(about("a/x/y"), [StageMatch::Within(StageId(1))]);
        assert_eq!(about("a/b"), [StageMatch::Whole(StageId(3))]);
        assert_eq!(about("b"), []);
        assert_eq!(
            ledger.above(&spot("a/c/d")).map(|(s, _)| s),
            Some(&spot("a"))
        );
    }

    /// Whoever removes what is complete must not remove what may turn out to be damaged.
    #[test]
    fn files_that_are_still_to_be_read_back_are_pending() {
        let mut progress = StageProgress {
            copied: StageAmount {
                files: 10,
                files_total: 10,
                ..StageAmount::default()
            },
            all_found: true,
            phase: Phase::ReadingBack,
            ..StageProgress::default()
        };
        (progress.read_back.files, progress.read_back.files_total) = (3, 9);
        let counted = |state: StageState, progress: StageProgress| {
            let inside = forebay_job_script::BufferPath {
                instance: forebay_job_script::InstanceRef::Job,
                path: "a".into(),
            };
            let report = RequestedStage {
                id: StageId(1),
                directive: forebay_job_script::Stage {
                    direction: Direction::Out,
                    kind: StageKind::Directory,
                    source: StagePath::Buffer(inside),
                    destination: StagePath::Pfs("/pfs/a".into()),
                    line: 0,
                },
                state,
                progress,
                failed_files: Vec::new(),
            };
            let counts = count_files(
                PathKind::Directory,
                &[StageMatch::Whole(StageId(1))],
                &[report],
            );
            (counts.complete, counts.pending, counts.failed)
        };
        assert_eq!(counted(StageState::Running, progress), (4, 6, 0));
        // It ends with a file that is damaged.
        progress.read_back.files = 8;
        let failed = StageState::Failed("one is damaged".into());
        assert_eq!(counted(failed, progress), (9, 0, 1));
        progress.read_back.files = 9;
        assert_eq!(counted(StageState::Done, progress), (10, 0, 0));
    }
}
