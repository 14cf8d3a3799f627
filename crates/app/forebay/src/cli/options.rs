//! Options that all simulations share.

use super::ior::FidelityArg;
use super::machine::load_with;
use super::observe::ObserveArgs;
use super::sweep_values::Sweep;
use crate::console::print_stderr;
use crate::progress::{self, Display};
use crate::report::Inputs;
use clap::Args;
use forebay_console::Failure;
use forebay_machine::study::{Fidelity, FileSystem, ServerQueues, SimOptions, StudyError};
use forebay_machine_file::Setting;
use forebay_machine_file::describe;
use forebay_machine_file::machine::{Machine, NodeKind, Routing, SourceFile};
use forebay_units::human::{count, grouped, percent, seconds};
use forebay_units::{Bytes, Time};
use forebay_workload::placement::Placement;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(super) struct SimArgs {
    /// The machine: a built-in name (`forebay machine list`) or the path of a .toml file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) machine: String,
    /// Routing algorithm instead of the machine's: minimal, valiant, ugal-l, progressive-adaptive
    #[arg(long, value_parser = routing)]
    pub(super) routing: Option<Routing>,
    /// Placement of the job: contiguous, random-nodes, random-routers, random-groups
    #[arg(long, value_name = "HOW", default_value = "contiguous", value_parser = placement)]
    pub(super) placement: Placement,
    /// Seed of every random choice
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = seed
    )]
    pub(super) seed: u64,
    /// Simulation threads; the results do not depend on their number [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// Maximum packet size instead of the machine's, such as 4KiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) packet: Option<Bytes>,
    /// Simulate with N seeds, from that of --seed on, and give means with 95% confidence intervals
    /// (Student's t); the runs use all cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) seeds: u32,
    /// Only nodes of these groups: 3, or 0-3 [default: all]
    #[arg(long, value_name = "FIRST-LAST", value_parser = groups)]
    pub(super) groups: Option<(u32, u32)>,
    /// Only compute nodes of this type, as `knl` of cori [default: all types]
    #[arg(long, value_name = "TYPE")]
    pub(super) node_kind: Option<String>,
    /// A number of the machine instead of its file's, as burst_buffer.card_write=1.5GB/s; may be
    /// repeated (`forebay machine show NAME --sources` lists the keys)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    pub(super) set: Vec<Setting>,
    /// Simulate at each of several values of an option (nodes=64..1024, load=0.1..0.9+0.1,
    /// pattern=uniform,adversarial), a number of the machine (burst_buffer.threads=8,16,32) or an
    /// option of IOR (ior.t=512k,1m), on all cores; repeated: at all combinations
    #[arg(long, value_name = "KEY=VALUES")]
    pub(super) sweep: Vec<Sweep>,
    /// Also write the use of each link (bytes, busy and stall time, deepest queue) to links.csv in
    /// the run directory
    #[arg(long, conflicts_with_all = ["no_out", "sweep"])]
    pub(super) links: bool,
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
}

fn routing(name: &str) -> Result<Routing, String> {
    match Routing::NAMES.iter().find(|(n, _)| *n == name) {
        Some((_, routing)) => Ok(*routing),
        None => {
            let known: Vec<&str> = Routing::NAMES.iter().map(|(n, _)| *n).collect();
            Err(format!("no such routing algorithm; known are {}", known.join(", ")))
        }
    }
}

/// First and last group.
pub(super) fn groups(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        (Ok(first), Ok::<u32, _>(last)) => {
            Err(format!("{first}-{last} runs backwards; write {last}-{first}"))
        }
        (Err(_), _) | (_, Err(_)) => Err("write one group as 3, several as 0-3".to_string()),
    }
}

/// A key of a machine file and its value.
pub(super) fn setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok(Setting { key: key.trim().to_string(), value: value.trim().to_string() })
        }
        Some(_) | None => Err("write KEY=VALUE, as burst_buffer.card_write=1.5GB/s".to_string()),
    }
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

