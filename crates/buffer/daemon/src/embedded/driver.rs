//! The thread that drives controller, node and host and carries out their effects.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

use forebay_policy::pool::NodeId;
use forebay_store::daemon::{self, Daemon};

use super::flash::StorageDriver;
use super::{Event, now};
use crate::activity::Status;
use crate::database::Database;
use crate::mounts::{Mounts, StorageAccess};
use forebay_control::compute_node::{self, ComputeNode};
use forebay_control::controller::{
    self, ControlStatus, Controller, Outcome, RequestId, Settings, StageState,
};
use forebay_control::messages::{MountPlan, Owner};
use forebay_control::storage_node::{self, StorageNode};

/// The host's name in the embedded pool.
pub const HOST_NAME: &str = "localhost";
/// Time between ticks.
const TICK: Duration = Duration::from_millis(200);
/// Longest time without writing the status anew, for the sake of what is counted.
const SHOW: Duration = Duration::from_secs(1);
/// Longest path of a Unix socket, with room to spare.
const SOCKET_PATH: usize = 100;

/// The user and group of this process, whom the pool belongs to.
fn own() -> Owner {
    Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

enum Step {
    Controller(controller::ControllerInput),
    Host(compute_node::ComputeInput),
}

pub(super) struct Driver {
    controller: Controller,
    controller_records: Database,
    flash: StorageDriver,
    host: ComputeNode,
    views: Arc<Mounts>,
    replies: BTreeMap<RequestId, SyncSender<Outcome>>,
    steps: VecDeque<Step>,
    /// Where other processes look for the status, and what was last written there.
    shown: (PathBuf, Option<ControlStatus>, std::time::Instant),
}

impl Driver {
    pub fn start(directory: &Path, caller: Owner, events: Sender<Event>) -> Result<Driver, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let controller_records =
            Database::open(&directory.join("controller.redb")).map_err(|e| text(&e))?;
        let node_records = Database::open(&directory.join("node.redb")).map_err(|e| text(&e))?;
        let settings = Settings {
            mount_root: directory.join("jobs").display().to_string(),
            operator: caller.uid,
            retry_interval_ms: 500,
            max_stages_per_node: 2,
            single_process: true,
            ..Settings::default()
        };
        let rows = controller_records.load_records().map_err(|e| text(&e))?;
        let controller = Controller::restore(settings, rows).map_err(|e| text(&e))?;
        let granules = controller
            .state()
            .storage
            .node(NodeId(0))
            .map_or(0, |node| node.granules);
        let rows = node_records.load_records().map_err(|e| text(&e))?;
        let node = StorageNode::restore(NodeId(0), granules, now(), rows).map_err(|e| text(&e))?;
        let mut options = daemon::InvalidOptions::new(directory.join("flash"));
        options.direct = daemon::Direct::Never; // there are no clients on other hosts
        if options.socket.as_os_str().len() > SOCKET_PATH {
            options.socket =
                std::env::temp_dir().join(format!("forebay-{}.socket", std::process::id()));
        }
        let daemon = Daemon::start(options).map_err(|e| text(&e))?;
        let reach = StorageAccess {
            own: Some((String::new(), daemon.address())),
            options: forebay_client::ClientOptions::default(),
        };
        let views = Arc::new(Mounts::new(
            directory.join("mounts"),
            HOST_NAME.to_owned(),
            reach,
        ));
        let journals = directory.join("journals");
        let flash =
            StorageDriver::new(node, node_records, daemon, views.clone(), journals, events)?;
        Ok(Driver {
            controller,
            controller_records,
            flash,
            host: ComputeNode::new(HOST_NAME.to_owned(), now()),
            views,
            replies: BTreeMap::new(),
            steps: VecDeque::new(),
            shown: (
                directory.join("status.json"),
                None,
                std::time::Instant::now(),
            ),
        })
    }

    /// Runs until it is told to stop or cannot go on.
    pub fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        self.sweep();
        self.steps
            .push_back(Step::Host(compute_node::ComputeInput::Tick));
        let outcome = self.serve(inbox);
        self.flash.stop_copies();
        self.sweep();
        outcome.and(self.flash.stop())
    }

    /// Removes journals that nobody needs any more; no copy may be under way.
    fn sweep(&self) {
        let wanted = |id| {
            let stage = self.controller.stage_status(id);
            stage.is_some_and(|stage| stage.state != StageState::Cancelled)
        };
        self.flash.sweep(wanted);
    }

    fn serve(&mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let mut ticked = std::time::Instant::now();
        self.settle()?;
        self.show_status();
        loop {
            self.settle()?;
            match inbox.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(event) => self.event(event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ticked.elapsed() >= TICK {
                ticked = std::time::Instant::now();
                self.flash.tick()?;
                self.steps
                    .push_back(Step::Host(compute_node::ComputeInput::Tick));
                self.steps
                    .push_back(Step::Controller(controller::ControllerInput::Tick));
                self.settle()?;
                self.show_status();
            }
        }
    }

    /// Notes the status for other processes; a failure costs them only that.
    fn show_status(&mut self) {
        let status = self.controller.status();
        let (path, shown, at) = &mut self.shown;
        if shown.as_ref() == Some(&status) && at.elapsed() < SHOW {
            return;
        }
        *shown = Some(status.clone());
        *at = std::time::Instant::now();
        let (new, path) = (path.with_extension("new"), path.clone());
        let written = serde_json::to_vec(&self.with_activity(status))
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&new, &text))
            .and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "the status cannot be shown to others");
        }
    }

    fn with_activity(&self, mut control: ControlStatus) -> Status {
        control.process = Some(std::process::id());
        Status {
            control,
            activity: vec![self.flash.activity(HOST_NAME)],
        }
    }

    fn event(&mut self, event: Event) {
        // Whoever asked may have gone; then nobody takes the answer.
        match event {
            Event::Ask(envelope, answer) => {
                tracing::debug!(request_id = %envelope.id, request = ?envelope.request, "asked");
                self.replies.insert(envelope.id, answer);
                self.steps
                    .push_back(Step::Controller(controller::ControllerInput::Request(
                        envelope,
                    )));
            }
            Event::Status(answer) => {
                let _ = answer.send(self.with_activity(self.controller.status()));
            }
            Event::Paths(token, answer) => {
                let _ = answer.send(self.controller.mount_variables(&token, own()));
            }
            Event::Job(token, answer) => {
                let _ = answer.send(self.controller.job_view(&token, own()));
            }
            Event::Asked(token, about, numbers, answer) => {
                let asked = self
                    .controller
                    .requested_stages(&token, own(), &about, &numbers);
                let _ = answer.send(asked);
            }
            Event::Node(storage_node::StorageInput::MoverEnded(stage, attempt, outcome)) => {
                self.flash.copied(stage, attempt, outcome);
            }
            Event::Node(input) => self.flash.take(input),
            Event::Attached(plan, outcome) => self.flash.attached(plan, outcome),
            // The controller is in this process, not outside.
            Event::Order(_) | Event::Welcome(_) | Event::Activity(_) => {}
            Event::Stop => {}
        }
    }

    /// Takes steps until there are none.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            for report in self.flash.settle()? {
                self.steps
                    .push_back(Step::Controller(controller::ControllerInput::Report(
                        report,
                    )));
            }
            match self.steps.pop_front() {
                Some(Step::Controller(input)) => self.controller_step(input)?,
                Some(Step::Host(input)) => self.host_step(input),
                None => return Ok(()),
            }
        }
    }

    fn controller_step(&mut self, input: controller::ControllerInput) -> Result<(), String> {
        for effect in self.controller.step(now(), input) {
            match effect {
                controller::ControllerEffect::Persist(changes) => {
                    self.controller_records
                        .commit(&changes)
                        .map_err(|e| e.to_string())?;
                }
                controller::ControllerEffect::SendToStorageNode(_, command) => {
                    self.flash
                        .take(storage_node::StorageInput::Command(command));
                }
                controller::ControllerEffect::SendToComputeNode(_, command) => self
                    .steps
                    .push_back(Step::Host(compute_node::ComputeInput::Command(command))),
                controller::ControllerEffect::Reply(id, outcome) => {
                    match &outcome {
                        Ok(answer) => tracing::debug!(request_id = %id, ?answer, "answered"),
                        Err(failure) => {
                            tracing::info!(request_id = %id, %failure, "refused or failed")
                        }
                    }
                    if let Some(answer) = self.replies.remove(&id) {
                        let _ = answer.send(outcome);
                    }
                }
            }
        }
        // A pool that was made larger has more granules from now on.
        let granules = self
            .controller
            .state()
            .storage
            .node(NodeId(0))
            .map_or(0, |node| node.granules);
        self.flash.set_granules(granules);
        Ok(())
    }

    fn host_step(&mut self, input: compute_node::ComputeInput) {
        for effect in self.host.step(input) {
            let next = match effect {
                compute_node::ComputeEffect::Report(report) => {
                    Step::Controller(controller::ControllerInput::Report(report))
                }
                compute_node::ComputeEffect::Mount(plan) => Step::Host(
                    compute_node::ComputeInput::Mounted(plan.activation, self.show(&plan)),
                ),
                compute_node::ComputeEffect::Unmount(plan) => {
                    self.views.unlink_path(&plan.path);
                    Step::Host(compute_node::ComputeInput::Unmounted(
                        plan.activation,
                        self.views.unmount_instance(plan.instance),
                    ))
                }
            };
            self.steps.push_back(next);
        }
    }

    fn show(&mut self, plan: &MountPlan) -> Result<(), String> {
        self.views
            .mount_instance(plan.instance, plan.mode, plan.owner, &plan.addresses)?;
        self.views
            .link_path(plan.instance, plan.mode, &plan.path)
            .inspect_err(|_| {
                let _ = self.views.unmount_instance(plan.instance);
            })
    }
}
