//! The account of a job in Slurm. Slurm's plugins do not pass it.

use std::process::{Command, Stdio};

/// Name by which Slurm's plugins call themselves.
const SLURM: &str = "SLURM";
/// Limit of the time for which `squeue` runs, in seconds.
const MAX_SECONDS: &str = "5";

/// The account of a job that Slurm sets up, from `squeue`. None if the caller is not Slurm, if Slurm
/// does not reply in time, or if the job has no account.
pub fn slurm_account(caller: Option<&str>, job: &str) -> Option<String> {
    if caller != Some(SLURM) || job.is_empty() || !job.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Slurm's controller may be too busy to reply.
    let mut squeue = Command::new("timeout");
    squeue.args([MAX_SECONDS, "squeue", "--noheader", "--states=all", "--format=%A %a"]);
    squeue.args(["--jobs", job]);
    let output = squeue.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    account_in_list(&String::from_utf8_lossy(&output.stdout), job)
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
    fn other_callers_and_names_of_instances_have_no_account_in_slurm() {
        assert_eq!(slurm_account(None, "1"), None);
        assert_eq!(slurm_account(Some("CLI"), "1"), None);
        assert_eq!(slurm_account(Some(SLURM), "--version"), None);
    }
}
