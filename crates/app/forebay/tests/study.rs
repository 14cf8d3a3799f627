//! `forebay study`.

use crate::forebay;
use forebay::WorkDir;

const STUDY: &str = "title = \"Two jobs\"\nmachine = \"toy\"\n\
    [[job]]\nname = \"io\"\nnodes = 4\nior = \"-a POSIX -F -w -t 512k -b 2m\"\n\
    [[job]]\nname = \"solver\"\nnodes = 40\n\
    traffic = { pattern = \"uniform\", message = \"16KiB\", load = 0.3, messages = 100 }\n\
    [[measure]]\nname = \"one storage node\"\njob.io.burst_buffers = 1\n";

fn summary(dir: &WorkDir) -> serde_json::Value {
    serde_json::from_str(&dir.read("out/summary.json")).unwrap()
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The case without a measure is the same as `sim interference`; one storage node with 2 GB/s of flash cannot
/// take more.
#[test]
fn study_compares_measures_with_the_case_without_one() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    dir.expect_success("study study.toml --out out");
    let found = summary(&dir);
    let measures = found["measures"].as_array().unwrap();
    let names: Vec<&str> = measures.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "one storage node"]);
    let alone = dir.json(
        "sim interference --machine toy --nodes 4 --traffic-nodes 40 --pattern uniform --load 0.3 \
         --message 16KiB --no-out --json - -- -a POSIX -F -w -t 512k -b 2m",
    );
    let jobs = &measures[0]["together"][0]["jobs"];
    let slowdown = |job: usize| number(&jobs[job]["slowdown"]["mean"]);
    assert!((slowdown(0) * number(&alone["ior_rate_ratio"]) - 1.0).abs() < 1e-9, "{jobs}");
    assert!((slowdown(1) / number(&alone["traffic_latency_ratio"]) - 1.0).abs() < 1e-9, "{jobs}");
    let rate = number(&jobs[0]["together"]["write_gbps"]["mean"]);
    assert_eq!(rate, number(&alone["ior_together"]["write_GBps"]));
    assert!(number(&measures[1]["alone"][0]["write_gbps"]["mean"]) < 2.0);
    let delays = measures[0]["together"][0]["delays"].as_array().unwrap();
    assert!(delays.iter().any(|one| one["job"] == "io" && number(&one["seconds"]) > 0.0));
    let report = dir.read("out/report.md");
    for text in ["# Two jobs", "one storage node", "rank-1", "beside solver"] {
        assert!(report.contains(text), "{text} in {report}");
    }
}

