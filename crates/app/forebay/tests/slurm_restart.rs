//! `slurmctld` killed and started again at each stage of a job, with Slurm's plugins for burst buffers.
//!
//! Needs root: it creates network namespaces.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;

use std::fs;
use std::time::{Duration, SystemTime};

use cluster::site::{ROOT, USER, expect_success};
use cluster::slurm::{Plugin, SlurmSite};
use cluster::wait_until;

/// Waits for a state of a job after a restart of `slurmctld`. If Slurm does not know whether the job was
/// staged in, it tears it down and defers it by a minute.
fn wait_for_deferred(slurm: &SlurmSite, id: &str, state: &str) {
    let update = format!("JobId={id}");
    wait_until("an interrupted job continues", || {
        if slurm.functions(id).contains(&"teardown".to_owned()) {
            slurm.run(ROOT, "scontrol", &["update", &update, "StartTime=now"]);
        }
        (slurm.job(id, "JobState")? == state).then_some(())
    });
}

#[test]
fn slurmctld_killed_while_data_moves_completes_the_job() {
    let Some(mut slurm) = SlurmSite::start("") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let script = format!(
        "#!/bin/sh\n{}mkdir $DW_JOB_STRIPED/out && cp $DW_JOB_STRIPED/input/words $DW_JOB_STRIPED/out/\n",
        slurm.directives()
    );
    for function in ["setup", "data_in", "pre_run", "post_run", "data_out", "teardown"] {
        let held = slurm.hold(function);
        let id = slurm.submit(&script, &[]);
        held.wait_until_called();
        slurm.save_jobs();
        slurm.restart_slurmctld();
        drop(held);
        wait_for_deferred(&slurm, &id, "COMPLETED");
        slurm.wait_until_removed(&id);
        let text = fs::read_to_string(results.join(&id).join("words"));
        let diagnosis = || format!("killed in {function}: {}", slurm.diagnosis(&id));
        assert_eq!(text.ok().as_deref(), Some("from the file system\n"), "{}", diagnosis());
    }
}

#[test]
fn restarted_slurmctld_completes_jobs_at_every_stage() {
    let Some(mut slurm) = SlurmSite::start("") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let script = format!(
        "#!/bin/sh\n{}mkdir $DW_JOB_STRIPED/out && echo result > $DW_JOB_STRIPED/out/file\nsleep 12\n",
        slurm.directives()
    );
    // Staged in but not started: no node has enough CPUs free.
    let blocker = slurm.submit("#!/bin/sh\nsleep 8\n", &["-N3", "--exclusive"]);
    slurm.wait_for(&blocker, "RUNNING");
    let staged = slurm.submit(&script, &["-N1"]);
    wait_until("the job is staged in", || {
        slurm.functions(&staged).contains(&"real_size".to_owned()).then_some(())
    });
    slurm.save_jobs();
    slurm.restart_slurmctld();
    wait_for_deferred(&slurm, &staged, "RUNNING");
    slurm.save_jobs();
    slurm.restart_slurmctld();
    slurm.wait_for(&staged, "COMPLETED");
    slurm.wait_until_removed(&staged);
    let file = results.join(&staged).join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "result\n", "{}", slurm.diagnosis(&staged));
    for call in slurm.calls() {
        let waits = ["data_in", "data_out", "pre_run", "post_run", "setup", "teardown"];
        assert!(waits.contains(&&*call.function) || call.seconds < 1.0, "{call:?}");
    }
}

/// Starts a job that runs until a file `go` exists, and waits until `slurmctld` has saved that it runs.
fn start_saved_job(slurm: &SlurmSite) -> String {
    let pfs = slurm.site.cluster.pfs();
    let script = format!(
        "#!/bin/sh\n{}mkdir $DW_JOB_STRIPED/out && echo result > $DW_JOB_STRIPED/out/file\n\
         until [ -e {}/go ]; do sleep 0.1; done\n",
        slurm.directives(),
        pfs.display()
    );
    let id = slurm.submit(&script, &["-N1"]);
    slurm.wait_for(&id, "RUNNING");
    slurm.save_jobs();
    id
}

#[test]
fn lua_restarted_slurmctld_completes_a_running_job() {
    let Some(mut slurm) = SlurmSite::start_with(Plugin::Lua, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let submitted = SystemTime::now();
    let id = start_saved_job(&slurm);
    slurm.wait_until_lua_saved(submitted);
    slurm.restart_slurmctld();
    fs::write(slurm.site.cluster.pfs().join("go"), "").unwrap();
    slurm.wait_for(&id, "COMPLETED");
    slurm.wait_until_removed(&id);
    let text = fs::read_to_string(results.join(&id).join("file"));
    assert_eq!(text.ok().as_deref(), Some("result\n"), "{}", slurm.diagnosis(&id));
}

#[test]
fn lua_buffer_that_slurm_forgot_during_the_run_is_staged_out() {
    let Some(mut slurm) = SlurmSite::start_with(Plugin::Lua, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let id = start_saved_job(&slurm);
    slurm.remove_lua_state();
    slurm.restart_slurmctld();
    fs::write(slurm.site.cluster.pfs().join("go"), "").unwrap();
    slurm.wait_for(&id, "COMPLETED");
    slurm.wait_until_removed(&id);
    let text = fs::read_to_string(results.join(&id).join("file"));
    assert_eq!(text.ok().as_deref(), Some("result\n"), "{}", slurm.diagnosis(&id));
}

#[test]
fn lua_buffer_that_slurm_forgot_during_stage_out_is_recovered() {
    let Some(mut slurm) = SlurmSite::start_with(Plugin::Lua, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let held = slurm.hold("data_out");
    let id = start_saved_job(&slurm);
    fs::write(slurm.site.cluster.pfs().join("go"), "").unwrap();
    held.wait_until_called();
    slurm.save_jobs();
    slurm.remove_lua_state();
    slurm.restart_slurmctld();
    drop(held);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(
        slurm.job(&id, "JobState").as_deref(),
        Some("STAGE_OUT"),
        "{}",
        slurm.diagnosis(&id)
    );
    assert_eq!(slurm.site.nodes_of_instance(&id), 3, "{}", slurm.diagnosis(&id));
    expect_success(&slurm.site.forebay(0, USER, &["recover", "--job-id", &id]));
    let text = fs::read_to_string(results.join(&id).join("file"));
    assert_eq!(text.ok().as_deref(), Some("result\n"), "{}", slurm.diagnosis(&id));
    assert_eq!(slurm.site.nodes_of_instance(&id), 0);
}
