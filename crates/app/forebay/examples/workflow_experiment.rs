//! The producer/consumer experiment of NEXTGenIO: 2 GiB from one job of a workflow to the next,
//! through the parallel file system, through storage of the node, and from node to node.
//!
//! `cargo run --release --package forebay --example workflow_experiment [MIB]`, as root. The nodes
//! are network namespaces of this machine, and all directories are on its disk. In the first variant
//! the jobs run on different nodes, so that the consumer cannot find the producer's pages in memory:
//! the producer drops them. Both variants make the data durable.
#![allow(clippy::unwrap_used, reason = "a failed step ends the experiment")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/workflow_site/mod.rs"]
mod workflow_site;

use std::fs;

use workflow_site::WorkflowSite;

/// Bytes of the block that is written repeatedly, in MiB.
const BLOCK: u64 = 64;

/// Seconds that a step took, as its script printed them.
fn seconds(site: &WorkflowSite, job: &str) -> f64 {
    site.slurm.wait_for(job, "COMPLETED");
    site.slurm.output(job).lines().find_map(|line| line.parse().ok()).unwrap()
}

/// A script that prints the seconds that `command` takes.
fn timed(command: &str) -> String {
    format!(
        "start=$(date +%s%N)\n{command}\nend=$(date +%s%N)\n\
         awk \"BEGIN {{ print ($end - $start) / 1000000000 }}\""
    )
}

fn main() {
    let mib: u64 = std::env::args().nth(1).map_or(2048, |text| text.parse().unwrap());
    let Some(site) = WorkflowSite::start(60) else {
        std::process::exit(1);
    };
    let pfs = site.slurm.site.cluster.pfs();
    let block = pfs.join("block");
    let random = fs::File::open("/dev/urandom").unwrap();
    let mut random = std::io::Read::take(random, BLOCK << 20);
    std::io::copy(&mut random, &mut fs::File::create(&block).unwrap()).unwrap();
    println!("{} MiB from a producer to a consumer\n", mib / BLOCK * BLOCK);
    println!("{:<38} {:>10} {:>10} {:>10} {:>10}", "", "producer", "transfer", "consumer", "total");
    let variants = [
        ("parallel file system, separate nodes", "$LUSTRE", "n2"),
        ("storage of the node, same node", "$NVME0", "n1"),
        ("from node to node", "$NVME0", "n2"),
    ];
    for (name, directory, node) in variants {
        let drop_pages = "dd of=FILE oflag=nocache conv=notrunc,fdatasync count=0 status=none";
        let write = format!(
            "for i in $(seq {}); do cat {}; done | dd of=FILE bs=1M iflag=fullblock conv=fsync status=none",
            mib / BLOCK,
            block.display()
        );
        let file = format!("{directory}/data");
        let mut script = timed(&write);
        if directory == "$LUSTRE" {
            script.push_str(&format!("\n{drop_pages}"));
        }
        let producer =
            site.submit(&script.replace("FILE", &file), &["-w", "n1", "--workflow-start"]);
        let written = seconds(&site, &producer);
        let prior = format!("--workflow-prior-dependency={producer}");
        let read = timed(&format!("dd if={file} of=/dev/null bs=1M status=none"));
        let consumer = site.submit(&read, &["-w", node, &prior, "--workflow-end"]);
        let read = seconds(&site, &consumer);
        let consumed = site.job(&consumer);
        assert_eq!(consumed["nodes"][0], node, "{consumed}");
        let prepared = consumed["prepared"][node].clone();
        let moved = prepared["moved"].as_u64().filter(|bytes| *bytes > 0);
        let transfer = moved.map_or(0.0, |_| prepared["milliseconds"].as_f64().unwrap() / 1000.0);
        println!(
            "{name:<38} {written:>8.1} s {transfer:>8.1} s {read:>8.1} s {:>8.1} s",
            written + transfer + read
        );
        let _ = fs::remove_file(pfs.join("data"));
    }
}
