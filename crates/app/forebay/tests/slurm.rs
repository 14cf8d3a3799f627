//! Slurm's burst_buffer/datawarp plugin on a pool: Debian's Slurm, three nodes, an ordinary user.
//!
//! Needs root: it creates network namespaces.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;

use std::fs;

use cluster::site::{ROOT, USER, expect_success};
use cluster::slurm::{Plugin, SlurmSite};
use cluster::{text_of, wait_until};

#[test]
fn job_is_staged_mounted_on_its_nodes_and_removed() {
    stage_mount_and_remove(Plugin::DataWarp);
}

#[test]
fn lua_job_is_staged_mounted_on_its_nodes_and_removed() {
    stage_mount_and_remove(Plugin::Lua);
}

#[test]
fn wrong_directive_is_refused_at_submission_with_its_place() {
    refuse_wrong_directives(Plugin::DataWarp);
}

#[test]
fn lua_wrong_directive_is_refused_at_submission_with_its_place() {
    refuse_wrong_directives(Plugin::Lua);
}

#[test]
fn failed_staging_holds_the_job_or_keeps_its_results() {
    fail_to_stage(Plugin::DataWarp);
}

#[test]
fn lua_failed_staging_holds_the_job_or_keeps_its_results() {
    fail_to_stage(Plugin::Lua);
}

#[test]
fn jobs_wait_for_space_and_are_cancelled_with_and_without_staging_out() {
    wait_for_space_and_cancel(Plugin::DataWarp);
}

#[test]
fn lua_teardown_that_slurm_lost_is_made_later() {
    let Some(slurm) = SlurmSite::start_with(Plugin::Lua, "") else {
        return;
    };
    let (input, _) = slurm.make_directories();
    fs::rename(&input, input.with_file_name("elsewhere")).unwrap();
    let script = format!("#!/bin/sh\n{}true\n", slurm.directives());
    let hold = || {
        let id = slurm.submit(&script, &[]);
        wait_until("the job is held", || (slurm.job(&id, "Priority")? == "0").then_some(()));
        id
    };
    let (cancelled, waiting) = (hold(), hold());
    let lost = slurm.lose("teardown");
    expect_success(&slurm.run(USER, "scancel", &[&cancelled]));
    // On a busy machine Slurm kills its own teardown before that is recorded: then it is lost, too.
    let is_called = || slurm.functions(&cancelled).contains(&"teardown".to_owned());
    let called = wait_until("Slurm tears the job down, or has lost that", || match is_called() {
        true => Some(true),
        false => (slurm.site.nodes_of_instance(&cancelled) == 0).then_some(false),
    });
    assert!(!called || slurm.site.nodes_of_instance(&cancelled) == 3);
    drop(lost);
    slurm.wait_until_removed(&cancelled);
    assert_eq!(slurm.site.nodes_of_instance(&waiting), 3, "the job has not ended");
}

#[test]
fn lua_jobs_wait_for_space_and_are_cancelled_with_and_without_staging_out() {
    wait_for_space_and_cancel(Plugin::Lua);
}

#[test]
fn arrays_dependencies_and_requeued_jobs_have_instances_of_their_own() {
    run_arrays_dependencies_and_requeued_jobs(Plugin::DataWarp);
}

#[test]
fn lua_arrays_dependencies_and_requeued_jobs_have_instances_of_their_own() {
    run_arrays_dependencies_and_requeued_jobs(Plugin::Lua);
}

#[test]
fn components_of_a_heterogeneous_job_share_its_nodes_but_not_its_instances() {
    run_heterogeneous_job(Plugin::DataWarp);
}

#[test]
fn lua_components_of_a_heterogeneous_job_share_its_nodes_but_not_its_instances() {
    run_heterogeneous_job(Plugin::Lua);
}

#[test]
fn death_of_a_compute_node_leaves_the_results_of_the_others() {
    kill_a_compute_node(Plugin::DataWarp);
}

#[test]
fn lua_death_of_a_compute_node_leaves_the_results_of_the_others() {
    kill_a_compute_node(Plugin::Lua);
}

#[test]
fn many_jobs_four_at_a_time_leave_nothing() {
    run_many_jobs(Plugin::DataWarp, JOBS);
}

#[test]
fn lua_many_jobs_four_at_a_time_leave_nothing() {
    run_many_jobs(Plugin::Lua, LUA_JOBS);
}

