//! A compute node's agent as a daemon: it mounts what the controller orders, passes on what the
//! processes of its host ask, and stages for the jobs that run there when they ask for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_job_script::AccessMode;
use forebay_protocol::address::Address;

use super::config::PoolConfig;
use super::doors::{Doors, Limits};
use super::link::{ControllerLink, Delivery};
use super::messages::Role;
use super::relay::Relay;
use super::server::Listener;
use super::{DaemonError, create_private_directory, lock_directory};
use crate::activity::Status;
use crate::activity::{HostActivity, StatusSource};
use crate::embedded::now;
use crate::job_api::AgentJobApi;
use crate::mounts::{Mounts, StorageAccess, unmount_stale};
use forebay_control::compute_node::{ComputeEffect, ComputeInput, ComputeNode};
use forebay_control::messages::{ComputeCommand, MountPlan, StampedCommand};

/// Time between reports that the host lives.
const TICK: Duration = Duration::from_secs(1);
/// Orders and outcomes that wait; orders beyond it are dropped, since they are repeated.
const WAITING: usize = 1024;
/// Mounts and unmounts under way at a time; more fail, and can be asked for again.
const MAX_WORK: usize = 256;

enum Event {
    Order(StampedCommand<ComputeCommand>),
    Done(ComputeInput),
    Activity(SyncSender<HostActivity>),
    Stop,
}

/// A running agent. Dropping it stops it, and unmounts what it has mounted.
pub struct AgentDaemon {
    events: SyncSender<Event>,
    thread: Option<JoinHandle<()>>,
    listeners: Vec<Listener>,
}

impl AgentDaemon {
    /// Begins to listen to the host's processes and looks for the controller. Takes away what an
    /// earlier agent left mounted.
    pub fn start(config: &PoolConfig, name: &str) -> Result<AgentDaemon, DaemonError> {
        let identity = config.identity()?;
        let home = &config.agent_directory;
        create_private_directory(home, 0o755)?;
        let lock = lock_directory(home)?;
        let mounts = home.join("mounts");
        create_private_directory(&mounts, 0o755)?;
        unmount_stale(&mounts);
        let own = config.storage_node(name);
        let reach = StorageAccess {
            own: own.map(|node| (node.address.to_string(), Address::Unix(node.socket()))),
            options: forebay_client::ClientOptions {
                timeout: config.storage_timeout,
                key: identity.key.clone(),
                munge: identity.munge.clone(),
                ..forebay_client::ClientOptions::default()
            },
        };
        let (calls_identity, mounts_of_jobs) = (identity.clone(), mounts.clone());
        let views = Arc::new(Mounts::new(mounts, name.to_owned(), reach).without_attachments());
        let (events, inbox) = sync_channel(WAITING);
        let told = events.clone();
        let deliver = move |received| match received {
            Delivery::Welcome(_) => true,
            // From a controller that takes this host for a storage node.
            Delivery::StorageCommand(_) => true,
            Delivery::ComputeCommand(order) => {
                let _ = told.try_send(Event::Order(order));
                true
            }
        };
        let controller = Address::Tcp(config.controller);
        let role = Role::Agent(name.to_owned());
        let link = ControllerLink::start(controller.clone(), role, identity.clone(), deliver)?;
        let relay = Relay {
            controller,
            identity,
            host: name.to_owned(),
        };
        let listener = Listener::unix(&config.agent_socket)?;
        let doors = Doors::new(Limits::USUAL);
        listener.serve(doors, move |stream, ticket| relay.serve(stream, ticket))?;
        let calls = Arc::new(AgentJobApi::new(
            config.clone(),
            calls_identity,
            mounts_of_jobs,
        ));
        let calls_listener = Listener::unix(&config.job_api_socket())?;
        let answering = calls.clone();
        let doors = Doors::new(AgentJobApi::LIMITS);
        calls_listener.serve(doors, move |stream, ticket| {
            answering.serve(&stream, ticket);
        })?;
        let run = Run {
            name: name.to_owned(),
            host: ComputeNode::new(name.to_owned(), now()),
            views,
            calls,
            link,
            events: events.clone(),
            work: Arc::default(),
            _lock: lock,
        };
        let thread = std::thread::Builder::new()
            .name("forebay-agent".into())
            .spawn(move || run.run(&inbox))
            .map_err(DaemonError::with_context("no thread can be made"))?;
        Ok(AgentDaemon {
            events,
            thread: Some(thread),
            listeners: vec![listener, calls_listener],
        })
    }

