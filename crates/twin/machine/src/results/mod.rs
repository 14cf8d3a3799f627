//! Results of simulations: the JSON documents.
//!
//! Times are in seconds, sizes in bytes, rates in GB/s (10^9 bytes per second), unless a field's
//! name says otherwise. Fields are added, never renamed, within one `schema` version.

mod collective;
mod common;
mod darshan;
mod interference;
mod ior;
mod jobs;
mod published;
mod traffic;

pub use collective::{CollectiveRun, CollectiveTimes};
pub use common::{ClassUse, Limit, LinkUse, ResourceUse, RunCost, Series, Spread};
pub use darshan::{DarshanPart, DarshanPhase, DarshanRun};
pub use interference::InterferenceRun;
pub use ior::{IorPoint, IorStudy, LoggedWrites, NodeRates, Phase};
pub use jobs::{ConcurrentJob, IoRun, JobRun, JobsRun, JobsTogether, TrafficState, WaitSeconds};
pub use published::PublishedKind;
pub use traffic::{LatencyNs, SaturationSearch, SaturationStep, TrafficRun};

/// Version of the documents below; raised when a field changes its meaning.
pub const SCHEMA: u32 = 2;
