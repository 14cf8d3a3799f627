//! Answers to the calls of a job's processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_model::jobscript::{BufferPath, Direction, Space, Stage, StageKind, StagePath};
use forebay_wire::Errno;
use forebay_wire::staging::{Answer, Call, Kind, Pair, When};

use super::ledger::{Ledger, Spot, by_stage, is_active};
use crate::controller::{
    self, AskedStage, Cause, Failure, JobView, Outcome, Request, StageState, Stripes,
};
use crate::protocol::StageId;

/// Not in [`Errno`]: the job has ended.
const ENOTCONN: Errno = Errno(107);
/// Requests under way at a time: a controller takes some hundred of one connection.
const WINDOW: usize = 64;
/// Stages that are asked about at a time, and bytes of paths: a message to a controller has a limit.
const STAGES: usize = 1000;
const TEXT: usize = 128 << 10;
/// Longest path, in bytes (Linux's PATH_MAX without its terminating zero).
const PATH: usize = 4095;

/// The controller that keeps what a job has asked for.
pub(crate) trait Control: Send + Sync {
    /// Asks; the answer comes through the channel.
    fn begin(&self, request: Request) -> Result<Receiver<Outcome>, Failure>;
    /// A job as its own processes may know it.
    fn job(&self, token: &str) -> Result<JobView, Failure>;
    /// What a running job has asked to be staged, as the controller's `asked` says it.
    fn asked(
        &self,
        token: &str,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<AskedStage>, Failure>;
}

/// A name space of the job that can be staged.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// Its directory as the kernel names it.
    pub path: PathBuf,
    /// Its directory as the job knows it; ends with `/`.
    pub shown: String,
    pub space: Space,
}

/// Who answers the processes of one job on one host.
pub(crate) struct Service {
    control: Arc<dyn Control>,
    token: String,
    /// Where instances are mounted: no path of the parallel file system is there.
    mounts: PathBuf,
    /// Held while stages are looked up and then begun.
    beginning: Mutex<()>,
}

/// A job whose process makes a call.
pub(super) struct Job<'a> {
    service: &'a Service,
    pub(super) roots: Vec<Root>,
    pub(super) stripes: Vec<(Space, Stripes)>,
}

/// A call that is not carried out.
pub(crate) struct Refused(pub Errno, pub String);

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

impl From<Refused> for Answer {
    fn from(Refused(errno, reason): Refused) -> Answer {
        Answer::Refused(errno.0, reason)
    }
}

pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(Errno::EINVAL, reason.into()))
}

fn received(answer: &Receiver<Outcome>) -> Outcome {
    answer.recv().unwrap_or_else(|_| {
        Err(Failure::new(
            Cause::Failed,
            "the job has ended, and the service with it",
        ))
    })
}

impl Service {
    /// Answers for the job `token`, whose instances are mounted below `mounts`.
    pub fn new(control: Arc<dyn Control>, token: String, mounts: PathBuf) -> Service {
        Service {
            control,
            token,
            mounts,
            beginning: Mutex::default(),
        }
    }

    /// Carries out a call; those that wait return when there is nothing to wait for any more.
    pub fn answer(&self, call: Call) -> Answer {
        let outcome = self.job().and_then(|job| job.carry_out(call));
        outcome.unwrap_or_else(Answer::from)
    }

    /// The job has ended.
    fn ended(&self) -> Refused {
        Refused(ENOTCONN, format!("job {} is not running", self.token))
    }

    /// Why the controller says nothing of the job.
    fn unheard(&self, failure: Failure) -> Refused {
        match failure.cause {
            Cause::NotFound => self.ended(),
            _ => failure.into(),
        }
    }

    fn job(&self) -> Result<Job<'_>, Refused> {
        let view = self.control.job(&self.token);
        let view = view.map_err(|failure| self.unheard(failure))?;
        // At the job's end it is staged what was asked for before: nothing can be added to that.
        if !view.mounted {
            return Err(self.ended());
        }
        Ok(Job {
            service: self,
            roots: roots(&view.paths),
            stripes: view.stripes,
        })
    }
}

/// The name spaces that can be staged. A view is a symbolic link to where the kernel has it; only
/// the link is read, so that this process does not wait for its own mount.
fn roots(paths: &[(String, String)]) -> Vec<Root> {
    let root = |(name, value): &(String, String)| {
        let space = match name.strip_prefix("DW_PERSISTENT_STRIPED_") {
            Some(persistent) => Space::Persistent(persistent.to_owned()),
            None if name == "DW_JOB_STRIPED" => Space::Job,
            None => return None,
        };
        let link = Path::new(value.trim_end_matches('/'));
        Some(Root {
            path: fs::read_link(link).unwrap_or_else(|_| link.to_owned()),
            shown: value.clone(),
            space,
        })
    };
    paths.iter().filter_map(root).collect()
}

