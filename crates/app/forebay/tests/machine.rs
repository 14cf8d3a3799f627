//! `forebay machine`, as it is used.
#![allow(clippy::unwrap_used)]

mod forebay;
use forebay::Place;

#[test]
fn the_list_has_every_machine_and_each_can_be_shown() {
    let place = Place::new();
    let list = place.ok("machine list").out;
    for name in [
        "toy",
        "trinity",
        "trinity-phase2",
        "cori",
        "cori-phase1",
        "shaheen2",
        "theta",
        "edison",
    ] {
        assert!(
            list.lines()
                .any(|l| l.split_whitespace().next() == Some(name)),
            "{name}\n{list}"
        );
        let shown = place.ok(&format!("machine show {name}")).out;
        for word in ["Routers", "Links", "Bisection", "Groups"] {
            assert!(shown.contains(word), "{name} without {word}");
        }
    }
}

#[test]
fn show_gives_sources_and_json() {
    let place = Place::new();
    let text = place.ok("machine show toy --sources").out;
    assert!(text.contains("network.rank1"), "{text}");
    let json = place.json("machine show trinity --json");
    assert_eq!(json["network"]["groups"], 57);
    assert_eq!(json["network"]["rank1"]["rate"], 5_250_000_000_u64);
}

#[test]
fn a_machine_file_is_used_by_its_path() {
    let place = Place::new();
    place.write("mine.toml", include_str!("../../../../machines/toy.toml"));
    assert!(place.ok("machine check mine.toml").out.contains("fine"));
    let run = place.json("sim traffic --machine mine.toml --messages 3 --no-out --json -");
    assert_eq!(run["machine"], "mine");
}

#[test]
fn a_wrong_machine_file_is_answered_with_file_line_and_what_would_be_right() {
    let place = Place::new();
    let good = include_str!("../../../../machines/toy.toml");
    let line = good.lines().position(|l| l.starts_with("groups")).unwrap() + 1;
    let bad: String = good
        .lines()
        .map(|l| {
            if l.starts_with("groups") {
                "groups = 0\n".to_string()
            } else {
                format!("{l}\n")
            }
        })
        .collect();
    place.write("bad.toml", &bad);
    for command in ["machine check bad.toml", "machine show bad.toml"] {
        let error = place.refused(command);
        assert!(error.contains(&format!("bad.toml:{line}:")), "{error}");
        assert!(error.contains("expected"), "{error}");
    }
    place.refused("sim traffic --machine bad.toml");
    let error = place.refused("machine show trinty");
    assert!(error.contains("`trinity`"), "{error}");
    let error = place.refused("machine check none.toml");
    assert!(error.contains("none.toml"), "{error}");
}
