//! Events of a group, messages between groups, and kinds of packets.

use crate::io::RequestTag;
use crate::mpi::TeamId;
use crate::observe::Job;
use forebay_engine::Context;
use forebay_network::{MessageClass, NetEvent, NetMessage, Packet};

/// The context in which a group's events run.
pub(crate) type GroupContext<'a> = Context<'a, Event, GroupMessage>;

/// An event of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Net(NetEvent),
    /// The next traffic message of a node (number within the group) is ready.
    GenerateTraffic(u16),
    Io(IoEvent),
    Mpi(MpiEvent),
    /// The job of collective operations has ended.
    CollectiveEnded,
}

// Together with time and key it takes half a cache line.
const _: () = assert!(size_of::<Event>() == 16);

impl Event {
    /// Event key of [`Event::CollectiveEnded`].
    pub const COLLECTIVE_ENDED_KEY: u32 = NetEvent::FIRST_FREE_KEY + (13 << 24);

    /// Event key of [`Event::GenerateTraffic`].
    pub fn traffic_key(local: u16) -> u32 {
        NetEvent::FIRST_FREE_KEY + u32::from(local)
    }
}

/// An event of a group's processes and storage nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoEvent {
    Client(ClientEvent),
    Server(ServerEvent),
    Passed(PassedBarrier),
}

/// An event of a process (by its place) or of a request (by its tag).
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientEvent {
    /// A process continues with its steps.
    Resume(ProcessPlace),
    /// A process's call is ready to send its requests.
    IssueRequests(ProcessPlace),
    /// A process's data of a write are ready for its node's client.
    WriteDataReady(u64),
    /// A client has time to send the data of a write.
    SendWriteData(u64),
    /// A client has taken in the data of a read.
    RequestDone(u64),
    /// An aggregator has copied the data of its own node's processes for its window.
    CopyDone(ProcessPlace),
}

/// The place of a process: its job, and its slot, the number among the job's processes in the group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessPlace(u32);

impl ProcessPlace {
    const SLOT_BITS: u32 = 24;

    pub fn new(job: u8, slot: u32) -> Self {
        debug_assert!(slot < 1 << Self::SLOT_BITS, "slot {slot}");
        ProcessPlace(u32::from(job) << Self::SLOT_BITS | slot)
    }

    /// Number of the job among the I/O jobs.
    pub fn job(self) -> u8 {
        (self.0 >> Self::SLOT_BITS) as u8
    }

    /// Number among the job's processes in the group.
    pub fn slot(self) -> u32 {
        self.0 & ((1 << Self::SLOT_BITS) - 1)
    }
}

impl ClientEvent {
    /// Number of its job among the I/O jobs.
    pub fn job(&self) -> u8 {
        match *self {
            ClientEvent::Resume(place)
            | ClientEvent::IssueRequests(place)
            | ClientEvent::CopyDone(place) => place.job(),
            ClientEvent::WriteDataReady(tag)
            | ClientEvent::SendWriteData(tag)
            | ClientEvent::RequestDone(tag) => RequestTag::unpack(tag).job,
        }
    }
}

/// An event of a request at a server, by its index in the server's table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerEvent {
    /// A server has taken a request off the wire.
    Dispatched(u32),
    /// A server has time to fetch data.
    FetchData(u32),
    /// A server's memory has taken in data that arrived.
    DataTakenIn(u32),
    /// Data are on flash.
    FlashWritten(u32),
    /// Data have been read from flash.
    FlashRead(u32),
    /// A server has time to send data.
    SendReadData(u32),
    /// A write releases its lock.
    ReleaseLock(u32),
    /// The data of a read have left a server's memory.
    ReadSent(u32),
    /// A request that moves no data is done.
    Reply(u32),
    /// A server's flusher has prepared a flush (by its index in the group's table).
    SubmitFlush(u32),
    /// A flush is on flash.
    Flushed(u32),
}

/// The processes of a job leave a barrier: the message to groups in which there are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedBarrier {
    /// Number of the job among the I/O jobs, and the barrier's step.
    job_and_step: u32,
    /// Low and high half of the time of the last entry: events have room for words of four bytes.
    entered: [u32; 2],
}

impl PassedBarrier {
    const STEP_BITS: u32 = 28;

