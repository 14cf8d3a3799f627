//! The driver of a compute node: carries out the effects of [`ComputeNode`].

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use forebay_control::compute_node::{ComputeEffect, ComputeInput, ComputeNode};
use forebay_control::messages::{ActivationId, ComputeCommand, MountPlan, StampedCommand};
use parking_lot::Mutex;

use crate::activity::HostActivity;
use crate::clock::now;
use crate::job_api::JobApi;
use crate::link::ControllerLink;
use crate::mounts::Mounts;
use crate::worker::work_and_report;

/// Time between ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum mounts and unmounts in progress. Further ones fail, and can be requested again.
const MAX_MOUNTS_IN_PROGRESS: usize = 256;

/// Parameters of a compute node at its start.
pub(crate) struct Setup {
    /// Its name, by which jobs are mounted on it.
    pub name: String,
    pub mounts: Arc<Mounts>,
    /// The service for the jobs' own stages.
    pub job_api: Arc<JobApi>,
    /// Time between reports of counters.
    pub activity_interval: Duration,
    /// Held as long as the compute node runs.
    pub lock: Option<File>,
}

/// An input of the driver's loop.
pub(super) enum Event {
    Command(StampedCommand<ComputeCommand>),
    /// An effect was carried out.
    Done(ComputeInput),
    Activity(SyncSender<HostActivity>),
    Stop,
}

pub(super) struct Driver {
    name: String,
    node: ComputeNode,
    mounter: Arc<Mounter>,
    job_api: Arc<JobApi>,
    link: ControllerLink,
    threads: MountThreads,
    activity_interval: Duration,
    _lock: Option<File>,
}

impl Driver {
    pub fn new(setup: Setup, link: ControllerLink, events: SyncSender<Event>) -> Driver {
        Driver {
            node: ComputeNode::new(setup.name.clone(), now()),
            name: setup.name,
            mounter: Arc::new(Mounter { mounts: setup.mounts, mounted: Mutex::default() }),
            job_api: setup.job_api,
            link,
            threads: MountThreads { events, in_progress: Arc::default() },
            activity_interval: setup.activity_interval,
            _lock: setup.lock,
        }
    }

    /// Runs until it is stopped; then it unmounts everything.
    pub fn run(mut self, inbox: &Receiver<Event>) {
        let mut last_tick = Instant::now();
        let mut last_activity = last_tick;
        let interval = TICK_INTERVAL.min(self.activity_interval);
        self.step(ComputeInput::Tick);
        loop {
            match inbox.recv_timeout(interval.saturating_sub(last_tick.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Command(command)) => self.step(ComputeInput::Command(command)),
                Ok(Event::Done(input)) => {
                    // The controller knows the counters of a mount before it knows its end.
                    if matches!(input, ComputeInput::Unmounted(..)) {
                        self.link.send_activity(self.activity());
                    }
                    self.step(input);
                }
                Ok(Event::Activity(answer)) => {
                    // The asking thread may have given up.
                    let _ = answer.try_send(self.activity());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if last_tick.elapsed() >= interval {
                last_tick = Instant::now();
                self.step(ComputeInput::Tick);
                self.job_api.drop_idle();
            }
            if last_activity.elapsed() >= self.activity_interval {
                last_activity = Instant::now();
                self.link.send_activity(self.activity());
            }
        }
        drop(self.link);
        self.mounter.mounts.close_all();
    }

    /// Activity of this host so far.
    fn activity(&self) -> HostActivity {
        HostActivity {
            host: self.name.clone(),
            at: now(),
            mounts: self.mounter.mounts.reports(),
            io: self.mounter.mounts.io(),
            ..HostActivity::default()
        }
    }

    fn step(&mut self, input: ComputeInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.node.step(input) {
                match effect {
                    ComputeEffect::Report(report) => self.link.send_report(report),
                    ComputeEffect::Mount(plan) => {
                        let mounter = self.mounter.clone();
                        let mount = move |plan: &MountPlan| mounter.mount(plan);
                        inputs.extend(self.threads.spawn(plan, mount, ComputeInput::Mounted));
                    }
                    ComputeEffect::Unmount(plan) => {
                        let mounter = self.mounter.clone();
                        let unmount = move |plan: &MountPlan| mounter.unmount(plan);
                        inputs.extend(self.threads.spawn(plan, unmount, ComputeInput::Unmounted));
                    }
                }
            }
        }
    }
}

/// The threads that mount and unmount, which may have to wait for storage daemons.
struct MountThreads {
    events: SyncSender<Event>,
    in_progress: Arc<AtomicUsize>,
}

impl MountThreads {
    /// Mounts or unmounts on a thread. Returns the input for the node if that cannot even begin.
    fn spawn(
        &self,
        plan: MountPlan,
        action: impl FnOnce(&MountPlan) -> Result<(), String> + Send + 'static,
        done: fn(ActivationId, Result<(), String>) -> ComputeInput,
    ) -> Option<ComputeInput> {
        let activation = plan.activation;
        if self.in_progress.fetch_add(1, Ordering::AcqRel) >= MAX_MOUNTS_IN_PROGRESS {
            self.in_progress.fetch_sub(1, Ordering::AcqRel);
            let reason = format!("{MAX_MOUNTS_IN_PROGRESS} mounts are in progress; try again");
            return Some(done(activation, Err(reason)));
        }
        let (events, in_progress) = (self.events.clone(), self.in_progress.clone());
        let run = move || {
            let panicked = || Err("it panicked; see the log of the agent".to_owned());
            work_and_report(
                || action(&plan),
                panicked,
                |outcome| {
                    in_progress.fetch_sub(1, Ordering::AcqRel);
                    // The driver may have ended.
                    let _ = events.send(Event::Done(done(activation, outcome)));
                },
            );
        };
        let thread = std::thread::Builder::new().name("forebay-mount".into());
        let error = thread.spawn(run).err()?;
        self.in_progress.fetch_sub(1, Ordering::AcqRel);
        let reason = format!("cannot start a thread: {error}");
        Some(done(activation, Err(reason)))
    }
}

/// Carries out mounts and unmounts.
struct Mounter {
    mounts: Arc<Mounts>,
    /// Activations that use a mount.
    mounted: Mutex<BTreeSet<ActivationId>>,
}

impl Mounter {
    /// Mounts the instance. A mount of this activation is replaced by one of the plan's generation.
    fn mount(&self, plan: &MountPlan) -> Result<(), String> {
        let (instance, mode) = (plan.instance, plan.mode);
        if self.mounted.lock().contains(&plan.activation) {
            let (owner, addresses) = (plan.owner, &plan.addresses);
            self.mounts.replace_mount(instance, mode, owner, addresses, plan.generation)?;
            return self.mounts.link_path(instance, mode, &plan.path);
        }
        let (owner, addresses) = (plan.owner, &plan.addresses);
        self.mounts.mount_instance(instance, mode, owner, addresses, plan.generation)?;
        let linked = self.mounts.link_path(instance, mode, &plan.path);
        match &linked {
            Ok(()) => drop(self.mounted.lock().insert(plan.activation)),
            Err(_) => drop(self.mounts.unmount_instance(instance)),
        }
        linked
    }

