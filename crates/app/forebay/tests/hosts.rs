//! A pool over three hosts: controller, storage daemons and agents, and jobs of several users.
//!
//! Needs root: it creates network namespaces and acts as several users.

use crate::cluster;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use cluster::site::{Job, OTHER, ROOT, Site, USER, expect_failure, expect_success, job_script};
use cluster::{Cluster, Host, User, text_of, wait_until};

/// The pool, and a job of `USER` with a striped and a private view on all hosts.
struct SharedInstance {
    site: Site,
    job: Job,
    /// Path of the views on every host.
    striped: String,
    private: String,
}

impl SharedInstance {
    fn start() -> SharedInstance {
        let site = Site::new();
        let pfs = site.cluster.pfs();
        fs::create_dir(pfs.join("input")).unwrap();
        fs::write(pfs.join("input/words"), "from the file system\n").unwrap();
        site.make_results_directory();
        let directives = format!(
            "#DW jobdw capacity=96MiB type=scratch access_mode=striped,private\n\
             #DW stage_in type=directory source={0}/input destination=$DW_JOB_STRIPED/input\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={0}/results/out",
            pfs.display()
        );
        let body = "grep -q 'from the file' ${DW_JOB_STRIPED}input/words\n\
                    mkdir ${DW_JOB_STRIPED}out; chmod 755 ${DW_JOB_STRIPED}out\n\
                    echo from n1 > ${DW_JOB_PRIVATE}own";
        let mut job = site.start_job(&job_script(&pfs, &directives, body));
        job.wait_until_running(&site);
        let view = |name: &str| {
            let path = site.host(0).local.join("jobs/job1").join(name);
            path.display().to_string()
        };
        SharedInstance { striped: view("ss"), private: view("private"), site, job }
    }

