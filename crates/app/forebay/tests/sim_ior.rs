//! `forebay sim ior`.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;

const RESOURCES: [&str; 6] = ["client", "node-link", "local-link", "global-link", "server", "ssd"];

fn study(dir: &WorkDir, options: &str, ior: &str) -> Value {
    dir.json(&format!(
        "sim ior --machine toy {options} --no-out --quiet --json - -- -a POSIX {ior}"
    ))
}

/// The document without what depends on the computer that simulates.
fn without_cost(mut study: Value) -> Value {
    for point in study["points"].as_array_mut().unwrap() {
        let run = point["run"].as_object_mut().unwrap();
        for field in ["wall_seconds", "threads", "peak_rss_bytes"] {
            run.remove(field).unwrap();
        }
    }
    study
}

/// Opens and closes take more than a tenth of the phase.
#[test]
fn warning_is_in_table_document_and_report_and_a_long_test_has_none() {
    let dir = WorkDir::new();
    let run = |name: &str, test: &str| {
        let line = format!("sim ior --machine toy --nodes 4 --out {name} -- -a POSIX -F -w {test}");
        let table = dir.expect_success(&line).stdout;
        let document: serde_json::Value =
            serde_json::from_str(&dir.read(&format!("{name}/summary.json"))).unwrap();
        let phase = document["points"][0]["phases"][0].clone();
        (table, phase["warnings"].clone(), dir.read(&format!("{name}/report.html")))
    };
    let (table, warnings, report) = run("short", "-t 4k -b 32k");
    let word = "opens, closes and barriers take";
    assert!(table.contains(&format!("warning: 4 nodes: {word}")), "{table}");
    assert!(warnings[0].as_str().unwrap().starts_with(word), "{warnings}");
    assert!(report.contains(word));
    let (table, warnings, report) = run("long", "-t 512k -b 32m");
    assert!(!table.contains("warning"), "{table}");
    assert_eq!(warnings, serde_json::json!([]));
    assert!(!report.contains("Warning"));
}

/// Reads of IO500's small transfers were up to 20 times too fast, and a user sees that beside such a rate.
#[test]
fn note_says_how_far_published_rows_of_the_kind_were_missed() {
    let dir = WorkDir::new();
    let line = "sim ior --machine toy --nodes 2 --out here -- -w -r -t 47008 -b 47008 -s 4";
    let table = dir.expect_success(line).stdout;
    let reads = "note: published rows of this kind (read, shared file, transfers below 64 KiB, burst buffer): 0 of 3 \
                 within the measured range or the accepted difference, errors +161% to +1875%";
    assert!(table.lines().any(|line| line == reads), "{table}");
    assert!(dir.read("here/table.txt").contains(reads));
    let document: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    let published = document["published"].as_array().unwrap();
    let [writes, reads] = published.as_slice() else { panic!("{published:?}") };
    assert_eq!((&writes["access"], &writes["fitted"]), (&"write".into(), &1.into()));
    assert_eq!((&reads["hold"], &reads["error_percent"][1]), (&0.into(), &1875.0.into()));
    assert_eq!(reads["rows"][2], "io500-dw-10-hard-read");
    assert!(dir.read("here/report.html").contains("0 of 3 within the measured range"));
}

/// The estimate is shown before the run; its events are within a factor of two of those of the run.
#[test]
fn estimate_of_events_is_shown_before_each_run() {
    let dir = WorkDir::new();
    let line = "sim ior --machine toy --nodes 1,4 --no-out --json all.json -- -F -w -t 512k -b 4m";
    let output = dir.expect_success(line);
    let shown: Vec<&str> = output.stderr.lines().filter(|l| l.contains("estimate: ")).collect();
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let points = document["points"].as_array().unwrap();
    assert_eq!(shown.len(), points.len(), "{}", output.stderr);
    for (line, point) in shown.iter().zip(points) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let events = words.iter().position(|w| *w == "events,").unwrap();
        let number: f64 = words[events - 2..events]
            .iter()
            .find_map(|word| word.replace(',', "").parse().ok())
            .unwrap_or_else(|| panic!("{line}"));
        let unit = if words[events - 1] == "k" { 1e3 } else { 1.0 };
        let ratio = number * unit / point["run"]["events"].as_f64().unwrap();
        assert!((0.5..2.0).contains(&ratio), "{line}: {ratio}");
    }
    let quiet = dir.expect_success(&line.replace("sim ior", "sim ior --quiet"));
    assert!(!quiet.stderr.contains("estimate"), "{}", quiet.stderr);
}

