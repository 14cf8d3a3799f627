//! `forebay plan`.

use crate::forebay;
use forebay::WorkDir;

const SCRIPT: &str = "#!/bin/sh\n#SBATCH --nodes=8 --ntasks-per-node=2 --time=00:10:00\n\
                      #DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                      #DW stage_in type=directory source=%d/in destination=$DW_JOB_STRIPED/in\n\
                      #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination=%d/out\n\
                      ./solve\n";

/// A directory with a job script and 3 MB of input.
fn job_directory() -> WorkDir {
    let dir = WorkDir::new();
    dir.write("job.sh", SCRIPT);
    std::fs::create_dir_all(dir.path().join("in/deep")).unwrap();
    dir.write("in/a", &"a".repeat(1_000_000));
    dir.write("in/deep/b", &"b".repeat(2_000_000));
    dir
}

#[test]
fn nodes_time_and_stages_come_from_the_script() {
    let dir = job_directory();
    let plan = dir.json("plan job.sh --machine shaheen2 --json - -- -a POSIX -F -w -t 1m -b 1g");
    assert_eq!((&plan["kind"], &plan["machine"]), (&"plan".into(), &"shaheen2".into()));
    assert_eq!(plan["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&plan["nodes"], &plan["processes_per_node"]), (&8.into(), &2.into()));
    assert_eq!(plan["needed_bytes"], 16 * (1u64 << 30) + 3_000_000);
    let first = &plan["configurations"][0];
    assert_eq!(first["capacity"], "397GiB");
    assert_eq!(first["storage_nodes"], 1);
    assert_eq!(first["stage_in"]["bytes"], 3_000_000);
    assert_eq!(first["stage_out"]["bytes"], 16 * (1u64 << 30));
    let io = first["io_seconds"].as_f64().unwrap();
    assert!((first["share"].as_f64().unwrap() - io / 600.0).abs() < 1e-12);
    let last = plan["configurations"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["file_system"], &last["is_bound"]), (&"pfs".into(), &false.into()));
}

/// The bytes that the buffer has to hold are then not known, and the document says so, too.
#[test]
fn input_that_is_not_on_this_host_has_a_warning_in_text_and_document() {
    let dir = job_directory();
    dir.write("job.sh", &SCRIPT.replace("%d/in", "/nowhere/in"));
    let line = "plan job.sh --machine toy -- -a POSIX -F -w -t 1m -b 1g";
    let text = dir.expect_success(line).stdout;
    let warning = "line 4 of the script: the size of /nowhere/in is unknown here";
    assert!(text.contains(&format!("warning: {warning}")), "{text}");
    let plan = dir.json(&line.replace("plan ", "plan --json - "));
    let [found] = plan["warnings"].as_array().unwrap().as_slice() else { panic!("{plan:#}") };
    assert!(found.as_str().unwrap().starts_with(warning), "{found}");
    let known = dir.json(&line.replace("plan ", "plan --json - --stage-in 1GB "));
    assert_eq!(known["warnings"], serde_json::json!([]));
}

#[test]
fn recommended_directive_names_the_pool_of_the_script() {
    let dir = WorkDir::new();
    let directive = "#DW jobdw pool=fast capacity=1GiB type=scratch access_mode=striped\n";
    dir.write("job.sh", &format!("#!/bin/sh\n#SBATCH --nodes=4\n{directive}./solve\n"));
    let plan = dir.json("plan job.sh --machine toy --json - -- -F -w -t 1m -b 1g");
    let advised = plan["recommendation"]["directive"].as_str().unwrap();
    let script = forebay_job_script::JobScript::parse(advised, None).unwrap();
    assert_eq!(script.job().unwrap().pool.as_deref(), Some("fast"), "{advised}");
}

#[test]
fn options_replace_what_the_script_says() {
    let dir = job_directory();
    let line = "plan job.sh --machine toy --nodes 4 --ppn 1 --run-time 1h --stage-in 5GB \
                --stage-out 1GB --keep 3 --json - -- -F -w -t 1m -b 1g";
    let plan = dir.json(line);
    assert_eq!((&plan["nodes"], &plan["processes_per_node"]), (&4.into(), &1.into()));
    assert_eq!(plan["needed_bytes"], 3 * 4 * (1u64 << 30) + 5_000_000_000);
    let first = &plan["configurations"][0];
    let io = first["io_seconds"].as_f64().unwrap();
    assert!((first["share"].as_f64().unwrap() - io / 3600.0).abs() < 1e-12);
}

/// Two checkpoints of 32 GiB are four granules of 16 GiB.
#[test]
fn checkpoint_is_written_at_each_interval_and_kept_twice() {
    let dir = WorkDir::new();
    let line = "plan --machine toy --nodes 8 --ppn 2 --checkpoint 32GiB --interval 30min";
    let plan = dir.json(&format!("{line} --json -"));
    assert_eq!(plan["needed_bytes"], 64 * (1u64 << 30));
    let first = &plan["configurations"][0];
    assert_eq!((&first["capacity"], &first["storage_nodes"]), (&"64GiB".into(), &4.into()));
    let io = first["io_seconds"].as_f64().unwrap();
    assert!((first["share"].as_f64().unwrap() - io / (1800.0 + io)).abs() < 1e-12);
    let text = dir.expect_success(line).stdout;
    let directive = "Recommended: #DW jobdw capacity=64GiB type=scratch access_mode=striped\n";
    assert!(text.contains(directive), "{text}");
    assert!(dir.list_files().is_empty(), "a plan writes nothing");
}

/// The recommended directive is one that job scripts accept, with enough capacity.
#[test]
fn recommended_directive_parses_and_holds_the_files() {
    let dir = WorkDir::new();
    for machine in ["toy", "trinity-phase2"] {
        let line = format!("plan --machine {machine} --nodes 4 --json - -- -F -w -t 4m -b 1g");
        let plan = dir.json(&line);
        let directive = plan["recommendation"]["directive"].as_str().unwrap();
        let script = forebay_job_script::JobScript::parse(directive, None).unwrap();
        let capacity = script.job().unwrap().capacity;
        match capacity {
            forebay_job_script::Capacity::Bytes(bytes) => assert!(bytes.0 >= 4 << 30),
            forebay_job_script::Capacity::Nodes(count) => assert!(count > 0, "{machine}"),
        }
    }
}

/// A shared file over one of Shaheen's targets is slow, over all of them it is not.
#[test]
fn shared_file_is_also_striped_over_all_targets() {
    let dir = WorkDir::new();
    let plan = dir.json("plan --machine shaheen2 --nodes 16 --json - -- -w -t 1m -b 1g");
    let all = plan["configurations"].as_array().unwrap();
    let on_pfs: Vec<_> = all.iter().filter(|one| one["file_system"] == "pfs").collect();
    let [default, striped] = on_pfs.as_slice() else { panic!("{plan:#}") };
    assert_eq!((&default["stripe_count"], &striped["stripe_count"]), (&1.into(), &144.into()));
    let seconds = |one: &serde_json::Value| one["io_seconds"].as_f64().unwrap();
    assert!(seconds(striped) < 0.5 * seconds(default), "{plan:#}");
}

#[test]
fn warnings_about_the_simulation_follow_the_recommendation() {
    let dir = WorkDir::new();
    let line = "plan --machine shaheen2 --nodes 2 --ppn 4 -- -w -t 47008 -b 47008 -s 100";
    let text = dir.run(line).stdout;
    let (advice, warnings) = text.split_once("warning: ").unwrap();
    assert!(advice.contains("Recommended:"), "{text}");
    assert!(warnings.contains("in turn in one file"), "{text}");
    assert_eq!(
        warnings.matches("in turn in one file").count(),
        1,
        "once for all capacities: {text}"
    );
    let files = dir.run("plan --machine shaheen2 --nodes 2 --ppn 4 -- -F -w -b 1g").stdout;
    assert!(files.contains("Recommended:") && !files.contains("warning"), "{files}");
}

/// Packets with `--fidelity packet`, and with `auto` where they are cheap.
#[test]
fn text_and_document_name_the_fidelity_and_what_it_leaves_out() {
    let dir = WorkDir::new();
    let test = "-- -F -w -t 1m -b 16m";
    for (option, fidelity, line) in [
        ("", "flow", "\nfidelity: flow\n"),
        ("--fidelity packet", "packet", "\nfidelity: packet\n"),
        ("--fidelity auto", "packet", "\nfidelity: packet\n"),
    ] {
        let plan = dir.json(&format!("plan --machine toy --nodes 4 {option} --json - {test}"));
        for one in plan["configurations"].as_array().unwrap() {
            assert_eq!(one["fidelity"], fidelity, "{option}: {one}");
            let is_complete = one["left_out"].as_array().unwrap().is_empty();
            assert_eq!(is_complete, fidelity == "packet", "{option}: {one}");
        }
        let text = dir.expect_success(&format!("plan --machine toy --nodes 4 {option} {test}"));
        let text = text.stdout;
        assert!(text.contains(line), "{text}");
        assert_eq!(text.contains("\nnot simulated: "), fidelity == "flow", "{text}");
    }
    // A bound is not simulated.
    let shared = "plan --machine cori --nodes 33 --ppn 8 --json - -- -w -t 1m -b 2m";
    let plan = dir.json(shared);
    let pfs = plan["configurations"].as_array().unwrap().last().unwrap();
    assert_eq!((&pfs["is_bound"], &pfs["fidelity"]), (&true.into(), &serde_json::Value::Null));
}

/// Ramp-up and tail take a part of the time that depends on the capacity.
#[test]
fn warnings_name_their_configurations() {
    let dir = WorkDir::new();
    let line = "plan --machine toy --nodes 16 --ppn 4 -- -w -r -t 128k -b 1m";
    let text = dir.expect_success(line).stdout;
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning: ")).collect();
    let of = |name: &str| {
        let of_reads = |line: &&&str| line.contains(name) && line.contains("of the read phase");
        warnings.iter().filter(of_reads).count()
    };
    assert!(of("32GiB: ") >= 1 && of("64GiB: ") >= 1, "{text}");
}

/// A checkpoint has no options of IOR that could be changed.
#[test]
fn warnings_about_a_checkpoint_name_no_options_of_ior() {
    let dir = WorkDir::new();
    let line =
        "plan --machine toy --nodes 4 --fidelity packet --set burst_buffer.metadata_rate=100";
    let of_ior = dir.expect_success(&format!("{line} -- -F -w -e -t 1m -b 4m")).stdout;
    let opens = "opens, closes and barriers take";
    assert!(of_ior.contains(opens) && of_ior.contains("use larger blocks (-b)"), "{of_ior}");
    // A plan does not show it.
    assert!(
        of_ior.contains("4 transfers a process") && !of_ior.contains("steady rate"),
        "{of_ior}"
    );
    let checkpoint = dir.expect_success(&format!("{line} --checkpoint 16MiB")).stdout;
    assert!(checkpoint.contains(opens), "{checkpoint}");
    let warnings = checkpoint.lines().filter(|line| line.starts_with("warning: "));
    for option in ["(-b", "-s)", "(-e)", "take the steady rate"] {
        assert!(warnings.clone().all(|line| !line.contains(option)), "{option}: {checkpoint}");
    }
    // Errors neither.
    let line = "plan --machine cori --nodes 1 --keep 1";
    let error = dir.expect_invalid_input(&format!("{line} -- -F -w -e -t 1m -b 17t"));
    assert!(error.contains("too many transfers") && error.contains("(-t)"), "{error}");
    let error = dir.expect_invalid_input(&format!("{line} --checkpoint 17TiB"));
    assert!(error.contains("too many transfers") && !error.contains("(-"), "{error}");
}

#[test]
fn io_that_takes_longer_than_the_run_has_a_warning() {
    let dir = job_directory();
    let plan = |time: &str| {
        let line = format!("plan --machine toy --nodes 4 --checkpoint 64GiB --run-time {time}");
        dir.expect_success(&line).stdout
    };
    assert!(plan("1s").contains("does not end within the run of 1.00 s"), "{}", plan("1s"));
    assert!(!plan("10h").contains("does not end within"), "{}", plan("10h"));
}

/// One note for each kind of I/O: on the burst buffer and on the parallel file system.
#[test]
fn notes_say_how_far_published_rows_of_the_kinds_were_missed() {
    let dir = WorkDir::new();
    let line = "plan --machine shaheen2 --nodes 2 --ppn 4 -- -w -t 47008 -b 47008 -s 100";
    let text = dir.run(line).stdout;
    for note in [
        "note: published rows of this kind (write, shared file, transfers below 64 KiB, burst buffer): 0 of 2 within \
         the measured range or the accepted difference, errors -38% to +303%; 1 row more to which a number was fitted\n",
        "note: published rows of this kind (write, shared file, transfers below 64 KiB, parallel file system): 0 of 1 \
         within the measured range or the accepted difference, error +88%\n",
    ] {
        assert_eq!(text.matches(note).count(), 1, "{text}");
    }
    let plan = dir.json(&line.replace("plan ", "plan --json - "));
    let kinds = plan["published"].as_array().unwrap();
    let with = |kind: &&serde_json::Value| {
        kind["file_system"] == "parallel file system"
            && kind["transfers"] == "transfers below 64 KiB"
    };
    let [on_pfs] = kinds.iter().filter(with).collect::<Vec<_>>()[..] else { panic!("{kinds:?}") };
    assert_eq!(on_pfs["rows"], serde_json::json!(["io500-lustre-1000-hard-write"]));
}

#[test]
fn invalid_input_is_refused_with_the_reason() {
    let dir = WorkDir::new();
    for (options, word) in [
        ("--machine toy --nodes 4", "--checkpoint SIZE"),
        ("--machine toy --nodes 57 -- -F", "56 compute nodes"),
        ("--machine nowhere -- -F", "nowhere"),
        ("absent.sh --machine toy -- -F", "absent.sh"),
        ("--machine toy --checkpoint 1GiB -- -F", "cannot be used with"),
        ("--machine toy --checkpoint 1 -- ", "unit"),
        ("--machine toy --interval 30 -- -F", "30min"),
        ("--machine toy -- -c -a MPIIO -w -t 1m -b 4m", "--fidelity packet"),
        ("--machine toy --nodes 4 --node-kind x -- -F -w", "no compute nodes of type"),
        ("--machine toy -- -t 3m -b 4m", "multiple"),
        ("--pool absent.toml -- -F", "--rates"),
        ("--rates absent.toml --machine toy -- -F", "--machine"),
        ("--pool absent.toml --rates absent.toml -- -F", "absent.toml"),
        ("-- -F", "--machine"),
    ] {
        let error = dir.expect_invalid_input(&format!("plan {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
}

#[test]
fn batch_options_that_cannot_be_read_are_errors_unless_options_replace_them() {
    let dir = WorkDir::new();
    let line = "plan job.sh --machine toy --json -";
    let test = "-- -F -w -t 1m -b 4m";
    for (option, replaced) in
        [("-N abc", "--nodes 2"), ("--time=soon", "--run-time 1h"), ("-n 0", "--nodes 2 --ppn 1")]
    {
        dir.write("job.sh", &format!("#!/bin/sh\n#SBATCH {option}\n./solve\n"));
        let error = dir.expect_invalid_input(&format!("{line} {test}"));
        let text = option.replace('=', " ");
        assert!(error.contains(&format!("job.sh: line 2: `{text}`")), "{error}");
        dir.expect_success(&format!("{line} {replaced} {test}"));
    }
    dir.write("job.sh", "#!/bin/sh\n./solve\n");
    let output = dir.expect_success(&format!("{line} {test}"));
    assert!(output.stderr.contains("1 is assumed: add --nodes"), "{}", output.stderr);
    let output = dir.expect_success(&format!("{line} --nodes 1 {test}"));
    assert_eq!(output.stderr, "");
}

#[test]
fn buffer_holds_what_is_staged_out() {
    let dir = WorkDir::new();
    let line = "plan --machine toy --nodes 4 --stage-out 40GiB --json - -- -F -w -t 1m -b 1g";
    assert_eq!(dir.json(line)["needed_bytes"], 40 * (1u64 << 30));
}

#[test]
fn file_that_cannot_be_written_is_noticed_before_the_work() {
    let dir = WorkDir::new();
    let error =
        dir.expect_invalid_input("plan --machine toy --json no/x.json -- -F -w -t 1m -b 1g");
    assert!(error.contains("--json no/x.json"), "{error}");
}
