//! The network in a machine file: groups, routers, links, routing.

use crate::document::{Document, Located};
use crate::machine::{
    AdaptiveBias, Arrangement, LONGEST_PACKET_TIME, LinkSpec, MAX_PORTS, Network, NicSpec,
    Plugging, Routing, RoutingSpec,
};
use crate::section::Section;
use forebay_units::{Bytes, Rate, Time};

/// Maximum number of routers of a machine.
pub const MAX_ROUTERS: u32 = 1_000_000;

/// Parses `[network]` and its subtables.
pub(super) fn read_network(section: Section<'_, '_>) -> Option<Network> {
    let doc = section.doc;
    let groups = section.integer("groups", 1..=10_000u32);
    let chassis = section.integer("chassis_per_group", 1..=1_000u32);
    let routers = section.integer("routers_per_chassis", 1..=1_000u32);
    let node_ports = section.integer("node_ports_per_router", 1..=256u32);
    let sockets = section.integer("cable_sockets_per_group", 0..=1_000_000u32);
    let pair = section.integer("cables_per_group_pair", 0..=10_000u32);
    let per_cable = section.integer("routers_per_cable", 1..=16u32);
    let arrangement = section.choice("arrangement", Arrangement::NAMES);
    let plugging = section.choice("plugging", Plugging::NAMES);
    let router_traversal = section.time("router_traversal", Time::ZERO);
    let packet = section.bytes("packet", Bytes(64)..=Bytes::mib(1));
    let packet_size = packet.as_ref().map(|p| p.value);
    let link = |name: &str, least_latency| {
        let link = section.required_section(name)?;
        read_link(link, least_latency, packet_size)
    };
    let nic = section.optional_section("nic").map_or(Some(NicSpec::default()), read_nic);
    let node = link("node", Time::ZERO);
    let rank1 = link("rank1", Time::ZERO);
    let rank2 = link("rank2", Time::ZERO);
    let global = link("global", Time(1));
    let routing = section.required_section("routing").and_then(read_routing);
    section.report_unused_keys();
    let (groups, chassis, routers) = (groups?, chassis?, routers?);
    let all = u64::from(groups.value) * u64::from(chassis.value) * u64::from(routers.value);
    if all > u64::from(MAX_ROUTERS) {
        return doc.refuse(
            groups.span.start,
            format!(
                "{} groups of {} x {} routers are {all} routers",
                groups.value, chassis.value, routers.value
            ),
            format!("at most {MAX_ROUTERS} routers"),
        );
    }
    let (sockets, pair) = (sockets?, pair?);
    check_cables(doc, groups.value, &sockets, &pair);
    let per_cable = per_cable?;
    if routers.value % per_cable.value != 0 {
        return doc.refuse(
            per_cable.span.start,
            format!(
                "`network.routers_per_cable` is {}: the {} routers of a chassis cannot be divided \
                 into sets of {}",
                per_cable.value, routers.value, per_cable.value
            ),
            "a divisor of routers_per_chassis",
        );
    }
    let network = Network {
        groups: groups.value,
        chassis_per_group: chassis.value,
        routers_per_chassis: routers.value,
        node_ports_per_router: node_ports?.value,
        cable_sockets_per_group: sockets.value,
        cables_per_group_pair: pair.value,
        routers_per_cable: per_cable.value,
        arrangement: arrangement?.value,
        plugging: plugging?.value,
        router_traversal: router_traversal?.value,
        packet: packet?.value,
        nic: nic?,
        node: node?,
        rank1: rank1?,
        rank2: rank2?,
        global: global?,
        routing: routing?,
    };
    check_limits(doc, &network, chassis.span.start);
    Some(network)
}

