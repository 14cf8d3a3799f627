//! The parallel file system in a machine file.

use super::storage::{SOME_BYTES, read_node_rate};
use crate::document::Document;
use crate::machine::{Client, Lustre, Node, NodeKind, ParallelFileSystem, ProcessRates};
use crate::section::Section;
use forebay_units::{Bytes, Rate, Time};
use std::collections::BTreeMap;

/// Parses `[pfs]`. `link` is the rate of a node's link.
pub(super) fn read_pfs(section: Section<'_, '_>, link: Option<Rate>) -> Option<ParallelFileSystem> {
    let (doc, span) = (section.doc, section.span.clone());
    let name = section.text("name", "Lustre");
    let rate = section.rate("rate");
    let capacity = section.bytes("capacity", SOME_BYTES);
    let osts = section.has_key("osts").then(|| section.integer("osts", 1..=1_000_000u32));
    let lustre = section.optional_section("lustre").map(|section| read_lustre(section, link));
    section.report_unused_keys();
    let pfs = ParallelFileSystem {
        name: name?.value,
        rate: rate?.value,
        capacity: capacity?.value,
        osts: match osts {
            Some(read) => read?.value,
            None => 0,
        },
        lustre: match lustre {
            Some(read) => Some(read?),
            None => None,
        },
    };
    check_targets(doc, span.start, &pfs);
    Some(pfs)
}

/// Parses `[pfs.lustre]`.
fn read_lustre(section: Section<'_, '_>, link: Option<Rate>) -> Option<Lustre> {
    let write_rate = read_node_rate(&section, "write_rate", link);
    let read_rate = read_node_rate(&section, "read_rate", link);
    let process = read_process_rates(&section);
    let types = section.optional_section("types").map(read_types_of_processes);
    let call_overhead = section.time("call_overhead", Time::ZERO);
    let window = section.bytes("window", SOME_BYTES);
    let max_rpc = section.bytes("max_rpc", SOME_BYTES);
    let rpcs_in_flight = section.integer("rpcs_in_flight", 1..=4_096u32);
    let router_rate = read_node_rate(&section, "router_rate", link);
    let router_latency = section.time("router_latency", Time::ZERO);
    let targets_per_server = section.integer("targets_per_server", 1..=1_024u32);
    let server_rate = section.rate("server_rate");
    let dispatch = section.time("dispatch", Time::ZERO);
    let threads = section.integer("threads", 1..=65_536u32);
    let target_write = section.rate("target_write");
    let target_read = section.rate("target_read");
    let target_write_iops = section.integer("target_write_iops", 1..=1_000_000_000u64);
    let target_read_iops = section.integer("target_read_iops", 1..=1_000_000_000u64);
    let target_channels = section.integer("target_channels", 1..=1_024u32);
    let target_latency = section.time("target_latency", Time::ZERO);
    let lock_callback = section.time("lock_callback", Time::ZERO);
    let metadata_servers = section.integer("metadata_servers", 1..=1_024u32);
    let metadata_rate = section.integer("metadata_rate", 1..=1_000_000_000u32);
    let stripe = section.bytes("stripe", Bytes(65_536)..=Bytes(1 << 40));
    let stripe_count = section.integer("stripe_count", 1..=1_000_000u32);
    section.report_unused_keys();
    Some(Lustre {
        write_rate: write_rate?.value,
        read_rate: read_rate?.value,
        process: process?,
        process_of_types: match types {
            Some(types) => types?,
            None => BTreeMap::new(),
        },
        call_overhead: call_overhead?.value,
        window: window?.value,
        max_rpc: max_rpc?.value,
        rpcs_in_flight: rpcs_in_flight?.value,
        router_rate: router_rate?.value,
        router_latency: router_latency?.value,
        targets_per_server: targets_per_server?.value,
        server_rate: server_rate?.value,
        dispatch: dispatch?.value,
        threads: threads?.value,
        target_write: target_write?.value,
        target_read: target_read?.value,
        target_write_iops: target_write_iops?.value,
        target_read_iops: target_read_iops?.value,
        target_channels: target_channels?.value,
        target_latency: target_latency?.value,
        lock_callback: lock_callback?.value,
        metadata_servers: metadata_servers?.value,
        metadata_rate: metadata_rate?.value,
        stripe: stripe?.value,
        stripe_count: stripe_count?.value,
    })
}

/// Reads the rates of one process.
fn read_process_rates(section: &Section<'_, '_>) -> Option<ProcessRates> {
    let rate = |key| section.has_key(key).then(|| section.rate(key));
    let (write, read) = (rate("process_write"), rate("process_read"));
    Some(ProcessRates {
        write: match write {
            Some(write) => Some(write?.value),
            None => None,
        },
        read: match read {
            Some(read) => Some(read?.value),
            None => None,
        },
    })
}

/// Parses `[pfs.lustre.types.NAME]`: the rates of one process on a type of nodes.
fn read_types_of_processes(section: Section<'_, '_>) -> Option<BTreeMap<String, ProcessRates>> {
    let read = |(name, section): (String, Section<'_, '_>)| {
        let rates = read_process_rates(&section);
        section.report_unused_keys();
        rates.map(|rates| (name, rates))
    };
    section.subsections().into_iter().map(read).collect()
}

/// Checks that the types of nodes with process rates of their own are those of the client.
pub(super) fn check_types_of_processes<'a>(
    doc: &Document<'_>,
    pfs: &ParallelFileSystem,
    clients: impl Iterator<Item = &'a Client>,
    at: usize,
) {
    let Some(lustre) = &pfs.lustre else { return };
    let known: Vec<&str> = clients.map(|client| client.name.as_str()).collect();
    for name in lustre.process_of_types.keys().filter(|name| !known.contains(&name.as_str())) {
        doc.add_problem(
            at,
            format!("`pfs.lustre.types.{name}` is no type of nodes"),
            "the name of a client: `client.name`, or one of `[client.types]`",
        );
    }
}

/// Checks that there are as many targets as the servers and the layout need.
fn check_targets(doc: &Document<'_>, at: usize, pfs: &ParallelFileSystem) {
    let (Some(lustre), osts) = (&pfs.lustre, pfs.osts) else { return };
    if osts == 0 {
        doc.add_problem(
            at,
            "`pfs.lustre` describes servers, but `pfs.osts` is missing",
            "osts = { value = 248, from = \"…\" }",
        );
        return;
    }
    if !osts.is_multiple_of(lustre.targets_per_server) {
        doc.add_problem(
            at,
            format!(
                "{osts} OSTs do not divide among servers of {} (`pfs.lustre.targets_per_server`)",
                lustre.targets_per_server
            ),
            "a number that divides `pfs.osts`",
        );
    }
    if lustre.stripe_count > osts {
        doc.add_problem(
            at,
            format!("`pfs.lustre.stripe_count` is {}, of {osts} OSTs", lustre.stripe_count),
            format!("at most {osts}"),
        );
    }
}

/// Checks that LNET nodes lead to the servers that are described.
pub(super) fn check_routers(
    doc: &Document<'_>,
    nodes: &[Node],
    pfs: &ParallelFileSystem,
    at: usize,
) {
    if pfs.lustre.is_some() && !nodes.iter().any(|node| node.kind == NodeKind::Lnet) {
        doc.add_problem(
            at,
            "`pfs.lustre` is described, but no LNET node is placed",
            "nodes of kind lnet in `[placement]`, or no `[pfs.lustre]`",
        );
    }
}
