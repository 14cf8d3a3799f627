//! Job scripts on an embedded pool, as a user runs them.

use crate::embedded_home;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use embedded_home::{Home, example, text_of};

/// The result of the example without a buffer.
fn expected_answer(home: &Home, steps: &str) -> String {
    let plain = tempfile::tempdir().unwrap();
    let root = format!("{}/", plain.path().display());
    let copy = Command::new("cp").arg("-r").arg(home.path("input")).arg(&root).status().unwrap();
    assert!(copy.success());
    let run =
        Command::new("sh").arg(example()).arg(steps).env("DW_JOB_STRIPED", &root).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    fs::read_to_string(plain.path().join("results/answer")).unwrap()
}

#[test]
fn example_runs_and_stages_out_its_results() {
    let home = Home::new();
    let output = home.forebay(&["run", "--pool-size", "1GiB", &example(), "3"]);
    let text = text_of(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        fs::read_to_string(home.path("results/answer")).unwrap(),
        expected_answer(&home, "3")
    );
    let checkpoints = fs::read_dir(home.path("results/checkpoints")).unwrap().count();
    assert_eq!(checkpoints, 3);
    assert_eq!(
        fs::read_link(home.path("results/latest")).unwrap(),
        Path::new("checkpoints/step-0003")
    );
    for phase in [
        "set up",
        "stage in",
        "mount",
        "run",
        "unmount",
        "stage out",
        "  copied, synced",
        "  read back",
        "  finished",
        "tear down",
        "total",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(phase)),
            "{phase} in the summary:\n{text}"
        );
    }
    assert!(text.contains("step 3 of 3"), "the script's own output: {text}");
    home.assert_clean();
}

#[test]
fn killed_job_is_recovered_and_continues_from_its_checkpoint() {
    let home = Home::new();
    let mut run = home.start(&["run", "--pool-size", "1GiB", &example(), "50", "0.1"]);
    home.wait_for("results/checkpoints/step-0003");
    run.kill().unwrap(); // SIGKILL: no clean-up.
    run.wait().unwrap();
    assert!(!home.path("results").exists());
    let status = text_of(&home.forebay(&["status"]));
    assert!(status.contains("256 MiB") && status.contains("striped"), "{status}");
    let recover = home.forebay(&["recover"]);
    assert!(
        recover.status.success() && text_of(&recover).contains("staged out"),
        "{}",
        text_of(&recover)
    );
    let step = fs::read_to_string(home.path("results/checkpoints/step-0003")).unwrap();
    assert!(step.starts_with("step 3\nstate ") && step.len() > 1 << 20, "a whole checkpoint");
    home.assert_clean();
    assert!(text_of(&home.forebay(&["recover"])).contains("nothing to recover"));
    // The job continues from the last checkpoint and computes the same result.
    let expected = expected_answer(&home, "8");
    fs::rename(home.path("results/checkpoints"), home.path("input/checkpoints")).unwrap();
    for entry in fs::read_dir(home.path("input/checkpoints")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name.as_str() > "step-0005" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let output = home.forebay(&["run", &example(), "8"]);
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(!text_of(&output).contains("step 3 of 8"), "it must not start from the beginning");
    assert_eq!(fs::read_to_string(home.path("results/answer")).unwrap(), expected);
}

#[test]
fn job_killed_during_its_teardown_is_removed_by_recover() {
    let home = Home::new();
    let script = "#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination=%d/out\n\
         mkdir $DW_JOB_STRIPED/out; for i in {1..300}; do echo $i > $DW_JOB_STRIPED/out/$i; done\n";
    let script = script.replace("%d", &home.directory.path().to_string_lossy());
    fs::write(home.path("many.sh"), script).unwrap();
    // It is killed at different points of the teardown.
    for delay_ms in [0, 10, 20, 40] {
        let log = fs::File::create(home.path("run.log")).unwrap();
        let mut command = home.command(&["run", "--pool-size", "1GiB", "many.sh"]);
        let mut run = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let begins = || fs::read_to_string(home.path("run.log")).unwrap().contains("tear down");
        while !begins() && run.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        run.kill().unwrap();
        run.wait().unwrap();
        let recover = home.forebay(&["recover"]);
        assert!(recover.status.success(), "{}", text_of(&recover));
        let text = text_of(&home.forebay(&["recover"]));
        assert!(text.contains("nothing to recover"), "{text}");
        assert_eq!(fs::read_to_string(home.path("out/300")).unwrap(), "300\n");
        fs::remove_dir_all(home.path("out")).unwrap();
    }
    home.assert_clean();
}

#[test]
fn interrupted_job_keeps_its_data_for_recover() {
    let home = Home::new();
    let mut run = home.start(&["run", "--pool-size", "1GiB", &example(), "50", "0.1"]);
    home.wait_for("results/checkpoints/step-0002");
    let all = text_of(&home.forebay(&["recover"]));
    assert!(all.contains("name the job with --job-id: other jobs may be running"), "{all}");
    // The status of a pool in use is published with a delay.
    let start = Instant::now();
    while !text_of(&home.forebay(&["status"])).contains("striped") {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{}",
            text_of(&home.forebay(&["status"]))
        );
    }
    let stopped = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let recover = home.forebay(&["recover"]);
    assert!(text_of(&recover).contains("staged out"), "{}", text_of(&recover));
    assert!(home.path("results/checkpoints/step-0002").exists());
    home.assert_clean();
}

