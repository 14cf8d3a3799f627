//! A pool over three hosts, and jobs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use super::{Cluster, Daemon, Host, User, forebayd, program, text_of, wait_until};

pub const ROOT: User = (0, 0);
pub const USER: User = (41_000, 41_000);
pub const OTHER: User = (41_001, 41_001);

/// A pool with a storage node and an agent on each of three hosts.
pub struct Site {
    pub agents: Vec<Daemon>,
    pub storage: Vec<Daemon>,
    pub controller: Daemon,
    pub configuration: PathBuf,
    /// Socket of a `munged` with another key.
    pub foreign_munged: PathBuf,
    /// Socket of the `munged` that all hosts use.
    pub munged: PathBuf,
    pub cluster: Cluster,
}

impl Site {
    pub fn new() -> Site {
        Site::with_timeout(60)
    }

    /// A pool whose clients wait at most `seconds` for a storage node.
    pub fn with_timeout(seconds: u64) -> Site {
        Site::with_entries(&[("agent", &format!("storage_timeout_seconds = {seconds}"))])
    }

    /// A pool with more entries in sections of its configuration.
    pub fn with_entries(entries: &[(&str, &str)]) -> Site {
        Site::of_release(forebayd(), entries)
    }

    /// As [`with_entries`](Site::with_entries), with this `forebayd`, which may be that of another
    /// release.
    pub fn of_release(forebayd: &Path, entries: &[(&str, &str)]) -> Site {
        let mut cluster = Cluster::new(3);
        let socket = cluster.start_munged();
        let foreign_munged = cluster.start_munged();
        let auth = format!("method = \"munge\"\nsocket = \"{}\"", socket.display());
        let configuration = cluster.write_configuration("pool.toml", &auth, "");
        let mut text = fs::read_to_string(&configuration).unwrap();
        for (section, entry) in entries {
            let heading = format!("[{section}]\n");
            text = text.replace(&heading, &format!("{heading}{entry}\n"));
        }
        fs::write(&configuration, text).unwrap();
        let file = configuration.to_str().unwrap();
        let hosts = &cluster.hosts;
        let start_on_each = |daemon: &str| -> Vec<Daemon> {
            let start = |host: &Host| host.start_daemon_of(forebayd, &[daemon, "--config", file]);
            hosts.iter().map(start).collect()
        };
        let controller = hosts[0].start_daemon_of(forebayd, &["controller", "--config", file]);
        let site = Site {
            agents: start_on_each("agent"),
            storage: start_on_each("storage"),
            controller,
            configuration: configuration.clone(),
            foreign_munged,
            munged: socket,
            cluster,
        };
        wait_until("all storage nodes are in service", || {
            let status = site.status()?;
            let nodes = status["nodes"].as_array()?;
            let in_service = nodes.iter().filter(|node| {
                node["online"] == true && site.has_joined(node["name"].as_str().unwrap())
            });
            (in_service.count() == 3).then_some(())
        });
        site
    }

    /// Whether a node's storage daemon has registered with the controller.
    fn has_joined(&self, name: &str) -> bool {
        let home = self.cluster.pfs().with_file_name(name);
        home.join("flash/pool").exists()
    }

    pub fn host(&self, index: usize) -> &Host {
        &self.cluster.hosts[index]
    }

    /// The pool's configuration file.
    pub fn file(&self) -> &str {
        self.configuration.to_str().unwrap()
    }

    /// Runs `forebay` with this pool on a host.
    pub fn forebay(&self, host: usize, user: User, arguments: &[&str]) -> Output {
        let mut all = arguments.to_vec();
        all.extend(["--pool", self.file()]);
        self.host(host).forebay(user, &all)
    }

    pub fn status(&self) -> Option<serde_json::Value> {
        let output = self.forebay(1, OTHER, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// A storage node in the status.
    pub fn node(&self, name: &str) -> Option<serde_json::Value> {
        let status = self.status()?;
        let mut nodes = status["nodes"].as_array()?.iter();
        nodes.find(|node| node["name"] == name).cloned()
    }

    /// Number of storage nodes that hold an instance; 0 if there is no such instance.
    pub fn nodes_of_instance(&self, label: &str) -> usize {
        let status = self.status().unwrap();
        let mut instances = status["instances"].as_array().unwrap().iter();
        let found = instances.find(|instance| instance["label"] == label);
        found.map_or(0, |instance| instance["nodes"].as_array().unwrap().len())
    }

    /// Creates a directory of `USER` on the parallel file system.
    pub fn make_results_directory(&self) -> PathBuf {
        let results = self.cluster.pfs().join("results");
        fs::create_dir(&results).unwrap();
        std::os::unix::fs::chown(&results, Some(USER.0), Some(USER.1)).unwrap();
        results
    }

    /// Starts a job script of `USER` on the first host, mounted on all, as job `job1`.
    pub fn start_job(&self, script: &str) -> Job {
        let path = self.cluster.pfs().join("job.sh");
        fs::write(&path, script).unwrap();
        let log = self.cluster.pfs().join("job.log");
        let out = fs::File::create(&log).unwrap();
        let arguments = ["run", "--pool", self.file(), "--hosts", "n1,n2,n3"];
        let child = self
            .host(0)
            .command(USER, program("forebay").to_str().unwrap())
            .args(arguments)
            .args(["--job-id", "job1"])
            .arg(&path)
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Job { child, log }
    }

    /// The output of all daemons.
    pub fn output(&self) -> String {
        let daemons = self.agents.iter().chain(&self.storage);
        daemons
            .chain([&self.controller])
            .map(|daemon| format!("--- {}\n{}", daemon.log.display(), daemon.output()))
            .collect()
    }
}

/// A running job.
pub struct Job {
    pub child: Child,
    pub log: PathBuf,
}

impl Job {
    /// Waits until the script runs, and so is mounted on all hosts.
    pub fn wait_until_running(&mut self, site: &Site) {
        let started = site.cluster.pfs().join("started");
        wait_until("the job starts", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{status}: {}\n{}", self.output(), site.output());
            }
            started.exists().then_some(())
        });
    }

    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Lets the script end, waits for the job to succeed, and returns its output.
    pub fn finish(mut self, site: &Site) -> String {
        fs::write(site.cluster.pfs().join("go"), "").unwrap();
        let status = wait_until("the job ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{}\n{}", self.output(), site.output());
        self.output()
    }
}

impl Drop for Job {
    /// A job whose test has failed must not outlive it: its mount namespace would keep other
    /// mounts busy.
    fn drop(&mut self) {
        let _ = fs::write(self.log.with_file_name("go"), "");
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job script that runs `body` and then waits for [`Job::finish`].
pub fn job_script(pfs: &Path, directives: &str, body: &str) -> String {
    let pfs = pfs.display();
    format!(
        "#!/bin/sh\n{directives}\nset -e\n{body}\ntouch {pfs}/started\n\
         until [ -e {pfs}/go ]; do sleep 0.05; done\n"
    )
}

/// The output of a command that must have succeeded.
pub fn expect_success(output: &Output) -> String {
    assert!(output.status.success(), "{}", text_of(output));
    text_of(output)
}

/// Asserts that a command failed with a message that contains `reason`.
pub fn expect_failure(output: &Output, reason: &str) {
    let text = text_of(output);
    assert!(!output.status.success() && text.contains(reason), "{text}");
}
