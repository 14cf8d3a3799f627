//! `forebay sim collective`.

use super::ior::FidelityArg;
use super::observe::delays_text;
use super::options::{
    SimArgs, announce_choice, check_burst_buffers, check_nodes, counted_processes, placement, size,
    study_failure,
};
use super::output::{Files, OutputArgs};
use super::remarks;
use super::replicates::{replicate, replication, with_interval};
use super::sweep::{self, Sample, Swept};
use super::traffic::TrafficOptions;
use crate::figures;
use crate::plot::palette::PAPER;
use crate::{csv_files, report};
use clap::{Arg, Args};
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::results::{CollectiveRun, CollectiveTimes};
use forebay_machine::study::{self, Background, CollectiveStudy, Progress, SimOptions, StudyError};
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
struct Input {
    machine: Machine,
    study: CollectiveStudy,
    burst_buffers: Option<u32>,
}

impl CollectiveArgs {
    /// Checks the input; `None` after `-h`, which prints IOR's help.
    fn input(&self) -> Result<Option<Input>, Failure> {
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
        let fidelity = self.fidelity.fidelity();
        let options = SimOptions { fidelity, ..self.sim.options(burst_buffers) };
        study::check_collective_fits(&machine, &study, &options).map_err(|e| study_failure(&e))?;
        Ok(Some(Input { machine, study, burst_buffers }))
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

    fn simulate(
        input: &Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<CollectiveRun, StudyError> {
        study::simulate_collective(&input.machine, &input.study, options, progress)
    }

    /// The command's own settings.
    fn settings(&self, input: &Input) -> Vec<(&'static str, String)> {
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

impl Swept for CollectiveArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }

    fn check(&self) -> Result<(), Failure> {
        self.input().map(drop)
    }

    fn sample(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Sample, Failure> {
        let Some(input) = self.input()? else {
            return Err(Failure::Input("--sweep takes one IOR test".to_string()));
        };
        let options = self.sim.options_of(input.burst_buffers, replicate, threads);
        let options = SimOptions { fidelity: self.fidelity.fidelity(), ..options };
        let run = Self::simulate(&input, &options, progress).map_err(|e| study_failure(&e))?;
        let chosen = study::fidelity_of_collective(&options).map_err(|e| study_failure(&e))?;
        Ok(Sample {
            quantities: run.quantities(),
            remarks: remarks::of_collective(&run),
            fidelity: chosen.name().to_owned(),
            note: run.algorithm,
        })
    }
}

pub(super) fn run(args: CollectiveArgs) -> Result<(), Failure> {
    let Some(input) = args.input()? else {
        return Ok(());
    };
    if !args.sim.sweep.is_empty() {
        return sweep::run(&args, &format!("sweep-collective-{}", args.sim.stem()));
    }
    args.sim.observe.check(1, args.sim.seeds, &args.output)?;
    let mut output = args.output.prepare(&format!("collective-{}", input.machine.name))?;
    let fidelity = args.fidelity.fidelity();
    let options = SimOptions { fidelity, ..args.sim.options(input.burst_buffers) };
    let chosen = study::fidelity_of_collective(&options).map_err(|e| study_failure(&e))?;
    announce_choice(args.fidelity, chosen, output.display);
    let label = args.operation.name();
    let mut runs =
        replicate(&options, args.sim.seeds, label, output.display, |options, progress| {
            CollectiveArgs::simulate(&input, options, progress)
        })?;
    let replication = replication(args.sim.seed, &runs, CollectiveRun::quantities);
    let mut run = runs.swap_remove(0);
    run.replication = replication;
    let inputs = args.sim.inputs(&input.machine, args.settings(&input));
    let table = table(&run);
    output.print_and_record(table.trim_end())?;
    let files = Files {
        inputs: &inputs,
        table: &table,
        parts: csv_files::parts_of_collective(&run),
        plot: figures::collective::overview(&run, &PAPER),
        report: report::collective(&run, &inputs),
        links: args.sim.links,
    };
    output.write_result_files("", &run, &files)?;
    args.sim.observe.write(&output, ("", ""), run.delays.as_ref(), &run.observed)?;
    output.finish(&run)
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
    for remark in remarks::of_collective(run) {
        text.push_str(&format!("{remark}\n"));
    }
    text.push_str(&run.delays.as_ref().map(delays_text).unwrap_or_default());
    text
}
