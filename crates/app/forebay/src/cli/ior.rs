//! `forebay sim ior`.

use super::file_system::FileSystemArgs;
use super::forecast::Forecaster;
use super::logged::{self, LogArg, LogArgParser};
use super::nodes::NodeCounts;
use super::observe::delays_text;
use super::options::{SimArgs, check_burst_buffers, check_nodes, study_failure};
use super::output::{Files, Output, OutputArgs};
use super::remarks;
use super::replicates::{join, replicate, with_interval};
use super::sweep::{self, CommonOptions, Sample, Swept};
use crate::console::{print_stderr, print_stdout};
use crate::figures;
use crate::plot::palette::PAPER;
use crate::progress::Display;
use crate::report::{self, Inputs};
use crate::validate::{kinds, published};
use crate::{csv_files, ior_output};
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{self, Column};
use forebay_machine::results::{IorPoint, IorStudy, PublishedKind, SCHEMA};
use forebay_machine::study::{self, Fidelity, FileSystem, LogFlush, Progress, SimOptions};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{self, counted, grouped, number};
use forebay_workload::ior::{self, AccessPattern, Ior, IorError, Processes};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay sim ior --machine trinity-phase2 --nodes 1..8192 -- -a POSIX -F -w -t 1m -b 64m\n  \
        forebay sim ior --machine trinity-phase2 --nodes 1..8192 --fidelity flow -- -F -w -r -t 1m -b 16g\n  \
        forebay sim ior --machine cori-phase1 --nodes 64 --ppn 4 --json - -- -a MPIIO -g -t 512k -b 8m\n  \
        forebay sim ior --machine toy --nodes 4 --seeds 5 --set burst_buffer.card_write=1GB/s \\\n      \
            -- -F -w -t 1m -b 16m\n  \
        forebay sim ior --machine toy --nodes 4 --sweep nodes=1..16 \\\n      \
            --sweep burst_buffer.threads=8,16,32 -- -F -w -t 1m -b 16m\n  \
        forebay sim ior --machine toy --nodes 1,2,4 --burst-buffers 1 -- -F -w -r -t 512k -b 4m\n  \
        forebay sim ior --machine shaheen2 --nodes 1..1024 --fidelity flow --file-system pfs \\\n      \
            --stripe-count 144 -- -w -t 1m -b 4g\n  \
        forebay sim ior --machine cori --nodes 1..64 --ppn 16 --node-kind haswell --fidelity flow \\\n      \
            --file-system pfs --log close -- -a MPIIO -w -t 64k -b 64k -s 256\n\n\
        `forebay sim ior --machine toy --nodes 1 -- -h` lists IOR's options.")]
pub(super) struct IorArgs {
    #[command(flatten)]
    sim: SimArgs,
    /// Node counts: 512, a list 1,16,64, doublings 1..8192, or a combination
    #[arg(long, value_name = "COUNTS")]
    nodes: NodeCounts,
    /// Processes per node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: u32,
    /// Burst-buffer nodes of the instance [default: all]
    #[arg(long, value_name = "N")]
    burst_buffers: Option<u32>,
    #[command(flatten)]
    file_system: FileSystemArgs,
    /// Also simulate the write phase through the log of MPI-IO (docs/mpiio.md) on the burst buffer, and when
    /// the log is applied to the file; for tests with -a MPIIO. Logs of this program: --log-file FILE
    #[arg(long, value_parser = LogArgParser, value_name = "WHEN")]
    log: Option<LogArg>,
    /// Append logs of this program to this file, as `--log` before `sim`
    #[arg(id = "log_file", long = "log-file", value_name = "FILE", help_heading = "Logs")]
    // `LogArguments` has an argument of this id and gets its value.
    log_file: Option<PathBuf>,
    /// Level of detail: packets, flows (max-min fair rates: seconds for any amount of data), or auto:
    /// packets up to 50 million estimated events (ten seconds or so), else flows
    #[arg(long, value_enum, default_value_t = FidelityArg::Packet)]
    fidelity: FidelityArg,
    /// Print IOR's own output for each node count
    #[arg(long, conflicts_with = "sweep")]
    ior_output: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// IOR's options, after `--`
    #[arg(last = true, value_name = "IOR OPTIONS", allow_hyphen_values = true)]
    ior: Vec<String>,
}

/// Level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FidelityArg {
    /// Each packet at each link
    Packet,
    /// Max-min fair rates
    Flow,
    /// Packets if that is fast, else flows
    Auto,
}

impl FidelityArg {
    pub(super) fn fidelity(self) -> Fidelity {
        match self {
            FidelityArg::Packet => Fidelity::Packet,
            FidelityArg::Flow => Fidelity::Flow,
            FidelityArg::Auto => Fidelity::Auto,
        }
    }
}

