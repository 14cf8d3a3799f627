//! `forebay sim traffic`.

use super::ior::FidelityArg;
use super::observe::delays_text;
use super::options::{SimArgs, announce_choice, check_nodes, size, study_failure};
use super::output::{Files, OutputArgs};
use super::remarks;
use super::replicates::{join, with_interval};
use super::simulation::Simulation;
use super::sweep::{CommonOptions, Sample};
use crate::plot::palette::PAPER;
use crate::progress::Display;
use crate::report::Inputs;
use crate::{csv_files, figures, report};
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::{Delays, Observed};
use forebay_machine::results::TrafficRun;
use forebay_machine::study::{self, Fidelity, Progress, SimOptions, StudyError};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{bytes, count, counted, grouped, number, percent, seconds};
use forebay_units::{Bytes, Rate};
use forebay_workload::traffic::{Injection, TrafficPattern, TrafficSpec};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay sim traffic --machine theta --pattern uniform --message 4KiB --load 0.3\n  \
        forebay sim traffic --machine trinity --pattern adversarial --routing minimal --load 0.1\n  \
        forebay sim traffic --machine toy --load saturation --messages 500 --seeds 4\n  \
        forebay sim traffic --machine trinity-phase2 --pattern adversarial --load saturation --fidelity flow\n  \
        forebay sim traffic --machine toy --sweep load=0.1..0.9+0.1 --sweep routing=minimal,ugal-l\n  \
        forebay sim traffic --machine toy --pattern hot-spot:nodes=2,share=0.2 --messages 100 --json -")]
pub(super) struct TrafficArgs {
    #[command(flatten)]
    sim: SimArgs,
    /// Nodes that send [default: all compute nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    nodes: Option<u32>,
    /// Level of detail: packets; flows (max-min fair rates), which give the accepted load and no latencies;
    /// or auto: packets up to 50 million estimated events (ten seconds or so), else flows
    #[arg(long, value_enum, default_value_t = FidelityArg::Packet)]
    fidelity: FidelityArg,
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
    /// Load that each node offers, as a share of its link's rate: above 0 and at most 1; or
    /// `saturation`, to search the greatest load that the network accepts
    #[arg(long, value_name = "SHARE", default_value = "0.3", allow_negative_numbers = true, value_parser = load)]
    load: Load,
    /// Times at which nodes send their messages: each at random times of its own (a Poisson process), or
    /// all at the same times, at equal intervals (periodic)
    #[arg(long, value_name = "random|periodic", default_value_t, value_parser = injection)]
    injection: Injection,
    /// Messages that each node sends; beside another job the traffic lasts as long as that [default: 20]
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// Greatest rate at which each node of the traffic sends, such as 2GB/s, as a limit for the quality of
    /// service of other jobs
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate_limit: Option<Rate>,
}

/// Messages of each node without `--messages`.
const DEFAULT_MESSAGES: u64 = 20;

/// The offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Share(f64),
    Saturation,
}

fn load(text: &str) -> Result<Load, String> {
    match text {
        "saturation" => Ok(Load::Saturation),
        _ => text.parse().map(Load::Share).map_err(|_| {
            "a share of the node link's rate, above 0 and at most 1, or `saturation`".to_string()
        }),
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    text.parse::<Rate>().map_err(|e| e.to_string())
}

fn injection(text: &str) -> Result<Injection, String> {
    text.parse::<Injection>().map_err(|e| e.to_string())
}

fn pattern(text: &str) -> Result<TrafficPattern, String> {
    text.parse::<TrafficPattern>().map_err(|e| e.to_string())
}

impl TrafficOptions {
    /// The specification for the simulator; that of the full rate for a search.
    fn spec_at_most(&self) -> Result<TrafficSpec, Failure> {
        let load = match self.load {
            Load::Share(load) => load,
            Load::Saturation => 1.0,
        };
        TrafficSpec::new(self.pattern, self.message, load, self.messages())
            .map(|spec| spec.with_injection(self.injection))
            .and_then(|spec| spec.with_rate_limit(self.rate_limit))
            .map_err(|e| Failure::Input(e.to_string()))
    }

    fn messages(&self) -> u64 {
        self.messages.unwrap_or(DEFAULT_MESSAGES)
    }

    /// The specification of traffic beside another job, which needs a load and lasts as long as the other.
    pub(super) fn spec(&self) -> Result<TrafficSpec, Failure> {
        if self.load == Load::Saturation {
            return Err(Failure::Input(
                "--load saturation: a search is of `sim traffic` alone; give a share".to_string(),
            ));
        }
        if let Some(messages) = self.messages {
            return Err(Failure::Input(format!(
                "--messages {messages}: the traffic lasts as long as the other job; leave --messages out"
            )));
        }
        self.spec_at_most()
    }

    /// The settings for the inputs of a run.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let load = match self.load {
            Load::Share(load) => load.to_string(),
            Load::Saturation => "saturation".to_string(),
        };
        let mut settings = vec![
            ("pattern", self.pattern.to_string()),
            ("message", self.message.to_string()),
            ("load", load),
            ("injection", self.injection.to_string()),
        ];
        settings.extend(self.rate_limit.map(|limit| ("rate limit a node", limit.to_string())));
        settings
    }
}