    /// What it does, again and again, for another thread.
    pub fn source(&self) -> StatusSource {
        let events = self.events.clone();
        Box::new(move || {
            let (answer, activity) = sync_channel(1);
            let sent = events.try_send(Event::Activity(answer));
            sent.map_err(|_| "the agent is busy".to_owned())?;
            let activity = activity.recv_timeout(TICK);
            let activity = activity.map_err(|_| "the agent is busy".to_owned())?;
            Ok(Status {
                activity: vec![activity],
                ..Status::default()
            })
        })
    }

    /// Stops it and unmounts what it has mounted.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.listeners.clear();
        if let Some(thread) = self.thread.take() {
            let _ = self.events.send(Event::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for AgentDaemon {
    fn drop(&mut self) {
        self.end();
    }
}

struct Run {
    name: String,
    host: ComputeNode,
    views: Arc<Mounts>,
    calls: Arc<AgentJobApi>,
    link: ControllerLink,
    events: SyncSender<Event>,
    work: Arc<AtomicUsize>,
    _lock: std::fs::File,
}

impl Run {
    fn run(mut self, inbox: &Receiver<Event>) {
        let mut ticked = Instant::now();
        self.step(ComputeInput::Tick);
        loop {
            match inbox.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Order(order)) => self.step(ComputeInput::Command(order)),
                Ok(Event::Done(input)) => self.step(input),
                Ok(Event::Activity(answer)) => {
                    // Who asked may have gone.
                    let _ = answer.try_send(self.activity());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.step(ComputeInput::Tick);
                self.link.send_activity(self.activity());
                self.calls.drop_idle();
            }
        }
        drop(self.link);
        self.views.close_all();
    }

    /// What this process has done so far.
    fn activity(&self) -> HostActivity {
        HostActivity {
            host: self.name.clone(),
            at: now(),
            mounts: self.views.reports(),
            ..HostActivity::default()
        }
    }

    fn step(&mut self, input: ComputeInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.host.step(input) {
                let refused = match effect {
                    ComputeEffect::Report(report) => {
                        self.link.send_report(report);
                        continue;
                    }
                    ComputeEffect::Mount(plan) => {
                        let activation = plan.activation;
                        let views = self.views.clone();
                        self.begin(move || ComputeInput::Mounted(activation, show(&views, &plan)))
                            .err()
                            .map(|reason| ComputeInput::Mounted(activation, Err(reason)))
                    }
                    ComputeEffect::Unmount(plan) => {
                        let activation = plan.activation;
                        let views = self.views.clone();
                        self.begin(move || ComputeInput::Unmounted(activation, hide(&views, &plan)))
                            .err()
                            .map(|reason| ComputeInput::Unmounted(activation, Err(reason)))
                    }
                };
                inputs.extend(refused);
            }
        }
    }

    /// Does something on a thread of its own: it may have to wait for storage daemons.
    fn begin(&self, work: impl FnOnce() -> ComputeInput + Send + 'static) -> Result<(), String> {
        if self.work.fetch_add(1, Ordering::AcqRel) >= MAX_WORK {
            self.work.fetch_sub(1, Ordering::AcqRel);
            return Err(format!(
                "{MAX_WORK} mounts are under way on this host; try again"
            ));
        }
        let (count, events) = (self.work.clone(), self.events.clone());
        let run = move || {
            let input = work();
            count.fetch_sub(1, Ordering::AcqRel);
            // The agent may have ended meanwhile.
            let _ = events.send(Event::Done(input));
        };
        let spawned = std::thread::Builder::new()
            .name("forebay-mount".into())
            .spawn(run);
        spawned.map(drop).map_err(|error| {
            self.work.fetch_sub(1, Ordering::AcqRel);
            format!("no thread can be made: {error}")
        })
    }
}

fn show(views: &Mounts, plan: &MountPlan) -> Result<(), String> {
    let (instance, mode) = (plan.instance, plan.mode);
    if views.is_mounted(instance) && mode == AccessMode::LoadBalanced {
        views.switch_replica(instance, plan.owner, &plan.addresses, plan.generation)?;
        return views.link_path(instance, mode, &plan.path);
    }
    views.mount_instance(instance, mode, plan.owner, &plan.addresses)?;
    views
        .link_path(instance, mode, &plan.path)
        .inspect_err(|_| {
            let _ = views.unmount_instance(instance);
        })
}

fn hide(views: &Mounts, plan: &MountPlan) -> Result<(), String> {
    views.unlink_path(&plan.path);
    views.unmount_instance(plan.instance)?;
    views.close_unused_instance(plan.instance);
    Ok(())
}
