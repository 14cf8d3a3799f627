//! Instances whose removal Slurm lost.
//!
//! When a job is cancelled that has not started, Slurm kills the scripts that run for it, and begins
//! its teardown. With the plugin burst_buffer/lua the process that does both takes these requests in
//! threads of their own: it can kill the teardown, which Slurm then neither completes nor repeats.

use std::fmt::Write;

use forebay_control::controller::{Lifetime, SessionStatus};
use forebay_wlm::{Bridge, Call, WlmError};

use crate::slurm::{Job, SLURM, ended_jobs};

/// Tears down jobs that have ended in Slurm and whose instances were never mounted, so that they have
/// no results. Returns a line for each.
///
/// # Errors
/// The controller cannot be reached, or the teardown of a job fails; the others are torn down all the same.
pub fn reclaim(bridge: &Bridge) -> Result<String, WlmError> {
    let status = bridge.status()?;
    let is_unused = |session: &&SessionStatus| {
        session.lifetime == Lifetime::Job
            && session.creator == SLURM
            && !session.written
            && !session.ending
    };
    let unused = status.sessions.iter().filter(is_unused);
    let unused: Vec<Job<'_>> =
        unused.map(|session| Job { id: &session.token, uid: session.owner.uid }).collect();
    let mut lines = String::new();
    let mut outcome = Ok(());
    for job in ended_jobs(&unused) {
        // Without hurry: should the job have results after all, they are staged out first.
        match bridge.perform(Call::Teardown { job: job.id.to_owned(), hurry: false }) {
            Ok(_) => {
                // Writing to a string does not fail.
                let _ = writeln!(lines, "removed the instance of job {}, which has ended", job.id);
            }
            Err(error) => outcome = Err(error),
        }
    }
    outcome.map(|()| lines)
}
