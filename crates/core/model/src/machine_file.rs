//! The text of a machine file to a [`Machine`].

use crate::document::{At, Document};
use crate::machine::{
    Arrangement, BurstBuffer, Client, LinkSpec, Machine, Network, NodeKind, ParallelFileSystem,
    Plugging, Routing, RoutingSpec, SourceFile,
};
use crate::placement;
use crate::problem::{MachineError, Problem};
use crate::section::Section;
use crate::units::{Bytes, Time};
use std::cell::RefCell;
use toml::de::DeTable;

/// Largest number of routers that a machine may have.
pub const MAX_ROUTERS: u32 = 1_000_000;

/// Names of the arrangements in machine files.
pub const ARRANGEMENTS: [(&str, Arrangement); 3] = [
    ("absolute", Arrangement::Absolute),
    ("relative", Arrangement::Relative),
    ("circulant", Arrangement::Circulant),
];

/// Names of the ways to plug rank-3 links in machine files.
const PLUGGINGS: [(&str, Plugging); 2] = [
    ("in-order", Plugging::InOrder),
    ("spread", Plugging::Spread),
];

/// Names of the routing algorithms in machine files.
pub const ROUTINGS: [(&str, Routing); 4] = [
    ("minimal", Routing::Minimal),
    ("valiant", Routing::Valiant),
    ("ugal-l", Routing::UgalL),
    ("progressive-adaptive", Routing::ProgressiveAdaptive),
];

/// Any size but none.
const SOME_BYTES: std::ops::RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 60);

impl Machine {
    /// Reads a machine from the text of its file. `file` is named in errors and gives the
    /// machine its name (`machines/toy.toml`: `toy`); `map_loader` returns the text of a node
    /// map that the file names, or why it cannot.
    ///
    /// # Errors
    /// Everything that is wrong with the file, not only the first thing.
    pub fn parse(
        file: &str,
        text: &str,
        map_loader: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Machine, MachineError> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problems = errors.iter().map(|error| {
                let offset = error.span().map_or(0, |span| span.start);
                let message = error.message().replace('\n', ", ");
                Problem::at(
                    file,
                    text,
                    offset,
                    format!("not TOML: {message}"),
                    "a TOML document",
                )
            });
            return Err(MachineError {
                problems: problems.collect(),
            });
        }
        let doc = Document::new(file, text);
        let files = RefCell::new(vec![source_file(file, text)]);
        let machine = read(&doc, root.get_ref(), &|map| {
            let text = map_loader(map)?;
            files.borrow_mut().push(source_file(map, &text));
            Ok(text)
        });
        if doc.is_sound() {
            // After another problem, parts of the file may not have been read.
            doc.check_unused_sources();
        }
        let (problems, provenance) = doc.finish();
        match machine {
            Some(machine) if problems.is_empty() => Ok(Machine {
                provenance,
                files: files.into_inner(),
                ..machine
            }),
            _ if problems.is_empty() => {
                Err(Problem::whole(file, "unreadable", "a machine file").into())
            }
            _ => Err(MachineError { problems }),
        }
    }
}

fn source_file(path: &str, text: &str) -> SourceFile {
    let name = path.rsplit('/').next().unwrap_or(path);
    SourceFile {
        name: name.to_string(),
        text: text.to_string(),
    }
}

fn read(
    doc: &Document<'_>,
    table: &DeTable<'_>,
    map_loader: &dyn Fn(&str) -> Result<String, String>,
) -> Option<Machine> {
    let root = Section::root(doc, table);
    doc.read_sources(&root);
    let title = root.text("title", "one line that says what machine this is");
    let notes = root.text("notes", "choices made, and where sources disagree");
    let network = root.section("network").and_then(read_network);
    let client = root.section("client").and_then(read_client);
    let burst_buffer_section = root.optional_section("burst_buffer");
    let burst_buffer_span = burst_buffer_section.as_ref().map(|s| s.span.start);
    let burst_buffer = burst_buffer_section.map(read_burst_buffer);
    let pfs = root.optional_section("pfs").map(read_pfs);
    let placement = root.section("placement");
    let placement_span = placement.as_ref().map_or(0, |s| s.span.start);
    let nodes = match (&network, placement) {
        (Some(network), Some(placement)) => placement::read(&placement, network, map_loader),
        // The nodes cannot be checked against an unknown network.
        _ => None,
    };
    root.finish();
    let nodes = nodes?;
    let burst_buffers = nodes
        .iter()
        .filter(|n| n.kind == NodeKind::BurstBuffer)
        .count();
    match burst_buffer_span {
        None if burst_buffers > 0 => doc.problem(
            placement_span,
            format!(
                "{burst_buffers} burst-buffer nodes are placed, but nothing says what they are"
            ),
            "a table `[burst_buffer]`",
        ),
        Some(offset) if burst_buffers == 0 => doc.problem(
            offset,
            "`burst_buffer` is described, but no burst-buffer node is placed",
            "burst-buffer nodes in `[placement]`, or no `[burst_buffer]`",
        ),
        _ => {}
    }
    if !nodes.iter().any(|n| n.kind == NodeKind::Compute) {
        doc.problem(
            placement_span,
            "the machine has no compute node",
            "at least one node of kind compute in `[placement]`",
        );
    }
    if !doc.is_sound() {
        return None;
    }
    let stem = doc.file.rsplit(['/', '\\']).next().unwrap_or(doc.file);
    Some(Machine {
        name: stem.strip_suffix(".toml").unwrap_or(stem).to_owned(),
        title: title?.value,
        notes: notes?.value.trim().to_owned(),
        network: network?,
        nodes,
        burst_buffer: match burst_buffer {
            Some(read) => Some(read?),
            None => None,
        },
        client: client?,
        pfs: match pfs {
            Some(read) => Some(read?),
            None => None,
        },
        provenance: Vec::new(),
        files: Vec::new(),
    })
}

