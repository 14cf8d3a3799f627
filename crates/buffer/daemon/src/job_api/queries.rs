//! Answers to questions about stages, and waiting for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_job_script::InstanceRef;
use forebay_policy::layout::Layout;
use forebay_protocol::staging::{PathKind, StagingReply};
use forebay_protocol::{Errno, Ino};

use super::service::{JobContext, Refused, invalid_argument};
use super::stage_index::{Entry, InstancePath, StageMatch, by_stage, count_files, is_active};
use forebay_control::controller::{RequestedStage, StageState};
use forebay_control::messages::StageId;

/// Not in [`Errno`]: the stage was stopped.
const ECANCELED: Errno = Errno(125);
/// Pauses between looks at stages that are waited for: an eighth of the time that the wait has
/// taken so far, within these limits.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// A controller that does not answer is asked again for so long.
const PATIENCE: Duration = Duration::from_secs(600);

impl JobContext<'_> {
    /// The stages that say something about each of these paths.
    fn about(
        &self,
        kind: PathKind,
        paths: &[String],
    ) -> Result<(Vec<StageMatch>, Vec<RequestedStage>), Refused> {
        let spots = self.spots(paths)?;
        let (stages, ledger) = self.stages_about(&spots)?;
        let mut parts = Vec::new();
        for (spot, path) in spots.iter().zip(paths) {
            let about = ledger.stages_covering(kind, spot);
            if about.is_empty() {
                return invalid_argument(format!("{path}: no stage was asked for"));
            }
            parts.extend(about);
        }
        Ok((parts, stages))
    }

    pub(super) fn query(&self, kind: PathKind, paths: &[String]) -> Result<StagingReply, Refused> {
        let (parts, stages) = self.about(kind, paths)?;
        Ok(StagingReply::Counts(count_files(kind, &parts, &stages)))
    }

    pub(super) fn wait(&self, kind: PathKind, paths: &[String]) -> Result<StagingReply, Refused> {
        let (parts, stages) = self.about(kind, paths)?;
        let stages = by_stage(&stages);
        let mut left: BTreeSet<StageId> = parts.iter().map(|part| part.stage()).collect();
        // Those that wait for the job's end would have it wait for itself.
        left.retain(|id| {
            let stage = stages.get(id);
            stage.is_some_and(|stage| stage.state != StageState::Waiting)
        });
        if left.is_empty() {
            return invalid_argument("no stage is under way; it waits for the job's end");
        }
        let begun = Instant::now();
        let mut heard = begun;
        let mut refused: Option<(StageId, Refused)> = None;
        loop {
            let numbers: Vec<StageId> = left.iter().copied().collect();
            match self.stages_by_id(&numbers) {
                Ok(stages) => {
                    heard = Instant::now();
                    let known: BTreeSet<StageId> = stages.iter().map(|stage| stage.id).collect();
                    if left.iter().any(|id| !known.contains(id)) {
                        // Its job has ended, and another one has its id.
                        let reason = "the job has ended meanwhile".to_owned();
                        return Err(Refused(ECANCELED, reason));
                    }
                    for stage in &stages {
                        if is_active(&stage.state) || stage.state == StageState::Waiting {
                            continue;
                        }
                        left.remove(&stage.id);
                        let first = refused.as_ref().is_none_or(|(id, _)| stage.id < *id);
                        if let (Some(why), true) = (why(stage), first) {
                            refused = Some((stage.id, why));
                        }
                    }
                }
                // It may be starting again.
                Err(Refused(Errno::ETIMEDOUT, _)) if heard.elapsed() < PATIENCE => {}
                Err(other) => return Err(other),
            }
            if left.is_empty() {
                return refused.map_or(Ok(StagingReply::Done), |(_, why)| Err(why));
            }
            std::thread::sleep((begun.elapsed() / 8).clamp(PAUSES.0, PAUSES.1));
        }
    }

    pub(super) fn stripes(&self, path: &str, inode: u64) -> Result<StagingReply, Refused> {
        let spot = self.instance_path(path)?;
        let space = self.roots.get(spot.root).map(|root| &root.space);
        let stripes = self.stripes.iter();
        let found = stripes
            .filter(|(of, _)| Some(of) == space)
            .find_map(|(_, stripes)| Layout::new(stripes.nodes, stripes.size));
        let Some(layout) = found else {
            return invalid_argument(format!("{path}: there is no such instance any more"));
        };
        Ok(StagingReply::Stripes {
            size: layout.stripe_bytes(),
            width: layout.nodes().into(),
            start: u32::from(layout.node_of_stripe(Ino(inode), 0).0),
        })
    }

    pub(super) fn failures(&self, path: &str) -> Result<StagingReply, Refused> {
        let top = self.instance_path(path)?;
        let (stages, ledger) = self.stages_about(std::slice::from_ref(&top))?;
        let stages = by_stage(&stages);
        let above = ledger.above(&top).into_iter();
        let mut failures = BTreeSet::new();
        for (spot, entry) in ledger.within(&top).chain(above) {
            let stage = stages.get(&entry.stage);
            let failed = |stage: &&&RequestedStage| matches!(stage.state, StageState::Failed(_));
            let Some(stage) = stage.filter(failed) else {
                continue;
            };
            let unstaged = stage.failed_files.iter();
            let mut found: Vec<(InstancePath, i32)> = unstaged
                .map(|file| (self.inner(spot, entry, Path::new(&file.path)), file.errno))
                .collect();
            if found.is_empty() {
                found.push((spot.clone(), Errno::EIO.0));
            }
            failures.extend(found);
        }
        failures.retain(|(spot, _)| spot.is_within(&top));
        let shown = |spot: &InstancePath| {
            let root = self.roots.get(spot.root);
            format!("{}{}", root.map_or("", |root| &root.shown), spot.path)
        };
        let failures = failures.iter().map(|(spot, errno)| (shown(spot), *errno));
        Ok(StagingReply::Failures(failures.collect()))
    }

    /// The path in the instance of a file that a stage had a problem with, which the mover names by
    /// its source.
    fn inner(&self, spot: &InstancePath, entry: &Entry, problem: &Path) -> InstancePath {
        let source = if entry.out {
            let root = self.roots.get(spot.root);
            let shown = root
                .map_or(&InstanceRef::Job, |root| &root.space)
                .variable();
            Path::new(&shown).join(&spot.path)
        } else {
            PathBuf::from(&entry.pfs)
        };
        let below = problem.strip_prefix(&source).ok().and_then(Path::to_str);
        let path = match below {
            None | Some("") => spot.path.clone(),
            Some(below) if spot.path.is_empty() => below.to_owned(),
            Some(below) => format!("{}/{below}", spot.path),
        };
        InstancePath {
            root: spot.root,
            path,
        }
    }
}

/// Why a stage that is over did not succeed: the error number that says it best.
fn why(stage: &RequestedStage) -> Option<Refused> {
    match &stage.state {
        StageState::Failed(reason) => {
            let errno = stage
                .failed_files
                .first()
                .map_or(Errno::EIO.0, |file| file.errno);
            Some(Refused(Errno(errno), reason.clone()))
        }
        StageState::Cancelled => Some(Refused(ECANCELED, "it was stopped".to_owned())),
        _ => None,
    }
}
