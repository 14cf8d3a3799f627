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
    /// Another copy is being mounted in the place of the one that was mounted at this turn.
    Remounting(u32),
    /// To be unmounted as soon as the mount under way is there; whether something is mounted
    /// already.
    Unwanted(bool),
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
        let known = self.mounts.get(&activation);
        match known.map(|(known, state)| (known.turn, *state)) {
            Some((turn, MountState::Mounted)) if turn < plan.turn => {
                let state = MountState::Remounting(turn);
                self.mounts.insert(activation, (plan.clone(), state));
                self.effects.push(Effect::Mount(plan));
            }
            Some((turn, MountState::Mounted)) => self.report(News::Mounted(activation, turn)),
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
            MountState::Mounting => *state = MountState::Unwanted(false),
            MountState::Remounting(_) => *state = MountState::Unwanted(true),
            MountState::Mounted => {
                *state = MountState::Unmounting;
                self.effects.push(Effect::Unmount(plan.clone()));
            }
            MountState::Unwanted(_) | MountState::Unmounting => {}
        }
    }

    fn mounted(&mut self, activation: ActivationId, outcome: Result<(), String>) {
        let Some((plan, state)) = self.mounts.get_mut(&activation) else {
            return;
        };
        match (outcome, *state) {
            (Ok(()), MountState::Mounting | MountState::Remounting(_)) => {
                *state = MountState::Mounted;
                let turn = plan.turn;
                self.report(News::Mounted(activation, turn));
            }
            (Err(reason), MountState::Remounting(before)) => {
                // What was mounted still is: the controller may name yet another copy.
                let turn = std::mem::replace(&mut plan.turn, before);
                *state = MountState::Mounted;
                self.report(News::MountFailed(activation, turn, reason));
            }
            (Ok(()), MountState::Unwanted(_)) | (Err(_), MountState::Unwanted(true)) => {
                *state = MountState::Unmounting;
                self.effects.push(Effect::Unmount(plan.clone()));
            }
            (Ok(()), MountState::Mounted | MountState::Unmounting) => {}
            (Err(reason), state) => {
                let turn = plan.turn;
                self.mounts.remove(&activation);
                if state == MountState::Unwanted(false) {
                    self.end(activation);
                    self.report(News::Unmounted(activation));
                } else {
                    self.report(News::MountFailed(activation, turn, reason));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{InstanceId, Owner};
    use forebay_job_script::AccessMode;

    fn order(turn: u32) -> Input {
        let plan = MountPlan {
            activation: ActivationId(1),
            instance: InstanceId(2),
            mode: AccessMode::LoadBalanced,
            turn,
            path: "/jobs/1/ldbalance/".into(),
            owner: Owner { uid: 7, gid: 7 },
            nodes: Vec::new(),
            addresses: vec![format!("10.0.0.{turn}:7511")],
        };
        let command = Command::Mount(plan);
        Input::Order(Order {
            heard: u64::MAX,
            command,
        })
    }

    /// A host that has mounted the copy of turn 1.
    fn host() -> Host {
        let mut host = Host::new("n1".into(), Instant(0));
        assert!(matches!(&host.step(order(1))[..], [Effect::Mount(_)]));
        assert_eq!(said(&mut host, Ok(())), [News::Mounted(ActivationId(1), 1)]);
        host
    }

    fn news(effects: Vec<Effect>) -> Vec<News> {
        let news = effects.into_iter().filter_map(|effect| match effect {
            Effect::Report(report) => Some(report.what),
            _ => None,
        });
        news.collect()
    }

    fn said(host: &mut Host, outcome: Result<(), String>) -> Vec<News> {
        news(host.step(Input::Mounted(ActivationId(1), outcome)))
    }

    #[test]
    fn another_copy_is_mounted_once_and_late_orders_do_not_bring_the_old_one_back() {
        let mut host = host();
        assert!(
            matches!(&host.step(order(2))[..], [Effect::Mount(plan)] if plan.addresses == ["10.0.0.2:7511"])
        );
        assert!(host.step(order(2)).is_empty());
        assert_eq!(said(&mut host, Ok(())), [News::Mounted(ActivationId(1), 2)]);
        for late in [1, 2] {
            assert_eq!(
                news(host.step(order(late))),
                [News::Mounted(ActivationId(1), 2)]
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
            [News::MountFailed(ActivationId(1), 2, "away".into())]
        );
        assert!(matches!(&host.step(order(3))[..], [Effect::Mount(_)]));
        let unmount = Input::Order(Order {
            heard: u64::MAX,
            command: Command::Unmount(ActivationId(1)),
        });
        assert!(host.step(unmount).is_empty());
        let outcome = Input::Mounted(ActivationId(1), Err("away".into()));
        assert!(matches!(&host.step(outcome)[..], [Effect::Unmount(_)]));
    }
}
