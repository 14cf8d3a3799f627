//! Workflows of an ordinary user under Debian's Slurm, on three nodes.
//!
//! Needs root: it creates network namespaces.

use crate::cluster;
use crate::workflow_site;
use std::fs;
use std::path::Path;

use cluster::site::{OTHER, ROOT, USER, expect_failure, expect_success};
use cluster::wait_until;
use workflow_site::{WorkflowSite, slurm_command};

#[test]
fn workflows_run_under_slurm() {
    let Some(mut site) = WorkflowSite::start(8) else {
        return;
    };
    wrong_options_and_directives_are_refused(&site);
    jobs_run_in_order(&mut site);
    failed_job_removes_later_jobs_but_not_running_ones(&site);
    data_stay_on_the_nodes_of_the_next_job(&site);
    mapped_files_go_to_their_nodes(&site);
    failed_stages_cancel_the_job_or_keep_its_results(&site);
    failed_stage_out_is_repeated_on_request(&site);
    requeued_job_is_staged_again(&site);
    persistent_data_outlive_their_workflow_and_are_shared(&site);
    data_move_from_node_to_node(&site);
    data_move_if_their_node_stays_busy(&site);
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
    let start = ["--workflow-start"];
    refused(
        "#NORNS stage_inn lustre://a nvme0://b",
        &start,
        "line 2, column 8: `stage_inn` is not",
    );
    refused("#NORNS stage_in lustre://a nvme0://b", &[], "#NORNS lines belong to a workflow");
    refused("#NORNS stage_in lustre://a scratch://b", &start, "there is no dataspace `scratch://`");
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

/// A producer and a consumer: input from the shared file system, intermediate data on one node.
fn data_stay_on_the_nodes_of_the_next_job(site: &WorkflowSite) {
    let pfs = site.slurm.site.cluster.pfs();
    fs::write(pfs.join("mesh"), "mesh\n").unwrap();
    std::os::unix::fs::chown(&pfs, Some(USER.0), Some(USER.1)).unwrap();
    let body = "#NORNS stage_in lustre://mesh nvme0://in/mesh\n\
                mkdir $NVME0/out && sed s/mesh/made/ $NVME0/in/mesh > $NVME0/out/field";
    let producer = site.submit(body, &["--workflow-start", "-w", "n3"]);
    let body = "#NORNS stage_out nvme0://out lustre://fields\necho used >> $NVME0/out/field\n\
                echo on $SLURMD_NODENAME";
    let prior = format!("--workflow-prior-dependency={producer}");
    let consumer = site.submit(body, &[&prior, "--workflow-end"]);
    site.wait_for_slurm(&consumer, "COMPLETED");
    assert_eq!(site.slurm.output(&consumer), "on n3\n", "{}", site.diagnosis(&consumer));
    let field = fs::read_to_string(pfs.join("fields/field")).unwrap();
    assert_eq!(field, "made\nused\n");
    let owner = fs::metadata(pfs.join("fields/field")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), USER.0);
    assert_eq!(site.job(&consumer)["preferred"][0], "n3");
    // The last job has completed, and its results are staged out.
    let data = site.data(2, &producer, "");
    wait_until("the data are removed", || {
        site.slurm
            .site
            .host(2)
            .shell(ROOT, &format!("! [ -e {data} ]"))
            .status
            .success()
            .then_some(())
    });
}

fn mapped_files_go_to_their_nodes(site: &WorkflowSite) {
    let pfs = site.slurm.site.cluster.pfs();
    let input = pfs.join("file/dir");
    fs::create_dir_all(&input).unwrap();
    for number in (0..10).chain([11]) {
        fs::write(input.join(format!("checkpoint{number}.out")), number.to_string()).unwrap();
    }
    let text = format!(
        "### INPUT/OUTPUT FILE MAPPINGS ###\n['lustre://{}/checkpoint%[0-9]+%.out'];\n\
         0;nvme0://;0,5\n1;nvme0://;1,6,11\n2;nvme0://;2,7\n",
        input.display()
    );
    fs::write(pfs.join("mapping.dat"), text).unwrap();
    let body = format!(
        "#NORNS stage_in lustre://{} nvme0:// mapping.dat\n\
         #NORNS stage_out nvme0://names lustre://names\n\
         srun sh -c 'mkdir $NVME0/names; (cd $NVME0; ls -C *.out) > $NVME0/names/$SLURMD_NODENAME'",
        input.display()
    );
    let directory = format!("--chdir={}", pfs.display());
    let options = ["-N3", &directory, "--workflow-start", "--workflow-end"];
    let job = site.submit(&body, &options);
    site.wait_for_slurm(&job, "COMPLETED");
    site.wait_for(&job, "Completed");
    wait_until("results are staged out", || pfs.join("names/n3").exists().then_some(()));
    let names = |node: &str| -> String {
        let text = fs::read_to_string(pfs.join("names").join(node)).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ").replace("checkpoint", "")
    };
    let all = ["n1", "n2", "n3"].map(names);
    assert_eq!(
        all,
        ["0.out 5.out", "1.out 11.out 6.out", "2.out 7.out"],
        "{}",
        site.diagnosis(&job)
    );
}

