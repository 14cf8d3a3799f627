//! The system on which a job is planned.

use crate::staging::{ParallelRates, Staging, TargetRates};
use forebay_machine::study::flash_rate;
use forebay_machine_file::machine::{BurstBuffer, Lustre, Machine, NodeKind, ParallelFileSystem};
use forebay_policy::pool::{NodeId, NodeState, StorageNode};
use forebay_units::Bytes;
use forebay_workload::ior::Access;

/// A machine, the pool of its storage nodes, and the way in which they stage.
#[derive(Clone, Debug)]
pub struct System {
    /// The machine that is simulated.
    pub machine: Machine,
    /// The storage nodes, with the granules that are in use; empty without burst buffers.
    pub storage: Vec<StorageNode>,
    /// Granularity of allocations; `None`: only whole nodes can be requested.
    pub granularity: Option<Bytes>,
    /// The stages of the storage nodes; `None` if the rates of the parallel file system are not known.
    pub staging: Option<Staging>,
    /// The parallel file system, if its rates are known.
    pub pfs: Option<PfsRates>,
}

/// Rates that a parallel file system gives a job at best, bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct PfsRates {
    /// Its name.
    pub name: String,
    /// Writing.
    pub write: f64,
    /// Reading.
    pub read: f64,
    /// The link of a compute node on the way there, for each of its interfaces; `None`: a node reached these rates over
    /// the links that it has.
    pub node_link: Option<f64>,
    /// The meaning of these rates.
    pub because: String,
}

impl System {
    /// A machine whose storage nodes are all free.
    pub fn of_machine(machine: Machine) -> System {
        let burst_buffer = machine.burst_buffer.clone();
        let granularity = burst_buffer.as_ref().and_then(|make| make.granularity);
        let nodes = machine.count_nodes(NodeKind::BurstBuffer) as u32;
        let node = |make: &BurstBuffer, id: u32| {
            let capacity = make.card_capacity.0 * u64::from(make.cards);
            StorageNode {
                id: NodeId(id),
                state: NodeState::Online,
                total: capacity / granularity.map_or(capacity, |granule| granule.0),
                used: 0,
                instances: 0,
                written: Bytes(0),
            }
        };
        let storage = burst_buffer
            .as_ref()
            .map_or(Vec::new(), |make| (0..nodes).map(|id| node(make, id)).collect());
        let staging = burst_buffer.as_ref().and_then(|make| parallel(&machine, make));
        let pfs = machine.pfs.as_ref().map(|pfs| PfsRates {
            name: pfs.name.clone(),
            write: pfs.rate.0 as f64,
            read: pfs.rate.0 as f64,
            node_link: Some(machine.network.node.rate.0 as f64),
            because: format!("its peak rate of {}, which no job has for itself", pfs.rate),
        });
        let staging = staging.map(Staging::Parallel);
        System { machine, storage, granularity, staging, pfs }
    }

    /// Capacity of a storage node of the machine, bytes; 0 without burst buffers.
    pub(crate) fn node_capacity(&self) -> u64 {
        let make = self.machine.burst_buffer.as_ref();
        make.map_or(0, |make| make.card_capacity.0 * u64::from(make.cards))
    }
}

fn parallel(machine: &Machine, make: &BurstBuffer) -> Option<ParallelRates> {
    let pfs = machine.pfs.as_ref()?;
    let routers = machine.count_nodes(NodeKind::Lnet) as f64;
    let link = machine.network.node.rate.0 as f64;
    let lustre = pfs.lustre.as_ref();
    let router = lustre.map_or(link, |lustre| link.min(lustre.router_rate.0 as f64));
    Some(ParallelRates {
        flash_write: flash_rate(make, Access::Write),
        flash_read: flash_rate(make, Access::Read),
        data_path: make.data_rate.0 as f64,
        link,
        routers: if routers > 0.0 { routers * router } else { f64::INFINITY },
        pfs: pfs.rate.0 as f64,
        targets: lustre.map(|lustre| targets(pfs, lustre)),
    })
}

/// The targets of a parallel file system with requests of the largest size: disks, commands, and their share
/// of their server.
fn targets(pfs: &ParallelFileSystem, lustre: &Lustre) -> TargetRates {
    let server = lustre.server_rate.0 as f64 / f64::from(lustre.targets_per_server.max(1));
    let rate = |disks: u64, commands: u64| {
        let of_commands = commands as f64 * lustre.max_rpc.0 as f64;
        (disks as f64).min(of_commands).min(server)
    };
    TargetRates {
        count: pfs.osts,
        stripe_count: lustre.stripe_count,
        write: rate(lustre.target_write.0, lustre.target_write_iops),
        read: rate(lustre.target_read.0, lustre.target_read_iops),
    }
}
