//! Jobs, servers and links over time.

use super::Job;
use super::requests::{DEPTH, READ, ServerTimeline, WRITTEN};
use crate::links::link_name;
use forebay_machine_file::machine::{LinkClass, Network};
use forebay_network::{Fabric, JOBS, JobTimeline, LinkBins, LinkStatistics, Topology};
use std::collections::BTreeMap;

/// Values in intervals of one length, from the start of the run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesTable {
    /// Length of an interval, in seconds.
    pub interval: f64,
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// Name of each job, server or link, with the values of each interval: the greatest sum of the
    /// first column first.
    pub rows: Vec<(String, Vec<Vec<f64>>)>,
}

/// Jobs, servers and links over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeries {
    /// Each job: bytes that its nodes sent, bytes delivered, bytes under way at the end.
    pub jobs: SeriesTable,
    /// Each server: bytes written and read, mean number of requests, share of the flash's rate.
    pub servers: SeriesTable,
    /// Each link: bytes, deepest queue in bytes, utilisation.
    pub links: SeriesTable,
}

const JOB_COLUMNS: &[&str] = &["sent_bytes", "delivered_bytes", "under_way_bytes"];
const SERVER_COLUMNS: &[&str] =
    &["written_bytes", "read_bytes", "mean_requests", "flash_utilisation"];
const LINK_COLUMNS: &[&str] = &["bytes", "max_queue_bytes", "utilisation"];

impl SeriesTable {
    /// A table with its rows by descending sum of the first column, then by name.
    fn sorted(
        interval: u64,
        columns: &'static [&'static str],
        mut rows: Vec<(String, Vec<Vec<f64>>)>,
    ) -> SeriesTable {
        let sum = |row: &(String, Vec<Vec<f64>>)| row.1.iter().map(|v| v[0]).sum::<f64>();
        rows.sort_by(|a, b| sum(b).total_cmp(&sum(a)).then_with(|| a.0.cmp(&b.0)));
        SeriesTable { interval: interval as f64 * 1e-12, columns, rows }
    }
}

/// The jobs from the timelines of all groups.
pub(super) fn jobs(timelines: &[JobTimeline]) -> SeriesTable {
    let mut all = JobTimeline::default();
    timelines.iter().for_each(|timeline| all.merge(timeline));
    let of_job = |job: Job| {
        let mut under_way = 0.0;
        let value = |row: &[u64; 2 * JOBS]| {
            let (sent, delivered) = (row[job as usize] as f64, row[JOBS + job as usize] as f64);
            under_way += sent - delivered;
            vec![sent, delivered, under_way]
        };
        (job.name().to_string(), all.rows().iter().map(value).collect::<Vec<_>>())
    };
    let rows = Job::ALL.into_iter().map(of_job).filter(|(_, v)| v.iter().any(|v| v[0] > 0.0));
    SeriesTable::sorted(all.interval(), JOB_COLUMNS, rows.collect())
}

/// The servers, by node; `devices` has the write and read rate, in bytes per second, of all flash or disks
/// behind a node.
pub(super) fn servers(
    mut servers: BTreeMap<u32, ServerTimeline>,
    devices: &BTreeMap<u32, (f64, f64)>,
) -> SeriesTable {
    let interval = servers.values().map(|s| s.timeline.interval()).max().unwrap_or(1 << 20);
    let seconds = interval as f64 * 1e-12;
    let rows = servers.iter_mut().map(|(node, server)| {
        server.timeline.lengthen_intervals(interval);
        let rates = devices.get(node).copied().unwrap_or((f64::INFINITY, f64::INFINITY));
        let values = server.timeline.rows().iter().map(|row| {
            let (written, read) = (row[WRITTEN] as f64, row[READ] as f64);
            let busy = (written / rates.0 + read / rates.1) / seconds;
            vec![written, read, row[DEPTH] as f64 / interval as f64, busy]
        });
        (format!("node {node}"), values.collect())
    });
    SeriesTable::sorted(interval, SERVER_COLUMNS, rows.collect())
}

/// The links of all groups that carried anything; the groups' fabrics have probes.
pub(super) fn links(
    fabrics: &mut [&mut Fabric],
    end: u64,
    network: &Network,
    topology: &Topology,
) -> SeriesTable {
    let of_probe = |f: &&mut Fabric| {
        let series = f.probe.as_ref()?.series.as_ref()?;
        Some(series.interval())
    };
    let interval = fabrics.iter().filter_map(of_probe).max().unwrap_or(1 << 20);
    let seconds = interval as f64 * 1e-12;
    let mut rows = Vec::new();
    for (group, fabric) in (0..).zip(fabrics) {
        if let Some(series) = fabric.probe.as_mut().and_then(|probe| probe.series.as_mut()) {
            series.lengthen_intervals(interval);
        }
        let links = fabric.link_statistics(end);
        for (link, bins) in links.iter().zip(fabric.link_bins()) {
            if link.bytes > 0 {
                let capacity = rate(network, link) * seconds;
                rows.push((link_name(topology, group, link), values(bins, capacity)));
            }
        }
    }
    SeriesTable::sorted(interval, LINK_COLUMNS, rows)
}

fn rate(network: &Network, link: &LinkStatistics) -> f64 {
    let spec = match link.class {
        LinkClass::Node => &network.node,
        LinkClass::Rank1 => &network.rank1,
        LinkClass::Rank2 => &network.rank2,
        LinkClass::Global => &network.global,
    };
    spec.rate.0 as f64
}

fn values(bins: &LinkBins, capacity: f64) -> Vec<Vec<f64>> {
    let pairs = bins.bytes.iter().zip(&bins.deepest);
    pairs.map(|(b, d)| vec![*b as f64, f64::from(*d), *b as f64 / capacity]).collect()
}
