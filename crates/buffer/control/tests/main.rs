//! The controller with simulated storage nodes and hosts.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bounds;
mod compute_node;
mod controller;
mod expiry;
mod fencing;
mod harness;
mod job_status;
mod job_usage;
mod load_balancing;
mod node_loss;
mod purity;
mod quotas;
mod recreate;
mod restored;
mod scale;
mod shares;
