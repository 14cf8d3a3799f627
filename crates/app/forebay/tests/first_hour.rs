//! Mistakes that users make in their first hour, and the messages for them.

use crate::forebay;
use forebay::{CommandOutput, WorkDir};

#[test]
fn missing_pool_file_is_refused_and_not_created() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input("status --pool pol.toml");
    assert!(error.contains("pol.toml: no such file"), "{error}");
    dir.expect_invalid_input("create-persistent data --capacity 16MiB --pool pol.toml");
}

#[test]
fn pool_larger_than_its_file_system_is_refused() {
    let dir = WorkDir::new();
    dir.write("job.sh", "#!/bin/sh\n");
    let output = dir.run("run --pool pool --pool-size 100PiB job.sh");
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(
        output.stderr.contains("100 PiB are more than its file system has, which is "),
        "{}",
        output.stderr
    );
}

#[test]
fn relative_stage_paths_start_at_the_working_directory() {
    let dir = WorkDir::new();
    dir.write("input", "some input\n");
    dir.expect_success("create-persistent data --capacity 16MiB --pool pool --pool-size 64MiB");
    let output = dir.expect_success("stage in --pool pool --instance data input kept");
    assert_eq!(output.stdout, "staged 1 file, 11 B\n");
    let output = dir.expect_success("stage out --pool pool --instance data kept output");
    let expected = "staged 1 file, 11 B; copied and synced in ";
    assert!(output.stdout.starts_with(expected), "{}", output.stdout);
    assert!(output.stdout.contains(", read back 11 B in "), "{}", output.stdout);
    assert_eq!(dir.read("output"), "some input\n");
    parent_components_are_resolved(&dir);
    let output = dir.run("stage in --pool pool --instance data absent kept");
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let reason = format!("{}: does not exist", dir.path().join("absent").display());
    assert!(output.stderr.contains(&reason), "{}", output.stderr);
    // The stage has no script, so no message names a line.
    assert!(!output.stderr.contains("line"), "{}", output.stderr);
    let status = dir.expect_success("status --pool pool").stdout;
    assert!(status.contains(&format!("stage of data failed: {reason}")), "{status}");
    dir.expect_success("destroy-persistent data --pool pool");
}

/// Paths with `..` are resolved as the system does, from the working directory.
fn parent_components_are_resolved(dir: &WorkDir) {
    let deeper = dir.path().join("sub/deeper");
    std::fs::create_dir_all(&deeper).unwrap();
    std::os::unix::fs::symlink("sub/deeper", dir.path().join("link")).unwrap();
    dir.write("sub/input", "of sub\n");
    for (from, input, contents) in [
        (dir.path().join("sub"), "../input", "some input\n"),
        (deeper, "../../sub/./../input", "some input\n"),
        // `link/..` is the parent of the target of `link`.
        (dir.path().to_owned(), "link/../input", "of sub\n"),
    ] {
        let run = |line: String| {
            let output = dir.command(&line).current_dir(&from).output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{line}: {err}");
        };
        let pool = dir.path().join("pool").display().to_string();
        let stage = |line: &str| format!("stage {line} --pool {pool} --instance data");
        run(stage(&format!("in {input} up")));
        run(stage(&format!("out up {input}.back")));
        assert_eq!(std::fs::read_to_string(from.join(format!("{input}.back"))).unwrap(), contents);
    }
    let output = dir.run("stage in --pool pool --instance data absent/../input up");
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("cannot resolve `"), "{}", output.stderr);
}

#[test]
fn short_stage_prints_no_progress() {
    let dir = WorkDir::new();
    dir.write("input", "some input\n");
    dir.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_in type=file source=%d/input destination=$DW_JOB_STRIPED/input\n",
    );
    let output = dir.expect_success("run --pool pool --pool-size 64MiB job.sh");
    assert!(output.stderr.contains("forebay: stage in\n"), "{}", output.stderr);
    assert!(!output.stderr.contains("of 0 files"), "{}", output.stderr);
}

/// `forebay run job.sh 2>&1 | head -1`.
#[test]
fn job_survives_closed_output_pipes() {
    let dir = WorkDir::new();
    dir.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/x destination=%d/x\n\
         echo result > $DW_JOB_STRIPED/x\n\
         exit 3\n",
    );
    let mut child = dir.spawn("run --pool pool --pool-size 64MiB job.sh");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(dir.read("x"), "result\n");
    let mut child = dir.spawn("status --pool pool");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn invalid_instance_name_exits_with_2() {
    let dir = WorkDir::new();
    // No script could use these: directives refuse them, too.
    for name in ["a/b", "a-b", "1q", "a.b"] {
        let line =
            format!("create-persistent {name} --capacity 16MiB --pool pool --pool-size 64MiB");
        let error = dir.expect_invalid_input(&line);
        assert!(error.contains("use at most 64 letters, digits and `_`"), "{error}");
    }
}

#[test]
fn missing_stage_out_destination_is_warned_of_at_the_start() {
    let dir = WorkDir::new();
    dir.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/x destination=%d/results/x\n\
         echo result > $DW_JOB_STRIPED/x\n\
         test ! \"$1\" || mkdir results\n",
    );
    let warned = |output: &CommandOutput| {
        let (warning, rest) = output.stderr.split_once("forebay: set up").unwrap();
        assert!(!rest.contains("warning"), "{}", output.stderr);
        warning.contains("line 3: ") && warning.contains("/results does not exist here")
    };
    let output = dir.run("run --pool pool --pool-size 64MiB job.sh");
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(warned(&output), "{}", output.stderr);
    let output = dir.expect_success("run --pool pool job.sh make");
    assert!(warned(&output), "{}", output.stderr);
    let output = dir.expect_success("run --pool pool job.sh");
    assert_eq!(dir.read("results/x"), "result\n");
    assert!(!output.stderr.contains("warning"), "{}", output.stderr);
}
