//! Finishing interrupted jobs, and staging into and out of existing instances.

use forebay_control::controller::{
    Answer, Cause, Failure, Lifetime, Request, SessionStatus, StageStatus,
};
use forebay_control::messages::StageProgress;
use forebay_daemon::ControllerClient;
use forebay_daemon::embedded::JobLock;
use forebay_job_script::{Direction, Stage};

use crate::advice::JobInPool;
use crate::error::{Kept, RunError};
use crate::pool::{PoolHandle, PoolSelection};
use crate::running::{lock_job, refuse_running};
use crate::wait::{Interrupt, Observer, StepError, await_step};

/// The result of finishing an interrupted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Its results are staged out and it is torn down.
    StagedOut(StageProgress),
    /// The stage-outs whose source exists are done, and it is torn down. The sources of the others,
    /// which this failure names, do not exist; an earlier attempt had said so.
    WithoutSources(Failure),
    /// Its script had not run, so there were no results.
    NothingToSave,
    /// Its results were destroyed, as requested.
    Discarded,
    /// It was being torn down, with nothing left to save, and is removed.
    WasEnding,
    /// It is unchanged, because of this failure.
    Kept(Failure),
}

/// An interrupted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The job's id.
    pub token: String,
    /// The result.
    pub recovery: Recovery,
}

/// Options of a recovery: the jobs, and the treatment of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverOptions<'a> {
    /// Only this job.
    pub job: Option<&'a str>,
    /// Destroy the results.
    pub discard: bool,
    /// End the job also if it runs.
    pub force: bool,
}

/// Finishes the interrupted jobs in a pool, or only one: stages out the results of those whose
/// script ran (or destroys them), and tears all of them down. Persistent instances stay. In a pool over
/// several hosts other jobs may be running, so the job is required. A job that runs is refused.
pub fn recover(
    selection: &PoolSelection,
    options: RecoverOptions<'_>,
    observer: &mut dyn Observer,
) -> Result<Vec<Recovered>, RunError> {
    let RecoverOptions { job, discard, force } = options;
    let interrupt = Interrupt::install();
    let pool = PoolHandle::open_existing(selection)?;
    if let (PoolHandle::Shared(_) | PoolHandle::Joined(_), None) = (&pool, job) {
        let reason = "name the job with --job-id: other jobs may be running in this pool";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let mut recovered = Vec::new();
    let client = pool.controller();
    let status = match job {
        Some(job) => client.job_status(job),
        None => client.status(),
    };
    let status = status.map_err(|failure| RunError::Step("recover", failure))?;
    for session in status
        .sessions
        .iter()
        .filter(|s| s.lifetime == Lifetime::Job)
        .filter(|s| job.is_none_or(|job| s.token == job))
    {
        let token = session.token.clone();
        let observer = &mut *observer;
        let mut job = JobToRecover { client, session, discard, interrupt: &interrupt, observer };
        // Nothing is announced of another user's job, which the controller will refuse.
        let permitted = match client.job_view(&token) {
            // It has ended in the meantime.
            Err(failure) if session.ending && failure.cause == Cause::NotFound => Ok(()),
            other => other.map(drop).map_err(StepError::Failed),
        };
        let recovered_job = if session.ending {
            permitted.and_then(|()| job.end())
        } else {
            let _lock = match permitted.is_ok() && !force {
                true => lock_to_recover(&pool, session)?,
                false => None,
            };
            permitted.and_then(|()| job.recover())
        };
        let recovery = match recovered_job {
            Ok(recovery) => recovery,
            Err(StepError::Failed(failure)) => Recovery::Kept(failure),
            Err(StepError::Interrupted) => {
                return Err(interrupt.error(JobInPool::new(&token, selection), Kept::Data));
            }
        };
        recovered.push(Recovered { token, recovery });
    }
    if let (Some(job), true) = (job, recovered.is_empty()) {
        let failure = Failure::new(Cause::NotFound, format!("there is no job `{job}`"));
        return Err(RunError::Step("recover", failure));
    }
    pool.close()?;
    Ok(recovered)
}

/// Locks a job that does not run; one of a pool over several hosts has no lock.
fn lock_to_recover(
    pool: &PoolHandle,
    session: &SessionStatus,
) -> Result<Option<JobLock>, RunError> {
    match pool {
        PoolHandle::Shared(_) => {
            let refused = refuse_running(session);
            refused.map(|()| None).map_err(|failure| RunError::Step("recover", failure))
        }
        PoolHandle::Joined(_) => lock_job(pool, &session.token, "recover"),
        // This process has the pool for itself. A run that waits for it may have the lock.
        PoolHandle::Embedded(_) => Ok(None),
    }
}

/// A job that is being recovered.
struct JobToRecover<'a> {
    client: &'a ControllerClient,
    session: &'a SessionStatus,
    /// Destroy its results.
    discard: bool,
    interrupt: &'a Interrupt,
    observer: &'a mut dyn Observer,
}

