//! Errors in machine files have file, line, column, and the expected input.

use forebay_machine_file::machine::Machine;

/// The toy machine with one text replaced by another.
fn problems(from: &str, to: &str) -> String {
    let toy = include_str!("../../../../machines/toy.toml");
    assert!(toy.contains(from), "the toy machine has no `{from}`");
    let text = toy.replacen(from, to, 1);
    match Machine::parse("toy.toml", &text, &|_| Err("no map".to_owned())) {
        Ok(_) => "a machine".to_owned(),
        Err(error) => error.to_string(),
    }
}

macro_rules! wrong {
    ($($name:ident: $from:literal => $to:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(problems($from, $to), $message);
        }
    )*};
}

wrong! {
    granule_larger_than_a_node: "granularity = { value = \"16 GiB\"" => "granularity = { value = \"2 TB\"",
        "toy.toml:121:25: a node of 1 TB cannot hold a granule of 2 TB; expected a granularity up to the capacity of a node's cards";
    unknown_key: "tile_rate = { value = \"5 GB/s\"" => "tile_rat = { value = \"5 GB/s\"",
        "toy.toml:31:1: `network.rank1.tile_rate` is missing; expected tile_rate = { value = \"5.25 GB/s\", from = \"…\" }\ntoy.toml:33:1: unknown key `network.rank1.tile_rat`; expected `tile_rate` (known here: buffer, latency, payload_percent, tile_rate, tiles)";
    unknown_key_of_an_entry: "groups = { value = 4, assumed" => "groups = { value = 4, assume",
        "toy.toml:11:10: `network.groups` has no source; expected { value = 1, from = \"…\" }, or `assumed = \"why\"`, or `calibrated = \"row-id\"`\ntoy.toml:11:23: unknown key `network.groups.assume`; expected `assumed` (known here: value, from, assumed, calibrated, settled_in_view, note)";
    unknown_table: "[client]" => "[clients]",
        "toy.toml:1:1: `client` is missing; expected a table `[client]`\ntoy.toml:74:2: unknown key `clients`; expected `client` (known here: burst_buffer, client, network, notes, pfs, placement, sources, title)";
    number_without_a_source: "groups = { value = 4, assumed = \"toy\" }" => "groups = 4",
        "toy.toml:11:10: `network.groups` is 4, without a source; expected { value = 4, from = \"…\" } or { value = 4, assumed = \"why\" }";
    entry_without_a_source: "groups = { value = 4, assumed = \"toy\" }" => "groups = { value = 4 }",
        "toy.toml:11:10: `network.groups` has no source; expected { value = 1, from = \"…\" }, or `assumed = \"why\"`, or `calibrated = \"row-id\"`";
    entry_without_a_value: "groups = { value = 4, assumed = \"toy\" }" => "groups = { assumed = \"toy\" }",
        "toy.toml:11:10: `network.groups.value` is missing; expected value = 1";
    two_sources: "groups = { value = 4, assumed = \"toy\" }" => "groups = { value = 4, from = \"x\", assumed = \"toy\" }",
        "toy.toml:11:45: `network.groups` has both `from` and `assumed`; expected one of the two (`note` for remarks)";
    undefined_source: "groups = { value = 4, assumed = \"toy\" }" => "groups = { value = 4, from = \"paper\" }",
        "toy.toml:11:30: `paper` is not in [sources]; expected a line `paper = \"…\"` in [sources]";
    unused_source: "[network]\n" => "[sources]\npaper = \"A paper\"\n\n[network]\n",
        "toy.toml:11:1: source `paper` is not used by any number; expected an entry with `from = \"paper\"`, or no such source";
    source_that_is_no_text: "[network]\n" => "[sources]\npaper = 7\n\n[network]\n",
        "toy.toml:11:9: source `paper` is 7, not a text; expected the document or data sheet in quotes";
    not_a_whole_number: "groups = { value = 4," => "groups = { value = 4.5,",
        "toy.toml:11:20: `network.groups` is 4.5, not a whole number; expected a whole number from 1 to 10000";
    negative_count: "groups = { value = 4," => "groups = { value = -4,",
        "toy.toml:11:20: `network.groups` is -4, out of range; expected a whole number from 1 to 10000";
    no_groups: "groups = { value = 4," => "groups = { value = 0,",
        "toy.toml:11:20: `network.groups` is 0, out of range; expected a whole number from 1 to 10000";
    count_in_quotes: "groups = { value = 4," => "groups = { value = \"4\",",
        "toy.toml:11:20: `network.groups` is \"4\", not a whole number; expected a whole number from 1 to 10000";
    sockets_for_too_many_groups: "groups = { value = 4," => "groups = { value = 10_000,",
        "toy.toml:16:35: `network.cables_per_group_pair` is 1: with 9999 other groups this needs 9999 sockets of the 8 a group has; expected cable_sockets_per_group of at least 9999, or fewer groups";
    missing_unit: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = \"8\"",
        "toy.toml:26:25: `network.node.tile_rate`: `8` has no unit; expected a rate as `18.75 GB/s` (one of B/s, kB/s, MB/s, GB/s, TB/s, PB/s, KiB/s, MiB/s, GiB/s, TiB/s, PiB/s)";
    quantity_without_quotes: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = 8",
        "toy.toml:26:23: `network.node.tile_rate` is 8, which has no unit; expected a quantity with its unit in quotes, as \"5.25 GB/s\"";
    unknown_unit: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = \"8 gb/s\"",
        "toy.toml:26:26: `network.node.tile_rate`: unknown unit `gb/s` of a rate; expected `GB/s` (1,000,000,000 bytes a second) or `GiB/s` (1,073,741,824 bytes a second) or `Gbit/s` (1,000,000,000 bits a second)";
    wrong_kind_of_unit: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = \"8 GB\"",
        "toy.toml:26:26: `network.node.tile_rate`: unknown unit `GB` of a rate; expected `GB/s` (1,000,000,000 bytes a second) or `GiB/s` (1,073,741,824 bytes a second) or `Gbit/s` (1,000,000,000 bits a second)";
    zero_rate: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = \"0 GB/s\"",
        "toy.toml:26:23: `network.node.tile_rate` is \"0 GB/s\", out of range; expected 1 kB/s to 1 PB/s";
    fraction_of_a_byte: "packet = { value = \"4 KiB\"" => "packet = { value = \"4.00001 KiB\"",
        "toy.toml:21:21: `network.packet`: `4.00001 KiB` is not a whole number of bytes; expected a multiple of 1 byte";
    packet_too_large: "packet = { value = \"4 KiB\"" => "packet = { value = \"2 MiB\"",
        "toy.toml:21:20: `network.packet` is \"2 MiB\", out of range; expected 64 B to 1 MiB";
    no_global_latency: "latency = { value = \"200 ns\"" => "latency = { value = \"0 ns\"",
        "toy.toml:49:21: `network.global.latency` is \"0 ns\", out of range; expected 1 ps to 1 s";
    buffer_below_a_packet: "buffer = { value = \"64 KiB\"" => "buffer = { value = \"4000 B\"",
        "toy.toml:50:20: the buffer of 4 kB cannot hold one packet of 4 KiB; expected a buffer of at least 4 KiB, or smaller packets";
    too_many_candidates: "candidates = { value = 2" => "candidates = { value = 5",
        "toy.toml:56:24: `network.routing.candidates` is 5, out of range; expected a whole number from 1 to 4";
    unknown_arrangement: "value = \"absolute\"" => "value = \"absolut\"",
        "toy.toml:18:25: `network.arrangement` is \"absolut\", which is not known; expected `absolute` (known here: absolute, relative, circulant)";
    unknown_routing: "value = \"progressive-adaptive\"" => "value = \"adaptive\"",
        "toy.toml:53:23: `network.routing.algorithm` is \"adaptive\", which is not known; expected one of minimal, valiant, ugal-l, progressive-adaptive";
    unknown_detour: "detour = { value = \"router\"" => "detour = { value = \"node\"",
        "toy.toml:54:20: `network.routing.detour` is \"node\", which is not known; expected one of router, group, any-node";
    unknown_input_queues: "value = \"virtual-output\"" => "value = \"lifo\"",
        "toy.toml:22:26: `network.input_queues` is \"lifo\", which is not known; expected `fifo` (known here: virtual-output, fifo)";
    too_many_global_links: "cables_per_group_pair = { value = 1," => "cables_per_group_pair = { value = 3,",
        "toy.toml:16:35: `network.cables_per_group_pair` is 3: with 3 other groups this needs 9 sockets of the 8 a group has; expected cables_per_group_pair of at most 2, or cable_sockets_per_group of at least 9";
    groups_not_joined: "cables_per_group_pair = { value = 1," => "cables_per_group_pair = { value = 0,",
        "toy.toml:16:35: `network.cables_per_group_pair` is 0, so 4 groups are not joined; expected at least 1";
    routers_that_cannot_share_sockets: "routers_per_cable = { value = 1," => "routers_per_cable = { value = 3,",
        "toy.toml:17:31: `network.routers_per_cable` is 3: the 4 routers of a chassis cannot be divided into sets of 3; expected a divisor of routers_per_chassis";
    more_ports_than_the_simulation_numbers: "routers_per_chassis = { value = 4," => "routers_per_chassis = { value = 300,",
        "toy.toml:12:31: a router has 305 ports: 300 rank-1, 2 rank-2, 1 rank-3, 2 node ports; expected at most 255 ports";
    packet_that_takes_too_long: "tile_rate = { value = \"8 GB/s\"" => "tile_rate = { value = \"1000 kB/s\"",
        "toy.toml:12:31: a packet of 4 KiB occupies the slowest link for 4.096 ms; expected at most 4 ms: smaller packets, or faster links\ntoy.toml:75:24: `client.write_rate` of 4 GB/s has no effect: the node's link carries 1 MB/s; expected at most 1 MB/s\ntoy.toml:76:23: `client.read_rate` of 4 GB/s has no effect: the node's link carries 1 MB/s; expected at most 1 MB/s";
    too_many_nodes_on_a_router: "nodes_per_router = { value = 2," => "nodes_per_router = { value = 3,",
        "toy.toml:66:30: 3 nodes on a router that has 2 node ports; expected at most 2";
    too_many_blades: "per_group = { value = 14," => "per_group = { value = 15,",
        "toy.toml:64:1: the blades (8 compute in each group + 1 burst-buffer in each group) need 36 routers of 32; expected blades for at most 8 routers in each of 4 groups";
    too_many_blades_in_all: "per_group = { value = 14," => "total = { value = 57,",
        "toy.toml:64:1: the blades (29 compute in all + 1 burst-buffer in each group) need 33 routers of 32; expected blades for at most 8 routers in each of 4 groups";
    unknown_kind_of_node: "kind = \"burst-buffer\"" => "kind = \"burstbuffer\"",
        "toy.toml:70:8: `placement.blade.1.kind` is \"burstbuffer\", which is not known; expected `burst-buffer` (known here: compute, burst-buffer, lnet, service)";
    no_count_of_nodes: "per_group = { value = 14, assumed = \"toy\" }\n" => "",
        "toy.toml:64:1: the blade has no count of nodes; expected per_group = { value = …, from = \"…\" } or total = { value = …, from = \"…\" }";
    two_counts_of_nodes: "per_group = { value = 14, assumed = \"toy\" }" => "per_group = { value = 14, assumed = \"toy\" }\ntotal = { value = 14, assumed = \"toy\" }",
        "toy.toml:64:1: the blade has both `per_group` and `total`; expected per_group = { value = …, from = \"…\" } or total = { value = …, from = \"…\" }";
    misspelt_count_of_nodes: "per_group = { value = 14," => "pergroup = { value = 14,",
        "toy.toml:64:1: the blade has no count of nodes; expected per_group = { value = …, from = \"…\" } or total = { value = …, from = \"…\" }\ntoy.toml:67:1: unknown key `placement.blade.0.pergroup`; expected `per_group` (known here: kind, nodes_per_router, interfaces_per_node, routers_per_node, per_group, total)";
    no_compute_node: "kind = \"compute\"" => "kind = \"service\"",
        "toy.toml:64:3: the machine has no compute node; expected at least one node of kind compute in `[placement]`";
    burst_buffers_not_described: "[burst_buffer]\n" => "[burst_bufer]\n",
        "toy.toml:64:3: 4 burst-buffer nodes are placed, but not described; expected a table `[burst_buffer]`\ntoy.toml:91:2: unknown key `burst_bufer`; expected `burst_buffer` (known here: burst_buffer, client, network, notes, pfs, placement, sources, title)";
    no_threads: "threads = { value = 16," => "threads = { value = 0,",
        "toy.toml:94:21: `burst_buffer.threads` is 0, out of range; expected a whole number from 1 to 65536";
    stripe_not_of_substripes: "substripe = { value = \"512 KiB\"" => "substripe = { value = \"3 MiB\"",
        "toy.toml:112:23: a stripe of 8 MiB is not made of substripes of 3 MiB; expected a substripe that divides the stripe or is a multiple of it";
    flash_stripe_not_in_a_substripe: "flash_stripe = { value = \"512 KiB\"" => "flash_stripe = { value = \"1 MiB\"",
        "toy.toml:114:26: a run of 512 KiB is not made of flash stripes of 1 MiB; expected a flash stripe that divides stripe and substripe";
    client_faster_than_its_link: "read_rate = { value = \"4 GB/s\"" => "read_rate = { value = \"9 GB/s\"",
        "toy.toml:76:23: `client.read_rate` of 9 GB/s has no effect: the node's link carries 8 GB/s; expected at most 8 GB/s";
    call_with_more_requests_than_its_node: "requests_per_node = { value = 64" => "requests_per_node = { value = 4",
        "toy.toml:82:32: `client.requests_in_flight` is 8, out of range; expected a whole number from 1 to 4";
    type_of_fewer_nodes_than_its_groups_have: "[burst_buffer]\n" => "[client.types.slow]\nfirst_group = { value = 1, assumed = \"toy\" }\nlast_group = { value = 2, assumed = \"toy\" }\nnodes = { value = 27, assumed = \"toy\" }\nwrite_rate = { value = \"1 GB/s\", assumed = \"toy\" }\nread_rate = { value = \"1 GB/s\", assumed = \"toy\" }\nrequests_per_node = { value = 8, assumed = \"toy\" }\ncache = { value = \"1 MB\", assumed = \"toy\" }\nuncached_percent = { value = 50, assumed = \"toy\" }\ncall_overhead = { value = \"1 us\", assumed = \"toy\" }\ncopy_rate = { value = \"1 GB/s\", assumed = \"toy\" }\nmpi_overhead = { value = \"1 us\", assumed = \"toy\" }\nshared_memory_latency = { value = \"1 us\", assumed = \"toy\" }\n[burst_buffer]\n",
        "toy.toml:94:19: `client.types.slow.nodes` is 27, but groups 1 to 2 have 28 compute nodes; expected nodes = { value = 28, from = \"…\" }, or other groups";
    rows_in_view_that_are_no_list: "threads = { value = 16, assumed = \"toy\" }" => "threads = { value = 16, assumed = \"toy\", settled_in_view = \"a-row\" }",
        "toy.toml:94:60: `burst_buffer.threads.settled_in_view` is \"a-row\", not a list of texts; expected [\"row-id\"]";
    no_rows_in_view: "threads = { value = 16, assumed = \"toy\" }" => "threads = { value = 16, assumed = \"toy\", settled_in_view = [] }",
        "toy.toml:94:60: `burst_buffer.threads.settled_in_view` is [], not a list of texts; expected [\"row-id\"]";
    card_below_a_stripe: "card_capacity = { value = \"1 TB\"" => "card_capacity = { value = \"1 MB\"",
        "toy.toml:110:27: a card of 1 MB cannot hold one stripe of 8 MiB; expected a capacity of at least one stripe";
    more_dirty_data_in_the_background_than_fit: "dirty_background = { value = \"0 B\"" => "dirty_background = { value = \"1 MB\"",
        "toy.toml:118:30: `burst_buffer.dirty_background` of 1 MB has no effect: the page cache holds 0 B; expected at most 0 B";
    no_interleaved_message: "interleaved_messages = { value = 4," => "interleaved_messages = { value = 0,",
        "toy.toml:124:34: `network.nic.interleaved_messages` is 0, out of range; expected a whole number from 1 to 256";
    missing_title: "title = " => "name = ",
        "toy.toml:1:1: `title` is missing; expected title = \"the machine in one line\"\ntoy.toml:1:1: unknown key `name`; expected one of burst_buffer, client, network, notes, pfs, placement, sources, title";
    missing_number: "threads = { value = 16, assumed = \"toy\" }\n" => "",
        "toy.toml:91:1: `burst_buffer.threads` is missing; expected threads = { value = 1, from = \"…\" }";
    missing_table_of_a_link: "[network.rank2]" => "[network.rank_2]",
        "toy.toml:10:1: `network.rank2` is missing; expected a table `[network.rank2]`\ntoy.toml:38:10: unknown key `network.rank_2`; expected `rank2` (known here: arrangement, cable_sockets_per_group, cables_per_group_pair, chassis_per_group, global, groups, input_queues, nic, node, node_ports_per_router, packet, plugging, rank1, rank2, router_traversal, routers_per_cable, routers_per_chassis, routing)";
    not_toml: "[network]\n" => "[network\n",
        "toy.toml:10:9: not TOML: unclosed table, expected `]`; expected a TOML document";
    table_as_a_number: "[network.rank1]\n" => "[network]\nrank1 = 3\n[network.x]\n",
        "toy.toml:31:2: not TOML: duplicate key; expected a TOML document";
    map_and_blades: "[client]" => "[placement]\nmap = { value = \"toy.csv\", assumed = \"toy\" }\n[client]",
        "toy.toml:74:1: both `placement.blade` and `placement.map`; expected one of the two";
}