fn read_network(section: Section<'_, '_>) -> Option<Network> {
    let doc = section.doc;
    let groups = section.integer("groups", 1..=10_000u32);
    let chassis = section.integer("chassis_per_group", 1..=1_000u32);
    let routers = section.integer("routers_per_chassis", 1..=1_000u32);
    let node_ports = section.integer("node_ports_per_router", 1..=256u32);
    let sockets = section.integer("global_ports_per_group", 0..=1_000_000u32);
    let pair = section.integer("links_per_group_pair", 0..=10_000u32);
    let arrangement = section.choice("arrangement", &ARRANGEMENTS);
    let plugging = section.choice("plugging", &PLUGGINGS);
    let router_traversal = section.time("router_traversal", Time::ZERO);
    let packet = section.bytes("packet", Bytes(64)..=Bytes::mib(1));
    let packet_size = packet.as_ref().map(|p| p.value);
    let link = |name: &str, least_latency| {
        let link = section.section(name)?;
        read_link(link, least_latency, packet_size)
    };
    let node = link("node", Time::ZERO);
    let rank1 = link("rank1", Time::ZERO);
    let rank2 = link("rank2", Time::ZERO);
    let global = link("global", Time(1));
    let routing = section.section("routing").and_then(read_routing);
    section.finish();
    let (groups, chassis, routers) = (groups?, chassis?, routers?);
    let all = u64::from(groups.value) * u64::from(chassis.value) * u64::from(routers.value);
    if all > u64::from(MAX_ROUTERS) {
        doc.problem(
            groups.span.start,
            format!(
                "{} groups of {} x {} routers are {all} routers",
                groups.value, chassis.value, routers.value
            ),
            format!("at most {MAX_ROUTERS} routers"),
        );
        return None;
    }
    let (sockets, pair) = (sockets?, pair?);
    check_global_links(doc, groups.value, &sockets, &pair);
    Some(Network {
        groups: groups.value,
        chassis_per_group: chassis.value,
        routers_per_chassis: routers.value,
        node_ports_per_router: node_ports?.value,
        global_ports_per_group: sockets.value,
        links_per_group_pair: pair.value,
        arrangement: arrangement?.value,
        plugging: plugging?.value,
        router_traversal: router_traversal?.value,
        packet: packet?.value,
        node: node?,
        rank1: rank1?,
        rank2: rank2?,
        global: global?,
        routing: routing?,
    })
}

/// Every two groups are joined, and the sockets of a group suffice.
fn check_global_links(doc: &Document<'_>, groups: u32, sockets: &At<u32>, pair: &At<u32>) {
    let others = groups.saturating_sub(1);
    let needed = u64::from(pair.value) * u64::from(others);
    if needed > u64::from(sockets.value) {
        let most = sockets.value / others.max(1);
        let expected = if most == 0 {
            format!("global_ports_per_group of at least {needed}, or fewer groups")
        } else {
            format!(
                "links_per_group_pair of at most {most}, or global_ports_per_group of at least {needed}"
            )
        };
        doc.problem(
            pair.span.start,
            format!(
                "`network.links_per_group_pair` is {}: with {others} other groups this needs \
                 {needed} sockets of the {} a group has",
                pair.value, sockets.value
            ),
            expected,
        );
    }
    if others > 0 && pair.value == 0 {
        doc.problem(
            pair.span.start,
            format!("`network.links_per_group_pair` is 0, so {groups} groups are not joined"),
            "at least 1",
        );
    }
}

fn read_link(
    section: Section<'_, '_>,
    least_latency: Time,
    packet: Option<Bytes>,
) -> Option<LinkSpec> {
    let doc = section.doc;
    let tiles = section.integer("tiles", 1..=64u32);
    let tile_rate = section.rate("tile_rate");
    let latency = section.time("latency", least_latency);
    let buffer = section.bytes("buffer", Bytes(1)..=Bytes::mib(1024));
    if let (Some(buffer), Some(packet)) = (&buffer, packet)
        && buffer.value < packet
    {
        doc.problem(
            buffer.span.start,
            format!(
                "the buffer of {} cannot hold one packet of {packet}",
                buffer.value
            ),
            format!("a buffer of at least {packet}, or smaller packets"),
        );
    }
    section.finish();
    let tiles = tiles?.value;
    Some(LinkSpec {
        rate: tile_rate?.value.times(u64::from(tiles)),
        tiles,
        latency: latency?.value,
        buffer: buffer?.value,
    })
}

