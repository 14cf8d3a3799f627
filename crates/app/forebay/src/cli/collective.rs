//! `forebay sim collective`.

use super::ior::FidelityArg;
use super::observe::delays_text;
use super::options::{
    SimArgs, announce_choice, check_burst_buffers, check_nodes, counted_processes, placement, size,
    study_failure,
};
use super::output::{Files, OutputArgs};
use super::remarks;
use super::replicates::{join, with_interval};
use super::simulation::Simulation;
use super::sweep::{CommonOptions, Sample};
use super::traffic::TrafficOptions;
use crate::plot::palette::PAPER;
use crate::progress::Display;
use crate::report::Inputs;
use crate::{csv_files, figures, report};
use clap::{Arg, Args};
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::{Delays, Observed};
use forebay_machine::results::{CollectiveRun, CollectiveTimes};
use forebay_machine::study::{
    self, Background, CollectiveStudy, Fidelity, Progress, SimOptions, StudyError,
};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{bytes, count, counted, grouped, number, seconds};
use forebay_units::{Bytes, Time};
use forebay_workload::collective::{Algorithm, CollectiveSpec, Operation};
use forebay_workload::placement::Placement;

#[derive(Debug, Args)]
#[command(mut_args(of_traffic))]
#[command(after_help = "Examples:\n  \
        forebay sim collective allreduce --machine theta --nodes 128 --ppn 64 --size 8B\n  \
        forebay sim collective alltoall --machine theta --nodes 64 --size 4KiB --algorithm bruck\n  \
        forebay sim collective ping-pong --machine cori --nodes 2 --size 4MiB --placement random-nodes\n  \
        forebay sim collective barrier --machine theta --nodes 512 --ppn 64 \\\n      \
            --traffic-nodes 2048 --pattern uniform --load 0.5\n  \
        forebay sim collective allreduce --machine cori --nodes 64 --ppn 32 --placement random-nodes \\\n      \
            --ior-nodes 512 --ior-ppn 4 -- -F -w -t 1m -b 64m\n  \
        forebay sim collective allreduce --machine toy --nodes 8 --sweep size=8B..1MiB --sweep nodes=2..16")]
pub(super) struct CollectiveArgs {
    /// barrier, broadcast, reduce, allreduce, allgather, alltoall or alltoallv; or messages between
    /// pairs of nodes: ping-pong, stream (64 messages and an answer) or ring-exchange
    #[arg(value_parser = operation)]
    operation: Operation,
    #[command(flatten)]
    sim: SimArgs,
    /// Nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Processes per node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: u32,
    /// Length of the vector; of each process's block (allgather); of each pair's block (alltoall;
    /// its mean: alltoallv); of each message between pairs [default: 8 B; a barrier has none]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<Bytes>,
    /// Algorithm among the nodes: dissemination, binomial-tree, scatter-allgather,
    /// recursive-doubling, rabenseifner, ring, bruck, pairwise or direct [default: MPICH's choice]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    algorithm: Option<Algorithm>,
    /// Measured iterations
    #[arg(long, value_name = "N", default_value_t = 100)]
    iterations: u32,
    /// Iterations before them
    #[arg(long, value_name = "N", default_value_t = 10)]
    warm_up: u32,
    /// Simulated time before the first iteration, in which the other job loads the network
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    start: Time,
    /// Nodes of a traffic job beside it, which lasts as long
    #[arg(long, value_name = "N", group = "other_job", value_parser = clap::value_parser!(u32).range(1..))]
    traffic_nodes: Option<u32>,
    /// Nodes of an IOR job beside it
    #[arg(long, value_name = "N", group = "other_job", value_parser = clap::value_parser!(u32).range(1..))]
    ior_nodes: Option<u32>,
    /// Processes per node of the IOR job
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ior_nodes", value_parser = clap::value_parser!(u32).range(1..=65536))]
    ior_ppn: u32,
    /// Burst-buffer nodes of IOR's instance [default: all]
    #[arg(long, value_name = "N", requires = "ior_nodes")]
    burst_buffers: Option<u32>,
    /// Placement of the other job, after that of the collective operations
    #[arg(long, value_name = "HOW", default_value = "random-nodes", requires = "other_job", value_parser = placement)]
    background_placement: Placement,
    /// Level of detail: packets, which auto chooses, too. Flows cannot represent single messages, and are an
    /// error
    #[arg(long, value_enum, default_value_t = FidelityArg::Packet)]
    fidelity: FidelityArg,
    #[command(flatten)]
    traffic: TrafficOptions,
    #[command(flatten)]
    output: OutputArgs,
    /// IOR's options, after `--`
    #[arg(last = true, value_name = "IOR OPTIONS", allow_hyphen_values = true)]
    ior: Vec<String>,
}

/// Options of the traffic beside the operations need that traffic.
fn of_traffic(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "pattern" | "message" | "load" | "messages" | "rate_limit" => {
            // What an argument requires is not checked if that is in conflict with another one.
            option.requires("traffic_nodes").conflicts_with("ior_nodes")
        }
        _ => option,
    }
}

