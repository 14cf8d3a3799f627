use super::*;

const LISTS: &str = r#"
## a comment
global_settings: [
  use_syslog: false,
  log_file: "/var/log/urd.log",
  dry_run: true,
  global_socket: "/run/urd/global",
  control_socket: "/run/urd/control",
  bind_address: "127.0.0.1",
  remote_port: 42000,
  pidfile: "/run/urd.pid",
  workers: 4,
  staging_directory: "/tmp/urd/"
]
namespaces: [
  [
    nsid: "lustre0",
    track_contents: false,
    mountpoint: "/mnt/lustre0",
    type: "POSIX/SHARED",
    capacity: "5 GiB",
    visibility: "all"
  ],
  [ nsid: nvm, track_contents: true, mountpoint: /mnt/nvm, type: NVML, capacity: 16384,
    visibility: none ],
]
"#;

fn read(text: &str) -> Result<Configuration, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Configuration::read(file.path()).map_err(|error| error.reason)
}

#[test]
fn lists_of_single_entries_and_mappings_are_read_alike() {
    let lists = read(LISTS).unwrap();
    assert_eq!((lists.workers, lists.remote_port, lists.dry_run), (4, 42_000, true));
    assert_eq!(lists.dataspaces.len(), 2);
    let (name, space) = &lists.dataspaces[0];
    assert_eq!((name.as_str(), space.capacity, space.visible), ("lustre0", 5 << 30, true));
    assert_eq!(lists.dataspaces[1].1.capacity, 16_384);
    let mapping = LISTS
        .replace("global_settings: [", "global_settings: {")
        .replace("\"/tmp/urd/\"\n]", "\"/tmp/urd/\"\n}");
    assert_ne!(mapping, LISTS);
    assert_eq!(read(&mapping).unwrap(), lists);
}

#[test]
fn bracket_at_the_margin_behind_comments_closes_an_empty_list() {
    let (global, _) = LISTS.split_once("namespaces: [").unwrap();
    let text = format!("{global}namespaces: [\n\n  ###  [\n  ###    nsid: none\n  ###  ],\n\n]\n");
    assert!(read(&text).unwrap().dataspaces.is_empty());
}

#[test]
fn library_finds_the_sockets_in_either_form() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for text in [
        LISTS,
        "global_settings:\n  global_socket: /run/urd/global\n  control_socket: /run/urd/control\n  newer: 1\n",
    ] {
        std::fs::write(file.path(), text).unwrap();
        let sockets = read_sockets(file.path()).unwrap();
        assert_eq!(sockets.global, Path::new("/run/urd/global"));
        assert_eq!(sockets.control, Path::new("/run/urd/control"));
    }
}

#[test]
fn wrong_setting_is_reported_with_its_section_and_what_would_be_right() {
    let cases = [
        ("workers: 4", "workers: 0", "write a number from 1 to 1024"),
        ("\"127.0.0.1\"", "\"127.0.0.300\"", "write an IP address of this host"),
        ("workers: 4", "worker: 4", "has no setting `worker`"),
        ("dry_run: true", "dry_run: maybe", "write `true` or `false`"),
        ("  pidfile: \"/run/urd.pid\",\n", "", "does not set `pidfile`"),
        ("\"5 GiB\"", "\"5 apples\"", "dataspace `lustre0`"),
        ("\"POSIX/SHARED\"", "tape", "write POSIX/LOCAL"),
        ("visibility: \"all\"", "visibility: some", "write `all` or `none`"),
        ("\"/mnt/lustre0\"", "mnt", "write an absolute path"),
    ];
    for (right, wrong, expected) in cases {
        let text = LISTS.replace(right, wrong);
        assert_ne!(text, LISTS, "{right}");
        let reason = read(&text).unwrap_err();
        assert!(reason.contains(expected), "{wrong}: {reason}");
    }
}

#[test]
fn sizes_have_decimal_and_binary_units() {
    for (text, bytes) in [("1", 1), ("2 kB", 2000), ("1.5 GiB", 3 << 29), ("16 MiB", 16 << 20)] {
        assert_eq!(parse_size(text), Some(bytes), "{text}");
    }
    for text in ["", "0", "GiB", "-1", "1 zettabyte", "99999999999 TiB"] {
        assert_eq!(parse_size(text), None, "{text}");
    }
}
