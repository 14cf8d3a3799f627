//! Studies: a machine and a workload in, a result document out.

mod interference;
mod ior;
mod traffic;

pub use interference::simulate_interference;
pub use ior::{check_ior_fits, simulate_ior};
pub use traffic::simulate_traffic;

pub(crate) use ior::PhaseTotals;

use crate::group::Group;
use crate::io::client::Clients;
use crate::io::measure::Waits;
use crate::io::server::Servers;
use crate::scenario::Scenario;
use crate::traffic::TrafficSources;
use forebay_engine::{Picoseconds, Simulation};
use forebay_machine_file::machine::{Machine, Network, Routing};
use forebay_network::{Fabric, lookahead};
use forebay_units::{Bytes, Time};
use forebay_workload::ior::AccessPatternError;
use forebay_workload::placement::{Placement, PlacementError};
use forebay_workload::traffic::TrafficError;
use std::fmt;
use std::sync::Arc;

/// How to simulate: what the machine's file and the workload leave open.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Threads; results do not depend on them.
    pub threads: usize,
    /// Seed of every random choice.
    pub seed: u64,
    /// Routing algorithm, if not the machine's.
    pub routing: Option<Routing>,
    /// How the job's nodes are chosen.
    pub placement: Placement,
    /// Packet size, if not the machine's.
    pub packet: Option<Bytes>,
    /// Burst-buffer nodes of the instance; `None`: all of the machine.
    pub burst_buffers: Option<u32>,
    /// Say in the results what each link did.
    pub each_link: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            threads: 1,
            seed: 1,
            routing: None,
            placement: Placement::Contiguous,
            packet: None,
            burst_buffers: None,
            each_link: false,
        }
    }
}

impl SimOptions {
    /// The machine's network with the options put in.
    fn network(&self, machine: &Machine) -> Result<Network, StudyError> {
        let mut network = machine.network.clone();
        if let Some(routing) = self.routing {
            network.routing.algorithm = routing;
        }
        if let Some(packet) = self.packet {
            let buffers = [
                &network.node,
                &network.rank1,
                &network.rank2,
                &network.global,
            ];
            let smallest = buffers.iter().map(|l| l.buffer).min().unwrap_or_default();
            if packet.0 == 0 || packet > smallest {
                return Err(StudyError::Packet {
                    packet,
                    smallest,
                    machine: machine.name.clone(),
                });
            }
            network.packet = packet;
        }
        Ok(network)
    }
}

/// Told about a running simulation from time to time.
pub trait Progress: Sync {
    /// Simulated time, share of the work that is done (0 to 1), events so far. `false` ends the
    /// simulation with [`StudyError::Interrupted`].
    fn update(&self, simulated: Time, done: f64, events: u64) -> bool;
}

/// Tells nobody.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: Time, _: f64, _: u64) -> bool {
        true
    }
}

