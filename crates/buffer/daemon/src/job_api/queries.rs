//! Calls that query stages, or wait for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_control::controller::{Request, RequestedStage, StageState};
use forebay_control::messages::StageId;
use forebay_job_script::BufferPath;
use forebay_policy::layout::Layout;
use forebay_protocol::staging::{PathKind, StagingReply};
use forebay_protocol::{Errno, Ino};

use super::instance_path::{is_within, locate};
use super::job::Job;
use super::refused::{ECANCELED, Refused, invalid_argument};
use super::stage_index::{Entry, StageMatch, by_stage, count_files, is_active};

/// Pause before stages are queried again that the controller would not let be waited for.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a controller that does not reply is queried again.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(600);

/// The stages that concern each of these paths.
fn stages_covering(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<(Vec<StageMatch>, Vec<RequestedStage>), Refused> {
    let located = job.instance_paths(paths)?;
    let (stages, index) = job.stages_about(&located)?;
    let mut matches = Vec::new();
    for (path, shown) in located.iter().zip(paths) {
        let covering = index.stages_covering(kind, path);
        if covering.is_empty() {
            return invalid_argument(format!("{shown}: no stage was requested"));
        }
        matches.extend(covering);
    }
    Ok((matches, stages))
}

/// Counts files by the state of their stages.
pub(super) fn count_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<StagingReply, Refused> {
    let (matches, stages) = stages_covering(job, kind, paths)?;
    Ok(StagingReply::Counts(count_files(kind, &matches, &stages)))
}

/// Waits until the stages of these paths are over. Fails as the first of them that failed.
///
/// The controller tells when the last stage is over: thousands of hosts may wait.
pub(super) fn wait_for_stages(
    job: &Job<'_>,
    kind: PathKind,
    paths: &[String],
) -> Result<StagingReply, Refused> {
    let (matches, stages) = stages_covering(job, kind, paths)?;
    let covering: BTreeSet<StageId> = matches.iter().map(|found| found.stage()).collect();
    // Waiting for a stage that is deferred to the job's end would never end.
    let is_awaited =
        |stage: &RequestedStage| covering.contains(&stage.id) && stage.state != StageState::Waiting;
    let mut known: Vec<RequestedStage> = stages.into_iter().filter(is_awaited).collect();
    let mut left: BTreeSet<StageId> = known.iter().map(|stage| stage.id).collect();
    if left.is_empty() {
        return invalid_argument("no stage is in progress; it waits for the job's end");
    }
    let mut last_reply = Instant::now();
    let mut awaited = None;
    let mut failed: Option<(StageId, Refused)> = None;
    loop {
        remove_ended(&mut left, &known, &mut failed)?;
        let Some(last) = left.last().copied() else {
            return failed.map_or(Ok(StagingReply::Done), |(_, error)| Err(error));
        };
        if awaited == Some(last) {
            std::thread::sleep(RETRY_INTERVAL);
        }
        awaited = Some(last);
        // The query tells the outcome.
        let _ = job.client.request(Request::AwaitStage { stage: last });
        let ids: Vec<StageId> = left.iter().copied().collect();
        match job.stages_by_id(&ids) {
            Ok(stages) => (known, last_reply) = (stages, Instant::now()),
            // It may be restarting.
            Err(Refused(Errno::ETIMEDOUT, _)) if last_reply.elapsed() < CONTROLLER_TIMEOUT => {}
            Err(other) => return Err(other),
        }
    }
}

/// Removes the stages that are over from those that are `left`, and notes the failure of the first.
fn remove_ended(
    left: &mut BTreeSet<StageId>,
    stages: &[RequestedStage],
    failed: &mut Option<(StageId, Refused)>,
) -> Result<(), Refused> {
    let known: BTreeSet<StageId> = stages.iter().map(|stage| stage.id).collect();
    if left.iter().any(|id| !known.contains(id)) {
        // The job has ended, and another one has its id.
        let reason = "the job has ended meanwhile".to_owned();
        return Err(Refused(ECANCELED, reason));
    }
    for stage in stages {
        if is_active(&stage.state) || stage.state == StageState::Waiting {
            continue;
        }
        left.remove(&stage.id);
        let first = failed.as_ref().is_none_or(|(id, _)| stage.id < *id);
        if let (Some(error), true) = (error_of(stage), first) {
            *failed = Some((stage.id, error));
        }
    }
    Ok(())
}

/// The error of a stage that is over, if it did not succeed.
fn error_of(stage: &RequestedStage) -> Option<Refused> {
    match &stage.state {
        StageState::Failed(reason) => {
            let first = stage.failed_files.first();
            let errno = first.map_or(Errno::EIO.0, |file| file.errno);
            Some(Refused(Errno(errno), reason.clone()))
        }
        StageState::Cancelled => Some(Refused(ECANCELED, "it was cancelled".to_owned())),
        StageState::Waiting
        | StageState::Queued
        | StageState::Running
        | StageState::Cancelling
        | StageState::Done => None,
    }
}

/// The striping of a file.
pub(super) fn query_stripes(
    job: &Job<'_>,
    path: &str,
    inode: u64,
) -> Result<StagingReply, Refused> {
    let located = locate(&job.roots, path)?;
    let mut striping = job.striping.iter();
    let striping = striping.find(|(of, _)| *of == located.instance);
    let layout = striping.and_then(|(_, striping)| Layout::new(striping.nodes, striping.size));
    let Some(layout) = layout else {
        return invalid_argument(format!("{path}: there is no such instance any more"));
    };
    Ok(StagingReply::Stripes {
        size: layout.stripe_bytes(),
        width: layout.nodes().into(),
        start: u32::from(layout.node_of_stripe(Ino(inode), 0).0),
    })
}

/// The files at and below a path that could not be staged.
pub(super) fn query_failures(job: &Job<'_>, path: &str) -> Result<StagingReply, Refused> {
    let top = locate(&job.roots, path)?;
    let (stages, index) = job.stages_about(std::slice::from_ref(&top))?;
    let stages = by_stage(&stages);
    let above = index.above(&top).into_iter();
    let mut failures = BTreeSet::new();
    for (path, entry) in index.within(&top).chain(above) {
        let stage = stages.get(&entry.stage);
        let failed = |stage: &&&RequestedStage| matches!(stage.state, StageState::Failed(_));
        let Some(stage) = stage.filter(failed) else {
            continue;
        };
        if stage.failed_files.is_empty() {
            failures.insert((path.clone(), Errno::EIO.0));
        }
        for file in &stage.failed_files {
            let failed = failed_path(path, entry, Path::new(&file.path));
            failures.insert((failed, file.errno));
        }
    }
    failures.retain(|(path, _)| is_within(path, &top));
    let shown = |path: &BufferPath| {
        let root = job.roots.iter().find(|root| root.instance == path.instance);
        format!("{}{}", root.map_or("", |root| &root.shown), path.path)
    };
    let failures = failures.iter().map(|(path, errno)| (shown(path), *errno));
    Ok(StagingReply::Failures(failures.collect()))
}

/// The path in the instance of a file that a stage of `path` could not stage, and that the mover
/// names by its source.
fn failed_path(path: &BufferPath, entry: &Entry, file: &Path) -> BufferPath {
    let source = if entry.out {
        Path::new(&path.instance.variable()).join(&path.path)
    } else {
        PathBuf::from(&entry.pfs)
    };
    let below = file.strip_prefix(&source).ok().and_then(Path::to_str);
    let located = match below {
        None | Some("") => path.path.clone(),
        Some(below) if path.path.is_empty() => below.to_owned(),
        Some(below) => format!("{}/{below}", path.path),
    };
    BufferPath { instance: path.instance.clone(), path: located }
}
