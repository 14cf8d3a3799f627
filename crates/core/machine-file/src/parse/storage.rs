//! Storage in a machine file: clients on compute nodes, burst-buffer nodes.

use crate::document::{Document, Located};
use crate::machine::{Aggregators, BurstBuffer, Client, ClientType, ProcessRates, SharedWrites};
use crate::section::Section;
use forebay_policy::layout::StripeOrder;
use forebay_units::{Bytes, Rate, Time};

/// Any size above zero.
pub(super) const SOME_BYTES: std::ops::RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 60);

/// Maximum number of types of compute nodes besides the first.
const MAX_TYPES: usize = 16;

/// Names of the orders of stripes in machine files.
const STRIPE_ORDERS: [(&str, StripeOrder); 2] =
    [("hashed", StripeOrder::Hashed), ("rotated", StripeOrder::Rotated)];

/// Parses `[client]`: the client on a compute node, and the types of compute nodes that differ.
///
/// `link` is the rate of all links of a node, `packet` the size of a packet, in which messages without
/// data fit; those of requests if the machine has storage.
pub(super) fn read_client(
    section: Section<'_, '_>,
    link: Option<Rate>,
    (packet, has_storage): (Option<Bytes>, bool),
) -> Option<(Client, Vec<Located<ClientType>>)> {
    let (doc, span) = (section.doc, section.span.clone());
    let name = section.has_key("name").then(|| section.text("name", "haswell"));
    let node = read_node(&section, link);
    let max_request = section.bytes("max_request", SOME_BYTES);
    let most = node.as_ref().map_or(4_096, |n| n.requests_per_node.min(4_096));
    let in_flight = section.integer("requests_in_flight", 1..=most);
    let control = section.bytes("control_message", Bytes(1)..=Bytes::mib(1));
    let collective_buffer = section.bytes("collective_buffer", SOME_BYTES);
    let aggregators = section.optional_choice("aggregators", Aggregators::NAMES);
    let shared_writes = section.optional_choice("shared_writes", SharedWrites::NAMES);
    let mpi_envelope = section.bytes("mpi_envelope", Bytes(1)..=Bytes::mib(1));
    let eager_limit = section.bytes("eager_limit", SOME_BYTES);
    let types = section.optional_section("types").map(|types| {
        let read = types.subsections();
        read.into_iter().map(|(name, section)| read_type(name, section, link)).collect::<Vec<_>>()
    });
    section.report_unused_keys();
    let control_message = control.as_ref().filter(|_| has_storage);
    for message in control_message.into_iter().chain(&mpi_envelope) {
        if let Some(packet) = packet.filter(|packet| message.value > *packet) {
            let problem = format!("a message of {} does not fit a packet", message.value);
            doc.add_problem(
                message.span.start,
                problem,
                format!("at most `network.packet`, {packet}"),
            );
        }
    }
    let node = node?;
    let client = Client {
        name: match name {
            Some(name) => name?.value,
            None => String::new(),
        },
        max_request: max_request?.value,
        requests_in_flight: in_flight?.value,
        control_message: control?.value,
        collective_buffer: collective_buffer?.value,
        aggregators: aggregators?,
        shared_writes: shared_writes?,
        mpi_envelope: mpi_envelope?.value,
        eager_limit: eager_limit?.value,
        ..node.onto(None)
    };
    let types = types.unwrap_or_default();
    if types.len() > MAX_TYPES {
        return doc.refuse(
            span.start,
            format!("`client.types` has {} types of nodes", types.len()),
            format!("at most {MAX_TYPES}"),
        );
    }
    let mut others = Vec::new();
    for read in types {
        let (mut of_type, node) = read?;
        let name = std::mem::take(&mut of_type.value.client.name);
        of_type.value.client = Client { name, ..node.onto(Some(&client)) };
        others.push(of_type);
    }
    Some((client, others))
}

/// Parameters that differ between types of compute nodes.
#[derive(Clone, Copy)]
struct NodeClient {
    write_rate: Rate,
    read_rate: Rate,
    requests_per_node: u32,
    cache: Bytes,
    uncached_percent: u32,
    call_overhead: Time,
    copy_rate: Rate,
    mpi_overhead: Time,
    collective_round: Time,
    shared_memory_latency: Time,
}

