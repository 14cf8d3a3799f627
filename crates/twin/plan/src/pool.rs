//! A running pool as a system: its storage nodes, with measured rates.

use crate::error::PlanError;
use crate::staging::{MoverRates, Staging, WRITEBACK_BYTES};
use crate::system::{PfsRates, System};
use forebay_machine_file::machine::Machine;
use forebay_policy::pool::StorageNode;
use forebay_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

/// Node ports of a simulated switch, and the most switches: the machine model has 8-bit port numbers.
const PORTS: u32 = 128;
const MOST_SWITCHES: u32 = 100;

/// Rates of a pool, as one host measured them. Bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRates {
    /// Name of the pool.
    pub pool: String,
    /// Host that measured.
    pub host: String,
    /// Bytes of each measurement.
    pub bytes: u64,
    /// Repetitions of each measurement, of which the rates are medians.
    #[serde(default = "once")]
    pub repetitions: u32,
    /// Writing to the parallel file system, with the sync.
    pub pfs_write: u64,
    /// Reading from it.
    pub pfs_read: u64,
    /// Spread of the repetitions of both; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfs_spread: Option<[f64; 2]>,
    /// Storage nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeRates>,
}

/// Rates of a storage node, as a host of the pool sees them. Bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRates {
    /// Its name.
    pub name: String,
    /// Whether it is the host that measured, whose data do not cross a link.
    pub is_local: bool,
    /// Writing until the node has the data.
    pub send: u64,
    /// Writing until the data are on its disk.
    pub write: u64,
    /// Reading data that were just written.
    pub read: u64,
    /// Stage-in of one file to an instance on this node alone.
    pub stage_in: u64,
    /// Stage-out of it.
    pub stage_out: u64,
    /// Time of such a stage-in besides that of its data, seconds.
    pub stage_in_seconds: f64,
    /// Time of such a stage-out besides that of its data, seconds.
    pub stage_out_seconds: f64,
    /// Spread of the repetitions of each rate; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<RateSpreads>,
}

/// Greatest less least of the repetitions of each rate, as a share of the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSpreads {
    /// Of [`NodeRates::send`].
    pub send: f64,
    /// Of [`NodeRates::write`].
    pub write: f64,
    /// Of [`NodeRates::read`].
    pub read: f64,
    /// Of [`NodeRates::stage_in`].
    pub stage_in: f64,
    /// Of [`NodeRates::stage_out`].
    pub stage_out: f64,
}

fn once() -> u32 {
    1
}

impl NodeRates {
    /// The disk's rate of writing, or less: the faster one of the two ways in which data went there. Writes of
    /// another host begin with the time in which the node gets the first data; a stage may wait for the
    /// parallel file system.
    fn disk_write(&self) -> u64 {
        self.write.max(self.stage_in)
    }
}

impl MeasuredRates {
    /// Reads a file of rates.
    ///
    /// # Errors
    /// The text is no such file, or has a rate of zero or no node.
    pub fn check(self) -> Result<MeasuredRates, PlanError> {
        let of_nodes = self
            .nodes
            .iter()
            .flat_map(|node| [node.send, node.write, node.read, node.stage_in, node.stage_out]);
        let has_zero = of_nodes.chain([self.pfs_write, self.pfs_read]).any(|rate| rate == 0);
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        let has_times = self
            .nodes
            .iter()
            .all(|node| is_time(node.stage_in_seconds) && is_time(node.stage_out_seconds));
        if has_zero || !has_times || self.nodes.is_empty() {
            return Err(PlanError::Job(format!(
                "the rates of pool {} have a node without rates or with an impossible time, or none: measure again with \
                 `forebay measure`",
                self.pool
            )));
        }
        Ok(self)
    }

