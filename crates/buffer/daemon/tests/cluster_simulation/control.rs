//! The control plane of storage nodes: fragments are created and destroyed, movers run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::Admin;
use forebay_control::controller;
use forebay_control::messages::{FragmentPlan, HostFence, InstanceId, StagePlan};
use forebay_control::storage_node::{self, MoverOutcome};
use forebay_daemon::mounts::{Mounts, StorageAccess};
use forebay_daemon::storage::{
    AttachedInstances, create_fragment, destroy_fragment, run_stage, share_of, verify_mode,
};
use forebay_job_script::Direction;
use forebay_protocol::message::ClientHost;
use forebay_stage::StageOptions;
use forebay_stage::end::FileSystem;

use crate::actor_thread::{Machine, Outcome};
use crate::barrier::{SimBarrier, SimMover};
use crate::journals::journal;
use crate::machines::{Compute, MachineId, apply_changes};
use crate::network::address;
use crate::process::check_copy;
use crate::world::{Event, World, host_name};

impl World {
    pub fn node_step(&mut self, index: usize, input: storage_node::StorageInput) {
        let Some(node) = &mut self.nodes[index].node else {
            return;
        };
        self.steps += 1;
        let completed = match &input {
            storage_node::StorageInput::MoverEnded(stage, _, MoverOutcome::Completed(_)) => {
                Some(*stage)
            }
            _ => None,
        };
        for effect in node.step(input) {
            if self.chance(self.faults.crash) {
                let power_cut = self.power_fails();
                return self.crash_node(index, power_cut);
            }
            match effect {
                storage_node::StorageEffect::Persist(changes) => {
                    apply_changes(&mut self.nodes[index].records, changes)
                }
                storage_node::StorageEffect::Report(report) => {
                    let input = controller::ControllerInput::Report(report);
                    let message = Event::ToController(Box::new(input));
                    self.send(MachineId::Node(index), MachineId::Controller, message);
                }
                storage_node::StorageEffect::Create(plan) => self.create(index, plan),
                storage_node::StorageEffect::Destroy(plan) => self.destroy(index, plan),
                storage_node::StorageEffect::FenceHosts(plan, hosts, through) => {
                    self.fence_hosts(index, plan, hosts, through);
                }
                storage_node::StorageEffect::StartMover(plan) => self.start_mover(index, plan),
                storage_node::StorageEffect::ReleaseMover(stage, attempt, decision) => {
                    let mover = self.nodes[index].movers.get(&stage);
                    if let Some(mover) = mover.filter(|mover| mover.attempt == attempt) {
                        mover.barrier.release(decision);
                    }
                }
                storage_node::StorageEffect::StopMover(stage, _) => {
                    if let Some(mover) = self.nodes[index].movers.get(&stage) {
                        mover.counters.cancel();
                    }
                }
            }
        }
        if let Some(stage) = completed {
            self.nodes[index].journals.remove(stage);
        }
    }

    pub fn options(&self) -> forebay_client::ClientOptions {
        forebay_client::ClientOptions {
            timeout: Duration::from_secs(20),
            // These would take threads, which are not simulated.
            read_ahead_bytes: 0,
            batch_closes: false,
            delays_writes: false,
            system: Arc::new(Machine(self.shared.clone())),
            ..forebay_client::ClientOptions::default()
        }
    }

    fn fence_hosts(
        &mut self,
        index: usize,
        plan: FragmentPlan,
        hosts: Vec<HostFence>,
        through: u64,
    ) {
        self.trace_line(|| format!("node {index} fences {hosts:?} of {:?}", plan.instance));
        self.oracle.counts.fences += 1;
        let options = self.options();
        self.start_actor(MachineId::Node(index), move || {
            let fenced = Admin::connect(address(index), options)
                .and_then(|admin| admin.fence_hosts(plan.instance, hosts))
                .map_err(|errno| errno.to_string());
            Outcome::Node(storage_node::StorageInput::HostsFenced(plan.fragment, through, fenced))
        });
    }