/// Checks the limits of the simulation: ports of a router, time of a packet on a link.
fn check_limits(doc: &Document<'_>, network: &Network, at: usize) {
    let ports = network.ports_per_router();
    if ports > MAX_PORTS {
        let sockets = network.socket_counts().into_iter().max().unwrap_or(0);
        doc.add_problem(
            at,
            format!(
                "a router has {ports} ports: {} rank-1, {} rank-2, {sockets} rank-3, {} node ports",
                network.routers_per_chassis,
                network.chassis_per_group,
                network.node_ports_per_router
            ),
            format!("at most {MAX_PORTS} ports"),
        );
    }
    let time = network.longest_packet_time(network.packet);
    if time > LONGEST_PACKET_TIME {
        doc.add_problem(
            at,
            format!("a packet of {} occupies the slowest link for {time}", network.packet),
            format!("at most {LONGEST_PACKET_TIME}: smaller packets, or faster links"),
        );
    }
}

/// Checks that all groups are connected, and that a group has enough sockets.
fn check_cables(doc: &Document<'_>, groups: u32, sockets: &Located<u32>, pair: &Located<u32>) {
    let others = groups.saturating_sub(1);
    let needed = u64::from(pair.value) * u64::from(others);
    if needed > u64::from(sockets.value) {
        let most = sockets.value / others.max(1);
        let expected = if most == 0 {
            format!("cable_sockets_per_group of at least {needed}, or fewer groups")
        } else {
            format!(
                "cables_per_group_pair of at most {most}, or cable_sockets_per_group of at least {needed}"
            )
        };
        doc.add_problem(
            pair.span.start,
            format!(
                "`network.cables_per_group_pair` is {}: with {others} other groups this needs \
                 {needed} sockets of the {} a group has",
                pair.value, sockets.value
            ),
            expected,
        );
    }
    if others > 0 && pair.value == 0 {
        doc.add_problem(
            pair.span.start,
            format!("`network.cables_per_group_pair` is 0, so {groups} groups are not joined"),
            "at least 1",
        );
    }
}

fn read_nic(section: Section<'_, '_>) -> Option<NicSpec> {
    let interleaved = section.integer("interleaved_messages", 1..=256u32);
    section.report_unused_keys();
    Some(NicSpec { interleaved_messages: interleaved?.value })
}

fn read_link(
    section: Section<'_, '_>,
    least_latency: Time,
    packet: Option<Bytes>,
) -> Option<LinkSpec> {
    let doc = section.doc;
    let tiles = section.integer("tiles", 1..=64u32);
    let tile_rate = section.rate("tile_rate");
    let payload = section.integer("payload_percent", 1..=100u32);
    let latency = section.time("latency", least_latency);
    let buffer = section.bytes("buffer", Bytes(1)..=Bytes::mib(1024));
    if let (Some(buffer), Some(packet)) = (&buffer, packet)
        && buffer.value < packet
    {
        doc.add_problem(
            buffer.span.start,
            format!("the buffer of {} cannot hold one packet of {packet}", buffer.value),
            format!("a buffer of at least {packet}, or smaller packets"),
        );
    }
    section.report_unused_keys();
    let tiles = tiles?.value;
    let raw_rate = tile_rate?.value.times(u64::from(tiles));
    let payload = u128::from(raw_rate.0) * u128::from(payload?.value) / 100;
    Some(LinkSpec {
        rate: Rate((payload as u64).max(1)),
        raw_rate,
        tiles,
        latency: latency?.value,
        buffer: buffer?.value,
    })
}

fn read_routing(section: Section<'_, '_>) -> Option<RoutingSpec> {
    let algorithm = section.choice("algorithm", Routing::NAMES);
    let candidates = section.integer("candidates", 1..=4u32);
    let bias = section.choice("bias", AdaptiveBias::NAMES);
    let rank1_threshold = section.time("rank1_threshold", Time::ZERO);
    let rank2_threshold = section.time("rank2_threshold", Time::ZERO);
    let global_threshold = section.time("global_threshold", Time::ZERO);
    let small_bias = section.time("small_bias", Time::ZERO);
    let large_bias = section.integer("large_bias", 1..=1_000u32);
    section.report_unused_keys();
    Some(RoutingSpec {
        algorithm: algorithm?.value,
        candidates: candidates?.value,
        bias: bias?.value,
        rank1_threshold: rank1_threshold?.value,
        rank2_threshold: rank2_threshold?.value,
        global_threshold: global_threshold?.value,
        small_bias: small_bias?.value,
        large_bias: large_bias?.value,
    })
}
