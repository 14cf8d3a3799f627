//! Advice before a job is submitted.
//!
//! A [`Job`] (an IOR test, a checkpoint or a Darshan log on some nodes) is simulated with flows on a [`System`]: on
//! burst-buffer allocations of growing capacity, which the pool's own allocation code maps to storage
//! nodes, and compared with the parallel file system. [`plan`] returns the predicted times of each
//! [`Configuration`] with the resource that limits it, and a [`Recommendation`].
//!
//! The rule of the recommendation: the smallest capacity whose I/O takes at most a tenth longer than
//! that of the fastest one, unless the parallel file system is as fast.
#![warn(missing_docs)]

mod advice;
mod batch;
mod configuration;
mod error;
mod job;
mod pool;
mod staging;
mod sweep;
mod system;
mod work;

pub use advice::{Plan, Recommendation, forecast, plan, plan_with};
pub use batch::{BatchOptions, OptionKind, UnreadableOption, parse_duration};
pub use configuration::{Configuration, StageTime};
pub use error::PlanError;
pub use job::{Job, checkpoint_arguments};
pub use pool::{MeasuredRates, NodeRates, PoolDescription, RateSpreads};
pub use staging::{MoverRates, ParallelRates, Staging, TargetRates};
pub use system::{PfsRates, System};
pub use work::{LoggedTest, LoggedWork, Work};
