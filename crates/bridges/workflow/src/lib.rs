//! Workflows of Slurm jobs: order, removal after a failure, and data that stay on the nodes.
//!
//! - `sbatch` passes the options `--workflow-…` with the plugin of the crate `forebay-spank`;
//!   `lua/forebay_workflow.lua`, called by Slurm's `job_submit/lua`, checks them, sets the
//!   dependency, holds the job, and marks it.
//! - The [controller] finds marked jobs in Slurm's queue and keeps the [graph] of all workflows, its
//!   only state. It releases a job when the jobs before it have completed, and cancels the jobs after
//!   a failed one.
//! - The site describes its dataspaces in a [configuration](config).
#![warn(missing_docs)]

pub mod calls;
pub mod channel;
pub mod config;
pub mod controller;
pub mod graph;
pub mod mark;
pub mod slurm;
mod state_file;
