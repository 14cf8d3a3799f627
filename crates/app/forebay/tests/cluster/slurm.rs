//! Slurm on a pool's hosts: a controller on the first, a compute node on each.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

use super::site::{ROOT, Site, USER, expect_success};
use super::{Daemon, Host, User, built_program, text_of, wait_until};

const SLURMCTLD: &str = "/usr/sbin/slurmctld";
const SLURMD: &str = "/usr/sbin/slurmd";

/// User and group of `slurmctld`. Debian's package creates it; it is the pool's operator.
pub const SLURM: User = (64_030, 64_030);

/// Limit of the time until a job is in a state, or its instance is removed. The plugin lua can lose the
/// removal, and then looks for it every 30 s.
const JOB_TIMEOUT: Duration = Duration::from_secs(100);

/// Users of all hosts, besides those of this machine.
const PASSWD: &str = "ada:x:41000:41000::/tmp:/bin/sh\nbob:x:41001:41001::/tmp:/bin/sh\n";
const GROUP: &str = "ada:x:41000:\nbob:x:41001:\n";

/// The script of the plugin burst_buffer/lua.
const LUA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bridges/datawarp/burst_buffer.lua");

/// Slurm's plugins for burst buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    DataWarp,
    Lua,
}

/// A pool and a Slurm cluster on three hosts. Dropping it removes both.
pub struct SlurmSite {
    pub slurmctld: Daemon,
    pub slurmd: Vec<Daemon>,
    pub site: Site,
    directory: PathBuf,
}

/// A call of `dw_wlm_cli` by Slurm.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The function.
    pub function: String,
    /// The token, if there is one.
    pub token: String,
    /// Seconds that it took.
    pub seconds: f64,
}

impl SlurmSite {
    /// Starts everything with the plugin burst_buffer/datawarp, unless Slurm is not installed: then
    /// says so on standard error. `flags` are those of `burst_buffer.conf`.
    pub fn start(flags: &str) -> Option<SlurmSite> {
        SlurmSite::start_with(Plugin::DataWarp, flags)
    }

    /// As [`start`](Self::start), with one of the plugins.
    pub fn start_with(plugin: Plugin, flags: &str) -> Option<SlurmSite> {
        SlurmSite::start_prepared(plugin, flags, |_, _| String::new())
    }

    /// As [`start_with`](Self::start_with); `prepare` gets the site and the directory of
    /// `slurm.conf`, and returns more lines of it.
    pub fn start_prepared(
        plugin: Plugin,
        flags: &str,
        prepare: impl FnOnce(&Site, &Path) -> String,
    ) -> Option<SlurmSite> {
        if Path::new(SLURMCTLD).exists() && Path::new(SLURMD).exists() {
            return Some(SlurmSite::new(plugin, flags, prepare));
        }
        // Tests capture the output of `eprintln`.
        let text = "SKIPPED: Slurm is not installed; `scripts/setup.sh test` installs it";
        let _ = writeln!(std::io::stderr(), "{text}");
        None
    }

    fn new(plugin: Plugin, flags: &str, prepare: impl FnOnce(&Site, &Path) -> String) -> SlurmSite {
        let site = Site::with_entries(&[("controller", "operator = \"slurm\"")]);
        let directory = site.cluster.pfs().with_file_name("slurm");
        fs::create_dir(&directory).unwrap();
        for part in ["state", "bin"] {
            fs::create_dir(directory.join(part)).unwrap();
            chown(directory.join(part), Some(SLURM.0), Some(SLURM.1)).unwrap();
        }
        for host in &site.cluster.hosts {
            add_users(host, &directory);
        }
        write_wrapper(&directory, site.file(), "dw_wlm_cli");
        write_wrapper(&directory, site.file(), "dwstat");
        let more = prepare(&site, &directory);
        write_configuration(&directory, &site, plugin, &more);
        write_burst_buffer_configuration(&directory, plugin, flags);
        let slurmctld = start_slurmctld(&directory, &site);
        let start = |host: &Host| {
            let mut command = slurm_command(&directory, host, ROOT, SLURMD);
            command.args(["-D", "-N", &host.name]);
            host.start_logged("slurmd", command)
        };
        let slurmd = site.cluster.hosts.iter().map(start).collect();
        let slurm = SlurmSite { slurmctld, slurmd, site, directory };
        wait_until("all compute nodes of Slurm are idle", || {
            let output = slurm.run(ROOT, "sinfo", &["-h", "-t", "idle", "-o", "%D"]);
            (String::from_utf8_lossy(&output.stdout).trim() == "3").then_some(())
        });
        slurm
    }

