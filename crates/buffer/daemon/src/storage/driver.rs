//! The driver of a storage node: carries out the effects of [`StorageNode`] with a storage daemon,
//! a database and movers.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use forebay_client::Admin;
use forebay_control::messages::{
    FragmentId, FragmentPlan, InstanceId, ShareTally, StageId, StagePlan, StampedCommand,
    StorageCommand,
};
use forebay_control::storage_node::{MoverOutcome, StorageEffect, StorageInput, StorageNode};
use forebay_store::daemon::Daemon;

use super::fragments::{create_fragment, destroy_fragment};
use super::health::StoreHealth;
use super::mover_barrier::MoverBarrier;
use super::movers::{MoverEnd, Movers};
use super::run_stage::AttachedInstances;
use crate::activity::HostActivity;
use crate::clock::now;
use crate::database::Database;
use crate::directory::write_atomically;
use crate::flash_wear::WrittenBytes;
use crate::link::{ControllerLink, Delivery};
use crate::messages::Welcome;
use crate::mounts::Mounts;
use crate::worker::work_and_report;

/// Time between ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between ticks while stages or removals are in progress, so that their progress is seen.
const BUSY_TICK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum commands waiting to be carried out. Further ones are dropped: they are retransmitted.
const MAX_WAITING_COMMANDS: usize = 1024;
/// Time for the storage daemon's report.
const STORE_REPORT_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for which a fragment's removal is waited for before it is polled.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(20);

/// An input of the driver's loop.
pub(super) enum Event {
    Welcome(Welcome),
    Command(StampedCommand<StorageCommand>),
    /// The instances of a stage are attached, or cannot be.
    Attached(StagePlan, Result<AttachedInstances, String>),
    /// A mover has copied its share of a stage, and waits.
    ShareCopied(StageId, u32, ShareTally),
    MoverEnded(StageId, u32, MoverOutcome),
    Activity(SyncSender<HostActivity>),
    Stop,
}

/// Passes messages from the controller to the driver, a limited number of commands at a time.
#[derive(Clone)]
pub(super) struct CommandQueue {
    events: Sender<Event>,
    waiting: Arc<AtomicUsize>,
}

impl CommandQueue {
    pub fn new(events: Sender<Event>) -> CommandQueue {
        CommandQueue { events, waiting: Arc::default() }
    }

    pub fn deliver(&self, delivery: Delivery<StampedCommand<StorageCommand>>) {
        let event = match delivery {
            Delivery::Welcome(welcome) => Event::Welcome(welcome),
            Delivery::Command(_)
                if self.waiting.load(Ordering::Acquire) >= MAX_WAITING_COMMANDS =>
            {
                return;
            }
            Delivery::Command(command) => {
                self.waiting.fetch_add(1, Ordering::AcqRel);
                Event::Command(command)
            }
        };
        // The driver may have ended.
        let _ = self.events.send(event);
    }

    fn taken(&self) {
        let before = self.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "more commands taken than delivered");
    }
}

/// Components of a driver.
pub(super) struct Parts {
    pub host: String,
    pub directory: PathBuf,
    pub records: Database,
    pub daemon: Daemon,
    pub mounts: Arc<Mounts>,
    pub link: ControllerLink,
    pub commands: CommandQueue,
    pub events: Sender<Event>,
    pub activity_interval: Duration,
    pub lock: Option<File>,
}

pub(super) struct Driver {
    parts: Parts,
    admin: Admin,
    /// Restored once the controller has named this node's number.
    node: Option<StorageNode>,
    /// Inputs for the node; they wait until it is restored.
    inputs: VecDeque<StorageInput>,
    movers: Movers,
    /// Stages whose instance is being attached, and whether they are cancelled.
    attaching: BTreeMap<StageId, bool>,
    /// Destroyed fragments whose space is not yet free.
    removals: BTreeMap<FragmentId, InstanceId>,
    written: WrittenBytes,
    health: StoreHealth,
}