#[test]
fn bytes_rates_and_limits_are_consistent() {
    let dir = WorkDir::new();
    let study = study(&dir, "--nodes 1..8 --ppn 2", "-F -w -r -t 512k -b 2m");
    assert_eq!(study["kind"], "sim ior");
    assert_eq!(study["burst_buffers"], 4);
    let points = study["points"].as_array().unwrap();
    let nodes: Vec<u64> = points.iter().map(|p| p["nodes"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [1, 2, 4, 8]);
    for point in points {
        let nodes = point["nodes"].as_u64().unwrap();
        assert_eq!(point["processes"], 2 * nodes);
        assert!(RESOURCES.contains(&point["limit"].as_str().unwrap()));
        let phases = point["phases"].as_array().unwrap();
        let names: Vec<&str> = phases.iter().map(|p| p["access"].as_str().unwrap()).collect();
        assert_eq!(names, ["write", "read"]);
        for (phase, field) in phases.iter().zip(["write_GBps", "read_GBps"]) {
            let bytes = phase["bytes"].as_u64().unwrap();
            assert_eq!(bytes, 2 * nodes * (2 << 20));
            assert_eq!(phase["operations"], 2 * nodes * 4);
            let rate = bytes as f64 / phase["seconds"].as_f64().unwrap() / 1e9;
            assert!((point[field].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
            // 4 GB/s a client; 4 cards of 4 GB/s read and 2 GB/s write.
            let cards = if field == "read_GBps" { 16.0 } else { 8.0 };
            assert!(rate > 0.0 && rate <= (4.0 * nodes as f64).min(cards), "{field} {rate}");
        }
    }
}

#[test]
fn bandwidth_grows_with_nodes_and_servers_up_to_a_limit() {
    let dir = WorkDir::new();
    let rates = |options: &str| -> Vec<f64> {
        let study = study(&dir, options, "-F -w -t 1m -b 8m");
        let points = study["points"].as_array().unwrap();
        points.iter().map(|p| p["write_GBps"].as_f64().unwrap()).collect()
    };
    let all = rates("--nodes 1,8");
    assert!(all[1] > 1.5 * all[0], "{all:?}");
    let one = rates("--nodes 8 --burst-buffers 1");
    assert!(one[0] <= 2.0, "one card writes 2 GB/s: {one:?}");
    assert!(all[1] > 2.0 * one[0], "{all:?} {one:?}");
}

#[test]
fn result_depends_on_seed_and_input_but_not_on_threads() {
    let dir = WorkDir::new();
    let run = |options: &str| {
        let options = format!("--nodes 6 --ppn 2 --placement random-nodes {options}");
        without_cost(study(&dir, &options, "-w -r -t 256k -b 1m -z"))
    };
    let one = run("--threads 1 --seed 5");
    assert_eq!(one, run("--threads 2 --seed 5"));
    assert_eq!(one, run("--threads 4 --seed 5"));
    assert_ne!(one["points"], run("--threads 1 --seed 6")["points"]);
}

#[test]
fn ior_study_writes_table_ior_output_and_run_directory() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim ior --machine toy --nodes 1..4 --ior-output --out here --json all.json -- -F -w -t 1m -b 4m",
    );
    assert!(output.stdout.starts_with("  nodes  processes  write GB/s"), "{}", output.stdout);
    for word in ["IOR-4.1", "access    bw(MiB/s)", "Max Write:", "here/report.html"] {
        assert!(output.stdout.contains(word), "{word}\n{}", output.stdout);
    }
    for name in [
        "inputs.json",
        "machine.toml",
        "machine.txt",
        "plot.png",
        "plot.svg",
        "report.html",
        "series.csv",
        "summary.json",
        "table.txt",
        "ior-1-nodes.txt",
        "ior-2-nodes.txt",
        "ior-4-nodes.txt",
    ] {
        assert!(!dir.read_bytes(&format!("here/{name}")).is_empty(), "{name}");
    }
    let summary: Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    assert_eq!(summary, dir.document_of("all.json", "here"));
    let table = dir.read("here/table.txt");
    let is_remark = |line: &&str| line.starts_with("warning: ") || line.starts_with("note: ");
    assert_eq!(table.lines().filter(|line| !is_remark(line)).count(), 4);
    assert!(table.contains("warning: 1 node: "), "few transfers a process: {table}");
    assert!(dir.read("here/series.csv").contains("write_GBps"));
    assert!(dir.read("here/ior-4-nodes.txt").contains("nodes               : 4"));
}

#[test]
fn ior_script_with_several_tests_gives_one_study_each() {
    let dir = WorkDir::new();
    dir.write(
        "tests.ior",
        "IOR START\napi=POSIX\nfilePerProc=1\nwriteFile=1\nblockSize=1m\ntransferSize=256k\nRUN\n\
         transferSize=1m\nRUN\nIOR STOP\n",
    );
    let line = "sim ior --machine toy --nodes 2 --out here --json all.json -- -f tests.ior";
    dir.expect_success(line);
    let all: Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let operations = |i: usize| all[i]["points"][0]["phases"][0]["operations"].as_u64().unwrap();
    assert_eq!(operations(0), 8);
    assert_eq!(operations(1), 2);
    for name in ["here/test-0/report.html", "here/test-1/summary.json", "here/table.txt"] {
        dir.read(name);
    }
    for (test, document) in all.as_array().unwrap().iter().enumerate() {
        let directory = document["directory"].as_str().unwrap();
        assert!(directory.ends_with(&format!("/here/test-{test}")), "{directory}");
    }
    let summary: Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    assert_eq!(summary[0]["directory"], Value::Null);
    assert_eq!(summary[1]["points"], all[1]["points"]);
}

/// The name of a numbered run directory is known at the end alone.
#[test]
fn json_names_the_run_directory() {
    let dir = WorkDir::new();
    let line = "sim ior --machine toy --nodes 1 --fidelity flow --quiet --json";
    for number in 1..3 {
        let test = "-- -F -w -t 1m -b 1m";
        let printed = dir.json(&format!("{line} - {test}"));
        let directory = printed["directory"].as_str().unwrap();
        assert!(directory.ends_with(&format!("/runs/ior-toy-{}", 2 * number - 1)), "{directory}");
        dir.expect_success(&format!("{line} x.json --no-out {test}"));
        let without: Value = serde_json::from_str(&dir.read("x.json")).unwrap();
        assert_eq!(without["directory"], Value::Null);
        dir.expect_success(&format!("{line} x.json {test}"));
        dir.document_of("x.json", &format!("runs/ior-toy-{}", 2 * number));
    }
    // A document that cannot be written costs no results.
    let output = dir.run(&format!("{line} /dev/full --out kept -- -F -w -t 1m -b 1m"));
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stdout.contains("kept/summary.json"), "{}", output.stdout);
    dir.read("kept/summary.json");
}

