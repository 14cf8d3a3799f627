//! Staging on a pool over three hosts: by the processes of a running job, and into the copies of a
//! load-balanced instance.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use crate::library;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use cluster::site::{OTHER, Site, USER, expect_failure, expect_success, job_script};
use cluster::{User, text_of, wait_until};

/// A script that saves the job's variables, for processes on other hosts.
fn save_variables(pfs: &Path) -> String {
    format!("env | grep -E '^(DW|FOREBAY_JOB)_' | sed 's/^/export /' >{}/variables", pfs.display())
}

/// Runs a script with the job's variables on a host and returns its output.
fn run_in_job(site: &Site, host: usize, user: User, text: &str) -> String {
    let pfs = site.cluster.pfs();
    let pfs = pfs.display();
    let head = format!(". {pfs}/variables; P={pfs}; B=$DW_JOB_STRIPED; PATH=$P/prefix:$PATH");
    let output = site.host(host).shell(user, &format!("{head}\n{text}"));
    text_of(&output)
}

fn make_directory(path: &Path, owner: User) {
    fs::create_dir_all(path).unwrap();
    chown(path, Some(owner.0), Some(owner.1)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn stages_requested_on_one_host_are_seen_on_all_hosts_of_the_job() {
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    let prefix = pfs.join("prefix");
    library::install(&prefix);
    library::compile(&prefix, &library::root().join("crates/app/forebay/tests/datawarp.c"), "dw");
    make_directory(&pfs.join("in/tree"), USER);
    make_directory(&pfs.join("out"), USER);
    fs::write(pfs.join("in/a"), "a\n").unwrap();
    for name in ["x", "y", "z"] {
        fs::write(pfs.join("in/tree").join(name), name.repeat(200_000)).unwrap();
    }
    let directives = "#DW jobdw capacity=96MiB type=scratch access_mode=striped";
    let mut job = site.start_job(&job_script(&pfs, directives, &save_variables(&pfs)));
    job.wait_until_running(&site);
    let dw = |site: &Site, host, text: &str| run_in_job(site, host, USER, text);

    // One host stages in, another waits, the third reads the result.
    assert_eq!(dw(&site, 0, "dw in ${B}a $P/in/a"), "");
    assert_eq!(dw(&site, 1, "dw wait ${B}a"), "");
    let seen = "cmp $P/in/a ${B}a; dw query ${B}a";
    let complete = "complete 1 pending 0 deferred 0 failed 0\n";
    assert_eq!(dw(&site, 2, seen), complete);
    assert_eq!(dw(&site, 2, "dw in-directory ${B}tree $P/in/tree"), "");
    let tree = "dw wait-directory ${B}tree; diff -r $P/in/tree ${B}tree; dw query ${B}tree/x";
    assert_eq!(dw(&site, 0, tree), complete);

    // Out, now and at the job's end; a path has one stage at a time, also from another host.
    let defer =
        "echo 1 >${B}r; echo 2 >${B}s; dw out end ${B}r $P/out/r; dw out now ${B}s $P/out/s";
    assert_eq!(dw(&site, 1, defer), "");
    assert_eq!(dw(&site, 0, "dw wait ${B}s; cat $P/out/s"), "2\n");
    let busy = "dw out now ${B}r $P/out/other || true";
    assert_eq!(dw(&site, 2, busy), "out: Device or resource busy\n");
    let deferred = "complete 0 pending 0 deferred 1 failed 0\n";
    assert_eq!(dw(&site, 2, "dw query ${B}r"), deferred);
    let revoked = "echo 3 >${B}t; dw out end ${B}t $P/out/t";
    assert_eq!(dw(&site, 0, revoked), "");
    assert_eq!(dw(&site, 2, "dw out revoke ${B}t"), "");

    // A failure gives the same error number on all hosts, and its files can be listed.
    let failing = "mkdir $P/out/gone; dw out end ${B}s $P/out/gone/s; rmdir $P/out/gone; \
                   dw out activate ${B}s";
    assert_eq!(dw(&site, 1, failing), "");
    let absent = "wait: No such file or directory\n";
    assert_eq!(dw(&site, 2, "dw wait ${B}s || true"), absent);
    let failed = dw(&site, 0, "dw failed $B");
    assert!(failed.ends_with("/ss/s 1 No such file or directory\n"), "{failed}");

    // The controller restarts with all of this.
    site.controller.kill();
    site.controller = site.host(0).start_daemon(&["controller", "--config", site.file()]);
    wait_until("the controller is back", || {
        (dw(&site, 1, "dw query ${B}r") == deferred).then_some(())
    });
    assert_eq!(dw(&site, 2, "dw wait ${B}s || true"), absent);
    assert_eq!(dw(&site, 0, "dw stop ${B}s"), "");

    // The reported stripes are those of the files.
    let stripes = dw(&site, 1, "for f in x y z; do dw stripes ${B}tree/$f; done");
    for line in stripes.lines() {
        let rest = line.strip_prefix("size 65536 width 3 start ");
        let (start, set) = rest.and_then(|rest| rest.split_once(' ')).unwrap();
        assert!(start.parse::<u32>().unwrap() < 3, "{line}");
        assert_eq!(set, "set 0 other 1");
    }
    assert_eq!(stripes.lines().count(), 3, "{stripes}");

    // Another user is refused.
    let denied = run_in_job(&site, 1, OTHER, "dw concurrency /tmp 1 || true");
    assert_eq!(denied, "concurrency: Permission denied\n");

    job.finish(&site);
    assert_eq!(fs::read_to_string(pfs.join("out/r")).unwrap(), "1\n");
    assert!(!pfs.join("out/t").exists() && !pfs.join("out/other").exists());
    let late = dw(&site, 1, "dw concurrency /tmp 1 || true");
    assert_eq!(late, "concurrency: Transport endpoint is not connected\n");
}

#[test]
fn load_balanced_instance_is_read_from_another_copy_when_a_node_fails() {
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    make_directory(&pfs.join("input/deep"), USER);
    for index in 0..20 {
        let text = format!("{index}\n").repeat(10_000);
        fs::write(pfs.join(format!("input/deep/f{index}")), text).unwrap();
    }
    let directives = format!(
        "#DW jobdw capacity=48MiB type=scratch access_mode=ldbalance\n\
         #DW stage_in type=directory source={}/input destination=$DW_JOB_LDBALANCE/input",
        pfs.display()
    );
    let mut job = site.start_job(&job_script(&pfs, &directives, &save_variables(&pfs)));
    job.wait_until_running(&site);

    // Three granules of 16 MiB, so three copies, which cost three times as much.
    let status = site.status().unwrap();
    let instance = &status["instances"][0];
    assert_eq!(instance["modes"], serde_json::json!(["ldbalance"]));
    assert_eq!(instance["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(instance["capacity"], 3 * 48 * 1024 * 1024);
    let used: u64 =
        status["nodes"].as_array().unwrap().iter().map(|n| n["used"].as_u64().unwrap()).sum();
    assert_eq!(used, 9);
    let filled = status["stages"].as_array().unwrap();
    let of_each: Vec<_> = filled.iter().map(|stage| &stage["progress"]["files"]).collect();
    assert_eq!(of_each.len(), 3);
    assert!(of_each.iter().all(|files| *files == of_each[0]), "{status}");

    // Every host sees all files, read-only.
    for host in 0..3 {
        let reads = "diff -r $P/input ${DW_JOB_LDBALANCE}input";
        assert_eq!(run_in_job(&site, host, USER, reads), "");
        for change in ["touch ${D}new", "rm ${D}f0", "echo x >>${D}f1", "chmod 600 ${D}f2"] {
            let text = format!("D=${{DW_JOB_LDBALANCE}}input/deep/; {change} || true");
            let output = run_in_job(&site, host, USER, &text);
            assert!(output.contains("Read-only file system"), "{change}: {output}");
        }
        let other = run_in_job(&site, host, OTHER, "ls $DW_JOB_LDBALANCE || true");
        assert!(other.contains("Permission denied"), "{other}");
    }

    // Each host reads one copy, and each storage node has a session of its own, which filled its
    // copy. The choice of the copies is tested with the controller: here, on a busy machine, a node
    // that does not report for ten seconds loses its readers.
    let readers = |status: &serde_json::Value| -> Option<Vec<u64>> {
        let hosts = status["activity"].as_array()?.iter();
        let stores = hosts.filter(|host| host["store"].is_object());
        let of = |host: &serde_json::Value| {
            let usages = host["store"]["gauges"]["instances"].as_array()?.iter();
            usages.map(|usage| usage["sessions"].as_u64()).sum()
        };
        stores.map(of).collect()
    };
    let mut seen = None;
    let start = Instant::now();
    while seen.as_ref().is_none_or(|seen: &Vec<u64>| seen.iter().sum::<u64>() != 3 + 3) {
        assert!(start.elapsed() < Duration::from_secs(20), "{seen:?}");
        seen = site.status().and_then(|status| readers(&status));
    }

    // A daemon is killed: its reader changes to another copy.
    site.storage[1].kill();
    let start = Instant::now();
    let reads =
        "timeout 3 cat ${DW_JOB_LDBALANCE}input/deep/f7 | cmp - $P/input/deep/f7 && echo same";
    while run_in_job(&site, 1, USER, reads) != "same\n" {
        assert!(start.elapsed() < Duration::from_secs(40), "{}", site.output());
    }
    for host in 0..3 {
        let reads = "diff -r $P/input ${DW_JOB_LDBALANCE}input && echo same";
        assert_eq!(run_in_job(&site, host, USER, reads), "same\n");
    }
    job.finish(&site);
    let listed = expect_success(&site.host(1).shell(USER, "ls jobs agent/mounts"));
    assert_eq!(listed, "agent/mounts:\n\njobs:\n");
}

#[test]
fn second_run_of_a_running_job_and_stages_outside_allowed_directories_are_refused() {
    let site = Site::new();
    let pfs = site.cluster.pfs();
    let directives = "#DW jobdw capacity=48MiB type=scratch access_mode=striped";
    let mut job = site.start_job(&job_script(&pfs, directives, "true"));
    job.wait_until_running(&site);
    let run = |host: usize, token: &str| {
        let path = pfs.join("job.sh");
        let arguments = ["run", "--pool", site.file(), "--job-id", token];
        let mut command = site.host(host).command(USER, env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).arg(&path).output().unwrap()
    };
    let second = run(1, "job1");
    expect_failure(&second, "it runs, or was interrupted");
    expect_failure(&second, "n1, n2, n3");
    // The first run is not affected.
    job.finish(&site);

    make_directory(&pfs.join("mine"), USER);
    fs::write(pfs.join("mine/list"), "/etc/hostname\n").unwrap();
    std::os::unix::fs::symlink("/etc", pfs.join("mine/link")).unwrap();
    for (kind, source) in [("file", "mine/link/hostname"), ("list", "mine/list")] {
        let stage = format!(
            "#!/bin/sh\n{directives}\n#DW stage_in type={kind} source={}/{source} \
             destination=$DW_JOB_STRIPED/x\ntouch {0}/mine/ran\n",
            pfs.display()
        );
        fs::write(pfs.join("job.sh"), stage).unwrap();
        let refused = run(0, "job2");
        expect_failure(&refused, "leads out of the directories");
    }
    assert!(!pfs.join("mine/ran").exists());
}
