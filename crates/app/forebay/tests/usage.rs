//! I/O statistics of jobs, which are shown after their end.

use crate::forebay;
use std::fs;

use forebay::WorkDir;

#[test]
fn io_of_a_job_is_shown_after_its_end() {
    let dir = WorkDir::new();
    let home = dir.path().display();
    fs::create_dir(dir.path().join("input")).unwrap();
    dir.write("input/words", &"word\n".repeat(2000));
    dir.write(
        "job.sh",
        &format!(
            "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
             #DW stage_in type=directory source={home}/input destination=$DW_JOB_STRIPED/input\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={home}/out\n\
             set -e\nmkdir ${{DW_JOB_STRIPED}}out\n\
             head -c 3000000 /dev/zero > ${{DW_JOB_STRIPED}}out/zeros\nsync\nsleep 2\n"
        ),
    );
    dir.expect_success("run --pool pool --pool-size 256MiB --job-id first job.sh");
    let usage = dir.json("status --pool pool --job first --json");
    let job = &usage[0];
    assert_eq!((&job["token"], &job["lifetime"]), (&"first".into(), &"job".into()));
    assert_eq!(job["owner"]["uid"], rustix::process::geteuid().as_raw());
    assert!(job["ended"].as_u64().unwrap() > job["created"].as_u64().unwrap(), "{job}");
    assert_eq!(job["io"]["written"], 3_000_000, "{job}");
    assert!(job["io"]["metadata"].as_u64().unwrap() >= 2, "{job}");
    assert!(job["peak_used"].as_u64().unwrap() >= 3_000_000, "{job}");
    let staged = |direction: &str| {
        let stages = &job[direction];
        let number = |field: &str| stages[field].as_u64().unwrap();
        (number("done"), number("failed"), number("files"), number("bytes"))
    };
    assert_eq!(staged("staged_in"), (1, 0, 1, 10_000));
    assert_eq!(staged("staged_out"), (1, 0, 1, 3_000_000));

    // The second job is another row; both are there when the pool has been closed and opened.
    dir.expect_success("run --pool pool --job-id second job.sh");
    let all = dir.json("admin usage --pool pool --jobs --json");
    let names: Vec<&str> =
        all.as_array().unwrap().iter().map(|job| job["token"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    let table = dir.expect_success("status --pool pool --job second").stdout;
    for part in ["second", "ended", "2.86 MiB", "9.77 KiB in "] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let unknown = dir.run("status --pool pool --job third");
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no job `third` is known"), "{}", unknown.stderr);
}
