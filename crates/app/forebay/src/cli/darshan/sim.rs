//! `forebay sim darshan`.

use super::{distribution, log_name, read_io};
use crate::cli::file_system::FileSystemArgs;
use crate::cli::ior::FidelityArg;
use crate::cli::options::{SimArgs, check_burst_buffers, check_nodes, study_failure};
use crate::cli::output::{Files, OutputArgs, VERSION};
use crate::cli::remarks;
use crate::cli::replicates::{join, with_interval};
use crate::cli::simulation::Simulation;
use crate::cli::sweep::{CommonOptions, Sample};
use crate::plot::palette::PAPER;
use crate::report::Inputs;
use crate::validate::kinds;
use crate::{figures, report};
use clap::{Arg, Args};
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::ObserveOptions;
use forebay_machine::results::{DarshanPhase, DarshanRun, PublishedKind};
use forebay_machine::study::{self, FileSystem, Progress, SimOptions, StudyError};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{bytes, counted, grouped, number, seconds};
use forebay_workload::darshan::JobIo;
use forebay_workload::ior::Ior;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(mut_args(of_one_test))]
#[command(after_help = "Examples:\n  \
        forebay sim darshan solve.darshan --machine cori --nodes 64\n  \
        forebay sim darshan solve.darshan --machine shaheen2 --ppn 32 --file-system pfs --stripe-count 144\n  \
        forebay sim darshan solve.darshan --machine cori --nodes 64 --sweep burst-buffers=4..64\n\n\
        docs/darshan.md says what of a log is simulated. `forebay darshan show` lists the phases.")]
pub(in crate::cli) struct DarshanArgs {
    /// The log
    log: PathBuf,
    #[command(flatten)]
    sim: SimArgs,
    /// Nodes of the job [default: the hosts in the log's traces (DXT)]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Processes per node [default: the log's processes divided by --nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: Option<u32>,
    /// Burst-buffer nodes of the instance [default: all]
    #[arg(long, value_name = "N")]
    burst_buffers: Option<u32>,
    #[command(flatten)]
    file_system: FileSystemArgs,
    /// Level of detail of each phase: packets, flows (max-min fair rates), or auto: packets up to 50 million
    /// estimated events, else flows
    #[arg(long, value_enum, default_value_t = FidelityArg::Auto)]
    fidelity: FidelityArg,
    #[command(flatten)]
    output: OutputArgs,
}

/// Observations are of one test, and the phases of a log are many.
fn of_one_test(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "links" | "delays" | "series" | "series_links" | "trace" | "trace_sample" => {
            option.hide(true)
        }
        _ => option,
    }
}

impl CommonOptions for DarshanArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }
}

/// The checked input.
pub(in crate::cli) struct Input {
    machine: Machine,
    io: JobIo,
    program: String,
    distribution: (u32, u32),
    burst_buffers: Option<u32>,
    file_system: FileSystem,
}

impl Simulation for DarshanArgs {
    const NAME: &'static str = "darshan";
    type Input = Input;
    type Run = DarshanRun;

    fn input(&self) -> Result<Option<Input>, Failure> {
        if self.sim.links || self.sim.observe.options() != ObserveOptions::default() {
            return Err(Failure::Input(
                "--links, --delays, --series and --trace are of one test: use them with `forebay sim ior` and \
                 the test of a phase, which `forebay darshan show` prints"
                    .into(),
            ));
        }
        let machine = self.sim.machine()?;
        let (io, program) = read_io(&self.log)?;
        let distribution = distribution(&io, self.nodes, self.ppn)?;
        check_nodes(&machine, "the job's nodes,", distribution.0)?;
        let file_system = self.file_system.checked(self.burst_buffers)?;
        let burst_buffers = match file_system {
            FileSystem::Parallel { .. } => None,
            FileSystem::BurstBuffer => Some(check_burst_buffers(&machine, self.burst_buffers)?),
        };
        let input = Input { machine, io, program, distribution, burst_buffers, file_system };
        study::check_log_fits(&input.machine, &input.io, distribution, &self.options(&input))
            .map_err(|error| study_failure(&error))?;
        Ok(Some(input))
    }

    fn machine(input: &Input) -> &Machine {
        &input.machine
    }

    fn options(&self, input: &Input) -> SimOptions {
        SimOptions {
            fidelity: self.fidelity.fidelity(),
            file_system: input.file_system,
            ..self.sim.options(input.burst_buffers)
        }
    }

    fn label(&self) -> String {
        log_name(&self.log)
    }

