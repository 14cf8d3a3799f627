//! `forebay sim interference`.

use super::forecast::Forecaster;
use super::ior::FidelityArg;
use super::observe::delays_text;
use super::options::{
    SimArgs, announce_choice, check_burst_buffers, check_nodes, placement, study_failure,
};
use super::output::{Files, OutputArgs};
use super::remarks;
use super::replicates::{replicate, replication, with_interval};
use super::sweep::{self, Sample, Swept};
use super::traffic::TrafficOptions;
use crate::figures;
use crate::plot::palette::PAPER;
use crate::{csv_files, report};
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::results::{InterferenceRun, LatencyNs, TrafficRun};
use forebay_machine::study::{
    Fidelity, InterferenceStudy, Progress, SimOptions, StudyError, fidelity_of_interference,
    forecast_interference, simulate_interference,
};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{number, percent, seconds};
use forebay_workload::placement::Placement;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay sim interference --machine trinity --nodes 512 --traffic-nodes 4096 \\\n      \
            --pattern uniform --load 0.4 -- -a POSIX -F -w -t 1m -b 16m\n  \
        forebay sim interference --machine toy --nodes 2 --traffic-nodes 4 \\\n      \
            --placement random-nodes --traffic-placement contiguous -- -F -w -t 1m -b 4m")]
pub(super) struct InterferenceArgs {
    #[command(flatten)]
    sim: SimArgs,
    /// Nodes of the IOR job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Processes per node of the IOR job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: u32,
    /// Burst-buffer nodes of IOR's instance [default: all]
    #[arg(long, value_name = "N")]
    burst_buffers: Option<u32>,
    /// Nodes of the traffic job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    traffic_nodes: u32,
    /// Placement of the traffic job, after that of IOR
    #[arg(long, value_name = "HOW", default_value = "contiguous", value_parser = placement)]
    traffic_placement: Placement,
    /// Level of detail: packets; flows (max-min fair rates), which give rates and loads and no latencies;
    /// or auto: packets up to 50 million estimated events (ten seconds or so), else flows
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

/// The checked input of an interference study.
struct Study {
    machine: Machine,
    jobs: InterferenceStudy,
    burst_buffers: u32,
}

impl InterferenceArgs {
    /// Checks the input; `None` after `-h`, which prints IOR's help.
    fn study(&self) -> Result<Option<Study>, Failure> {
        let Some(mut tests) = super::ior::parse_tests(&self.ior)? else {
            return Ok(None);
        };
        let count = tests.len();
        let (Some(test), true) = (tests.pop(), tests.is_empty()) else {
            return Err(Failure::Input(format!(
                "the IOR script has {count} tests; an interference study takes one"
            )));
        };
        let traffic = self.traffic.spec()?;
        let machine = self.sim.machine()?;
        let nodes = self.nodes.saturating_add(self.traffic_nodes);
        check_nodes(&machine, "the sum of --nodes and --traffic-nodes,", nodes)?;
        let burst_buffers = check_burst_buffers(&machine, self.burst_buffers)?;
        super::ior::layout(&test, self.nodes, self.ppn, self.sim.seed)?;
        let jobs = InterferenceStudy {
            ior: test,
            ior_nodes: self.nodes,
            ppn: self.ppn,
            traffic,
            traffic_nodes: self.traffic_nodes,
            traffic_placement: self.traffic_placement,
        };
        Ok(Some(Study { machine, jobs, burst_buffers }))
    }
}

impl Study {
    fn simulate(
        &self,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<InterferenceRun, StudyError> {
        simulate_interference(&self.machine, &self.jobs, options, progress)
    }
}

impl Swept for InterferenceArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }

    fn check(&self) -> Result<(), Failure> {
        self.study().map(drop)
    }

