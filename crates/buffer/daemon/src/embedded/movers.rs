//! Stages under way: each a thread with the mover of `forebay-stage`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use forebay_client::Fs;
use forebay_job_script::{Direction, InstanceRef, StageKind, StagePath, parse_list};
use forebay_protocol::Credentials;
use forebay_stage::end::{ConfinedFileSystem, FileSystem};
use forebay_stage::{
    Identity, ItemKind, Phase, Problem, StageError, StageItem, StageLocation, StageOptions,
    StageRequest, Verify,
};

use super::Event;
use crate::activity::StageTotals;
use crate::mounts::STRIPED_DIRECTORY;
use forebay_control::messages::{
    FailedFile, Owner, StageFailure, StageId, StagePlan, StageProgress,
};
use forebay_control::storage_node::{MoverOutcome, StorageInput};

/// Largest list of files, in bytes.
const MAX_LIST: u64 = 64 << 20;

struct Copy {
    attempt: u32,
    direction: Direction,
    progress: Arc<forebay_stage::ProgressCounters>,
    thread: JoinHandle<()>,
}

/// The stages of one process.
pub(super) struct Movers {
    journals: PathBuf,
    running: BTreeMap<StageId, Copy>,
    /// What those that have ended did, in and out.
    ended: (StageTotals, StageTotals),
}

impl Movers {
    pub fn new(journals: PathBuf) -> Movers {
        Movers {
            journals,
            running: BTreeMap::new(),
            ended: Default::default(),
        }
    }

    /// Begins a stage of the instance that `attached` is.
    pub fn begin(
        &mut self,
        plan: StagePlan,
        attached: Fs,
        events: Sender<Event>,
    ) -> Result<(), String> {
        let counters = Arc::new(forebay_stage::ProgressCounters::new());
        let (id, attempt) = (plan.stage, plan.attempt);
        let (instance, direction) = (plan.instance, plan.directive.direction);
        let journal = self.journal(id);
        let shared = counters.clone();
        let thread = std::thread::Builder::new().name(format!("forebay-stage-{}", id.0));
        let thread = thread.spawn(move || {
            let way = match direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            let line = plan.directive.line;
            let span =
                tracing::error_span!("stage", stage = id.0, instance = instance.0, way, line);
            let _entered = span.entered();
            tracing::info!(attempt, "a stage begins");
            let options = StageOptions {
                journal: Some(journal),
                verify: verify_mode(&plan),
                ..StageOptions::default()
            };
            let outcome = run_stage(&plan, attached, None, &options, &shared);
            tell(&outcome);
            // The driver outlives its stages; if it has ended, nobody asks any more.
            let _ = events.send(Event::Node(StorageInput::MoverEnded(id, attempt, outcome)));
        });
        let thread = thread.map_err(|e| format!("no thread can be made: {e}"))?;
        let copy = Copy {
            attempt,
            direction,
            progress: counters,
            thread,
        };
        self.running.insert(id, copy);
        Ok(())
    }

    fn journal(&self, stage: StageId) -> PathBuf {
        self.journals.join(format!("s{}", stage.0))
    }

    /// Asks a stage to stop.
    pub fn stop(&self, stage: StageId) {
        if let Some(copy) = self.running.get(&stage) {
            copy.progress.cancel();
        }
    }

    /// A stage's thread has said its last.
    pub fn ended(&mut self, stage: StageId, outcome: &MoverOutcome) {
        let Some(copy) = self.running.remove(&stage) else {
            return;
        };
        let ended = of(&mut self.ended, copy.direction);
        count(ended, &copy);
        match outcome {
            MoverOutcome::Completed(_) => ended.done += 1,
            _ => ended.failed += 1,
        }
        let _ = copy.thread.join();
    }

    /// What stages have done, in and out.
    pub fn totals(&self) -> (StageTotals, StageTotals) {
        let mut totals = self.ended;
        for copy in self.running.values() {
            let total = of(&mut totals, copy.direction);
            total.running += 1;
            count(total, copy);
        }
        totals
    }

    /// A stage is done for good: its journal would make a later one of that number do nothing.
    pub fn forget(&self, stage: StageId) {
        let _ = std::fs::remove_file(self.journal(stage));
    }

