//! `forebay sim traffic`.

use super::options::{ProgressReporter, SimArgs, size, study_failure};
use super::output::{Files, OutputArgs};
use crate::figures;
use crate::plot::palette::PAPER;
use crate::table::{Column, Table};
use crate::{csv_files, report};
use clap::Args;
use forebay_console::Failure;
use forebay_machine::results::TrafficRun;
use forebay_machine::study;
use forebay_units::Bytes;
use forebay_units::human::{bytes, count, counted, grouped, number, percent, seconds};
use forebay_workload::traffic::{TrafficPattern, TrafficSpec};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay sim traffic --machine theta --pattern uniform --message 4KiB --load 0.3\n  \
        forebay sim traffic --machine trinity --pattern adversarial --routing minimal --load 0.1\n  \
        forebay sim traffic --machine toy --pattern hot-spot:nodes=2,share=0.2 --messages 100 --json -")]
pub(super) struct TrafficArgs {
    #[command(flatten)]
    sim: SimArgs,
    #[command(flatten)]
    traffic: TrafficOptions,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct TrafficOptions {
    /// uniform, nearest-group, adversarial, all-to-all, halo, hot-spot or permutation, some with
    /// parameters: halo:x=8,y=4,z=4, hot-spot:nodes=4,share=0.2
    #[arg(long, default_value = "uniform", value_parser = pattern)]
    pattern: TrafficPattern,
    /// Message size
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size)]
    message: Bytes,
    /// Load that each node offers, as a share of its link's rate: above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, allow_negative_numbers = true)]
    load: f64,
    /// Messages that each node sends
    #[arg(long, value_name = "N", default_value_t = 20)]
    messages: u64,
}

fn pattern(text: &str) -> Result<TrafficPattern, String> {
    text.parse::<TrafficPattern>().map_err(|e| e.to_string())
}

impl TrafficOptions {
    /// The specification for the simulator.
    pub(super) fn spec(&self) -> Result<TrafficSpec, Failure> {
        TrafficSpec::new(self.pattern, self.message, self.load, self.messages)
            .map_err(|e| Failure::Input(e.to_string()))
    }

    /// The settings for the inputs of a run.
    pub(super) fn settings(&self) -> [(&'static str, String); 4] {
        [
            ("pattern", self.pattern.to_string()),
            ("message", self.message.to_string()),
            ("load", self.load.to_string()),
            ("messages a node", self.messages.to_string()),
        ]
    }
}

pub(super) fn run(args: TrafficArgs) -> Result<(), Failure> {
    let spec = args.traffic.spec()?;
    let machine = args.sim.machine()?;
    let mut output = args.output.prepare(&format!("traffic-{}", machine.name))?;
    let progress = ProgressReporter::start(spec.pattern.name(), output.display);
    let run =
        study::simulate_traffic(&machine, &spec, &args.sim.options(None), &|time, done, events| {
            progress.update(time, done, events)
        })
        .map_err(|e| study_failure(&e))?;
    drop(progress);
    let inputs = args.sim.inputs(&machine, args.traffic.settings());
    let table = table(&run);
    output.print_and_record(table.trim_end())?;
    let files = Files {
        inputs: &inputs,
        table: &table,
        parts: csv_files::parts_of_traffic(&run),
        plot: figures::traffic::overview(&run, &PAPER),
        report: report::traffic(&run, &inputs),
        links: args.sim.links,
    };
    output.write_result_files("", &run, &files)?;
    output.finish(&run)
}

/// The results as text.
pub(super) fn table(run: &TrafficRun) -> String {
    let mut out = String::new();
    for (name, value) in facts(run) {
        out.push_str(&format!("{name:<14}{value}\n"));
    }
    out.push('\n');
    out.push_str(&link_table(run).to_string());
    out
}

/// Facts about the whole run, by name.
fn facts(run: &TrafficRun) -> [(&'static str, String); 6] {
    let l = &run.latency_ns;
    let ns = |v: f64| seconds(v * 1e-9);
    [
        ("offered load", percent(run.offered_load)),
        ("accepted load", percent(run.accepted_load)),
        (
            "latency",
            format!(
                "mean {}, median {}, 99% {}, largest {}",
                ns(l.mean),
                ns(l.p50),
                ns(l.p99),
                ns(l.max)
            ),
        ),
        (
            "hops",
            format!(
                "mean {}, {} of packets took a detour",
                number(run.hops_mean),
                percent(run.nonminimal_share)
            ),
        ),
        (
            "delivered",
            format!(
                "{} messages, {} packets, {} in {}",
                grouped(run.messages_delivered),
                grouped(run.cost.packets_delivered),
                bytes(run.bytes_delivered),
                seconds(run.cost.simulated_seconds)
            ),
        ),
        (
            "simulator",
            format!(
                "{} packets/s, {} events in {} on {}, peak memory {}",
                count(run.packets_per_second),
                count(run.cost.events as f64),
                seconds(run.cost.wall_seconds),
                counted(run.cost.threads as u64, "thread"),
                bytes(run.cost.peak_rss_bytes)
            ),
        ),
    ]
}

/// The links, by class.
fn link_table(run: &TrafficRun) -> Table {
    let mut table = Table::new([
        Column::text("links", 0),
        Column::number("number", 0),
        Column::number("carried", 0),
        Column::number("mean busy", 0),
        Column::number("busiest", 0),
        Column::number("deepest queue", 0),
    ]);
    for class in &run.links {
        table.push([
            class.class.clone(),
            grouped(class.links),
            bytes(class.bytes),
            percent(class.mean_utilisation),
            percent(class.max_utilisation),
            bytes(class.max_queue_bytes),
        ]);
    }
    table
}
