//! Options that all simulations share.

use super::machine::load;
use crate::failure::Failure;
use crate::progress::{Display, Meter};
use crate::report::Inputs;
use clap::Args;
use forebay_machine::study::{Progress, SimOptions, StudyError};
use forebay_machine_file::machine::{Machine, NodeKind, Routing, SourceFile};
use forebay_machine_file::{ROUTINGS, describe};
use forebay_units::{Bytes, Time};
use forebay_workload::placement::Placement;

#[derive(Debug, Args)]
pub(super) struct SimArgs {
    /// The machine: a built-in name (`forebay machine list`) or the path of a .toml file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) machine: String,
    /// Routing instead of the machine's own: minimal, valiant, ugal-l, progressive-adaptive
    #[arg(long, value_parser = routing)]
    pub(super) routing: Option<Routing>,
    /// Which nodes the job gets: contiguous, random-nodes, random-routers, random-groups
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
    /// Threads that simulate; the results do not depend on it [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// Largest packet instead of the machine's own, as 4KiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) packet: Option<Bytes>,
    /// Also write what each link did (bytes, busy and stall time, deepest queue): links.csv in the
    /// run directory
    #[arg(long, conflicts_with = "no_out")]
    pub(super) links: bool,
}

fn routing(name: &str) -> Result<Routing, String> {
    match ROUTINGS.iter().find(|(n, _)| *n == name) {
        Some((_, routing)) => Ok(*routing),
        None => {
            let known: Vec<&str> = ROUTINGS.iter().map(|(n, _)| *n).collect();
            Err(format!(
                "there is no such routing; known are {}",
                known.join(", ")
            ))
        }
    }
}

/// A routing's name, as it is typed.
pub(super) fn routing_name(routing: Routing) -> &'static str {
    ROUTINGS
        .iter()
        .find(|(_, r)| *r == routing)
        .map_or("unnamed", |(name, _)| name)
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

pub(super) fn placement(name: &str) -> Result<Placement, String> {
    name.parse::<Placement>().map_err(|e| e.to_string())
}

pub(super) fn size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("a size above zero is needed".to_string()),
        Ok(size) => Ok(size),
        Err(e) => Err(e.to_string()),
    }
}

impl SimArgs {
    /// The machine.
    pub(super) fn machine(&self) -> Result<Machine, Failure> {
        load(&self.machine)
    }

    /// The simulator's options.
    pub(super) fn options(&self, burst_buffers: Option<u32>) -> SimOptions {
        SimOptions {
            threads: self.threads.map_or_else(cores, usize::from),
            seed: self.seed,
            routing: self.routing,
            placement: self.placement,
            packet: self.packet,
            burst_buffers,
            each_link: self.links,
        }
    }

    /// The inputs of a run, for the run directory and the report.
    pub(super) fn inputs(&self, machine: &Machine) -> Inputs {
        let packet = self.packet.unwrap_or(machine.network.packet);
        let routing = self.routing.unwrap_or(machine.network.routing.algorithm);
        let settings = [
            ("forebay", super::VERSION.to_string()),
            ("machine", machine.name.clone()),
            ("routing", routing_name(routing).to_string()),
            ("placement", self.placement.to_string()),
            ("packet", crate::quantity::bytes(packet.0)),
            ("seed", self.seed.to_string()),
            (
                "threads",
                self.threads.map_or_else(cores, usize::from).to_string(),
            ),
        ];
        Inputs {
            command: command_line(),
            machine_text: machine_text(machine),
            machine_files: machine_files(machine),
            settings: settings.map(|(n, v)| (n.to_string(), v)).to_vec(),
        }
    }
}

/// Everything about a machine as it was resolved: what it is, and each number with its source.
pub(super) fn machine_text(machine: &Machine) -> String {
    format!(
        "{}\n{}",
        describe::describe(machine),
        describe::list_sources(machine)
    )
}

/// The files a machine was read from, the machine file under a name of its own.
fn machine_files(machine: &Machine) -> Vec<(String, String)> {
    let name = |file: &SourceFile| match file.name.ends_with(".toml") {
        true => "machine.toml".to_string(),
        false => file.name.clone(),
    };
    let files = machine.files.iter();
    files.map(|file| (name(file), file.text.clone())).collect()
}

/// The command line, the program by its name alone.
pub(super) fn command_line() -> Vec<String> {
    let words = std::env::args().skip(1);
    std::iter::once("forebay".to_string())
        .chain(words)
        .collect()
}

/// Threads that this process may keep busy.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Checks that a machine has so many compute nodes.
pub(super) fn check_nodes(machine: &Machine, what: &str, nodes: u32) -> Result<(), Failure> {
    let most = machine.nodes_of_kind(NodeKind::Compute).len();
    if nodes as usize > most {
        return Err(Failure::Input(format!(
            "{what} {nodes} is beyond {}, which has {most} compute nodes",
            machine.name
        )));
    }
    Ok(())
}

/// Checks the number of burst-buffer nodes asked for and gives the number that is used.
pub(super) fn check_burst_buffers(machine: &Machine, asked: Option<u32>) -> Result<u32, Failure> {
    let most = machine.nodes_of_kind(NodeKind::BurstBuffer).len() as u32;
    if most == 0 {
        return Err(Failure::Input(format!(
            "{} has no burst-buffer nodes that IOR could write to; \
             `forebay machine list` shows which machines have some",
            machine.name
        )));
    }
    match asked {
        Some(0) => Err(Failure::Input(
            "--burst-buffers must be at least 1".to_string(),
        )),
        Some(n) if n > most => Err(Failure::Input(format!(
            "--burst-buffers {n} is beyond {}, which has {most}",
            machine.name
        ))),
        Some(n) => Ok(n),
        None => Ok(most),
    }
}

/// What the simulator refuses is wrong input.
pub(super) fn study_failure(error: &StudyError) -> Failure {
    match error {
        StudyError::Interrupted => Failure::Failed(error.to_string()),
        other => Failure::Input(other.to_string()),
    }
}

/// The simulator's progress, shown by a meter.
pub(super) struct ProgressReporter {
    meter: Meter,
}

impl ProgressReporter {
    pub(super) fn start(label: &str, display: Display) -> ProgressReporter {
        ProgressReporter {
            meter: Meter::start(label, display),
        }
    }
}

impl Progress for ProgressReporter {
    /// Never asks for an end: a signal ends the process by itself.
    fn update(&self, simulated: Time, done: f64, events: u64) -> bool {
        self.meter.note(simulated.as_seconds(), done, events);
        true
    }
}