    /// The directory of `slurm.conf`, the same on all hosts.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A directory with a file of input, and one for results, of `USER`.
    pub fn make_directories(&self) -> (PathBuf, PathBuf) {
        let input = self.site.cluster.pfs().join("input");
        fs::create_dir(&input).unwrap();
        fs::write(input.join("words"), "from the file system\n").unwrap();
        (input, self.site.make_results_directory())
    }

    /// Directives of a job that stages in this directory and stages out its results.
    pub fn directives(&self) -> String {
        let pfs = self.site.cluster.pfs();
        let pfs = pfs.display();
        format!(
            "#DW jobdw pool=flash capacity=96MiB type=scratch access_mode=striped\n\
             #DW stage_in type=directory source={pfs}/input destination=$DW_JOB_STRIPED/input\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={pfs}/results/%j\n"
        )
    }

    /// A command of Slurm on the second host.
    pub fn command(&self, user: User, program: &str) -> Command {
        slurm_command(&self.directory, self.site.host(1), user, program)
    }

    /// Runs a command of Slurm on the second host.
    pub fn run(&self, user: User, program: &str, arguments: &[&str]) -> Output {
        self.command(user, program).args(arguments).output().unwrap()
    }

    /// Its output, if it succeeds.
    pub fn query(&self, program: &str, arguments: &[&str]) -> String {
        expect_success(&self.run(USER, program, arguments))
    }

    /// Submits a script of `USER` with more arguments of `sbatch`. Returns the job's id.
    pub fn submit(&self, script: &str, arguments: &[&str]) -> String {
        let output = self.try_submit(script, arguments);
        let id = expect_success(&output);
        id.trim().split(';').next().unwrap().to_owned()
    }

    /// As [`submit`](Self::submit), for a script that may be refused.
    pub fn try_submit(&self, script: &str, arguments: &[&str]) -> Output {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.site.cluster.pfs().join(format!("batch-{number}.sh"));
        fs::write(&path, script).unwrap();
        let output = format!("--output={}/%j.out", self.site.cluster.pfs().display());
        let mut command = self.command(USER, "sbatch");
        command.args(["--parsable", &output]).args(arguments).arg(&path);
        command.output().unwrap()
    }

    /// A job's entry `key` in `scontrol show job`, if the job is known.
    pub fn job(&self, id: &str, key: &str) -> Option<String> {
        let text = text_of(&self.run(ROOT, "scontrol", &["show", "job", id]));
        let start = text.find(&format!("{key}="))? + key.len() + 1;
        let rest = &text[start..];
        // Comments have blanks and end with the line.
        let end = if key.ends_with("Comment") { "\n" } else { " " };
        let end = rest.find(end).unwrap_or(rest.len());
        Some(rest[..end].trim().to_owned())
    }

    /// Waits until a job is in a state, such as `COMPLETED`.
    pub fn wait_for(&self, id: &str, state: &str) {
        let is_in_state = || self.job(id, "JobState").as_deref() == Some(state);
        self.wait(id, &format!("is not {state}"), is_in_state);
    }

    /// Waits until nothing of a job is left in the pool.
    pub fn wait_until_removed(&self, id: &str) {
        let is_removed = || {
            // Until the controller answers nothing is known.
            self.site.status().is_some_and(|status| {
                let mut sessions = status["sessions"].as_array().unwrap().iter();
                sessions.all(|session| session["token"] != id)
            })
        };
        self.wait(id, "has a session", is_removed);
    }

