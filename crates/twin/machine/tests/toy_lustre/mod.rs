//! A variant of `toy` with LNET nodes and a parallel file system.

use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;

/// Eight targets of 1 GB/s behind the four LNET nodes, one in each group: two targets of one server
/// each. Nothing else limits but the nodes' clients, of 4 GB/s.
const PFS: &str = r#"
[pfs]
name = "Lustre"
rate = { value = "8 GB/s", assumed = "toy" }
capacity = { value = "1 TB", assumed = "toy" }
osts = { value = 8, assumed = "toy" }

[pfs.lustre]
write_rate = { value = "4 GB/s", assumed = "toy" }
read_rate = { value = "4 GB/s", assumed = "toy" }
call_overhead = { value = "10 us", assumed = "toy" }
window = { value = "8 MiB", assumed = "toy" }
max_rpc = { value = "1 MiB", assumed = "toy" }
rpcs_in_flight = { value = 8, assumed = "toy" }
router_rate = { value = "8 GB/s", assumed = "toy" }
router_latency = { value = "5 us", assumed = "toy" }
targets_per_server = { value = 2, assumed = "toy" }
server_rate = { value = "8 GB/s", assumed = "toy" }
dispatch = { value = "1 us", assumed = "toy" }
threads = { value = 64, assumed = "toy" }
target_write = { value = "1 GB/s", assumed = "toy" }
target_read = { value = "2 GB/s", assumed = "toy" }
target_write_iops = { value = 100_000, assumed = "toy" }
target_read_iops = { value = 100_000, assumed = "toy" }
target_channels = { value = 4, assumed = "toy" }
target_latency = { value = "20 us", assumed = "toy" }
lock_callback = { value = "2 ms", assumed = "toy" }
metadata_servers = { value = 1, assumed = "toy" }
metadata_rate = { value = 10_000, assumed = "toy" }
stripe = { value = "1 MiB", assumed = "toy" }
stripe_count = { value = 1, assumed = "toy" }
"#;

const LNET: &str = r#"
[[placement.blade]]
kind = "lnet"
nodes_per_router = { value = 1, assumed = "toy" }
per_group = { value = 1, assumed = "toy" }

[client]
"#;

/// The machine, with other numbers for some keys.
pub fn machine_with(settings: &[(&str, &str)]) -> Machine {
    machine_of("", settings)
}

/// The machine, with more lines in `[pfs.lustre]` and other numbers for some keys.
pub fn machine_of(lines: &str, settings: &[(&str, &str)]) -> Machine {
    let toy = Machine::load("toy").unwrap().files.remove(0).text;
    let text = toy.replacen("per_group = { value = 14", "per_group = { value = 12", 1).replacen(
        "\n[client]\n",
        LNET,
        1,
    ) + PFS
        + lines;
    let setting =
        |(key, value): &(&str, &str)| Setting { key: key.to_string(), value: value.to_string() };
    let settings: Vec<Setting> = settings.iter().map(setting).collect();
    Machine::parse_with("toy-lustre.toml", &text, &settings).unwrap()
}
