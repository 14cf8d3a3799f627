//! A machine file of one node, with the numbers of this computer: `toy` with a parallel file system.

use crate::Outcome;
use std::fmt;
use std::path::Path;

/// Times in seconds, rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// A request to the file system of the files: its fixed time, and the rate of its data.
    pub pfs_latency: f64,
    pub pfs_rate: f64,
    /// Opening and closing of a file by all processes.
    pub pfs_open: f64,
    /// Rate at which each process logs while the others do: its own work, as the writes end in the
    /// page cache.
    pub log_rate: f64,
    /// Opening and closing of the logs of a file, without that of the file.
    pub log_open: f64,
    /// Rate at which all processes together read logs.
    pub log_read_rate: f64,
    /// One logged call without its data.
    pub logged_call: f64,
    /// One message between two processes.
    pub message: f64,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "file system {:.0} us + {:.0} MB/s, open {:.1} ms; log {:.0} MB/s a process, read {:.0} MB/s, \
             open {:.1} ms; call {:.2} us; message {:.1} us",
            self.pfs_latency * 1e6,
            self.pfs_rate / 1e6,
            self.pfs_open * 1e3,
            self.log_rate / 1e6,
            self.log_read_rate / 1e6,
            self.log_open * 1e3,
            self.logged_call * 1e6,
            self.message * 1e6,
        )
    }
}

/// Nothing that this computer does not have limits: network, clients, locks.
const FREE: [(&str, &str); 31] = [
    ("network.packet", "16 KiB"),
    ("network.node.tile_rate", "100 GB/s"),
    ("network.rank1.tile_rate", "100 GB/s"),
    ("network.rank2.tile_rate", "100 GB/s"),
    ("network.global.tile_rate", "100 GB/s"),
    ("client.write_rate", "100 GB/s"),
    ("client.read_rate", "100 GB/s"),
    ("client.cache", "1 GiB"),
    ("client.call_overhead", "0 us"),
    ("client.requests_in_flight", "1"),
    ("burst_buffer.card_write", "100 GB/s"),
    ("burst_buffer.data_rate", "100 GB/s"),
    ("burst_buffer.dispatch", "0 us"),
    ("burst_buffer.lock_hold", "0 us"),
    ("burst_buffer.lock_handover", "0 us"),
    ("burst_buffer.controllers_per_card", "1"),
    ("burst_buffer.channels_per_controller", "1"),
    ("burst_buffer.card_read_iops", "100000000"),
    ("burst_buffer.card_write_iops", "100000000"),
    ("burst_buffer.command_gap", "0 us"),
    ("burst_buffer.read_latency", "0 us"),
    ("burst_buffer.write_latency", "0 us"),
    ("network.node.buffer", "128 KiB"),
    ("network.rank1.buffer", "128 KiB"),
    ("network.rank2.buffer", "128 KiB"),
    ("network.global.buffer", "128 KiB"),
    ("burst_buffer.sync", "0 us"),
    ("network.router_traversal", "10 ns"),
    ("network.node.latency", "10 ns"),
    ("client.control_message", "128 B"),
    ("burst_buffer.threads", "16"),
];

/// A target whose one thread carries out requests one after another, and whose clients have no cache.
const PFS: &str = r#"
[pfs]
name = "slow"
rate = { value = "1 GB/s", assumed = "without effect" }
capacity = { value = "1 TB", assumed = "without effect" }
osts = { value = 1, assumed = "the file system has one server" }

