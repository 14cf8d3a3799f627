//! Waiting for steps while showing how they go, and being interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;
use forebay_store::objects::RemovalProgress;

use super::life::StepError;
use forebay_control::controller::{Cause, Failure, NodeStatus, Request, StageState, StageStatus};
use forebay_control::messages::StageProgress;
use forebay_daemon::ControllerClient;
use forebay_daemon::activity::Status;

/// Whoever waits is told why after this time without anything to see, and again when the reason
/// changes.
const SILENCE: Duration = Duration::from_secs(5);

/// Time between looks at progress.
const LOOK: Duration = Duration::from_millis(100);

/// Someone who is told how a job goes.
pub trait Observer {
    /// A part of its life begins.
    fn phase(&mut self, name: &str);
    /// Stages are under way; called some ten times a second.
    fn progress(&mut self, stages: &[StageStatus]);
    /// A job's data are being destroyed: so many of so many files are gone, on the nodes that have
    /// counted them; called as often.
    fn removal(&mut self, removed: u64, files: u64);
    /// Something worth knowing.
    fn note(&mut self, text: &str);
    /// Something is odd, but no reason to stop.
    fn warning(&mut self, text: &str);
}

/// An observer that says nothing.
#[derive(Debug, Default)]
pub struct SilentObserver;

impl Observer for SilentObserver {
    fn phase(&mut self, _: &str) {}
    fn progress(&mut self, _: &[StageStatus]) {}
    fn removal(&mut self, _: u64, _: u64) {}
    fn note(&mut self, _: &str) {}
    fn warning(&mut self, _: &str) {}
}

/// Whether the process was asked to stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on. A second one ends the process at once.
    pub fn install() -> Interrupt {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Registering fails only for signals that cannot be caught.
            let flag = || interrupt.0.clone();
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag());
            let _ = signal_hook::flag::register(signal, flag());
        }
        interrupt
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asks for a step and waits until it is done, has failed, or the process is interrupted. Meanwhile
/// the observer is told of those stages that are `of` the step, and of the reason if nothing goes
/// on for long.
pub(super) fn await_step(
    pool: &dyn ControllerClient,
    request: Request,
    of: impl Fn(&StageStatus) -> bool,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<(), StepError> {
    let job = job(&request).map(str::to_owned);
    let answer = pool.submit(request).map_err(StepError::Failed)?;
    let (mut heard, mut told, mut seen) = (Instant::now(), None, Default::default());
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(outcome) => return outcome.map(|_| ()).map_err(StepError::Failed),
            Err(RecvTimeoutError::Disconnected) => {
                let reason = "the pool's controller has ended";
                return Err(StepError::Failed(Failure::new(Cause::Failed, reason)));
            }
            Err(RecvTimeoutError::Timeout) if interrupt.is_set() => {
                return Err(StepError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {
                // Progress is not worth failing for.
                let status = pool.status();
                let running: Vec<StageStatus> = status
                    .iter()
                    .flat_map(|status| &status.stages)
                    .filter(|stage| stage.state == StageState::Running && of(stage))
                    .cloned()
                    .collect();
                if !running.is_empty() {
                    observer.progress(&running);
                }
                let removal = status.as_ref().ok().and_then(|status| {
                    let removal = removal(status, job.as_deref()?)?;
                    (removal.total_objects > 0).then_some(removal)
                });
                if let Some(removal) = removal {
                    observer.removal(removal.removed_objects, removal.total_objects);
                }
                let now = (running, removal);
                if now != seen {
                    (heard, told, seen) = (Instant::now(), None, now);
                } else if heard.elapsed() > SILENCE {
                    let why = why(status, job.as_deref());
                    if told.as_ref() != Some(&why) {
                        observer.note(&format!("{why}; waiting on, an interrupt (Ctrl-C) ends it"));
                        told = Some(why);
                    }
                }
            }
        }
    }
}

/// How far the removal of a job's own instance is.
fn removal(status: &Status, job: &str) -> Option<RemovalProgress> {
    let mut sessions = status.sessions.iter();
    let session = sessions.find(|session| session.ending && session.token == job)?;
    let mut own = status.instances.iter();
    let own = own.find(|instance| instance.session == session.id)?;
    status.removal_progress(own.id)
}

/// The job whose life a request is about.
fn job(request: &Request) -> Option<&str> {
    match request {
        Request::Setup { token, .. }
        | Request::StageIn { token }
        | Request::Activate { token, .. }
        | Request::Deactivate { token, .. }
        | Request::StageOut { token }
        | Request::Teardown { token, .. } => Some(token),
        _ => None,
    }
}

/// What may be the reason that nothing goes on, as the pool's state has it.
fn why(status: Result<Status, Failure>, job: Option<&str>) -> String {
    let status = match status {
        Ok(status) => status,
        Err(failure) => return failure.to_string(),
    };
    let away = |node: &&NodeStatus| !node.online && !node.forgotten;
    let names = |nodes: Vec<&NodeStatus>| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    };
    let session = status
        .sessions
        .iter()
        .find(|session| job == Some(&*session.token));
    let instances = status.instances.iter();
    let own: Vec<NodeId> = instances
        .filter(|instance| session.is_some_and(|session| session.id == instance.session))
        .flat_map(|instance| instance.nodes.iter().copied())
        .collect();
    let holding = status.nodes.iter().filter(|node| own.contains(&node.id));
    let holding: Vec<&NodeStatus> = holding.filter(away).collect();
    if let (Some(job), [first, ..]) = (job, holding.as_slice()) {
        let name = first.name.clone();
        return format!(
            "no answer yet: job {job} has data on {}, offline. If a node will never come back, an \
             operator can say so: `forebay forget {name}`",
            names(holding)
        );
    }
    let away: Vec<&NodeStatus> = status.nodes.iter().filter(away).collect();
    match away.is_empty() {
        true => "no answer yet".to_owned(),
        false => format!("no answer yet, and {} offline", names(away)),
    }
}

/// What a session's stages of one direction have moved.
pub(super) fn sum_progress(status: &Status, token: &str, direction: Direction) -> StageProgress {
    let of = |stage: &&StageStatus| stage.token == token && stage.direction == direction;
    status
        .stages
        .iter()
        .filter(of)
        .map(|stage| stage.progress)
        .reduce(|sum, progress| sum.plus(&progress))
        .unwrap_or_default()
}