    /// Removes the journals of stages that will not go on: those of torn down jobs, for instance.
    pub fn sweep(&self, goes_on: impl Fn(StageId) -> bool) {
        for entry in std::fs::read_dir(&self.journals).into_iter().flatten() {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('s'));
            let stage = number.and_then(|number| number.parse().ok()).map(StageId);
            // What has another name is a journal that was just being begun.
            if !stage.is_some_and(&goes_on) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// How far all of them are.
    pub fn progress(&self) -> Vec<StorageInput> {
        let of = |(id, copy): (&StageId, &Copy)| {
            StorageInput::MoverProgress(*id, copy.attempt, mover_progress(&copy.progress))
        };
        self.running.iter().map(of).collect()
    }

    /// Stops all of them and waits.
    pub fn stop_all(&mut self) {
        for copy in self.running.values() {
            copy.progress.cancel();
        }
        for (_, copy) in std::mem::take(&mut self.running) {
            let _ = copy.thread.join();
        }
    }
}

fn of(totals: &mut (StageTotals, StageTotals), direction: Direction) -> &mut StageTotals {
    match direction {
        Direction::In => &mut totals.0,
        Direction::Out => &mut totals.1,
    }
}

fn count(total: &mut StageTotals, copy: &Copy) {
    let now = mover_progress(&copy.progress);
    total.files += now.copied.files;
    total.bytes += now.copied.bytes;
    total.read_back += now.read_back.bytes;
    total.times = total.times.plus(&now.times);
}

fn tell(outcome: &MoverOutcome) {
    match outcome {
        MoverOutcome::Completed(moved) => {
            let seconds = |phase| moved.times.of(phase).as_secs_f64();
            tracing::info!(
                files = moved.copied.files,
                bytes = moved.copied.bytes,
                read_back = moved.read_back.bytes,
                copying = seconds(Phase::Copying),
                syncing = seconds(Phase::Syncing),
                reading_back = seconds(Phase::ReadingBack),
                finishing = seconds(Phase::Finishing),
                "a stage is done"
            );
        }
        MoverOutcome::Stopped => tracing::info!("a stage was stopped"),
        MoverOutcome::Failed(trouble) => tracing::warn!(trouble.reason, "a stage failed"),
    }
}

/// What a mover has done so far, as it is reported.
pub fn mover_progress(counters: &forebay_stage::ProgressCounters) -> StageProgress {
    counters.snapshot().into()
}

/// How the contents of a stage are checked.
pub fn verify_mode(plan: &StagePlan) -> Verify {
    match plan.read_back {
        true => Verify::ReadBack,
        false => Verify::Checksum,
    }
}

/// Carries out a stage of the instance that `attached` is; `outside` takes the place of the parallel
/// file system if there is one. Blocks until it is done or in vain.
pub fn run_stage(
    plan: &StagePlan,
    attached: Fs,
    outside: Option<&Arc<dyn FileSystem>>,
    options: &StageOptions,
    counters: &forebay_stage::ProgressCounters,
) -> MoverOutcome {
    let trouble = |reason: String, problems: Vec<Problem>| {
        let unstaged = problems.into_iter().map(|problem| FailedFile {
            path: problem.path.to_string_lossy().into_owned(),
            errno: problem.code,
        });
        MoverOutcome::Failed(StageFailure::new(
            reason,
            unstaged,
            mover_progress(counters),
        ))
    };
    let failed = |problem: Problem| trouble(problem.to_string(), vec![problem]);
    let request = match Ends::new(plan, attached, outside).and_then(|ends| ends.request()) {
        Ok(request) => request,
        Err(problem) => return failed(problem),
    };
    match forebay_stage::run_stage(&request, options, counters) {
        Ok(_) => MoverOutcome::Completed(mover_progress(counters)),
        Err(StageError::Cancelled) => MoverOutcome::Stopped,
        Err(StageError::Stopped(problem)) => failed(problem),
        Err(error) => {
            let text = error.to_string();
            let problems = match error {
                StageError::Incomplete { problems, .. } => problems,
                _ => Vec::new(),
            };
            trouble(text, problems)
        }
    }
}

/// The two ends of a stage, both reached with its owner's rights.
struct Ends<'a> {
    plan: &'a StagePlan,
    space: Arc<forebay_stage::Namespace>,
    /// How paths name the instance.
    named: InstanceRef,
    who: Option<Arc<Identity>>,
    outside: Option<Arc<dyn FileSystem>>,
}

