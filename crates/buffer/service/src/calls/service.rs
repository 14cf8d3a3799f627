//! Answers to the calls of a job's processes.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_model::jobscript::{BufferPath, Direction, Space, Stage, StageKind, StagePath};
use forebay_wire::Errno;
use forebay_wire::staging::{Answer, Call, Kind, Pair, When};

use super::ledger::{Entry, Ledger, Spot, by_stage, is_active};
use crate::controller::{self, Cause, Failure, Outcome, Request, StageState};
use crate::embedded::Asker;
use crate::protocol::StageId;

/// A name space of the job that can be staged.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// Its directory as the kernel names it.
    pub path: PathBuf,
    /// Its directory as the job knows it; ends with `/`.
    pub shown: String,
    pub space: Space,
}

/// Who answers.
pub(super) struct Service {
    pub(super) asker: Asker,
    pub(super) token: String,
    pub(super) roots: Vec<Root>,
    /// Where instances are mounted: no path of the parallel file system is there.
    mounts: PathBuf,
    ledger: Mutex<Ledger>,
}

/// A call that is not carried out.
pub(super) struct Refused(pub Errno, pub String);

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        let errno = match failure.cause {
            Cause::Denied => Errno::EACCES,
            Cause::NotFound => Errno::ENOENT,
            Cause::Exists => Errno::EEXIST,
            Cause::Busy => Errno::EBUSY,
            Cause::Full => Errno::ENOSPC,
            Cause::Invalid => Errno::EINVAL,
            Cause::TimedOut => Errno::ETIMEDOUT,
            Cause::Failed => Errno::EIO,
        };
        Refused(errno, failure.reason)
    }
}

pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(Errno::EINVAL, reason.into()))
}

pub(super) fn received(answer: &Receiver<Outcome>) -> Outcome {
    answer.recv().unwrap_or_else(|_| {
        Err(Failure::new(
            Cause::Failed,
            "the job has ended, and the service with it",
        ))
    })
}

