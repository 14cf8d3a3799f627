//! The limiting resource of a phase, and the evidence for it.
//!
//! The requests of a transfer wait: at servers (dispatch, threads, data path, locks), for flash,
//! for the client of the node, and on the network, where data take longer than the node's link needs for them. If waiting is
//! a small part of a transfer's time, the processes themselves are the limit, each with one
//! transfer in flight. Otherwise the limit is the resource with most of the waiting; on the
//! network, the class of the busiest link. The transfers examined are those of the group that
//! ended last: it determines the duration of the phase.

use crate::io::{Devices, IoJob, ServerUsage, Waits};
use crate::links::{Links, link_name};
use crate::phase_totals::PhaseTotals;
use crate::results::{Limit, ResourceUse};
use crate::storage::PathKind;
use forebay_machine_file::machine::LinkClass;
use forebay_network::Topology;
use forebay_units::Bytes;
use forebay_workload::ior::Access;
use std::collections::VecDeque;

/// Below this share of waiting in a transfer's time, the processes are the limit.
const MIN_WAITING_SHARE: f64 = 0.15;

/// Below this utilisation a server has no part that requests could wait for but its threads.
const MAX_IDLE_SERVER: f64 = 0.5;

/// Below this utilisation flash is not what the threads of servers wait for: there are too few threads.
const MIN_BUSY_FLASH: f64 = 0.5;

/// Utilisation of one kind of resource: the busiest unit, and the mean of all that did any work.
struct Utilisation {
    busiest: String,
    peak: f64,
    mean: f64,
}

impl Utilisation {
    fn of_units(units: impl Iterator<Item = (f64, String)>) -> Utilisation {
        let mut all = Utilisation { busiest: String::new(), peak: 0.0, mean: 0.0 };
        let (mut sum, mut count) = (0.0, 0);
        for (share, name) in units.filter(|(share, _)| *share > 0.0) {
            sum += share;
            count += 1;
            if share > all.peak {
                (all.peak, all.busiest) = (share, name);
            }
        }
        all.mean = if count > 0 { sum / f64::from(count) } else { 0.0 };
        all
    }

    fn resource_use(self, resource: &str, time_share: f64) -> ResourceUse {
        ResourceUse {
            resource: resource.into(),
            busiest: self.busiest,
            peak_utilisation: self.peak,
            mean_utilisation: self.mean,
            time_share,
        }
    }
}

/// Finds the limit of a phase.
pub(crate) fn find_limit(job: &IoJob, totals: &PhaseTotals) -> Limit {
    let counts = &totals.counts;
    let span = counts.transfers.length() as f64;
    let mean = totals.last.time as f64 / totals.last.operations.max(1) as f64;
    if span == 0.0 || mean == 0.0 {
        return Limit {
            resource: "client".into(),
            because: "nothing was transferred".into(),
            evidence: Vec::new(),
        };
    }
    let shares = Shares::new(job, totals, mean);
    let link = |class: &[LinkClass]| link_use(&job.topology, &totals.links, class, span);
    let (node, local, global) = (
        link(&[LinkClass::Node]),
        link(&[LinkClass::Rank1, LinkClass::Rank2]),
        link(&[LinkClass::Global]),
    );
    let peaks = [node.peak, local.peak, global.peak];
    let network = |index: usize| {
        let busiest = (0..3).max_by(|&a, &b| peaks[a].total_cmp(&peaks[b]));
        if busiest == Some(index) { shares.network } else { 0.0 }
    };
    let servers = server_use(job, totals, span);
    let ssd = ssd_use(job, &counts.servers, span);
    let devices = job.devices();
    let client = Utilisation {
        busiest: "each process, with one transfer in flight".into(),
        peak: 1.0,
        mean: (counts.time as f64 / (span * f64::from(job.tasks()))).min(1.0),
    };
    // Requests that wait for threads wait for the resource that the threads wait for: locks, or the
    // busier one of flash and the server; for the threads themselves if both are idle half of the time.
    let routers = job.storage.is_parallel().then(|| router_use(job, totals, span));
    let busier = routers.as_ref().map_or(servers.mean, |routers| routers.mean.max(servers.mean));
    let flash_binds = ssd.mean >= busier && shares.ssd >= shares.lock && ssd.peak >= MIN_BUSY_FLASH;
    let (server_share, ssd_share) = if flash_binds {
        (shares.lock, shares.ssd + shares.server)
    } else {
        (shares.lock + shares.server, shares.ssd)
    };
    // Requests that wait for a data path wait for the busier one.
    let routers_bind = routers.as_ref().is_some_and(|routers| routers.peak > servers.peak);
    let own = if routers_bind { shares.lock } else { server_share };
    let routers = routers.map(|routers| (routers, server_share - own));
    let server_share = own;
    let mut evidence = vec![
        client.resource_use("client", 1.0 - shares.waiting() + shares.client),
        node.resource_use("node-link", network(0)),
        local.resource_use("local-link", network(1)),
        global.resource_use("global-link", network(2)),
        servers.resource_use("server", server_share),
        ssd.resource_use(devices.resource, ssd_share),
    ];
    evidence.extend(routers.map(|(routers, share)| routers.resource_use("lnet-router", share)));
    let resource = if shares.waiting() < MIN_WAITING_SHARE {
        "client".to_string()
    } else {
        let waits = evidence[1..].iter();
        let most = waits.max_by(|a, b| a.time_share.total_cmp(&b.time_share));
        let most = most.filter(|e| e.time_share >= shares.client);
        most.map_or("client".into(), |e| e.resource.clone())
    };
    let because = explain(&resource, &evidence, &shares, mean, devices);
    evidence.sort_by(|a, b| {
        b.time_share
            .total_cmp(&a.time_share)
            .then(b.peak_utilisation.total_cmp(&a.peak_utilisation))
    });
    Limit { resource, because, evidence }
}

