//! The rules that `scripts/break-rules.py` breaks are in the sources, each once.

use std::fs;
use std::path::Path;

#[test]
fn each_rule_is_found_once_in_its_file() {
    let buffer = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let table = buffer.join("daemon/tests/cluster_simulation/broken_rules.toml");
    let table: toml::Table = fs::read_to_string(table).unwrap().parse().unwrap();
    for rule in table["rule"].as_array().unwrap() {
        let text = |key: &str| rule[key].as_str().unwrap();
        let source = fs::read_to_string(buffer.join(text("file"))).unwrap();
        let count = source.matches(text("find")).count();
        assert_eq!(count, 1, "{}: not found once in {}", text("rule"), text("file"));
    }
}
