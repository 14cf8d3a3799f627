//! The leaders of the nodes of one group, and the messages that they exchange.

use super::team::{Agreement, Team, TeamId};
use crate::event::{Event, GroupContext, MpiEvent, MpiEventKind, PacketKind};
use forebay_network::{Fabric, Message, Packet, Topology};
use forebay_units::Bytes;
use forebay_workload::collective::{CollectiveSpec, Operation, Schedule};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bits of a tag for the number of the round, and for that of the operation.
const ROUND_BITS: u32 = 20;
const SEQUENCE_BITS: u32 = super::team::SEQUENCE_BITS;

/// The tag of a message: job, operation and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MpiTag {
    team: TeamId,
    sequence: u64,
    round: u32,
}

impl MpiTag {
    fn pack(self) -> u64 {
        assert!(self.round < 1 << ROUND_BITS && self.sequence < 1 << SEQUENCE_BITS, "{self:?}");
        let team = u64::from(self.team == TeamId::Collective);
        team << (ROUND_BITS + SEQUENCE_BITS) | self.sequence << ROUND_BITS | u64::from(self.round)
    }

    /// The job to which a packet belongs.
    pub fn team_of(packet: &Packet) -> TeamId {
        match packet.tag() >> (ROUND_BITS + SEQUENCE_BITS) {
            0 => TeamId::Io,
            _ => TeamId::Collective,
        }
    }
}

/// The activity of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Its node's processes have not all entered the next operation.
    Outside,
    /// Gathering in its node, sending, receiving, or scattering: until an event of its own.
    Busy,
    /// Waiting for a message of so many bytes.
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
    /// Time at which its message of this round has left, ps.
    sent: u64,
}

/// Messages that the leaders of a group have sent.
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
                sent: 0,
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
        let arrived = self.arrived.entry((packet.tag(), local)).or_default();
        *arrived += u64::from(packet.bytes);
        let arrived = *arrived;
        let id = self.team.id;
        let member = self.member(local);
        let waits_for = MpiTag { team: id, sequence: member.sequence, round: member.round }.pack();
        if let Activity::Receiving(bytes) = member.activity
            && packet.tag() == waits_for
        {
            assert!(arrived <= bytes, "more bytes than the message: {packet:?}");
            if arrived == bytes {
                self.take_message(local, context);
            }
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

    /// Begins the first round, from the current one on, in which a leader has a message.
    fn begin_round(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((spec, messages)) = &member.operation else { unreachable!("no operation") };
        while member.round < messages.rounds() {
            let step = messages.step(member.rank, member.round);
            if step.send.is_some() {
                let at = context.now + team.client(member.rank).mpi_overhead.0;
                return schedule(at, MpiEventKind::Send, local, team.id, context);
            }
            if step.receive.is_some() {
                member.sent = context.now;
                return self.wait_for_message(local, context);
            }
            member.round += 1;
        }
        let at = context.now + team.scatter_time(member.rank, spec);
        schedule(at, MpiEventKind::Leave, local, team.id, context);
    }

    /// A leader's message goes to its interface.
    fn send(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let step = messages.step(member.rank, member.round);
        let Some(send) = step.send else { unreachable!("a round without a message to send") };
        let bytes = messages.bytes(member.rank, send.blocks);
        let wire_bytes = team.wire_bytes(bytes);
        let tag = MpiTag { team: team.id, sequence: member.sequence, round: member.round };
        let message = Message {
            to: team.nodes[send.peer as usize],
            bytes: wire_bytes,
            tag: tag.pack(),
            kind: PacketKind::Mpi.number(),
            class: PacketKind::Mpi.class(),
            born: context.now,
        };
        member.sent = context.now + team.link_time(wire_bytes).0;
        let (sent, from) = (member.sent, team.nodes[member.rank as usize]);
        self.counts.messages += 1;
        self.counts.bytes += bytes;
        fabric.send(from, message, context);
        if step.receive.is_some() {
            self.wait_for_message(local, context);
        } else {
            schedule(sent, MpiEventKind::EndRound, local, team.id, context);
        }
    }

    /// Takes the message of the current round, or waits for it.
    fn wait_for_message(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let Some(receive) = messages.step(member.rank, member.round).receive else {
            unreachable!("a round without a message to receive")
        };
        let bytes = team.wire_bytes(messages.bytes(receive.peer, receive.blocks));
        member.activity = Activity::Receiving(bytes);
        let tag = MpiTag { team: team.id, sequence: member.sequence, round: member.round };
        let arrived = self.arrived.get(&(tag.pack(), local)).copied().unwrap_or_default();
        assert!(arrived <= bytes, "more bytes than the message of {tag:?}");
        if arrived == bytes {
            self.take_message(local, context);
        }
    }

    /// The message for which a leader waited is complete.
    fn take_message(&mut self, local: u16, context: &mut GroupContext<'_>) {
        let team = self.team.clone();
        let member = self.member(local);
        let Some((_, messages)) = &member.operation else { unreachable!("no operation") };
        let step = messages.step(member.rank, member.round);
        let Some(receive) = step.receive else { unreachable!("a round without a message") };
        member.activity = Activity::Busy;
        let client = team.client(member.rank);
        let combined = match step.combines {
            true => messages.bytes(receive.peer, receive.blocks),
            false => 0,
        };
        let combining = client.copy_rate.time_for(Bytes(combined)).0;
        let at = (context.now + client.mpi_overhead.0 + combining).max(member.sent);
        let tag = MpiTag { team: team.id, sequence: member.sequence, round: member.round };
        self.arrived.remove(&(tag.pack(), local));
        schedule(at, MpiEventKind::EndRound, local, team.id, context);
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
