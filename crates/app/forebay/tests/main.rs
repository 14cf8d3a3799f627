//! The command `forebay` and the systems that it starts, from outside.
//!
//! Each module is a subject. Tests of hosts need root, for network namespaces and mounts.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod accuracy_document;
mod adhoc;
mod adhoc_slurm;
mod admin;
#[allow(dead_code, reason = "tests of programs of their own use more of it")]
mod cluster;
mod concurrent_runs;
mod darshan;
mod datawarp;
mod documents;
mod embedded_home;
mod exposition;
mod file_system;
mod first_hour;
mod forebay;
mod hosts;
mod hosts_clock;
mod hosts_drained;
mod hosts_lost;
mod hosts_restored;
mod hosts_sessions;
mod hosts_staging;
mod interrupt;
mod job;
mod job_advice;
mod large_pool;
mod library;
mod log;
mod machine;
mod metrics;
mod mpiio_log;
mod mpiio_programs;
mod observe;
mod package;
mod plan;
mod preload;
mod published_kinds;
mod report;
mod sample;
mod scrub;
mod shared_decisions;
mod sim_collective;
mod sim_interference;
mod sim_ior;
mod sim_jobs;
mod sim_traffic;
mod simulated;
mod slurm_accounting;
mod staging;
mod status;
mod store;
mod study;
mod top;
mod usage;
mod validate;
mod wlm;
mod workflow;
mod workflow_site;
