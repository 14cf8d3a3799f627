//! `forebay darshan show`, `forebay sim darshan` and `forebay plan --darshan`.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;
use std::path::Path;

/// A log among those of the reader's tests.
fn log(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/darshan-log/tests/data");
    data.join(name).canonicalize().unwrap().display().to_string()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// The figures are those of Darshan's own tools: 48 GiB in files of 48 processes, `agg_perf_by_slowest` of
/// 13,078.75 MiB/s.
#[test]
fn show_has_darshans_figures() {
    let dir = WorkDir::new();
    let line = format!("darshan show {}", log("ior-48ranks.darshan"));
    let shown = dir.json(&format!("{line} --json"));
    assert_eq!((&shown["kind"], &shown["format"]), (&"darshan show".into(), &"3.10".into()));
    assert_eq!((&shown["processes"], &shown["hosts"]), (&48.into(), &Value::Null));
    let posix = &shown["interfaces"][0];
    assert_eq!(
        (&posix["name"], &posix["files"], &posix["writes"]),
        (&"POSIX".into(), &48.into(), &(48 * 128).into())
    );
    assert_eq!((&posix["bytes_read"], &posix["bytes_written"]), (&0.into(), &(48u64 << 30).into()));
    let mib_per_second = number(&posix["GBps"]) * 1e9 / f64::from(1 << 20);
    assert!((mib_per_second / 13_078.748_559_778_762 - 1.0).abs() < 1e-9, "{mib_per_second}");
    assert_eq!(posix["slowest_rank"], 22);
    let own = &shown["sharing"][0];
    assert_eq!((&own["name"], &own["files"]), (&"one process".into(), &48.into()));
    assert_eq!(
        shown["sizes"][0],
        serde_json::json!({"above_bytes": 4 << 20, "reads": 0, "writes": 6144})
    );
    assert_eq!(
        shown["striping"],
        serde_json::json!([{"stripe_count": 1, "stripe_bytes": 1 << 20, "files": 48}])
    );
    assert_eq!(shown["phases"][0]["ior"][0], "-a POSIX -w -F -t 8388608 -b 1073741824 -e");
    let text = dir.expect_success(&line).stdout;
    for part in [
        "48 (hosts not recorded)",
        "48.0 GiB",
        "one process",
        "/scratch",
        "warning: the log has no traces",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(dir.list_files().is_empty(), "it writes nothing");
}

/// Phases are tests of IOR: their times are those of the same tests.
#[test]
fn phases_are_simulated_as_their_tests() {
    let dir = WorkDir::new();
    let line =
        format!("sim darshan {} --machine toy --no-out --json -", log("ior-hdf5-dxt.darshan"));
    let run = dir.json(&line);
    assert_eq!(
        (&run["kind"], &run["nodes"], &run["ppn"]),
        (&"sim darshan".into(), &1.into(), &4.into())
    );
    assert_eq!(run["has_traces"], true);
    let phases: Vec<&Value> = run["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["parts"] != serde_json::json!([]))
        .collect();
    assert_eq!(phases.len(), 2, "{run:#}");
    let mut sum = 0.0;
    for (phase, access) in phases.iter().zip(["write", "read"]) {
        assert_eq!((&phase["access"], &phase["files"]), (&access.into(), &"shared file".into()));
        let words = phase["parts"][0]["ior"].as_array().unwrap();
        let test: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
        let same = format!(
            "sim ior --machine toy --nodes 1 --ppn 4 --no-out --json - -- {}",
            test.join(" ")
        );
        let ior = dir.json(&same);
        let alone = &ior["points"][0]["phases"][0];
        assert_eq!(phase["seconds"], alone["seconds"], "{same}");
        let slowest = number(&alone["bytes"]) / number(&alone["slowest_rank_GBps"]) / 1e9;
        assert!((number(&phase["slowest_rank_seconds"]) - slowest).abs() < 1e-12);
        sum += slowest;
    }
    assert!((number(&run["slowest_rank_seconds"]) - sum).abs() < 1e-12);
    let rest = number(&run["run_seconds"]) - number(&run["measured_seconds"]);
    assert!((number(&run["predicted_run_seconds"]) - rest - sum).abs() < 1e-9);
    assert_eq!(run["bytes"], 4_202_504 + 4_195_800, "without standard output");
    let warned = run["warnings"].to_string();
    assert!(warned.contains("1 file written and read"), "{warned}");
}

#[test]
fn logs_run_on_both_file_systems_with_sweeps_and_run_directories() {
    let dir = WorkDir::new();
    let line = format!("sim darshan {} --nodes 2 --quiet", log("ior-48ranks.darshan"));
    let output =
        dir.expect_success(&format!("{line} --machine shaheen2 --file-system pfs --out here"));
    assert!(
        output.stdout.contains("fidelity: flow") && output.stdout.contains("file per process"),
        "{}",
        output.stdout
    );
    for name in ["inputs.json", "plot.png", "report.html", "summary.json", "table.txt"] {
        assert!(!dir.read_bytes(&format!("here/{name}")).is_empty(), "{name}");
    }
    let report = dir.read("here/report.html");
    assert!(report.contains("-a POSIX -w -F -t 8388608 -b 1073741824 -e"), "{report}");
    let sweep = dir.json(&format!("{line} --machine cori --sweep nodes=2,4 --no-out --json -"));
    let seconds = |point: &Value| {
        let estimates = point["estimates"].as_array().unwrap();
        number(&estimates.iter().find(|one| one["name"] == "slowest_rank_seconds").unwrap()["mean"])
    };
    let points = sweep["points"].as_array().unwrap();
    assert!(seconds(&points[0]) > 1.5 * seconds(&points[1]), "{points:#?}");
}

/// The log wrote 48 GiB; it needs them in the buffer, and nothing is staged in.
#[test]
fn plan_takes_the_log_for_the_io() {
    let dir = WorkDir::new();
    dir.write(
        "job.sh",
        "#!/bin/sh\n#SBATCH --nodes=2 --time=00:10:00\n#DW jobdw capacity=1GiB type=scratch access_mode=striped\n./solve\n",
    );
    let path = log("ior-48ranks.darshan");
    let line = format!("plan job.sh --machine cori --darshan {path}");
    let plan = dir.json(&format!("{line} --json -"));
    assert_eq!((&plan["nodes"], &plan["processes_per_node"]), (&2.into(), &24.into()));
    assert_eq!(plan["needed_bytes"], 48u64 << 30);
    assert!(
        (number(&plan["measured_seconds"]) - 3.758).abs() < 0.001,
        "{}",
        plan["measured_seconds"]
    );
    assert!(plan["warnings"].to_string().contains("no traces (DXT)"), "{}", plan["warnings"]);
    // The same as the test that stands for the only phase.
    let ior = dir.json(
        "plan job.sh --machine cori --ppn 24 --json - -- -a POSIX -w -F -t 8388608 -b 1073741824 -e",
    );
    let io = |plan: &Value| -> Vec<Value> {
        let all = plan["configurations"].as_array().unwrap().iter();
        all.map(|one| one["io_seconds"].clone()).collect()
    };
    assert_eq!(io(&plan), io(&ior));
    assert_eq!(plan["recommendation"]["directive"], ior["recommendation"]["directive"]);
    let text = dir.expect_success(&line).stdout;
    assert!(text.contains("The log measured 3.76 s"), "{text}");
    // MACSio reads back what it wrote: nothing is staged in.
    let plan = dir.json(&format!(
        "plan --machine cori --nodes 1 --ppn 16 --darshan {} --json -",
        log("macsio.darshan")
    ));
    assert!(plan["needed_bytes"].as_u64().unwrap() < 60_000_000, "{}", plan["needed_bytes"]);
}

#[test]
fn invalid_input_is_refused_and_writes_nothing() {
    let dir = WorkDir::new();
    let whole = std::fs::read(log("ior-48ranks.darshan")).unwrap();
    std::fs::write(dir.path().join("cut.darshan"), &whole[..1000]).unwrap();
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    std::fs::write(dir.path().join("damaged.darshan"), damaged).unwrap();
    dir.write("text.darshan", "no log");
    let (ior, macsio) = (log("ior-48ranks.darshan"), log("macsio.darshan"));
    let toy = "--machine toy --no-out";
    for (line, part) in [
        ("darshan show missing.darshan".into(), "missing.darshan: No such file"),
        ("darshan show text.darshan".into(), "text.darshan: header at byte 0: not a Darshan log"),
        ("darshan show cut.darshan".into(), "header at byte"),
        ("darshan show damaged.darshan".into(), "damaged.darshan: POSIX records at byte"),
        (format!("sim darshan damaged.darshan {toy} --nodes 2"), "POSIX records at byte"),
        (
            format!("sim darshan {macsio} {toy}"),
            "the hosts of its 16 processes: give --nodes or --ppn",
        ),
        (format!("sim darshan {macsio} {toy} --nodes 2 --ppn 4"), "fewer than the 16 processes"),
        (format!("sim darshan {macsio} {toy} --nodes 57"), "56 compute nodes"),
        (format!("sim darshan {macsio} {toy} --nodes 4 --delays"), "forebay sim ior"),
        (format!("sim darshan {macsio} {toy} --nodes 4 --stripe-count 2"), "--file-system pfs"),
        (format!("plan --machine toy --darshan {ior}"), "give --nodes or --ppn"),
        (format!("plan --machine toy --darshan {ior} --checkpoint 1GiB"), "cannot be used"),
    ] {
        let error = dir.expect_invalid_input(&line);
        assert!(error.contains(part), "{line}: {error}");
    }
}
