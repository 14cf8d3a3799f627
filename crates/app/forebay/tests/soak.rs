//! Faults of every role on three hosts while programs write and sync: no synced byte may be lost,
//! nothing may be left behind, and memory must stay flat (from 30 rounds on, the last third of them
//! against the second).
//!
//! `make soak` runs it for an hour; without variables it takes a minute or two: `SOAK_MINUTES`,
//! `SOAK_SEED` (reproduces the sequence of faults; 1 without `SOAK_MINUTES`, else random and printed), `SOAK_EVENTS` (file for all events, a line
//! of JSON each), and `SOAK_FAULTS=0` (no faults, short rounds: the memory that jobs alone take).
//!
//! Needs root: it creates network namespaces.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other tests use more of it")]
mod cluster;
#[path = "soak/faults.rs"]
mod faults;
#[path = "soak/memory.rs"]
mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cluster::site::{Job, ROOT, USER, expect_success, job_script};
use cluster::{text_of, wait_until};
use faults::{Fault, FaultySite, HOSTS};
use forebay_random::RandomSequence;
use memory::MemoryUse;
use serde_json::{Value, json};

/// Time in which faults happen in a round.
const FAULT_SECONDS: u64 = 15;

/// Time for a writer to end once all faults have.
const WRITER_TIMEOUT: Duration = Duration::from_secs(180);

