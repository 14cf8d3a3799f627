//! Workflows of Slurm jobs: order, removal after a failure, and data that stay on the nodes.
//!
//! - `sbatch` passes the options `--workflow-…` with the plugin of the crate `forebay-spank`;
//!   `lua/forebay_workflow.lua`, called by Slurm's `job_submit/lua`, checks them, sets the
//!   dependency, holds the job, and marks it.
//! - The [controller] finds marked jobs in Slurm's queue and keeps the [graph] of all workflows, its
//!   only state. It releases a job when the jobs before it have completed, and cancels the jobs after
//!   a failed one.
//! - The prolog and epilog of each node ([`job`]) stage in and out with the permissions of the job's
//!   user. Data stay on the nodes in [directories] of the workflow; a job waits for the nodes that
//!   hold its data, or they are copied from node to node ([placement], [node_server], [remote]).
//! - The site describes its dataspaces in a [configuration](config).
#![warn(missing_docs)]

pub mod acl;
pub mod calls;
pub mod channel;
pub mod config;
pub mod controller;
pub mod directories;
pub mod graph;
mod graph_data;
pub mod job;
pub mod mark;
pub mod node_calls;
pub mod node_server;
pub mod placement;
pub mod recovery;
pub mod remote;
#[cfg(test)]
mod sample;
pub mod slurm;
pub mod staging;
mod state_file;
