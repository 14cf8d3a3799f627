//! Carrying out calls on a pool.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use forebay_control::controller::{
    ControlStatus, InstanceSpec, InstanceStatus, Lifetime, PlannedAllocation, Request,
    SessionStatus, StageState, StageStatus,
};
use forebay_control::messages::Owner;
use forebay_daemon::ControllerClient;
use forebay_job_script::{Access, AccessMode, Direction};
use forebay_protocol::staging::{JOB_VARIABLE, SOCKET_VARIABLE};
use forebay_units::Bytes;
use nix::unistd::{Uid, User};

use crate::call::{Call, Reply, Staging};
use crate::error::{ErrorKind, WlmError};
use crate::script::{Requested, RequestedInstance, report_script};

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
            Call::Validate { script } => self.validate(&Requested::read(&script)?),
            Call::Show {} => Ok(Reply::Pool(Box::new(self.status()?))),
            Call::Setup { job, user, group, script, pool, caller } => {
                let mut setup = Requested::read(&script)?.setup;
                if let Some(instance) = &mut setup.instance {
                    instance.pool = instance.pool.take().or(pool);
                }
                let (owner, creator) = (owner(user, group)?, caller.unwrap_or_default());
                self.request(Request::Setup { token: job, owner, creator, setup })
            }
            Call::StageIn { job } => {
                self.job_request(&job, Request::StageIn { token: job.clone() })?;
                Ok(Reply::Staged(self.staged(&job, Direction::In)?))
            }
            Call::Capacity { job } => self.capacity(&job),
            Call::Environment { job } => self.environment(&job),
            Call::Mount { job, hosts } if hosts.is_empty() => {
                self.existing_session(&job)?;
                Ok(Reply::Done {})
            }
            Call::Mount { job, hosts } => {
                let request = Request::Activate { token: job.clone(), hosts, creator: None };
                self.job_request(&job, request)
            }
            Call::Unmount { job } => self.unmount(&job),
            Call::StageOut { job } => {
                self.stage_out(&job)?;
                Ok(Reply::Staged(self.staged(&job, Direction::Out)?))
            }
            Call::Teardown { job, hurry } => self.tear_down(job, hurry),
            Call::CreatePersistent { name, user, group, capacity, access, pool, public } => {
                let access = access.into_iter();
                let access = access.map(|mode| Access { mode, modifiers: Default::default() });
                let spec = InstanceSpec::scratch(capacity, access.collect(), pool);
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
        Ok(self.client()?.status()?.control)
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
        let outcome = self.request(request);
        match outcome {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.existing_session(job)?;
                Err(error)
            }
            outcome => outcome,
        }
    }

    /// The session of a job.
    fn existing_session(&self, job: &str) -> Result<SessionStatus, WlmError> {
        find_session(&self.status()?, job).cloned().ok_or_else(|| {
            let message = format!("there is no job `{job}`: it was not set up, or is torn down");
            WlmError::new(ErrorKind::NoSuchJob, message)
        })
    }

    fn validate(&self, requested: &Requested) -> Result<Reply, WlmError> {
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
        Ok(Reply::Script(Box::new(report)))
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
        let session = self.existing_session(job)?;
        let status = self.status()?;
        let own = |instance: &&InstanceStatus| instance.session == session.id;
        let instance = status.instances.iter().find(own);
        Ok(Reply::Capacity {
            bytes: instance.map_or(Bytes::ZERO, |instance| instance.capacity),
            nodes: instance.map_or(0, |instance| instance.nodes.len() as u64),
        })
    }

    fn environment(&self, job: &str) -> Result<Reply, WlmError> {
        self.existing_session(job)?;
        let client = self.client()?;
        let socket = client.job_api_socket().display().to_string();
        let mounts = client.mount_variables(job)?;
        let own = [(JOB_VARIABLE, job.to_owned()), (SOCKET_VARIABLE, socket)];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let variables = mounts.into_iter().chain(own);
        Ok(Reply::Environment {
            variables: variables.map(|(name, value)| (name, value.into())).collect(),
        })
    }

    fn unmount(&self, job: &str) -> Result<Reply, WlmError> {
        self.job_request(job, Request::Deactivate { token: job.to_owned(), creator: None })
    }

    fn stage_out(&self, job: &str) -> Result<Reply, WlmError> {
        let staged = self.job_request(job, Request::StageOut { token: job.to_owned() });
        staged.map_err(|error| match error.kind {
            ErrorKind::NoSuchJob => error,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::Exists
            | ErrorKind::Busy
            | ErrorKind::Full
            | ErrorKind::TimedOut
            | ErrorKind::Unreachable
            | ErrorKind::Failed => error.with_hint(&format!(
                "the results of job {job} are kept in the pool; once the cause is fixed, \
                 `forebay recover --job-id {job}` stages them out"
            )),
        })
    }

    /// Data that a job has staged in one direction.
    fn staged(&self, job: &str, direction: Direction) -> Result<Staging, WlmError> {
        let status = self.status()?;
        let own = |stage: &&StageStatus| stage.token == job && stage.direction == direction;
        let stages = status.stages.iter().filter(own);
        let progress = stages.map(|stage| stage.progress).reduce(|sum, more| sum.plus(&more));
        Ok(progress.map(Staging::from).unwrap_or_default())
    }

    fn tear_down(&self, job: String, hurry: bool) -> Result<Reply, WlmError> {
        if !hurry {
            let status = self.status()?;
            let waiting = |stage: &StageStatus| {
                stage.token == job
                    && stage.direction == Direction::Out
                    && !matches!(stage.state, StageState::Done | StageState::Cancelled)
            };
            let session = find_session(&status, &job);
            let has_results = session.is_some_and(|session| session.written && !session.ending);
            if has_results && status.stages.iter().any(waiting) {
                self.unmount(&job)?;
                self.stage_out(&job)?;
            }
        }
        // A job that does not exist was torn down before.
        self.request(Request::Teardown { token: job, creator: None, hurry })
    }
}

fn find_session<'a>(status: &'a ControlStatus, job: &str) -> Option<&'a SessionStatus> {
    let is_job =
        |session: &&SessionStatus| session.lifetime == Lifetime::Job && session.token == job;
    status.sessions.iter().find(is_job)
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
