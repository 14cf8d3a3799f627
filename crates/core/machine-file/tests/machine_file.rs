//! Machine files: sources, placement, and files that are wrong in any way whatever.

use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_machine_file::{builtin_machines, describe};
use forebay_units::Rate;
use proptest::prelude::*;
use std::collections::BTreeMap;

const TOY: &str = include_str!("../../../../machines/toy.toml");

fn load(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_number_of_builtin_machines_has_a_source() {
    for (name, _) in builtin_machines() {
        let path = format!("{}/../../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("machine file");
        let values = text.matches("{ value = ").count();
        let machine = load(name);
        let own = machine.provenance.iter().filter(|p| p.base.is_none()).count();
        assert_eq!(own, values, "{name}");
        assert!(machine.provenance.iter().all(|p| p.source.len() > 2), "{name}");
        // No number stands outside an entry (prose in the notes may have its sums).
        let (_, data) = text.rsplit_once("\"\"\"").expect("notes");
        for line in data.lines() {
            let bare = line.split_once(" = ").is_some_and(|(_, v)| {
                v.starts_with(|c: char| c.is_ascii_digit()) || v.starts_with('-')
            });
            assert!(!bare, "{name}: {line}");
        }
    }
}

#[test]
fn provenance_names_key_value_source_and_measurement() {
    let machine = load("cori");
    let of = |key: &str| machine.provenance.iter().find(|p| p.key == key).expect(key).clone();
    let rank2 = of("network.rank2.tile_rate");
    assert_eq!(rank2.value, "5.25 GB/s");
    assert!(rank2.source.ends_with("3 lanes a tile (14 Gbit/s x 3 lanes)"), "{}", rank2.source);
    assert_eq!(rank2.calibrated, None);
    let dispatch = of("burst_buffer.dispatch");
    assert!(dispatch.source.starts_with("assumed: "));
    assert_eq!(dispatch.calibrated.as_deref(), Some("cori1-iops-write"));
    assert_eq!(dispatch.settled_in_view, ["cori1-iops-read"]);
    assert_eq!((dispatch.source_id, rank2.source_id.as_deref()), (None, Some("xc-links")));
    assert!(rank2.settled_in_view.is_empty());
    assert_eq!(of("network.cables_per_group_pair").value, "6");
    assert_eq!(of("placement.compute").value, "12_076");
}

#[test]
fn compute_nodes_of_the_listed_groups_are_of_their_type() {
    let machine = load("cori");
    let types: Vec<_> = machine.clients().iter().map(|(c, n)| (c.name.clone(), n.len())).collect();
    assert_eq!(types, [("haswell".to_owned(), 2_388), ("knl".to_owned(), 9_688)]);
    let (haswell, knl) = (machine.nodes_of_type("haswell"), machine.nodes_of_type("knl"));
    assert_eq!((haswell.len(), knl.len()), (2_388, 9_688));
    let groups = |nodes: &[u32]| nodes.iter().map(|n| machine.group_of(*n)).collect::<Vec<_>>();
    assert!(groups(&knl).iter().all(|group| (6..=32).contains(group)));
    assert!(groups(&haswell).contains(&33));
    assert!(machine.nodes_of_type("moon").is_empty());
    let slow = &machine.client_types[0].client;
    assert!(slow.write_rate < machine.client.write_rate);
    assert_eq!(slow.max_request, machine.client.max_request);
}

#[test]
fn machines_load_by_alias_and_path() {
    assert_eq!(load("cori-phase2"), load("cori"));
    let folder = format!("{}/../../../machines", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(load(&format!("{folder}/cori.toml")), load("cori"));
}

/// Nodes by router.
fn by_router(machine: &Machine) -> BTreeMap<u32, Vec<NodeKind>> {
    let mut routers: BTreeMap<u32, Vec<NodeKind>> = BTreeMap::new();
    for node in &machine.nodes {
        routers.entry(node.router).or_default().push(node.kind);
    }
    routers
}

#[test]
fn nodes_are_numbered_by_router_and_fit_its_ports() {
    for (name, _) in builtin_machines() {
        let machine = load(name);
        assert!(machine.nodes.windows(2).all(|pair| pair[0].router <= pair[1].router), "{name}");
        assert!(machine.nodes.iter().all(|n| n.router < machine.routers()), "{name}");
        let ports = machine.network.node_ports_per_router as usize;
        assert!(by_router(&machine).values().all(|nodes| nodes.len() <= ports), "{name}");
    }
}

#[test]
fn special_blades_of_a_trinity_group_are_spread_evenly() {
    let machine = load("trinity");
    let routers = by_router(&machine);
    for group in [0, 1, 56] {
        let first = group * machine.routers_per_group();
        let places: Vec<(u32, u32, String)> = (first..first + 96)
            .filter_map(|router| {
                let nodes = routers.get(&router)?;
                let slots = machine.network.routers_per_chassis;
                let (chassis, slot) = ((router - first) / slots, (router - first) % slots);
                let kind = format!("{} {:?}", nodes.len(), nodes[0]);
                (nodes[0] != NodeKind::Compute).then_some((chassis, slot, kind))
            })
            .collect();
        let bb = || "2 BurstBuffer".to_owned();
        assert_eq!(
            places,
            [
                (0, 1, bb()),
                (1, 4, bb()),
                (2, 6, bb()),
                (3, 9, "4 Lnet".to_owned()),
                (4, 12, bb()),
                (5, 14, bb())
            ]
        );
    }
}

#[test]
fn totals_are_distributed_evenly_over_groups() {
    for name in ["shaheen2", "cori-phase1", "theta"] {
        let machine = load(name);
        for kind in [NodeKind::BurstBuffer, NodeKind::Lnet, NodeKind::Service] {
            let mut counts = vec![0; machine.network.groups as usize];
            for node in machine.nodes_of_kind(kind) {
                counts[machine.group_of(node) as usize] += 1;
            }
            let (least, most) = (counts.iter().min(), counts.iter().max());
            // One blade of two nodes apart at most.
            assert!(most.unwrap() - least.unwrap() <= 2, "{name} {kind:?} {counts:?}");
        }
    }
}

#[test]
fn node_maps_of_cori_and_edison_match_the_machine() {
    let cori = load("cori");
    // c0-0c0s2: the first node is a service node, the three others compute nodes.
    let kinds = &by_router(&cori)[&2];
    use NodeKind::{Compute, Service};
    assert_eq!(kinds[..], [Service, Compute, Compute, Compute]);
    // The last two groups have compute blades only.
    let last: Vec<_> = cori.nodes.iter().filter(|n| n.router >= 32 * 96).collect();
    assert_eq!(last.len(), 2 * 384);
    assert!(last.iter().all(|n| n.kind == Compute));
    assert_eq!(cori.routers(), 3_264);
    assert_eq!(load("edison").routers(), 1_440);
}

#[test]
fn toy_machine_description_matches_the_recorded_text() {
    let text = describe::describe(&load("toy"));
    let (drawn, _) = text.split_once("\nNotes\n").expect("notes");
    assert_eq!(drawn, include_str!("toy.txt"));
}

#[test]
fn sources_are_listed_as_a_table() {
    let text = describe::list_sources(&load("trinity-phase2"));
    assert!(text.lines().any(|line| {
        line.starts_with("network.cables_per_group_pair ")
            && line.contains("assumed: the same in both files")
    }));
    assert!(text.contains("[calibrated: cori1-fpp-read]"));
    assert_eq!(text.lines().count(), load("trinity-phase2").provenance.len());
}

/// Parses and, if there is a machine, draws it: nothing may panic.
fn survives(text: &str) {
    let map = "group,chassis,slot,nodes\n0,0,0,CC\n";
    match Machine::parse("m.toml", text, &|_| Ok(map.to_owned())) {
        Ok(machine) => {
            describe::describe(&machine);
            describe::list_sources(&machine);
        }
        Err(error) => assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
    }
}

#[test]
fn truncated_machine_file_gives_errors_and_no_panic() {
    for end in (0..TOY.len()).step_by(7).filter(|&end| TOY.is_char_boundary(end)) {
        survives(&TOY[..end]);
    }
}

#[test]
fn machine_file_without_any_one_line_does_not_panic() {
    let lines: Vec<&str> = TOY.lines().collect();
    for skipped in 0..lines.len() {
        let mut left = lines.clone();
        left.remove(skipped);
        survives(&left.join("\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Pieces of the file overwritten with what may stand in such files.
    #[test]
    fn mutated_machine_file_does_not_panic(
        edits in prop::collection::vec(
            (0..TOY.len(), 0usize..24, prop_oneof![
                "\\PC{0,6}",
                "[0-9]{1,20}",
                "[-0-9.eE_x\"{}\\[\\]=,#\n ]{0,5}",
                Just("value".to_owned()),
                Just("total = { value = 9999999, assumed = \"x\" }\n".to_owned()),
                Just("map = { value = \"m.csv\", assumed = \"x\" }\n".to_owned()),
                Just("[placement]\n".to_owned()),
                Just("\u{b5}s".to_owned()),
            ]),
            1..4,
        )
    ) {
        let mut text = TOY.to_owned();
        for (start, length, put) in edits {
            let mut start = start.min(text.len());
            while !text.is_char_boundary(start) { start -= 1; }
            let mut end = (start + length).min(text.len());
            while !text.is_char_boundary(end) { end += 1; }
            text.replace_range(start..end, &put);
        }
        survives(&text);
    }

    /// Numbers of the file replaced by others: impossible machines get errors, never panics.
    #[test]
    fn machine_file_with_other_numbers_does_not_panic(which in 0usize..64, number in prop_oneof![
        0u64..10, 0u64..20_000, any::<u64>()
    ]) {
        let places: Vec<(usize, &str)> = TOY.match_indices("value = ").collect();
        let (at, found) = places[which % places.len()];
        let start = at + found.len();
        let rest = &TOY[start..];
        let quoted = rest.starts_with('"');
        let start = if quoted { start + 1 } else { start };
        let length = TOY[start..].find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(0);
        let mut text = TOY.to_owned();
        text.replace_range(start..start + length, &number.to_string());
        survives(&text);
    }

    #[test]
    fn arbitrary_node_map_does_not_panic(lines in prop::collection::vec("[0-9]{0,4},[0-9]{0,3},[0-9]{0,2},[CBLSx]{0,4}|\\PC{0,20}", 0..8)) {
        let (before, rest) = TOY.split_once("[[placement.blade]]").expect("blades");
        let (_, after) = rest.split_once("[client]").expect("client");
        let text = format!(
            "{before}[placement]\nmap = {{ value = \"m.csv\", assumed = \"x\" }}\n[client]{after}"
        );
        let map = format!("group,chassis,slot,nodes\n{}", lines.join("\n"));
        let result = Machine::parse("m.toml", &text, &|_| Ok(map.clone()));
        prop_assert!(result.is_err() || !lines.is_empty());
    }
}

#[test]
fn rates_of_a_process_are_those_of_the_type_of_its_node() {
    let cori = load("cori");
    let lustre = cori.pfs.unwrap().lustre.unwrap();
    let rates = |client| lustre.process_rates(client);
    assert_eq!(rates("knl").write, Some(Rate(170_000_000)));
    assert_eq!(rates("haswell").write, Some(Rate(1_420_000_000)));
    assert_eq!(rates("haswell").read, Some(Rate(1_278_000_000)));
    let text = include_str!("../../../../machines/cori.toml");
    let text = text.replacen("[pfs.lustre.types.knl]", "[pfs.lustre.types.knight]", 1);
    let map = |_: &str| Ok(include_str!("../../../../machines/cori.csv").to_owned());
    let problem = Machine::parse("cori.toml", &text, &map).unwrap_err().to_string();
    assert!(problem.contains("`pfs.lustre.types.knight` is no type of nodes"), "{problem}");
}

#[test]
fn description_has_the_rates_of_one_process_by_type_of_node() {
    let text = describe::describe(&load("cori"));
    let line = text.lines().find(|line| line.contains("client for one process")).expect("a line");
    assert!(line.ends_with("; knl: 170 MB/s write, 372 MB/s read"), "{line}");
    assert!(!describe::describe(&load("toy")).contains("one process"));
}
