//! `forebay sim jobs`.

mod cluster;
pub(crate) mod document;
mod traces;
mod write;

pub(crate) use write::{HEADINGS, machine_line, values};

use super::machine::load_with;
use super::options::{cores, machine_files, machine_text, seed, setting, size};
use super::output::OutputArgs;
use super::replicates::run_all;
use super::sweep::combinations;
use super::sweep_values::Sweep;
use crate::progress::{Display, Progress};
use crate::report::Inputs;
use clap::Args;
use cluster::ClusterOptions;
use document::{JobsRun, Point, PolicyResult};
use forebay_console::Failure;
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use forebay_plan::parse_duration;
use forebay_schedule::policy::{PlanOptions, Policy};
use forebay_schedule::requests::{Assumptions, PerNode};
use forebay_schedule::simulation::{History, Options, simulate};
use forebay_schedule::time::Millis;
use forebay_units::human::grouped;
use forebay_units::{Bytes, Rate};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use traces::{Simulated, TraceFile};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay sim jobs examples/jobs.json --nodes 8 --storage-nodes 2 --capacity 40GB --granularity 1GB\n  \
        forebay sim jobs KTH-SP2.swf.gz --nodes 100 --policy fcfs,easy,conservative\n  \
        forebay sim jobs trace.swf --machine cori --processors-per-node 32 \\\n      \
            --bb-per-node lognormal:median=2GiB,sigma=1.5 --stage-in 0.5 --stage-out 1\n  \
        forebay sim jobs examples/jobs.json --nodes 8 --storage-nodes 2 --granularity 1GB \\\n      \
            --policy easy,easy-bb --sweep capacity=40GB..160GB\n\n\
        docs/jobs.md describes the model and the policies.")]
pub(super) struct JobsArgs {
    /// Traces: Standard Workload Format, or JSON of Batsim (.json); each also compressed (.gz). Each is
    /// simulated alone, and the table has the jobs of all
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The machine whose nodes, pool and rates are simulated: a built-in name (`forebay machine list`) or the
    /// path of a .toml file
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// A number of the machine instead of its file's, as burst_buffer.card_write=1.5GB/s; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting, requires = "machine")]
    set: Vec<Setting>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Policies that are compared: fcfs, easy, easy-bb, sjf, conservative, plan
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fcfs,easy,easy-bb,sjf,conservative", value_parser = policy)]
    policy: Vec<Policy>,
    /// Burst buffer of each job, in bytes for each of its nodes, instead of that of the trace:
    /// fixed:4GiB, or lognormal:median=2GiB,sigma=1.5[,max=40GB][,share=0.5]. With more than the pool has,
    /// a job requests the whole pool
    #[arg(long, value_name = "DISTRIBUTION", value_parser = per_node)]
    bb_per_node: Option<PerNode>,
    /// Data that are staged in, as a share of the burst buffer, of jobs whose trace has none
    #[arg(long, value_name = "SHARE", value_parser = share)]
    stage_in: Option<f64>,
    /// Data that are staged out, as a share of the burst buffer, of jobs whose trace has none
    #[arg(long, value_name = "SHARE", value_parser = share)]
    stage_out: Option<f64>,
    /// Computing time between checkpoints of jobs with a burst buffer, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "checkpoint")]
    checkpoint_every: Option<f64>,
    /// Bytes of a checkpoint, as a share of the burst buffer
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "checkpoint_every")]
    checkpoint: Option<f64>,
    /// Processors of a node: traces in Standard Workload Format count processors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    processors_per_node: u32,
    /// Operations a second of a node, for profiles of Batsim with operations
    #[arg(long, value_name = "N", default_value_t = 1e9, value_parser = positive)]
    flops: f64,
    /// Leave out jobs that can never run on the machine, instead of an error
    #[arg(long)]
    skip_impossible: bool,
    /// Shortest running time in the bounded slowdown
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    bound: f64,
    /// Waiting jobs that `plan` plans; those that arrived later are backfilled
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    plan_depth: u32,
    /// Exponent of the waiting times in the sum that `plan` makes small
    #[arg(long, value_name = "X", default_value_t = 2.0, value_parser = positive)]
    plan_exponent: f64,
    /// Seed of the burst buffers of --bb-per-node and of `plan`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    seed: u64,
    /// Simulations at the same time; the results do not depend on their number [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Simulate with each of several values of nodes, storage-nodes, capacity, granularity, storage-rate or
    /// pfs-rate: capacity=100TB..800TB (doublings) or a list; repeated: all combinations
    #[arg(long, value_name = "KEY=VALUES")]
    sweep: Vec<Sweep>,
    #[command(flatten)]
    output: OutputArgs,
}

fn policy(text: &str) -> Result<Policy, String> {
    text.parse()
}

fn per_node(text: &str) -> Result<PerNode, String> {
    text.parse()
}

/// A share from 0 to 1, also as a percentage.
fn share(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match value {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0 to 1, as 0.5 or 50%".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("write a number above 0".to_owned()),
    }
}