impl Service {
    pub fn new(asker: Asker, token: String, roots: Vec<Root>, mounts: PathBuf) -> Service {
        Service {
            asker,
            token,
            roots,
            mounts,
            ledger: Mutex::default(),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call; those that wait return when there is nothing to wait for any more.
    pub fn answer(&self, call: Call) -> Answer {
        let outcome = match call {
            Call::In(kind, pairs) => self.begin(kind, pairs, Direction::In, When::Now),
            Call::Out(kind, pairs, when) => self.begin(kind, pairs, Direction::Out, when),
            Call::Revoke(kind, paths) => self.revoke(kind, &paths),
            Call::Activate(kind, paths) => self.activate(kind, &paths),
            Call::Query(kind, paths) => self.query(kind, &paths),
            Call::Wait(kind, paths) => self.wait(kind, &paths),
            Call::Terminate(kind, paths) => self.terminate(kind, &paths),
            Call::Limit(path, most) => self.limit(&path, most),
            Call::Stripes(path) => self.stripes(&path),
            Call::Failures(path) => self.failures(&path),
        };
        outcome.unwrap_or_else(|Refused(errno, reason)| Answer::Refused(errno.0, reason))
    }

    /// Where a path is in the job's instances.
    pub(super) fn spot(&self, path: &str) -> Result<Spot, Refused> {
        for (index, root) in self.roots.iter().enumerate() {
            let Ok(rest) = Path::new(path).strip_prefix(&root.path) else {
                continue;
            };
            let mut names = Vec::new();
            for component in rest.components() {
                let Component::Normal(name) = component else {
                    return invalid(format!("{path}: leads out of the instance"));
                };
                names.push(name.to_string_lossy().into_owned());
            }
            return Ok(Spot {
                root: index,
                path: names.join("/"),
            });
        }
        invalid(format!(
            "{path}: is in no instance of the job that can be staged"
        ))
    }

    pub(super) fn spots(&self, paths: &[String]) -> Result<Vec<Spot>, Refused> {
        if paths.is_empty() {
            return invalid("the list is empty");
        }
        paths.iter().map(|path| self.spot(path)).collect()
    }

    /// Checks a path of the parallel file system.
    fn outside(&self, path: String) -> Result<String, Refused> {
        let plain = |c| matches!(c, Component::RootDir | Component::Normal(_));
        if !Path::new(&path).is_absolute() || !Path::new(&path).components().all(plain) {
            return invalid(format!("{path}: is not an absolute path without `..`"));
        }
        if Path::new(&path).starts_with(&self.mounts) {
            return invalid(format!(
                "{path}: is in an instance, not on the parallel file system"
            ));
        }
        Ok(path)
    }

    fn stage(&self, kind: Kind, direction: Direction, spot: &Spot, pfs: &str) -> Option<Stage> {
        let inside = StagePath::Buffer(BufferPath {
            space: self.roots.get(spot.root)?.space.clone(),
            path: spot.path.clone(),
        });
        let pfs = StagePath::Pfs(pfs.to_owned());
        let (source, destination) = match direction {
            Direction::In => (pfs, inside),
            Direction::Out => (inside, pfs),
        };
        let kind = match kind {
            Kind::File => StageKind::File,
            Kind::Directory => StageKind::Directory,
        };
        Some(Stage {
            direction,
            kind,
            source,
            destination,
            line: 0,
        })
    }

    fn begin(
        &self,
        kind: Kind,
        pairs: Vec<Pair>,
        direction: Direction,
        when: When,
    ) -> Result<Answer, Refused> {
        if pairs.is_empty() {
            return invalid("the list is empty");
        }
        let mut wanted = Vec::new();
        let (mut spots, mut targets) = (BTreeSet::new(), BTreeSet::new());
        for pair in pairs {
            let (spot, pfs) = (self.spot(&pair.inside)?, self.outside(pair.pfs)?);
            if kind == Kind::File && spot.path.is_empty() {
                return Err(Refused(Errno::EISDIR, "names no file".to_owned()));
            }
            let twice = !spots.insert(spot.clone())
                || (direction == Direction::Out && !targets.insert(pfs.clone()));
            if twice {
                return invalid(format!("{pfs}: is in the list twice"));
            }
            wanted.push((spot, pfs));
        }
        let mut ledger = self.ledger();
        let known: Vec<StageId> = wanted
            .iter()
            .filter_map(|(spot, _)| ledger.get(spot).map(|entry| entry.stage))
            .collect();
        let reports = self.asker.stages(known)?;
        let reports = by_stage(&reports);
        let mut asked = Vec::new();
        for (spot, pfs) in wanted {
            if let Some(entry) = ledger.get(&spot) {
                let state = reports.get(&entry.stage).map(|report| &report.status.state);
                let same = when == When::JobEnd && entry.pfs == pfs && entry.kind == kind;
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
                return invalid("there is no such instance");
            };
            asked.push((spot, pfs, what));
        }
        // All are asked for before any answer is waited for: each becomes durable on the way.
        let token = || self.token.clone();
        let mut begun = Vec::new();
        for (spot, pfs, what) in asked {
            let token = token();
            let answer = self.asker.begin(match when {
                When::Now => Request::Stage { token, what },
                When::JobEnd => Request::Defer { token, what },
            })?;
            begun.push((spot, pfs, answer));
        }
        let (mut stages, mut refused) = (Vec::new(), None);
        for (spot, pfs, answer) in begun {
            match received(&answer) {
                Ok(controller::Answer::Stage(stage)) => {
                    stages.push(stage);
                    let out = direction == Direction::Out;
                    let entry = Entry {
                        kind,
                        out,
                        pfs,
                        stage,
                    };
                    ledger.put(spot, entry);
                }
                Ok(_) => {}
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
        match refused {
            None => Ok(Answer::Done),
            Some(failure) => {
                // All or nothing.
                self.cancel(&stages)?;
                ledger.forget(&stages);
                Err(failure.into())
            }
        }
    }

    /// Stops stages and waits until they have stopped.
    fn cancel(&self, stages: &[StageId]) -> Result<(), Refused> {
        let asked: Result<Vec<_>, Failure> = stages
            .iter()
            .map(|stage| self.asker.begin(Request::CancelStage { stage: *stage }))
            .collect();
        for answer in asked? {
            received(&answer)?;
        }
        Ok(())
    }

    /// The stages at these paths themselves that are in a state.
    fn own(
        &self,
        kind: Kind,
        paths: &[String],
        wanted: impl Fn(&StageState) -> bool,
        none: &str,
    ) -> Result<Vec<StageId>, Refused> {
        let spots = self.spots(paths)?;
        let mut found = Vec::new();
        for (spot, path) in spots.iter().zip(paths) {
            let own = self.ledger().own(kind, spot);
            let mut reports = self.asker.stages(own)?;
            reports.retain(|report| wanted(&report.status.state));
            if reports.is_empty() {
                return invalid(format!("{path}: {none}"));
            }
            found.extend(reports.iter().map(|report| report.status.id));
        }
        Ok(found)
    }

    fn revoke(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        let stages = self.own(kind, paths, deferred, "no stage waits for the job's end")?;
        self.cancel(&stages)?;
        self.ledger().forget(&stages);
        Ok(Answer::Done)
    }

    fn activate(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        for stage in self.own(kind, paths, deferred, "no stage waits for the job's end")? {
            self.asker.ask(Request::Release { stage })?;
        }
        Ok(Answer::Done)
    }

    fn terminate(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let stoppable = |state: &StageState| {
            is_active(state) || matches!(state, StageState::Waiting | StageState::Failed(_))
        };
        let stages = self.own(kind, paths, stoppable, "no stage is under way")?;
        self.cancel(&stages)?;
        // One that was done before it could be stopped is remembered as that.
        let mut reports = self.asker.stages(stages)?;
        reports.retain(|report| report.status.state == StageState::Cancelled);
        let stopped: Vec<StageId> = reports.iter().map(|report| report.status.id).collect();
        self.ledger().forget(&stopped);
        Ok(Answer::Done)
    }

    fn limit(&self, path: &str, most: u32) -> Result<Answer, Refused> {
        let spot = self.spot(path)?;
        let Some(root) = self.roots.get(spot.root) else {
            return invalid("there is no such instance");
        };
        self.asker.ask(Request::LimitStages {
            token: self.token.clone(),
            space: root.space.clone(),
            most,
        })?;
        Ok(Answer::Done)
    }
}

fn busy(spot: &Spot, what: &str) -> Refused {
    Refused(Errno::EBUSY, format!("{}: {what}", spot.path))
}