fn explain(
    resource: &str,
    evidence: &[ResourceUse],
    shares: &Shares,
    mean: f64,
    devices: Devices,
) -> String {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let us = mean / 1e6;
    let Some(limit) = evidence.iter().find(|e| e.resource == resource) else {
        return String::new();
    };
    match resource {
        "client" if shares.client >= MIN_WAITING_SHARE => format!(
            "{} of a transfer's {us:.0} us are spent waiting for the client of the node, which moves the data of all its processes",
            percent(shares.client)
        ),
        "client" => format!(
            "a transfer takes {us:.0} us, {} of which it would take alone: each process has one in flight and waits little for shared resources",
            percent(1.0 - shares.waiting())
        ),
        "server" if shares.lock >= shares.server => format!(
            "{} of a transfer's {us:.0} us are spent waiting for the locks of the files' objects",
            percent(shares.lock)
        ),
        "server" if shares.lock > shares.ssd && limit.mean_utilisation < MAX_IDLE_SERVER => {
            format!(
                "{} of a transfer's {us:.0} us are spent waiting for threads of servers, which wait for the locks of the files' objects",
                percent(limit.time_share)
            )
        }
        "server" if limit.mean_utilisation < MAX_IDLE_SERVER => format!(
            "{} of a transfer's {us:.0} us are spent waiting for threads of servers: there are too few to keep {} busy",
            percent(limit.time_share),
            devices.word
        ),
        "server" => format!(
            "{} of a transfer's {us:.0} us are spent waiting for servers, which are busy {} of the time",
            percent(limit.time_share),
            percent(limit.mean_utilisation)
        ),
        "ssd" | "ost" => format!(
            "{} of a transfer's {us:.0} us are spent waiting for {}, which {} busy {} of the time",
            percent(limit.time_share),
            devices.word,
            if devices.word == "disks" { "are" } else { "is" },
            percent(limit.mean_utilisation)
        ),
        "lnet-router" => format!(
            "{} of a transfer's {us:.0} us are spent waiting for the LNET routers, the busiest of which ({}) is busy {} of the time",
            percent(limit.time_share),
            limit.busiest,
            percent(limit.peak_utilisation)
        ),
        _ => format!(
            "{} of a transfer's {us:.0} us are spent waiting on the network, whose busiest link ({}) is in use {} of the time",
            percent(limit.time_share),
            limit.busiest,
            percent(limit.peak_utilisation)
        ),
    }
}

/// Shares of a transfer's mean time spent waiting, each 0 to 1.
struct Shares {
    server: f64,
    lock: f64,
    ssd: f64,
    network: f64,
    /// For the data path of the node's client.
    client: f64,
}

impl Shares {
    fn new(job: &IoJob, totals: &PhaseTotals, mean: f64) -> Shares {
        let requests = totals.last.requests.max(1) as f64;
        // The requests of a transfer that are in flight together wait concurrently: they delay the
        // transfer by their mean. The aggregators make the requests of collective transfers.
        let processes = match job.is_collective() {
            true => f64::from(job.tasks()) / f64::from(job.aggregators.count()),
            false => 1.0,
        };
        let of_a_transfer = requests * processes / totals.last.operations.max(1) as f64;
        let rounds = (of_a_transfer / f64::from(job.client.requests_in_flight)).max(1.0);
        let per_transfer = |sum: u64| sum as f64 / requests * rounds / mean;
        let Waits { server, lock, ssd, network, client } = totals.last.waits;
        let own = own_wait(job, totals.counts.access) * rounds;
        let mut shares = Shares {
            server: (per_transfer(server) - own / mean).max(0.0),
            lock: per_transfer(lock),
            ssd: per_transfer(ssd),
            network: per_transfer(network),
            client: per_transfer(client),
        };
        // Means of overlapping waits can add up to more than 1.
        let all = shares.waiting();
        if all > 1.0 {
            shares = Shares {
                server: shares.server / all,
                lock: shares.lock / all,
                ssd: shares.ssd / all,
                network: shares.network / all,
                client: shares.client / all,
            };
        }
        shares
    }

