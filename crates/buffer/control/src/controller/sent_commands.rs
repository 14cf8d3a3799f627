//! Times at which commands were last sent, so that each is repeated after a while and not sooner.

use std::collections::BTreeMap;

use crate::messages::{ActivationId, FragmentId, StageId, UnixMillis};

/// Object that a command is to change; one command for each is in flight at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandTarget {
    CreateFragment(FragmentId),
    RemoveFragment(FragmentId),
    StartStage(StageId),
    CancelStage(StageId),
    Mount(ActivationId, String),
    Unmount(ActivationId, String),
}

/// Times at which the commands in flight were last sent.
#[derive(Clone, Debug, Default)]
pub(super) struct SentCommands {
    last_sent: BTreeMap<CommandTarget, UnixMillis>,
}

impl SentCommands {
    /// Takes the targets of the commands that are now needed, and returns those that are due. Commands
    /// that are no longer needed are forgotten.
    pub fn take_due(
        &mut self,
        needed: Vec<CommandTarget>,
        now: UnixMillis,
        retry_interval_ms: u64,
    ) -> Vec<CommandTarget> {
        let mut due = Vec::new();
        let mut last_sent = BTreeMap::new();
        for target in needed {
            let last = self.last_sent.get(&target).copied();
            let in_flight = last.filter(|last| now.ms_since(*last) < retry_interval_ms);
            if in_flight.is_none() {
                due.push(target.clone());
            }
            let old = last_sent.insert(target, in_flight.unwrap_or(now));
            assert!(old.is_none(), "two commands have one target");
        }
        self.last_sent = last_sent;
        due
    }

    /// A command has had an effect: it need not be repeated yet.
    pub fn postpone(&mut self, target: CommandTarget, now: UnixMillis) {
        self.last_sent.insert(target, now);
    }

    /// A command is no longer in flight: the next one for its target is due at once.
    pub fn forget(&mut self, target: &CommandTarget) {
        self.last_sent.remove(target);
    }
}
