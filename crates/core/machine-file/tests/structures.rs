//! Machine files of networks with one-dimensional groups, dragonfly+ and fat tree.

use forebay_machine_file::describe::describe;
use forebay_machine_file::machine::{Machine, Structure};

const TOY: &str = include_str!("../../../../machines/toy.toml");
const PLUS: &str = include_str!("../../../../machines/toy-plus.toml");
const TREE: &str = include_str!("../../../../machines/toy-tree.toml");

/// The machine of a changed text, or the problems.
fn parse(text: &str, changes: &[(&str, &str)]) -> Result<Machine, String> {
    let mut text = text.to_string();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    Machine::parse("m.toml", &text, &|name| panic!("{name} is read")).map_err(|e| e.to_string())
}

/// The table of rank-2 links with its heading.
fn rank2() -> &'static str {
    let (_, rest) = TOY.split_once("[network.rank2]").expect("rank-2 links");
    rest.split_once("[network.global]").expect("rank-3 links").0
}

#[test]
fn groups_of_one_chassis_have_no_rank_2_links() {
    let one = ("chassis_per_group = { value = 2", "chassis_per_group = { value = 1");
    let table = format!("[network.rank2]{}", rank2());
    let threshold =
        TOY.lines().find(|line| line.starts_with("rank2_threshold")).expect("a threshold");
    let nodes = ("per_group = { value = 14", "per_group = { value = 6");
    let machine = parse(TOY, &[one, nodes, (&table, ""), (threshold, "")]).unwrap();
    assert!(!machine.network.has_rank2());
    let text = describe(&machine);
    assert!(text.contains("4 groups x 1 chassis x 4 slots"), "{text}");
    assert!(!text.contains("rank-2"), "{text}");
    let problems = parse(TOY, &[one, nodes]).unwrap_err();
    assert!(problems.contains("unknown key `network.rank2`"), "{problems}");
    assert!(problems.contains("unknown key `network.routing.rank2_threshold`"), "{problems}");
}

#[test]
fn dragonfly_plus_is_described_by_leaves_and_spines() {
    let machine = Machine::load("toy-plus").unwrap();
    assert_eq!(machine.network.structure, Structure::DragonflyPlus);
    assert_eq!((machine.routers_per_group(), machine.routers()), (12, 48));
    // Nodes are at leaves, the first 8 routers of each group of 12.
    assert!(machine.nodes.iter().all(|node| node.router % 12 < 8));
    assert_eq!(machine.group_of(machine.nodes.len() as u32 - 1), 3);
    let text = describe(&machine);
    assert!(text.contains("48 = 4 groups x (8 leaves + 4 spines), 2 node ports a leaf"), "{text}");
    // 4 groups x 8 leaves x 4 spines.
    assert!(text.contains("rank-1       128"), "{text}");
    assert!(text.contains("global         6"), "{text}");
}

#[test]
fn fat_tree_is_described_with_its_core_routers() {
    let machine = Machine::load("toy-tree").unwrap();
    assert_eq!((machine.network.planes(), machine.network.ports_per_router()), (4, 14));
    let text = describe(&machine);
    assert!(
        text.contains("56 = 4 groups x (8 leaves + 4 spines) + 4 planes x 2 cores, 2 node ports"),
        "{text}"
    );
    // 4 groups x 4 spines x 2 core routers; half of the groups' links over the middle.
    assert!(text.contains("global        32"), "{text}");
    assert!(text.contains("Bisection 320 GB/s each way = 2 groups x 8 links x 20 GB/s"), "{text}");
}

#[test]
fn structure_without_its_own_keys_says_which() {
    let named = |structure: &str| format!("structure = {{ value = \"{structure}\"");
    let problems = parse(PLUS, &[(&named("dragonfly-plus"), &named("dragonfly"))]).unwrap_err();
    assert!(problems.contains("`network.chassis_per_group` is missing"), "{problems}");
    let problems = parse(PLUS, &[(&named("dragonfly-plus"), &named("fat-tree"))]).unwrap_err();
    assert!(problems.contains("`network.core_routers_per_plane` is missing"), "{problems}");
    assert!(problems.contains("unknown key `network.cables_per_group_pair`"), "{problems}");
    let problems = parse(PLUS, &[(&named("dragonfly-plus"), &named("torus"))]).unwrap_err();
    assert!(
        problems.contains("`network.structure` is \"torus\", which is not known"),
        "{problems}"
    );
    let spread = ("plugging = { value = \"spread\"", "plugging = { value = \"across-chassis\"");
    let problems = parse(PLUS, &[spread]).unwrap_err();
    assert!(problems.contains("`network.plugging` is \"across-chassis\""), "{problems}");
}