const COLUMNS: [Column; 9] = [
    Column::number("nodes", 7),
    Column::number("processes", 9),
    Column::number("write GB/s", 10),
    Column::number("steady", 8),
    Column::number("read GB/s", 10),
    Column::number("steady", 8),
    Column::number("GB/s per node", 11),
    Column::number("acknowledged", 12),
    Column::text("limit", 12),
];

/// The tests of an IOR command line; `None` after `-h`, which prints IOR's help.
pub(super) fn parse_tests(arguments: &[String]) -> Result<Option<Vec<Ior>>, Failure> {
    match Ior::parse(arguments) {
        Ok(tests) => Ok(Some(tests)),
        Err(IorError::Help) => {
            print_stdout(&ior::help())?;
            Ok(None)
        }
        Err(e) => Err(Failure::Input(e.to_string())),
    }
}

/// The file layout of a test, which fails if the test does not fit the job.
pub(super) fn layout(
    test: &Ior,
    nodes: u32,
    ppn: u32,
    seed: u64,
) -> Result<AccessPattern, Failure> {
    let count = nodes.checked_mul(ppn).ok_or_else(|| {
        Failure::Input(format!("{nodes} nodes with {ppn} processes each are too many processes"))
    })?;
    AccessPattern::new(test, Processes { count, per_node: ppn, seed })
        .map_err(|e| Failure::Input(format!("on {}: {e}", counted(nodes.into(), "node"))))
}

impl IorArgs {
    /// The machine and the simulator's options, if the tests fit the machine.
    fn check_tests(&self, tests: &[Ior]) -> Result<(Machine, SimOptions), Failure> {
        let machine = self.sim.machine()?;
        check_nodes(&machine, "--nodes", self.nodes.largest())?;
        let file_system = self.file_system()?;
        let burst_buffers = match (file_system, self.log) {
            (FileSystem::Parallel { .. }, None) => None,
            (FileSystem::Parallel { .. }, Some(_)) | (FileSystem::BurstBuffer, _) => {
                Some(check_burst_buffers(&machine, self.burst_buffers)?)
            }
        };
        let options = SimOptions {
            fidelity: self.fidelity.fidelity(),
            file_system,
            log: self.log.map(LogArg::flush),
            ..self.sim.options(burst_buffers)
        };
        for test in tests {
            for nodes in &self.nodes.0 {
                layout(test, *nodes, self.ppn, self.sim.seed)?;
                study::check_ior_fits(&machine, test, *nodes, self.ppn, &options).map_err(|e| {
                    Failure::Input(format!("on {}: {e}", counted((*nodes).into(), "node")))
                })?;
            }
        }
        Ok((machine, options))
    }

    /// The file system of the test's files. Those of the logs are on the burst buffer in any case.
    fn file_system(&self) -> Result<FileSystem, Failure> {
        self.file_system.checked(self.burst_buffers.filter(|_| self.log.is_none()))
    }

    /// The test and the node count of a sweep, which has one of each.
    fn single(&self) -> Result<(Ior, u32), Failure> {
        let mut tests = parse_tests(&self.ior)?.unwrap_or_default();
        match (tests.pop(), tests.is_empty(), self.nodes.0.as_slice()) {
            (Some(test), true, [nodes]) => Ok((test, *nodes)),
            (Some(_), true, _) => Err(Failure::Input(format!(
                "--sweep with --nodes {}: sweep the node counts, too, with --sweep nodes={}",
                self.nodes, self.nodes
            ))),
            (Some(_), false, _) | (None, ..) => {
                Err(Failure::Input("--sweep takes one IOR test".to_string()))
            }
        }
    }
}

impl CommonOptions for IorArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }
}

impl Swept for IorArgs {
    fn check(&self) -> Result<(), Failure> {
        self.check_tests(&[self.single()?.0]).map(drop)
    }

