//! The I/O of one group: its processes, its servers, the test's position, measurements.

use super::client::Clients;
use super::context::IoContext;
use super::job::IoJob;
use super::measure::{PhaseCounts, Waits};
use super::position::TestPosition;
use super::server::Servers;
use crate::event::{
    Event, GroupContext, GroupMessage, IoEvent, MpiEvent, PacketKind, PassedBarrier,
};
use crate::mpi::{Left, Members};
use crate::observe::IoObserver;
use forebay_engine::Queue;
use forebay_network::{Fabric, Packet, Timeline};
use forebay_workload::ior::{Access, Action};
use std::sync::Arc;

/// The I/O of one group.
pub(crate) struct Io {
    job: Arc<IoJob>,
    group: u16,
    position: TestPosition,
    clients: Clients,
    servers: Servers,
    mpi: Members,
    /// The last barrier between steps that was passed.
    passed: Option<PassedBarrier>,
    /// Waits of the requests of each group's processes, as far as this group sees them: at its
    /// servers, and at its clients when data arrive.
    waits: Vec<Waits>,
    /// Phases that have ended.
    ended_phases: usize,
    /// Bytes granted to the links of each class before the current phase or break between phases
    /// (`LinkClass as usize`).
    pub link_timeline: Timeline<4>,
    /// Time from which no step is left, ps.
    ended_at: Option<u64>,
    /// Observation of single requests, if requested.
    pub observer: Option<Box<IoObserver>>,
}

impl Io {
    /// The I/O of one group, with the first event of each of its processes in `queue`.
    pub fn new(
        job: &Arc<IoJob>,
        fabric: &mut Fabric,
        group: u16,
        queue: &mut Queue<Event>,
    ) -> Self {
        let clients = Clients::new(job, group);
        clients.start(queue);
        let mut io = Io {
            group,
            position: TestPosition::new(job),
            mpi: Members::new(&job.team, &job.topology, group),
            passed: None,
            clients,
            servers: Servers::new(job, group),
            waits: vec![Waits::default(); usize::from(job.topology.groups)],
            ended_phases: 0,
            link_timeline: Timeline::default(),
            ended_at: None,
            observer: None,
            job: job.clone(),
        };
        io.enter_phases(0, fabric, 0);
        io
    }

    /// Whether no process is within a collective operation.
    pub fn is_idle(&self) -> bool {
        self.mpi.is_idle()
    }

    /// Time from which the test has no step left, ps.
    pub fn ended_at(&self) -> Option<u64> {
        self.ended_at
    }

    /// Whether the test has no step left.
    pub fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Runs an event.
    pub fn handle(&mut self, event: IoEvent, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        match event {
            IoEvent::Client(event) => {
                let (clients, _, mut io) = self.parts(fabric, context);
                clients.handle(event, &mut io);
            }
            IoEvent::Server(event) => {
                let (_, servers, mut io) = self.parts(fabric, context);
                servers.handle(event, &mut io);
            }
            IoEvent::Passed(barrier) => self.pass_barrier(barrier, fabric, context.now),
        }
    }

    /// Runs an event of a collective operation.
    pub fn handle_mpi(
        &mut self,
        event: MpiEvent,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) {
        let Some(left) = self.mpi.handle(event, fabric, context) else { return };
        let Left { rank: node, agreement: Some(agreement), .. } = left else {
            unreachable!("IOR's operations synchronise: {left:?}")
        };
        if let Some(step) = self.clients.step_of_barrier(node, &self.job) {
            let barrier = PassedBarrier::new(step, agreement.entered);
            if node == 0 {
                self.job.groups_without_ranks.iter().for_each(|&group| {
                    let at = context.now + self.job.lookahead;
                    context.send(group.into(), at, GroupMessage::Passed(barrier));
                });
            }
            // The first node of the group that leaves: none of its processes has gone on.
            if self.passed.is_none_or(|passed| passed.step != step) {
                self.pass_barrier(barrier, fabric, context.now);
            }
        }
        let (clients, _, mut io) = self.parts(fabric, context);
        clients.resume_node(node, agreement.value, &mut io);
    }

    /// Enters the phases after a barrier.
    fn pass_barrier(&mut self, barrier: PassedBarrier, fabric: &mut Fabric, now: u64) {
        self.passed = Some(barrier);
        let next = self.job.steps.get(barrier.step as usize + 1);
        if matches!(next.map(|step| step.action), Some(Action::Open(_))) {
            self.restart_timelines(barrier.entered(), fabric);
        }
        self.enter_phases(barrier.step + 1, fabric, now);
    }

