//! A pool over three hosts: controller, storage daemons and agents, and jobs of users on it.
//!
//! Needs root, for it makes network name spaces and acts as several users.
#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed

#[allow(dead_code)] // other tests use more of it
mod cluster;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use cluster::site::{OTHER, ROOT, Site, USER, ok, script};
use cluster::{Cluster, Host, told, wait};

#[test]
fn hosts_share_an_instance_and_strangers_do_not() {
    let site = Site::new();
    let pfs = site.cluster.pfs();
    fs::create_dir(pfs.join("input")).unwrap();
    fs::write(pfs.join("input/words"), "from the file system\n").unwrap();
    fs::create_dir(pfs.join("results")).unwrap();
    std::os::unix::fs::chown(pfs.join("results"), Some(USER.0), Some(USER.1)).unwrap();
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped,private\n\
         #DW stage_in type=directory source={0}/input destination=$DW_JOB_STRIPED/input\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={0}/results/out",
        pfs.display()
    );
    let body = "grep -q 'from the file' ${DW_JOB_STRIPED}input/words\n\
                mkdir ${DW_JOB_STRIPED}out; chmod 755 ${DW_JOB_STRIPED}out\n\
                echo from n1 > ${DW_JOB_PRIVATE}own";
    let mut job = site.start(&script(&pfs, &directives, body));
    job.running(&site);
    let striped = site.host(0).local.join("jobs/job1/ss");
    let private = site.host(0).local.join("jobs/job1/private");
    let (striped, private) = (striped.display(), private.display());

    // It lies on all nodes.
    let status = site.status().unwrap();
    assert_eq!(status["instances"][0]["nodes"].as_array().unwrap().len(), 3);

    // Whoever reads after a write sees it, on whichever host.
    for (index, host) in site.cluster.hosts.iter().enumerate() {
        let script = format!(
            "dd if=/dev/urandom of={striped}/out/from{index} bs=100k count=20 status=none; \
             md5sum < {striped}/out/from{index} > {striped}/out/sum{index}"
        );
        ok(&host.shell(USER, &script));
    }
    for host in &site.cluster.hosts {
        for index in 0..3 {
            let script = format!(
                "[ \"$(md5sum < {striped}/out/from{index})\" = \"$(cat {striped}/out/sum{index})\" ]"
            );
            ok(&host.shell(USER, &script));
        }
    }
    // A private view is each host's own.
    ok(&site.host(1).shell(USER, &format!("[ ! -e {private}/own ]")));
    ok(&site.host(0).shell(USER, &format!("[ -e {private}/own ]")));

    // Nobody becomes someone else by a program in it, or reaches a device.
    let mounts = ok(&site.host(0).shell(USER, "grep ^forebay- /proc/mounts"));
    assert!(mounts.contains("nosuid,nodev"), "{mounts}");

    // Another user gets nothing, on any host and by any way.
    for host in &site.cluster.hosts {
        let look = host.shell(OTHER, &format!("ls {striped}/"));
        assert!(!look.status.success());
        assert!(told(&look).contains("Permission denied"), "{}", told(&look));
    }
    // Nor past the daemons, in their directories, nor under the job's own name.
    let local = site.host(0).local.display();
    for closed in [
        "agent/mounts/i*",
        "flash/node.redb",
        "flash/journals",
        "flash/flash/log",
        "flash/flash/objects",
        "controller",
        "controller/secret",
        "controller/controller.redb",
    ] {
        let look = site.host(0).shell(
            OTHER,
            &format!("p=$(echo {local}/{closed}); ls $p/ || cat $p"),
        );
        let said = told(&look);
        assert!(
            !look.status.success() && said.contains("Permission denied"),
            "{closed}: {said}"
        );
    }
    let theirs = pfs.join("theirs.sh");
    fs::write(
        &theirs,
        "#!/bin/sh\n#DW jobdw capacity=1MiB type=scratch access_mode=striped\n",
    )
    .unwrap();
    let theirs = theirs.to_str().unwrap();
    let arguments = ["run", "--pool", site.file(), "--job-id", "job1", theirs];
    let run = site.host(1).forebay(OTHER, &arguments);
    assert!(
        !run.status.success() && told(&run).contains("belongs to user 41000"),
        "{}",
        told(&run)
    );
    let take = site.host(1).forebay(
        OTHER,
        &[
            "recover",
            "--job-id",
            "job1",
            "--discard",
            "--pool",
            site.file(),
        ],
    );
    assert!(!take.status.success() && told(&take).contains("belongs to user 41000"));
    let drain = site
        .host(1)
        .forebay(OTHER, &["drain", "n1", "--pool", site.file()]);
    assert!(
        told(&drain).contains("only an operator"),
        "{}",
        told(&drain)
    );

    // A host whose munged has another key is not believed, whatever it says it is.
    let auth = format!(
        "method = \"munge\"\nsocket = \"{}\"",
        site.foreign.display()
    );
    let foreign = site.cluster.configuration("foreign.toml", &auth, "");
    let text = fs::read_to_string(&foreign)
        .unwrap()
        .replace("/agent", "/foreign-agent");
    fs::write(&foreign, text.replace("controller.socket", "no.socket")).unwrap();
    let foreign = foreign.to_str().unwrap();
    let status = site.host(2).forebay(ROOT, &["status", "--pool", foreign]);
    assert!(!status.status.success(), "{}", told(&status));
    assert!(told(&status).contains("MUNGE"), "{}", told(&status));
    let mut agent = site.host(2).serve(&["agent", "--config", foreign]);
    agent.says("MUNGE: ");
    site.controller.says("a connection is refused");
    assert_eq!(agent.ended(), None, "it goes on trying");
    let mounts = site.host(2).local.join("foreign-agent/mounts");
    let empty = format!("[ -z \"$(ls -A {})\" ]", mounts.display());
    ok(&site.host(2).shell(ROOT, &empty));
    drop(agent);

    // Nor is root of another host, whose munged has the right key, somebody else's storage node
    // or agent.
    let pool = fs::read_to_string(site.file()).unwrap();
    let thief = site.cluster.pfs().with_file_name("thief.toml");
    let text = pool
        .replace("10.77.0.2:7511", "10.77.0.3:7599")
        .replacen("/flash\"", "/thief\"", 2)
        .replace("/agent", "/thief-agent");
    fs::write(&thief, text).unwrap();
    let thief = thief.to_str().unwrap();
    let serve = |daemon: &str, name: &str| {
        site.host(2)
            .serve(&[daemon, "--name", name, "--config", thief])
    };
    let (node, agent) = (serve("storage", "n2"), serve("agent", "n1"));
    node.says("storage node `n2` may connect from 10.77.0.2, but this is 10.77.0.3");
    agent.says("the agent of `n1` is connected already, from 10.77.0.1");
    drop((node, agent));
    let stolen = site.host(2).local.join("thief/pool");
    ok(&site
        .host(2)
        .shell(ROOT, &format!("[ ! -e {} ]", stolen.display())));
    let nodes = site.status().unwrap()["nodes"].clone();
    let online = nodes.as_array().unwrap().iter();
    assert_eq!(online.filter(|node| node["online"] == true).count(), 3);

    // What was there is there as before, on the host in question, too.
    ok(&site.host(2).shell(USER, &format!("cat {striped}/out/sum0")));

    let said = ok_text(job.end(&site));
    assert!(said.contains("stage out"), "{said}");
    for index in 0..3 {
        let file = pfs.join(format!("results/out/from{index}"));
        assert_eq!(fs::metadata(&file).unwrap().len(), 2_048_000);
    }
    let owner = fs::metadata(pfs.join("results/out/from2")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), USER.0);
    wait("nothing is left", || {
        let status = site.status()?;
        status["instances"].as_array()?.is_empty().then_some(())
    });
}