    fn sample(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Sample, Failure> {
        let (test, nodes) = self.single()?;
        let machine = self.sim.machine()?;
        let options = SimOptions {
            fidelity: self.fidelity.fidelity(),
            file_system: self.file_system()?,
            log: self.log.map(LogArg::flush),
            ..self.sim.options_of(self.burst_buffers, replicate, threads)
        };
        let point = study::simulate_ior(&machine, &test, nodes, self.ppn, &options, progress)
            .map_err(|e| study_failure(&e))?;
        let published = kinds::published_like(&test, test.transfer, &options.file_system)?;
        Ok(Sample {
            quantities: point.quantities(),
            remarks: remarks::remarks(ior_warnings(&point), &published, &point.left_out),
            fidelity: point.fidelity,
            note: point.limit,
        })
    }
}

pub(super) fn run(args: IorArgs) -> Result<(), Failure> {
    let Some(tests) = parse_tests(&args.ior)? else {
        return Ok(());
    };
    if !args.sim.sweep.is_empty() {
        return sweep::run(&args, "ior");
    }
    // Everything is checked before anything is simulated: the largest job comes last.
    let (machine, options) = args.check_tests(&tests)?;
    let burst_buffers = options.burst_buffers.unwrap_or_default();
    args.sim.observe.check(tests.len() * args.nodes.0.len(), args.sim.seeds, &args.output)?;
    let mut output = args.output.prepare(&format!("ior-{}", machine.name))?;
    let settings = [
        ("nodes", args.nodes.to_string()),
        ("processes per node", args.ppn.to_string()),
        ("file system", args.file_system.text(&machine)),
        ("burst-buffer nodes", burst_buffers.to_string()),
        ("log", options.log.map_or("none", LogFlush::name).to_string()),
        ("fidelity", options.fidelity.name().to_string()),
        ("ior", args.ior.join(" ")),
    ];
    let inputs = args.sim.inputs(&machine, settings);
    for note in tests.iter().flat_map(|t| &t.notes) {
        print_stderr(format_args!("note: {note}"));
    }
    let mut studies = Vec::new();
    for test in &tests {
        let folder = if tests.len() > 1 { format!("test-{}", test.id) } else { String::new() };
        if tests.len() > 1 {
            output.print_and_record(&format!("test {}", test.id))?;
        }
        let job =
            TestRun { args: &args, machine: &machine, test, options: &options, folder: &folder };
        let study = job.run(&mut output)?;
        job.write(&study, &inputs, &output)?;
        studies.push((folder, study));
    }
    if let [(_, study)] = studies.as_slice() {
        return output.finish(study);
    }
    let documents: Vec<&IorStudy> = studies.iter().map(|(_, study)| study).collect();
    output.write("", "table.txt", output.recorded())?;
    output.write("", "summary.json", super::output::to_json(&documents)?)?;
    output.finish_several(&studies)
}

/// One IOR test at all node counts.
struct TestRun<'a> {
    args: &'a IorArgs,
    machine: &'a Machine,
    test: &'a Ior,
    options: &'a SimOptions,
    /// Folder of its files in the run directory; empty for the top.
    folder: &'a str,
}

impl TestRun<'_> {
    fn run(&self, output: &mut Output) -> Result<IorStudy, Failure> {
        let args = self.args;
        let mut points = Vec::new();
        let mut forecaster = Forecaster::default();
        for nodes in &args.nodes.0 {
            let label = counted((*nodes).into(), "node");
            let simulate = |options: &SimOptions, progress: Progress<'_>| {
                study::simulate_ior(self.machine, self.test, *nodes, args.ppn, options, progress)
            };
            let forecast =
                study::forecast_ior(self.machine, self.test, *nodes, args.ppn, self.options)
                    .map_err(|e| study_failure(&e))?;
            match self.fidelity_of(*nodes)? {
                Fidelity::Flow => announce_flows(output.display, &label, forecast),
                Fidelity::Packet | Fidelity::Auto => {
                    forecaster.announce(output.display, &label, forecast, args.sim.seeds, |p| {
                        // A trial ends as interrupted, and the run itself reports errors.
                        let _ = simulate(self.options, p);
                    });
                }
            }
            let replicates =
                replicate(self.options, args.sim.seeds, &label, output.display, simulate)?;
            let point = join(args.sim.seed, replicates, IorPoint::quantities, |point| {
                &mut point.replication
            });
            if point.fidelity == Fidelity::Packet.name() {
                forecaster.learn(point.run.events, point.run.wall_seconds);
            }
            // Not before the estimate, which is on standard error.
            if points.is_empty() {
                output.print_and_record(&table::heading(&COLUMNS))?;
            }
            output.print_and_record(&row(&point))?;
            let layout = layout(self.test, *nodes, args.ppn, args.sim.seed)?;
            let text = ior_output::text(&args.ior, &self.machine.name, self.test, &layout, &point);
            output.write(self.folder, &format!("ior-{nodes}-nodes.txt"), &text)?;
            let name = match args.nodes.0.len() {
                1 => String::new(),
                _ => format!("-{nodes}-nodes"),
            };
            args.sim.observe.write(
                output,
                (self.folder, &name),
                point.delays.as_ref(),
                &point.observed,
            )?;
            if let Some(delays) = &point.delays {
                output.print_and_record(&delays_text(delays))?;
            }
            if args.ior_output {
                output.print_line(&text)?;
            }
            points.push(point);
        }
        let Self { test, options, .. } = *self;
        let published = kinds::published_like(test, test.transfer, &options.file_system)?;
        for line in below(&points, &published, options.fidelity) {
            output.print_and_record(&line)?;
        }
        Ok(IorStudy {
            schema: SCHEMA,
            kind: "sim ior".to_string(),
            version: super::output::VERSION.to_string(),
            machine: self.machine.name.clone(),
            ior: args.ior.clone(),
            ppn: args.ppn,
            file_system: self.args.file_system.text(self.machine),
            burst_buffers: self.options.burst_buffers.unwrap_or(0),
            seed: args.sim.seed,
            routing: args.sim.routing_of(self.machine).name().to_string(),
            placement: args.sim.placement.to_string(),
            points,
            published,
        })
    }

    /// The fidelity with which a node count is simulated.
    fn fidelity_of(&self, nodes: u32) -> Result<Fidelity, Failure> {
        let Self { machine, test, options, .. } = *self;
        study::fidelity_of_ior(machine, test, nodes, self.args.ppn, options)
            .map_err(|e| study_failure(&e))
    }

    fn write(&self, study: &IorStudy, inputs: &Inputs, output: &Output) -> Result<(), Failure> {
        let published = published::all()?;
        let rows = figures::ior::comparable(study, self.test.file_per_process, &published);
        let files = Files {
            inputs,
            table: table(study, self.options.fidelity),
            parts: csv_files::parts_of_study(study),
            plot: figures::ior::bandwidth(study, &rows).draw(&PAPER),
            report: report::ior(study, &rows, inputs),
            links: self.args.sim.links,
        };
        output.write_result_files(self.folder, study, &files)
    }
}

