//! Barriers among all processes, and what happens to every group when one is passed.
//!
//! The processes of a group come together first; then the group reports to group 0, which lets
//! all groups go when the last has reported. That stands for the tree of an MPI barrier, whose
//! time is one MPI latency a level, up and down.

use super::IoJob;
use crate::group::{Group, Io, Letter};
use forebay_engine::Context;
use forebay_workload::ior::Action;

/// Who has come to the barrier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BarrierArrivals {
    /// Processes of this group.
    here: u32,
    /// Greatest value that one of them brought.
    value: u64,
    /// In group 0: groups that have reported, and their greatest value.
    groups: u32,
    greatest: u64,
    /// When the last barrier between steps was passed, ps.
    pub released: u64,
}

impl BarrierArrivals {
    /// In place of a step's number: a barrier within a step, after which the test stands where it
    /// stood.
    pub const WITHIN_STEP: u32 = u32::MAX;
}

impl Group {
    /// A process of this group has come to a barrier, with a value of which the greatest is told
    /// to all.
    pub(crate) fn arrive(&mut self, step: u32, value: u64, context: &mut Context<'_, Self>) {
        let processes = self.clients.count();
        let arrivals = &mut self.clients.arrivals;
        arrivals.here += 1;
        arrivals.value = arrivals.value.max(value);
        if arrivals.here < processes {
            return;
        }
        let value = std::mem::take(&mut arrivals.value);
        arrivals.here = 0;
        let Some(job) = &self.world.io else { return };
        let at = context.now + job.barrier_hop;
        if context.partition == 0 {
            self.later(at, Io::Reported { step, value }, context);
        } else {
            context.send(0, at, Letter::Reported { step, value });
        }
    }

    /// In group 0: a group reports that all its processes have come.
    pub(crate) fn reported(&mut self, step: u32, value: u64, context: &mut Context<'_, Self>) {
        let Some(job) = &self.world.io else { return };
        let arrivals = &mut self.clients.arrivals;
        arrivals.groups += 1;
        arrivals.greatest = arrivals.greatest.max(value);
        if arrivals.groups < job.groups_with_ranks {
            return;
        }
        let value = std::mem::take(&mut arrivals.greatest);
        arrivals.groups = 0;
        let at = context.now + job.barrier_hop;
        for group in 1..u32::from(self.world.topology.groups) {
            context.send(group, at, Letter::Released { step, value });
        }
        self.later(at, Io::Released { step, value }, context);
    }

    /// All processes have come: the test goes on in this group.
    pub(crate) fn released(&mut self, step: u32, value: u64, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        if step != BarrierArrivals::WITHIN_STEP {
            self.clients.arrivals.released = context.now;
            self.pass(step + 1, job, context.now);
        }
        self.resume_all(value, context);
    }

    /// Takes the ends and beginnings of phases that begin at step `next`, as all processes will.
    pub(crate) fn pass(&mut self, mut next: u32, job: &IoJob, now: u64) {
        while let Some(step) = job.steps.get(next as usize) {
            match step.action {
                Action::End(_) => self.end_phase(now),
                Action::Begin(access) => {
                    if let Some(after) = job.skip_late_phase(next, now) {
                        next = after;
                        continue;
                    }
                    self.clients.enter(step.iteration, access, job);
                    self.begin_phase(step.iteration, access, now);
                }
                _ => return,
            }
            next += 1;
        }
        // No step is left: the job has ended, and with it what runs beside it.
        self.sources.stopped = true;
    }
}