    fn create(&mut self, index: usize, plan: FragmentPlan) {
        self.trace_line(|| {
            format!("node {index} creates {:?} of {:?}", plan.fragment, plan.instance)
        });
        self.nodes[index].fragments.insert(plan.fragment, plan.clone());
        self.check_allocation();
        self.order(index, Some((true, plan)));
    }

    fn destroy(&mut self, index: usize, plan: FragmentPlan) {
        let fragment = plan.fragment;
        self.trace_line(|| format!("node {index} destroys {fragment:?} of {:?}", plan.instance));
        if self.nodes[index].fragments.contains_key(&fragment) {
            let pfs = self.pfs.clone();
            self.oracle.destroyed(fragment, plan.instance, &pfs);
        }
        self.order(index, Some((false, plan)));
    }

    /// Creates and destroys fragments one after the other, as a node's thread does. `None`: the
    /// current one is done.
    fn order(&mut self, index: usize, new: Option<(bool, FragmentPlan)>) {
        let orders = &mut self.nodes[index].orders;
        match new {
            Some(order) => {
                orders.push_back(order);
                if orders.len() > 1 {
                    return;
                }
            }
            None => drop(orders.pop_front()),
        }
        let Some((creates, plan)) = orders.front().cloned() else {
            return;
        };
        let options = self.options();
        let fragment = plan.fragment;
        self.start_actor(MachineId::Node(index), move || {
            let admin = Admin::connect(address(index), options).map_err(|e| e.to_string());
            Outcome::Node(if creates {
                let created = admin.and_then(|admin| create_fragment(&admin, &plan));
                storage_node::StorageInput::Created(fragment, created)
            } else {
                let destroyed = admin.and_then(|admin| destroy_fragment(&admin, &plan));
                storage_node::StorageInput::Destroyed(fragment, destroyed)
            })
        });
    }

