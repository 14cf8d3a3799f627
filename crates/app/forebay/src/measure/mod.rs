//! Rates of a running pool: a small instance on each storage node is mounted here, written, synced and
//! read, and so is a directory of the parallel file system.

mod probe;
mod repeated;

pub use probe::{ProbeRates, probe};

use crate::console::print_stderr;
use crate::show::Terminal;
use forebay_console::Failure;
use forebay_control::controller::{Cause, InstanceSpec, NodeStatus, Request};
use forebay_daemon::activity::Status;
use forebay_job::{
    OnFailure, PoolHandle, PoolSelection, RunError, RunOptions, pool_status, run_job, stage_now,
};
use forebay_job_script::{Access, AccessMode, Capacity, Direction, InstanceRef, Stage, StageKind};
use forebay_plan::{MeasuredRates, NodeRates, RateSpreads};
use forebay_units::Bytes;
use forebay_units::human::{self, counted};
use repeated::{REPETITIONS, Repeated};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rates of instances by name.
type Measured = BTreeMap<String, (ProbeRates, Stages)>;

/// A stage-in, and a stage-out.
type Stages = (Repeated, Repeated);

/// Storage nodes that are measured at most.
const MOST_NODES: usize = 64;
/// Instances that are created at most to have one on each of these nodes.
const MOST_INSTANCES: usize = 4 * MOST_NODES;
/// Bytes of a measurement that is not given any.
const DEFAULT_BYTES: u64 = 256 << 20;
/// Least bytes of a measurement.
const LEAST_BYTES: u64 = 4 << 20;
/// Environment variables with the mounts of persistent instances begin with this.
const MOUNT_VARIABLE: &str = "DW_PERSISTENT_STRIPED_";

/// The measurement of a pool.
pub struct Measurement<'a> {
    /// The pool's configuration file.
    pub pool: &'a Path,
    /// A directory of the parallel file system.
    pub directory: &'a Path,
    /// Bytes of each measurement; `None`: as many as fit a granule, up to 256 MiB.
    pub bytes: Option<u64>,
}

