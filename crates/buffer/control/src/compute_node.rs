//! The compute node's side of the control plane: mounts and unmounts instances.
//!
//! A compute node keeps no durable state. When its agent dies, its mounts are gone, and the
//! controller learns that from the next heartbeat.

use std::collections::{BTreeMap, BTreeSet};

use crate::messages::{
    ActivationId, ComputeCommand, ComputeReport, MountPlan, Report, StampedCommand, StateStamp,
    UnixMillis,
};

/// Ended activations that are remembered, so that a delayed command does not mount them again.
const MAX_ENDED_ACTIVATIONS: usize = 4096;

/// Input of a compute node.
#[derive(Clone, Debug)]
pub enum ComputeInput {
    /// A command from the controller.
    Command(StampedCommand<ComputeCommand>),
    /// [`ComputeEffect::Mount`] was carried out.
    Mounted(ActivationId, Result<(), String>),
    /// [`ComputeEffect::Unmount`] was carried out.
    Unmounted(ActivationId, Result<(), String>),
    /// A heartbeat is due; about once a second.
    Tick,
}

/// Effect of a step of a compute node. The effects of a step are carried out in order.
#[derive(Clone, Debug)]
pub enum ComputeEffect {
    /// Mount an instance.
    Mount(MountPlan),
    /// Unmount it, once its files are closed and its data is on the storage nodes.
    Unmount(MountPlan),
    /// Send a report to the controller.
    Report(Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalMountState {
    /// Being mounted.
    Mounting,
    Mounted,
    /// The mount of this generation is being replaced.
    Switching {
        mounted_generation: u64,
    },
    /// To be unmounted as soon as the mount in progress is done.
    UnmountPending {
        /// Whether an earlier generation is mounted, so that there is something to unmount even if
        /// the mount in progress fails.
        mounted: bool,
    },
    Unmounting,
}

/// The state of a compute node.
#[derive(Clone, Debug)]
pub struct ComputeNode {
    name: String,
    /// Sequence number at the start of the agent, or when it has exceeded those of an earlier one.
    first_sequence: u64,
    sequence: u64,
    /// The latest state of the controller whose commands were obeyed.
    obeyed: StateStamp,
    mounts: BTreeMap<ActivationId, (MountPlan, LocalMountState)>,
    ended: BTreeSet<ActivationId>,
    effects: Vec<ComputeEffect>,
}

impl ComputeNode {
    /// A compute node whose agent starts now. The time makes its sequence numbers increase across
    /// restarts, and commands where the clock has been set back.
    pub fn new(name: String, now: UnixMillis) -> ComputeNode {
        let sequence = now.0 << 16;
        ComputeNode {
            name,
            first_sequence: sequence,
            sequence,
            obeyed: StateStamp::default(),
            mounts: BTreeMap::new(),
            ended: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Processes an input and returns its effects, in the order in which to carry them out.
    pub fn step(&mut self, input: ComputeInput) -> Vec<ComputeEffect> {
        let before = self.sequence;
        match input {
            // Late, or of a controller that was restored from a backup.
            ComputeInput::Command(stamped) if !stamped.state.follows(&self.obeyed) => {}
            ComputeInput::Command(stamped) => {
                self.obeyed = stamped.state;
                self.exceed(stamped.last_report);
                match stamped.command {
                    ComputeCommand::Mount(plan) => self.mount(plan, stamped.last_report),
                    ComputeCommand::Unmount(activation) => self.unmount(activation),
                }
            }
            ComputeInput::Mounted(activation, outcome) => self.mount_done(activation, outcome),
            ComputeInput::Unmounted(activation, outcome) => self.unmount_done(activation, outcome),
            ComputeInput::Tick => self.heartbeat(),
        }
        debug_assert!(
            self.ended.iter().all(|id| !self.mounts.contains_key(id)),
            "an ended activation is mounted"
        );
        assert!(self.ended.len() <= MAX_ENDED_ACTIVATIONS);
        assert!(self.sequence >= before, "sequence numbers never decrease");
        std::mem::take(&mut self.effects)
    }

    /// Makes sequence numbers exceed that of the last report that the controller has. It is higher than
    /// those of this agent only if the clock was ahead when an earlier agent started.
    fn exceed(&mut self, last_report: u64) {
        if last_report > self.sequence {
            self.sequence = last_report.saturating_add(1);
            self.first_sequence = self.sequence;
        }
    }

    fn report(&mut self, body: ComputeReport) {
        self.sequence = self.sequence.saturating_add(1);
        self.effects.push(ComputeEffect::Report(Report::Compute {
            host: self.name.clone(),
            sequence: self.sequence,
            body,
        }));
    }

    fn heartbeat(&mut self) {
        let mounts = self.mounts.keys().copied().collect();
        self.report(ComputeReport::Heartbeat(mounts));
    }

    fn mount(&mut self, plan: MountPlan, last_report: u64) {
        let activation = plan.activation;
        if self.ended.contains(&activation) {
            return self.report(ComputeReport::Unmounted(activation));
        }
        let known = self.mounts.get(&activation);
        let state = match known.map(|(known, state)| (known.generation, *state)) {
            Some((generation, LocalMountState::Mounted)) if generation < plan.generation => {
                LocalMountState::Switching { mounted_generation: generation }
            }
            Some((generation, LocalMountState::Mounted)) => {
                return self.report(ComputeReport::Mounted(activation, generation));
            }
            // In progress: reported when it is done.
            Some(_) => return,
            // The controller does not know yet that this agent has restarted.
            None if last_report < self.first_sequence => return self.heartbeat(),
            None => LocalMountState::Mounting,
        };
        self.mounts.insert(activation, (plan.clone(), state));
        self.effects.push(ComputeEffect::Mount(plan));
    }

    fn unmount(&mut self, activation: ActivationId) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            self.remember_ended(activation);
            return self.report(ComputeReport::Unmounted(activation));
        };
        match state {
            LocalMountState::Mounting => {
                *state = LocalMountState::UnmountPending { mounted: false };
            }
            LocalMountState::Switching { .. } => {
                *state = LocalMountState::UnmountPending { mounted: true };
            }
            LocalMountState::Mounted => {
                *state = LocalMountState::Unmounting;
                self.effects.push(ComputeEffect::Unmount(plan.clone()));
            }
            LocalMountState::UnmountPending { .. } | LocalMountState::Unmounting => {}
        }
    }

    fn mount_done(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match (outcome, *state) {
            (Ok(()), LocalMountState::Mounting | LocalMountState::Switching { .. }) => {
                *state = LocalMountState::Mounted;
                let generation = plan.generation;
                self.report(ComputeReport::Mounted(activation, generation));
            }
            (Err(reason), LocalMountState::Switching { mounted_generation }) => {
                // The earlier generation is still mounted: the controller may name yet another one.
                let failed = std::mem::replace(&mut plan.generation, mounted_generation);
                *state = LocalMountState::Mounted;
                self.report(ComputeReport::MountFailed(activation, failed, reason));
            }
            (Ok(()), LocalMountState::UnmountPending { .. })
            | (Err(_), LocalMountState::UnmountPending { mounted: true }) => {
                *state = LocalMountState::Unmounting;
                self.effects.push(ComputeEffect::Unmount(plan.clone()));
            }
            (Err(_), LocalMountState::UnmountPending { mounted: false }) => {
                self.mounts.remove(&activation);
                self.remember_ended(activation);
                self.report(ComputeReport::Unmounted(activation));
            }
            (Ok(()), LocalMountState::Mounted | LocalMountState::Unmounting) => {}
            (
                Err(reason),
                LocalMountState::Mounting | LocalMountState::Mounted | LocalMountState::Unmounting,
            ) => {
                let generation = plan.generation;
                self.mounts.remove(&activation);
                self.report(ComputeReport::MountFailed(activation, generation, reason));
            }
        }
    }

    fn unmount_done(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((_, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match outcome {
            Ok(()) => {
                self.mounts.remove(&activation);
                self.remember_ended(activation);
                self.report(ComputeReport::Unmounted(activation));
            }
            // Files are still open there: the controller repeats its command.
            Err(_) => *state = LocalMountState::Mounted,
        }
    }

    fn remember_ended(&mut self, activation: ActivationId) {
        self.ended.insert(activation);
        if self.ended.len() > MAX_ENDED_ACTIVATIONS {
            self.ended.pop_first();
        }
    }
}