impl NodeClient {
    /// A client of this type, which is like `base` otherwise.
    fn onto(self, base: Option<&Client>) -> Client {
        let of_base = |value: fn(&Client) -> Bytes| base.map_or(Bytes::ZERO, value);
        Client {
            name: String::new(),
            write_rate: self.write_rate,
            read_rate: self.read_rate,
            process: ProcessRates::default(),
            requests_per_node: self.requests_per_node,
            cache: self.cache,
            uncached_percent: self.uncached_percent,
            call_overhead: self.call_overhead,
            copy_rate: self.copy_rate,
            max_request: of_base(|c| c.max_request),
            requests_in_flight: base.map_or(0, |c| c.requests_in_flight),
            control_message: of_base(|c| c.control_message),
            collective_buffer: of_base(|c| c.collective_buffer),
            aggregators: base.map_or(Aggregators::default(), |c| c.aggregators),
            shared_writes: base.map_or(SharedWrites::default(), |c| c.shared_writes),
            mpi_envelope: of_base(|c| c.mpi_envelope),
            eager_limit: of_base(|c| c.eager_limit),
            mpi_overhead: self.mpi_overhead,
            collective_round: self.collective_round,
            shared_memory_latency: self.shared_memory_latency,
        }
    }
}

fn read_node(section: &Section<'_, '_>, link: Option<Rate>) -> Option<NodeClient> {
    let write_rate = read_node_rate(section, "write_rate", link);
    let read_rate = read_node_rate(section, "read_rate", link);
    let requests = section.integer("requests_per_node", 1..=1_000_000u32);
    let cache = section.bytes("cache", SOME_BYTES);
    let uncached = section.integer("uncached_percent", 1..=100u32);
    let call_overhead = section.time("call_overhead", Time::ZERO);
    let copy_rate = section.rate("copy_rate");
    let mpi_overhead = section.time("mpi_overhead", Time::ZERO);
    let collective_round =
        section.has_key("collective_round").then(|| section.time("collective_round", Time::ZERO));
    let shared_memory_latency = section.time("shared_memory_latency", Time::ZERO);
    Some(NodeClient {
        write_rate: write_rate?.value,
        read_rate: read_rate?.value,
        requests_per_node: requests?.value,
        cache: cache?.value,
        uncached_percent: uncached?.value,
        call_overhead: call_overhead?.value,
        copy_rate: copy_rate?.value,
        mpi_overhead: mpi_overhead?.value,
        collective_round: match collective_round {
            Some(collective_round) => collective_round?.value,
            None => Time::ZERO,
        },
        shared_memory_latency: shared_memory_latency?.value,
    })
}

/// A rate of a client; above the rate of the node's link it would have no effect.
pub(super) fn read_node_rate(
    section: &Section<'_, '_>,
    key: &str,
    link: Option<Rate>,
) -> Option<Located<Rate>> {
    let rate = section.rate(key)?;
    match link.filter(|&link| rate.value > link) {
        Some(link) => section.doc.refuse(
            rate.span.start,
            format!(
                "`{}` of {} has no effect: the node's link carries {link}",
                section.dotted_key(key),
                rate.value
            ),
            format!("at most {link}"),
        ),
        None => Some(rate),
    }
}

/// Parses `[client.types.NAME]`: its name and groups, and what differs in its client.
fn read_type(
    name: String,
    section: Section<'_, '_>,
    link: Option<Rate>,
) -> Option<(Located<ClientType>, NodeClient)> {
    let first_group = section.integer("first_group", 0..=9_999u32);
    let last_group = section.integer("last_group", 0..=9_999u32);
    let nodes = section.integer("nodes", 1..=10_000_000u32);
    let node = read_node(&section, link);
    section.report_unused_keys();
    let (nodes, node) = (nodes?, node?);
    let of_type = ClientType {
        first_group: first_group?.value,
        last_group: last_group?.value,
        nodes: nodes.value,
        client: Client { name, ..node.onto(None) },
    };
    Some((Located { value: of_type, span: nodes.span }, node))
}

