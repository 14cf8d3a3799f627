//! A storage node whose flash is not mounted, and a controller restored from a backup: the data stay.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::fs;

use cluster::site::{ROOT, Site, USER, expect_failure, expect_success};
use cluster::wait_until;

/// Runs a job on the first host that uses the persistent instance `kept`.
fn run_with_kept(site: &Site, body: &str) -> String {
    let script = format!(
        "#!/bin/sh\n#DW persistentdw name=kept\nset -e\ncd $DW_PERSISTENT_STRIPED_kept\n{body}\n"
    );
    let path = site.cluster.pfs().join("kept.sh");
    fs::write(&path, script).unwrap();
    expect_success(&site.forebay(0, USER, &["run", path.to_str().unwrap()]))
}

fn create(site: &Site, name: &str) {
    expect_success(&site.forebay(0, USER, &["create-persistent", name, "--capacity", "96MiB"]));
}

fn is_intact(site: &Site, name: &str) -> Option<bool> {
    let status = site.status()?;
    let mut instances = status["instances"].as_array()?.iter();
    instances.find(|instance| instance["label"] == name)?["intact"].as_bool()
}

fn restart_storage(site: &mut Site, prepare: &str) {
    site.storage[1].kill();
    expect_success(&site.host(1).shell(ROOT, prepare));
    site.storage[1] = site.host(1).start_daemon(&["storage", "--config", site.file()]);
}

fn restart_controller(site: &mut Site, prepare: &str) {
    site.controller.kill();
    expect_success(&site.host(0).shell(ROOT, prepare));
    site.controller = site.host(0).start_daemon(&["controller", "--config", site.file()]);
}

#[test]
fn data_stay_without_a_mounted_flash_and_after_the_restoration_of_a_controller() {
    let mut site = Site::new();
    create(&site, "kept");
    run_with_kept(&site, "head -c 1000000 /dev/urandom >data; md5sum <data >sum; sync");
    flash_that_is_not_mounted_is_noticed(&mut site);
    restored_controller_removes_nothing(&mut site);
}

fn flash_that_is_not_mounted_is_noticed(site: &mut Site) {
    restart_storage(site, "mv flash flash.own");
    wait_until("the wrong directory is noticed", || {
        (site.node("n2")?["wrong_disk"] == true).then_some(())
    });
    assert_eq!(is_intact(site, "kept"), Some(true));
    let text = expect_success(&site.forebay(1, USER, &["status"]));
    assert!(
        text.contains("n2 reports a directory that is not the one with its fragments"),
        "{text}"
    );
    restart_storage(site, "rm -r flash; mv flash.own flash");
    wait_until("the node is back", || {
        let node = site.node("n2")?;
        (node["online"] == true && node["wrong_disk"] == false).then_some(())
    });
    let check = "[ \"$(md5sum <data)\" = \"$(cat sum)\" ] && echo same";
    assert!(run_with_kept(site, check).contains("same"));
}

fn restored_controller_removes_nothing(site: &mut Site) {
    restart_controller(site, "cp -a controller controller.backup");
    wait_until("the controller answers", || site.node("n2"));
    create(site, "late");
    let objects = "find flash -type f -path '*objects*' | wc -l";
    run_with_kept(site, "sync");
    let before = expect_success(&site.host(1).shell(ROOT, objects));
    restart_controller(site, "rm -r controller; mv controller.backup controller");
    wait_until("the controller notices that its state is older", || {
        (site.status()?["outdated"] == true).then_some(())
    });
    let refused = site.forebay(0, USER, &["destroy-persistent", "kept", "--hurry"]);
    expect_failure(&refused, "forebay accept-restored");
    expect_failure(&site.forebay(0, USER, &["accept-restored"]), "accept-restored");
    expect_success(&site.forebay(0, ROOT, &["accept-restored"]));
    let again = site.forebay(0, ROOT, &["accept-restored"]);
    assert_eq!(again.status.code(), Some(1), "there is nothing to accept: no fault of the input");
    wait_until("what the lost state knew is listed", || {
        let nodes = site.status()?["nodes"].clone();
        nodes.as_array()?.iter().all(|node| node["unknown"] == 1).then_some(())
    });
    let check = "[ \"$(md5sum <data)\" = \"$(cat sum)\" ] && echo same";
    assert!(run_with_kept(site, check).contains("same"));
    assert_eq!(expect_success(&site.host(1).shell(ROOT, objects)), before);
    // A new instance does not meet the one that the controller has forgotten.
    create(site, "late");
    for node in ["n1", "n2", "n3"] {
        expect_success(&site.forebay(0, ROOT, &["discard-unknown", node]));
    }
    wait_until("it is removed", || {
        let nodes = site.status()?["nodes"].clone();
        nodes.as_array()?.iter().all(|node| node["unknown"] == 0).then_some(())
    });
    for name in ["late", "kept"] {
        assert_eq!(is_intact(site, name), Some(true));
        expect_success(&site.forebay(0, USER, &["destroy-persistent", name]));
    }
}
