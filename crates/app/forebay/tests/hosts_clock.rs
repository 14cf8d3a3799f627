//! The clock of the controller's host is set while a job is mounted and unmounted: nothing waits for its
//! time, or times out before it.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::time::{Duration, Instant};

use cluster::clock::TestClock;
use cluster::site::{ROOT, Site, USER, expect_success, job_script};
use cluster::{forebayd, wait_until};

/// Restarts the controller with a clock that can be set.
fn with_clock(site: &mut Site) -> TestClock {
    let pfs = site.cluster.pfs();
    let clock = TestClock::new(pfs.parent().unwrap(), "controller");
    site.controller.stop();
    let mut command = site.host(0).command(ROOT, forebayd().to_str().unwrap());
    command.args(["controller", "--config", site.file()]).env("FOREBAY_LOG", "warn");
    clock.apply(&mut command);
    site.controller = site.host(0).start_logged("controller", command);
    wait_until("all storage nodes are online", || {
        let status = site.status()?;
        let nodes = status["nodes"].as_array()?;
        nodes.iter().all(|node| node["online"] == true).then_some(())
    });
    clock
}

#[test]
fn clock_of_the_controller_that_is_set_by_an_hour_changes_no_timeout() {
    let mut site = Site::new();
    let clock = with_clock(&mut site);
    let pfs = site.cluster.pfs();
    site.agents[1].suspend();
    let directives = "#DW jobdw capacity=96MiB type=scratch access_mode=striped";
    let mut job = site.start_job(&job_script(&pfs, directives, "true"));
    wait_until("the job is being mounted", || {
        let status = site.status()?;
        (status["sessions"][0]["mounted"] == true).then_some(())
    });
    clock.set(3600);
    // Some ticks of the controller.
    std::thread::sleep(Duration::from_secs(3));
    let status = site.status().unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node["online"] == true), "{nodes:#?}");
    assert!(job.child.try_wait().unwrap().is_none(), "{}", job.output());
    site.agents[1].resume();
    job.wait_until_running(&site);
    // A new instance has the date of the clock that was set.
    expect_success(&site.forebay(0, USER, &["create-persistent", "new", "--capacity", "16MiB"]));
    let status = site.status().unwrap();
    let created = |label: &str| {
        let mut instances = status["instances"].as_array().unwrap().iter();
        let found = instances.find(|instance| instance["label"] == label).unwrap();
        found["created"].as_u64().unwrap()
    };
    assert!(created("new") - created("job1") > 3_000_000, "{status:#}");

    clock.set(-3600);
    site.agents[2].kill();
    let start = Instant::now();
    job.finish(&site);
    let seconds = start.elapsed().as_secs();
    // A host is dead after a minute.
    assert!((50..80).contains(&seconds), "unmounted after {seconds} s");
    assert_eq!(site.nodes_of_instance("job1"), 0);
    expect_success(&site.forebay(0, USER, &["destroy-persistent", "new"]));
}