    fn start_mover(&mut self, index: usize, plan: StagePlan) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        self.trace_line(|| {
            let direction = plan.directive.direction;
            format!("node {index} starts {stage:?} attempt {attempt} {direction:?}")
        });
        assert!(
            plan.share.is_none() || !(self.has_old_node && index == 0),
            "a node of an earlier release gets no share"
        );
        self.check_mover(index, &plan);
        let Some(node) = &self.nodes[index].node else {
            return;
        };
        let addresses = node.storage_addresses_of(plan.instance);
        let own = address(index);
        let access = StorageAccess { own: vec![(own.to_string(), own)], options: self.options() };
        let mounts = Mounts::new(PathBuf::new(), format!("bb{index}"), access);
        let barrier = SimBarrier::new(Machine(self.shared.clone()));
        let options = StageOptions {
            workers: 0,
            sync_interval: Duration::from_millis(500),
            segment_bytes: 16 << 10,
            keep_parts: true,
            journal: Some(journal(stage)),
            verify: verify_mode(&plan),
            host: Arc::new(self.nodes[index].journals.clone()),
            share: share_of(&plan, barrier.clone()),
        };
        self.oracle.counts.shares += u64::from(plan.share.is_some());
        let counters = Arc::new(forebay_stage::ProgressCounters::new());
        let mover = SimMover { attempt, counters: counters.clone(), barrier };
        self.nodes[index].movers.insert(stage, mover);
        let pfs: Arc<dyn FileSystem> = Arc::new(self.pfs.clone());
        let copied = plan.copy_of.as_ref().and_then(|source| {
            let label = self.oracle.labels.get(&source.instance)?;
            Some(self.oracle.jobs.get(label)?.files.clone())
        });
        let losses = self.oracle.losses.clone();
        self.start_actor(MachineId::Node(index), move || {
            let outcome = match AttachedInstances::attach(&plan, &mounts, &addresses) {
                Ok(_) if counters.is_cancelled() => MoverOutcome::Stopped,
                Ok(attached) => {
                    let copy = attached.instance.clone();
                    let outcome = run_stage(&plan, attached, Some(&pfs), &options, &counters);
                    if let (MoverOutcome::Completed(_), Some(files)) = (&outcome, &copied) {
                        check_copy(&copy, files, &losses);
                    }
                    outcome
                }
                Err(reason) => MoverOutcome::Failed(reason.into()),
            };
            Outcome::Node(storage_node::StorageInput::MoverEnded(stage, attempt, outcome))
        });
    }

    /// Checks that a stage-in runs before its job, and a stage-out after it was unmounted.
    ///
    /// A node that was given up and returns fills its replica of a load-balanced instance until the
    /// controller has it removed; no compute node has that replica mounted.
    fn check_mover(&self, index: usize, plan: &StagePlan) {
        let instance = plan.instance;
        if let Some(source) = &plan.copy_of {
            return self.check_fences(source.instance);
        }
        let Some(job) = self.oracle.labels.get(&instance) else {
            return;
        };
        let Some(job) = self.oracle.jobs.get(job) else {
            return;
        };
        match plan.directive.direction {
            Direction::In if self.given_up[index] => {}
            Direction::In => assert_eq!(job.runs, 0, "{instance:?}: stage-in after the job ran"),
            // A compute node that is unreachable for long counts as dead, and may not be: see below.
            Direction::Out if self.faults.outage == 0 && self.faults.cut_pair == 0 => {
                let using = |host: &Compute| {
                    let mut plans = host.plans.iter();
                    let mounts = host.mounts.lock().unwrap();
                    plans.any(|(id, plan)| plan.instance == instance && mounts.contains_key(id))
                };
                let mounted = self.hosts.iter().any(using);
                assert!(!mounted, "{instance:?} is staged out while it is mounted");
            }
            Direction::Out => {}
        }
        if plan.directive.direction == Direction::Out {
            self.check_fences(instance);
        }
    }

    /// Checks that a host that still has an instance mounted can write to none of its nodes.
    fn check_fences(&self, instance: InstanceId) {
        for (host, machine) in self.hosts.iter().enumerate() {
            let mounts = machine.mounts.lock().unwrap();
            let plans = machine.plans.iter();
            let of_instance =
                plans.filter(|(id, plan)| plan.instance == instance && mounts.contains_key(id));
            for (_, plan) in of_instance {
                let client = ClientHost { host: host_name(host), mount: Some(plan.generation) };
                let daemons = self.nodes.iter().filter_map(|node| node.daemon.node());
                for daemon in daemons.filter(|daemon| daemon.volume(instance).is_some()) {
                    assert!(
                        daemon.refuses_mount(instance, &client),
                        "{instance:?} is staged out or moves, and host {host} may still write to it"
                    );
                }
            }
        }
    }

    /// An actor of the node has ended.
    pub fn storage_effect_done(&mut self, index: usize, input: storage_node::StorageInput) {
        if matches!(
            input,
            storage_node::StorageInput::Created(..) | storage_node::StorageInput::Destroyed(..)
        ) {
            self.order(index, None);
        }
        match &input {
            storage_node::StorageInput::MoverEnded(stage, attempt, outcome) => {
                self.trace_line(|| {
                    format!("node {index} ends {stage:?} attempt {attempt}: {outcome:?}")
                });
                self.nodes[index].movers.remove(stage);
                let failed = matches!(outcome, MoverOutcome::Failed(_));
                self.oracle.counts.failed_movers += u64::from(failed);
            }
            storage_node::StorageInput::Created(fragment, Err(reason)) => {
                self.trace_line(|| format!("node {index} cannot create {fragment:?}: {reason}"));
                self.nodes[index].fragments.remove(fragment);
            }
            storage_node::StorageInput::Destroyed(fragment, Ok(())) => {
                self.nodes[index].fragments.remove(fragment);
            }
            _ => {}
        }
        self.node_step(index, input);
    }
}