fn read_routing(section: Section<'_, '_>) -> Option<RoutingSpec> {
    let algorithm = section.choice("algorithm", &ROUTINGS);
    let candidates = section.integer("candidates", 1..=4u32);
    let weight = section.integer("nonminimal_weight_percent", 1..=100_000u32);
    let threshold = section.bytes("threshold", Bytes::ZERO..=Bytes::mib(1024));
    section.finish();
    Some(RoutingSpec {
        algorithm: algorithm?.value,
        candidates: candidates?.value,
        nonminimal_weight_percent: weight?.value,
        threshold: threshold?.value,
    })
}

fn read_client(section: Section<'_, '_>) -> Option<Client> {
    let node_rate = section.rate("node_rate");
    let call_overhead = section.time("call_overhead", Time::ZERO);
    let max_request = section.bytes("max_request", SOME_BYTES);
    let in_flight = section.integer("requests_in_flight", 1..=4_096u32);
    let control = section.bytes("control_message", Bytes(1)..=Bytes::mib(1));
    let collective_buffer = section.bytes("collective_buffer", SOME_BYTES);
    let copy_rate = section.rate("copy_rate");
    section.finish();
    Some(Client {
        node_rate: node_rate?.value,
        call_overhead: call_overhead?.value,
        max_request: max_request?.value,
        requests_in_flight: in_flight?.value,
        control_message: control?.value,
        collective_buffer: collective_buffer?.value,
        copy_rate: copy_rate?.value,
    })
}

fn read_burst_buffer(section: Section<'_, '_>) -> Option<BurstBuffer> {
    let doc = section.doc;
    let data_rate = section.rate("data_rate");
    let dispatch = section.time("dispatch", Time::ZERO);
    let threads = section.integer("threads", 1..=65_536u32);
    let lock_hold = section.time("lock_hold", Time::ZERO);
    let command_gap = section.time("command_gap", Time::ZERO);
    let metadata_rate = section.integer("metadata_rate", 1..=1_000_000_000u32);
    let cards = section.integer("cards", 1..=256u32);
    let controllers = section.integer("controllers_per_card", 1..=64u32);
    let channels = section.integer("channels_per_controller", 1..=1_024u32);
    let card_read = section.rate("card_read");
    let card_write = section.rate("card_write");
    let card_read_iops = section.integer("card_read_iops", 1..=1_000_000_000u64);
    let card_write_iops = section.integer("card_write_iops", 1..=1_000_000_000u64);
    let read_latency = section.time("read_latency", Time::ZERO);
    let write_latency = section.time("write_latency", Time::ZERO);
    let capacity = section.bytes("card_capacity", SOME_BYTES);
    let stripe = section.bytes("stripe", SOME_BYTES);
    let substripe = section.bytes("substripe", SOME_BYTES);
    let objects = section.integer("objects_per_file", 1..=1_024u32);
    section.finish();
    let (stripe, substripe, capacity) = (stripe?, substripe?, capacity?);
    if stripe.value.0 % substripe.value.0 != 0 {
        doc.problem(
            substripe.span.start,
            format!(
                "a stripe of {} is not made of substripes of {}",
                stripe.value, substripe.value
            ),
            "a substripe that divides the stripe",
        );
    }
    if capacity.value < stripe.value {
        doc.problem(
            capacity.span.start,
            format!(
                "a card of {} cannot hold one stripe of {}",
                capacity.value, stripe.value
            ),
            "a capacity of at least one stripe",
        );
    }
    Some(BurstBuffer {
        data_rate: data_rate?.value,
        dispatch: dispatch?.value,
        threads: threads?.value,
        lock_hold: lock_hold?.value,
        command_gap: command_gap?.value,
        metadata_rate: metadata_rate?.value,
        cards: cards?.value,
        controllers_per_card: controllers?.value,
        channels_per_controller: channels?.value,
        card_read: card_read?.value,
        card_write: card_write?.value,
        card_read_iops: card_read_iops?.value,
        card_write_iops: card_write_iops?.value,
        read_latency: read_latency?.value,
        write_latency: write_latency?.value,
        card_capacity: capacity.value,
        stripe: stripe.value,
        substripe: substripe.value,
        objects_per_file: objects?.value,
    })
}

fn read_pfs(section: Section<'_, '_>) -> Option<ParallelFileSystem> {
    let name = section.text("name", "Lustre");
    let rate = section.rate("rate");
    let capacity = section.bytes("capacity", SOME_BYTES);
    let osts = section
        .has("osts")
        .then(|| section.integer("osts", 1..=1_000_000u32));
    section.finish();
    Some(ParallelFileSystem {
        name: name?.value,
        rate: rate?.value,
        capacity: capacity?.value,
        osts: match osts {
            Some(read) => read?.value,
            None => 0,
        },
    })
}