impl CommonOptions for TrafficArgs {
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
    /// That of the full rate for a search.
    spec: TrafficSpec,
}

impl Simulation for TrafficArgs {
    const NAME: &'static str = "traffic";
    type Input = Input;
    type Run = TrafficRun;

    fn input(&self) -> Result<Option<Input>, Failure> {
        let spec = self.traffic.spec_at_most()?;
        let machine = self.sim.machine()?;
        if let Some(nodes) = self.nodes {
            check_nodes(&machine, "--nodes", nodes)?;
        }
        let input = Input { machine, spec };
        study::check_traffic_fits(&input.machine, &input.spec, &self.options(&input))
            .map_err(|e| study_failure(&e))?;
        Ok(Some(input))
    }

    fn machine(input: &Input) -> &Machine {
        &input.machine
    }

    fn options(&self, _: &Input) -> SimOptions {
        let fidelity = self.fidelity.fidelity();
        SimOptions { traffic_nodes: self.nodes, fidelity, ..self.sim.options(None) }
    }

    fn label(&self) -> String {
        self.traffic.pattern.name().to_string()
    }

    fn announce(
        &self,
        input: &Input,
        options: &SimOptions,
        display: Display,
    ) -> Result<(), Failure> {
        let Input { machine, spec } = input;
        let fidelity = study::fidelity_of_traffic(machine, spec, options);
        let fidelity = fidelity.map_err(|e| study_failure(&e))?;
        announce_choice(self.fidelity, fidelity, display);
        if let (Load::Share(_), Fidelity::Packet) = (self.traffic.load, fidelity) {
            let forecast = study::forecast_traffic(machine, spec, options);
            let forecast = forecast.map_err(|e| study_failure(&e))?;
            self.announce_forecast((input, options), display, forecast);
        }
        Ok(())
    }

