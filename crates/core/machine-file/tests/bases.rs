//! Machine files that are based on others.

use forebay_machine_file::machine::Machine;
use forebay_machine_file::{Setting, describe};
use std::path::PathBuf;

const TOY: &str = include_str!("../../../../machines/toy.toml");

fn parse(text: &str) -> Result<Machine, String> {
    let none = |map: &str| -> Result<String, String> { panic!("{map} is read") };
    Machine::parse("mine.toml", text, &none).map_err(|error| error.to_string())
}

fn load(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{error}"))
}

/// Files in a directory of their own.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a directory");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

/// The error with the paths of a directory's files shortened.
fn error_of(folder: &std::path::Path, file: &str) -> String {
    let path = folder.join(file);
    let error = Machine::load(&path.to_string_lossy()).map(|_| "a machine".to_owned());
    let text = error.unwrap_or_else(|error| error.to_string());
    text.replace(&format!("{}/", folder.to_string_lossy()), "")
}

#[test]
fn third_file_system_of_edison_is_all_that_differs() {
    let (one, three) = (load("edison"), load("edison-scratch3"));
    assert_ne!(one.pfs, three.pfs);
    assert_eq!((one.network, one.nodes), (three.network, three.nodes));
    assert_eq!((one.client, one.client_types), (three.client, three.client_types));
    assert_eq!(one.burst_buffer, three.burst_buffer);
    let own: Vec<_> = three.provenance.iter().filter(|p| p.base.is_none()).collect();
    assert!(own.len() < 10 && own.iter().all(|p| p.key.starts_with("pfs.")), "{own:?}");
    let names: Vec<_> = three.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["edison-scratch3.toml", "base1-edison.toml", "edison.csv"]);
}

#[test]
fn file_with_nothing_but_a_base_is_that_machine() {
    let (toy, same) = (load("toy"), parse("base = \"toy\"\n").unwrap());
    assert_eq!((toy.title, toy.network, toy.nodes), (same.title, same.network, same.nodes));
    assert_eq!((toy.client, toy.burst_buffer), (same.client, same.burst_buffer));
    assert_eq!(same.name, "mine");
    assert!(same.provenance.iter().all(|p| p.base.as_deref() == Some("toy.toml")));
}

#[test]
fn own_entries_replace_those_of_the_base_with_their_sources() {
    let text =
        "base = \"toy\"\n[network.rank1]\nlatency = { value = \"77 ns\", assumed = \"longer\" }\n";
    let machine = parse(text).unwrap();
    assert_eq!(machine.network.rank1.latency.to_string(), "77 ns");
    assert_eq!(machine.network.rank1.rate, load("toy").network.rank1.rate);
    let number = |key: &str| machine.provenance.iter().find(|p| p.key == key).unwrap();
    assert_eq!(number("network.rank1.latency").source, "assumed: longer");
    assert_eq!(number("network.rank1.latency").base, None);
    let shown = describe::list_sources(&machine);
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(!line("network.rank1.latency").contains("[of"), "{shown}");
    assert!(line("network.rank1.tile_rate").ends_with(" [of toy.toml]"), "{shown}");
}

#[test]
fn tables_can_be_left_out_and_lists_are_replaced_whole() {
    let text = r#"base = "toy"
without = ["burst_buffer"]
[[placement.blade]]
kind = "compute"
nodes_per_router = { value = 2, assumed = "test" }
total = { value = 6, assumed = "test" }
"#;
    let machine = parse(text).unwrap();
    assert_eq!((machine.nodes.len(), machine.burst_buffer), (6, None));
}

#[test]
fn bases_are_found_from_the_directory_of_their_file() {
    let top = "base = \"below/middle.toml\"\ntitle = \"top\"\n";
    let middle = "base = \"../toy.toml\"\ntitle = \"middle\"\nnotes = \"of the middle\"\n";
    let at = folder("bases-chain", &[("top.toml", top), ("toy.toml", TOY)]);
    folder("bases-chain/below", &[("middle.toml", middle)]);
    let machine = load(&at.join("top.toml").to_string_lossy());
    assert_eq!((machine.title.as_str(), machine.notes.as_str()), ("top", "of the middle"));
    assert_eq!(machine.network, load("toy").network);
}