    /// The rate whose repetitions differ most, by its name, and its spread; `None` where none is recorded.
    pub fn greatest_spread(&self) -> Option<(String, f64)> {
        let [write, read] = self.pfs_spread.unwrap_or_default();
        let of_pfs = [("write", write), ("read", read)];
        let mut all: Vec<(String, f64)> = of_pfs
            .into_iter()
            .filter(|_| self.pfs_spread.is_some())
            .map(|(name, spread)| (format!("{name} of the parallel file system"), spread))
            .collect();
        for node in &self.nodes {
            let Some(of) = node.spread else { continue };
            let each = [
                ("send", of.send),
                ("write", of.write),
                ("read", of.read),
                ("stage_in", of.stage_in),
                ("stage_out", of.stage_out),
            ];
            all.extend(
                each.map(|(name, spread)| (format!("{name} of node {}", node.name), spread)),
            );
        }
        all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The rate of a link: the slowest at which a node on another host took data. If all nodes are local,
    /// the rate at which they did.
    fn link(&self) -> u64 {
        let remote = self.nodes.iter().filter(|node| !node.is_local).map(|node| node.send).min();
        remote.or_else(|| self.nodes.iter().map(|node| node.send).min()).unwrap_or(1).max(1)
    }
}

/// A pool for a plan.
#[derive(Clone, Debug)]
pub struct PoolDescription {
    /// Its name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Bytes in a stripe.
    pub stripe: Bytes,
    /// Its storage nodes in service, with the granules in use.
    pub storage: Vec<StorageNode>,
    /// Its rates.
    pub rates: MeasuredRates,
    /// Whether stage-ins are read back and compared, and whether stage-outs are.
    pub read_back: (bool, bool),
}

impl System {
    /// A pool with `nodes` compute nodes of `ppn` processes each, on hosts without storage, behind one switch.
    ///
    /// # Errors
    /// The pool is too large for the simulation, or has no node in service.
    pub fn of_pool(pool: &PoolDescription, nodes: u32, ppn: u32) -> Result<System, PlanError> {
        let rates = &pool.rates;
        let count = pool.storage.len() as u32;
        if count == 0 {
            return Err(PlanError::Job(format!(
                "no storage node of pool {} is in service",
                pool.name
            )));
        }
        let switches = nodes.div_ceil(PORTS) + count.div_ceil(PORTS);
        if switches > MOST_SWITCHES {
            return Err(PlanError::Job(format!(
                "{nodes} compute nodes and {count} storage nodes: a plan for a pool has at most {}",
                PORTS * MOST_SWITCHES
            )));
        }
        let text = machine_text(pool, (nodes, ppn), switches);
        let machine = Machine::parse(&format!("{}.toml", pool.name), &text, &|_| {
            Err("a pool has no node map".to_owned())
        });
        let machine = machine.map_err(|error| {
            PlanError::Job(format!("the pool's rates are outside the simulation's range: {error}"))
        })?;
        let least =
            |of: fn(&NodeRates) -> u64| rates.nodes.iter().map(of).min().unwrap_or(1) as f64;
        // Any node may move the files of a stage.
        let mean = |of: fn(&NodeRates) -> f64| {
            rates.nodes.iter().map(of).sum::<f64>() / rates.nodes.len().max(1) as f64
        };
        let staging = Staging::Mover(MoverRates {
            fixed_in: mean(|node| node.stage_in_seconds),
            fixed_out: mean(|node| node.stage_out_seconds),
            disk_write: least(NodeRates::disk_write),
            stage_out: mean(|node| node.stage_out as f64),
            read: least(|node| node.read),
            link: rates.link() as f64,
            pfs_read: rates.pfs_read as f64,
            read_back_in: pool.read_back.0,
            read_back_out: pool.read_back.1,
        });
        let pfs = PfsRates {
            name: "parallel file system".into(),
            write: rates.pfs_write as f64 * f64::from(nodes),
            read: rates.pfs_read as f64 * f64::from(nodes),
            // The link to other storage nodes is not that to the file system.
            node_link: None,
            because: format!("{} measured it alone", rates.host),
        };
        Ok(System {
            machine,
            storage: pool.storage.clone(),
            granularity: Some(pool.granularity),
            staging: Some(staging),
            pfs: Some(pfs),
        })
    }
}

/// The machine file of a pool: hosts behind switches that carry everything.
fn machine_text(pool: &PoolDescription, (nodes, ppn): (u32, u32), switches: u32) -> String {
    let rates = &pool.rates;
    let link = rates.link();
    let least = |of: fn(&NodeRates) -> u64| rates.nodes.iter().map(of).min().unwrap_or(1);
    let granules = pool.storage.iter().map(|node| node.total).max().unwrap_or(1).max(1);
    let capacity = granules.saturating_mul(pool.granularity.0).max(pool.stripe.0);
    let processes = u64::from(nodes) * u64::from(ppn);
    let unwritten = WRITEBACK_BYTES.saturating_mul(processes).min(capacity);
    let stripe = pool.stripe.0;
    let measured = |rate: u64| format!("{{ value = \"{}\", from = \"measured\" }}", Rate(rate));
    let fabric = |latency: &str| {
        format!(
            "tiles = {{ value = 1, assumed = \"a switch\" }}\n\
             tile_rate = {{ value = \"10 TB/s\", assumed = \"the switch carries everything\" }}\n\
             payload_percent = {{ value = 100, assumed = \"payload\" }}\n\
             latency = {{ value = \"{latency}\", assumed = \"a switch\" }}\n\
             buffer = {{ value = \"1 MiB\", assumed = \"a switch\" }}\n"
        )
    };
    let (local, global) = (fabric("1 us"), fabric("1 us"));
    format!(
        r#"title = "Pool {name}: {nodes} compute nodes, {count} storage nodes, measured rates"
notes = "Hosts behind one switch. Storage nodes hold written data in memory while they go to disk."

[sources]
measured = "forebay measure on host {host}, {bytes} for each measurement"
pool = "status and configuration of the pool"

[network]
groups = {{ value = 1, assumed = "one switch" }}
chassis_per_group = {{ value = 1, assumed = "one switch" }}
routers_per_chassis = {{ value = {switches}, assumed = "one switch of several chips" }}
node_ports_per_router = {{ value = {PORTS}, assumed = "one switch" }}
cable_sockets_per_group = {{ value = 0, assumed = "one switch" }}
cables_per_group_pair = {{ value = 0, assumed = "one switch" }}
routers_per_cable = {{ value = 1, assumed = "one switch" }}
arrangement = {{ value = "absolute", assumed = "without effect" }}
plugging = {{ value = "in-order", assumed = "without effect" }}
router_traversal = {{ value = "1 us", assumed = "a switch" }}
packet = {{ value = "4 KiB", assumed = "segments of TCP are not simulated" }}

[network.node]
tiles = {{ value = 1, assumed = "one port" }}
tile_rate = {rate}
payload_percent = {{ value = 100, from = "measured" }}
latency = {{ value = "10 us", assumed = "TCP on Ethernet" }}
buffer = {{ value = "1 MiB", assumed = "a socket's buffer" }}

[network.rank1]
{local}
[network.global]
{global}
[network.routing]
algorithm = {{ value = "minimal", assumed = "one switch" }}
candidates = {{ value = 1, assumed = "without effect" }}
bias = {{ value = "adaptive-0", assumed = "without effect" }}
rank1_threshold = {{ value = "2 us", assumed = "without effect" }}
global_threshold = {{ value = "2 us", assumed = "without effect" }}
small_bias = {{ value = "2 us", assumed = "without effect" }}
large_bias = {{ value = 4, assumed = "without effect" }}

[[placement.blade]]
kind = "compute"
nodes_per_router = {{ value = {PORTS}, assumed = "one switch" }}
total = {{ value = {nodes}, assumed = "the job's nodes" }}

[[placement.blade]]
kind = "burst-buffer"
nodes_per_router = {{ value = {PORTS}, assumed = "one switch" }}
total = {{ value = {count}, from = "pool" }}

[client]
write_rate = {rate}
read_rate = {rate}
requests_per_node = {{ value = 4096, assumed = "no limit" }}
cache = {{ value = "1 TiB", assumed = "without effect" }}
uncached_percent = {{ value = 100, assumed = "without effect" }}
call_overhead = {{ value = "100 us", assumed = "a call through FUSE" }}
max_request = {{ value = "1 MiB", assumed = "a chunk" }}
requests_in_flight = {{ value = 8, assumed = "pieces for several nodes go out together" }}
control_message = {{ value = "128 B", assumed = "a header" }}
collective_buffer = {{ value = "16 MiB", assumed = "ROMIO's default" }}
copy_rate = {{ value = "5 GB/s", assumed = "without effect" }}
mpi_overhead = {{ value = "5 us", assumed = "MPI over TCP" }}
shared_memory_latency = {{ value = "1 us", assumed = "memory" }}
mpi_envelope = {{ value = "64 B", assumed = "an envelope" }}
eager_limit = {{ value = "64 KiB", assumed = "MPI over TCP" }}

[burst_buffer]
data_rate = {{ value = "1 TB/s", assumed = "the link and the disk are the limits" }}
dispatch = {{ value = "20 us", assumed = "a request" }}
threads = {{ value = 1024, from = "pool" }}
copy_rate = {{ value = "1 TB/s", assumed = "the link and the disk are the limits" }}
dirty_limit = {{ value = "{capacity} B", assumed = "writes go to memory, and disks work meanwhile" }}
dirty_background = {{ value = "{unwritten} B", assumed = "the daemon starts writing back when it has 8 MiB of a file" }}
extent_cost = {{ value = "0 us", assumed = "part of the measured rate" }}
flush_depth = {{ value = 128, assumed = "Linux's default" }}
lock_hold = {{ value = "0 us", assumed = "objects have no locks" }}
lock_handover = {{ value = "0 us", assumed = "objects have no locks" }}
block = {{ value = "4 KiB", assumed = "usual block" }}
sync = {{ value = "1 ms", assumed = "a log record" }}
command_gap = {{ value = "0 us", assumed = "part of the measured rate" }}
metadata_rate = {{ value = 10000, assumed = "opens and closes of a node a second" }}
cards = {{ value = 1, assumed = "the disk of a node" }}
controllers_per_card = {{ value = 1, assumed = "the disk of a node" }}
channels_per_controller = {{ value = 1, assumed = "the disk of a node" }}
card_read = {read}
card_write = {write}
card_read_iops = {{ value = 1000000, assumed = "large transfers" }}
card_write_iops = {{ value = 1000000, assumed = "large transfers" }}
read_latency = {{ value = "0 us", assumed = "part of the measured rate" }}
write_latency = {{ value = "0 us", assumed = "part of the measured rate" }}
card_capacity = {{ value = "{capacity} B", from = "pool" }}
granularity = {{ value = "{granularity} B", from = "pool" }}
stripe = {{ value = "{stripe} B", from = "pool" }}
stripe_order = {{ value = "hashed", from = "pool" }}
substripe = {{ value = "{stripe} B", from = "pool" }}
objects_per_file = {{ value = 1, from = "pool" }}
flash_stripe = {{ value = "{stripe} B", from = "pool" }}
"#,
        name = pool.name,
        count = pool.storage.len(),
        host = rates.host,
        bytes = Bytes(rates.bytes),
        rate = measured(link),
        read = measured(least(|node| node.read)),
        write = measured(least(NodeRates::disk_write)),
        granularity = pool.granularity.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::sweep::pfs_bound;
    use crate::work::Work;
    use forebay_policy::pool::{NodeId, NodeState};
    use forebay_workload::ior::Ior;

    fn pool() -> PoolDescription {
        let rates = |name: &str, is_local, send, write| NodeRates {
            name: name.into(),
            is_local,
            send,
            write,
            read: 90_000_000,
            stage_in: 55_000_000,
            stage_out: 70_000_000,
            stage_in_seconds: 0.1,
            stage_out_seconds: 0.2,
            spread: None,
        };
        PoolDescription {
            name: "flash".into(),
            granularity: Bytes::mib(16),
            stripe: Bytes::kib(64),
            storage: (0..2)
                .map(|id| StorageNode {
                    id: NodeId(id),
                    state: NodeState::Online,
                    total: 32,
                    used: id.into(),
                    instances: 0,
                    written: Bytes(0),
                })
                .collect(),
            rates: MeasuredRates {
                pool: "flash".into(),
                host: "n1".into(),
                bytes: 64 << 20,
                repetitions: 1,
                pfs_write: 400_000_000,
                pfs_read: 500_000_000,
                pfs_spread: None,
                nodes: vec![
                    rates("n1", true, 3_000_000_000, 50_000_000),
                    rates("n2", false, 100_000_000, 60_000_000),
                ],
            },
            read_back: (false, true),
        }
    }

    #[test]
    fn pool_becomes_a_machine_with_the_slowest_measured_rates() {
        let system = System::of_pool(&pool(), 3, 2).unwrap_or_else(|e| panic!("{e}"));
        let make = system.machine.burst_buffer.clone().unwrap_or_else(|| panic!("no storage"));
        assert_eq!(
            system.machine.network.node.rate,
            Rate(100_000_000),
            "of the node on another host"
        );
        assert_eq!((make.card_write, make.card_read), (Rate(55_000_000), Rate(90_000_000)));
        assert_eq!(system.machine.count_nodes(forebay_machine_file::machine::NodeKind::Compute), 3);
        assert_eq!(system.storage.len(), 2);
        assert_eq!(make.granularity, Some(Bytes::mib(16)));
        assert_eq!(make.dirty_background, Bytes::mib(48), "8 MiB of each of six files");
    }

    /// 6 GiB to a file system on which a host wrote 400 MB/s, three times that from three hosts: 5.4 s. The 100 MB/s
    /// between storage nodes are not on the way.
    #[test]
    fn bound_of_the_file_system_is_that_of_its_measured_rate() {
        let system = System::of_pool(&pool(), 3, 2).unwrap_or_else(|e| panic!("{e}"));
        let words = ["-F", "-w", "-t", "1m", "-b", "1g"].map(str::to_owned);
        let job = Job::new(3, 2, Work::Test(Box::new(Ior::parse(&words).unwrap().remove(0))));
        let bound = pfs_bound(&system, &job).unwrap().unwrap();
        let by_hand = (6u64 << 30) as f64 / 1.2e9;
        assert!((bound.io_seconds / by_hand - 1.0).abs() < 1e-9, "{bound:?}");
        assert_eq!(bound.limit, "pfs");
    }

    #[test]
    fn pool_without_nodes_or_rates_is_refused() {
        let empty = PoolDescription { storage: Vec::new(), ..pool() };
        let error = System::of_pool(&empty, 1, 1).map(drop).unwrap_err().to_string();
        assert!(error.contains("in service"), "{error}");
        let error = System::of_pool(&pool(), 1 << 20, 1).map(drop).unwrap_err().to_string();
        assert!(error.contains("at most"), "{error}");
        let rates = MeasuredRates { pfs_read: 0, ..pool().rates };
        assert!(rates.check().is_err());
        assert!(pool().rates.check().is_ok());
    }
}
