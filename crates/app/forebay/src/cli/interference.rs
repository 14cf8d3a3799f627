//! `forebay sim interference`.

use super::options::{
    ProgressReporter, SimArgs, check_burst_buffers, check_nodes, placement, study_failure,
};
use super::output::{Files, OutputArgs};
use super::traffic::TrafficOptions;
use crate::figures;
use crate::plot::palette::PAPER;
use crate::table::{Column, Table};
use crate::{csv_files, report};
use clap::Args;
use forebay_console::Failure;
use forebay_machine::results::InterferenceRun;
use forebay_machine::study;
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
    #[command(flatten)]
    traffic: TrafficOptions,
    #[command(flatten)]
    output: OutputArgs,
    /// IOR's options, after `--`
    #[arg(last = true, value_name = "IOR OPTIONS", allow_hyphen_values = true)]
    ior: Vec<String>,
}

pub(super) fn run(args: InterferenceArgs) -> Result<(), Failure> {
    let Some(tests) = super::ior::parse_tests(&args.ior)? else {
        return Ok(());
    };
    let [test] = tests.as_slice() else {
        return Err(Failure::Input(format!(
            "the IOR script has {} tests; an interference study takes one",
            tests.len()
        )));
    };
    let spec = args.traffic.spec()?;
    let machine = args.sim.machine()?;
    let nodes = args.nodes.saturating_add(args.traffic_nodes);
    check_nodes(&machine, "the sum of --nodes and --traffic-nodes,", nodes)?;
    let burst_buffers = check_burst_buffers(&machine, args.burst_buffers)?;
    super::ior::layout(test, args.nodes, args.ppn, args.sim.seed)?;
    let mut output = args.output.prepare(&format!("interference-{}", machine.name))?;
    let progress = ProgressReporter::start("interference", output.display);
    let run = study::simulate_interference(
        &machine,
        test,
        args.nodes,
        args.ppn,
        &spec,
        args.traffic_nodes,
        &args.sim.options(Some(burst_buffers)),
        args.traffic_placement,
        &|time, done, events| progress.update(time, done, events),
    )
    .map_err(|e| study_failure(&e))?;
    drop(progress);
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
    let mut add = |name: &str, alone: f64, together: f64, text: fn(f64) -> String| {
        table.push([name.to_string(), text(alone), text(together), number(together / alone)]);
    };
    let (alone, together) = (&run.ior_alone, &run.ior_together);
    for (name, alone, together) in [
        ("IOR write GB/s", alone.write_gbps, together.write_gbps),
        ("IOR read GB/s", alone.read_gbps, together.read_gbps),
        (
            "write GB/s per node, acknowledged",
            alone.write_acknowledged_node_gbps,
            together.write_acknowledged_node_gbps,
        ),
        (
            "read GB/s per node, acknowledged",
            alone.read_acknowledged_node_gbps,
            together.read_acknowledged_node_gbps,
        ),
    ] {
        if let (Some(alone), Some(together)) = (alone, together) {
            add(name, alone, together, number);
        }
    }
    let (alone, together) = (&run.traffic_alone, &run.traffic_together);
    let ns = |v: f64| seconds(v * 1e-9);
    let (loads, latencies) =
        ((alone.accepted_load, together.accepted_load), (&alone.latency_ns, &together.latency_ns));
    add("accepted load of the traffic", loads.0, loads.1, percent);
    let (alone, together) = latencies;
    add("latency of the traffic, mean", alone.mean, together.mean, ns);
    add("latency of the traffic, 99%", alone.p99, together.p99, ns);
    table
}

fn table(run: &InterferenceRun) -> String {
    format!(
        "{}IOR alone is limited by the {}, with the traffic by the {}.\n",
        comparison(run),
        figures::ior::resource(&run.ior_alone.limit),
        figures::ior::resource(&run.ior_together.limit)
    )
}
