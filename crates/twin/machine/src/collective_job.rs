//! A job that performs a collective operation again and again, each time after a barrier.

use crate::event::{Event, GroupContext, GroupMessage, MpiEvent, MpiEventKind};
use crate::mpi::{Left, Members, MessageCounts, Team, TeamId};
use forebay_engine::Queue;
use forebay_network::{Fabric, Packet, Topology};
use forebay_units::Bytes;
use forebay_workload::collective::{CollectiveSpec, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BARRIER: CollectiveSpec = CollectiveSpec::new(Operation::Barrier, Bytes::ZERO);

/// A job of collective operations.
pub(crate) struct CollectiveJob {
    pub team: Arc<Team>,
    pub spec: CollectiveSpec,
    /// Iterations, with those before the measured ones.
    pub iterations: u32,
    /// Time at which all processes enter the first barrier, ps.
    pub start: u64,
    /// Least time of a message to another group, ps.
    pub lookahead: u64,
    pub groups: u16,
    /// Iterations that nodes have ended, for progress reports only.
    pub done: AtomicU64,
}

impl CollectiveJob {
    /// Iterations of all nodes.
    pub fn total(&self) -> f64 {
        f64::from(self.iterations) * self.team.nodes.len() as f64
    }
}

/// One iteration at some of the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    /// Time at which the first node entered the operation, ps.
    pub entered: u64,
    /// Time at which the last node left it, ps.
    pub left: u64,
    /// Time between the two, summed over the nodes, ps.
    pub sum: u64,
    pub nodes: u32,
}

impl Iteration {
    const NONE: Iteration = Iteration { entered: u64::MAX, left: 0, sum: 0, nodes: 0 };

    /// Adds the counts of other nodes.
    pub fn merge(&mut self, other: &Iteration) {
        self.entered = self.entered.min(other.entered);
        self.left = self.left.max(other.left);
        self.sum += other.sum;
        self.nodes += other.nodes;
    }
}

/// The place of a node in the job.
#[derive(Clone, Copy, Default)]
struct Progress {
    iteration: u32,
    /// Time at which it entered the operation, ps; `None`: in the barrier before.
    entered: Option<u64>,
}

/// The nodes of one group that perform collective operations.
pub(crate) struct CollectiveNodes {
    job: Arc<CollectiveJob>,
    members: Members,
    /// By the node's number within the group.
    progress: Vec<Progress>,
    pub iterations: Vec<Iteration>,
}

impl CollectiveNodes {
    /// The nodes of a group, with the first event of each in `queue`.
    pub fn new(
        job: &Arc<CollectiveJob>,
        topology: &Topology,
        group: u16,
        queue: &mut Queue<Event>,
    ) -> Self {
        let members = Members::new(&job.team, topology, group);
        for local in members.locals() {
            let kind = MpiEventKind::EnterJob;
            let event = MpiEvent { team: TeamId::Collective, kind, local };
            queue.push(job.start, event.key(), Event::Mpi(event));
        }
        CollectiveNodes {
            job: job.clone(),
            members,
            progress: vec![Progress::default(); topology.nodes_of_group(group).len()],
            iterations: vec![Iteration::NONE; job.iterations as usize],
        }
    }

    /// Messages that the group's nodes have sent, with those of barriers.
    pub fn counts(&self) -> MessageCounts {
        self.members.counts
    }

    /// Whether no node is within an operation.
    pub fn is_idle(&self) -> bool {
        self.members.is_idle()
    }

    /// Accepts a packet for a node of this group.
    pub fn receive(&mut self, packet: &Packet, fabric: &Fabric, context: &mut GroupContext<'_>) {
        self.members.receive(packet, fabric, context);
    }

    /// Runs an event; returns whether the job has ended.
    pub fn handle(
        &mut self,
        event: MpiEvent,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) -> bool {
        if event.kind == MpiEventKind::EnterJob {
            self.enter(event.local, BARRIER, context);
            return false;
        }
        match self.members.handle(event, fabric, context) {
            Some(left) => self.leave(left, context),
            None => false,
        }
    }

    fn enter(&mut self, local: u16, spec: CollectiveSpec, context: &mut GroupContext<'_>) {
        let processes = self.members.processes_on(local);
        self.members.enter(local, processes, spec, 0, context);
    }

    /// A node leaves a barrier or an operation; returns whether the job has ended.
    fn leave(&mut self, left: Left, context: &mut GroupContext<'_>) -> bool {
        let job = self.job.clone();
        let progress = &mut self.progress[usize::from(left.local)];
        let Some(entered) = progress.entered.take() else {
            progress.entered = Some(context.now);
            self.enter(left.local, job.spec, context);
            return false;
        };
        let iteration = progress.iteration as usize;
        progress.iteration += 1;
        let goes_on = progress.iteration < job.iterations;
        self.iterations[iteration].merge(&Iteration {
            entered,
            left: context.now,
            sum: context.now - entered,
            nodes: 1,
        });
        job.done.fetch_add(1, Ordering::Relaxed);
        if goes_on {
            self.enter(left.local, BARRIER, context);
            return false;
        }
        let ends = left.rank == 0;
        if ends {
            let here = context.partition;
            for group in (0..u32::from(job.groups)).filter(|&group| group != here) {
                context.send(group, context.now + job.lookahead, GroupMessage::CollectiveEnded);
            }
        }
        ends
    }
}