/// Why a study could not be made.
#[derive(Clone, Debug, PartialEq)]
pub enum StudyError {
    /// The job does not fit the machine.
    Placement(PlacementError),
    /// The traffic does not fit the job.
    Traffic(TrafficError),
    /// The packet size does not fit the machine's buffers.
    Packet {
        /// What was asked for.
        packet: Bytes,
        /// The smallest buffer.
        smallest: Bytes,
        /// The machine.
        machine: String,
    },
    /// The test does not fit the processes.
    Layout(AccessPatternError),
    /// The machine has no burst buffers.
    NoBurstBuffers(String),
    /// The machine has not as many burst-buffer nodes as the instance asks for.
    BurstBuffers {
        /// What was asked for.
        asked: usize,
        /// The machine.
        machine: String,
        /// What it has.
        have: usize,
    },
    /// The files do not fit into the instance.
    Capacity {
        /// Bytes of the test's files.
        needed: Bytes,
        /// Bytes of the instance.
        have: Bytes,
        /// Its nodes.
        servers: usize,
        /// The machine.
        machine: String,
    },
    /// More of something than the simulator can tell apart.
    TooMany {
        /// Of what.
        what: &'static str,
        /// This many are too many.
        most: u64,
        /// What makes them fewer.
        remedy: &'static str,
    },
    /// The delays before the phases add up to more than simulated time has room for.
    Delays {
        /// Their sum, in seconds.
        seconds: u64,
        /// The most.
        most: u64,
    },
    /// [`Progress::update`] asked for an end.
    Interrupted,
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StudyError::Placement(error) => write!(f, "{error}"),
            StudyError::Traffic(error) => write!(f, "{error}"),
            StudyError::Packet {
                packet,
                smallest,
                machine,
            } => write!(
                f,
                "packets of {packet} do not fit: the smallest buffer of {machine} has {smallest}; \
                 a packet has 1 byte to {smallest}"
            ),
            StudyError::Layout(error) => write!(f, "{error}"),
            StudyError::NoBurstBuffers(machine) => write!(
                f,
                "{machine} has no burst-buffer nodes; IOR is simulated on burst buffers: \
                 choose a machine that has some (`forebay machine list`)"
            ),
            StudyError::BurstBuffers {
                asked,
                machine,
                have,
            } => write!(
                f,
                "an instance on {asked} burst-buffer nodes; {machine} has {have}: ask for 1 to {have}"
            ),
            StudyError::Capacity {
                needed,
                have,
                servers,
                machine,
            } => write!(
                f,
                "the test's files have {needed}, and {servers} burst-buffer nodes of {machine} \
                 hold {have}: use a smaller block (-b), fewer segments (-s) or fewer processes"
            ),
            StudyError::TooMany { what, most, remedy } => {
                write!(
                    f,
                    "too many {what}: the simulator tells fewer than {most} apart; {remedy}"
                )
            }
            StudyError::Delays { seconds, most } => write!(
                f,
                "the delays (-d) add up to {seconds} s; at most {most} s ({} days) are simulated: \
                 use a shorter one or fewer repetitions (-i)",
                most / 86_400
            ),
            StudyError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for StudyError {}

impl From<PlacementError> for StudyError {
    fn from(error: PlacementError) -> Self {
        StudyError::Placement(error)
    }
}

impl From<AccessPatternError> for StudyError {
    fn from(error: AccessPatternError) -> Self {
        StudyError::Layout(error)
    }
}

impl From<TrafficError> for StudyError {
    fn from(error: TrafficError) -> Self {
        StudyError::Traffic(error)
    }
}

/// Sets the groups of a world up.
fn build(world: &Arc<Scenario>, options: &SimOptions) -> Simulation<Group> {
    let groups = (0..world.topology.groups)
        .map(|group| Group {
            fabric: Fabric::new(
                world.topology.clone(),
                world.network.clone(),
                group,
                options.seed,
            ),
            world: world.clone(),
            sources: TrafficSources::default(),
            clients: Clients::new(world, group),
            servers: Servers::new(world, group),
            waits: vec![Waits::default(); usize::from(world.topology.groups)],
            phases: Vec::new(),
        })
        .collect();
    let mut simulation = Simulation::new(groups, lookahead(&world.network), options.threads);
    simulation.for_each_partition(|group, state, queue| {
        state.sources = TrafficSources::new(world, group as u16, queue);
        state.clients.start(queue);
        if let Some(job) = &world.io {
            state.pass(0, job, 0);
        }
    });
    simulation
}

/// Passes the engine's reports on; `done` tells the share of the work from time and events.
struct Reporter<'a> {
    progress: &'a dyn Progress,
    done: &'a (dyn Fn(Picoseconds, u64) -> f64 + Sync),
    stopped: std::sync::atomic::AtomicBool,
}

impl forebay_engine::Progress for Reporter<'_> {
    fn update(&self, now: Picoseconds, events: u64) -> bool {
        let done = (self.done)(now, events).clamp(0.0, 1.0);
        let go_on = self.progress.update(Time(now), done, events);
        if !go_on {
            self.stopped
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
        go_on
    }
}

/// Runs a simulation to its end.
fn run(
    simulation: &mut Simulation<Group>,
    progress: &dyn Progress,
    done: &(dyn Fn(Picoseconds, u64) -> f64 + Sync),
) -> Result<forebay_engine::Statistics, StudyError> {
    let reporter = Reporter {
        progress,
        done,
        stopped: false.into(),
    };
    let statistics = simulation.run(&reporter);
    if reporter.stopped.into_inner() {
        Err(StudyError::Interrupted)
    } else {
        Ok(statistics)
    }
}

/// Largest resident set of this process so far, in bytes; 0 where the system does not tell.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
