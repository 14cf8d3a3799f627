//! `make slurm-demo`: Slurm and a pool on three hosts of this machine, and one job of an ordinary
//! user that stages in, computes and stages out. Everything is removed at the end.
#![allow(clippy::unwrap_used, reason = "a failed step ends the demonstration")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::fs;
use std::time::{Duration, Instant};

use cluster::site::USER;
use cluster::slurm::SlurmSite;
use cluster::text_of;

/// Time after which a job that has not ended is taken for stuck.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which changes are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

fn show(title: &str, text: &str) {
    println!("\n$ {title}\n{}", text.trim_end());
}

fn main() {
    println!("Starting a pool and Slurm on three hosts (network namespaces of this machine) ...");
    let Some(slurm) = SlurmSite::start("EnablePersistent") else {
        std::process::exit(1);
    };
    let pfs = slurm.site.cluster.pfs();
    fs::create_dir(pfs.join("input")).unwrap();
    for number in 1..=20 {
        fs::write(pfs.join(format!("input/{number}")), format!("{number}\n")).unwrap();
    }
    let results = slurm.site.make_results_directory();
    let script = format!(
        "#!/bin/sh\n#SBATCH --job-name=sum --nodes=2\n\
         #DW jobdw capacity=96MiB access_mode=striped type=scratch\n\
         #DW stage_in type=directory source={0}/input destination=$DW_JOB_STRIPED/input\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={0}/results/out\n\
         mkdir $DW_JOB_STRIPED/out\n\
         cat $DW_JOB_STRIPED/input/* | awk '{{ sum += $1 }} END {{ print sum }}' \
         > $DW_JOB_STRIPED/out/sum\n\
         srun sh -c 'sleep 1; df -h $DW_JOB_STRIPED | tail -1 > $DW_JOB_STRIPED/out/df-$(hostname)'\n",
        pfs.display()
    );
    show("cat job.sh", &script);
    show("scontrol show burst", &text_of(&slurm.run(USER, "scontrol", &["show", "burst"])));
    let id = slurm.submit(&script, &[]);
    show("sbatch job.sh", &format!("Submitted batch job {id}"));
    follow(&slurm, &id);
    slurm.wait_until_removed(&id);
    show(
        "ls results/out",
        &text_of(&slurm.site.host(1).shell(USER, &format!("ls {}/out", results.display()))),
    );
    let sum = fs::read_to_string(results.join("out/sum")).unwrap_or_default();
    show("cat results/out/sum", &sum);
    println!("\nSlurm's calls of dw_wlm_cli:");
    for call in slurm.calls().iter().filter(|call| call.token == id) {
        println!("  {:<10} {:>6.0} ms", call.function, call.seconds * 1000.0);
    }
    println!("\nRemoving everything ...");
    if sum.trim() != "210" {
        println!("{}", slurm.diagnosis(&id));
        std::process::exit(1);
    }
}

/// Prints the queue and the pool whenever the state of the job changes, until the job has ended.
fn follow(slurm: &SlurmSite, id: &str) {
    let (started, mut last) = (Instant::now(), String::new());
    while started.elapsed() < TIMEOUT {
        let queue = text_of(&slurm.run(USER, "squeue", &["-o", "%.6i %.8j %.8u %.12T %.6D %R"]));
        let functions = slurm.functions(id).len();
        let state = format!("{queue}{functions}");
        if state != last {
            show("squeue", &queue);
            let status = slurm.site.forebay(1, USER, &["status"]);
            show("forebay status", &text_of(&status));
            last = state;
        }
        if slurm.job(id, "JobState").as_deref() == Some("COMPLETED") {
            return;
        }
        std::thread::sleep(INTERVAL);
    }
    println!("{}", slurm.diagnosis(id));
}