#[test]
fn failed_script_stages_out_keeps_or_discards_as_requested() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/log destination=%d/log
echo it went wrong >${DW_JOB_STRIPED}log
exit 7
";
    let output = home.script("fails.sh", text);
    assert_eq!(output.status.code(), Some(7), "{}", text_of(&output));
    assert_eq!(fs::read_to_string(home.path("log")).unwrap(), "it went wrong\n");
    fs::remove_file(home.path("log")).unwrap();
    let script = home.path("fails.sh");
    let script = script.to_str().unwrap();
    let output = home.forebay(&["run", "--on-failure", "keep", script]);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        text_of(&output).contains("are kept") && !home.path("log").exists(),
        "{}",
        text_of(&output)
    );
    home.forebay(&["recover"]);
    assert_eq!(fs::read_to_string(home.path("log")).unwrap(), "it went wrong\n");
    fs::remove_file(home.path("log")).unwrap();
    home.forebay(&["run", "--on-failure", "discard", script]);
    assert!(!home.path("log").exists());
    home.assert_clean();
}

#[test]
fn status_of_a_failed_script_is_reported_beside_the_failed_stage_out() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/never destination=%d/never
exit 7
";
    let output = home.script("fails.sh", text);
    let text = text_of(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the script ended with status 7"), "{text}");
    assert!(text.contains("$DW_JOB_STRIPED/never: does not exist"), "{text}");
    home.forebay(&["recover", "--discard"]);
    home.assert_clean();
}

