//! `forebay machine`.

use crate::forebay;
use forebay::WorkDir;

#[test]
fn every_listed_machine_can_be_shown() {
    let dir = WorkDir::new();
    let list = dir.expect_success("machine list").stdout;
    for name in
        ["toy", "trinity", "trinity-phase2", "cori", "cori-phase1", "shaheen2", "theta", "edison"]
    {
        assert!(list.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name}\n{list}");
        let shown = dir.expect_success(&format!("machine show {name}")).stdout;
        for word in ["Routers", "Links", "Bisection"] {
            assert!(shown.contains(word), "{name} without {word}");
        }
        // "Groups 0-3", or "Group 0" where no two are alike.
        assert!(shown.lines().any(|line| line.starts_with("Group")), "{name} without groups");
    }
}

#[test]
fn list_has_the_same_numbers_as_json() {
    let dir = WorkDir::new();
    let list = dir.expect_success("machine list").stdout;
    let json = dir.json("machine list --json");
    let machines = json.as_array().unwrap();
    assert_eq!(machines.len() + 1, list.lines().count());
    for (machine, line) in machines.iter().zip(list.lines().skip(1)) {
        let cells: Vec<String> =
            line.split_whitespace().take(5).map(|cell| cell.replace(',', "")).collect();
        assert_eq!(machine["machine"], cells[0].as_str());
        for (name, cell) in
            ["groups", "routers", "compute", "burst_buffers"].into_iter().zip(&cells[1..])
        {
            assert_eq!(machine[name].to_string(), *cell, "{line}");
        }
        assert!(line.ends_with(machine["description"].as_str().unwrap()), "{line}");
    }
    assert_eq!(machines[0]["compute"], 56);
}

#[test]
fn machine_show_prints_sources_and_json() {
    let dir = WorkDir::new();
    let text = dir.expect_success("machine show toy --sources").stdout;
    assert!(text.contains("network.rank1"), "{text}");
    let json = dir.json("machine show trinity --json");
    assert_eq!(json["network"]["groups"], 57);
    // 14 Gbit/s on each of 3 lanes, of which packets' payload is 65%.
    assert_eq!(json["network"]["rank1"]["rate"], 5_250_000_000_u64 * 65 / 100);
}

#[test]
fn machine_file_is_loaded_by_its_path() {
    let dir = WorkDir::new();
    dir.write("mine.toml", include_str!("../../../../machines/toy.toml"));
    assert!(dir.expect_success("machine check mine.toml").stdout.contains("valid"));
    let run = dir.json("sim traffic --machine mine.toml --messages 3 --no-out --json -");
    assert_eq!(run["machine"], "mine");
}

#[test]
fn invalid_machine_file_is_reported_with_line_and_correction() {
    let dir = WorkDir::new();
    let good = include_str!("../../../../machines/toy.toml");
    let line = good.lines().position(|l| l.starts_with("groups")).unwrap() + 1;
    let bad: String =
        good.lines()
            .map(|l| {
                if l.starts_with("groups") { "groups = 0\n".to_string() } else { format!("{l}\n") }
            })
            .collect();
    dir.write("bad.toml", &bad);
    for command in ["machine check bad.toml", "machine show bad.toml"] {
        let error = dir.expect_invalid_input(command);
        assert!(error.contains(&format!("bad.toml:{line}:")), "{error}");
        assert!(error.contains("expected"), "{error}");
    }
    dir.expect_invalid_input("sim traffic --machine bad.toml");
    let error = dir.expect_invalid_input("machine show trinty");
    assert!(error.contains("`trinity`"), "{error}");
    let error = dir.expect_invalid_input("machine check none.toml");
    assert!(error.contains("none.toml"), "{error}");
}
