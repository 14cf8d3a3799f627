//! A storage node at work: carries out what [`Node`] decides, with a storage daemon, a database,
//! mounts and movers.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use forebay_client::{Admin, Fs};
use forebay_job_script::AccessMode;
use forebay_protocol::Errno;
use forebay_protocol::message::InstanceSpec;
use forebay_store::daemon::Daemon;

use super::movers::Movers;
use super::{Event, now};
use crate::activity::HostActivity;
use crate::database::Database;
use crate::flash_wear::WrittenBytes;
use crate::mounts::Mounts;
use forebay_control::messages::{FragmentId, FragmentPlan, InstanceId, Report, StageId, StagePlan};
use forebay_control::storage_node::{MoverOutcome, StorageEffect, StorageInput, StorageNode};

/// How long the storage daemon may take to say what it has.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a fragment's removal is waited for before it is looked after now and then.
const SOON: Duration = Duration::from_millis(20);

/// The storage node of this process.
pub(crate) struct StorageDriver {
    node: StorageNode,
    records: Database,
    daemon: Daemon,
    admin: Admin,
    views: Arc<Mounts>,
    copies: Movers,
    /// Stages whose instance is being attached, and whether they are to stop.
    attaching: BTreeMap<StageId, bool>,
    /// Fragments that are destroyed and still take space.
    leaving: BTreeMap<FragmentId, InstanceId>,
    events: Sender<Event>,
    inputs: VecDeque<StorageInput>,
    written: WrittenBytes,
}

impl StorageDriver {
    /// A node with its records, over a running storage daemon. The ends of copies come through
    /// `events`.
    pub fn new(
        node: StorageNode,
        records: Database,
        daemon: Daemon,
        views: Arc<Mounts>,
        journals: PathBuf,
        events: Sender<Event>,
    ) -> Result<StorageDriver, String> {
        let admin = Admin::connect(daemon.address(), forebay_client::ClientOptions::default());
        let admin = admin.map_err(|e| format!("the storage daemon does not answer: {e}"))?;
        Ok(StorageDriver {
            node,
            records,
            daemon,
            admin,
            views,
            written: WrittenBytes::of_device(&journals),
            copies: Movers::new(journals),
            attaching: BTreeMap::new(),
            leaving: BTreeMap::new(),
            events,
            inputs: VecDeque::from([StorageInput::Started]),
        })
    }

    /// Gives it more granules, or fewer.
    pub fn set_granules(&mut self, granules: u64) {
        self.node.set_granules(granules);
    }

    /// Whether something is under way that others watch: copies, or a removal.
    pub fn is_busy(&self) -> bool {
        let copying = !self.attaching.is_empty() || !self.copies.progress().is_empty();
        copying || !self.leaving.is_empty()
    }

    /// Something happened to it.
    pub fn take(&mut self, input: StorageInput) {
        self.inputs.push_back(input);
    }