    fn instance_lies_on_all_nodes(&self) {
        let status = self.site.status().unwrap();
        let nodes = status["instances"][0]["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3);
    }

    fn write_on_one_host_is_read_on_all(&self) {
        let striped = &self.striped;
        for (index, host) in self.site.cluster.hosts.iter().enumerate() {
            let script = format!(
                "dd if=/dev/urandom of={striped}/out/from{index} bs=100k count=20 status=none; \
                 md5sum < {striped}/out/from{index} > {striped}/out/sum{index}"
            );
            expect_success(&host.shell(USER, &script));
        }
        for host in &self.site.cluster.hosts {
            for index in 0..3 {
                let script = format!(
                    "[ \"$(md5sum < {striped}/out/from{index})\" = \"$(cat {striped}/out/sum{index})\" ]"
                );
                expect_success(&host.shell(USER, &script));
            }
        }
    }

    fn private_view_is_separate_on_each_host(&self) {
        let (site, private) = (&self.site, &self.private);
        let absent = format!("[ ! -e {private}/own ]");
        expect_success(&site.host(1).shell(USER, &absent));
        let present = format!("[ -e {private}/own ]");
        expect_success(&site.host(0).shell(USER, &present));
    }

    fn mounts_are_nosuid_and_nodev(&self) {
        let list = "grep ^forebay- /proc/mounts";
        let mounts = expect_success(&self.site.host(0).shell(USER, list));
        assert!(mounts.contains("nosuid,nodev"), "{mounts}");
    }

    fn other_user_cannot_enter_mounts_or_daemon_directories(&self) {
        let (site, striped) = (&self.site, &self.striped);
        for host in &site.cluster.hosts {
            let listing = host.shell(OTHER, &format!("ls {striped}/"));
            expect_failure(&listing, "Permission denied");
        }
        let local = site.host(0).local.display();
        for path in [
            "agent/mounts/i*",
            "flash/node.redb",
            "flash/journals",
            "flash/flash/log",
            "flash/flash/objects",
            "controller",
            "controller/secret",
            "controller/controller.redb",
        ] {
            let script = format!("p=$(echo {local}/{path}); ls $p/ || cat $p");
            let listing = site.host(0).shell(OTHER, &script);
            expect_failure(&listing, "Permission denied");
        }
    }

    fn other_user_cannot_use_the_job_or_administer_the_pool(&self) {
        let site = &self.site;
        let theirs = site.cluster.pfs().join("theirs.sh");
        let script = "#!/bin/sh\n#DW jobdw capacity=1MiB type=scratch access_mode=striped\n";
        fs::write(&theirs, script).unwrap();
        let theirs = theirs.to_str().unwrap();
        let arguments = ["run", "--pool", site.file(), "--job-id", "job1", theirs];
        let run = site.host(1).forebay(OTHER, &arguments);
        expect_failure(&run, "belongs to user 41000");
        let recover = ["recover", "--job-id", "job1", "--discard"];
        let refused = site.forebay(1, OTHER, &recover);
        expect_failure(&refused, "belongs to user 41000");
        let announced = text_of(&refused);
        assert!(!announced.contains("unmount"), "steps of a refused request: {announced}");
        assert!(!announced.contains("tear down"), "steps of a refused request: {announced}");
        let drain = site.forebay(1, OTHER, &["drain", "n1"]);
        expect_failure(&drain, "only an operator");
    }

    /// Nothing is announced of a job of another user that is being torn down, either.
    fn other_user_cannot_end_a_job_that_is_ending(&self) {
        let site = &self.site;
        let script = site.cluster.pfs().join("ending.sh");
        let directive = "#DW jobdw capacity=96MiB type=scratch access_mode=striped";
        fs::write(&script, format!("#!/bin/sh\n{directive}\n")).unwrap();
        let setup = format!(
            "{{\"version\": 1, \"function\": \"setup\", \"job\": \"ending\", \
             \"user\": {}, \"group\": {}, \"script\": \"{}\"}}",
            USER.0,
            USER.1,
            script.display()
        );
        expect_success(&site.forebay(0, USER, &["wlm", &setup]));
        site.storage[2].suspend();
        let discard = ["recover", "--job-id", "ending", "--discard", "--pool", site.file()];
        let mut owner = site
            .host(1)
            .command(USER, env!("CARGO_BIN_EXE_forebay"))
            .args(discard)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the job is ending", || {
            let status = site.status()?;
            let mut sessions = status["sessions"].as_array()?.iter();
            let session = sessions.find(|session| session["token"] == "ending")?;
            (session["ending"] == true).then_some(())
        });
        let refused = site.forebay(1, OTHER, &discard[..4]);
        site.storage[2].resume();
        expect_failure(&refused, "belongs to user 41000");
        let announced = text_of(&refused);
        assert!(!announced.contains("tear down"), "steps of a refused request: {announced}");
        assert!(owner.wait().unwrap().success());
    }

    /// A host whose `munged` has another key is not authenticated.
    fn host_with_another_munge_key_is_rejected(&self) {
        let site = &self.site;
        let auth = format!("method = \"munge\"\nsocket = \"{}\"", site.foreign_munged.display());
        let foreign = site.cluster.write_configuration("foreign.toml", &auth, "");
        let text = fs::read_to_string(&foreign).unwrap().replace("/agent", "/foreign-agent");
        fs::write(&foreign, text.replace("controller.socket", "no.socket")).unwrap();
        let foreign = foreign.to_str().unwrap();
        let status = site.host(2).forebay(ROOT, &["status", "--pool", foreign]);
        expect_failure(&status, "MUNGE");
        let mut agent = site.host(2).start_daemon(&["agent", "--config", foreign]);
        agent.wait_for_output("MUNGE: ");
        site.controller.wait_for_output("connection refused");
        assert_eq!(agent.exit_code(), None, "the agent keeps trying");
        let mounts = site.host(2).local.join("foreign-agent/mounts");
        let empty = format!("[ -z \"$(ls -A {})\" ]", mounts.display());
        expect_success(&site.host(2).shell(ROOT, &empty));
    }

    /// Root of another host, with the right key, cannot take the name of a storage node or agent.
    fn root_of_another_host_cannot_impersonate_a_node_or_agent(&self) {
        let site = &self.site;
        let pool = fs::read_to_string(site.file()).unwrap();
        let impostor = site.cluster.pfs().with_file_name("impostor.toml");
        let text = pool
            .replace("10.77.0.2:7511", "10.77.0.3:7599")
            .replacen("/flash\"", "/impostor\"", 2)
            .replace("/agent", "/impostor-agent");
        fs::write(&impostor, text).unwrap();
        let impostor = impostor.to_str().unwrap();
        let start = |daemon: &str, name: &str| {
            let arguments = [daemon, "--name", name, "--config", impostor];
            site.host(2).start_daemon(&arguments)
        };
        let (node, agent) = (start("storage", "n2"), start("agent", "n1"));
        node.wait_for_output("storage node `n2` may connect from 10.77.0.2, but this is 10.77.0.3");
        agent.wait_for_output("the agent of `n1` is connected already, from 10.77.0.1");
        drop((node, agent));
        let stolen = site.host(2).local.join("impostor/pool");
        let absent = format!("[ ! -e {} ]", stolen.display());
        expect_success(&site.host(2).shell(ROOT, &absent));
        let nodes = site.status().unwrap()["nodes"].clone();
        let online = nodes.as_array().unwrap().iter();
        assert_eq!(online.filter(|node| node["online"] == true).count(), 3);
        // The real agent of that host still serves its mounts.
        let read = format!("cat {}/out/sum0", self.striped);
        expect_success(&site.host(2).shell(USER, &read));
    }

    fn job_end_stages_out_and_removes_the_instance(self) {
        let SharedInstance { site, job, .. } = self;
        let output = job.finish(&site);
        assert!(!output.contains("error"), "{output}");
        assert!(output.contains("stage out"), "{output}");
        let result = |index| site.cluster.pfs().join(format!("results/out/from{index}"));
        for index in 0..3 {
            assert_eq!(fs::metadata(result(index)).unwrap().len(), 2_048_000);
        }
        assert_eq!(fs::metadata(result(2)).unwrap().uid(), USER.0);
        wait_until("no instance is left", || {
            let status = site.status()?;
            status["instances"].as_array()?.is_empty().then_some(())
        });
    }
}

