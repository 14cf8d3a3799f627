//! Slurm with workflows: the plugin, `job_submit.lua`, and the controller.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cluster::site::{ROOT, Site, USER, expect_success};
use crate::cluster::slurm::{Plugin, SlurmSite};
use crate::cluster::{Daemon, Host, User, built_program, text_of, wait_until, workflow_plugin};

/// Slurm with workflows on three hosts.
pub struct WorkflowSite {
    pub controller: Daemon,
    /// The servers of the nodes.
    _servers: Vec<Daemon>,
    pub slurm: SlurmSite,
    pub configuration: PathBuf,
}

impl WorkflowSite {
    /// Starts everything, unless Slurm is not installed.
    pub fn start(wait_for_nodes_seconds: u64) -> Option<WorkflowSite> {
        let slurm = SlurmSite::start_prepared(Plugin::DataWarp, "", |site, directory| {
            prepare(site, directory, wait_for_nodes_seconds)
        })?;
        let configuration = slurm.directory().join("workflow.toml");
        let controller = start_controller(&slurm);
        let start = |host: &Host| {
            let mut command = workflow_command(host, slurm.directory());
            command.arg("node").env("FOREBAY_LOG", "warn");
            host.start_logged("workflow-node", command)
        };
        let servers: Vec<Daemon> = slurm.site.cluster.hosts.iter().map(start).collect();
        for server in &servers {
            server.wait_for_output("the server of this node is running");
        }
        Some(WorkflowSite { controller, _servers: servers, slurm, configuration })
    }

    /// Kills the controller with SIGKILL and starts it again.
    pub fn restart_controller(&mut self) {
        self.controller.kill();
        self.controller = start_controller(&self.slurm);
    }

    /// Runs `forebay workflow` on the second host.
    pub fn forebay(&self, user: User, arguments: &[&str]) -> Output {
        let mut all = vec!["workflow"];
        all.extend(arguments);
        all.extend(["--config", self.configuration.to_str().unwrap()]);
        self.slurm.site.host(1).forebay(user, &all)
    }

    /// The status of all workflows of `user`.
    pub fn status(&self, user: User) -> serde_json::Value {
        let text = expect_success(&self.forebay(user, &["status", "--json"]));
        serde_json::from_str(&text).unwrap()
    }

    /// A job in the status of root.
    pub fn job(&self, id: &str) -> serde_json::Value {
        let status = self.status(ROOT);
        let jobs = status["workflows"].as_array().unwrap().iter();
        let mut jobs = jobs.flat_map(|workflow| workflow["jobs"].as_array().unwrap());
        jobs.find(|job| job["id"].as_u64() == id.parse().ok()).cloned().unwrap_or_default()
    }

    /// Waits until the controller gives a job this state.
    pub fn wait_for(&self, id: &str, state: &str) {
        wait_until(&format!("job {id} is {state}"), || {
            (self.job(id)["state"] == state).then_some(())
        });
    }

    /// A path of the user's data of a workflow on a host.
    pub fn data(&self, host: usize, workflow: &str, path: &str) -> String {
        let local = self.slurm.site.host(host).local.display();
        format!("{local}/nvme/ada/{workflow}/{path}")
    }

    /// The output of a shell script on a host.
    pub fn shell(&self, host: usize, user: User, script: &str) -> String {
        expect_success(&self.slurm.site.host(host).shell(user, script))
    }

    /// Logs of a job and of workflows, for the message of a failed test.
    pub fn diagnosis(&self, id: &str) -> String {
        let mut text = format!("{}\n{:#}\n", self.slurm.diagnosis(id), self.job(id));
        for host in 0..3 {
            let local = self.slurm.site.host(host).local.display();
            let script = format!("cat {local}/prolog.log {local}/epilog.log || true");
            text.push_str(&text_of(&self.slurm.site.host(host).shell(ROOT, &script)));
        }
        text + &self.controller.output()
    }

