//! The I/O of one group: its processes, its servers, the test's position, measurements.

use super::client::Clients;
use super::context::IoContext;
use super::job::{IoJob, RequestTag};
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
use forebay_workload::ior::Action;
use std::sync::Arc;

/// The I/O of one group: the processes of all I/O jobs, and the servers that they share.
pub(crate) struct Io {
    group: u16,
    /// By number of the job.
    jobs: Vec<JobState>,
    /// Processes of each job.
    clients: Vec<Clients>,
    /// Their collective operations.
    mpi: Vec<Members>,
    servers: Servers,
    /// Waits of the requests of each group's processes, as far as this group sees them: at its
    /// servers, and at its clients when data arrive; by job.
    waits: Vec<Vec<Waits>>,
    /// Bytes granted to the links of each class before the current phase or break between phases of
    /// the first job (`LinkClass as usize`).
    pub link_timeline: Timeline<4>,
    /// Observation of single requests, if requested.
    pub observer: Option<Box<IoObserver>>,
}

/// The position of a job in its test.
pub(super) struct JobState {
    pub job: Arc<IoJob>,
    pub position: TestPosition,
    /// The last barrier between steps that was passed.
    passed: Option<PassedBarrier>,
    /// Phases that have ended.
    ended_phases: usize,
    /// Time from which no step is left, ps.
    ended_at: Option<u64>,
}

impl JobState {
    fn new(job: &Arc<IoJob>) -> Self {
        JobState {
            position: TestPosition::new(job),
            passed: None,
            ended_phases: 0,
            ended_at: None,
            job: job.clone(),
        }
    }

    /// Time at which the last process entered the last barrier that was passed, ps; before, the start
    /// of the job.
    pub fn barrier_entered(&self) -> u64 {
        self.passed.map_or(self.job.start, |passed| passed.entered())
    }
}

impl Io {
    /// The I/O of one group, with the first event of each process in `queue`. The jobs are in the
    /// order of their numbers. `reached` is the time of the last event that has run, ps.
    pub fn new(
        jobs: &[Arc<IoJob>],
        fabric: &mut Fabric,
        group: u16,
        queue: &mut Queue<Event>,
        reached: u64,
    ) -> Self {
        let groups = usize::from(fabric.topology().groups);
        let mut io = Io {
            group,
            jobs: jobs.iter().map(JobState::new).collect(),
            clients: jobs.iter().map(|job| Clients::new(job, group)).collect(),
            mpi: jobs.iter().map(|job| Members::new(&job.team, &job.topology, group)).collect(),
            servers: Servers::new(jobs, group),
            waits: vec![vec![Waits::default(); groups]; jobs.len()],
            link_timeline: Timeline::default(),
            observer: None,
        };
        for (number, job) in jobs.iter().enumerate() {
            assert_eq!(usize::from(job.number), number, "the order of the jobs");
            io.clients[number].start(job, queue);
            io.enter_phases(number, 0, fabric, job.start);
            // At the start of the job, a link may have ended what it does now.
            io.clients[number].phase.links = fabric.link_statistics(reached);
        }
        io
    }

    /// Whether no process is within a collective operation.
    pub fn is_idle(&self) -> bool {
        self.mpi.iter().all(Members::is_idle)
    }

    /// A job, by its number.
    pub fn job(&self, number: usize) -> &IoJob {
        &self.jobs[number].job
    }

    /// Start of the job that starts last, ps.
    pub fn last_start(&self) -> u64 {
        self.jobs.iter().map(|state| state.job.start).max().unwrap_or(0)
    }

    /// The rank of each of a job's processes in this group, with the times at which it began the transfers of its first
    /// phase and those of its last one, ps.
    pub fn starts_of_transfers(&self, job: usize) -> impl Iterator<Item = (u32, [u64; 2])> {
        self.clients[job].starts_of_transfers()
    }

    /// Time from which a job has no step left, ps.
    pub fn job_ended_at(&self, job: usize) -> Option<u64> {
        self.jobs[job].ended_at
    }

    /// Time from which no job has a step left, ps.
    pub fn ended_at(&self) -> Option<u64> {
        let ends: Option<Vec<u64>> = self.jobs.iter().map(|state| state.ended_at).collect();
        ends?.into_iter().max()
    }

    /// Whether no job has a step left.
    pub fn has_ended(&self) -> bool {
        self.jobs.iter().all(|state| state.ended_at.is_some())
    }

