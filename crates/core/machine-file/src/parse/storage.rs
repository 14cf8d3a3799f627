//! Storage in a machine file: clients on compute nodes, burst-buffer nodes, the parallel file
//! system.

use crate::machine::{BurstBuffer, Client, ParallelFileSystem};
use crate::section::Section;
use forebay_policy::layout::StripeOrder;
use forebay_units::{Bytes, Time};

/// Any size above zero.
const SOME_BYTES: std::ops::RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 60);

/// Names of the orders of stripes in machine files.
const STRIPE_ORDERS: [(&str, StripeOrder); 2] =
    [("hashed", StripeOrder::Hashed), ("rotated", StripeOrder::Rotated)];

/// Parses `[client]`: the client on a compute node.
pub(super) fn read_client(section: Section<'_, '_>) -> Option<Client> {
    let node_rate = section.rate("node_rate");
    let call_overhead = section.time("call_overhead", Time::ZERO);
    let max_request = section.bytes("max_request", SOME_BYTES);
    let in_flight = section.integer("requests_in_flight", 1..=4_096u32);
    let control = section.bytes("control_message", Bytes(1)..=Bytes::mib(1));
    let collective_buffer = section.bytes("collective_buffer", SOME_BYTES);
    let copy_rate = section.rate("copy_rate");
    section.report_unused_keys();
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

/// Parses `[burst_buffer]`: a burst-buffer node.
pub(super) fn read_burst_buffer(section: Section<'_, '_>) -> Option<BurstBuffer> {
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
    let order = section.choice("stripe_order", &STRIPE_ORDERS);
    let substripe = section.bytes("substripe", SOME_BYTES);
    let objects = section.integer("objects_per_file", 1..=1_024u32);
    section.report_unused_keys();
    let (stripe, substripe, capacity) = (stripe?, substripe?, capacity?);
    if stripe.value.0 % substripe.value.0 != 0 {
        doc.add_problem(
            substripe.span.start,
            format!(
                "a stripe of {} is not made of substripes of {}",
                stripe.value, substripe.value
            ),
            "a substripe that divides the stripe",
        );
    }
    if capacity.value < stripe.value {
        doc.add_problem(
            capacity.span.start,
            format!("a card of {} cannot hold one stripe of {}", capacity.value, stripe.value),
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
        stripe_order: order?.value,
        substripe: substripe.value,
        objects_per_file: objects?.value,
    })
}

/// Parses `[pfs]`.
pub(super) fn read_pfs(section: Section<'_, '_>) -> Option<ParallelFileSystem> {
    let name = section.text("name", "Lustre");
    let rate = section.rate("rate");
    let capacity = section.bytes("capacity", SOME_BYTES);
    let osts = section.has_key("osts").then(|| section.integer("osts", 1..=1_000_000u32));
    section.report_unused_keys();
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
