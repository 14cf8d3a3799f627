//! Tables.

use crate::controller::{StageState, Status};
use crate::run::{Recovered, Recovery, RunReport};

use super::{size, time};

/// Left-aligned first column, right-aligned others, two blanks between.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if index > 0 { "  " } else { "" };
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            line.push_str(gap);
            if index == 0 {
                line.push_str(cell);
                line.push_str(&pad);
            } else {
                line.push_str(&pad);
                line.push_str(cell);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Where the time of a job went.
pub fn summary(report: &RunReport) -> String {
    let total: f64 = report
        .phases
        .iter()
        .map(|phase| phase.time.as_secs_f64())
        .sum();
    let mut rows = vec![row(["", "time", "share", "files", "data", "rate"])];
    for phase in &report.phases {
        let seconds = phase.time.as_secs_f64();
        let share = format!("{:.0} %", 100.0 * seconds / total.max(f64::MIN_POSITIVE));
        let mut line = vec![phase.name.to_owned(), time(seconds), share];
        if phase.moved.files > 0 {
            let rate = phase.moved.bytes as f64 / seconds.max(1e-9);
            line.push(phase.moved.files.to_string());
            line.push(size(phase.moved.bytes));
            line.push(format!("{}/s", size(rate as u64)));
        }
        rows.push(line);
    }
    rows.push(vec!["total".to_owned(), time(total)]);
    table(&rows)
}

/// What became of interrupted jobs.
pub fn recovered(list: &[Recovered]) -> String {
    let mut text = String::new();
    for Recovered { token, recovery } in list {
        let what = match recovery {
            Recovery::StagedOut(moved) => {
                format!("staged out {} files, {}", moved.files, size(moved.bytes))
            }
            Recovery::NothingToSave => "had not run; taken down".to_owned(),
            Recovery::Discarded => "results destroyed, as asked".to_owned(),
            Recovery::Kept(failure) => format!("kept: {failure}"),
        };
        text.push_str(&format!("job {token}: {what}\n"));
    }
    if list.is_empty() {
        text.push_str("nothing to recover\n");
    }
    text
}

/// What a pool holds.
pub fn status(status: &Status) -> String {
    let mut text = String::new();
    let mut rows = vec![row(["pool", "size", "free", "granule"])];
    for pool in &status.pools {
        let bytes = |granules: u64| size(granules.saturating_mul(pool.granularity.0));
        rows.push(vec![
            pool.name.clone(),
            bytes(pool.quantity),
            bytes(pool.free),
            size(pool.granularity.0),
        ]);
    }
    text.push_str(&table(&rows));
    rows = vec![row(["node", "state", "granules", "used", "fragments"])];
    for node in &status.nodes {
        let state = match (node.online, node.drained) {
            (false, _) => "offline",
            (true, true) => "drained",
            (true, false) => "online",
        };
        let numbers = [node.granules, node.used, u64::from(node.fragments)].map(|n| n.to_string());
        rows.push(
            [node.name.clone(), state.to_owned()]
                .into_iter()
                .chain(numbers)
                .collect(),
        );
    }
    text.push('\n');
    text.push_str(&table(&rows));
    if !status.instances.is_empty() {
        rows = vec![row([
            "instance", "state", "size", "access", "lifetime", "user",
        ])];
        for instance in &status.instances {
            let session = status.sessions.iter().find(|s| s.id == instance.session);
            let modes: Vec<&str> = instance.modes.iter().map(|mode| mode.word()).collect();
            let lifetime = session.map_or("?", |s| match s.lifetime {
                crate::controller::Lifetime::Job => "job",
                crate::controller::Lifetime::Persistent => "persistent",
            });
            rows.push(vec![
                instance.label.clone(),
                instance.state.clone(),
                size(instance.capacity.0),
                modes.join(","),
                lifetime.to_owned(),
                session.map_or_else(String::new, |s| s.owner.uid.to_string()),
            ]);
        }
        text.push('\n');
        text.push_str(&table(&rows));
    }
    if !status.stages.is_empty() {
        rows = vec![row(["stage of", "line", "way", "state", "files", "data"])];
        for stage in &status.stages {
            let way = match stage.direction {
                forebay_model::jobscript::Direction::In => "in",
                forebay_model::jobscript::Direction::Out => "out",
            };
            let state = match &stage.state {
                StageState::Waiting => "waiting",
                StageState::Queued => "queued",
                StageState::Running => "running",
                StageState::Cancelling => "stopping",
                StageState::Done => "done",
                StageState::Failed(_) => "failed",
                StageState::Cancelled => "cancelled",
            };
            rows.push(vec![
                stage.token.clone(),
                match stage.line {
                    // Asked for by a running job, not by its script.
                    0 => "-".to_owned(),
                    line => line.to_string(),
                },
                way.to_owned(),
                state.to_owned(),
                stage.progress.files.to_string(),
                size(stage.progress.bytes),
            ]);
        }
        text.push('\n');
        text.push_str(&table(&rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Progress;
    use crate::run::Phase;
    use std::time::Duration;

    #[test]
    fn the_summary_says_where_time_went() {
        let moved = Progress {
            files: 3,
            files_total: 3,
            bytes: 3 << 20,
            bytes_total: 3 << 20,
            all_found: true,
        };
        let phase = |name, seconds, moved| Phase {
            name,
            time: Duration::from_secs(seconds),
            moved,
        };
        let report = RunReport {
            token: "7".into(),
            code: 0,
            kept: false,
            phases: vec![
                phase("stage in", 1, moved),
                phase("run", 3, Progress::default()),
            ],
        };
        let expected = "\
           time  share  files      data        rate
stage in  1.0 s   25 %      3  3.00 MiB  3.00 MiB/s
run       3.0 s   75 %
total     4.0 s
";
        let text = summary(&report);
        assert_eq!(text.trim_start(), expected.trim_start(), "\n{text}");
    }
}
