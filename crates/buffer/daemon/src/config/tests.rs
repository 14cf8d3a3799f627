//! Valid configurations, and the errors of invalid ones.

use std::path::Path;

use super::*;

const GOOD: &str = r#"[pool]
name = "flash"
granularity = "1GiB"

[controller]
address = "127.0.0.1:7510"
directory = "/var/lib/forebay"

[[storage]]
name = "bb1"
address = "127.0.0.1:7511"
directory = "/flash"
capacity = "10GiB"

[auth]
method = "munge"
"#;

fn parse(text: &str) -> Result<PoolConfig, String> {
    PoolConfig::parse(Path::new("pool.toml"), text).map_err(|e| e.to_string())
}

#[test]
fn omitted_entries_have_defaults() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.storage[0].capacity, Bytes(10 << 30));
    assert_eq!(config.mount_root, Path::new("/mnt/forebay"));
    assert_eq!(config.auth, AuthMethod::Munge(None));
    assert_eq!(config.operator, 0);
    assert_eq!((config.audit_log, config.kept_usage), (None, None));
    let text = GOOD.replace("\n[[storage]]", "kept_usage = 500\n[[storage]]");
    assert_eq!(parse(&text).unwrap().kept_usage, Some(500));
    let text = GOOD.replace("\n[[storage]]", "audit_log = \"/var/log/audit.log\"\n[[storage]]");
    assert_eq!(parse(&text).unwrap().audit_log.unwrap(), Path::new("/var/log/audit.log"));
}

#[test]
fn times_have_a_unit() {
    let with =
        |entry: &str| parse(&GOOD.replace("\n[[storage]]", &format!("{entry}\n[[storage]]")));
    let config = with("persistent_lifetime = \"90d\"\npersistent_grace = \"12h\"").unwrap();
    assert_eq!(config.persistent_lifetime_ms, Some(90 * 86_400_000));
    assert_eq!(config.persistent_grace_ms, Some(12 * 3_600_000));
    assert_eq!(config.persistent_warning_ms, None);
    for wrong in ["90", "d", "", "-1d", "0s", "1w", "99999999999999d", "1é"] {
        let refused = with(&format!("persistent_grace = \"{wrong}\"")).unwrap_err();
        assert!(refused.contains("is not a time"), "{wrong}: {refused}");
    }
}

#[test]
fn limits_of_storage_daemons_are_configurable() {
    let rates = "user_requests_per_second = 500\nuser_bytes_per_second = \"1MiB\"\n";
    let limits = "[limits]\nuser_connections = 7\nuser_open_files = 9\n";
    let text = format!("{GOOD}\n{limits}{rates}");
    let mut store = StoreOptions::new("/flash");
    let defaults = store.clone();
    let timeout = std::time::Duration::from_secs(60);
    parse(&text).unwrap().limits.apply(&mut store, timeout);
    assert_eq!((store.connection_limits.user, store.limits.max_user_handles), (7, 9));
    assert_eq!(store.limits.max_user_sessions, defaults.limits.max_user_sessions);
    assert_eq!((store.user_rates.requests, store.user_rates.bytes), (Some(500), Some(1 << 20)));
    assert!(store.user_rates.longest_delay < timeout, "clients do not give up");
    parse(GOOD).unwrap().limits.apply(&mut store, timeout);
    assert_eq!((store.user_rates.requests, store.user_rates.bytes), (None, None));
    let unlimited = parse(&text.replace('7', "0")).unwrap_err();
    assert!(unlimited.starts_with("pool.toml:"), "{unlimited}");
}

#[test]
fn regular_scrub_is_configurable_and_can_be_switched_off() {
    let scrub = |table: &str| parse(&format!("{GOOD}\n[scrub]\n{table}\n")).map(|pool| pool.scrub);
    let defaults = parse(GOOD).unwrap().scrub;
    assert_eq!(defaults.interval, Some(std::time::Duration::from_secs(7 * 86_400)));
    let often = scrub("interval = \"1d\"\nbytes_per_second = \"2MiB\"").unwrap();
    assert_eq!(often.interval, Some(std::time::Duration::from_secs(86_400)));
    assert_eq!(often.bytes_per_second, 2 << 20);
    assert_eq!(scrub("enabled = false\ninterval = \"1d\"").unwrap().interval, None);
    let slow = scrub("bytes_per_second = \"1023KiB\"").unwrap_err();
    assert!(slow.contains("at least 1MiB per second"), "{slow}");
}