#[test]
#[allow(clippy::zombie_processes, reason = "it is left behind on purpose")]
fn a_test_that_fails_leaves_nothing_behind() {
    let (told, left) = std::sync::mpsc::channel();
    let fails = std::thread::spawn(move || {
        let cluster = Cluster::new(1);
        let host = &cluster.hosts[0];
        ok(&host.shell(ROOT, "mount -t tmpfs none $PWD"));
        let mut forgotten = host.command(USER, "sh");
        let script = "setsid sleep 1000 & echo $!; exec sleep 1000";
        let mut forgotten = forgotten
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = String::new();
        let said = forgotten.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut child).unwrap();
        let daemon = host.serve(&["controller", "--config", "/nonexistent"]);
        told.send((child.trim().to_owned(), cluster.pfs(), cluster.spaces()))
            .unwrap();
        std::mem::forget(daemon);
        panic!("on purpose");
    });
    assert!(fails.join().is_err());
    let (child, directory, spaces) = left.recv().unwrap();
    wait("its processes end", || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let gone = state.is_empty() || state.contains(") Z ");
        gone.then_some(())
    });
    for space in spaces {
        assert!(!Path::new("/run/netns").join(&space).exists(), "{space}");
    }
    assert!(!directory.exists());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(directory.parent().unwrap().to_str().unwrap()));
}