/// A machine file with the map `nodes.csv` in its directory.
fn map_problems(map: &str) -> String {
    let toy = include_str!("../../../../machines/toy.toml");
    let (before, rest) = toy.split_once("[[placement.blade]]").expect("blades");
    let (_, after) = rest.split_once("[client]").expect("client");
    let placement = "[placement]\n\
        map = { value = \"nodes.csv\", assumed = \"test\" }\n\
        compute = { value = 3, assumed = \"test\" }\n\
        burst_buffer = { value = 1, assumed = \"test\" }\n\n";
    let text = format!("{before}{placement}[client]{after}");
    let result = Machine::parse("here/m.toml", &text, &|name| {
        assert_eq!(name, "nodes.csv");
        if map == "missing" { Err("no such file".to_owned()) } else { Ok(map.to_owned()) }
    });
    result.map_or_else(|error| error.to_string(), |_| "a machine".to_owned())
}

#[test]
fn valid_node_map_gives_a_machine() {
    let map = "# comment\ngroup,chassis,slot,nodes\n3,1,3,B\n0,0,0,CC\r\n1,0,2,C\n\n";
    assert_eq!(map_problems(map), "a machine");
}

#[test]
fn node_map_errors_have_line_and_column() {
    let cases = [
        (
            "missing",
            "here/m.toml:65:17: the node map here/nodes.csv cannot be read: no such file; expected a node map in the directory of the machine file",
        ),
        (
            "",
            "here/nodes.csv:1:1: the node map is empty; expected `group,chassis,slot,nodes` and one line a router",
        ),
        (
            "0,0,0,CC\n",
            "here/nodes.csv:1:1: the first line is `0,0,0,CC`; expected `group,chassis,slot,nodes`",
        ),
        (
            "group,chassis,slot,nodes\n0,0,CC\n",
            "here/nodes.csv:2:1: `0,0,CC` has 3 fields; expected group,chassis,slot,nodes",
        ),
        (
            "group,chassis,slot,nodes\n4,0,0,CC\n",
            "here/nodes.csv:2:1: group `4` is not in the machine; expected 0 to 3",
        ),
        (
            "group,chassis,slot,nodes\n0,2,0,CC\n",
            "here/nodes.csv:2:3: chassis `2` is not in the machine; expected 0 to 1",
        ),
        (
            "group,chassis,slot,nodes\n0,0,-1,CC\n",
            "here/nodes.csv:2:5: slot `-1` is not in the machine; expected 0 to 3",
        ),
        (
            "group,chassis,slot,nodes\n0,0,0,Cx\n",
            "here/nodes.csv:2:8: unknown kind of node `x`; expected C (compute), B (burst buffer), L (LNET) or S (service)",
        ),
        (
            "group,chassis,slot,nodes\n0,0,0,CCC\n",
            "here/nodes.csv:2:7: 3 nodes on one router; expected at most 2, its node ports",
        ),
        (
            "group,chassis,slot,nodes\n0,0,0,CC\n0,0,0,B\n",
            "here/nodes.csv:3:1: `0,0,0,B`: this router was on line 2 already; expected one line a router",
        ),
        (
            "group,chassis,slot,nodes\n0,0,0,CC\n0,0,1,B\n",
            "here/m.toml:66:21: `placement.compute` is 3, but here/nodes.csv has 2; expected compute = { value = 2, from = \"…\" }, or another map",
        ),
    ];
    for (map, message) in cases {
        assert_eq!(map_problems(map), message);
    }
}

