//! Waiting for a request while showing its progress, until it is done or the user interrupts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use forebay_control::controller::{Cause, Failure, NodeStatus, Request, StageState, StageStatus};
use forebay_daemon::ControllerClient;
use forebay_daemon::activity::Status;
use forebay_policy::pool::NodeId;
use forebay_store::objects::RemovalProgress;

use crate::advice::JobInPool;
use crate::error::{Kept, RunError};

/// Time without visible progress after which the user is shown the likely reason, and again
/// whenever the reason changes.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which an interrupt is noticed, and the progress is queried for the first time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which progress is queried. The reply comes from the controller, which many jobs may ask.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Receives the progress of a job.
pub trait Observer {
    /// A step of its life begins.
    fn phase(&mut self, name: &str);
    /// The progress of its stages; called some twice a second.
    fn progress(&mut self, stages: &[StageStatus]);
    /// The progress of destroying its data: `removed` of `files` are gone, on the nodes that have
    /// counted them. Called some twice a second.
    fn removal(&mut self, removed: u64, files: u64);
    /// Information for the user.
    fn note(&mut self, text: &str);
    /// A problem that does not stop the job.
    fn warning(&mut self, text: &str);
}

/// The reason for which a step did not succeed.
pub(crate) enum StepError {
    Failed(Failure),
    Interrupted,
}

/// A flag that signals set, and which of them did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on. A second one ends the process at once.
    pub fn install() -> Interrupt {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Registering fails only for signals that cannot be caught.
            let flag = || interrupt.flag.clone();
            let number = usize::try_from(signal).unwrap_or_default();
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag());
            let _ = signal_hook::flag::register_usize(signal, interrupt.signal.clone(), number);
            let _ = signal_hook::flag::register(signal, flag());
        }
        interrupt
    }

    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The signal.
    pub fn signal(&self) -> i32 {
        match i32::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => signal_hook::consts::SIGINT,
            Ok(signal) => signal,
        }
    }

    /// The error of a command on a job that it has interrupted.
    pub fn error(&self, job: JobInPool, kept: Kept) -> RunError {
        RunError::Interrupted { job, kept, signal: self.signal() }
    }
}

/// Progress of a step as the user sees it.
#[derive(Default, PartialEq)]
struct Progressing {
    stages: Vec<StageStatus>,
    removal: Option<RemovalProgress>,
}

impl Progressing {
    fn new(status: &Status, job: Option<&str>, of_step: impl Fn(&StageStatus) -> bool) -> Self {
        let running = |stage: &&StageStatus| stage.state == StageState::Running && of_step(stage);
        let removal = job.and_then(|job| removal_of(status, job));
        Progressing {
            stages: status.stages.iter().filter(running).cloned().collect(),
            removal: removal.filter(|removal| removal.total_objects > 0),
        }
    }

    fn show(&self, observer: &mut dyn Observer) {
        if !self.stages.is_empty() {
            observer.progress(&self.stages);
        }
        if let Some(removal) = self.removal {
            observer.removal(removal.removed_objects, removal.total_objects);
        }
    }
}