    /// The last process of a job entered the barrier of `step` at `entered`, ps.
    pub fn new(job: u8, step: u32, entered: u64) -> Self {
        assert!(step < 1 << Self::STEP_BITS && u32::from(job) < 16, "step {step} of job {job}");
        let job_and_step = u32::from(job) << Self::STEP_BITS | step;
        PassedBarrier { job_and_step, entered: [entered as u32, (entered >> 32) as u32] }
    }

    /// Number of the job among the I/O jobs.
    pub fn job(&self) -> u8 {
        (self.job_and_step >> Self::STEP_BITS) as u8
    }

    /// The barrier's step.
    pub fn step(&self) -> u32 {
        self.job_and_step & ((1 << Self::STEP_BITS) - 1)
    }

    /// Time at which the last process entered, ps.
    pub fn entered(&self) -> u64 {
        (u64::from(self.entered[1]) << 32) | u64::from(self.entered[0])
    }
}

/// An event of the leader of a node (number within the group) in a collective operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MpiEvent {
    pub team: TeamId,
    pub kind: MpiEventKind,
    pub local: u16,
}

/// The event of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MpiEventKind {
    /// Its node's processes have entered, or a round has ended.
    BeginRound,
    /// It has prepared its message.
    Send,
    /// It has taken in the request of a message.
    Clear,
    /// It has taken in that its message is cleared.
    SendCleared,
    /// It has sent and received its messages of a round.
    EndRound,
    /// Its node's processes have the result.
    Leave,
    /// Its node's processes begin a job of collective operations.
    EnterJob,
}

impl MpiEvent {
    /// Event key, which orders events of the same time.
    pub fn key(&self) -> u32 {
        let team = match self.team {
            TeamId::Io => 0,
            TeamId::Collective => 1,
        };
        let kind = 17 + self.kind as u32 + 7 * team;
        NetEvent::FIRST_FREE_KEY + (kind << 24) + u32::from(self.local)
    }
}

impl IoEvent {
    /// Event key, which orders events of the same time: by kind, and within a kind by number.
    pub fn key(&self) -> u32 {
        let (kind, number) = match *self {
            IoEvent::Client(ClientEvent::Resume(place)) => (1, place.slot()),
            IoEvent::Client(ClientEvent::IssueRequests(place)) => (2, place.slot()),
            IoEvent::Client(ClientEvent::SendWriteData(tag)) => (3, tag as u32),
            IoEvent::Client(ClientEvent::RequestDone(tag)) => (4, tag as u32),
            IoEvent::Client(ClientEvent::CopyDone(place)) => (14, place.slot()),
            IoEvent::Client(ClientEvent::WriteDataReady(tag)) => (31, tag as u32),
            IoEvent::Server(ServerEvent::Dispatched(index)) => (5, index),
            IoEvent::Server(ServerEvent::FetchData(index)) => (6, index),
            IoEvent::Server(ServerEvent::FlashWritten(index)) => (7, index),
            IoEvent::Server(ServerEvent::FlashRead(index)) => (8, index),
            IoEvent::Server(ServerEvent::SendReadData(index)) => (9, index),
            IoEvent::Server(ServerEvent::ReleaseLock(index)) => (10, index),
            IoEvent::Server(ServerEvent::DataTakenIn(index)) => (15, index),
            IoEvent::Server(ServerEvent::ReadSent(index)) => (16, index),
            IoEvent::Server(ServerEvent::Reply(index)) => (11, index),
            IoEvent::Server(ServerEvent::SubmitFlush(index)) => (32, index),
            IoEvent::Server(ServerEvent::Flushed(index)) => (33, index),
            IoEvent::Passed(barrier) => (12, barrier.job().into()),
        };
        NetEvent::FIRST_FREE_KEY + (kind << 24) + (number & 0xff_ffff)
    }
}

impl From<NetEvent> for Event {
    #[inline]
    fn from(event: NetEvent) -> Self {
        Event::Net(event)
    }
}

impl From<ClientEvent> for IoEvent {
    fn from(event: ClientEvent) -> Self {
        IoEvent::Client(event)
    }
}

impl From<ServerEvent> for IoEvent {
    fn from(event: ServerEvent) -> Self {
        IoEvent::Server(event)
    }
}

/// A message from one group to another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupMessage {
    Net(NetMessage),
    Passed(PassedBarrier),
    /// The job of collective operations has ended.
    CollectiveEnded,
}

