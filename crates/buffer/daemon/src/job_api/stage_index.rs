//! The stages that a job's processes have requested, by path: a view of the controller's state, so
//! that all processes on all of the job's hosts see the same.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_job_script::{BufferPath, Direction, StageKind, StagePath};
use forebay_protocol::staging::{PathKind, StageCounts};

use super::instance_path::is_within;
use forebay_control::controller::{RequestedStage, StageState};
use forebay_control::messages::StageId;

/// The last stage of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: PathKind,
    /// Whether it goes out of the instance.
    pub out: bool,
    /// The other end, on the parallel file system.
    pub pfs: String,
    pub stage: StageId,
}

/// A stage that concerns a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageMatch {
    /// It stages the path itself.
    Whole(StageId),
    /// It stages a directory above the path.
    Within(StageId),
}

impl StageMatch {
    pub fn stage(self) -> StageId {
        match self {
            StageMatch::Whole(stage) | StageMatch::Within(stage) => stage,
        }
    }
}

/// The last stage of each path.
#[derive(Debug, Default)]
pub(super) struct StageIndex {
    entries: BTreeMap<BufferPath, Entry>,
}

impl StageIndex {
    /// Indexes stages. Cancelled ones are left out, as if they had never been requested.
    pub fn from_stages(stages: &[RequestedStage]) -> StageIndex {
        let mut index = StageIndex::default();
        for stage in stages {
            let out = stage.directive.direction == Direction::Out;
            let (inside, outside) = match out {
                true => (&stage.directive.source, &stage.directive.destination),
                false => (&stage.directive.destination, &stage.directive.source),
            };
            let (StagePath::Buffer(inside), StagePath::Pfs(outside)) = (inside, outside) else {
                continue;
            };
            if stage.state == StageState::Cancelled {
                continue;
            }
            let entry = Entry {
                kind: match stage.directive.kind {
                    StageKind::Directory | StageKind::Log => PathKind::Directory,
                    StageKind::File | StageKind::List => PathKind::File,
                },
                out,
                pfs: outside.clone(),
                stage: stage.id,
            };
            index.entries.insert(inside.clone(), entry);
        }
        index
    }