/// Sends a request and waits until it is done or has failed, or the user interrupts. Meanwhile the
/// observer is shown the stages of the job or persistent instance `token` that belong to the step, and
/// the likely reason if it stalls.
pub(crate) fn await_step(
    client: &ControllerClient,
    token: &str,
    request: Request,
    of_step: impl Fn(&StageStatus) -> bool,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<(), StepError> {
    let job = job_of(&request).map(str::to_owned);
    let outcome = client.submit(request).map_err(StepError::Failed)?;
    let (mut changed, mut shown_reason) = (Instant::now(), None);
    let mut last = Progressing::default();
    let mut queried: Option<Instant> = None;
    loop {
        match outcome.recv_timeout(POLL_INTERVAL) {
            Ok(outcome) => return outcome.map(drop).map_err(StepError::Failed),
            Err(RecvTimeoutError::Disconnected) => {
                let reason = "the pool's controller has stopped";
                return Err(StepError::Failed(Failure::new(Cause::Failed, reason)));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if interrupt.is_set() {
            return Err(StepError::Interrupted);
        }
        if queried.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
            continue;
        }
        queried = Some(Instant::now());
        // A failed query does not fail the step.
        let status = client.job_status(token);
        let now = match &status {
            Ok(status) => Progressing::new(status, job.as_deref(), &of_step),
            Err(_) => Progressing::default(),
        };
        now.show(observer);
        if now != last {
            (changed, shown_reason, last) = (Instant::now(), None, now);
        } else if changed.elapsed() > STALL_TIMEOUT {
            let reason = stall_reason(status, job.as_deref());
            if shown_reason.as_ref() != Some(&reason) {
                observer.note(&format!("{reason}; still waiting, interrupt (Ctrl-C) to stop"));
                shown_reason = Some(reason);
            }
        }
    }
}

/// The progress of removing a job's own instance.
fn removal_of(status: &Status, job: &str) -> Option<RemovalProgress> {
    let mut sessions = status.sessions.iter();
    let session = sessions.find(|session| session.ending && session.token == job)?;
    let mut own = status.instances.iter();
    let own = own.find(|instance| instance.session == session.id)?;
    status.removal_progress(own.id)
}

/// The job whose life a request is about.
fn job_of(request: &Request) -> Option<&str> {
    match request {
        Request::Setup { token, .. }
        | Request::StageIn { token }
        | Request::Activate { token, .. }
        | Request::Deactivate { token, .. }
        | Request::StageOut { token }
        | Request::Teardown { token, .. } => Some(token),
        Request::CreatePersistent { .. }
        | Request::ExtendPersistent { .. }
        | Request::DestroyPersistent { .. }
        | Request::BeginStage { .. }
        | Request::DeferStage { .. }
        | Request::ReleaseStage { .. }
        | Request::LimitStages { .. }
        | Request::AwaitStage { .. }
        | Request::CancelStage { .. }
        | Request::AddPool { .. }
        | Request::AddNode { .. }
        | Request::DrainNode { .. }
        | Request::ForgetNode { .. }
        | Request::SetQuota { .. }
        | Request::EvictSessions { .. }
        | Request::AcceptRestored
        | Request::DiscardUnknown { .. } => None,
    }
}

/// The likely reason for which a step stalls, from the pool's state.
fn stall_reason(status: Result<Status, Failure>, job: Option<&str>) -> String {
    let status = match status {
        Ok(status) => status,
        Err(failure) => return failure.to_string(),
    };
    let mut reason = match status.outdated {
        true => "no reply: the controller's database is older than what the storage nodes have \
                 obeyed, or was lost; an operator restores the latest one, or accepts the loss with \
                 `forebay accept-restored`"
            .to_owned(),
        false => silence(&status, job),
    };
    for host in &status.refused {
        reason.push_str(&format!("; {host}"));
    }
    reason
}

/// The storage nodes that a step may be waiting for.
fn silence(status: &Status, job: Option<&str>) -> String {
    let is_offline = |node: &&NodeStatus| !node.online && !node.forgotten;
    let names = |nodes: Vec<&NodeStatus>| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    };
    let session = status.sessions.iter().find(|session| job == Some(&*session.token));
    let instances = status.instances.iter();
    let own: Vec<NodeId> = instances
        .filter(|instance| session.is_some_and(|session| session.id == instance.session))
        .flat_map(|instance| instance.nodes.iter().copied())
        .collect();
    let holders = status.nodes.iter().filter(|node| own.contains(&node.id));
    let holders: Vec<&NodeStatus> = holders.filter(is_offline).collect();
    if let (Some(job), [first, ..]) = (job, holders.as_slice()) {
        let name = first.name.clone();
        return format!(
            "no reply yet: job {job} has data on {}, offline. If a node will never come back, an \
             operator can give it up: `forebay forget {name}`",
            names(holders)
        );
    }
    let offline: Vec<&NodeStatus> = status.nodes.iter().filter(is_offline).collect();
    match offline.is_empty() {
        true => "no reply yet".to_owned(),
        false => format!("no reply yet, and {} offline", names(offline)),
    }
}

#[cfg(test)]
mod tests {
    use forebay_daemon::activity::RefusedHost;

    use super::*;

    #[test]
    fn reason_of_a_stall_names_refused_hosts_and_why() {
        let refused = RefusedHost {
            address: "10.0.0.12".to_owned(),
            nodes: vec!["s1".to_owned()],
            reason: "MUNGE: Rewound credential: the clocks differ".to_owned(),
        };
        let status = Status { refused: vec![refused], ..Status::default() };
        let expected = "no reply yet; s1 (10.0.0.12) is refused: MUNGE: Rewound credential: the \
                        clocks differ";
        assert_eq!(stall_reason(Ok(status), None), expected);
    }
}
