//! `forebay plan`.

mod running_pool;
mod script;
mod text;

use super::darshan::{distribution, read_io};
use super::forecast::Forecaster;
use super::ior::{FidelityArg, parse_tests};
use super::machine::load_with;
use super::options::{ProgressReporter, check_nodes, cores, placement, seed, setting};
use super::output::{check_output_file, to_json};
use super::pool::size;
use crate::console::{print_stderr, print_stdout};
use crate::progress::Display;
use crate::run_directory::write_file;
use crate::validate::kinds;
use clap::Args;
use forebay_console::Failure;
use forebay_daemon::config::selected_file;
use forebay_job_script::Direction;
use forebay_machine::study::{FileSystem, SimOptions};
use forebay_machine_file::Setting;
use forebay_plan::{
    Job, LoggedWork, OptionKind, Plan, PlanError, System, UnreadableOption, Work,
    checkpoint_arguments, forecast, parse_duration, plan_with,
};
use forebay_units::Bytes;
use forebay_workload::darshan::JobIo;
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use running_pool::{describe_pool, read_rates};
use script::Script;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay plan job.sh --machine cori -- -a POSIX -F -w -t 1m -b 4g\n  \
        forebay plan --machine cori --nodes 64 --ppn 32 --checkpoint 8TiB --interval 1h\n  \
        forebay plan job.sh --machine shaheen2 --checkpoint 2TiB --interval 30min --json -\n  \
        forebay plan job.sh --machine cori --darshan solve.darshan\n  \
        forebay plan job.sh --pool --rates rates.toml -- -a POSIX -F -w -t 1m -b 4g\n\n\
        Nodes, processes and time limit come from the script's #SBATCH lines, stages from its #DW\n\
        lines, unless options say otherwise. docs/plan.md describes the model.")]
pub(super) struct PlanArgs {
    /// The job script
    script: Option<PathBuf>,
    /// The machine: a built-in name (`forebay machine list`) or the path of a .toml file
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "pool")]
    machine: Option<String>,
    /// Instead of a machine, a running pool: its nodes and free granules, with the rates of --rates
    /// [without FILE: $FOREBAY_POOL, or /etc/forebay/pool.toml]
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["machine", "set", "node_kind"], requires = "rates")]
    #[allow(clippy::option_option, reason = "an option with an optional value")]
    pool: Option<Option<PathBuf>>,
    /// The rates of the pool, from `forebay measure`
    #[arg(long, value_name = "FILE", requires = "pool", conflicts_with = "machine")]
    rates: Option<PathBuf>,
    /// Compute nodes [default: the script's --nodes, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Processes per node [default: the script's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: Option<u32>,
    /// The I/O is a checkpoint of this size, which all processes write together, each to a file of its
    /// own; instead of IOR options
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "ior")]
    checkpoint: Option<Bytes>,
    /// The I/O is that of a Darshan log of an earlier run: its phases, and the files that it wrote; instead of
    /// IOR options
    #[arg(long, value_name = "LOG", conflicts_with_all = ["ior", "checkpoint"])]
    darshan: Option<PathBuf>,
    /// Time of computation between two repetitions of the I/O, such as 30min
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    interval: Option<f64>,
    /// Time of the whole run, such as 6h [default: the script's --time]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    run_time: Option<f64>,
    /// Complete sets of the files that the buffer holds at a time [default: 2 checkpoints, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: Option<u32>,
    /// Data that are staged in [default: those of the script's stage_in lines, as far as they are here; with a
    /// log and without such lines the files that the program only read]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    stage_in: Option<Bytes>,
    /// Data that are staged out [default: one set of the files]; the buffer has to hold them
    #[arg(long, value_name = "SIZE", value_parser = size)]
    stage_out: Option<Bytes>,
    /// Level of detail
    #[arg(long, value_enum, default_value_t = FidelityArg::Flow)]
    fidelity: FidelityArg,
    /// Placement of the job: contiguous, random-nodes, random-routers, random-groups
    #[arg(long, value_name = "HOW", default_value = "contiguous", value_parser = placement)]
    placement: Placement,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    seed: u64,
    /// Only compute nodes of this type, as `knl` of cori [default: all types]
    #[arg(long, value_name = "TYPE")]
    node_kind: Option<String>,
    /// A number of the machine instead of its file's, as burst_buffer.granularity=20GiB; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<Setting>,
    /// Also write the result document to a file, or with `-` to standard output and nothing else there
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// IOR's options, after `--`
    #[arg(last = true, value_name = "IOR OPTIONS", allow_hyphen_values = true)]
    ior: Vec<String>,
}

