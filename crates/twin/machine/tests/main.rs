//! Workloads on simulated machines.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod acknowledged;
mod collective;
mod collective_operations;
mod evidence;
mod first_calls;
mod flow;
mod flow_jobs;
mod flow_traffic;
mod forecast;
mod ior;
mod jobs;
mod logged;
mod page_cache;
mod parallel_file_system;
mod routing_quality;
mod storage_mechanisms;
mod structures;
mod toy_lustre;
mod traffic;
mod warm_ups;
mod warnings;