    pub fn get(&self, path: &BufferPath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The stages of a file, or of a directory and all below it.
    pub fn stages_at(&self, kind: PathKind, path: &BufferPath) -> Vec<StageId> {
        match kind {
            PathKind::File => {
                let own = self.get(path).filter(|entry| entry.kind == PathKind::File);
                own.map(|entry| entry.stage).into_iter().collect()
            }
            PathKind::Directory => self.within(path).map(|(_, entry)| entry.stage).collect(),
        }
    }

    /// All stages that concern a path: its own, or if there are none that of the nearest directory
    /// above it.
    pub fn stages_covering(&self, kind: PathKind, path: &BufferPath) -> Vec<StageMatch> {
        let own: Vec<StageMatch> =
            self.stages_at(kind, path).into_iter().map(StageMatch::Whole).collect();
        if !own.is_empty() {
            return own;
        }
        let above = self.above(path).map(|(_, entry)| StageMatch::Within(entry.stage));
        above.into_iter().collect()
    }

    /// The entries at a path and below it.
    pub fn within(&self, path: &BufferPath) -> impl Iterator<Item = (&BufferPath, &Entry)> {
        // What is below sorts behind it, but not at once: `a-b` comes between `a` and `a/b`.
        let start = path.clone();
        self.entries
            .range(path.clone()..)
            .take_while(move |(other, _)| {
                other.instance == start.instance && other.path.starts_with(&start.path)
            })
            .filter(|(other, _)| is_within(other, path))
    }

    /// The nearest directory above a path that has a stage.
    pub fn above(&self, path: &BufferPath) -> Option<(&BufferPath, &Entry)> {
        let entry_of = |ancestor: &Path| {
            let instance = path.instance.clone();
            let ancestor = BufferPath { instance, path: ancestor.to_str()?.to_owned() };
            self.entries.get_key_value(&ancestor)
        };
        let ancestors = Path::new(&path.path).ancestors().skip(1);
        let mut found = ancestors.filter_map(entry_of);
        found.find(|(_, entry)| entry.kind == PathKind::Directory)
    }
}

/// Whether a stage is in progress.
pub(super) fn is_active(state: &StageState) -> bool {
    matches!(state, StageState::Queued | StageState::Running | StageState::Cancelling)
}

/// Stages by their ids.
pub(super) fn by_stage(stages: &[RequestedStage]) -> BTreeMap<StageId, &RequestedStage> {
    stages.iter().map(|stage| (stage.id, stage)).collect()
}

/// Counts files by state. The stage of a directory counts the files found so far, and at least one.
pub(super) fn count_files(
    kind: PathKind,
    matches: &[StageMatch],
    stages: &[RequestedStage],
) -> StageCounts {
    let mut counts = StageCounts::default();
    let stages = by_stage(stages);
    for found in matches {
        let Some(stage) = stages.get(&found.stage()) else {
            continue;
        };
        let progress = &stage.progress;
        let whole = kind == PathKind::Directory && matches!(found, StageMatch::Whole(_));
        // Until it is verified a copy may turn out to be damaged.
        let files = if whole { progress.good_files() } else { 0 };
        match &stage.state {
            StageState::Waiting => counts.deferred += 1,
            StageState::Done => counts.complete += files.max(1),
            StageState::Cancelled => {}
            StageState::Failed(_) => {
                let failed = if whole { stage.failed_files.len() } else { 1 };
                counts.failed += u64::try_from(failed).unwrap_or(1).max(1);
                counts.complete += files;
            }
            StageState::Queued | StageState::Running | StageState::Cancelling => {
                let left = progress.files_total.saturating_sub(files);
                counts.pending += if whole { left.max(1) } else { 1 };
                counts.complete += files;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::messages::StageProgress;
    use forebay_job_script::InstanceRef;
    use forebay_protocol::progress::StagePhase;

    fn at(path: &str) -> BufferPath {
        BufferPath { instance: InstanceRef::Job, path: path.to_owned() }
    }

    fn stage_index(entries: &[(&str, PathKind, u64)]) -> StageIndex {
        let mut index = StageIndex::default();
        for (path, kind, stage) in entries {
            let entry =
                Entry { kind: *kind, out: true, pfs: String::new(), stage: StageId(*stage) };
            index.entries.insert(at(path), entry);
        }
        index
    }

    #[test]
    fn directory_has_the_stages_below_it_and_not_of_its_siblings() {
        let index = stage_index(&[
            ("a", PathKind::Directory, 1),
            ("a-b", PathKind::File, 2),
            ("a/b", PathKind::File, 3),
            ("a/c/d", PathKind::File, 4),
            ("ab", PathKind::File, 5),
        ]);
        let own = |kind, path: &str| index.stages_at(kind, &at(path));
        let ids = |ids: &[u64]| ids.iter().map(|id| StageId(*id)).collect::<Vec<_>>();
        assert_eq!(own(PathKind::Directory, "a"), ids(&[1, 3, 4]));
        assert_eq!(own(PathKind::Directory, "a/c"), ids(&[4]));
        assert_eq!(own(PathKind::Directory, ""), ids(&[1, 2, 3, 4, 5]));
        assert_eq!(own(PathKind::File, "a"), ids(&[]));
        assert_eq!(own(PathKind::File, "a/b"), ids(&[3]));
        let about = |path: &str| index.stages_covering(PathKind::File, &at(path));
        assert_eq!(about("a/x/y"), [StageMatch::Within(StageId(1))]);
        assert_eq!(about("a/b"), [StageMatch::Whole(StageId(3))]);
        assert_eq!(about("b"), []);
        assert_eq!(index.above(&at("a/c/d")).map(|(s, _)| s), Some(&at("a")));
    }

    /// A process that removes complete files must not remove a source whose copy is damaged.
    #[test]
    fn files_that_are_not_read_back_yet_count_as_pending() {
        let mut progress = StageProgress {
            files: 10,
            files_total: 10,
            all_found: true,
            phase: StagePhase::ReadingBack,
            ..StageProgress::default()
        };
        (progress.read_back.files, progress.read_back.files_total) = (3, 9);
        let counted = |state: StageState, progress: StageProgress| {
            let stage = RequestedStage {
                id: StageId(1),
                directive: forebay_job_script::Stage {
                    direction: Direction::Out,
                    kind: StageKind::Directory,
                    source: StagePath::Buffer(at("a")),
                    destination: StagePath::Pfs("/pfs/a".into()),
                    line: 0,
                },
                state,
                progress,
                failed_files: Vec::new(),
            };
            let counts =
                count_files(PathKind::Directory, &[StageMatch::Whole(StageId(1))], &[stage]);
            (counts.complete, counts.pending, counts.failed)
        };
        assert_eq!(counted(StageState::Running, progress), (4, 6, 0));
        // The stage ends, and one file is damaged.
        progress.read_back.files = 8;
        let failed = StageState::Failed("one is damaged".into());
        assert_eq!(counted(failed, progress), (9, 0, 1));
        progress.read_back.files = 9;
        assert_eq!(counted(StageState::Done, progress), (10, 0, 0));
    }
}