/// Three seeds of three jobs: each pair and all, with intervals; the mean is that of the single seeds.
#[test]
fn several_seeds_give_a_matrix_with_intervals() {
    let dir = WorkDir::new();
    let reader = "[[job]]\nname = \"reader\"\nnodes = 4\nior = \"-a POSIX -F -r -t 512k -b 2m\"\n";
    let study = STUDY.replace("[[measure]]", &format!("{reader}[[measure]]"));
    let study = study.replace("machine =", "seeds = 3\nseed = 5\nmachine =");
    dir.write("study.toml", &study);
    dir.expect_success("study study.toml --out out");
    let found = summary(&dir);
    assert_eq!(found["seeds"].to_string(), "[5,6,7]");
    let sets = found["measures"][0]["together"].as_array().unwrap();
    let jobs = |set: &serde_json::Value| -> Vec<u64> {
        let all = set["jobs"].as_array().unwrap().iter();
        all.map(|one| one["job"].as_u64().unwrap()).collect()
    };
    let sets: Vec<Vec<u64>> = sets.iter().map(jobs).collect();
    assert_eq!(sets, [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
    let slowdown = &found["measures"][0]["together"][3]["jobs"][2]["slowdown"];
    let values: Vec<f64> = slowdown["values"].as_array().unwrap().iter().map(number).collect();
    assert_eq!(values.len(), 3);
    assert!((values.iter().sum::<f64>() / 3.0 - number(&slowdown["mean"])).abs() < 1e-12);
    assert!(number(&slowdown["half_width"]) >= 0.0);
    let report = dir.read("out/report.md");
    let diagonal: Vec<bool> = report
        .lines()
        .skip_while(|line| !line.starts_with("| slowdown of"))
        .skip(2)
        .take(3)
        .enumerate()
        .map(|(job, line)| line.split('|').nth(job + 2).is_some_and(|cell| cell.trim() == "–"))
        .collect();
    assert_eq!(diagonal, [true; 3], "{report}");
    for text in ["Means of 3 seeds from 5 on", "beside reader", "beside all", "±", "read alone"] {
        assert!(report.contains(text), "{text} in {report}");
    }
}

#[test]
fn interrupted_study_goes_on_with_the_cases_that_are_missing_or_changed() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    let first = dir.expect_success("study study.toml --out out --threads 1");
    assert!(!first.stderr.contains("done before"), "{}", first.stderr);
    let (results, report) = (summary(&dir), dir.read("out/report.md"));
    std::fs::remove_file(dir.path().join("out/case-none-seed1.json")).unwrap();
    let second = dir.expect_success("study study.toml --out out --threads 2");
    assert!(second.stderr.contains("none, seed 1: done\n"), "{}", second.stderr);
    assert!(second.stderr.contains("one storage node, seed 1: done before\n"), "{}", second.stderr);
    assert_eq!((summary(&dir), dir.read("out/report.md")), (results, report));
    dir.write("study.toml", &STUDY.replace("burst_buffers = 1", "burst_buffers = 2"));
    let third = dir.expect_success("study study.toml --out out");
    assert!(third.stderr.contains("one storage node, seed 1: done\n"), "{}", third.stderr);
    assert!(third.stderr.contains("none, seed 1: done before\n"), "{}", third.stderr);
}

/// Storage nodes are the same to the traffic before I/O, routing is not. The second study has the results of the
/// first one for the measure that both have.
#[test]
fn measures_with_the_same_traffic_share_its_warm_up() {
    let dir = WorkDir::new();
    let study = STUDY.replace("machine =", "warm_up = \"200 us\"\nseeds = 2\nmachine =");
    let routing = "[[measure]]\nname = \"minimal\"\nrouting = \"minimal\"\n";
    dir.write("study.toml", &format!("{study}{routing}"));
    let first = dir.expect_success("study study.toml --out out");
    assert!(first.stderr.contains("8 warm-ups for 12 simulations"), "{}", first.stderr);
    let both = summary(&dir);
    std::fs::remove_dir_all(dir.path().join("out")).unwrap();
    dir.write("study.toml", &study);
    dir.expect_success("study study.toml --out out --threads 1");
    assert_eq!(summary(&dir)["measures"][1], both["measures"][1]);
    for (study, message) in [
        (study.replace("200 us", "0 s"), "warm_up: 0 s; it is more than 0"),
        (study.replace("200 us", "1000 s"), "warm_up: 1000 s; it is more than 0 and at most 1"),
        (study.replace("200 us", "soon"), "warm_up: "),
        (
            "title = \"a\"\nmachine = \"toy\"\nwarm_up = \"1 ms\"\n[[job]]\nname = \"io\"\n\
             nodes = 4\nior = \"-F -w\"\n"
                .into(),
            "no job has any",
        ),
    ] {
        dir.write("wrong.toml", &study);
        let failed = dir.expect_invalid_input("study wrong.toml --out wrong");
        assert!(failed.contains(message), "{failed}");
    }
}

/// The kinds of routers do not appear in a machine's description, which has counts only.
#[test]
fn study_is_repeated_on_a_machine_with_another_node_map() {
    let toy = include_str!("../../../../machines/toy.toml");
    let (before, rest) = toy.split_once("[[placement.blade]]").unwrap();
    let (_, after) = rest.split_once("[client]").unwrap();
    let map = "[placement]\nmap = { value = \"nodes.csv\", assumed = \"test\" }\n\
         compute = { value = 56, assumed = \"test\" }\n\
         burst_buffer = { value = 4, assumed = \"test\" }\n[client]";
    let nodes = |storage_slot: usize| -> String {
        let routers = (0..32).map(|router| (router / 8, router / 4 % 2, router % 4));
        let lines = routers.map(|(group, chassis, slot)| {
            let kinds = if (chassis, slot) == (0, storage_slot) { "B" } else { "CC" };
            format!("{group},{chassis},{slot},{kinds}\n")
        });
        "group,chassis,slot,nodes\n".to_owned() + &lines.collect::<String>()
    };
    let dir = WorkDir::new();
    dir.write("own.toml", &format!("{before}{map}{after}"));
    dir.write("nodes.csv", &nodes(2));
    dir.write("study.toml", &STUDY.replace("\"toy\"", "\"own.toml\""));
    dir.expect_success("study study.toml --out out");
    let second = dir.expect_success("study study.toml --out out");
    assert!(second.stderr.contains("none, seed 1: done before\n"), "{}", second.stderr);
    dir.write("nodes.csv", &nodes(0));
    let third = dir.expect_success("study study.toml --out out");
    assert!(third.stderr.contains("none, seed 1: done\n"), "{}", third.stderr);
}

/// The reports in `examples/` are those that the studies there give.
#[test]
fn examples_give_the_reports_beside_them() {
    for (study, report) in [
        (
            include_str!("../../../../examples/interference.toml"),
            include_str!("../../../../examples/interference.md"),
        ),
        (
            include_str!("../../../../examples/sizing.toml"),
            include_str!("../../../../examples/sizing.md"),
        ),
    ] {
        let dir = WorkDir::new();
        dir.write("study.toml", study);
        let output = dir.expect_success("study study.toml --out out");
        assert_eq!(output.stdout, report);
    }
}

/// Two values of one variation and two of another: four measures with both changes. Flash of twice the
/// rate on two storage nodes instead of one: four times.
#[test]
fn variations_are_combined_into_measures() {
    let dir = WorkDir::new();
    let study = "title = \"Sizing\"\nmachine = \"toy\"\nfidelity = \"flow\"\n\
        [[job]]\nname = \"io\"\nnodes = 16\nppn = 2\nior = \"-a POSIX -F -w -t 512k -b 16m\"\n\
        [[vary]]\nname = \"nodes\"\nvalue = [{ name = \"1\", job.io.burst_buffers = 1 }, \
        { name = \"2\", job.io.burst_buffers = 2 }]\n\
        [[vary]]\nname = \"flash\"\nvalue = [{ name = \"1 GB/s\", \
        set = [\"burst_buffer.card_write=1GB/s\"] }, { name = \"2 GB/s\" }]\n";
    dir.write("study.toml", study);
    dir.expect_success("study study.toml --out out");
    let found = summary(&dir);
    let measures = found["measures"].as_array().unwrap();
    let rates: Vec<(&str, f64)> = measures[1..]
        .iter()
        .map(|one| {
            let rate = number(&one["alone"][0]["write_gbps"]["mean"]);
            (one["name"].as_str().unwrap(), rate)
        })
        .collect();
    let by_hand = [
        ("nodes 1, flash 1 GB/s", 1.0),
        ("nodes 1, flash 2 GB/s", 2.0),
        ("nodes 2, flash 1 GB/s", 2.0),
        ("nodes 2, flash 2 GB/s", 4.0),
    ];
    for ((name, rate), (expected, by_hand)) in rates.iter().zip(by_hand) {
        assert_eq!(*name, expected);
        assert!((rate / by_hand - 1.0).abs() < 0.1, "{name}: {rate}, by hand {by_hand}");
    }
    assert_eq!(rates.len(), 4);
    for (from, to, word) in [
        ("fidelity = \"flow\"", "fidelity = \"exact\"", "packet, flow, auto"),
        ("{ name = \"2\", job.io.burst_buffers = 2 }", "{ name = \"1\" }", "two measures"),
        ("card_write=1GB/s", "card_write=fast", "burst_buffer.card_write"),
    ] {
        assert!(study.contains(from), "{from}");
        dir.write("study.toml", &study.replace(from, to));
        let error = dir.expect_invalid_input("study study.toml --out out");
        assert!(error.contains(word), "{to}: {error}");
    }
}

/// By hand: two jobs of 16 processes that write 32 MiB each to one storage node, which takes 1.963 GB/s, have
/// half of it each; with storage nodes of their own all of it.
#[test]
fn several_io_jobs_are_simulated_with_flows() {
    let dir = WorkDir::new();
    let job = |name: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\nnodes = 8\nppn = 2\nburst_buffers = 1\n\
             ior = \"-a POSIX -F -w -t 512k -b 1g\"\n"
        )
    };
    let own = "job.one.separate_storage = true\njob.two.separate_storage = true\n";
    let study = format!(
        "title = \"Writers\"\nmachine = \"toy\"\n{}{}[[measure]]\nname = \"own\"\n{own}",
        job("one"),
        job("two")
    );
    dir.write("study.toml", &study);
    dir.expect_success("study study.toml --fidelity flow --out out");
    let found = summary(&dir);
    for (measure, by_hand) in [(0, 2.0), (1, 1.0)] {
        let of_measure = &found["measures"][measure];
        assert_eq!(of_measure["fidelity"], "flow");
        for job in of_measure["together"][0]["jobs"].as_array().unwrap() {
            let slowdown = number(&job["slowdown"]["mean"]);
            assert!((slowdown / by_hand - 1.0).abs() < 0.03, "{slowdown}, not {by_hand}");
            let alone = number(&job["alone"]["write_gbps"]["mean"]);
            assert!((alone / 1.963 - 1.0).abs() < 0.02, "{alone}");
        }
    }
    let report = dir.read("out/report.md");
    for text in ["Simulated with flows", "beside two", "Collisions of I/O"] {
        assert!(report.contains(text), "{text} in {report}");
    }
    assert!(!report.contains("Collisions in the network"), "{report}");
    assert!(!report.contains("Warnings"), "{report}");
}

