//! Speed of the simulator: `make bench`, or `cargo bench -p forebay --bench twin`.
//!
//! Each run is a process of its own, so that its peak memory is its own. Runs on one and on two
//! threads alternate, and the speed-up is the median of the ratios of such pairs, so that a
//! disturbance of the machine affects both. `-- --quick` omits the long run.

use forebay_console::table::{Column, Table};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{bytes, count, seconds};
use serde_json::{Value, json};
use std::process::{Command, ExitCode};

type Outcome<T> = Result<T, String>;

/// A synthetic case, with messages of 4 KiB.
struct Traffic {
    machine: &'static str,
    pattern: &'static str,
    load: &'static str,
    /// Messages per node.
    messages: &'static str,
    /// Pairs of runs.
    pairs: usize,
}

/// Light traffic on two machines; then traffic of which the network accepts only a part, so that most
/// packets wait.
const TRAFFIC: [Traffic; 4] = [
    Traffic { machine: "theta", pattern: "uniform", load: "0.3", messages: "200", pairs: 5 },
    Traffic { machine: "trinity", pattern: "uniform", load: "0.3", messages: "60", pairs: 3 },
    Traffic { machine: "theta", pattern: "uniform", load: "0.9", messages: "100", pairs: 3 },
    Traffic { machine: "theta", pattern: "adversarial", load: "0.5", messages: "60", pairs: 3 },
];

/// Runs the command and reads the document that it prints.
fn run(arguments: &[&str]) -> Outcome<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .output()
        .map_err(|e| format!("cannot start forebay: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("no JSON from forebay: {e}"))
}

fn field(document: &Value, name: &str) -> f64 {
    document[name].as_f64().unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

fn median_of(runs: &[Value], name: &str) -> f64 {
    median(runs.iter().map(|r| field(r, name)).collect())
}

fn traffic(case: &Traffic) -> Outcome<Vec<Value>> {
    let Traffic { machine, pattern, load, messages, pairs } = *case;
    let description = Machine::load(machine).map_err(|e| e.to_string())?;
    let entities = u64::from(description.routers()) + description.nodes.len() as u64;
    let mut runs: [Vec<Value>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..pairs {
        for (runs, threads) in runs.iter_mut().zip(["1", "2"]) {
            let document = run(&[
                "sim",
                "traffic",
                "--machine",
                machine,
                "--pattern",
                pattern,
                "--message",
                "4KiB",
                "--load",
                load,
                "--messages",
                messages,
                "--threads",
                threads,
                "--no-out",
                "--quiet",
                "--json",
                "-",
            ])?;
            runs.push(document);
        }
    }
    let [one, two] = &runs;
    let rate = "packets_per_second";
    let speed_up =
        median(one.iter().zip(two).map(|(a, b)| field(b, rate) / field(a, rate)).collect());
    Ok([(1, one), (2, two)]
        .map(|(threads, runs)| {
            let (packets, events) =
                (median_of(runs, "packets_delivered"), median_of(runs, "events"));
            let wall = median_of(runs, "wall_seconds");
            let memory = median_of(runs, "peak_rss_bytes");
            json!({
                "case": format!("traffic {pattern} 4 KiB load {load} on {machine}"),
                "threads": threads,
                "runs": runs.len(),
                "packets_delivered": packets,
                "packets_per_second": median_of(runs, rate),
                "events_per_packet": events / packets,
                "events_per_second": events / wall,
                "wall_seconds": wall,
                "startup_seconds": median_of(runs, "startup_seconds"),
                "peak_rss_bytes": memory,
                "entities": entities,
                "bytes_per_entity": memory / entities as f64,
                "speed_up": (threads == 2).then_some(speed_up),
            })
        })
        .to_vec())
}

fn ior() -> Outcome<Value> {
    let document = run(&[
        "sim",
        "ior",
        "--machine",
        "trinity-phase2",
        "--nodes",
        "8192",
        "--ppn",
        "1",
        "--no-out",
        "--quiet",
        "--json",
        "-",
        "--",
        "-a",
        "POSIX",
        "-F",
        "-w",
        "-t",
        "1m",
        "-b",
        "64m",
    ])?;
    let point = &document["points"][0];
    let cost = &point["run"];
    let (packets, events) = (field(cost, "packets_delivered"), field(cost, "events"));
    let wall = field(cost, "wall_seconds");
    Ok(json!({
        "case": "IOR N-N write, 64 MiB in 1 MiB, trinity-phase2, 8192 nodes",
        "threads": cost["threads"],
        "runs": 1,
        "packets_delivered": packets,
        "packets_per_second": packets / wall,
        "events_per_packet": events / packets,
        "events_per_second": events / wall,
        "wall_seconds": wall,
        "peak_rss_bytes": cost["peak_rss_bytes"],
        "write_GBps": point["write_GBps"],
    }))
}

fn row(result: &Value) -> Vec<String> {
    let cell = |field: &str, text: &dyn Fn(f64) -> String| {
        result[field].as_f64().map_or("-".to_string(), text)
    };
    vec![
        result["case"].as_str().unwrap_or_default().to_string(),
        cell("threads", &|v| format!("{v:.0}")),
        cell("packets_per_second", &count),
        cell("events_per_packet", &forebay_units::human::number),
        cell("events_per_second", &count),
        cell("bytes_per_entity", &forebay_units::human::number),
        cell("peak_rss_bytes", &|v| bytes(v as u64)),
        cell("startup_seconds", &seconds),
        cell("wall_seconds", &seconds),
        cell("speed_up", &forebay_units::human::number),
    ]
}

fn bench(quick: bool) -> Outcome<()> {
    let mut results = Vec::new();
    for case in TRAFFIC {
        let Traffic { machine, pattern, load, pairs, .. } = case;
        eprintln!("{machine}, {pattern}, load {load}: {pairs} pairs of runs");
        results.extend(traffic(&case)?);
    }
    if !quick {
        eprintln!("trinity-phase2: IOR on 8,192 nodes");
        results.push(ior()?);
    }
    let mut table = Table::new([
        Column::text("case", 0),
        Column::number("threads", 0),
        Column::number("packets/s", 0),
        Column::number("events/packet", 0),
        Column::number("events/s", 0),
        Column::number("bytes/entity", 0),
        Column::number("peak memory", 0),
        Column::number("start-up", 0),
        Column::number("wall", 0),
        Column::number("2 threads / 1", 0),
    ]);
    table.rows.extend(results.iter().map(row));
    println!("{table}");
    println!(
        "Medians of the runs. An entity is a router or a node; bytes/entity is peak memory over"
    );
    println!("entities. Start-up is from reading the machine to the first event.");
    let text =
        serde_json::to_string_pretty(&json!({ "schema": 1, "kind": "bench", "results": results }))
            .map_err(|e| e.to_string())?;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runs");
    std::fs::create_dir_all(&folder)
        .map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    let path = folder.join("bench-twin.json");
    std::fs::write(&path, text + "\n")
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    println!("\nJSON      runs/bench-twin.json");
    Ok(())
}

fn main() -> ExitCode {
    match bench(std::env::args().any(|a| a == "--quick")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}
