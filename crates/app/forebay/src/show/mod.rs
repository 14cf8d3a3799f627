//! The buffer's status, progress and results as text.

pub mod evacuations;
mod job;
mod status;
mod terminal;
mod usage;

pub use job::{recovered, staged, summary};
pub use status::{instance_state, stage_amount, stage_state, status, user_name};
pub use terminal::Terminal;
pub use usage::job_usage;
pub mod workflow;