/// Four calls of each process are few, alone and beside the other job.
#[test]
fn report_has_the_warnings_about_the_phases_of_several_jobs() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    let report = dir.expect_success("study study.toml --out out").stdout;
    let few = "- io (none, alone, and 3 times more): 4 transfers a process in the write phase, of which the first and the last are not typical";
    let (_, warnings) = report.split_once("## Warnings\n").unwrap();
    assert!(warnings.lines().any(|line| line.starts_with(few)), "{report}");
    let of_io = &summary(&dir)["measures"][0]["together"][0]["jobs"][0];
    for run in ["alone", "together"] {
        let all = of_io[run]["warnings"].as_array().unwrap();
        assert!(all.iter().any(|one| one.as_str().unwrap().contains("4 transfers")), "{of_io}");
    }
    // With flows: small blocks in turn in one file.
    let job =
        |name: &str, ior: &str| format!("[[job]]\nname = \"{name}\"\nnodes = 2\nior = \"{ior}\"\n");
    let jobs = job("turns", "-w -t 4k -b 4k -s 16") + &job("files", "-F -w -t 512k -b 32m");
    dir.write("study.toml", &format!("title = \"Turns\"\nmachine = \"toy\"\n{jobs}"));
    let report = dir.expect_success("study study.toml --fidelity flow --out flows").stdout;
    assert!(
        report.contains(
            "- turns (none, alone, and 1 time more): the processes write or read 4 KiB in turn"
        ),
        "{report}"
    );
    assert!(!report.contains("- files ("), "{report}");
}

