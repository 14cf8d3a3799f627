//! `forebay sim interference`.

use super::ior::FidelityArg;
use super::observe::delays_text;
use super::options::{
    SimArgs, announce_choice, check_burst_buffers, check_nodes, placement, study_failure,
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
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::{Delays, Observed};
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

impl CommonOptions for InterferenceArgs {
    fn sim(&self) -> &SimArgs {
        &self.sim
    }

    fn output(&self) -> &OutputArgs {
        &self.output
    }
}

/// The checked input.
pub(super) struct Input {
    machine: Machine,
    jobs: InterferenceStudy,
    burst_buffers: u32,
}

impl Simulation for InterferenceArgs {
    const NAME: &'static str = "interference";
    type Input = Input;
    type Run = InterferenceRun;

    fn input(&self) -> Result<Option<Input>, Failure> {
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
        Ok(Some(Input { machine, jobs, burst_buffers }))
    }

    fn machine(input: &Input) -> &Machine {
        &input.machine
    }

    fn options(&self, input: &Input) -> SimOptions {
        let fidelity = self.fidelity.fidelity();
        SimOptions { fidelity, ..self.sim.options(Some(input.burst_buffers)) }
    }

    fn label(&self) -> String {
        Self::NAME.to_string()
    }

    fn announce(
        &self,
        input: &Input,
        options: &SimOptions,
        display: Display,
    ) -> Result<(), Failure> {
        let Input { machine, jobs, .. } = input;
        let fidelity = fidelity_of_interference(machine, jobs, options);
        let fidelity = fidelity.map_err(|e| study_failure(&e))?;
        announce_choice(self.fidelity, fidelity, display);
        if fidelity == Fidelity::Packet {
            let forecast = forecast_interference(machine, jobs, options);
            let forecast = forecast.map_err(|e| study_failure(&e))?;
            self.announce_forecast((input, options), display, forecast);
        }
        Ok(())
    }

    fn simulate(
        &self,
        input: &Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<InterferenceRun, StudyError> {
        simulate_interference(&input.machine, &input.jobs, options, progress)
    }

    fn join(&self, runs: Vec<InterferenceRun>) -> InterferenceRun {
        join(self.sim.seed, runs, InterferenceRun::quantities, |run| &mut run.replication)
    }

    fn sample_of(run: InterferenceRun) -> Sample {
        Sample {
            quantities: run.quantities(),
            remarks: remarks::remarks(warnings(&run), &[], &run.traffic_together.left_out),
            fidelity: run.fidelity,
            note: run.traffic_together.state,
        }
    }

    fn files<'a>(&self, run: &'a InterferenceRun, inputs: &'a Inputs) -> Files<'a> {
        Files {
            inputs,
            table: table(run),
            parts: csv_files::parts_of_interference(run),
            plot: figures::traffic::interference_overview(run, &PAPER),
            report: report::interference(run, inputs),
            links: self.sim.links,
        }
    }

    fn observed(run: &InterferenceRun) -> Option<(Option<&Delays>, &Observed)> {
        Some((run.ior_together.delays.as_ref(), &run.ior_together.observed))
    }

    fn settings(&self, input: &Input, _: &InterferenceRun) -> Vec<(&'static str, String)> {
        let mut settings = self.traffic.settings();
        settings.extend([
            ("IOR's nodes", self.nodes.to_string()),
            ("processes per node", self.ppn.to_string()),
            ("burst-buffer nodes", input.burst_buffers.to_string()),
            ("ior", self.ior.join(" ")),
            ("traffic's nodes", self.traffic_nodes.to_string()),
            ("traffic's placement", self.traffic_placement.to_string()),
        ]);
        settings
    }
}

/// Warnings about IOR and traffic, alone and together.
fn warnings(run: &InterferenceRun) -> Vec<String> {
    let mut all = Vec::new();
    for (when, point) in [("alone", &run.ior_alone), ("together", &run.ior_together)] {
        let warnings = point.phases.iter().flat_map(|phase| &phase.warnings);
        all.extend(warnings.map(|warning| format!("IOR {when}: {warning}")));
    }
    for (when, traffic) in [("alone", &run.traffic_alone), ("together", &run.traffic_together)] {
        all.extend(traffic.warnings.iter().map(|warning| format!("traffic {when}: {warning}")));
    }
    all
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
    text.push_str(&remarks::text(&remarks::remarks(warnings(run), &[], &[])));
    text.push_str(&run.ior_together.delays.as_ref().map(delays_text).unwrap_or_default());
    text
}
