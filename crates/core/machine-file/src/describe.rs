//! A machine as text.

use crate::machine::{
    BurstBuffer, LinkSpec, Lustre, Machine, Network, Node, NodeKind, ProcessRates, SharedWrites,
    Structure,
};
use crate::node_map::kind_letter;
use forebay_units::human::{counted, grouped};
use forebay_units::{Bytes, Rate};
use std::fmt::Write;

/// Columns of a row of numbers.
const ROW: usize = 20;

/// Description of a machine: nodes, storage, links by class, bisection, node layout.
pub fn describe(machine: &Machine) -> String {
    let mut out = format!("{}: {}\n\n", machine.name, machine.title);
    totals(machine, &mut out);
    out.push('\n');
    links(machine, &mut out);
    out.push('\n');
    bisection(&machine.network, &mut out);
    out.push('\n');
    drawings(machine, &mut out);
    per_group(machine, &mut out);
    if !machine.notes.is_empty() {
        let _ = write!(out, "\nNotes\n");
        for line in machine.notes.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// The source of each number of a machine: key, value, source, and the measurement to which a
/// calibrated value was fitted.
pub fn list_sources(machine: &Machine) -> String {
    let width = |cell: fn(&crate::machine::Provenance) -> &str| {
        machine.provenance.iter().map(|p| cell(p).chars().count()).max().unwrap_or(0)
    };
    let (key, value) = (width(|p| &p.key), width(|p| &p.value));
    let mut out = String::new();
    for p in &machine.provenance {
        let calibrated =
            p.calibrated.as_ref().map(|row| format!(" [calibrated: {row}]")).unwrap_or_default();
        let settled = match p.settled_in_view.as_slice() {
            [] => String::new(),
            rows => format!(" [settled in view of: {}]", rows.join(", ")),
        };
        let base = p.base.as_ref().map(|file| format!(" [of {file}]")).unwrap_or_default();
        let source = &p.source;
        let _ = writeln!(
            out,
            "{:key$}  {:value$}  {source}{calibrated}{settled}{base}",
            p.key, p.value
        );
    }
    out
}

fn totals(machine: &Machine, out: &mut String) {
    let count = |kind| grouped(machine.count_nodes(kind) as u64);
    let _ = writeln!(
        out,
        "Nodes     {} compute, {} burst buffer, {} LNET, {} service",
        count(NodeKind::Compute),
        count(NodeKind::BurstBuffer),
        count(NodeKind::Lnet),
        count(NodeKind::Service)
    );
    routers(machine, out);
    interfaces(machine, out);
    if let Some(bb) = &machine.burst_buffer {
        storage(bb, machine.count_nodes(NodeKind::BurstBuffer) as u64, out);
    }
    clients(machine, out);
    if let Some(pfs) = &machine.pfs {
        let osts = if pfs.osts > 0 { format!(", {} OSTs", pfs.osts) } else { String::new() };
        let _ = writeln!(out, "PFS       {}: {}, {}{osts}", pfs.name, pfs.capacity, pfs.rate);
        if let Some(lustre) = &pfs.lustre {
            servers(lustre, out);
        }
    }
}

/// The routers, by the network's structure.
fn routers(machine: &Machine, out: &mut String) {
    let n = &machine.network;
    let cores = n.planes() * n.cores_per_plane;
    let all = grouped(u64::from(machine.routers() + cores));
    let (groups, leaves, spines) = (n.groups, n.routers_per_chassis, n.spines_per_group);
    let ports = n.node_ports_per_router;
    let _ = match n.structure {
        Structure::Dragonfly => writeln!(
            out,
            "Routers   {all} = {groups} groups x {} chassis x {leaves} slots, {ports} node ports each",
            n.chassis_per_group
        ),
        Structure::DragonflyPlus => writeln!(
            out,
            "Routers   {all} = {groups} groups x ({leaves} leaves + {spines} spines), {ports} node ports \
             a leaf"
        ),
        Structure::FatTree => writeln!(
            out,
            "Routers   {all} = {} x ({leaves} leaves + {spines} spines) + {} planes x {} cores, {ports} \
             node ports a leaf",
            counted(groups.into(), "group"),
            n.planes(),
            n.cores_per_plane
        ),
    };
}

/// The interfaces of nodes that have several, kind by kind.
fn interfaces(machine: &Machine, out: &mut String) {
    for (name, kind) in NodeKind::NAMES {
        let of_kind = |node: &&Node| node.kind == *kind && node.interfaces > 1;
        let Some(first) = machine.nodes.iter().find(of_kind) else { continue };
        let nodes = machine.nodes.iter().filter(of_kind).count() as u64;
        let _ = writeln!(
            out,
            "Interfaces {} of {} {name} nodes, on {} each",
            first.interfaces,
            grouped(nodes),
            counted(first.routers.into(), "router")
        );
    }
}

/// The parts of the parallel file system.
fn servers(l: &Lustre, out: &mut String) {
    let _ = writeln!(
        out,
        "          client {} write, {} read per node, {} in RPCs of {}; router {}; OSS {}, {} to {}",
        l.write_rate,
        l.read_rate,
        l.window,
        l.max_rpc,
        l.router_rate,
        l.server_rate,
        l.threads,
        counted(l.targets_per_server.into(), "OST")
    );
    let _ = writeln!(
        out,
        "          OST {} write, {} read; lock callback {}; {}, {} operations/s; {} x {}",
        l.target_write,
        l.target_read,
        l.lock_callback,
        counted(l.metadata_servers.into(), "metadata server"),
        l.metadata_rate,
        counted(l.stripe_count.into(), "stripe"),
        l.stripe
    );
    let rate = |rate: Option<Rate>| rate.map_or("that of the node".to_owned(), |r| r.to_string());
    let of = |r: &ProcessRates| format!("{} write, {} read", rate(r.write), rate(r.read));
    let of_types = l.process_of_types.iter().map(|(name, rates)| format!("{name}: {}", of(rates)));
    let processes: Vec<String> =
        (!l.process.is_unlimited()).then(|| of(&l.process)).into_iter().chain(of_types).collect();
    if !processes.is_empty() {
        let _ = writeln!(out, "          client for one process {}", processes.join("; "));
    }
}

/// The clients on the compute nodes, type by type.
fn clients(machine: &Machine, out: &mut String) {
    for (c, nodes) in machine.clients() {
        let name = match c.name.as_str() {
            "" => String::new(),
            name => format!("{name} ({}): ", grouped(nodes.len() as u64)),
        };
        let _ = writeln!(
            out,
            "Client    {name}{} write, {} read per node, {} requests; {} per call, \
             {} in flight of {}; collective buffer {}, an aggregator {}{}",
            c.write_rate,
            c.read_rate,
            c.requests_per_node,
            c.call_overhead,
            c.requests_in_flight,
            c.max_request,
            c.collective_buffer,
            c.aggregators.name().replace('-', " "),
            match c.shared_writes {
                SharedWrites::Parallel => "",
                SharedWrites::InTurn => "; its processes write to a shared file in turn",
            }
        );
    }
}

/// Capacity and peak rates of the burst buffer; a node's rate is the lower one of server and cards.
fn storage(bb: &BurstBuffer, nodes: u64, out: &mut String) {
    let cards = u64::from(bb.cards);
    let peak = |card: Rate| card.times(cards).min(bb.data_rate);
    let capacity =
        |nodes: u64| Bytes(bb.card_capacity.0.saturating_mul(cards).saturating_mul(nodes));
    let (read, write) = (peak(bb.card_read), peak(bb.card_write));
    let _ = writeln!(
        out,
        "Storage   {} in total{}; peak {} read, {} write",
        capacity(nodes),
        bb.granularity.map(|granule| format!(", in granules of {granule}")).unwrap_or_default(),
        read.times(nodes),
        write.times(nodes)
    );
    let _ = writeln!(
        out,
        "          per node: {} of {}; {} read, {} write; server {}, {} threads, {} per request",
        counted(bb.cards.into(), "card"),
        bb.card_capacity,
        read,
        write,
        bb.data_rate,
        bb.threads,
        bb.dispatch
    );
    let _ = writeln!(
        out,
        "          stripe {}, substripe {}, {} per file and node, flash stripe {}",
        bb.stripe,
        bb.substripe,
        counted(bb.objects_per_file.into(), "object"),
        bb.flash_stripe
    );
}

/// Number of links of each class in the whole machine; both directions count as one link.
fn link_counts(machine: &Machine) -> Vec<(&'static str, &LinkSpec, u64)> {
    let n = &machine.network;
    let (groups, chassis, slots) =
        (u64::from(n.groups), u64::from(n.chassis_per_group), u64::from(n.routers_per_chassis));
    let pairs = |k: u64| k * (k.max(1) - 1) / 2;
    let of_pair = u64::from(n.links_per_group_pair());
    let of_leaves = groups * slots * u64::from(n.spines_per_group);
    let (rank1, global) = match n.structure {
        Structure::Dragonfly => (groups * chassis * pairs(slots), pairs(groups) * of_pair),
        Structure::DragonflyPlus => (of_leaves, pairs(groups) * of_pair),
        Structure::FatTree => (of_leaves, groups * u64::from(n.planes()) * of_pair),
    };
    let rank2 = ("rank-2", &n.rank2, groups * slots * pairs(chassis));
    let interfaces = machine.nodes.iter().map(|node| u64::from(node.interfaces)).sum();
    let mut counts = vec![("node", &n.node, interfaces), ("rank-1", &n.rank1, rank1)];
    counts.extend(n.has_rank2().then_some(rank2));
    counts.push(("global", &n.global, global));
    counts
}

fn links(machine: &Machine, out: &mut String) {
    let n = &machine.network;
    let _ = writeln!(out, "Links (rates each way)");
    let _ = writeln!(
        out,
        "  {:<7}{:>9}  {:>5}  {:>14}  {:>14}  {:>8}  {:>9}  {:>16}",
        "class", "links", "tiles", "raw rate", "payload", "latency", "buffer", "payload together"
    );
    for (class, spec, count) in link_counts(machine) {
        let _ = writeln!(
            out,
            "  {class:<7}{:>9}  {:>5}  {:>14}  {:>14}  {:>8}  {:>9}  {:>16}",
            grouped(count),
            spec.tiles,
            spec.raw_rate,
            spec.rate,
            spec.latency,
            spec.buffer,
            spec.rate.times(count)
        );
    }
    let _ = match n.structure {
        Structure::Dragonfly | Structure::DragonflyPlus => writeln!(
            out,
            "  router {}, packets of {}; {} of {} to each other group, {} arrangement, {} of {} sockets ({})",
            n.router_traversal,
            n.packet,
            counted(n.cables_per_group_pair.into(), "cable"),
            counted(n.routers_per_cable.into(), "link"),
            n.arrangement.name(),
            u64::from(n.cables_per_group_pair) * u64::from(n.groups.max(1) - 1),
            n.cable_sockets_per_group,
            n.plugging.name()
        ),
        Structure::FatTree => writeln!(
            out,
            "  router {}, packets of {}; each spine linked to {} of its plane",
            n.router_traversal,
            n.packet,
            counted(n.cores_per_plane.into(), "core router")
        ),
    };
    let _ = writeln!(
        out,
        "  input queues {}; network interfaces interleave {} of a class",
        n.input_queues.name(),
        counted(n.nic.interleaved_messages.into(), "long message")
    );
    let r = &n.routing;
    let rank2 = match n.has_rank2() {
        true => format!(", {} (rank-2)", r.rank2_threshold),
        false => String::new(),
    };
    let over = match n.structure {
        Structure::Dragonfly => format!(" ({})", r.detour.name()),
        Structure::DragonflyPlus | Structure::FatTree => String::new(),
    };
    let _ = writeln!(
        out,
        "  routing {}, {} candidates, bias {}, detours{over} from {} (rank-1){rank2}, {} (global) queued",
        r.algorithm.name(),
        r.candidates,
        r.bias.name(),
        r.rank1_threshold,
        r.global_threshold
    );
}

/// The global links between two halves of the groups.
fn bisection(n: &Network, out: &mut String) {
    if n.groups < 2 {
        let _ = writeln!(out, "Bisection one group: no global links");
        return;
    }
    if n.structure == Structure::FatTree {
        let links = n.spines_per_group * n.cores_per_plane;
        let count = u64::from(n.groups / 2) * u64::from(links);
        let _ = writeln!(
            out,
            "Bisection {} each way = {} x {} x {}",
            n.global.rate.times(count),
            counted((n.groups / 2).into(), "group"),
            counted(links.into(), "link"),
            n.global.rate
        );
        return;
    }
    let (low, high) = (n.groups / 2, n.groups - n.groups / 2);
    let count = u64::from(low) * u64::from(high) * u64::from(n.links_per_group_pair());
    let _ = writeln!(
        out,
        "Bisection {} each way = {low} x {high} groups x {} x {}",
        n.global.rate.times(count),
        counted(n.links_per_group_pair().into(), "link"),
        n.global.rate
    );
}

/// The letter of each router of a group, chassis by chassis.
fn layout(machine: &Machine, group: u32, by_router: &[Vec<NodeKind>]) -> Vec<String> {
    let n = &machine.network;
    let first = group * machine.routers_per_group();
    (0..n.chassis_per_group)
        .map(|chassis| {
            (0..n.routers_per_chassis)
                .map(|slot| {
                    let router = first + chassis * n.routers_per_chassis + slot;
                    let kinds = by_router.get(router as usize).map_or(&[][..], Vec::as_slice);
                    match kinds {
                        [] => '.',
                        [one, rest @ ..] if rest.iter().all(|kind| kind == one) => {
                            kind_letter(*one)
                        }
                        _ => '+',
                    }
                })
                .collect()
        })
        .collect()
}

/// Each distinct group layout, drawn once, with the groups that have it.
fn drawings(machine: &Machine, out: &mut String) {
    const MOST: usize = 3;
    let mut by_router = vec![Vec::new(); machine.routers() as usize];
    for node in &machine.nodes {
        for router in node.router..node.router + u32::from(node.routers) {
            if let Some(kinds) = by_router.get_mut(router as usize) {
                kinds.push(node.kind);
            }
        }
    }
    let mut kinds: Vec<(Vec<String>, Vec<u32>)> = Vec::new();
    for group in 0..machine.network.groups {
        let drawn = layout(machine, group, &by_router);
        match kinds.iter_mut().find(|(known, _)| *known == drawn) {
            Some((_, groups)) => groups.push(group),
            None => kinds.push((drawn, vec![group])),
        }
    }
    for (rows, groups) in kinds.iter().take(MOST) {
        let what = match machine.network.structure {
            Structure::Dragonfly => "chassis by slot",
            Structure::DragonflyPlus | Structure::FatTree => "leaf routers",
        };
        let _ = writeln!(out, "{} ({what})", group_list(groups));
        let _ = write!(out, "      ");
        for slot in 0..machine.network.routers_per_chassis {
            let _ = write!(out, "{}", slot % 10);
        }
        out.push('\n');
        for (chassis, row) in rows.iter().enumerate() {
            let _ = writeln!(out, "  {chassis:>2}  {row}");
        }
    }
    if kinds.len() > MOST {
        let left: usize = kinds.iter().skip(MOST).map(|(_, groups)| groups.len()).sum();
        let _ = writeln!(out, "... and {left} more, filled in {} other ways", kinds.len() - MOST);
    }
    let _ = writeln!(out, "  C compute  B burst buffer  L LNET  S service  + mixed  . empty\n");
}

/// `Groups 0-3, 7` for 0, 1, 2, 3, 7.
fn group_list(groups: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &group in groups {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == group => *last = group,
            _ => runs.push((group, group)),
        }
    }
    let texts: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    let word = if groups.len() == 1 { "Group" } else { "Groups" };
    format!("{word} {}", texts.join(", "))
}

/// Number of burst-buffer nodes of each group.
fn per_group(machine: &Machine, out: &mut String) {
    if machine.burst_buffer.is_none() {
        let _ = writeln!(out, "No shared burst buffer");
        return;
    }
    let mut counts = vec![0u32; machine.network.groups as usize];
    for node in machine.nodes.iter().filter(|n| n.kind == NodeKind::BurstBuffer) {
        if let Some(count) = counts.get_mut((node.router / machine.routers_per_group()) as usize) {
            *count += 1;
        }
    }
    let _ = writeln!(out, "Burst buffers by group");
    let _ = write!(out, "       ");
    for column in 0..ROW.min(counts.len()) {
        let _ = write!(out, " {:>3}", format!("+{column}"));
    }
    out.push('\n');
    for (row, counts) in counts.chunks(ROW).enumerate() {
        let texts: Vec<String> = counts.iter().map(|c| format!("{c:>3}")).collect();
        let _ = writeln!(out, "  {:>4}  {}", row * ROW, texts.join(" "));
    }
}
