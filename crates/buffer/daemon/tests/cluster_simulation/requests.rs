//! Users, the controller, and their messages.

use std::sync::atomic::Ordering;

use forebay_control::controller::{
    self, FragmentState, Outcome, Request, RequestEnvelope, RequestId,
};
use forebay_control::messages::{Owner, UnixMillis};

use crate::machines::{MachineId, apply_changes};
use crate::users::{SimUser, Step};
use crate::world::{Event, HOSTS, MS, SECOND, World, host_name};

impl World {
    pub fn users_act(&mut self) {
        let ended = |user: &SimUser| user.persistent || user.step == Step::Ended;
        let jobs_ended = self.users.iter().all(ended);
        for index in 0..self.users.len() {
            if self.users[index].step == Step::Run && !self.users[index].started {
                self.start_job(index);
                self.users[index].started = true;
            }
            let (reachable, others) = self.processes(&self.users[index].token);
            self.users[index].processes = reachable;
            self.users[index].presumed_dead = others;
            let user = &mut self.users[index];
            let now = UnixMillis(self.now / MS);
            let envelope = user.act(now, jobs_ended, &mut self.random, &mut self.oracle);
            if let Some(envelope) = envelope {
                let (token, step) = (user.token.clone(), user.step);
                self.trace_line(|| format!("user {token} requests {step:?} {}", envelope.id));
                let input = controller::ControllerInput::Request(Box::new(envelope));
                let message = Event::ToController(Box::new(input));
                // Users are on the controller's machine, whose network fails like all others.
                self.send(MachineId::Controller, MachineId::Controller, message);
            }
        }
    }

    pub fn answered(&mut self, id: RequestId, outcome: &Outcome) {
        let mut users = std::mem::take(&mut self.users);
        for user in &mut users {
            let before = user.step;
            let now = UnixMillis(self.now / MS);
            let (random, oracle, pfs) = (&mut self.random, &mut self.oracle, &self.pfs);
            user.answered(now, id, outcome, random, oracle, pfs);
            if user.step != before {
                self.trace_line(|| {
                    let (token, step) = (&user.token, user.step);
                    format!("user {token} {before:?} -> {step:?}: {outcome:?}")
                });
            }
        }
        self.users = users;
    }

    pub fn controller_step(&mut self, input: controller::ControllerInput) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        self.steps += 1;
        let effects = controller.step(UnixMillis(self.now / MS), input);
        let state = controller.state();
        // Ids assigned in a step whose records a crash loses are assigned again: the last use counts.
        for (id, instance) in state.storage.instances() {
            let label = instance.label.clone();
            self.oracle.labels.insert(id, label);
            if instance.replaces.is_some() {
                let is_new = self.oracle.replacements.insert(id);
                self.oracle.counts.evacuations += u64::from(is_new);
            }
        }
        for (_, session) in state.sessions.iter() {
            if let Some(instance) = session.instance {
                let token = session.token.clone();
                let before = self.oracle.current.insert(token, instance);
                let has_moved = before != Some(instance);
                let moved = has_moved && self.oracle.replacements.contains(&instance);
                self.oracle.counts.evacuated += u64::from(moved);
            }
        }
        for (id, fragment) in state.storage.fragments() {
            if matches!(fragment.state, FragmentState::Ready(_)) {
                self.oracle.used.insert(id);
            }
            if fragment.state == FragmentState::Forgotten {
                self.oracle.damaged.insert(fragment.instance);
                self.oracle.losses.disk.store(true, Ordering::Relaxed);
            }
        }
        for (id, known) in state.storage.nodes() {
            let index = id.0 as usize;
            let count = match (self.given_up[index], known.forgotten.is_some()) {
                (false, true) => &mut self.oracle.counts.nodes_given_up,
                (true, false) => &mut self.oracle.counts.nodes_returned,
                _ => continue,
            };
            *count += 1;
            self.given_up[index] ^= true;
        }
        self.check_allocation();
        for effect in effects {
            if self.chance(self.faults.crash) {
                self.trace_line(|| "controller crashes".into());
                self.oracle.counts.controller_crashes += 1;
                self.controller = None;
                self.controller_down = self.now + self.random.below(5 * SECOND);
                return;
            }
            match effect {
                controller::ControllerEffect::Persist(changes) => {
                    apply_changes(&mut self.controller_records, changes);
                }
                controller::ControllerEffect::SendToStorageNode(node, command) => {
                    let index = node.0 as usize;
                    let message = Event::ToStorageNode(index, command);
                    self.send(MachineId::Controller, MachineId::Node(index), message);
                }
                controller::ControllerEffect::SendToComputeNode(name, command) => {
                    let known = (0..HOSTS).find(|index| host_name(*index) == name);
                    let index = known.expect("a host of the simulation");
                    let message = Event::ToComputeNode(index, command);
                    self.send(MachineId::Controller, MachineId::Host(index), message);
                }
                controller::ControllerEffect::Reply(id, outcome) => {
                    let message = Event::ToUser(id, outcome);
                    self.send(MachineId::Controller, MachineId::Controller, message);
                }
            }
        }
    }
}

/// A request of the operator.
pub fn envelope(id: u128, request: Request) -> RequestEnvelope {
    RequestEnvelope { id: RequestId(id), caller: Owner { uid: 900, gid: 900 }, request }
}
