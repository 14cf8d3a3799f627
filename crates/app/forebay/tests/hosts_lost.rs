//! A storage node of a pool over three hosts never comes back, and an operator gives it up; then it
//! comes back all the same.
//!
//! Needs root, for it makes network name spaces and acts as several users.
#![allow(
    clippy::unwrap_used,
    reason = "a test: what cannot be unwrapped has failed"
)]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;

use std::fs;
use std::process::{Output, Stdio};

use cluster::site::{OTHER, ROOT, Site, USER, ok, script};
use cluster::{told, wait};
use serde_json::Value;

fn forebay(site: &Site, host: usize, user: (u32, u32), arguments: &[&str]) -> Output {
    let mut all = arguments.to_vec();
    all.extend(["--pool", site.file()]);
    site.host(host).forebay(user, &all)
}

fn node(site: &Site, name: &str) -> Option<Value> {
    let status = site.status()?;
    let mut nodes = status["nodes"].as_array()?.iter();
    nodes.find(|node| node["name"] == name).cloned()
}

/// On how many nodes a new instance lies.
fn spread(site: &Site) -> usize {
    let create = ["create-persistent", "new", "--capacity", "96MiB"];
    ok(&forebay(site, 0, USER, &create));
    let status = site.status().unwrap();
    let instances = status["instances"].as_array().unwrap();
    let new = instances.iter().find(|one| one["label"] == "new").unwrap();
    let nodes = new["nodes"].as_array().unwrap().len();
    ok(&forebay(site, 2, USER, &["destroy-persistent", "new"]));
    nodes
}

#[test]
fn a_node_that_never_comes_back_is_given_up() {
    let mut site = Site::patient(2);
    let pfs = site.cluster.pfs();
    fs::create_dir(pfs.join("results")).unwrap();
    std::os::unix::fs::chown(pfs.join("results"), Some(USER.0), Some(USER.1)).unwrap();
    let out = |name: &str| {
        format!(
            "#DW stage_out type=directory source=$DW_JOB_STRIPED/{name} \
             destination={}/results/{name}\n",
            pfs.display()
        )
    };
    // Each of three nodes moves one of them.
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped\n{}{}{}",
        out("a"),
        out("b"),
        out("c")
    );
    let body = "for d in a b c; do mkdir ${DW_JOB_STRIPED}$d\n\
                head -c 1000000 /dev/urandom > ${DW_JOB_STRIPED}$d/data; done; sync";
    let mut job = site.start(&script(&pfs, &directives, body));
    job.running(&site);
    // `forebay run` is killed, and a storage node with it.
    job.child.kill().unwrap();
    job.child.wait().unwrap();
    let alive = forebay(&site, 0, ROOT, &["forget", "n2", "--lost"]);
    assert!(told(&alive).contains("`n2` is not offline"), "{alive:?}");
    site.storage[1].kill();
    let objects = site.host(1).local.join("flash/flash/objects");
    let find = format!("find {} -type f", objects.display());
    assert_ne!(ok(&site.host(1).shell(ROOT, &find)), "");
    wait("the node is offline", || {
        (node(&site, "n2")?["online"] == false).then_some(())
    });

    // Who wants the results waits, and is told for what.
    let log = pfs.join("recover.log");
    let file = fs::File::create(&log).unwrap();
    let mut recover = site
        .host(2)
        .command(USER, env!("CARGO_BIN_EXE_forebay"))
        .args(["recover", "--job-id", "job1", "--pool", site.file()])
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    wait("it is said what is waited for", || {
        let told = "job job1 has data on n2, offline";
        (said().contains(told) && said().contains("forebay forget n2")).then_some(())
    });

    let other = forebay(&site, 1, OTHER, &["forget", "n2", "--lost"]);
    assert!(told(&other).contains("only an operator"), "{other:?}");
    let unknown = forebay(&site, 0, ROOT, &["forget", "n9"]);
    assert!(told(&unknown).contains("the nodes are n1, n2, n3"));
    // Data is given up only if that is said.
    let lost = "job `job1` of user 41000, 3 stage-out(s) not done";
    let refused = forebay(&site, 0, ROOT, &["forget", "n2"]);
    assert!(!refused.status.success());
    assert!(told(&refused).contains(lost), "{}", told(&refused));
    assert!(told(&refused).contains("--lost"), "{}", told(&refused));
    assert!(recover.try_wait().unwrap().is_none(), "{}", said());
    let given_up = ok(&forebay(&site, 0, ROOT, &["forget", "n2", "--lost"]));
    assert!(given_up.contains(&format!("lost: {lost}")), "{given_up}");
    // A controller that is killed right then knows it.
    site.controller.kill();
    site.controller = site.host(0).serve(&["controller", "--config", site.file()]);
    let status = wait("recover ends", || recover.try_wait().unwrap());
    assert!(!status.success());
    assert!(
        said().contains("storage node `n2`") && said().contains("lost for good"),
        "{}",
        said()
    );

    let status = wait("the others are there", || {
        let status = site.status()?;
        let nodes = status["nodes"].as_array()?.clone();
        let up = nodes.iter().filter(|node| node["online"] == true);
        (up.count() == 2 && node(&site, "n1")?["online"] == true).then_some(status)
    });
    assert_eq!(status["pools"][0]["quantity"], 64);
    assert_eq!(status["instances"][0]["intact"], false);
    let text = ok(&forebay(&site, 1, OTHER, &["status"]));
    assert!(text.contains("given up"), "{text}");
    assert!(text.contains("data lost"), "{text}");
    assert!(text.contains("job1: storage node `n2`"), "{text}");
    // Its results are kept until its user says otherwise.
    let discard = ["recover", "--job-id", "job1", "--discard"];
    ok(&forebay(&site, 1, USER, &discard));
    let status = site.status().unwrap();
    assert!(status["instances"].as_array().unwrap().is_empty());
    assert!(status["sessions"].as_array().unwrap().is_empty());
    assert_eq!(spread(&site), 2);

    // It comes back with all it had, is emptied, and used.
    site.storage[1] = site.host(1).serve(&["storage", "--config", site.file()]);
    wait("the node is back", || {
        let node = node(&site, "n2")?;
        (node["online"] == true && node["forgotten"] == false).then_some(())
    });
    let status = site.status().unwrap();
    assert_eq!(status["pools"][0]["quantity"], 96);
    assert_eq!(status["pools"][0]["free"], 96);
    assert_eq!(ok(&site.host(1).shell(ROOT, &find)), "");
    assert_eq!(spread(&site), 3);
}
