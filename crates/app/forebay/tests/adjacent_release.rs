//! A pool of the last release is upgraded daemon by daemon, as in `docs/upgrade.md`, and works and keeps
//! its data at each step.
//!
//! Skipped unless `FOREBAY_RELEASE` names the directory with the release's `forebay` and `forebayd`:
//! `make interoperation`. Needs root: it creates network namespaces and acts as several users.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;

use std::fs;
use std::path::PathBuf;

use cluster::site::{Job, Site, USER, expect_success};
use cluster::{forebayd, program, wait_until};

const MAKE_FILES: &str = "mkdir -p d; for i in 1 2 3 4 5 6 7 8; do head -c 300000 /dev/urandom >d/$i; \
                          done; ln d/2 d/link; \
                          (cd d; md5sum [1-8] link) >sums; sync";
const CHECK_FILES: &str = "(cd d; md5sum --quiet -c ../sums) && [ d/2 -ef d/link ] && echo same";

/// A pool whose daemons are partly those of the release.
struct Upgrade {
    site: Site,
    /// The release's programs.
    release: PathBuf,
}

/// The `forebay` that is run.
#[derive(Clone, Copy, Debug)]
enum Command {
    OfRelease,
    OfThisTree,
}

impl Upgrade {
    fn command(&self, of: Command) -> PathBuf {
        match of {
            Command::OfRelease => self.release.join("forebay"),
            Command::OfThisTree => program("forebay"),
        }
    }

    fn forebay(&self, of: Command, host: usize, arguments: &[&str]) -> String {
        let mut command = self.site.host(host).command(USER, self.command(of).to_str().unwrap());
        command.args(arguments).args(["--pool", self.site.file()]);
        expect_success(&command.output().unwrap())
    }

    fn create(&self, of: Command, name: &str) {
        self.forebay(of, 0, &["create-persistent", name, "--capacity", "96MiB"]);
    }

    /// Runs a job on a host in a persistent instance.
    fn run_in(&self, of: Command, host: usize, name: &str, body: &str) -> String {
        let script = format!(
            "#!/bin/sh\n#DW persistentdw name={name}\nset -e\n\
             cd $DW_PERSISTENT_STRIPED_{name}\n{body}\n"
        );
        self.run(of, host, &script)
    }

    fn run(&self, of: Command, host: usize, script: &str) -> String {
        let path = self.site.cluster.pfs().join("script.sh");
        fs::write(&path, script).unwrap();
        self.forebay(of, host, &["run", path.to_str().unwrap()])
    }

    /// The instances have their files, read on each host, and a job with stages succeeds.
    fn check(&self, step: &str, of: Command, names: &[&str]) {
        for (host, name) in (0..3).flat_map(|host| names.iter().map(move |name| (host, name))) {
            let output = self.run_in(of, host, name, CHECK_FILES);
            assert!(output.contains("same"), "{step}, {of:?}, {name} on host {host}: {output}");
        }
        let pfs = self.site.cluster.pfs();
        let _ = fs::remove_file(pfs.join("results/numbers"));
        let script = format!(
            "#!/bin/sh\n#DW jobdw capacity=96MiB access_mode=striped type=scratch\n\
             #DW stage_in source={0}/input destination=$DW_JOB_STRIPED/input type=file\n\
             #DW stage_out source=$DW_JOB_STRIPED/numbers destination={0}/results/numbers type=file\n\
             sort -n $DW_JOB_STRIPED/input >$DW_JOB_STRIPED/numbers\n",
            pfs.display()
        );
        self.run(of, 1, &script);
        let sorted = fs::read_to_string(pfs.join("results/numbers")).unwrap();
        assert_eq!(sorted, "1\n2\n3\n", "{step}, {of:?}");
    }

    fn upgrade_controller(&mut self) {
        self.site.controller.kill();
        let arguments = ["controller", "--config", self.site.file()];
        self.site.controller = self.site.host(0).start_daemon_of(forebayd(), &arguments);
        self.wait_until_online();
    }

    fn upgrade_storage(&mut self, host: usize) {
        self.site.storage[host].kill();
        let arguments = ["storage", "--config", self.site.file()];
        self.site.storage[host] = self.site.host(host).start_daemon_of(forebayd(), &arguments);
        self.wait_until_online();
    }

    fn upgrade_agent(&mut self, host: usize) {
        self.site.agents[host].stop();
        let arguments = ["agent", "--config", self.site.file()];
        self.site.agents[host] = self.site.host(host).start_daemon_of(forebayd(), &arguments);
    }

    fn wait_until_online(&self) {
        wait_until("all storage nodes are online", || {
            let status = self.site.status()?;
            let nodes = status["nodes"].as_array()?;
            nodes.iter().all(|node| node["online"] == true).then_some(())
        });
    }
}

/// A job that is mounted on all hosts, writes on each, and verifies its files after [`Job::finish`].
fn start_mounted_job(site: &Site) -> Job {
    let pfs = site.cluster.pfs();
    let script = format!(
        "#!/bin/sh\n#DW jobdw capacity=96MiB access_mode=striped type=scratch\nset -e\n\
         cd $DW_JOB_STRIPED\n{MAKE_FILES}\ntouch {0}/started\n\
         until [ -e {0}/go ]; do date >clock; sleep 0.05; done\n{CHECK_FILES}\n",
        pfs.display()
    );
    let mut job = site.start_job(&script);
    job.wait_until_running(site);
    job
}

#[test]
fn pool_of_the_last_release_is_upgraded_daemon_by_daemon() {
    let Some(release) = std::env::var_os("FOREBAY_RELEASE").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: FOREBAY_RELEASE is not set; `make interoperation` builds the last release"
        );
        return;
    };
    let site = Site::of_release(&release.join("forebayd"), &[]);
    let pfs = site.cluster.pfs();
    site.make_results_directory();
    fs::write(pfs.join("input"), "3\n1\n2\n").unwrap();
    let mut pool = Upgrade { site, release };
    pool.create(Command::OfRelease, "first");
    pool.run_in(Command::OfRelease, 0, "first", MAKE_FILES);
    pool.check("before", Command::OfRelease, &["first"]);

    pool.upgrade_controller();
    for of in [Command::OfRelease, Command::OfThisTree] {
        pool.check("new controller", of, &["first"]);
    }
    pool.create(Command::OfThisTree, "second");
    pool.run_in(Command::OfThisTree, 1, "second", MAKE_FILES);

    // If the version of the storage protocol has changed, no instance may be mounted meanwhile, and the
    // checks between have to go.
    let job = start_mounted_job(&pool.site);
    for host in 0..3 {
        pool.upgrade_storage(host);
        pool.check("storage daemons of both", Command::OfRelease, &["first", "second"]);
    }
    assert!(job.finish(&pool.site).contains("same"));
    for host in 0..3 {
        pool.upgrade_agent(host);
    }
    pool.check("all new", Command::OfThisTree, &["first", "second"]);
    pool.create(Command::OfThisTree, "third");
    pool.run_in(Command::OfThisTree, 2, "third", MAKE_FILES);
    pool.check("written by the new", Command::OfThisTree, &["first", "second", "third"]);
}