fn failed_stages_cancel_the_job_or_keep_its_results(site: &WorkflowSite) {
    let body = "#NORNS stage_in lustre://missing nvme0://in\ntouch /dev/null";
    let first = site.submit(body, &["--workflow-start"]);
    let second = site.submit("true", &[&format!("--workflow-prior-dependency={first}")]);
    site.wait_for_slurm(&first, "CANCELLED");
    site.wait_for_slurm(&second, "CANCELLED");
    let reason = site.job(&first)["reason"].to_string();
    assert!(reason.contains("line 2: lustre://missing does not exist"), "{reason}");
    let drained = site.slurm.query("sinfo", &["-h", "-t", "drain", "-o", "%D"]);
    assert_eq!(drained, "", "a failed stage takes no node out of service");

    let pfs = site.slurm.site.cluster.pfs();
    // Both nodes have a file of one name.
    let body = "#NORNS stage_out nvme0://out lustre://same\n\
                srun sh -c 'mkdir $NVME0/out && echo $SLURMD_NODENAME > $NVME0/out/result'";
    let job = site.submit(body, &["-N2", "-w", "n2,n3", "--workflow-start", "--workflow-end"]);
    site.wait_for_slurm(&job, "COMPLETED");
    wait_until("the failure is reported", || {
        let text = expect_success(&site.forebay(USER, &["status"]));
        text.contains("both have a file result").then_some(())
    });
    assert!(pfs.join("same/result").exists(), "the results of one node are staged out");
    for (host, node) in [(1, "n2"), (2, "n3")] {
        let file = site.data(host, &job, "out/result");
        assert_eq!(site.shell(host, USER, &format!("cat {file}")), format!("{node}\n"));
    }
    site.wait_for(&job, "Completed");
    expect_success(&site.forebay(USER, &["remove", &job]));
    for host in [1, 2] {
        let data = site.data(host, &job, "");
        wait_until("the data are removed on request", || {
            let gone = site.slurm.site.host(host).shell(ROOT, &format!("! [ -e {data} ]"));
            gone.status.success().then_some(())
        });
    }
}

fn persistent_data_outlive_their_workflow_and_are_shared(site: &WorkflowSite) {
    let body = "#NORNS persist store nvme0://tables\n\
                mkdir $NVME0/tables && echo kept > $NVME0/tables/file";
    let job = site.submit(body, &["-w", "n2", "--workflow-start", "--workflow-end"]);
    site.wait_for_slurm(&job, "COMPLETED");
    let data = site.data(1, &job, "");
    wait_until("the workflow's data are removed", || {
        let gone = site.slurm.site.host(1).shell(ROOT, &format!("! [ -e {data} ]"));
        gone.status.success().then_some(())
    });
    let file = site.data(1, "persistent", "tables/file");
    let read = |user| site.slurm.site.host(1).shell(user, &format!("cat {file}"));
    assert_eq!(expect_success(&read(USER)), "kept\n");
    assert!(!read(OTHER).status.success(), "nobody else may read them");
    let location = "nvme0://tables";
    let other = site.forebay(OTHER, &["persist", "delete", location]);
    expect_failure(&other, "you have no persistent data at nvme0://tables");
    expect_success(&site.forebay(USER, &["persist", "share", location, "bob"]));
    assert_eq!(expect_success(&read(OTHER)), "kept\n");
    let status = expect_success(&site.forebay(USER, &["status"]));
    assert!(status.contains("persistent nvme0://tables of ada on n2, read by bob"), "{status}");
    expect_success(&site.forebay(USER, &["persist", "unshare", location, "bob"]));
    assert!(!read(OTHER).status.success(), "no longer");
    expect_success(&site.forebay(USER, &["persist", "share", location, "group:bob"]));
    assert_eq!(expect_success(&read(OTHER)), "kept\n");
    expect_success(&site.forebay(USER, &["persist", "delete", location]));
    assert!(!read(USER).status.success());
}