    /// Waits until something has happened to a job. `otherwise` describes the job until then.
    fn wait(&self, id: &str, otherwise: &str, has_happened: impl Fn() -> bool) {
        let deadline = Instant::now() + JOB_TIMEOUT;
        while !has_happened() {
            assert!(Instant::now() < deadline, "job {id} {otherwise}\n{}", self.diagnosis(id));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until `slurmctld` has saved the present state of all jobs. It does so some seconds after
    /// a change, and a held job is one.
    pub fn save_jobs(&self) {
        let since = SystemTime::now();
        self.submit("#!/bin/sh\ntrue\n", &["--hold"]);
        self.wait_until_written("job_state", since);
    }

    /// Waits until the plugin lua has saved its allocations after `since`. It does so at intervals,
    /// and later forgets the buffers that it has not saved.
    pub fn wait_until_lua_saved(&self, since: SystemTime) {
        self.wait_until_written("burst_buffer_lua_state", since);
    }

    /// Removes what the plugin lua has saved.
    pub fn remove_lua_state(&self) {
        let _ = fs::remove_file(self.directory.join("state/burst_buffer_lua_state"));
    }

    fn wait_until_written(&self, name: &str, since: SystemTime) {
        let file = self.directory.join("state").join(name);
        wait_until("slurmctld saves its state", || {
            (file.metadata().ok()?.modified().ok()? > since).then_some(())
        });
    }

    /// Kills `slurmctld` with SIGKILL and starts it again.
    pub fn restart_slurmctld(&mut self) {
        self.slurmctld.kill();
        self.slurmctld = start_slurmctld(&self.directory, &self.site);
        wait_until("slurmctld answers", || {
            self.run(ROOT, "sinfo", &["-h"]).status.success().then_some(())
        });
    }

    /// The calls of `dw_wlm_cli` that have returned, oldest first.
    pub fn calls(&self) -> Vec<RecordedCall> {
        let text = fs::read_to_string(self.directory.join("bin/calls")).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.split(' ');
            let seconds = words.next()?.parse().ok()?;
            let words: Vec<&str> = words.collect();
            let after = |option: &str| {
                let at = words.iter().position(|word| *word == option)?;
                words.get(at + 1).map(|word| (*word).to_owned())
            };
            let token = after("--token").or_else(|| after("-t")).unwrap_or_default();
            Some(RecordedCall { function: after("--function")?, token, seconds })
        };
        text.lines().filter_map(parse).collect()
    }

    /// Functions that were called for a token, oldest first.
    pub fn functions(&self, token: &str) -> Vec<String> {
        let calls = self.calls().into_iter().filter(|call| call.token == token);
        calls.map(|call| call.function).collect()
    }

    /// From now on calls of a function wait, when they have been carried out, before they return.
    /// Dropping the result lets them return.
    pub fn hold(&self, function: &str) -> HeldFunction {
        let bin = self.directory.join("bin");
        let (hold, held) = (bin.join("hold"), bin.join("held"));
        fs::write(&hold, function).unwrap();
        HeldFunction { hold, held }
    }

    /// From now on calls of a function do nothing, and succeed. Dropping the result ends that.
    pub fn lose(&self, function: &str) -> LostFunction {
        let lost = self.directory.join("bin/lose");
        fs::write(&lost, function).unwrap();
        LostFunction { lost }
    }

    /// State and logs of a job, for the message of a failed test.
    pub fn diagnosis(&self, id: &str) -> String {
        let log = self.slurmctld.output();
        let tail: Vec<&str> = log.lines().rev().take(60).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!(
            "{}\n{}\ncalls: {:?}\n--- slurmctld\n{}\n--- pool\n{}",
            text_of(&self.run(ROOT, "scontrol", &["show", "job", id])),
            self.output(id),
            self.calls(),
            tail.join("\n"),
            self.site.output()
        )
    }

    /// The output of a job.
    pub fn output(&self, id: &str) -> String {
        let file = self.site.cluster.pfs().join(format!("{id}.out"));
        fs::read_to_string(file).unwrap_or_default()
    }
}

/// A function of `dw_wlm_cli` whose calls wait before they return.
pub struct HeldFunction {
    hold: PathBuf,
    held: PathBuf,
}

impl HeldFunction {
    /// Waits until a call was carried out, and waits.
    pub fn wait_until_called(&self) {
        wait_until("a held function is called", || self.held.exists().then_some(()));
    }
}

impl Drop for HeldFunction {
    fn drop(&mut self) {
        // Without a call there is only one of them.
        let _ = fs::remove_file(&self.hold);
        let _ = fs::remove_file(&self.held);
    }
}

/// A function of `dw_wlm_cli` whose calls do nothing.
pub struct LostFunction {
    lost: PathBuf,
}

impl Drop for LostFunction {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.lost);
    }
}

/// A command of Slurm on a host.
fn slurm_command(directory: &Path, host: &Host, user: User, program: &str) -> Command {
    let mut command = host.command(user, program);
    command.env("SLURM_CONF", directory.join("slurm.conf"));
    command
}