#[test]
fn errors_name_the_line() {
    let wrong = [
        ("name = \"flash\"", "name = \"fl ash\"", "pool.toml:2: "),
        ("\"1GiB\"", "\"1GaB\"", "pool.toml:3: "),
        ("\"1GiB\"", "\"11GiB\"", "pool.toml:13: less than one granule"),
        (":7510", "", "pool.toml:6: `127.0.0.1` has no port"),
        ("127.0.0.1:7511", "0.0.0.0:7511", "pool.toml:11: "),
        ("\"/flash\"", "\"flash\"", "pool.toml:12: `flash` is relative"),
        ("\"munge\"", "\"magic\"", "pool.toml:16: there is no method"),
        ("\"munge\"", "\"key\"", "pool.toml:16: "),
        ("[auth]", "[auth]\ncolour = \"red\"", "pool.toml:16: "),
        ("[auth]", "[auth", "pool.toml:15: "),
    ];
    for (from, to, expected) in wrong {
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with(expected), "{to}: {error}");
    }
    let twice = GOOD.replace(
        "[auth]",
        "[[storage]]\nname = \"bb1\"\naddress = \"127.0.0.1:7512\"\ndirectory = \"/f\"\ncapacity = \"1GiB\"\n[auth]",
    );
    let error = parse(&twice).unwrap_err();
    assert!(error.starts_with("pool.toml:16: there are two"), "{error}");
}

#[test]
fn host_with_several_storage_nodes_has_a_directory_for_each() {
    let second = |lines: &str| {
        let table = format!("[[storage]]\nname = \"bb1-b\"\n{lines}\ncapacity = \"1GiB\"\n[auth]");
        parse(&GOOD.replace("[auth]", &table))
    };
    let names = |config: &PoolConfig, host: &str| -> Vec<String> {
        config.storage_nodes_of(host).map(|node| node.name.clone()).collect()
    };
    let config =
        second("host = \"bb1\"\naddress = \"127.0.0.1:7512\"\ndirectory = \"/f\"").unwrap();
    assert_eq!(names(&config, "bb1"), ["bb1", "bb1-b"]);
    assert!(names(&config, "bb1-b").is_empty());
    let other = "address = \"127.0.0.1:7512\"\ndirectory = \"/flash\"";
    assert_eq!(names(&second(other).unwrap(), "bb1-b"), ["bb1-b"]);
    let error = second(&format!("host = \"bb1\"\n{other}")).unwrap_err();
    let expected = "pool.toml:19: `bb1` on the same host has this directory";
    assert!(error.starts_with(expected), "{error}");
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "[ -~\n]{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn damaged_configuration_does_not_panic(at in 0usize..300, with in "[ -~\n]{0,3}") {
        let mut text = GOOD.to_owned();
        let at = at.min(text.len());
        text.insert_str(at, &with);
        let _ = parse(&text);
    }
}

#[test]
fn reload_changes_no_entry_that_needs_a_restart() {
    let running = parse(GOOD).unwrap();
    let new = GOOD
        .replace(":7510", ":7512")
        .replace(":7511", ":7513")
        .replace("/flash", "/other")
        .replace("10GiB\"", "20GiB\"\nfrom = [\"10.0.0.1\"]")
        .replace("[auth]", "[agent]\nmount_root = \"/mnt/other\"\n[auth]")
        .replace("granularity", "max_nodes = 3\ngranularity");
    let new = parse(&new).unwrap();
    assert_eq!(
        running.entries_for_restart(&new),
        [
            "controller.address",
            "address, directory, capacity or metadata_memory of storage",
            "agent.mount_root"
        ]
    );
    let merged = running.reloaded(&new).unwrap();
    assert!(running.entries_for_restart(&merged).is_empty());
    assert_eq!(merged.max_nodes, 3);
    assert_eq!(merged.storage[0].allowed_sources, new.storage[0].allowed_sources);
    assert_ne!(merged.storage[0].allowed_sources, running.storage[0].allowed_sources);
    assert_eq!(merged.storage[0].capacity, Bytes(10 << 30));
}

#[test]
fn reload_that_changes_the_pool_is_refused() {
    let running = parse(GOOD).unwrap();
    for (old, new) in [
        ("\"flash\"", "\"other\""),
        ("\"1GiB\"", "\"2GiB\""),
        ("granularity", "equalize_fragments = false\ngranularity"),
    ] {
        let new = parse(&GOOD.replace(old, new)).unwrap();
        let reason = running.reloaded(&new).unwrap_err().to_string();
        assert!(reason.starts_with("pool.toml: a pool's name"), "{reason}");
    }
}
