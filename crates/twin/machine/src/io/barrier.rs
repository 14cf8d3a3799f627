//! Barriers among all processes of a job.
//!
//! The processes of a group wait for each other first; then the group reports to group 0, which releases
//! all groups when the last one has reported. That models the tree of an MPI barrier, whose time is
//! one MPI latency per level, up and down.

use super::job::IoJob;
use crate::event::{BarrierEvent, Event, GroupContext, GroupMessage, IoEvent};

/// In place of a step's number: a barrier within a step, after which the test's position is
/// unchanged.
pub(crate) const WITHIN_STEP: u32 = u32::MAX;

/// Arrivals at the current barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// Processes of this group.
    processes: u32,
    /// Those of them that have arrived.
    arrived: u32,
    /// Greatest value that one of them brought.
    value: u64,
    /// In group 0: groups that have reported, and their greatest value.
    groups: u32,
    greatest: u64,
    /// Time at which the last barrier between steps was released, ps.
    pub released_at: u64,
}

impl Barrier {
    pub fn new(processes: u32) -> Self {
        Barrier { processes, arrived: 0, value: 0, groups: 0, greatest: 0, released_at: 0 }
    }

    /// A process of this group has reached the barrier.
    pub fn reach(&mut self, step: u32, value: u64, job: &IoJob, context: &mut GroupContext<'_>) {
        self.arrived += 1;
        self.value = self.value.max(value);
        if self.arrived < self.processes {
            return;
        }
        assert!(self.arrived == self.processes, "a process arrived twice");
        let value = std::mem::take(&mut self.value);
        self.arrived = 0;
        let at = context.now + job.barrier_hop;
        let event = BarrierEvent::Reached { step, value };
        if context.partition == 0 {
            schedule(at, event, context);
        } else {
            context.send(0, at, GroupMessage::Barrier(event));
        }
    }

    /// In group 0: all processes of a group have reached the barrier.
    pub fn group_reached(
        &mut self,
        step: u32,
        value: u64,
        job: &IoJob,
        context: &mut GroupContext<'_>,
    ) {
        self.groups += 1;
        self.greatest = self.greatest.max(value);
        if self.groups < job.groups_with_ranks {
            return;
        }
        assert!(self.groups == job.groups_with_ranks, "a group reported twice");
        let value = std::mem::take(&mut self.greatest);
        self.groups = 0;
        let at = context.now + job.barrier_hop;
        let event = BarrierEvent::Released { step, value };
        for group in 1..u32::from(job.topology.groups) {
            context.send(group, at, GroupMessage::Barrier(event));
        }
        schedule(at, event, context);
    }
}

fn schedule(at: u64, event: BarrierEvent, context: &mut GroupContext<'_>) {
    let event = IoEvent::Barrier(event);
    context.queue.push(at, event.key(), Event::Io(event));
}
