//! `forebay sim interference`.

use super::options::{
    ProgressReporter, SimArgs, check_burst_buffers, check_nodes, placement, study_failure,
};
use super::output::{Files, OutputArgs};
use super::traffic::TrafficOptions;
use crate::failure::Failure;
use crate::figures;
use crate::plot::palette::PAPER;
use crate::quantity::{percent, seconds, significant};
use crate::table::{self, Column};
use crate::{links, report, series};
use clap::Args;
use forebay_machine::results::{InterferenceRun, TrafficRun};
use forebay_machine::study;
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
    /// IOR's processes a node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    ppn: u32,
    /// Burst-buffer nodes of IOR's instance [default: all]
    #[arg(long, value_name = "N")]
    burst_buffers: Option<u32>,
    /// Nodes of the traffic job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    traffic_nodes: u32,
    /// Which nodes the traffic job gets, after IOR has its own
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
            "the IOR script has {} tests; interference is studied with one at a time",
            tests.len()
        )));
    };
    let spec = args.traffic.spec()?;
    let machine = args.sim.machine()?;
    let nodes = args.nodes.saturating_add(args.traffic_nodes);
    check_nodes(&machine, "the sum of --nodes and --traffic-nodes,", nodes)?;
    let burst_buffers = check_burst_buffers(&machine, args.burst_buffers)?;
    super::ior::layout(test, args.nodes, args.ppn, args.sim.seed)?;
    let mut output = args
        .output
        .prepare(&format!("interference-{}", machine.name))?;
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
        &progress,
    )
    .map_err(|e| study_failure(&e))?;
    drop(progress);
    let mut inputs = args.sim.inputs(&machine);
    inputs.settings.extend(args.traffic.settings());
    for (name, value) in [
        ("IOR's nodes", args.nodes.to_string()),
        ("processes a node", args.ppn.to_string()),
        ("burst-buffer nodes", burst_buffers.to_string()),
        ("ior", args.ior.join(" ")),
        ("traffic's nodes", args.traffic_nodes.to_string()),
        ("traffic's placement", args.traffic_placement.to_string()),
    ] {
        inputs.settings.push((name.to_string(), value));
    }
    let table = table(&run);
    output.print_and_record(table.trim_end())?;
    let files = Files {
        inputs: &inputs,
        table: &table,
        series: series::of_interference(&run),
        plot: figures::traffic::interference_overview(&run, &PAPER),
        report: report::interference(&run, &inputs),
        links: args.sim.links.then(|| links::of_interference(&run)),
    };
    output.write_result_files("", &run, &files)?;
    output.finish(&run)
}

fn table(run: &InterferenceRun) -> String {
    let columns = [
        Column::text("", 0),
        Column::number("alone", 0),
        Column::number("together", 0),
        Column::number("together / alone", 0),
    ];
    let mut rows = Vec::new();
    let mut add = |name: &str, a: f64, b: f64, text: fn(f64) -> String| {
        rows.push(vec![name.to_string(), text(a), text(b), significant(b / a)]);
    };
    let (alone, together) = (&run.ior_alone, &run.ior_together);
    for (name, a, b) in [
        ("IOR write GB/s", alone.write_gbps, together.write_gbps),
        ("IOR read GB/s", alone.read_gbps, together.read_gbps),
        (
            "a node's write GB/s, acknowledged",
            alone.write_acknowledged_node_gbps,
            together.write_acknowledged_node_gbps,
        ),
        (
            "a node's read GB/s, acknowledged",
            alone.read_acknowledged_node_gbps,
            together.read_acknowledged_node_gbps,
        ),
    ] {
        if let (Some(a), Some(b)) = (a, b) {
            add(name, a, b, significant);
        }
    }
    let ns = |v: f64| seconds(v * 1e-9);
    let (alone, together): (&TrafficRun, &TrafficRun) = (&run.traffic_alone, &run.traffic_together);
    add(
        "traffic's accepted load",
        alone.accepted_load,
        together.accepted_load,
        percent,
    );
    add(
        "traffic's latency, mean",
        alone.latency_ns.mean,
        together.latency_ns.mean,
        ns,
    );
    add(
        "traffic's latency, 99%",
        alone.latency_ns.p99,
        together.latency_ns.p99,
        ns,
    );
    let limits = format!(
        "IOR alone is limited by the {}, beside the traffic by the {}.\n",
        figures::ior::resource(&run.ior_alone.limit),
        figures::ior::resource(&run.ior_together.limit)
    );
    table::whole(&columns, &rows) + &limits
}
