//! Commands that are needed, and when each was last sent, so that it is repeated after a while and not
//! sooner.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::MountId;
use crate::messages::{FragmentId, StageId, UnixMillis};

/// Object that a command is to change; one command for each is in flight at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandTarget {
    CreateFragment(FragmentId),
    RemoveFragment(FragmentId),
    FenceHosts(FragmentId),
    /// The mover of a share; share 0 of a stage that one node moves.
    StartStage(StageId, u32),
    CancelStage(StageId, u32),
    EndShare(StageId, u32),
    Mount(MountId),
    Unmount(MountId),
}

/// The commands that are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct SentCommands {
    /// Times at which they were last sent; `None` for one that was not.
    last_sent: BTreeMap<CommandTarget, Option<UnixMillis>>,
    /// Those that were not sent yet, and perhaps others.
    new: BTreeSet<CommandTarget>,
}

impl SentCommands {
    /// A command is needed until [`forget`](Self::forget).
    pub fn need(&mut self, target: CommandTarget) {
        if !self.last_sent.contains_key(&target) {
            self.new.insert(target.clone());
            self.last_sent.insert(target, None);
        }
    }

    /// The commands that are needed are these and no others.
    pub fn need_only(&mut self, targets: BTreeSet<CommandTarget>) {
        self.last_sent.retain(|target, _| targets.contains(target));
        for target in targets {
            self.need(target);
        }
    }

    /// Takes the commands that were not sent yet.
    pub fn take_new(&mut self, now: UnixMillis) -> Vec<CommandTarget> {
        let mut due = Vec::new();
        for target in std::mem::take(&mut self.new) {
            if let Some(sent) = self.last_sent.get_mut(&target)
                && sent.is_none()
            {
                *sent = Some(now);
                due.push(target);
            }
        }
        due
    }

    /// Takes the commands that were not sent yet, or have had no effect for long.
    pub fn take_due(&mut self, now: UnixMillis, retry_interval_ms: u64) -> Vec<CommandTarget> {
        self.new.clear();
        let mut due = Vec::new();
        for (target, sent) in &mut self.last_sent {
            if sent.is_none_or(|last| now.ms_since(last) >= retry_interval_ms) {
                *sent = Some(now);
                due.push(target.clone());
            }
        }
        due
    }

    /// A command has had an effect: it need not be repeated yet.
    pub fn postpone(&mut self, target: &CommandTarget, now: UnixMillis) {
        if let Some(sent) = self.last_sent.get_mut(target) {
            *sent = Some(now);
        }
    }

    /// A command is not needed, or no longer in flight: the next one for its target is due at once.
    pub fn forget(&mut self, target: &CommandTarget) {
        self.last_sent.remove(target);
    }

    /// The commands for a stage that are needed.
    pub fn of_stage(&self, id: StageId) -> Vec<CommandTarget> {
        let all = |first: fn(StageId, u32) -> CommandTarget| {
            self.last_sent.range(first(id, 0)..=first(id, u32::MAX)).map(|(target, _)| target)
        };
        let starts = all(CommandTarget::StartStage);
        let ends = all(CommandTarget::CancelStage).chain(all(CommandTarget::EndShare));
        starts.chain(ends).cloned().collect()
    }

    /// The commands that are needed.
    pub fn needed(&self) -> impl Iterator<Item = &CommandTarget> {
        self.last_sent.keys()
    }
}
