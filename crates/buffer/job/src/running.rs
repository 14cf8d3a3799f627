//! Whether a process runs a job: at most one may, and `forebay recover` does not end it.
//!
//! In an embedded pool a run holds the job's lock. In a pool over several hosts the controller has the
//! name under which a run set the job up, which tells its host and process.

use std::fs;

use forebay_control::controller::{Cause, Failure, SessionStatus};
use forebay_daemon::embedded::{JobLock, JobLocked};
use forebay_daemon::host_name;

use crate::error::RunError;
use crate::pool::PoolHandle;

/// The beginning of the name under which a run sets its job up.
const PREFIX: &str = "forebay run";

/// Locks a job for a run or a recovery, in an embedded pool. `step` names that in errors.
///
/// # Errors
/// Another process runs or recovers the job.
pub(crate) fn lock_job(
    pool: &PoolHandle,
    token: &str,
    step: &'static str,
) -> Result<Option<JobLock>, RunError> {
    match pool.lock_job(token)? {
        None => Ok(None),
        Some(JobLocked::Own(lock)) => Ok(Some(lock)),
        Some(JobLocked::Other(process)) => {
            let reason = format!(
                "process {process} runs or recovers job `{token}`; wait until it has ended"
            );
            Err(RunError::Step(step, Failure::new(Cause::Busy, reason)))
        }
    }
}

/// Refuses to recover a job of a pool over several hosts that runs, or may run.
pub(crate) fn refuse_running(session: &SessionStatus) -> Result<(), Failure> {
    let token = &session.token;
    let refuse = |reason| Err(Failure::new(Cause::Busy, reason));
    match Runner::parse(&session.runner) {
        Some(runner) if runner.host == host_name() => match runner.is_alive() {
            true => refuse(format!(
                "process {} on this host runs job `{token}`; wait until it has ended, or end the \
                 job all the same with --force",
                runner.process
            )),
            false => Ok(()),
        },
        _ if session.mounted => refuse(format!(
            "job `{token}` is mounted on {}, and may still run; wait until it has ended. If it does \
             not run any more, --force recovers it",
            session.hosts.join(", ")
        )),
        _ => Ok(()),
    }
}

/// The process of a run.
#[derive(Debug, PartialEq, Eq)]
struct Runner {
    host: String,
    process: u32,
    /// Its start in clock ticks since the start of the system, so that a later process with the same
    /// id is another one.
    started: u64,
}

/// A unique name under which this run sets up its session; the pool's status shows it.
pub(crate) fn new_creator() -> String {
    use std::hash::{BuildHasher, RandomState};
    let process = std::process::id();
    let number = RandomState::new().hash_one(process);
    let started = started(process).unwrap_or_default();
    format!("{PREFIX} {number:016x} {} {process} {started}", host_name())
}

impl Runner {
    /// The process that [`new_creator`] has named.
    fn parse(creator: &str) -> Option<Runner> {
        let words: Vec<&str> = creator.strip_prefix(PREFIX)?.split_whitespace().collect();
        let [_, host, process, started] = words[..] else {
            return None;
        };
        let (process, started) = (process.parse().ok()?, started.parse().ok()?);
        Some(Runner { host: host.to_owned(), process, started })
    }

    fn is_alive(&self) -> bool {
        started(self.process) == Some(self.started)
    }
}

/// The start of a living process of this host.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields from the third on follow the name, which is in parentheses: the state, and as the
    // twenty-second of all the start.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::controller::Lifetime;
    use forebay_control::messages::{Owner, SessionId, UnixMillis};

    fn session(runner: &str, mounted: bool) -> SessionStatus {
        SessionStatus {
            id: SessionId(1),
            state: "CA---".to_owned(),
            token: "42".to_owned(),
            lifetime: Lifetime::Job,
            written: true,
            ending: false,
            creator: runner.to_owned(),
            runner: runner.to_owned(),
            owner: Owner { uid: 1, gid: 1 },
            created: UnixMillis(0),
            hosts: vec!["n1".to_owned()],
            mounted,
            waits_for: None,
        }
    }

    #[test]
    fn job_of_a_living_run_is_not_recovered() {
        let own = new_creator();
        let refused = refuse_running(&session(&own, false)).unwrap_err();
        let process = format!("process {} on this host runs job `42`", std::process::id());
        assert!(refused.to_string().contains(&process), "{refused}");
        // A later process with the same id.
        let (rest, _) = own.rsplit_once(' ').unwrap();
        assert!(refuse_running(&session(&format!("{rest} 1"), true)).is_ok());
        // A process of another host, and a batch system: not as long as the job is mounted.
        for runner in ["forebay run 0123456789abcdef elsewhere 1 1", "Slurm"] {
            let refused = refuse_running(&session(runner, true)).unwrap_err();
            assert!(refused.to_string().contains("mounted on n1"), "{refused}");
            assert!(refuse_running(&session(runner, false)).is_ok());
        }
    }
}