[pfs.lustre]
write_rate = { value = "100 GB/s", assumed = "no limit" }
read_rate = { value = "100 GB/s", assumed = "no limit" }
call_overhead = { value = "0 us", assumed = "part of the latency" }
window = { value = "4 KiB", assumed = "writes are not cached" }
max_rpc = { value = "1 MiB", assumed = "largest request" }
rpcs_in_flight = { value = 1, assumed = "requests of a write follow each other" }
router_rate = { value = "100 GB/s", assumed = "no limit" }
router_latency = { value = "0 us", assumed = "no router" }
targets_per_server = { value = 1, assumed = "one server" }
server_rate = { value = "100 GB/s", assumed = "no limit" }
dispatch = { value = "0 us", assumed = "part of the latency" }
threads = { value = 1, assumed = "one request after another" }
target_write = { value = "1 GB/s", assumed = "replaced" }
target_read = { value = "1 GB/s", assumed = "replaced" }
target_write_iops = { value = 100_000_000, assumed = "no limit" }
target_read_iops = { value = 100_000_000, assumed = "no limit" }
target_channels = { value = 1, assumed = "one request after another" }
target_latency = { value = "1 ms", assumed = "replaced" }
lock_callback = { value = "0 us", assumed = "one node" }
metadata_servers = { value = 1, assumed = "one server" }
metadata_rate = { value = 1000, assumed = "replaced" }
stripe = { value = "1 MiB", assumed = "default of the library" }
stripe_count = { value = 1, assumed = "one server" }
"#;

const LNET: &str = r#"
[[placement.blade]]
kind = "lnet"
nodes_per_router = { value = 1, assumed = "toy" }
per_group = { value = 1, assumed = "toy" }

[client]
"#;

/// The text of the machine file.
pub fn machine_text(calibration: &Calibration) -> Outcome<String> {
    let toy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../machines/toy.toml");
    let toy = std::fs::read_to_string(toy)?;
    let text = toy.replacen("per_group = { value = 14", "per_group = { value = 12", 1).replacen(
        "\n[client]\n",
        LNET,
        1,
    ) + PFS;
    let rate = |bytes: f64| format!("{} B/s", bytes.round() as u64);
    let time = |seconds: f64| format!("{} ns", (seconds * 1e9).round().max(0.0) as u64);
    // Each of four processes opens and closes.
    let metadata = |seconds: f64| format!("{}", (8.0 / seconds).ceil() as u64);
    let calibrated = [
        ("client.copy_rate", rate(calibration.log_rate)),
        ("burst_buffer.card_read", rate(calibration.log_read_rate)),
        ("burst_buffer.metadata_rate", metadata(calibration.log_open)),
        ("client.mpi_overhead", time(calibration.logged_call)),
        ("client.shared_memory_latency", time(calibration.message)),
        ("pfs.lustre.target_write", rate(calibration.pfs_rate)),
        ("pfs.lustre.target_read", rate(calibration.pfs_rate)),
        ("pfs.lustre.target_latency", time(calibration.pfs_latency)),
        ("pfs.lustre.metadata_rate", metadata(calibration.pfs_open)),
    ];
    let text = FREE.iter().try_fold(text, |text, (key, value)| {
        replaced(&text, key, value, "assumed = \"no limit of this computer\"")
    })?;
    calibrated.iter().try_fold(text, |text, (key, value)| {
        let source = "assumed = \"this computer\", calibrated = \"calibration\"";
        replaced(&text, key, value, source)
    })
}

/// The text with another value for a key, which must exist.
fn replaced(text: &str, key: &str, value: &str, source: &str) -> Outcome<String> {
    let (section, name) = key.rsplit_once('.').ok_or("a key without section")?;
    let quoted = match value.bytes().all(|byte| byte.is_ascii_digit()) {
        true => value.to_owned(),
        false => format!("\"{value}\""),
    };
    let (heading, beginning) = (format!("[{section}]"), format!("{name} = "));
    let (mut within, mut found) = (false, false);
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            if line.starts_with('[') {
                within = line == heading;
            }
            if within && line.starts_with(&beginning) {
                found = true;
                return format!("{name} = {{ value = {quoted}, {source} }}");
            }
            line.to_owned()
        })
        .collect();
    if found { Ok(lines.join("\n") + "\n") } else { Err(format!("no key {key}").into()) }
}
