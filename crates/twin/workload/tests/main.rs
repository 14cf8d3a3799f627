//! Workloads without a machine.

mod access_pattern;
mod collective;
mod ior_options;
mod ior_report;
mod placement;
mod traffic;