fn stage_mount_and_remove(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let script = format!(
        "#!/bin/sh\n{}\
         mkdir $DW_JOB_STRIPED/out\n\
         srun sh -c 'cp $DW_JOB_STRIPED/input/words $DW_JOB_STRIPED/out/$SLURMD_NODENAME'\n\
         env | grep -E '^(DW|FOREBAY)_' | sort\n",
        slurm.directives()
    );
    let id = slurm.submit(&script, &["-N2", "-w", "n2,n3"]);
    slurm.wait_for(&id, "COMPLETED");
    slurm.wait_until_removed(&id);
    let staged = results.join(&id);
    for node in ["n2", "n3"] {
        let text = fs::read_to_string(staged.join(node)).unwrap();
        assert_eq!(text, "from the file system\n", "{}", slurm.diagnosis(&id));
    }
    let order =
        ["setup", "data_in", "real_size", "paths", "pre_run", "post_run", "data_out", "teardown"];
    // The last call is recorded after it has returned.
    wait_until("all calls are recorded", || {
        (slurm.functions(&id).len() >= order.len()).then_some(())
    });
    assert_eq!(slurm.functions(&id), order, "{}", slurm.diagnosis(&id));
    let output = slurm.output(&id);
    assert!(output.contains(&format!("DW_JOB_STRIPED={}", slurm.site.host(0).local.display())));
    assert!(output.contains(&format!("FOREBAY_JOB_ID={id}")), "{output}");
    expect_success(&slurm.site.host(0).shell(ROOT, "! grep -q fuse.forebay /proc/self/mounts"));
    let text = text_of(&slurm.run(USER, "scontrol", &["show", "burst"]));
    assert!(text.contains("Granularity=16M") && text.contains("TotalSpace=1536M"), "{text}");
    let text = text_of(&slurm.run(USER, "scontrol", &["show", "bbstat"]));
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.ends_with(&["flash", "bytes", "1.5GiB", "1.5GiB", "16MiB"]), "{text}");
}

fn refuse_wrong_directives(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let script =
        "#!/bin/sh\n#DW jobdw pool=flash capacity=96MiB type=scratch access_mode=stripped\n";
    let text = text_of(&slurm.try_submit(script, &[]));
    assert!(text.contains("line 2, column 62"), "{text}");
    assert!(text.contains("did you mean `striped`?"), "{text}");
    let script = "#!/bin/sh\n#DW jobdw pool=flash capacity=9TiB type=scratch access_mode=striped\n";
    let text = text_of(&slurm.try_submit(script, &[]));
    assert!(text.contains("line 2: pool `flash`"), "{text}");
    // The plugin lua appends the option to the script as it is.
    let option = match plugin {
        Plugin::DataWarp => "--bb=capacity=32MiB access_mode=private type=scratch",
        Plugin::Lua => "--bb=#DW jobdw pool=flash capacity=32MiB access_mode=private type=scratch",
    };
    let script = "#!/bin/sh\necho in > $DW_JOB_PRIVATE/file && echo written\n";
    let id = slurm.submit(script, &["-N1", option]);
    slurm.wait_for(&id, "COMPLETED");
    assert_eq!(slurm.output(&id), "written\n");
    let file = slurm.site.cluster.pfs().join("buffer.bb");
    fs::write(&file, "#DW jobdw pool=flash capacity=32MiB type=scratch access_mode=striped\n")
        .unwrap();
    let option = format!("--bbf={}", file.display());
    let output = slurm.run(USER, "salloc", &["-N1", &option, "srun", "env"]);
    assert!(text_of(&output).contains("DW_JOB_STRIPED="), "{}", text_of(&output));
}

fn fail_to_stage(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (input, results) = slurm.make_directories();
    fs::rename(&input, input.with_file_name("elsewhere")).unwrap();
    let script = format!("#!/bin/sh\n{}true\n", slurm.directives());
    let held = slurm.submit(&script, &[]);
    wait_until("the job is held", || (slurm.job(&held, "Priority")? == "0").then_some(()));
    let queue = slurm.query("squeue", &["-h", "-j", &held, "-o", "%t %R"]);
    let operation = match plugin {
        Plugin::DataWarp => "dws_data_in",
        Plugin::Lua => "slurm_bb_data_in",
    };
    assert!(queue.starts_with("PD") && queue.contains(operation), "{queue}");
    let comment = slurm.job(&held, "SystemComment").unwrap();
    assert!(comment.contains("input: does not exist"), "{comment}");
    assert_eq!(slurm.site.nodes_of_instance(&held), 3, "the instance is kept");
    expect_success(&slurm.run(USER, "scancel", &[&held]));
    slurm.wait_until_removed(&held);

    fs::rename(input.with_file_name("elsewhere"), &input).unwrap();
    let script = format!(
        "#!/bin/sh\n{}mkdir $DW_JOB_STRIPED/out && echo result > $DW_JOB_STRIPED/out/file\n",
        slurm.directives()
    );
    expect_success(&slurm.site.host(0).shell(ROOT, &format!("chmod 555 {}", results.display())));
    let kept = slurm.submit(&script, &[]);
    wait_until("the stage-out fails", || {
        let comment = slurm.job(&kept, "SystemComment")?;
        comment.contains("data_out").then_some(())
    });
    let comment = slurm.job(&kept, "SystemComment").unwrap();
    assert!(comment.contains("Permission denied"), "{comment}");
    assert_eq!(slurm.site.nodes_of_instance(&kept), 3, "the results are kept");
    expect_success(&slurm.site.host(0).shell(ROOT, &format!("chmod 755 {}", results.display())));
    expect_success(&slurm.site.forebay(0, USER, &["recover", "--job-id", &kept]));
    let file = results.join(&kept).join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "result\n");
    assert_eq!(slurm.site.nodes_of_instance(&kept), 0);
}