    /// Simulates at the load, or searches the saturation load.
    fn simulate(
        &self,
        Input { machine, spec }: &Input,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<TrafficRun, StudyError> {
        match self.traffic.load {
            Load::Share(_) => study::simulate_traffic(machine, spec, options, progress),
            Load::Saturation => study::find_saturation(machine, spec, options, progress),
        }
    }

    fn join(&self, runs: Vec<TrafficRun>) -> TrafficRun {
        let saturated = runs.iter().filter(|run| run.is_saturated()).count();
        let seeds = runs.len();
        let mut run = join(self.sim.seed, runs, TrafficRun::quantities, |run| &mut run.replication);
        if saturated > 0 && saturated < seeds {
            run.warnings.push(format!(
                "saturated with {saturated} of {seeds} seeds: their mean has no latency"
            ));
        }
        run
    }

    fn sample_of(run: TrafficRun) -> Sample {
        let mut quantities = run.quantities();
        if let Some(search) = &run.saturation {
            quantities.insert(0, ("saturation_load", "", Some(search.accepted)));
        }
        let remarks = remarks::remarks(&run.warnings, &[], &run.left_out);
        Sample { quantities, remarks, note: run.state, fidelity: run.fidelity }
    }

    fn files<'a>(&self, run: &'a TrafficRun, inputs: &'a Inputs) -> Files<'a> {
        Files {
            inputs,
            table: table(run),
            parts: csv_files::parts_of_traffic(run),
            plot: figures::traffic::overview(run, &PAPER),
            report: report::traffic(run, inputs),
            links: self.sim.links,
        }
    }

    fn observed(run: &TrafficRun) -> Option<(Option<&Delays>, &Observed)> {
        Some((run.delays.as_ref(), &run.observed))
    }

    fn settings(&self, _: &Input, run: &TrafficRun) -> Vec<(&'static str, String)> {
        let mut settings = self.traffic.settings();
        settings.push(("nodes", run.nodes.to_string()));
        settings.push(("messages a node", self.traffic.messages().to_string()));
        settings
    }
}

/// The results as text.
fn table(run: &TrafficRun) -> String {
    let mut out = String::new();
    for (name, value) in facts(run) {
        out.push_str(&format!("{name:<14}{value}\n"));
    }
    if let Some(search) = &run.saturation {
        let above =
            search.refused.map_or(String::new(), |l| format!(", {} is refused", percent(l)));
        // The search is that of the first seed, and the loads above are means over all of them.
        let seed = match run.replication.as_ref().and_then(|all| all.seeds.first()) {
            Some(first) => format!(" with seed {first}"),
            None => String::new(),
        };
        out.push_str(&format!(
            "{:<14}accepts {}{above}{seed} ({} loads simulated)\n",
            "saturation",
            percent(search.accepted),
            search.steps.len()
        ));
    }
    // What flows leave out is among the facts.
    out.push_str(&remarks::text(&remarks::remarks(&run.warnings, &[], &[])));
    out.push('\n');
    out.push_str(&link_table(run).to_string());
    out.push_str(&run.delays.as_ref().map(delays_text).unwrap_or_default());
    out
}

/// Facts about the whole run, by name.
fn facts(run: &TrafficRun) -> Vec<(&'static str, String)> {
    let interval = |name: &str, value: Option<f64>, text: fn(f64) -> String| {
        with_interval(run.replication.as_ref(), name, value, text)
    };
    let ns = |v: f64| seconds(v * 1e-9);
    let latency = match &run.latency_ns {
        Some(l) => format!(
            "mean {}, median {}, 99% {}, largest {}",
            interval("latency_mean", Some(l.mean), ns),
            interval("latency_p50", Some(l.p50), ns),
            interval("latency_p99", Some(l.p99), ns),
            ns(l.max)
        ),
        None if is_flow(run) => "not given: flows have no queues".to_string(),
        None => "not given: less is accepted than offered".to_string(),
    };
    let [from, to] = run.window_seconds;
    let seeds = match &run.replication {
        Some(replication) => format!("; {} seeds, 95% intervals", replication.seeds.len()),
        None => String::new(),
    };
    let mut facts = vec![
        ("offered load", percent(run.offered_load)),
        (
            "accepted load",
            format!(
                "{}{} ({} of the whole run)",
                interval("accepted_load", Some(run.accepted_load), percent),
                if run.replication.is_some() { ", mean of the seeds" } else { "" },
                percent(run.run_load)
            ),
        ),
        (
            "state",
            format!("{}, measured from {} to {}{seeds}", run.state, seconds(from), seconds(to)),
        ),
        ("latency", latency),
    ];
    facts.extend(if is_flow(run) { facts_of_flows(run) } else { facts_of_packets(run) });
    facts
}

/// Whether a run was simulated with flows.
fn is_flow(run: &TrafficRun) -> bool {
    run.fidelity == Fidelity::Flow.name()
}

/// Facts that only packets have.
fn facts_of_packets(run: &TrafficRun) -> Vec<(&'static str, String)> {
    let interval = |name: &str, value: Option<f64>, text: fn(f64) -> String| {
        with_interval(run.replication.as_ref(), name, value, text)
    };
    vec![
        (
            "hops",
            format!(
                "mean {}, {} of packets took a detour",
                interval("hops_mean", Some(run.hops_mean), number),
                interval("nonminimal_share", Some(run.nonminimal_share), percent)
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

/// Facts that flows have instead.
fn facts_of_flows(run: &TrafficRun) -> Vec<(&'static str, String)> {
    vec![
        (
            "hops",
            format!(
                "mean {}, {} of the bytes took a detour",
                number(run.hops_mean),
                percent(run.nonminimal_share)
            ),
        ),
        (
            "delivered",
            format!(
                "{} in {}",
                bytes(run.bytes_delivered),
                seconds(run.window_seconds[1] - run.window_seconds[0])
            ),
        ),
        ("simulator", format!("flows, {}", seconds(run.cost.wall_seconds))),
        ("left out", run.left_out.join("; ")),
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