fn operation(text: &str) -> Result<Operation, String> {
    text.parse::<Operation>().map_err(|e| e.to_string())
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    text.parse::<Algorithm>().map_err(|e| e.to_string())
}

fn time(text: &str) -> Result<Time, String> {
    text.parse::<Time>().map_err(|e| e.to_string())
}

/// The checked input of a study.
pub(super) struct Input {
    machine: Machine,
    study: CollectiveStudy,
    burst_buffers: Option<u32>,
}

impl CollectiveArgs {
    fn checked(&self) -> Result<Option<Input>, Failure> {
        let machine = self.sim.machine()?;
        let others = self.traffic_nodes.or(self.ior_nodes).unwrap_or(0);
        let what = if others > 0 { "the sum of both jobs' nodes," } else { "--nodes" };
        check_nodes(&machine, what, self.nodes.saturating_add(others))?;
        let (background, burst_buffers) = match (self.traffic_nodes, self.ior_nodes) {
            (Some(nodes), _) => {
                let (spec, placement) = (self.traffic.spec()?, self.background_placement);
                (Some(Background::Traffic { spec, nodes, placement }), None)
            }
            (None, Some(nodes)) => {
                let Some(mut tests) = super::ior::parse_tests(&self.ior)? else {
                    return Ok(None);
                };
                let (Some(ior), true) = (tests.pop(), tests.is_empty()) else {
                    return Err(Failure::Input(
                        "the IOR script has several tests; one runs beside collective operations"
                            .to_string(),
                    ));
                };
                let burst_buffers = check_burst_buffers(&machine, self.burst_buffers)?;
                super::ior::layout(&ior, nodes, self.ior_ppn, self.sim.seed)?;
                let (ppn, placement) = (self.ior_ppn, self.background_placement);
                let ior = Box::new(ior);
                (Some(Background::Ior { ior, nodes, ppn, placement }), Some(burst_buffers))
            }
            (None, None) if !self.ior.is_empty() => {
                return Err(Failure::Input(
                    "IOR's options need the number of its nodes: --ior-nodes N".to_string(),
                ));
            }
            (None, None) => (None, None),
        };
        let study = CollectiveStudy {
            spec: CollectiveSpec {
                operation: self.operation,
                size: self.size()?,
                algorithm: self.algorithm,
            },
            nodes: self.nodes,
            ppn: self.ppn,
            iterations: self.iterations,
            warm_up: self.warm_up,
            start: self.start,
            background,
        };
        let input = Input { machine, study, burst_buffers };
        study::check_collective_fits(&input.machine, &input.study, &self.options(&input))
            .map_err(|e| study_failure(&e))?;
        Ok(Some(input))
    }

    /// The size of the operation.
    fn size(&self) -> Result<Bytes, Failure> {
        match (self.operation, self.size) {
            (Operation::Barrier, Some(size)) => Err(Failure::Input(format!(
                "--size {size}: a barrier carries no data; leave --size out"
            ))),
            (Operation::Barrier, None) => Ok(Bytes::ZERO),
            (_, size) => Ok(size.unwrap_or(Bytes(8))),
        }
    }
}

impl CommonOptions for CollectiveArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }
}

impl Simulation for CollectiveArgs {
    const NAME: &'static str = "collective";
    type Input = Input;
    type Run = CollectiveRun;

    fn input(&self) -> Result<Option<Input>, Failure> {
        self.checked()
    }

    fn machine(input: &Input) -> &Machine {
        &input.machine
    }

    fn options(&self, input: &Input) -> SimOptions {
        let fidelity = self.fidelity.fidelity();
        SimOptions { fidelity, ..self.sim.options(input.burst_buffers) }
    }

    fn label(&self) -> String {
        self.operation.name().to_string()
    }

    fn announce(&self, _: &Input, options: &SimOptions, display: Display) -> Result<(), Failure> {
        let chosen = study::fidelity_of_collective(options).map_err(|e| study_failure(&e))?;
        announce_choice(self.fidelity, chosen, display);
        Ok(())
    }

