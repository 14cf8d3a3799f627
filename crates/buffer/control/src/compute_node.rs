//! A compute node's side of the control plane: instances are mounted and unmounted.
//!
//! A host keeps no durable state: when its agent dies, its mounts die with it, and the controller
//! learns that from the next report.

use std::collections::{BTreeMap, BTreeSet};

use crate::messages::{
    ActivationId, Command, MountPlan, Peer, Report, ReportBody, StampedCommand, UnixMillis,
};

/// Ended activations that are remembered, so that a late command does not mount them again.
const ENDED_KEPT: usize = 4096;

/// What happens to a host.
#[derive(Clone, Debug)]
pub enum ComputeInput {
    /// The controller wants something.
    Command(StampedCommand),
    /// [`Effect::Mount`] was carried out.
    Mounted(ActivationId, Result<(), String>),
    /// [`Effect::Unmount`] was carried out.
    Unmounted(ActivationId, Result<(), String>),
    /// Time to say that it lives; about once a second.
    Tick,
}

/// What a host does, in this order.
#[derive(Clone, Debug)]
pub enum ComputeEffect {
    /// Mount an instance.
    Mount(MountPlan),
    /// Unmount it, once its files are closed and its data is on the storage nodes.
    Unmount(MountPlan),
    /// Tell the controller.
    Report(Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalMountState {
    Mounting,
    Mounted,
    /// Another copy is being mounted in the place of the one that was mounted at this turn.
    Remounting(u32),
    /// To be unmounted as soon as the mount under way is there; whether something is mounted
    /// already.
    Unwanted(bool),
    Unmounting,
}

/// A host's state.
#[derive(Clone, Debug)]
pub struct ComputeNode {
    name: String,
    /// The count with which the agent started.
    first: u64,
    count: u64,
    mounts: BTreeMap<ActivationId, (MountPlan, LocalMountState)>,
    ended: BTreeSet<ActivationId>,
    effects: Vec<ComputeEffect>,
}

impl ComputeNode {
    /// A host whose agent starts now. The time makes its report counter rise over restarts.
    pub fn new(name: String, now: UnixMillis) -> ComputeNode {
        ComputeNode {
            name,
            first: now.0 << 16,
            count: now.0 << 16,
            mounts: BTreeMap::new(),
            ended: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Takes an input and says what to do about it, in this order.
    pub fn step(&mut self, input: ComputeInput) -> Vec<ComputeEffect> {
        match input {
            ComputeInput::Command(order) => match order.command {
                Command::Mount(plan) => self.mount(plan, order.last_report),
                Command::Unmount(activation) => self.unmount(activation),
                // For storage nodes; a message that went astray.
                _ => {}
            },
            ComputeInput::Mounted(activation, outcome) => self.mounted(activation, outcome),
            ComputeInput::Unmounted(activation, outcome) => self.unmounted(activation, outcome),
            ComputeInput::Tick => {
                let mounts = self.mounts.keys().copied().collect();
                self.report(ReportBody::ComputeHeartbeat(mounts));
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn report(&mut self, what: ReportBody) {
        self.count += 1;
        let from = Peer::ComputeNode(self.name.clone());
        self.effects.push(ComputeEffect::Report(Report {
            from,
            sequence: self.count,
            body: what,
        }));
    }

    fn mount(&mut self, plan: MountPlan, heard: u64) {
        let activation = plan.activation;
        if self.ended.contains(&activation) {
            return self.report(ReportBody::Unmounted(activation));
        }
        let known = self.mounts.get(&activation);
        match known.map(|(known, state)| (known.generation, *state)) {
            Some((turn, LocalMountState::Mounted)) if turn < plan.generation => {
                let state = LocalMountState::Remounting(turn);
                self.mounts.insert(activation, (plan.clone(), state));
                self.effects.push(ComputeEffect::Mount(plan));
            }
            Some((turn, LocalMountState::Mounted)) => {
                self.report(ReportBody::Mounted(activation, turn))
            }
            Some(_) => {}
            None if heard < self.first => {
                let mounts = self.mounts.keys().copied().collect();
                self.report(ReportBody::ComputeHeartbeat(mounts));
            }
            None => {
                self.mounts
                    .insert(activation, (plan.clone(), LocalMountState::Mounting));
                self.effects.push(ComputeEffect::Mount(plan));
            }
        }
    }

    fn unmount(&mut self, activation: ActivationId) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            self.end(activation);
            return self.report(ReportBody::Unmounted(activation));
        };
        match state {
            LocalMountState::Mounting => *state = LocalMountState::Unwanted(false),
            LocalMountState::Remounting(_) => *state = LocalMountState::Unwanted(true),
            LocalMountState::Mounted => {
                *state = LocalMountState::Unmounting;
                self.effects.push(ComputeEffect::Unmount(plan.clone()));
            }
            LocalMountState::Unwanted(_) | LocalMountState::Unmounting => {}
        }
    }

    fn mounted(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match (outcome, *state) {
            (Ok(()), LocalMountState::Mounting | LocalMountState::Remounting(_)) => {
                *state = LocalMountState::Mounted;
                let turn = plan.generation;
                self.report(ReportBody::Mounted(activation, turn));
            }
            (Err(reason), LocalMountState::Remounting(before)) => {
                // What was mounted still is: the controller may name yet another copy.
                let turn = std::mem::replace(&mut plan.generation, before);
                *state = LocalMountState::Mounted;
                self.report(ReportBody::MountFailed(activation, turn, reason));
            }
            (Ok(()), LocalMountState::Unwanted(_)) | (Err(_), LocalMountState::Unwanted(true)) => {
                *state = LocalMountState::Unmounting;
                self.effects.push(ComputeEffect::Unmount(plan.clone()));
            }
            (Ok(()), LocalMountState::Mounted | LocalMountState::Unmounting) => {}
            (Err(reason), state) => {
                let turn = plan.generation;
                self.mounts.remove(&activation);
                if state == LocalMountState::Unwanted(false) {
                    self.end(activation);
                    self.report(ReportBody::Unmounted(activation));
                } else {
                    self.report(ReportBody::MountFailed(activation, turn, reason));
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
                self.report(ReportBody::Unmounted(activation));
            }
            // Files are still open there: the controller asks again.
            Err(_) => *state = LocalMountState::Mounted,
        }
    }

    fn end(&mut self, activation: ActivationId) {
        self.ended.insert(activation);
        if self.ended.len() > ENDED_KEPT {
            self.ended.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{InstanceId, Owner};
    use forebay_job_script::AccessMode;

    fn order(turn: u32) -> ComputeInput {
        let plan = MountPlan {
            activation: ActivationId(1),
            instance: InstanceId(2),
            mode: AccessMode::LoadBalanced,
            generation: turn,
            path: "/jobs/1/ldbalance/".into(),
            owner: Owner { uid: 7, gid: 7 },
            nodes: Vec::new(),
            addresses: vec![format!("10.0.0.{turn}:7511")],
        };
        let command = Command::Mount(plan);
        ComputeInput::Command(StampedCommand {
            last_report: u64::MAX,
            command,
        })
    }

    /// A host that has mounted the copy of turn 1.
    fn host() -> ComputeNode {
        let mut host = ComputeNode::new("n1".into(), UnixMillis(0));
        assert!(matches!(
            &host.step(order(1))[..],
            [ComputeEffect::Mount(_)]
        ));
        assert_eq!(
            said(&mut host, Ok(())),
            [ReportBody::Mounted(ActivationId(1), 1)]
        );
        host
    }

    fn news(effects: Vec<ComputeEffect>) -> Vec<ReportBody> {
        let news = effects.into_iter().filter_map(|effect| match effect {
            ComputeEffect::Report(report) => Some(report.body),
            _ => None,
        });
        news.collect()
    }

    fn said(host: &mut ComputeNode, outcome: Result<(), String>) -> Vec<ReportBody> {
        news(host.step(ComputeInput::Mounted(ActivationId(1), outcome)))
    }

    #[test]
    fn another_copy_is_mounted_once_and_late_orders_do_not_bring_the_old_one_back() {
        let mut host = host();
        assert!(
            matches!(&host.step(order(2))[..], [ComputeEffect::Mount(plan)] if plan.addresses == ["10.0.0.2:7511"])
        );
        assert!(host.step(order(2)).is_empty());
        assert_eq!(
            said(&mut host, Ok(())),
            [ReportBody::Mounted(ActivationId(1), 2)]
        );
        for late in [1, 2] {
            assert_eq!(
                news(host.step(order(late))),
                [ReportBody::Mounted(ActivationId(1), 2)]
            );
        }
    }

    #[test]
    fn a_copy_that_cannot_be_mounted_leaves_the_one_before_which_is_unmounted_in_the_end() {
        let mut host = host();
        host.step(order(2));
        let failed = said(&mut host, Err("away".into()));
        assert_eq!(
            failed,
            [ReportBody::MountFailed(ActivationId(1), 2, "away".into())]
        );
        assert!(matches!(
            &host.step(order(3))[..],
            [ComputeEffect::Mount(_)]
        ));
        let unmount = ComputeInput::Command(StampedCommand {
            last_report: u64::MAX,
            command: Command::Unmount(ActivationId(1)),
        });
        assert!(host.step(unmount).is_empty());
        let outcome = ComputeInput::Mounted(ActivationId(1), Err("away".into()));
        assert!(matches!(
            &host.step(outcome)[..],
            [ComputeEffect::Unmount(_)]
        ));
    }
}
