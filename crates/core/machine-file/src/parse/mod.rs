//! Parses a machine file.

mod network;
mod pfs;
mod storage;
mod structure;

pub use network::MAX_ROUTERS;

use crate::builtin::Source;
use crate::document::{Document, Located};
use crate::layers::Layers;
use crate::machine::{ClientType, Machine, Network, Node, NodeKind, SourceFile};
use crate::node_map::MapLoader;
use crate::placement;
use crate::problem::{MachineError, Problem, file_name};
use crate::section::Section;
use forebay_units::Rate;
use std::cell::RefCell;
use toml::de::DeTable;

impl Machine {
    /// Parses the text of a machine file. `file` is its name in errors and gives the
    /// machine its name (`machines/toy.toml`: `toy`); `map_loader` returns the text of a node
    /// map that the file names, or the reason why it cannot. Its base must be an embedded machine.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn parse(
        file: &str,
        text: &str,
        map_loader: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Machine, MachineError> {
        let layers = Layers::of(Source::of_text(file, text))?;
        read_layers(&layers, &|number, map| match (number, layers.sources().get(number)) {
            (0, _) | (_, None) => map_loader(map),
            (_, Some(base)) => base.map(map),
        })
    }

    /// Parses a machine file with its bases.
    pub(crate) fn of_layers(layers: &Layers) -> Result<Machine, MachineError> {
        read_layers(layers, &|number, map| match layers.sources().get(number) {
            Some(source) => source.map(map),
            None => Err("no such file".to_owned()),
        })
    }
}

fn read_layers(layers: &Layers, map_loader: MapLoader<'_>) -> Result<Machine, MachineError> {
    let joined = layers.join();
    let root = joined.merged()?;
    let doc = Document::new(&joined);
    let files = RefCell::new(layers.files());
    let machine = read(&doc, &root, &|number, map| {
        let text = map_loader(number, map)?;
        files.borrow_mut().push(SourceFile { name: map.to_owned(), text: text.clone() });
        Ok(text)
    });
    if doc.has_no_problems() {
        // After another problem, parts of the file may not have been parsed.
        doc.check_unused_sources();
    }
    let (problems, provenance) = doc.into_findings();
    match machine {
        Some(machine) if problems.is_empty() => {
            Ok(Machine { provenance, files: files.into_inner(), ..machine })
        }
        _ if problems.is_empty() => {
            Err(Problem::in_file(joined.file(0), "unreadable", "a machine file").into())
        }
        _ => Err(MachineError { problems }),
    }
}

fn read(doc: &Document<'_>, table: &DeTable<'_>, map_loader: MapLoader<'_>) -> Option<Machine> {
    let root = Section::root(doc, table);
    root.read_sources();
    let title = root.text("title", "the machine in one line");
    let notes = root.text("notes", "choices made, and where sources disagree");
    let network = root.required_section("network").and_then(network::read_network);
    let burst_buffer_section = root.optional_section("burst_buffer");
    let burst_buffer_span = burst_buffer_section.as_ref().map(|s| s.span.start);
    let burst_buffer = burst_buffer_section.map(storage::read_burst_buffer);
    let placement = root.required_section("placement");
    let placement_span = placement.as_ref().map_or(0, |s| s.span.start);
    let nodes = match (&network, placement) {
        (Some(network), Some(placement)) => {
            placement::read_placement(&placement, network, map_loader)
        }
        // Without a valid network the nodes cannot be checked.
        _ => None,
    };
    let link = network.as_ref().zip(nodes.as_ref()).map(|(n, nodes)| all_links(n, nodes));
    let packet = network.as_ref().map(|network| network.packet);
    let has_storage = burst_buffer.is_some() || root.has_key("pfs");
    let client = root
        .required_section("client")
        .and_then(|client| storage::read_client(client, link, (packet, has_storage)));
    let pfs = root.optional_section("pfs").map(|section| {
        let at = section.span.start;
        (at, pfs::read_pfs(section, link))
    });
    root.report_unused_keys();
    let nodes = nodes?;
    let client = client.map(|(client, types)| {
        let routers = network.as_ref().map_or(1, Network::routers_per_group);
        check_types(doc, &nodes, routers, &types);
        (client, types)
    });
    check_nodes(doc, &nodes, burst_buffer_span, placement_span);
    if let Some((at, Some(pfs))) = &pfs {
        pfs::check_routers(doc, &nodes, pfs, *at);
        if let Some((client, types)) = &client {
            let others = types.iter().map(|of_type| &of_type.value.client);
            pfs::check_types_of_processes(doc, pfs, others.chain([client]), *at);
        }
    }
    if !doc.has_no_problems() {
        return None;
    }
    debug_assert!(
        nodes.is_sorted_by_key(|node| node.router),
        "node numbers ascend router by router"
    );
    if let (Some(network), Some(last)) = (&network, nodes.last()) {
        let routers = network.groups * network.routers_per_group();
        assert!(last.router < routers, "a node on a router that does not exist");
    }
    let stem = file_name(doc.file);
    let (client, types) = client?;
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
        client,
        client_types: types.into_iter().map(|t| t.value).collect(),
        pfs: match pfs {
            Some((_, read)) => Some(read?),
            None => None,
        },
        provenance: Vec::new(),
        files: Vec::new(),
    })
}

/// Rate of all links of the compute node with most interfaces.
fn all_links(network: &Network, nodes: &[Node]) -> Rate {
    let compute = nodes.iter().filter(|node| node.kind == NodeKind::Compute);
    let interfaces = compute.map(|node| node.interfaces).max().unwrap_or(1);
    network.node.rate.times(u64::from(interfaces))
}

/// Checks that the groups of each type of client have as many compute nodes as it says.
fn check_types(
    doc: &Document<'_>,
    nodes: &[Node],
    routers_per_group: u32,
    types: &[Located<ClientType>],
) {
    for Located { value: one, span } in types {
        let groups = one.first_group..=one.last_group;
        let is_of_type = |n: &&Node| {
            n.kind == NodeKind::Compute && groups.contains(&(n.router / routers_per_group.max(1)))
        };
        let found = nodes.iter().filter(is_of_type).count();
        if found != one.nodes as usize {
            doc.add_problem(
                span.start,
                format!(
                    "`client.types.{}.nodes` is {}, but groups {} to {} have {found} compute nodes",
                    one.client.name, one.nodes, one.first_group, one.last_group
                ),
                format!("nodes = {{ value = {found}, from = \"…\" }}, or other groups"),
            );
        }
    }
}

/// Checks that there are compute nodes, and that burst-buffer nodes are both placed and described.
fn check_nodes(
    doc: &Document<'_>,
    nodes: &[Node],
    burst_buffer_span: Option<usize>,
    placement_span: usize,
) {
    let burst_buffers = nodes.iter().filter(|n| n.kind == NodeKind::BurstBuffer).count();
    match burst_buffer_span {
        None if burst_buffers > 0 => doc.add_problem(
            placement_span,
            format!("{burst_buffers} burst-buffer nodes are placed, but not described"),
            "a table `[burst_buffer]`",
        ),
        Some(offset) if burst_buffers == 0 => doc.add_problem(
            offset,
            "`burst_buffer` is described, but no burst-buffer node is placed",
            "burst-buffer nodes in `[placement]`, or no `[burst_buffer]`",
        ),
        None | Some(_) => {}
    }
    if !nodes.iter().any(|n| n.kind == NodeKind::Compute) {
        doc.add_problem(
            placement_span,
            "the machine has no compute node",
            "at least one node of kind compute in `[placement]`",
        );
    }
}