    fn simulate(
        &self,
        input: &Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<CollectiveRun, StudyError> {
        study::simulate_collective(&input.machine, &input.study, options, progress)
    }

    fn join(&self, runs: Vec<CollectiveRun>) -> CollectiveRun {
        join(self.sim.seed, runs, CollectiveRun::quantities, |run| &mut run.replication)
    }

    fn sample_of(run: CollectiveRun) -> Sample {
        Sample {
            quantities: run.quantities(),
            remarks: remarks_on(&run),
            // Flows cannot represent collective operations.
            fidelity: Fidelity::Packet.name().to_owned(),
            note: run.algorithm,
        }
    }

    fn files<'a>(&self, run: &'a CollectiveRun, inputs: &'a Inputs) -> Files<'a> {
        Files {
            inputs,
            table: table(run),
            parts: csv_files::parts_of_collective(run),
            plot: figures::collective::overview(run, &PAPER),
            report: report::collective(run, inputs),
            links: self.sim.links,
        }
    }

    fn observed(run: &CollectiveRun) -> Option<(Option<&Delays>, &Observed)> {
        Some((run.delays.as_ref(), &run.observed))
    }

    fn settings(&self, input: &Input, _: &CollectiveRun) -> Vec<(&'static str, String)> {
        let algorithm = self.algorithm.map_or("MPICH's choice", Algorithm::name);
        let mut settings = vec![
            ("operation", self.operation.to_string()),
            ("nodes", self.nodes.to_string()),
            ("processes per node", self.ppn.to_string()),
            ("size", input.study.spec.size.to_string()),
            ("algorithm", algorithm.to_string()),
            ("iterations", self.iterations.to_string()),
            ("warm-up", self.warm_up.to_string()),
            ("start", self.start.to_string()),
        ];
        if self.traffic_nodes.or(self.ior_nodes).is_some() {
            settings.push(("placement of the other job", self.background_placement.to_string()));
        }
        if let Some(nodes) = self.traffic_nodes {
            settings.push(("traffic's nodes", nodes.to_string()));
            settings.extend(self.traffic.settings());
        }
        if let Some(nodes) = self.ior_nodes {
            settings.push(("IOR's nodes", nodes.to_string()));
            settings.push(("IOR's processes per node", self.ior_ppn.to_string()));
            settings.push(("ior", self.ior.join(" ")));
        }
        settings
    }
}

/// Remarks on an operation and on the traffic beside it.
fn remarks_on(run: &CollectiveRun) -> Vec<String> {
    let traffic = run.traffic_together.iter().flat_map(|traffic| &traffic.warnings);
    let traffic = traffic.map(|warning| format!("the traffic: {warning}"));
    remarks::remarks(run.warnings.iter().cloned().chain(traffic), &[], &[])
}

/// One row per time: alone and, if there is another job, together and their ratio.
fn comparison(run: &CollectiveRun) -> Table {
    let mut columns = vec![Column::text("", 0), Column::number("alone", 0)];
    if run.together.is_some() {
        columns.extend([Column::number("together", 0), Column::number("together / alone", 0)]);
    }
    let mut table = Table::new(columns);
    // With replicates, means and intervals.
    let shown = |name: &str, value: f64, text: fn(f64) -> String| {
        with_interval(run.replication.as_ref(), name, Some(value), text)
    };
    type Row = (&'static str, [&'static str; 3], fn(&CollectiveTimes) -> f64);
    let rows: [Row; 6] = [
        ("mean", ["mean_seconds", "mean_seconds_together", "mean_ratio"], |t| t.mean_seconds),
        ("least", ["", "", ""], |t| t.min_seconds),
        ("median", ["", "", ""], |t| t.p50_seconds),
        ("99%", ["p99_seconds", "p99_seconds_together", "p99_ratio"], |t| t.p99_seconds),
        ("greatest", ["max_seconds", "max_seconds_together", ""], |t| t.max_seconds),
        (
            "mean of the processes' own times",
            ["process_mean_seconds", "process_mean_seconds_together", ""],
            |t| t.process_mean_seconds,
        ),
    ];
    for (name, [alone_key, together_key, ratio_key], of) in rows {
        let alone = of(&run.alone);
        let mut row = vec![name.to_string(), shown(alone_key, alone, seconds)];
        if let Some(together) = run.together.as_ref().map(of) {
            row.push(shown(together_key, together, seconds));
            row.push(shown(ratio_key, together / alone, number));
        }
        table.push(row);
    }
    table
}

fn table(run: &CollectiveRun) -> String {
    let per_node = run.processes / run.nodes.max(1);
    let mut text = format!(
        "{} of {} on {} with {} each: {} among the nodes, {}, {} sent\n",
        run.operation,
        bytes(run.size_bytes),
        counted(run.nodes.into(), "node"),
        counted_processes(per_node),
        run.algorithm,
        counted(run.rounds.into(), "round"),
        bytes(run.bytes_per_operation),
    );
    if let Some(background) = &run.background {
        text.push_str(&format!("together with {background}\n"));
    }
    text.push_str(&format!("\n{}", comparison(run)));
    if let Some(latency) = run.one_way_seconds {
        text.push_str(&format!("half of the mean round trip: {}\n", seconds(latency)));
    }
    if run.bytes_per_operation > 0 {
        text.push_str(&format!("{} GB/s sent by all nodes\n", number(run.gbps)));
    }
    let cost = &run.together.as_ref().unwrap_or(&run.alone).cost;
    text.push_str(&format!(
        "{} iterations; {} messages between nodes; {} events in {}\n",
        grouped(run.alone.iteration_seconds.len() as u64),
        grouped(run.alone.messages),
        count(cost.events as f64),
        seconds(cost.wall_seconds),
    ));
    text.push_str(&remarks::text(&remarks_on(run)));
    text.push_str(&run.delays.as_ref().map(delays_text).unwrap_or_default());
    text
}
