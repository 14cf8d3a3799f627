//! One stage of a storage node, carried out by the mover of `forebay-stage`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_client::Fs;
use forebay_control::messages::{
    CopySource, FailedFile, InstanceId, Owner, SharePlan, StageFailure, StagePlan,
};
use forebay_control::storage_node::MoverOutcome;
use forebay_job_script::{AccessMode, Direction, InstanceRef, StageKind, StagePath, parse_list};
use forebay_protocol::{Credentials, Errno};
use forebay_stage::end::{FileSystem, LocalFileSystem};
use forebay_stage::{
    Identity, ItemKind, Problem, ProgressCounters, Share, ShareBarrier, StageError, StageItem,
    StageLocation, StageOptions, StageReport, StageRequest, Verify, apply_logs,
};

use super::copy_instance::copy_instance;
use crate::mounts::{Mounts, STRIPED_DIRECTORY};

/// Maximum size of a list of files.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The way in which the contents of a stage are verified.
pub fn verify_mode(plan: &StagePlan) -> Verify {
    match plan.read_back {
        true => Verify::ReadBack,
        false => Verify::Checksum,
    }
}

/// The attached instances of a stage.
pub struct AttachedInstances {
    /// The instance that is written or read.
    pub instance: Fs,
    /// The instance that is copied there, in an evacuation.
    pub copy_of: Option<(InstanceId, Fs)>,
}

impl AttachedInstances {
    /// Attaches the instances of a stage. `addresses` are those of the storage daemons of
    /// `plan.instance`. Blocks until all nodes of both can be reached.
    pub fn attach(
        plan: &StagePlan,
        mounts: &Mounts,
        addresses: &[String],
    ) -> Result<AttachedInstances, String> {
        let (mode, owner) = (AccessMode::Striped, plan.instance_owner);
        let instance = mounts.attach_instance(plan.instance, mode, owner, addresses, None)?;
        let copy_of = match &plan.copy_of {
            Some(CopySource { instance, addresses }) => {
                Some((*instance, mounts.open_source(*instance, addresses)?))
            }
            None => None,
        };
        Ok(AttachedInstances { instance, copy_of })
    }
}

/// The share of a mover that waits at `barrier`, if several movers share the stage.
pub fn share_of(plan: &StagePlan, barrier: Arc<dyn ShareBarrier>) -> Option<Share> {
    let SharePlan { index, count, key } = plan.share?;
    Some(Share { index, count, key, barrier })
}

/// Carries out a stage into or out of an attached instance, or copies a whole instance. `pfs` replaces
/// the parallel file system in simulations. Blocks until the stage is over.
pub fn run_stage(
    plan: &StagePlan,
    attached: AttachedInstances,
    pfs: Option<&Arc<dyn FileSystem>>,
    options: &StageOptions,
    counters: &ProgressCounters,
) -> MoverOutcome {
    let progress = || counters.snapshot();
    let fail = |reason: String, problems: Vec<Problem>| {
        let files = problems.into_iter().map(|problem| FailedFile {
            path: problem.path.to_string_lossy().into_owned(),
            errno: problem.code,
        });
        MoverOutcome::Failed(StageFailure::new(reason, files, progress()))
    };
    if plan.share.is_some_and(|share| share.index >= share.count) {
        return fail("protocol error: there is no such share of the stage".to_owned(), Vec::new());
    }
    let AttachedInstances { instance, copy_of } = attached;
    let outcome = match copy_of {
        Some(source) => copy_instance(source, (plan.instance, instance), options, counters),
        None => match Ends::open(plan, instance, pfs) {
            Ok(ends) => ends.run(options, counters),
            Err(problem) => Err(StageError::Stopped(problem)),
        },
    };
    let error = match outcome {
        Ok(_) => return MoverOutcome::Completed(progress()),
        Err(error) => error,
    };
    let reason = error.to_string();
    match error {
        StageError::Cancelled | StageError::OtherShare => MoverOutcome::Stopped,
        StageError::Stopped(problem) => fail(reason, vec![problem]),
        StageError::Incomplete { problems, .. } => fail(reason, problems),
    }
}

/// Both ends of a stage, accessed with its owner's rights.
struct Ends<'a> {
    plan: &'a StagePlan,
    namespace: Arc<forebay_stage::Namespace>,
    /// The instance, as paths name it.
    instance: InstanceRef,
    pfs: Arc<dyn FileSystem>,
}

