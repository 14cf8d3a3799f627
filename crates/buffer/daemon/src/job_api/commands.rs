//! Calls that change something: stages begun, put off, taken up and stopped.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::PoisonError;

use forebay_job_script::{BufferPath, Direction, Stage, StageKind, StagePath};
use forebay_protocol::Errno;
use forebay_protocol::staging::{PathKind, PathPair, StageOutTime, StagingReply};

use super::service::{JobContext, PATH, Refused, invalid_argument, wait_for_outcome};
use super::stage_index::{InstancePath, by_stage, is_active};
use forebay_control::controller::{self, Failure, Outcome, Request, StageState};
use forebay_control::messages::StageId;

/// Requests under way at a time: a controller takes some hundred of one connection.
const WINDOW: usize = 64;

impl JobContext<'_> {
    /// Asks all of these, some at a time; the answers in the same order.
    fn ask_all(&self, requests: Vec<Request>) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        loop {
            let window: Vec<Request> = requests.by_ref().take(WINDOW).collect();
            if window.is_empty() {
                return Ok(outcomes);
            }
            let begun: Result<Vec<_>, Failure> = window
                .into_iter()
                .map(|request| self.service.control.submit(request))
                .collect();
            outcomes.extend(begun?.iter().map(wait_for_outcome));
        }
    }

    /// Checks a path of the parallel file system.
    fn outside(&self, path: String) -> Result<String, Refused> {
        if path.len() > PATH {
            let reason = format!("a path has at most {PATH} bytes");
            return Err(Refused(Errno::ENAMETOOLONG, reason));
        }
        let plain = |c| matches!(c, Component::RootDir | Component::Normal(_));
        if !Path::new(&path).is_absolute() || !Path::new(&path).components().all(plain) {
            return invalid_argument(format!("{path}: is not an absolute path without `..`"));
        }
        if Path::new(&path).starts_with(&self.service.mounts) {
            return invalid_argument(format!(
                "{path}: is in an instance, not on the parallel file system"
            ));
        }
        Ok(path)
    }

    fn stage(
        &self,
        kind: PathKind,
        direction: Direction,
        spot: &InstancePath,
        pfs: &str,
    ) -> Option<Stage> {
        let inside = StagePath::Buffer(BufferPath {
            instance: self.roots.get(spot.root)?.space.clone(),
            path: spot.path.clone(),
        });
        let pfs = StagePath::Pfs(pfs.to_owned());
        let (source, destination) = match direction {
            Direction::In => (pfs, inside),
            Direction::Out => (inside, pfs),
        };
        let kind = match kind {
            PathKind::File => StageKind::File,
            PathKind::Directory => StageKind::Directory,
        };
        Some(Stage {
            direction,
            kind,
            source,
            destination,
            line: 0,
        })
    }

    pub(super) fn begin(
        &self,
        kind: PathKind,
        pairs: Vec<PathPair>,
        direction: Direction,
        when: StageOutTime,
    ) -> Result<StagingReply, Refused> {
        if pairs.is_empty() {
            return invalid_argument("the list is empty");
        }
        let mut wanted = Vec::new();
        let (mut spots, mut targets) = (BTreeSet::new(), BTreeSet::new());
        for pair in pairs {
            let (spot, pfs) = (self.instance_path(&pair.instance)?, self.outside(pair.pfs)?);
            if kind == PathKind::File && spot.path.is_empty() {
                return Err(Refused(Errno::EISDIR, "names no file".to_owned()));
            }
            let twice = !spots.insert(spot.clone())
                || (direction == Direction::Out && !targets.insert(pfs.clone()));
            if twice {
                return invalid_argument(format!("{pfs}: is in the list twice"));
            }
            wanted.push((spot, pfs));
        }
        let beginning = self.service.beginning.lock();
        let _beginning = beginning.unwrap_or_else(PoisonError::into_inner);
        let spots: Vec<InstancePath> = spots.into_iter().collect();
        let (stages, ledger) = self.stages_about(&spots)?;
        let reports = by_stage(&stages);
        let mut asked = Vec::new();
        for (spot, pfs) in wanted {
            if let Some(entry) = ledger.get(&spot) {
                let state = reports.get(&entry.stage).map(|report| &report.state);
                let same = when == StageOutTime::JobEnd && entry.pfs == pfs && entry.kind == kind;
                match state {
                    Some(StageState::Waiting) if same => continue,
                    Some(StageState::Waiting) => {
                        return Err(busy(&spot, "waits for the job's end; revoke that first"));
                    }
                    Some(state) if is_active(state) => {
                        return Err(busy(&spot, "is being staged already"));
                    }
                    _ => {}
                }
            }
            let Some(what) = self.stage(kind, direction, &spot, &pfs) else {
                return invalid_argument("there is no such instance");
            };
            let token = self.service.token.clone();
            asked.push(match when {
                StageOutTime::Now => Request::BeginStage { token, what },
                StageOutTime::JobEnd => Request::DeferStage { token, what },
            });
        }
        // Many are asked for before any answer is waited for: each becomes durable on the way.
        let (mut stages, mut refused) = (Vec::new(), None);
        for outcome in self.ask_all(asked)? {
            match outcome {
                Ok(controller::Answer::Stage(stage)) => stages.push(stage),
                Ok(_) => {}
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
        match refused {
            None => Ok(StagingReply::Done),
            Some(failure) => {
                // All or nothing.
                self.cancel(&stages)?;
                Err(failure.into())
            }
        }
    }

    /// Stops stages and waits until they have stopped.
    fn cancel(&self, stages: &[StageId]) -> Result<(), Refused> {
        let requests = stages.iter().copied();
        let requests = requests.map(|stage| Request::CancelStage { stage });
        for outcome in self.ask_all(requests.collect())? {
            outcome?;
        }
        Ok(())
    }

    /// The stages at these paths themselves that are in a state.
    fn own(
        &self,
        kind: PathKind,
        paths: &[String],
        wanted: impl Fn(&StageState) -> bool,
        none: &str,
    ) -> Result<Vec<StageId>, Refused> {
        let spots = self.spots(paths)?;
        let (stages, ledger) = self.stages_about(&spots)?;
        let stages = by_stage(&stages);
        let wanted = |id: &StageId| stages.get(id).is_some_and(|stage| wanted(&stage.state));
        let mut found = Vec::new();
        for (spot, path) in spots.iter().zip(paths) {
            let mut own = ledger.stages_at(kind, spot);
            own.retain(wanted);
            if own.is_empty() {
                return invalid_argument(format!("{path}: {none}"));
            }
            found.extend(own);
        }
        Ok(found)
    }

    pub(super) fn revoke(&self, kind: PathKind, paths: &[String]) -> Result<StagingReply, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        let stages = self.own(kind, paths, deferred, "no stage waits for the job's end")?;
        self.cancel(&stages)?;
        Ok(StagingReply::Done)
    }

    pub(super) fn activate(
        &self,
        kind: PathKind,
        paths: &[String],
    ) -> Result<StagingReply, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        let stages = self.own(kind, paths, deferred, "no stage waits for the job's end")?;
        let requests = stages
            .into_iter()
            .map(|stage| Request::ReleaseStage { stage });
        for outcome in self.ask_all(requests.collect())? {
            outcome?;
        }
        Ok(StagingReply::Done)
    }

    pub(super) fn terminate(
        &self,
        kind: PathKind,
        paths: &[String],
    ) -> Result<StagingReply, Refused> {
        let stoppable = |state: &StageState| {
            is_active(state) || matches!(state, StageState::Waiting | StageState::Failed(_))
        };
        let stages = self.own(kind, paths, stoppable, "no stage is under way")?;
        // One that is done before it can be stopped is remembered as that.
        self.cancel(&stages)?;
        Ok(StagingReply::Done)
    }

    pub(super) fn limit(&self, path: &str, most: u32) -> Result<StagingReply, Refused> {
        let spot = self.instance_path(path)?;
        let Some(root) = self.roots.get(spot.root) else {
            return invalid_argument("there is no such instance");
        };
        let answer = self.service.control.submit(Request::LimitStages {
            token: self.service.token.clone(),
            instance: root.space.clone(),
            max_concurrent: most,
        })?;
        wait_for_outcome(&answer)?;
        Ok(StagingReply::Done)
    }
}

fn busy(spot: &InstancePath, what: &str) -> Refused {
    Refused(Errno::EBUSY, format!("{}: {what}", spot.path))
}