/// Flows have no latencies: a job with traffic has its accepted load, and its slowdown is that of its load.
#[test]
fn jobs_with_traffic_have_their_load_with_flows() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    dir.expect_success("study study.toml --fidelity flow --out out");
    let found = summary(&dir);
    for measure in found["measures"].as_array().unwrap() {
        assert_eq!(measure["fidelity"], "flow");
        let jobs = measure["together"][0]["jobs"].as_array().unwrap();
        let traffic = jobs.iter().find(|job| job["together"]["time"].is_null()).unwrap();
        let of = |which: &str| number(&traffic[which]["accepted_load"]["mean"]);
        assert!(of("alone") > 0.0 && of("together") <= of("alone") * 1.001, "{traffic}");
        let slowdown = number(&traffic["slowdown"]["mean"]);
        assert!((slowdown / (of("alone") / of("together")) - 1.0).abs() < 1e-9, "{traffic}");
    }
    let report = dir.read("out/report.md");
    assert!(report.contains("accepted load") && report.contains("| load "), "{report}");
    assert!(!report.contains("saturated"), "{report}");
    // The gain of traffic is that of its load: none over itself, as much as anything else with the measure.
    let rows = report.lines().filter(|line| line.contains("| solver") && line.contains("| load "));
    let gains: Vec<&str> = rows.map(|line| line.split('|').nth(6).unwrap().trim()).collect();
    assert!(gains.len() == 2 && gains.iter().all(|gain| gain.ends_with('%')), "{report}");
}

