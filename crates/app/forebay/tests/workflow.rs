//! Workflows of an ordinary user under Debian's Slurm, on three nodes.
//!
//! Needs root: it creates network namespaces.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;
mod workflow_site;

use std::fs;
use std::path::Path;

use cluster::site::{OTHER, ROOT, USER, expect_success};
use cluster::wait_until;
use workflow_site::{WorkflowSite, slurm_command};

#[test]
fn workflows_run_under_slurm() {
    let Some(mut site) = WorkflowSite::start(60) else {
        return;
    };
    wrong_options_and_directives_are_refused(&site);
    jobs_run_in_order(&mut site);
    failed_job_removes_later_jobs_but_not_running_ones(&site);
}

fn wait_for_file(path: &Path) {
    wait_until(&format!("{} exists", path.display()), || path.exists().then_some(()));
}

fn wrong_options_and_directives_are_refused(site: &WorkflowSite) {
    let refused = |body: &str, options: &[&str], reason: &str| {
        let text = site.refusal(body, options);
        assert!(text.contains(reason), "{text}");
    };
    let prior = "--workflow-prior-dependency";
    refused("true", &[&format!("{prior}=1,x")], "`x` is no job id; write the ids that `sbatch`");
    refused("true", &["--workflow-end"], "name the jobs before with --workflow-prior-dependency");
    refused("true", &["--workflow-start", &format!("{prior}=1")], "exclude each other");
    refused("true", &["--workflow-start", "--array=1-2"], "cannot be an array");
    refused("#NORNS stage_inn lustre://a nvme0://b", &[], "line 2, column 8: `stage_inn` is not");
    refused("#NORNS stage_in lustre://a scratch://b", &[], "there is no dataspace `scratch://`");
    let plain = site.submit("sleep 30", &[]);
    // Slurm's table of jobs is up to date after a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    refused("true", &[&format!("{prior}={plain}")], "submit it with --workflow-start");
    slurm_command(site, "scancel", &[&plain]);
    let unknown = site.submit("true", &[&format!("{prior}=4000")]);
    site.slurm.wait_for(&unknown, "CANCELLED");
    assert_eq!(site.job(&unknown)["reason"], "job 4000 is not known as a workflow job");
}

/// Two jobs start a workflow, one joins them, one ends it; the controller is killed meanwhile.
fn jobs_run_in_order(site: &mut WorkflowSite) {
    let pfs = site.slurm.site.cluster.pfs();
    let go = pfs.join("go");
    let log = |name: &str| format!("echo {name} >> {}/order", pfs.display());
    let first = site.submit(&format!("#SBATCH --workflow-start\n{}", log("first")), &[]);
    let wait = format!("until [ -e {} ]; do sleep 0.1; done\n{}", go.display(), log("second"));
    let second = site.submit(&wait, &["--workflow-start"]);
    let prior = format!("--workflow-prior-dependency={first},{second}");
    // The options of the plugin do not depend on the environment.
    let third = site.submit(&log("third"), &[&prior, "--export=NONE"]);
    let body = format!("#SBATCH --workflow-prior-dependency={third}\n#SBATCH --workflow-end\n");
    let fourth = site.submit(&(body + &log("fourth")), &[]);
    site.slurm.wait_for(&first, "COMPLETED");
    site.wait_for(&second, "Running");
    site.restart_controller();
    let held = site.slurm.job(&third, "JobState");
    assert_eq!(held.as_deref(), Some("PENDING"), "{}", site.slurm.diagnosis(&third));
    assert_eq!(site.job(&fourth)["workflow"].to_string(), first);
    fs::write(&go, "").unwrap();
    site.slurm.wait_for(&fourth, "COMPLETED");
    let order = fs::read_to_string(pfs.join("order")).unwrap();
    assert_eq!(order, "first\nsecond\nthird\nfourth\n");
    let mine = expect_success(&site.forebay(USER, &["status"]));
    assert!(mine.contains(&format!("workflow {first} of ada")), "{mine}");
    let others = site.status(OTHER);
    assert_eq!(others["workflows"].as_array().map(Vec::len), Some(0), "{others}");
}

fn failed_job_removes_later_jobs_but_not_running_ones(site: &WorkflowSite) {
    let pfs = site.slurm.site.cluster.pfs();
    let fail = pfs.join("fail");
    let body = format!("until [ -e {} ]; do sleep 0.1; done\nexit 3", fail.display());
    let failing = site.submit(&body, &["--workflow-start"]);
    let running = site.submit("sleep 100", &["--workflow-start"]);
    let prior = format!("--workflow-prior-dependency={failing},{running}");
    let later = site.submit("true", &[&prior]);
    let last =
        site.submit("true", &[&format!("--workflow-prior-dependency={later}"), "--workflow-end"]);
    site.slurm.wait_for(&running, "RUNNING");
    fs::write(&fail, "").unwrap();
    site.slurm.wait_for(&later, "CANCELLED");
    site.slurm.wait_for(&last, "CANCELLED");
    assert_eq!(site.slurm.job(&running, "JobState").as_deref(), Some("RUNNING"));
    let removed = site.job(&last);
    assert_eq!(removed["state"], "Removed");
    assert_eq!(removed["reason"], format!("job {later} before it failed"));
    wait_for_file(&fail);
    expect_success(&site.slurm.run(ROOT, "scancel", &[&running]));
}