#[test]
fn setting_replaces_a_number_of_the_base() {
    let setting = |key: &str, value: &str| Setting { key: key.into(), value: value.into() };
    let settings = [
        setting("network.rank1.latency", "123 ns"),
        setting("network.rank2.latency", "456 ns"),
        setting("network.rank1.latency", "99 ns"),
    ];
    let text =
        "base = \"toy\"\n[network.rank1]\nlatency = { value = \"77 ns\", assumed = \"longer\" }\n";
    let machine = Machine::parse_with("mine.toml", text, &settings).unwrap();
    assert_eq!(machine.network.rank1.latency.to_string(), "99 ns");
    assert_eq!(machine.network.rank2.latency.to_string(), "456 ns");
    let error = Machine::parse_with(
        "mine.toml",
        "base = \"toy\"\nwithout = [\"burst_buffer.granularity\"]\n",
        &[setting("burst_buffer.granularity", "1 GiB")],
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("mine.toml has no number `burst_buffer.granularity`"), "{error}");
}

#[test]
fn mistyped_key_of_a_setting_has_the_nearest_key_without_the_list_of_all() {
    let setting = Setting { key: "burst_bufer.card_write".into(), value: "1GB/s".into() };
    let error = Machine::load_with("toy", &[setting]).unwrap_err().to_string();
    assert!(error.ends_with("expected `burst_buffer.card_write`"), "{error}");
}

#[test]
fn files_of_a_machine_with_a_base_can_be_kept_and_loaded() {
    let latency = Setting { key: "network.rank2.latency".into(), value: "456 ns".into() };
    let mut machine = Machine::load_with("edison-scratch3", &[latency]).unwrap();
    let files: Vec<_> = machine.files.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    let kept = load(&folder("bases-kept", &files).join("edison-scratch3.toml").to_string_lossy());
    assert_eq!(kept.network.rank2.latency.to_string(), "456 ns");
    machine.provenance.clone_from(&kept.provenance);
    machine.files.clone_from(&kept.files);
    assert_eq!(machine, kept);
}

#[test]
fn unknown_base_has_a_suggestion_and_its_line() {
    let error = parse("title = \"mine\"\nbase = \"edisn\"\n").unwrap_err();
    let start = "mine.toml:2:8: base \"edisn\": unknown machine; expected `edison` (known here: ";
    assert!(error.starts_with(start), "{error}");
    let error = parse("base = 3\n").unwrap_err();
    assert!(
        error.starts_with("mine.toml:1:8: `base` is 3, not a text; expected the name"),
        "{error}"
    );
    let error = parse("base = \"other.toml\"\n").unwrap_err();
    assert!(error.starts_with("mine.toml:1:8: base \"other.toml\": a path, but"), "{error}");
    let at = folder("bases-missing", &[("mine.toml", "base = \"other.toml\"\n")]);
    let error = error_of(&at, "mine.toml");
    assert!(error.starts_with("mine.toml:1:8: base \"other.toml\": cannot be read: "), "{error}");
}

#[test]
fn base_that_leads_back_is_an_error() {
    let at = folder(
        "bases-cycle",
        &[("one.toml", "base = \"two.toml\"\n"), ("two.toml", "\nbase = \"one.toml\"\n")],
    );
    assert_eq!(
        error_of(&at, "one.toml"),
        "two.toml:2:8: base \"one.toml\" leads back to one.toml; expected a machine file that is not based \
         on this one"
    );
}

#[test]
fn key_to_leave_out_must_be_of_the_base() {
    let error = parse("base = \"toy\"\nwithout = [\"burst_bufer\"]\n").unwrap_err();
    let start =
        "mine.toml:2:12: the base has no `burst_bufer`; expected `burst_buffer` (known here: ";
    assert!(error.starts_with(start), "{error}");
    let error = parse("base = \"toy\"\nwithout = \"pfs\"\n").unwrap_err();
    assert!(error.starts_with("mine.toml:2:11: `without` has \"pfs\", which"), "{error}");
}

#[test]
fn problems_are_at_their_place_in_the_file_that_has_them() {
    let base = TOY.replacen("groups = { value = 4, assumed = \"toy\" }", "groups = 4", 1);
    let files = [("mine.toml", "base = \"wrong.toml\"\n\n"), ("wrong.toml", base.as_str())];
    let at = folder("bases-wrong", &files);
    assert_eq!(error_of(&at, "mine.toml"), error_of(&at, "wrong.toml"));
    let error = error_of(&at, "mine.toml");
    assert!(error.starts_with("wrong.toml:11:10: `network.groups` is 4, without"), "{error}");
    let error = parse("base = \"toy\"\n[network]\ngroups = 4\n").unwrap_err();
    assert!(error.starts_with("mine.toml:3:10: `network.groups` is 4, without"), "{error}");
    let at =
        folder("bases-toml", &[("mine.toml", "base = \"bad.toml\"\n"), ("bad.toml", "a = \n")]);
    let error = error_of(&at, "mine.toml");
    assert!(error.starts_with("bad.toml:1:5: not TOML: "), "{error}");
}
