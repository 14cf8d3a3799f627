//! Errors of plans.

use forebay_machine::study::StudyError;

/// The reason why there is no plan, and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The job or one of its numbers is invalid.
    #[error("{0}")]
    Job(String),
    /// The simulator refuses the job.
    #[error(transparent)]
    Study(#[from] StudyError),
}