impl From<NetMessage> for GroupMessage {
    #[inline]
    fn from(message: NetMessage) -> Self {
        GroupMessage::Net(message)
    }
}

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// Synthetic traffic.
    Traffic,
    /// Client to server: a request.
    Request(RequestKind),
    /// Client to server: the data of a write.
    WriteData,
    /// Server to client.
    Reply(ReplyKind),
    /// Between an aggregator and another process of a collective transfer.
    Exchange(ExchangeKind),
    /// Between the leaders of nodes in a collective operation of a job.
    Mpi(TeamId),
}

/// Kind of a client's request; its discriminant is its number in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Write this piece.
    Write = 1,
    /// Read this piece.
    Read = 2,
    /// Make written data durable.
    Sync = 3,
    /// Open, create, close or remove a file.
    Metadata = 4,
}

/// Kind of a server's message to a client; its discriminant is its number in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// Send the data of this piece.
    FetchData = 5,
    /// The data.
    ReadData = 7,
    /// The request is done.
    Done = 8,
}

/// Kind of a message of a collective transfer; its discriminant is its number in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    /// Aggregator to process: send your bytes of this window.
    Gather = 9,
    /// Process to aggregator: the bytes.
    Contribution = 10,
    /// Aggregator to process: its bytes of a window.
    Delivery = 11,
}

impl PacketKind {
    /// The kinds by their numbers in packets. The fabric keeps statistics of number 0, traffic,
    /// apart from all others.
    const BY_NUMBER: [PacketKind; 14] = [
        PacketKind::Traffic,
        PacketKind::Request(RequestKind::Write),
        PacketKind::Request(RequestKind::Read),
        PacketKind::Request(RequestKind::Sync),
        PacketKind::Request(RequestKind::Metadata),
        PacketKind::Reply(ReplyKind::FetchData),
        PacketKind::WriteData,
        PacketKind::Reply(ReplyKind::ReadData),
        PacketKind::Reply(ReplyKind::Done),
        PacketKind::Exchange(ExchangeKind::Gather),
        PacketKind::Exchange(ExchangeKind::Contribution),
        PacketKind::Exchange(ExchangeKind::Delivery),
        PacketKind::Mpi(TeamId::Io),
        PacketKind::Mpi(TeamId::Collective),
    ];

    /// The kind of a packet that a group has sent.
    #[inline]
    pub fn of_packet(packet: &Packet) -> PacketKind {
        Self::BY_NUMBER[usize::from(packet.kind())]
    }

    /// The class of its messages: answers without data are responses.
    pub const fn class(self) -> MessageClass {
        match self {
            PacketKind::Traffic
            | PacketKind::Request(_)
            | PacketKind::WriteData
            | PacketKind::Reply(ReplyKind::ReadData)
            | PacketKind::Exchange(_)
            | PacketKind::Mpi(_) => MessageClass::Request,
            PacketKind::Reply(ReplyKind::FetchData | ReplyKind::Done) => MessageClass::Response,
        }
    }

    /// The kind's number in packets.
    pub const fn number(self) -> u8 {
        match self {
            PacketKind::Traffic => 0,
            PacketKind::Request(kind) => kind as u8,
            PacketKind::WriteData => 6,
            PacketKind::Reply(kind) => kind as u8,
            PacketKind::Exchange(kind) => kind as u8,
            PacketKind::Mpi(team) => team as u8,
        }
    }
}

impl PacketKind {
    /// All kinds.
    pub fn all() -> &'static [PacketKind] {
        &Self::BY_NUMBER
    }

    /// The kind with a number.
    pub fn of_number(number: u8) -> PacketKind {
        Self::BY_NUMBER[usize::from(number)]
    }

    /// The job that sends it, as far as observations tell them apart.
    pub fn job(self) -> Job {
        match self {
            PacketKind::Traffic => Job::Traffic,
            PacketKind::Request(_) | PacketKind::WriteData | PacketKind::Reply(_) => Job::Ior,
            PacketKind::Exchange(_) | PacketKind::Mpi(TeamId::Io) => Job::IorMpi,
            PacketKind::Mpi(TeamId::Collective) => Job::Collective,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_kinds_are_numbered_by_their_positions() {
        for (number, kind) in (0..).zip(PacketKind::BY_NUMBER) {
            assert_eq!(kind.number(), number);
        }
    }
}
