//! Stages under way: each a thread with the mover of `forebay-stage`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use forebay_model::jobscript::{Direction, StageKind, StagePath, read_list};
use forebay_stage::{Item, Options, Place, Request, StageError, What, stage};

use super::Event;
use crate::activity::Staged;
use crate::node::{Copied, Input};
use crate::protocol::{InstanceId, Progress, StageId, StagePlan};

struct Copy {
    attempt: u32,
    instance: InstanceId,
    direction: Direction,
    progress: Arc<forebay_stage::Progress>,
    thread: JoinHandle<()>,
}

/// The stages of one process.
pub(super) struct Copies {
    journals: PathBuf,
    running: BTreeMap<StageId, Copy>,
    /// What those that have ended did, in and out.
    ended: (Staged, Staged),
}

impl Copies {
    pub fn new(journals: PathBuf) -> Copies {
        Copies {
            journals,
            running: BTreeMap::new(),
            ended: Default::default(),
        }
    }

    /// Begins a stage; `root` is the instance's striped name space.
    pub fn begin(
        &mut self,
        plan: StagePlan,
        root: PathBuf,
        events: Sender<Event>,
    ) -> Result<(), String> {
        let progress = Arc::new(forebay_stage::Progress::new());
        let (id, attempt, instance) = (plan.stage, plan.attempt, plan.instance);
        let direction = plan.what.direction;
        let journal = self.journal(id);
        let shared = progress.clone();
        let thread = std::thread::Builder::new().name(format!("forebay-stage-{}", id.0));
        let thread = thread.spawn(move || {
            let way = match direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            let line = plan.what.line;
            let span =
                tracing::error_span!("stage", stage = id.0, instance = instance.0, way, line);
            let _entered = span.entered();
            tracing::info!(attempt, "a stage begins");
            let outcome = run(&plan, &root, &journal, &shared);
            tell(&outcome);
            // The driver outlives its stages; if it has ended, nobody asks any more.
            let _ = events.send(Event::Node(Input::Copied(id, attempt, outcome)));
        });
        let thread = thread.map_err(|e| format!("no thread can be made: {e}"))?;
        self.running.insert(
            id,
            Copy {
                attempt,
                instance,
                direction,
                progress,
                thread,
            },
        );
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

    /// A stage's thread has said its last; the instance that it used.
    pub fn ended(&mut self, stage: StageId, outcome: &Copied) -> Option<InstanceId> {
        let copy = self.running.remove(&stage)?;
        let ended = of(&mut self.ended, copy.direction);
        count(ended, &copy);
        match outcome {
            Copied::Whole(_) => ended.done += 1,
            _ => ended.failed += 1,
        }
        let _ = copy.thread.join();
        Some(copy.instance)
    }

    /// A stage is done for good: its journal would make a later one of that number do nothing.
    pub fn forget(&self, stage: StageId) {
        let _ = std::fs::remove_file(self.journal(stage));
    }

    /// How far all of them are.
    pub fn progress(&self) -> Vec<Input> {
        let of = |(id, copy): (&StageId, &Copy)| {
            Input::Copying(*id, copy.attempt, progress(&copy.progress))
        };
        self.running.iter().map(of).collect()
    }

    /// What stages have done, in and out.
    pub fn totals(&self) -> (Staged, Staged) {
        let mut totals = self.ended;
        for copy in self.running.values() {
            let total = of(&mut totals, copy.direction);
            total.running += 1;
            count(total, copy);
        }
        totals
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

fn of(totals: &mut (Staged, Staged), direction: Direction) -> &mut Staged {
    match direction {
        Direction::In => &mut totals.0,
        Direction::Out => &mut totals.1,
    }
}

fn count(total: &mut Staged, copy: &Copy) {
    let now = copy.progress.snapshot();
    total.files += now.files;
    total.bytes += now.bytes;
}

fn progress(counters: &forebay_stage::Progress) -> Progress {
    let now = counters.snapshot();
    Progress {
        files: now.files,
        files_total: now.files_total,
        bytes: now.bytes,
        bytes_total: now.bytes_total,
        all_found: now.walked,
    }
}

fn run(
    plan: &StagePlan,
    root: &Path,
    journal: &Path,
    counters: &forebay_stage::Progress,
) -> Copied {
    let request = match request(plan, root) {
        Ok(request) => request,
        Err(reason) => return Copied::Failed(reason),
    };
    let options = Options {
        journal: Some(journal.to_owned()),
        ..Options::default()
    };
    match stage(&request, &options, counters) {
        Ok(_) => Copied::Whole(progress(counters)),
        Err(StageError::Cancelled) => Copied::Stopped,
        Err(error) => Copied::Failed(error.to_string()),
    }
}

fn tell(outcome: &Copied) {
    match outcome {
        Copied::Whole(moved) => {
            tracing::info!(files = moved.files, bytes = moved.bytes, "a stage is done");
        }
        Copied::Stopped => tracing::info!("a stage was stopped"),
        Copied::Failed(reason) => tracing::warn!(reason, "a stage failed"),
    }
}

/// What the mover is to copy.
fn request(plan: &StagePlan, root: &Path) -> Result<Request, String> {
    let place = |path: &StagePath| match path {
        StagePath::Pfs(path) => Place::outside(path),
        StagePath::Buffer(inside) => Place::inside(root, &inside.path),
    };
    let stage = &plan.what;
    let one = |what| Request {
        items: vec![Item {
            what,
            source: place(&stage.source),
            target: place(&stage.destination),
        }],
    };
    match stage.kind {
        StageKind::File => Ok(one(What::File)),
        StageKind::Directory => Ok(one(What::Directory)),
        StageKind::List => list(plan, root),
    }
}

fn list(plan: &StagePlan, root: &Path) -> Result<Request, String> {
    let stage = &plan.what;
    let file = match &stage.source {
        StagePath::Pfs(path) => PathBuf::from(path),
        StagePath::Buffer(inside) => root.join(&inside.path),
    };
    let told = |reason: String| format!("list {}: {reason}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| told(e.to_string()))?;
    let entries = read_list(&text).map_err(|errors| told(errors.to_string()))?;
    let mut request = Request::default();
    let mut names = std::collections::BTreeSet::new();
    for entry in entries {
        let (source, path) = match (&entry, stage.direction) {
            (StagePath::Pfs(path), Direction::In) => (Place::outside(path), path),
            (StagePath::Buffer(inside), Direction::Out) => {
                (Place::inside(root, &inside.path), &inside.path)
            }
            (StagePath::Buffer(_), Direction::In) => {
                return Err(told(
                    "a stage_in's list names paths of the parallel file system".into(),
                ));
            }
            (StagePath::Pfs(_), Direction::Out) => {
                return Err(told(
                    "a stage_out's list names paths such as `$DW_JOB_STRIPED/name`".into(),
                ));
            }
        };
        if let (StagePath::Buffer(inside), Some(space)) = (&entry, stage.space()) {
            if inside.space != *space {
                return Err(told(
                    "its paths are in several instances; write a list for each".into(),
                ));
            }
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
        let target = match &stage.destination {
            StagePath::Pfs(directory) => Place::outside(Path::new(directory).join(name)),
            StagePath::Buffer(directory) => {
                Place::inside(root, Path::new(&directory.path).join(name))
            }
        };
        request.items.push(Item {
            what: What::File,
            source,
            target,
        });
    }
    Ok(request)
}