/// The job of the options and the script.
struct PlannedJob {
    job: Job,
    /// The Darshan log, if there is one.
    log: Option<JobIo>,
    /// Inputs of the plan that the script does not determine.
    warnings: Vec<String>,
}

impl PlanArgs {
    /// The job; `None` after `-h` among IOR's options, which prints IOR's help.
    fn job(&self) -> Result<Option<PlannedJob>, Failure> {
        let script = match &self.script {
            Some(path) => {
                let script = Script::read(path)?;
                self.check_batch_options(path, &script)?;
                script
            }
            None => Script::default(),
        };
        let log = self.darshan.as_deref().map(read_io).transpose()?.map(|(io, _program)| io);
        let (nodes, ppn) = self.nodes_and_processes(&script, log.as_ref())?;
        let work = match &log {
            Some(io) => Work::Log(LoggedWork::of(io, (nodes, ppn)).map_err(invalid)?),
            None => match self.test(u64::from(nodes) * u64::from(ppn))? {
                Some(test) => Work::Test(Box::new(test)),
                None => return Ok(None),
            },
        };
        let sets = if self.checkpoint.is_some() { 2 } else { 1 };
        let has_stages = script.directives.stages(Direction::Out).next().is_some();
        let has_inputs = script.directives.stages(Direction::In).next().is_some();
        let mut warnings = Vec::new();
        let (stage_in, stage_in_files) = match (self.stage_in, &log) {
            (Some(bytes), _) => (bytes, None),
            (None, Some(io)) if !has_inputs => {
                (Bytes(io.only_read.bytes), Some(io.only_read.files))
            }
            (None, _) => {
                let (bytes, files, unknown) = script.staged_in();
                warnings = unknown;
                // Many: the sources that are not here may be directories.
                (bytes, warnings.is_empty().then_some(files))
            }
        };
        let is_staged_out = has_stages || self.script.is_none();
        let job = Job {
            nodes,
            ppn,
            work,
            interval: self.interval,
            run_time: self.run_time.or(script.batch.time),
            sets: self.keep.unwrap_or(sets),
            stage_in,
            stage_in_files,
            stage_out: self.stage_out.or((!is_staged_out).then_some(Bytes(0))),
            access_modes: script.access_modes(),
            pool: script.pool(),
        };
        Ok(Some(PlannedJob { job, log, warnings }))
    }

    /// Nodes and processes per node: of the options, else the script's, else those of the log.
    fn nodes_and_processes(
        &self,
        script: &Script,
        log: Option<&JobIo>,
    ) -> Result<(u32, u32), Failure> {
        let nodes = self.nodes.or(script.batch.nodes);
        if let Some(io) = log {
            let ppn = self.ppn.or_else(|| script.batch.per_node(nodes?));
            return distribution(io, nodes, ppn);
        }
        if let (None, None, Some(tasks)) = (nodes, script.batch.tasks_per_node, script.batch.tasks)
            && tasks > 1
        {
            return Err(Failure::Input(format!(
                "the script asks for {tasks} tasks and not for nodes: add --nodes"
            )));
        }
        if let (None, None, Some(path)) = (nodes, script.batch.tasks, &self.script) {
            print_stderr(format_args!(
                "note: {} does not say the number of nodes, and 1 is assumed: add --nodes",
                path.display()
            ));
        }
        let nodes = nodes.unwrap_or(1);
        Ok((nodes, self.ppn.or_else(|| script.batch.per_node(nodes)).unwrap_or(1)))
    }