impl Driver {
    pub fn new(parts: Parts) -> Result<Driver, String> {
        let admin =
            Admin::connect(parts.daemon.address(), forebay_client::ClientOptions::default());
        let admin = admin.map_err(|e| format!("cannot connect to the storage daemon: {e}"))?;
        let movers = Movers::new(parts.directory.join("journals"));
        let flash = parts.directory.join("flash");
        let (written, health) = (WrittenBytes::of_device(&flash), StoreHealth::new(&flash));
        Ok(Driver {
            parts,
            admin,
            node: None,
            inputs: VecDeque::from([StorageInput::Started]),
            movers,
            attaching: BTreeMap::new(),
            removals: BTreeMap::new(),
            written,
            health,
        })
    }

    /// Runs until it is stopped, or until storage or database fail.
    pub fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let outcome = self.handle_events(inbox);
        self.movers.suspend_all();
        self.sweep_journals();
        let Driver { parts, admin, .. } = self;
        let Parts { daemon, mounts, link, lock: _lock, .. } = parts;
        drop(link);
        mounts.close_all();
        drop(admin);
        let stopped = daemon.stop().map_err(|e| format!("storage daemon: {e}"));
        outcome.and(stopped)
    }

    fn handle_events(&mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let (mut last_tick, mut last_activity) = (Instant::now(), None::<Instant>);
        loop {
            let interval = match self.is_busy() {
                true => BUSY_TICK_INTERVAL,
                false => TICK_INTERVAL.min(self.parts.activity_interval),
            };
            match inbox.recv_timeout(interval.saturating_sub(last_tick.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(event) => self.handle_event(event)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if last_tick.elapsed() >= interval {
                last_tick = Instant::now();
                self.tick()?;
            }
            self.step_node()?;
            let due = |last: Instant| last.elapsed() >= self.parts.activity_interval;
            if self.node.is_some() && last_activity.is_none_or(due) {
                last_activity = Some(Instant::now());
                let activity = self.activity();
                self.parts.link.send_activity(activity);
            }
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Welcome(welcome) => self.welcome(&welcome)?,
            Event::Command(command) => {
                self.parts.commands.taken();
                self.inputs.push_back(StorageInput::Command(command));
            }
            Event::Attached(plan, outcome) => self.attached(plan, outcome),
            Event::ShareCopied(stage, attempt, tally) => {
                self.inputs.extend(self.movers.progress_of(stage));
                self.inputs.push_back(StorageInput::ShareCopied(stage, attempt, tally));
            }
            Event::MoverEnded(stage, attempt, outcome) => {
                self.movers.ended(stage, attempt, &outcome);
                self.mover_ended(stage, attempt, outcome);
            }
            Event::Activity(answer) => {
                // The asking thread may have given up.
                let activity = self.activity();
                let _ = answer.try_send(activity);
            }
            Event::Stop => {}
        }
        Ok(())
    }

    /// The controller has named this node's number and size.
    fn welcome(&mut self, welcome: &Welcome) -> Result<(), String> {
        check_pool(&self.parts.directory, &welcome.pool)?;
        let id = welcome
            .node
            .ok_or("protocol error: the controller does not name this node's number")?;
        if let Some(node) = &mut self.node {
            node.set_granules(welcome.granules);
            return Ok(());
        }
        let rows = self.parts.records.load_records();
        let rows = rows.map_err(|e| e.to_string())?;
        let node = StorageNode::restore(id, welcome.granules, now(), rows);
        self.node = Some(node.map_err(|e| e.to_string())?);
        self.health.record_reply();
        self.sweep_journals();
        tracing::info!(node = id.0, pool = welcome.pool, "in service");
        Ok(())
    }

    /// Removes the journals of stages that cannot be resumed. No mover may run.
    fn sweep_journals(&self) {
        if let Some(node) = &self.node {
            self.movers.sweep_journals(|stage| node.may_resume_stage(stage));
        }
    }

    /// Whether something is in progress that others watch: stages, or removals.
    fn is_busy(&self) -> bool {
        !(self.attaching.is_empty() && self.movers.is_empty() && self.removals.is_empty())
    }

    /// Activity of this host so far.
    fn activity(&mut self) -> HostActivity {
        let (staged_in, staged_out) = self.movers.totals();
        let store = self.parts.daemon.stats().collect_report(STORE_REPORT_TIMEOUT);
        if store.gauges.is_some() {
            self.health.record_reply();
        }
        HostActivity {
            host: self.parts.host.clone(),
            at: now(),
            store: Some(store),
            mounts: BTreeMap::new(),
            io: BTreeMap::new(),
            staged_in,
            staged_out,
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        if self.parts.daemon.has_ended() {
            return Err("the storage daemon has stopped: its log has the reason".to_owned());
        }
        self.inputs.extend(self.movers.progress());
        self.check_removals();
        // Without reports the controller takes the node to be offline.
        if self.node.is_some() && self.health.is_working() {
            let written = self.written.since_start();
            self.inputs.push_back(StorageInput::Tick { written });
        }
        Ok(())
    }

    /// Steps the node until it has handled all inputs.
    fn step_node(&mut self) -> Result<(), String> {
        while let Some(node) = &mut self.node
            && let Some(input) = self.inputs.pop_front()
        {
            let mut done = None;
            if let StorageInput::MoverEnded(stage, _, MoverOutcome::Completed(_)) = &input {
                done = Some(*stage);
            }
            for effect in node.step(input) {
                self.carry_out(effect)?;
            }
            // The end of the stage is durable now, so its journal is not needed any more.
            if let Some(stage) = done {
                self.movers.remove_journal(stage);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: StorageEffect) -> Result<(), String> {
        match effect {
            StorageEffect::Persist(changes) => {
                let committed = self.parts.records.commit(&changes);
                committed.map_err(|e| e.to_string())?;
            }
            StorageEffect::Report(report) => self.parts.link.send_report(report),
            StorageEffect::Create(plan) => {
                let created = create_fragment(&self.admin, &plan);
                self.inputs.push_back(StorageInput::Created(plan.fragment, created));
            }
            StorageEffect::Destroy(plan) => {
                if let Err(reason) = self.destroy(&plan) {
                    let failed = StorageInput::Destroyed(plan.fragment, Err(reason));
                    self.inputs.push_back(failed);
                }
            }
            StorageEffect::FenceHosts(plan, hosts, through) => {
                let fenced = self.admin.fence_hosts(plan.instance, hosts);
                let fenced = fenced.map_err(|errno| errno.to_string());
                if let Err(error) = &fenced {
                    tracing::warn!(instance = %plan.instance, error, "cannot refuse mounts");
                }
                let done = StorageInput::HostsFenced(plan.fragment, through, fenced);
                self.inputs.push_back(done);
            }
            StorageEffect::StartMover(plan) => self.attach(plan),
            StorageEffect::ReleaseMover(stage, attempt, decision) => {
                self.movers.release(stage, attempt, decision);
            }
            StorageEffect::StopMover(stage, _) => {
                if let Some(cancelled) = self.attaching.get_mut(&stage) {
                    *cancelled = true;
                }
                self.movers.cancel(stage);
            }
        }
        Ok(())
    }

    fn destroy(&mut self, plan: &FragmentPlan) -> Result<(), String> {
        if self.removals.contains_key(&plan.fragment) {
            return Ok(());
        }
        self.parts.mounts.close_instance(plan.instance)?;
        destroy_fragment(&self.admin, plan)?;
        self.removals.insert(plan.fragment, plan.instance);
        let removals = self.parts.daemon.removal_queue();
        let _ = removals.wait_until_removed(plan.instance, REMOVAL_TIMEOUT);
        self.check_removals();
        Ok(())
    }

    /// Reports fragments as destroyed whose space is free, so that it can be granted again.
    fn check_removals(&mut self) {
        let (daemon, inputs) = (&self.parts.daemon, &mut self.inputs);
        self.removals.retain(|fragment, instance| {
            let gone = daemon.removal_queue().wait_until_removed(*instance, Duration::ZERO);
            if gone {
                inputs.push_back(StorageInput::Destroyed(*fragment, Ok(())));
            }
            !gone
        });
    }

    /// Attaches the instance of a stage, on a thread: it waits for all nodes of the instance.
    fn attach(&mut self, plan: StagePlan) {
        let node = self.node.as_ref();
        let addresses = node.map(|node| node.storage_addresses_of(plan.instance));
        let addresses = addresses.unwrap_or_default();
        let mounts = self.parts.mounts.clone();
        let (stage, attempt) = (plan.stage, plan.attempt);
        let attach = move |plan: &StagePlan| AttachedInstances::attach(plan, &mounts, &addresses);
        match spawn_attach(plan, attach, self.parts.events.clone()) {
            Ok(()) => {
                self.attaching.insert(stage, false);
            }
            Err(error) => {
                let failed = format!("cannot start a thread: {error}");
                self.mover_ended(stage, attempt, MoverOutcome::Failed(failed.into()));
            }
        }
    }

    /// Starts the mover of a stage whose instance is attached.
    fn attached(&mut self, plan: StagePlan, outcome: Result<AttachedInstances, String>) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        let cancelled = self.attaching.remove(&stage).unwrap_or(false);
        let started = match outcome {
            Ok(_) if cancelled => return self.mover_ended(stage, attempt, MoverOutcome::Stopped),
            Ok(attached) => {
                let events = self.parts.events.clone();
                let copied = events.clone();
                let barrier = MoverBarrier::new(move |tally| {
                    let _ = copied.send(Event::ShareCopied(stage, attempt, tally));
                });
                let report = move |MoverEnd { stage, attempt, outcome }| {
                    // The driver outlives its movers, unless it has failed.
                    let _ = events.send(Event::MoverEnded(stage, attempt, outcome));
                };
                self.movers.start(plan, attached, barrier, report)
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = started {
            self.mover_ended(stage, attempt, MoverOutcome::Failed(reason.into()));
        }
    }

    fn mover_ended(&mut self, stage: StageId, attempt: u32, outcome: MoverOutcome) {
        self.inputs.push_back(StorageInput::MoverEnded(stage, attempt, outcome));
    }
}

/// Attaches the instance of a stage on a thread. The outcome comes as [`Event::Attached`].
fn spawn_attach(
    plan: StagePlan,
    attach: impl FnOnce(&StagePlan) -> Result<AttachedInstances, String> + Send + 'static,
    events: Sender<Event>,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(format!("forebay-attach-{}", plan.stage.0));
    let run = move || {
        let panicked = || Err("attaching the instance panicked; see the log".to_owned());
        work_and_report(
            || attach(&plan),
            panicked,
            |outcome| {
                // The driver may have ended.
                let _ = events.send(Event::Attached(plan.clone(), outcome));
            },
        );
    };
    thread.spawn(run).map(drop)
}

/// Refuses a directory with data of another pool: its controller would have that data destroyed.
fn check_pool(directory: &Path, pool: &str) -> Result<(), String> {
    let file = directory.join("pool");
    let fail = |error: std::io::Error| format!("{}: {error}", file.display());
    match std::fs::read_to_string(&file) {
        Ok(known) if known.trim() == pool => Ok(()),
        Ok(known) => Err(format!(
            "{}: this directory belongs to pool {}, but the controller's is {pool}. Restore the \
             controller's own state, or empty the directory if its data is not needed",
            file.display(),
            known.trim()
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_atomically(&file, format!("{pool}\n").as_bytes(), 0o644).map_err(fail)
        }
        Err(error) => Err(fail(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    use forebay_control::messages::Owner;
    use forebay_job_script::JobScript;

    fn plan() -> StagePlan {
        let script = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                      #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n";
        let owner = Owner { uid: 1000, gid: 100 };
        StagePlan {
            stage: StageId(7),
            attempt: 2,
            instance: InstanceId(1),
            instance_ref: None,
            owner,
            instance_owner: owner,
            directive: JobScript::parse(script, None).unwrap().stages.remove(0),
            pfs_roots: Vec::new(),
            read_back: false,
            copy_of: None,
            share: None,
        }
    }

    #[test]
    fn stage_whose_instance_cannot_be_attached_for_a_panic_fails() {
        let (events, inbox) = channel();
        spawn_attach(plan(), |_| panic!("a panic of a test"), events).unwrap();
        let Ok(Event::Attached(of, Err(reason))) = inbox.recv() else { panic!("no outcome") };
        assert_eq!((of.stage, of.attempt), (StageId(7), 2));
        assert!(reason.contains("panicked"), "{reason}");
        assert!(inbox.recv().is_err(), "there is one outcome");
    }
}
