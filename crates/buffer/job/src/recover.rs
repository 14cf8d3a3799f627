//! What interrupted jobs left behind, and staging into and out of persistent instances.

use forebay_job_script::{Direction, Stage};

use super::life::StepError;
use super::wait::{self, Interrupt, Observer};
use super::{PoolHandle, PoolSelection, RunError};
use forebay_control::controller::{Answer, Cause, Failure, Lifetime, Request, StageStatus};
use forebay_control::messages::StageProgress;
use forebay_daemon::ControllerClient;

/// What became of an interrupted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Its results are staged out and it is taken down.
    StagedOut(StageProgress),
    /// It had not run, so there was nothing to save.
    NothingToSave,
    /// Its results were destroyed, as was asked for.
    Discarded,
    /// It is kept as it was; why.
    Kept(Failure),
}

/// An interrupted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The job's id.
    pub token: String,
    /// What became of it.
    pub recovery: Recovery,
}

/// Finishes what interrupted jobs in a pool left: stages out the results of those that ran (or
/// destroys them, if `discard`), and takes all of them down. Persistent instances stay. In a pool
/// that is shared nobody can tell which jobs were interrupted, so one of them has to be named.
pub fn recover(
    which: &PoolSelection,
    job: Option<&str>,
    discard: bool,
    observer: &mut dyn Observer,
) -> Result<Vec<Recovered>, RunError> {
    let interrupt = Interrupt::install();
    let pool = PoolHandle::open_existing(which)?;
    if let (PoolHandle::Shared(_), None) = (&pool, job) {
        let reason = "name the job with --job-id: in a shared pool other jobs may be running";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let mut recovered = Vec::new();
    let status = pool
        .controller()
        .status()
        .map_err(|failure| RunError::Step("recover", failure))?;
    for session in status
        .sessions
        .iter()
        .filter(|s| s.lifetime == Lifetime::Job)
        .filter(|s| job.is_none_or(|job| s.token == job))
    {
        let token = session.token.clone();
        let recovery = match one(
            pool.controller(),
            &token,
            session.written,
            discard,
            &interrupt,
            observer,
        ) {
            Ok(recovery) => recovery,
            Err(StepError::Failed(failure)) => Recovery::Kept(failure),
            Err(StepError::Interrupted) => return Err(RunError::Interrupted(token, true)),
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

fn one(
    pool: &dyn ControllerClient,
    token: &str,
    written: bool,
    discard: bool,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<Recovery, StepError> {
    let mut ask = |name: &str, request| {
        observer.phase(&format!("job {token}: {name}"));
        wait::await_step(
            pool,
            request,
            |stage| stage.token == token,
            interrupt,
            observer,
        )
    };
    let owned = || token.to_owned();
    let mut recovery = if discard {
        Recovery::Discarded
    } else {
        Recovery::NothingToSave
    };
    if written {
        let unmount = Request::Deactivate {
            token: owned(),
            creator: None,
        };
        ask("unmount", unmount)?;
        if !discard {
            ask("stage out", Request::StageOut { token: owned() })?;
            let status = pool.status().map_err(StepError::Failed)?;
            recovery = Recovery::StagedOut(wait::sum_progress(&status, token, Direction::Out));
        }
    }
    ask(
        "tear down",
        Request::Teardown {
            token: owned(),
            creator: None,
            hurry: discard,
        },
    )?;
    Ok(recovery)
}

/// Stages into or out of a persistent instance, or of a job that is kept, and waits for it.
pub fn stage_now(
    which: &PoolSelection,
    token: &str,
    what: Stage,
    observer: &mut dyn Observer,
) -> Result<StageProgress, RunError> {
    let interrupt = Interrupt::install();
    let pool = PoolHandle::open_existing(which)?;
    let fail = |failure| RunError::Step("stage", failure);
    let answer = pool
        .controller()
        .request(Request::BeginStage {
            token: token.to_owned(),
            what,
        })
        .map_err(fail)?;
    let Answer::Stage(stage) = answer else {
        return Ok(StageProgress::default());
    };
    observer.phase("stage");
    let wait = Request::AwaitStage { stage };
    let this = |one: &StageStatus| one.id == stage;
    match wait::await_step(pool.controller(), wait, this, &interrupt, observer) {
        Ok(()) => {}
        Err(StepError::Failed(failure)) => return Err(fail(failure)),
        Err(StepError::Interrupted) => {
            let _ = pool.controller().request(Request::CancelStage { stage });
            return Err(RunError::Interrupted(token.to_owned(), true));
        }
    }
    let status = pool.controller().status().map_err(fail)?;
    let moved = status
        .stages
        .iter()
        .find(|s| s.id == stage)
        .map(|s| s.progress);
    pool.close()?;
    Ok(moved.unwrap_or_default())
}