#[test]
fn the_example_is_a_good_configuration() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/pool");
    let check = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "controller", "--check", "--config"])
            .arg(file.path())
            .output()
            .unwrap()
    };
    let text = fs::read_to_string(examples.join("pool.toml")).unwrap();
    let good = ok(&check(&text));
    assert!(good.contains("`flash` is configured well"), "{good}");
    let bad = check(&text.replacen("10.0.0.12:7511", "10.0.0.12", 1));
    assert_eq!(bad.status.code(), Some(2));
    let line = text.lines().position(|l| l.contains("10.0.0.12:7511"));
    let reason = format!(":{}: `10.0.0.12` has no port", line.unwrap() + 1);
    assert!(told(&bad).contains(&reason), "{}", told(&bad));
    for daemon in ["controller", "storage", "agent"] {
        let unit = fs::read_to_string(examples.join(format!("forebay-{daemon}.service"))).unwrap();
        assert!(unit.contains(&format!(
            "forebay serve {daemon} --config /etc/forebay/pool.toml"
        )));
    }
}

#[test]
fn an_operator_drains_a_node_and_stops_daemons() {
    let mut site = Site::new();
    let file = site.file().to_owned();
    let forebay = |host: &Host, user, arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--pool", &file]);
        host.forebay(user, &all)
    };
    let nodes_of = |name: &str| {
        let status = site.status().unwrap();
        let instances = status["instances"].as_array().unwrap().clone();
        let found = instances.iter().find(|i| i["label"] == name);
        let nodes = found.map(|instance| instance["nodes"].as_array().unwrap().len());
        nodes.unwrap_or(0)
    };
    let create = ["create-persistent", "kept", "--capacity", "96MiB"];
    ok(&forebay(site.host(0), ROOT, &["drain", "n2"]));
    ok(&forebay(site.host(1), USER, &create));
    assert_eq!(nodes_of("kept"), 2);
    let gone = ["destroy-persistent", "kept"];
    let other = forebay(site.host(2), OTHER, &gone);
    assert!(
        told(&other).contains("belongs to user 41000"),
        "{}",
        told(&other)
    );
    ok(&forebay(site.host(2), USER, &gone));
    ok(&forebay(site.host(0), ROOT, &["undrain", "n2"]));
    let mut create = create.to_vec();
    create.extend(["--owner", "41000:41000"]);
    let other = forebay(site.host(1), OTHER, &create);
    assert!(
        told(&other).contains("may not ask in the name of"),
        "{}",
        told(&other)
    );
    ok(&forebay(site.host(1), ROOT, &create));
    assert_eq!(nodes_of("kept"), 3);
    ok(&forebay(site.host(2), USER, &gone));

    // A public instance stays its owner's, whoever stages into it and mounts it.
    let public = [
        "create-persistent",
        "open",
        "--capacity",
        "96MiB",
        "--public",
    ];
    ok(&forebay(site.host(0), USER, &public));
    let pfs = site.cluster.pfs();
    fs::write(pfs.join("words"), "from the file system\n").unwrap();
    let run = |host: &Host, user, directive: &str, body: &str| {
        let script = pfs.join(format!("{}.sh", host.name));
        let text = format!("#!/bin/sh\n#DW persistentdw name=open\n{directive}\n{body}\n");
        fs::write(&script, text).unwrap();
        host.forebay(user, &["run", "--pool", &file, script.to_str().unwrap()])
    };
    let body = "echo mine > ${DW_PERSISTENT_STRIPED_open}mine";
    ok(&run(site.host(1), USER, "", body));
    let directive = format!(
        "#DW stage_in type=file source={}/words destination=$DW_PERSISTENT_STRIPED_open/words",
        pfs.display()
    );
    let body = "cd $DW_PERSISTENT_STRIPED_open && stat -c '%n %u:%g %a' . words\n\
                chmod 700 . && exit 3\n\
                rm -f mine && exit 4\n\
                echo other > other";
    let said = ok(&run(site.host(2), OTHER, &directive, body));
    assert!(said.contains(". 41000:41000 1777"), "{said}");
    assert!(said.contains("words 41001:41001 "), "{said}");
    ok(&forebay(
        site.host(2),
        USER,
        &["destroy-persistent", "open"],
    ));

    // What makes no sense is told with exit status 2.
    let unnamed = forebay(site.host(0), USER, &["recover"]);
    assert_eq!(unnamed.status.code(), Some(2), "{}", told(&unnamed));
    let node = site.host(0).forebay(
        ROOT,
        &["serve", "storage", "--name", "n9", "--config", &file],
    );
    assert!(
        told(&node).contains("no storage node `n9`"),
        "{}",
        told(&node)
    );

    // A second daemon on the same directory is refused, the first one ends when it is told to.
    let mut second = site.host(1).serve(&["storage", "--config", &file]);
    let code = wait("the second daemon gives up", || second.ended());
    assert!(
        code == 1 && second.said().contains("another Forebay daemon"),
        "{}",
        second.said()
    );
    let daemons = site.agents.iter_mut().chain(&mut site.storage);
    for daemon in daemons.chain([&mut site.controller]) {
        assert_eq!(daemon.stop(), 0, "{}", daemon.said());
    }
}

