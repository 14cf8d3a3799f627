//! Errors of studies.

use forebay_workload::ior::AccessPatternError;
use forebay_workload::placement::PlacementError;
use forebay_workload::traffic::TrafficError;

/// The reason why a study has no result, and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// The job does not fit the machine.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The traffic does not fit the job.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The test does not fit the processes.
    #[error(transparent)]
    AccessPattern(#[from] AccessPatternError),
    /// The machine lacks what the options request.
    #[error("{0}")]
    Machine(String),
    /// The files do not fit into the instance.
    #[error("{0}")]
    Capacity(String),
    /// The test cannot be simulated through the log of MPI-IO.
    #[error("{0}")]
    Log(String),
    /// A number exceeds what the simulator supports.
    #[error("{0}")]
    Limit(String),
    /// [`Progress`](super::Progress) ended the simulation.
    #[error("interrupted")]
    Interrupted,
}