#[test]
fn core_routers_are_needed_to_join_several_groups_and_by_no_single_one() {
    let cores = |n: u32| format!("core_routers_per_plane = {{ value = {n}");
    let problems = parse(TREE, &[(&cores(2), &cores(0))]).unwrap_err();
    assert!(
        problems.contains(
            "`network.core_routers_per_plane` is 0: 4 groups are not joined; expected at least 1"
        ),
        "{problems}"
    );
    let one = ("groups = { value = 4", "groups = { value = 1");
    let problems = parse(TREE, &[one]).unwrap_err();
    assert!(problems.contains("one group needs no core routers"), "{problems}");
    let two_levels = parse(TREE, &[one, (&cores(2), &cores(0))]).unwrap();
    assert_eq!((two_levels.routers(), two_levels.network.planes()), (12, 0));
}

#[test]
fn more_ports_than_the_simulation_numbers_are_refused() {
    let wide = ("leaf_routers_per_group = { value = 8", "leaf_routers_per_group = { value = 300");
    let problems = parse(PLUS, &[wide]).unwrap_err();
    assert!(
        problems.contains("a router has 303 ports: 300 within the group, 1 rank-3, 2 node ports"),
        "{problems}"
    );
}

const COMPUTE: &str = "kind = \"compute\"\nnodes_per_router = { value = 2, assumed = \"toy\" }";

/// Toy with 2 nodes for each two routers, and `keys` of their interfaces.
fn with_interfaces(keys: &str, changes: &[(&str, &str)]) -> Result<Machine, String> {
    let compute = format!("{COMPUTE}\n{keys}");
    let mut all = vec![(COMPUTE, compute.as_str())];
    all.extend_from_slice(changes);
    parse(TOY, &all)
}

const TWO_ON_TWO: &str = "interfaces_per_node = { value = 2, assumed = \"toy\" }\n\
    routers_per_node = { value = 2, assumed = \"toy\" }";

#[test]
fn interfaces_of_nodes_are_on_neighbouring_routers() {
    let six = ("per_group = { value = 14", "per_group = { value = 6");
    let machine = with_interfaces(TWO_ON_TWO, &[six]).unwrap();
    // In each group the burst-buffer node is on router 2: nodes are on 0 and 1, 4 and 5, 6 and 7.
    let of_group = |router: u32| router % 8;
    let compute = machine.nodes.iter().filter(|node| node.interfaces == 2);
    let routers: Vec<u32> = compute.map(|node| of_group(node.router)).take(6).collect();
    assert_eq!(routers, [0, 0, 4, 4, 6, 6]);
    let text = describe(&machine);
    assert!(text.contains("Interfaces 2 of 24 compute nodes, on 2 routers each"), "{text}");
    assert!(text.contains("CCB."), "{text}");
    assert_eq!(machine.link_rate(&[0]).0, 16_000_000_000);
}

#[test]
fn client_may_use_all_interfaces_of_its_node() {
    let six = ("per_group = { value = 14", "per_group = { value = 6");
    let rate = |text: &'static str| ("write_rate = { value = \"4 GB/s\"", text);
    let fast = rate("write_rate = { value = \"16 GB/s\"");
    assert!(with_interfaces(TWO_ON_TWO, &[six, fast]).is_ok());
    let too_fast = rate("write_rate = { value = \"17 GB/s\"");
    let problems = with_interfaces(TWO_ON_TWO, &[six, too_fast]).unwrap_err();
    assert!(problems.contains("the node's link carries 16 GB/s"), "{problems}");
}

#[test]
fn interfaces_that_do_not_fit_are_refused() {
    let problems = with_interfaces(TWO_ON_TWO, &[]).unwrap_err();
    assert!(problems.contains("routers"), "{problems}");
    // Two storage nodes at routers 1 and 7 leave two pairs of neighbours for three pairs of nodes.
    let six = ("per_group = { value = 14", "per_group = { value = 6");
    let two = ("per_group = { value = 1,", "per_group = { value = 2,");
    let problems = with_interfaces(TWO_ON_TWO, &[six, two]).unwrap_err();
    assert!(problems.contains("too few neighbouring routers for its compute nodes"), "{problems}");
    let key = |count| format!("interfaces_per_node = {{ value = {count}, assumed = \"toy\" }}");
    let problems = with_interfaces(&key(2), &[]).unwrap_err();
    assert!(
        problems.contains(
            "2 nodes with 2 interfaces each on a router that has 2 node ports; expected at most 1"
        ),
        "{problems}"
    );
    let three_on_two = format!("{}\nrouters_per_node = {{ value = 2, assumed = \"toy\" }}", key(3));
    let problems = with_interfaces(&three_on_two, &[]).unwrap_err();
    assert!(
        problems.contains("`placement.blade.0.routers_per_node` is 2, for nodes with 3 interfaces"),
        "{problems}"
    );
    let storage = "kind = \"burst-buffer\"";
    let wide = format!("{storage}\n{TWO_ON_TWO}");
    let problems = parse(TOY, &[(storage, &wide)]).unwrap_err();
    assert!(problems.contains("burst-buffer nodes on 2 routers each"), "{problems}");
}