/// One job on one pool; the scenarios share it because its set-up takes most of the time.
#[test]
fn job_on_three_hosts_shares_its_instance_and_keeps_others_out() {
    let shared = SharedInstance::start();
    shared.instance_lies_on_all_nodes();
    shared.write_on_one_host_is_read_on_all();
    shared.private_view_is_separate_on_each_host();
    shared.mounts_are_nosuid_and_nodev();
    shared.other_user_cannot_enter_mounts_or_daemon_directories();
    shared.other_user_cannot_use_the_job_or_administer_the_pool();
    shared.other_user_cannot_end_a_job_that_is_ending();
    shared.host_with_another_munge_key_is_rejected();
    shared.root_of_another_host_cannot_impersonate_a_node_or_agent();
    shared.job_end_stages_out_and_removes_the_instance();
}

#[test]
#[allow(clippy::zombie_processes, reason = "it is left behind on purpose")]
fn cluster_of_failed_test_is_removed() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let failing = std::thread::spawn(move || {
        let cluster = Cluster::new(1);
        let host = &cluster.hosts[0];
        expect_success(&host.shell(ROOT, "mount -t tmpfs none $PWD"));
        let script = "setsid sleep 1000 & echo $!; exec sleep 1000";
        let mut leaked =
            host.command(USER, "sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = String::new();
        let stdout = leaked.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut child).unwrap();
        let daemon = host.start_daemon(&["controller", "--config", "/nonexistent"]);
        sender.send((child.trim().to_owned(), cluster.pfs(), cluster.namespaces())).unwrap();
        std::mem::forget(daemon);
        panic!("on purpose");
    });
    assert!(failing.join().is_err());
    let (child, directory, namespaces) = receiver.recv().unwrap();
    wait_until("its processes end", || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
    for namespace in namespaces {
        let path = Path::new("/run/netns").join(&namespace);
        assert!(!path.exists(), "{namespace}");
    }
    assert!(!directory.exists());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(directory.parent().unwrap().to_str().unwrap()));
}

#[test]
fn operator_drains_and_undrains_a_node() {
    let site = Site::new();
    let create = ["create-persistent", "kept", "--capacity", "96MiB"];
    let destroy = ["destroy-persistent", "kept"];
    expect_success(&site.forebay(0, ROOT, &["drain", "n2"]));
    expect_success(&site.forebay(1, USER, &create));
    assert_eq!(site.nodes_of_instance("kept"), 2);
    let denied = site.forebay(2, OTHER, &destroy);
    expect_failure(&denied, "belongs to user 41000");
    expect_success(&site.forebay(2, USER, &destroy));
    expect_success(&site.forebay(0, ROOT, &["undrain", "n2"]));
    let mut for_user = create.to_vec();
    for_user.extend(["--owner", "41000:41000"]);
    let denied = site.forebay(1, OTHER, &for_user);
    expect_failure(&denied, "may not make requests for");
    expect_success(&site.forebay(1, ROOT, &for_user));
    assert_eq!(site.nodes_of_instance("kept"), 3);
    expect_success(&site.forebay(2, USER, &destroy));

    public_instance_keeps_its_owner(&site);
    instance_is_for_its_owner_or_the_group_that_was_named(&site);
    invalid_input_is_refused(&site);
    daemons_stop_on_sigterm(site);
}