    /// Waits until Slurm gives a job a state; fails with logs.
    pub fn wait_for_slurm(&self, id: &str, state: &str) {
        let started = std::time::Instant::now();
        while self.slurm.job(id, "JobState").as_deref() != Some(state) {
            let limit = std::time::Duration::from_secs(40);
            assert!(started.elapsed() < limit, "job {id} is not {state}\n{}", self.diagnosis(id));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Submits a script with a body, as [`SlurmSite::submit`].
    pub fn submit(&self, body: &str, arguments: &[&str]) -> String {
        self.slurm.submit(&format!("#!/bin/sh\n{body}\n"), arguments)
    }

    /// The message with which a submission is refused.
    pub fn refusal(&self, body: &str, arguments: &[&str]) -> String {
        let output = self.slurm.try_submit(&format!("#!/bin/sh\n{body}\n"), arguments);
        assert!(!output.status.success(), "{}", text_of(&output));
        text_of(&output)
    }
}

/// A command of `forebay-workflow` on a host.
fn workflow_command(host: &Host, directory: &Path) -> Command {
    let program = built_program("forebay-workflow");
    let mut command = host.command(ROOT, program.to_str().unwrap());
    command
        .env("SLURM_CONF", directory.join("slurm.conf"))
        .env("FOREBAY_WORKFLOW", directory.join("workflow.toml"));
    command
}

fn start_controller(slurm: &SlurmSite) -> Daemon {
    let mut command = workflow_command(slurm.site.host(0), slurm.directory());
    command.arg("controller").env("FOREBAY_LOG", "warn");
    let controller = slurm.site.host(0).start_logged("workflow", command);
    controller.wait_for_output("the controller is running");
    controller
}

/// Writes the configuration of workflows; returns more lines of `slurm.conf`.
fn prepare(site: &Site, directory: &Path, wait_for_nodes_seconds: u64) -> String {
    let (home, local) = (directory.display(), site.host(0).local.display());
    let text = format!(
        "[controller]\naddress = \"{}:7520\"\ndirectory = \"{local}/workflow\"\n\
         poll_milliseconds = 200\nwait_for_nodes_seconds = {wait_for_nodes_seconds}\n\n\
         [node]\nrun_directory = \"{local}/run\"\n\n[munge]\nsocket = \"{}\"\n\n\
         [[dataspace]]\nname = \"nvme0\"\nkind = \"node\"\ndirectory = \"{local}/nvme\"\n\n\
         [[dataspace]]\nname = \"lustre\"\nkind = \"shared\"\ndirectory = \"{}\"\n",
        site.host(0).address,
        site.munged.display(),
        site.cluster.pfs().display()
    );
    fs::write(directory.join("workflow.toml"), text).unwrap();
    let plugin = workflow_plugin();
    let text = format!("required {} environment={local}/run\n", plugin.display());
    fs::write(directory.join("plugstack.conf"), text).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("../../bridges/workflow/lua/forebay_workflow.lua");
    let program = built_program("forebay-workflow");
    let text = format!(
        "local workflow = dofile(\"{}\")\n\
         workflow.checker = \"{} --config {home}/workflow.toml check\"\n\
         function slurm_job_submit(job, partitions, uid)\nreturn workflow.submit(job, uid)\nend\n\
         function slurm_job_modify(job, record, partitions, uid)\nreturn slurm.SUCCESS\nend\n",
        source.canonicalize().unwrap().display(),
        program.display()
    );
    fs::write(directory.join("job_submit.lua"), text).unwrap();
    for name in ["prolog", "epilog"] {
        let path = directory.join(name);
        let text = format!(
            "#!/bin/sh\nSLURM_CONF={home}/slurm.conf FOREBAY_WORKFLOW={home}/workflow.toml \
             PATH=$PATH:/usr/bin:/bin {} {name} >> {local}/{name}.log 2>&1\n",
            program.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!(
        "Prolog={home}/prolog\nEpilog={home}/epilog\nPrologFlags=Alloc\nJobSubmitPlugins=lua\nPlugStackConfig={home}/plugstack.conf\n"
    )
}

/// Runs a command of Slurm as `USER`, which must succeed.
pub fn slurm_command(site: &WorkflowSite, program: &str, arguments: &[&str]) -> String {
    expect_success(&site.slurm.run(USER, program, arguments))
}
