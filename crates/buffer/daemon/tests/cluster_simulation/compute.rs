//! Compute nodes: mounts, and the processes of jobs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use forebay_client::System;
use forebay_control::compute_node::{self, ComputeNode};
use forebay_control::controller;
use forebay_control::messages::{ActivationId, MountPlan, UnixMillis};
use forebay_daemon::mounts::{Mounts, StorageAccess};
use forebay_job_script::AccessMode;
use forebay_protocol::Credentials;

use crate::actor_thread::{self, Machine, Outcome};
use crate::machines::MachineId;
use crate::process::Process;
use crate::world::{Event, MS, World, host_name};

impl World {
    /// About once a second.
    pub fn tick_host(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if host.node.is_none() {
            if self.now >= host.down_until {
                host.node = Some(ComputeNode::new(host_name(index), UnixMillis(self.now / MS)));
            }
            return;
        }
        self.host_step(index, compute_node::ComputeInput::Tick);
        if self.chance(self.faults.crash / 2) {
            self.crash_host(index);
        }
    }

    pub fn host_step(&mut self, index: usize, input: compute_node::ComputeInput) {
        let Some(host) = &mut self.hosts[index].node else {
            return;
        };
        self.steps += 1;
        for effect in host.step(input) {
            if self.chance(self.faults.crash / 2) {
                return self.crash_host(index);
            }
            match effect {
                compute_node::ComputeEffect::Report(report) => {
                    let input = controller::ControllerInput::Report(report);
                    let message = Event::ToController(Box::new(input));
                    self.send(MachineId::Host(index), MachineId::Controller, message);
                }
                compute_node::ComputeEffect::Mount(plan) => self.mount(index, plan),
                compute_node::ComputeEffect::Unmount(plan) => self.unmount(index, plan),
            }
        }
    }

    fn mount(&mut self, index: usize, plan: MountPlan) {
        let id = plan.activation;
        self.trace_line(|| format!("host {index} mounts {id:?} of {:?}", plan.instance));
        self.hosts[index].plans.insert(id, plan.clone());
        let access = StorageAccess { own: Vec::new(), options: self.options() };
        let attachments = Mounts::new(PathBuf::new(), host_name(index), access).without_sessions();
        let mounts = self.hosts[index].mounts.clone();
        self.start_actor(MachineId::Host(index), move || {
            let attached = attachments.attach_instance(
                plan.instance,
                plan.mode,
                plan.owner,
                &plan.addresses,
                Some(plan.generation),
            );
            let mounted = attached.map(|attached| {
                if !actor_thread::is_killed() {
                    mounts.lock().unwrap().insert(id, attached);
                }
            });
            Outcome::Host(compute_node::ComputeInput::Mounted(id, mounted))
        });
    }

    fn unmount(&mut self, index: usize, plan: MountPlan) {
        let id = plan.activation;
        let mut using = self.hosts[index].using.values();
        let busy = using.any(|(_, used)| used.contains(&id));
        self.trace_line(|| {
            format!("host {index} unmounts {id:?}{}", if busy { ": busy" } else { "" })
        });
        let mounts = self.hosts[index].mounts.clone();
        let machine = Machine(self.shared.clone());
        self.start_actor(MachineId::Host(index), move || {
            machine.sleep(std::time::Duration::from_millis(10));
            if busy {
                let outcome = Err("files are open".to_owned());
                return Outcome::Host(compute_node::ComputeInput::Unmounted(id, outcome));
            }
            let unmounted = mounts.lock().unwrap().remove(&id);
            drop(unmounted);
            Outcome::Host(compute_node::ComputeInput::Unmounted(id, Ok(())))
        });
    }

    /// An actor of the host has ended.
    pub fn compute_effect_done(&mut self, index: usize, input: compute_node::ComputeInput) {
        if let compute_node::ComputeInput::Unmounted(id, Ok(()))
        | compute_node::ComputeInput::Mounted(id, Err(_)) = &input
        {
            self.hosts[index].plans.remove(id);
        }
        if let compute_node::ComputeInput::Mounted(id, Err(reason)) = &input {
            self.trace_line(|| format!("host {index} cannot mount {id:?}: {reason}"));
        }
        self.host_step(index, input);
    }

