//! Tables.

use crate::controller::Cause;
use crate::run::{Recovered, Recovery, RunReport};

use super::{size, time};

/// Rows of cells with two blanks between columns. `align` has a letter for each column: `r` for
/// numbers, which lean to the right, anything else for text.
pub(super) fn table(align: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let right: Vec<bool> = align.chars().map(|c| c == 'r').collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if index > 0 { "  " } else { "" };
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) = match right.get(index) {
                Some(true) => (pad.as_str(), ""),
                _ => ("", pad.as_str()),
            };
            line.extend([gap, before, cell, after]);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
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
    table("lrrrrr", &rows)
}

/// So many files.
pub fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

/// What became of interrupted jobs.
pub fn recovered(list: &[Recovered]) -> String {
    let mut text = String::new();
    for Recovered { token, recovery } in list {
        let what = match recovery {
            Recovery::StagedOut(moved) => {
                format!("staged out {}, {}", files(moved.files), size(moved.bytes))
            }
            Recovery::NothingToSave => "had not run; taken down".to_owned(),
            Recovery::Discarded => "results destroyed, as asked".to_owned(),
            Recovery::Kept(failure) => match failure.cause {
                Cause::Denied => format!("left alone: {failure}"),
                _ => format!(
                    "kept: {failure}; try again when the cause is removed, or give it up with \
                     --discard"
                ),
            },
        };
        text.push_str(&format!("job {token}: {what}\n"));
    }
    if list.is_empty() {
        text.push_str("nothing to recover\n");
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