/// A number in an environment variable.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A running soak test.
struct Soak {
    site: FaultySite,
    random: RandomSequence,
    started: Instant,
    events: Vec<Value>,
    /// The same events, a line of JSON for each.
    file: Option<fs::File>,
    /// Number of faults by their kind.
    faults: BTreeMap<&'static str, u64>,
    /// Sums of what the writers count.
    totals: BTreeMap<String, u64>,
    memory: MemoryUse,
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let site = FaultySite::new();
        site.wait_until_healthy();
        site.site.make_results_directory();
        let create = ["create-persistent", "kept", "--capacity", "48MiB"];
        expect_success(&site.site.forebay(0, USER, &create));
        let file = std::env::var_os("SOAK_EVENTS").map(|path| fs::File::create(path).unwrap());
        Soak {
            file,
            site,
            random: RandomSequence::new(seed),
            started: Instant::now(),
            events: Vec::new(),
            faults: BTreeMap::new(),
            totals: BTreeMap::new(),
            memory: MemoryUse::default(),
        }
    }

    fn event(&mut self, kind: &str, details: Value) {
        let seconds = self.started.elapsed().as_secs_f64();
        let event = json!({ "seconds": seconds, "event": kind, "details": details });
        if let Some(file) = &mut self.file {
            writeln!(file, "{event}").unwrap();
        }
        self.events.push(event);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.site.cluster.pfs().join(name)
    }

    /// One job with writers on all hosts, faults, and the comparison of everything afterwards.
    fn round(&mut self, number: usize) {
        for file in ["started", "go", "stop"] {
            let _ = fs::remove_file(self.path(file));
        }
        let (mut job, directory) = self.start_job(number);
        job.wait_until_running(&self.site.site);
        let directory = fs::read_to_string(directory).unwrap().trim().to_owned();
        let writers: Vec<Child> = (0..HOSTS)
            .map(|host| self.start_writer(host, number, &format!("{directory}/data")))
            .collect();
        self.cause_faults();
        self.site.wait_until_healthy();
        self.wait_until_mounted(&format!("{directory}/data"));
        fs::write(self.path("stop"), "").unwrap();
        for mut writer in writers {
            let start = Instant::now();
            while writer.try_wait().unwrap().is_none() {
                assert!(start.elapsed() < WRITER_TIMEOUT, "a writer hangs\n{}", self.log());
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(writer.wait().unwrap().success(), "a writer failed\n{}", self.log());
        }
        for host in 0..HOSTS {
            // Another host than the writer's.
            self.verify(number, host, (host + 1) % HOSTS, &format!("{directory}/data"));
        }
        let output = job.finish(&self.site.site);
        self.site.set_clocks_right();
        assert!(!output.contains("wrong"), "{output}");
        for host in 0..HOSTS {
            let results = self.path(&format!("results/{number}"));
            self.verify(number, host, 0, results.to_str().unwrap());
        }
        fs::remove_dir_all(self.path(&format!("results/{number}"))).unwrap();
        self.sample_memory(number);
    }

    /// Starts a job that verifies what the rounds before have written to the persistent instance, and
    /// adds to it. Also returns the file with the path of the job's instance.
    fn start_job(&self, number: usize) -> (Job, PathBuf) {
        let pfs = self.site.site.cluster.pfs();
        let where_file = self.path("directory");
        let directives = format!(
            "#DW jobdw capacity=192MiB type=scratch access_mode=striped\n\
             #DW persistentdw name=kept\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/data \
             destination={}/results/{number}",
            pfs.display()
        );
        let body = format!(
            "mkdir -m 777 $DW_JOB_STRIPED/data\n\
             cd $DW_PERSISTENT_STRIPED_kept\n\
             if [ -e sums ]; then sha256sum --quiet -c sums || echo wrong; fi\n\
             head -c 100000 /dev/urandom > {number} && sha256sum {number} >> sums && sync\n\
             echo $DW_JOB_STRIPED > {}\ncd /",
            where_file.display()
        );
        (self.site.site.start_job(&job_script(&pfs, &directives, &body)), where_file)
    }

    /// Waits until a directory of the job's instance is there on all hosts: an agent that was killed mounts
    /// the instance again.
    fn wait_until_mounted(&mut self, directory: &str) {
        let start = Instant::now();
        for host in 0..HOSTS {
            wait_until(&format!("host {host} has {directory}"), || {
                let mut find = self.site.site.host(host).command(USER, "test");
                let found = find.args(["-d", directory]).status().unwrap();
                found.success().then_some(())
            });
        }
        self.event("mounted", json!({ "seconds_waited": start.elapsed().as_secs_f64() }));
    }

    fn ledger(&self, number: usize, host: usize) -> PathBuf {
        self.path(&format!("ledger-{number}-{host}"))
    }

    fn writer_command(&self, host: usize) -> std::process::Command {
        let mut command = self.site.site.host(host).command(USER, "python3");
        command.arg(format!("{}/tests/soak/writer.py", env!("CARGO_MANIFEST_DIR")));
        command
    }

    fn start_writer(&self, host: usize, number: usize, directory: &str) -> Child {
        let seed = format!("{number}/{host}");
        let log = fs::File::create(self.path(&format!("writer-{number}-{host}"))).unwrap();
        self.writer_command(host)
            .args(["write", directory, &seed])
            .args([self.path("stop"), self.ledger(number, host)])
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn verify(&mut self, number: usize, writer: usize, reader: usize, directory: &str) {
        let mut command = self.writer_command(reader);
        command.args(["verify", directory]).arg(self.ledger(number, writer));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}\n{}", text_of(&output), self.log());
        let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
        self.event("verified", json!({ "round": number, "writer": writer, "counts": counts }));
        let wrong = counts["wrong"].as_array().unwrap();
        assert!(wrong.is_empty(), "round {number}, {directory}: {wrong:#?}\n{}", self.log());
        if directory.ends_with("/data") {
            for (name, count) in counts.as_object().unwrap() {
                *self.totals.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
            }
        }
    }

    fn cause_faults(&mut self) {
        let start = Instant::now();
        if number("SOAK_FAULTS") == Some(0) {
            std::thread::sleep(Duration::from_secs(2));
            return;
        }
        while start.elapsed() < Duration::from_secs(FAULT_SECONDS) {
            let first = Fault::random(&mut self.random);
            let second = Fault::random(&mut self.random);
            let both = self.random.below(2) == 0 && first.is_independent_of(second);
            self.begin(first);
            self.pause(5000);
            if both {
                self.begin(second);
                self.pause(3000);
            }
            self.site.end(first);
            if both {
                self.pause(3000);
                self.site.end(second);
            }
            self.pause(1000);
        }
    }

    fn begin(&mut self, fault: Fault) {
        self.event("fault", json!(format!("{fault:?}")));
        *self.faults.entry(fault.kind()).or_default() += 1;
        self.site.begin(fault);
    }

    /// Waits for a random time, at most that many milliseconds.
    fn pause(&mut self, milliseconds: u32) {
        let milliseconds = 200 + self.random.below(milliseconds);
        std::thread::sleep(Duration::from_millis(milliseconds.into()));
    }

    fn sample_memory(&mut self, number: usize) {
        let daemons = self.site.daemons();
        self.memory.sample(&daemons);
        let memory = self.memory.last();
        self.event("memory", json!({ "round": number, "kib": memory }));
        let seconds = self.started.elapsed().as_secs();
        eprintln!("{seconds:>5} s  round {number:>3}  {memory:?}");
    }

    fn log(&self) -> String {
        let events: Vec<String> = self.events.iter().map(Value::to_string).collect();
        format!("{}\n{}", events.join("\n"), self.site.site.output())
    }

    /// Removes everything and finds nothing left.
    fn end(&mut self) {
        let site = &self.site.site;
        expect_success(&site.forebay(0, USER, &["destroy-persistent", "kept"]));
        wait_until("all allocations are removed", || {
            let status = site.status()?;
            let is_empty = |name: &str| status[name].as_array().is_some_and(Vec::is_empty);
            (is_empty("instances") && is_empty("sessions")).then_some(())
        });
        for host in 0..HOSTS {
            let left = "find flash/flash/objects -type f ! -name checksum-watermarks; awk '$3 ~ /^fuse/ && /forebay/' \
                        /proc/self/mounts; ls jobs 2>/dev/null || true";
            let left = expect_success(&site.host(host).shell(ROOT, left));
            assert_eq!(left, "", "host {host}");
            let processes = site.host(host).processes();
            let others: Vec<_> =
                processes.iter().filter(|(_, line)| !line.contains("forebayd ")).collect();
            assert!(others.is_empty(), "host {host}: {others:?}");
        }
        let find = format!("find {} -name '.forebay*'", site.cluster.pfs().display());
        assert_eq!(expect_success(&site.host(0).shell(ROOT, &find)), "");
        for daemon in self.site.stop_all() {
            assert_eq!(daemon, 0, "exit code\n{}", self.log());
        }
        for host in 0..HOSTS {
            assert_eq!(self.site.site.host(host).processes(), []);
        }
    }

    fn print_table(&self) {
        eprintln!("\nfault                      number");
        for (kind, number) in &self.faults {
            eprintln!("{kind:<25} {number:>7}");
        }
        eprintln!("\nwriters");
        for (name, number) in &self.totals {
            eprintln!("{name:<25} {number:>7}");
        }
        eprintln!("\nmemory, KiB, by thirds    first   second     last    limit");
        self.memory.print();
    }
}

impl Drop for Soak {
    /// After a failure: what is on the disks, which vanish with the hosts.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for host in 0..HOSTS {
            let list = "df flash; df -i flash; du -ak flash | sort -n | tail -n 25";
            let output = self.site.site.host(host).shell(ROOT, list);
            eprintln!("--- disk of host {host}\n{}", text_of(&output));
        }
    }
}

#[test]
fn synced_data_survives_faults_of_every_role() {
    let minutes = number("SOAK_MINUTES");
    let duration = Duration::from_secs(minutes.map_or(45, |minutes| minutes * 60));
    let seed = number("SOAK_SEED").unwrap_or_else(|| {
        use std::hash::{BuildHasher, RandomState};
        minutes.map_or(1, |_| RandomState::new().hash_one(0) >> 32)
    });
    eprintln!("SOAK_SEED={seed}, {} s", duration.as_secs());
    let mut soak = Soak::new(seed);
    soak.event("start", json!({ "seed": seed }));
    let mut rounds = 0;
    while soak.started.elapsed() < duration {
        rounds += 1;
        soak.round(rounds);
    }
    soak.print_table();
    soak.memory.check();
    soak.end();
    eprintln!("\n{rounds} rounds: nothing lost, nothing left");
}