/// Parses `[burst_buffer]`: a burst-buffer node.
pub(super) fn read_burst_buffer(section: Section<'_, '_>) -> Option<BurstBuffer> {
    let doc = section.doc;
    let data_rate = section.rate("data_rate");
    let dispatch = section.time("dispatch", Time::ZERO);
    let threads = section.integer("threads", 1..=65_536u32);
    let copy_rate = section.rate("copy_rate");
    let dirty_limit = section.bytes("dirty_limit", Bytes::ZERO..=Bytes(1 << 60));
    let background = section.bytes("dirty_background", Bytes::ZERO..=Bytes(1 << 60));
    let extent_cost = section.time("extent_cost", Time::ZERO);
    let flush_depth = section.integer("flush_depth", 1..=65_536u32);
    let lock_hold = section.time("lock_hold", Time::ZERO);
    let lock_handover = section.time("lock_handover", Time::ZERO);
    let handover_rate = section.has_key("handover_rate").then(|| section.rate("handover_rate"));
    let block = section.bytes("block", Bytes(1)..=Bytes::mib(1));
    let sync = section.time("sync", Time::ZERO);
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
    let granularity =
        section.has_key("granularity").then(|| section.bytes("granularity", SOME_BYTES));
    let stripe = section.bytes("stripe", SOME_BYTES);
    let order = section.choice("stripe_order", &STRIPE_ORDERS);
    let substripe = section.bytes("substripe", SOME_BYTES);
    let objects = section.integer("objects_per_file", 1..=1_024u32);
    let flash_stripe = section.bytes("flash_stripe", SOME_BYTES);
    section.report_unused_keys();
    let (stripe, substripe, capacity) = (stripe?, substripe?, capacity?);
    let (objects, flash_stripe, cards) = (objects?, flash_stripe?, cards?);
    check_layout(doc, &stripe, &substripe, &flash_stripe);
    let (dirty_limit, background) = (dirty_limit?, background?);
    if background.value > dirty_limit.value {
        doc.add_problem(
            background.span.start,
            format!(
                "`burst_buffer.dirty_background` of {} has no effect: the page cache holds {}",
                background.value, dirty_limit.value
            ),
            format!("at most {}", dirty_limit.value),
        );
    }
    if capacity.value < stripe.value {
        doc.add_problem(
            capacity.span.start,
            format!("a card of {} cannot hold one stripe of {}", capacity.value, stripe.value),
            "a capacity of at least one stripe",
        );
    }
    let granularity = match granularity {
        Some(read) => Some(read?),
        None => None,
    };
    let handover_rate = match handover_rate {
        Some(read) => Some(read?.value),
        None => None,
    };
    // A card that is too small for a stripe is one problem.
    if let Some(granule) = granularity.as_ref().filter(|_| capacity.value >= stripe.value) {
        check_granularity(doc, granule, capacity.value.0.saturating_mul(cards.value.into()));
    }
    Some(BurstBuffer {
        data_rate: data_rate?.value,
        dispatch: dispatch?.value,
        threads: threads?.value,
        copy_rate: copy_rate?.value,
        dirty_limit: dirty_limit.value,
        dirty_background: background.value,
        extent_cost: extent_cost?.value,
        flush_depth: flush_depth?.value,
        lock_hold: lock_hold?.value,
        lock_handover: lock_handover?.value,
        handover_rate,
        block: block?.value,
        sync: sync?.value,
        command_gap: command_gap?.value,
        metadata_rate: metadata_rate?.value,
        cards: cards.value,
        controllers_per_card: controllers?.value,
        channels_per_controller: channels?.value,
        card_read: card_read?.value,
        card_write: card_write?.value,
        card_read_iops: card_read_iops?.value,
        card_write_iops: card_write_iops?.value,
        read_latency: read_latency?.value,
        write_latency: write_latency?.value,
        card_capacity: capacity.value,
        granularity: granularity.map(|granule| granule.value),
        stripe: stripe.value,
        stripe_order: order?.value,
        substripe: substripe.value,
        objects_per_file: objects.value,
        flash_stripe: flash_stripe.value,
    })
}

/// Checks that a node holds at least one granule.
fn check_granularity(doc: &Document<'_>, granule: &Located<Bytes>, node: u64) {
    if granule.value.0 > node {
        doc.add_problem(
            granule.span.start,
            format!("a node of {} cannot hold a granule of {}", Bytes(node), granule.value),
            "a granularity up to the capacity of a node's cards",
        );
    }
}

/// Checks that substripes make up stripes or the reverse, and that flash stripes make up both.
fn check_layout(
    doc: &Document<'_>,
    stripe: &Located<Bytes>,
    substripe: &Located<Bytes>,
    flash_stripe: &Located<Bytes>,
) {
    let divides = |part: Bytes, whole: Bytes| whole.0.is_multiple_of(part.0);
    let (length, sub) = (stripe.value, substripe.value);
    if !divides(sub, length) && !divides(length, sub) {
        doc.add_problem(
            substripe.span.start,
            format!("a stripe of {length} is not made of substripes of {sub}"),
            "a substripe that divides the stripe or is a multiple of it",
        );
    }
    if !divides(flash_stripe.value, length.min(sub)) {
        doc.add_problem(
            flash_stripe.span.start,
            format!(
                "a run of {} is not made of flash stripes of {}",
                length.min(sub),
                flash_stripe.value
            ),
            "a flash stripe that divides stripe and substripe",
        );
    }
}