    /// Fails for a value of the script's batch options that cannot be read and that no option replaces.
    fn check_batch_options(&self, path: &Path, script: &Script) -> Result<(), Failure> {
        for UnreadableOption { line, text, kind } in &script.unreadable {
            let (is_replaced, form, option) = match kind {
                OptionKind::Nodes => (self.nodes.is_some(), "a number such as 4 or 2-4", "--nodes"),
                OptionKind::Tasks => (self.ppn.is_some(), "a number above 0", "--ppn"),
                OptionKind::Time => {
                    (self.run_time.is_some(), "a time such as 90, 1:30:00 or 2-12", "--run-time")
                }
            };
            if !is_replaced {
                return Err(Failure::Input(format!(
                    "{}: line {line}: `{text}`: write {form}, or give {option}",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// The test that stands for the job's I/O.
    fn test(&self, processes: u64) -> Result<Option<Ior>, Failure> {
        let arguments = match self.checkpoint {
            Some(size) => checkpoint_arguments(size, processes).map_err(invalid)?,
            None if self.ior.is_empty() => {
                return Err(Failure::Input(
                    "the job's I/O is missing: write IOR's options after `--`, as \
                     `-- -a POSIX -F -w -t 1m -b 4g`, or give --checkpoint SIZE or --darshan LOG"
                        .into(),
                ));
            }
            None => self.ior.clone(),
        };
        let Some(mut tests) = parse_tests(&arguments)? else { return Ok(None) };
        let count = tests.len();
        match (tests.pop(), tests.is_empty()) {
            (Some(test), true) => Ok(Some(test)),
            (Some(_), false) | (None, _) => {
                Err(Failure::Input(format!("the IOR script has {count} tests; a plan takes one")))
            }
        }
    }

    /// The system, and the job as it is simulated there.
    fn system(&self, job: Job) -> Result<(System, Job), Failure> {
        let (Some(pool), Some(rates)) = (&self.pool, &self.rates) else {
            let name = self.machine.as_deref().unwrap_or_default();
            let machine = load_with(name, &self.set)?;
            check_nodes(&machine, "--nodes", job.nodes)?;
            return Ok((System::of_machine(machine), job));
        };
        let description = describe_pool(&selected_file(pool.clone()), read_rates(rates)?)?;
        let system = System::of_pool(&description, job.nodes, job.ppn).map_err(invalid)?;
        // A pool's nodes take writes into memory; the data are safe after a sync.
        let work = job.work.with_tests(|test| Ior { fsync: test.fsync || test.write, ..test });
        Ok((system, Job { work, ..job }))
    }

    fn options(&self) -> SimOptions {
        SimOptions {
            threads: cores(),
            seed: self.seed,
            placement: self.placement,
            node_kind: self.node_kind.clone(),
            fidelity: self.fidelity.fidelity(),
            // A checkpoint or a log: the user has no options of IOR.
            is_given: self.ior.is_empty(),
            ..SimOptions::default()
        }
    }
}

fn invalid(error: PlanError) -> Failure {
    Failure::Input(error.to_string())
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let Some(PlannedJob { job, log, warnings }) = args.job()? else { return Ok(()) };
    if let Some(path) = args.json.as_deref().filter(|path| path.as_os_str() != "-") {
        check_output_file("--json", path)?;
    }
    let (system, job) = args.system(job)?;
    let mut found = simulated(&system, &job, &args.options())?;
    // A pool has its own measured rates.
    if args.pool.is_none() {
        add_published(&mut found, &job.work)?;
    }
    if let Some(io) = log {
        found.measured_seconds = Some(io.measured.seconds);
        found.warnings = io.warnings;
    }
    found.warnings.extend(warnings);
    if let Some(path) = &args.json {
        let text = to_json(&found)?;
        if path.as_os_str() == "-" {
            return print_stdout(&text);
        }
        write_file(path, text)?;
    }
    print_stdout(&text::text(&found))
}

/// The plan, with an estimate of its packets before, and its progress on standard error.
fn simulated(system: &System, job: &Job, options: &SimOptions) -> Result<Plan, Failure> {
    let display = Display::choose(false);
    let work = forecast(system, job, options).map_err(invalid)?;
    if work.packets > 0.0 {
        Forecaster::default().announce(display, "plan", work, 1, |progress| {
            let alone = SimOptions { threads: 1, ..options.clone() };
            // It ends when the rate is known, or with an error that the plan has, too.
            drop(plan_with(system, job, &alone, progress));
        });
    }
    let shown = ProgressReporter::start("plan", display);
    let goes_on = |time, done, events| shown.update(time, done, events);
    plan_with(system, job, options, &goes_on).map_err(invalid)
}

/// Adds the published rows of the kinds of all simulated phases. A peak rate of the parallel file system is not
/// simulated, and has no number of targets.
fn add_published(plan: &mut Plan, work: &Work) -> Result<(), Failure> {
    let Plan { configurations, transfers, published, .. } = plan;
    for one in configurations.iter().chain(transfers.iter()) {
        let file_system = match (one.capacity.is_some(), one.stripe_count) {
            (true, _) => FileSystem::BurstBuffer,
            (false, None) => continue,
            (false, stripe_count) => FileSystem::Parallel { stripe_count, stripe: None },
        };
        for test in work.each_test() {
            // The tests of a log have sizes of their own.
            let transfer = match work {
                Work::Test(_) => Bytes(one.transfer),
                Work::Log(_) => test.transfer,
            };
            for kind in kinds::published_like(test, transfer, &file_system)? {
                if !published.contains(&kind) {
                    published.push(kind);
                }
            }
        }
    }
    Ok(())
}