    /// A copy's instance is attached, or cannot be.
    pub fn attached(&mut self, plan: StagePlan, outcome: Result<Fs, String>) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        let stopped = self.attaching.remove(&stage).unwrap_or(false);
        let begun = match outcome {
            Ok(_) if stopped => {
                return self.take(StorageInput::MoverEnded(
                    stage,
                    attempt,
                    MoverOutcome::Stopped,
                ));
            }
            Ok(attached) => self.copies.begin(plan, attached, self.events.clone()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = begun {
            self.take(StorageInput::MoverEnded(
                stage,
                attempt,
                MoverOutcome::Failed(reason.into()),
            ));
        }
    }

    /// What this process, called `host`, has done so far.
    pub fn activity(&self, host: &str) -> HostActivity {
        let (staged_in, staged_out) = self.copies.totals();
        HostActivity {
            host: host.to_owned(),
            at: now(),
            store: Some(self.daemon.stats().collect_report(PATIENCE)),
            mounts: self.views.reports(),
            staged_in,
            staged_out,
        }
    }

    /// Removes the journals of stages that do not go on, as far as the node knows or because they
    /// are not `wanted`; no copy may be under way.
    pub fn sweep(&self, wanted: impl Fn(StageId) -> bool) {
        self.copies
            .sweep(|stage| self.node.may_resume_stage(stage) && wanted(stage));
    }

    /// Stops all copies and waits for their ends.
    pub fn stop_copies(&mut self) {
        self.copies.stop_all();
    }

    /// A copy has ended.
    pub fn copied(&mut self, stage: StageId, attempt: u32, outcome: MoverOutcome) {
        self.copies.ended(stage, &outcome);
        self.take(StorageInput::MoverEnded(stage, attempt, outcome));
    }

    /// Time passes.
    pub fn tick(&mut self) -> Result<(), String> {
        if self.daemon.has_ended() {
            return Err("the storage daemon has ended: its storage failed".to_owned());
        }
        self.inputs.extend(self.copies.progress());
        self.look_after_removals();
        self.inputs.push_back(StorageInput::Tick {
            written: self.written.since_start(),
        });
        Ok(())
    }

    /// Does what there is to do, and says what the controller is to hear.
    pub fn settle(&mut self) -> Result<Vec<Report>, String> {
        let mut reports = Vec::new();
        while let Some(input) = self.inputs.pop_front() {
            let done = match &input {
                StorageInput::MoverEnded(stage, _, MoverOutcome::Completed(_)) => Some(*stage),
                _ => None,
            };
            for effect in self.node.step(input) {
                match effect {
                    StorageEffect::Persist(changes) => {
                        self.records.commit(&changes).map_err(|e| e.to_string())?;
                    }
                    StorageEffect::Report(report) => reports.push(report),
                    StorageEffect::Create(plan) => {
                        let made = create_fragment(&self.admin, &plan);
                        self.inputs
                            .push_back(StorageInput::Created(plan.fragment, made));
                    }
                    StorageEffect::Destroy(plan) => {
                        if let Err(reason) = self.destroy(&plan) {
                            let failed = StorageInput::Destroyed(plan.fragment, Err(reason));
                            self.inputs.push_back(failed);
                        }
                    }
                    StorageEffect::StartMover(plan) => self.begin_copy(plan),
                    StorageEffect::StopMover(stage, _) => {
                        if let Some(stop) = self.attaching.get_mut(&stage) {
                            *stop = true;
                        }
                        self.copies.stop(stage);
                    }
                }
            }
            // Its end is durable now: the journal has done its work.
            if let Some(stage) = done {
                self.copies.forget(stage);
            }
        }
        Ok(reports)
    }

    fn destroy(&mut self, plan: &FragmentPlan) -> Result<(), String> {
        if self.leaving.contains_key(&plan.fragment) {
            return Ok(());
        }
        self.views.close_instance(plan.instance)?;
        destroy_fragment(&self.admin, plan)?;
        self.leaving.insert(plan.fragment, plan.instance);
        let id = forebay_protocol::InstanceId(plan.instance.0);
        let _ = self.daemon.removal_queue().wait_until_removed(id, SOON);
        self.look_after_removals();
        Ok(())
    }

    /// A fragment is gone when its space is free, and can be promised to others.
    fn look_after_removals(&mut self) {
        let (daemon, inputs) = (&self.daemon, &mut self.inputs);
        self.leaving.retain(|fragment, instance| {
            let id = forebay_protocol::InstanceId(instance.0);
            let gone = daemon
                .removal_queue()
                .wait_until_removed(id, Duration::ZERO);
            if gone {
                inputs.push_back(StorageInput::Destroyed(*fragment, Ok(())));
            }
            !gone
        });
    }

    /// Attaching waits for all nodes of the instance, so a thread does it.
    fn begin_copy(&mut self, plan: StagePlan) {
        let addresses = self.node.storage_addresses_of(plan.instance);
        let (views, events) = (self.views.clone(), self.events.clone());
        let (stage, attempt) = (plan.stage, plan.attempt);
        let attach = move || {
            let mode = AccessMode::Striped;
            let outcome =
                views.attach_instance(plan.instance, mode, plan.instance_owner, &addresses);
            // The driver may have ended meanwhile.
            let _ = events.send(Event::Attached(plan, outcome));
        };
        let thread = std::thread::Builder::new().name(format!("forebay-attach-{}", stage.0));
        match thread.spawn(attach) {
            Ok(_) => {
                self.attaching.insert(stage, false);
            }
            Err(error) => {
                let failed = MoverOutcome::Failed(format!("no thread can be made: {error}").into());
                self.take(StorageInput::MoverEnded(stage, attempt, failed));
            }
        }
    }

    /// Stops copies, unmounts, and makes everything durable.
    pub fn stop(mut self) -> Result<(), String> {
        self.copies.stop_all();
        self.views.close_all();
        drop(self.admin);
        self.daemon
            .stop()
            .map_err(|e| format!("the storage daemon: {e}"))
    }
}

/// Has a storage daemon make room for a fragment, or find that it is there already.
pub fn create_fragment(admin: &Admin, plan: &FragmentPlan) -> Result<(), String> {
    let _span = tracing::error_span!("instance", instance = plan.instance.0).entered();
    // As in the original, a limit holds for each name space, and every node has one.
    let inodes = plan
        .max_files
        .unwrap_or((plan.capacity.0 / 4096).max(100_000));
    let spec = InstanceSpec {
        id: forebay_protocol::InstanceId(plan.instance.0),
        uid: plan.owner.uid,
        gid: plan.owner.gid,
        mode: u16::try_from(plan.root_permissions & 0o7777).unwrap_or(0o770),
        capacity: plan.capacity.0,
        // The root and the directories of the access modes are not the user's files.
        inodes: inodes.saturating_add(4),
        placement: plan.place.clone(),
    };
    match admin.create_instance(spec) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(format!("the storage daemon cannot make it: {errno}")),
    }
}

/// Has a storage daemon destroy a fragment, if it is there.
pub fn destroy_fragment(admin: &Admin, plan: &FragmentPlan) -> Result<(), String> {
    let _span = tracing::error_span!("instance", instance = plan.instance.0).entered();
    // Nobody may use it any more, whoever still has a file of it open.
    match admin.remove_instance(forebay_protocol::InstanceId(plan.instance.0), true) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(format!("the storage daemon cannot remove it: {errno}")),
    }
}