fn wait_for_space_and_cancel(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let pfs = slurm.site.cluster.pfs();
    let body = format!(
        "mkdir $DW_JOB_STRIPED/out && echo result > $DW_JOB_STRIPED/out/file\n\
         touch {0}/started.$SLURM_JOB_ID\nsleep 60\n",
        pfs.display()
    );
    // Each job needs more than half of the pool.
    let directives = slurm.directives().replace("96MiB", "800MiB");
    let script = format!("#!/bin/sh\n{directives}{body}");
    let started = |id: &str| pfs.join(format!("started.{id}"));
    let ids: Vec<String> = (0..3).map(|_| slurm.submit(&script, &[])).collect();
    wait_until("the first job starts", || started(&ids[0]).exists().then_some(()));
    assert_eq!(slurm.job(&ids[1], "JobState").as_deref(), Some("PENDING"));
    expect_success(&slurm.run(USER, "scancel", &[&ids[0]]));
    wait_until("the second job starts", || started(&ids[1]).exists().then_some(()));
    assert!(!started(&ids[2]).exists(), "jobs start in the order of submission");
    slurm.wait_until_removed(&ids[0]);
    let file = results.join(&ids[0]).join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "result\n", "{}", slurm.diagnosis(&ids[0]));
    expect_success(&slurm.run(USER, "scancel", &["--hurry", &ids[1]]));
    wait_until("the third job starts", || started(&ids[2]).exists().then_some(()));
    slurm.wait_until_removed(&ids[1]);
    assert!(!results.join(&ids[1]).exists(), "--hurry destroys results");
    expect_success(&slurm.run(USER, "scancel", &["--hurry", &ids[2]]));
    slurm.wait_until_removed(&ids[2]);
}

#[test]
fn persistent_instance_outlives_jobs_that_use_it() {
    let Some(slurm) = SlurmSite::start("EnablePersistent") else {
        return;
    };
    let create = "#!/bin/sh\n\
                  #BB create_persistent name=tables capacity=64MiB access=striped type=scratch\n\
                  #DW persistentdw name=tables\n\
                  echo kept > $DW_PERSISTENT_STRIPED_tables/file\n";
    let first = slurm.submit(create, &[]);
    slurm.wait_for(&first, "COMPLETED");
    slurm.wait_until_removed(&first);
    let use_it = "#!/bin/sh\n#DW persistentdw name=tables\n\
                  cat $DW_PERSISTENT_STRIPED_tables/file\n";
    let second = slurm.submit(use_it, &["-N2"]);
    slurm.wait_for(&second, "COMPLETED");
    assert_eq!(slurm.output(&second), "kept\n", "{}", slurm.diagnosis(&second));
    let text = slurm.query("scontrol", &["show", "burst"]);
    assert!(text.contains("Name=tables") && text.contains("UserID=ada(41000)"), "{text}");
    slurm.wait_until_removed(&second);
    let destroy = "#!/bin/sh\n#BB destroy_persistent name=tables\n";
    let third = slurm.submit(destroy, &[]);
    slurm.wait_for(&third, "COMPLETED");
    wait_until("the persistent instance is destroyed", || {
        (slurm.site.nodes_of_instance("tables") == 0).then_some(())
    });
}