/// A stage-out whose destination cannot be written, until the user has mended that.
fn failed_stage_out_is_repeated_on_request(site: &WorkflowSite) {
    let closed = site.slurm.site.cluster.pfs().join("closed");
    fs::create_dir(&closed).unwrap();
    let body = "#NORNS stage_out nvme0://out lustre://closed/out\n\
                mkdir $NVME0/out && echo result > $NVME0/out/file";
    let job = site.submit(body, &["-w", "n2", "--workflow-start", "--workflow-end"]);
    site.wait_for_slurm(&job, "COMPLETED");
    wait_until("the failure is reported", || {
        site.job(&job)["finished"]["n2"]["failure"].is_string().then_some(())
    });
    let status = expect_success(&site.forebay(USER, &["status"]));
    let data = format!("data on n2: 7 B in 1 file, of jobs {job}");
    assert!(status.contains(&data), "{status}");
    expect_failure(&site.forebay(USER, &["recover", &job]), "on n2: line 2");
    expect_failure(&site.forebay(OTHER, &["recover", &job]), "you have no workflow");
    std::os::unix::fs::chown(&closed, Some(USER.0), Some(USER.1)).unwrap();
    expect_success(&site.forebay(USER, &["recover", &job]));
    assert_eq!(fs::read_to_string(closed.join("out/file")).unwrap(), "result\n");
    expect_failure(&site.forebay(USER, &["recover", &job]), "no stage-out");
    let data = site.data(1, &job, "");
    wait_until("the data are removed", || {
        let gone = site.slurm.site.host(1).shell(ROOT, &format!("! [ -e {data} ]"));
        gone.status.success().then_some(())
    });
}

/// The second run is on another node, and a job after it finds that run's data only.
fn requeued_job_is_staged_again(site: &WorkflowSite) {
    let pfs = site.slurm.site.cluster.pfs();
    fs::write(pfs.join("parameters"), "first").unwrap();
    let body = format!(
        "#SBATCH --requeue\n#NORNS stage_in lustre://parameters nvme0://\n\
         cat $NVME0/parameters > $NVME0/result\n\
         [ $SLURM_RESTART_COUNT ] || {{ touch {}/began; sleep 60; }}",
        pfs.display()
    );
    let job = site.submit(&body, &["-w", "n2", "--workflow-start"]);
    wait_for_file(&pfs.join("began"));
    fs::write(pfs.join("parameters"), "second").unwrap();
    expect_success(&site.slurm.run(USER, "scontrol", &["requeue", &job]));
    site.wait_for(&job, "Pending");
    let update = format!("JobId={job}");
    // Slurm defers a requeued job by two minutes.
    let update = ["update", &update, "StartTime=now", "NodeList=n3"];
    expect_success(&site.slurm.run(ROOT, "scontrol", &update));
    site.wait_for_slurm(&job, "COMPLETED");
    let prior = format!("--workflow-prior-dependency={job}");
    let after = site.submit("cat $NVME0/result", &["-w", "n1", &prior, "--workflow-end"]);
    site.wait_for_slurm(&after, "COMPLETED");
    assert_eq!(site.slurm.output(&after), "second", "{}", site.diagnosis(&after));
}

/// Two producers on different nodes, and a consumer on a third one.
fn data_move_from_node_to_node(site: &WorkflowSite) {
    let make = |name: &str| {
        format!(
            "head -c 9000000 /dev/urandom > $NVME0/{name}; ln $NVME0/{name} $NVME0/{name}2; sha256sum < $NVME0/{name}"
        )
    };
    let first = site.submit(&make("a"), &["-w", "n1", "--workflow-start"]);
    let second = site.submit(&make("b"), &["-w", "n2", "--workflow-start"]);
    let prior = format!("--workflow-prior-dependency={first},{second}");
    let body = "sha256sum < $NVME0/a2; sha256sum < $NVME0/b; stat -c %U $NVME0/a";
    let third = site.submit(body, &["-w", "n3", &prior, "--workflow-end"]);
    site.wait_for_slurm(&third, "COMPLETED");
    let expected = site.slurm.output(&first) + &site.slurm.output(&second) + "ada\n";
    assert_eq!(site.slurm.output(&third), expected, "{}", site.diagnosis(&third));
}

/// The node that has the data is taken by another job when the producer has ended.
fn data_move_if_their_node_stays_busy(site: &WorkflowSite) {
    let go = site.slurm.site.cluster.pfs().join("produce");
    let body =
        format!("echo made > $NVME0/field\nuntil [ -e {} ]; do sleep 0.1; done", go.display());
    let producer = site.submit(&body, &["-w", "n2", "--workflow-start"]);
    site.wait_for_slurm(&producer, "RUNNING");
    let other = site.submit("sleep 100", &["-w", "n2", "--exclusive"]);
    let prior = format!("--workflow-prior-dependency={producer}");
    let body = "echo $SLURMD_NODENAME; cat $NVME0/field";
    let consumer = site.submit(body, &[&prior, "--workflow-end"]);
    fs::write(&go, "").unwrap();
    wait_until("the consumer waits for the producer's node", || {
        let text = expect_success(&site.forebay(USER, &["status"]));
        text.contains("waits for its data's nodes n2").then_some(())
    });
    site.wait_for_slurm(&other, "RUNNING");
    site.wait_for_slurm(&consumer, "COMPLETED");
    let output = site.slurm.output(&consumer);
    assert!(output.ends_with("\nmade\n") && !output.starts_with("n2"), "{output}");
    expect_success(&site.slurm.run(ROOT, "scancel", &[&other]));
}