impl<'a> Ends<'a> {
    fn new(
        plan: &'a StagePlan,
        attached: Fs,
        outside: Option<&Arc<dyn FileSystem>>,
    ) -> Result<Ends<'a>, Problem> {
        let Owner { uid, gid } = plan.owner;
        let who = Identity::for_user(uid, gid).map(Arc::new);
        let fs = match who {
            None => attached,
            Some(_) => attached.on_behalf_of(Credentials {
                uid,
                gid,
                groups: Some(Vec::new()),
                checked: false,
            }),
        };
        let named = plan.instance_ref.as_ref().or(plan.directive.instance());
        let named = named.unwrap_or(&InstanceRef::Job).clone();
        let shown = named.variable();
        let space = forebay_stage::Namespace::new(fs, Path::new(STRIPED_DIRECTORY), &shown);
        let space = space.map_err(|error| Problem {
            path: PathBuf::from(shown),
            reason: format!("the instance cannot be opened: {error}"),
            code: error
                .raw_os_error()
                .unwrap_or(forebay_protocol::Errno::EIO.0),
        })?;
        let below: Vec<PathBuf> = plan.pfs_roots.iter().map(PathBuf::from).collect();
        let outside = match outside {
            Some(outside) => Some(outside.clone()),
            None if below.is_empty() => None,
            None => Some(ConfinedFileSystem::open(&below, who.clone())),
        };
        Ok(Ends {
            plan,
            space,
            named,
            who,
            outside,
        })
    }

    fn outside(&self, path: PathBuf) -> StageLocation {
        match &self.outside {
            Some(outside) => StageLocation::on_file_system(outside, path),
            None => StageLocation::pfs_as(path, self.who.clone()),
        }
    }

    fn place(&self, path: &StagePath) -> StageLocation {
        match path {
            StagePath::Pfs(path) => self.outside(PathBuf::from(path)),
            StagePath::Buffer(inside) => StageLocation::in_instance(&self.space, &inside.path),
        }
    }

    /// The place of a file called `name` in the destination.
    fn below_destination(&self, name: &std::ffi::OsStr) -> StageLocation {
        match &self.plan.directive.destination {
            StagePath::Pfs(directory) => self.outside(Path::new(directory).join(name)),
            StagePath::Buffer(directory) => {
                StageLocation::in_instance(&self.space, Path::new(&directory.path).join(name))
            }
        }
    }

    /// What the mover is to copy.
    fn request(&self) -> Result<StageRequest, Problem> {
        let stage = &self.plan.directive;
        let one = |kind| StageRequest {
            items: vec![StageItem {
                kind,
                source: self.place(&stage.source),
                target: self.place(&stage.destination),
            }],
        };
        match stage.kind {
            StageKind::File => Ok(one(ItemKind::File)),
            StageKind::Directory => Ok(one(ItemKind::Directory)),
            StageKind::List => self.list(),
        }
    }

    fn list(&self) -> Result<StageRequest, Problem> {
        let stage = &self.plan.directive;
        let place = self.place(&stage.source);
        let told = |reason: String| Problem {
            path: place.display(),
            reason: format!("list: {reason}"),
            code: forebay_protocol::Errno::EINVAL.0,
        };
        let text = String::from_utf8(place.read(MAX_LIST)?)
            .map_err(|_| told("it is not text in UTF-8".to_owned()))?;
        let entries = parse_list(&text).map_err(|errors| told(errors.to_string()))?;
        let mut request = StageRequest::default();
        let mut names = std::collections::BTreeSet::new();
        for entry in entries {
            let path = match (&entry, stage.direction) {
                (StagePath::Pfs(path), Direction::In) => path,
                (StagePath::Buffer(inside), Direction::Out) => &inside.path,
                (StagePath::Buffer(_), Direction::In) => {
                    let reason = "a stage_in's list names paths of the parallel file system";
                    return Err(told(reason.to_owned()));
                }
                (StagePath::Pfs(_), Direction::Out) => {
                    let reason = "a stage_out's list names paths such as `$DW_JOB_STRIPED/name`";
                    return Err(told(reason.to_owned()));
                }
            };
            if let StagePath::Buffer(inside) = &entry
                && inside.instance != self.named
            {
                let (wrong, right) = (inside.instance.variable(), self.named.variable());
                return Err(told(format!(
                    "`{wrong}/{}` is not in `{right}`, which is staged here; for files of several \
                     instances write a list for each, and put it into that instance",
                    inside.path
                )));
            }
            let name = Path::new(path)
                .file_name()
                .ok_or_else(|| told(format!("`{path}` names no file")))?;
            if !names.insert(name.to_owned()) {
                let name = name.to_string_lossy();
                return Err(told(format!(
                    "two files are called `{name}`, but all go to one directory"
                )));
            }
            request.items.push(StageItem {
                kind: ItemKind::File,
                source: self.place(&entry),
                target: self.below_destination(name),
            });
        }
        Ok(request)
    }
}
