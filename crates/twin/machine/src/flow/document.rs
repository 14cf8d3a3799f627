//! The document of a phase that was simulated with flows.

use super::begun_phase::{PhaseTimes, job_bytes};
use super::fabric::{Fabric, Resource};
use super::phase_links::PhaseLinks;
use super::runs::Runs;
use super::transfers::Transfers;
use crate::io::{IoJob, PS_PER_SECOND};
use crate::phase_result::{middle_gbps, node_rates};
use crate::results::{ClassUse, Limit, Phase, ResourceUse, Series, Spread};
use crate::study::of_calls;
use crate::warnings;

fn seconds(ps: u64) -> f64 {
    ps as f64 / PS_PER_SECOND as f64
}

/// The document of a phase.
pub(super) fn phase_document(
    job: &IoJob,
    runs: &Runs<'_>,
    transfers: &Transfers,
    (fabric, links): (&Fabric, &PhaseLinks<'_>),
    times: &PhaseTimes,
) -> Phase {
    let bytes = job_bytes(job);
    let total = seconds(times.closes.1);
    let span = seconds(times.transfers.1 - times.transfers.0);
    let operations = job.pattern.transfers_per_rank() * u64::from(job.tasks());
    let limit = limit(job, transfers, (fabric, links), times);
    let between = limit.evidence.iter().find(|found| found.resource == Resource::GlobalLink.name());
    let between = between.filter(|_| !transfers.by_requests);
    let steady = steady_rate(job, transfers, times);
    let mut warnings = warnings::of_flows(job, &times.parts((runs.access, bytes), steady), between);
    let is_extrapolated = !transfers.is_complete;
    warnings.extend(is_extrapolated.then(|| warnings::of_window(job, runs.access)).flatten());
    let gb_per = |time: f64| if time > 0.0 { bytes / 1e9 / time } else { 0.0 };
    let phase = Phase {
        access: runs.access.name().into(),
        iteration: 0,
        bytes: bytes as u64,
        operations,
        seconds: total,
        open_seconds: seconds(times.opened),
        transfer_seconds: span,
        close_seconds: seconds(times.closes.1 - times.closes.0),
        gbps: gb_per(total),
        steady_gbps: steady,
        middle_gbps: middle_rate(transfers, times),
        slowest_rank_gbps: gb_per(seconds(times.most_in_calls)),
        acknowledged_node_gbps: node_rates(rates_of_nodes(job, transfers, times)),
        iops: if span > 0.0 { operations as f64 / span } else { 0.0 },
        operation_seconds: spread(transfers, times),
        least_mean_seconds: least_mean(transfers, times),
        limit,
        links: class_use(job, (fabric, links), times, bytes),
        heat: heat(job, (fabric, links), bytes),
        series: Series::default(),
        warnings,
        each_link: Vec::new(),
    };
    of_calls(phase, (job.calls_joined, job.pattern.transfer_bytes()))
}

/// The rate of the middle of the bytes, as with packets.
fn middle_rate(transfers: &Transfers, times: &PhaseTimes) -> Option<f64> {
    match transfers.is_complete {
        true => Some(middle_gbps(&transfers.timeline)? / times.stretch),
        false => Some(transfers.rate / 1e9),
    }
}

/// The rate without ramp-up and tail, as with packets.
fn steady_rate(job: &IoJob, transfers: &Transfers, times: &PhaseTimes) -> Option<f64> {
    let are_few = warnings::are_few_transfers(job.pattern.transfers_per_rank());
    middle_rate(transfers, times).filter(|_| !transfers.is_complete || !are_few)
}

/// Rates of the nodes while they transfer, bytes per second.
fn rates_of_nodes(job: &IoJob, transfers: &Transfers, times: &PhaseTimes) -> Vec<f64> {
    let mut nodes = vec![(0u64, 0u64, 0u32); job.nodes.len()];
    for (rank, of_rank) in (0..).zip(&transfers.ranks).filter(|(_, of_rank)| of_rank.time > 0) {
        let (bytes, time, processes) = &mut nodes[job.pattern.node_of(rank) as usize];
        *bytes += of_rank.bytes;
        *time += of_rank.time;
        *processes += 1;
    }
    let longer = if transfers.is_complete { times.stretch } else { 1.0 };
    let busy = nodes.into_iter().filter(|(_, time, _)| *time > 0);
    let rate = |(bytes, time, processes): (u64, u64, u32)| {
        bytes as f64 * f64::from(processes) / (seconds(time) * longer)
    };
    busy.map(rate).collect()
}

/// Duration of a transfer: the mean of its run.
fn spread(transfers: &Transfers, times: &PhaseTimes) -> Spread {
    let longer = if transfers.is_complete { times.stretch } else { 1.0 };
    let mut durations = transfers.durations.clone();
    durations.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count: u64 = durations.iter().map(|(_, count)| count).sum();
    let at = |quantile: f64| {
        let rank = (count as f64 * quantile).ceil().max(1.0) as u64;
        let mut before = 0;
        let found = durations.iter().find(|(_, count)| {
            before += count;
            before >= rank
        });
        found.map_or(0.0, |(ps, _)| ps / PS_PER_SECOND as f64 * longer)
    };
    let sum: f64 = durations.iter().map(|(ps, count)| ps * *count as f64).sum();
    Spread {
        mean: sum / count.max(1) as f64 / PS_PER_SECOND as f64 * longer,
        min: at(0.0),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
    }
}

fn least_mean(transfers: &Transfers, times: &PhaseTimes) -> f64 {
    let longer = if transfers.is_complete { times.stretch } else { 1.0 };
    let active = transfers.ranks.iter().filter(|rank| rank.transfers > 0);
    let means = active.map(|rank| seconds(rank.time) / rank.transfers as f64 * longer);
    means.min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Use of the classes of links; those within groups are not told apart.
fn class_use(
    job: &IoJob,
    (fabric, links): (&Fabric, &PhaseLinks<'_>),
    times: &PhaseTimes,
    bytes: f64,
) -> Vec<ClassUse> {
    let simulated = simulated_bytes(fabric, links);
    let span = seconds(times.transfers.1 - times.transfers.0).max(1e-12);
    let node_links = (job.topology.interfaces() * 2) as u64;
    let between = fabric.network.rank3_links();
    // With detours, whose links are one resource, or without.
    let on_global: f64 = match fabric.network.all_between() {
        Some(all) => fabric.links.transport.carried(all),
        None => between.iter().map(|(link, _)| fabric.links.transport.carried(*link)).sum(),
    };
    let use_of = |class: &str, links: u64, bytes: f64, rate: f64| ClassUse {
        class: class.into(),
        links,
        bytes: bytes as u64,
        mean_utilisation: bytes / span / (rate * links.max(1) as f64),
        max_utilisation: 0.0,
        stall_seconds: 0.0,
        max_queue_bytes: 0,
    };
    let node_rate = job.node_link.0 as f64;
    let mut node = use_of("node", node_links, 2.0 * bytes, node_rate);
    let of_link =
        |(node, carried): (u32, f64)| carried / f64::from(job.topology.count_interfaces_of(node));
    let busiest = links.bytes_of_nodes(fabric).into_iter().map(of_link).fold(0.0, f64::max);
    node.max_utilisation = busiest / simulated * bytes / span / node_rate;
    let rate = job.network.global.rate.0 as f64;
    let mut global =
        use_of("global", job.topology.global_links(), on_global / simulated * bytes, rate);
    let carried = between.iter().map(|(link, count)| fabric.links.transport.carried(*link) / count);
    global.max_utilisation = carried.fold(0.0, f64::max) / simulated * bytes / span / rate;
    vec![node, global]
}

/// Bytes of the runs that have ended, at least 1.
fn simulated_bytes(fabric: &Fabric, links: &PhaseLinks<'_>) -> f64 {
    let carried = links.clients.iter().map(|link| fabric.links.transport.carried(*link));
    carried.sum::<f64>().max(1.0)
}

/// Bytes from group to group on direct links.
fn heat(job: &IoJob, (fabric, links): (&Fabric, &PhaseLinks<'_>), bytes: f64) -> Vec<Vec<u64>> {
    let groups = usize::from(job.topology.groups);
    let mut heat = vec![vec![0; groups]; groups];
    let simulated = simulated_bytes(fabric, links);
    for ((from, to, _, _), direct) in &fabric.network.direct {
        let carried = fabric.links.transport.carried(direct.link) / simulated * bytes;
        heat[usize::from(*from)][usize::from(*to)] += carried as u64;
    }
    heat
}

/// The limiting resource: the one that limited the runs for most of their time.
fn limit(
    job: &IoJob,
    transfers: &Transfers,
    (fabric, links): (&Fabric, &PhaseLinks<'_>),
    times: &PhaseTimes,
) -> Limit {
    let total: f64 = transfers.bottlenecks.values().sum::<f64>().max(1.0);
    let share_of = |resource: &str| {
        let own = |found: &Option<Resource>| found.map_or("client", Resource::name) == resource;
        let of = transfers.bottlenecks.iter().filter(|(found, _)| own(found));
        // An empty sum is -0.0.
        (of.map(|(_, time)| time).sum::<f64>() + 0.0) / total
    };
    let simulated = fabric.links.transport.now().max(1) as f64 / PS_PER_SECOND as f64;
    let mut evidence: Vec<ResourceUse> = [
        Resource::Client,
        Resource::NodeLink,
        Resource::LocalLink,
        Resource::GlobalLink,
        Resource::Server,
        Resource::Router,
        Resource::Ssd,
    ]
    .into_iter()
    .filter(|resource| *resource != Resource::Router || job.storage.is_parallel())
    .map(|resource| {
        resource_use(job, (fabric, links), resource, share_of(resource.name()), simulated)
    })
    .collect();
    for found in evidence.iter_mut().filter(|found| found.resource == Resource::Ssd.name()) {
        found.resource = job.devices().resource.into();
    }
    evidence.sort_by(|a, b| {
        let by_use = b.peak_utilisation.total_cmp(&a.peak_utilisation);
        b.time_share.total_cmp(&a.time_share).then(by_use)
    });
    let resource = evidence[0].resource.clone();
    let locks = transfers.bottlenecks.get(&Some(Resource::Lock)).copied().unwrap_or(0.0) / total;
    let alone = transfers.bottlenecks.get(&None).copied().unwrap_or(0.0) / total;
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let mean = spread(transfers, times).mean * 1e6;
    let because = match resource.as_str() {
        "client" if alone > 0.5 => format!(
            "{} of the transfers, of {mean:.0} us, are as fast as each process alone, with one call at a time",
            percent(alone)
        ),
        "server" if locks > 0.5 * share_of("server") => format!(
            "the locks of the files' objects limit the rate of {} of the transfers",
            percent(locks)
        ),
        _ => format!(
            "{} limits the rate of {} of the transfers, of {mean:.0} us",
            evidence[0].busiest,
            percent(evidence[0].time_share)
        ),
    };
    debug_assert!(job.tasks() > 0);
    Limit { resource, because, evidence }
}

/// Use of the links of one kind of resource, over the simulated time.
fn resource_use(
    job: &IoJob,
    (fabric, links): (&Fabric, &PhaseLinks<'_>),
    resource: Resource,
    time_share: f64,
    time: f64,
) -> ResourceUse {
    let mut found = ResourceUse {
        resource: resource.name().into(),
        busiest: String::new(),
        peak_utilisation: 0.0,
        mean_utilisation: 0.0,
        time_share,
    };
    let (mut sum, mut count) = (0.0, 0);
    let mut count_use = |bytes: f64, rate: f64, name: &dyn Fn() -> String| {
        if bytes > 0.0 {
            let used = (bytes / time / rate).min(1.0);
            (sum, count) = (sum + used, count + 1);
            if used > found.peak_utilisation {
                (found.peak_utilisation, found.busiest) = (used, name());
            }
        }
    };
    if resource == Resource::NodeLink && job.storage.is_parallel() {
        // They limit nothing there, and are no links of the flows: a target's node has several.
        for (node, bytes) in links.bytes_of_nodes(fabric) {
            count_use(bytes, job.links_rate(node), &|| format!("link of node {node}"));
        }
    } else {
        let of_servers = links.server_links(fabric);
        for part in links.server_parts.iter().filter(|part| part.resource == resource) {
            for &link in &of_servers {
                let unit = &fabric.links.units[link.index()].name;
                let node = unit.split_once(" of ").map_or("", |(_, node)| node);
                let name = || format!("{} of {node}", part.name);
                count_use(fabric.links.transport.carried(link), part.rate, &name);
            }
        }
        for link in links.links_of(resource, fabric) {
            let capacity = fabric.links.transport.solver().capacity(link);
            let name = || fabric.links.units[link.index()].name.clone();
            count_use(fabric.links.transport.carried(link), capacity, &name);
        }
    }
    found.mean_utilisation = if count > 0 { sum / f64::from(count) } else { 0.0 };
    found
}
