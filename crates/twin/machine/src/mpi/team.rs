//! The processes that take part in the collective operations of a job.

use forebay_machine_file::machine::Client;
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::collective::{CollectiveSpec, Operation, Schedule};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The job that performs collective operations; its discriminant is the number of its packets' kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TeamId {
    /// IOR.
    Io = 12,
    /// A job of collective operations only.
    Collective = 13,
}

/// Operations whose values are kept: a node may be two operations ahead of another, if the one
/// between synchronises nobody.
const SLOTS: usize = 4;
/// Bits of a value.
const VALUE_BITS: u32 = 40;
/// Bits of the number of an operation.
pub(super) const SEQUENCE_BITS: u32 = u64::BITS - VALUE_BITS;

/// Values that all processes share after an operation that synchronises them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// The greatest value that one of them brought.
    pub value: u64,
    /// Time at which the last of them entered, ps.
    pub entered: u64,
}

/// The value of an operation, as far as its processes have entered.
///
/// Simulated messages have no contents. The values are complete when the first node leaves, because
/// none does before all have entered, and their order does not matter.
#[derive(Default)]
struct Slot {
    /// Number of the operation, and the greatest value.
    value: AtomicU64,
    /// Time at which the last process entered, ps.
    entered: AtomicU64,
}

/// The nodes of a job whose processes perform collective operations, shared by all groups.
pub(crate) struct Team {
    pub id: TeamId,
    /// The machine's numbers of the nodes.
    pub nodes: Vec<u32>,
    index_of_node: FxHashMap<u32, u32>,
    /// Processes of each node but the last, which may have fewer.
    per_node: u32,
    processes: u32,
    clients: Vec<Client>,
    client_of_node: Vec<u8>,
    /// Rate of a node's link.
    node_link: Rate,
    /// Seed of random sizes.
    seed: u64,
    slots: [Slot; SLOTS],
}

impl Team {
    /// The team of `processes` processes, `per_node` on each of the first of `nodes`. `clients` are
    /// those of the types of nodes, `client_of_node` has the index of each node's.
    pub fn new(
        id: TeamId,
        nodes: &[u32],
        (per_node, processes): (u32, u32),
        (clients, client_of_node): (Vec<Client>, Vec<u8>),
        node_link: Rate,
        seed: u64,
    ) -> Team {
        let used = processes.div_ceil(per_node.max(1)) as usize;
        assert!(used > 0 && used <= nodes.len(), "{processes} processes on {} nodes", nodes.len());
        let nodes = nodes[..used].to_vec();
        Team {
            id,
            index_of_node: nodes.iter().copied().zip(0..).collect(),
            nodes,
            per_node,
            processes,
            clients,
            client_of_node,
            node_link,
            seed,
            slots: Default::default(),
        }
    }

    /// The index of a node of the machine in the team, if it is of the team.
    pub fn index_of(&self, node: u32) -> Option<u32> {
        self.index_of_node.get(&node).copied()
    }

    /// Processes of the node with this index.
    pub fn processes_on(&self, index: u32) -> u32 {
        self.per_node.min(self.processes - index * self.per_node)
    }

    /// The client of the node with this index.
    pub fn client(&self, index: u32) -> &Client {
        &self.clients[usize::from(self.client_of_node[index as usize])]
    }

    /// The messages of an operation between the nodes.
    pub fn schedule(&self, spec: &CollectiveSpec) -> Schedule {
        spec.schedule(self.nodes.len() as u32, self.per_node, self.seed)
            .unwrap_or_else(|e| unreachable!("an operation that was checked: {e}"))
    }

