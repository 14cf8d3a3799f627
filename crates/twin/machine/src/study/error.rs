//! Errors of studies.

use forebay_units::Bytes;
use forebay_workload::ior::AccessPatternError;
use forebay_workload::placement::PlacementError;
use forebay_workload::traffic::TrafficError;
use std::fmt;

/// A study that cannot be made.
#[derive(Clone, Debug, PartialEq)]
pub enum StudyError {
    /// The job does not fit the machine.
    Placement(PlacementError),
    /// The traffic does not fit the job.
    Traffic(TrafficError),
    /// The packet size does not fit the machine's buffers.
    Packet {
        /// Requested packet size.
        packet: Bytes,
        /// The smallest buffer.
        smallest: Bytes,
        /// The machine's name.
        machine: String,
    },
    /// The test does not fit the processes.
    AccessPattern(AccessPatternError),
    /// The machine has no burst buffers.
    NoBurstBuffers(String),
    /// The machine has fewer burst-buffer nodes than the instance requests.
    BurstBuffers {
        /// Nodes requested.
        asked: usize,
        /// The machine's name.
        machine: String,
        /// Nodes of the machine.
        have: usize,
    },
    /// The files do not fit into the instance.
    Capacity {
        /// Bytes of the test's files.
        needed: Bytes,
        /// Bytes of the instance.
        have: Bytes,
        /// Nodes of the instance.
        servers: usize,
        /// The machine's name.
        machine: String,
    },
    /// More of something than the simulator can number.
    TooMany {
        /// The things that are too many.
        what: &'static str,
        /// The least number that is too many.
        limit: u64,
        /// How to reduce the number.
        remedy: &'static str,
    },
    /// The delays before the phases add up to more than simulated time can represent.
    Delays {
        /// Their sum, in seconds.
        seconds: u64,
        /// The largest sum allowed, in seconds.
        limit: u64,
    },
    /// [`Progress::update`](super::Progress::update) ended the simulation.
    Interrupted,
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StudyError::Placement(error) => write!(f, "{error}"),
            StudyError::Traffic(error) => write!(f, "{error}"),
            StudyError::Packet { packet, smallest, machine } => write!(
                f,
                "packets of {packet} do not fit: the smallest buffer of {machine} has {smallest}; \
                 use packets of 1 byte to {smallest}"
            ),
            StudyError::AccessPattern(error) => write!(f, "{error}"),
            StudyError::NoBurstBuffers(machine) => write!(
                f,
                "{machine} has no burst-buffer nodes; IOR is simulated on burst buffers: \
                 choose a machine that has some (`forebay machine list`)"
            ),
            StudyError::BurstBuffers { asked, machine, have } => write!(
                f,
                "an instance on {asked} burst-buffer nodes; {machine} has {have}: request 1 to {have}"
            ),
            StudyError::Capacity { needed, have, servers, machine } => write!(
                f,
                "the test's files have {needed}, and {servers} burst-buffer nodes of {machine} \
                 hold {have}: use a smaller block (-b), fewer segments (-s) or fewer processes"
            ),
            StudyError::TooMany { what, limit, remedy } => {
                write!(f, "too many {what}: the simulator supports fewer than {limit}; {remedy}")
            }
            StudyError::Delays { seconds, limit } => write!(
                f,
                "the delays (-d) add up to {seconds} s; at most {limit} s ({} days) are simulated: \
                 use a shorter one or fewer repetitions (-i)",
                limit / 86_400
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
        StudyError::AccessPattern(error)
    }
}

impl From<TrafficError> for StudyError {
    fn from(error: TrafficError) -> Self {
        StudyError::Traffic(error)
    }
}