    /// Waits of the requests of a job's processes of all groups, as far as this group sees them.
    pub fn waits_of(&self, job: usize) -> Waits {
        let mut sum = Waits::default();
        self.waits[job].iter().for_each(|waits| sum.add(waits));
        sum
    }

    /// Runs an event.
    pub fn handle(&mut self, event: IoEvent, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        match event {
            IoEvent::Client(event) => {
                let (clients, _, mut io) = self.parts(event.job().into(), fabric, context);
                clients.handle(event, &mut io);
            }
            IoEvent::Server(event) => {
                let (_, servers, mut io) = self.parts(0, fabric, context);
                servers.handle(event, &mut io);
            }
            IoEvent::Passed(barrier) => self.pass_barrier(barrier, fabric, context.now),
        }
    }

    /// The job that has a node of the group, by the node's number within the group.
    fn job_on(&self, local: u16) -> usize {
        match self.mpi.as_slice() {
            [_] => 0,
            all => {
                let place = all.iter().position(|members| members.has(local));
                place.unwrap_or_else(|| unreachable!("node {local} of the group is of no I/O job"))
            }
        }
    }

    /// Runs an event of a collective operation.
    pub fn handle_mpi(
        &mut self,
        event: MpiEvent,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) {
        let number = self.job_on(event.local);
        let Some(left) = self.mpi[number].handle(event, fabric, context) else { return };
        let Left { rank: node, agreement: Some(agreement), .. } = left else {
            unreachable!("IOR's operations synchronise: {left:?}")
        };
        let JobState { job, passed, .. } = &self.jobs[number];
        if let Some(step) = self.clients[number].step_of_barrier(node, job) {
            let barrier = PassedBarrier::new(job.number, step, agreement.entered);
            if node == 0 {
                job.groups_without_ranks.iter().for_each(|&group| {
                    let at = context.now + job.lookahead;
                    context.send(group.into(), at, GroupMessage::Passed(barrier));
                });
            }
            // The first node of the group that leaves: none of its processes has gone on.
            if passed.is_none_or(|passed| passed.step() != step) {
                self.pass_barrier(barrier, fabric, context.now);
            }
        }
        let (clients, _, mut io) = self.parts(number, fabric, context);
        clients.resume_node(node, agreement.value, &mut io);
    }

    /// Enters the phases after a barrier.
    fn pass_barrier(&mut self, barrier: PassedBarrier, fabric: &mut Fabric, now: u64) {
        let number = usize::from(barrier.job());
        let state = &mut self.jobs[number];
        state.passed = Some(barrier);
        let next = state.job.steps.get(barrier.step() as usize + 1);
        if matches!(next.map(|step| step.action), Some(Action::Open(_))) {
            self.restart_timelines(number, barrier.entered(), fabric);
        }
        self.enter_phases(number, barrier.step() + 1, fabric, now);
    }

    /// Accepts a packet for a process or server of this group.
    pub fn receive(
        &mut self,
        kind: PacketKind,
        packet: &Packet,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) {
        if let PacketKind::Mpi(_) = kind {
            let local = fabric.topology().location(packet.dst).local;
            let number = self.job_on(local);
            return self.mpi[number].receive(packet, fabric, context);
        }
        let number = usize::from(RequestTag::unpack(packet.tag()).job);
        let (clients, servers, mut io) = self.parts(number, fabric, context);
        match kind {
            PacketKind::Request(kind) => servers.receive_request(kind, packet, &mut io),
            PacketKind::WriteData => servers.receive_data(packet, &mut io),
            PacketKind::Reply(kind) => clients.receive_reply(kind, packet, &mut io),
            PacketKind::Exchange(kind) => clients.receive_exchange(kind, packet, &mut io),
            PacketKind::Mpi(_) | PacketKind::Traffic => {
                unreachable!("no packet of a request: {packet:?}")
            }
        }
    }

    fn parts<'a, 'c>(
        &'a mut self,
        number: usize,
        fabric: &'a mut Fabric,
        context: &'a mut GroupContext<'c>,
    ) -> (&'a mut Clients, &'a mut Servers, IoContext<'a, 'c>) {
        let JobState { job, position, .. } = &self.jobs[number];
        let io = IoContext {
            job,
            position,
            jobs: &self.jobs,
            mpi: &mut self.mpi,
            waits: &mut self.waits,
            observer: &mut self.observer,
            fabric,
            context,
        };
        (&mut self.clients[number], &mut self.servers, io)
    }

