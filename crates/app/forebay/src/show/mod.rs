//! The buffer's status, progress and results as text.

mod job;
mod status;
mod terminal;

pub use job::{recovered, staged, summary};
pub use status::{instance_state, stage_amount, stage_state, status, user_name};
pub use terminal::Terminal;
pub mod workflow;
