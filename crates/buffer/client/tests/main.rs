//! The client library, and mounts, with real storage daemons.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod access_times;
mod acls;
mod attribute_cache;
mod available_space;
mod batches;
mod cache_leases;
mod connection_limits;
mod counters;
mod crashes;
mod damage;
mod data_buffers;
mod delayed_writes;
mod delegations;
mod evictions;
mod failed_writeback;
mod failed_writes;
mod full;
mod full_instances;
mod host_fences;
mod hung_daemon;
mod inline_files;
mod inode_numbers;
mod ioctl;
mod listings;
mod local_semantics;
mod mapped_writes;
mod metadata_limits;
mod mount_reads;
mod munge;
mod new_files;
mod overtaken_replies;
mod partitions;
mod passed_descriptors;
mod paths;
mod posix;
mod privileges;
mod programs;
mod read_leases;
mod removed_instance;
mod replaced_files;
mod round_trips;
mod shares_of_nodes;
mod striped;
mod support;
mod synchronous_writes;
mod tools;
mod tools_striped;
mod trusted_hosts;
mod unauthenticated;
mod unnamed_files;
mod user_rates;
mod wire_security;
mod write_leases;

#[test]
#[ignore = "not a test: the daemon of other tests"]
fn daemon_process() {
    support::process::be_the_daemon();
}