impl Measurement<'_> {
    /// Measures, and removes everything that was made for it.
    ///
    /// # Errors
    /// The pool has no free granule on some node, no agent runs here, or a file cannot be written.
    pub fn run(&self, terminal: &mut Terminal) -> Result<MeasuredRates, Failure> {
        let selection = PoolSelection::Shared(self.pool.to_owned());
        let status = pool_status(&selection).map_err(failure)?;
        let [pool] = status.pools.as_slice() else {
            return Err(Failure::Failed("the status has no pool, or several".into()));
        };
        let granule = pool.granularity.0;
        let most = granule / 4 * 3;
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes > most) {
            return Err(Failure::Input(format!(
                "--size {}: a measurement takes up to three quarters of a granule, {} of {}",
                Bytes(bytes),
                human::bytes(most),
                pool.granularity
            )));
        }
        let bytes = self.bytes.unwrap_or(DEFAULT_BYTES).min(most) / 4096 * 4096;
        if bytes < LEAST_BYTES {
            return Err(Failure::Input(format!(
                "{} is too little for a measurement, which takes up to three quarters of a granule of \
                 {}: at least {} is needed",
                Bytes(bytes),
                pool.granularity,
                Bytes(LEAST_BYTES)
            )));
        }
        let is_usable =
            |node: &&NodeStatus| node.online && !node.drained && node.used < node.granules;
        let wanted = status.nodes.iter().filter(is_usable).count().clamp(1, MOST_NODES);
        let handle = PoolHandle::open(&selection).map_err(failure)?;
        let host = handle.controller().host().map(str::to_owned);
        let Some(host) = host else {
            return Err(Failure::Failed(
                "no agent of the pool runs on this host: start one, or measure on another host"
                    .into(),
            ));
        };
        let prefix = format!("measure{}x", std::process::id());
        let mut names = Vec::new();
        let created = create_on_nodes(&handle, &selection, (&prefix, granule, wanted), &mut names);
        let outcome = created.and_then(|(status, chosen)| {
            let measured = self.measure_each(&selection, &chosen, bytes, terminal)?;
            Ok((status, measured))
        });
        destroy(&handle, &names);
        handle.close().map_err(failure)?;
        let (status, measured) = outcome?;
        let nodes = of_nodes(&status, &measured, &host);
        let unreached = unreached(&status, &nodes);
        if !unreached.is_empty() {
            print_stderr(format_args!(
                "note: {} not measured: {}; each measurement needs a free granule on its node, and the pool \
                 chooses the nodes ({MOST_NODES} at most)",
                counted(unreached.len() as u64, "storage node"),
                unreached.join(", ")
            ));
        }
        let pfs = probe(self.directory, bytes)
            .map_err(|error| Failure::Failed(format!("{}: {error}", self.directory.display())))?;
        let rates = MeasuredRates {
            pool: pool.name.clone(),
            nodes,
            host,
            bytes,
            repetitions: REPETITIONS,
            pfs_write: pfs.write.rate,
            pfs_read: pfs.read.rate,
            pfs_spread: Some([pfs.write.spread, pfs.read.spread]),
        };
        rates.check().map_err(|error| Failure::Failed(error.to_string()))
    }

    /// Measures each of the instances; their rates by name.
    fn measure_each(
        &self,
        selection: &PoolSelection,
        names: &[String],
        bytes: u64,
        terminal: &mut Terminal,
    ) -> Result<Measured, Failure> {
        let script = self.write_script(names)?;
        let out = script.with_extension("json");
        let arguments = [out.as_os_str().to_owned(), bytes.to_string().into()];
        let options = RunOptions {
            pool: selection.clone(),
            hosts: Vec::new(),
            script: script.clone(),
            arguments: arguments.into(),
            token: None,
            account: None,
            on_failure: OnFailure::Discard,
            metrics: None,
        };
        let outcome = run_job(&options, terminal).map_err(failure);
        terminal.clear();
        let text = std::fs::read_to_string(&out);
        let _ = std::fs::remove_file(&script);
        let _ = std::fs::remove_file(&out);
        let report = outcome?;
        if report.code != 0 {
            return Err(Failure::Failed(format!(
                "the measurement ended with status {}",
                report.code
            )));
        }
        let text = text.map_err(|error| Failure::Failed(format!("{}: {error}", out.display())))?;
        let probes = serde_json::from_str(&text);
        let probes: BTreeMap<String, ProbeRates> =
            probes.map_err(|error| Failure::Failed(format!("{}: {error}", out.display())))?;
        let mut measured = BTreeMap::new();
        for (name, probe) in probes {
            let stages = self.stages(selection, &name, bytes, terminal)?;
            measured.insert(name, (probe, stages));
        }
        terminal.clear();
        Ok(measured)
    }

    /// Rates of staging a file into an instance and out of it, bytes per second.
    fn stages(
        &self,
        selection: &PoolSelection,
        name: &str,
        bytes: u64,
        terminal: &mut Terminal,
    ) -> Result<Stages, Failure> {
        let path = |end: &str| {
            self.directory.join(format!(".forebay-measure-{}.{end}", std::process::id()))
        };
        let (source, copy) = (path("in"), path("out"));
        let mut staged = |direction: Direction, pfs: &Path| -> Result<f64, Failure> {
            let pfs = pfs.display().to_string();
            let stage = Stage::new(direction, StageKind::File, InstanceRef::Job, &pfs, "staged");
            let stage = stage.map_err(Failure::Failed)?;
            let began = Instant::now();
            stage_now(selection, name, stage, terminal).map_err(failure)?;
            Ok(began.elapsed().as_secs_f64())
        };
        let mut timed = |bytes: u64| {
            let _ = std::fs::remove_file(&source);
            let written = probe::write(&source, bytes).and_then(|file| file.sync_all());
            written
                .map_err(|error| Failure::Failed(format!("{}: {error}", source.display())))
                .and_then(|()| {
                    Ok((staged(Direction::In, &source)?, staged(Direction::Out, &copy)?))
                })
        };
        let outcome = repeat_stages(bytes, &mut timed);
        let _ = std::fs::remove_file(&source);
        let _ = std::fs::remove_file(&copy);
        outcome
    }

    /// The job script, in the directory of the parallel file system.
    fn write_script(&self, names: &[String]) -> Result<PathBuf, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Failed(format!("the path of this program: {error}")))?;
        let mut text = "#!/bin/sh\n".to_owned();
        for name in names {
            let _ = writeln!(text, "#DW persistentdw name={name}");
        }
        let _ =
            writeln!(text, "exec '{}' measure --probe \"$1\" --size \"$2 B\"", program.display());
        let path = self.directory.join(format!(".forebay-measure-{}.sh", std::process::id()));
        std::fs::write(&path, text)
            .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        Ok(path)
    }
}

/// Creates instances of one granule until `wanted` nodes have one; the pool's status with them, and the name of
/// one instance on each node. The pool chooses the nodes: those that a node has already got too many of stay until
/// the end, so that others get the next ones. `names` are all that may exist.
fn create_on_nodes(
    handle: &PoolHandle,
    selection: &PoolSelection,
    (prefix, granule, wanted): (&str, u64, usize),
    names: &mut Vec<String>,
) -> Result<(Status, Vec<String>), Failure> {
    let mut found = None;
    while names.len() < MOST_INSTANCES {
        let name = format!("{prefix}{}", names.len());
        names.push(name.clone());
        let access = vec![Access { mode: AccessMode::Striped, modifiers: Default::default() }];
        let capacity = Capacity::Bytes(Bytes(granule));
        let request = Request::CreatePersistent {
            name,
            owner: handle.controller().caller(),
            spec: InstanceSpec::scratch(capacity, access, None),
            public: false,
        };
        match handle.controller().request(request) {
            Ok(_) => {}
            // Other jobs have taken the free granules, or the user's quota ends here.
            Err(error) if error.cause == Cause::Full && found.is_some() => break,
            Err(error) => return Err(Failure::Failed(format!("creating an instance: {error}"))),
        }
        let status = pool_status(selection).map_err(failure)?;
        let chosen = one_on_each_node(&status, names);
        let is_complete = chosen.len() >= wanted;
        found = Some((status, chosen));
        if is_complete {
            break;
        }
    }
    found.ok_or_else(|| Failure::Failed("no instance could be created".into()))
}