impl Job<'_> {
    fn carry_out(&self, call: Call) -> Result<Answer, Refused> {
        match call {
            Call::In(kind, pairs) => self.begin(kind, pairs, Direction::In, When::Now),
            Call::Out(kind, pairs, when) => self.begin(kind, pairs, Direction::Out, when),
            Call::Revoke(kind, paths) => self.revoke(kind, &paths),
            Call::Activate(kind, paths) => self.activate(kind, &paths),
            Call::Query(kind, paths) => self.query(kind, &paths),
            Call::Wait(kind, paths) => self.wait(kind, &paths),
            Call::Terminate(kind, paths) => self.terminate(kind, &paths),
            Call::Limit(path, most) => self.limit(&path, most),
            Call::Stripes(path, inode) => self.stripes(&path, inode),
            Call::Failures(path) => self.failures(&path),
        }
    }

    /// What was asked for that says something about these places: the stages, and by place.
    pub(super) fn asked(&self, spots: &[Spot]) -> Result<(Vec<AskedStage>, Ledger), Refused> {
        let inside = |spot: &Spot| {
            let space = self.roots.get(spot.root)?.space.clone();
            let path = spot.path.clone();
            Some(BufferPath { space, path })
        };
        let paths: Vec<BufferPath> = spots.iter().filter_map(inside).collect();
        let mut stages = Vec::new();
        let mut rest = paths.as_slice();
        while !rest.is_empty() {
            let mut text = 0;
            let fits = |path: &&BufferPath| {
                text += path.path.len();
                text <= TEXT
            };
            let count = rest.iter().take(STAGES).take_while(fits).count().max(1);
            let (some, more) = rest.split_at(count);
            stages.extend(self.tell(some, &[])?);
            rest = more;
        }
        stages.sort_by_key(|stage| stage.id);
        stages.dedup_by_key(|stage| stage.id);
        let ledger = Ledger::of(&stages, &self.roots);
        Ok((stages, ledger))
    }

    fn tell(&self, about: &[BufferPath], numbers: &[StageId]) -> Result<Vec<AskedStage>, Refused> {
        let Service { control, token, .. } = self.service;
        let asked = control.asked(token, about, numbers);
        asked.map_err(|failure| self.service.unheard(failure))
    }

    /// How far these stages are; those that are not known any more are left out.
    pub(super) fn numbered(&self, numbers: &[StageId]) -> Result<Vec<AskedStage>, Refused> {
        let mut stages = Vec::new();
        for numbers in numbers.chunks(STAGES) {
            stages.extend(self.tell(&[], numbers)?);
        }
        Ok(stages)
    }

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
                .map(|request| self.service.control.begin(request))
                .collect();
            outcomes.extend(begun?.iter().map(received));
        }
    }

    /// Where a path is in the job's instances.
    pub(super) fn spot(&self, path: &str) -> Result<Spot, Refused> {
        if path.len() > PATH {
            let reason = format!("a path has at most {PATH} bytes");
            return Err(Refused(Errno::ENAMETOOLONG, reason));
        }
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
        if path.len() > PATH {
            let reason = format!("a path has at most {PATH} bytes");
            return Err(Refused(Errno::ENAMETOOLONG, reason));
        }
        let plain = |c| matches!(c, Component::RootDir | Component::Normal(_));
        if !Path::new(&path).is_absolute() || !Path::new(&path).components().all(plain) {
            return invalid(format!("{path}: is not an absolute path without `..`"));
        }
        if Path::new(&path).starts_with(&self.service.mounts) {
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
        let beginning = self.service.beginning.lock();
        let _beginning = beginning.unwrap_or_else(PoisonError::into_inner);
        let spots: Vec<Spot> = spots.into_iter().collect();
        let (stages, ledger) = self.asked(&spots)?;
        let reports = by_stage(&stages);
        let mut asked = Vec::new();
        for (spot, pfs) in wanted {
            if let Some(entry) = ledger.get(&spot) {
                let state = reports.get(&entry.stage).map(|report| &report.state);
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
            let token = self.service.token.clone();
            asked.push(match when {
                When::Now => Request::Stage { token, what },
                When::JobEnd => Request::Defer { token, what },
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
            None => Ok(Answer::Done),
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
        kind: Kind,
        paths: &[String],
        wanted: impl Fn(&StageState) -> bool,
        none: &str,
    ) -> Result<Vec<StageId>, Refused> {
        let spots = self.spots(paths)?;
        let (stages, ledger) = self.asked(&spots)?;
        let stages = by_stage(&stages);
        let wanted = |id: &StageId| stages.get(id).is_some_and(|stage| wanted(&stage.state));
        let mut found = Vec::new();
        for (spot, path) in spots.iter().zip(paths) {
            let mut own = ledger.own(kind, spot);
            own.retain(wanted);
            if own.is_empty() {
                return invalid(format!("{path}: {none}"));
            }
            found.extend(own);
        }
        Ok(found)
    }

    fn revoke(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        let stages = self.own(kind, paths, deferred, "no stage waits for the job's end")?;
        self.cancel(&stages)?;
        Ok(Answer::Done)
    }

    fn activate(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let deferred = |state: &StageState| *state == StageState::Waiting;
        let stages = self.own(kind, paths, deferred, "no stage waits for the job's end")?;
        let requests = stages.into_iter().map(|stage| Request::Release { stage });
        for outcome in self.ask_all(requests.collect())? {
            outcome?;
        }
        Ok(Answer::Done)
    }

    fn terminate(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let stoppable = |state: &StageState| {
            is_active(state) || matches!(state, StageState::Waiting | StageState::Failed(_))
        };
        let stages = self.own(kind, paths, stoppable, "no stage is under way")?;
        // One that is done before it can be stopped is remembered as that.
        self.cancel(&stages)?;
        Ok(Answer::Done)
    }

    fn limit(&self, path: &str, most: u32) -> Result<Answer, Refused> {
        let spot = self.spot(path)?;
        let Some(root) = self.roots.get(spot.root) else {
            return invalid("there is no such instance");
        };
        let answer = self.service.control.begin(Request::LimitStages {
            token: self.service.token.clone(),
            space: root.space.clone(),
            most,
        })?;
        received(&answer)?;
        Ok(Answer::Done)
    }
}

fn busy(spot: &Spot, what: &str) -> Refused {
    Refused(Errno::EBUSY, format!("{}: {what}", spot.path))
}
