//! Tests and options that flows cannot represent.

use crate::io::{IoJob, ServerQueues};
use crate::study::{SimOptions, StudyError};

/// Effects that flows leave out, for the reader of a result.
pub const LEFT_OUT: [&str; 5] = [
    "packets and their queues: links share their rate without loss, up to their whole capacity",
    "single links within groups, which are one resource, and the links that single detours take",
    "the order of requests at a server, its threads taken by requests that wait for locks, and \
     collisions of commands on single controllers of its flash",
    "barriers and other MPI operations, which take some tens of microseconds",
    "data that are read from the page cache of a server, and the cost of extents when it is flushed",
];

/// Effects that flows of traffic leave out.
pub const LEFT_OUT_OF_TRAFFIC: [&str; 3] = [
    "packets and their queues: there are no latencies, and links share their rate without loss",
    "single links within groups, which are one resource, and the links that single detours take",
    "the order and number of messages: a node sends at a constant rate to all its destinations",
];

/// Checks that flows represent traffic with the options of its simulation.
///
/// # Errors
/// [`StudyError::Machine`] with the part that they cannot represent, and the remedy.
pub(crate) fn check_traffic(options: &SimOptions) -> Result<(), StudyError> {
    refuse(&[
        (options.observe.is_any(), "--delays, --series and --trace observe packets and requests"),
        (options.each_link, "--links lists single links, which flows do not distinguish"),
    ])
}

/// The error for the first part that is there.
fn refuse(unsupported: &[(bool, &str)]) -> Result<(), StudyError> {
    match unsupported.iter().find(|(is_there, _)| *is_there) {
        None => Ok(()),
        Some((_, reason)) => Err(StudyError::Machine(format!(
            "flows cannot represent this: {reason}; use --fidelity packet"
        ))),
    }
}

/// Checks that flows represent a test and the options of its simulation.
///
/// # Errors
/// [`StudyError::Machine`] with the part that they cannot represent, and the remedy.
pub(crate) fn check(job: &IoJob, options: &SimOptions) -> Result<(), StudyError> {
    let ior = &job.ior;
    let unsupported = [
        (options.observe.is_any(), "--delays, --series and --trace observe packets and requests"),
        (options.each_link, "--links lists single links, which flows do not distinguish"),
        (job.is_collective(), "collective transfers (-c) consist of an exchange of messages"),
        (job.writes_in_turn() && ior.write, "processes of a node that write to a file in turn"),
        (ior.stonewall.is_some(), "a deadline (-D) ends the processes at different transfers"),
        (ior.fsync_per_write, "an fsync after each write (-Y) is no part of a flow"),
        (ior.unique_directory, "the making of directories (-u) is no part of a flow"),
        (ior.max_minutes.is_some_and(|m| m > 0), "the end of a test after minutes (-T)"),
    ];
    refuse(&unsupported)
}

/// Checks that flows represent an I/O job beside others.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_several(job: &IoJob, options: &SimOptions) -> Result<(), StudyError> {
    check(job, options)?;
    let is_cached = job.ior.write && job.burst_buffer.dirty_limit.0 > 0;
    refuse(&[
        (is_cached, "several jobs that write to page caches of servers (`dirty_limit`)"),
        (
            job.server_queues == ServerQueues::FairShares,
            "fair queues of servers give each job's requests threads in turn",
        ),
    ])
}
