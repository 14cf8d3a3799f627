//! The storage of a job's files: the servers, the data paths that they share, the layout.
//!
//! The servers of a burst buffer are nodes of the machine. Those of a parallel file system are behind
//! the LNET nodes: one for each object storage target, then the metadata servers. All targets of an
//! object storage server share its data path, and all servers behind an LNET node that of this node.
//! A target is always reached through the same LNET node, as with fine-grained routing.

use crate::pool::Instance;
use crate::study::StudyError;
use forebay_machine_file::machine::{BurstBuffer, Lustre, Machine, NodeKind, ParallelFileSystem};
use forebay_policy::layout::StripeOrder;
use forebay_units::{Bytes, Rate, Time};

/// The file system of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystem {
    /// An instance of the burst buffer.
    #[default]
    BurstBuffer,
    /// The machine's parallel file system.
    Parallel {
        /// Targets of a file; `None`: the machine's default.
        stripe_count: Option<u32>,
        /// Bytes of a stripe; `None`: the machine's default.
        stripe: Option<Bytes>,
    },
}

impl FileSystem {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::BurstBuffer => "burst-buffer",
            FileSystem::Parallel { .. } => "pfs",
        }
    }
}

/// A data path: that of a server of its own, or of several behind one LNET node.
#[derive(Clone, Debug)]
pub(crate) struct DataPath {
    pub kind: PathKind,
    /// The machine's number of the node through which it is reached.
    pub node: u32,
    pub rate: Rate,
}

/// A kind of data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// Of a burst-buffer node.
    Node,
    /// Of the object storage server with this number.
    ObjectServer(u32),
    /// Of an LNET node.
    Router,
}

/// A server.
#[derive(Clone, Debug)]
pub(crate) struct ServerPlace {
    /// The machine's number of the node through which it is reached.
    pub node: u32,
    /// Its data paths.
    pub paths: Vec<u32>,
}

/// Layout of files over servers.
#[derive(Clone, Debug)]
enum Layout {
    Instance { instance: Instance, index_of_node: Vec<u32> },
    Targets(TargetLayout),
}

/// The storage of a job's files.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    servers: Vec<ServerPlace>,
    paths: Vec<DataPath>,
    /// Servers that hold data; the others serve metadata only.
    data_servers: u32,
    layout: Layout,
    /// Capacity of all data servers.
    pub capacity: Bytes,
    /// Time of a message between the node through which a server is reached, and the server.
    pub latency: Time,
}

impl Storage {
    /// An instance of a burst buffer.
    pub fn of_instance(instance: Instance, make: &BurstBuffer) -> Storage {
        let of_node = |(index, &node): (u32, &u32)| {
            let path = DataPath { kind: PathKind::Node, node, rate: make.data_rate };
            (ServerPlace { node, paths: vec![index] }, path)
        };
        let (servers, paths): (Vec<_>, Vec<_>) = (0..).zip(instance.nodes()).map(of_node).unzip();
        let most = instance.nodes().iter().copied().max().unwrap_or(0);
        let mut index_of_node = vec![u32::MAX; most as usize + 1];
        (0..).zip(instance.nodes()).for_each(|(i, node)| index_of_node[*node as usize] = i);
        let per_node = make.card_capacity.0 * u64::from(make.cards);
        Storage {
            data_servers: servers.len() as u32,
            capacity: Bytes(per_node * servers.len() as u64),
            latency: Time::ZERO,
            servers,
            paths,
            layout: Layout::Instance { instance, index_of_node },
        }
    }

