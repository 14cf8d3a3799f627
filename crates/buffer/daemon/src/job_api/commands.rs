//! Calls that begin, defer, release and stop stages.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use forebay_control::controller::{Answer, Request, StageState};
use forebay_control::messages::StageId;
use forebay_job_script::{BufferPath, Direction, Stage, StageKind, StagePath};
use forebay_protocol::Errno;
use forebay_protocol::staging::{PathKind, PathPair, StageOutTime, StagingReply};

use super::instance_path::{check_length, locate};
use super::job::Job;
use super::refused::{Refused, invalid_argument};
use super::stage_index::{Entry, by_stage, is_active};

/// Begins stages, or defers them to the job's end: all of them or none.
pub(super) fn begin_stages(
    job: &Job<'_>,
    kind: PathKind,
    pairs: Vec<PathPair>,
    direction: Direction,
    when: StageOutTime,
) -> Result<StagingReply, Refused> {
    let pairs = check_pairs(job, kind, pairs, direction)?;
    let _lock = job.begin_lock.lock();
    let paths: Vec<BufferPath> = pairs.iter().map(|(path, _)| path.clone()).collect();
    let (stages, index) = job.stages_about(&paths)?;
    let stages = by_stage(&stages);
    let mut requests = Vec::new();
    for (path, pfs) in &pairs {
        if let Some(entry) = index.get(path) {
            let state = stages.get(&entry.stage).map(|stage| &stage.state);
            let same = when == StageOutTime::JobEnd && entry.pfs == *pfs && entry.kind == kind;
            if is_deferred_already(path, entry, state, same)? {
                continue;
            }
        }
        let token = job.token.to_owned();
        let what = directive(kind, direction, path, pfs);
        requests.push(match when {
            StageOutTime::Now => Request::BeginStage { token, what },
            StageOutTime::JobEnd => Request::DeferStage { token, what },
        });
    }
    let (mut accepted, mut refused) = (Vec::new(), None);
    for outcome in job.request_all(requests)? {
        match outcome {
            Ok(Answer::Stage(stage)) => accepted.push(stage),
            Ok(Answer::Done | Answer::Session(_) | Answer::Node(_) | Answer::NodeForgotten(_)) => {}
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    match refused {
        None => Ok(StagingReply::Done),
        Some(failure) => {
            cancel_stages(job, &accepted)?;
            Err(failure.into())
        }
    }
}

/// Locates both paths of each pair, and refuses duplicates.
fn check_pairs(
    job: &Job<'_>,
    kind: PathKind,
    pairs: Vec<PathPair>,
    direction: Direction,
) -> Result<Vec<(BufferPath, String)>, Refused> {
    if pairs.is_empty() {
        return invalid_argument("the list is empty");
    }
    let mut checked = Vec::new();
    let (mut paths, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for pair in pairs {
        let path = locate(&job.roots, &pair.instance)?;
        let pfs = check_pfs_path(job, pair.pfs)?;
        if kind == PathKind::File && path.path.is_empty() {
            return Err(Refused(Errno::EISDIR, "names no file".to_owned()));
        }
        let duplicate = !paths.insert(path.clone())
            || (direction == Direction::Out && !targets.insert(pfs.clone()));
        if duplicate {
            return invalid_argument(format!("{pfs}: is in the list twice"));
        }
        checked.push((path, pfs));
    }
    Ok(checked)
}

/// Checks a path of the parallel file system.
fn check_pfs_path(job: &Job<'_>, path: String) -> Result<String, Refused> {
    check_length(&path)?;
    let plain = |c| matches!(c, Component::RootDir | Component::Normal(_));
    if !Path::new(&path).is_absolute() || !Path::new(&path).components().all(plain) {
        return invalid_argument(format!("{path}: is not an absolute path without `..`"));
    }
    if Path::new(&path).starts_with(job.mounts) {
        return invalid_argument(format!(
            "{path}: is in an instance, not on the parallel file system"
        ));
    }
    Ok(path)
}

/// Whether a stage of this path is already deferred, and is the `same` as the requested one.
/// Fails if another stage of the path is deferred or in progress.
fn is_deferred_already(
    path: &BufferPath,
    entry: &Entry,
    state: Option<&StageState>,
    same: bool,
) -> Result<bool, Refused> {
    let busy = |reason: &str| Err(Refused(Errno::EBUSY, format!("{}: {reason}", path.path)));
    debug_assert!(!entry.pfs.is_empty());
    match state {
        Some(StageState::Waiting) if same => Ok(true),
        Some(StageState::Waiting) => busy("waits for the job's end; revoke that first"),
        Some(state) if is_active(state) => busy("is being staged already"),
        Some(_) | None => Ok(false),
    }
}

fn directive(kind: PathKind, direction: Direction, path: &BufferPath, pfs: &str) -> Stage {
    let inside = StagePath::Buffer(path.clone());
    let pfs = StagePath::Pfs(pfs.to_owned());
    let (source, destination) = match direction {
        Direction::In => (pfs, inside),
        Direction::Out => (inside, pfs),
    };
    let kind = match kind {
        PathKind::File => StageKind::File,
        PathKind::Directory => StageKind::Directory,
    };
    Stage { direction, kind, source, destination, line: 0 }
}

/// Cancels stages and waits until they have stopped. Stages that complete first stay completed.
fn cancel_stages(job: &Job<'_>, stages: &[StageId]) -> Result<StagingReply, Refused> {
    let requests = stages.iter().copied();
    let requests = requests.map(|stage| Request::CancelStage { stage });
    request_each(job, requests.collect())
}

fn request_each(job: &Job<'_>, requests: Vec<Request>) -> Result<StagingReply, Refused> {
    for outcome in job.request_all(requests)? {
        outcome?;
    }
    Ok(StagingReply::Done)
}

/// The stages of these very paths that are in a `wanted` state. Fails with the reason `none` if a
/// path has none.
fn stages_at(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
    wanted: impl Fn(&StageState) -> bool,
    none: &str,
) -> Result<Vec<StageId>, Refused> {
    let located = job.instance_paths(paths)?;
    let (stages, index) = job.stages_about(&located)?;
    let stages = by_stage(&stages);
    let wanted = |id: &StageId| stages.get(id).is_some_and(|stage| wanted(&stage.state));
    let mut found = Vec::new();
    for (path, shown) in located.iter().zip(paths) {
        let mut own = index.stages_at(kind, path);
        own.retain(wanted);
        if own.is_empty() {
            return invalid_argument(format!("{shown}: {none}"));
        }
        found.extend(own);
    }
    Ok(found)
}

/// The deferred stages of these paths.
fn deferred_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<Vec<StageId>, Refused> {
    let deferred = |state: &StageState| *state == StageState::Waiting;
    stages_at(job, kind, paths, deferred, "no stage waits for the job's end")
}

/// Cancels deferred stages.
pub(super) fn revoke_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<StagingReply, Refused> {
    cancel_stages(job, &deferred_stages(job, kind, paths)?)
}

/// Begins deferred stages now.
pub(super) fn release_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<StagingReply, Refused> {
    let stages = deferred_stages(job, kind, paths)?.into_iter();
    let requests = stages.map(|stage| Request::ReleaseStage { stage });
    request_each(job, requests.collect())
}

/// Cancels stages that are not completed.
pub(super) fn terminate_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<StagingReply, Refused> {
    let stoppable = |state: &StageState| {
        is_active(state) || matches!(state, StageState::Waiting | StageState::Failed(_))
    };
    let stages = stages_at(job, kind, paths, stoppable, "no stage is in progress")?;
    cancel_stages(job, &stages)
}

/// Limits the stages of an instance that are moved at a time.
pub(super) fn limit_stages(job: &Job<'_>, path: &str, max: u32) -> Result<StagingReply, Refused> {
    let instance = locate(&job.roots, path)?.instance;
    job.client.request(Request::LimitStages {
        token: job.token.to_owned(),
        instance,
        max_concurrent: max,
    })?;
    Ok(StagingReply::Done)
}