/// Others may mount a public instance and stage into it, as into `/tmp`.
fn public_instance_keeps_its_owner(site: &Site) {
    let create = ["create-persistent", "open", "--capacity", "96MiB", "--public"];
    expect_success(&site.forebay(0, USER, &create));
    let pfs = site.cluster.pfs();
    fs::write(pfs.join("words"), "from the file system\n").unwrap();
    let run = |host: usize, user, directive: &str, body: &str| {
        let script = pfs.join(format!("host{host}.sh"));
        let text = format!("#!/bin/sh\n#DW persistentdw name=open\n{directive}\n{body}\n");
        fs::write(&script, text).unwrap();
        let arguments = ["run", "--pool", site.file(), script.to_str().unwrap()];
        site.host(host).forebay(user, &arguments)
    };
    let body = "echo mine > ${DW_PERSISTENT_STRIPED_open}mine";
    expect_success(&run(1, USER, "", body));
    let directive = format!(
        "#DW stage_in type=file source={}/words destination=$DW_PERSISTENT_STRIPED_open/words",
        pfs.display()
    );
    let body = "cd $DW_PERSISTENT_STRIPED_open && stat -c '%n %u:%g %a' . words\n\
                chmod 700 . && exit 3\n\
                rm -f mine && exit 4\n\
                echo other > other";
    let output = expect_success(&run(2, OTHER, &directive, body));
    assert!(output.contains(". 41000:41000 1777"), "{output}");
    assert!(output.contains("words 41001:41001 "), "{output}");
    expect_success(&site.forebay(2, USER, &["destroy-persistent", "open"]));
}

/// A primary group alone, which many users may share, gives no access.
fn instance_is_for_its_owner_or_the_group_that_was_named(site: &Site) {
    const COLLEAGUE: User = (41_002, USER.1);
    let pfs = site.cluster.pfs();
    let run = |user: User, name: &str, body: &str| {
        let script = pfs.join(format!("{name}-{}.sh", user.0));
        let text = format!("#!/bin/sh\n#DW persistentdw name={name}\nset -e\n{body}\n");
        fs::write(&script, text).unwrap();
        let arguments = ["run", "--pool", site.file(), script.to_str().unwrap()];
        site.host(1).forebay(user, &arguments)
    };
    let create = ["create-persistent", "own", "--capacity", "96MiB"];
    expect_success(&site.forebay(0, USER, &create));
    expect_failure(&run(COLLEAGUE, "own", "true"), "belongs to user 41000");
    let group = OTHER.1.to_string();
    let create = ["create-persistent", "team", "--capacity", "96MiB", "--group", &group];
    expect_success(&site.forebay(0, USER, &create));
    expect_failure(&run(COLLEAGUE, "team", "true"), "belongs to user 41000");
    let body = "cd $DW_PERSISTENT_STRIPED_team; stat -c '%u:%g %a' .; echo other >file";
    let output = expect_success(&run(OTHER, "team", body));
    assert!(output.contains("41000:41001 2770"), "{output}");
    let body = "stat -c '%u:%g' $DW_PERSISTENT_STRIPED_team/file";
    let output = expect_success(&run(USER, "team", body));
    assert!(output.contains("41001:41001"), "{output}");
    let unknown = site.forebay(
        0,
        USER,
        &["create-persistent", "x", "--capacity", "1GiB", "--group", "nogroup-x"],
    );
    expect_failure(&unknown, "there is no group `nogroup-x` on this host");
    for name in ["own", "team"] {
        expect_success(&site.forebay(2, USER, &["destroy-persistent", name]));
    }
}

fn invalid_input_is_refused(site: &Site) {
    let recover = site.forebay(0, USER, &["recover"]);
    assert_eq!(recover.status.code(), Some(2), "{}", text_of(&recover));
    let arguments = ["storage", "--name", "n9", "--config", site.file()];
    let mut daemon = site.host(0).start_daemon(&arguments);
    let code = wait_until("the daemon exits", || daemon.exit_code());
    assert_ne!(code, 0);
    daemon.wait_for_output("no storage node `n9`");
}

fn daemons_stop_on_sigterm(mut site: Site) {
    // A second daemon on the same directory is refused.
    let arguments = ["storage", "--config", site.file()];
    let mut second = site.host(1).start_daemon(&arguments);
    let code = wait_until("the second daemon exits", || second.exit_code());
    let output = second.output();
    assert!(code == 1 && output.contains("another Forebay daemon uses this directory"), "{output}");
    let daemons = site.agents.iter_mut().chain(&mut site.storage);
    for daemon in daemons.chain([&mut site.controller]) {
        assert_eq!(daemon.stop(), 0, "{}", daemon.output());
    }
}

