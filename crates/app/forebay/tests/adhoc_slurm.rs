//! `forebay adhoc` in jobs of Slurm: Debian's Slurm, three nodes, an ordinary user.
//!
//! Needs root: it creates network namespaces.

use crate::cluster;
use std::fs;
use std::path::PathBuf;

use cluster::site::ROOT;
use cluster::site::expect_success;
use cluster::slurm::SlurmSite;
use cluster::{program, wait_until};

/// Makes a local directory on each host, and gives its users FUSE, as other systems do.
fn prepare_hosts(slurm: &SlurmSite) -> PathBuf {
    let local = slurm.site.host(0).local.join("s");
    for host in &slurm.site.cluster.hosts {
        let device = format!(
            "mkdir {0}; chmod 1777 {0}; mknod {0}.fuse c 10 229; chmod 666 {0}.fuse; \
             mount --bind {0}.fuse /dev/fuse",
            local.display()
        );
        expect_success(&host.shell(ROOT, &device));
    }
    local
}

/// The local directories' entries and the processes of instances on all hosts.
fn remainders(slurm: &SlurmSite, local: &str) -> String {
    let mut found = String::new();
    for host in &slurm.site.cluster.hosts {
        found += &expect_success(
            &host.shell(ROOT, &format!("ls {local}; grep {local} /proc/mounts || true")),
        );
        let processes = host.processes().into_iter().map(|(_, line)| line + "\n");
        found.extend(processes.filter(|line| line.contains("forebay adhoc")));
    }
    found
}

#[test]
fn job_has_a_buffer_of_its_own_on_its_nodes_and_a_cancelled_one_is_recovered() {
    let Some(slurm) = SlurmSite::start("") else {
        return;
    };
    let local = prepare_hosts(&slurm);
    let local = local.display().to_string();
    let results = slurm.site.make_results_directory();
    let results = results.display();
    let forebay = program("forebay");
    let forebay = forebay.display();
    let adhoc = format!("{forebay} adhoc --local {local} --size 128MiB --stage-out out:{results}");
    let each = "srun sh -c 'echo $SLURMD_NODENAME > $FOREBAY_MOUNT/out/$SLURMD_NODENAME'";
    let body = format!(
        "mkdir $FOREBAY_MOUNT/out\n{each}\n\
         srun sh -c 'cd $FOREBAY_MOUNT/out; cat n1 n2 n3' | sort > \
         $FOREBAY_MOUNT/out/read\n"
    );
    let script = slurm.site.cluster.pfs().join("program.sh");
    fs::write(&script, format!("set -e\n{body}")).unwrap();
    let command = format!("#!/bin/sh\n{adhoc}/ended -- sh {}\n", script.display());
    let id = slurm.submit(&command, &["-N3"]);
    slurm.wait_for(&id, "COMPLETED");
    let output = slurm.output(&id);
    assert!(output.contains("384 MiB on 3 hosts"), "{output}");
    let sorted = "n1\nn1\nn1\nn2\nn2\nn2\nn3\nn3\nn3\n";
    let read = |name: &str| fs::read_to_string(format!("{results}/{name}")).unwrap();
    assert_eq!(read("ended/read"), sorted, "{output}");
    assert_eq!(remainders(&slurm, &local), "", "{output}");

    let started = slurm.site.cluster.pfs().join("started");
    let waiting = format!(
        "set -e\n{body}sync -f $FOREBAY_MOUNT/out/read\ntouch {}\nexec sleep 600\n",
        started.display()
    );
    fs::write(&script, waiting).unwrap();
    let command = format!("#!/bin/sh\n{adhoc}/cancelled -- sh {}\n", script.display());
    let id = slurm.submit(&command, &["-N3"]);
    wait_until("the program has written", || started.exists().then_some(()));
    slurm.run(ROOT, "scancel", &[&id]);
    slurm.wait_for(&id, "CANCELLED");
    wait_until("all processes end", || {
        (!remainders(&slurm, &local).contains("forebay adhoc")).then_some(())
    });
    let output = slurm.output(&id);
    let advice = output.lines().find_map(|line| line.split("`forebay adhoc recover ").nth(1));
    let leader = advice.unwrap_or_else(|| panic!("{output}")).split(['`', ' ']).next().unwrap();
    let command = format!("#!/bin/sh\n{forebay} adhoc recover {leader}\n");
    let id = slurm.submit(&command, &["-N3"]);
    slurm.wait_for(&id, "COMPLETED");
    let output = slurm.output(&id);
    assert!(output.contains("staged 4 files"), "{output}");
    assert_eq!(read("cancelled/read"), sorted);
    assert_eq!(remainders(&slurm, &local), "", "{output}");
}