#[test]
fn node_map_in_another_directory_is_refused() {
    let toy = include_str!("../../../../machines/toy.toml");
    let (before, rest) = toy.split_once("[[placement.blade]]").expect("blades");
    let (_, after) = rest.split_once("[client]").expect("client");
    let placement = "[placement]\nmap = { value = \"../../etc/passwd\", assumed = \"test\" }\n";
    let text = format!("{before}{placement}[client]{after}");
    let error = Machine::parse("m.toml", &text, &|_| panic!("read a file elsewhere"));
    assert_eq!(
        error.expect_err("a path").to_string(),
        "m.toml:65:17: `placement.map` is \"../../etc/passwd\"; \
         expected the name of a file in the directory of the machine file"
    );
}

#[test]
fn machine_with_too_many_routers_is_refused() {
    let toy = include_str!("../../../../machines/toy.toml");
    let text = toy
        .replace("chassis_per_group = { value = 2", "chassis_per_group = { value = 1000")
        .replace("routers_per_chassis = { value = 4", "routers_per_chassis = { value = 1000");
    let error = Machine::parse("m.toml", &text, &|_| Err(String::new())).expect_err("too large");
    assert_eq!(
        error.to_string(),
        "m.toml:11:20: 4 groups of 1000 x 1000 routers are 4000000 routers; \
         expected at most 1000000 routers"
    );
}

#[test]
fn all_problems_are_reported_in_file_order() {
    let toy = include_str!("../../../../machines/toy.toml");
    let text = toy
        .replace("threads = { value = 16", "threads = { value = 0")
        .replace("groups = { value = 4", "groups = { value = 0")
        .replace("\"4 GB/s\"", "\"4\"");
    let error = Machine::parse("m.toml", &text, &|_| Err(String::new())).expect_err("wrong");
    let lines: Vec<usize> = error.problems.iter().map(|p| p.line).collect();
    assert_eq!(lines, [11, 75, 76, 94, 103]);
}

#[test]
fn unknown_machine_names_and_files_are_refused() {
    let message = |name: &str| Machine::load(name).expect_err("unknown").to_string();
    assert_eq!(
        message("trinty"),
        "trinty: unknown machine; expected `trinity` (known here: toy, toy-plus, toy-tree, cori-phase1, theta, \
         edison, edison-scratch3, shaheen2, piz-daint, trinity-phase2, cori, frontier, trinity), or the path of a file that ends in .toml"
    );
    assert_eq!(
        message("no/such.toml"),
        "no/such.toml: cannot be read: No such file or directory (os error 2); \
         expected a readable machine file, or one of the built-in names"
    );
}
