//! `forebay admin`: usage and quotas of an embedded pool.

use crate::forebay;
use forebay::WorkDir;

#[test]
fn quotas_are_shown_with_the_usage_and_limit_persistent_instances() {
    let dir = WorkDir::new();
    let uid = rustix::process::geteuid().as_raw();
    dir.expect_success("create-persistent --pool pool --pool-size 256MiB one --capacity 64MiB");
    dir.expect_success(&format!("admin quota --pool pool --user {uid} 100MiB"));
    let refused = dir.run("create-persistent --pool pool two --capacity 64MiB");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    for part in [&format!("the quota of user {uid} is 100 MiB"), "64.0 MiB are allocated"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let usage = dir.expect_success("admin usage --pool pool").stdout;
    let row = usage.lines().find(|line| line.starts_with("user")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(&cells[2..], ["1", "64.0", "MiB", "100", "MiB"], "{usage}");
    dir.expect_success(&format!("admin quota --pool pool --user {uid} none"));
    dir.expect_success("create-persistent --pool pool two --capacity 64MiB");
    dir.expect_success("admin quota --pool pool --account physics 100MiB");
    let account = "create-persistent --pool pool --account physics --capacity 64MiB";
    dir.expect_success(&format!("{account} three"));
    let refused = dir.run(&format!("{account} four"));
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("account `physics` is 100 MiB"), "{}", refused.stderr);
    dir.write("job", "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n");
    let refused = dir.run("run --pool pool --account physics job");
    assert!(refused.stderr.contains("account `physics` is 100 MiB"), "{}", refused.stderr);
    let usage = dir.expect_success("admin usage --pool pool").stdout;
    let row = usage.lines().find(|line| line.starts_with("account")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(&cells[1..], ["physics", "1", "64.0", "MiB", "100", "MiB"], "{usage}");
    let invalid = dir.run("admin quota --pool pool --user 1 --group 1 1GiB");
    assert_eq!(invalid.code, Some(2), "{}", invalid.stderr);
    let invalid = dir.run("admin quota --pool pool --user nosuch 1GiB");
    let expected = "error: there is no user `nosuch` on this host\n";
    assert_eq!((invalid.code, invalid.stderr.as_str()), (Some(2), expected));
    let help = dir.expect_success("admin evict --help").stdout;
    assert!(help.contains("(\"Cannot send after transport endpoint shutdown\")"), "{help}");
}