pub(super) fn placement(name: &str) -> Result<Placement, String> {
    name.parse::<Placement>().map_err(|e| e.to_string())
}

pub(super) fn size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("a size above zero is required".to_string()),
        Ok(size) => Ok(size),
        Err(e) => Err(e.to_string()),
    }
}

impl SimArgs {
    /// The machine.
    pub(super) fn machine(&self) -> Result<Machine, Failure> {
        load_with(&self.machine, &self.set)
    }

    /// Threads that simulate.
    pub(super) fn thread_count(&self) -> usize {
        self.threads.map_or_else(cores, usize::from)
    }

    /// The simulator's options.
    pub(super) fn options(&self, burst_buffers: Option<u32>) -> SimOptions {
        SimOptions {
            threads: self.thread_count(),
            seed: self.seed,
            routing: self.routing,
            placement: self.placement,
            packet: self.packet,
            burst_buffers,
            traffic_nodes: None,
            groups: self.groups,
            node_kind: self.node_kind.clone(),
            each_link: self.links,
            observe: self.observe.options(),
            file_system: FileSystem::default(),
            log: None,
            server_queues: ServerQueues::default(),
            fidelity: Fidelity::default(),
            is_given: false,
        }
    }

    /// The simulator's options for a replicate, counted from 0.
    pub(super) fn options_of(
        &self,
        burst_buffers: Option<u32>,
        replicate: u32,
        threads: usize,
    ) -> SimOptions {
        let seed = self.seed.wrapping_add(replicate.into());
        SimOptions { seed, threads, ..self.options(burst_buffers) }
    }

    /// The machine's name for file names, without loading it.
    pub(super) fn stem(&self) -> &str {
        let name = self.machine.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".toml").unwrap_or(name)
    }

    /// The routing algorithm on a machine.
    pub(super) fn routing_of(&self, machine: &Machine) -> Routing {
        self.routing.unwrap_or(machine.network.routing.algorithm)
    }

    /// The inputs of a run, for the run directory and the report; `more` are the command's own
    /// settings.
    pub(super) fn inputs(
        &self,
        machine: &Machine,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Inputs {
        let packet = self.packet.unwrap_or(machine.network.packet);
        let settings = [
            ("forebay", super::output::VERSION.to_string()),
            ("machine", machine.name.clone()),
            ("routing", self.routing_of(machine).name().to_string()),
            ("placement", self.placement.to_string()),
            ("packet", packet.to_string()),
            ("seed", self.seed.to_string()),
            ("seeds", self.seeds.to_string()),
            ("groups", self.groups.map_or("all".into(), |(first, last)| format!("{first}-{last}"))),
            ("node-kind", self.node_kind.clone().unwrap_or_else(|| "all".into())),
            ("set", self.set.iter().map(Setting::to_string).collect::<Vec<_>>().join(" ")),
            ("threads", self.thread_count().to_string()),
        ];
        Inputs {
            command: command_line(),
            machine_text: machine_text(machine),
            machine_files: machine_files(machine),
            settings: settings.into_iter().chain(more).collect(),
        }
    }
}

/// Description of a machine, and each number with its source.
pub(super) fn machine_text(machine: &Machine) -> String {
    format!("{}\n{}", describe::describe(machine), describe::list_sources(machine))
}

/// The files that a machine was read from; the machine file is named `machine.toml`.
pub(super) fn machine_files(machine: &Machine) -> Vec<(String, String)> {
    let name = |number: usize, file: &SourceFile| match number {
        0 => "machine.toml".to_string(),
        _ => file.name.clone(),
    };
    let files = machine.files.iter().enumerate();
    files.map(|(number, file)| (name(number, file), file.text.clone())).collect()
}

/// The command line, with the program's name instead of its path.
pub(super) fn command_line() -> Vec<String> {
    let words = std::env::args().skip(1);
    std::iter::once("forebay".to_string()).chain(words).collect()
}

/// `1 process`, `2 processes`.
pub(super) fn counted_processes(number: u32) -> String {
    match number {
        1 => "1 process".to_owned(),
        more => format!("{} processes", grouped(more.into())),
    }
}

