//! Workflows as text: the graph of each, data on the nodes, remaining times.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::SystemTime;

use forebay_console::table::{Column, Table};
use forebay_units::{Bytes, human};
use forebay_workflow::calls::{Report, Status};
use forebay_workflow::graph::{Job, JobState};

/// Describes all workflows of a status.
pub fn describe(status: &Status) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    describe_at(status, now.map_or(0, |since| since.as_secs()))
}

fn describe_at(status: &Status, now: u64) -> String {
    let workflows: BTreeSet<u32> = status.jobs.iter().map(|job| job.workflow).collect();
    let mut text = String::new();
    for id in &workflows {
        let jobs: Vec<&Job> = status.jobs.iter().filter(|job| job.workflow == *id).collect();
        let user = jobs.first().map_or("", |job| &job.user);
        let _ = writeln!(text, "workflow {id} of {user}");
        let _ = writeln!(text, "{}", jobs_table(&jobs, now));
        let data = status.holdings.iter().find(|(workflow, _)| workflow == id);
        for (node, holding) in data.into_iter().flat_map(|(_, holdings)| holdings) {
            let from: BTreeSet<u32> = holding.parts.iter().map(|(job, _)| *job).collect();
            let from: Vec<String> = from.iter().map(u32::to_string).collect();
            let _ = writeln!(
                text,
                "data on {node}: {} in {}{}",
                human::bytes(holding.bytes),
                human::counted(holding.files, "file"),
                if from.is_empty() {
                    String::new()
                } else {
                    format!(", of jobs {}", from.join(", "))
                }
            );
        }
    }
    for data in &status.persistent {
        let nodes: Vec<&str> = data.nodes.iter().map(String::as_str).collect();
        let _ =
            write!(text, "persistent {} of {} on {}", data.location, data.user, nodes.join(","));
        let readers: Vec<String> = data.readers.iter().map(ToString::to_string).collect();
        let shared = if readers.is_empty() {
            String::new()
        } else {
            format!(", read by {}", readers.join(", "))
        };
        let _ = writeln!(text, "{shared}");
    }
    if text.is_empty() { "no workflows\n".to_owned() } else { text }
}

fn jobs_table(jobs: &[&Job], now: u64) -> Table {
    let text_column = |name| Column::text(name, 0);
    let mut table = Table::new([
        Column::number("job", 0),
        text_column("after"),
        text_column("state"),
        text_column("nodes"),
        text_column("remaining"),
        text_column("remark"),
    ]);
    for job in jobs {
        let after: Vec<String> = job.mark.prior.iter().map(u32::to_string).collect();
        table.push([
            job.id.to_string(),
            after.join(","),
            state_of(job).to_owned(),
            job.nodes.join(","),
            remaining(job, now).unwrap_or_default(),
            remark(job),
        ]);
    }
    table
}

/// Transfers that are under way.
fn transfers(job: &Job) -> impl Iterator<Item = &Report> {
    job.prepared.values().chain(job.finished.values()).filter(|report| report.under_way)
}

fn state_of(job: &Job) -> &'static str {
    match job.state {
        JobState::Pending => "pending",
        JobState::Running if job.finished.values().any(|report| report.under_way) => "staging out",
        JobState::Running if job.prepared.values().any(|report| report.under_way) => "staging in",
        JobState::Running => "running",
        JobState::Completed if transfers(job).next().is_some() => "staging out",
        JobState::Completed => "completed",
        JobState::Failed => "failed",
        JobState::Removed => "removed",
        JobState::Lost => "lost",
    }
}

/// The time that a transfer still needs at its rate so far, or that a job has left by its limit.
fn remaining(job: &Job, now: u64) -> Option<String> {
    let time = |seconds: u64| human_time(seconds);
    let rest = |report: &Report| {
        let left = report.to_move.saturating_sub(report.moved);
        (report.moved > 0).then(|| left.saturating_mul(report.milliseconds) / report.moved / 1000)
    };
    if transfers(job).next().is_some() {
        // The slowest node decides.
        let slowest = transfers(job).map(rest).max().flatten()?;
        return Some(format!("{} for data", time(slowest)));
    }
    let left = job.ends.saturating_sub(now);
    (job.state == JobState::Running && left > 0).then(|| format!("at most {}", time(left)))
}

fn human_time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

fn remark(job: &Job) -> String {
    let mut remarks = Vec::new();
    if !job.reason.is_empty() {
        remarks.push(job.reason.clone());
    }
    if job.state == JobState::Pending && !job.preferred.is_empty() {
        remarks.push(format!("waits for its data's nodes {}", job.preferred.join(",")));
    }
    for report in transfers(job) {
        let (moved, all) = (Bytes(report.moved), Bytes(report.to_move));
        remarks.push(format!(
            "{}: {} of {}",
            report.node,
            human::bytes(moved.0),
            human::bytes(all.0)
        ));
    }
    for report in job.finished.values() {
        if let Some(failure) = &report.failure {
            remarks.push(format!("{}: not staged out, the data are kept: {failure}", report.node));
        }
    }
    remarks.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(changes: serde_json::Value) -> Job {
        let mut job = serde_json::json!({
            "id": 7, "workflow": 5, "user": "ada", "uid": 1000, "gid": 100,
            "mark": { "start": false, "end": true, "held": false, "prior": [5] },
            "state": "Running", "reason": "", "nodes": ["n1"], "node_count": 1, "submitted": 1,
            "starts": 2, "ends": 0, "working_directory": "/", "has_own_nodes": false,
            "released": null, "preferred": [], "script": null, "directory": null, "pulls": {},
            "prepared": {}, "finished": {}
        });
        for (key, value) in changes.as_object().unwrap() {
            job[key] = value.clone();
        }
        serde_json::from_value(job).unwrap()
    }

    fn report(node: &str, moved: u64, to_move: u64, milliseconds: u64) -> serde_json::Value {
        let report = Report {
            job: 7,
            node: node.to_owned(),
            under_way: true,
            moved,
            to_move,
            milliseconds,
            ..Report::default()
        };
        serde_json::to_value(report).unwrap()
    }

    #[test]
    fn remaining_time_is_that_of_the_slowest_transfer_or_of_the_time_limit() {
        // 1 of 4 GB in 10 s, and 3 of 4 GB in the same time.
        let prepared = serde_json::json!({
            "n1": report("n1", 1_000_000_000, 4_000_000_000, 10_000),
            "n2": report("n2", 3_000_000_000, 4_000_000_000, 10_000),
        });
        let staging = job(serde_json::json!({ "prepared": prepared }));
        assert_eq!(remaining(&staging, 100).as_deref(), Some("30 s for data"));
        assert_eq!(state_of(&staging), "staging in");
        let running = job(serde_json::json!({ "ends": 100 + 3_720 }));
        assert_eq!(remaining(&running, 100).as_deref(), Some("at most 1 h 2 min"));
        let unknown = serde_json::json!({ "n1": report("n1", 0, 0, 10_000) });
        assert_eq!(remaining(&job(serde_json::json!({ "prepared": unknown })), 100), None);
    }
}
