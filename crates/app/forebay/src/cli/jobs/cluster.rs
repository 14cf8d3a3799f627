//! The machine of `forebay sim jobs`: a machine file, and options that replace its numbers.

use super::traces::TraceFile;
use super::{bytes_above_zero, count_above_zero, rate};
use clap::Args;
use forebay_console::Failure;
use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_plan::{Staging, System};
use forebay_schedule::cluster::{Cluster, Rates};
use forebay_units::{Bytes, Rate};

/// Granularity without a machine.
const GRANULARITY: Bytes = Bytes(1 << 30);

#[derive(Clone, Debug, Args)]
pub(super) struct ClusterOptions {
    /// Compute nodes [default: the machine's, or those of the trace]
    #[arg(long, value_name = "N", value_parser = count_above_zero)]
    nodes: Option<u32>,
    /// Storage nodes of the pool [default: the machine's, or none]
    #[arg(long, value_name = "N", value_parser = count_above_zero)]
    storage_nodes: Option<u32>,
    /// Capacity of the pool; each storage node has an equal part, in whole granules [default: the machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes_above_zero)]
    capacity: Option<Bytes>,
    /// Granularity of allocations [default: the machine's, or 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes_above_zero)]
    granularity: Option<Bytes>,
    /// Rate of a storage node, each way [default: the machine's, or no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    storage_rate: Option<Rate>,
    /// Rate of the parallel file system, reading and writing together [default: the machine's, or no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pfs_rate: Option<Rate>,
}

impl ClusterOptions {
    /// The options with the values of a combination of `--sweep`.
    pub(super) fn with(&self, settings: &[(String, String)]) -> Result<ClusterOptions, Failure> {
        let mut options = self.clone();
        for (key, value) in settings {
            let failed = |error: String| Failure::Input(format!("--sweep {key}={value}: {error}"));
            match key.as_str() {
                "nodes" => options.nodes = Some(count_above_zero(value).map_err(failed)?),
                "storage-nodes" => {
                    options.storage_nodes = Some(count_above_zero(value).map_err(failed)?);
                }
                "capacity" => options.capacity = Some(bytes_above_zero(value).map_err(failed)?),
                "granularity" => {
                    options.granularity = Some(bytes_above_zero(value).map_err(failed)?);
                }
                "storage-rate" => options.storage_rate = Some(rate(value).map_err(failed)?),
                "pfs-rate" => options.pfs_rate = Some(rate(value).map_err(failed)?),
                _ => {
                    return Err(Failure::Input(format!(
                        "--sweep {key}: sim jobs can sweep nodes, storage-nodes, capacity, granularity, \
                         storage-rate and pfs-rate"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// The machine.
    pub(super) fn resolve(
        &self,
        machine: Option<&Machine>,
        traces: &[TraceFile],
    ) -> Result<Cluster, Failure> {
        let system = machine.map(|machine| System::of_machine(machine.clone()));
        let of_machine = machine.map(|machine| machine.count_nodes(NodeKind::Compute) as u32);
        let of_traces = traces.iter().filter_map(|trace| trace.trace.nodes).max();
        let Some(nodes) = self.nodes.or(of_machine).or(of_traces) else {
            return Err(Failure::Input(
                "no trace says how many nodes its machine has; give --nodes N or --machine NAME"
                    .to_owned(),
            ));
        };
        let rates = self.rates(system.as_ref());
        let is_changed =
            self.storage_nodes.is_some() || self.capacity.is_some() || self.granularity.is_some();
        match system {
            Some(System { storage, granularity: Some(granularity), .. }) if !is_changed => {
                Ok(Cluster { nodes, storage, granularity, rates })
            }
            system => self.pool(nodes, rates, system.as_ref()),
        }
    }

    /// A machine with equal storage nodes.
    fn pool(&self, nodes: u32, rates: Rates, system: Option<&System>) -> Result<Cluster, Failure> {
        let of_node = system.and_then(|system| system.machine.burst_buffer.as_ref());
        let of_node = of_node.map(|make| Bytes(make.card_capacity.0 * u64::from(make.cards)));
        let published = system.and_then(|system| system.granularity);
        // Without a published granularity whole nodes are allocated, as in `plan`.
        let granularity = self.granularity.or(published).or(of_node).unwrap_or(GRANULARITY);
        let there_are = system.map_or(0, |system| system.storage.len() as u32);
        let storage_nodes = self.storage_nodes.unwrap_or(there_are);
        let capacity = self
            .capacity
            .or_else(|| of_node.map(|each| Bytes(each.0.saturating_mul(storage_nodes.into()))));
        match (storage_nodes, capacity) {
            (0, None) => Ok(Cluster::new(nodes, (0, Bytes::ZERO), granularity, rates)),
            (0, Some(_)) => Err(Failure::Input(
                "--capacity needs storage nodes: give --storage-nodes N, or a machine that has them"
                    .to_owned(),
            )),
            (_, None) => Err(Failure::Input(
                "--storage-nodes needs the capacity of the pool: give --capacity SIZE".to_owned(),
            )),
            (count, Some(capacity)) => {
                let cluster = Cluster::new(nodes, (count, capacity), granularity, rates);
                if cluster.granules() == 0 {
                    return Err(Failure::Input(format!(
                        "a pool of {capacity} on {count} storage nodes has no granule of {granularity} on a \
                         node; give a smaller --granularity or more --capacity"
                    )));
                }
                Ok(cluster)
            }
        }
    }

    fn rates(&self, system: Option<&System>) -> Rates {
        let mut rates = match system.and_then(|system| system.staging.as_ref()) {
            Some(Staging::Parallel(of)) => {
                let finite = |rate: f64| rate.is_finite().then_some(rate);
                Rates {
                    storage_in: finite(of.flash_write.min(of.data_path).min(of.link)),
                    storage_out: finite(of.flash_read.min(of.data_path).min(of.link)),
                    pfs: finite(of.pfs.min(of.routers)),
                }
            }
            Some(Staging::Mover(_)) | None => Rates::default(),
        };
        if let Some(Rate(rate)) = self.storage_rate {
            (rates.storage_in, rates.storage_out) = (Some(rate as f64), Some(rate as f64));
        }
        if let Some(Rate(rate)) = self.pfs_rate {
            rates.pfs = Some(rate as f64);
        }
        rates
    }
}