#[test]
fn script_is_read_from_standard_input() {
    let home = Home::new();
    let text = "#!/bin/sh\n#DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
                test -d $DW_JOB_STRIPED && echo mounted for $1\n";
    let mut command = home.command(&["run", "--pool-size", "1GiB", "-", "me"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(text_of(&output).contains("mounted for me"), "{}", text_of(&output));
    home.assert_clean();
}

#[test]
fn script_with_a_missing_interpreter_is_told_apart_from_a_missing_script() {
    let home = Home::new();
    let text = "#!/no/such/shell\n#DW jobdw capacity=16MiB type=scratch access_mode=striped\n";
    let text = text_of(&home.script("job.sh", text));
    assert!(text.contains("its interpreter `/no/such/shell` does not exist"), "{text}");
    home.assert_clean();
}

#[test]
fn full_instance_returns_enospc() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
head -c 40000000 /dev/zero >${DW_JOB_STRIPED}big && exit 9
rm ${DW_JOB_STRIPED}big
echo fits >${DW_JOB_STRIPED}small
";
    let output = home.script("full.sh", text);
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(text_of(&output).contains("No space left on device"), "{}", text_of(&output));
    let output = home.script(
        "large.sh",
        "#!/bin/sh\n#DW jobdw capacity=1TiB type=scratch access_mode=striped\n",
    );
    assert!(!output.status.success());
    assert!(
        text_of(&output).contains("65536 granules requested, 64 in all"),
        "{}",
        text_of(&output)
    );
    home.assert_clean();
}

#[test]
fn invalid_directives_are_reported_with_line_and_column() {
    let home = Home::new();
    let text = "#!/bin/sh\n#DW jobdw capacity=3.5TB type=scratch access_mode=striped\n#DW swop 3\n";
    let output = home.script("bad.sh", text);
    assert_eq!(output.status.code(), Some(2));
    let text = text_of(&output);
    assert!(
        text.contains("bad.sh: line 2, column 21: `3.5TB` is not a whole number; write `3500GB`"),
        "{text}"
    );
    assert!(
        text.contains("bad.sh: line 3, column 5: unknown directive `swop`; did you mean `swap`?"),
        "{text}"
    );
    assert!(!home.path(".forebay").exists(), "no pool is created");
    let output = home.script(
        "cache.sh",
        "#!/bin/sh\n#DW jobdw capacity=1GiB type=cache pfs=/pfs access_mode=striped\n",
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(home.forebay(&["run", "absent.sh"]).status.code(), Some(2));
}

#[test]
fn stage_in_of_the_directory_that_contains_the_pool_is_refused_before_the_job() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=directory source=%d/. destination=$DW_JOB_STRIPED/all
";
    // Also if the pool exists.
    for _ in 0..2 {
        let output = home.script("all.sh", text);
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let reason = format!("contains the pool's directory {}", home.path(".forebay").display());
        assert!(text.contains("all.sh: line 3: ") && text.contains(&reason), "{text}");
        let created = home.script("empty.sh", "#!/bin/sh\n");
        assert!(created.status.success(), "{}", text_of(&created));
        assert!(home.path(".forebay").exists());
    }
}

#[test]
fn recover_removes_a_job_whose_stage_out_source_was_never_written() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/r
#DW stage_out type=directory source=$DW_JOB_STRIPED/never destination=%d/never
echo result >${DW_JOB_STRIPED}r
";
    let output = home.script("never.sh", text);
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    let missing = "$DW_JOB_STRIPED/never: does not exist: nothing was written there";
    assert!(text.contains(missing) && text.contains("are kept in the pool"), "{text}");
    assert_eq!(fs::read_to_string(home.path("r")).unwrap(), "result\n");
    let recover = home.forebay(&["recover"]);
    let text = text_of(&recover);
    assert!(
        recover.status.success() && text.contains("removed") && text.contains(missing),
        "{text}"
    );
    assert!(text_of(&home.forebay(&["recover"])).contains("nothing to recover"));
}

#[test]
fn results_are_kept_until_their_destination_exists() {
    let home = Home::new();
    let text = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/away/r
echo result >${DW_JOB_STRIPED}r
";
    let output = home.script("away.sh", text);
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    assert!(
        text.contains("stage_out of line 3:")
            && text.contains("away: the directory does not exist"),
        "{text}"
    );
    assert!(text.contains("are kept in the pool"), "{text}");
    assert!(text_of(&home.forebay(&["recover"])).contains("kept: stage_out of line 3"));
    fs::create_dir(home.path("away")).unwrap();
    assert!(home.forebay(&["recover"]).status.success());
    assert_eq!(fs::read_to_string(home.path("away/r")).unwrap(), "result\n");
    home.assert_clean();
}