#[test]
fn invalid_input_is_refused_and_writes_nothing() {
    let dir = WorkDir::new();
    for (options, word) in [
        ("--machine toy --nodes 1..64 -- -F", "56 compute nodes"),
        ("--machine toy --nodes 0 -- -F", "at least one node"),
        ("--machine toy --nodes 8..1 -- -F", "1..8"),
        ("--machine toy --nodes 1 -- --frobnicate", "--frobnicate"),
        ("--machine toy --nodes 1 -- -t 3x", "3x"),
        ("--machine toy --nodes 1 -- -b 1m -t 3k", "-t"),
        ("--machine toy --nodes 1,2 -- -N 5", "-N requests 5"),
        ("--machine toy --nodes 1 --ppn 0 -- -F", "--ppn"),
        ("--machine toy --nodes 1 --burst-buffers 5 -- -F", "which has 4"),
        ("--machine toy --nodes 1 --burst-buffers 0 -- -F", "at least 1"),
        ("--machine theta --nodes 1 -- -F", "no burst-buffer nodes"),
        ("--machine toyy --nodes 1 -- -F", "`toy`"),
        ("--machine toy -- -F", "--nodes"),
        ("--nodes 1 -- -F", "--machine"),
        ("--machine toy --nodes 1 -- -f none.ior", "none.ior"),
        ("--machine toy --nodes 1 --packet 1GiB -- -F", "16 KiB"),
        ("--machine toy --nodes 1 --packet 64B -- -F", "128 B"),
        ("--machine toy --nodes 1 -- -t 16g -b 16g", "smaller transfers (-t)"),
        ("--machine toy --nodes 1 -- -d 18000000 -i 3", "108000000 s"),
        ("--machine toy --nodes 1 -- -i 2147483647", "lower -i"),
        // The first would take minutes; the second is refused before that.
        ("--machine toy --nodes 1,56 -- -t 4m -b 100g", "on 56 nodes"),
        ("--machine toy --nodes 1 --seed x -- -F", "whole number from 0"),
    ] {
        let error = dir.expect_invalid_input(&format!("sim ior {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
}

#[test]
fn ior_help_is_printed() {
    let dir = WorkDir::new();
    assert!(dir.expect_success("sim ior --machine toy --nodes 1 -- -h").stdout.contains("-F"));
    assert!(dir.list_files().is_empty());
}

#[test]
fn flows_are_named_in_table_document_and_report_with_what_they_leave_out() {
    let dir = WorkDir::new();
    let run = |fidelity: &str, block: &str| {
        let line = format!(
            "sim ior --machine toy --nodes 1,56 --fidelity {fidelity} --out {fidelity} -- -F -w -t 1m -b {block}"
        );
        let output = dir.expect_success(&line);
        let document: Value =
            serde_json::from_str(&dir.read(&format!("{fidelity}/summary.json"))).unwrap();
        (output, document, dir.read(&format!("{fidelity}/report.html")))
    };
    let (output, document, report) = run("flow", "64g");
    assert!(output.stdout.contains("fidelity: flow; not simulated:\n"), "{}", output.stdout);
    assert!(output.stderr.contains("1 node: flows (as packets: an estimated"), "{}", output.stderr);
    assert!(!output.stderr.contains("estimate:"), "{}", output.stderr);
    let point = &document["points"][1];
    assert_eq!(point["fidelity"], "flow");
    assert_eq!(point["limit"], "ssd");
    let left_out = point["left_out"][0].as_str().unwrap();
    assert!(output.stdout.contains(left_out) && report.contains(left_out), "{left_out}");
    // One node with 1 GiB is few events; 56 nodes are too many.
    let (output, document, _) = run("auto", "1g");
    assert!(output.stdout.contains("fidelity: flow at 56 nodes, else packet"), "{}", output.stdout);
    assert_eq!(document["points"][0]["fidelity"], "packet");
    let short = "sim ior --machine toy --nodes 1 --fidelity auto --no-out -- -F -w -t 1m -b 4m";
    let table = dir.expect_success(short).stdout;
    assert!(table.ends_with("fidelity: packet\n"), "{table}");
}

#[test]
fn observation_of_packets_with_flows_is_an_error_before_anything_is_written() {
    let dir = WorkDir::new();
    for option in ["--delays", "--trace t.json", "--links"] {
        let line = format!(
            "sim ior --machine toy --nodes 4 --fidelity flow {option} -- -F -w -t 1m -b 1m"
        );
        let error = dir.expect_invalid_input(&line);
        let name = option.split(' ').next().unwrap();
        assert!(error.contains(name) && error.contains("--fidelity packet"), "{error}");
    }
}

/// The gain is in table, document, report and sweep, and the instance of the logs can be chosen.
#[test]
fn writes_through_the_log_are_compared_with_plain_ones() {
    let dir = WorkDir::new();
    let pfs = "--fidelity flow --file-system pfs --burst-buffers 8";
    let test = "-a MPIIO -w -t 64k -b 64k -s 64";
    let run = |flush: &str| {
        let out = format!("run-{flush}");
        let line = format!(
            "sim ior --machine cori --nodes 2,4 --ppn 4 {pfs} --log {flush} --out {out} -- {test}"
        );
        let table = dir.expect_success(&line).stdout;
        let document: Value =
            serde_json::from_str(&dir.read(&format!("{out}/summary.json"))).unwrap();
        (table, document, dir.read(&format!("{out}/report.html")))
    };
    let (table, close, report) = run("close");
    assert!(table.contains("4 nodes, logged, applied at close: write "), "{table}");
    assert!(report.contains("through the log of MPI-IO, applied at close"));
    assert_eq!(close["burst_buffers"], 8);
    let (_, background, _) = run("background");
    for (close, background) in
        close["points"].as_array().unwrap().iter().zip(background["points"].as_array().unwrap())
    {
        let number = |point: &Value, field: &str| point["logged"][field].as_f64().unwrap();
        let ratio = number(close, "plain_seconds") / number(close, "seconds");
        assert_eq!(number(close, "gain"), ratio);
        assert_eq!(close["write_GBps"], background["write_GBps"], "the plain test is the same");
        assert!(number(background, "gain") > 1.5 * ratio, "the program waits for the log only");
        assert_eq!(number(close, "complete_seconds"), number(background, "complete_seconds"));
    }
    let swept = dir.expect_success(&format!(
        "sim ior --machine cori --nodes 2 {pfs} --log close --sweep ior.t=16k,64k --no-out -- {test}"
    ));
    assert!(swept.stdout.contains("log_gain"), "{}", swept.stdout);
    let posix = "sim ior --machine toy --nodes 2 --log close --no-out -- -w";
    assert!(dir.expect_invalid_input(posix).contains("add -a MPIIO"));
}

/// The options of the command line that a sweep replaces are named, once for all combinations.
#[test]
fn sweep_names_the_options_of_ior_that_it_replaces() {
    let dir = WorkDir::new();
    let line = "sim ior --machine toy --nodes 1 --fidelity flow --sweep ior.t=512k,1m --sweep ior.b=4m,8m \
                --quiet --no-out --json s.json --";
    let output = dir.expect_success(&format!("{line} -Fwt 256k -s 2"));
    let note = "note: --sweep ior.t replaces -t 256k of IOR's options";
    assert_eq!(output.stdout.lines().filter(|line| *line == note).count(), 1, "{}", output.stdout);
    assert!(!output.stdout.contains("ior.b replaces"), "{}", output.stdout);
    let run: Value = serde_json::from_str(&dir.read("s.json")).unwrap();
    for point in run["points"].as_array().unwrap() {
        assert_eq!(point["remarks"][0], note);
    }
    let output = dir.expect_success(&format!("{line} -w -F"));
    assert!(!output.stdout.contains("replaces"), "{}", output.stdout);
}

#[test]
fn sweep_has_the_warnings_and_the_fidelity_of_its_points() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim ior --machine toy --nodes 2 --fidelity flow --sweep ior.b=4m,64m --no-out --json s.json \
         -- -F -w -t 1m",
    );
    let few = "warning: 4 transfers a process in the write phase";
    let line = output.stdout.lines().find(|line| line.starts_with(few)).unwrap_or_default();
    assert!(line.ends_with("(at ior.b=4m)"), "{}", output.stdout);
    for word in ["fidelity: flow\n", "note: published rows of this kind", "not simulated: "] {
        assert!(output.stdout.contains(word), "{word}: {}", output.stdout);
    }
    let document: Value = serde_json::from_str(&dir.read("s.json")).unwrap();
    assert_eq!(document["machine"], "toy");
    let [short, long] = [0, 1].map(|at| &document["points"][at]);
    assert_eq!((&short["fidelity"], &long["fidelity"]), (&"flow".into(), &"flow".into()));
    let has_few = |point: &Value| point["remarks"].to_string().contains(few);
    assert!(has_few(short) && !has_few(long), "{document}");
}

/// `--log` of `sim ior` is the log of MPI-IO; logs of the program can still go to a file.
#[test]
fn logs_of_the_program_go_to_a_file() {
    let dir = WorkDir::new();
    let test = "--machine toy --nodes 1 --no-out -- -a MPIIO -w -t 64k -b 64k";
    for line in [
        format!("--log a sim ior --log close {test}"),
        format!("sim ior --log-file a --log close {test}"),
    ] {
        assert!(dir.expect_success(&line).stdout.contains("applied at close"), "{line}");
        assert!(dir.path().join("a").exists() && !dir.path().join("close").exists(), "{line}");
        std::fs::remove_file(dir.path().join("a")).unwrap();
    }
    for (line, tip) in [
        (format!("sim ior --log run.log {test}"), Some("'--log-file run.log'")),
        (format!("sim ior --fidelity run.log {test}"), None),
    ] {
        let error = dir.expect_invalid_input(&line);
        assert!(error.contains("invalid value 'run.log'"), "{error}");
        assert_eq!(error.contains("--log-file"), tip.is_some(), "{error}");
        assert!(tip.is_none_or(|tip| error.contains(tip)), "{error}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    let dir = WorkDir::new();
    let test = "-- -F -w -t 1m -b 1m";
    let line = "sim ior --machine toy --nodes 1 --quiet";
    let sweep = "--sweep nodes=1..4";
    for (options, reason) in [
        (format!("{sweep} --links"), "cannot be used with"),
        (format!("{sweep} --ior-output"), "cannot be used with"),
        (format!("{sweep} --sweep nodes=1,4"), "--sweep nodes is given twice"),
        (
            "--sweep burst_buffer.threads=1,2 --set burst_buffer.threads=3".to_owned(),
            "leave out one",
        ),
        ("--no-out --json x.json --trace x.json".to_owned(), "name two files"),
        ("--no-out --json x.json --trace ./x.json".to_owned(), "name two files"),
    ] {
        let error = dir.expect_invalid_input(&format!("{line} {options} {test}"));
        assert!(error.contains(reason), "{options}: {error}");
    }
}