fn run_arrays_dependencies_and_requeued_jobs(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let body = "mkdir $DW_JOB_STRIPED/out && echo $SLURM_JOB_ID > $DW_JOB_STRIPED/out/file\n";

    let script = format!("#!/bin/sh\n{}{body}", slurm.directives().replace("%j", "%A-%a"));
    let array = slurm.submit(&script, &["--array=1-3"]);
    for task in 1..=3 {
        let file = results.join(format!("{array}-{task}/file"));
        wait_until("a task's results are staged out", || file.exists().then_some(()));
    }

    let script = format!("#!/bin/sh\n{}{body}", slurm.directives());
    let first = slurm.submit(&script, &[]);
    let staged = results.join(&first).join("file");
    let script = format!("#!/bin/sh\ntest -e {}\n", staged.display());
    let dependency = format!("--dependency=afterburstbuffer:{first}");
    let second = slurm.submit(&script, &[&dependency]);
    slurm.wait_for(&second, "COMPLETED");

    let pfs = slurm.site.cluster.pfs();
    let script = format!(
        "#!/bin/sh\n{}{body}\
         [ $SLURM_RESTART_COUNT ] || {{ touch {1}/started.$SLURM_JOB_ID; sleep 60; }}\n",
        slurm.directives(),
        pfs.display()
    );
    let requeued = slurm.submit(&script, &[]);
    wait_until("the job starts", || pfs.join(format!("started.{requeued}")).exists().then_some(()));
    expect_success(&slurm.run(USER, "scontrol", &["requeue", &requeued]));
    wait_until("the first run is torn down", || {
        slurm.functions(&requeued).contains(&"teardown".to_owned()).then_some(())
    });
    // Slurm defers a requeued job by two minutes.
    let update = format!("JobId={requeued}");
    expect_success(&slurm.run(ROOT, "scontrol", &["update", &update, "StartTime=now"]));
    slurm.wait_for(&requeued, "COMPLETED");
    slurm.wait_until_removed(&requeued);
    let text = fs::read_to_string(results.join(&requeued).join("file")).unwrap();
    assert_eq!(text.trim(), requeued, "{}", slurm.diagnosis(&requeued));
    let status = slurm.site.status().unwrap();
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(0), "{status}");
}

fn run_heterogeneous_job(plugin: Plugin) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let script = "#!/bin/sh\n#SBATCH -N1 -w n2\n\
                  #DW jobdw pool=flash capacity=32MiB type=scratch access_mode=striped\n\
                  #SBATCH hetjob\n#SBATCH -N1 -w n3\n\
                  echo here > $DW_JOB_STRIPED/file && cat $DW_JOB_STRIPED/file && hostname\n";
    let id = slurm.submit(script, &[]);
    slurm.wait_for(&id, "COMPLETED");
    assert_eq!(slurm.output(&id), "here\nn2\n", "{}", slurm.diagnosis(&id));
    slurm.wait_until_removed(&id);
}

fn kill_a_compute_node(plugin: Plugin) {
    let Some(mut slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let pfs = slurm.site.cluster.pfs();
    let script = format!(
        "#!/bin/sh\n{}mkdir $DW_JOB_STRIPED/out && echo result > $DW_JOB_STRIPED/out/file\n\
         sync $DW_JOB_STRIPED/out/file && touch {}/started.$SLURM_JOB_ID\nsleep 300\n",
        slurm.directives(),
        pfs.display()
    );
    let id = slurm.submit(&script, &["-N2", "-w", "n2,n3", "--no-requeue"]);
    wait_until("the job starts", || pfs.join(format!("started.{id}")).exists().then_some(()));
    slurm.slurmd[2].kill();
    slurm.site.agents[2].kill();
    slurm.wait_for(&id, "NODE_FAIL");
    slurm.wait_until_removed(&id);
    let text = fs::read_to_string(results.join(&id).join("file"));
    assert_eq!(text.ok().as_deref(), Some("result\n"), "{}", slurm.diagnosis(&id));
}

/// Jobs of [`run_many_jobs`], unless `FOREBAY_SLURM_JOBS` has another number.
const JOBS: usize = 200;
/// The same with the plugin lua, whose calls differ only in their transport.
const LUA_JOBS: usize = 12;

fn run_many_jobs(plugin: Plugin, default_jobs: usize) {
    let Some(slurm) = SlurmSite::start_with(plugin, "") else {
        return;
    };
    let (_, results) = slurm.make_directories();
    let jobs =
        std::env::var("FOREBAY_SLURM_JOBS").map_or(default_jobs, |text| text.parse().unwrap());
    // The pool has space for four.
    let directives = slurm.directives().replace("96MiB", "336MiB");
    let script = format!(
        "#!/bin/sh\n{directives}mkdir $DW_JOB_STRIPED/out\n\
         cat $DW_JOB_STRIPED/input/words > $DW_JOB_STRIPED/out/words\n\
         echo $SLURM_JOB_ID >> $DW_JOB_STRIPED/out/words\n"
    );
    let ids: Vec<String> = (0..jobs).map(|_| slurm.submit(&script, &[])).collect();
    for id in &ids {
        slurm.wait_for(id, "COMPLETED");
    }
    for id in &ids {
        slurm.wait_until_removed(id);
        let text = fs::read_to_string(results.join(id).join("words")).unwrap();
        assert_eq!(text, format!("from the file system\n{id}\n"), "{}", slurm.diagnosis(id));
    }
    let status = slurm.site.status().unwrap();
    for kind in ["sessions", "instances", "stages"] {
        assert_eq!(status[kind].as_array().map(Vec::len), Some(0), "{kind}: {status}");
    }
}
