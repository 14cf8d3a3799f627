//! Answers to the calls of a job's processes.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use forebay_job_script::{BufferPath, Direction, InstanceRef};
use forebay_protocol::Errno;
use forebay_protocol::staging::{StageOutTime, StagingCall, StagingReply};

use super::stage_index::{InstancePath, StageIndex};
use crate::controller_client::ControllerClient;
use forebay_control::controller::{Cause, Failure, Outcome, RequestedStage, Striping};
use forebay_control::messages::StageId;

/// Not in [`Errno`]: the job has ended.
const ENOTCONN: Errno = Errno(107);
/// Stages that are asked about at a time, and bytes of paths: a message to a controller has a limit.
const STAGES: usize = 1000;
const TEXT: usize = 128 << 10;
/// Longest path, in bytes (Linux's PATH_MAX without its terminating zero).
pub(super) const PATH: usize = 4095;

/// A name space of the job that can be staged.
#[derive(Clone, Debug)]
pub(super) struct InstanceRoot {
    /// Its directory as the kernel names it.
    pub path: PathBuf,
    /// Its directory as the job knows it; ends with `/`.
    pub shown: String,
    pub space: InstanceRef,
}

/// Who answers the processes of one job on one host.
pub(crate) struct JobService {
    pub(super) control: Arc<dyn ControllerClient>,
    pub(super) token: String,
    /// Where instances are mounted: no path of the parallel file system is there.
    pub(super) mounts: PathBuf,
    /// Held while stages are looked up and then begun.
    pub(super) beginning: Mutex<()>,
}

/// A job whose process makes a call.
pub(super) struct JobContext<'a> {
    pub(super) service: &'a JobService,
    pub(super) roots: Vec<InstanceRoot>,
    pub(super) stripes: Vec<(InstanceRef, Striping)>,
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

impl From<Refused> for StagingReply {
    fn from(Refused(errno, reason): Refused) -> StagingReply {
        StagingReply::Refused(errno.0, reason)
    }
}

pub(super) fn invalid_argument<T>(reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(Errno::EINVAL, reason.into()))
}

pub(super) fn wait_for_outcome(answer: &Receiver<Outcome>) -> Outcome {
    answer.recv().unwrap_or_else(|_| {
        Err(Failure::new(
            Cause::Failed,
            "the job has ended, and the service with it",
        ))
    })
}

impl JobService {
    /// Answers for the job `token`, whose instances are mounted below `mounts`.
    pub fn new(control: Arc<dyn ControllerClient>, token: String, mounts: PathBuf) -> JobService {
        JobService {
            control,
            token,
            mounts,
            beginning: Mutex::default(),
        }
    }

    /// Carries out a call; those that wait return when there is nothing to wait for any more.
    pub fn answer(&self, call: StagingCall) -> StagingReply {
        let outcome = self.job().and_then(|job| job.carry_out(call));
        outcome.unwrap_or_else(StagingReply::from)
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

    fn job(&self) -> Result<JobContext<'_>, Refused> {
        let view = self.control.job_view(&self.token);
        let view = view.map_err(|failure| self.unheard(failure))?;
        // At the job's end it is staged what was asked for before: nothing can be added to that.
        if !view.mounted {
            return Err(self.ended());
        }
        Ok(JobContext {
            service: self,
            roots: roots(&view.mount_variables),
            stripes: view.striping,
        })
    }
}

/// The name spaces that can be staged. A view is a symbolic link to where the kernel has it; only
/// the link is read, so that this process does not wait for its own mount.
fn roots(paths: &[(String, String)]) -> Vec<InstanceRoot> {
    let root = |(name, value): &(String, String)| {
        let space = match name.strip_prefix("DW_PERSISTENT_STRIPED_") {
            Some(persistent) => InstanceRef::Persistent(persistent.to_owned()),
            None if name == "DW_JOB_STRIPED" => InstanceRef::Job,
            None => return None,
        };
        let link = Path::new(value.trim_end_matches('/'));
        Some(InstanceRoot {
            path: fs::read_link(link).unwrap_or_else(|_| link.to_owned()),
            shown: value.clone(),
            space,
        })
    };
    paths.iter().filter_map(root).collect()
}

impl JobContext<'_> {
    fn carry_out(&self, call: StagingCall) -> Result<StagingReply, Refused> {
        match call {
            StagingCall::StageIn(kind, pairs) => {
                self.begin(kind, pairs, Direction::In, StageOutTime::Now)
            }
            StagingCall::StageOut(kind, pairs, when) => {
                self.begin(kind, pairs, Direction::Out, when)
            }
            StagingCall::Revoke(kind, paths) => self.revoke(kind, &paths),
            StagingCall::Activate(kind, paths) => self.activate(kind, &paths),
            StagingCall::Query(kind, paths) => self.query(kind, &paths),
            StagingCall::Wait(kind, paths) => self.wait(kind, &paths),
            StagingCall::Terminate(kind, paths) => self.terminate(kind, &paths),
            StagingCall::SetConcurrency(path, most) => self.limit(&path, most),
            StagingCall::QueryStripes(path, inode) => self.stripes(&path, inode),
            StagingCall::QueryFailures(path) => self.failures(&path),
        }
    }

    /// What was asked for that says something about these places: the stages, and by place.
    pub(super) fn stages_about(
        &self,
        spots: &[InstancePath],
    ) -> Result<(Vec<RequestedStage>, StageIndex), Refused> {
        let inside = |spot: &InstancePath| {
            let space = self.roots.get(spot.root)?.space.clone();
            let path = spot.path.clone();
            Some(BufferPath {
                instance: space,
                path,
            })
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
        let ledger = StageIndex::from_stages(&stages, &self.roots);
        Ok((stages, ledger))
    }

    fn tell(
        &self,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<RequestedStage>, Refused> {
        let JobService { control, token, .. } = self.service;
        let asked = control.requested_stages(token, about, numbers);
        asked.map_err(|failure| self.service.unheard(failure))
    }

    /// How far these stages are; those that are not known any more are left out.
    pub(super) fn stages_by_id(&self, numbers: &[StageId]) -> Result<Vec<RequestedStage>, Refused> {
        let mut stages = Vec::new();
        for numbers in numbers.chunks(STAGES) {
            stages.extend(self.tell(&[], numbers)?);
        }
        Ok(stages)
    }

    /// Where a path is in the job's instances.
    pub(super) fn instance_path(&self, path: &str) -> Result<InstancePath, Refused> {
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
                    return invalid_argument(format!("{path}: leads out of the instance"));
                };
                names.push(name.to_string_lossy().into_owned());
            }
            return Ok(InstancePath {
                root: index,
                path: names.join("/"),
            });
        }
        invalid_argument(format!(
            "{path}: is in no instance of the job that can be staged"
        ))
    }

    pub(super) fn spots(&self, paths: &[String]) -> Result<Vec<InstancePath>, Refused> {
        if paths.is_empty() {
            return invalid_argument("the list is empty");
        }
        paths.iter().map(|path| self.instance_path(path)).collect()
    }
}