#[test]
fn killed_daemons_restart_without_loss_of_synced_data() {
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    site.make_results_directory();
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={}/results/out",
        pfs.display()
    );
    let body = "mkdir ${DW_JOB_STRIPED}out";
    let mut job = site.start_job(&job_script(&pfs, &directives, body));
    job.wait_until_running(&site);
    let striped = site.host(0).local.join("jobs/job1/ss/out");
    let striped = striped.display().to_string();

    storage_daemon_is_killed_while_hosts_write(&mut site, &striped);
    restarted_agent_mounts_again(&mut site, &striped);

    // The controller is killed when the job ends, and restarts.
    site.controller.kill();
    fs::write(pfs.join("go"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(job.child.try_wait().unwrap().is_none(), "{}", job.output());
    site.controller = site.host(0).start_daemon(&["controller", "--config", site.file()]);
    job.finish(&site);
    let staged = pfs.join("results/out").display().to_string();
    for writer in &site.cluster.hosts {
        for (number, sum) in synced_files(&site, writer) {
            let file = format!("{staged}/{}-{number}", writer.name);
            expect_checksum(writer, &file, &sum);
        }
    }
}

/// Number and MD5 sum of the files that a host has written and synced.
fn synced_files(site: &Site, writer: &Host) -> Vec<(String, String)> {
    let list = site.cluster.pfs().join("results").join(&writer.name);
    let text = fs::read_to_string(list).unwrap_or_default();
    let split = |line: &str| {
        let (number, sum) = line.split_once(' ').unwrap();
        (number.to_owned(), sum.to_owned())
    };
    text.lines().map(split).collect()
}

fn expect_checksum(reader: &Host, file: &str, sum: &str) {
    let script = format!("[ \"$(md5sum < {file})\" = \"{sum}\" ]");
    expect_success(&reader.shell(USER, &script));
}

/// Every host writes 40 files, and records each after its `fsync`, outside the buffer.
fn start_writer(site: &Site, host: &Host, striped: &str) -> Child {
    let name = &host.name;
    let list = site.cluster.pfs().join("results").join(name);
    let list = list.display();
    let script = format!(
        "for i in $(seq 40); do head -c 400000 /dev/urandom > {list}.data; \
         sum=$(md5sum < {list}.data); \
         dd if={list}.data of={striped}/{name}-$i bs=100k conv=fsync status=none; \
         echo \"$i $sum\" >> {list}; sleep 0.02; done",
    );
    let mut command = host.command(USER, "sh");
    command.args(["-ec", &script]);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn storage_daemon_is_killed_while_hosts_write(site: &mut Site, striped: &str) {
    let hosts = site.cluster.hosts.iter();
    let writers: Vec<Child> = hosts.map(|host| start_writer(site, host, striped)).collect();
    wait_until("all hosts write", || {
        let mut hosts = site.cluster.hosts.iter();
        let all = hosts.all(|host| synced_files(site, host).len() >= 3);
        all.then_some(())
    });
    site.storage[1].kill();
    wait_until("the node is offline", || (site.node("n2")?["online"] == false).then_some(()));
    site.storage[1] = site.host(1).start_daemon(&["storage", "--config", site.file()]);
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        let text = text_of(&output);
        assert!(output.status.success(), "{text}\n{}", site.output());
    }
    for writer in &site.cluster.hosts {
        let files = synced_files(site, writer);
        assert_eq!(files.len(), 40);
        let some = files.iter().filter(|(number, sum)| number.contains('7') || sum.contains('7'));
        for (number, sum) in some.take(12) {
            for reader in &site.cluster.hosts {
                let file = format!("{striped}/{}-{number}", writer.name);
                expect_checksum(reader, &file, sum);
            }
        }
    }
}

fn restarted_agent_mounts_again(site: &mut Site, striped: &str) {
    let read = format!("cat {striped}/n1-1 > /dev/null");
    site.agents[2].kill();
    assert!(!site.host(2).shell(USER, &read).status.success());
    site.agents[2] = site.host(2).start_daemon(&["agent", "--config", site.file()]);
    wait_until("the instance is mounted again", || {
        let output = site.host(2).shell(USER, &read);
        output.status.success().then_some(())
    });
}