pub(super) fn count_above_zero(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("write a whole number above 0".to_owned()),
    }
}

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate(0)) => Err("a rate above zero is required".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn bytes_above_zero(text: &str) -> Result<Bytes, String> {
    size(text)
}

/// One simulation: its point, policy and trace.
#[derive(Clone, Copy, Debug)]
struct Task {
    point: usize,
    policy: usize,
    trace: usize,
}

impl JobsArgs {
    fn assumptions(&self) -> Assumptions {
        let every = self.checkpoint_every.and_then(Millis::of_seconds);
        Assumptions {
            per_node: self.bb_per_node,
            stage_in: self.stage_in,
            stage_out: self.stage_out,
            checkpoint: every.zip(self.checkpoint),
            seed: self.seed,
        }
    }

    fn bound(&self) -> Millis {
        Millis::of_seconds(self.bound).unwrap_or_default()
    }

    fn options(&self, policy: Policy) -> Options {
        let plan = PlanOptions {
            exponent: self.plan_exponent,
            depth: self.plan_depth as usize,
            seed: self.seed,
        };
        Options { policy, plan }
    }

    fn inputs(&self, machine: Option<&Machine>) -> Inputs {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let names: Vec<&str> = self.policy.iter().map(|policy| policy.name()).collect();
        let shares = |value: Option<f64>| text(value.map(|share| share.to_string()));
        let settings = vec![
            ("forebay", super::output::VERSION.to_string()),
            ("machine", text(self.machine.clone())),
            ("policies", names.join(",")),
            ("bb-per-node", text(self.bb_per_node.map(|of| of.to_string()))),
            ("stage-in", shares(self.stage_in)),
            ("stage-out", shares(self.stage_out)),
            ("checkpoint-every", text(self.checkpoint_every.map(|every| format!("{every} s")))),
            ("checkpoint", shares(self.checkpoint)),
            ("processors-per-node", self.processors_per_node.to_string()),
            ("flops", self.flops.to_string()),
            ("bound", format!("{} s", self.bound)),
            ("plan-depth", self.plan_depth.to_string()),
            ("plan-exponent", self.plan_exponent.to_string()),
            ("seed", self.seed.to_string()),
            ("set", self.set.iter().map(Setting::to_string).collect::<Vec<_>>().join(" ")),
        ];
        Inputs {
            command: super::options::command_line(),
            machine_text: machine.map(machine_text).unwrap_or_default(),
            machine_files: machine.map(machine_files).unwrap_or_default(),
            settings,
        }
    }
}

pub(super) fn run(args: JobsArgs) -> Result<(), Failure> {
    let machine = match &args.machine {
        Some(name) => Some(load_with(name, &args.set)?),
        None => None,
    };
    let traces: Vec<TraceFile> =
        args.traces.iter().map(|path| TraceFile::read(path, &args)).collect::<Result<_, _>>()?;
    let settings = combinations(&args.sweep)?;
    let mut points = Vec::with_capacity(settings.len());
    for settings in settings {
        let options = args.cluster.with(&settings)?;
        let cluster = options.resolve(machine.as_ref(), &traces)?;
        let simulated: Vec<Simulated> = traces
            .iter()
            .map(|trace| trace.on(&cluster, &args.assumptions(), args.skip_impossible))
            .collect::<Result<_, _>>()?;
        points.push((settings, cluster, simulated));
    }
    let stem = args.traces[0].file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.split('.').next().unwrap_or_default();
    let output = args.output.prepare(&format!("jobs-{stem}"))?;
    let tasks: Vec<Task> = (0..points.len())
        .flat_map(|point| (0..args.policy.len()).map(move |policy| (point, policy)))
        .flat_map(|(point, policy)| {
            (0..traces.len()).map(move |trace| Task { point, policy, trace })
        })
        .collect();
    let progress = TaskProgress::start(
        tasks.iter().map(|task| points[task.point].2[task.trace].jobs.len()).collect(),
        output.display,
    );
    let threads = args.threads.map_or_else(cores, usize::from);
    let mut histories = run_all(tasks.len(), threads, |nth| {
        let task = tasks[nth];
        let (_, cluster, simulated) = &points[task.point];
        let jobs = &simulated[task.trace].jobs;
        let options = args.options(args.policy[task.policy]);
        simulate(cluster, jobs, &options, &mut |done, _| progress.update(nth, done))
            .map_err(|error| Failure::Input(error.to_string()))
    })?
    .into_iter();
    drop(progress);
    let mut all: Vec<Point> = Vec::with_capacity(points.len());
    for (settings, cluster, simulated) in points {
        let policies = args.policy.iter().map(|policy| {
            let histories: Vec<History> = histories.by_ref().take(traces.len()).collect();
            PolicyResult::new(*policy, &cluster, args.bound(), histories)
        });
        let policies = policies.collect();
        all.push(Point::new(settings, cluster, simulated, policies));
    }
    let run = JobsRun::new(&args, &traces, all);
    write::write(&run, &args.inputs(machine.as_ref()), output)
}

/// The progress of several simulations as one.
struct TaskProgress {
    shown: Progress,
    all: usize,
    done: Mutex<Vec<usize>>,
}

impl TaskProgress {
    fn start(jobs: Vec<usize>, display: Display) -> TaskProgress {
        let (all, tasks) = (jobs.iter().sum(), jobs.len());
        let shown = Progress::bar("jobs", display);
        TaskProgress { shown, all, done: Mutex::new(vec![0; tasks]) }
    }

    fn update(&self, task: usize, done: usize) {
        let sum: usize = {
            let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            all[task] = done;
            all.iter().sum()
        };
        let share = sum as f64 / self.all.max(1) as f64;
        self.shown.update(share, "jobs: ", || {
            format!("{} of {} simulated", grouped(sum as u64), grouped(self.all as u64))
        });
    }
}