/// Number of processors that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Checks that a machine has `nodes` compute nodes; `what` names the option.
pub(super) fn check_nodes(machine: &Machine, what: &str, nodes: u32) -> Result<(), Failure> {
    let most = machine.nodes_of_kind(NodeKind::Compute).len();
    if nodes as usize > most {
        return Err(Failure::Input(format!(
            "{what} {nodes}: {} has only {most} compute nodes",
            machine.name
        )));
    }
    Ok(())
}

/// The number of burst-buffer nodes to use: `requested`, or all.
pub(super) fn check_burst_buffers(
    machine: &Machine,
    requested: Option<u32>,
) -> Result<u32, Failure> {
    let most = machine.nodes_of_kind(NodeKind::BurstBuffer).len() as u32;
    if most == 0 {
        return Err(Failure::Input(format!(
            "{} has no burst-buffer nodes; `forebay machine list` shows the machines that have",
            machine.name
        )));
    }
    match requested {
        Some(0) => Err(Failure::Input("--burst-buffers must be at least 1".to_string())),
        Some(n) if n > most => Err(Failure::Input(format!(
            "--burst-buffers {n} exceeds the machine {}, which has {most}",
            machine.name
        ))),
        Some(n) => Ok(n),
        None => Ok(most),
    }
}

/// A study that the simulator refuses is invalid input.
pub(super) fn study_failure(error: &StudyError) -> Failure {
    match error {
        StudyError::Interrupted => Failure::Failed(error.to_string()),
        other => Failure::Input(other.to_string()),
    }
}

/// Says on standard error which fidelity `auto` has chosen.
pub(super) fn announce_choice(requested: FidelityArg, chosen: Fidelity, display: Display) {
    if requested != FidelityArg::Auto || display == Display::Quiet {
        return;
    }
    let most = count(Fidelity::MOST_EVENTS);
    let reason = match chosen {
        Fidelity::Flow => format!("flows, since packets would take more than {most} events"),
        Fidelity::Packet | Fidelity::Auto => {
            format!("packets, which take at most {most} events or which flows cannot replace")
        }
    };
    print_stderr(format_args!("--fidelity auto: {reason}"));
}

/// Shows the progress of a simulation.
pub(super) struct ProgressReporter {
    label: String,
    shown: progress::Progress,
    start: Instant,
}

impl ProgressReporter {
    pub(super) fn start(label: &str, display: Display) -> ProgressReporter {
        ProgressReporter {
            label: label.to_owned(),
            shown: progress::Progress::bar(label, display),
            start: Instant::now(),
        }
    }

    /// Shows progress, and never stops the simulation: a signal ends the whole process.
    pub(super) fn update(&self, simulated: Time, done: f64, events: u64) -> bool {
        let prefix = format!("{}: {} done, ", self.label, percent(done.clamp(0.0, 1.0)));
        self.shown.update(done, &prefix, || {
            progress_text(simulated.as_seconds(), done, events, self.start.elapsed())
        });
        true
    }
}

/// `simulated 12.5 ms, 3.10 M events/s, 12.0 s left`.
fn progress_text(simulated_seconds: f64, done: f64, events: u64, elapsed: Duration) -> String {
    let wall = elapsed.as_secs_f64().max(1e-9);
    let mut text = format!(
        "simulated {}, {} events/s",
        seconds(simulated_seconds),
        count(events as f64 / wall)
    );
    if done > 0.005 && done < 1.0 {
        let left = wall * (1.0 - done) / done;
        text.push_str(&format!(", {} left", seconds(left)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_text_shows_time_rate_and_time_left() {
        let text = progress_text(0.0125, 0.25, 12_400_000, Duration::from_secs(4));
        assert_eq!(text, "simulated 12.5 ms, 3.10 M events/s, 12.0 s left");
        assert!(!progress_text(0.0, 0.0, 0, Duration::from_secs(1)).contains("left"));
    }
}
