//! Numbers that replace those of a machine file.

use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use forebay_units::Rate;

fn load(settings: &[(&str, &str)]) -> Result<Machine, String> {
    let settings: Vec<Setting> = settings
        .iter()
        .map(|(key, value)| Setting { key: (*key).to_owned(), value: (*value).to_owned() })
        .collect();
    Machine::load_with("toy", &settings).map_err(|error| error.to_string())
}

fn refused(settings: &[(&str, &str)]) -> String {
    match load(settings) {
        Ok(_) => panic!("{settings:?} is accepted"),
        Err(error) => error,
    }
}

#[test]
fn set_number_replaces_that_of_the_file_and_nothing_else() {
    let before = Machine::load("toy").unwrap_or_else(|error| panic!("{error}"));
    let settings = [("burst_buffer.card_write", "1.5GB/s"), ("burst_buffer.threads", "3")];
    let after = load(&settings).unwrap_or_else(|error| panic!("{error}"));
    let Some(expected) =
        before.burst_buffer.clone().map(|b| forebay_machine_file::machine::BurstBuffer {
            card_write: Rate(1_500_000_000),
            threads: 3,
            ..b
        })
    else {
        panic!("toy has burst buffers")
    };
    assert_eq!(after.burst_buffer, Some(expected));
    assert_eq!(after.network, before.network);
    assert_eq!(after.client, before.client);
    let source = |machine: &Machine, key: &str| {
        let number = machine.provenance.iter().find(|p| p.key == key);
        number.map(|p| (p.value.clone(), p.source.clone())).unwrap_or_default()
    };
    let (value, text) = source(&after, "burst_buffer.card_write");
    assert_eq!(value, "1.5GB/s");
    let (file_value, _) = source(&before, "burst_buffer.card_write");
    assert_eq!(text, format!("set on the command line instead of {file_value}"));
}

#[test]
fn last_setting_of_a_key_counts() {
    let machine = load(&[("network.groups", "3"), ("network.groups", "2")]);
    let groups = machine.map(|m| m.network.groups);
    // The other numbers of toy need its own number of groups only where nodes are placed.
    assert!(groups.is_ok_and(|g| g == 2) || refused(&[("network.groups", "2")]).contains("group"));
}

#[test]
fn unknown_key_is_refused_with_the_nearest_one() {
    let error = refused(&[("burst_buffer.card_wirte", "1GB/s")]);
    assert!(error.starts_with("--set burst_buffer.card_wirte=1GB/s: "), "{error}");
    assert!(error.contains("expected `burst_buffer.card_write`"), "{error}");
    let error = refused(&[("nonsense", "1")]);
    assert!(error.contains("network.rank1.tile_rate"), "{error}");
}

#[test]
fn invalid_value_is_refused_as_in_a_file() {
    for (key, value, word) in [
        ("burst_buffer.card_write", "1.5", "unit"),
        ("burst_buffer.card_write", "fast\"", "--set burst_buffer.card_write"),
        ("burst_buffer.threads", "many", "a whole number from 1"),
        ("burst_buffer.threads", "0", "out of range"),
        ("network.routing.algorithm", "shortest", "minimal"),
    ] {
        let error = refused(&[(key, value)]);
        assert!(error.contains(word) && error.contains("--set"), "{key}={value}: {error}");
    }
}