impl JobToRecover<'_> {
    fn token(&self) -> String {
        self.session.token.clone()
    }

    fn step(&mut self, name: &str, request: Request) -> Result<(), StepError> {
        let token = &self.session.token;
        self.observer.phase(&format!("job {token}: {name}"));
        let own = |stage: &StageStatus| stage.token == *token;
        await_step(self.client, token, request, own, self.interrupt, self.observer)
    }

    fn tear_down(&mut self) -> Result<(), StepError> {
        let request = Request::Teardown { creator: None, token: self.token(), hurry: self.discard };
        self.step("tear down", request)
    }

    /// Waits for the end of the teardown that has begun.
    fn end(&mut self) -> Result<Recovery, StepError> {
        self.tear_down().map(|()| Recovery::WasEnding)
    }

    /// Stages its results out, or destroys them, and tears it down.
    fn recover(&mut self) -> Result<Recovery, StepError> {
        let mut recovery = match self.discard {
            true => Recovery::Discarded,
            false => Recovery::NothingToSave,
        };
        if self.session.written {
            let unmount = Request::Deactivate { token: self.token(), creator: None };
            self.step("unmount", unmount)?;
            if !self.discard {
                let stage_out = Request::StageOut { token: self.token() };
                recovery = match self.step("stage out", stage_out) {
                    Ok(()) => {
                        let status = self.client.job_status(&self.session.token);
                        let status = status.map_err(StepError::Failed)?;
                        Recovery::StagedOut(status.staged(&self.session.token, Direction::Out))
                    }
                    // Of stages: the controller knows whether they hold results back.
                    Err(StepError::Failed(failure)) if failure.cause == Cause::Failed => {
                        Recovery::WithoutSources(failure)
                    }
                    Err(error) => return Err(error),
                };
            }
        }
        match (self.tear_down(), recovery) {
            (Ok(()), recovery) => Ok(recovery),
            // Something is left to stage out.
            (Err(StepError::Failed(refusal)), Recovery::WithoutSources(failure))
                if refusal.cause == Cause::Busy =>
            {
                Err(StepError::Failed(failure))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Stages into or out of a persistent instance, or of a job that is kept, and waits for it.
pub fn stage_now(
    selection: &PoolSelection,
    token: &str,
    directive: Stage,
    observer: &mut dyn Observer,
) -> Result<StageProgress, RunError> {
    let interrupt = Interrupt::install();
    let pool = PoolHandle::open_existing(selection)?;
    let client = pool.controller();
    let fail = |failure| RunError::Step("stage", failure);
    let token = token.to_owned();
    let begin = Request::BeginStage { token: token.clone(), what: directive };
    let Answer::Stage(stage) = client.request(begin).map_err(fail)? else {
        return Ok(StageProgress::default());
    };
    observer.phase("stage");
    let wait = Request::AwaitStage { stage };
    let own = |other: &StageStatus| other.id == stage;
    match await_step(client, &token, wait, own, &interrupt, observer) {
        Ok(()) => {}
        Err(StepError::Failed(failure)) => return Err(fail(failure)),
        Err(StepError::Interrupted) => {
            let _ = client.request(Request::CancelStage { stage });
            return Err(RunError::StageCancelled { token, signal: interrupt.signal() });
        }
    }
    let status = client.job_status(&token).map_err(fail)?;
    let staged = status.stages.iter().find(|other| own(other));
    let progress = staged.map(|staged| staged.progress);
    pool.close()?;
    Ok(progress.unwrap_or_default())
}
