//! Carrying out calls on a pool.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use forebay_control::controller::{ControlStatus, InstanceSpec, PlannedAllocation, Request};
use forebay_control::messages::{Owner, SessionId};
use forebay_daemon::ControllerClient;
use forebay_job_script::{Access, AccessMode, Direction, check_persistent_name};
use forebay_units::Bytes;
use nix::unistd::{Uid, User};

use crate::call::{Call, Reply};
use crate::error::{ErrorKind, WlmError};
use crate::script::{Requested, RequestedInstance, ScriptReport, report_script};

/// Time for the controller to plan an allocation. Slurm waits 5 s for a script's validation.
const PLAN_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool, as batch systems use it. It is connected to when a call needs it.
pub struct Bridge {
    configuration: PathBuf,
    client: OnceCell<ControllerClient>,
}

impl Bridge {
    /// The pool that a configuration file describes.
    pub fn new(configuration: PathBuf) -> Bridge {
        Bridge { configuration, client: OnceCell::new() }
    }

    /// Makes a call, and waits until it is done.
    ///
    /// # Errors
    /// The call is refused or fails. It may be made again.
    pub fn perform(&self, call: Call) -> Result<Reply, WlmError> {
        match call {
            Call::Validate { script } => {
                let report = self.validate(&Requested::read(&script)?)?;
                Ok(Reply::Script(Box::new(report)))
            }
            Call::Show {} => Ok(Reply::Pool(Box::new(self.status()?))),
            Call::Setup { job, user, group, script, pool, account, caller } => {
                let mut setup = Requested::read(&script)?.setup;
                if let Some(instance) = &mut setup.instance {
                    instance.pool = instance.pool.take().or(pool);
                    instance.account = account;
                }
                let (owner, creator) = (owner(user, group)?, caller.unwrap_or_default());
                self.request(Request::Setup { token: job, owner, creator, setup })
            }
            Call::StageIn { job } => {
                self.job_request(&job, Request::StageIn { token: job.clone() })?;
                Ok(Reply::Staged(self.status()?.staged(&job, Direction::In).into()))
            }
            Call::Capacity { job } => self.capacity(&job),
            Call::Environment { job } => {
                let variables = self.environment(&job)?.into_iter();
                let variables = variables.map(|(name, value)| (name, value.into()));
                Ok(Reply::Environment { variables: variables.collect() })
            }
            Call::Mount { job, hosts } if hosts.is_empty() => {
                self.existing_session(&job, &self.status()?)?;
                Ok(Reply::Done {})
            }
            Call::Mount { job, hosts } => {
                let request = Request::Activate { token: job.clone(), hosts, creator: None };
                self.job_request(&job, request)
            }
            Call::Unmount { job } => self.unmount(&job),
            Call::StageOut { job } => {
                self.stage_out(&job)?;
                Ok(Reply::Staged(self.status()?.staged(&job, Direction::Out).into()))
            }
            Call::Teardown { job, hurry } => self.tear_down(job, hurry),
            Call::CreatePersistent { lifetime_seconds: Some(0), .. } => {
                let message = "`lifetime_seconds` is 0: the instance would expire at once; leave it \
                               out, or give a number above 0";
                Err(WlmError::new(ErrorKind::Invalid, message))
            }
            Call::CreatePersistent {
                name,
                user,
                group,
                capacity,
                access,
                pool,
                account,
                public,
                lifetime_seconds,
            } => {
                check_persistent_name(&name).map_err(|(problem, remedy)| {
                    WlmError::new(ErrorKind::Invalid, format!("{problem}; {remedy}"))
                })?;
                let access = access.into_iter();
                let access = access.map(|mode| Access { mode, modifiers: Default::default() });
                let mut spec = InstanceSpec::scratch(capacity, access.collect(), pool);
                spec.lifetime_ms = lifetime_seconds.map(|seconds| seconds.saturating_mul(1000));
                spec.account = account;
                let owner = owner(user, group)?;
                self.request(Request::CreatePersistent { name, owner, spec, public })
            }
            Call::DestroyPersistent { name, hurry } => {
                self.request(Request::DestroyPersistent { name, hurry })
            }
        }
    }

    /// The objects of the pool.
    ///
    /// # Errors
    /// The controller cannot be reached.
    pub fn status(&self) -> Result<ControlStatus, WlmError> {
        Ok(self.client()?.control_status()?)
    }

    /// The requests of a script, with the allocations that it would get.
    ///
    /// # Errors
    /// The script requests more than the pool has.
    pub fn validate(&self, requested: &Requested) -> Result<ScriptReport, WlmError> {
        let mut report = report_script(requested);
        for instance in report.instance.iter_mut().chain(&mut report.creates) {
            instance.allocation = self.plan(instance)?;
        }
        if report.instance.as_ref().is_some_and(|instance| {
            instance.allocation.as_ref().is_some_and(|allocation| !allocation.fits_now)
        }) {
            let text = "the pool has too little free space now: the job waits for other jobs";
            report.warnings.push(text.to_owned());
        }
        // If the controller cannot be reached, the script is valid as far as is known.
        if let (false, Ok(status)) = (report.persistent.is_empty(), self.status()) {
            report.add_persistent_instances(&status);
        }
        Ok(report)
    }

