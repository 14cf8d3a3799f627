//! A storage node of a pool over three hosts is drained and switched off for good; the data of a
//! persistent instance are on the other hosts.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::fs;

use cluster::site::{OTHER, ROOT, Site, USER, expect_failure, expect_success, job_script};
use cluster::wait_until;

/// Runs a job that uses the instance, on all hosts.
fn run_job(site: &Site, body: &str) {
    let pfs = site.cluster.pfs();
    for name in ["started", "go"] {
        let _ = fs::remove_file(pfs.join(name));
    }
    let script = job_script(&pfs, "#DW persistentdw name=kept", body);
    let mut job = site.start_job(&script);
    job.wait_until_running(site);
    job.finish(site);
}

#[test]
fn drained_node_can_be_switched_off_for_good() {
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    let create = ["create-persistent", "kept", "--capacity", "96MiB"];
    expect_success(&site.forebay(1, USER, &create));
    assert_eq!(site.nodes_of_instance("kept"), 3);
    let sums =
        "cd $DW_PERSISTENT_STRIPED_kept; find . -type f -print0 | sort -z | xargs -0 sha256sum";
    let write = format!(
        "cd $DW_PERSISTENT_STRIPED_kept; mkdir -p a/b\n\
         for n in 1 2 3 4 5 6 7 8 9; do head -c ${{n}}00000 /dev/urandom > a/b/f$n; done\n\
         ln a/b/f1 a/again; ln -s b/f2 a/link; mkfifo a/pipe; truncate -s 5M a/sparse; chmod 640 a/b/f3\n\
         sync; umask 0; {sums} > /tmp/sums.$$; cp /tmp/sums.$$ {pfs}/before; rm /tmp/sums.$$",
        pfs = pfs.display()
    );
    fs::write(pfs.join("before"), "").unwrap();
    std::os::unix::fs::chown(pfs.join("before"), Some(USER.0), Some(USER.1)).unwrap();
    run_job(&site, &write);
    expect_failure(&site.forebay(1, OTHER, &["drain", "n3"]), "only an operator");
    let kept = expect_success(&site.forebay(0, ROOT, &["drain", "n3", "--no-evacuate"]));
    assert!(kept.contains("nothing new is allocated on n3; 1 instance"), "{kept}");
    let drained = expect_success(&site.forebay(0, ROOT, &["drain", "n3", "--wait"]));
    assert!(drained.contains("n3 is drained: nothing is on it"), "{drained}");
    assert_eq!(site.nodes_of_instance("kept"), 2);
    assert_eq!(site.storage[2].stop(), 0);
    wait_until("the node is offline", || (site.node("n3")?["online"] == false).then_some(()));
    let check = format!(
        "
         test \"$({sums})\" = \"$(cat {pfs}/before)\"\n\
         test $(stat -c %h $DW_PERSISTENT_STRIPED_kept/a/again) = 2\n\
         test $(stat -c %a $DW_PERSISTENT_STRIPED_kept/a/b/f3) = 640\n\
         test -p $DW_PERSISTENT_STRIPED_kept/a/pipe; test -L $DW_PERSISTENT_STRIPED_kept/a/link\n\
         test $(stat -c %b $DW_PERSISTENT_STRIPED_kept/a/sparse) -lt 100\n\
         echo more > $DW_PERSISTENT_STRIPED_kept/more",
        pfs = pfs.display()
    );
    run_job(&site, &check);
    expect_success(&site.forebay(2, USER, &["destroy-persistent", "kept"]));
}