impl<'a> Ends<'a> {
    fn open(
        plan: &'a StagePlan,
        attached: Fs,
        pfs: Option<&Arc<dyn FileSystem>>,
    ) -> Result<Ends<'a>, Problem> {
        let Owner { uid, gid } = plan.owner;
        let identity = Identity::for_user(uid, gid).map_err(|error| Problem {
            path: PathBuf::from(plan.directive.pfs_path().unwrap_or_default()),
            reason: format!("the storage daemon cannot stage for the job's user: {error}"),
            code: Errno::EPERM.0,
        })?;
        let identity = identity.map(Arc::new);
        let fs = match identity {
            None => attached,
            Some(_) => attached.on_behalf_of(Credentials {
                uid,
                gid,
                groups: Some(Vec::new()),
                checked: false,
            }),
        };
        let instance = plan.instance_ref.as_ref().or(plan.directive.instance());
        let instance = instance.unwrap_or(&InstanceRef::Job).clone();
        let shown = instance.variable();
        let namespace = forebay_stage::Namespace::new(fs, Path::new(STRIPED_DIRECTORY), &shown);
        let namespace = namespace.map_err(|error| Problem {
            path: PathBuf::from(shown),
            reason: format!("cannot open the instance: {error}"),
            code: error.raw_os_error().unwrap_or(Errno::EIO.0),
        })?;
        let roots: Vec<PathBuf> = plan.pfs_roots.iter().map(PathBuf::from).collect();
        let pfs = pfs.cloned().unwrap_or_else(|| LocalFileSystem::open(&roots, identity));
        Ok(Ends { plan, namespace, instance, pfs })
    }

    fn pfs_location(&self, path: PathBuf) -> StageLocation {
        StageLocation::in_pfs(&self.pfs, path)
    }

    fn location(&self, path: &StagePath) -> StageLocation {
        match path {
            StagePath::Pfs(path) => self.pfs_location(PathBuf::from(path)),
            StagePath::Buffer(inside) => StageLocation::in_instance(&self.namespace, &inside.path),
        }
    }

    /// A file called `name` in the destination.
    fn in_destination(&self, name: &OsStr) -> StageLocation {
        match &self.plan.directive.destination {
            StagePath::Pfs(directory) => self.pfs_location(Path::new(directory).join(name)),
            StagePath::Buffer(directory) => {
                StageLocation::in_instance(&self.namespace, Path::new(&directory.path).join(name))
            }
        }
    }

    fn run(
        &self,
        options: &StageOptions,
        counters: &ProgressCounters,
    ) -> Result<StageReport, StageError> {
        let stage = &self.plan.directive;
        let request = match stage.kind {
            StageKind::File => self.one(ItemKind::File),
            StageKind::Directory => self.one(ItemKind::Directory),
            StageKind::List => self.list_request().map_err(StageError::Stopped)?,
            StageKind::Log => {
                let (logs, below) = (&stage.source, &stage.destination);
                let owner = self.plan.owner.uid;
                return apply_logs(&self.location(logs), &self.location(below), owner, counters);
            }
        };
        forebay_stage::run_stage(&request, options, counters)
    }

    /// A request to copy the source to the destination.
    fn one(&self, kind: ItemKind) -> StageRequest {
        let stage = &self.plan.directive;
        StageRequest {
            items: vec![StageItem {
                kind,
                source: self.location(&stage.source),
                target: self.location(&stage.destination),
            }],
        }
    }

    /// The items of a list, which is read from the source.
    fn list_request(&self) -> Result<StageRequest, Problem> {
        let stage = &self.plan.directive;
        let list = self.location(&stage.source);
        let invalid = |reason: String| Problem {
            path: list.display(),
            reason: format!("list: {reason}"),
            code: Errno::EINVAL.0,
        };
        let text = String::from_utf8(list.read(MAX_LIST_BYTES)?)
            .map_err(|_| invalid("it is not text in UTF-8".to_owned()))?;
        let entries = parse_list(&text).map_err(|errors| invalid(errors.to_string()))?;
        let mut request = StageRequest::default();
        let mut names = BTreeSet::new();
        for entry in entries {
            let path = match (&entry, stage.direction) {
                (StagePath::Pfs(path), Direction::In) => path,
                (StagePath::Buffer(inside), Direction::Out) => &inside.path,
                (StagePath::Buffer(_), Direction::In) => {
                    let reason = "a stage_in's list names paths of the parallel file system";
                    return Err(invalid(reason.to_owned()));
                }
                (StagePath::Pfs(_), Direction::Out) => {
                    let reason = "a stage_out's list names paths such as `$DW_JOB_STRIPED/name`";
                    return Err(invalid(reason.to_owned()));
                }
            };
            if let StagePath::Buffer(inside) = &entry
                && inside.instance != self.instance
            {
                let (wrong, right) = (inside.instance.variable(), self.instance.variable());
                return Err(invalid(format!(
                    "`{wrong}/{}` is not in `{right}`, which is staged here; for files of several \
                     instances write a list for each, and put it into that instance",
                    inside.path
                )));
            }
            let name = Path::new(path)
                .file_name()
                .ok_or_else(|| invalid(format!("`{path}` names no file")))?;
            if !names.insert(name.to_owned()) {
                let name = name.to_string_lossy();
                return Err(invalid(format!(
                    "two files are called `{name}`, but all go to one directory"
                )));
            }
            request.items.push(StageItem {
                kind: ItemKind::File,
                source: self.location(&entry),
                target: self.in_destination(name),
            });
        }
        Ok(request)
    }
}
