//! Administration of a pool over three hosts: sessions of clients, and the expiry of instances.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::fs;

use cluster::site::{OTHER, ROOT, Site, USER, expect_failure, expect_success, job_script};
use cluster::{text_of, wait_until};
use serde_json::Value;

/// The sessions that root of the first host, the administrator, sees.
fn sessions(site: &Site, more: &[&str]) -> Vec<Value> {
    let arguments = [&["admin", "sessions", "--json"], more].concat();
    let output = site.forebay(0, ROOT, &arguments);
    assert!(output.status.success(), "{}", text_of(&output));
    serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
}

fn sum(sessions: &[Value], field: &str) -> u64 {
    sessions.iter().map(|session| session[field].as_u64().unwrap()).sum()
}

#[test]
fn administrator_lists_sessions_and_evicts_those_of_a_host() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("audit");
    let audit = format!("audit_log = \"{}\"", log.display());
    let administrators = "administrators = [\"10.77.0.1\"]";
    let site = Site::with_entries(&[("controller", &audit), ("controller", administrators)]);
    let pfs = site.cluster.pfs();
    let directive = "#DW jobdw capacity=96MiB type=scratch access_mode=striped";
    let body = "mkdir ${DW_JOB_STRIPED}out";
    let mut job = site.start_job(&job_script(&pfs, directive, body));
    job.wait_until_running(&site);
    let out = site.host(0).local.join("jobs/job1/ss/out");
    let out = out.display();

    // A program on n2 has a file open, into which it writes when it is told to.
    let script = format!(
        "exec 3>{out}/file; head -c 3000000 /dev/zero >&3; sync {out}/file; touch {0}/written; \
         until [ -e {0}/continue ]; do sleep 0.05; done; \
         head -c 1000000 /dev/zero >&3 2>{0}/reason && exit 9; cat {0}/reason >&2; ls {out}",
        pfs.display()
    );
    let writer = std::thread::scope(|scope| {
        let writer = scope.spawn(|| site.host(1).shell(USER, &script));
        wait_until("the file is written", || pfs.join("written").exists().then_some(()));
        list_is_complete(&site);
        strangers_are_refused(&site);
        let evicted = site.forebay(0, ROOT, &["admin", "evict", "--host", "n2"]);
        let text = expect_success(&evicted);
        assert!(text.contains("evicted:") && text.contains(" n2 ") && !text.contains(" n3 "));
        fs::write(pfs.join("continue"), "").unwrap();
        writer.join().unwrap()
    });
    expect_failure(&writer, "transport endpoint shutdown");
    assert!(sessions(&site, &["--host", "n2"]).is_empty(), "it does not begin another session");
    // What it has synced is there for the others, who go on.
    let size = format!("stat -c %s {out}/file; echo more > {out}/other");
    assert!(expect_success(&site.host(2).shell(USER, &size)).starts_with("3000000"));

    let audit = fs::read_to_string(&log).unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let evictions: Vec<Value> = lines.filter(|line| line["action"] == "evict_sessions").collect();
    assert_eq!(evictions.len(), 2, "{audit}");
    let text = |line: usize, field: &str| evictions[line][field].as_str().unwrap().to_owned();
    assert_eq!(evictions[0]["uid"], USER.0);
    assert!(text(0, "outcome").starts_with("permission denied"), "{audit}");
    assert!(text(1, "object").starts_with("host n2: "), "{audit}");
    assert_eq!(text(1, "outcome"), "done");
    // The job ends as others do, on all its hosts.
    job.finish(&site);
}

fn list_is_complete(site: &Site) {
    let of_host = sessions(site, &["--host", "n2"]);
    for session in &of_host {
        assert_eq!((&session["label"], &session["kind"]), (&"job1".into(), &"mount".into()));
        assert_eq!(session["user"], USER.0, "the owner of the instance: {session}");
    }
    assert!(sum(&of_host, "open_handles") >= 1, "{of_host:?}");
    // The stripes on n2 itself are written through descriptors.
    assert!(sum(&of_host, "written_bytes") >= 1_000_000, "{of_host:?}");
    assert!(sum(&sessions(site, &["--host", "n3"]), "open_handles") == 0);
    let of_user = sessions(site, &["--user", &USER.0.to_string(), "--instance", "job1"]);
    assert!(of_user.len() >= of_host.len(), "{of_user:?}");
    assert!(sessions(site, &["--user", &OTHER.0.to_string()]).is_empty());
    let unknown = site.forebay(0, ROOT, &["admin", "evict", "--user", "nosuch"]);
    let reason = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(reason, "error: there is no user `nosuch` on this host\n");
    let table = expect_success(&site.forebay(0, ROOT, &["admin", "sessions"]));
    assert!(table.starts_with("session"), "{table}");
}

fn strangers_are_refused(site: &Site) {
    for (host, user) in [(0, USER), (1, ROOT)] {
        let list = site.forebay(host, user, &["admin", "sessions"]);
        expect_failure(&list, "");
        let evict = site.forebay(host, user, &["admin", "evict", "--host", "n3"]);
        expect_failure(&evict, "");
    }
    expect_failure(&site.forebay(0, ROOT, &["admin", "evict"]), "name the sessions");
    let unknown = site.forebay(0, ROOT, &["admin", "evict", "--host", "n9"]);
    expect_failure(&unknown, "there is no such session");
    assert!(!sessions(site, &["--host", "n3"]).is_empty(), "nobody was evicted");
}

#[test]
fn persistent_instance_expires_with_records_in_the_audit_log() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("audit");
    let entries = [
        format!("audit_log = \"{}\"", log.display()),
        "persistent_lifetime = \"1h\"".to_owned(),
        "persistent_warning = \"30m\"".to_owned(),
        "persistent_grace = \"4s\"".to_owned(),
    ];
    let entries: Vec<(&str, &str)> =
        entries.iter().map(|entry| ("controller", entry.as_str())).collect();
    let site = Site::with_entries(&entries);
    let create = |name: &str, lifetime: &str| {
        let capacity = ["create-persistent", name, "--capacity", "16MiB"];
        site.forebay(0, USER, &[&capacity[..], &["--lifetime", lifetime]].concat())
    };
    expect_failure(&create("long", "2h"), "live for at most");
    expect_failure(&create("long", "soon"), "write a number and s, m, h or d");
    expect_success(&create("kept", "3s"));
    expect_success(&create("gone", "3s"));
    let is_expired = |name: &str| {
        let status = site.status()?;
        let mut instances = status["instances"].as_array()?.iter();
        let instance = instances.find(|instance| instance["label"] == name)?;
        (instance["expiry"]["step"] == "expired").then_some(())
    };
    wait_until("the instance expires", || is_expired("kept"));
    let text = expect_success(&site.forebay(0, OTHER, &["status"]));
    assert!(text.contains("kept: expired; it is removed after a grace period"), "{text}");
    let extend = |user| site.forebay(0, user, &["extend-persistent", "kept", "--lifetime", "50m"]);
    expect_failure(&extend(OTHER), "permission denied");
    expect_success(&extend(USER));
    wait_until("the other instance is removed", || {
        let status = site.status()?;
        let instances = status["instances"].as_array()?;
        (instances.len() == 1 && instances[0]["label"] == "kept").then_some(())
    });
    let audit = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    let of_gone = lines.iter().filter(|line| line["object"].as_str().unwrap().contains(" gone "));
    let actions: Vec<&str> = of_gone.map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["expiry_warning", "expired", "remove_expired"], "{audit}");
    assert!(lines.iter().any(|line| line["action"] == "extend_persistent"), "{audit}");
}
