//! The interface for batch systems: the life of a job in calls of `forebay wlm`, and `forebay check`.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use crate::forebay::WorkDir;
use std::fs;
use std::path::Path;

use cluster::site::{OTHER, ROOT, Site, USER, expect_failure, expect_success};
use cluster::{User, text_of};
use serde_json::{Value, json};

/// Makes a call as `user` and returns its outcome.
fn call_as(site: &Site, user: User, call: &Value) -> Value {
    let output = site.forebay(0, user, &["wlm", &call.to_string()]);
    let text = text_of(&output);
    let outcome: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{call}: {text}"));
    assert_eq!(outcome["version"], 1);
    assert_eq!(output.status.success(), outcome.get("result").is_some(), "{text}");
    outcome
}

/// The result of a call of root.
fn call(site: &Site, mut call: Value) -> Value {
    call["version"] = json!(1);
    let outcome = call_as(site, ROOT, &call);
    assert!(outcome.get("result").is_some(), "{call}: {outcome}\n{}", site.output());
    outcome["result"].clone()
}

fn write_script(site: &Site, name: &str, directives: &str) -> String {
    let path = site.cluster.pfs().join(name);
    fs::write(&path, format!("#!/bin/sh\n{directives}\ntrue\n")).unwrap();
    path.display().to_string()
}

#[test]
fn calls_of_a_batch_system_carry_a_job_through_its_life() {
    let site = Site::new();
    let pfs = site.cluster.pfs();
    fs::create_dir(pfs.join("input")).unwrap();
    fs::write(pfs.join("input/words"), "staged\n").unwrap();
    let results = site.make_results_directory();
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped\n\
         #DW stage_in type=directory source={0}/input destination=$DW_JOB_STRIPED/input\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/input destination={0}/results/copy",
        pfs.display()
    );
    let script = write_script(&site, "job.sh", &directives);

    let report = call(&site, json!({"function": "validate", "script": script}));
    assert_eq!(report["instance"]["capacity"], 96 << 20);
    assert_eq!(
        (&report["instance"]["nodes"], &report["instance"]["fits_now"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(report["variables"], json!(["DW_JOB_STRIPED"]));

    let setup = json!({"function": "setup", "job": "42", "user": USER.0, "group": USER.1,
                       "script": script, "caller": "test"});
    call(&site, setup.clone());
    call(&site, setup);
    let mount = json!({"version": 1, "function": "mount", "job": "42", "hosts": ["n2", "n3"]});
    let outcome = call_as(&site, ROOT, &mount);
    assert_eq!(outcome["error"]["kind"], "busy", "mounted without its input: {outcome}");
    let staged = call(&site, json!({"function": "stage_in", "job": "42"}));
    assert_eq!(staged, json!({"files": 1, "bytes": 7}));
    let capacity = call(&site, json!({"function": "capacity", "job": "42"}));
    assert_eq!(capacity, json!({"bytes": 96 << 20, "nodes": 3}));
    let environment = call(&site, json!({"function": "environment", "job": "42"}));
    let path = environment["variables"]["DW_JOB_STRIPED"].as_str().unwrap().to_owned();
    assert_eq!(environment["variables"]["FOREBAY_JOB_ID"], "42");

    call(&site, mount);
    expect_success(&site.host(1).shell(USER, &format!("echo more >> {path}input/words")));
    expect_success(&site.host(2).shell(USER, &format!("grep -q more {path}input/words")));
    assert!(!Path::new(&path).join("input").exists(), "not mounted outside the job's hosts");
    call(&site, json!({"function": "unmount", "job": "42"}));
    // The results are staged out before the instance is removed.
    call(&site, json!({"function": "teardown", "job": "42"}));
    assert_eq!(fs::read_to_string(results.join("copy/words")).unwrap(), "staged\nmore\n");
    assert_eq!(call(&site, json!({"function": "show"}))["sessions"], json!([]));
    call(&site, json!({"function": "teardown", "job": "42"}));
    let outcome =
        call_as(&site, ROOT, &json!({"version": 1, "function": "stage_out", "job": "42"}));
    assert_eq!(outcome["error"]["kind"], "no_such_job");
}

#[test]
fn calls_are_refused_with_their_kind_and_scripts_with_their_line() {
    let site = Site::new();
    let script =
        write_script(&site, "job.sh", "#DW jobdw capacity=32MiB type=scratch access_mode=private");
    let setup = |user: User| {
        json!({"version": 1, "function": "setup", "job": "7", "user": user.0, "group": user.1,
               "script": script})
    };
    assert_eq!(call_as(&site, OTHER, &setup(USER))["error"]["kind"], "denied");
    assert_eq!(call_as(&site, USER, &setup(USER))["result"], json!({}));
    let teardown = json!({"version": 1, "function": "teardown", "job": "7"});
    assert_eq!(call_as(&site, OTHER, &teardown)["error"]["kind"], "denied");
    assert_eq!(call_as(&site, USER, &teardown)["result"], json!({}));
    let unknown = json!({"version": 1, "function": "teardown", "job": "7", "hury": true});
    assert_eq!(call_as(&site, USER, &unknown)["error"]["kind"], "invalid");

    let text = expect_success(&site.forebay(1, USER, &["check", &script]));
    assert!(text.contains("32.0 MiB on 2 storage nodes of pool `flash`, private"), "{text}");
    let wrong =
        write_script(&site, "wrong.sh", "#DW jobdw capacity=32MB type=scratch access_mode=privat");
    let output = site.forebay(1, USER, &["check", &wrong]);
    expect_failure(&output, "wrong.sh: line 2, column 50: unknown access mode `privat`");
    let large =
        write_script(&site, "large.sh", "#DW jobdw capacity=1PiB type=scratch access_mode=private");
    expect_failure(&site.forebay(1, USER, &["check", &large]), "large.sh: line 2: pool `flash`");
}

#[test]
fn a_check_names_the_variables_of_persistent_instances_by_their_access_modes() {
    let site = Site::new();
    let create = json!({"version": 1, "function": "create_persistent", "name": "shared",
        "user": USER.0, "group": USER.1, "capacity": "16MiB", "access": ["private"]});
    assert_eq!(call_as(&site, USER, &create)["result"], json!({}));
    let mut expired = create.clone();
    (expired["name"], expired["lifetime_seconds"]) = (json!("expired"), json!(0));
    let refused = &call_as(&site, USER, &expired)["error"];
    assert!(refused.to_string().contains("expire at once"), "{refused}");
    let mut unusable = create.clone();
    unusable["name"] = json!("a-b");
    let refused = &call_as(&site, USER, &unusable)["error"];
    assert!(refused.to_string().contains("cannot name a persistent instance"), "{refused}");
    let directives = "#DW persistentdw name=shared\n#DW persistentdw name=absent";
    let script = write_script(&site, "uses.sh", directives);
    let report =
        call_as(&site, USER, &json!({"version": 1, "function": "validate", "script": script}));
    assert_eq!(report["result"]["variables"], json!(["DW_PERSISTENT_PRIVATE_shared"]));
    let warnings = report["result"]["warnings"].to_string();
    assert!(warnings.contains("no persistent instance `absent`"), "{warnings}");
}

/// Without a pool, `check` reads the script as `run` does.
#[test]
fn a_check_replaces_symbols_and_names_what_it_cannot_use() {
    let dir = WorkDir::new();
    let example = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/checkpoint.sh"
    ));
    dir.write("job.sh", &example.unwrap());
    let output = dir.expect_success("check job.sh");
    let input = format!("{}/input", dir.path().canonicalize().unwrap().display());
    assert!(output.stdout.contains(&input), "{}", output.stdout);
    let error = dir.expect_invalid_input("check --pool . job.sh");
    assert!(error.contains("--pool .: not a file"), "{error}");
    let error = dir.expect_invalid_input("check nofile");
    assert_eq!(error.matches("nofile").count(), 1, "{error}");
}