fn start_slurmctld(directory: &Path, site: &Site) -> Daemon {
    let mut command = slurm_command(directory, site.host(0), SLURM, SLURMCTLD);
    command.args(["-D"]).env("FOREBAY_PROGRAMS", directory.join("bin"));
    site.host(0).start_logged("slurmctld", command)
}

/// Gives a host users of its own; only its mount namespace sees them.
fn add_users(host: &Host, directory: &Path) {
    for (name, more) in [("passwd", PASSWD), ("group", GROUP)] {
        let system = Path::new("/etc").join(name);
        let file = directory.join(name);
        fs::write(&file, fs::read_to_string(&system).unwrap() + more).unwrap();
        let mount = format!("mount --bind {} {}", file.display(), system.display());
        expect_success(&host.shell(ROOT, &mount));
    }
}

/// A script that runs a program of the bridge with the site's pool, and records each call with the
/// seconds that it took. It waits while its function is held, and does nothing while it is lost.
fn write_wrapper(directory: &Path, pool: &str, name: &str) {
    let program = built_program(name);
    let path = directory.join("bin").join(name);
    let bin = directory.join("bin");
    let (calls, bin) = (bin.join("calls"), bin.display());
    let script = format!(
        "#!/bin/sh\nstart=$(date +%s%N)\nlost=$(cat {bin}/lose 2>/dev/null)\n\
         if [ -n \"$lost\" ] && [ \"$2\" = \"$lost\" ]; then code=0\n\
         else FOREBAY_POOL={pool} {} \"$@\"\ncode=$?; fi\n\
         end=$(date +%s%N)\n\
         case \" $* \" in *\" $(cat {bin}/hold 2>/dev/null) \"*)\n\
         touch {bin}/held\nwhile [ -e {bin}/hold ]; do sleep 0.1; done ;;\nesac\n\
         echo \"$(awk \"BEGIN {{ print ($end - $start) / 1000000000 }}\") $*\" >> {}\nexit $code\n",
        program.display(),
        calls.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn write_configuration(directory: &Path, site: &Site, plugin: Plugin, more: &str) {
    let plugin = match plugin {
        Plugin::DataWarp => "datawarp",
        Plugin::Lua => "lua",
    };
    let (home, local) = (directory.display(), site.host(0).local.display());
    let mut text = format!(
        "ClusterName=forebay\nSlurmctldHost=n1({})\nSlurmUser=slurm\nAuthType=auth/munge\n\
         AuthInfo=socket={}\nCredType=cred/munge\nStateSaveLocation={home}/state\n\
         SlurmctldPidFile={home}/state/slurmctld.pid\nSlurmdPidFile={local}/slurmd.pid\n\
         SlurmdSpoolDir={local}/slurmd\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nMpiDefault=none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
         SlurmdParameters=config_overrides\nSchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0\n\
         MinJobAge=300\nKillWait=1\nSlurmctldTimeout=10\nSlurmdTimeout=10\nMailProg=/bin/true\n\
         BurstBufferType=burst_buffer/{plugin}\nDebugFlags=BurstBuffer\n",
        site.host(0).address,
        site.munged.display()
    );
    for host in &site.cluster.hosts {
        text.push_str(&format!("NodeName={} NodeAddr={} CPUs=4\n", host.name, host.address));
    }
    text.push_str("PartitionName=batch Nodes=n1,n2,n3 Default=YES MaxTime=10 State=UP\n");
    text.push_str(more);
    fs::write(directory.join("slurm.conf"), text).unwrap();
}

fn write_burst_buffer_configuration(directory: &Path, plugin: Plugin, flags: &str) {
    let home = directory.display();
    let mut text = match plugin {
        Plugin::DataWarp => {
            format!("GetSysState={home}/bin/dw_wlm_cli\nGetSysStatus={home}/bin/dwstat\n")
        }
        Plugin::Lua => {
            fs::copy(LUA, directory.join("burst_buffer.lua")).unwrap();
            "Directive=DW\n".to_owned()
        }
    };
    if !flags.is_empty() {
        text.push_str(&format!("Flags={flags}\n"));
    }
    text.push_str("StageInTimeout=60\nStageOutTimeout=60\nOtherTimeout=120\nValidateTimeout=5\n");
    fs::write(directory.join("burst_buffer.conf"), text).unwrap();
}
