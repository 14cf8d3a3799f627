//! Workloads without a machine.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod access_pattern;
mod collective;
mod darshan;
mod ior_options;
mod ior_report;
mod placement;
mod traffic;
#[path = "../../../core/darshan-log/tests/writer.rs"]
#[allow(dead_code, reason = "the tests of the reader use more of it")]
mod writer;