#[test]
fn persistent_instance_is_filled_by_one_job_and_read_by_another() {
    let home = Home::new();
    let create = "#!/bin/sh\n#DW create_persistent name=dbs capacity=32MiB type=scratch access_mode=striped\n";
    let output = home.script("create.sh", create);
    let text = text_of(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("persistent instance `dbs` of 32.0 MiB is in the pool"), "{text}");
    let output = home.script("other.sh", &create.replace("32MiB", "64MiB"));
    let text = text_of(&output);
    assert!(!output.status.success(), "{text}");
    let taken = "another persistent instance `dbs`; use another name, or `forebay \
                 destroy-persistent dbs` first";
    assert!(text.contains(taken), "{text}");
    fs::write(
        home.path("list"),
        format!("{0}/input/a.txt\n{0}/input/b.txt\n", home.directory.path().display()),
    )
    .unwrap();
    let fill = "#!/bin/sh
#DW persistentdw name=dbs
#DW jobdw capacity=16MiB type=scratch access_mode=striped,private
#DW stage_in type=list source=%d/list destination=$DW_PERSISTENT_STRIPED_dbs/in
[ \"$1\" = 'an argument' ] || exit 3
echo mine >${DW_JOB_PRIVATE}x && [ ! -e ${DW_JOB_STRIPED}x ] || exit 4
wc -l <${DW_PERSISTENT_STRIPED_dbs}in/a.txt >${DW_PERSISTENT_STRIPED_dbs}count
";
    let path = home.path("fill.sh");
    fs::write(&path, fill).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = home.forebay(&["run", path.to_str().unwrap(), "an argument"]);
    assert!(output.status.success(), "{}", text_of(&output));
    let status = text_of(&home.forebay(&["status"]));
    assert!(status.contains("dbs") && status.contains("persistent"), "{status}");
    let use_it = "#!/bin/sh
#DW persistentdw name=dbs
#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_dbs/count destination=%d/count
[ -s ${DW_PERSISTENT_STRIPED_dbs}in/b.txt ]
";
    let output = home.script("use.sh", use_it);
    assert!(output.status.success(), "{}", text_of(&output));
    assert_eq!(fs::read_to_string(home.path("count")).unwrap().trim(), "299");
    let here = home.path("direct");
    let out = home.forebay(&["stage", "--instance", "dbs", "out", "count", here.to_str().unwrap()]);
    assert!(out.status.success(), "{}", text_of(&out));
    assert_eq!(fs::read_to_string(&here).unwrap().trim(), "299");
    let destroy = "#!/bin/sh\n#DW destroy_persistent name=dbs\n";
    assert!(home.script("destroy.sh", destroy).status.success());
    home.assert_clean();
    let output = home.script("use.sh", use_it);
    assert!(
        text_of(&output).contains("there is no persistent instance `dbs`"),
        "{}",
        text_of(&output)
    );
}

/// A job whose results are kept in the pool, because their destination does not exist.
const AWAY: &str = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=file source=%d/input/a.txt destination=$DW_JOB_STRIPED/a.txt
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/away/r
echo result >${DW_JOB_STRIPED}r
";

/// The results of job 42 are in the pool, and arrive when they can.
fn assert_kept(home: &Home) {
    let status = text_of(&home.forebay(&["status"]));
    assert!(status.contains("42") && status.contains("striped"), "{status}");
    fs::create_dir(home.path("away")).unwrap();
    let recover = home.forebay(&["recover", "--job-id", "42"]);
    assert!(
        recover.status.success() && text_of(&recover).contains("staged out"),
        "{}",
        text_of(&recover)
    );
    assert_eq!(fs::read_to_string(home.path("away/r")).unwrap(), "result\n");
    home.assert_clean();
}

#[test]
fn other_script_with_the_id_of_a_kept_job_leaves_its_results() {
    let home = Home::new();
    fs::write(home.path("away.sh"), AWAY).unwrap();
    let run = ["run", "--pool-size", "1GiB", "--job-id", "42"];
    let output = home.forebay(&[&run[..], &["away.sh"]].concat());
    assert!(text_of(&output).contains("are kept in the pool"), "{}", text_of(&output));
    fs::write(home.path("other.sh"), AWAY.replace("16MiB", "32MiB")).unwrap();
    let output = home.forebay(&[&run[..], &["other.sh"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    assert!(
        text.contains("another job `42`") && text.contains("`forebay recover --job-id 42`"),
        "{text}"
    );
    assert_kept(&home);
}

#[test]
fn failing_rerun_of_a_kept_job_leaves_its_results() {
    let home = Home::new();
    fs::write(home.path("away.sh"), AWAY).unwrap();
    let run = ["run", "--pool-size", "1GiB", "--job-id", "42", "away.sh"];
    let output = home.forebay(&run);
    assert!(text_of(&output).contains("are kept in the pool"), "{}", text_of(&output));
    // A directory at the mount point makes the mount fail.
    let view = home.path(".forebay/jobs/42/ss");
    fs::create_dir_all(&view).unwrap();
    let output = home.forebay(&run);
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    assert!(
        text.contains("error: mount:") && text.contains("`forebay recover --job-id 42`"),
        "{text}"
    );
    fs::remove_dir_all(home.path(".forebay/jobs/42")).unwrap();
    // A failing rerun with `discard` keeps the results of the earlier run.
    let spoilt = AWAY.replace("echo result >", "exit 3; echo result >");
    fs::write(home.path("away.sh"), spoilt).unwrap();
    let output = home.forebay(&[&run[..5], &["--on-failure", "discard", "away.sh"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text_of(&output));
    assert!(text_of(&output).contains("are kept"), "{}", text_of(&output));
    assert_kept(&home);
}

/// A process that is killed after a stage-out and before the removal of its journal leaves a
/// finished journal, which must not prevent the stage-out of a later run.
#[test]
fn journal_of_a_finished_stage_out_is_ignored_by_the_next_run() {
    let home = Home::new();
    let script = |number: u32| {
        let text = format!(
            "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/one/r
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/two/r
echo result {number} >${{DW_JOB_STRIPED}}r
"
        );
        fs::write(home.path("job.sh"), text).unwrap();
        let run = ["run", "--pool-size", "1GiB", "--job-id", "42", "job.sh"];
        home.forebay(&run)
    };
    let output = script(1);
    assert!(text_of(&output).contains("are kept"), "{}", text_of(&output));
    let journals: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(home.path(".forebay/journals"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    assert_eq!(journals.len(), 2, "one journal for each failed stage");
    fs::create_dir(home.path("one")).unwrap();
    let recover = text_of(&home.forebay(&["recover"]));
    assert!(recover.contains("kept: stage_out of line 4"), "{recover}");
    let result = |directory: &str| fs::read_to_string(home.path(directory).join("r"));
    assert_eq!(result("one").unwrap(), "result 1\n");
    for (path, mut journal) in journals {
        if !path.exists() {
            journal.extend(b"C\n");
            fs::write(path, journal).unwrap();
        }
    }
    fs::create_dir(home.path("two")).unwrap();
    let output = script(2);
    assert!(output.status.success(), "{}", text_of(&output));
    assert_eq!(result("two").unwrap(), "result 2\n");
    assert_eq!(result("one").unwrap(), "result 2\n");
    home.assert_clean();
}

#[test]
fn job_that_fails_in_stage_in_leaves_nothing() {
    let home = Home::new();
    let absent = AWAY.replace("input/a.txt", "input/absent");
    let output = home.script("absent.sh", &absent);
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    assert!(text.contains("error: stage in:") && !text.contains("recover"), "{text}");
    home.assert_clean();
}

#[test]
fn hosts_option_is_refused_for_an_embedded_pool() {
    let home = Home::new();
    fs::write(home.path("away.sh"), AWAY).unwrap();
    let output = home.forebay(&["run", "--hosts", "n1,n2", "away.sh"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text_of(&output).contains("--hosts names hosts of a pool over several hosts"),
        "{}",
        text_of(&output)
    );
    assert!(!home.path(".forebay").exists(), "no pool is created");
}

#[test]
fn instance_is_for_its_owner_unless_a_group_is_named() {
    let home = Home::new();
    let script = |group: &str| {
        format!(
            "#!/bin/sh\n#DW jobdw capacity=16MiB type=scratch access_mode=striped {group}\n\
             stat -c 'mode %a of %G' $DW_JOB_STRIPED\n"
        )
    };
    let output = home.script("own.sh", &script(""));
    // Only this user's processes can reach the mount.
    assert!(text_of(&output).contains("mode 755 of "), "{}", text_of(&output));
    let output = home.script("team.sh", &script("group=daemon"));
    assert!(text_of(&output).contains("mode 2770 of daemon"), "{}", text_of(&output));
    for (group, reason) in [
        ("group=no-such-group", "there is no group `no-such-group` on this host"),
        ("group=a/b", "`a/b` cannot name a group; write the name or number of a group of users"),
    ] {
        let output = home.script("wrong.sh", &script(group));
        assert!(!output.status.success());
        assert!(text_of(&output).contains(reason), "{}", text_of(&output));
    }
    home.assert_clean();
}
