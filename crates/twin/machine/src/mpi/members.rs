//! The leaders of the nodes of one group, and the messages that they exchange.
//!
//! A message that exceeds the eager limit with its envelope goes by rendezvous: the sender sends a
//! request; the receiver, once it waits for the message, clears it; the sender sends the data. Both
//! messages before the data are envelopes, and taking in either costs the time of receiving a message.
//! A node handles the message that it sends and the one that it receives side by side, as both ends of
//! an exchange make progress together.

use super::tag::{MpiTag, Part};
use super::team::{Agreement, Team, TeamId};
use crate::event::{Event, GroupContext, MpiEvent, MpiEventKind, PacketKind};
use forebay_network::{Fabric, Message, Packet, Topology};
use forebay_units::Bytes;
use forebay_workload::collective::{CollectiveSpec, Operation, Schedule, Step};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The activity of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Its node's processes have not all entered the next operation.
    Outside,
    /// Gathering in its node, preparing a message, or scattering: until an event of its own.
    Busy,
    /// Waiting for the request of a message.
    AwaitingRequest,
    /// Waiting for the data of a message of so many bytes.
    Receiving(u64),
}

/// The leader of a node.
struct Member {
    /// Index of the node in the team.
    rank: u32,
    /// Processes of the node that have entered the current operation, or the next one.
    entered: u32,
    /// Number of the current operation, or of the next one.
    sequence: u64,
    operation: Option<(CollectiveSpec, Schedule)>,
    round: u32,
    activity: Activity,
    /// Time at which its message of this round has left, ps; `None`: it has not been cleared.
    sent: Option<u64>,
    /// Time at which the message to this node has been taken in, ps; `None`: it has not.
    received: Option<u64>,
}

/// The message that a leader sends in a round.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The receiver's rank.
    to: u32,
    /// Its data.
    bytes: u64,
}

/// Messages that the leaders of a group have sent; those of a rendezvous before the data are not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageCounts {
    pub messages: u64,
    /// Data, without envelopes.
    pub bytes: u64,
}

/// A node that leaves an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// Number of the node within the group.
    pub local: u16,
    /// Index of the node in the team.
    pub rank: u32,
    /// The agreement of all processes, if the operation synchronises.
    pub agreement: Option<Agreement>,
}

/// The leaders of the nodes of one group.
pub(crate) struct Members {
    team: Arc<Team>,
    /// By the node's number within the group; `None`: not of the team.
    members: Vec<Option<Member>>,
    /// Bytes that have arrived of each message that its receiver has not taken, by tag and receiver.
    arrived: FxHashMap<(u64, u16), u64>,
    pub counts: MessageCounts,
}

impl Members {
    pub fn new(team: &Arc<Team>, topology: &Topology, group: u16) -> Self {
        let nodes = topology.nodes_of_group(group);
        let member = |&node: &u32| {
            let rank = team.index_of(node)?;
            Some(Member {
                rank,
                entered: 0,
                sequence: 0,
                operation: None,
                round: 0,
                activity: Activity::Outside,
                sent: None,
                received: None,
            })
        };
        Members {
            members: nodes.iter().map(member).collect(),
            team: team.clone(),
            arrived: FxHashMap::default(),
            counts: MessageCounts::default(),
        }
    }