    /// The parallel file system of a machine, with files of `stripe_count` stripes of `stripe`.
    ///
    /// # Errors
    /// [`StudyError::Machine`] for more stripes than targets, or stripes of 0 bytes.
    pub fn of_targets(
        machine: &Machine,
        (pfs, lustre): (&ParallelFileSystem, &Lustre),
        stripe_count: Option<u32>,
        stripe: Option<Bytes>,
    ) -> Result<Storage, StudyError> {
        let stripe = stripe.unwrap_or(lustre.stripe);
        let stripe_count = stripe_count.unwrap_or(lustre.stripe_count);
        if stripe_count == 0 || stripe_count > pfs.osts {
            return Err(StudyError::Machine(format!(
                "{stripe_count} stripes a file: {} of {} has {} OSTs; request 1 to {}",
                pfs.name, machine.name, pfs.osts, pfs.osts
            )));
        }
        if stripe.0 < Self::LEAST_STRIPE || !stripe.0.is_multiple_of(Self::LEAST_STRIPE) {
            return Err(StudyError::Machine(format!(
                "stripes of {stripe}: {} has stripes of at least {}, and multiples of it",
                pfs.name,
                Bytes(Self::LEAST_STRIPE)
            )));
        }
        let routers = machine.nodes_of_kind(NodeKind::Lnet);
        assert!(!routers.is_empty(), "the machine file was checked");
        let object_servers = pfs.osts / lustre.targets_per_server;
        let router_path =
            |node| DataPath { kind: PathKind::Router, node, rate: lustre.router_rate };
        let mut paths: Vec<DataPath> = routers.iter().map(|&node| router_path(node)).collect();
        let router_of = |number: u32| number as usize % routers.len();
        paths.extend((0..object_servers).map(|server| DataPath {
            kind: PathKind::ObjectServer(server),
            node: routers[router_of(server)],
            rate: lustre.server_rate,
        }));
        let target = |target: u32| {
            let server = target / lustre.targets_per_server;
            let router = router_of(server);
            let own = (routers.len() as u32) + server;
            ServerPlace { node: routers[router], paths: vec![own, router as u32] }
        };
        let metadata_server = |number: u32| {
            let router = number as usize * routers.len() / lustre.metadata_servers as usize;
            ServerPlace { node: routers[router], paths: vec![router as u32] }
        };
        let servers = (0..pfs.osts).map(target);
        let servers = servers.chain((0..lustre.metadata_servers).map(metadata_server)).collect();
        Ok(Storage {
            servers,
            paths,
            data_servers: pfs.osts,
            layout: Layout::Targets(TargetLayout {
                targets: pfs.osts,
                per_server: lustre.targets_per_server,
                metadata_servers: lustre.metadata_servers,
                stripe_count,
                stripe: stripe.0,
            }),
            capacity: pfs.capacity,
            latency: lustre.router_latency,
        })
    }

    /// Shortest stripe of a parallel file system, of which all others are multiples.
    const LEAST_STRIPE: u64 = 65_536;

    /// All servers; those that hold data come first.
    pub fn servers(&self) -> &[ServerPlace] {
        &self.servers
    }

    /// The servers that hold data.
    pub fn data_servers(&self) -> &[ServerPlace] {
        &self.servers[..self.data_servers as usize]
    }

    /// All data paths.
    pub fn paths(&self) -> &[DataPath] {
        &self.paths
    }

    /// The machine's number of the node through which a server is reached.
    pub fn node_of(&self, server: u32) -> u32 {
        self.servers[server as usize].node
    }

    /// The server with the byte at `offset` of a file.
    pub fn server_of(&self, file: u64, offset: u64) -> u32 {
        match &self.layout {
            Layout::Instance { instance, index_of_node } => {
                index_of_node[instance.node_of(file, offset) as usize]
            }
            Layout::Targets(layout) => layout.target_of(file, offset),
        }
    }

    /// The server of a file's metadata.
    pub fn metadata_server_of(&self, file: u64) -> u32 {
        match &self.layout {
            Layout::Instance { .. } => self.server_of(file, 0),
            Layout::Targets(layout) => {
                layout.targets + (file % u64::from(layout.metadata_servers)) as u32
            }
        }
    }

    /// Whether one of its servers is reached through a node of the machine.
    pub fn has_node(&self, node: u32) -> bool {
        match &self.layout {
            Layout::Instance { index_of_node, .. } => {
                index_of_node.get(node as usize).is_some_and(|index| *index != u32::MAX)
            }
            Layout::Targets(_) => true,
        }
    }