    fn waiting(&self) -> f64 {
        self.server + self.lock + self.ssd + self.network + self.client
    }
}

/// Mean wait, ps, of a request of a lone transfer: requests to one server that are in flight
/// together wait for each other on its data path.
fn own_wait(job: &IoJob, access: Access) -> f64 {
    let first = job.pattern.transfer(0, access, 0);
    let bytes = match job.is_collective() {
        true => {
            let processes = job.tasks().div_ceil(job.aggregators.count());
            job.client.collective_buffer.0.min(first.bytes * u64::from(processes))
        }
        false => first.bytes,
    };
    let in_flight = job.client.requests_in_flight as usize;
    let mut latest: VecDeque<(u32, u64)> = VecDeque::new();
    let (mut waited, mut requests) = (0, 0);
    for piece in job.pieces(first.offset, bytes) {
        let server = job.server_of(first.file, piece.offset);
        waited += latest.iter().filter(|(s, _)| *s == server).map(|(_, time)| time).sum::<u64>();
        requests += 1;
        if latest.len() + 1 == in_flight.max(1) {
            latest.pop_front();
        }
        if in_flight > 1 {
            latest.push_back((server, job.burst_buffer.data_rate.time_for(Bytes(piece.bytes)).0));
        }
    }
    waited as f64 / f64::from(requests.max(1))
}

fn link_use(topology: &Topology, links: &Links, classes: &[LinkClass], span: f64) -> Utilisation {
    let mut busy = Utilisation::of_units(
        links
            .iter()
            .flatten()
            .filter(|l| classes.contains(&l.class))
            .map(|l| (l.busy as f64 / span, String::new())),
    );
    // Name only the busiest link: a name costs a search.
    let busiest = (0u16..)
        .zip(links)
        .flat_map(|(group, links)| links.iter().map(move |l| (group, l)))
        .filter(|(_, l)| classes.contains(&l.class))
        .max_by_key(|(group, l)| (l.busy, std::cmp::Reverse((*group, l.router, l.port))));
    if let Some((group, link)) = busiest.filter(|(_, l)| l.busy > 0) {
        busy.busiest = link_name(topology, group, link);
    }
    busy
}

/// Use of the servers. Metadata operations happen during the whole phase, everything else during
/// its transfers (`span`).
fn server_use(job: &IoJob, totals: &PhaseTotals, span: f64) -> Utilisation {
    let counts = &totals.counts;
    let phase = counts.ended.saturating_sub(counts.begun).max(1) as f64;
    Utilisation::of_units(counts.servers.iter().map(|&(node, usage)| {
        let parts = [
            (share(usage.dispatch, span), "dispatch"),
            (share(usage.inbound, span), "data path in"),
            (share(usage.outbound, span), "data path out"),
            (share(usage.metadata, phase), "metadata"),
        ];
        let busiest = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let (busy, part) = busiest.unwrap_or((0.0, ""));
        let group = job.topology.location(node).group;
        (busy, format!("{part} of node {node}, group {group}"))
    }))
}

/// Use of the LNET routers.
fn router_use(job: &IoJob, totals: &PhaseTotals, span: f64) -> Utilisation {
    let places = job.storage.paths();
    let of_routers = totals.counts.paths.iter().filter_map(|(number, busy)| {
        let place = &places[*number as usize];
        let group = job.topology.location(place.node).group;
        (place.kind == PathKind::Router).then(|| {
            (share(busy.0.max(busy.1), span), format!("node {}, group {group}", place.node))
        })
    });
    Utilisation::of_units(of_routers)
}

/// Busy share of a span, at most 1: the end of the last transfer's work at a server, such as a
/// flash channel's pause after a command, may be after its end.
fn share(busy: u64, span: f64) -> f64 {
    (busy as f64 / span).min(1.0)
}

fn ssd_use(job: &IoJob, servers: &[(u32, ServerUsage)], span: f64) -> Utilisation {
    let make = &job.burst_buffer;
    let channels = make.cards * make.controllers_per_card * make.channels_per_controller;
    Utilisation::of_units(servers.iter().map(|&(node, usage)| {
        let group = job.topology.location(node).group;
        (
            share(usage.channels, f64::from(channels) * span),
            format!("{} of node {node}, group {group}", job.devices().word),
        )
    }))
}