#[test]
fn a_call_that_is_no_text_is_invalid() {
    let dir = WorkDir::new();
    fs::write(dir.path().join("call"), b"{\"version\": 1, \xff}").unwrap();
    let mut command = dir.command("wlm");
    command.stdin(fs::File::open(dir.path().join("call")).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("UTF-8"));
}

/// The pool fills the nodes evenly, so one with more data gets its measurement's instance last.
#[test]
fn each_node_is_measured_however_full_it_is() {
    let site = Site::new();
    let results = site.make_results_directory();
    for node in ["n2", "n3"] {
        expect_success(&site.forebay(0, ROOT, &["drain", node]));
    }
    for name in ["a", "b", "c", "d"] {
        let create = ["create-persistent", name, "--capacity", "1MiB"];
        expect_success(&site.forebay(0, USER, &create));
    }
    for node in ["n2", "n3"] {
        expect_success(&site.forebay(0, ROOT, &["undrain", node]));
    }
    let rates = results.join("rates.toml");
    let [directory, out] = [&results, &rates].map(|path| path.to_str().unwrap());
    let measure = ["measure", "--directory", directory, "--out"];
    let with = |more: &[&str]| site.forebay(0, USER, &[&measure[..], more].concat());
    let output = with(&[out]);
    expect_success(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("3 storage nodes measured") && !said.contains("not measured"), "{said}");
    let left = site.status().unwrap()["instances"].as_array().unwrap().len();
    assert_eq!(left, 4, "the instances of the measurement are removed");
    for wrong in [&[out, "--size", "4TiB"][..], &["/nowhere/rates.toml"]] {
        assert_eq!(with(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