    /// Accepts a packet for a process or server of this group.
    pub fn receive(
        &mut self,
        kind: PacketKind,
        packet: &Packet,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) {
        let (clients, servers, mut io) = self.parts(fabric, context);
        match kind {
            PacketKind::Request(kind) => servers.receive_request(kind, packet, &mut io),
            PacketKind::WriteData => servers.receive_data(packet, &mut io),
            PacketKind::Reply(kind) => clients.receive_reply(kind, packet, &mut io),
            PacketKind::Exchange(kind) => clients.receive_exchange(kind, packet, &mut io),
            PacketKind::Mpi(_) => self.mpi.receive(packet, fabric, context),
            PacketKind::Traffic => unreachable!("traffic is not I/O: {packet:?}"),
        }
    }

    fn parts<'a, 'c>(
        &'a mut self,
        fabric: &'a mut Fabric,
        context: &'a mut GroupContext<'c>,
    ) -> (&'a mut Clients, &'a mut Servers, IoContext<'a, 'c>) {
        let io = IoContext {
            job: &self.job,
            position: &self.position,
            mpi: &mut self.mpi,
            barrier_entered: self.passed.map_or(0, |passed| passed.entered()),
            waits: &mut self.waits,
            observer: &mut self.observer,
            fabric,
            context,
        };
        (&mut self.clients, &mut self.servers, io)
    }

    /// Ends and begins phases from step `next` on, as all processes will, up to the first step that
    /// is neither.
    fn enter_phases(&mut self, mut next: u32, fabric: &mut Fabric, now: u64) {
        let job = self.job.clone();
        // The same in all groups, although the nodes leave a barrier at different times.
        let entered = self.passed.map_or(0, |passed| passed.entered());
        while let Some(step) = job.steps.get(next as usize) {
            match step.action {
                Action::End(_) => self.end_phase(entered, fabric, now),
                Action::Begin(access) => {
                    if let Some(after) = job.skip_late_phase(next, entered) {
                        next = after;
                        continue;
                    }
                    self.position.enter_phase(step.iteration, access, &job);
                    self.clients.enter_phase(access, &job);
                    self.begin_phase(step.iteration, access, entered, fabric, now);
                }
                Action::Delay(_)
                | Action::RemoveExisting
                | Action::MakeDirectories
                | Action::Barrier
                | Action::Open(_)
                | Action::Transfer(_)
                | Action::Fsync
                | Action::Close(_)
                | Action::Remove => return,
            }
            next += 1;
        }
        self.ended_at = Some(now);
    }

    /// Records the state of all counters at the start of a phase. Time series begin in all groups
    /// when the last process had entered the barrier before the phase.
    fn begin_phase(
        &mut self,
        iteration: u32,
        access: Access,
        entered: u64,
        fabric: &mut Fabric,
        now: u64,
    ) {
        let before = std::mem::replace(&mut fabric.timeline, Timeline::starting_at(entered));
        self.link_timeline.absorb(&before);
        self.clients.phase = PhaseCounts {
            iteration,
            access,
            begun: now,
            timeline: Timeline::starting_at(entered),
            waits: self.waits.clone(),
            links: fabric.link_statistics(now),
            servers: self.servers.usage(now),
            paths: self.servers.path_usage(now),
            ..PhaseCounts::default()
        };
    }

    /// Begins the time series of a phase anew before its opens: they would have few points after a
    /// delay (`-d`).
    fn restart_timelines(&mut self, entered: u64, fabric: &mut Fabric) {
        let before = std::mem::replace(&mut fabric.timeline, Timeline::starting_at(entered));
        self.link_timeline.absorb(&before);
        self.clients.phase.timeline = Timeline::starting_at(entered);
    }

    /// Passes on the counts since the phase began.
    fn end_phase(&mut self, entered: u64, fabric: &mut Fabric, now: u64) {
        let mut phase = std::mem::take(&mut self.clients.phase);
        assert!(phase.begun <= now, "a phase that ends before it began");
        phase.ended = now;
        phase.link_timeline =
            std::mem::replace(&mut fabric.timeline, Timeline::starting_at(entered));
        self.link_timeline.absorb(&phase.link_timeline);
        phase.least_mean = self.clients.least_mean();
        phase.most_in_calls = self.clients.most_in_calls();
        phase.node_rates = self.clients.node_rates(&self.position.pattern);
        for (before, now) in phase.waits.iter_mut().zip(&self.waits) {
            *before = now.since(before);
        }
        for (before, now) in phase.links.iter_mut().zip(fabric.link_statistics(now)) {
            before.bytes = now.bytes - before.bytes;
            before.busy = now.busy - before.busy;
            before.stalled = now.stalled - before.stalled;
            before.longest_queue = now.longest_queue;
        }
        for (before, now) in phase.servers.iter_mut().zip(self.servers.usage(now)) {
            before.1 = now.1.since(&before.1);
        }
        for (before, now) in phase.paths.iter_mut().zip(self.servers.path_usage(now)) {
            before.1 = (now.1.0 - before.1.0, now.1.1 - before.1.1);
        }
        self.job.phases.add(self.ended_phases, self.group, phase, &self.job);
        self.ended_phases += 1;
    }
}
