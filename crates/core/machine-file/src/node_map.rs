//! Node maps: the nodes of each router, one router per line.
//!
//! ```csv
//! # comment
//! group,chassis,slot,nodes
//! 0,0,0,SS
//! 0,0,1,CCCC
//! ```
//!
//! Groups, chassis and slots count from 0. `nodes` has a letter for each node of the router:
//! C compute, B burst buffer, L LNET, S service. Unlisted routers are empty. The order of the
//! lines does not matter: nodes are numbered router by router. Leaf routers are the slots of chassis 0.

use crate::document::Located;
use crate::machine::{Network, Node, NodeKind};
use crate::problem::Problem;
use crate::section::Section;

/// Returns the text of a node map, named by the machine file or the base with this number, or the reason why it
/// cannot.
pub(crate) type MapLoader<'a> = &'a dyn Fn(usize, &str) -> Result<String, String>;

/// The first line that is not a comment.
const HEADER: &str = "group,chassis,slot,nodes";
/// Maximum number of problems that are reported.
const MAX_PROBLEMS: usize = 20;

/// The letter of a kind in maps and drawings.
pub(crate) fn kind_letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::Compute => 'C',
        NodeKind::BurstBuffer => 'B',
        NodeKind::Lnet => 'L',
        NodeKind::Service => 'S',
    }
}

fn kind(letter: char) -> Option<NodeKind> {
    [NodeKind::Compute, NodeKind::BurstBuffer, NodeKind::Lnet, NodeKind::Service]
        .into_iter()
        .find(|k| self::kind_letter(*k) == letter)
}

/// The keys of the expected counts in `[placement]`.
const COUNT_KEYS: [(&str, NodeKind); 4] = [
    ("compute", NodeKind::Compute),
    ("burst_buffer", NodeKind::BurstBuffer),
    ("lnet", NodeKind::Lnet),
    ("service", NodeKind::Service),
];

/// Loads and parses the map, and checks the expected counts.
pub(crate) fn read_node_map(
    section: &Section<'_, '_>,
    network: &Network,
    map_loader: MapLoader<'_>,
) -> Option<Vec<Node>> {
    let doc = section.doc;
    let map = section.sourced_text("map", "nodes.csv");
    let expected = COUNT_KEYS.map(|(key, kind)| (key, kind, expected_count(section, key)));
    section.report_unknown_keys(&["map", "compute", "burst_buffer", "lnet", "service"]);
    let map = map?;
    if map.value.contains(['/', '\\']) || map.value.starts_with('.') {
        return doc.refuse(
            map.span.start,
            format!("`placement.map` is \"{}\"", map.value),
            "the name of a file in the directory of the machine file",
        );
    }
    let (number, of_file) = doc.file_at(map.span.start);
    let folder = of_file.rfind(['/', '\\']).and_then(|i| of_file.get(..=i)).unwrap_or("");
    let file = format!("{folder}{}", map.value);
    let text = map_loader(number, &map.value)
        .map_err(|why| {
            doc.add_problem(
                map.span.start,
                format!("the node map {file} cannot be read: {why}"),
                "a node map in the directory of the machine file",
            );
        })
        .ok()?;
    let nodes = match parse(&file, &text, network) {
        Ok(nodes) => nodes,
        Err(problems) => {
            for problem in problems {
                doc.add_foreign_problem(map.span.start, problem);
            }
            return None;
        }
    };
    for (key, kind, count) in expected {
        let count = count?;
        let found = nodes.iter().filter(|n| n.kind == kind).count();
        if found != count.value as usize {
            doc.add_problem(
                count.span.start,
                format!("`placement.{key}` is {}, but {file} has {found}", count.value),
                format!("{key} = {{ value = {found}, from = \"…\" }}, or another map"),
            );
        }
    }
    Some(nodes)
}

/// The expected number of nodes of one kind: 0 without the key, `None` after a problem.
fn expected_count(section: &Section<'_, '_>, key: &str) -> Option<Located<u32>> {
    if section.has_key(key) {
        return section.integer(key, 0..=10_000_000u32);
    }
    Some(Located { value: 0, span: section.span.clone() })
}

/// Parses a map; `file` is its name in problems.
fn parse(file: &str, text: &str, network: &Network) -> Result<Vec<Node>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut header_seen = false;
    let per_group = network.node_routers_per_group();
    let routers = network.groups as usize * per_group as usize;
    let mut listed: Vec<Option<(usize, &str)>> = vec![None; routers];
    let mut offset = 0;
    for (number, raw) in (1..).zip(text.split('\n')) {
        let line_start = offset;
        offset += raw.len() + 1;
        let line = raw.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
        let mut wrong = |at: usize, message: String, expected: String| {
            problems.push(Problem::at_offset(file, text, line_start + at, message, expected));
        };
        if !header_seen {
            header_seen = true;
            if line != HEADER {
                let start: String = line.chars().take(40).collect();
                wrong(0, format!("the first line is `{start}`"), format!("`{HEADER}`"));
                break;
            }
            continue;
        }
        match router_line(line, network) {
            Err((at, message, expected)) => wrong(at, message, expected),
            Ok((router, nodes)) => match listed.get_mut(router) {
                Some(Some((first, _))) => wrong(
                    0,
                    format!("`{line}`: this router was on line {first} already"),
                    "one line a router".to_owned(),
                ),
                Some(entry) => *entry = Some((number, nodes)),
                None => {}
            },
        }
    }
    if !header_seen && problems.is_empty() {
        problems.push(Problem::at_offset(
            file,
            text,
            0,
            "the node map is empty",
            format!("`{HEADER}` and one line a router"),
        ));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut nodes = Vec::new();
    for (place, entry) in (0u32..).zip(listed) {
        let router = place / per_group * network.routers_per_group() + place % per_group;
        if let Some((_, letters)) = entry {
            nodes.extend(letters.chars().filter_map(kind).map(|kind| Node::new(kind, router)));
        }
    }
    Ok(nodes)
}

/// An error in a line: byte offset, problem, expected input.
type Wrong = (usize, String, String);

/// The index of the router among those that may have nodes, and the node letters of a line.
fn router_line<'t>(line: &'t str, network: &Network) -> Result<(usize, &'t str), Wrong> {
    let fields: Vec<&str> = line.split(',').collect();
    let [group, chassis, slot, nodes] = fields[..] else {
        let message = format!("`{}` has {} fields", shorten(line), fields.len());
        return Err((0, message, HEADER.to_owned()));
    };
    let mut at = 0;
    let mut index = 0;
    for (text, what, limit) in [
        (group, "group", network.groups),
        (chassis, "chassis", network.chassis_per_group),
        (slot, "slot", network.routers_per_chassis),
    ] {
        let number = text.parse::<u32>().ok().filter(|n| *n < limit);
        let Some(number) = number else {
            let message = format!("{what} `{}` is not in the machine", shorten(text));
            return Err((at, message, format!("0 to {}", limit.saturating_sub(1))));
        };
        index = index * limit as usize + number as usize;
        at += text.len() + 1;
    }
    if let Some((i, letter)) = nodes.char_indices().find(|(_, c)| kind(*c).is_none()) {
        return Err((
            at + i,
            format!("unknown kind of node `{letter}`"),
            "C (compute), B (burst buffer), L (LNET) or S (service)".to_owned(),
        ));
    }
    if nodes.len() > network.node_ports_per_router as usize {
        return Err((
            at,
            format!("{} nodes on one router", nodes.len()),
            format!("at most {}, its node ports", network.node_ports_per_router),
        ));
    }
    Ok((index, nodes))
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}