    /// Whether it is the parallel file system, where clients lock extents and cache data.
    pub fn is_parallel(&self) -> bool {
        matches!(self.layout, Layout::Targets(_))
    }

    /// Servers over which a file is striped.
    pub fn servers_of_file(&self) -> u32 {
        match &self.layout {
            Layout::Instance { .. } => self.data_servers,
            Layout::Targets(layout) => layout.stripe_count,
        }
    }
}

/// The layout of files over the targets of a parallel file system.
///
/// A file has its stripes on `stripe_count` targets in turn. The targets of files are taken round robin,
/// those of different servers one after another: a file begins where the file with the number before
/// it ended.
#[derive(Clone, Debug)]
struct TargetLayout {
    targets: u32,
    per_server: u32,
    metadata_servers: u32,
    stripe_count: u32,
    stripe: u64,
}

impl TargetLayout {
    fn target_of(&self, file: u64, offset: u64) -> u32 {
        let (count, targets) = (u64::from(self.stripe_count), u64::from(self.targets));
        let nth = offset / self.stripe % count;
        let position = (file % targets * count + nth) % targets;
        let servers = targets / u64::from(self.per_server);
        (position % servers * u64::from(self.per_server) + position / servers) as u32
    }
}

/// The parameters of a target as a server with its own disks.
pub(crate) fn target_as_server(
    pfs: &ParallelFileSystem,
    lustre: &Lustre,
    stripe: Option<Bytes>,
) -> BurstBuffer {
    let stripe = stripe.unwrap_or(lustre.stripe);
    BurstBuffer {
        data_rate: lustre.server_rate,
        dispatch: lustre.dispatch,
        threads: lustre.threads,
        // Data go between the network and the disks without a copy.
        copy_rate: Rate(1_000_000_000_000),
        lock_hold: Time::ZERO,
        lock_handover: lustre.lock_callback,
        handover_rate: None,
        block: PAGE,
        dirty_limit: Bytes::ZERO,
        dirty_background: Bytes::ZERO,
        extent_cost: Time::ZERO,
        flush_depth: 1,
        sync: lustre.target_latency,
        metadata_rate: lustre.metadata_rate,
        cards: 1,
        controllers_per_card: 1,
        channels_per_controller: lustre.target_channels,
        card_read: lustre.target_read,
        card_write: lustre.target_write,
        card_read_iops: lustre.target_read_iops,
        card_write_iops: lustre.target_write_iops,
        command_gap: Time::ZERO,
        read_latency: lustre.target_latency,
        write_latency: lustre.target_latency,
        card_capacity: Bytes(pfs.capacity.0 / u64::from(pfs.osts.max(1))),
        granularity: None,
        stripe,
        stripe_order: StripeOrder::Hashed,
        substripe: stripe,
        objects_per_file: 1,
        flash_stripe: stripe,
    }
}

/// Unit of the clients' locks and caches.
pub(crate) const PAGE: Bytes = Bytes(4_096);

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(stripe_count: u32) -> TargetLayout {
        TargetLayout {
            targets: 6,
            per_server: 2,
            metadata_servers: 1,
            stripe_count,
            stripe: 1 << 20,
        }
    }

    /// Three servers with the targets 0 and 1, 2 and 3, 4 and 5.
    #[test]
    fn targets_are_taken_in_turn_from_different_servers() {
        let one = layout(1);
        let first: Vec<u32> = (0..7).map(|file| one.target_of(file, 5 << 20)).collect();
        assert_eq!(first, [0, 2, 4, 1, 3, 5, 0]);
        let four = layout(4);
        let stripes = |file| -> Vec<u32> {
            (0..5u64).map(|stripe| four.target_of(file, (stripe << 20) + 7)).collect()
        };
        assert_eq!(stripes(0), [0, 2, 4, 1, 0]);
        assert_eq!(stripes(1), [3, 5, 0, 2, 3]);
    }
}
