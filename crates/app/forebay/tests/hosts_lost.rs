//! A storage node of a pool over three hosts is lost; the operator forgets it, and then it comes
//! back.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use cluster::site::{OTHER, ROOT, Site, USER, expect_failure, expect_success, job_script};
use cluster::wait_until;

/// The loss that the controller reports for the job of this test.
const LOSS: &str = "job `job1` of user 41000, 3 stage-out(s) not done";

/// Number of storage nodes that a new instance gets.
fn nodes_of_new_instance(site: &Site) -> usize {
    let create = ["create-persistent", "new", "--capacity", "96MiB"];
    expect_success(&site.forebay(0, USER, &create));
    let nodes = site.nodes_of_instance("new");
    expect_success(&site.forebay(2, USER, &["destroy-persistent", "new"]));
    nodes
}

/// Number of data objects on the second host.
fn objects_on_lost_node(site: &Site) -> usize {
    let objects = site.host(1).local.join("flash/flash/objects");
    let find = format!("find {} -type f", objects.display());
    expect_success(&site.host(1).shell(ROOT, &find)).lines().count()
}

/// Runs a job with three stage-outs, one for each node, and kills `forebay run` while the job's
/// data is only in the buffer.
fn leave_interrupted_job(site: &Site) {
    let pfs = site.cluster.pfs();
    site.make_results_directory();
    let stage_out = |name: &str| {
        format!(
            "#DW stage_out type=directory source=$DW_JOB_STRIPED/{name} \
             destination={}/results/{name}\n",
            pfs.display()
        )
    };
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped\n{}{}{}",
        stage_out("a"),
        stage_out("b"),
        stage_out("c")
    );
    let body = "for d in a b c; do mkdir ${DW_JOB_STRIPED}$d\n\
                head -c 1000000 /dev/urandom > ${DW_JOB_STRIPED}$d/data; done; sync";
    let mut job = site.start_job(&job_script(&pfs, &directives, body));
    job.wait_until_running(site);
    job.child.kill().unwrap();
    job.child.wait().unwrap();
}

/// A `forebay recover` that waits for the lost node.
struct WaitingRecovery {
    child: Child,
    log: PathBuf,
}

impl WaitingRecovery {
    fn start(site: &Site) -> WaitingRecovery {
        let log = site.cluster.pfs().join("recover.log");
        let file = fs::File::create(&log).unwrap();
        let child = site
            .host(0)
            .command(USER, env!("CARGO_BIN_EXE_forebay"))
            .args(["recover", "--job-id", "job1", "--pool", site.file()])
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        WaitingRecovery { child, log }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

#[test]
fn lost_node_is_forgotten_and_comes_back_empty() {
    let mut site = Site::with_timeout(2);
    leave_interrupted_job(&site);
    let online = site.forebay(0, ROOT, &["forget", "n2", "--lost"]);
    expect_failure(&online, "`n2` is not offline");
    site.storage[1].kill();
    assert_ne!(objects_on_lost_node(&site), 0);
    wait_until("the node is offline", || (site.node("n2")?["online"] == false).then_some(()));

    let mut recovery = WaitingRecovery::start(&site);
    wait_until("recover names the node it waits for", || {
        let output = recovery.output();
        let reason = "job job1 has data on n2, offline";
        (output.contains(reason) && output.contains("forebay forget n2")).then_some(())
    });
    forget_is_refused_without_the_right_to_lose_data(&site);
    assert!(recovery.child.try_wait().unwrap().is_none());
    forget_with_lost_survives_a_crash_of_the_controller(&mut site);
    let status = wait_until("recover ends", || recovery.child.try_wait().unwrap());
    let output = recovery.output();
    assert!(!status.success());
    assert!(output.contains("storage node `n2`") && output.contains("lost for good"), "{output}");

    status_names_lost_data_until_its_owner_discards_it(&site);
    returning_node_is_emptied_and_used_again(&mut site);
}

fn forget_is_refused_without_the_right_to_lose_data(site: &Site) {
    let other = site.forebay(1, OTHER, &["forget", "n2", "--lost"]);
    expect_failure(&other, "only an operator");
    let unknown = site.forebay(0, ROOT, &["forget", "n9"]);
    expect_failure(&unknown, "the nodes are n1, n2, n3");
    let refused = site.forebay(0, ROOT, &["forget", "n2"]);
    expect_failure(&refused, LOSS);
    expect_failure(&refused, "--lost");
}

fn forget_with_lost_survives_a_crash_of_the_controller(site: &mut Site) {
    let forgotten = expect_success(&site.forebay(0, ROOT, &["forget", "n2", "--lost"]));
    assert!(forgotten.contains(&format!("lost: {LOSS}")), "{forgotten}");
    site.controller.kill();
    site.controller = site.host(0).start_daemon(&["controller", "--config", site.file()]);
}

fn status_names_lost_data_until_its_owner_discards_it(site: &Site) {
    let status = wait_until("the other nodes are online", || {
        let status = site.status()?;
        let nodes = status["nodes"].as_array()?.clone();
        let online = nodes.iter().filter(|node| node["online"] == true);
        (online.count() == 2 && site.node("n1")?["online"] == true).then_some(status)
    });
    assert_eq!(status["pools"][0]["quantity"], 64);
    assert_eq!(status["instances"][0]["intact"], false);
    let text = expect_success(&site.forebay(1, OTHER, &["status"]));
    for part in ["given up", "data lost", "job1: storage node `n2`"] {
        assert!(text.contains(part), "{text}");
    }
    let discard = ["recover", "--job-id", "job1", "--discard"];
    expect_success(&site.forebay(1, USER, &discard));
    let status = site.status().unwrap();
    assert!(status["instances"].as_array().unwrap().is_empty());
    assert!(status["sessions"].as_array().unwrap().is_empty());
    assert_eq!(nodes_of_new_instance(site), 2);
}

fn returning_node_is_emptied_and_used_again(site: &mut Site) {
    site.storage[1] = site.host(1).start_daemon(&["storage", "--config", site.file()]);
    wait_until("the node is back", || {
        let node = site.node("n2")?;
        (node["online"] == true && node["forgotten"] == false).then_some(())
    });
    let status = site.status().unwrap();
    assert_eq!(status["pools"][0]["quantity"], 96);
    assert_eq!(status["pools"][0]["free"], 96);
    assert_eq!(objects_on_lost_node(site), 0);
    assert_eq!(nodes_of_new_instance(site), 3);
}
