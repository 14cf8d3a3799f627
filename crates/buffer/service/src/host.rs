//! A compute node's side of the control plane: instances are mounted and unmounted.
//!
//! A host keeps no durable state: when its agent dies, its mounts die with it, and the controller
//! learns that from the next report.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{ActivationId, Command, Instant, MountPlan, News, Order, Peer, Report};

/// Ended activations that are remembered, so that a late command does not mount them again.
const ENDED_KEPT: usize = 4096;

/// What happens to a host.
#[derive(Clone, Debug)]
pub enum Input {
    /// The controller wants something.
    Order(Order),
    /// [`Effect::Mount`] was carried out.
    Mounted(ActivationId, Result<(), String>),
    /// [`Effect::Unmount`] was carried out.
    Unmounted(ActivationId, Result<(), String>),
    /// Time to say that it lives; about once a second.
    Tick,
}

/// What a host does, in this order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Mount an instance.
    Mount(MountPlan),
    /// Unmount it, once its files are closed and its data is on the storage nodes.
    Unmount(MountPlan),
    /// Tell the controller.
    Report(Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountState {
    Mounting,
    Mounted,
    /// To be unmounted as soon as the mount under way is there.
    Unwanted,
    Unmounting,
}

/// A host's state.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    /// The count with which the agent started.
    first: u64,
    count: u64,
    mounts: BTreeMap<ActivationId, (MountPlan, MountState)>,
    ended: BTreeSet<ActivationId>,
    effects: Vec<Effect>,
}

impl Host {
    /// A host whose agent starts now. The time makes its report counter rise over restarts.
    pub fn new(name: String, now: Instant) -> Host {
        Host {
            name,
            first: now.0 << 16,
            count: now.0 << 16,
            mounts: BTreeMap::new(),
            ended: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Takes an input and says what to do about it, in this order.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Order(order) => match order.command {
                Command::Mount(plan) => self.mount(plan, order.heard),
                Command::Unmount(activation) => self.unmount(activation),
                // For storage nodes; a message that went astray.
                _ => {}
            },
            Input::Mounted(activation, outcome) => self.mounted(activation, outcome),
            Input::Unmounted(activation, outcome) => self.unmounted(activation, outcome),
            Input::Tick => {
                let mounts = self.mounts.keys().copied().collect();
                self.report(News::HostAlive(mounts));
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn report(&mut self, what: News) {
        self.count += 1;
        let from = Peer::Host(self.name.clone());
        self.effects.push(Effect::Report(Report {
            from,
            count: self.count,
            what,
        }));
    }

    fn mount(&mut self, plan: MountPlan, heard: u64) {
        let activation = plan.activation;
        if self.ended.contains(&activation) {
            return self.report(News::Unmounted(activation));
        }
        match self.mounts.get(&activation).map(|(_, state)| *state) {
            Some(MountState::Mounted) => self.report(News::Mounted(activation)),
            Some(_) => {}
            None if heard < self.first => {
                let mounts = self.mounts.keys().copied().collect();
                self.report(News::HostAlive(mounts));
            }
            None => {
                self.mounts
                    .insert(activation, (plan.clone(), MountState::Mounting));
                self.effects.push(Effect::Mount(plan));
            }
        }
    }

    fn unmount(&mut self, activation: ActivationId) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            self.end(activation);
            return self.report(News::Unmounted(activation));
        };
        match state {
            MountState::Mounting => *state = MountState::Unwanted,
            MountState::Mounted => {
                *state = MountState::Unmounting;
                self.effects.push(Effect::Unmount(plan.clone()));
            }
            MountState::Unwanted | MountState::Unmounting => {}
        }
    }

    fn mounted(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match (outcome, *state) {
            (Ok(()), MountState::Mounting) => {
                *state = MountState::Mounted;
                self.report(News::Mounted(activation));
            }
            (Ok(()), MountState::Unwanted) => {
                *state = MountState::Unmounting;
                self.effects.push(Effect::Unmount(plan.clone()));
            }
            (Ok(()), MountState::Mounted | MountState::Unmounting) => {}
            (Err(reason), state) => {
                self.mounts.remove(&activation);
                if state == MountState::Unwanted {
                    self.end(activation);
                    self.report(News::Unmounted(activation));
                } else {
                    self.report(News::MountFailed(activation, reason));
                }
            }
        }
    }

    fn unmounted(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((_, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match outcome {
            Ok(()) => {
                self.mounts.remove(&activation);
                self.end(activation);
                self.report(News::Unmounted(activation));
            }
            // Files are still open there: the controller asks again.
            Err(_) => *state = MountState::Mounted,
        }
    }

    fn end(&mut self, activation: ActivationId) {
        self.ended.insert(activation);
        if self.ended.len() > ENDED_KEPT {
            self.ended.pop_first();
        }
    }
}
