//! The context in which events of processes and servers run.

use super::group_io::JobState;
use super::job::{IoJob, RequestTag};
use super::measure::Waits;
use super::position::TestPosition;
use crate::event::{Event, GroupContext, IoEvent, PacketKind, ProcessPlace};
use crate::mpi::Members;
use crate::observe::{IoObserver, Span, Stage};
use forebay_network::{Fabric, Message, Packet};
use forebay_workload::collective::CollectiveSpec;

/// The state that an event of a process or server can change.
pub(crate) struct IoContext<'a, 'c> {
    /// The job of the process or request. Parameters of servers are the same in all jobs.
    pub job: &'a IoJob,
    pub position: &'a TestPosition,
    /// All I/O jobs.
    pub(super) jobs: &'a [JobState],
    /// The processes of each job in collective operations.
    pub(super) mpi: &'a mut [Members],
    /// Waits of the requests of each group's processes, by job.
    pub(super) waits: &'a mut [Vec<Waits>],
    pub observer: &'a mut Option<Box<IoObserver>>,
    pub fabric: &'a mut Fabric,
    pub context: &'a mut GroupContext<'c>,
}

impl IoContext<'_, '_> {
    /// Goes on with a request of perhaps another job: `job` and `position` are those of its job.
    #[inline]
    pub fn enter_request(&mut self, tag: u64) {
        let number = RequestTag::unpack(tag).job;
        if number != self.job.number {
            let state = &self.jobs[usize::from(number)];
            (self.job, self.position) = (&state.job, &state.position);
        }
    }

    /// The place of a process of the job.
    pub fn place(&self, slot: u32) -> ProcessPlace {
        ProcessPlace::new(self.job.number, slot)
    }

    /// Time at which the last process of the job entered the last barrier between steps that was
    /// passed, ps.
    pub fn barrier_entered(&self) -> u64 {
        self.jobs[usize::from(self.job.number)].barrier_entered()
    }

    /// Time of the event, ps.
    pub fn now(&self) -> u64 {
        self.context.now
    }

    /// Schedules an event.
    pub fn schedule(&mut self, at: u64, event: impl Into<IoEvent>) {
        let event = event.into();
        self.context.queue.push(at, event.key(), Event::Io(event));
    }

    /// Sends a message between two nodes: `bytes` of data, or a control message if 0.
    pub fn send(&mut self, from: u32, to: u32, kind: PacketKind, bytes: u64, tag: u64) {
        let message = Message {
            to,
            bytes: if bytes == 0 { self.job.client.control_message.0 } else { bytes },
            tag,
            kind: kind.number(),
            class: kind.class(),
            born: self.context.now,
        };
        self.fabric.send(from, message, self.context);
    }

    /// Records a stage of a request at a server, of which it waited for `waited` ps.
    #[inline]
    pub fn stage(&mut self, node: u32, tag: u64, stage: Stage, times: (u64, u64), waited: u64) {
        if let Some(observer) = self.observer {
            observer.stage(Span { tag, node, stage, begin: times.0, end: times.1 }, waited);
        }
    }

    /// A process of this group enters a collective operation, with a value of which all processes
    /// get the greatest.
    pub fn enter_collective(&mut self, rank: u32, spec: CollectiveSpec, value: u64) {
        let local = self.job.topology.location(self.job.node_of(rank)).local;
        let mpi = &mut self.mpi[usize::from(self.job.number)];
        mpi.enter(local, 1, spec, value, self.context);
    }

    /// The waits of the requests of a request's job in the group that its client is in.
    pub fn waits_of(&mut self, tag: u64, client: u32) -> &mut Waits {
        let group = self.job.topology.location(client).group;
        let job = RequestTag::unpack(tag).job;
        &mut self.waits[usize::from(job)][usize::from(group)]
    }

    /// Counts how much longer than alone the data took of which `last` is the last packet.
    pub fn count_network_wait(&mut self, last: &Packet, client: u32, bytes: u64) {
        let alone = self.job.node_link.time_for(forebay_units::Bytes(bytes)).0;
        let waited = (self.context.now - last.born()).saturating_sub(alone);
        self.waits_of(last.tag(), client).network += waited;
    }
}