    /// Bytes on the wire of a message with `bytes` of data.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes.max(self.clients[0].mpi_envelope.0)
    }

    /// Whether a message with `bytes` of data is sent without asking the receiver: as in MPICH, with
    /// its envelope it does not exceed the limit.
    pub fn is_eager(&self, bytes: u64) -> bool {
        let client = &self.clients[0];
        bytes == 0 || bytes.saturating_add(client.mpi_envelope.0) <= client.eager_limit.0
    }

    /// Time in which a process copies the data of an eager message between the program's buffer and the
    /// library's, once at either end; a message by rendezvous is moved without copies.
    pub fn eager_copy_time(&self, index: u32, bytes: u64) -> u64 {
        match self.is_eager(bytes) {
            true => self.client(index).copy_rate.time_for(Bytes(bytes)).0,
            false => 0,
        }
    }

    /// Time that a round of an operation takes a process beyond the messages, ps.
    pub fn round_time(&self, index: u32, operation: Operation) -> u64 {
        match operation.is_point_to_point() {
            true => 0,
            false => self.client(index).collective_round.0,
        }
    }

    /// Time in which a node's link carries a message.
    pub fn link_time(&self, wire_bytes: u64) -> Time {
        self.node_link.time_for(Bytes(wire_bytes))
    }

    /// A process enters operation number `sequence` with a value.
    pub fn bring(&self, sequence: u64, value: u64, now: u64) {
        assert!(value < 1 << VALUE_BITS, "value {value} of a collective operation");
        assert!(sequence < 1 << SEQUENCE_BITS, "too many collective operations");
        let slot = &self.slots[sequence as usize % SLOTS];
        slot.value.fetch_max(sequence << VALUE_BITS | value, Ordering::Relaxed);
        slot.entered.fetch_max(now, Ordering::Relaxed);
    }

    /// The agreement reached by operation number `sequence`, which synchronises.
    pub fn agreement(&self, sequence: u64) -> Agreement {
        let slot = &self.slots[sequence as usize % SLOTS];
        let value = slot.value.load(Ordering::Relaxed);
        assert!(value >> VALUE_BITS == sequence, "a value of another operation than {sequence}");
        Agreement {
            value: value & ((1 << VALUE_BITS) - 1),
            entered: slot.entered.load(Ordering::Relaxed),
        }
    }

    /// Time from the last of a node's processes to its leader's first message, ps: all levels of a
    /// tree, and copies of the data.
    pub fn gather_time(&self, index: u32, spec: &CollectiveSpec) -> u64 {
        let size = spec.size.0;
        let processes = u64::from(self.processes_on(index));
        let all = self.data_of_alltoall(index, size);
        match spec.operation {
            Operation::Broadcast
            | Operation::PingPong
            | Operation::Stream
            | Operation::RingExchange => 0,
            Operation::Barrier => self.tree_time(index, 0),
            Operation::Reduce | Operation::Allreduce => self.tree_time(index, size),
            Operation::Allgather => {
                self.tree_time(index, 0) + self.copy_time(index, size * (processes - 1))
            }
            Operation::Alltoall | Operation::Alltoallv => self.tree_time(index, 0) + all,
        }
    }

    /// Time from the leader's last message until its node's processes have the result, ps.
    pub fn scatter_time(&self, index: u32, spec: &CollectiveSpec) -> u64 {
        let size = spec.size.0;
        let all = self.data_of_alltoall(index, size);
        match spec.operation {
            Operation::Reduce
            | Operation::PingPong
            | Operation::Stream
            | Operation::RingExchange => 0,
            Operation::Barrier => self.tree_time(index, 0),
            Operation::Broadcast | Operation::Allreduce => self.tree_time(index, size),
            Operation::Allgather => {
                let result = size * u64::from(self.processes);
                self.tree_time(index, 0) + self.copy_time(index, result)
            }
            Operation::Alltoall | Operation::Alltoallv => self.tree_time(index, 0) + all,
        }
    }

    /// Time of a tree over the processes of a node, on each level of which a vector is copied.
    fn tree_time(&self, index: u32, bytes: u64) -> u64 {
        let levels = self.processes_on(index).next_power_of_two().ilog2();
        let client = self.client(index);
        let level = client.shared_memory_latency.0 + client.copy_rate.time_for(Bytes(bytes)).0;
        u64::from(levels) * level
    }

    /// Time to copy data of several processes of a node.
    fn copy_time(&self, index: u32, bytes: u64) -> u64 {
        match self.processes_on(index) {
            1 => 0,
            _ => self.client(index).copy_rate.time_for(Bytes(bytes)).0,
        }
    }

    fn data_of_alltoall(&self, index: u32, size: u64) -> u64 {
        let pairs = u64::from(self.processes_on(index)) * u64::from(self.processes);
        self.copy_time(index, size * pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Machine;

    /// 10 processes, 4 a node: the last node has 2. Copying 8 bytes takes 1 ns; a level 500 ns.
    fn team() -> Team {
        let machine = Machine::load("toy").unwrap_or_else(|e| panic!("{e:?}"));
        let clients = (vec![machine.client], vec![0; 3]);
        Team::new(TeamId::Io, &[7, 8, 9], (4, 10), clients, machine.network.node.rate, 1)
    }

    #[test]
    fn processes_of_a_node_use_shared_memory() {
        let (team, ns) = (team(), |ps: u64| ps / 1000);
        let times = |operation, size| {
            let spec = CollectiveSpec::new(operation, Bytes(size));
            [0, 2].map(|i| [ns(team.gather_time(i, &spec)), ns(team.scatter_time(i, &spec))])
        };
        assert_eq!([0, 1, 2].map(|i| team.processes_on(i)), [4, 4, 2]);
        // Two levels with four processes, one with two.
        assert_eq!(times(Operation::Barrier, 0), [[1000, 1000], [500, 500]]);
        assert_eq!(times(Operation::Allreduce, 80), [[1020, 1020], [510, 510]]);
        assert_eq!(times(Operation::Reduce, 80), [[1020, 0], [510, 0]]);
        assert_eq!(times(Operation::Broadcast, 80), [[0, 1020], [0, 510]]);
        // The blocks of the other processes; those of all.
        assert_eq!(times(Operation::Allgather, 80), [[1030, 1100], [510, 600]]);
        // Each process has a block for each: 4 x 10, 2 x 10.
        assert_eq!(times(Operation::Alltoall, 80), [[1400, 1400], [700, 700]]);
    }

    #[test]
    fn values_of_operations_do_not_mix() {
        let team = team();
        team.bring(0, 5, 100);
        team.bring(0, 9, 50);
        team.bring(1, 2, 300);
        assert_eq!(team.agreement(0), Agreement { value: 9, entered: 100 });
        assert_eq!(team.agreement(1), Agreement { value: 2, entered: 300 });
        team.bring(4, 1, 900);
        assert_eq!(team.agreement(4), Agreement { value: 1, entered: 900 });
    }
}