fn ok_text(text: String) -> String {
    assert!(!text.contains("error"), "{text}");
    text
}

#[test]
fn killed_daemons_come_back_and_nothing_synced_is_lost() {
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    fs::create_dir(pfs.join("results")).unwrap();
    std::os::unix::fs::chown(pfs.join("results"), Some(USER.0), Some(USER.1)).unwrap();
    let directives = format!(
        "#DW jobdw capacity=96MiB type=scratch access_mode=striped\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={}/results/out",
        pfs.display()
    );
    let mut job = site.start(&script(&pfs, &directives, "mkdir ${DW_JOB_STRIPED}out"));
    job.running(&site);
    let striped = site.host(0).local.join("jobs/job1/ss/out");

    // Every host writes files, and notes those that are synced beside the buffer.
    let write = |host: &Host| {
        let name = &host.name;
        let sums = pfs.join("results").join(name);
        let sums = sums.display();
        let script = format!(
            "for i in $(seq 40); do head -c 400000 /dev/urandom > {sums}.data; \
             sum=$(md5sum < {sums}.data); \
             dd if={sums}.data of={}/{name}-$i bs=100k conv=fsync status=none; \
             echo \"$i $sum\" >> {sums}; sleep 0.02; done",
            striped.display(),
        );
        let mut command = host.command(USER, "sh");
        command.args(["-ec", &script]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let writers: Vec<Child> = site.cluster.hosts.iter().map(write).collect();
    wait("all hosts write", || {
        let noted = |host: &Host| fs::read_to_string(pfs.join("results").join(&host.name)).ok();
        let some = |text: String| text.lines().count() >= 3;
        site.cluster
            .hosts
            .iter()
            .all(|host| noted(host).is_some_and(some))
            .then_some(())
    });
    site.storage[1].kill();
    wait("its failure is seen", || {
        let status = site.status()?;
        let nodes = status["nodes"].as_array()?;
        nodes
            .iter()
            .any(|n| n["name"] == "n2" && n["online"] == false)
            .then_some(())
    });
    site.storage[1] = site.host(1).serve(&["storage", "--config", site.file()]);
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}\n{}",
            told(&output),
            site.said()
        );
    }
    for reader in &site.cluster.hosts {
        for writer in &site.cluster.hosts {
            let sums = fs::read_to_string(pfs.join("results").join(&writer.name)).unwrap();
            assert_eq!(sums.lines().count(), 40);
            for line in sums.lines().filter(|line| line.contains('7')).take(12) {
                let (number, sum) = line.split_once(' ').unwrap();
                let file = format!("{}/{}-{number}", striped.display(), writer.name);
                let script = format!("[ \"$(md5sum < {file})\" = \"{sum}\" ]");
                ok(&reader.shell(USER, &script));
            }
        }
    }

    // An agent that comes back mounts again what was mounted.
    site.agents[2].kill();
    let look = format!("cat {}/n1-1 > /dev/null", striped.display());
    assert!(!site.host(2).shell(USER, &look).status.success());
    site.agents[2] = site.host(2).serve(&["agent", "--config", site.file()]);
    wait("it is mounted again", || {
        site.host(2)
            .shell(USER, &look)
            .status
            .success()
            .then_some(())
    });

    // The controller goes while the job ends, and comes back.
    site.controller.kill();
    fs::write(pfs.join("go"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(job.child.try_wait().unwrap().is_none(), "{}", job.said());
    site.controller = site.host(0).serve(&["controller", "--config", site.file()]);
    job.end(&site);
    for host in &site.cluster.hosts {
        for line in fs::read_to_string(pfs.join("results").join(&host.name))
            .unwrap()
            .lines()
        {
            let (number, sum) = line.split_once(' ').unwrap();
            let file = format!("{}/results/out/{}-{number}", pfs.display(), host.name);
            ok(&host.shell(ROOT, &format!("[ \"$(md5sum < {file})\" = \"{sum}\" ]")));
        }
    }
}
