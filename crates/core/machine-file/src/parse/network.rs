//! The network in a machine file: groups, routers, links, routing.

use super::structure::{Routers, read_routers};
use crate::document::{Document, Located};
use crate::machine::{
    AdaptiveBias, Detour, InputQueues, LONGEST_PACKET_TIME, LateDetour, LinkSpec, MAX_PORTS,
    Network, NicSpec, Routing, RoutingSpec, Structure,
};
use crate::section::Section;
use forebay_units::{Bytes, Rate, Time};

/// Maximum number of routers of a machine.
pub const MAX_ROUTERS: u32 = 1_000_000;

/// Parses `[network]` and its subtables.
pub(super) fn read_network(section: Section<'_, '_>) -> Option<Network> {
    let doc = section.doc;
    let routers = read_routers(&section);
    let node_ports = section.integer("node_ports_per_router", 1..=256u32);
    let router_traversal = section.time("router_traversal", Time::ZERO);
    let input_queues = section.optional_choice("input_queues", InputQueues::NAMES);
    let packet = section.bytes("packet", Bytes(64)..=Bytes::mib(1));
    let packet_size = packet.as_ref().map(|p| p.value);
    let link = |name: &str, least_latency| {
        let link = section.required_section(name)?;
        read_link(link, least_latency, packet_size)
    };
    let nic = section.optional_section("nic").map_or(Some(NicSpec::default()), read_nic);
    let node = link("node", Time::ZERO);
    let rank1 = link("rank1", Time::ZERO);
    // A structure that cannot be read may have rank-2 links, so that these are no further problem.
    let has_rank2 = routers.as_ref().is_none_or(Routers::has_rank2);
    let rank2 = if has_rank2 { link("rank2", Time::ZERO) } else { rank1.clone() };
    let global = link("global", Time(1));
    // Detours of the other structures lead over a spine, or there are none.
    let has_detours = routers.as_ref().is_none_or(|r| r.structure == Structure::Dragonfly);
    let routing =
        section.required_section("routing").and_then(|r| read_routing(r, has_rank2, has_detours));
    section.report_unused_keys();
    let routers = routers?;
    let network = Network {
        structure: routers.structure,
        groups: routers.groups,
        chassis_per_group: routers.chassis,
        routers_per_chassis: routers.slots,
        spines_per_group: routers.spines,
        cores_per_plane: routers.cores,
        node_ports_per_router: node_ports?.value,
        cable_sockets_per_group: routers.sockets,
        cables_per_group_pair: routers.pair,
        routers_per_cable: routers.per_cable,
        arrangement: routers.arrangement,
        plugging: routers.plugging,
        router_traversal: router_traversal?.value,
        input_queues: input_queues?,
        packet: packet?.value,
        nic: nic?,
        node: node?,
        rank1: rank1?,
        rank2: rank2?,
        global: global?,
        routing: routing?,
    };
    check_limits(doc, &network, routers.at);
    Some(network)
}

/// Checks the limits of the simulation: ports of a router, time of a packet on a link.
fn check_limits(doc: &Document<'_>, network: &Network, at: usize) {
    let ports = network.ports_per_router();
    if ports > MAX_PORTS {
        let local = match network.structure {
            Structure::Dragonfly => format!(
                "{} rank-1, {} rank-2",
                network.routers_per_chassis, network.chassis_per_group
            ),
            Structure::DragonflyPlus | Structure::FatTree => {
                format!("{} within the group", network.local_ports())
            }
        };
        doc.add_problem(
            at,
            format!(
                "a router has {ports} ports: {local}, {} rank-3, {} node ports",
                network.global_ports(),
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

fn read_routing(
    section: Section<'_, '_>,
    has_rank2: bool,
    has_detours: bool,
) -> Option<RoutingSpec> {
    let algorithm = section.choice("algorithm", Routing::NAMES);
    let (detour, late_detour) = match has_detours {
        true => (
            section.optional_choice("detour", Detour::NAMES),
            section.optional_choice("late_detour", LateDetour::NAMES),
        ),
        false => (Some(Detour::default()), Some(LateDetour::default())),
    };
    let candidates = section.integer("candidates", 1..=4u32);
    let bias = section.choice("bias", AdaptiveBias::NAMES);
    let rank1_threshold = section.time("rank1_threshold", Time::ZERO);
    let rank2_threshold = match has_rank2 {
        true => section.time("rank2_threshold", Time::ZERO),
        false => rank1_threshold.as_ref().map(|t| Located { value: t.value, span: t.span.clone() }),
    };
    let global_threshold = section.time("global_threshold", Time::ZERO);
    let small_bias = section.time("small_bias", Time::ZERO);
    let large_bias = section.integer("large_bias", 1..=1_000u32);
    section.report_unused_keys();
    Some(RoutingSpec {
        algorithm: algorithm?.value,
        detour: detour?,
        late_detour: late_detour?,
        candidates: candidates?.value,
        bias: bias?.value,
        rank1_threshold: rank1_threshold?.value,
        rank2_threshold: rank2_threshold?.value,
        global_threshold: global_threshold?.value,
        small_bias: small_bias?.value,
        large_bias: large_bias?.value,
    })
}