#[test]
fn jobs_on_the_parallel_file_system_share_its_targets() {
    let dir = WorkDir::new();
    let job = |name: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\nnodes = 4\nppn = 2\n\
             ior = \"-a POSIX -w -t 1m -b 64m\"\n"
        )
    };
    let file_system = "file_system = \"pfs\"\nstripe_count = 248\n";
    let study = format!(
        "title = \"Lustre\"\nmachine = \"cori-phase1\"\n{file_system}{}{}",
        job("one"),
        job("two")
    );
    for fidelity in ["packet", "flow"] {
        let dir = WorkDir::new();
        dir.write("study.toml", &study);
        dir.expect_success(&format!("study study.toml --fidelity {fidelity} --out out"));
        let jobs = &summary(&dir)["measures"][0]["together"][0]["jobs"];
        for job in jobs.as_array().unwrap() {
            let slowdown = number(&job["slowdown"]["mean"]);
            assert!(slowdown > 0.95 && slowdown < 2.2, "{fidelity}: {slowdown}");
        }
    }
    dir.write("study.toml", &study.replace("pfs", "tape"));
    let error = dir.expect_invalid_input("study study.toml --out other");
    assert!(error.contains("no file system `tape`"), "{error}");
    dir.write("study.toml", &study.replace("file_system = \"pfs\"\n", ""));
    let error = dir.expect_invalid_input("study study.toml --out other");
    assert!(error.contains("`stripe_count` is for"), "{error}");
}

/// Entries about storage nodes would have no effect there, and a measure a gain of nothing.
#[test]
fn storage_nodes_of_jobs_on_the_parallel_file_system_are_refused() {
    let dir = WorkDir::new();
    let study = "title = \"Lustre\"\nmachine = \"cori-phase1\"\nfile_system = \"pfs\"\n\
                 [[job]]\nname = \"io\"\nnodes = 4\nior = \"-F -w -t 1m -b 4m\"\n";
    for entry in [
        "burst_buffers = 1",
        "storage_groups = \"0\"",
        "separate_storage = true",
        "storage_per_group = 1",
    ] {
        let name = entry.split(' ').next().unwrap();
        for text in [
            format!("{study}{entry}\n"),
            format!("{study}[[measure]]\nname = \"less\"\njob.io.{entry}\n"),
        ] {
            dir.write("study.toml", &text);
            let error = dir.expect_invalid_input("study study.toml --out out");
            let expected = format!("job `io`: `{name}` is for `file_system = \"burst-buffer\"`");
            assert!(error.contains(&expected), "{error}");
        }
    }
}