    /// The environment variables for a job's processes, with their values.
    ///
    /// # Errors
    /// The job was not set up, or the controller cannot be reached.
    pub fn environment(&self, job: &str) -> Result<Vec<(String, String)>, WlmError> {
        let environment = self.client()?.job_environment(job).map_err(WlmError::from);
        self.of_job(job, environment)
    }

    fn client(&self) -> Result<&ControllerClient, WlmError> {
        if self.client.get().is_none() {
            let client = ControllerClient::open(&self.configuration)?;
            // Empty, as was checked; this type is not shared between threads.
            let _ = self.client.set(client);
        }
        self.client.get().ok_or_else(|| {
            WlmError::new(ErrorKind::Unreachable, "the controller of the pool is not connected")
        })
    }

    fn request(&self, request: Request) -> Result<Reply, WlmError> {
        self.client()?.request(request)?;
        Ok(Reply::Done {})
    }

    /// Makes a request for a job that must have been set up.
    fn job_request(&self, job: &str, request: Request) -> Result<Reply, WlmError> {
        self.of_job(job, self.request(request))
    }

    /// The outcome of a request for a job, which names the absence of the job itself.
    fn of_job<T>(&self, job: &str, outcome: Result<T, WlmError>) -> Result<T, WlmError> {
        if outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound) {
            self.existing_session(job, &self.status()?)?;
        }
        outcome
    }

    /// The session of a job.
    fn existing_session(&self, job: &str, status: &ControlStatus) -> Result<SessionId, WlmError> {
        status.job_session(job).map(|session| session.id).ok_or_else(|| {
            let message = format!("there is no job `{job}`: it was not set up, or is torn down");
            WlmError::new(ErrorKind::NoSuchJob, message)
        })
    }

    /// The allocation that an instance would get, or the reason for which it will never fit. If
    /// the controller cannot be reached, a script is valid as far as is known.
    fn plan(&self, instance: &RequestedInstance) -> Result<Option<PlannedAllocation>, WlmError> {
        let Ok(client) = self.client() else {
            return Ok(None);
        };
        match client.plan_allocation(instance.spec.clone(), PLAN_TIMEOUT).map_err(WlmError::from) {
            Ok(allocation) => Ok(Some(allocation)),
            Err(error) => match error.kind {
                ErrorKind::Full | ErrorKind::Invalid | ErrorKind::NotFound => {
                    let message = format!("line {}: {}", instance.line, error.message);
                    Err(WlmError::new(ErrorKind::Invalid, message))
                }
                ErrorKind::NoSuchJob
                | ErrorKind::Denied
                | ErrorKind::Exists
                | ErrorKind::Busy
                | ErrorKind::TimedOut
                | ErrorKind::Unreachable
                | ErrorKind::Failed => Ok(None),
            },
        }
    }

    fn capacity(&self, job: &str) -> Result<Reply, WlmError> {
        let status = self.status()?;
        let session = self.existing_session(job, &status)?;
        let instance = status.instance_of(session);
        Ok(Reply::Capacity {
            bytes: instance.map_or(Bytes::ZERO, |instance| instance.capacity),
            nodes: instance.map_or(0, |instance| instance.nodes.len() as u64),
        })
    }

    fn unmount(&self, job: &str) -> Result<Reply, WlmError> {
        self.job_request(job, Request::Deactivate { token: job.to_owned(), creator: None })
    }

    fn stage_out(&self, job: &str) -> Result<Reply, WlmError> {
        let staged = self.job_request(job, Request::StageOut { token: job.to_owned() });
        staged.map_err(|error| match error.kind == ErrorKind::NoSuchJob {
            true => error,
            false => error.with_hint(&format!(
                "the results of job {job} are kept in the pool; once the cause is fixed, \
                 `forebay recover --job-id {job}` stages them out"
            )),
        })
    }

    fn tear_down(&self, job: String, hurry: bool) -> Result<Reply, WlmError> {
        if !hurry {
            let status = self.status()?;
            let session = status.job_session(&job);
            let has_results = session.is_some_and(|session| session.written && !session.ending);
            if has_results && status.has_stages_out(&job) {
                self.unmount(&job)?;
                self.stage_out(&job)?;
            }
        }
        // A job that does not exist was torn down before.
        self.request(Request::Teardown { token: job, creator: None, hurry })
    }
}

/// A user with the group of a call, or with the user's own group.
fn owner(uid: u32, gid: Option<u32>) -> Result<Owner, WlmError> {
    if let Some(gid) = gid {
        return Ok(Owner { uid, gid });
    }
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => Ok(Owner { uid, gid: user.gid.as_raw() }),
        Ok(None) => {
            let message = format!("there is no user {uid} on this host; name the group, too");
            Err(WlmError::new(ErrorKind::Invalid, message))
        }
        Err(error) => {
            let message = format!("cannot look up user {uid}: {error}");
            Err(WlmError::new(ErrorKind::Failed, message))
        }
    }
}

/// The access modes of `striped`, `private` or `striped,private`.
///
/// # Errors
/// A word is none of the access modes.
pub fn parse_access(text: &str) -> Result<Vec<AccessMode>, WlmError> {
    let modes = [AccessMode::Striped, AccessMode::Private, AccessMode::LoadBalanced];
    let parse = |word: &str| {
        modes.into_iter().find(|mode| mode.keyword() == word).ok_or_else(|| {
            let message = format!("unknown access mode `{word}`; write striped or private");
            WlmError::new(ErrorKind::Invalid, message)
        })
    };
    text.split(',').map(parse).collect()
}