    fn sample(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Sample, Failure> {
        let Some(study) = self.study()? else {
            return Err(Failure::Input("--sweep takes one IOR test".to_string()));
        };
        let options = self.sim.options_of(Some(study.burst_buffers), replicate, threads);
        let options = SimOptions { fidelity: self.fidelity.fidelity(), ..options };
        let run = study.simulate(&options, progress).map_err(|e| study_failure(&e))?;
        let mut remarks = remarks::of_interference(&run);
        remarks.extend(remarks::not_simulated(&run.traffic_together.left_out));
        Ok(Sample {
            quantities: run.quantities(),
            remarks,
            fidelity: run.fidelity,
            note: run.traffic_together.state,
        })
    }
}

pub(super) fn run(args: InterferenceArgs) -> Result<(), Failure> {
    let Some(study) = args.study()? else {
        return Ok(());
    };
    if !args.sim.sweep.is_empty() {
        return sweep::run(&args, &format!("sweep-interference-{}", args.sim.stem()));
    }
    args.sim.observe.check(1, args.sim.seeds, &args.output)?;
    let mut output = args.output.prepare(&format!("interference-{}", study.machine.name))?;
    let fidelity = args.fidelity.fidelity();
    let options = SimOptions { fidelity, ..args.sim.options(Some(study.burst_buffers)) };
    let fidelity = fidelity_of_interference(&study.machine, &study.jobs, &options)
        .map_err(|e| study_failure(&e))?;
    announce_choice(args.fidelity, fidelity, output.display);
    let forecast = forecast_interference(&study.machine, &study.jobs, &options)
        .map_err(|e| study_failure(&e))?;
    if fidelity == Fidelity::Packet {
        let seeds = args.sim.seeds;
        Forecaster::default().announce(
            output.display,
            "interference",
            forecast,
            seeds,
            |progress| {
                // A trial ends as interrupted, and the run itself reports errors.
                let _ = study.simulate(&options, progress);
            },
        );
    }
    let mut runs = replicate(
        &options,
        args.sim.seeds,
        "interference",
        output.display,
        |options, progress| study.simulate(options, progress),
    )?;
    let replication = replication(args.sim.seed, &runs, InterferenceRun::quantities);
    let mut run = runs.swap_remove(0);
    run.replication = replication;
    let (machine, burst_buffers) = (study.machine, study.burst_buffers);
    let settings = [
        ("IOR's nodes", args.nodes.to_string()),
        ("processes per node", args.ppn.to_string()),
        ("burst-buffer nodes", burst_buffers.to_string()),
        ("ior", args.ior.join(" ")),
        ("traffic's nodes", args.traffic_nodes.to_string()),
        ("traffic's placement", args.traffic_placement.to_string()),
    ];
    let inputs = args.sim.inputs(&machine, args.traffic.settings().into_iter().chain(settings));
    let table = table(&run);
    output.print_and_record(table.trim_end())?;
    let files = Files {
        inputs: &inputs,
        table: &table,
        parts: csv_files::parts_of_interference(&run),
        plot: figures::traffic::interference_overview(&run, &PAPER),
        report: report::interference(&run, &inputs),
        links: args.sim.links,
    };
    output.write_result_files("", &run, &files)?;
    let together = &run.ior_together;
    args.sim.observe.write(&output, ("", ""), together.delays.as_ref(), &together.observed)?;
    output.finish(&run)
}

/// One row per quantity: alone, together, and their ratio.
fn comparison(run: &InterferenceRun) -> Table {
    let mut table = Table::new([
        Column::text("", 0),
        Column::number("alone", 0),
        Column::number("together", 0),
        Column::number("together / alone", 0),
    ]);
    // With replicates, means and intervals.
    let shown = |name: &str, value: Option<f64>, text: fn(f64) -> String| {
        with_interval(run.replication.as_ref(), name, value, text)
    };
    let mut add = |name: &str,
                   keys: Option<[&str; 3]>,
                   values: (Option<f64>, Option<f64>),
                   text: fn(f64) -> String| {
        let (alone, together) = values;
        if alone.is_none() && together.is_none() {
            return;
        }
        let ratio = alone.zip(together).map(|(alone, together)| together / alone);
        let [a, t, r] = keys.unwrap_or_default();
        table.push([
            name.to_string(),
            shown(a, alone, text),
            shown(t, together, text),
            shown(r, ratio, number),
        ]);
    };
    let (alone, together) = (&run.ior_alone, &run.ior_together);
    let ratio = |write: bool| {
        // The ratio of IOR's rates is that of the writes, if there are any.
        if write == alone.write_gbps.is_some() { "ior_rate_ratio" } else { "" }
    };
    let keys = Some(["write_GBps_alone", "write_GBps_together", ratio(true)]);
    add("IOR write GB/s", keys, (alone.write_gbps, together.write_gbps), number);
    let keys = Some(["read_GBps_alone", "read_GBps_together", ratio(false)]);
    add("IOR read GB/s", keys, (alone.read_gbps, together.read_gbps), number);
    let acknowledged = (alone.write_acknowledged_node_gbps, together.write_acknowledged_node_gbps);
    add("write GB/s per node, acknowledged", None, acknowledged, number);
    let acknowledged = (alone.read_acknowledged_node_gbps, together.read_acknowledged_node_gbps);
    add("read GB/s per node, acknowledged", None, acknowledged, number);
    let (alone, together) = (&run.traffic_alone, &run.traffic_together);
    let loads = (Some(alone.accepted_load), Some(together.accepted_load));
    let keys = Some(["accepted_load_alone", "accepted_load_together", ""]);
    add("accepted load of the traffic", keys, loads, percent);
    let ns = |v: f64| seconds(v * 1e-9);
    let latency = |run: &TrafficRun, of: fn(&LatencyNs) -> f64| run.latency_ns.as_ref().map(of);
    let means = (latency(alone, |l| l.mean), latency(together, |l| l.mean));
    let keys = Some(["traffic_latency_alone", "traffic_latency_together", "traffic_latency_ratio"]);
    add("latency of the traffic, mean", keys, means, ns);
    let tails = (latency(alone, |l| l.p99), latency(together, |l| l.p99));
    add("latency of the traffic, 99%", None, tails, ns);
    table
}

fn table(run: &InterferenceRun) -> String {
    let mut text = format!(
        "{}IOR alone is limited by the {}, with the traffic by the {}.\n",
        comparison(run),
        figures::ior::resource(&run.ior_alone.limit),
        figures::ior::resource(&run.ior_together.limit)
    );
    if run.fidelity == Fidelity::Flow.name() {
        let left_out = run.traffic_together.left_out.join("; ");
        text.push_str(&format!("With flows, which leave out {left_out}.\n"));
    }
    let [from, to] = run.traffic_together.window_seconds;
    text.push_str(&format!(
        "The traffic is measured from {} to {} of both runs.\n",
        seconds(from),
        seconds(to)
    ));
    for remark in remarks::of_interference(run) {
        text.push_str(&format!("{remark}\n"));
    }
    text.push_str(&run.ior_together.delays.as_ref().map(delays_text).unwrap_or_default());
    text
}