#[test]
fn invalid_study_is_refused_with_the_place() {
    let dir = WorkDir::new();
    let more = "\n[[measure]]\nname = \"one storage node\"";
    let ppn =
        "traffic = { pattern = \"uniform\", message = \"16KiB\", load = 0.3, messages = 100 }";
    for (from, to, word) in [
        ("nodes = 40", "nodes = 400", "56 compute nodes"),
        ("load = 0.3", "load = 3.0", "at most 1"),
        ("burst_buffers = 1", "burst_buffers = 9", "toy has 4"),
        ("burst_buffers = 1", "burst_buffers = 0", "`burst_buffers` is at least 1"),
        ("burst_buffers = 1", "storage_per_group = 0", "`storage_per_group` is at least 1"),
        ("job.io.burst_buffers = 1", "routing = \"x\"", "one storage node"),
        ("job.io.burst_buffers = 1", "job.io.nodes = 1", "unknown field"),
        (
            "job.io.burst_buffers = 1",
            "job.other.burst_buffers = 1",
            "no job `other`; there are io, solver",
        ),
        (
            "job.io.burst_buffers = 1",
            "job.solver.burst_buffers = 1",
            "`burst_buffers` is for I/O jobs",
        ),
        ("job.io.burst_buffers = 1", "job.io.groups = \"2-4\"", "has the groups 0 to 3"),
        (
            "job.io.burst_buffers = 1",
            "job.solver.groups = \"0\"",
            "groups 0 to 0 of toy have 10 free",
        ),
        ("job.io.burst_buffers = 1", "job.io.start = \"soon\"", "start"),
        ("job.io.burst_buffers = 1", "job.io.rate_limit = \"1 kB/s\"", "at least 1 MB/s"),
        ("job.io.burst_buffers = 1", "job.solver.start = \"1 us\"", "`start` is for I/O jobs"),
        ("job.io.burst_buffers = 1", "server_queues = \"lifo\"", "there are arrival, fair"),
        ("-t 512k", "-t 3m", "raise -b"),
        ("one storage node\"", &format!("one storage node\"{more}"), "two measures"),
        ("name = \"solver\"", "name = \"io\"", "two jobs"),
        ("name = \"solver\"", "name = \"sol\\u001bver\"", "control characters"),
        (ppn, "", "either `ior` or `traffic`"),
        ("nodes = 40\n", "nodes = 40\nppn = 2\n", "`ppn` is for I/O jobs"),
        ("machine = \"toy\"", "machine = \"nowhere\"", "nowhere"),
        ("machine = \"toy\"", "machine = \"toy\"\nseeds = 0", "0 seeds"),
    ] {
        assert!(STUDY.contains(from), "{from}");
        dir.write("study.toml", &STUDY.replace(from, to));
        let error = dir.expect_invalid_input("study study.toml --out out");
        assert!(error.contains(word) && error.contains("study.toml: "), "{to}: {error}");
    }
    assert!(dir.expect_invalid_input("study absent.toml --out out").contains("absent.toml"));
}

#[test]
fn directory_that_cannot_be_created_fails_the_study() {
    let dir = WorkDir::new();
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/sizing.toml");
    let output = dir.run(&format!("study {study} --out /proc/none/results"));
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(
        output.stderr.starts_with("error: cannot create /proc/none/results: "),
        "{}",
        output.stderr
    );
}

/// A node of the solver offers 0.3 of 8 GB/s and may send 0.8 GB/s: a load of 0.1.
#[test]
fn rate_limit_of_a_job_with_traffic_is_a_measure() {
    let dir = WorkDir::new();
    let study = STUDY
        .replace("one storage node", "limited")
        .replace("job.io.burst_buffers = 1", "job.solver.rate_limit = \"800 MB/s\"");
    dir.write("study.toml", &study);
    dir.expect_success("study study.toml --out out");
    let found = summary(&dir);
    let load = |measure: usize| {
        let jobs = &found["measures"][measure]["together"][0]["jobs"];
        number(&jobs[1]["together"]["accepted_load"]["mean"])
    };
    assert!(load(0) > 0.2, "{}", load(0));
    assert!((load(1) - 0.1).abs() < 0.01, "{}", load(1));
    let study = study.replace("800 MB/s", "1 B/s");
    dir.write("study.toml", &study);
    let error = dir.expect_invalid_input("study study.toml --out other");
    assert!(error.contains("rate_limit"), "{error}");
}