    fn simulate(
        &self,
        input: &Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<DarshanRun, StudyError> {
        study::simulate_log(&input.machine, &input.io, input.distribution, options, progress)
    }

    fn complete(&self, input: &Input, run: DarshanRun) -> Result<DarshanRun, Failure> {
        Ok(DarshanRun {
            version: VERSION.into(),
            log: log_name(&self.log),
            program: input.program.clone(),
            file_system: self.file_system.text(&input.machine),
            routing: self.sim.routing_of(&input.machine).name().into(),
            published: published(&run, &input.file_system)?,
            ..run
        })
    }

    fn join(&self, runs: Vec<DarshanRun>) -> DarshanRun {
        join(self.sim.seed, runs, DarshanRun::quantities, |run| &mut run.replication)
    }

    fn sample_of(run: DarshanRun) -> Sample {
        Sample {
            quantities: run.quantities(),
            remarks: remarks_on(&run),
            fidelity: fidelity(&run).into(),
            note: run.limit,
        }
    }

    fn files<'a>(&self, run: &'a DarshanRun, inputs: &'a Inputs) -> Files<'a> {
        Files {
            inputs,
            table: text(run),
            parts: Vec::new(),
            plot: figures::darshan::phases(run, &PAPER),
            report: report::darshan(run, inputs),
            links: false,
        }
    }

    fn settings(&self, _: &Input, run: &DarshanRun) -> Vec<(&'static str, String)> {
        vec![
            ("log", run.log.clone()),
            ("nodes", run.nodes.to_string()),
            ("processes per node", run.ppn.to_string()),
            ("file system", run.file_system.clone()),
            ("burst-buffer nodes", run.burst_buffers.to_string()),
            ("fidelity", self.fidelity.fidelity().name().to_string()),
        ]
    }
}

/// The published rows of the kinds of all parts.
fn published(run: &DarshanRun, file_system: &FileSystem) -> Result<Vec<PublishedKind>, Failure> {
    let mut found = Vec::new();
    for part in run.phases.iter().flat_map(|phase| &phase.parts) {
        let tests = Ior::parse(&part.ior).map_err(|error| Failure::Failed(error.to_string()))?;
        for test in &tests {
            for kind in kinds::published_like(test, test.transfer, file_system)? {
                if !found.contains(&kind) {
                    found.push(kind);
                }
            }
        }
    }
    Ok(found)
}

/// `packet`, `flow`, or both.
fn fidelity(run: &DarshanRun) -> &'static str {
    let parts = || run.phases.iter().flat_map(|phase| &phase.parts);
    match (
        parts().any(|part| part.fidelity == "packet"),
        parts().any(|part| part.fidelity == "flow"),
    ) {
        (true, true) => "packet and flow",
        (false, true) => "flow",
        (_, false) => "packet",
    }
}

fn remarks_on(run: &DarshanRun) -> Vec<String> {
    remarks::remarks(&run.warnings, &run.published, &run.left_out)
}

/// Phases that are printed; the document has all.
const MOST_PHASES: usize = 30;

fn phases(phases: &[DarshanPhase]) -> String {
    let mut table = Table::new([
        Column::text("phase", 0),
        Column::text("files", 0),
        Column::number("processes", 0),
        Column::number("bytes", 0),
        Column::number("requests", 0),
        Column::number("log", 0),
        Column::number("simulated", 0),
        Column::number("log GB/s", 0),
        Column::number("simulated", 0),
        Column::text("limit", 0),
    ]);
    let simulated: Vec<&DarshanPhase> =
        phases.iter().filter(|phase| !phase.parts.is_empty()).collect();
    for phase in simulated.iter().take(MOST_PHASES) {
        let rate = |time: f64| number(phase.bytes as f64 / time / 1e9);
        table.push([
            phase.access.clone(),
            phase.files.clone(),
            grouped(phase.processes.into()),
            bytes(phase.bytes),
            grouped(phase.operations),
            seconds(phase.measured_seconds),
            seconds(phase.slowest_rank_seconds),
            rate(phase.measured_seconds),
            rate(phase.slowest_rank_seconds),
            phase.limit.clone(),
        ]);
    }
    let mut text = table.to_string();
    if let Some(more) = simulated.len().checked_sub(MOST_PHASES).filter(|more| *more > 0) {
        text.push_str(&format!(
            "{}: see the result document\n",
            counted(more as u64, "other phase")
        ));
    }
    text
}

fn text(run: &DarshanRun) -> String {
    let shown = |name: &str, value: Option<f64>, text: fn(f64) -> String| {
        with_interval(run.replication.as_ref(), name, value, text)
    };
    let mut text = format!(
        "{} on {}: {} with {} processes each, {}\n\n{}\n",
        run.log,
        run.machine,
        counted(run.nodes.into(), "node"),
        grouped(run.ppn.into()),
        run.file_system,
        phases(&run.phases),
    );
    let mut table = Table::new([
        Column::text("time of the slowest processes in calls", 0),
        Column::number("log", 0),
        Column::number("simulated", 0),
    ]);
    let of_access = |access: &str| -> f64 {
        run.phases.iter().filter(|one| one.access == access).map(|one| one.measured_seconds).sum()
    };
    for (access, name, value) in
        [("write", "write_seconds", run.write_seconds), ("read", "read_seconds", run.read_seconds)]
    {
        if value.is_some() {
            table.push([access.into(), seconds(of_access(access)), shown(name, value, seconds)]);
        }
    }
    let slowest = Some(run.slowest_rank_seconds);
    table.push([
        "all".into(),
        seconds(run.measured_seconds),
        shown("slowest_rank_seconds", slowest, seconds),
    ]);
    table.push([
        "GB/s".into(),
        run.measured_gbps.map_or("-".into(), number),
        shown("slowest_rank_GBps", run.slowest_rank_gbps, number),
    ]);
    table.push([
        "the run".into(),
        seconds(run.run_seconds),
        run.predicted_run_seconds.map_or("-".into(), seconds),
    ]);
    text.push_str(&format!("{table}fidelity: {}\n", fidelity(run)));
    text.push_str(&remarks::text(&remarks_on(run)));
    text
}
