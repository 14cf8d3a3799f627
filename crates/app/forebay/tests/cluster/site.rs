//! A pool over three hosts, and jobs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{Cluster, Daemon, Host, told, wait};

pub const ROOT: (u32, u32) = (0, 0);
pub const USER: (u32, u32) = (41_000, 41_000);
pub const OTHER: (u32, u32) = (41_001, 41_001);

/// A pool with a storage node and an agent on each of three hosts.
pub struct Site {
    pub agents: Vec<Daemon>,
    pub storage: Vec<Daemon>,
    pub controller: Daemon,
    pub configuration: PathBuf,
    /// Socket of a `munged` with another key.
    pub foreign: PathBuf,
    pub cluster: Cluster,
}

impl Site {
    pub fn new() -> Site {
        Site::patient(60)
    }

    /// One whose clients wait so many seconds for a storage node.
    pub fn patient(seconds: u64) -> Site {
        let mut cluster = Cluster::new(3);
        let socket = cluster.munged();
        let foreign = cluster.munged();
        let auth = format!("method = \"munge\"\nsocket = \"{}\"", socket.display());
        let configuration = cluster.configuration("pool.toml", &auth, "");
        let text = fs::read_to_string(&configuration).unwrap();
        let patience = format!("[agent]\npatience_seconds = {seconds}\n");
        fs::write(&configuration, text.replace("[agent]\n", &patience)).unwrap();
        let file = configuration.to_str().unwrap();
        let hosts = &cluster.hosts;
        let each = |daemon: &str| -> Vec<Daemon> {
            let serve = |host: &Host| host.serve(&[daemon, "--config", file]);
            hosts.iter().map(serve).collect()
        };
        let controller = hosts[0].serve(&["controller", "--config", file]);
        let site = Site {
            agents: each("agent"),
            storage: each("storage"),
            controller,
            configuration: configuration.clone(),
            foreign,
            cluster,
        };
        wait("all storage nodes are in service", || {
            let status = site.status()?;
            let nodes = status["nodes"].as_array()?;
            let up = nodes.iter().filter(|node| {
                node["online"] == true && site.heard(node["name"].as_str().unwrap())
            });
            (up.count() == 3).then_some(())
        });
        site
    }

    /// Whether a node's storage daemon has found the controller.
    pub fn heard(&self, name: &str) -> bool {
        let flash = self.cluster.hosts.iter().position(|host| host.name == name);
        let home = self
            .cluster
            .pfs()
            .with_file_name(format!("n{}", flash.unwrap() + 1));
        home.join("flash/pool").exists()
    }

    pub fn host(&self, index: usize) -> &Host {
        &self.cluster.hosts[index]
    }

    pub fn file(&self) -> &str {
        self.configuration.to_str().unwrap()
    }

    pub fn status(&self) -> Option<serde_json::Value> {
        let output = self
            .host(1)
            .forebay(OTHER, &["status", "--json", "--pool", self.file()]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Starts a job script of the user on the first host, mounted on all.
    pub fn start(&self, script: &str) -> Job {
        let path = self.cluster.pfs().join("job.sh");
        fs::write(&path, script).unwrap();
        let log = self.cluster.pfs().join("job.log");
        let out = fs::File::create(&log).unwrap();
        let arguments = ["run", "--pool", self.file(), "--hosts", "n1,n2,n3"];
        let child = self
            .host(0)
            .command(USER, env!("CARGO_BIN_EXE_forebay"))
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

    pub fn said(&self) -> String {
        let daemons = self.agents.iter().chain(&self.storage);
        daemons
            .chain([&self.controller])
            .map(|daemon| format!("--- {}\n{}", daemon.log.display(), daemon.said()))
            .collect()
    }
}

pub struct Job {
    pub child: Child,
    pub log: PathBuf,
}

impl Job {
    /// Waits until the script runs: then it is mounted everywhere.
    pub fn running(&mut self, site: &Site) {
        let started = site.cluster.pfs().join("started");
        wait("the job starts", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{status}: {}\n{}", self.said(), site.said());
            }
            started.exists().then_some(())
        });
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Lets the script end and waits for the job.
    pub fn end(mut self, site: &Site) -> String {
        fs::write(site.cluster.pfs().join("go"), "").unwrap();
        let status = wait("the job ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{}\n{}", self.said(), site.said());
        self.said()
    }
}

impl Drop for Job {
    /// A job whose test has failed does not outlive it: its mount name space would keep mounts of
    /// others alive.
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

/// A script with these directives that runs `body`, and then until it is let go.
pub fn script(pfs: &Path, directives: &str, body: &str) -> String {
    let pfs = pfs.display();
    format!(
        "#!/bin/sh\n{directives}\nset -e\n{body}\ntouch {pfs}/started\n\
         until [ -e {pfs}/go ]; do sleep 0.05; done\n"
    )
}

pub fn ok(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", told(output));
    told(output)
}
