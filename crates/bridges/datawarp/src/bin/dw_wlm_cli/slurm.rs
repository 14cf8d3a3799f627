//! Queries to `squeue` for what Slurm's plugins do not pass: the account of a job, and which jobs have ended.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Name by which Slurm's plugins call themselves.
pub const SLURM: &str = "SLURM";
/// Limit of the time for which `squeue` runs, in seconds.
const MAX_SECONDS: &str = "5";
/// Most jobs of one `squeue`, whose ids fit into an argument.
const MAX_JOBS: usize = 1000;
/// States of a job that does not run any more, and does not run again by itself.
const ENDED: [&str; 9] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
];

/// A job in Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its user.
    pub uid: u32,
}

/// The account of a job that Slurm sets up, from `squeue`. None if the caller is not Slurm, if Slurm
/// does not reply in time, or if the job has no account.
pub fn slurm_account(caller: Option<&str>, job: &str) -> Option<String> {
    if caller != Some(SLURM) || !is_job_id(job) {
        return None;
    }
    account_in_list(&squeue("%A %a", job)?, job)
}

/// Those of some jobs that Slurm knows and that have ended.
pub fn ended_jobs<'a>(jobs: &[Job<'a>]) -> Vec<Job<'a>> {
    let jobs: Vec<Job<'a>> = jobs.iter().copied().filter(|job| is_job_id(job.id)).collect();
    let ended_of = |jobs: &[Job<'a>]| -> Vec<Job<'a>> {
        let ids: Vec<&str> = jobs.iter().map(|job| job.id).collect();
        squeue("%A %U %T", &ids.join(",")).map_or_else(Vec::new, |list| ended_in_list(&list, jobs))
    };
    jobs.chunks(MAX_JOBS).flat_map(ended_of).collect()
}

fn is_job_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Lines of a format about jobs, whose ids are separated by commas, among others. None if Slurm's
/// controller does not reply in time: it may be too busy.
fn squeue(format: &str, jobs: &str) -> Option<String> {
    let mut squeue = Command::new("timeout");
    squeue.args([MAX_SECONDS, "squeue", "--noheader", "--states=all"]);
    squeue.arg(format!("--format={format}")).args(["--jobs", jobs]);
    let output = squeue.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The jobs that have ended according to lines of job ids, users and states.
fn ended_in_list<'a>(list: &str, jobs: &[Job<'a>]) -> Vec<Job<'a>> {
    let ended_in_line = |line| -> Option<Job<'_>> {
        let mut words = str::split_whitespace(line);
        let (id, uid, state) = (words.next()?, words.next()?, words.next()?);
        ENDED.contains(&state).then_some(Job { id, uid: uid.parse().ok()? })
    };
    let ended: BTreeSet<Job<'_>> = list.lines().filter_map(ended_in_line).collect();
    jobs.iter().copied().filter(|job| ended.contains(job)).collect()
}

/// The account of a job in lines of job ids and accounts.
fn account_in_list(list: &str, job: &str) -> Option<String> {
    // Other components of the job are listed as well.
    let account = list.lines().find_map(|line| match line.split_once(' ') {
        Some((id, account)) if id == job => Some(account.trim()),
        Some(_) | None => None,
    })?;
    let is_absent = account.is_empty() || matches!(account, "(null)" | "N/A");
    (!is_absent).then(|| account.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_that_of_the_job_among_its_components() {
        let list = "41 physics\n42 chemistry\n43 (null)\n44 \n";
        assert_eq!(account_in_list(list, "42").as_deref(), Some("chemistry"));
        for job in ["43", "44", "4", "45"] {
            assert_eq!(account_in_list(list, job), None, "{job}");
        }
    }

    #[test]
    fn ended_jobs_are_those_of_the_same_user() {
        let list = "41 7 CANCELLED\n42 7 PENDING\n43 8 FAILED\n45 7 STAGE_OUT\n46\n47 x FAILED\n";
        let job = |id| Job { id, uid: 7 };
        let jobs = ["41", "42", "43", "44", "45", "46", "47"].map(job);
        assert_eq!(ended_in_list(list, &jobs), [job("41")]);
    }

    #[test]
    fn other_callers_and_names_of_instances_have_no_account_in_slurm() {
        assert_eq!(slurm_account(None, "1"), None);
        assert_eq!(slurm_account(Some("CLI"), "1"), None);
        assert_eq!(slurm_account(Some(SLURM), "--version"), None);
    }
}
