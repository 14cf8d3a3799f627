//! Workloads without a machine.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod access_pattern;
mod collective;
mod ior_options;
mod ior_report;
mod placement;
mod traffic;
