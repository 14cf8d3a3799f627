//! What goes wrong in the first hour with the program, and what it says then.
#![allow(
    clippy::unwrap_used,
    reason = "a test: what cannot be unwrapped has failed"
)]

mod forebay;

use forebay::{Place, Said};

#[test]
fn a_pool_file_that_is_not_there_is_not_made_a_pool() {
    let place = Place::new();
    let error = place.refused("status --pool pol.toml");
    assert!(error.contains("pol.toml: there is no such file"), "{error}");
    place.refused("create-persistent data --capacity 16MiB --pool pol.toml");
}

#[test]
fn a_pool_is_not_larger_than_its_file_system() {
    let place = Place::new();
    place.write("job.sh", "#!/bin/sh\n");
    let said = place.run("run --pool pool --pool-size 100PiB job.sh");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err
            .contains("100 PiB are more than its file system has, which is "),
        "{}",
        said.err
    );
}

#[test]
fn paths_of_stages_may_be_relative_to_where_one_is() {
    let place = Place::new();
    place.write("input", "some input\n");
    place.ok("create-persistent data --capacity 16MiB --pool pool --pool-size 64MiB");
    let said = place.ok("stage in --pool pool --instance data input kept");
    assert_eq!(said.out, "staged 1 file, 11 B\n");
    let said = place.ok("stage out --pool pool --instance data kept output");
    let told = "staged 1 file, 11 B; copied and synced in ";
    assert!(said.out.starts_with(told), "{}", said.out);
    assert!(said.out.contains(", read back 11 B in "), "{}", said.out);
    assert_eq!(place.read("output"), "some input\n");
    up_and_down(&place);
    let said = place.run("stage in --pool pool --instance data absent kept");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let reason = format!("{}: does not exist", place.path().join("absent").display());
    assert!(said.err.contains(&reason), "{}", said.err);
    // Nothing names a line of a script that there is not.
    assert!(!said.err.contains("line"), "{}", said.err);
    let status = place.ok("status --pool pool").out;
    assert!(
        status.contains(&format!("stage of data failed: {reason}")),
        "{status}"
    );
    place.ok("destroy-persistent data --pool pool");
}

/// Paths with `..` lead where the system says they do, seen from where the user is.
fn up_and_down(place: &Place) {
    let deeper = place.path().join("sub/deeper");
    std::fs::create_dir_all(&deeper).unwrap();
    std::os::unix::fs::symlink("sub/deeper", place.path().join("link")).unwrap();
    place.write("sub/input", "of sub\n");
    for (from, input, contents) in [
        (place.path().join("sub"), "../input", "some input\n"),
        (deeper, "../../sub/./../input", "some input\n"),
        // Not what one gets by leaving out `link/..`.
        (place.path().to_owned(), "link/../input", "of sub\n"),
    ] {
        let run = |line: String| {
            let output = place.command(&line).current_dir(&from).output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{line}: {err}");
        };
        let pool = place.path().join("pool").display().to_string();
        let stage = |line: &str| format!("stage {line} --pool {pool} --instance data");
        run(stage(&format!("in {input} up")));
        run(stage(&format!("out up {input}.back")));
        assert_eq!(
            std::fs::read_to_string(from.join(format!("{input}.back"))).unwrap(),
            contents
        );
    }
    let said = place.run("stage in --pool pool --instance data absent/../input up");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("leads cannot be told"), "{}", said.err);
}

/// What is over at once has no progress to tell of.
#[test]
fn a_short_stage_is_told_by_the_summary_alone() {
    let place = Place::new();
    place.write("input", "some input\n");
    place.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_in type=file source=%d/input destination=$DW_JOB_STRIPED/input\n",
    );
    let said = place.ok("run --pool pool --pool-size 64MiB job.sh");
    assert!(said.err.contains("forebay: stage in\n"), "{}", said.err);
    assert!(!said.err.contains("of 0 files"), "{}", said.err);
}

/// `forebay run job.sh 2>&1 | head -1`.
#[test]
fn a_job_goes_on_when_nobody_listens_any_more() {
    let place = Place::new();
    place.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/x destination=%d/x\n\
         echo result > $DW_JOB_STRIPED/x\n\
         exit 3\n",
    );
    let mut child = place.spawn("run --pool pool --pool-size 64MiB job.sh");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(place.read("x"), "result\n");
    let mut child = place.spawn("status --pool pool");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_name_that_cannot_be_is_wrong_input() {
    let place = Place::new();
    let said = place.run("create-persistent a/b --capacity 16MiB --pool pool --pool-size 64MiB");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("1 to 64 letters"), "{}", said.err);
}

#[test]
fn what_will_fail_at_the_end_is_told_at_the_beginning() {
    let place = Place::new();
    place.write(
        "job.sh",
        "#!/bin/sh\n\
         #DW jobdw capacity=16MiB type=scratch access_mode=striped\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/x destination=%d/results/x\n\
         echo result > $DW_JOB_STRIPED/x\n\
         test ! \"$1\" || mkdir results\n",
    );
    let warned = |said: &Said| {
        let (warning, rest) = said.err.split_once("forebay: set up").unwrap();
        assert!(!rest.contains("warning"), "{}", said.err);
        warning.contains("line 3: ") && warning.contains("/results does not exist here")
    };
    let said = place.run("run --pool pool --pool-size 64MiB job.sh");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(warned(&said), "{}", said.err);
    let said = place.ok("run --pool pool job.sh make");
    assert!(warned(&said), "{}", said.err);
    let said = place.ok("run --pool pool job.sh");
    assert_eq!(place.read("results/x"), "result\n");
    assert!(!said.err.contains("warning"), "{}", said.err);
}