    /// Nodes of the team in this group, by their numbers within the group.
    pub fn locals(&self) -> impl Iterator<Item = u16> + '_ {
        let numbered = (0..).zip(&self.members);
        numbered.filter(|(_, member)| member.is_some()).map(|(local, _)| local)
    }

    /// Whether a node of this group is of the team.
    pub fn has(&self, local: u16) -> bool {
        self.members[usize::from(local)].is_some()
    }

    /// Processes on a node of the team in this group.
    pub fn processes_on(&self, local: u16) -> u32 {
        match &self.members[usize::from(local)] {
            Some(member) => self.team.processes_on(member.rank),
            None => 0,
        }
    }

    /// Processes of a node enter the next operation, with a value of which all get the greatest if
    /// the operation synchronises them.
    pub fn enter(
        &mut self,
        local: u16,
        processes: u32,
        spec: CollectiveSpec,
        value: u64,
        context: &mut GroupContext<'_>,
    ) {
        let Some(member) = &mut self.members[usize::from(local)] else {
            unreachable!("node {local} of the group is not of the team")
        };
        assert!(member.activity == Activity::Outside, "a process entered twice");
        let team = &*self.team;
        if synchronises(spec.operation) {
            team.bring(member.sequence, value, context.now);
        }
        match &member.operation {
            Some((first, _)) => assert_eq!(*first, spec, "processes in different operations"),
            None => member.operation = Some((spec, team.schedule(&spec))),
        }
        member.entered += processes;
        let all = team.processes_on(member.rank);
        assert!(member.entered <= all, "more processes than the node has");
        if member.entered == all {
            (member.activity, member.round) = (Activity::Busy, 0);
            let at = context.now + team.gather_time(member.rank, &spec);
            schedule(at, MpiEventKind::BeginRound, local, team.id, context);
        }
    }

    /// Runs an event; returns the node that leaves its operation, if one does.
    pub fn handle(
        &mut self,
        event: MpiEvent,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) -> Option<Left> {
        let MpiEvent { kind, local, .. } = event;
        match kind {
            MpiEventKind::BeginRound => self.begin_round(local, context),
            MpiEventKind::Send => self.send(local, fabric, context),
            MpiEventKind::Clear => self.clear(local, fabric, context),
            MpiEventKind::SendCleared => self.send_data(local, fabric, context),
            MpiEventKind::EndRound => {
                self.member(local).round += 1;
                self.begin_round(local, context);
            }
            MpiEventKind::Leave => return Some(self.leave(local)),
            MpiEventKind::EnterJob => unreachable!("an event of the job: {event:?}"),
        }
        None
    }

    /// Accepts a packet for a node of this group.
    pub fn receive(&mut self, packet: &Packet, fabric: &Fabric, context: &mut GroupContext<'_>) {
        let local = fabric.topology().location(packet.dst).local;
        let tag = packet.tag();
        if tag == self.tag(local, Part::Clear) {
            let id = self.team.id;
            let at = context.now + self.overhead(local);
            assert!(
                self.shared_member(local).sent.is_none(),
                "a message cleared twice: {packet:?}"
            );
            return schedule(at, MpiEventKind::SendCleared, local, id, context);
        }
        let arrived = self.arrived.entry((tag, local)).or_default();
        *arrived += u64::from(packet.bytes);
        let arrived = *arrived;
        match self.shared_member(local).activity {
            Activity::Receiving(bytes) if tag == self.tag(local, Part::Data) => {
                assert!(arrived <= bytes, "more bytes than the message: {packet:?}");
                if arrived == bytes {
                    self.take_message(local, context);
                }
            }
            Activity::AwaitingRequest if tag == self.tag(local, Part::Request) => {
                self.take_request(local, context);
            }
            Activity::Receiving(_)
            | Activity::AwaitingRequest
            | Activity::Outside
            | Activity::Busy => {}
        }
    }

    /// Whether nobody is within an operation and no message waits.
    pub fn is_idle(&self) -> bool {
        let outside = |m: &Member| m.activity == Activity::Outside && m.entered == 0;
        self.arrived.is_empty() && self.members.iter().flatten().all(outside)
    }

    fn member(&mut self, local: u16) -> &mut Member {
        match &mut self.members[usize::from(local)] {
            Some(member) => member,
            None => unreachable!("node {local} of the group is not of the team"),
        }
    }

    fn shared_member(&self, local: u16) -> &Member {
        match &self.members[usize::from(local)] {
            Some(member) => member,
            None => unreachable!("node {local} of the group is not of the team"),
        }
    }

    /// The tag of a part of the current round's message that a node sends or receives.
    fn tag(&self, local: u16, part: Part) -> u64 {
        let Member { sequence, round, .. } = *self.shared_member(local);
        MpiTag { sequence, round, part }.pack()
    }

    /// Time of a node to send a message or to take one in, ps.
    fn overhead(&self, local: u16) -> u64 {
        self.team.client(self.shared_member(local).rank).mpi_overhead.0
    }

    /// Begins the first round, from the current one on, in which a leader has a message.
    fn begin_round(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((spec, messages)) = &member.operation else { unreachable!("no operation") };
        (member.sent, member.received) = (None, None);
        while member.round < messages.rounds() {
            let step = messages.step(member.rank, member.round);
            if let Some(send) = step.send {
                let copy =
                    team.eager_copy_time(member.rank, messages.bytes(member.rank, send.blocks));
                let at = context.now + team.client(member.rank).mpi_overhead.0 + copy;
                return schedule(at, MpiEventKind::Send, local, team.id, context);
            }
            if step.receive.is_some() {
                member.sent = Some(context.now);
                return self.wait_for_message(local, context);
            }
            member.round += 1;
        }
        let at = context.now + team.scatter_time(member.rank, spec);
        schedule(at, MpiEventKind::Leave, local, team.id, context);
    }

    /// A leader's message goes to its interface, or the request of it.
    fn send(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let (send, step) = self.current_send(local);
        self.counts.messages += 1;
        self.counts.bytes += send.bytes;
        if team.is_eager(send.bytes) {
            self.send_data(local, fabric, context);
        } else {
            self.send_part(local, send.to, Part::Request, team.wire_bytes(0), fabric, context);
        }
        if step.receive.is_some() {
            self.wait_for_message(local, context);
        } else {
            self.member(local).received = Some(context.now);
            self.end_round_if_complete(local, context);
        }
    }

    /// The data of a leader's message go to its interface.
    fn send_data(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let (send, _) = self.current_send(local);
        let wire_bytes = team.wire_bytes(send.bytes);
        self.send_part(local, send.to, Part::Data, wire_bytes, fabric, context);
        let was_cleared = !team.is_eager(send.bytes);
        self.member(local).sent = Some(context.now + team.link_time(wire_bytes).0);
        if was_cleared {
            self.end_round_if_complete(local, context);
        }
    }

    /// Clears the message that a leader receives.
    fn clear(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let (from, bytes) = self.current_receive(local);
        self.member(local).activity = Activity::Receiving(team.wire_bytes(bytes));
        self.send_part(local, from, Part::Clear, team.wire_bytes(0), fabric, context);
    }

    fn send_part(
        &mut self,
        local: u16,
        to: u32,
        part: Part,
        bytes: u64,
        fabric: &mut Fabric,
        context: &mut GroupContext<'_>,
    ) {
        let message = Message {
            to: self.team.nodes[to as usize],
            bytes,
            tag: self.tag(local, part),
            kind: PacketKind::Mpi(self.team.id).number(),
            class: PacketKind::Mpi(self.team.id).class(),
            born: context.now,
        };
        let rank = self.shared_member(local).rank;
        fabric.send(self.team.nodes[rank as usize], message, context);
    }

    /// The message that a leader sends in the current round, and the whole step.
    fn current_send(&self, local: u16) -> (Sent, Step) {
        let member = self.shared_member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let step = messages.step(member.rank, member.round);
        let Some(send) = step.send else { unreachable!("a round without a message to send") };
        (Sent { to: send.peer, bytes: messages.bytes(member.rank, send.blocks) }, step)
    }

    /// The rank that sends to a leader in the current round, and the bytes of the message.
    fn current_receive(&self, local: u16) -> (u32, u64) {
        let member = self.shared_member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let Some(receive) = messages.step(member.rank, member.round).receive else {
            unreachable!("a round without a message to receive")
        };
        (receive.peer, messages.bytes(receive.peer, receive.blocks))
    }

    /// Takes the message of the current round or the request of it, or waits for it.
    fn wait_for_message(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let (_, bytes) = self.current_receive(local);
        if !team.is_eager(bytes) {
            self.member(local).activity = Activity::AwaitingRequest;
            let request = self.tag(local, Part::Request);
            if self.arrived.contains_key(&(request, local)) {
                self.take_request(local, context);
            }
            return;
        }
        let bytes = team.wire_bytes(bytes);
        self.member(local).activity = Activity::Receiving(bytes);
        let tag = self.tag(local, Part::Data);
        let arrived = self.arrived.get(&(tag, local)).copied().unwrap_or_default();
        assert!(arrived <= bytes, "more bytes than the message of {tag:?}");
        if arrived == bytes {
            self.take_message(local, context);
        }
    }

    /// A leader takes in the request of a message that it waits for, and then clears it.
    fn take_request(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let request = self.tag(local, Part::Request);
        self.arrived.remove(&(request, local));
        self.member(local).activity = Activity::Busy;
        let (at, id) = (context.now + self.overhead(local), self.team.id);
        schedule(at, MpiEventKind::Clear, local, id, context);
    }

    /// The message for which a leader waited is complete.
    fn take_message(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let tag = self.tag(local, Part::Data);
        self.arrived.remove(&(tag, local));
        let member = self.member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let step = messages.step(member.rank, member.round);
        let Some(receive) = step.receive else { unreachable!("a round without a message") };
        member.activity = Activity::Busy;
        let client = team.client(member.rank);
        let bytes = messages.bytes(receive.peer, receive.blocks);
        let combining = match step.combines {
            true => client.copy_rate.time_for(Bytes(bytes)).0,
            false => 0,
        };
        let copy = team.eager_copy_time(member.rank, bytes);
        member.received = Some(context.now + client.mpi_overhead.0 + copy + combining);
        self.end_round_if_complete(local, context);
    }

    /// Ends the current round when its message has left and the one to this node has been taken in.
    fn end_round_if_complete(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((spec, _)) = &member.operation else { unreachable!("no operation") };
        let more = team.round_time(member.rank, spec.operation);
        if let (Some(sent), Some(received)) = (member.sent, member.received) {
            schedule(sent.max(received) + more, MpiEventKind::EndRound, local, team.id, context);
        }
    }

    fn leave(&mut self, local: u16) -> Left {
        let team = self.team.clone();
        let member = self.member(local);
        let operation = member.operation.take().map(|(spec, _)| spec.operation);
        let agreement =
            operation.filter(|&o| synchronises(o)).map(|_| team.agreement(member.sequence));
        member.sequence += 1;
        member.entered = 0;
        member.activity = Activity::Outside;
        Left { local, rank: member.rank, agreement }
    }
}

/// Whether no process leaves an operation before all have entered it.
fn synchronises(operation: Operation) -> bool {
    match operation {
        Operation::Barrier
        | Operation::Allreduce
        | Operation::Allgather
        | Operation::Alltoall
        | Operation::Alltoallv => true,
        Operation::Broadcast
        | Operation::Reduce
        | Operation::PingPong
        | Operation::Stream
        | Operation::RingExchange => false,
    }
}

fn schedule(at: u64, kind: MpiEventKind, local: u16, team: TeamId, context: &mut GroupContext<'_>) {
    let event = MpiEvent { team, kind, local };
    context.queue.push(at, event.key(), Event::Mpi(event));
}