    fn unmount(&self, plan: &MountPlan) -> Result<(), String> {
        self.mounts.unlink_path(&plan.path);
        self.mounts.unmount_instance(plan.instance)?;
        self.mounted.lock().remove(&plan.activation);
        self.mounts.close_unused_instance(plan.instance);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    use forebay_control::messages::{
        ComputeReport, InstanceId, Owner, Report, StateStamp, UnixMillis,
    };
    use forebay_job_script::AccessMode;

    fn plan() -> MountPlan {
        MountPlan {
            activation: ActivationId(3),
            instance: InstanceId(1),
            mode: AccessMode::Striped,
            generation: 0,
            path: "/mnt/7/ss/".into(),
            owner: Owner { uid: 1000, gid: 100 },
            nodes: Vec::new(),
            addresses: Vec::new(),
        }
    }

    fn command(command: ComputeCommand) -> ComputeInput {
        let state = StateStamp { revision: 1, ..StateStamp::default() };
        ComputeInput::Command(StampedCommand { last_report: 1 << 16, state, command })
    }

    /// The inputs that follow from the effects of a node whose mounts and unmounts panic, and its
    /// reports.
    fn carry_out(threads: &MountThreads, effects: Vec<ComputeEffect>) -> Vec<ComputeReport> {
        let mut reports = Vec::new();
        for effect in effects {
            let panics = |_: &MountPlan| panic!("a panic of a test");
            let failed = match effect {
                ComputeEffect::Mount(plan) => threads.spawn(plan, panics, ComputeInput::Mounted),
                ComputeEffect::Unmount(plan) => {
                    threads.spawn(plan, panics, ComputeInput::Unmounted)
                }
                ComputeEffect::Report(Report::Compute { body, .. }) => {
                    reports.push(body);
                    None
                }
                ComputeEffect::Report(other) => panic!("{other:?}"),
            };
            assert!(failed.is_none(), "{failed:?}");
        }
        reports
    }

    #[test]
    fn mount_and_unmount_that_panic_fail_and_can_be_repeated() {
        let (events, inbox) = sync_channel(16);
        let threads = MountThreads { events, in_progress: Arc::default() };
        let mut node = ComputeNode::new("nid0".into(), UnixMillis(1));
        let done = || match inbox.recv_timeout(Duration::from_secs(20)) {
            Ok(Event::Done(input)) => input,
            _ => panic!("no outcome"),
        };
        for _ in 0..2 {
            let effects = node.step(command(ComputeCommand::Mount(plan())));
            assert_eq!(carry_out(&threads, effects), []);
            let effects = node.step(done());
            let [ComputeReport::MountFailed(id, 0, reason)] = &carry_out(&threads, effects)[..]
            else {
                panic!("the mount has not failed");
            };
            assert!(*id == plan().activation && reason.contains("panicked"), "{reason}");
        }
        node.step(command(ComputeCommand::Mount(plan())));
        node.step(ComputeInput::Mounted(plan().activation, Ok(())));
        for _ in 0..2 {
            let effects = node.step(command(ComputeCommand::Unmount(plan().activation)));
            assert_eq!(effects.len(), 1, "it is tried: {effects:?}");
            assert_eq!(carry_out(&threads, effects), []);
            let effects = node.step(done());
            assert_eq!(carry_out(&threads, effects), []);
        }
        assert_eq!(threads.in_progress.load(Ordering::Acquire), 0);
    }
}