    /// Ends and begins phases from step `next` on, as all processes will, up to the first step that
    /// is neither.
    fn enter_phases(&mut self, number: usize, mut next: u32, fabric: &mut Fabric, now: u64) {
        let job = self.jobs[number].job.clone();
        // The same in all groups, although the nodes leave a barrier at different times.
        let entered = self.jobs[number].barrier_entered();
        while let Some(step) = job.steps.get(next as usize) {
            match step.action {
                Action::End(_) => self.end_phase(number, entered, fabric, now),
                Action::Begin(access) => {
                    if let Some(after) = job.skip_late_phase(next, entered) {
                        next = after;
                        continue;
                    }
                    self.jobs[number].position.enter_phase(step.iteration, access, &job);
                    self.clients[number].enter_phase(access, &job);
                    let phase = PhaseCounts {
                        iteration: step.iteration,
                        access,
                        begun: now,
                        ..PhaseCounts::default()
                    };
                    self.begin_phase(number, phase, entered, fabric);
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
        self.jobs[number].ended_at = Some(now);
    }

    /// Records the state of all counters at the start of a phase. Time series begin in all groups
    /// when the last process had entered the barrier before the phase. Those of links are of the first
    /// job's phases.
    fn begin_phase(
        &mut self,
        number: usize,
        phase: PhaseCounts,
        entered: u64,
        fabric: &mut Fabric,
    ) {
        self.restart_link_timeline(number, entered, fabric);
        let (job, now) = (&self.jobs[number].job, phase.begun);
        self.clients[number].phase = PhaseCounts {
            timeline: Timeline::starting_at(entered),
            by_requests: Timeline::starting_at(entered),
            waits: self.waits[number].clone(),
            links: fabric.link_statistics(now),
            servers: self.servers.usage(now, job),
            paths: self.servers.path_usage(now, job),
            ..phase
        };
    }

    /// Begins the link series of the first job's phase or break; returns the one before.
    fn restart_link_timeline(
        &mut self,
        number: usize,
        entered: u64,
        fabric: &mut Fabric,
    ) -> Timeline<4> {
        if number > 0 {
            return Timeline::starting_at(entered);
        }
        let before = std::mem::replace(&mut fabric.timeline, Timeline::starting_at(entered));
        self.link_timeline.absorb(&before);
        before
    }

    /// Begins the time series of a phase anew before its opens: they would have few points after a
    /// delay (`-d`).
    fn restart_timelines(&mut self, number: usize, entered: u64, fabric: &mut Fabric) {
        self.restart_link_timeline(number, entered, fabric);
        self.clients[number].phase.restart_timelines(entered);
    }

    /// Passes on the counts since the phase began.
    fn end_phase(&mut self, number: usize, entered: u64, fabric: &mut Fabric, now: u64) {
        let mut phase = std::mem::take(&mut self.clients[number].phase);
        assert!(phase.begun <= now, "a phase that ends before it began");
        phase.ended = now;
        phase.link_timeline = self.restart_link_timeline(number, entered, fabric);
        let (clients, state) = (&self.clients[number], &mut self.jobs[number]);
        phase.least_mean = clients.least_mean();
        phase.most_in_calls = clients.most_in_calls();
        phase.node_rates = clients.node_rates(&state.position.pattern);
        for (before, now) in phase.waits.iter_mut().zip(&self.waits[number]) {
            *before = now.since(before);
        }
        for (before, now) in phase.links.iter_mut().zip(fabric.link_statistics(now)) {
            before.bytes = now.bytes - before.bytes;
            before.busy = now.busy - before.busy;
            before.stalled = now.stalled - before.stalled;
            before.longest_queue = now.longest_queue;
        }
        for (before, now) in phase.servers.iter_mut().zip(self.servers.usage(now, &state.job)) {
            before.1 = now.1.since(&before.1);
        }
        for (before, now) in phase.paths.iter_mut().zip(self.servers.path_usage(now, &state.job)) {
            before.1 = (now.1.0 - before.1.0, now.1.1 - before.1.1);
        }
        state.job.phases.add(state.ended_phases, self.group, phase, &state.job);
        state.ended_phases += 1;
    }
}
