//! Slurm's queue, read and changed with Slurm's own programs.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::mark::Mark;

/// The state of a job, without distinctions that do not matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmState {
    /// It has not started.
    Pending,
    /// It has nodes.
    Running,
    /// Its script has exited with code 0.
    Completed,
    /// It ended otherwise: Slurm's word, such as `TIMEOUT`.
    Failed(String),
}

impl SlurmState {
    /// The state of Slurm's word; `REQUEUED` and unknown words are those of jobs that are yet to run.
    fn parse(word: &str) -> SlurmState {
        const FAILED: [&str; 9] = [
            "CANCELLED",
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "PREEMPTED",
            "BOOT_FAIL",
            "DEADLINE",
            "OUT_OF_MEMORY",
            "REVOKED",
        ];
        match word {
            "RUNNING" | "SUSPENDED" | "CONFIGURING" | "COMPLETING" | "STAGE_OUT" => {
                SlurmState::Running
            }
            "COMPLETED" => SlurmState::Completed,
            failed if FAILED.contains(&failed) => SlurmState::Failed(failed.to_owned()),
            _ => SlurmState::Pending,
        }
    }
}

/// A workflow job in Slurm's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    /// Id.
    pub id: u32,
    /// Name of its user.
    pub user: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its mark.
    pub mark: Mark,
    /// State.
    pub state: SlurmState,
    /// It waits for a release.
    pub is_held: bool,
    /// Nodes, in the order of ranks; empty before it has started.
    pub nodes: Vec<String>,
    /// Number of nodes that it needs.
    pub node_count: u32,
    /// Time of submission, in seconds since 1970; tells jobs with the same id apart.
    pub submitted: u64,
    /// Time of its start, or expected start, in seconds since 1970; 0 if unknown.
    pub starts: u64,
    /// Time of its end, or the latest end by its time limit, in seconds since 1970; 0 if unknown.
    pub ends: u64,
    /// Working directory.
    pub working_directory: String,
    /// The user has chosen nodes.
    pub has_own_nodes: bool,
}

#[derive(Deserialize)]
struct Listing {
    jobs: Vec<ListedJob>,
}

#[derive(Deserialize)]
struct ListedJob {
    job_id: u32,
    #[serde(default)]
    admin_comment: Option<String>,
    job_state: String,
    #[serde(default)]
    nodes: Option<String>,
    #[serde(default)]
    node_count: Option<u32>,
    #[serde(default)]
    priority: Option<u64>,
    user_id: u32,
    group_id: u32,
    #[serde(default)]
    user_name: Option<String>,
    #[serde(default)]
    submit_time: Option<u64>,
    #[serde(default)]
    start_time: Option<u64>,
    #[serde(default)]
    end_time: Option<u64>,
    #[serde(default)]
    current_working_directory: Option<String>,
    #[serde(default)]
    required_nodes: Option<String>,
}

/// Runs a program of Slurm and returns its standard output.
///
/// # Errors
/// The program is missing or has failed; the message has its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {}: {}", arguments.join(" "), text.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The workflow jobs in Slurm's queue, in the order of their ids, including those that ended lately.
pub fn list_jobs() -> Result<Vec<SlurmJob>, String> {
    parse_listing(&run("squeue", &["--json"])?, expand_nodes)
}

/// The names in a list such as `n[1-3]`.
pub fn expand_nodes(list: &str) -> Result<Vec<String>, String> {
    if !list.contains(['[', ',']) {
        return Ok(vec![list.to_owned()]);
    }
    let text = run("scontrol", &["show", "hostnames", list])?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn parse_listing(
    text: &str,
    expand: impl Fn(&str) -> Result<Vec<String>, String>,
) -> Result<Vec<SlurmJob>, String> {
    let listing: Listing =
        serde_json::from_str(text).map_err(|error| format!("squeue --json: {error}"))?;
    let mut jobs = Vec::new();
    for job in listing.jobs {
        let Some(mark) = Mark::parse(job.admin_comment.as_deref().unwrap_or_default()) else {
            continue;
        };
        let nodes = match job.nodes.as_deref() {
            None | Some("") => Vec::new(),
            Some(list) => expand(list)?,
        };
        let state = SlurmState::parse(&job.job_state);
        jobs.push(SlurmJob {
            id: job.job_id,
            user: job.user_name.unwrap_or_else(|| job.user_id.to_string()),
            uid: job.user_id,
            gid: job.group_id,
            mark,
            is_held: state == SlurmState::Pending && job.priority == Some(0),
            state,
            nodes,
            node_count: job.node_count.unwrap_or(1).max(1),
            submitted: job.submit_time.unwrap_or(0),
            starts: job.start_time.unwrap_or(0),
            ends: job.end_time.unwrap_or(0),
            working_directory: job.current_working_directory.unwrap_or_default(),
            has_own_nodes: job.required_nodes.is_some_and(|nodes| !nodes.is_empty()),
        });
    }
    jobs.sort_by_key(|job| job.id);
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_jobs_are_read_and_others_skipped() {
        let text = r#"{"meta": {}, "jobs": [
            {"job_id": 7, "admin_comment": "forebay-workflow start=0 end=1 held=0 prior=5",
             "job_state": "PENDING", "nodes": "", "node_count": 2, "priority": 0, "user_id": 1000,
             "group_id": 100, "user_name": "ada", "submit_time": 12, "start_time": 0, "end_time": 0},
            {"job_id": 6, "admin_comment": "", "job_state": "RUNNING", "user_id": 1, "group_id": 1},
            {"job_id": 5, "admin_comment": "forebay-workflow start=1", "job_state": "TIMEOUT",
             "nodes": "n[1-2]", "node_count": 2, "priority": 9, "user_id": 1000, "group_id": 100,
             "user_name": "ada", "submit_time": 10, "start_time": 20, "end_time": 30}]}"#;
        let jobs = parse_listing(text, |_| Ok(vec!["n1".to_owned(), "n2".to_owned()])).unwrap();
        let [first, second] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!((first.id, &first.state), (5, &SlurmState::Failed("TIMEOUT".to_owned())));
        assert_eq!(first.nodes, ["n1", "n2"]);
        assert!(second.is_held && second.mark.prior == [5] && second.nodes.is_empty());
    }
}