/// Says that flows are simulated, and how many events they save.
fn announce_flows(display: Display, label: &str, packets: study::Forecast) {
    if display != Display::Quiet {
        let events = human::count(packets.events);
        print_stderr(format_args!("{label}: flows (as packets: an estimated {events} events)"));
    }
}

/// The fidelity of the points, and what flows leave out; `None` if all are of packets.
fn fidelity_text(points: &[IorPoint]) -> Option<String> {
    let is_flow = |point: &&IorPoint| point.fidelity == Fidelity::Flow.name();
    let flows: Vec<String> =
        points.iter().filter(is_flow).map(|point| grouped(point.nodes.into())).collect();
    let left_out = &points.iter().find(is_flow)?.left_out;
    let which = match flows.len() == points.len() {
        true => "fidelity: flow".to_string(),
        false => format!("fidelity: flow at {} nodes, else packet", flows.join(", ")),
    };
    Some(format!("{which}; not simulated:\n  {}", left_out.join("\n  ")))
}

/// The warnings about the points, by node count.
fn warnings(points: &[IorPoint]) -> impl Iterator<Item = String> {
    points.iter().flat_map(|point| {
        let nodes = counted(point.nodes.into(), "node");
        ior_warnings(point).map(move |warning| format!("{nodes}: {warning}"))
    })
}

/// The warnings about a test at one node count, without the repetitions of its iterations.
fn ior_warnings(point: &IorPoint) -> impl Iterator<Item = &String> {
    point.phases.iter().filter(|phase| phase.iteration == 0).flat_map(|phase| &phase.warnings)
}

/// The lines below the table: the log, remarks, and the fidelity, unless it is the one of packets that was asked for.
fn below(points: &[IorPoint], published: &[PublishedKind], asked: Fidelity) -> Vec<String> {
    let is_auto = asked == Fidelity::Auto;
    let packets = is_auto.then(|| "fidelity: packet".to_string());
    let remarks = remarks::remarks(warnings(points), published, &[]);
    logged::lines(points).chain(remarks).chain(fidelity_text(points).or(packets)).collect()
}

fn cells(point: &IorPoint) -> Vec<String> {
    let rate = |v: Option<f64>| v.map_or("-".to_string(), number);
    let estimated = |name, value| with_interval(point.replication.as_ref(), name, value, number);
    let (per_node, acknowledged) = figures::ior::of_a_node(point);
    vec![
        grouped(point.nodes.into()),
        grouped(point.processes.into()),
        estimated("write_GBps", point.write_gbps),
        estimated("write_steady_GBps", point.steady_gbps("write")),
        estimated("read_GBps", point.read_gbps),
        estimated("read_steady_GBps", point.steady_gbps("read")),
        rate(per_node),
        rate(acknowledged),
        point.limit.clone(),
    ]
}

fn row(point: &IorPoint) -> String {
    table::line(&COLUMNS, &cells(point))
}

fn table(study: &IorStudy, asked: Fidelity) -> String {
    let mut lines = vec![table::heading(&COLUMNS)];
    lines.extend(study.points.iter().map(row));
    lines.extend(study.points.iter().filter_map(|p| Some(delays_text(p.delays.as_ref()?))));
    lines.extend(below(&study.points, &study.published, asked));
    lines.join("\n") + "\n"
}