/// One of the instances on each node that has some.
fn one_on_each_node(status: &Status, names: &[String]) -> Vec<String> {
    let mut chosen = BTreeMap::new();
    for name in names {
        let instance = status.instances.iter().rfind(|instance| instance.label == *name);
        if let Some(node) = instance.and_then(|instance| instance.nodes.first()) {
            chosen.entry(*node).or_insert_with(|| name.clone());
        }
    }
    chosen.into_values().collect()
}

/// Rates of stages, of which `timed` gives the seconds of a stage-in and a stage-out of so many bytes.
fn repeat_stages(
    bytes: u64,
    timed: &mut dyn FnMut(u64) -> Result<(f64, f64), Failure>,
) -> Result<Stages, Failure> {
    let (mut into, mut out) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let (less, all) = (timed(probe::lesser(bytes))?, timed(bytes)?);
        into.push(probe::rate_between(bytes, less.0, all.0));
        out.push(probe::rate_between(bytes, less.1, all.1));
    }
    let of = |found: &[(u64, f64)]| {
        Repeated::of(found).unwrap_or_else(|| unreachable!("at least one repetition"))
    };
    Ok((of(&into), of(&out)))
}

/// Measures the instances that are mounted for the calling job, and writes their rates to `out`.
///
/// # Errors
/// A file cannot be written or read.
pub fn probe_mounts(out: &Path, bytes: u64) -> Result<(), Failure> {
    let mut rates = BTreeMap::new();
    for (variable, directory) in std::env::vars() {
        let Some(name) = variable.strip_prefix(MOUNT_VARIABLE) else { continue };
        let measured = probe(Path::new(&directory), bytes)
            .map_err(|error| Failure::Failed(format!("{directory}: {error}")))?;
        rates.insert(name.to_owned(), measured);
    }
    let text = serde_json::to_string(&rates)
        .map_err(|error| Failure::Failed(format!("the rates as JSON: {error}")))?;
    std::fs::write(out, text)
        .map_err(|error| Failure::Failed(format!("{}: {error}", out.display())))
}

/// The rates by storage node; of a node with several instances, those of the first.
fn of_nodes(status: &Status, measured: &Measured, host: &str) -> Vec<NodeRates> {
    let mut found: BTreeMap<String, NodeRates> = BTreeMap::new();
    for (label, (rates, stages)) in measured {
        let instance = status.instances.iter().rfind(|instance| instance.label == *label);
        let id = instance.and_then(|instance| instance.nodes.first());
        let node = status.nodes.iter().find(|node| Some(&node.id) == id);
        let Some(node) = node else { continue };
        let name = node.name.clone();
        found.entry(name.clone()).or_insert_with(|| NodeRates {
            is_local: name == host,
            name,
            send: rates.send.rate,
            write: rates.write.rate,
            read: rates.read.rate,
            stage_in: stages.0.rate,
            stage_out: stages.1.rate,
            stage_in_seconds: stages.0.seconds,
            stage_out_seconds: stages.1.seconds,
            spread: Some(RateSpreads {
                send: rates.send.spread,
                write: rates.write.spread,
                read: rates.read.spread,
                stage_in: stages.0.spread,
                stage_out: stages.1.spread,
            }),
        });
    }
    found.into_values().collect()
}

/// Names of the storage nodes in service that have no rates.
fn unreached(status: &Status, measured: &[NodeRates]) -> Vec<String> {
    let in_service = status.nodes.iter().filter(|node| node.online && !node.drained);
    let is_missing = |name: &&String| !measured.iter().any(|rates| rates.name == **name);
    in_service.map(|node| &node.name).filter(is_missing).cloned().collect()
}

/// Removes the instances that exist.
fn destroy(handle: &PoolHandle, names: &[String]) {
    for name in names {
        let request = Request::DestroyPersistent { name: name.clone(), hurry: true };
        // One that was not created is unknown.
        let _ = handle.controller().request(request);
    }
}

fn failure(error: RunError) -> Failure {
    if error.is_bad_input() {
        Failure::Input(error.to_string())
    } else {
        Failure::Failed(error.to_string())
    }
}