    pub fn crash_host(&mut self, index: usize) {
        self.trace_line(|| format!("host {index} crashes"));
        self.oracle.counts.host_crashes += 1;
        self.kill_all(MachineId::Host(index));
        self.break_links_from(MachineId::Host(index));
        let down_until = self.now + (1 + self.random.below(20_000)) * MS;
        let host = &mut self.hosts[index];
        host.life += 1;
        host.node = None;
        host.down_until = down_until;
        host.plans.clear();
        host.using.clear();
        host.mounts.lock().unwrap().clear();
    }

    /// A host's mount of an instance with this label.
    fn mounted(
        &self,
        index: usize,
        label: &str,
        private: bool,
    ) -> Option<(ActivationId, MountPlan)> {
        let host = &self.hosts[index];
        let mounts = host.mounts.lock().unwrap();
        let mut plans = host.plans.iter();
        let found = plans.find(|(id, plan)| {
            let label_of_plan = self.oracle.labels.get(&plan.instance);
            let is_free = !host.using.values().any(|(_, used)| used.contains(id));
            let is_kind = private == (plan.mode == AccessMode::Private);
            mounts.contains_key(id)
                && is_kind
                && is_free
                && label_of_plan.is_some_and(|known| known == label)
        });
        found.map(|(id, plan)| (*id, plan.clone()))
    }

    /// Starts the processes of a job on all its hosts where it is mounted.
    pub fn start_job(&mut self, user: usize) {
        let user = &self.users[user];
        let (token, owner) = (user.token.clone(), user.owner);
        let (hosts, uses) = (user.hosts.clone(), user.uses.clone());
        let job = self.oracle.jobs[&token].clone();
        for index in 0..self.hosts.len() {
            if !hosts.contains(&host_name(index)) {
                continue;
            }
            let Some((own, plan)) = self.mounted(index, &token, false) else {
                continue;
            };
            let persistent = uses.first().and_then(|name| {
                let (id, _) = self.mounted(index, name, false)?;
                Some((id, name.clone()))
            });
            let private = self.mounted(index, &token, true).map(|(id, _)| id);
            self.oracle.counts.private_uses += u64::from(private.is_some());
            self.oracle.counts.replicas_read += u64::from(plan.mode == AccessMode::LoadBalanced);
            let caller = Credentials {
                uid: owner.uid,
                gid: owner.gid,
                groups: Some(Vec::new()),
                checked: false,
            };
            let mounts = self.hosts[index].mounts.lock().unwrap().clone();
            let attached = |id: &ActivationId| mounts[id].on_behalf_of(caller.clone());
            let random = crate::random::Random::new(self.random.next());
            let process = Process {
                own: attached(&own),
                persistent: persistent.as_ref().map(|(id, name)| {
                    let files = self.oracle.jobs[name].files.clone();
                    (attached(id), files)
                }),
                private: private.map(|id| (attached(&id), job.private.clone())),
                files: job.files.clone(),
                outs: job.outs.clone(),
                inputs: job.inputs.clone(),
                host: index,
                token: token.clone(),
                random,
                machine: Machine(self.shared.clone()),
                losses: self.oracle.losses.clone(),
                may_expire: self.faults.outage > 0 || self.faults.cut_pair > 0,
                batches: self.faults.batches,
                steps: 3 + self.random.below(20),
            };
            self.oracle.counts.processes += 1;
            self.trace_line(|| format!("host {index} runs {token}"));
            let actor = self.start_actor(MachineId::Host(index), move || {
                process.run();
                Outcome::Nothing
            });
            let mut used = BTreeSet::from([own]);
            used.extend(persistent.map(|(id, _)| id));
            used.extend(private);
            let using = &mut self.hosts[index].using;
            using.insert(actor, (token.clone(), used));
        }
    }

    /// Number of running processes of a job: on hosts that the controller can reach, and on others. The
    /// workload manager presumes these dead.
    pub fn processes(&self, token: &str) -> (u64, u64) {
        let (mut reachable, mut others) = (0, 0);
        for (index, host) in self.hosts.iter().enumerate() {
            let place = MachineId::Host(index);
            let is_cut = self.cut_pairs.get(&(MachineId::Controller, place));
            let is_cut = is_cut.is_some_and(|until| *until > self.now);
            let of_job = host.using.values().filter(|(of, _)| of == token).count() as u64;
            *if is_cut { &mut others } else { &mut reachable } += of_job;
        }
        (reachable, others)
    }
}
